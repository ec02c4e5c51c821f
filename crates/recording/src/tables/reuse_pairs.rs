table! {
    /// The two may be the same. Cold touches follow no use.
    ReusePairBin in reuse_pairs: "Touches by the pair of instructions that used and came back, in one octave of distances.",
    expected: |run| run.exact.is_some();

    scope: ReuseScope = "Whose uses count as one stream: each thread's, or those behind one last-level cache.",
    pid: Option<Pid> = "The process of the instructions; null in the sum of the pairs that have no rows.",
    use_ip: Option<Address> = "The instruction that used; null likewise.",
    use_path: Option<u32> = "The calls that led there, a row of `call_paths`; null likewise, or where no call is known: in the thread's first function, or where calls were not followed.",
    reuse_ip: Option<Address> = "The instruction that came back; null likewise.",
    reuse_path: Option<u32> = "The calls that led there; null as for the use.",
    measure: Measure = "How the distance is counted: distinct units in between, or accesses.",
    unit: Unit = "What is used and reused.",
    touch: Touch = "`reuse` or `invalidated`.",
    from as at_least (from before 3): u64 = "The smallest distance of the octave; 0 where there is no distance.",
    to as below (to before 3): u64 = "The first distance above the octave; 0 where there is no distance.",
    count: f64 = "Touches, scaled back to all units where some were sampled.",
}
