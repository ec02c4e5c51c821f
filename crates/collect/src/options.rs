//! What is to be recorded of what, and what a caller hears meanwhile.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use linewise_recording::CreateMode;

use crate::error::Error;
use crate::kernel::Processes;

/// What to record.
#[derive(Clone, Debug)]
pub enum Target {
    /// This command, launched here.
    Launch(Vec<OsString>),
    /// These processes, already running, and all that descend from them; a thread's number names its process.
    Attach(Vec<u32>),
}

impl Target {
    /// The words of the command, or of what process `pid` runs.
    pub(crate) fn command_line(&self, kernel: &impl Processes, pid: u32) -> Vec<String> {
        match self {
            Self::Launch(command) => {
                let words = command.iter();
                words
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect()
            }
            Self::Attach(_) => kernel.command_line(pid).unwrap_or_default(),
        }
    }
}

/// What to record where, whatever the source.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// What.
    pub target: Target,
    /// The recording's directory.
    pub directory: PathBuf,
    /// Whether an older recording there may be replaced.
    pub replace: bool,
    /// End after this long.
    pub duration: Option<Duration>,
    /// Whether what a launched target writes to its standard output goes to its standard error, since the other one is
    /// somebody else's.
    pub output_to_errors: bool,
    /// Whether heap blocks are recorded.
    pub heap: HeapWhen,
    /// Whose objects are followed from their allocation to their end. Takes the heap recorder; the timer watches them with half
    /// of each thread's watchpoints and half of the budget for watches, so not together with [`TimerOptions::reuse`].
    pub flow: Option<Wanted>,
}

impl RecordOptions {
    pub(crate) fn mode(&self) -> CreateMode {
        if self.replace {
            CreateMode::Replace
        } else {
            CreateMode::New
        }
    }
}

/// How the timer records.
#[derive(Clone, Debug)]
pub struct TimerOptions {
    /// What recording may cost, as a share of the target's CPU time (0.02 is 2 %).
    pub overhead: f64,
    /// Samples a second of thread time, overriding the budget's choice.
    pub rate: Option<f64>,
    /// What has a sampler.
    pub sample_by: SampleBy,
    /// Whether threads are guarded against traps that lost their reason
    /// ([`linewise_machine::guard`]); without a word, where that is known to happen.
    pub guard: Option<bool>,
    /// Whether sampled addresses are watched for their reuses, with half of each thread's watchpoints
    /// and half of the budget for watches.
    pub reuse: bool,
}

/// What has a sampler of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleBy {
    /// Each CPU where that is allowed, otherwise each thread.
    Auto,
    /// Each CPU, whoever runs there; only what the target does is kept.
    Cpu,
    /// Each thread of the target, which costs it time at each switch between threads.
    Thread,
}

/// Whether heap blocks are recorded, by a library that is loaded into a launched target or, by the timer alone, by probes on its
/// allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapWhen {
    /// Where that can be, as many as a part of the budget pays for.
    Auto,
    /// As `Auto` and by the library alone: nothing is probed, and where it cannot be loaded that is told in the recording
    /// only.
    Loaded,
    /// Where that can be, all of them, whatever it costs.
    All,
    /// None, but marks of sessions and phases, by the library alone.
    Marks,
    /// Not.
    Never,
}

/// How far a recording is, for a progress line.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since its start.
    pub elapsed: Duration,
    /// Samples so far, of an exact run accesses.
    pub observed: u64,
    /// Threads alive.
    pub threads: usize,
}

/// What is told while a recording is under way.
#[derive(Debug)]
pub enum Event<'a> {
    /// How far it is, twice a second.
    Progress(Progress),
    /// Less than all will be seen, for this reason.
    Warning(&'a str),
    /// The recording has failed and ends here. A launched target runs on to its end.
    Failed(&'a Error),
    /// The target has ended, and the recording could not be completed.
    CutShort(&'a Error),
}

/// Whose objects to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Those that are touched most.
    Most,
    /// Those that this function allocates, or that have this name.
    Named(String),
}
