table! {
    BlockedLoad in blocked_loads: "A load that waits until stores before it are done, since it reads at once what several of them wrote (store forwarding is blocked); found when the recording ended.",
    expected: |_| false;

    pid: Pid = "The process.",
    ip: Address = "The load: `samples.access_ip`.",
    store_ip: Address = "A store to other memory in the same block, which it waits for, too: stores are done in their order. A row for each.",
    proven: bool = "Whether stores of its loop are known to write what it reads in parts. Else it is large (16 bytes and more), and waits for them where it reads its thread's stack, which is in the cache.",
}
