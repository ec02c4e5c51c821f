table! {
    BlockedLoad in blocked_loads: "A load in a loop that waits until stores before it are done, since it reads at once what several of them wrote (store forwarding is blocked); found when the recording ended.",
    expected: |_| false;

    pid: Pid = "The process.",
    ip: Address = "The load: `samples.access_ip`.",
    store_ip: Address = "A store to other memory in the same block of that loop, which it waits for, too: stores are done in their order. A row for each.",
}
