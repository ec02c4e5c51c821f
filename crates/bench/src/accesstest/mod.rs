//! The access test of Curto, "Improving Data Locality in Applications through Execution Delegation" (2023, chapter 5
//! and appendix B): sessions execute a loop of phases, each of which accesses memory, and phases are executed in place or delegated.
//!
//! The accesses are a circular pointer chase: an element of four bytes leads to the next. Each line is visited at
//! least once in an iteration, its number of visits follows Zipf's law, and a line of 64 bytes has 16 elements. The
//! path lies in the largest pages that the machine gives. A run ends when elements are overwritten with a value that
//! ends every session that comes to it.
//!
//! What the thesis's program could not do: a line that is accessed more often than it has elements. Here an element has
//! a count in the bits that its index does not need, and is accessed so many times in a row. A line of 16 elements
//! is still visited at 16 places of the path, so that its accesses are spread over the iteration.
//!
//! The round trip between two CPUs is measured before and after every run; a figure is made only of runs of one state
//! of the machine. Modes take turns, so that what changes slowly meets them all.

mod appendix;
mod caches;
mod characters;
mod element;
mod error;
mod fibres;
mod json;
mod law;
mod page;
mod path;
mod plan;
mod result;
mod run;
mod session;
mod spec;
mod table;
mod threads;
mod walk;

pub use appendix::AppendixB;
pub use caches::{CacheSizes, Level};
pub use characters::{
    Accesses, Characteristics, Group, MAX_PHASES, PhaseGlobal, PhaseLocal, Sharer,
};
pub use error::AccesstestError;
pub use json::accesstest_json;
pub use page::accesstest_page;
pub use result::{Accesstest, DataPoint, Gain, MemoryUsed, Rate, Sample};
pub use session::SessionLog;
pub use spec::{AccesstestSpec, Case, MAX_SESSIONS, Mode, SessionType, Start};
pub use table::accesstest_table;

use crate::placement::pin;
use crate::states::round_trip_ns;
use linewise_machine::buffer::{Buffer, Pages, available_bytes, store_to_lines};
use linewise_machine::signals::StartSignal;
use path::Path;
use result::Beside;
use std::sync::Arc;

/// How far a test is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Runs made.
    pub done: usize,
    /// Runs to make.
    pub of: usize,
    /// The run that begins now: its path's bytes, ratio in percent, and mode.
    pub now: (u64, Option<f64>, Mode),
    /// It waits for SIGUSR1.
    pub waits: bool,
}

/// Makes a test in this process, and tells `progress` before each run.
///
/// # Errors
/// What was asked for cannot be, there is no memory for it, or threads could not be created or pinned.
pub fn run_accesstest(
    spec: &AccesstestSpec,
    mut progress: impl FnMut(&Progress),
) -> Result<Accesstest, AccesstestError> {
    spec.validate()?;
    let cpus = spec.placement()?;
    let (modes, note) = spec.modes_on(&cpus)?;
    let signal = spec.on_signal.then(StartSignal::block).transpose();
    let mut signal = signal.map_err(|source| AccesstestError::Signal { source })?;
    let caches = CacheSizes::of_cpu(cpus[0]);
    let mut beside = Beside {
        cpus,
        modes,
        caches,
        notes: note.into_iter().collect(),
        ..Beside::default()
    };
    // What would fail at the last run is refused before the first.
    for case in &spec.cases {
        path::fits(&case.characteristics, spec.sessions)?;
    }
    let wiper = spec.wipes.then(|| Wiper::new(&caches, largest(spec)));
    let wiper = wiper.transpose()?;
    beside.wiped_bytes = wiper.as_ref().map_or(0, Wiper::bytes);
    let of = spec.cases.len() * spec.repeats * beside.modes.len();
    let mut samples: Vec<Sample> = Vec::with_capacity(of);
    let mut before_ns = round_trip_ns(&beside.cpus);
    for repeat in 0..spec.repeats {
        for (number, case) in spec.cases.iter().enumerate() {
            let seed = spec.seed.wrapping_add(repeat as u64);
            let path = Arc::new(Path::new(&case.characteristics, spec.sessions, seed)?);
            note_memory(&path, &mut beside);
            for turn in 0..beside.modes.len() {
                // Nobody always comes after the same one.
                let mode = beside.modes[(turn + repeat) % beside.modes.len()];
                let mut told = Progress {
                    done: samples.len(),
                    of,
                    now: (path.facts.bytes, case.update_percent, mode),
                    waits: false,
                };
                progress(&told);
                if let Some(wiper) = &wiper {
                    wiper.wipe(&beside.cpus)?;
                }
                let outcome = run::execute(spec, &path, mode, &beside.cpus, || {
                    if let Some(signal) = signal.take() {
                        told.waits = true;
                        progress(&told);
                        signal.wait();
                    }
                })?;
                let after_ns = round_trip_ns(&beside.cpus);
                let facts = path.facts;
                samples.push(Sample {
                    case: number,
                    bytes: facts.bytes,
                    update_percent: case.update_percent,
                    written_percent: facts.writes as f64 / facts.accesses as f64 * 100.0,
                    mode,
                    iteration: facts.accesses,
                    accesses: outcome.accesses,
                    seconds: outcome.seconds,
                    accesses_per_s: outcome.accesses as f64 / outcome.seconds.max(1e-9),
                    waited_percent: outcome.waited * 100.0,
                    round_trips_ns: before_ns.zip(after_ns),
                });
                if spec.logs_sessions && samples.len() == 1 {
                    beside.sessions = outcome.sessions;
                }
                before_ns = after_ns;
            }
        }
    }
    Ok(Accesstest::new(spec, beside, samples))
}

/// Bytes of the largest working set.
fn largest(spec: &AccesstestSpec) -> u64 {
    let bytes = |case: &Case| case.characteristics.bytes(spec.sessions);
    spec.cases.iter().map(bytes).max().unwrap_or(0)
}

fn note_memory(path: &Path, beside: &mut Beside) {
    let Some((buffer, bytes)) = path.memory() else {
        return;
    };
    let pages = buffer.pages();
    let known = beside
        .memory
        .iter()
        .position(|one| one.pages == pages.words());
    if known.is_some_and(|known| beside.memory[known].bytes >= bytes) {
        return;
    }
    let told = MemoryUsed::new(bytes, pages.words(), buffer.contiguity(bytes as usize));
    match known {
        Some(known) => beside.memory[known] = told,
        None => beside.memory.push(told),
    }
    let note = "no huge pages were to be had, so pages of 4 KiB may lie in memory so that the caches' sets are \
                used unevenly; reserve huge pages (sysctl vm.nr_hugepages) or allow transparent ones (madvise in \
                /sys/kernel/mm/transparent_hugepage/enabled)";
    if pages == Pages::Small && !beside.notes.iter().any(|one| one == note) {
        beside.notes.push(note.to_owned());
    }
}

/// Drives whatever is cached out of the caches.
struct Wiper {
    buffer: Buffer,
    /// Words that drive out what a CPU has in caches of its own.
    private: usize,
}

/// What is stored to before each run, if the machine does not tell its caches: the 1 GiB of the thesis.
const WIPED: u64 = 1 << 30;

impl Wiper {
    /// Twice the largest cache, but not more than a quarter of the memory that the working set leaves.
    fn new(caches: &CacheSizes, largest: u64) -> Result<Self, AccesstestError> {
        let wanted = caches.last().map_or(WIPED, |last| last.saturating_mul(2));
        let left = available_bytes().map_or(wanted, |bytes| bytes.saturating_sub(largest) / 4);
        let bytes = wanted.min(left).max(64);
        let no_memory = |source| AccesstestError::NoMemory {
            what: "wiping the caches",
            source,
        };
        let buffer = Buffer::allocate(bytes as usize).map_err(no_memory)?;
        // The last level is wiped once; the others belong to a CPU, or to few.
        let private = caches.l1d.max(caches.l2).filter(|_| caches.l3.is_some());
        let private = private.map_or(usize::MAX, |size| size as usize);
        Ok(Self {
            private: private.min(buffer.words().len()),
            buffer,
        })
    }

    fn bytes(&self) -> u64 {
        self.buffer.words().len() as u64 * 4
    }

    /// All of it on the first CPU, and on each other four times what its own caches hold.
    fn wipe(&self, cpus: &[u32]) -> Result<(), AccesstestError> {
        for (index, cpu) in cpus.iter().enumerate() {
            let words = self.buffer.words();
            let words = if index == 0 {
                words
            } else {
                &words[..self.private]
            };
            let wiped = std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    pin(index, Some(*cpu))?;
                    store_to_lines(words);
                    Ok::<_, crate::PlacementError>(())
                });
                thread.join()
            });
            match wiped {
                Ok(wiped) => wiped?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    }
}
