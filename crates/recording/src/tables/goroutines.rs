table! {
    GoroutineSeen in goroutines: "The goroutine that a thread of a Go program ran at a sample or trap.",
    latest: |row| Some(row.time),
    expected: |_| false;

    time: Time = "That of the sample or trap, CLOCK_MONOTONIC ns.",
    pid: Pid = "The process.",
    tid: Tid = "The thread.",
    goroutine: Address = "The goroutine's descriptor, which another has after its end.",
}
