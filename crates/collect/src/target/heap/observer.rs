//! What following objects hears of the heap, if it listens.

use linewise_recording::{Pid, StackId, Tid, Time};

use super::live::Block;
use crate::sources::timer::flow::{HeapEvent, HeapEventKind, Observed, SiteKey};

/// Collects what happens to blocks, once it is asked to.
#[derive(Debug, Default)]
pub(super) struct Observer(Option<Vec<Observed>>);

impl Observer {
    pub(super) fn listen(&mut self) {
        self.0 = Some(Vec::new());
    }

    /// What happened since the last call.
    pub(super) fn take(&mut self) -> Vec<Observed> {
        self.0.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// Thread `tid` was given a block.
    pub(super) fn allocated(&mut self, pid: u32, block: &Block, tid: u32) {
        let kind = HeapEventKind::Allocated(site(pid, block));
        self.event(pid, block, block.allocated, tid, kind);
    }

    /// Thread `tid` freed a block.
    pub(super) fn freed(&mut self, pid: u32, block: &Block, time: u64, tid: u32) {
        self.event(pid, block, time, tid, HeapEventKind::Freed);
    }

    fn event(&mut self, pid: u32, block: &Block, time: u64, tid: u32, kind: HeapEventKind) {
        if let Some(observed) = &mut self.0 {
            observed.push(Observed::Event(HeapEvent {
                pid: Pid(pid),
                address: block.address,
                time: Time(time),
                tid: Tid(tid),
                kind,
            }));
        }
    }

    /// An access to a block was seen.
    pub(super) fn touched(&mut self, pid: u32, block: &Block, address: u64) {
        if let Some(observed) = &mut self.0 {
            observed.push(Observed::Touched(site(pid, block), address - block.address));
        }
    }
}

/// The objects that a block is one of.
fn site(pid: u32, block: &Block) -> SiteKey {
    SiteKey {
        pid: Pid(pid),
        stack: StackId(block.stack),
        size: block.size,
        label: block.label,
    }
}
