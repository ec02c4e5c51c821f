//! `linewise bench fibres`: what switching, moving and beginning fibres costs.

use std::process::ExitCode;
use std::time::Duration;

use linewise_bench::{fibres, usable};
use linewise_machine::latency::measure_round_trip;

use super::accesstest::parse_share;
use crate::say::{out, out_line};

/// Arguments of `linewise bench fibres`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FibresArgs {
    /// Measurements of each cost
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..10_000))]
    repeats: u32,
    /// Two CPUs to run on; the first two allowed ones unless given
    #[arg(long, num_args = 1..=2, value_delimiter = ',')]
    cpus: Option<Vec<u32>>,
    /// Leave out of the table measurements in which the workers waited for the CPUs for more than this share of the time,
    /// because other programs ran there
    #[arg(long, value_name = "PERCENT", value_parser = parse_share)]
    quiet: Option<f64>,
    /// Print JSON, with every measurement
    #[arg(long)]
    json: bool,
}

/// What one measurement of the round trip takes.
const BUDGET: Duration = Duration::from_millis(5);

pub(super) fn run(args: &FibresArgs) -> anyhow::Result<ExitCode> {
    let asked = args.cpus.as_ref().map_or(2, Vec::len);
    anyhow::ensure!(asked == 2, "--cpus takes two CPUs, as 0,1, and not {asked}");
    let cpus = usable(args.cpus.as_deref().unwrap_or_default())?;
    let &[here, there, ..] = cpus.as_slice() else {
        anyhow::bail!(
            "moving needs two CPUs, and this process may use only {}; see `taskset -p $$`",
            cpus.len()
        );
    };
    let rows = fibres::measure([here, there], args.repeats, || {
        anyhow::Ok(measure_round_trip(here, there, BUDGET)?.median_ns)
    })?;
    if args.json {
        out_line(format_args!("{:#}", fibres::json(&rows)))?;
    } else {
        let quiet = args.quiet.unwrap_or(f64::INFINITY);
        out(format_args!("{}", fibres::table(&rows, quiet)))?;
        out_line(format_args!(
            "\nOther programs on these CPUs make all but the round trip slower, and the spread no wider: measure while\n\
             nothing else runs, or leave out what they disturbed (--quiet 5)."
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
