//! Samples that wait for what is not known yet.

use std::collections::HashMap;

use iced_x86::Instruction;
use linewise_recording::{Sample, Tid, UnknownReason};

/// A sample that waits for its instruction to run again.
pub(super) struct Pending {
    pub(super) sample: Sample,
    pub(super) instruction: Instruction,
    /// Where it is known already that no access will be, the reason: it is asked whether the thread runs it at all.
    pub(super) without_access: Option<UnknownReason>,
}

/// Samples that wait for a debug register of their thread, one of each.
pub(super) type Postponed = HashMap<Tid, Pending>;
