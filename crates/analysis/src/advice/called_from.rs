//! Who called the code that waits for a line: what to change is often not in the function that touches it, but in
//! who locks, counts or allocates through it.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{Address, Frame, Pid, SampleClass, SharedMemory, Tables, Tid};

use super::names::{Names, frame_words};
use crate::lock_names::{names_a_lock, wraps_a_lock};
use crate::model::{CallChain, SourcePlace};
use crate::own_code::{is_library_code, is_own};
use crate::resolve::{UNMAPPED, chains_by_id};

/// Chains of one place that are told.
const CHAINS: usize = 3;
/// Callers of a chain that are told.
const CALLERS: usize = 8;
/// Ways to one instruction that are told apart.
const WAYS: usize = 8;
/// Chains and ways with a smaller share of the samples are not told.
const LEAST_SHARE: f64 = 0.05;

/// A thread at one line of memory, by one instruction: what a report has a row for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct At {
    /// The process of the instruction.
    pub pid: Pid,
    pub tid: Tid,
    pub ip: Address,
    /// First byte of the line, at its home where processes share it.
    pub line: Address,
}

/// The call chains of sampled accesses.
#[derive(Debug)]
pub(crate) struct CallChains<'a>(HashMap<At, BTreeMap<&'a [Address], u64>>);

impl<'a> CallChains<'a> {
    /// Of the samples of a recording. Traps have none that can be relied on: the kernel walks theirs by frame pointers.
    pub(crate) fn new(tables: &'a Tables, shared: &SharedMemory, line_size: u64) -> Self {
        let stacks = chains_by_id(&tables.stacks);
        let mut seen: HashMap<_, BTreeMap<&[Address], u64>> = HashMap::new();
        for sample in &tables.samples {
            let frames = stacks.get(&sample.stack).and_then(|it| it.split_first());
            if let (SampleClass::Access, Some((_, callers))) = (sample.class, frames) {
                let (_, address) = shared.home(sample.pid, sample.address);
                let at = At {
                    pid: sample.pid,
                    tid: sample.tid,
                    ip: sample.access_ip,
                    line: address.line(line_size),
                };
                let of_this = seen.entry(at).or_default();
                *of_this.entry(callers).or_default() += 1;
            }
        }
        Self(seen)
    }

    /// The ways on which a thread came to an instruction, whose own `frames` these are, by the places of the program's own that
    /// they lead through, the most frequent first. One without callers where threads or programs begin with its function, or nobody
    /// knows.
    pub(crate) fn ways(&self, at: At, frames: &[&Frame], names: &Names<'_>) -> Vec<Way> {
        let mut ways: BTreeMap<Option<Own>, BTreeMap<Vec<String>, u64>> = BTreeMap::new();
        for (callers, count) in self.0.get(&at).into_iter().flatten() {
            let callers = names.callers(at.pid, callers);
            let own = own_of(frames.iter().chain(&callers).copied());
            let of_way = ways.entry(own).or_default();
            *of_way.entry(own_callers(callers)).or_default() += count;
        }
        let all: u64 = ways.values().flat_map(BTreeMap::values).sum();
        let share = |of: &BTreeMap<_, u64>| of.values().sum::<u64>() as f64 / all as f64;
        let mut ways: Vec<Way> = (ways.into_iter())
            .map(|(own, chains)| Way {
                own,
                share: share(&chains),
                chains: chains_of(chains),
            })
            .collect();
        ways.sort_by(|a, b| b.share.total_cmp(&a.share));
        let told = ways.iter().take_while(|it| it.share >= LEAST_SHARE);
        let rest = ways.split_off(told.take(WAYS).count());
        match ways.first_mut() {
            Some(first) => first.share += rest.iter().map(|it| it.share).sum::<f64>(),
            None => ways.push(Way {
                own: own_of(frames.iter().copied()),
                share: 1.0,
                chains: Vec::new(),
            }),
        }
        ways
    }
}

/// The most frequent of the callers of one way, each with its share of it.
fn chains_of(counts: BTreeMap<Vec<String>, u64>) -> Vec<CallChain> {
    let all: u64 = counts.values().sum();
    let mut chains: Vec<CallChain> = counts
        .into_iter()
        .map(|(callers, count)| CallChain {
            share: count as f64 / all as f64,
            callers,
        })
        .filter(|chain| chain.share >= LEAST_SHARE && !chain.callers.is_empty())
        .collect();
    chains.sort_by(|a, b| b.share.total_cmp(&a.share));
    chains.truncate(CHAINS);
    chains
}

/// How a thread came to an instruction.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// The innermost place of the program's own.
    pub(crate) own: Option<Own>,
    /// Share of the samples of the instruction, 0 to 1.
    pub(crate) share: f64,
    /// The callers of its function.
    pub(crate) chains: Vec<CallChain>,
}

/// A place of the program's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Own {
    pub(crate) place: SourcePlace,
    /// Whether what it calls destroys a value: then a scope ends there.
    pub(crate) ends_scope: bool,
}

/// The innermost place of the program's own among frames, innermost first; who locks, where its own function only passes that on to
/// a library's.
fn own_of<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> Option<Own> {
    let mut called: Option<&Frame> = None;
    let mut wrapper: Option<Own> = None;
    let mut is_locking = false;
    for frame in frames {
        if is_own(frame) {
            let own = Own {
                place: place_of(frame),
                ends_scope: called.is_some_and(|it| destroys(&it.function)),
            };
            if !is_locking || !wraps_a_lock(&frame.function) {
                return Some(own);
            }
            wrapper.get_or_insert(own);
        } else {
            is_locking |= names_a_lock(&frame.function);
        }
        called = Some(frame);
    }
    wrapper
}

/// Whether a function is what a compiler calls where a scope ends: `core::ptr::drop_in_place<T>`, `std::lock_guard<M>::~lock_guard()`.
fn destroys(function: &str) -> bool {
    let name = function.split('(').next().unwrap_or_default();
    name.contains("::~") || name.contains("ptr::drop_in_place") || name.ends_with("Drop>::drop")
}

/// Where a frame is in the source.
fn place_of(frame: &Frame) -> SourcePlace {
    SourcePlace {
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
    }
}

/// The callers in words as far as they are the program's own, or all where none is.
fn own_callers(callers: Vec<&Frame>) -> Vec<String> {
    let mut own: Vec<&Frame> = Vec::new();
    for frame in callers {
        if frame.reason == UNMAPPED {
            break;
        }
        if begins(&frame.function) {
            // What runs a closure on its new thread is the library's as well.
            while own.pop_if(|it| runs_closures(&it.function)).is_some() {}
            break;
        }
        own.push(frame);
        if frame.function == "main" {
            break;
        }
    }
    // Who calls a library's lock matters, not how that is wrapped.
    let wraps = |frame: &&&Frame| is_library_code(&frame.module, &frame.file);
    let wrappers = own.iter().take_while(wraps).count();
    own.drain(..if wrappers < own.len() { wrappers } else { 0 });
    own.truncate(CALLERS);
    own.into_iter().map(frame_words).collect()
}

/// Whether a library's function begins a thread or the program: nobody looks for what called it.
fn begins(function: &str) -> bool {
    matches!(
        function,
        "start_thread" | "clone" | "clone3" | "__clone" | "__clone3" | "_start"
    ) || function == "execute_native_thread_routine"
        || function.starts_with("__libc_start")
        || function.starts_with("std::thread::_")
        // The same without symbols, and Rust's, if what they run was inlined.
        || function.starts_with("libstdc++.so")
        || function.starts_with("std::thread::") && function.contains("spawn_unchecked")
        || function.contains("__rust_begin_short_backtrace")
}

fn runs_closures(caller: &str) -> bool {
    caller.starts_with("std::__invoke") || caller.starts_with("core::ops::function::")
}

#[cfg(test)]
mod tests {
    use linewise_recording::{Sample, Stack, StackId};

    use super::*;
    use crate::views::sampled_rows::{self, PID};

    const IP: Address = Address(0x10);

    #[test]
    fn a_value_that_is_destroyed_ends_its_scope() {
        let library = |function: &str| Frame {
            file: "/usr/include/c++/12/bits/std_mutex.h".into(),
            ..frame(0x10, 0, function, 7)
        };
        let ends = |functions: &[&str]| {
            let mut frames: Vec<Frame> = functions.iter().map(|it| library(it)).collect();
            frames.push(frame(0x10, 1, "work", 20));
            own_of(&frames).map(|own| (own.place.line, own.ends_scope))
        };
        let unlock = "__gthread_mutex_unlock";
        assert_eq!(
            ends(&[unlock, "std::lock_guard<std::mutex>::~lock_guard()"]),
            Some((20, true))
        );
        assert_eq!(
            ends(&["core::ptr::drop_in_place<std::sync::MutexGuard<u64>>"]),
            Some((20, true))
        );
        // What the program asks for stands in a line of its own.
        let drop = [
            "core::ptr::drop_in_place<std::sync::MutexGuard<u64>>",
            "core::mem::drop",
        ];
        assert_eq!(ends(&drop), Some((20, false)));
        assert_eq!(
            ends(&[unlock, "std::unique_lock<std::mutex>::unlock()"]),
            Some((20, false))
        );
        assert_eq!(ends(&[]), Some((20, false)));
    }

    fn frame(address: u64, depth: u8, function: &str, line: u32) -> Frame {
        Frame {
            pid: PID,
            address: Address(address),
            depth: depth.into(),
            function: function.into(),
            file: "/src/job.c".into(),
            line,
            module: String::new(),
            reason: String::new(),
        }
    }

    fn sample(stack: u32, class: SampleClass) -> Sample {
        Sample {
            class,
            stack: StackId(stack),
            ..sampled_rows::sample(1, IP.0, 0x1000)
        }
    }

    fn tables(stacks: &[(&[u64], usize)]) -> Tables {
        let numbered = || (1_u32..).zip(stacks);
        Tables {
            frames: vec![
                // `put` was inlined into `push`.
                frame(0x20, 0, "put", 7),
                frame(0x20, 1, "push", 9),
                frame(0x30, 0, "steal", 0),
                frame(0x40, 0, "main", 30),
                frame(0x50, 0, "__libc_start_call_main", 0),
                Frame {
                    module: "/usr/lib/x86_64-linux-gnu/libstdc++.so.6".into(),
                    ..frame(0x80, 0, "std::mutex::lock", 100)
                },
                frame(0x60, 0, "core::ops::function::FnOnce::call_once", 250),
                frame(
                    0x70,
                    0,
                    "std::sys::backtrace::__rust_begin_short_backtrace",
                    1,
                ),
            ],
            stacks: numbered()
                .map(|(id, (callers, _))| Stack {
                    id: StackId(id),
                    frames: [IP.0]
                        .iter()
                        .chain(*callers)
                        .map(|&it| Address(it))
                        .collect(),
                })
                .collect(),
            samples: numbered()
                .flat_map(|(id, (_, count))| vec![sample(id, SampleClass::Access); *count])
                .chain([sample(1, SampleClass::Unknown)])
                .collect(),
            ..Tables::default()
        }
    }

    fn chains(stacks: &[(&[u64], usize)]) -> Vec<(f64, String)> {
        let tables = tables(stacks);
        of(&tables, AT)
    }

    const AT: At = At {
        pid: PID,
        tid: Tid(1),
        ip: IP,
        line: Address(0x1000),
    };

    fn of(tables: &Tables, at: At) -> Vec<(f64, String)> {
        let chains = CallChains::new(tables, &SharedMemory::default(), 64);
        let words = |chain: CallChain| (chain.share, chain.callers.join(" "));
        let ways = chains.ways(at, &[], &Names::new(tables)).into_iter();
        let chains = ways.flat_map(|way| {
            let of_all = move |it: CallChain| CallChain {
                share: it.share * way.share,
                ..it
            };
            way.chains.into_iter().map(of_all)
        });
        chains.map(words).collect()
    }

    #[test]
    fn callers_are_those_of_the_thread_at_the_line() {
        let mut tables = tables(&[(&[0x20, 0x40], 3), (&[0x30, 0x40], 1)]);
        tables.samples[3].address = Address(0x2008);
        let pushed = "put (/src/job.c:7) push (/src/job.c:9) main (/src/job.c:30)";
        assert_eq!(of(&tables, AT), [(1.0, pushed.to_owned())]);
        let line = Address(0x2000);
        let stolen = of(&tables, At { line, ..AT });
        assert_eq!(stolen, [(1.0, "steal main (/src/job.c:30)".to_owned())]);
        assert_eq!(of(&tables, At { tid: Tid(2), ..AT }), []);
    }

    #[test]
    fn chains_end_where_the_program_or_the_thread_begins_and_the_frequent_ones_come_first() {
        let found = chains(&[
            (&[0x30, 0x60, 0x70, 0x40], 2),
            (&[0x20, 0x40, 0x50], 6),
            (&[0x80, 0x20, 0x40], 2),
        ]);
        let pushed = "put (/src/job.c:7) push (/src/job.c:9) main (/src/job.c:30)";
        assert_eq!(found, [(0.8, pushed.to_owned()), (0.2, "steal".to_owned())]);
    }

    #[test]
    fn who_locks_is_told_for_each_and_not_what_wraps_the_lock() {
        let mut tables = tables(&[(&[0x90, 0x20, 0x40], 3), (&[0x90, 0x30, 0x40], 1)]);
        tables
            .frames
            .push(frame(0x90, 0, "port::Mutex::Lock(int)", 55));
        let lock = |function: &str| Frame {
            file: String::new(),
            module: "/usr/lib/x86_64-linux-gnu/libc.so.6".into(),
            ..frame(0x10, 0, function, 0)
        };
        let found = |innermost: Frame| -> Vec<(String, f64)> {
            let chains = CallChains::new(&tables, &SharedMemory::default(), 64);
            let ways = chains.ways(AT, &[&innermost], &Names::new(&tables));
            let own = |way: Way| (way.own.unwrap().place.function, way.share);
            ways.into_iter().map(own).collect()
        };
        let callers = [("put".to_owned(), 0.75), ("steal".to_owned(), 0.25)];
        assert_eq!(found(lock("lll_mutex_lock_optimized")), callers);
        // What does something else is no lock, and its caller no wrapper.
        let wrapper = [("port::Mutex::Lock(int)".to_owned(), 1.0)];
        assert_eq!(found(lock("memcpy")), wrapper);
    }

    #[test]
    fn chains_end_where_nothing_is_mapped() {
        let mut tables = tables(&[(&[0x30, 0x90, 0x40], 4)]);
        tables.frames.push(Frame {
            reason: UNMAPPED.to_owned(),
            ..frame(0x90, 0, "", 0)
        });
        assert_eq!(of(&tables, AT), [(1.0, "steal".to_owned())]);
    }

    #[test]
    fn what_begins_a_thread_and_what_is_rare_is_called_from_nowhere() {
        assert_eq!(chains(&[(&[0x70], 5), (&[], 1)]), []);
        let found = chains(&[(&[0x30, 0x50], 99), (&[0x40], 1)]);
        assert_eq!(found, [(1.0, "steal".to_owned())]);
        for name in [
            "libstdc++.so.6.0.30+0xd44a2",
            "std::thread::lifecycle::spawn_unchecked::{{closure}}",
        ] {
            assert!(begins(name), "{name}");
        }
        let found = chains(&[(&[0x80, 0x70], 1)]);
        assert_eq!(
            found,
            [(1.0, "std::mutex::lock (/src/job.c:100)".to_owned())]
        );
    }
}
