//! What `linewise place` is told.

use std::path::PathBuf;
use std::time::Duration;

use crate::record::{parse_duration, parse_percent};
use crate::report::whole_number;

/// Arguments of `linewise place`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// The command to run and place
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(super) command: Vec<std::ffi::OsString>,
    /// Place the threads of this running process, and of all that descend from it
    #[arg(help_heading = "What to place", long, value_name = "PID", value_delimiter = ',', value_parser = whole_number::<u32>)]
    pub(super) pid: Vec<u32>,
    /// Place the threads of all processes that use a fifth of a CPU or more
    #[arg(help_heading = "What to place", long)]
    pub(super) system: bool,
    /// Undo what a placer left that was killed, and end
    #[arg(help_heading = "What to place", long, conflicts_with_all = ["command", "pid", "system"])]
    pub(super) undo: bool,
    /// Say what would move, and why; move nothing
    #[arg(help_heading = "How", long)]
    pub(super) dry_run: bool,
    /// Decide once, and hold that until the end
    #[arg(help_heading = "How", long)]
    pub(super) once: bool,
    /// Try each change in short turns against what was before, and keep it only if it is better beyond noise
    #[arg(help_heading = "How", long)]
    pub(super) trial: bool,
    /// What --trial compares: a command that prints how much work has been done so far, a growing number
    ///
    /// Without it the CPU time that the threads need at shared lines decides, as far as recordings of the turns tell it
    #[arg(help_heading = "How", long, value_name = "COMMAND", requires = "trial")]
    pub(super) figure: Option<String>,
    /// How long a turn of --trial lasts
    #[arg(help_heading = "How", long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    pub(super) turn: Duration,
    /// Let a thread run on one CPU and not on all of its cache or socket
    #[arg(help_heading = "How", long)]
    pub(super) pin: bool,
    /// How long a look lasts
    #[arg(help_heading = "How much", long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    pub(super) look: Duration,
    /// The time between looks once nothing is to be moved
    #[arg(help_heading = "How much", long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(super) every: Duration,
    /// What a look may cost, as a share of the threads' CPU time
    #[arg(help_heading = "How much", long, value_name = "PERCENT", default_value = "1%", value_parser = parse_percent)]
    pub(super) overhead: f64,
    /// End after this long
    #[arg(help_heading = "How much", long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    /// Take what was seen from a file of counter values, a line of JSON for each interval, instead of looking
    #[arg(help_heading = "From where", long, value_name = "FILE")]
    pub(super) counters: Option<PathBuf>,
    /// See the threads through the processor's counters and not by recordings: who shares, and not with whom
    ///
    /// On Intel's servers from Skylake on and AMD Zen 3 to 5, where there is a PMU
    #[arg(help_heading = "From where", long, conflicts_with = "counters")]
    pub(super) hardware_counters: bool,
    /// From where on something costs enough to move a thread for it: what `linewise calibrate -o FILE` wrote
    ///
    /// Without it those of the machine of the algorithm's paper: 550,000 transfers a second of a thread's time
    #[arg(help_heading = "From where", long, value_name = "FILE")]
    pub(super) thresholds: Option<PathBuf>,
    /// Place for the machine whose `sys` is in this folder, instead of this one
    #[arg(help_heading = "From where", long, value_name = "FOLDER")]
    pub(super) topology: Option<PathBuf>,
    /// Where the journal is, from which everything can be undone
    ///
    /// Without it place.journal in /run/linewise for root, else in linewise of $XDG_RUNTIME_DIR, or in /tmp/linewise-UID
    #[arg(help_heading = "From where", long, value_name = "FILE")]
    pub(super) journal: Option<PathBuf>,
    /// Write what happens to this file, a line of JSON for each event
    #[arg(help_heading = "What to show", long, value_name = "FILE")]
    pub(super) events: Option<PathBuf>,
    /// Say only what failed
    #[arg(help_heading = "What to show", long, short)]
    pub(super) quiet: bool,
}
