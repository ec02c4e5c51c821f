table! {
    /// An address inside inlined code has several, innermost first. Rows of a return address are of the call before it;
    /// where the instruction there has rows of its own, those of the call stand at the byte before.
    Frame in frames: "One source-level frame of a code address; inlined code has several.";

    pid: Pid = "The process.",
    address: Address = "The code address.",
    depth: u32 = "0 is the innermost.",
    function: String = "Demangled function name; `module+0xoffset` if only that is known, of where the function begins if its unwind table says so; empty if not even that.",
    file: String = "Source file; empty if unknown.",
    line: u32 = "Source line; 0 if unknown.",
    module: String = "The path of the module.",
    reason: String = "Why function or line are missing and what to install; empty when both are known.",
}
