//! Table `block_uses`: what instructions did to the heap blocks of a call chain, in an exact run.

use super::table;
use crate::rows::{Address, Pid, StackId};
use crate::rows_exact::BlockUse;

table! {
    BlockUse in block_uses: "What one instruction of an exact run did to the heap blocks of one call chain.";
    latest: |_| None;
    pid: Pid = "The process.",
    stack: StackId = "The call chain that allocated the blocks: `stacks.id`.",
    label: String = "The name that the program gave them; empty if none.",
    ip: Address = "The instruction.",
    accesses: f64 = "Its accesses to them, estimated from one in so many of those that were told.",
    blocks: u64 = "Blocks of which the first access that was looked at is one of these.",
}
