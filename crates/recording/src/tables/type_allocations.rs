table! {
    TypeAllocation in type_allocations: "A call that allocates a value of a type that an instruction touches, as the program's code says: of Go, whose blocks nobody records. Found when the recording ended.",
    expected: |_| false;

    pid: Pid = "The process.",
    ip: Address = "The call: `frames.address`.",
    type_name: String = "The type: `typed_accesses.type_name`.",
    type_size: u64 = "`typed_accesses.type_size`.",
    declared_at: String = "`typed_accesses.declared_at`.",
}
