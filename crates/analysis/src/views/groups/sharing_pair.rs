//! A pair of threads in the answer.

use serde::{Deserialize, Serialize};

use crate::quantity::Interval;

/// Two threads that share lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharingPair {
    /// The thread with the lower id.
    pub one: u32,
    /// The other.
    pub other: u32,
    /// Transfers a second of the run; of an exact run, whose seconds mean nothing, all of them.
    pub transfers: f64,
    /// The interval of `transfers`: 90 %.
    pub interval: Interval,
    /// Of `transfers`, the share by false sharing, 0 to 1.
    pub false_share: f64,
    /// Transfers that there might be besides, in the unit of `transfers`, if the two ran at once where they take turns now: as
    /// many as fit into the time that both spend at the line. No more than a hint.
    pub in_turns: f64,
    /// Lines that they share.
    pub lines: u64,
    /// What lies on them, the most first; at most 3.
    pub why: Vec<SharedObject>,
}

impl SharingPair {
    /// How strongly the two belong together, in the unit of `transfers`.
    #[must_use]
    pub fn strength(&self) -> f64 {
        self.transfers + self.in_turns
    }
}

/// What is shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedObject {
    /// The object, in words.
    pub object: String,
    /// The fields that are touched, the dearest first, with `, ` between; empty if unknown.
    pub fields: String,
    /// The functions that touch it, the dearest first, with `, ` between; empty if unknown.
    pub functions: String,
    /// The share of what the pair, or the group, moves, 0 to 1.
    pub share: f64,
}
