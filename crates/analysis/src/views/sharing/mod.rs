//! View `sharing`: which lines do threads fight over, how often does each move, what does it cost?
//!
//! One result, from either source: [`sampled`] estimates it from timer samples and watches,
//! [`exact`] takes the transfers that a coherent hierarchy made of every access. What one of them
//! cannot know is not there ([`Basis`]), never zero.

mod blocked;
mod cpus;
mod exact;
mod followed;
mod kinds;
mod moments;
mod phases;
mod sampled;
mod scattered;
mod stays;
mod thread_time;
mod users;
mod waits;

use std::collections::BTreeMap;

use super::encounter::Touch;
use linewise_recording::{Address, CpuId, Pid, Tid};

pub(crate) use exact::spread;
pub use exact::{ExactInput, exact};
pub(crate) use followed::ERRORS;
pub use followed::Followed;
pub(crate) use sampled::WATCHED;
pub use sampled::sharing;
pub(crate) use scattered::private_bytes;
pub use stays::Input;
pub use thread_time::ThreadTime;

pub use crate::quantity::Estimate;

/// One access place of one thread at a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The thread.
    pub tid: Tid,
    /// What it did there.
    pub touch: Touch,
    /// What the accesses seen here stand for: sampled thread time in ns, or, from the exact source,
    /// accesses that waited for the line.
    pub weight: f64,
    /// Samples.
    pub samples: u64,
    /// Traps.
    pub traps: u64,
}

/// Transfers to one thread, from one other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// The thread that waits for the line.
    pub to: Tid,
    /// The thread that had it.
    pub from: Tid,
    /// Transfers by true sharing.
    pub true_sharing: f64,
    /// Transfers by false sharing.
    pub false_sharing: f64,
}

/// The z of a 90 % interval.
const Z90: f64 = 1.645;

/// What the figures of a line rest on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// Timer samples, and watches in other threads.
    Sampled {
        /// Samples at the line.
        samples: u64,
        /// Watches of the line.
        watches: u64,
        /// Conflicting traps.
        traps: u64,
    },
    /// Every access.
    Traced,
}

/// A line that moved between threads.
#[derive(Clone, Debug, PartialEq)]
pub struct LineSharing {
    /// The process.
    pub pid: Pid,
    /// First byte of the line.
    pub line: Address,
    /// Transfers over the run: estimated, or counted of every access.
    pub transfers: Estimate,
    /// Thread time lost over the run, ns.
    pub cost_ns: Estimate,
    /// Who waited for whom.
    pub flows: Vec<Flow>,
    /// Of the transfers, the share by false sharing, 0 to 1: between what of both kinds is known.
    pub false_share: Estimate,
    /// Transfers between CPUs, by the lower and the higher number: true, false.
    pub cpu_flows: BTreeMap<(CpuId, CpuId), (f64, f64)>,
    /// Who touches it where, most weight first.
    pub places: Vec<Place>,
    /// What this rests on.
    pub basis: Basis,
}

impl LineSharing {
    /// Transfers by false sharing.
    #[must_use]
    pub fn false_transfers(&self) -> f64 {
        self.flows.iter().map(|flow| flow.false_sharing).sum()
    }

    /// Transfers by true sharing.
    #[must_use]
    pub fn true_transfers(&self) -> f64 {
        self.flows.iter().map(|flow| flow.true_sharing).sum()
    }
}

/// Lines that are known together only, of which those that trapped stand for all in [`SharingView::lines`].
#[derive(Clone, Debug, Default)]
pub struct Together {
    /// By process and line.
    pub lines: Vec<(Pid, Address)>,
    /// Of the time at them, the part that transfers by true sharing cost, 0 to 1.
    pub truly: f64,
    /// The same by false sharing.
    pub falsely: f64,
}

/// A line that did not move as far as that was seen, since those at it were hardly ever there at once.
#[derive(Clone, Debug, Default)]
pub struct TurnLine {
    /// The process.
    pub pid: Pid,
    /// First byte of the line.
    pub line: Address,
    /// Who touches it where, most weight first.
    pub places: Vec<Place>,
}

/// All sharing of a run.
#[derive(Clone, Debug, Default)]
pub struct SharingView {
    /// Lines that moved, dearest first.
    pub lines: Vec<LineSharing>,
    /// Those of which little is known each.
    pub together: Vec<Together>,
    /// Lines that several threads were seen at, but never at the same time on different CPUs.
    pub taking_turns: u64,
    /// Lines of which nothing moved as far as that was seen, though several threads were sampled there.
    pub turns: Vec<TurnLine>,
    /// Lines that several threads were seen at, of which none was met there by another that was at work.
    pub unmet: u64,
    /// Lines that one goroutine alone uses, which several threads ran one after the other.
    pub of_one_goroutine: u64,
    /// About so many lines that several threads use, more than a private cache holds.
    pub spread: u64,
    /// Whether no latency was measured. From samples nothing can then be said of costs and
    /// transfers; an exact run knows the transfers and takes an assumed price.
    pub no_latency: bool,
    /// Transfers of lines that have no rows of their own.
    pub others: Others,
}

/// Transfers of the lines of an exact run that are only known as a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Others {
    /// By true sharing.
    pub true_sharing: f64,
    /// By false sharing.
    pub false_sharing: f64,
}

impl Others {
    /// Of both kinds.
    #[must_use]
    pub fn all(self) -> f64 {
        self.true_sharing + self.false_sharing
    }
}
