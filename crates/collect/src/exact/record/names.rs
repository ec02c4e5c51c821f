//! Names of what was counted.

use linewise_recording::{Address, Pid, Tid};

use super::super::access::GUEST_BITS;
use super::super::instruction::Instruction;
use super::super::stream::ExactThread;
use super::line_blocks::LineBlocks;
use super::machine::Model;

/// What numbers in the measurements mean.
pub(super) struct Names<'a> {
    pub(super) threads: &'a [ExactThread],
    pub(super) instructions: &'a [Instruction],
    pub(super) model: &'a Model,
    pub(super) one_line_in: u32,
    /// The heap blocks on lines that moved.
    pub(super) blocks: Option<&'a LineBlocks>,
}

impl Names<'_> {
    pub(super) fn tid(&self, thread: u16) -> Option<Tid> {
        let thread = self.threads.get(usize::from(thread))?;
        Some(Tid(thread.tid))
    }

    pub(super) fn pid_of_thread(&self, thread: u16) -> Option<Pid> {
        Some(self.threads.get(usize::from(thread))?.pid)
    }

    /// The process whose memory an address is, at its home if it is shared.
    pub(super) fn pid_of(&self, address: u64) -> Option<Pid> {
        let space = (address >> GUEST_BITS) as u16;
        let thread = self.threads.iter().find(|thread| thread.space == space)?;
        Some(thread.pid)
    }

    pub(super) fn ip(&self, site: u32) -> Option<Address> {
        let instruction = self.instructions.get(site as usize)?;
        Some(Address(instruction.address))
    }

    pub(super) fn pid(&self, site: u32) -> Option<Pid> {
        Some(self.instructions.get(site as usize)?.pid)
    }

    pub(super) fn scale(&self) -> f64 {
        f64::from(self.one_line_in)
    }
}
