table! {
    ReuseWatch in reuse_watches: "A chunk of 8 bytes under watch in the threads of a process, for its next uses.",
    latest: |row| Some(row.closed),
    expected: |run| run.reuse.is_some();

    id: u64 = "A number of its own.",
    scope: ReuseScope = "Private: accesses of the sampled thread and stores of others trap; shared: accesses of all threads behind its last-level cache, and stores of the rest.",
    pid: Pid = "The process.",
    tid: Tid = "The thread whose sample it began with.",
    address: Address = "First byte of the chunk.",
    sample_ip: Address = "The instruction of the sampled access.",
    weight_ns: u64 = "Thread time that the sample stands for, ns.",
    armed: Time = "When it was armed in the sampled thread, CLOCK_MONOTONIC ns.",
    closed: Time = "When it was taken down or had nothing more to see.",
    outcome: ReuseOutcome = "Why.",
    shots: u32 = "Accesses of each thread that are seen at most; the time of the last is not to be used, since the kernel takes the breakpoint down first.",
    others: u32 = "Other threads of the process in which it was armed.",
    unwatched: u32 = "Threads of the process that ran lately and in which it was not armed.",
}
