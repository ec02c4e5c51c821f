//! The source-level frames of the code addresses of a recording.

use std::collections::HashMap;

use linewise_recording::{Address, Frame, Pid, Stack, StackId};

/// The call chains of table `stacks` by their ids, the instruction first.
pub(crate) fn chains_by_id(stacks: &[Stack]) -> HashMap<StackId, &[Address]> {
    let stacks = stacks.iter();
    stacks
        .map(|stack| (stack.id, stack.frames.as_slice()))
        .collect()
}

/// Table `frames`, to be asked what stands at an address.
#[derive(Debug)]
pub(crate) struct SourceFrames<'a>(HashMap<(Pid, Address), Vec<&'a Frame>>);

impl<'a> SourceFrames<'a> {
    /// Of the rows of the table, in any order.
    pub(crate) fn new(rows: &'a [Frame]) -> Self {
        let mut frames: HashMap<(Pid, Address), Vec<&Frame>> = HashMap::new();
        for row in rows {
            frames.entry((row.pid, row.address)).or_default().push(row);
        }
        for frames in frames.values_mut() {
            frames.sort_by_key(|frame| frame.depth);
        }
        Self(frames)
    }

    /// The frames of an instruction, innermost first; empty when nothing was resolved.
    pub(crate) fn at(&self, pid: Pid, ip: Address) -> &[&'a Frame] {
        self.0.get(&(pid, ip)).map_or(&[], Vec::as_slice)
    }

    /// The frames of the call that returns to `back`, innermost first.
    pub(crate) fn of_call(&self, pid: Pid, back: Address) -> &[&'a Frame] {
        match self.at(pid, last_byte_of_call(back)) {
            [] => self.at(pid, back),
            frames => frames,
        }
    }

    /// The frames of a call chain, innermost first. `callers` are return addresses.
    pub(crate) fn of_callers<'s>(
        &'s self,
        pid: Pid,
        callers: &'s [Address],
    ) -> impl Iterator<Item = &'a Frame> + 's {
        let calls = callers.iter();
        calls.flat_map(move |&back| self.of_call(pid, back).iter().copied())
    }
}

/// Where the rows of a call stand if those of the instruction that it returns to stand where that is.
pub(super) fn last_byte_of_call(back: Address) -> Address {
    Address(back.0.saturating_sub(1))
}
