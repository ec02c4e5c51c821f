//! The programs: threads that walk over arrays, and count what they reuse while they do.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};

use super::account::{Account, Counted};
use super::{Kind, ReuseSpec, ReuseTruth};

/// The function whose accesses are meant: the walk, as linewise names it.
pub const WALK: &str = "linewise_bench::reuse::program::walk";

/// What a walk does to the elements, from the first to the last.
#[derive(Clone, Copy)]
enum How {
    /// Loads all.
    Load,
    /// Stores to all.
    Store,
    /// Loads the even ones, stores to the odd ones.
    Alternate,
    /// Puts its name into all and takes out what was there, in one instruction.
    Swap,
}

/// A unit of 8 bytes, of which 2 are accessed.
#[repr(align(8))]
struct Element(AtomicU16);

/// Bytes of an access to an element: what has another size, such as the address that a walk
/// returns to, is not the benchmark's.
pub const ACCESS_BYTES: u16 = size_of::<AtomicU16>() as u16;

/// The value of an element that no thread has stored to.
const NOBODY: u16 = u16::MAX;

/// Walks over an array. Returns how many elements held `value` before (0 for those that are only
/// stored to). This function alone is traced.
#[inline(never)]
fn walk(elements: &[Element], how: How, value: u16) -> u64 {
    let mut same = 0;
    match how {
        How::Load => {
            for element in elements {
                same += u64::from(element.0.load(Ordering::Relaxed) == value);
            }
        }
        How::Store => {
            for element in elements {
                element.0.store(value, Ordering::Relaxed);
            }
        }
        How::Alternate => {
            for pair in elements.chunks_exact(2) {
                same += u64::from(pair[0].0.load(Ordering::Relaxed) == value);
                pair[1].0.store(value, Ordering::Relaxed);
            }
        }
        How::Swap => {
            for element in elements {
                same += u64::from(element.0.swap(value, Ordering::Relaxed) == value);
            }
        }
    }
    same
}

/// Bytes of a page, at whose beginning each array lies.
const PAGE_BYTES: usize = 4096;

/// An array that begins on a page.
struct Array {
    memory: Vec<Element>,
    first: usize,
    elements: usize,
}

impl Array {
    fn new(elements: u64, value: u16) -> Self {
        let elements = elements as usize;
        let memory: Vec<Element> = (0..elements + PAGE_BYTES / 8)
            .map(|_| Element(AtomicU16::new(value)))
            .collect();
        let first = memory.as_ptr().align_offset(PAGE_BYTES);
        Self {
            first: first.min(PAGE_BYTES / 8),
            memory,
            elements,
        }
    }

    fn elements(&self) -> &[Element] {
        &self.memory[self.first..self.first + self.elements]
    }
}

/// Number of the array that all threads share, in every account.
const SHARED: usize = 0;
/// Private arrays of one thread in the numbers of the account of all.
const PRIVATE: usize = 8;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread at work.
struct Walker<'run> {
    index: usize,
    own: Account,
    /// The account of all threads together, while they take turns.
    all: Option<&'run Mutex<Account>>,
}

impl Walker<'_> {
    /// Walks over a private array of this thread (from 1 on).
    fn private(&mut self, array: usize, elements: &[Element]) {
        let of_all = SHARED + self.index * PRIVATE + array;
        self.turn(array, of_all, elements, How::Alternate, NOBODY, false);
    }

    /// Walks over an array that others may store to, `value` being what it would find there if none
    /// had since its last walk.
    fn shared(&mut self, array: usize, elements: &[Element], how: How, value: u16) {
        let seen = matches!(how, How::Load | How::Swap);
        self.turn(array, array, elements, how, value, seen);
    }

    fn turn(
        &mut self,
        array: usize,
        of_all: usize,
        elements: &[Element],
        how: How,
        value: u16,
        seen: bool,
    ) {
        let mut all = self.all.map(lock);
        let same = walk(elements, how, value);
        let length = elements.len() as u64;
        self.own
            .walk(array, length, if seen { same } else { length });
        if let Some(all) = &mut all {
            // Behind one cache nothing is invalidated.
            all.walk(of_all, length, length);
        }
    }
}

/// Runs a program in this process and returns what it counted.
#[must_use]
pub fn run_reuse(spec: &ReuseSpec) -> ReuseTruth {
    let all = Mutex::new(Account::default());
    let threads = spec.threads.max(1);
    let accounts = match spec.kind {
        Kind::RiBench(parameters) => {
            let shared = Array::new(parameters.shared, NOBODY);
            run(threads, spec.turns.then_some(&all), |walker, start| {
                let arrays: Vec<Array> = parameters
                    .loops
                    .iter()
                    .map(|each| Array::new(each.elements, 0))
                    .collect();
                start.wait();
                let id = walker.index as u16;
                for _ in 0..parameters.outer {
                    for (number, each) in parameters.loops.iter().enumerate() {
                        for _ in 0..each.passes {
                            walker.shared(SHARED, shared.elements(), How::Swap, id);
                            walker.private(number + 1, arrays[number].elements());
                        }
                    }
                }
            })
        }
        Kind::Single { elements, passes } | Kind::MultiThread { elements, passes } => {
            let read_only = Array::new(elements, 0);
            run(threads, spec.turns.then_some(&all), |walker, start| {
                // Each thread has distances of its own.
                let own = Array::new(elements / 4 * (walker.index as u64 + 1) * 2, 0);
                start.wait();
                for _ in 0..passes {
                    walker.shared(SHARED, read_only.elements(), How::Load, 0);
                    walker.private(1, own.elements());
                }
            })
        }
        Kind::Invalidation { elements, passes } => {
            let shared = Array::new(elements, NOBODY);
            run(threads, spec.turns.then_some(&all), |walker, start| {
                start.wait();
                for _ in 0..passes {
                    let id = walker.index as u16;
                    walker.shared(SHARED, shared.elements(), How::Swap, id);
                }
            })
        }
        Kind::Ring { elements, passes } => {
            let slots = Array::new(elements, NOBODY);
            let handover = Barrier::new(2);
            run(2, Some(&all), |walker, start| {
                start.wait();
                for pass in 0..passes as u16 {
                    if walker.index == 0 {
                        walker.shared(SHARED, slots.elements(), How::Store, pass);
                    }
                    handover.wait();
                    if walker.index == 1 {
                        // What it found last time; the first time, nothing that was ever there.
                        let last = pass.wrapping_sub(1);
                        walker.shared(SHARED, slots.elements(), How::Load, last);
                    }
                    handover.wait();
                }
            })
        }
        Kind::Scan { elements } => run(threads, spec.turns.then_some(&all), |walker, start| {
            let own = Array::new(elements, 0);
            start.wait();
            walker.private(1, own.elements());
        }),
    };
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    truth(spec, &accounts, &all)
}

/// Runs the same body in every thread, each with an account of its own.
fn run(
    threads: usize,
    all: Option<&Mutex<Account>>,
    body: impl Fn(&mut Walker<'_>, &Barrier) + Sync,
) -> Vec<Account> {
    let start = Barrier::new(threads);
    let results: Vec<Mutex<Account>> = (0..threads).map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for (index, result) in results.iter().enumerate() {
            let (body, start) = (&body, &start);
            scope.spawn(move || {
                let mut walker = Walker {
                    index,
                    own: Account::default(),
                    all,
                };
                body(&mut walker, start);
                *lock(result) = walker.own;
            });
        }
    });
    let into = |result: Mutex<Account>| result.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().map(into).collect()
}

fn truth(spec: &ReuseSpec, accounts: &[Account], all: &Account) -> ReuseTruth {
    let mut temporal = Counted::default();
    let mut spatial = Counted::default();
    for account in accounts {
        temporal.merge(&account.temporal);
        spatial.merge(&account.spatial);
    }
    let parted = accounts.iter().any(|account| account.parted);
    // Where threads are at one array at once, nobody can count what becomes of its lines.
    let lines_known = !parted && (accounts.len() == 1 || all.accesses() > 0 || !spec.kind.shares());
    ReuseTruth {
        accesses: accounts.iter().map(Account::accesses).sum(),
        temporal,
        spatial: lines_known.then_some(spatial),
        behind_one_cache: (all.accesses() > 0).then(|| all.temporal.clone()),
    }
}
