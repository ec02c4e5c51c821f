//! What is recorded of invented targets on an invented kernel. Rows are looked at as a reader finds them.

use std::ffi::OsString;
use std::time::Duration;

use linewise_machine::process::Ended;
use linewise_machine::procfs::Mapping;
use linewise_recording::{Loss, Recording};

use super::{Outcome, record as record_by};
use crate::error::Error;
use crate::kernel::Denial;
use crate::kernel::invented::{Asked, At, Invented, OWN, TARGET, World, mapping};
use crate::options::{Event, HeapWhen, RecordOptions, SampleBy, Target, TimerOptions};
use crate::target::life::EndedBy;

mod attached;
mod failing;
mod following;
mod heap;
mod launched;
mod reusing;
mod watching;

/// Where the code of targets is, and what is in it.
const CODE: u64 = 0x40_0000;
/// `lock add qword [rdi+8], 1`, and the instruction after it.
const ADD: u64 = CODE + 120;
const BEHIND_ADD: u64 = ADD + 6;
/// `mov rax, [rax]`, and the instruction after it.
const LOAD: u64 = CODE + 253;
const BEHIND_LOAD: u64 = LOAD + 3;
/// `mov eax, 202; syscall`, and the instruction after it.
const FUTEX: u64 = CODE + 377;
const BEHIND_FUTEX: u64 = FUTEX + 7;
/// A line of data.
const LINE: u64 = 0x7000_0000;
/// The second thread of a target.
const SECOND: u32 = TARGET + 100;

/// The kernel's numbers of registers.
const AX: u32 = 0;
const CX: u32 = 2;
const SI: u32 = 4;
const DI: u32 = 5;
const SP: u32 = 7;

fn code() -> Vec<u8> {
    let filler = [0x48, 0x89, 0xd8].repeat(40);
    let mut code = filler.clone();
    code.extend([0xf0, 0x48, 0x83, 0x47, 0x08, 0x01, 0x48, 0xff, 0xc1, 0x90]);
    code.extend(&filler);
    // Before it `mov rax, [rcx]`, so that nothing tells what was in rax.
    code.extend([0x48, 0x8b, 0x01, 0x48, 0x8b, 0x00, 0x90]);
    code.extend(&filler);
    code.extend([0xb8, 202, 0, 0, 0, 0x0f, 0x05]);
    code.extend(&filler);
    code
}

/// A thread that was interrupted behind its addition to a word.
fn adding(word: u64) -> At {
    At {
        ip: BEHIND_ADD,
        registers: vec![(DI, word - 8), (SP, 0x7fff_0000)],
        chain: vec![BEHIND_ADD, CODE + 3],
        ..At::default()
    }
}

/// An invented kernel on which targets have code.
fn kernel() -> Invented {
    Invented::new()
}

/// A kernel that lets nobody sample CPUs.
fn kernel_of_threads() -> Invented {
    let kernel = kernel();
    kernel.with(|world| {
        world
            .refusals
            .insert(Asked::SamplerOfCpu, Denial::NotPermitted)
    });
    kernel
}

/// The target's code is there, and it has a second thread.
fn two_threads(kernel: &Invented) {
    kernel.at(10, |world| {
        world.process(TARGET).memory = vec![(CODE, code())];
        world.fork(TARGET, TARGET, SECOND);
    });
}

/// Both threads compute until so many milliseconds after the beginning and add to neighbouring words.
fn busy(kernel: &Invented, ms: u64) {
    two_threads(kernel);
    kernel.every((1..ms).map(|ms| 1000 * ms), |world, _| work(world));
}

/// A millisecond of two threads.
fn work(world: &mut World) {
    for (cpu, tid) in [(0, TARGET), (1, SECOND)] {
        let word = LINE + 8 * u64::from(cpu);
        world.works(TARGET, tid, 1_000_000);
        world.sampled(cpu, (TARGET, tid), &adding(word));
    }
}

/// The target exits.
fn ends(kernel: &Invented, ms: u64, ended: Ended) {
    kernel.at(1000 * ms, move |world| world.end(TARGET, ended));
}

struct Recorded {
    outcome: Outcome,
    folder: tempfile::TempDir,
    told: Vec<String>,
}

impl Recorded {
    fn open(&self) -> Recording {
        Recording::open(&self.folder.path().join("recording")).unwrap()
    }

    fn rows<R: linewise_recording::Row>(&self) -> Vec<R> {
        self.open().read().unwrap()
    }

    /// The loss of that name: number and sentence.
    fn loss(&self, what: &str) -> Option<(u64, String)> {
        let losses: Vec<Loss> = self.rows();
        let mut losses = losses.into_iter().filter(|loss| loss.what == what);
        let found = losses.next().map(|loss| (loss.count, loss.detail));
        assert!(losses.next().is_none(), "{what} is told twice");
        found
    }
}

/// What a test changes of a recording.
struct Options {
    common: RecordOptions,
    timer: TimerOptions,
}

fn options(folder: &tempfile::TempDir) -> Options {
    Options {
        common: RecordOptions {
            target: Target::Launch(vec![OsString::from("program")]),
            directory: folder.path().join("recording"),
            replace: false,
            duration: None,
            output_to_errors: false,
            heap: HeapWhen::Never,
            flow: None,
        },
        timer: TimerOptions {
            overhead: 0.02,
            rate: None,
            sample_by: SampleBy::Auto,
            guard: Some(false),
            reuse: false,
        },
    }
}

fn try_record(
    kernel: &Invented,
    change: impl FnOnce(&mut Options),
) -> Result<Recorded, (Error, tempfile::TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&folder);
    change(&mut options);
    let mut told = Vec::new();
    let outcome = record_by(kernel, (&options.common, &options.timer), kernel, |event| {
        told.push(match event {
            Event::Progress(progress) => format!("progress {}", progress.threads),
            Event::Warning(text) => format!("warning {text}"),
            Event::Failed(error) => format!("failed {error}"),
            Event::CutShort(error) => format!("cut short {error}"),
        });
    });
    // Whatever happened, nothing is left open or armed.
    assert_eq!(kernel.with(|world| world.open()), 0);
    match outcome {
        Ok(outcome) => Ok(Recorded {
            outcome,
            folder,
            told,
        }),
        Err(error) => Err((error, folder)),
    }
}

fn record(kernel: &Invented, change: impl FnOnce(&mut Options)) -> Recorded {
    let recorded = try_record(kernel, change);
    recorded.unwrap_or_else(|(error, _)| panic!("{error}"))
}

fn refused(kernel: &Invented, change: impl FnOnce(&mut Options)) -> Error {
    let Err((error, folder)) = try_record(kernel, change) else {
        panic!("it is recorded");
    };
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "a recording is left behind");
    error
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
