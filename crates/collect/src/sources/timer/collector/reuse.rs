//! Sampled reuse as part of a recording: what is offered, when it is paid for, and its rows.

use linewise_machine::records::SampleRecord;
use linewise_recording::{Address, CpuId, ReuseTrap, Sample, Tid, Time};

use super::{Collector, FlowRecorder};
use crate::error::Error;
use crate::kernel::Kernel;
use crate::sources::timer::decode::{Access, Predecessor, Waiting};
use crate::sources::timer::reuse::{Candidate, Crowd, Finished};
use crate::sources::timer::watch::{CHUNK, Refused};

impl<K: Kernel> Collector<K> {
    /// A sampled access may be watched.
    pub(super) fn offer_for_reuse(&mut self, sample: &Sample) {
        if let Some(reuse) = &mut self.reuse {
            let candidate = Candidate {
                pid: sample.pid,
                tid: sample.tid,
                cpu: sample.cpu,
                address: sample.address,
                sample_ip: sample.access_ip,
                weight_ns: sample.weight,
            };
            reuse.watches.sampled(candidate, &mut self.chance);
        }
    }

    /// Arms both kinds of watches, those first that have had less of the budget.
    pub(super) fn arm_all(&mut self, now: Time) -> Result<(), Error> {
        let reuse = self.reuse.as_ref().map_or(0.0, |reuse| reuse.spent_ns);
        let flow = self.flow.as_ref().map_or(0.0, FlowRecorder::spent_ns);
        let part = self.flow.as_ref().map_or(0.5, FlowRecorder::part);
        // There is but one of the two.
        if reuse + flow <= self.budget.watched_ns() * part {
            self.arm_reuse(now)?;
            self.arm_flow(now)?;
            return self.arm(now);
        }
        self.arm(now)?;
        self.arm_reuse(now)?;
        self.arm_flow(now)
    }

    /// Offers the samples of this tick to the slots and arms what was chosen, if that can be paid for.
    fn arm_reuse(&mut self, now: Time) -> Result<(), Error> {
        let Some(reuse) = &mut self.reuse else {
            return Ok(());
        };
        if !self.budget.affords(1) {
            reuse.watches.pass();
            return Ok(());
        }
        reuse.watches.choose(now, &mut self.chance);
        let (threads, groups, watcher) = (&self.threads, &reuse.groups, &mut self.watcher);
        let group_of = |cpu: CpuId| groups.iter().position(|group| group.contains(cpu.0));
        let crowd = Crowd {
            active: &|pid| threads.active(pid, now),
            is_far: &|tid, cpu| {
                let there = threads.cpu_of(tid).and_then(group_of);
                there.is_some() && there != group_of(cpu)
            },
        };
        let (armed, refused) = reuse
            .watches
            .arm(&crowd, &mut self.chance, |tid| watcher.protect(tid));
        let cost = f64::from(armed) * self.budget.arming_ns();
        reuse.spent_ns += cost;
        self.budget.spend(cost);
        for (tid, refused) in refused {
            match refused {
                refused if refused.is_gone() => self.threads.gone(tid),
                Refused::Unguarded(reason) => self.unguarded(reason)?,
                Refused::Kernel(error) => self.lose(
                    "reuse-watch-refused",
                    1,
                    format!("the kernel refused a watchpoint for reuse: {error}"),
                )?,
            }
        }
        Ok(())
    }

    /// Writes the watches that have ended.
    pub(super) fn take_down_reuse(&mut self, now: Time, all: bool) -> Result<(), Error> {
        let Some(reuse) = &mut self.reuse else {
            return Ok(());
        };
        let finished = reuse.watches.collect(now, all);
        for Finished { row, traps } in finished {
            let cost = traps.len() as f64 * self.budget.trap_ns();
            self.budget.spend(cost);
            if let Some(reuse) = &mut self.reuse {
                reuse.spent_ns += cost;
            }
            for (loads, record) in traps {
                let trap = self.reuse_trap(row.id, row.address, loads, &record);
                self.writer.push([trap])?;
            }
            self.writer.push([row])?;
        }
        Ok(())
    }

    fn reuse_trap(
        &mut self,
        watch: u64,
        chunk: Address,
        loads: bool,
        record: &SampleRecord,
    ) -> ReuseTrap {
        let (access, likely) = self.access_before(record, chunk.0);
        let access_ip = access.map_or(likely, |access| access.ip);
        ReuseTrap {
            watch,
            time: Time(record.time),
            tid: Tid(record.tid),
            cpu: CpuId(record.cpu),
            running_ns: record.read.running_ns,
            loads,
            access_ip: Address(access_ip),
            operation: access.map(|access| access.operation),
        }
    }

    /// The access of the chunk at `first` that a trap reports, if an instruction before the reported one
    /// can be it, and the address of the likeliest one, or 0.
    pub(super) fn access_before(
        &mut self,
        record: &SampleRecord,
        first: u64,
    ) -> (Option<Access>, u64) {
        let fits = |access: &Access| {
            access.address < first + CHUNK && access.address + u64::from(access.size) > first
        };
        let waiting = self.code.trapped(&self.kernel, record.pid, record.ip);
        let candidates: &[Predecessor] = match &*waiting {
            Waiting::Instructions(found) => found.all(),
            Waiting::Unknown(_) => &[],
        };
        let mut likely = 0;
        for candidate in candidates {
            let instruction = &candidate.instruction;
            if !self.reader.accesses_memory(instruction) {
                continue;
            }
            if likely == 0 {
                likely = instruction.ip();
            }
            let read = self.registers(record, instruction).map(|registers| {
                self.reader
                    .access(instruction, &registers, candidate.registers_at(record.ip))
            });
            if let Some(Ok(found)) = read
                && fits(&found)
            {
                return (Some(found), likely);
            }
        }
        (None, likely)
    }
}
