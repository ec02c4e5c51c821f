//! The seam between the recording by the timer and the kernel.
//!
//! Whoever records asks a [`Kernel`]. There are two: [`Machine`], which hands everything on to
//! `linewise_machine`, and `invented`, which tests script, so that they need no kernel at all.

mod denial;
mod machine;
mod seam;

pub(crate) use denial::Denial;
pub(crate) use machine::Machine;
pub(crate) use seam::{
    Clocks, FunctionProber, FunctionProbes, HeldTarget, Kernel, Launching, Machinery, PerfEvent,
    PerfEvents, PerfRing, Processes, Signals, TargetChild, Warden,
};

#[cfg(test)]
pub(crate) mod invented;
