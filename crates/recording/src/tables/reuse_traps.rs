table! {
    ReuseTrap in reuse_traps: "An access of a chunk that is watched for its reuses.",
    latest: |row| Some(row.time),
    expected: |run| run.reuse.is_some();

    watch: u64 = "The watch: `reuse_watches.id`.",
    time: Time = "When, CLOCK_MONOTONIC ns.",
    tid: Tid = "The accessing thread.",
    cpu: CpuId = "The CPU where it ran.",
    running_ns: u64 = "Time that the thread had run since the watch was armed in it, ns.",
    loads: bool = "Whether loads of this thread trap, too, or stores alone.",
    access_ip: Address = "The instruction that accessed the chunk; 0 when it could not be named.",
    operation: Option<Operation> = "What it did to memory; null when it could not be named.",
}
