//! What instructions touch, and what the types are made of that they touch: resolved from debug
//! info and machine code when the recording ended.

use serde::{Deserialize, Serialize};

use crate::rows::{Address, Pid, words};

words!(
    /// Why it is not known which type an instruction touches.
    UntypedReason {
        /// The module has no debug info.
        NoDebugInfo = "no-debug-info",
        /// The debug info does not cover this code: assembly, or a part built without it.
        NoFunction = "no-function",
        /// The code could not be read, or no instruction with a memory operand starts there.
        NoInstruction = "no-instruction",
        /// The processor's instructions are not decoded.
        OtherProcessor = "other-processor",
        /// The function has more code than is looked at.
        FunctionTooLarge = "function-too-large",
        /// Pushed or spilled: memory of the stack that is no variable.
        Stack = "stack",
        /// Relative to a segment: thread-local memory.
        ThreadLocal = "thread-local",
        /// In read-only data that is no variable: a table of the compiler, as for a `switch`.
        Constant = "constant",
        /// Neither the debug info nor the code says what the register points to.
        UnknownPointer = "unknown-pointer",
        /// Paths through the function disagree about what it points to.
        Conflict = "conflict",
        /// The type that it points to is declared there, not defined.
        IncompleteType = "incomplete-type",
        /// The bytes do not lie in a field of the type that it points to.
        OutsideType = "outside-type",
    }
);

/// What one instruction touches, or why that is not known (table `typed_accesses`).
#[derive(Clone, Debug, PartialEq)]
pub struct TypedAccess {
    /// The process.
    pub pid: Pid,
    /// The instruction.
    pub ip: Address,
    /// The type whose value it touches, as its language writes it; empty if unknown.
    pub type_name: String,
    /// Bytes of that type; 0 if unknown.
    pub type_size: u64,
    /// Where the type is declared, `file:line`; of Rust, whose debug info does not say, the module
    /// (`core::option`). Empty if unknown.
    pub declared_at: String,
    /// The first byte of the type that it touches; in an array in it, of the first element.
    pub offset: u64,
    /// Bytes that it touches.
    pub size: u64,
    /// The field, from the type: `inner.hits[]`; several fields or all candidates of a union with
    /// ` | ` between; empty where the type has no fields.
    pub path: String,
    /// The type of the field; empty for several.
    pub field_type: String,
    /// The static variable, if the instruction names one; else empty.
    pub variable: String,
    /// The member (`State.hash_table`) or the variable (`text`, `end (local)`) that holds the pointer through
    /// which it is reached, or the local variable that it lies in; empty if none is known.
    pub through: String,
    /// Why nothing is known; null where the type is.
    pub reason: Option<UntypedReason>,
}

/// A direct member of a type that an instruction touches (table `type_members`).
#[derive(Clone, Debug, PartialEq)]
pub struct TypeMember {
    /// The type: `typed_accesses.type_name`.
    pub type_name: String,
    /// `typed_accesses.type_size`.
    pub type_size: u64,
    /// `typed_accesses.declared_at`.
    pub declared_at: String,
    /// Its first byte; of a bit field the one that holds its first bit.
    pub offset: u64,
    /// Its bytes; of a bit field all that it reaches into.
    pub size: u64,
    /// What its address is a multiple of, bytes.
    pub alignment: u64,
    /// Bits of a bit field; 0 for every other member.
    pub bits: u64,
    /// Its name; empty for a base class and for an unnamed struct or union.
    pub name: String,
    /// Its type.
    pub member_type: String,
    /// The language of the type: `c`, `c++`, `rust`, `go`, or empty.
    pub language: String,
}
