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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_hears_of_blocks_and_touches_and_who_does_not_costs_nothing() {
        let block = Block {
            address: 0x1000,
            size: 64,
            allocated: 10,
            stack: 3,
            thread: 0,
            label: 2,
            interval: 0,
            allocator: 0,
            touched: false,
            halved: 0,
        };
        let happens = |observer: &mut Observer| {
            observer.allocated(1, &block, 7);
            observer.touched(1, &block, 0x1008);
            observer.freed(1, &block, 20, 8);
        };
        let mut observer = Observer::default();
        happens(&mut observer);
        assert!(observer.take().is_empty());
        observer.listen();
        happens(&mut observer);
        let heard = observer.take();
        let [
            Observed::Event(allocated),
            Observed::Touched(touched, 8),
            Observed::Event(freed),
        ] = heard.as_slice()
        else {
            panic!("{} things", heard.len());
        };
        assert_eq!((allocated.time, allocated.tid), (Time(10), Tid(7)));
        assert_eq!((freed.time, freed.tid), (Time(20), Tid(8)));
        assert_eq!((touched.pid, touched.stack), (Pid(1), StackId(3)));
        assert_eq!((touched.size, touched.label), (64, 2));
        assert!(matches!(&allocated.kind, HeapEventKind::Allocated(site) if site == touched));
        assert!(matches!(freed.kind, HeapEventKind::Freed));
        assert!(observer.take().is_empty());
    }
}
