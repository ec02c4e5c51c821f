table! {
    BlockUse in block_uses: "What one instruction of an exact run did to the heap blocks of one call chain.",
    expected: |_| false;

    pid: Pid = "The process.",
    stack: StackId = "The call chain that allocated the blocks: `stacks.id`.",
    label: String = "The name that the program gave them; empty if none.",
    ip: Address = "The instruction.",
    accesses: f64 = "Its accesses to them, estimated from one in so many of those that were told.",
    blocks: u64 = "Blocks of which the first access that was looked at is one of these.",
}
