table! {
    /// Table 4.1 of Pesterev, 2010. Paths are told apart by the sequence of their instructions and by where the thread
    /// changes; a step may come several times in a row.
    PathStep in path_traces: "A step of a path that objects of a type take from allocation to end, made of histories when the recording ended.",
    expected: |_| false;

    type_name: String = "The type: of a block its label, else what most of its accesses name; empty if unknown.",
    size: u64 = "Bytes of these objects.",
    pid: Pid = "The process.",
    stack: StackId = "The call chain that allocated them: `stacks.id`.",
    path: u64 = "The path among those of the same type, size, process and call chain: 1 is the most frequent.",
    frequency: f64 = "The share of these objects that take the path, estimated, 0 to 1.",
    histories: u64 = "Whole histories of which it is the likeliest path.",
    step: u64 = "Its number in the path, from 0.",
    event: PathEvent = "What happens.",
    ip: Address = "The instruction; of the allocation the innermost caller; 0 if unknown.",
    thread_change: bool = "Whether another thread does this than the step before.",
    thread: u64 = "The thread within the path: 0 is the one that allocated the object.",
    cpu_change: f64 = "The share of the objects for which the CPU was another than at the access before of the same history, 0 to 1.",
    offset as byte_offset (offset before 3): u64 = "First of the 8 bytes that are touched, from the first byte of the object.",
    operation: Option<Operation> = "What it does to them; null if that is not known.",
    times: f64 = "How often in a row an object sees it, on average.",
    time_ns: f64 = "Time since the allocation, median over the histories, ns; while the object is watched, which takes time.",
    sampled_ns: f64 = "Samples of this instruction in objects of the type, as thread time, ns: what waiting for it took.",
    from_l1: Option<f64> = "The share of its accesses that the first level served, 0 to 1; null where no caches were simulated.",
    from_l2: Option<f64> = "The share that the core's second level served.",
    from_llc: Option<f64> = "The share that the last level served.",
    from_core: Option<f64> = "The share that another core served, or another group of cores.",
    from_memory: Option<f64> = "The share that memory served.",
}
