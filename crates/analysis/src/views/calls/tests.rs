//! Counted truth: every sample's time is in one cell, and in all callers of it.

use linewise_recording::{Address, Frame, SampleClass, Stack, StackId, Thread, Time};

use super::*;
use crate::views::exact_rows;
use crate::views::sampled_rows::{self, PID};

fn frame(address: u64, depth: u32, function: &str, line: u32, module: &str) -> Frame {
    Frame {
        pid: PID,
        address: Address(address),
        depth,
        function: function.to_owned(),
        file: String::new(),
        line,
        module: module.to_owned(),
        reason: String::new(),
    }
}

fn thread(tid: u32, name: &str) -> Thread {
    Thread {
        pid: PID,
        tid: Tid(tid),
        name: name.to_owned(),
        start: Time(0),
        end: Time(6_000),
        cpu_time_ns: 0,
        stack_low: Address(0),
        stack_high: Address(0),
    }
}

fn sample(tid: u32, time: u64, ip: u64, stack: u32, weight: u64) -> Sample {
    Sample {
        time: Time(time),
        class: SampleClass::Compute,
        access_ip: Address(0),
        stack: StackId(stack),
        weight,
        ..sampled_rows::sample(tid, ip, 0)
    }
}

/// `main` calls `work`, into which `step` is inlined, and which calls `memcpy`.
fn tables(samples: Vec<Sample>) -> Tables {
    let stack = |id, frames: &[u64]| Stack {
        id: StackId(id),
        frames: frames.iter().map(|&it| Address(it)).collect(),
    };
    Tables {
        frames: vec![
            frame(0x10, 0, "step", 3, "/opt/app"),
            frame(0x10, 1, "work", 9, "/opt/app"),
            frame(0x20, 0, "work", 10, "/opt/app"),
            frame(0x30, 0, "main", 20, "/opt/app"),
            frame(0x90, 0, "memcpy", 0, "/usr/lib/libc.so.6"),
        ],
        stacks: vec![
            stack(1, &[0x10, 0x30]),
            stack(2, &[0x90, 0x20, 0x30]),
            stack(3, &[0x20, 0x30]),
        ],
        threads: vec![thread(1, "pool"), thread(2, "pool"), thread(3, "log")],
        samples,
        ..Tables::default()
    }
}

fn tree(samples: Vec<Sample>) -> CallTree {
    let info = RunInfo {
        start: Time(0),
        end: Time(6_000),
        exact: None,
        ..exact_rows::info()
    };
    let half = |sample: &Sample| match sample.tid {
        Tid(1) => sample.weight as f64 / 2.0,
        _ => 0.0,
    };
    calls(&info, &tables(samples), half).unwrap()
}

/// `pool > main > work: 300`, of every node.
fn paths(tree: &CallTree) -> Vec<String> {
    let path = |mut node: usize| {
        let mut names = vec![tree.nodes[node].name.as_str()];
        while node != 0 {
            node = tree.nodes[node].parent;
            names.push(&tree.nodes[node].name);
        }
        names.reverse();
        names.join(" > ")
    };
    let nodes = tree.nodes.iter().enumerate();
    nodes
        .map(|(index, node)| format!("{}: {}", path(index), node.sum_ns))
        .collect()
}

#[test]
fn time_is_that_of_every_caller_with_inlined_functions_and_the_kernel() {
    let in_kernel = Sample {
        class: SampleClass::Kernel,
        ..sample(3, 0, 0x20, 3, 50)
    };
    let tree = tree(vec![
        sample(1, 0, 0x10, 1, 100),
        sample(2, 5_999, 0x10, 1, 100),
        sample(2, 100, 0x90, 2, 300),
        in_kernel,
    ]);
    let mut paths = paths(&tree);
    paths.sort();
    assert_eq!(
        paths,
        [
            "all threads > log > main > work > the kernel: 50",
            "all threads > log > main > work: 50",
            "all threads > log > main: 50",
            "all threads > log: 50",
            "all threads > pool > main > work > memcpy: 300",
            "all threads > pool > main > work > step: 200",
            "all threads > pool > main > work: 500",
            "all threads > pool > main: 500",
            "all threads > pool: 500",
            "all threads: 550",
        ]
    );
    let owner = |name: &str| tree.nodes.iter().find(|it| it.name == name).unwrap().owner;
    assert_eq!(owner("step"), Owner::Own);
    assert_eq!(owner("memcpy"), Owner::Library);
    assert_eq!(owner("the kernel"), Owner::Kernel);
    let work = tree.nodes.iter().find(|it| it.name == "work").unwrap();
    assert_eq!(work.line, 10, "its hottest line, calls among them");
    let sum: u64 = tree.cells.iter().map(|it| it.ns).sum();
    assert_eq!((sum, tree.slices), (550, SLICES));
    assert!(
        tree.nodes
            .iter()
            .enumerate()
            .skip(1)
            .all(|(i, it)| it.parent < i)
    );
}

#[test]
fn threads_have_their_time_in_the_slice_in_which_it_was_sampled() {
    let tree = tree(vec![
        sample(1, 0, 0x10, 1, 100),
        sample(1, 6_000, 0x10, 1, 60),
        sample(2, 150, 0x10, 1, 300),
    ]);
    let told: Vec<_> = tree
        .threads
        .iter()
        .map(|it| (it.tid, it.sum_ns()))
        .collect();
    assert_eq!(told, [(Some(2), 300.0), (Some(1), 160.0)]);
    let (busiest, other) = (&tree.threads[0], &tree.threads[1]);
    assert_eq!(busiest.sampled_ns[1], 300.0);
    assert_eq!(
        (other.sampled_ns[0], other.sampled_ns[SLICES - 1]),
        (100.0, 60.0)
    );
    assert_eq!(
        (other.contended_ns[0], busiest.contended_ns[1]),
        (50.0, 0.0)
    );
}

#[test]
fn what_has_next_to_no_time_is_its_callers_and_counted() {
    let tree = tree(vec![
        sample(1, 0, 0x10, 1, 1_000_000),
        sample(1, 0, 0x90, 2, 500),
    ]);
    assert!(tree.nodes.iter().all(|it| it.name != "memcpy"));
    assert_eq!(tree.left_out, 1);
    assert!((tree.left_out_share - 500.0 / 1_000_500.0).abs() < 1e-9);
    let work = tree.nodes.iter().position(|it| it.name == "work").unwrap();
    let own: u64 = tree
        .cells
        .iter()
        .filter(|it| it.node == work)
        .map(|it| it.ns)
        .sum();
    assert_eq!(own, 500);
}

#[test]
fn a_crowd_of_threads_and_endless_recursion_stay_bounded() {
    let mut tables = tables((1..=600).map(|tid| sample(tid, 0, 0x30, 9, 100)).collect());
    tables.stacks.push(Stack {
        id: StackId(9),
        frames: vec![Address(0x30); 5_000],
    });
    let info = RunInfo {
        start: Time(0),
        end: Time(6_000),
        exact: None,
        ..exact_rows::info()
    };
    let tree = calls(&info, &tables, |_| 0.0).unwrap();
    assert_eq!(tree.threads.len(), MOST_THREADS + 1);
    assert_eq!(tree.threads[MOST_THREADS].name, "88 other threads");
    assert!(tree.nodes.len() <= 3_000);
    assert_eq!(calls(&info, &Tables::default(), |_| 0.0), None);
    assert_eq!(tree.nodes[0].sum_ns, 60_000);
}

#[test]
fn where_there_are_too_many_cells_slices_are_taken_together() {
    let nodes = vec![CallNode::default()];
    let cell = |thread, slice| CallCell {
        node: 0,
        thread,
        slice,
        ns: 1,
    };
    let cells = (0..15_000).flat_map(|thread| (0..SLICES).map(move |slice| cell(thread, slice)));
    let tree = prune::prune(nodes, cells.collect());
    assert_eq!((tree.slices, tree.cells.len()), (30, 450_000));
    assert_eq!(tree.nodes[0].sum_ns, 900_000);
}

#[test]
fn where_even_those_are_too_many_the_lightest_are_their_callers() {
    let node = |parent| CallNode {
        parent,
        ..CallNode::default()
    };
    let cell = |node, thread, ns| CallCell {
        node,
        thread,
        slice: 0,
        ns,
    };
    let cells = (0..400_000).flat_map(|thread| [cell(1, thread, 5), cell(2, thread, 1)]);
    let tree = prune::prune(vec![node(0), node(0), node(1)], cells.collect());
    assert_eq!((tree.slices, tree.cells.len()), (1, 400_000));
    let sums: Vec<u64> = tree.nodes.iter().map(|it| it.sum_ns).collect();
    assert_eq!(sums, [2_400_000, 2_400_000, 0]);
    assert!((tree.left_out_share - 1.0 / 6.0).abs() < 1e-9);
}

#[test]
fn threads_that_are_numbered_are_one_in_the_tree_and_each_in_the_rows() {
    let mut tables = tables((1..=3).map(|tid| sample(tid, 0, 0x10, 1, 100)).collect());
    tables.threads = vec![
        thread(1, "pool-1-a2"),
        thread(2, "pool-12-a3"),
        thread(3, "gc-7"),
    ];
    let info = RunInfo {
        exact: None,
        ..exact_rows::info()
    };
    let tree = calls(&info, &tables, |_| 0.0).unwrap();
    let groups = tree.nodes.iter().filter(|it| it.owner == Owner::Threads);
    let names: Vec<&str> = groups.map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["all threads", "pool-*-a*", "gc-7"]);
    assert_eq!(tree.threads[0].name, "pool-1-a2");
}
