//! Table `frames`: one source-level frame of a code address; inlined code has several.

use super::table;
use crate::rows::{Address, Frame, Pid};

table! {
    Frame in frames: "One source-level frame of a code address; inlined code has several.";
    latest: |_| None;
    pid: Pid = "The process.",
    address: Address = "The code address.",
    depth: u32 = "0 is the innermost.",
    function: String = "Demangled function name; empty if unknown.",
    file: String = "Source file; empty if unknown.",
    line: u32 = "Source line; 0 if unknown.",
    module: String = "The path of the module.",
    reason: String = "Why function or line are missing and what to install; empty when both are known.",
}
