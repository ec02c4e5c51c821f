//! Invented details of pages: calls of threads over a run, code, and the tables of a long run of many threads.

use linewise_recording::{
    Address, CpuId, Frame, Overhead, Pid, RunInfo, Sample, SampleClass, Stack, StackId, Tables,
    Thread, Tid, Time,
};

use super::super::model::{
    CallCell, CallNode, CallTree, Details, Excerpt, ExcerptRow, Owner, SLICES, SampledThread,
};

const SECOND: u64 = 1_000_000_000;

/// Three threads for six seconds: two workers, of which one begins later, and one that writes a log.
pub(crate) fn details() -> Details {
    of_names(["worker", "reply", "memcpy", "log"])
}

/// The same with a name in place of every name.
pub(crate) fn hostile_details(name: &str) -> Details {
    of_names([name; 4])
}

fn of_names([worker, reply, copy, log]: [&str; 4]) -> Details {
    let node = |parent, name: &str, owner, sum_s: u64| CallNode {
        parent,
        name: name.to_owned(),
        module: name.to_owned(),
        file: format!("/src/{name}.c"),
        line: 118,
        owner,
        sum_ns: sum_s * SECOND,
    };
    let slice_ns = SECOND / 10;
    let thread = |tid, name: &str, busy: std::ops::Range<usize>| {
        let amounts = |share: f64| {
            let ns = |slice| {
                if busy.contains(&slice) {
                    share * slice_ns as f64
                } else {
                    0.0
                }
            };
            (0..SLICES).map(ns).collect()
        };
        SampledThread {
            tid: Some(tid),
            name: name.to_owned(),
            group: name.to_owned(),
            sampled_ns: amounts(1.0),
            contended_ns: amounts(0.3),
        }
    };
    let cells = |node, thread, slices: std::ops::Range<usize>| {
        slices.map(move |slice| CallCell {
            node,
            thread,
            slice,
            ns: SECOND / 10,
        })
    };
    let calls = CallTree {
        length_ns: 6e9,
        threads: vec![
            thread(4101, worker, 0..60),
            thread(4102, worker, 30..60),
            thread(4103, log, 0..10),
        ],
        nodes: vec![
            CallNode {
                name: "all threads".to_owned(),
                sum_ns: 10 * SECOND,
                ..CallNode::default()
            },
            node(0, worker, Owner::Threads, 9),
            node(1, "main", Owner::Own, 9),
            node(2, reply, Owner::Own, 9),
            node(3, copy, Owner::Library, 6),
            node(0, log, Owner::Threads, 1),
            node(5, "write_log", Owner::Own, 1),
            node(6, "the kernel", Owner::Kernel, 1),
        ],
        cells: (cells(3, 1, 30..60).chain(cells(4, 0, 0..60)))
            .chain(cells(7, 2, 0..10))
            .collect(),
        slices: SLICES,
        left_out: 3,
        left_out_share: 0.002,
    };
    let row = |at, text: &str, share, gap| ExcerptRow {
        at,
        text: text.to_owned(),
        share,
        gap,
    };
    let code = Excerpt {
        function: worker.to_owned(),
        file: format!("/src/{worker}.c"),
        share: 0.62,
        lines: vec![
            row(117, "    for (size_t i = 0; i < n; i++)", None, false),
            row(
                118,
                &format!("        total += {worker}[i].hits;"),
                Some(0.4),
                false,
            ),
            row(140, "    return total;", Some(0.02), true),
        ],
        instructions: vec![
            row(0x1180, "add rax,[rdi+rcx*8]", Some(0.4), false),
            row(0x1184, "inc rcx", None, false),
        ],
    };
    Details {
        calls: Some(calls),
        code: vec![code],
    }
}

/// `samples` samples in an hour of 200 threads, each of which has a name of its own and calls 400 functions in chains of 24.
pub(crate) fn hour(samples: u64) -> (RunInfo, Tables) {
    const THREADS: u64 = 200;
    const FUNCTIONS: u64 = 400;
    const CHAINS: u64 = 2_000;
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let address = |function: u64| Address(0x1000 + 16 * function);
    let frames = (0..FUNCTIONS).map(|it| Frame {
        pid: Pid(7),
        address: address(it),
        depth: 0,
        function: format!("service::requests::Handler<Request{it}>::handle_{it}"),
        file: format!("/home/dev/service/src/requests/handler_{}.rs", it % 40),
        line: it as u32 + 1,
        module: "/opt/service".to_owned(),
        reason: String::new(),
    });
    let frames: Vec<Frame> = frames.collect();
    let mut stacks: Vec<Stack> = Vec::new();
    for id in 1..=CHAINS {
        // Chains share their outer parts, as those of programs do.
        let mut chain: Vec<Address> = (0..24)
            .map(|deep| address((deep * 16 + random(1 + deep / 3)) % FUNCTIONS))
            .collect();
        chain.reverse();
        stacks.push(Stack {
            id: StackId(id as u32),
            frames: chain,
        });
    }
    let length = 3_600 * SECOND;
    let rows = (0..samples).map(|i| {
        // Some are much busier than others.
        let chain = random(CHAINS) + 1;
        let thread = random(THREADS) + 1;
        let stack = &stacks[random(chain) as usize];
        Sample {
            time: Time(length / samples.max(1) * i),
            pid: Pid(7),
            tid: Tid(100 + random(thread) as u32),
            cpu: CpuId(0),
            ip: stack.frames[0],
            sp: Address(0),
            stack: stack.id,
            weight: 10_000_000,
            class: SampleClass::Compute,
            access_ip: Address(0),
            address: Address(0),
            size: 0,
            operation: None,
            locked: false,
            origin: None,
            reason: None,
        }
    });
    let rows: Vec<Sample> = rows.collect();
    let threads = (0..THREADS as u32).map(|it| Thread {
        pid: Pid(7),
        tid: Tid(100 + it),
        name: format!("request-pool-{it}"),
        start: Time(0),
        end: Time(length),
        cpu_time_ns: length / 10,
        stack_low: Address(0),
        stack_high: Address(0),
    });
    let tables = Tables {
        samples: rows,
        frames,
        stacks,
        threads: threads.collect(),
        ..Tables::default()
    };
    (info_of(length), tables)
}

/// Of a run of the sampler that is `length` ns long.
fn info_of(length: u64) -> RunInfo {
    let overhead = Overhead::default();
    serde_json::from_value(serde_json::json!({
        "format_version": 1, "linewise_version": "", "complete": true, "command": ["service"],
        "pid": 7, "launched": true, "source": "timer", "source_reason": "", "start": 0,
        "end": length, "ended_by": "target-exited", "exit_code": 0, "exit_signal": null,
        "line_size": 64, "cpus": 2, "watchpoint_bytes": 8, "cpu_model": "", "hypervisor": "",
        "kernel": "", "skid_rule": "", "overhead": overhead,
    }))
    .expect("what a recording says of its run")
}
