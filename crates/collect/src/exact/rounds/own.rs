//! What threads did to lines that they had for themselves, brought into the rounds.
//!
//! It makes a difference only where another thread is at the line at that time. So a [`Run`] waits until another's
//! access to its line is handed out, and what of it lies before that goes out then: the last load and store
//! stand for all. Where two threads' runs on one line overlap, one of them is handed out access by
//! access. And where a thread has the line again and what it does there is not told yet, the line is taken from it.

use std::collections::hash_map::Entry;

use super::{Lane, MOST_RUNS, Rounds, Turn};
use crate::exact::access::{GUEST_BITS, Handover};
use crate::exact::own_lines::LINE_BITS;
use crate::exact::own_runs::Run;

/// Lines that wait at most: those that one thread had and others come to later in this order.
const MOST_LINES: usize = 1 << 21;

/// A thread has a line for itself again.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnAgain {
    pub(super) line: u64,
    /// Number of its first access then.
    pub(super) first: u64,
}

/// A line that a thread has or had for itself.
#[derive(Debug)]
pub(super) struct OwnLine<T> {
    /// Runs with their lanes.
    runs: Vec<(u16, Run<T>)>,
    /// Who has it again, and since which of its accesses.
    again: Option<(u16, u64)>,
    /// Those of whom it was told before the rounds came to where they had it again.
    told: Vec<(u16, u64)>,
    /// Another came amid one of the runs.
    contended: bool,
}

impl<T> Default for OwnLine<T> {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            again: None,
            told: Vec::new(),
            contended: false,
        }
    }
}

impl<T> OwnLine<T> {
    fn is_over(&self) -> bool {
        self.runs.is_empty() && self.again.is_none() && self.told.is_empty()
    }
}

/// The number of a lane's next access when `asker` makes the next one, in this turn of the rounds being made.
fn position<T>(lanes: &[Lane<T>], turn: u64, lane: u16, asker: u16) -> u64 {
    let it = &lanes[usize::from(lane)];
    match it.going {
        true => it.went + turn + u64::from(lane < asker),
        false => it.went,
    }
}

/// Hands out what has passed.
fn effects<T: Turn>(batch: &mut Vec<T>, passed: [Option<T>; 2], round: u64) {
    let accesses = passed.into_iter().flatten();
    batch.extend(accesses.map(|access| access.in_round(round, 0)));
}

impl<T: Turn> Rounds<T> {
    /// A lane comes to a line, which it may have for itself if `may_own`: what was done to it until now goes out
    /// first. `false` if that is still on its way here.
    #[inline]
    pub(super) fn meet(&mut self, asker: u16, line: u64, round: u64, may_own: bool) -> bool {
        !self.own.contains_key(&line) || self.meet_at(asker, line, round, may_own)
    }

    #[cold]
    fn meet_at(&mut self, asker: u16, line: u64, round: u64, may_own: bool) -> bool {
        let owner = |this: &Self| this.own.get(&line).and_then(|entry| entry.again);
        if owner(self).is_some_and(|(owner, _)| owner != asker) {
            self.contend(asker, line, round);
        }
        let untold = owner(self).filter(|&(owner, _)| owner != asker || !may_own);
        if untold.is_some() {
            // Another took the line, and its word of it has not come.
            if !self.gives_up() {
                return false;
            }
            if let Some(entry) = self.own.get_mut(&line) {
                entry.again = None;
            }
        }
        self.settle(asker, line, round);
        true
    }

    /// Two threads are at the line at the same time: from now on all their accesses to it are told.
    fn contend(&mut self, asker: u16, line: u64, round: u64) {
        let lines = self.own_lines.as_ref();
        if let Some(handover) = lines.and_then(|lines| lines.contend(line << LINE_BITS)) {
            self.take_over(&handover, asker, round);
        }
    }

    /// Hands out what of a line's runs lies before the asker's next access.
    fn settle(&mut self, asker: u16, line: u64, round: u64) {
        let Entry::Occupied(mut entry) = self.own.entry(line) else {
            return;
        };
        let (lanes, turn, batch) = (&self.lanes, self.turn, &mut self.batch);
        let OwnLine {
            runs, contended, ..
        } = entry.get_mut();
        let mut amid = false;
        runs.retain_mut(|(lane, run)| {
            let passed = run.skip_to(position(lanes, turn, *lane, asker));
            effects(batch, passed, round);
            amid |= *lane != asker && run.is_amid();
            !run.is_over()
        });
        amid &= !std::mem::replace(contended, *contended | amid);
        if entry.get().is_over() {
            entry.remove();
        }
        if amid {
            self.contend(asker, line, round);
        }
    }

    /// Takes what a thread did to a line that another touches next. What lies in rounds that are made has
    /// an effect, but no place any more.
    pub(in crate::exact) fn handover(&mut self, handover: &Handover) {
        let round = self.round;
        self.take_over(handover, handover.thread, round);
    }

    fn take_over(&mut self, handover: &Handover, asker: u16, round: u64) {
        let [load, store] = [handover.load, handover.store].map(|access| access.map(T::own));
        let (lane, line) = (handover.thread, handover.line >> LINE_BITS);
        self.lane(lane);
        if !self.has_room_at(line) {
            return;
        }
        if handover.again {
            let entry = self.own.entry(line).or_default();
            let its = (lane, handover.first);
            if entry.again == Some(its) {
                entry.again = None;
            } else {
                entry.told.push(its);
            }
        }
        let Some(run) = Run::new(handover, load, store) else {
            return;
        };
        self.own.entry(line).or_default().runs.push((lane, run));
        self.settle(asker, line, round);
        let Some(entry) = self.own.get_mut(&line) else {
            return;
        };
        // One of two that meet nobody else would never meet.
        if entry.runs.iter().any(|&(other, _)| other != lane)
            && let Some((_, run)) = entry.runs.pop_if(|&mut (it, _)| it == lane)
        {
            self.lanes[usize::from(lane)].runs.push(run);
            self.runs_changed = true;
        }
    }

    /// Whether one more run can wait at a line; counts it as dropped if not.
    fn has_room_at(&mut self, line: u64) -> bool {
        let has = match self.own.get(&line) {
            Some(entry) => entry.runs.len() + entry.told.len() < MOST_RUNS,
            None => self.own.len() < MOST_LINES,
        };
        self.dropped += u64::from(!has);
        has
    }

    /// A thread has a line for itself again; `false` if what another did there, or it does, is still on its way here.
    pub(super) fn has_again(&mut self, thread: u16, again: OwnAgain, round: u64) -> bool {
        let OwnAgain { line, first } = again;
        if !self.meet(thread, line, round, false) {
            return false;
        }
        if !self.own.contains_key(&line) && !self.has_room_at(line) {
            return true;
        }
        let its = (thread, first);
        let met = |entry: &OwnLine<T>| {
            let others = entry.runs.iter().any(|&(other, _)| other != thread);
            others && !entry.told.contains(&its)
        };
        // Another is still to come to it, and that is not told either.
        if self.own.get(&line).is_some_and(met) {
            self.contend(thread, line, round);
            if self.own.get(&line).is_some_and(met) && !self.gives_up() {
                return false;
            }
        }
        let entry = self.own.entry(line).or_default();
        match entry.told.iter().position(|&it| it == its) {
            Some(at) => {
                entry.told.swap_remove(at);
                self.settle(thread, line, round);
            }
            None => entry.again = Some(its),
        }
        true
    }

    /// Whether what is still on its way here is not waited for.
    fn gives_up(&mut self) -> bool {
        if self.impatient {
            self.forced += 1;
        } else {
            self.awaits = true;
        }
        self.impatient
    }

    /// There will be no more accesses of an address space.
    pub(in crate::exact) fn space_ended(&mut self, space: u16) {
        self.ended_spaces.push(space);
        let mut ended = std::mem::take(&mut self.ended_spaces);
        ended.retain(|&space| {
            let at_work = |lane: &Lane<T>| lane.space == space && !lane.is_done();
            if self.lanes.iter().any(at_work) {
                return true;
            }
            self.end_lines(|line| line >> (GUEST_BITS - LINE_BITS) == u64::from(space));
            if let Some(lines) = &self.own_lines {
                lines.forget(space.into());
            }
            false
        });
        self.ended_spaces = ended;
    }

    /// Hands out the rest of what was done to these lines.
    pub(super) fn end_lines(&mut self, which: impl Fn(u64) -> bool) {
        let mut lines: Vec<u64> = self.own.keys().copied().filter(|&it| which(it)).collect();
        lines.sort_unstable();
        let round = self.round;
        for line in lines {
            let runs = self.own.remove(&line).map(|entry| entry.runs);
            for (_, mut run) in runs.into_iter().flatten() {
                let passed = run.skip_to(u64::MAX);
                effects(&mut self.batch, passed, round);
            }
        }
    }
}
