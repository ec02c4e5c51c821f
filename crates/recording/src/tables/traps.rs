table! {
    /// A watch has at most one for each of its chunks.
    Trap in traps: "One access of a watched chunk.",
    latest: |row| Some(row.time);

    watch: u64 = "The watch that it belongs to: `watches.id`.",
    chunk: u8 = "The chunk that was touched, counted as in `watches.chunks`.",
    exposure_ns: u64 = "Time that the thread ran from arming to this access, as the kernel counted it, ns.",
    time: Time = "When the access happened, CLOCK_MONOTONIC ns.",
    pid: Pid = "The accessing process.",
    tid: Tid = "The accessing thread.",
    cpu: CpuId = "The CPU where it ran.",
    access_ip: Address = "The instruction that accessed the chunk; 0 when it could not be named.",
    address: Address = "The first byte that it touched.",
    size: u32 = "How many bytes it touched.",
    operation: Operation = "What it did to memory.",
    locked: bool = "Whether it is a locked (serialising) access.",
    stack: StackId = "The call chain: `stacks.id`.",
}
