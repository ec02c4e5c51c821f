//! The second interleaving: every thread at the same rate.
//!
//! The observed order tells what happened on this machine under emulation: how many CPUs there were,
//! who was interrupted when. This one asks what would happen if each thread had a core of its own
//! and all cores were equally fast: the threads take turns, one access each, and wait for each other
//! only where the trace shows that they have to.
//!
//! **What is guaranteed.** Each thread's accesses keep their order. A thread does not go past
//!
//! - an access that [orders threads](TracedAccess::orders) to 8 bytes that another thread's such access
//!   preceded in the observed order, before that one was made;
//! - its own beginning, before those that made threads or processes until then had come to where
//!   they did so;
//! - the return from a wait on a futex, before the last wake of that futex that was observed before
//!   it, and before the last access of every thread whose end was observed before it;
//! - a load of the word that the kernel clears when a thread ends, once that end was observed,
//!   before that thread's last access (this is how a join goes that need not wait).
//!
//! Otherwise, in each round every thread that was made makes one access, unless it has ended or is in
//! a system call that may wait. Who waits on a futex is taken for back as soon as the wake is
//! observed that reaches it (the kernel wakes in the order of waiting), however long the machine then
//! takes to run it.
//!
//! **What is not.** Time in the kernel is not modelled: calls that do not wait take none, and a thread
//! that comes back from one that waited for the outside (a read, a sleep) joins the round that is on
//! when that is observed. Instructions that access no memory take no time. A thread that waited by reading a
//! word again and again made as many reads as it did when observed. Plain loads and stores that hand
//! something over without an atomic access (as x86 allows) hold nobody back.
//!
//! **Memory.** At most [`WINDOW`] accesses are kept. A thread that is neither in a system call nor
//! done, but has nothing in the window, was not run by the machine for long; the others then go on
//! without it, and the rounds in which they do are counted ([`EqualRate::forced_rounds`]). While that
//! count is zero the result depends on the threads' own accesses and on the observed order of their
//! synchronisation, not on which CPUs they had.

use std::collections::{HashMap, HashSet, VecDeque};

use linewise_tracer::words::EventKind;

use super::access::{Consumer, TracedAccess, TracedEvent};
use super::calls::CallKind;

/// Accesses that are kept at most: 64 MiB.
pub const WINDOW: usize = 1 << 21;
/// Accesses that come in before rounds are made, so that a system call of some microseconds has
/// ended by then.
const CHUNK: usize = 1 << 16;
/// Accesses handed out at a time.
const BATCH: usize = 2048;

/// "That thread has made so many accesses."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    lane: u16,
    count: u64,
}

/// One thread.
#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<TracedAccess>,
    /// What must have happened before the access of this number, in their order.
    needs: VecDeque<(u64, Point)>,
    /// Accesses that came in, that went out.
    came: u64,
    went: u64,
    /// Nothing more is to be waited for now: in a system call.
    away: bool,
    ended: bool,
    begun: bool,
    tid: u64,
    /// Where it last made a thread or process.
    made: u64,
    /// It is making a thread or process.
    making: bool,
    /// The word that the end of the thread being made will clear.
    clears: u64,
    /// The futex that it waits on, and since when among all waits.
    waits: u64,
    waits_since: u64,
    /// It was away and will be back: somebody woke it.
    returning: bool,
    /// The rounds of its first and its last access.
    rounds: (u64, u64),
}

/// Threads that made no others, by whether they met one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meetings {
    /// All that made accesses.
    pub threads: u64,
    /// Those that had ended before any other began, or began when all others had ended.
    pub alone: u64,
}

/// Hands the accesses on to another consumer in the equal-rate order. `time_ns` becomes the number of
/// the round. Events are not handed on.
#[derive(Debug)]
pub struct EqualRate<C> {
    inner: C,
    lanes: Vec<Lane>,
    /// The last access that orders threads, by 8 bytes of memory.
    last: HashMap<u64, Point>,
    /// When `last` is next looked through.
    last_limit: usize,
    /// The last wake, by futex.
    wakes: HashMap<u64, Point>,
    /// Waits so far.
    wait_number: u64,
    /// Words that ends of threads clear: address and thread id.
    joins: HashMap<u64, u64>,
    /// A set that holds all of `joins` and some more, to look first.
    maybe_join: Box<[u64; 64]>,
    /// Threads that were made and have not begun.
    expected: HashSet<u64>,
    kept: usize,
    window: usize,
    since: usize,
    round: u64,
    forced: u64,
    batch: Vec<TracedAccess>,
}

impl<C: Consumer> EqualRate<C> {
    /// Hands on to `inner`.
    pub fn new(inner: C) -> Self {
        Self::with_window(inner, WINDOW)
    }

    /// With another window than [`WINDOW`], in accesses.
    pub fn with_window(inner: C, window: usize) -> Self {
        Self {
            inner,
            lanes: Vec::new(),
            last: HashMap::new(),
            last_limit: 1 << 16,
            wakes: HashMap::new(),
            wait_number: 0,
            joins: HashMap::new(),
            maybe_join: Box::new([0; 64]),
            expected: HashSet::new(),
            kept: 0,
            window: window.max(1),
            since: 0,
            round: 0,
            forced: 0,
            batch: Vec::with_capacity(BATCH),
        }
    }

    /// Rounds that were made without a thread that had nothing in the window.
    #[must_use]
    pub fn forced_rounds(&self) -> u64 {
        self.forced
    }

    /// Rounds in all.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.round
    }

    /// Which threads ran beside which, so far.
    #[must_use]
    pub fn meetings(&self) -> Meetings {
        let worked = self.lanes.iter().filter(|lane| lane.went > 0);
        let mut lives: Vec<(u64, u64)> = worked
            .filter(|lane| lane.made == 0)
            .map(|lane| lane.rounds)
            .collect();
        lives.sort_unstable();
        let mut meetings = Meetings {
            threads: lives.len() as u64,
            alone: 0,
        };
        // The last round of all that began before.
        let mut before = None;
        for (index, &(first, last)) in lives.iter().enumerate() {
            let next = lives.get(index + 1);
            let met = before >= Some(first) || next.is_some_and(|next| next.0 <= last);
            meetings.alone += u64::from(!met);
            before = before.max(Some(last));
        }
        meetings
    }

    /// The consumer behind, which has what was handed on so far.
    pub(super) fn inner_mut(&mut self) -> &mut C {
        &mut self.inner
    }

    /// The consumer behind.
    #[must_use]
    pub fn into_inner(self) -> C {
        self.inner
    }

    fn lane(&mut self, thread: u16) -> &mut Lane {
        let index = usize::from(thread);
        if self.lanes.len() <= index {
            self.lanes.resize_with(index + 1, Lane::default);
        }
        &mut self.lanes[index]
    }

    /// The next access of `lane` needs this.
    fn need(&mut self, lane: u16, point: Point) {
        let done = point.lane == lane
            || self
                .lanes
                .get(usize::from(point.lane))
                .is_none_or(|other| other.went >= point.count);
        if !done {
            let lane = &mut self.lanes[usize::from(lane)];
            let next = lane.came;
            lane.needs.push_back((next, point));
        }
    }

    fn take(&mut self, access: &TracedAccess) {
        let thread = access.thread;
        let lane = self.lane(thread);
        lane.begun = true;
        lane.away = false;
        let number = lane.came;
        if access.orders {
            let point = Point {
                lane: thread,
                count: number + 1,
            };
            if let Some(before) = self.last.insert(access.address >> 3, point) {
                self.need(thread, before);
            }
            if self.last.len() >= self.last_limit {
                self.forget();
            }
        }
        if self.may_be_joined(access.address) {
            self.join(thread, access.address);
        }
        let lane = &mut self.lanes[usize::from(thread)];
        lane.queue.push_back(*access);
        lane.came += 1;
        self.kept += 1;
        self.since += 1;
    }

    /// Drops what nobody can be held back by any more.
    fn forget(&mut self) {
        let lanes = &self.lanes;
        self.last
            .retain(|_, point| lanes[usize::from(point.lane)].went < point.count);
        self.last_limit = (self.last.len() * 2).max(1 << 16);
    }

    fn bit(address: u64) -> (usize, u64) {
        let hash = linewise_cache::line_hash(address);
        ((hash >> 58) as usize, 1 << ((hash >> 52) & 63))
    }

    #[inline]
    fn may_be_joined(&self, address: u64) -> bool {
        if self.joins.is_empty() {
            return false;
        }
        let (word, bit) = Self::bit(address);
        self.maybe_join[word] & bit != 0
    }

    fn join(&mut self, thread: u16, address: u64) {
        let Some(&tid) = self.joins.get(&address) else {
            return;
        };
        // Ids are used again: the last thread that had it.
        let ended = self
            .lanes
            .iter()
            .rposition(|lane| lane.tid == tid && lane.begun)
            .filter(|&index| self.lanes[index].ended && index != usize::from(thread));
        if let Some(index) = ended {
            let point = Point {
                lane: index as u16,
                count: self.lanes[index].came,
            };
            self.need(thread, point);
            self.joins.remove(&address);
        }
    }

    /// Makes rounds while every thread that is to be waited for has something, or there is too much
    /// to keep; with `all` until nothing is left.
    fn rounds_while_possible(&mut self, all: bool) {
        let low = if all { 0 } else { self.window / 2 };
        let mut forcing = all;
        loop {
            let waiting = !self.expected.is_empty()
                || self
                    .lanes
                    .iter()
                    .any(|lane| lane.begun && !lane.ended && !lane.away && lane.queue.is_empty());
            if self.kept == 0
                || (waiting && self.kept < self.window && !(forcing && self.kept > low))
            {
                break;
            }
            if waiting && !all {
                forcing = true;
                self.forced += 1;
                // It will not come, or too late.
                self.expected.clear();
                for lane in &mut self.lanes {
                    lane.away |= std::mem::take(&mut lane.returning);
                }
            }
            self.make_round();
        }
        if !self.batch.is_empty() {
            self.inner.accesses(&self.batch);
            self.batch.clear();
        }
    }

    fn make_round(&mut self) {
        for index in 0..self.lanes.len() {
            let lane = &self.lanes[index];
            if lane.queue.is_empty() {
                continue;
            }
            let went = lane.went;
            let held = lane
                .needs
                .iter()
                .take_while(|&&(number, _)| number <= went)
                .any(|&(_, point)| self.lanes[usize::from(point.lane)].went < point.count);
            if held {
                continue;
            }
            let lane = &mut self.lanes[index];
            while lane
                .needs
                .front()
                .is_some_and(|&(number, _)| number <= went)
            {
                lane.needs.pop_front();
            }
            let Some(mut access) = lane.queue.pop_front() else {
                continue;
            };
            if lane.went == 0 {
                lane.rounds.0 = self.round;
            }
            lane.rounds.1 = self.round;
            lane.went += 1;
            self.kept -= 1;
            access.time_ns = self.round;
            if access.chosen || self.inner.wants_orders() {
                self.batch.push(access);
                if self.batch.len() == BATCH {
                    self.inner.accesses(&self.batch);
                    self.batch.clear();
                }
            }
        }
        self.round += 1;
    }

    /// Those who wait on this futex longest, `count` of them, will be back: they are waited for.
    fn wake(&mut self, futex: u64, count: u64) {
        for _ in 0..count.min(self.lanes.len() as u64) {
            let first = self
                .lanes
                .iter_mut()
                .filter(|lane| lane.waits == futex && lane.away)
                .min_by_key(|lane| lane.waits_since);
            let Some(lane) = first else { return };
            lane.away = false;
            lane.returning = true;
        }
    }

    fn call_ended(&mut self, thread: u16, result: u64) {
        let lane = self.lane(thread);
        lane.away = false;
        lane.returning = false;
        let (waits, clears) = (lane.waits, lane.clears);
        let making = std::mem::take(&mut lane.making);
        lane.waits = 0;
        lane.clears = 0;
        if making && (result as i64) > 0 {
            let begun = |lane: &Lane| lane.tid == result && lane.begun && !lane.ended;
            if !self.lanes.iter().any(begun) {
                self.expected.insert(result);
            }
        }
        if clears != 0 && (result as i64) > 0 {
            self.joins.insert(clears, result);
            let (word, bit) = Self::bit(clears);
            self.maybe_join[word] |= bit;
        }
        if waits != 0 {
            if let Some(&wake) = self.wakes.get(&waits) {
                self.need(thread, wake);
            }
            for index in 0..self.lanes.len() {
                if self.lanes[index].ended {
                    let point = Point {
                        lane: index as u16,
                        count: self.lanes[index].came,
                    };
                    self.need(thread, point);
                }
            }
        }
    }
}

impl<C: Consumer> Consumer for EqualRate<C> {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        for access in batch {
            self.take(access);
        }
        if self.since >= CHUNK.min(self.window) {
            self.since = 0;
            self.rounds_while_possible(false);
        }
    }

    fn calls(&mut self, kinds: &[CallKind]) {
        self.inner.calls(kinds);
    }

    fn event(&mut self, event: &TracedEvent) {
        let thread = event.thread;
        let came = self.lane(thread).came;
        let here = Point {
            lane: thread,
            count: came,
        };
        match event.kind {
            EventKind::ThreadStarted => {
                let lane = self.lane(thread);
                lane.begun = true;
                lane.tid = event.b;
                self.expected.remove(&event.b);
                for index in 0..self.lanes.len() {
                    let made = self.lanes[index].made;
                    if made > 0 {
                        let lane = index as u16;
                        self.need(thread, Point { lane, count: made });
                    }
                }
            }
            EventKind::ThreadEnded => {
                let lane = self.lane(thread);
                lane.ended = true;
                let tid = lane.tid;
                let cleared: Vec<u64> = self
                    .joins
                    .iter()
                    .filter(|&(_, &its)| its == tid)
                    .map(|(&address, _)| address)
                    .collect();
                for address in cleared {
                    self.wake(address, u64::MAX);
                }
            }
            EventKind::CallBegan => self.lane(thread).away = event.b != 0,
            EventKind::CallEnded => self.call_ended(thread, event.b),
            EventKind::Creates => {
                let lane = self.lane(thread);
                lane.made = came;
                lane.making = true;
                lane.clears = event.a;
            }
            EventKind::FutexWaits => {
                self.wait_number += 1;
                let number = self.wait_number;
                let lane = self.lane(thread);
                lane.waits = event.a;
                lane.waits_since = number;
            }
            EventKind::FutexWakes => {
                self.wake(event.a, event.b);
                self.wakes.insert(event.a, here);
                if self.wakes.len() > 1 << 16 {
                    let lanes = &self.lanes;
                    self.wakes
                        .retain(|_, point| lanes[usize::from(point.lane)].went < point.count);
                }
            }
            // The thread goes on as another, or without being seen.
            EventKind::ExecTraced => self.lane(thread).ended = true,
            EventKind::ExecUntraced => self.lane(thread).away = true,
        }
    }

    fn wants_orders(&self) -> bool {
        true
    }

    fn finish(&mut self) {
        self.rounds_while_possible(true);
        self.inner.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linewise_cache::Kind;

    /// Keeps what it gets.
    #[derive(Default)]
    struct Kept(Vec<TracedAccess>);

    impl Consumer for Kept {
        fn accesses(&mut self, batch: &[TracedAccess]) {
            self.0.extend(batch);
        }
    }

    fn access(thread: u16, address: u64) -> TracedAccess {
        TracedAccess {
            address,
            time_ns: 0,
            site: 0,
            size: 8,
            thread,
            kind: Kind::Store,
            orders: false,
            chosen: true,
        }
    }

    fn ordering(thread: u16, address: u64) -> TracedAccess {
        TracedAccess {
            orders: true,
            kind: Kind::Update,
            ..access(thread, address)
        }
    }

    fn event(thread: u16, kind: EventKind, a: u64, b: u64) -> TracedEvent {
        TracedEvent {
            thread,
            time_ns: 0,
            kind,
            a,
            b,
        }
    }

    /// Threads and addresses, in the new order.
    fn order(rate: EqualRate<Kept>) -> Vec<(u16, u64)> {
        rate.into_inner()
            .0
            .iter()
            .map(|access| (access.thread, access.address))
            .collect()
    }

    #[test]
    fn threads_that_ran_one_after_the_other_take_turns() {
        let mut rate = EqualRate::new(Kept::default());
        let long: Vec<_> = (0..10_000).map(|at| access(0, at)).collect();
        let other: Vec<_> = (0..10_000).map(|at| access(1, at)).collect();
        rate.accesses(&long);
        rate.accesses(&other);
        rate.finish();
        assert_eq!(rate.forced_rounds(), 0);
        assert_eq!(rate.rounds(), 10_000);
        for (index, pair) in order(rate).chunks(2).enumerate() {
            assert_eq!(pair, [(0, index as u64), (1, index as u64)]);
        }
    }

    #[test]
    fn the_result_does_not_depend_on_the_slices_that_the_machine_gave() {
        let run = |slice: usize| {
            let mut rate = EqualRate::new(Kept::default());
            for thread in 0..3 {
                rate.event(&event(thread, EventKind::ThreadStarted, 1, thread.into()));
            }
            for start in (0..60_000).step_by(slice) {
                for thread in 0..3 {
                    let batch: Vec<_> = (start..start + slice)
                        .map(|at| access(thread, at as u64))
                        .collect();
                    rate.accesses(&batch);
                }
            }
            rate.finish();
            assert_eq!(rate.forced_rounds(), 0);
            order(rate)
        };
        assert_eq!(run(60_000), run(100));
    }

    #[test]
    fn threads_that_met_no_other_are_told() {
        let mut rate = EqualRate::new(Kept::default());
        rate.event(&event(0, EventKind::ThreadStarted, 1, 1));
        for (thread, accesses) in [(1, 50), (2, 500), (3, 50)] {
            let tid = 76 + u64::from(thread);
            rate.accesses(&vec![access(0, 1); 100]);
            rate.event(&event(0, EventKind::Creates, 0x9000, 1));
            rate.event(&event(0, EventKind::CallBegan, 56, 0));
            rate.event(&event(0, EventKind::CallEnded, 56, tid));
            rate.event(&event(thread, EventKind::ThreadStarted, 1, tid));
            rate.accesses(&vec![access(thread, 2); accesses]);
            rate.event(&event(thread, EventKind::ThreadEnded, 0, 0));
        }
        rate.finish();
        let met = Meetings {
            threads: 3,
            alone: 1,
        };
        assert_eq!(rate.meetings(), met, "the second and the third overlap");
    }

    #[test]
    fn an_atomic_access_does_not_overtake_the_one_observed_before_it() {
        let mut rate = EqualRate::new(Kept::default());
        // Thread 0 works long and releases; thread 1 acquires at once.
        let work: Vec<_> = (0..100).map(|at| access(0, at)).collect();
        rate.accesses(&work);
        rate.accesses(&[ordering(0, 0x1000), ordering(1, 0x1000), access(1, 0x2000)]);
        rate.accesses(&[access(0, 0x3000)]);
        rate.finish();
        let order = order(rate);
        let at = |what| order.iter().position(|&it| it == what).unwrap();
        assert_eq!(at((0, 0x1000)), 100);
        assert_eq!(at((1, 0x1000)), 101);
        assert!(at((1, 0x2000)) > at((1, 0x1000)));
    }

    #[test]
    fn a_thread_begins_after_it_was_made_and_is_joined_after_its_end() {
        let mut rate = EqualRate::new(Kept::default());
        rate.event(&event(0, EventKind::ThreadStarted, 1, 1));
        rate.accesses(&[access(0, 1), access(0, 2)]);
        rate.event(&event(0, EventKind::Creates, 0x9000, 1));
        rate.event(&event(0, EventKind::CallBegan, 56, 0));
        rate.event(&event(0, EventKind::CallEnded, 56, 77));
        rate.event(&event(1, EventKind::ThreadStarted, 1, 77));
        let work: Vec<_> = (0..50).map(|at| access(1, 100 + at)).collect();
        rate.accesses(&work);
        rate.event(&event(1, EventKind::ThreadEnded, 0, 0));
        // No wait was necessary: the word was clear already.
        rate.accesses(&[access(0, 0x9000), access(0, 3)]);
        rate.finish();
        let order = order(rate);
        assert_eq!(&order[..2], [(0, 1), (0, 2)]);
        assert_eq!(order[2], (1, 100));
        assert_eq!(&order[52..], [(0, 0x9000), (0, 3)]);
    }

    #[test]
    fn who_waited_on_a_futex_goes_on_after_the_wake() {
        let mut rate = EqualRate::new(Kept::default());
        rate.accesses(&[access(1, 1)]);
        rate.event(&event(1, EventKind::FutexWaits, 0x5000, 0));
        rate.event(&event(1, EventKind::CallBegan, 202, 1));
        let work: Vec<_> = (0..50).map(|at| access(0, 100 + at)).collect();
        rate.accesses(&work);
        rate.event(&event(0, EventKind::FutexWakes, 0x5000, 1));
        rate.event(&event(1, EventKind::CallEnded, 202, 0));
        rate.accesses(&[access(1, 2)]);
        rate.finish();
        let order = order(rate);
        assert_eq!(*order.last().unwrap(), (1, 2));
        assert_eq!(order[1], (1, 1));
    }

    #[test]
    fn who_was_woken_is_not_overtaken_though_the_machine_runs_it_late() {
        let mut rate = EqualRate::new(Kept::default());
        for thread in 0..3 {
            rate.event(&event(thread, EventKind::ThreadStarted, 1, thread.into()));
        }
        for thread in [1, 2] {
            rate.event(&event(thread, EventKind::FutexWaits, 0x5000, 0));
            rate.event(&event(thread, EventKind::CallBegan, 202, 1));
        }
        rate.accesses(&[access(0, 1)]);
        rate.event(&event(0, EventKind::FutexWakes, 0x5000, 1));
        let work: Vec<_> = (0..200_000).map(|at| access(0, 100 + at)).collect();
        for piece in work.chunks(1000) {
            rate.accesses(piece);
        }
        rate.event(&event(1, EventKind::CallEnded, 202, 0));
        rate.accesses(&[access(1, 2)]);
        rate.event(&event(1, EventKind::ThreadEnded, 0, 0));
        rate.finish();
        assert_eq!(rate.forced_rounds(), 0, "thread 2 waits on");
        let order = order(rate);
        assert_eq!(order[0], (0, 1));
        assert!(order[1..3].contains(&(1, 2)), "{:?}", &order[..4]);
    }

    #[test]
    fn who_is_in_a_brief_call_is_not_overtaken_though_the_machine_interrupts_it() {
        let mut rate = EqualRate::new(Kept::default());
        for thread in 0..2 {
            rate.event(&event(thread, EventKind::ThreadStarted, 1, thread.into()));
        }
        rate.accesses(&[access(0, 1)]);
        rate.event(&event(0, EventKind::CallBegan, 9, 0));
        let work: Vec<_> = (0..200_000).map(|at| access(1, 100 + at)).collect();
        for piece in work.chunks(1000) {
            rate.accesses(piece);
        }
        rate.event(&event(0, EventKind::CallEnded, 9, 0));
        rate.accesses(&[access(0, 2)]);
        rate.finish();
        assert_eq!(rate.forced_rounds(), 0);
        assert!(order(rate)[..4].contains(&(0, 2)));
    }

    #[test]
    fn a_thread_that_shows_nothing_for_too_long_is_not_waited_for_and_that_is_counted() {
        let mut rate = EqualRate::with_window(Kept::default(), 100);
        rate.accesses(&[access(1, 0)]);
        let work: Vec<_> = (0..1000).map(|at| access(0, at)).collect();
        for piece in work.chunks(10) {
            rate.accesses(piece);
        }
        assert!(rate.forced_rounds() > 0);
        assert!(rate.kept <= 200);
        rate.finish();
        assert_eq!(order(rate).len(), 1001);
    }

    proptest::proptest! {
        #[test]
        fn every_access_comes_out_once_in_its_threads_order_and_atomics_keep_theirs(
            steps in proptest::collection::vec((0u16..4, 0u64..6, proptest::bool::ANY), 0..400),
            window in 1usize..300,
        ) {
            let mut rate = EqualRate::with_window(Kept::default(), window);
            let input: Vec<_> = steps
                .iter()
                .enumerate()
                .map(|(number, &(thread, place, orders))| TracedAccess {
                    site: number as u32,
                    orders,
                    ..access(thread, place * 8)
                })
                .collect();
            for piece in input.chunks(7) {
                rate.accesses(piece);
            }
            rate.finish();
            let output = rate.into_inner().0;
            proptest::prop_assert_eq!(output.len(), input.len());
            for thread in 0..4 {
                let sites: Vec<_> = output
                    .iter()
                    .filter(|access| access.thread == thread)
                    .map(|access| access.site)
                    .collect();
                proptest::prop_assert!(sites.is_sorted());
            }
            for place in 0..6 {
                let sites: Vec<_> = output
                    .iter()
                    .filter(|access| access.orders && access.address == place * 8)
                    .map(|access| access.site)
                    .collect();
                proptest::prop_assert!(sites.is_sorted());
            }
        }
    }
}
