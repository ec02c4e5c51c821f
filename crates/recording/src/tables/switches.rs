table! {
    Switch in switches: "A stay of a thread on a CPU.",
    latest: |row| Some(row.end);

    tid: Tid = "The thread.",
    cpu: CpuId = "The CPU.",
    start: Time = "When it came, CLOCK_MONOTONIC ns.",
    end as stop (end before 3): Time = "When it went, CLOCK_MONOTONIC ns.",
}
