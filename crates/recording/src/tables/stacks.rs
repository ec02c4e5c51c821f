//! Table `stacks`: a call chain, shared by the samples and traps that name it.

use super::table;
use crate::rows::{Address, Stack, StackId};

table! {
    Stack in stacks: "A call chain, shared by the samples and traps that name it.";
    latest: |_| None;
    id: StackId = "Its id, unique in the recording.",
    frames: Vec<Address> = "The interrupted instruction, then the return address of each caller.",
}
