//! `linewise groups`: which threads share cache lines, and where they should run.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgMatches, Command};
use linewise_analysis::group_threads;
use linewise_analysis::report::handover::{Handover, hand_over};
use linewise_analysis::report::terminal::TerminalOptions;
use linewise_analysis::report::{html, json, terminal};
use linewise_analysis::views::groups::ThreadGroups;
use linewise_machine::sysfs::read_topology;
use linewise_recording::{RunInfo, write_file};
use linewise_topology::Topology;

use crate::busy::busy_processes;
use crate::record::{self, CollectArgs};
use crate::report::{Colour, print, terminal_options, with_names, write_html};
use crate::say::say;

/// For how long the system is looked at.
const SYSTEM: Duration = Duration::from_secs(10);

/// Arguments of `linewise groups`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    override_usage = "linewise groups [OPTIONS] RECORDING\n       linewise groups [OPTIONS] --pid PID [--duration TIME]\n       linewise groups [OPTIONS] --system [--duration TIME]\n       linewise groups [OPTIONS] -- COMMAND..."
)]
pub(crate) struct GroupsArgs {
    /// The recording
    #[arg(value_name = "RECORDING", conflicts_with_all = ["command", "attach"])]
    recording: Option<PathBuf>,
    #[command(flatten)]
    collect: BehindDashes,
    /// Keep the recording under this name; it is thrown away otherwise
    #[arg(help_heading = "The recording", long, short, value_name = "NAME")]
    output: Option<PathBuf>,
    /// Record all processes that use a fifth of a CPU or more, for 10 s unless --duration says otherwise
    #[arg(help_heading = "What to record", long, conflicts_with_all = ["attach", "command", "recording"])]
    system: bool,
    #[command(flatten)]
    show: GroupsOutput,
}

/// What to record: a command only behind `--`, since what stands before is a recording.
#[derive(Clone, Debug)]
struct BehindDashes(CollectArgs);

impl clap::FromArgMatches for BehindDashes {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        CollectArgs::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl clap::Args for BehindDashes {
    fn augment_args(command: Command) -> Command {
        CollectArgs::augment_args(command).mut_arg("command", |it| {
            it.last(true)
                .trailing_var_arg(false)
                .required_unless_present_any(["attach", "recording", "system"])
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        CollectArgs::augment_args_for_update(command)
    }
}

/// What to print where.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "What to show")]
struct GroupsOutput {
    /// Print JSON (described in docs/groups-json.md) instead of text
    #[arg(long)]
    json: bool,
    /// Also write one HTML file: the matrix, and the machine with the groups on it
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print every group and pair
    #[arg(long, short)]
    verbose: bool,
    /// When to use colour
    #[arg(long, default_value = "auto", value_name = "WHEN")]
    colour: Colour,
    /// Print the placement as this program takes it, instead of the groups; nothing where nothing should be moved
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "json")]
    write: Option<WriteForm>,
    /// With --write: write it to this file, and print the groups, too
    #[arg(long, value_name = "FILE", requires = "write")]
    write_to: Option<PathBuf>,
    /// A copy of /proc and /sys of the machine to place threads on, if it is not this one
    #[arg(long, value_name = "DIR")]
    place_on: Option<PathBuf>,
}

/// Who takes a placement.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum WriteForm {
    /// Shell lines, one for each thread
    Taskset,
    /// The command behind numactl
    Numactl,
    /// A drop-in for a service
    Systemd,
    /// Shell lines that make cpusets of cgroup v2
    Cpuset,
    /// A specification of layers
    #[value(name = "scx_layered")]
    ScxLayered,
    /// Classes of threads
    Schedqos,
}

impl WriteForm {
    fn handover(self) -> Handover {
        match self {
            Self::Taskset => Handover::Taskset,
            Self::Numactl => Handover::Numactl,
            Self::Systemd => Handover::Systemd,
            Self::Cpuset => Handover::Cpuset,
            Self::ScxLayered => Handover::ScxLayered,
            Self::Schedqos => Handover::Schedqos,
        }
    }
}

impl GroupsOutput {
    /// Whether a program is to read the standard output.
    fn takes_standard_output(&self) -> bool {
        self.json || (self.write.is_some() && self.write_to.is_none())
    }
}

/// Groups the threads of a recording, or of what is recorded for it.
pub(crate) fn run(args: &GroupsArgs) -> anyhow::Result<ExitCode> {
    if let Some(recording) = &args.recording {
        show(recording, &args.show)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (output, own) = (args.output.as_deref(), args.show.takes_standard_output());
    let of_system = args
        .system
        .then(|| of_system(&args.collect.0))
        .transpose()?;
    let collect = of_system.as_ref().unwrap_or(&args.collect.0);
    record::record_and_show(collect, output, own, |it| show(it, &args.show))
}

/// All that is at work.
fn of_system(args: &CollectArgs) -> anyhow::Result<CollectArgs> {
    let busy = busy_processes()?;
    if busy.is_empty() {
        bail!("no process uses a fifth of a CPU: nothing is at work that is worth a look");
    }
    Ok(args.attached_to(busy, SYSTEM))
}

/// Prints and writes what was asked for.
fn show(directory: &Path, args: &GroupsOutput) -> anyhow::Result<()> {
    let given = args.place_on.as_deref().map(read_topology).transpose();
    let given = given.context("--place-on: its shape cannot be read")?;
    let (mut groups, notes) = with_names(directory, |info, tables| {
        let machine = given.or_else(|| recorded_machine(info));
        group_threads(info, tables, machine.as_ref())
    })?;
    groups.notes.extend(notes);
    if let Some(path) = &args.html {
        write_html(path, &html::render_groups(&groups))?;
        say(&format!("HTML in {}", path.display()));
    }
    let printed = match args.write {
        Some(form) => write(&groups, form, args.write_to.as_deref())?,
        None => false,
    };
    match (args.json, printed) {
        (true, _) => print(&(json::render_groups(&groups) + "\n")),
        (false, true) => Ok(()),
        (false, false) => print(&terminal::render_groups(
            &groups,
            &TerminalOptions {
                verbose: args.verbose,
                ..terminal_options(args.colour, true)
            },
        )),
    }
}

/// The shape of this machine, if the recording is of it.
fn recorded_machine(info: &RunInfo) -> Option<Topology> {
    let host = linewise_foreign::read(Path::new("/proc/sys/kernel/hostname"), 1000).ok()?;
    let host = String::from_utf8_lossy(&host);
    let machine = read_topology(Path::new("/")).ok()?;
    let is_it = host.trim() == info.host && machine.cpus.len() as u64 == u64::from(info.cpus);
    is_it.then_some(machine)
}

/// Writes the placement; whether it took the place of the groups on the standard output.
fn write(groups: &ThreadGroups, form: WriteForm, to: Option<&Path>) -> anyhow::Result<bool> {
    let handed = match hand_over(groups, form.handover()) {
        Ok(handed) => handed,
        Err(reason) => {
            say(&format!("nothing to write. {reason}"));
            return Ok(to.is_none());
        }
    };
    match to {
        Some(path) => write_file(path, handed.text.as_bytes())
            .with_context(|| format!("cannot write the placement to {}", path.display()))?,
        None => print(&handed.text)?,
    }
    for note in &handed.notes {
        say(note);
    }
    std::io::stdout()
        .flush()
        .context("cannot print the placement")?;
    Ok(to.is_none())
}
