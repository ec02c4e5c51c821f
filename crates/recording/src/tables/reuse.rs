table! {
    ReuseBin in reuse: "Touches of one thread in one bin of a histogram of reuse distances.",
    expected: |run| run.exact.is_some();

    scope: ReuseScope = "Whose uses count as one stream: each thread's, or those behind one last-level cache.",
    cache: Option<u32> = "Number of the shared cache behind which the thread runs; null in private scope and in sums.",
    tid: Option<Tid> = "The thread that comes back; null in the sums over all threads (touch `other-thread`).",
    measure: Measure = "How the distance is counted: distinct units in between, or accesses.",
    unit: Unit = "What is used and reused.",
    touch: Touch = "What became of the touches; `other-thread` is a part of `reuse`.",
    from as at_least (from before 3): u64 = "The smallest distance of the bin, in units or accesses; 0 where there is no distance.",
    to as below (to before 3): u64 = "The first distance above the bin; 0 where there is no distance.",
    count: f64 = "Touches, scaled back to all units where some were sampled.",
    miss_ratio_error: Option<f64> = "Standard error, from sampling, of the miss ratio of an LRU cache of `at_least` units, all threads together; null when nothing was sampled or the measure is not `stack`.",
}
