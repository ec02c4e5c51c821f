//! An instruction of the target.

use linewise_recording::Pid;

/// An instruction that accessed memory, or could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Where it stands, as the guest sees it.
    pub address: u64,
    /// The process that translated it.
    pub pid: Pid,
    /// Its bytes, the first `length` of them.
    pub bytes: [u8; 15],
    /// How many there are.
    pub length: u8,
    /// It reads and writes the same bytes.
    pub updates: bool,
    /// It orders threads: atomic, acquiring or releasing.
    pub orders: bool,
}
