table! {
    /// The innermost call of a path names it.
    #[derive(Copy, Eq, Hash)]
    CallPath in call_paths: "A node in the tree of calls of a process: a function that runs because of a call.",
    expected: |run| run.exact.as_ref().is_some_and(|exact| exact.call_paths);

    id: u32 = "Its number, unique in the recording.",
    pid: Pid = "The process.",
    caller: Option<u32> = "The node of the calling function; null if no call of it is known.",
    call_ip: Address = "The instruction that calls.",
}
