//! Names of what was counted.

use linewise_recording::{Address, Pid, Tid, Time};

use super::line_blocks::LineBlocks;
use super::machine::Model;
use crate::access::GUEST_BITS;
use crate::instruction::Instruction;
use crate::thread::ExactThread;

/// The trace that was measured.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    /// By their numbers in the accesses.
    pub threads: &'a [ExactThread],
    /// By their numbers in the accesses.
    pub instructions: &'a [Instruction],
    /// It holds one line in so many.
    pub one_line_in: u32,
    /// The machine that it was measured with.
    pub model: &'a Model,
    /// When it ended.
    pub end: Time,
}

/// What numbers in the measurements mean.
pub(crate) struct Names<'a> {
    pub(crate) trace: Trace<'a>,
    /// The heap blocks on lines that moved.
    pub(crate) blocks: Option<&'a LineBlocks>,
}

impl Names<'_> {
    pub(crate) fn tid(&self, thread: u16) -> Option<Tid> {
        let thread = self.trace.threads.get(usize::from(thread))?;
        Some(Tid(thread.tid))
    }

    pub(crate) fn pid_of_thread(&self, thread: u16) -> Option<Pid> {
        Some(self.trace.threads.get(usize::from(thread))?.pid)
    }

    /// The process whose memory an address is, at its home if it is shared.
    pub(crate) fn pid_of(&self, address: u64) -> Option<Pid> {
        let space = (address >> GUEST_BITS) as u16;
        let thread = self
            .trace
            .threads
            .iter()
            .find(|thread| thread.space == space)?;
        Some(thread.pid)
    }

    pub(crate) fn ip(&self, site: u32) -> Option<Address> {
        let instruction = self.trace.instructions.get(site as usize)?;
        Some(Address(instruction.address))
    }

    pub(crate) fn pid(&self, site: u32) -> Option<Pid> {
        Some(self.trace.instructions.get(site as usize)?.pid)
    }

    pub(crate) fn scale(&self) -> f64 {
        f64::from(self.trace.one_line_in)
    }
}
