//! The seam between the recording by the timer and the kernel.
//!
//! Whoever records asks a [`Kernel`]. [`Machine`] hands everything on to `linewise_machine`.

mod machine;
mod refusal;
mod seam;

pub(crate) use machine::Machine;
pub(crate) use refusal::Refusal;
pub(crate) use seam::{
    HeldTarget, Kernel, Launching, Machinery, PerfEvent, PerfEvents, PerfRing, Processes, Signals,
    TargetChild, Warden,
};
