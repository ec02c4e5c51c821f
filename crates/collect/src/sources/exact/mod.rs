//! The exact source: every access of every thread, in one order, while the program runs under
//! QEMU's user-mode emulation.
//!
//! ```text
//! qemu-user + plugin ─ rings ─► Stream ─ TracedAccess, TracedEvent ─► Consumer
//! ```
//!
//! Nothing is kept unless it is asked for. The target runs in a process of its own and waits when
//! this one falls behind. What it does in the kernel (a `read` into its memory) is not seen.

mod batch;
mod code;
mod emulator;
mod ending;
mod error;
mod launch;
mod only;
mod pieces;
mod reading;
pub(crate) mod record;
mod stream;
#[cfg(test)]
mod tests;
mod totals;
mod tracing;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use linewise_machine::process::{Ended, monotonic_ns};
use linewise_recording::{Loss, Map, Order, Time};
use linewise_trace::{ExactThread, Instruction, KeepTrace};

pub use emulator::{check_descriptors, plugin};
pub use error::ExactError;
pub use record::ExactRecordOptions;
pub use totals::Totals;
pub use tracing::trace;

#[cfg(fuzzing)]
pub(crate) use record::fuzzing::Reader as FuzzedReader;

use crate::target::life::EndedBy;

/// What to trace.
#[derive(Clone, Debug)]
pub struct ExactOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Record one line in so many, chosen by their hash; 1 for all.
    pub one_line_in: u32,
    /// Record only the code of this module or function: `NAME` is a function of the program, or a
    /// module by its file's name (`libc` also for `libc.so.6`); `PATH` with a slash is a module;
    /// `PATH:FUNCTION` a function of it.
    pub only: Option<String>,
    /// Leave out what a thread does to a line while no other touches it: such accesses are counted
    /// ([`ExactOutcome::counted`]), sampled by instruction ([`Consumer::sampled`]), and summed up when another
    /// thread comes ([`Consumer::handover`]). Of these units, size in bytes (a power of two) and one in
    /// how many, as [`Choice::Stratified`](linewise_cache::reuse::Choice) chooses them, all accesses are
    /// told nevertheless. `None` tells all; so does a share of the lines.
    pub leave_own: Option<Vec<(u32, u32)>>,
    /// In which order threads make their accesses to what they share; see [`Self::effective_order`].
    pub order: Order,
    /// Load the heap recorder into the program.
    pub heap: Option<HeapLoading>,
    /// Keep the trace.
    pub keep_trace: Option<KeepTrace>,
    /// Take the place of init for the command's orphans, so that they end with it. Only where this process has no other
    /// children: it is not to be told of their end.
    pub adopt_orphans: bool,
    /// End after this long.
    pub duration: Option<Duration>,
}

impl ExactOptions {
    /// Traces all of a command.
    #[must_use]
    pub fn new(command: Vec<OsString>) -> Self {
        Self {
            command,
            one_line_in: 1,
            only: None,
            leave_own: None,
            order: Order::default(),
            heap: None,
            keep_trace: None,
            adopt_orphans: false,
            duration: None,
        }
    }

    /// The order that accesses come in.
    #[must_use]
    pub fn effective_order(&self) -> Order {
        effective_order(self.order, self.only.as_deref())
    }
}

/// How the heap recorder is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapLoading {
    /// Variables of the program's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The path of the memory with the rules by which stacks are walked.
    pub region: String,
    /// Whether calls are followed, through the recorder too.
    pub calls: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct ExactOutcome {
    /// How the command ended.
    pub ended: Ended,
    /// Why the trace ended.
    pub ended_by: EndedBy,
    /// Sums.
    pub totals: Totals,
    /// The threads, by their numbers in the accesses.
    pub threads: Vec<ExactThread>,
    /// By thread: its loads, stores and updates, and the lines that it was the first to touch and had for
    /// itself. Zero where no accesses are left out.
    pub counted: Vec<([u64; 3], u64)>,
    /// The instructions, by their numbers in the accesses.
    pub instructions: Vec<Instruction>,
    /// What the target mapped.
    pub maps: Vec<Map>,
    /// Time that threads waited for this process, in ns, all together.
    pub waited_ns: u64,
    /// What is not in the trace.
    pub losses: Vec<Loss>,
    /// The emulator's path.
    pub emulator: PathBuf,
}

/// Only where the tracer sees all that threads do, it can make an order.
fn effective_order(wanted: Order, only: Option<&str>) -> Order {
    match only {
        Some(_) => Order::AsRun,
        None => wanted,
    }
}

fn loss(what: &str, count: u64, detail: String) -> Loss {
    Loss::new(Time(monotonic_ns()), what, count, detail)
}
