table! {
    /// Of blocks that nobody was seen to touch there may be only a sample: each stands for `weight` blocks that are alike.
    /// Blocks can lie in one another: an object of a pool lies in the block that the pool asked for. The innermost that was
    /// alive is the one that an access belongs to.
    HeapBlock in heap_blocks: "A block of memory that the program allocated, from its allocation to its end.",
    latest: |row| Some(row.freed.unwrap_or(row.allocated)),
    expected: |run| run.heap.is_some();

    id: u64 = "A number of its own, from 1.",
    pid: Pid = "The process.",
    address: Address = "First byte.",
    size: u64 = "Bytes that were asked for.",
    allocator: Allocator = "What it was asked from.",
    label: String = "The name that the program gave it; empty if none.",
    allocated: Time = "When it was allocated, CLOCK_MONOTONIC ns.",
    allocated_by: Tid = "The thread that allocated it.",
    stack: StackId = "The call chain of the allocation, return addresses only: `stacks.id`.",
    freed: Option<Time> = "When it ended; null if it was there when the recording ended.",
    freed_by: Option<Tid> = "The thread that freed it; null if its end was not seen: it was still there, another block lay there later, or the process ran another program.",
    weight: f64 = "Blocks that this one stands for, itself included.",
}
