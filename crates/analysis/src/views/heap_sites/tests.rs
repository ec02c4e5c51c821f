//! Sums of call chains, and what is shown of them.

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
