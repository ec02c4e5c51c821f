table! {
    Sample in samples: "One interrupted instruction of one thread.",
    latest: |row| Some(row.time);

    time: Time = "When the timer fired, CLOCK_MONOTONIC ns.",
    pid: Pid = "The process of the interrupted thread.",
    tid: Tid = "The interrupted thread.",
    cpu: CpuId = "The CPU where it ran.",
    ip: Address = "The interrupted instruction pointer, before the skid rule.",
    sp: Address = "The user stack pointer.",
    stack: StackId = "The call chain: `stacks.id`.",
    weight (weight_ns before 2): u64 = "What the sample stands for, in the weight of the source: of the timer thread time, ns.",
    class: SampleClass = "What the sample turned out to be.",
    access_ip: Address = "The instruction that waited, after the skid rule; 0 when unknown.",
    address: Address = "The first byte that it touched; 0 unless the class is `access` or a futex call of the class `kernel`.",
    size: u32 = "How many bytes it touched; 0 where `address` is.",
    operation: Option<Operation> = "What it does to memory; null when it is not an access.",
    locked: bool = "Whether it is a locked (serialising) access.",
    origin: Option<AddressOrigin> = "How the address was found; null when there is none.",
    reason: Option<UnknownReason> = "Why there is no access, when the class is `unknown`.",
}
