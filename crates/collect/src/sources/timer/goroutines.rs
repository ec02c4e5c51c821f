//! Which goroutine a thread of a Go program runs. Goroutines move between threads, so that of two that use neighbouring
//! words each thread is seen at both.
//!
//! Compiled Go keeps the descriptor of the goroutine in a register of its own (Go's *internal ABI*, "Architecture
//! specifics"), and that begins with the bounds of the goroutine's stack. What has no such bounds around the thread's
//! stack pointer is none.

use std::collections::HashMap;

use linewise_machine::records::SampleRecord;
use linewise_recording::{Address, GoroutineSeen, Pid, Tid, Time};

use crate::kernel::Processes;

/// Descriptors remembered of all processes; the memory begins anew when there are more.
const REMEMBERED: usize = 1 << 16;

/// A process of which so many samples and traps are of none is no Go program.
const TRIES: u32 = 1_000;

/// What is known of goroutines.
#[derive(Debug, Default)]
pub(crate) struct Goroutines {
    /// Of each process how many samples and traps were of none; `None` once one was of a goroutine.
    in_vain: HashMap<u32, Option<u32>>,
    /// By process and descriptor, the stack: its first byte and one past its last.
    stacks: HashMap<(u32, u64), [u64; 2]>,
}

impl Goroutines {
    /// The goroutine of a sample or trap, if it is of one.
    pub(crate) fn seen(
        &mut self,
        kernel: &impl Processes,
        record: &SampleRecord,
    ) -> Option<GoroutineSeen> {
        let in_vain = self.in_vain.get(&record.pid).copied().flatten();
        if in_vain.is_some_and(|it| it >= TRIES) {
            return None;
        }
        let registers = record.registers?;
        let descriptor = registers.goroutine()?;
        let runs = self.runs(kernel, record.pid, descriptor, registers.stack_pointer());
        runs.then_some(GoroutineSeen {
            time: Time(record.time),
            pid: Pid(record.pid),
            tid: Tid(record.tid),
            goroutine: Address(descriptor),
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
        let in_vain = self.in_vain.entry(pid).or_insert(Some(0));
        *in_vain = in_vain.map(|it| it + 1);
        if descriptor == 0 || !descriptor.is_multiple_of(8) {
            return false;
        }
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
            *in_vain = None;
        }
        around(stack)
    }

    /// A process of this id began, or runs another program.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.in_vain.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use linewise_machine::records::ReadFormat;
    use linewise_machine::registers::Registers;

    use super::*;
    use crate::kernel::invented::Invented;

    const STACK: u64 = 0x7000_0000;
    /// Two descriptors, whose stacks are neighbours.
    const FIRST: u64 = 0x2050_c35e_2000;
    const SECOND: u64 = FIRST + 16;

    fn kernel() -> Invented {
        let kernel = Invented::new();
        let words = [STACK, STACK + 0x1000, STACK + 0x1000, STACK + 0x2000];
        let bytes = words.iter().flat_map(|it| it.to_le_bytes()).collect();
        kernel.with(|world| {
            let process = world.processes.entry(1).or_default();
            process.memory.push((FIRST, bytes));
        });
        kernel
    }

    /// A sample of thread 1 with what the register of goroutines holds.
    fn sample(time: u64, descriptor: u64, sp: u64) -> SampleRecord {
        // r14 and sp on x86-64, x28 and sp on aarch64.
        let numbers = if cfg!(target_arch = "x86_64") {
            (22, 7)
        } else {
            (28, 31)
        };
        SampleRecord {
            ip: 0,
            in_kernel: false,
            pid: 1,
            tid: 1,
            time,
            address: 0,
            id: 0,
            cpu: 0,
            period: 0,
            read: ReadFormat::default(),
            chain: Vec::new(),
            registers: Some(Registers::from_pairs(&[
                (numbers.0, descriptor),
                (numbers.1, sp),
            ])),
            stack: Vec::new(),
            raw: Vec::new(),
        }
    }

    #[test]
    fn a_thread_runs_the_goroutine_on_whose_stack_it_is() {
        let (kernel, mut goroutines) = (kernel(), Goroutines::default());
        let mut seen = |time, descriptor, sp| {
            let seen = goroutines.seen(&kernel, &sample(time, descriptor, sp));
            seen.map(|it| it.goroutine.0)
        };
        // What another program has in the register.
        assert_eq!(seen(1, 0, STACK), None);
        assert_eq!(seen(2, FIRST, STACK - 8), None);
        assert_eq!(seen(3, FIRST, STACK + 0x800), Some(FIRST));
        assert_eq!(seen(4, SECOND, STACK + 0x1800), Some(SECOND));
        // Code that uses the register for something else.
        assert_eq!(seen(5, 0x1234, STACK + 0x1800), None);
        assert_eq!(seen(6, FIRST, STACK + 0x700), Some(FIRST));
    }

    #[test]
    fn a_program_that_runs_no_goroutine_for_long_is_not_asked_any_more() {
        let (kernel, mut goroutines) = (kernel(), Goroutines::default());
        for time in 0..u64::from(TRIES) {
            assert_eq!(goroutines.seen(&kernel, &sample(time, 8, STACK)), None);
        }
        let late = sample(5_000, FIRST, STACK + 8);
        assert_eq!(goroutines.seen(&kernel, &late), None);
        // Its thread runs another program.
        goroutines.forget(1);
        assert!(goroutines.seen(&kernel, &late).is_some());
        // Which is Go's, however long it is elsewhere.
        for time in 0..u64::from(2 * TRIES) {
            goroutines.seen(&kernel, &sample(6_000 + time, 8, STACK));
        }
        assert!(
            goroutines
                .seen(&kernel, &sample(9_000, FIRST, STACK + 8))
                .is_some()
        );
    }
}
