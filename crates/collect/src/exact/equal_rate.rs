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
//! - the return from a wait on a futex, before the last wake of that futex that was observed before it;
//! - a load of the word that the kernel clears when a thread ends, or the return from a wait on it, once that
//!   end was observed, before that thread's last access (this is how a join goes).
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

use std::sync::Arc;

use super::access::{Consumer, Handover, TracedAccess, TracedEvent};
use super::calls::CallKind;
use super::own_lines::OwnLines;
use super::rounds::{Rounds, Turn};

pub use super::rounds::Meetings;

/// Accesses that are kept at most: 64 MiB.
pub const WINDOW: usize = 1 << 21;

impl Turn for TracedAccess {
    fn thread(&self) -> u16 {
        self.thread
    }

    fn address(&self) -> u64 {
        self.address
    }

    fn last_byte(&self) -> u64 {
        self.address + u64::from(self.size.max(1)) - 1
    }

    fn orders(&self) -> bool {
        self.orders
    }

    fn chosen(&self) -> bool {
        self.chosen
    }

    fn before(&self) -> u32 {
        self.before
    }

    fn in_round(self, round: u64, before: u32) -> Self {
        Self {
            time_ns: round,
            before,
            ..self
        }
    }

    fn own(access: Self) -> Self {
        access
    }
}

/// Hands the accesses on to another consumer in the equal-rate order. `time_ns` becomes the number of
/// the round. Events are not handed on.
#[derive(Debug)]
pub struct EqualRate<C> {
    inner: C,
    rounds: Rounds<TracedAccess>,
}

impl<C: Consumer> EqualRate<C> {
    /// Hands on to `inner`.
    pub fn new(inner: C) -> Self {
        Self::with_window(inner, WINDOW)
    }

    /// With another window than [`WINDOW`], in accesses.
    pub fn with_window(inner: C, window: usize) -> Self {
        Self {
            rounds: Rounds::new(window, inner.wants_orders()),
            inner,
        }
    }

    /// Rounds that were made without a thread that had nothing in the window.
    #[must_use]
    pub fn forced_rounds(&self) -> u64 {
        self.rounds.forced()
    }

    /// Rounds in all.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds.made()
    }

    /// Which threads ran beside which, so far.
    #[must_use]
    pub fn meetings(&self) -> Meetings {
        self.rounds.meetings()
    }

    /// The consumer behind.
    #[must_use]
    pub fn into_inner(self) -> C {
        self.inner
    }
}

impl<C: Consumer> Consumer for EqualRate<C> {
    fn begin(&mut self) -> std::io::Result<()> {
        self.inner.begin()
    }

    fn accesses(&mut self, batch: &[TracedAccess]) {
        let inner = &mut self.inner;
        self.rounds.accesses(batch, |batch| inner.accesses(batch));
    }

    fn calls(&mut self, kinds: &[CallKind]) {
        self.inner.calls(kinds);
    }

    fn event(&mut self, event: &TracedEvent) {
        self.rounds.event(event);
    }

    fn handover(&mut self, handover: &Handover) {
        self.rounds.handover(handover);
    }

    fn own_lines(&mut self, lines: &Arc<OwnLines>) {
        self.rounds.set_own_lines(Arc::clone(lines));
    }

    fn space_ended(&mut self, space: u16) {
        self.rounds.space_ended(space);
    }

    fn wants_orders(&self) -> bool {
        true
    }

    fn finish(&mut self) {
        let inner = &mut self.inner;
        self.rounds.finish(|batch| inner.accesses(batch));
        self.inner.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linewise_cache::Kind;
    use linewise_tracer::words::EventKind;

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
            before: 0,
            orders: false,
            chosen: true,
        }
    }

    fn ordering(thread: u16, address: u64) -> TracedAccess {
        TracedAccess {
            before: 0,
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
    fn who_waited_on_a_futex_does_not_wait_for_the_end_of_the_one_that_woke_it() {
        let mut rate = EqualRate::new(Kept::default());
        for thread in 0..2 {
            rate.event(&event(thread, EventKind::ThreadStarted, 1, thread.into()));
        }
        rate.event(&event(1, EventKind::FutexWaits, 0x5000, 0));
        rate.event(&event(1, EventKind::CallBegan, 202, 1));
        rate.accesses(&[access(0, 1)]);
        rate.event(&event(0, EventKind::FutexWakes, 0x5000, 1));
        let work: Vec<_> = (0..50).map(|at| access(0, 100 + at)).collect();
        rate.accesses(&work);
        rate.event(&event(0, EventKind::ThreadEnded, 0, 0));
        rate.event(&event(1, EventKind::CallEnded, 202, 0));
        rate.accesses(&[access(1, 2)]);
        rate.finish();
        assert!(order(rate)[1..3].contains(&(1, 2)));
    }

    #[test]
    fn who_waits_for_the_end_of_a_thread_goes_on_after_its_last_access() {
        let mut rate = EqualRate::new(Kept::default());
        rate.event(&event(0, EventKind::ThreadStarted, 1, 1));
        rate.event(&event(0, EventKind::Creates, 0x9000, 1));
        rate.event(&event(0, EventKind::CallBegan, 56, 0));
        rate.event(&event(0, EventKind::CallEnded, 56, 77));
        rate.event(&event(1, EventKind::ThreadStarted, 1, 77));
        rate.event(&event(0, EventKind::FutexWaits, 0x9000, 0));
        rate.event(&event(0, EventKind::CallBegan, 202, 1));
        let work: Vec<_> = (0..50).map(|at| access(1, 100 + at)).collect();
        rate.accesses(&work);
        rate.event(&event(1, EventKind::ThreadEnded, 0, 0));
        rate.event(&event(0, EventKind::CallEnded, 202, 0));
        rate.accesses(&[access(0, 3)]);
        rate.finish();
        assert_eq!(*order(rate).last().unwrap(), (0, 3));
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

    /// Thread 0 has a line for itself again and stores to it. Thread 1 works elsewhere and then stores to it as well,
    /// which is taken in before it is told what thread 0 did.
    fn with_a_line_that_is_own_again() -> EqualRate<Kept> {
        let region = linewise_tracer::Region::create().unwrap();
        let mut rate = EqualRate::with_window(Kept::default(), 1001);
        rate.own_lines(&Arc::new(OwnLines::new(region)));
        for thread in 0..2 {
            rate.event(&event(thread, EventKind::ThreadStarted, 1, thread.into()));
        }
        rate.accesses(&[access(0, 0x4000)]);
        rate.event(&event(0, EventKind::OwnAgain, 0x4000, 1));
        rate.event(&event(0, EventKind::Passed, 999, 0));
        rate.event(&event(0, EventKind::ThreadEnded, 0, 0));
        rate.accesses(&[access(1, 0x9000); 300]);
        rate.accesses(&[access(1, 0x4008); 700]);
        assert_eq!(rate.inner.0.len(), 301, "it waits");
        rate
    }

    #[test]
    fn what_a_thread_does_to_a_line_of_its_own_is_waited_for_where_another_comes_to_it() {
        let mut rate = with_a_line_that_is_own_again();
        rate.handover(&Handover {
            thread: 0,
            line: 0x4000,
            again: true,
            first: 1,
            last: 999,
            loads: 0,
            stores: 999,
            load: None,
            store: Some(access(0, 0x4000)),
            load_is_last: false,
        });
        rate.finish();
        assert_eq!(rate.forced_rounds(), 0);
        let order = order(rate);
        assert_eq!(order.len(), 1702);
        assert_eq!(order[301], (0, 0x4000), "all that it did until then");
        for pair in order[302..].chunks(2) {
            assert_eq!(pair, [(0, 0x4000), (1, 0x4008)]);
        }
    }

    #[test]
    fn what_is_never_told_is_given_up_and_counted() {
        let mut rate = with_a_line_that_is_own_again();
        rate.finish();
        assert_eq!(rate.forced_rounds(), 1);
        assert_eq!(order(rate).len(), 1001);
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
        assert!(rate.rounds.kept() <= 200);
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
                    before: 0,
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

    /// The order by the definition, round by round, of a stream without system calls.
    fn by_definition(stream: &[TracedAccess]) -> Vec<(u16, u64)> {
        type Needing = (TracedAccess, Option<(u16, usize)>);
        let mut lanes: Vec<Vec<Needing>> = vec![Vec::new(); 4];
        let mut last = std::collections::HashMap::new();
        for access in stream {
            let lane = &mut lanes[usize::from(access.thread)];
            let here = (access.thread, lane.len() + 1);
            let before = access
                .orders
                .then(|| last.insert(access.address >> 3, here));
            lane.push((*access, before.flatten()));
        }
        let mut went = vec![0; lanes.len()];
        let mut order = Vec::new();
        while order.len() < stream.len() {
            for lane in 0..lanes.len() {
                let Some((access, before)) = lanes[lane].get(went[lane]) else {
                    continue;
                };
                let done = |&(other, count): &(u16, usize)| went[usize::from(other)] >= count;
                if before.as_ref().is_none_or(done) {
                    order.push((access.thread, access.address));
                    went[lane] += 1;
                }
            }
        }
        order
    }

    proptest::proptest! {
        #[test]
        fn rounds_made_together_are_those_of_the_definition(
            runs in proptest::collection::vec(
                (0u16..4, 1usize..40, proptest::option::weighted(0.4, 0u64..3)),
                1..200,
            ),
        ) {
            let mut stream = Vec::new();
            for (thread, length, lock) in runs {
                stream.extend(lock.map(|lock| ordering(thread, lock * 8)));
                stream.extend((0..length as u64).map(|at| access(thread, 4096 + at)));
            }
            let mut rate = EqualRate::new(Kept::default());
            for piece in stream.chunks(100) {
                rate.accesses(piece);
            }
            rate.finish();
            proptest::prop_assert_eq!(order(rate), by_definition(&stream));
        }
    }
}
