table! {
    Thread in threads: "One thread of the target.",
    latest: |row| Some(row.end);

    pid: Pid = "Its process.",
    tid: Tid = "Its id.",
    name: String = "Its name when it was last seen.",
    start: Time = "When it was first seen, CLOCK_MONOTONIC ns.",
    end as stop (end before 3): Time = "When it ended, or the recording did, CLOCK_MONOTONIC ns.",
    cpu_time_ns: u64 = "CPU time that it used while recorded, ns.",
    stack_low: Address = "The lowest stack pointer seen or mapped; 0 when unknown.",
    stack_high: Address = "One past the highest stack pointer seen or mapped; 0 when unknown.",
}
