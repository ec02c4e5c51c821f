//! Samples that wait for what is not known yet.

use std::collections::HashMap;

use iced_x86::Instruction;
use linewise_recording::{Sample, Tid};

/// A sample that waits for its instruction to run again.
pub(super) struct Pending {
    pub(super) sample: Sample,
    pub(super) instruction: Instruction,
}

/// Samples that wait for a debug register of their thread, one of each.
pub(super) type Postponed = HashMap<Tid, Pending>;
