//! Who allocates how much: the sums of call chains, by the function that asks for the memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use linewise_recording::{Address, Frame, HeapRun, HeapSite, Loss, Pid, Stack, StackId};
use serde::{Deserialize, Serialize};

use crate::resolve::allocation_site;

/// Rows, at most.
const MOST_ROWS: usize = 100;
/// Losses after which the sums are not counts.
const INEXACT: [&str; 4] = [
    "heap-events-lost",
    "heap-events-late",
    "heap-events-malformed",
    "heap-sites-cut",
];

/// What was allocated on the heap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeapTotals {
    /// Whether every block was told of (`--heap on`, or a program that allocates seldom) and nothing was lost: then the
    /// numbers are counts, else estimates.
    pub exact: bool,
    /// Allocations and frees that were lost, which the numbers lack.
    pub lost: u64,
    /// Blocks that were allocated, of all processes.
    pub blocks: f64,
    /// Their bytes, as asked for.
    pub bytes: f64,
    /// Blocks that were there when the recording ended or their process did.
    pub live_blocks: f64,
    /// Their bytes.
    pub live_bytes: f64,
    /// Who allocates, most bytes first; at most 100.
    pub sites: Vec<AllocationSite>,
}

/// What one function allocates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocationSite {
    /// The innermost function of the call chains that is no allocator, nor of a language's library around one, or the name
    /// that the program gave the blocks; empty if not known.
    pub name: String,
    /// `file:line` of its call; empty if not known.
    pub place: String,
    /// Blocks.
    pub blocks: f64,
    /// Their bytes, as asked for.
    pub bytes: f64,
    /// Blocks that were there when the recording ended or their process did.
    pub live_blocks: f64,
    /// Their bytes.
    pub live_bytes: f64,
    /// The most bytes that were there at once, summed over its call chains: where it has several that are at their largest
    /// at different times, it had no more than this.
    pub peak_bytes: f64,
    /// Its call chains, in all processes.
    pub chains: u64,
}

/// What the recording's sums say; `None` without any.
#[must_use]
pub fn heap_totals(
    heap: Option<&HeapRun>,
    sums: &[HeapSite],
    stacks: &[Stack],
    frames: &[Frame],
    losses: &[Loss],
) -> Option<HeapTotals> {
    let heap = heap.filter(|_| !sums.is_empty())?;
    let used: HashSet<StackId> = sums.iter().map(|sum| sum.stack).collect();
    let of_stack: HashMap<StackId, &[Address]> = stacks
        .iter()
        .filter(|stack| used.contains(&stack.id))
        .map(|stack| (stack.id, stack.frames.as_slice()))
        .collect();
    let mut at: HashMap<(Pid, Address), Vec<&Frame>> = HashMap::new();
    for frame in frames {
        at.entry((frame.pid, frame.address))
            .or_default()
            .push(frame);
    }
    for inlined in at.values_mut() {
        inlined.sort_by_key(|frame| frame.depth);
    }
    let mut sites: BTreeMap<(String, String), AllocationSite> = BTreeMap::new();
    let lost = losses.iter();
    let lost = lost.filter(|loss| INEXACT.contains(&loss.what.as_str()));
    let lost: u64 = lost.map(|loss| loss.count).sum();
    let mut totals = HeapTotals {
        exact: heap.sampled_bytes == 0 && heap.probed.is_none() && lost == 0,
        lost,
        ..HeapTotals::default()
    };
    for sum in sums {
        totals.blocks += sum.blocks;
        totals.bytes += sum.bytes;
        totals.live_blocks += sum.live_blocks;
        totals.live_bytes += sum.live_bytes;
        let chain = of_stack.get(&sum.stack).copied().unwrap_or_default();
        let callers = chain
            .iter()
            .filter_map(|address| at.get(&(sum.pid, *address)));
        let site = allocation_site(callers.flatten().copied());
        let function = site.map_or("", |frame| frame.function.as_str());
        let name = match sum.label.as_str() {
            "" => function,
            label => label,
        };
        let place = site
            .filter(|frame| frame.line > 0)
            .map_or_else(String::new, |frame| {
                format!("{}:{}", frame.file, frame.line)
            });
        let row = sites.entry((name.to_owned(), place)).or_default();
        row.blocks += sum.blocks;
        row.bytes += sum.bytes;
        row.live_blocks += sum.live_blocks;
        row.live_bytes += sum.live_bytes;
        row.peak_bytes += sum.peak_bytes;
        row.chains += 1;
    }
    let named = sites
        .into_iter()
        .map(|((name, place), row)| AllocationSite { name, place, ..row });
    totals.sites = named.collect();
    totals.sites.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    totals.sites.truncate(MOST_ROWS);
    Some(totals)
}

#[cfg(test)]
mod tests {
    use linewise_recording::{Allocator, Time};

    use super::*;

    #[test]
    fn sums_of_call_chains_stand_at_who_asks_for_the_memory() {
        let frame = |address, function: &str, line| Frame {
            pid: Pid(1),
            address: Address(address),
            depth: 0,
            function: function.to_owned(),
            file: "a.cpp".to_owned(),
            line,
            module: String::new(),
            reason: String::new(),
        };
        let frames = [
            frame(1, "operator new(unsigned long)", 0),
            frame(2, "make_node(Node*)", 7),
            frame(3, "main", 20),
            frame(4, "other()", 30),
        ];
        let stack = |id, chain: &[u64]| Stack {
            id: StackId(id),
            frames: chain.iter().map(|it| Address(*it)).collect(),
        };
        let stacks = [stack(1, &[1, 2, 3]), stack(2, &[1, 2, 4]), stack(3, &[4])];
        let sum = |stack, blocks: f64| HeapSite {
            pid: Pid(1),
            stack: StackId(stack),
            allocator: Allocator::Malloc,
            label: String::new(),
            blocks,
            bytes: blocks * 48.0,
            live_blocks: 1.0,
            live_bytes: 48.0,
            peak_blocks: 2.0,
            peak_bytes: 96.0,
        };
        let sums = [sum(1, 10.0), sum(2, 20.0), sum(3, 5.0)];
        let heap = HeapRun::default();
        let totals = heap_totals(Some(&heap), &sums, &stacks, &frames, &[]).unwrap();
        assert!(totals.exact);
        assert_eq!((totals.blocks, totals.live_blocks), (35.0, 3.0));
        let found: Vec<_> = totals
            .sites
            .iter()
            .map(|row| {
                (
                    row.name.as_str(),
                    row.place.as_str(),
                    row.blocks,
                    row.chains,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("make_node(Node*)", "a.cpp:7", 30.0, 2),
                ("other()", "a.cpp:30", 5.0, 1)
            ]
        );
        assert_eq!(totals.sites[0].peak_bytes, 192.0);
        let loss = Loss {
            time: Time(1),
            tid: None,
            what: "heap-events-lost".to_owned(),
            count: 3,
            detail: String::new(),
        };
        let totals = heap_totals(Some(&heap), &sums, &stacks, &frames, &[loss]).unwrap();
        assert_eq!((totals.exact, totals.lost), (false, 3));
        assert_eq!(heap_totals(None, &sums, &stacks, &frames, &[]), None);
        assert_eq!(heap_totals(Some(&heap), &[], &stacks, &frames, &[]), None);
    }
}
