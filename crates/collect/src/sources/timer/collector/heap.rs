//! The heap recorder as part of a recording.

use linewise_recording::{Address, Pid, Time};

use super::Collector;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::target::heap::HeapRecorder;

impl<K: Kernel> Collector<K> {
    /// Records heap blocks, too.
    pub(crate) fn record_heap(&mut self, heap: HeapRecorder<K>) {
        self.heap = Some(heap);
    }

    /// An access was seen, which may have touched a heap block.
    pub(super) fn touched(&mut self, pid: Pid, address: Address, time: Time) {
        if let Some(heap) = &mut self.heap {
            heap.touched(pid, address, time);
        }
    }

    /// Reads what the recorder told, and pays for it. `thread_ns` of the target's time have passed.
    pub(super) fn read_heap(&mut self, thread_ns: u64) -> Result<(), Error> {
        let Some(heap) = &mut self.heap else {
            return Ok(());
        };
        let cost = heap.round(
            &mut self.writer,
            &mut self.stacks,
            thread_ns,
            self.in_the_way,
        )?;
        self.budget
            .spend_apart(cost.target_ns, cost.own_ns, cost.due_ns);
        self.read_flow()
    }

    /// Ends the recording of heap blocks, and of marks at `now`.
    pub(super) fn finish_heap(&mut self, now: Time) -> Result<(), Error> {
        let Some(mut heap) = self.heap.take() else {
            return Ok(());
        };
        let ended = |_, tid, since| self.threads.end_of(tid, since, now);
        heap.finish_marks(&mut self.writer, &mut self.stacks, ended)?;
        let (run, losses) = heap.finish(&mut self.writer, &mut self.stacks)?;
        self.info.heap = run;
        for (what, count, detail) in losses {
            self.lose(what, count, detail)?;
        }
        Ok(())
    }
}
