//! The contenders that bring the data to the thread: locks of six kinds, and an atomic
//! instruction. Each variable lies on a line of its own, together with its lock.

use super::harness::{Apart, Held, Next, Outcome, Seat, Shards, Stage, Tally, play};
use super::spec::{FetchAddError, Operation};
use linewise_machine::pthread::{PthreadMutex, PthreadSpin};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A variable on a line of its own.
#[repr(align(64))]
struct Line<T>(T);

/// All threads increment variables at random: `fetch` applies the operation to a variable and
/// returns what it held before, `value` what it holds in the end.
fn contend<T: Send + Sync>(
    stage: &Stage<'_>,
    variables: usize,
    new: impl Fn() -> T,
    fetch: impl Fn(&T, &Seat<'_>) -> u64 + Sync,
    value: impl Fn(T) -> u64,
) -> Result<Outcome, FetchAddError> {
    const {
        assert!(
            size_of::<Line<T>>() == 64,
            "a variable and its lock share a line"
        )
    };
    let lines: Vec<Line<T>> = (0..variables).map(|_| Line(new())).collect();
    let shards = Shards::new(variables, 1);
    let (tallies, elapsed) = play(stage, |seat| {
        seat.hammer(|random| fetch(&lines[shards.choose(random).1].0, seat))
    })?;
    let held = Held::of(lines.into_iter().map(|line| value(line.0)));
    let tally = tallies.into_iter().fold(Tally::default(), Tally::plus);
    Ok(Outcome::new(tally, held, elapsed))
}

/// Applies the operation in place and returns what was there.
#[inline(always)]
fn replace<N: Next>(value: &mut u64) -> u64 {
    let held = *value;
    *value = N::next(held);
    held
}

pub(super) fn pthread_mutex<N: Next>(
    stage: &Stage<'_>,
    variables: usize,
) -> Result<Outcome, FetchAddError> {
    contend(
        stage,
        variables,
        || PthreadMutex::new(0),
        |mutex, _| mutex.with(replace::<N>),
        PthreadMutex::into_inner,
    )
}

pub(super) fn pthread_spin<N: Next>(
    stage: &Stage<'_>,
    variables: usize,
) -> Result<Outcome, FetchAddError> {
    contend(
        stage,
        variables,
        || PthreadSpin::new(0),
        |lock, _| lock.with(replace::<N>),
        PthreadSpin::into_inner,
    )
}

pub(super) fn std_mutex<N: Next>(
    stage: &Stage<'_>,
    variables: usize,
) -> Result<Outcome, FetchAddError> {
    contend(
        stage,
        variables,
        || std::sync::Mutex::new(0),
        |mutex, _| replace::<N>(&mut mutex.lock().unwrap_or_else(PoisonError::into_inner)),
        |mutex| mutex.into_inner().unwrap_or_else(PoisonError::into_inner),
    )
}

pub(super) fn parking_lot<N: Next>(
    stage: &Stage<'_>,
    variables: usize,
) -> Result<Outcome, FetchAddError> {
    contend(
        stage,
        variables,
        || parking_lot::Mutex::new(0),
        |mutex, _| replace::<N>(&mut mutex.lock()),
        parking_lot::Mutex::into_inner,
    )
}

pub(super) fn atomic<N: Next>(
    stage: &Stage<'_>,
    variables: usize,
) -> Result<Outcome, FetchAddError> {
    contend(
        stage,
        variables,
        || AtomicU64::new(0),
        |value, _| match N::OPERATION {
            Operation::Add => value.fetch_add(1, Ordering::AcqRel),
            // No instruction takes a root: as C programs do it, in a loop.
            Operation::Sqrt => {
                let mut held = value.load(Ordering::Relaxed);
                loop {
                    let next = N::next(held);
                    match value.compare_exchange_weak(
                        held,
                        next,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    ) {
                        Ok(_) => break held,
                        Err(now) => held = now,
                    }
                }
            }
        },
        AtomicU64::into_inner,
    )
}

/// The operation on a value that a lock protects: plain loads and stores on the machine.
#[inline(always)]
fn replace_locked<N: Next>(value: &AtomicU64) -> u64 {
    let held = value.load(Ordering::Relaxed);
    value.store(N::next(held), Ordering::Relaxed);
    held
}

/// A ticket lock (Reed and Kanodia 1979; Mellor-Crummey and Scott 1991, algorithm 2, without its
/// backoff): threads draw numbers and are served in their order.
#[derive(Default)]
struct Ticket {
    next: AtomicU32,
    serving: AtomicU32,
    value: AtomicU64,
}

impl Ticket {
    #[inline(always)]
    fn fetch<N: Next>(&self, seat: &Seat<'_>) -> u64 {
        let mine = self.next.fetch_add(1, Ordering::Relaxed);
        while self.serving.load(Ordering::Acquire) != mine {
            seat.pause();
        }
        let held = replace_locked::<N>(&self.value);
        self.serving.store(mine.wrapping_add(1), Ordering::Release);
        held
    }
}

pub(super) fn ticket<N: Next>(
    stage: &Stage<'_>,
    variables: usize,
) -> Result<Outcome, FetchAddError> {
    contend(
        stage,
        variables,
        Ticket::default,
        |lock, seat| lock.fetch::<N>(seat),
        |lock| lock.value.into_inner(),
    )
}

/// Nobody, where the number of a thread's node stands.
const NOBODY: u32 = u32::MAX;

/// A thread's node in the queue of the one lock that it waits for or holds.
struct Node {
    next: AtomicU32,
    waits: AtomicBool,
}

impl Node {
    fn new() -> Self {
        Self {
            next: AtomicU32::new(NOBODY),
            waits: AtomicBool::new(false),
        }
    }
}

/// The queue lock of Mellor-Crummey and Scott (1991, algorithm 5): each thread waits on a line of
/// its own. Nodes are named by their thread's number instead of by address.
struct Mcs {
    tail: AtomicU32,
    value: AtomicU64,
}

impl Mcs {
    #[inline(always)]
    fn fetch<N: Next>(&self, nodes: &[Apart<Node>], seat: &Seat<'_>) -> u64 {
        let mine = &nodes[seat.index].0;
        let me = seat.index as u32;
        mine.next.store(NOBODY, Ordering::Relaxed);
        let before = self.tail.swap(me, Ordering::AcqRel);
        if let Some(before) = nodes.get(before as usize) {
            mine.waits.store(true, Ordering::Relaxed);
            before.0.next.store(me, Ordering::Release);
            while mine.waits.load(Ordering::Acquire) {
                seat.pause();
            }
        }
        let held = replace_locked::<N>(&self.value);
        self.release(nodes, seat);
        held
    }

    #[inline(always)]
    fn release(&self, nodes: &[Apart<Node>], seat: &Seat<'_>) {
        let mine = &nodes[seat.index].0;
        let me = seat.index as u32;
        let mut after = mine.next.load(Ordering::Acquire);
        if after == NOBODY {
            let last = self
                .tail
                .compare_exchange(me, NOBODY, Ordering::Release, Ordering::Relaxed);
            if last.is_ok() {
                return;
            }
            // Somebody has come but not yet said who.
            loop {
                after = mine.next.load(Ordering::Acquire);
                if after != NOBODY {
                    break;
                }
                seat.pause();
            }
        }
        if let Some(after) = nodes.get(after as usize) {
            after.0.waits.store(false, Ordering::Release);
        }
    }
}

pub(super) fn mcs<N: Next>(stage: &Stage<'_>, variables: usize) -> Result<Outcome, FetchAddError> {
    let nodes: Vec<Apart<Node>> = (0..stage.threads).map(|_| Apart(Node::new())).collect();
    contend(
        stage,
        variables,
        || Mcs {
            tail: AtomicU32::new(NOBODY),
            value: AtomicU64::new(0),
        },
        |lock, seat| lock.fetch::<N>(&nodes, seat),
        |lock| lock.value.into_inner(),
    )
}
