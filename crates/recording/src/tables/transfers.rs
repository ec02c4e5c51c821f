table! {
    TransferCount in transfers: "Transfers of a line from an instruction of one thread to one of another, in the simulated hierarchy.",
    expected: |run| run.exact.is_some();

    pid: Option<Pid> = "The process that the memory is of, the first that mapped it if processes share it; null in the sum of the transfers that have no row of their own.",
    line: Option<Address> = "The first byte of the line; null likewise.",
    from_tid: Option<Tid> = "The thread that had the line; null likewise.",
    to_tid: Option<Tid> = "The thread that fetched it; null likewise.",
    from_ip: Option<Address> = "The instruction of the access that the line came from; null likewise.",
    from_operation: Option<Operation> = "What `from_ip` does to memory; null likewise, or if it is not known.",
    to_ip: Option<Address> = "The instruction that fetched it; null likewise.",
    to_operation: Option<Operation> = "What `to_ip` does to memory; null likewise.",
    from_bytes: u64 = "Bytes of the line that `from_ip` touched: bit i is byte i, or pair i of a line of 128 bytes; 0 if unknown.",
    to_bytes: u64 = "Bytes of the line that `to_ip` touched, likewise.",
    from_block: Option<u64> = "The heap block that `from_bytes` lay in, mostly: `heap_blocks.id`; null where blocks were not recorded or none lay there.",
    to_block: Option<u64> = "The heap block that `to_bytes` lay in, likewise.",
    sharing: Sharing = "Whether the bytes of the two accesses overlap.",
    count: f64 = "Transfers; of a line as counted, in the sum scaled back to all lines where some were sampled.",
}
