table! {
    Polling in polls: "A sampled instruction in a loop that does nothing but look at memory until another thread changes it, found when the recording ended.",
    expected: |_| false;

    pid: Pid = "The process.",
    ip: Address = "The instruction: `samples.ip`.",
    load_ip: Address = "The load in that loop whose value ends it; a row for each of several.",
}
