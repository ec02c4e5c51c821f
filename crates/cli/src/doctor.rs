//! `linewise doctor`: what this machine can do, as told by the kernel and as measured now.
//!
//! ```text
//! Facts, Topology (told)  ──┐
//!                           ├─> DoctorReport ──> text at 80 columns, or JSON (schema 1)
//! Measure (measured now)  ──┘
//! ```
//!
//! Everything that is missing comes with what the user can do about it. The measured part stands
//! behind [`Measure`], so that tests invent machines; the whole takes under five seconds.

mod examine;
mod matrix;
mod measure;
mod remedies;
mod report;
mod text;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use linewise_machine::facts::Facts;
use linewise_machine::guard;
use linewise_machine::sysfs::read_topology;

use measure::{Measure, RoundTripNs, SamplerProbe, WatchpointProbe};
use report::DoctorReport;

/// Arguments of `linewise doctor`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON (schema 1, described in docs/doctor.md) instead of text.
    #[arg(long)]
    json: bool,
}

/// Exit code when no source works: nothing can be recorded on this machine as this user.
const NOTHING_WORKS: u8 = 1;

/// Time for all core-to-core measurements together; the two probes take most of the rest of the
/// five seconds.
const ROUND_TRIP_BUDGET: Duration = Duration::from_millis(1500);

/// The machine that we run on, with what the kernel tells of it.
struct ThisMachine<'a>(&'a Facts);

impl Measure for ThisMachine<'_> {
    fn round_trip(&mut self, a: u32, b: u32, budget: Duration) -> Result<RoundTripNs, String> {
        linewise_machine::latency::measure_round_trip(a, b, budget)
            .map(|trip| RoundTripNs {
                median: trip.median_ns,
                low: trip.low_ns,
                high: trip.high_ns,
            })
            .map_err(|error| error.to_string())
    }

    fn watchpoints(&mut self) -> Result<WatchpointProbe, String> {
        linewise_machine::probe::watchpoint_costs()
            .map(|costs| WatchpointProbe {
                count: costs.count,
                arm_ns: costs.arm_ns,
                trap_ns: costs.trap_ns,
                guarded: guard::needed(self.0),
            })
            .map_err(|error| error.to_string())
    }

    fn sampler(&mut self) -> Result<SamplerProbe, String> {
        linewise_machine::probe::skid_rule()
            .map(|probe| SamplerProbe {
                skid_rule: match probe.rule {
                    linewise_machine::probe::SkidRule::Next => measure::SkidRule::Next,
                    linewise_machine::probe::SkidRule::Same => measure::SkidRule::Same,
                },
                agreement: probe.agreement,
                samples: probe.samples,
                sample_ns: probe.sample_ns,
            })
            .map_err(|error| error.to_string())
    }
}

/// Examines this machine and prints what was found.
///
/// Exits with 0 when at least one source works and with 1 when none does.
///
/// # Errors
/// If the kernel lists no CPUs, or the output cannot be written.
pub(crate) fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let root = Path::new("/");
    let directories: Vec<_> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    let facts = Facts::read(root, &directories);
    let topology = read_topology(root).context("cannot tell the machine's shape")?;
    let report = DoctorReport::examine(
        &facts,
        &topology,
        &mut ThisMachine(&facts),
        ROUND_TRIP_BUDGET,
    );

    let mut output = if args.json {
        let json = serde_json::to_string_pretty(&report);
        linewise_foreign::json(json.context("cannot write the report as JSON")?)
    } else {
        text::render(&report)
    };
    if !output.ends_with('\n') {
        output.push('\n');
    }
    match std::io::stdout().lock().write_all(output.as_bytes()) {
        // `linewise doctor | head` is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        result => result.context("cannot write to standard output")?,
    }
    Ok(if report.anything_works() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NOTHING_WORKS)
    })
}
