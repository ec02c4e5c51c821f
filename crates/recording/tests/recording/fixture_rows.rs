//! The rows of the committed recording of the current format version: two threads of a program
//! increment neighbouring counters. Tests and the generator share them.

use linewise_recording::*;

pub(crate) fn info() -> RunInfo {
    RunInfo {
        format_version: FORMAT_VERSION,
        id: "8f14e45fceea167a5a36dedd4bea2543".into(),
        linewise_version: "0.1.0".into(),
        complete: true,
        command: vec!["./counters".into(), "--threads=2".into()],
        pid: Pid(100),
        launched: true,
        source: Source::Timer,
        source_reason: "this machine has no PMU".into(),
        start: Time(1_000_000),
        end: Time(2_001_000_000),
        ended_by: "target-exited".into(),
        exit_code: Some(0),
        exit_signal: None,
        line_size: 64,
        cpus: 2,
        watchpoint_bytes: 32,
        host: "tower".into(),
        boot_id: "3f2a1c9e-5d47-4b86-9a0e-7c1d2b3e4f50".into(),
        cpu_model: "AMD EPYC".into(),
        hypervisor: "KVM".into(),
        kernel: "6.18.0".into(),
        skid_rule: "next".into(),
        exposure_offset_ns: 21_400.0,
        trap_delay_ns: 9_300.0,
        overhead: Overhead {
            budget: 0.02,
            estimated: 0.0125,
            ..Overhead::default()
        },
        exact: Some(exact_run()),
        reuse: Some(SampledReuse {
            slots: 2,
            offset_ns: 18_250.0,
            deviation_ns: 310.5,
            offered: 1000,
        }),
        caches: Vec::new(),
        heap: Some(HeapRun {
            processes: 1,
            blocks: 2,
            live_blocks: 1.0,
            live_bytes: 4096.0,
            rows: 8,
            sampled_bytes: 65_536,
            spent_ns: 12_345,
            probed: Some(ProbedHeap {
                share: 0.25,
                slices: 3,
                hits: 4_000,
                entry_ns: 700.0,
                stepped_ns: 16_000.0,
                return_ns: 650.0,
                frees: 1_000,
                frees_of_unknown: 40,
            }),
        }),
    }
}

fn exact_run() -> ExactRun {
    ExactRun {
        emulator: "qemu-x86_64 7.2.22".into(),
        accesses: 64_000.0,
        followed: 1000,
        one_line_in: 64,
        reuse_rate: 0.5,
        element_bytes: Some(4),
        call_paths: true,
        only: Some("count".into()),
        late: 3,
        waits: 2,
        waited_ns: 150_000,
        trace: Some("counters.trace".into()),
        machine: "this machine".into(),
        caches: CacheLevel::ALL
            .iter()
            .map(|&level| SimulatedCache {
                level,
                size_bytes: 32 << 10,
                ways: 8,
                count: 2,
                cores: 1,
            })
            .collect(),
        memory_ns: Some(92.5),
        level_ns: LevelLatencies {
            l1: Some(1.5),
            l2: Some(5.25),
            llc: None,
            core: Some(61.0),
            memory: Some(92.5),
        },
        assumptions: vec!["inclusion: non-inclusive caches".into()],
        order: Order::EqualRate,
        sums: SimulationSums {
            true_sharing: 64.0,
            false_sharing: 640.0,
            transfers_error: Some(12.5),
            intra_socket_supplied: 704.0,
            intra_socket_upgrades: 1.0,
            inter_socket_supplied: 2.0,
            inter_socket_upgrades: 3.0,
            invalidations: 650.0,
            written_back: 64.0,
        },
        repeats: vec![Repeat {
            accesses: 64_010.0,
            transfers: 703.0,
            lines: vec![RepeatedLine {
                pid: Pid(100),
                line: Address(0x40_4040),
                transfers: 640.0,
            }],
        }],
    }
}

fn reuse() -> Vec<ReuseBin> {
    let bin = |scope, touch| ReuseBin {
        scope,
        cache: (scope == ReuseScope::Shared).then_some(0),
        tid: (touch != Touch::OtherThread).then_some(Tid(101)),
        measure: Measure::Stack,
        unit: Unit::Line,
        touch,
        from: if touch == Touch::Cold { 0 } else { 32 },
        to: if touch == Touch::Cold { 0 } else { 34 },
        count: 12.5,
        miss_ratio_error: Some(0.001),
    };
    ReuseScope::ALL
        .iter()
        .flat_map(|&scope| Touch::ALL.iter().map(move |&touch| bin(scope, touch)))
        .chain([ReuseBin {
            measure: Measure::Time,
            unit: Unit::Byte,
            miss_ratio_error: None,
            ..bin(ReuseScope::Private, Touch::Reuse)
        }])
        .collect()
}

fn reuse_pairs() -> Vec<ReusePairBin> {
    let pair = ReusePairBin {
        scope: ReuseScope::Private,
        pid: Some(Pid(100)),
        use_ip: Some(Address(0x40_1150)),
        use_path: None,
        reuse_ip: Some(Address(0x40_1154)),
        reuse_path: Some(1),
        measure: Measure::Stack,
        unit: Unit::Line,
        touch: Touch::Reuse,
        from: 512,
        to: 1024,
        count: 3.25,
    };
    let others = ReusePairBin {
        pid: None,
        use_ip: None,
        reuse_ip: None,
        reuse_path: None,
        ..pair.clone()
    };
    vec![pair, others]
}

fn call_paths() -> Vec<CallPath> {
    let path = |id, caller| CallPath {
        id,
        pid: Pid(100),
        caller,
        call_ip: Address(0x40_1200 + u64::from(id)),
    };
    vec![path(0, None), path(1, Some(0))]
}

fn reuse_watches() -> Vec<ReuseWatch> {
    let watch = |(id, &outcome): (u64, &ReuseOutcome)| ReuseWatch {
        id,
        scope: ReuseScope::ALL[id as usize % 2],
        pid: Pid(100),
        tid: Tid(101),
        address: Address(0x60_2000 + id * 8),
        sample_ip: Address(0x40_1150),
        weight_ns: 250_000,
        armed: Time(5_000_000 + id),
        closed: Time(6_000_000 + id),
        outcome,
        shots: 6,
        others: 1,
        unwatched: 2,
    };
    (0..).zip(ReuseOutcome::ALL).map(watch).collect()
}

fn heap_blocks() -> Vec<HeapBlock> {
    let block = |(id, &allocator): (u64, &Allocator)| HeapBlock {
        id,
        pid: Pid(100),
        address: Address(0x50_0010 + id * 32),
        size: 24,
        allocator,
        label: if allocator == Allocator::Pool {
            "Sitzung".into()
        } else {
            String::new()
        },
        allocated: Time(1_500_000 + id),
        allocated_by: Tid(101),
        stack: StackId(0),
        freed: (id % 2 == 0).then_some(Time(2_500_000)),
        freed_by: (id % 4 == 0).then_some(Tid(102)),
        weight: if id == 3 { 12.5 } else { 1.0 },
    };
    (1..).zip(Allocator::ALL).map(block).collect()
}

fn heap_sites() -> Vec<HeapSite> {
    let site = |(id, &allocator): (u32, &Allocator)| HeapSite {
        pid: Pid(100),
        stack: StackId(id),
        allocator,
        label: if allocator == Allocator::Pool {
            "Sitzung".into()
        } else {
            String::new()
        },
        blocks: f64::from(id) * 10.0,
        bytes: 640.0,
        live_blocks: 2.5,
        live_bytes: 160.0,
        peak_blocks: 8.0,
        peak_bytes: 512.0,
    };
    (0..).zip(Allocator::ALL).map(site).collect()
}

fn histories() -> Vec<History> {
    let history = |(id, &outcome): (u64, &HistoryOutcome)| History {
        id,
        pid: Pid(100),
        address: Address(0x50_0010),
        size: 24,
        label: String::new(),
        stack: StackId(0),
        allocated: Time(1_500_000 + id),
        allocated_by: Tid(101),
        freed: (outcome == HistoryOutcome::Whole).then_some(Time(2_500_000)),
        freed_by: (outcome == HistoryOutcome::Whole).then_some(Tid(102)),
        offset: 8,
        other_offset: (id > 1).then_some(16),
        outcome,
    };
    (1..).zip(HistoryOutcome::ALL).map(history).collect()
}

fn history_accesses() -> Vec<HistoryAccess> {
    [Some(Operation::Store), None]
        .map(|operation| HistoryAccess {
            history: 1,
            time: Time(1_500_100),
            tid: Tid(101),
            cpu: CpuId(0),
            offset: 8,
            access_ip: Address(0x40_1150),
            operation,
        })
        .to_vec()
}

fn path_traces() -> Vec<PathStep> {
    let step = |(step, &event): (u64, &PathEvent)| PathStep {
        type_name: "struct Sitzung".into(),
        size: 24,
        pid: Pid(100),
        stack: StackId(0),
        path: 1,
        frequency: 0.75,
        histories: 12,
        step,
        event,
        ip: Address(0x40_1150 + step),
        thread_change: event == PathEvent::Freed,
        thread: step / 2,
        cpu_change: 0.5,
        offset: 8,
        operation: (event == PathEvent::Accessed).then_some(Operation::Store),
        times: 1.5,
        time_ns: 250.0,
        sampled_ns: 0.0,
        from_l1: Some(0.5),
        from_l2: Some(0.25),
        from_llc: Some(0.0),
        from_core: Some(0.125),
        from_memory: (step > 0).then_some(0.125),
    };
    (0..).zip(PathEvent::ALL).map(step).collect()
}

fn reuse_traps() -> Vec<ReuseTrap> {
    let trap = |operation, loads, time| ReuseTrap {
        watch: 1,
        time: Time(time),
        tid: Tid(if loads { 101 } else { 102 }),
        cpu: CpuId(1),
        running_ns: time - 5_000_001,
        loads,
        access_ip: Address(0x40_1150),
        operation,
    };
    vec![
        trap(Some(Operation::Load), true, 5_100_000),
        trap(Some(Operation::Store), false, 5_200_000),
        trap(None, true, 5_300_000),
    ]
}

fn caches() -> Vec<CacheCounts> {
    let row = |subject| CacheCounts {
        level: CacheLevel::L1d,
        subject,
        cache: (subject == CacheSubject::Thread).then_some(1),
        tid: (subject == CacheSubject::Thread).then_some(Tid(102)),
        pid: (subject == CacheSubject::Instruction).then_some(Pid(100)),
        ip: (subject == CacheSubject::Instruction).then_some(Address(0x40_1150)),
        loads: 600.0,
        stores: 300.0,
        updates: 100.0,
        hits: 985.0,
        compulsory: 1.0,
        capacity: 2.0,
        conflict: 3.0,
        true_sharing: 4.0,
        false_sharing: 5.0,
        from_l2: 2.0,
        from_llc: 2.0,
        from_peer: 7.0,
        from_other_group: 1.0,
        from_other_socket: 1.0,
        from_local_dram: 1.0,
        from_remote_dram: 1.0,
        upgrades: 6.0,
    };
    CacheSubject::ALL
        .iter()
        .map(|&subject| row(subject))
        .collect()
}

fn transfers() -> Vec<TransferCount> {
    let row = |sharing| TransferCount {
        pid: Some(Pid(100)),
        line: Some(Address(0x40_4040)),
        from_tid: Some(Tid(101)),
        to_tid: Some(Tid(102)),
        from_ip: Some(Address(0x40_1150)),
        from_operation: Some(Operation::Update),
        to_ip: Some(Address(0x40_1150)),
        to_operation: None,
        from_bytes: 0xff,
        to_bytes: 0xff << 56,
        from_block: (sharing == Sharing::True).then_some(1),
        to_block: None,
        sharing,
        count: 320.0,
    };
    let others = TransferCount {
        pid: None,
        line: None,
        from_tid: None,
        to_tid: None,
        from_ip: None,
        from_operation: None,
        to_ip: None,
        from_bytes: 0,
        to_bytes: 0,
        ..row(Sharing::False)
    };
    vec![row(Sharing::True), row(Sharing::False), others]
}

fn block_uses() -> Vec<BlockUse> {
    vec![BlockUse {
        pid: Pid(100),
        stack: StackId(1),
        label: "Sitzung".into(),
        ip: Address(0x40_1150),
        accesses: 64.0,
        blocks: 3,
    }]
}

fn cache_contents() -> Vec<CacheContent> {
    let row = |set: Option<u64>| CacheContent {
        level: CacheLevel::L1d,
        tid: Some(Tid(101)),
        set,
        pid: Some(Pid(100)),
        ip: Some(Address(0x40_1150)),
        stack: set.map(|_| StackId(1)),
        label: String::new(),
        lines: 24.0,
        blocks: 2.0,
        misses: set.map_or(0.0, |_| 300.0),
        stride: set.map_or(0, |_| 4096),
    };
    vec![row(None), row(Some(5))]
}

fn sample(i: u64) -> Sample {
    let thread = (i % 2) as u32;
    let access = Sample {
        time: Time(1_000_000 + i * 1_000_000),
        pid: Pid(100),
        tid: Tid(101 + thread),
        cpu: CpuId(thread),
        ip: Address(0x40_1154),
        sp: Address(0x7fff_0000_1000 - u64::from(thread) * 0x10_0000),
        stack: StackId(thread),
        weight: 1_000_000,
        class: SampleClass::Access,
        access_ip: Address(0x40_1150),
        address: Address(0x40_4040 + u64::from(thread) * 8),
        size: 8,
        operation: Some(Operation::Update),
        locked: i.is_multiple_of(3),
        origin: Some(if i.is_multiple_of(4) {
            AddressOrigin::Breakpoint
        } else {
            AddressOrigin::Registers
        }),
        reason: None,
    };
    let nothing = Sample {
        access_ip: Address(0),
        address: Address(0),
        size: 0,
        operation: None,
        locked: false,
        origin: None,
        ..access.clone()
    };
    match i % 10 {
        8 => Sample {
            class: SampleClass::Compute,
            ..nothing
        },
        9 => Sample {
            class: SampleClass::Unknown,
            reason: Some(UnknownReason::ALL[(i / 10) as usize % UnknownReason::ALL.len()]),
            ..nothing
        },
        _ => access,
    }
}

pub(crate) fn tables() -> Tables {
    let thread = |n: u32| Thread {
        pid: Pid(100),
        tid: Tid(100 + n),
        name: format!("worker-{n}"),
        start: Time(1_000_000),
        end: Time(2_001_000_000),
        cpu_time_ns: 990_000_000,
        stack_low: Address(0x7fff_0000_0000),
        stack_high: Address(0x7fff_0000_2000),
    };
    let map = |kind, start, path: &str, executable| Map {
        pid: Pid(100),
        time: Time(1_000_000),
        start: Address(start),
        end: Address(start + 0x1000),
        offset: 0x1000,
        executable,
        writable: !executable,
        kind,
        path: path.into(),
        build_id: if executable {
            "0123456789abcdef".into()
        } else {
            String::new()
        },
        // The recording of format 1 is older and holds the same rows.
        device: None,
        inode: None,
    };
    Tables {
        samples: (0..200).map(sample).collect(),
        watches: WatchOutcome::ALL
            .iter()
            .zip(0..)
            .map(|(outcome, id)| Watch {
                id,
                armed: Time(5_000_000 + id),
                closed: Time(6_000_000 + id),
                pid: Pid(100),
                tid: Tid(102),
                publisher: Tid(101),
                address: Address(0x40_4040),
                size: 8,
                operation: Operation::Store,
                chunks: 0b0000_1111,
                publisher_cpu: CpuId(0),
                outcome: *outcome,
                exposure_ns: 900_000,
            })
            .collect(),
        traps: vec![Trap {
            watch: 0,
            chunk: 1,
            exposure_ns: 700,
            time: Time(6_000_000),
            pid: Pid(100),
            tid: Tid(102),
            cpu: CpuId(1),
            access_ip: Address(0x40_1150),
            address: Address(0x40_4048),
            size: 8,
            operation: Operation::Load,
            locked: true,
            stack: StackId(1),
        }],
        threads: vec![thread(1), thread(2)],
        switches: vec![Switch {
            tid: Tid(101),
            cpu: CpuId(0),
            start: Time(1_000_000),
            end: Time(u64::MAX),
        }],
        maps: vec![
            map(MapKind::File, 0x40_1000, "/usr/bin/counters", true),
            map(MapKind::Heap, 0x50_0000, "[heap]", false),
            map(MapKind::Stack, 0x7fff_0000_0000, "[stack]", false),
            map(MapKind::Anonymous, 0x7f00_0000_0000, "", false),
        ],
        stacks: vec![
            Stack {
                id: StackId(0),
                frames: vec![Address(0x40_1154), Address(u64::MAX)],
            },
            Stack {
                id: StackId(1),
                frames: Vec::new(),
            },
        ],
        objects: ObjectKind::ALL
            .iter()
            .zip(0..)
            .map(|(kind, i)| Object {
                pid: Pid(100),
                address: Address(0x40_4040 + i * 64),
                size: 64,
                kind: *kind,
                name: "counters<\"Zähler\">".into(),
                type_name: "struct counter [8]".into(),
                declared_at: "counters.c:12".into(),
            })
            .collect(),
        fields: vec![Field {
            pid: Pid(100),
            object: Address(0x40_4040),
            offset: 8,
            size: 8,
            path: "counters[1].hits".into(),
            type_name: "unsigned long".into(),
        }],
        frames: vec![Frame {
            pid: Pid(100),
            address: Address(0x40_1150),
            depth: 0,
            function: "count".into(),
            file: "counters.c".into(),
            line: 31,
            module: "/usr/bin/counters".into(),
            reason: String::new(),
        }],
        latencies: vec![Latency {
            time: Time(900_000),
            cpu_a: CpuId(0),
            cpu_b: CpuId(1),
            round_trip_ns: 337.5,
            transfer_idle_ns: 120.25,
            transfer_busy_ns: 90.75,
            busy_share: 0.5,
            transfer_crowded_ns: 100.5,
            crowded_share: 0.75,
            transfer_saturated_ns: 180.0,
            hit_ns: 5.5,
        }],
        losses: vec![
            Loss {
                time: Time(7_000_000),
                tid: Some(Tid(102)),
                what: "watchpoint-refused".into(),
                count: 3,
                detail: "3 watchpoints were taken by a debugger".into(),
            },
            Loss {
                time: Time(8_000_000),
                tid: None,
                what: "ring-buffer-full".into(),
                count: 17,
                detail: "17 samples were lost".into(),
            },
        ],
        reuse: reuse(),
        reuse_pairs: reuse_pairs(),
        call_paths: call_paths(),
        caches: caches(),
        transfers: transfers(),
        reuse_watches: reuse_watches(),
        reuse_traps: reuse_traps(),
        heap_blocks: heap_blocks(),
        typed_accesses: typed_accesses(),
        type_members: type_members(),
        histories: histories(),
        history_accesses: history_accesses(),
        path_traces: path_traces(),
        block_uses: block_uses(),
        cache_contents: cache_contents(),
        heap_sites: heap_sites(),
        polls: vec![Polling {
            pid: Pid(100),
            ip: Address(0x40_1158),
            load_ip: Address(0x40_1150),
        }],
        blocked_loads: vec![BlockedLoad {
            pid: Pid(100),
            ip: Address(0x40_1158),
            store_ip: Address(0x40_115c),
            proven: true,
        }],
        marks: marks(),
        stack_frames: vec![StackFrame {
            pid: Pid(100),
            tid: Tid(100),
            time: Time(21_000_000),
            ip: Address(0x40_1204),
            low: Address(0x7ffd_0000),
            high: Address(0x7ffd_00d0),
        }],
        type_allocations: vec![TypeAllocation {
            pid: Pid(100),
            ip: Address(0x40_1210),
            type_name: "struct counters".to_owned(),
            type_size: 128,
            declared_at: "/src/demo.c:8".to_owned(),
        }],

        goroutines: vec![GoroutineSeen {
            time: Time(1_000_300),
            pid: Pid(10),
            tid: Tid(11),
            goroutine: Address(0xc0_0000_2380),
        }],
        damage: Vec::new(),
    }
}

/// The first thread's two phases, of which the second begins in the middle, and a session; the second is in a phase to the end.
fn marks() -> Vec<Mark> {
    let phase = |tid, name: &str, start, end| Mark {
        pid: Pid(100),
        tid: Tid(tid),
        kind: MarkKind::Phase,
        id: 0,
        name: name.to_owned(),
        start: Time(start),
        end: Time(end),
    };
    let session = Mark {
        kind: MarkKind::Session,
        id: 7,
        ..phase(101, "connection", 41_000_000, 51_000_000)
    };
    vec![
        phase(101, "parse", 1_000_000, 101_000_000),
        session,
        phase(101, "reply", 101_000_000, 201_000_000),
        phase(102, "reply", 21_000_000, 2_001_000_000),
    ]
}

fn typed_accesses() -> Vec<TypedAccess> {
    let typed = TypedAccess {
        pid: Pid(100),
        ip: Address(0x40_1150),
        type_name: "struct counter".into(),
        type_size: 64,
        declared_at: "counters.c:4".into(),
        offset: 8,
        size: 8,
        path: "hits".into(),
        field_type: "unsigned long".into(),
        variable: "counters".into(),
        through: "State.counters[]".into(),
        reason: None,
    };
    let untyped = UntypedReason::ALL
        .iter()
        .zip(1..)
        .map(|(reason, i)| TypedAccess {
            pid: Pid(100),
            ip: Address(0x40_1150 + i),
            type_name: String::new(),
            type_size: 0,
            declared_at: String::new(),
            offset: 0,
            size: 0,
            path: String::new(),
            field_type: String::new(),
            variable: String::new(),
            through: String::new(),
            reason: Some(*reason),
        });
    std::iter::once(typed).chain(untyped).collect()
}

fn type_members() -> Vec<TypeMember> {
    vec![TypeMember {
        type_name: "struct counter".into(),
        type_size: 64,
        declared_at: "counters.c:4".into(),
        offset: 8,
        size: 8,
        alignment: 8,
        bits: 0,
        name: "hits".into(),
        member_type: "unsigned long".into(),
        language: "c".into(),
    }]
}

/// Gives all rows to a writer.
pub(crate) fn push_all(writer: &mut Writer, tables: &Tables) -> Result<(), Error> {
    writer.push(tables.samples.iter().cloned())?;
    writer.push(tables.watches.iter().cloned())?;
    writer.push(tables.traps.iter().cloned())?;
    writer.push(tables.threads.iter().cloned())?;
    writer.push(tables.switches.iter().cloned())?;
    writer.push(tables.maps.iter().cloned())?;
    writer.push(tables.stacks.iter().cloned())?;
    writer.push(tables.objects.iter().cloned())?;
    writer.push(tables.fields.iter().cloned())?;
    writer.push(tables.frames.iter().cloned())?;
    writer.push(tables.latencies.iter().cloned())?;
    writer.push(tables.losses.iter().cloned())?;
    writer.push(tables.reuse.iter().cloned())?;
    writer.push(tables.reuse_pairs.iter().cloned())?;
    writer.push(tables.call_paths.iter().cloned())?;
    writer.push(tables.caches.iter().cloned())?;
    writer.push(tables.transfers.iter().cloned())?;
    writer.push(tables.reuse_watches.iter().cloned())?;
    writer.push(tables.reuse_traps.iter().cloned())?;
    writer.push(tables.heap_blocks.iter().cloned())?;
    writer.push(tables.typed_accesses.iter().cloned())?;
    writer.push(tables.type_members.iter().cloned())?;
    writer.push(tables.histories.iter().cloned())?;
    writer.push(tables.history_accesses.iter().cloned())?;
    writer.push(tables.path_traces.iter().cloned())?;
    writer.push(tables.block_uses.iter().cloned())?;
    writer.push(tables.cache_contents.iter().cloned())?;
    writer.push(tables.heap_sites.iter().cloned())?;
    writer.push(tables.polls.iter().cloned())?;
    writer.push(tables.marks.iter().cloned())?;
    writer.push(tables.stack_frames.iter().cloned())?;
    writer.push(tables.goroutines.iter().cloned())?;
    writer.push(tables.blocked_loads.iter().cloned())?;
    writer.push(tables.type_allocations.iter().cloned())
}
