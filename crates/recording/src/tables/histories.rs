table! {
    /// The head of an object access history (Pesterev, 2010, section 5.3).
    History in histories: "What was watched of an object from its allocation on; two rows with the same `address` and `allocated` if that were three places.",
    latest: |row| Some(row.freed.unwrap_or(row.allocated)),
    expected: |_| false;

    id: u64 = "A number of its own, from 1.",
    pid: Pid = "The process.",
    address: Address = "First byte of the object.",
    size: u64 = "Bytes that were asked for.",
    label: String = "The name that the program gave it; empty if none.",
    stack: StackId = "The call chain of the allocation, return addresses only: `stacks.id`.",
    allocated: Time = "When it was allocated, CLOCK_MONOTONIC ns.",
    allocated_by: Tid = "The thread that allocated it.",
    freed: Option<Time> = "When it ended; null if that was not seen.",
    freed_by: Option<Tid> = "The thread that freed it; null if that was not seen.",
    offset as byte_offset (offset before 3): u64 = "First of the 8 bytes that were watched, from the first byte of the object.",
    other_offset: Option<u64> = "Of the second 8 bytes watched at the same time; null if there were none.",
    outcome: HistoryOutcome = "How it ended; only whole histories tell of a path.",
}
