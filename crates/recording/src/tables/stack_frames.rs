table! {
    /// A thread that lends what lies on its stack mostly sleeps until the others are done: then the kernel tells where its stack
    /// pointer is, and the frames are walked from there. Rows of one line may differ, where it was lent by several functions.
    StackFrame in stack_frames: "The frame of a function, on a thread's stack, that holds a line at which other threads were trapped.",
    latest: |row| Some(row.time),
    expected: |_| false;

    pid: Pid = "The process.",
    tid: Tid = "The thread whose stack it is.",
    time: Time = "When it was there, CLOCK_MONOTONIC ns.",
    ip: Address = "The last byte of the call in which the function was.",
    low: Address = "The frame's first byte.",
    high: Address = "Its canonical frame address, one past its last byte.",
}
