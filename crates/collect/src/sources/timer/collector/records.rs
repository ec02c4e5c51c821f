//! What the kernel tells, record by record, but for what a sample shows.

use linewise_machine::records::Record;
use linewise_recording::{CpuId, Pid, Tid, Time};

use super::Collector;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::sources::timer::samplers::order;

impl<K: Kernel> Collector<K> {
    /// Takes in what the rings hold of the time until now, and says until when that is: by then all has been told, and nothing of
    /// later, which comes the next time. (Between emptying two rings this may wait for a CPU; what the second then has of a
    /// time after the first was emptied would be out of order.)
    pub(super) fn read_records(&mut self) -> Result<Time, Error> {
        let until = self.kernel.now();
        let mut records = Vec::new();
        let others = self.samplers.drain(&mut records);
        self.duty.passed_over(others);
        records.append(&mut self.later_records);
        records.sort_by_key(order);
        let told = records.partition_point(|record| order(record) <= until.0);
        self.later_records = records.split_off(told);
        for record in records {
            self.handle(record)?;
        }
        Ok(until)
    }

    fn handle(&mut self, record: Record) -> Result<(), Error> {
        match record {
            Record::Sample(sample) => self.sampled(*sample),
            Record::Lost(count) => {
                // A switch may be among them.
                self.threads.lose_track();
                let detail = "the ring buffer was full: the collector did not get a CPU in time";
                self.lose("ring-buffer-full", count, detail.to_owned())
            }
            Record::Throttled => {
                let detail = "the kernel slowed the sampler down: its samples took too long";
                self.lose("sampler-throttled", 1, detail.to_owned())
            }
            Record::Name {
                pid,
                tid,
                name,
                exec,
                time,
            } => {
                self.named((Pid(pid), Tid(tid)), name, exec, Time(time));
                Ok(())
            }
            Record::Fork {
                pid,
                parent_pid,
                tid,
                time,
            } => self.forked((Pid(pid), Tid(tid)), Pid(parent_pid), Time(time)),
            Record::Exit { tid, time, .. } => {
                if let Some(reuse) = &mut self.reuse {
                    reuse.forget(Tid(tid), Time(time));
                }
                let stay = self.threads.ended(Tid(tid), Time(time));
                Ok(self.writer.push(stay)?)
            }
            Record::Map {
                pid,
                start,
                length,
                offset,
                path,
                time,
            } => self.mapped(Pid(pid), (start, length), offset, &path, Time(time)),
            Record::Switch {
                pid: _,
                tid,
                cpu,
                time,
                out,
            } => {
                self.silence.heard();
                if out {
                    let cost_ns = self.duty.switched();
                    self.budget.spend_apart(cost_ns, 0.0, 0.0);
                }
                let stay = self.threads.switched(Tid(tid), CpuId(cpu), Time(time), out);
                Ok(self.writer.push(stay)?)
            }
        }
    }

    /// A thread has another name; `exec`: with another program.
    fn named(&mut self, (pid, tid): (Pid, Tid), name: String, exec: bool, time: Time) {
        if !exec {
            return self.threads.found(pid, tid, time, Some(name));
        }
        self.threads.executed(pid, tid, time, name);
        self.code.forget(pid.0);
        self.callers.forget(pid.0);
        self.goroutines.forget(pid.0);
        self.bases.forget(tid.0);
        self.mapped_lately.insert(pid);
        if let Some(heap) = &mut self.heap {
            heap.replaced(pid, time);
        }
    }

    /// A thread began, and with it a process where it has its number.
    fn forked(&mut self, (pid, tid): (Pid, Tid), parent: Pid, time: Time) -> Result<(), Error> {
        self.bases.forget(tid.0);
        if let Some(flow) = &mut self.flow {
            flow.thread_began(pid, time);
        }
        self.threads.forked(pid, tid, parent, time);
        if pid.0 != tid.0 {
            return Ok(());
        }
        self.callers.forget(pid.0);
        self.goroutines.forget(pid.0);
        self.mapped_lately.insert(pid);
        let shared = self.maps.forked(parent, pid, time);
        self.writer.push(shared)?;
        self.cpu_times.follow(&self.kernel, pid);
        if let Some(heap) = &mut self.heap {
            heap.forked(parent);
        }
        Ok(())
    }

    /// A process mapped `length` bytes of the file `path` from `offset` on, at `start`, executable.
    fn mapped(
        &mut self,
        pid: Pid,
        (start, length): (u64, u64),
        offset: u64,
        path: &str,
        time: Time,
    ) -> Result<(), Error> {
        self.code.mapped(pid.0, start, length, offset, path);
        self.callers.mapped(pid.0, start, length, offset, path);
        let (process, place) = ((pid, time), (start, length));
        let map = (self.maps).told(&self.kernel, process, place, offset, path);
        self.writer.push(map)?;
        self.mapped_lately.insert(pid);
        if let Some(heap) = &mut self.heap {
            heap.mapped(pid);
        }
        Ok(())
    }
}
