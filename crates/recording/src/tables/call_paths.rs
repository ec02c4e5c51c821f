//! Table `call_paths`: the tree of calls, a node for each path.

use super::table;
use crate::rows::{Address, Pid};
use crate::rows_exact::CallPath;

table! {
    CallPath in call_paths: "A node in the tree of calls: a function that runs because of a call.";
    latest: |_| None;
    id: u32 = "Its number, unique in the recording.",
    pid: Pid = "The process.",
    caller: Option<u32> = "The node of the calling function; null if no call of it is known.",
    call_ip: Address = "The instruction that calls.",
}
