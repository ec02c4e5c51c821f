//! `linewise`: which threads wait for each other's cache lines, what it costs, what to change.

#![forbid(unsafe_code)]

mod bench;
mod busy;
mod calibrate;
mod diff;
mod doctor;
mod exact;
mod exit;
mod generate;
mod groups;
mod interrupt;
mod panics;
mod place;
mod record;
mod report;
mod say;
mod scratch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Finds out why the threads of a native Linux program wait for each other's cache lines, what it
/// costs, and what to change. Works in virtual machines without a PMU, as an ordinary user, on
/// unmodified programs.
#[derive(Debug, Parser)]
#[command(name = "linewise", version, max_term_width = 100, after_help = EXAMPLES, subcommand_required = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  linewise run -- ./server --threads 8     record, then print what costs most
  linewise run --html report.html -- make  the same, with a report to click through
  linewise record --pid 1234 --duration 30s -o slow
  linewise report slow.linewise --json
  linewise diff slow.linewise fast.linewise
  linewise groups --pid 1234 --duration 30s  which threads share lines, and where to run them
  linewise run --source exact -- ./server  every access, under emulation: exact counts
  linewise doctor                          what this machine can do, and why not more

Exit codes: the target's own (128+N when signal N ended it); 125 when linewise itself
failed, 126 when the command cannot be executed, 127 when there is no such command.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Record a command or a process, and report at once
    Run(record::RunArgs),
    /// Record a command or a process, and report later
    Record(record::RecordArgs),
    /// Report on a recording
    Report(report::ReportArgs),
    /// Compare two recordings: what grew, what shrank, and whether that is more than noise
    Diff(diff::DiffArgs),
    /// Say which threads share cache lines with which, why, and where they should run
    Groups(groups::GroupsArgs),
    /// Put the threads that share lines near each other, while this runs; undone at its end
    Place(place::PlaceArgs),
    /// Say what this machine can do, as told by the kernel and as measured
    Doctor(doctor::DoctorArgs),
    /// Find from which rates of sharing and of cache misses on it pays to move a thread on this machine
    Calibrate(calibrate::CalibrateArgs),
    /// Measure linewise itself against benchmarks with known answers
    Bench(bench::BenchArgs),
    /// Print shell completions
    Completions(generate::CompletionArgs),
    /// Print the manual page, or write all of them into a folder
    Man(generate::ManArgs),
}

fn main() -> ExitCode {
    linewise_machine::process::survive_file_size_limits();
    panics::remember();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no failures; a wrong call must not look like the target's code.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            say::lines(&error.render().to_string());
            return exit::LINEWISE_FAILED.into();
        }
    };
    let result = panics::caught(|| run(arguments.verb)).unwrap_or_else(|bug| Err(bug.into()));
    interrupt::wait_if_ending();
    result.unwrap_or_else(|error| exit::report_failure(&error))
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Run(args) => record::run(&args),
        Verb::Record(args) => record::record(&args),
        Verb::Report(args) => report::run(&args),
        Verb::Diff(args) => diff::run(&args),
        Verb::Groups(args) => groups::run(&args),
        Verb::Place(args) => place::run(&args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Calibrate(args) => calibrate::run(&args),
        Verb::Bench(args) => bench::run(args),
        Verb::Completions(args) => generate::completions(&args, &mut Arguments::command()),
        Verb::Man(args) => generate::man(&args, Arguments::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
