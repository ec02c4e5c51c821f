table! {
    /// Of one kind are lines whose last access was by one instruction, in heap blocks of one call chain or in none.
    CacheContent in cache_contents: "Lines of one kind that a simulated cache holds on average, or that press each other out of one of its associativity sets.",
    expected: |_| false;

    level: CacheLevel = "The level.",
    tid: Option<Tid> = "The thread whose private cache it is, the one with the most accesses; null at a level that several cores share.",
    set: Option<u64> = "The associativity set; null for the whole cache.",
    pid: Option<Pid> = "The process; null where neither instruction nor block is known.",
    ip: Option<Address> = "The instruction of the last access to the lines; null if it is not known.",
    stack: Option<StackId> = "The call chain that allocated the blocks that the lines are of: `stacks.id`; null outside of blocks.",
    label: String = "The name that the program gave them; empty if none.",
    lines: f64 = "Of the whole cache its lines, the mean of moments spread over the run; of a set the different lines that missed there by conflict.",
    blocks: f64 = "Heap blocks that these lines are of, likewise.",
    misses: f64 = "Of a set the misses by conflict; else 0.",
    stride: u64 = "What all distances between the lines of a set are a multiple of, bytes; 0 of a single line and of the whole cache.",
}
