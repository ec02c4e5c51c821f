//! Which goroutine a thread of a Go program runs. Goroutines move between threads, so that of two that use neighbouring
//! words each thread is seen at both.
//!
//! Compiled Go keeps the descriptor of the goroutine in a register of its own (Go's *internal ABI*, "Architecture
//! specifics"), and that begins with the bounds of the goroutine's stack. What has no such bounds around the thread's
//! stack pointer is none.

use std::collections::HashMap;

use linewise_machine::records::SampleRecord;
use linewise_recording::{Address, GoroutineChange, Pid, Tid, Time};

use crate::kernel::Processes;

/// Descriptors remembered of all processes; the memory begins anew when there are more.
const REMEMBERED: usize = 1 << 16;

/// What is known of goroutines and of who runs them.
#[derive(Debug, Default)]
pub(crate) struct Goroutines {
    /// By process and descriptor, the stack: its first byte and one past its last.
    stacks: HashMap<(u32, u64), [u64; 2]>,
    /// What each thread ran when it was seen last.
    last: HashMap<u32, (Time, Address)>,
}

impl Goroutines {
    /// What a sample or trap tells that is new: none in programs that are not Go's.
    pub(crate) fn seen(
        &mut self,
        kernel: &impl Processes,
        record: &SampleRecord,
    ) -> Option<GoroutineChange> {
        let registers = record.registers?;
        let descriptor = registers.goroutine().filter(|&it| is_in_heap(it));
        if descriptor.is_none() && !self.last.contains_key(&record.tid) {
            return None;
        }
        let sp = registers.stack_pointer();
        let runs = |it: &u64| self.runs(kernel, record.pid, *it, sp);
        let goroutine = Address(descriptor.filter(runs).unwrap_or(0));
        let time = Time(record.time);
        let before = self.last.insert(record.tid, (time, goroutine));
        // Of a thread that changed its CPU, records may come in another order than they were made.
        let is_new = before.is_none_or(|(at, what)| what != goroutine || at > time);
        (is_new && (before.is_some() || goroutine.0 != 0)).then_some(GoroutineChange {
            time,
            pid: Pid(record.pid),
            tid: Tid(record.tid),
            goroutine,
        })
    }

    /// Whether a descriptor is that of a goroutine on whose stack the thread is.
    fn runs(&mut self, kernel: &impl Processes, pid: u32, descriptor: u64, sp: u64) -> bool {
        let around = |[low, high]: [u64; 2]| low <= sp && sp < high;
        if let Some(&stack) = self.stacks.get(&(pid, descriptor))
            && around(stack)
        {
            return true;
        }
        // It is new, or its stack has grown, which moves it.
        let mut bytes = [0; 16];
        let read = kernel.read_memory(pid, descriptor, &mut bytes);
        if read.is_err() || read.is_ok_and(|got| got < bytes.len()) {
            return false;
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let stack = [word(0), word(8)];
        if around(stack) {
            if self.stacks.len() >= REMEMBERED {
                self.stacks.clear();
            }
            self.stacks.insert((pid, descriptor), stack);
        }
        around(stack)
    }

    /// A thread of this id began, or runs another program.
    pub(crate) fn forget(&mut self, tid: u32) {
        self.last.remove(&tid);
    }
}

/// Whether Go has its heap there: it asks for 0xc0_0000_0000, and where that is taken for the same in another TiB.
fn is_in_heap(address: u64) -> bool {
    (address >> 32) & 0xff == 0xc0 && address >> 47 == 0
}
