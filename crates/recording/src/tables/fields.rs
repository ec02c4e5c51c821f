table! {
    Field in fields: "A field of an object, resolved when the recording ended.";

    pid: Pid = "The process of the object.",
    object: Address = "The first byte of the object: `objects.address`.",
    offset as byte_offset (offset before 3): u64 = "Offset of the field in the object, bytes.",
    size: u64 = "How many bytes it has.",
    path: String = "Its path from the object: `counters[3].hits`.",
    type_name: String = "Its type from DWARF.",
}
