//! Table `objects`: what an address belongs to, resolved when the recording ended.

use super::table;
use crate::rows::{Address, Object, ObjectKind, Pid};

table! {
    Object in objects: "What an address belongs to, resolved when the recording ended.";
    latest: |_| None;
    pid: Pid = "The process.",
    address: Address = "Its first byte.",
    size: u64 = "How many bytes it has.",
    kind: ObjectKind = "What it is.",
    name: String = "Its name: a variable, `heap`, the stack of a thread, the path of a mapping.",
    type_name: String = "Its type from DWARF; empty if unknown.",
    declared_at: String = "Where a variable is declared, `file:line`; empty if unknown.",
}
