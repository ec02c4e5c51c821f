table! {
    /// Table 5.2 of Pesterev, 2010.
    HistoryAccess in history_accesses: "An access to watched bytes of an object.",
    latest: |row| Some(row.time),
    expected: |_| false;

    history: u64 = "The history: `histories.id`.",
    time: Time = "When, CLOCK_MONOTONIC ns.",
    tid: Tid = "The accessing thread.",
    cpu: CpuId = "The CPU where it ran.",
    offset as byte_offset (offset before 3): u64 = "First of the watched 8 bytes that it touched, from the first byte of the object.",
    access_ip: Address = "The instruction; 0 when it could not be named.",
    operation: Option<Operation> = "What it did to memory; null when it could not be named.",
}
