table! {
    /// `loads + stores + updates` = `hits` + the five classes of misses, and the misses = the sum of the `from_` columns.
    /// An access that reaches into the next line counts once for each.
    CacheCounts in caches: "What a level of the simulated hierarchy said to the accesses that asked it.",
    expected: |run| run.exact.is_some();

    level: CacheLevel = "The level.",
    subject: CacheSubject = "Whose accesses: all, a thread's, an instruction's, or those of the instructions without a row.",
    cache: Option<u32> = "Number of the cache that the thread asks: of its core where the level is private, else of the shared cache; null unless the subject is a thread.",
    tid: Option<Tid> = "The thread; null unless the subject is one.",
    pid: Option<Pid> = "The process of the instruction; null unless the subject is one.",
    ip: Option<Address> = "The instruction; null unless the subject is one.",
    loads: f64 = "Loads that asked this level.",
    stores: f64 = "Stores that asked this level.",
    updates: f64 = "Accesses that read and write in one instruction that asked this level.",
    hits: f64 = "Accesses that it served; at the last level also those that a core of its group served (`from_peer` of the levels above).",
    compulsory: f64 = "Misses: the cache never had the line.",
    capacity: f64 = "Misses: a fully associative cache of the same size would have lost the line too.",
    conflict: f64 = "Misses: a fully associative cache of the same size would still have the line.",
    true_sharing: f64 = "Misses: invalidated by a store to bytes that the core goes on to touch.",
    false_sharing: f64 = "Misses: invalidated by stores to other bytes.",
    from_l2: f64 = "Misses that the core's second level served.",
    from_llc: f64 = "Misses that the last level of the core's group served.",
    from_peer: f64 = "Misses that another core of the group served.",
    from_other_group: f64 = "Misses that another group of the socket served.",
    from_other_socket: f64 = "Misses that another socket served.",
    from_local_dram: f64 = "Misses that the memory of the core's node served.",
    from_remote_dram: f64 = "Misses that the memory of another node served.",
    upgrades: f64 = "Stores to a line that the core had without the right to store (hits); at the first level only.",
}
