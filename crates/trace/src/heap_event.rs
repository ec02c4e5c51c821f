//! What happens to the heap in the midst of a trace.

use linewise_recording::{Loss, Stack};

use crate::access::HeapRecord;
use crate::live::Block;

/// What happened to the heap, in its place among the accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeapEvent {
    /// A block was allocated in this address space, forked from that.
    Alloc {
        /// Its own and its parent's address space.
        spaces: (u16, u16),
        /// The process.
        pid: u32,
        /// The block; addresses are the guest's.
        block: Block,
        /// It is to be followed.
        follow: bool,
    },
    /// A block, or a named object, ends.
    Free {
        /// The address space.
        space: u16,
        /// First byte.
        address: u64,
        /// Whether it is a named object alone.
        named: bool,
        /// CLOCK_MONOTONIC ns.
        time: u64,
        /// Who frees it.
        thread: u16,
    },
    /// Memory is unmapped.
    Unmap {
        /// The address space.
        space: u16,
        /// First byte, and one past the last.
        range: (u64, u64),
        /// CLOCK_MONOTONIC ns.
        time: u64,
        /// Who unmaps it.
        thread: u16,
    },
}

/// Who understands the heap recorder's records.
pub trait HeapReader {
    /// What a record tells, if it is an event.
    fn event(&mut self, record: &HeapRecord<'_>) -> Option<HeapEvent>;

    /// What numbers in the events stand for, when there are no more.
    fn finish(self) -> HeapNames;
}

/// What numbers in blocks stand for.
#[derive(Clone, Debug, Default)]
pub struct HeapNames {
    /// The recorder was loaded.
    pub recorded: bool,
    /// Processes that the recorder was loaded into.
    pub processes: u64,
    /// All call chains.
    pub stacks: Vec<Stack>,
    /// Names by number; the first is none.
    pub labels: Vec<String>,
    /// What was not told.
    pub losses: Vec<Loss>,
}

impl HeapNames {
    /// The name of a number.
    #[must_use]
    pub fn label(&self, number: u16) -> String {
        let label = self.labels.get(usize::from(number));
        label.cloned().unwrap_or_default()
    }
}
