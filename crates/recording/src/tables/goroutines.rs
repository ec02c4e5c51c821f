table! {
    /// A sample and a trap of a thread are of what its last row tells.
    GoroutineChange in goroutines: "A sample or trap of a thread in Go's code that runs another goroutine than at the one before.",
    latest: |row| Some(row.time),
    expected: |_| false;

    time: Time = "When it was seen, CLOCK_MONOTONIC ns.",
    pid: Pid = "The process.",
    tid: Tid = "The thread.",
    goroutine: Address = "The goroutine's descriptor, which another has after its end; 0 where the thread runs none that is known.",
}
