table! {
    Watch in watches: "One line watched in one thread for a while.",
    latest: |row| Some(row.closed);

    id: u64 = "The number of this watch, unique in the recording.",
    armed: Time = "When it had been armed, CLOCK_MONOTONIC ns.",
    closed: Time = "When it was taken down, CLOCK_MONOTONIC ns.",
    pid: Pid = "The process of the watched thread.",
    tid: Tid = "The watched thread.",
    publisher: Tid = "The thread whose sample published the line.",
    address: Address = "The published access: its first byte.",
    size: u32 = "The published access: how many bytes.",
    operation: Operation = "The published access: what it did.",
    chunks: u8 = "Bit i is set when chunk i of the line (8 bytes each; of a line of more than 64 bytes, of those aligned 64 with the published access) was watched.",
    publisher_cpu: CpuId = "The CPU where the publisher was sampled.",
    outcome: WatchOutcome = "How it ended.",
    exposure_ns: u64 = "Time that the thread ran while it was armed, as the kernel counted it, ns: the exposure of every chunk that did not trap; one that did has its own.",
}
