table! {
    TypedAccess in typed_accesses: "What an instruction touches, resolved when the recording ended.",
    expected: |_| false;

    pid: Pid = "The process.",
    ip: Address = "The instruction.",
    type_name: String = "The type whose value it touches, as its language writes it; empty if unknown.",
    type_size: u64 = "Bytes of that type; 0 if unknown.",
    declared_at: String = "Where the type is declared, `file:line`; of Rust, whose debug info does not say, the module (`core::option`); empty if unknown.",
    offset as byte_offset (offset before 3): u64 = "The first byte of the type that it touches; in an array in it, of the first element.",
    size: u64 = "Bytes that it touches.",
    path: String = "The field, from the type: `inner.hits[]`; several, or all candidates of a union, with ` | ` between; empty where the type has no fields.",
    field_type: String = "The type of the field; empty for several.",
    variable: String = "The static variable, if the instruction names one; else empty.",
    through: String = "The member (`State.hash_table`) or variable (`text`, `end (local)`) that holds the pointer through which it is reached, or the local variable that it lies in; of an argument what the callers that samples saw say, two of them with ` | ` between; empty if none is known.",
    reason: Option<UntypedReason> = "Why nothing is known; null where the type is.",
}
