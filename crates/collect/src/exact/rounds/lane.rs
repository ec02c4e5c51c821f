//! A thread in the rounds.

use std::collections::{BinaryHeap, VecDeque};

use super::{OwnAgain, Turn};
use crate::exact::access::GUEST_BITS;
use crate::exact::own_runs::Run;

/// "That thread has made so many accesses."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) lane: u16,
    pub(super) count: u64,
}

/// One thread.
#[derive(Debug)]
pub(super) struct Lane<T> {
    /// Accesses with their numbers.
    pub(super) queue: VecDeque<(u64, T)>,
    /// Those that were not told when they were made and are handed out one by one.
    pub(super) runs: BinaryHeap<Run<T>>,
    /// Before the access of this number it gets a line for itself again.
    pub(super) own_again: VecDeque<(u64, OwnAgain)>,
    /// What must have happened before the access of this number, in their order.
    pub(super) needs: VecDeque<(u64, Point)>,
    /// Accesses that came in, that went out.
    pub(super) came: u64,
    pub(super) went: u64,
    /// One past the number of the last that was handed out.
    pub(super) told: u64,
    /// Nothing more is to be waited for now: in a system call.
    pub(super) away: bool,
    pub(super) ended: bool,
    pub(super) begun: bool,
    pub(super) tid: u64,
    /// Where it is in another namespace of process ids: its number here.
    pub(super) tid_here: u64,
    /// Where it last made a thread or process.
    pub(super) made: u64,
    /// It is making a thread or process.
    pub(super) making: bool,
    /// The word that the end of the thread being made will clear.
    pub(super) clears: u64,
    /// The futex that it waits on, and since when among all waits.
    pub(super) waits: u64,
    pub(super) waits_since: u64,
    /// It was away and will be back: somebody woke it.
    pub(super) returning: bool,
    /// The rounds of its first and its last access.
    pub(super) rounds: (u64, u64),
    /// It takes part in the rounds that are being made.
    pub(super) going: bool,
    /// Its address space.
    pub(super) space: u16,
}

impl<T: Turn> Lane<T> {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            runs: BinaryHeap::new(),
            own_again: VecDeque::new(),
            needs: VecDeque::new(),
            came: 0,
            went: 0,
            told: 0,
            away: false,
            ended: false,
            begun: false,
            tid: 0,
            tid_here: 0,
            made: 0,
            making: false,
            clears: 0,
            waits: 0,
            waits_since: 0,
            returning: false,
            rounds: (0, 0),
            going: false,
            space: 0,
        }
    }

    /// Its next accesses, `count` of them, are made from this round on.
    pub(super) fn goes(&mut self, round: u64, count: u64) {
        if self.went == 0 {
            self.rounds.0 = round;
        }
        self.went += count;
        self.rounds.1 = round + count - 1;
    }

    /// Queues its next access.
    pub(super) fn push(&mut self, access: &T) {
        let number = self.came + u64::from(access.before());
        self.space = (access.address() >> GUEST_BITS) as u16;
        self.queue.push_back((number, *access));
        self.came = number + 1;
    }

    /// Whether all that came has gone.
    pub(super) fn is_done(&self) -> bool {
        self.went >= self.came
    }

    /// In how many rounds from now it hands out the next access, or gets a line.
    pub(super) fn next_in(&self) -> u64 {
        let queued = self.queue.front().map_or(u64::MAX, |&(number, _)| number);
        let next = self
            .runs
            .peek()
            .map_or(queued, |run| queued.min(run.next()));
        let own = self
            .own_again
            .front()
            .map_or(u64::MAX, |&(number, _)| number);
        next.min(own).saturating_sub(self.went)
    }

    /// The next access.
    pub(super) fn peek(&self) -> Option<T> {
        let queued = self.queue.front();
        match self.runs.peek() {
            Some(run) if queued.is_none_or(|&(number, _)| run.next() <= number) => run.peek(),
            _ => queued.map(|&(_, access)| access),
        }
    }

    /// Takes the next access, to be handed out in `round`.
    pub(super) fn hand_out(&mut self, round: u64) -> Option<T> {
        let queued = self.queue.front().map_or(u64::MAX, |&(number, _)| number);
        if self.runs.peek().is_some_and(|run| run.next() <= queued) {
            let (rest, access) = self.runs.pop()?.step();
            self.runs.extend(rest);
            return Some(access?.in_round(round, 0));
        }
        let (number, access) = self.queue.pop_front()?;
        let before = number.saturating_sub(self.told);
        self.told = number + 1;
        Some(access.in_round(round, u32::try_from(before).unwrap_or(u32::MAX)))
    }

    /// Forgets what its next access needed, and has.
    pub(super) fn drop_needs(&mut self) {
        let due = |&(number, _): &(u64, Point)| number <= self.went;
        while self.needs.front().is_some_and(due) {
            self.needs.pop_front();
        }
    }
}
