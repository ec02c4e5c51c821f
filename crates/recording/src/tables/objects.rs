table! {
    Object in objects: "What an address belongs to, resolved when the recording ended.";

    pid: Pid = "The process.",
    address: Address = "Its first byte.",
    size: u64 = "How many bytes it has.",
    kind: ObjectKind = "What it is.",
    name: String = "Its name: a variable, `heap`, the stack of a thread (`stack of worker-1 (1234)`), the path of a mapping.",
    type_name: String = "Its type from DWARF; empty if unknown.",
    declared_at: String = "Where a variable is declared, `file:line`; empty if unknown.",
}
