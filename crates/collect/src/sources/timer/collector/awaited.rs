//! Samples whose instruction has overwritten the register that its address came from, as `mov rax, [rax]`
//! does: they wait for it to run again, with an execution breakpoint.

use linewise_recording::{AddressOrigin, Sample, Time, UnknownReason};

use super::pending::Pending;
use super::{Collector, fill};
use crate::error::Error;
use crate::kernel::Kernel;
use crate::sources::timer::decode::{Predecessor, RegistersFrom};
use crate::sources::timer::watch::Answer;

/// How long a sample may wait for a debug register of its thread, ns: two watches, one after the other.
/// Later the thread is likely to be elsewhere.
const PATIENCE_NS: u64 = 20_000_000;

impl<K: Kernel> Collector<K> {
    /// The instruction overwrote its own address: looks when it runs next, now or when its thread is free
    /// for that and the budget pays for it.
    pub(super) fn await_again(
        &mut self,
        sample: Sample,
        candidate: &Predecessor,
    ) -> Result<(), Error> {
        let pending = Pending {
            sample,
            instruction: candidate.instruction,
            without_access: candidate.is_blind.then_some(UnknownReason::BlockStart),
        };
        match self.try_await(pending) {
            Some(pending) if !self.postponed.contains_key(&pending.sample.tid) => {
                self.postponed.insert(pending.sample.tid, pending);
                Ok(())
            }
            Some(pending) => self.unknown(pending.sample, UnknownReason::AddressOverwritten),
            None => Ok(()),
        }
    }

    /// Tries again for those that had to wait; it is their turn before that of the watches.
    pub(super) fn await_postponed(&mut self, now: Time) -> Result<(), Error> {
        for (tid, pending) in std::mem::take(&mut self.postponed) {
            match self.try_await(pending) {
                Some(Pending { sample, .. }) if now.since(sample.time) > PATIENCE_NS => {
                    self.unknown(sample, UnknownReason::AddressOverwritten)?;
                }
                Some(pending) => {
                    self.postponed.insert(tid, pending);
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Nothing is awaited any more.
    pub(super) fn drop_postponed(&mut self) -> Result<(), Error> {
        let mut postponed = std::mem::take(&mut self.postponed).into_values();
        postponed.try_for_each(|Pending { sample, .. }| {
            self.unknown(sample, UnknownReason::AddressOverwritten)
        })
    }

    /// Arms the breakpoint, or gives back what waits for it.
    fn try_await(&mut self, pending: Pending) -> Option<Pending> {
        let (tid, ip) = (pending.sample.tid, pending.sample.access_ip);
        if !self.watcher.free(tid) || !self.budget.affords_an_address() {
            return Some(pending);
        }
        let now = self.kernel.now();
        let refused = self.watcher.await_instruction(tid, ip, now, pending);
        if refused.is_ok() {
            self.budget.armed_for_an_address();
        }
        refused.err()
    }

    /// An awaited instruction ran again, or did not in time.
    pub(super) fn answered(&mut self, answer: Answer<Pending>) -> Result<(), Error> {
        let Pending {
            mut sample,
            instruction,
            without_access,
        } = answer.ticket;
        if let (Some(reason), Some(_)) = (without_access, &answer.sample) {
            self.runs.seen(sample.tid, instruction.ip());
            return self.unknown(sample, reason);
        }
        let registers = answer
            .sample
            .and_then(|record| self.registers(&record, &instruction));
        let access = registers.map(|registers| {
            self.reader
                .access(&instruction, &registers, RegistersFrom::Before)
        });
        match access {
            Some(Ok(access)) => {
                self.runs.seen(sample.tid, instruction.ip());
                fill(&mut sample, &access, AddressOrigin::Breakpoint);
                self.publish(&sample);
                Ok(self.writer.push([sample])?)
            }
            Some(Err(reason)) => self.unknown(sample, reason),
            None => {
                self.runs.unseen(sample.tid, instruction.ip());
                self.unknown(sample, UnknownReason::BreakpointExpired)
            }
        }
    }

    /// A sample whose address nobody will know.
    pub(super) fn unknown(
        &mut self,
        mut sample: Sample,
        reason: UnknownReason,
    ) -> Result<(), Error> {
        sample.reason = Some(reason);
        Ok(self.writer.push([sample])?)
    }
}
