table! {
    TypeMember in type_members: "A direct member of a type that an instruction touches, resolved when the recording ended.",
    expected: |_| false;

    type_name: String = "The type: `typed_accesses.type_name`.",
    type_size: u64 = "`typed_accesses.type_size`.",
    declared_at: String = "`typed_accesses.declared_at`.",
    offset as byte_offset (offset before 3): u64 = "Its first byte; of a bit field the one that holds its first bit.",
    size: u64 = "Its bytes; of a bit field all that it reaches into.",
    alignment: u64 = "What its address is a multiple of, bytes.",
    bits: u64 = "Bits of a bit field; 0 for every other member.",
    name: String = "Its name; empty for a base class and for an unnamed struct or union.",
    member_type: String = "Its type.",
    language: String = "The language of the type: `c`, `c++`, `rust`, `go`, or empty.",
}
