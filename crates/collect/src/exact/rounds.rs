//! The rounds of the equal rate: see [`EqualRate`](super::EqualRate) for what they promise.
//!
//! Most rounds are like the one before: the same threads go, nobody waits for anybody. So as many as
//! can be foreseen are made at once, and round by round only what is due to synchronisation.
//!
//! Accesses have the number that they have among all of their thread, also those that are not told: a
//! thread goes on by one in each round, whether or not there is something to hand out.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use linewise_cache::KeyHasher;
use linewise_tracer::words::EventKind;

use super::access::{TracedAccess, TracedEvent};
use super::own_lines::{LINE_BITS, OwnLines};

mod lane;
mod own;

use lane::{Lane, Point};
use own::{OwnAgain, OwnLine};

/// Accesses that come in before rounds are made, so that a system call of some microseconds has
/// ended by then.
const CHUNK: usize = 1 << 16;
/// Accesses handed out at a time.
const BATCH: usize = 2048;
/// Events of a kind that wait for accesses at most, and lines with runs: a target that writes over the shared memory could
/// have them wait for ever.
const MOST_WAITING: usize = 1 << 18;
/// Runs that wait at one line at most.
const MOST_RUNS: usize = 1 << 10;

/// What the rounds need to know of an access.
pub(super) trait Turn: Copy {
    /// Its thread.
    fn thread(&self) -> u16;
    /// Its first byte.
    fn address(&self) -> u64;
    /// Its last byte.
    fn last_byte(&self) -> u64;
    /// Whether it orders threads.
    fn orders(&self) -> bool;
    /// Whether it is handed out also where nobody asks for all that order.
    fn chosen(&self) -> bool;
    /// Accesses of its thread right before it that are not told.
    fn before(&self) -> u32;
    /// The same, noted as made in this round, with so many accesses of its thread before it.
    fn in_round(self, round: u64, before: u32) -> Self;
    /// One of those that were not told when they were made.
    fn own(access: TracedAccess) -> Self;
}

/// Threads that made no others, by whether they met one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meetings {
    /// All that made accesses.
    pub threads: u64,
    /// Those that had ended before any other began, or began when all others had ended.
    pub alone: u64,
}

/// A small set that holds some addresses and a few more, to look first.
#[derive(Debug)]
struct Maybe(Box<[u64; 64]>);

impl Maybe {
    fn bit(address: u64) -> (usize, u64) {
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        ((hash >> 6) as usize, 1 << (hash & 63))
    }

    fn add(&mut self, address: u64) {
        let (word, bit) = Self::bit(address);
        self.0[word] |= bit;
    }

    #[inline]
    fn holds(&self, address: u64) -> bool {
        let (word, bit) = Self::bit(address);
        self.0[word] & bit != 0
    }
}

/// Takes accesses in the order in which they were observed, and hands them out in rounds.
#[derive(Debug)]
pub(super) struct Rounds<T> {
    lanes: Vec<Lane<T>>,
    /// The last access that orders threads, by 8 bytes of memory.
    last: HashMap<u64, Point>,
    /// When `last` is next looked through.
    last_limit: usize,
    /// The last wake, by futex.
    wakes: HashMap<u64, Point>,
    /// When `wakes` is next looked through.
    wakes_limit: usize,
    /// Lines that threads have again, in all lanes.
    own_again: usize,
    /// Events that there was no room for.
    dropped: u64,
    /// Waits so far.
    wait_number: u64,
    /// Words that ends of threads clear: address and thread id.
    joins: HashMap<u64, u64>,
    maybe_join: Maybe,
    /// Threads that were made and have not begun.
    expected: HashSet<u64>,
    /// Accesses in all queues.
    kept: usize,
    window: usize,
    since: usize,
    round: u64,
    forced: u64,
    /// Also what is not chosen is handed out.
    everything: bool,
    batch: Vec<T>,
    /// The lanes that take part in a round, and in how many each next hands something out.
    going: Vec<(usize, u64)>,
    /// Rounds of those being made that are done.
    turn: u64,
    /// By line: what is known of threads that have or had it for themselves.
    own: HashMap<u64, OwnLine<T>, BuildHasherDefault<KeyHasher>>,
    own_lines: Option<Arc<OwnLines>>,
    /// A lane has got a run.
    runs_changed: bool,
    /// A lane has come to a line of which it is not told yet what another thread did there.
    awaits: bool,
    /// That is not waited for any more.
    impatient: bool,
    ended_spaces: Vec<u16>,
}

impl<T: Turn> Rounds<T> {
    /// At most `window` accesses are kept. `everything`: also those that are not chosen are handed
    /// out.
    pub(super) fn new(window: usize, everything: bool) -> Self {
        Self {
            lanes: Vec::new(),
            last: HashMap::new(),
            last_limit: 1 << 16,
            wakes: HashMap::new(),
            wakes_limit: 1 << 16,
            own_again: 0,
            dropped: 0,
            wait_number: 0,
            joins: HashMap::new(),
            maybe_join: Maybe(Box::new([0; 64])),
            expected: HashSet::new(),
            kept: 0,
            window: window.max(1),
            since: 0,
            round: 0,
            forced: 0,
            everything,
            batch: Vec::with_capacity(BATCH),
            going: Vec::new(),
            turn: 0,
            own: HashMap::default(),
            own_lines: None,
            runs_changed: false,
            awaits: false,
            impatient: false,
            ended_spaces: Vec::new(),
        }
    }

    /// Threads may have lines again, which can be taken here.
    pub(super) fn set_own_lines(&mut self, lines: Arc<OwnLines>) {
        self.own_lines = Some(lines);
    }

    /// Rounds that were made without a thread that had nothing in the window.
    pub(super) fn forced(&self) -> u64 {
        self.forced
    }

    /// Events that there was no room for.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Rounds in all.
    pub(super) fn made(&self) -> u64 {
        self.round
    }

    /// Which threads ran beside which, so far.
    pub(super) fn meetings(&self) -> Meetings {
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

    /// Accesses that were taken and not handed out.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Takes the next accesses; now and then hands out those whose rounds can be made.
    pub(super) fn accesses(&mut self, batch: &[T], out: impl FnMut(&[T])) {
        let mut rest = batch;
        while let Some(first) = rest.first() {
            let thread = first.thread();
            self.lane(thread);
            let plain = self.plain(rest, thread);
            if plain == 0 {
                self.take(first);
                rest = &rest[1..];
                continue;
            }
            let lane = &mut self.lanes[usize::from(thread)];
            lane.begun = true;
            lane.away = false;
            for access in &rest[..plain] {
                lane.push(access);
            }
            rest = &rest[plain..];
        }
        self.kept += batch.len();
        self.since += batch.len();
        if self.since >= CHUNK.min(self.window) {
            self.since = 0;
            self.rounds_while_possible(false, out);
        }
    }

    /// A thread that is alone so far has made so many accesses.
    pub(super) fn made_alone(&mut self, thread: u16, accesses: u64) {
        let lane = self.lane(thread);
        lane.begun = true;
        lane.came += accesses;
        lane.went = lane.came;
        lane.told = lane.came;
    }

    /// Hands out the rest.
    pub(super) fn finish(&mut self, mut out: impl FnMut(&[T])) {
        self.rounds_while_possible(true, &mut out);
        self.end_lines(|_| true);
        out(&self.batch);
        self.batch.clear();
    }

    /// How many accesses at the front are of this thread and nobody's business.
    fn plain(&self, batch: &[T], thread: u16) -> usize {
        let plain = |access: &T| access.thread() == thread && !access.orders();
        let end = if self.joins.is_empty() {
            batch.iter().position(|access| !plain(access))
        } else {
            let may_join = |access: &T| self.maybe_join.holds(access.address());
            batch
                .iter()
                .position(|access| !plain(access) || may_join(access))
        };
        end.unwrap_or(batch.len())
    }

    fn lane(&mut self, thread: u16) -> &mut Lane<T> {
        let index = usize::from(thread);
        if self.lanes.len() <= index {
            self.lanes.resize_with(index + 1, Lane::new);
        }
        &mut self.lanes[index]
    }

    /// The access of this number of `lane` needs this.
    fn need(&mut self, lane: u16, number: u64, point: Point) {
        let done = point.lane == lane
            || self
                .lanes
                .get(usize::from(point.lane))
                .is_none_or(|other| other.went >= point.count);
        if !done {
            let lane = &mut self.lanes[usize::from(lane)];
            lane.needs.push_back((number, point));
        }
    }

    /// Takes an access that may have to do with other threads. Its lane is there.
    fn take(&mut self, access: &T) {
        let thread = access.thread();
        let lane = &mut self.lanes[usize::from(thread)];
        lane.begun = true;
        lane.away = false;
        let number = lane.came + u64::from(access.before());
        if access.orders() {
            let point = Point {
                lane: thread,
                count: number + 1,
            };
            if let Some(before) = self.last.insert(access.address() >> 3, point) {
                self.need(thread, number, before);
            }
            if self.last.len() >= self.last_limit {
                self.forget();
            }
        }
        self.join(thread, number, access.address());
        self.lanes[usize::from(thread)].push(access);
    }

    /// Drops what nobody can be held back by any more.
    fn forget(&mut self) {
        let lanes = &self.lanes;
        self.last
            .retain(|_, point| lanes[usize::from(point.lane)].went < point.count);
        self.last_limit = (self.last.len() * 2).max(1 << 16);
    }

    fn join(&mut self, thread: u16, number: u64, address: u64) {
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
            self.need(thread, number, point);
            self.joins.remove(&address);
        }
    }

    /// Makes rounds while every thread that is to be waited for has something, or there is too much
    /// to keep; with `all` until nothing is left.
    fn rounds_while_possible(&mut self, all: bool, mut out: impl FnMut(&[T])) {
        let low = if all { 0 } else { self.window / 2 };
        let mut forcing = all;
        self.impatient = all;
        loop {
            let waiting = !self.expected.is_empty()
                || self
                    .lanes
                    .iter()
                    .any(|lane| lane.begun && !lane.ended && !lane.away && lane.is_done());
            if self.lanes.iter().all(Lane::is_done)
                || (waiting && self.kept < self.window && !(forcing && self.kept > low))
            {
                break;
            }
            let before = self.round;
            let force = waiting && !all;
            forcing |= force;
            let mut rounds = if force && self.expect_nobody() {
                // Whether the next one has to be forced is another question.
                0
            } else {
                self.alike()
            };
            if force && rounds > 0 {
                // Until no more has to be forced.
                let surplus = self.kept.saturating_sub(low).div_ceil(self.going.len());
                rounds = rounds.min(surplus.max(1));
            }
            if rounds > 0 {
                self.make_rounds(rounds, &mut out);
            } else {
                self.make_round(&mut out);
            }
            if force {
                self.forced += self.round - before;
            }
            if std::mem::take(&mut self.awaits) {
                if self.kept < self.window {
                    break;
                }
                self.impatient = true;
            }
        }
        if !self.batch.is_empty() {
            out(&self.batch);
            self.batch.clear();
        }
    }

    /// Gives those up who are expected or will be back: they will not come, or too late. Whether
    /// there were any.
    fn expect_nobody(&mut self) -> bool {
        let mut any = !self.expected.is_empty();
        self.expected.clear();
        for lane in &mut self.lanes {
            any |= lane.returning;
            lane.away |= std::mem::take(&mut lane.returning);
        }
        any
    }

    /// How many rounds from here on will be made by the same lanes, in which nobody comes to
    /// something that it needs, or is freed from it; notes those lanes. 0 if the next one has to be
    /// looked at lane by lane.
    fn alike(&mut self) -> usize {
        let mut rounds = usize::MAX;
        let mut going = std::mem::take(&mut self.going);
        going.clear();
        for index in 0..self.lanes.len() {
            let lane = &self.lanes[index];
            if lane.is_done() {
                continue;
            }
            // How far away is the farthest of what it needs now? A lane goes a step a round at most,
            // and one that stands before this one frees it in the round of its last step.
            let missing = lane
                .needs
                .iter()
                .take_while(|&&(number, _)| number <= lane.went)
                .map(|&(_, point)| {
                    let went = self.lanes[usize::from(point.lane)].went;
                    point.count.saturating_sub(went)
                })
                .max();
            if let Some(missing @ 1..) = missing {
                rounds = rounds.min(missing as usize - 1);
                continue;
            }
            let lane = &mut self.lanes[index];
            lane.drop_needs();
            let next_need = lane.needs.front().map_or(u64::MAX, |&(number, _)| number);
            rounds = rounds.min((lane.came.min(next_need) - lane.went) as usize);
            going.push((index, lane.next_in()));
        }
        let any = !going.is_empty();
        self.going = going;
        if any { rounds } else { 0 }
    }

    /// Makes rounds that are [`alike`](Self::alike).
    fn make_rounds(&mut self, rounds: usize, out: &mut impl FnMut(&[T])) {
        let mut going = std::mem::take(&mut self.going);
        for &(index, _) in &going {
            self.lanes[index].going = true;
        }
        let mut rounds = rounds as u64;
        'turns: while let Some(turn) = going.iter().map(|&(_, next)| next).min()
            && turn < rounds
        {
            self.turn = turn;
            for (index, next) in &mut going {
                while *next <= turn {
                    if !self.hand_out(*index, self.round + turn) {
                        rounds = turn;
                        break 'turns;
                    }
                    *next = self.lanes[*index].next_in();
                }
            }
            if std::mem::take(&mut self.runs_changed) {
                for (index, next) in &mut going {
                    *next = self.lanes[*index].next_in();
                }
            }
            if self.batch.len() >= BATCH {
                out(&self.batch);
                self.batch.clear();
            }
        }
        for &(index, _) in &going {
            let lane = &mut self.lanes[index];
            lane.going = false;
            if rounds > 0 {
                lane.goes(self.round, rounds);
            }
        }
        self.turn = 0;
        self.going = going;
        self.round += rounds;
    }

    /// Hands out the next access of a lane, in `round`, or gives it its next line; `false` if it has to wait.
    fn hand_out(&mut self, index: usize, round: u64) -> bool {
        let asker = index as u16;
        let lane = &self.lanes[index];
        if let Some(&(number, again)) = lane.own_again.front()
            && number <= lane.went + self.turn
        {
            let has = self.has_again(asker, again, round);
            if has {
                self.lanes[index].own_again.pop_front();
                self.own_again -= 1;
            }
            return has;
        }
        let wanted = |access: &T| access.chosen() || self.everything;
        let next = lane.peek().filter(wanted);
        if let Some(access) = &next
            && !self.own.is_empty()
        {
            let lines = [access.address(), access.last_byte()].map(|it| it >> LINE_BITS);
            // Others are told only of lines that are not the thread's own.
            let may_own = access.orders() || lines[0] != lines[1];
            if !self.meet(asker, lines[0], round, may_own)
                || lines[0] != lines[1] && !self.meet(asker, lines[1], round, may_own)
            {
                return false;
            }
        }
        let lane = &mut self.lanes[index];
        let queued = lane.queue.len();
        let access = lane.hand_out(round);
        self.kept -= queued - lane.queue.len();
        if next.is_some() {
            self.batch.extend(access);
        }
        true
    }

    fn make_round(&mut self, out: &mut impl FnMut(&[T])) {
        for index in 0..self.lanes.len() {
            let lane = &self.lanes[index];
            let held = lane
                .needs
                .iter()
                .take_while(|&&(number, _)| number <= lane.went)
                .any(|&(_, point)| self.lanes[usize::from(point.lane)].went < point.count);
            if held {
                continue;
            }
            let lane = &mut self.lanes[index];
            if lane.is_done() {
                continue;
            }
            lane.drop_needs();
            let mut goes = true;
            while goes && self.lanes[index].next_in() == 0 {
                goes = self.hand_out(index, self.round);
            }
            if goes {
                self.lanes[index].goes(self.round, 1);
            }
        }
        if self.batch.len() >= BATCH {
            out(&self.batch);
            self.batch.clear();
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
        let came = lane.came;
        lane.away = false;
        lane.returning = false;
        let (waits, clears) = (lane.waits, lane.clears);
        let making = std::mem::take(&mut lane.making);
        lane.waits = 0;
        lane.clears = 0;
        if making && (result as i64) > 0 {
            let is_it = |lane: &Lane<T>| lane.tid == result || lane.tid_here == result;
            let begun = |lane: &Lane<T>| is_it(lane) && lane.begun && !lane.ended;
            if !self.lanes.iter().any(begun) && self.has_room(self.expected.len()) {
                self.expected.insert(result);
            }
        }
        if clears != 0 && (result as i64) > 0 && self.has_room(self.joins.len()) {
            self.joins.insert(clears, result);
            self.maybe_join.add(clears);
        }
        if waits != 0 {
            if let Some(&wake) = self.wakes.get(&waits) {
                self.need(thread, came, wake);
            }
            self.join(thread, came, waits);
        }
    }

    /// Whether one more can wait beside so many; counts it as dropped if not.
    fn has_room(&mut self, waiting: usize) -> bool {
        let has = waiting < MOST_WAITING;
        self.dropped += u64::from(!has);
        has
    }

    /// Takes an event that lies between the accesses before and those to come.
    pub(super) fn event(&mut self, event: &TracedEvent) {
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
                lane.tid_here = event.a >> 32;
                // Who made it in another namespace was told the other number.
                self.expected.remove(&event.b);
                self.expected.remove(&(event.a >> 32));
                for index in 0..self.lanes.len() {
                    let made = self.lanes[index].made;
                    if made > 0 {
                        let lane = index as u16;
                        self.need(thread, came, Point { lane, count: made });
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
                if self.wakes.len() >= self.wakes_limit {
                    let lanes = &self.lanes;
                    self.wakes
                        .retain(|_, point| lanes[usize::from(point.lane)].went < point.count);
                    self.wakes_limit = (self.wakes.len() * 2).max(1 << 16);
                }
                if self.has_room(self.wakes.len()) {
                    self.wakes.insert(event.a, here);
                }
            }
            // The thread goes on as another, or without being seen.
            EventKind::ExecTraced => self.lane(thread).ended = true,
            EventKind::ExecUntraced => self.lane(thread).away = true,
            EventKind::Passed => {
                let lane = self.lane(thread);
                lane.begun = true;
                lane.away = false;
                lane.came += event.a;
            }
            EventKind::OwnAgain if self.own_lines.is_some() => {
                let (line, first) = (event.a >> LINE_BITS, event.b);
                let again = OwnAgain { line, first };
                if self.has_room(self.own_again) {
                    self.own_again += 1;
                    self.lane(thread).own_again.push_back((came, again));
                }
            }
            // Comes as a handover.
            EventKind::Taken | EventKind::Heap | EventKind::OwnAgain => {}
        }
    }
}
