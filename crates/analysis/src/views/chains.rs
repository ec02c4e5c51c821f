//! The walk from a sample to the frames of its call chain.

use std::collections::HashMap;

use linewise_recording::{Address, Frame, Pid, Sample, SampleClass, StackId, Tables};

use crate::resolve::{SourceFrames, chains_by_id};

/// What stands for code whose function is not known.
pub(crate) const UNKNOWN: &str = "code without a name";
/// What stands for the kernel among functions.
pub(crate) const KERNEL: &str = "the kernel";

/// What samples of one call chain have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PathKey {
    pid: Pid,
    instruction: Address,
    stack: StackId,
    /// Whether the thread was in the kernel, which the chain does not tell.
    pub(crate) in_kernel: bool,
}

impl PathKey {
    /// That of a sample.
    pub(crate) fn of(sample: &Sample) -> Self {
        Self {
            pid: sample.pid,
            instruction: instruction(sample),
            stack: sample.stack,
            in_kernel: sample.class == SampleClass::Kernel,
        }
    }
}

/// The instruction that a sample stands for.
fn instruction(sample: &Sample) -> Address {
    match sample.access_ip {
        Address(0) => sample.ip,
        ip => ip,
    }
}

/// The resolved call chains of a recording.
#[derive(Debug)]
pub(crate) struct Chains<'a> {
    frames: SourceFrames<'a>,
    stacks: HashMap<StackId, &'a [Address]>,
}

impl<'a> Chains<'a> {
    pub(crate) fn new(tables: &'a Tables) -> Self {
        Self {
            frames: SourceFrames::new(&tables.frames),
            stacks: chains_by_id(&tables.stacks),
        }
    }

    /// The frames of a sample, innermost first, inlined ones among them, each with the instruction that it is at, or where
    /// its call returns to.
    pub(crate) fn of(&self, sample: &Sample) -> impl Iterator<Item = (&'a Frame, Address)> + '_ {
        let (pid, ip) = (sample.pid, instruction(sample));
        let here = match self.frames.at(pid, ip) {
            [] => self.frames.at(pid, sample.ip),
            here => here,
        };
        let chain = self.stacks.get(&sample.stack).copied().unwrap_or_default();
        let callers = chain.get(1..).unwrap_or_default();
        let calls = callers.iter().flat_map(move |&back| {
            let frames = self.frames.of_call(pid, back).iter();
            frames.map(move |&frame| (frame, back))
        });
        here.iter().map(move |&frame| (frame, ip)).chain(calls)
    }
}
