//! Invented rows of an exact run, for the tests of its views.

use linewise_recording::{
    Address, CacheCounts, CacheLevel, CacheSubject, ExactRun, Frame, Measure, Pid, ReuseBin,
    ReusePairBin, ReuseScope, RunInfo, SimulatedCache, Source, Tid, Touch, Unit,
};

/// An exact run on a machine with a first level of 64 lines and a shared second of 1024.
pub(super) fn info() -> RunInfo {
    let cache = |level, lines: u64, cores| SimulatedCache {
        level,
        size_bytes: lines * 64,
        ways: 8,
        count: 2 / cores,
        cores,
    };
    RunInfo {
        format_version: linewise_recording::FORMAT_VERSION,
        id: String::new(),
        linewise_version: "0.1.0".into(),
        complete: true,
        command: vec!["./counters".into()],
        pid: Pid(7),
        launched: true,
        source: Source::Exact,
        source_reason: "asked for".into(),
        start: linewise_recording::Time(0),
        end: linewise_recording::Time(1_000_000),
        ended_by: "target-exited".into(),
        exit_code: Some(0),
        exit_signal: None,
        line_size: 64,
        cpus: 2,
        watchpoint_bytes: 32,
        host: String::new(),
        boot_id: String::new(),
        cpu_model: String::new(),
        hypervisor: String::new(),
        kernel: String::new(),
        skid_rule: String::new(),
        exposure_offset_ns: 0.0,
        trap_delay_ns: 0.0,
        overhead: linewise_recording::Overhead::default(),
        reuse: None,
        heap: None,
        caches: Vec::new(),
        exact: Some(ExactRun {
            one_line_in: 1,
            reuse_rate: 1.0,
            memory_ns: Some(100.0),
            caches: vec![
                cache(CacheLevel::L1d, 64, 1),
                cache(CacheLevel::L2, 1024, 2),
            ],
            ..ExactRun::default()
        }),
    }
}

/// Touches of thread `tid` in lines, by itself, by stack distance.
pub(super) fn reuse(tid: u32, touch: Touch, from: u64, to: u64, count: f64) -> ReuseBin {
    ReuseBin {
        scope: ReuseScope::Private,
        cache: None,
        tid: Some(Tid(tid)),
        measure: Measure::Stack,
        unit: Unit::Line,
        touch,
        from,
        to,
        count,
        miss_ratio_error: None,
    }
}

/// Touches by the instruction `reuse_ip` of what `use_ip` used, likewise.
pub(super) fn pair(use_ip: u64, reuse_ip: u64, from: u64, to: u64, count: f64) -> ReusePairBin {
    ReusePairBin {
        scope: ReuseScope::Private,
        pid: Some(Pid(7)),
        use_ip: Some(Address(use_ip)),
        use_path: None,
        reuse_ip: Some(Address(reuse_ip)),
        reuse_path: None,
        measure: Measure::Stack,
        unit: Unit::Line,
        touch: Touch::Reuse,
        from,
        to,
        count,
    }
}

/// What a level did with all accesses: hits, capacity misses, misses by false sharing. Memory
/// serves what the second level misses.
pub(super) fn total(level: CacheLevel, counts: [f64; 3]) -> CacheCounts {
    let [hits, capacity, false_sharing] = counts;
    let memory = if level == CacheLevel::L2 {
        capacity
    } else {
        0.0
    };
    CacheCounts {
        level,
        subject: CacheSubject::Total,
        cache: None,
        tid: None,
        pid: None,
        ip: None,
        loads: hits,
        stores: capacity,
        updates: false_sharing,
        hits,
        compulsory: 0.0,
        capacity,
        conflict: 0.0,
        true_sharing: 0.0,
        false_sharing,
        from_l2: 0.0,
        from_llc: 0.0,
        from_peer: false_sharing,
        from_other_group: 0.0,
        from_other_socket: 0.0,
        from_local_dram: memory,
        from_remote_dram: 0.0,
        upgrades: 0.0,
    }
}

/// The same for one instruction.
pub(super) fn instruction(ip: u64, row: CacheCounts) -> CacheCounts {
    CacheCounts {
        subject: CacheSubject::Instruction,
        pid: Some(Pid(7)),
        ip: Some(Address(ip)),
        ..row
    }
}

/// The frame of an instruction.
pub(super) fn frame(ip: u64, function: &str, line: u32) -> Frame {
    Frame {
        pid: Pid(7),
        address: Address(ip),
        depth: 0,
        function: function.into(),
        file: "/src/sum.c".into(),
        line,
        module: String::new(),
        reason: String::new(),
    }
}
