//! Memory that is mapped anew where other memory was: to come there is not to come to the same line.

use std::borrow::Cow;
use std::collections::HashMap;

use linewise_recording::{Address, Allocator, HeapBlock, Tables, Tid, Time, Trap, Watch};

/// The traps, without those in memory that was mapped after its line was published: the thread came to a page of its
/// own, which has the address of one that another thread gave back. Only of what the heap recorder saw mapped.
pub(crate) fn of_the_same_memory(tables: &Tables) -> Cow<'_, [Trap]> {
    let mut mapped: Vec<&HeapBlock> = (tables.heap_blocks.iter())
        .filter(|block| block.allocator == Allocator::Mmap)
        .collect();
    if mapped.is_empty() {
        return Cow::Borrowed(&tables.traps);
    }
    mapped.sort_by_key(|block| block.allocated);
    let mut accesses: HashMap<(Tid, Address), Vec<Time>> = HashMap::new();
    for sample in &tables.samples {
        let of_this = accesses.entry((sample.tid, sample.address)).or_default();
        of_this.push(sample.time);
    }
    accesses
        .values_mut()
        .for_each(|times| times.sort_unstable());
    let published = |watch: &Watch| {
        let times = accesses.get(&(watch.publisher, watch.address))?;
        let before = times.partition_point(|it| *it <= watch.armed);
        times.get(before.checked_sub(1)?).copied()
    };
    let published: HashMap<u64, Time> = (tables.watches.iter())
        .map(|watch| (watch.id, published(watch).unwrap_or(watch.armed)))
        .collect();
    let is_other = |trap: &Trap| {
        let Some(&published) = published.get(&trap.watch) else {
            return false;
        };
        let since = mapped.partition_point(|block| block.allocated <= published);
        let since = mapped[since..].iter();
        let mut since = since.take_while(|block| block.allocated <= trap.time);
        since.any(|block| {
            block.pid == trap.pid && trap.address.0.wrapping_sub(block.address.0) < block.size
        })
    };
    match tables.traps.iter().any(is_other) {
        true => Cow::Owned(
            (tables.traps.iter())
                .filter(|it| !is_other(it))
                .cloned()
                .collect(),
        ),
        false => Cow::Borrowed(&tables.traps),
    }
}

#[cfg(test)]
mod tests {
    use linewise_recording::{CpuId, Operation, Pid, Sample, StackId, WatchOutcome};

    use super::*;
    use crate::views::sampled_rows;

    #[test]
    fn who_comes_to_a_page_of_its_own_does_not_come_to_that_of_another() {
        let block = |allocator, address: u64, allocated: u64| HeapBlock {
            id: allocated,
            pid: Pid(1),
            address: Address(address),
            size: 0x1000,
            allocator,
            label: String::new(),
            allocated: Time(allocated),
            allocated_by: Tid(2),
            stack: StackId(0),
            freed: None,
            freed_by: None,
            weight: 1.0,
        };
        let watch = |id| Watch {
            id,
            armed: Time(100),
            closed: Time(300),
            pid: Pid(1),
            tid: Tid(2),
            publisher: Tid(1),
            address: Address(0x5000),
            size: 8,
            operation: Operation::Store,
            chunks: 1,
            publisher_cpu: CpuId(0),
            outcome: WatchOutcome::Trapped,
            exposure_ns: 1,
        };
        let trap = |watch, address: u64, time: u64| Trap {
            watch,
            chunk: 0,
            exposure_ns: 1,
            time: Time(time),
            pid: Pid(1),
            tid: Tid(2),
            cpu: CpuId(1),
            access_ip: Address(0x10),
            address: Address(address),
            size: 8,
            operation: Operation::Store,
            locked: false,
            stack: StackId(0),
        };
        // The publisher was there at 80.
        let sample = Sample {
            time: Time(80),
            ..sampled_rows::sample(1, 0x10, 0x5000)
        };
        let kept = |blocks: Vec<HeapBlock>| -> Vec<u64> {
            let tables = Tables {
                samples: vec![sample.clone()],
                heap_blocks: blocks,
                watches: vec![watch(1), watch(2), watch(3)],
                traps: vec![
                    trap(1, 0x5000, 150),
                    trap(2, 0x5000, 250),
                    trap(3, 0x7000, 250),
                ],
                ..Tables::default()
            };
            of_the_same_memory(&tables)
                .iter()
                .map(|it| it.watch)
                .collect()
        };
        assert_eq!(kept(vec![]), [1, 2, 3]);
        assert_eq!(kept(vec![block(Allocator::Mmap, 0x5000, 50)]), [1, 2, 3]);
        assert_eq!(kept(vec![block(Allocator::Mmap, 0x5000, 200)]), [1, 3]);
        assert_eq!(kept(vec![block(Allocator::Mmap, 0x5000, 90)]), [3]);
        assert_eq!(kept(vec![block(Allocator::Malloc, 0x5000, 200)]), [1, 2, 3]);
    }
}
