//! `linewise bench accesstest`: phases of a session loop, executed in place and delegated.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use linewise_bench::accesstest::{
    Accesstest, AccesstestSpec, AppendixB, CacheSizes, Case, Characteristics, Level, Mode,
    PhaseGlobal, PhaseLocal, Progress, SessionLog, SessionType, Start, accesstest_json,
    accesstest_page, accesstest_table, run_accesstest,
};
use linewise_machine::affinity::allowed_cpus;

use super::time::minutes;
use crate::say::{ProgressLine, out, out_line, say, two_outlets};

/// Sessions execute a loop of phases, each of which accesses lines of memory: in place or delegated to another CPU.
///
/// The accesses are a circular pointer chase; each line is accessed at least once in an iteration, its number of accesses
/// follows Zipf's law. Modes: synchronous (each CPU executes all phases of its part of the sessions), delegated (each
/// CPU executes its phases of all sessions, which migrate), visit (sessions stay on the first CPU and ship the other
/// phases as closures), requests (the other phases are requests through linewise-delegate).
///
/// Without --phase or --appendix-b it measures working sets at and around the size of each cache of this machine, at
/// update ratios of 0, 0.1, 1, 10 and 100 %. With them it measures that one path. Modes take turns; a figure is the
/// median of the runs, and holds only runs made in one state of the machine, by the core-to-core round trip measured
/// beside each.
///
/// A line is accessed at most 16 times in an iteration by its 16 elements; where weights ask for more, elements are
/// accessed several times in a row, by a count that they hold.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AccesstestArgs {
    /// Working sets around these caches: l1d, l2, l3, all
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "all",
        value_name = "CACHES"
    )]
    sweep: Vec<Swept>,
    /// Working sets of these sizes instead, in bytes or with K, M, G (24K,96K,4M)
    #[arg(long, value_delimiter = ',', value_parser = bytes, value_name = "SIZES")]
    sizes: Vec<u64>,
    /// Shares of accesses that write, in percent
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "0,0.1,1,10,100",
        value_parser = update_percent,
        value_name = "PERCENT"
    )]
    updates: Vec<f64>,
    /// Phases that a working set is cut into
    #[arg(long, default_value_t = 2, value_name = "NUMBER")]
    phases: usize,
    /// What one phase accesses alone: session-local/session-global lines, each lines[,update[,weight]] with the share
    /// of accesses that write from 0 to 1 and the relative number of accesses. Once for each phase
    #[arg(long, value_name = "LINES/LINES", conflicts_with_all = ["sizes", "updates", "phases", "sweep"])]
    phase: Vec<PhaseLocal>,
    /// Lines that several phases access: session-local/session-global:phase[,update,update[,weight,weight]]/phase...
    #[arg(long, value_name = "LINES/LINES:PHASES", requires = "phase")]
    shared: Vec<PhaseGlobal>,
    /// The command line of the thesis's own program, as "-s 100 -d 10 0/256,0.1 0/256,0.1 fibre"
    #[arg(
        long,
        value_name = "LINE",
        allow_hyphen_values = true,
        conflicts_with_all = ["phase", "shared", "sizes", "updates", "phases", "sweep", "sessions", "seconds",
            "seed", "start", "signal", "log_sessions", "session_type"]
    )]
    appendix_b: Option<AppendixB>,
    /// How phases are executed: synchronous, delegated, visit, requests; all that the CPUs allow if not given
    #[arg(long, value_delimiter = ',', value_parser = mode, value_name = "MODES")]
    mode: Vec<Mode>,
    /// Sessions that walk the path
    #[arg(short, long, default_value_t = 100, value_name = "NUMBER")]
    sessions: usize,
    /// What sessions are
    #[arg(long, default_value = "fibre", value_name = "TYPE")]
    session_type: Type,
    /// The phase that sessions begin with, from 0; u spreads them evenly over the phases
    #[arg(
        long,
        visible_alias = "sess-distr",
        default_value = "0",
        value_name = "PHASE"
    )]
    start: Start,
    /// Seconds of a run
    #[arg(short = 'd', long, visible_alias = "duration", default_value = "1", value_parser = AccesstestSpec::seconds_of)]
    seconds: f64,
    /// Runs of each figure
    #[arg(long, default_value_t = 5, value_name = "RUNS")]
    repeats: usize,
    /// Seed of the paths; the second run of each figure has the next one, and so on
    #[arg(short = 'r', long, default_value_t = 5489)]
    seed: u64,
    /// CPUs in the order of the phases; the first two where this process may run if not given
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<u32>,
    /// Sessions allocate their own lines anew in each iteration
    #[arg(long)]
    fresh: bool,
    /// Leave the caches as they are before each run
    #[arg(long)]
    no_wipe: bool,
    /// Leave runs out of the figures whose threads waited for the CPUs for more than this share of the time, because other
    /// programs ran there
    #[arg(long, value_name = "PERCENT", value_parser = parse_share)]
    quiet: Option<f64>,
    /// Begin the first run when SIGUSR1 comes
    #[arg(long)]
    signal: bool,
    /// Write the sessions of the first run: id,name,stack_low,stack_high,begin_ns,end_ns,phase,accesses, a line for
    /// each; addresses in hex, times of the monotonic clock
    #[arg(long, value_name = "FILE")]
    log_sessions: Option<PathBuf>,
    /// Say what each run gave
    #[arg(short, long)]
    verbose: bool,
    /// Write a page with the curves
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON, with every run
    #[arg(long)]
    json: bool,
}

/// Caches whose sizes are swept.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Swept {
    L1d,
    L2,
    L3,
    All,
}

/// What a session is.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Type {
    Thread,
    Fibre,
}

fn mode(name: &str) -> Result<Mode, String> {
    let mut all = Mode::ALL.into_iter();
    all.find(|mode| mode.name() == name)
        .ok_or_else(|| "there are synchronous, delegated, visit and requests".to_owned())
}

fn bytes(text: &str) -> Result<u64, String> {
    let unit = match text.chars().last().map(|last| last.to_ascii_uppercase()) {
        Some('K') => 1 << 10,
        Some('M') => 1 << 20,
        Some('G') => 1 << 30,
        _ => 1,
    };
    let digits = if unit > 1 {
        &text[..text.len() - 1]
    } else {
        text
    };
    let number = digits.parse::<u64>().ok();
    number
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| "not a number of bytes, as 98304, 96K or 4M".to_owned())
}

fn update_percent(text: &str) -> Result<f64, String> {
    let percent = text.trim().parse::<f64>().ok();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "an update ratio is from 0 to 100 percent".to_owned())
}

/// A share in percent.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse::<f64>().ok();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "a share from 0 to 100 percent is wanted, as 5".to_owned())
}

pub(super) fn run(args: &AccesstestArgs) -> anyhow::Result<ExitCode> {
    let (spec, log_to, verbose) = asked(args)?;
    // What cannot be written is refused before hours of measuring.
    let [log_to, page_to] = two_outlets(
        ["the sessions", "the page"],
        [log_to.as_deref(), args.html.as_deref()],
    )?;
    let line = ProgressLine::on_a_terminal();
    let mut told_to_wait = false;
    let test = run_accesstest(&spec, |progress| {
        if progress.waits && !told_to_wait {
            told_to_wait = true;
            line.clear();
            let pid = std::process::id();
            say(&format!(
                "the sessions are ready and wait for SIGUSR1: kill -USR1 {pid}"
            ));
        }
        line.show(&told(progress, spec.seconds));
    });
    line.clear();
    let test = test?;
    if verbose {
        say_runs(&test);
    }
    if args.json {
        out_line(format_args!("{:#}", accesstest_json(&test)))?;
    } else {
        out(format_args!("{}", accesstest_table(&test)))?;
    }
    if let Some((path, outlet)) = log_to {
        outlet
            .write(session_lines(&test.log).as_bytes())
            .with_context(|| format!("cannot write the sessions to {}", path.display()))?;
    }
    if let Some((path, outlet)) = page_to {
        outlet
            .write(accesstest_page(&test).as_bytes())
            .with_context(|| format!("cannot write the page {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is to be measured, where sessions are logged, and whether each run is told.
fn asked(args: &AccesstestArgs) -> anyhow::Result<(AccesstestSpec, Option<PathBuf>, bool)> {
    let common = AccesstestSpec {
        modes: args.mode.clone(),
        repeats: args.repeats,
        cpus: args.cpus.clone(),
        fresh: args.fresh,
        wipes: !args.no_wipe,
        quiet_percent: args.quiet.unwrap_or(f64::INFINITY),
        ..AccesstestSpec::default()
    };
    if let Some(thesis) = &args.appendix_b {
        let log_to = thesis.log_sessions.as_ref().map(PathBuf::from);
        let spec = AccesstestSpec {
            cases: vec![alone(thesis.characteristics.clone())],
            session_type: thesis.session_type,
            sessions: thesis.sessions,
            start: thesis.start,
            seconds: thesis.seconds,
            seed: thesis.seed,
            on_signal: thesis.on_signal,
            logs_sessions: log_to.is_some(),
            ..common
        };
        return Ok((spec, log_to, args.verbose || thesis.verbose));
    }
    let cases = if args.phase.is_empty() {
        sweep(args)?
    } else {
        vec![alone(Characteristics {
            phases: args.phase.clone(),
            shared: args.shared.clone(),
        })]
    };
    let spec = AccesstestSpec {
        cases,
        session_type: match args.session_type {
            Type::Thread => SessionType::Thread,
            Type::Fibre => SessionType::Fibre,
        },
        sessions: args.sessions,
        start: args.start,
        seconds: args.seconds,
        seed: args.seed,
        on_signal: args.signal,
        logs_sessions: args.log_sessions.is_some(),
        ..common
    };
    Ok((spec, args.log_sessions.clone(), args.verbose))
}

/// A path of its own, which no curve belongs to.
fn alone(characteristics: Characteristics) -> Case {
    Case {
        characteristics,
        update_percent: None,
    }
}

/// Every size with every ratio.
fn sweep(args: &AccesstestArgs) -> anyhow::Result<Vec<Case>> {
    let mut sizes = args.sizes.clone();
    if sizes.is_empty() {
        let first = args.cpus.first().copied();
        let cpu = first
            .or_else(|| allowed_cpus().first().copied())
            .unwrap_or(0);
        let caches = CacheSizes::of_cpu(cpu);
        for level in Level::ALL {
            let name = level.name();
            let is_this = |swept: &Swept| match swept {
                Swept::All => true,
                Swept::L1d => name == "l1d",
                Swept::L2 => name == "l2",
                Swept::L3 => name == "l3",
            };
            if args.sweep.iter().any(is_this) {
                sizes.extend(level.sizes(&caches)?);
            }
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    let mut cases = Vec::new();
    for &size in &sizes {
        for &percent in &args.updates {
            cases.push(Case {
                characteristics: Characteristics::even(size / 64, args.phases, percent / 100.0)?,
                update_percent: Some(percent),
            });
        }
    }
    Ok(cases)
}

fn session_lines(log: &[SessionLog]) -> String {
    let mut out = "id,name,stack_low,stack_high,begin_ns,end_ns,phase,accesses\n".to_owned();
    for one in log {
        let _ = writeln!(
            out,
            "{},{},{:#x},{:#x},{},{},{},{}",
            one.id,
            one.name,
            one.stack.start,
            one.stack.end,
            one.begin_ns,
            one.end_ns,
            one.phase,
            one.accesses
        );
    }
    out
}

fn say_runs(test: &Accesstest) {
    for sample in &test.samples {
        say(&format!(
            "{}: {} bytes, {:.3} % of {} accesses an iteration written, {} accesses in {:.3} s, {:.1} iterations a \
             session, {:.1} % waiting for CPUs, round trips {}",
            sample.mode.name(),
            sample.bytes,
            sample.written_percent,
            sample.iteration,
            sample.accesses,
            sample.seconds,
            sample.accesses as f64 / sample.iteration as f64 / test.sessions as f64,
            sample.waited_percent,
            sample.round_trips_ns.map_or_else(
                || "not measured".to_owned(),
                |(before, after)| format!("{before:.0} and {after:.0} ns")
            ),
        ));
    }
}

fn told(progress: &Progress, seconds: f64) -> String {
    let left = Duration::from_secs_f64((progress.of - progress.done) as f64 * seconds);
    let (bytes, percent, mode) = progress.now;
    let ratio = percent.map_or_else(String::new, |percent| format!(", {percent} % updates"));
    format!(
        "{} of {}, about {} to go: {}, {} KiB{ratio}",
        progress.done + 1,
        progress.of,
        minutes(left),
        mode.name(),
        bytes >> 10,
    )
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("98304"), Ok(98_304));
        assert_eq!(bytes("96K"), Ok(98_304));
        assert_eq!(bytes("4m"), Ok(4 << 20));
        assert_eq!(bytes("1G"), Ok(1 << 30));
        for wrong in ["", "K", "-1", "1.5M", "99999999999999999G", "1KiB", "é"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
