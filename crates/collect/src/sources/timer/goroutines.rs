//! Which goroutine a thread of a Go program runs. Goroutines move between threads, so that of two that use neighbouring
//! words each thread is seen at both.
//!
//! Code compiled by Go keeps the descriptor of the goroutine in a register of its own (Go's *internal ABI*, "Architecture
//! specifics"), and that begins with the bounds of the goroutine's stack. Other code has anything there: after glibc's `clone3` the
//! block that it begins threads with, which holds bounds of a stack, too, and is the same for all of them. So what has no such
//! bounds around the thread's stack pointer is none, nor is what runs in a file that Go's linker did not make.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use linewise_machine::records::SampleRecord;
use linewise_recording::{Address, GoroutineSeen, Pid, Tid, Time};
use object::Endianness;
use object::read::elf::ElfFile64;
use object::read::{Object, ObjectSection};

use crate::kernel::Processes;
use crate::target::binary::Binary;

/// Descriptors remembered of all processes; the memory begins anew when there are more.
const REMEMBERED: usize = 1 << 16;

/// Mappings of code of one process that are looked at: one that makes code has ever new ones, of no file.
const MOST_CODE: usize = 64;

/// Sections that Go's linker makes, also of a program that it strips.
const GO_SECTIONS: [&str; 2] = [".go.buildinfo", ".gopclntab"];

/// What is known of goroutines.
#[derive(Debug, Default)]
pub(crate) struct Goroutines {
    /// By process its code that ran, and whether that is Go's.
    code: HashMap<u32, Vec<(Range<u64>, bool)>>,
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
        let registers = record.registers?;
        let descriptor = registers.goroutine()?;
        let runs = self.is_go(kernel, record.pid, registers.instruction_pointer())
            && self.runs(kernel, record.pid, descriptor, registers.stack_pointer());
        runs.then_some(GoroutineSeen {
            time: Time(record.time),
            pid: Pid(record.pid),
            tid: Tid(record.tid),
            goroutine: Address(descriptor),
        })
    }

    /// Whether code is in a file that Go's linker made.
    fn is_go(&mut self, kernel: &impl Processes, pid: u32, ip: u64) -> bool {
        let known = self.code.entry(pid).or_default();
        if let Some((_, is_go)) = known.iter().find(|(code, _)| code.contains(&ip)) {
            return *is_go;
        }
        if known.len() >= MOST_CODE {
            return false;
        }
        let maps = kernel.maps(pid).unwrap_or_default();
        let map = maps.iter().find(|it| (it.start..it.end).contains(&ip));
        let code = map.map_or(ip..ip.saturating_add(1), |it| it.start..it.end);
        let is_go = map.is_some_and(|it| made_by_go(&kernel.path_in(pid, &it.path)));
        known.push((code, is_go));
        is_go
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
        }
        around(stack)
    }

    /// A process of this id began, or runs another program.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.code.remove(&pid);
    }
}

fn made_by_go(path: &Path) -> bool {
    let Ok(file) = Binary::open(path) else {
        return false;
    };
    let elf = ElfFile64::<Endianness, _>::parse(&file);
    let is_go = |name: &str| GO_SECTIONS.contains(&name);
    elf.is_ok_and(|elf| elf.sections().any(|it| it.name().is_ok_and(is_go)))
}

#[cfg(test)]
mod tests {
    use linewise_machine::records::ReadFormat;
    use linewise_machine::registers::Registers;

    use super::*;
    use crate::kernel::invented::{Invented, mapping};

    const STACK: u64 = 0x7000_0000;
    /// Two descriptors, whose stacks are neighbours.
    const FIRST: u64 = 0x2050_c35e_2000;
    const SECOND: u64 = FIRST + 16;
    /// Where Go's code is mapped, and where other.
    const GO: u64 = 0x40_0000;
    const OTHER: u64 = 0x80_0000;

    /// An ELF file with one section of this name, and that of names.
    fn elf(section: &str) -> Vec<u8> {
        let names = format!("\0{section}\0");
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(64 + 2 * 64, 0);
        file[40] = 64; // e_shoff
        file[58] = 64; // e_shentsize
        file[60] = 3; // e_shnum
        file[62] = 2; // e_shstrndx
        let mut header = |name: u8, kind: u8, size: usize| {
            let at = file.len();
            file.resize(at + 64, 0);
            (file[at], file[at + 4], file[at + 32]) = (name, kind, size as u8);
            at
        };
        let at = header(0, 3, names.len()); // SHT_STRTAB
        file[64 + 64] = 1;
        file[64 + 64 + 4] = 1; // SHT_PROGBITS
        let place = file.len() as u64;
        file[at + 24..at + 32].copy_from_slice(&place.to_le_bytes());
        file.extend(names.as_bytes());
        file
    }

    fn kernel(folder: &Path) -> Invented {
        let kernel = Invented::new();
        let words = [STACK, STACK + 0x1000, STACK + 0x1000, STACK + 0x2000];
        let bytes = words.iter().flat_map(|it| it.to_le_bytes()).collect();
        let map = |start: u64, section: &str| {
            let path = folder.join(section);
            std::fs::write(&path, elf(section)).unwrap();
            mapping(start, &path.display().to_string())
        };
        kernel.with(|world| {
            let process = world.processes.entry(1).or_default();
            process.memory.push((FIRST, bytes));
            process.maps = vec![map(GO, ".go.buildinfo"), map(OTHER, ".text")];
        });
        kernel
    }

    /// A sample of thread 1 at an instruction with what the register of goroutines holds.
    fn sample(ip: u64, descriptor: u64, sp: u64) -> SampleRecord {
        // r14, sp and the instruction pointer on x86-64, x28 and the others on aarch64.
        let [goroutine, stack, instruction] = match cfg!(target_arch = "x86_64") {
            true => [22, 7, 8],
            false => [28, 31, 32],
        };
        SampleRecord {
            ip: 0,
            in_kernel: false,
            pid: 1,
            tid: 1,
            time: 1,
            address: 0,
            id: 0,
            cpu: 0,
            period: 0,
            read: ReadFormat::default(),
            chain: Vec::new(),
            registers: Some(Registers::from_pairs(&[
                (goroutine, descriptor),
                (stack, sp),
                (instruction, ip),
            ])),
            stack: Vec::new(),
            raw: Vec::new(),
        }
    }

    #[test]
    fn a_thread_runs_the_goroutine_on_whose_stack_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (kernel, mut goroutines) = (kernel(folder.path()), Goroutines::default());
        let mut seen = |descriptor, sp| {
            let seen = goroutines.seen(&kernel, &sample(GO + 8, descriptor, sp));
            seen.map(|it| it.goroutine.0)
        };
        assert_eq!(seen(0, STACK), None);
        assert_eq!(seen(FIRST, STACK - 8), None);
        assert_eq!(seen(FIRST, STACK + 0x800), Some(FIRST));
        assert_eq!(seen(SECOND, STACK + 0x1800), Some(SECOND));
        // Code that uses the register for something else.
        assert_eq!(seen(0x1234, STACK + 0x1800), None);
        assert_eq!(seen(FIRST, STACK + 0x700), Some(FIRST));
    }

    #[test]
    fn code_that_is_not_of_go_runs_none_whatever_the_register_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let (kernel, mut goroutines) = (kernel(folder.path()), Goroutines::default());
        let mut seen = |ip| goroutines.seen(&kernel, &sample(ip, FIRST, STACK + 8));
        assert!(seen(OTHER).is_none());
        assert!(seen(GO).is_some());
        // Made at run time, over and over.
        for ip in 0..2 * MOST_CODE as u64 {
            assert!(seen(ip).is_none());
        }
        assert!(seen(GO).is_some());
        // Its process runs another program.
        kernel.with(|world| world.processes.entry(1).or_default().maps.remove(0));
        assert!(seen(GO).is_some());
        goroutines.forget(1);
        assert!(
            goroutines
                .seen(&kernel, &sample(GO, FIRST, STACK + 8))
                .is_none()
        );
    }
}
