table! {
    /// The program says so itself (`linewise.h`). A thread is in one session and in one phase at a time.
    Mark in marks: "A time for which a thread worked for a session, or was in a phase.",
    latest: |row| Some(row.end),
    expected: |_| false;

    pid: Pid = "The process.",
    tid: Tid = "The thread.",
    kind: MarkKind = "What the thread marked.",
    id: u64 = "The number that the program gave the session; 0 of a phase.",
    name: String = "The name that the program gave it, up to 128 bytes; empty if none.",
    start: Time = "When it began, CLOCK_MONOTONIC ns.",
    end as stop: Time = "When it ended, by its end or the next of its kind, or the thread did, or the recording, CLOCK_MONOTONIC ns.",
}
