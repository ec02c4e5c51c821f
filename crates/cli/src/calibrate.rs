//! `linewise calibrate`: from which rates on it pays to move a thread on this machine.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use linewise_bench::calibrate::{
    Calibration, CalibrationSpec, calibration_json, calibration_page, calibration_table,
    run_calibration,
};
use linewise_machine::facts::Facts;
use linewise_machine::signals::{self, StopSignals};
use linewise_placer::ThresholdsFile;

use crate::interrupt;
use crate::say::{ProgressLine, out, out_line, say, two_outlets};

/// Finds this machine's thresholds for `linewise place`: the rate of coherence events at which distance costs a thread 5 %
/// of its time, and the rate of cache misses at which a node's memory is nearly saturated.
///
/// Two threads share lines, with more and less computation in between, near to each other and apart (figure 1: the
/// speedup of being near); tasks copy memory, a line or a whole row of DRAM at a time (figure 2: bandwidth by tasks). They
/// count what they cause themselves: no PMU is needed. Distances that the machine does not have are named, and it is
/// said what is taken instead. Use a quiet machine; it takes under a minute.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CalibrateArgs {
    /// Fewer and shorter runs: about 10 seconds
    #[arg(long)]
    quick: bool,
    /// Write the thresholds, for `linewise place --thresholds FILE`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a page with both figures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON, with every run
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    // What could not be written afterwards is refused before.
    let [thresholds_to, page_to] = two_outlets(
        ["the thresholds", "the page"],
        [args.output.as_deref(), args.html.as_deref()],
    )?;
    let calibration = measure(args.quick)?;
    if let Some((path, outlet)) = &thresholds_to {
        let text = thresholds_file(&calibration)?.to_json()?;
        outlet
            .write(text.as_bytes())
            .with_context(|| format!("cannot write the thresholds to {}", path.display()))?;
    }
    if let Some((path, outlet)) = &page_to {
        outlet
            .write(calibration_page(&calibration).as_bytes())
            .with_context(|| format!("cannot write the page {}", path.display()))?;
    }
    if args.json {
        out_line(format_args!("{:#}", calibration_json(&calibration)))?;
    } else {
        out(format_args!("{}", calibration_table(&calibration)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures, until a signal ends that and this process.
fn measure(quick: bool) -> anyhow::Result<Calibration> {
    let spec = if quick {
        CalibrationSpec::quick()
    } else {
        CalibrationSpec::thorough()
    };
    let line = ProgressLine::on_a_terminal();
    let signals = StopSignals::block().context("cannot wait for signals")?;
    let mut heard = None;
    let calibration = run_calibration(&spec, |progress| {
        line.show(&format!(
            "calibrating: {} ({:.0} %)",
            progress.now,
            progress.share * 100.0
        ));
        heard = heard.take().or_else(|| signals.next());
        match heard {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    });
    line.clear();
    if let Some(heard) = heard.or_else(|| signals.next()) {
        say("interrupted before all was measured; nothing was written");
        signals::end_by_signal(heard.signal);
    }
    // From here on nothing takes long, but a pipe may not be read.
    interrupt::end_at_once(signals, None);
    Ok(calibration?)
}

/// The file of these thresholds, with the machine's name and the day.
fn thresholds_file(calibration: &Calibration) -> anyhow::Result<ThresholdsFile> {
    let (per_s, how) = calibration.thresholds();
    let facts = Facts::read(Path::new("/"), &[]);
    let model = facts
        .cpu_model
        .known()
        .map_or("unknown CPU", String::as_str);
    let cpus = facts.allowed_cpus.known().map_or(0, |cpus| cpus.len());
    let machine = format!("{model}, measured on {cpus} CPUs");
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let days = since_epoch.map_or(0, |time| time.as_secs() / 86_400);
    Ok(ThresholdsFile::new(per_s, how, machine, date(days))?)
}

/// The date so many days after 1970-01-01, by the Gregorian calendar whose years begin in March (H. Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
fn date(days: u64) -> String {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    /// From 0000-03-01 to 1970-01-01.
    const BEFORE_EPOCH: u64 = 719_468;
    let days = days + BEFORE_EPOCH;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12 + 1;
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_are_dates() {
        for (days, wanted) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_785, "2026-11-28"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date(days), wanted, "{days}");
        }
    }
}
