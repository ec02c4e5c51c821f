table! {
    HeapSite in heap_sites: "What one call chain allocated in a process, all blocks together, also those without a row in `heap_blocks`.",
    expected: |_| false;

    pid: Pid = "The process.",
    stack: StackId = "The call chain of the allocations, return addresses only: `stacks.id`.",
    allocator: Allocator = "What was asked for memory.",
    label: String = "The name that the program gave the blocks; empty if none.",
    blocks: f64 = "Blocks, from the beginning to the end; exact where all blocks were told of (`sampled_bytes` of `run.json` is 0), else estimated.",
    bytes: f64 = "Their bytes, as asked for.",
    live_blocks: f64 = "Those that were there when the recording ended or the process did.",
    live_bytes: f64 = "Their bytes.",
    peak_blocks: f64 = "The most blocks that were there at once.",
    peak_bytes: f64 = "The most bytes that were there at once.",
}
