//! The bulletin board: recently sampled accesses, and which thread to watch for which of them.
//!
//! After ComDetective (algorithm 1): a sample publishes the line that it touched; another thread
//! is watched for that line. Two things differ, because the samples are of time, not of accesses.
//! Loads are published too: a core that waits for a line that others write waits in its loads, and
//! the stores that cause it may never be sampled. And the choice prefers lines that two threads
//! were already seen at, so that the watches gather where the lost time is.

use std::collections::{HashMap, VecDeque};

use linewise_recording::{Address, CpuId, Operation, Pid, Tid, Time};

use linewise_cache::Chance;

/// Accesses kept to choose from.
const RECENT: usize = 512;
/// An access older than this no longer says where its thread is.
const FRESH_NS: u64 = 20_000_000;
/// Lines remembered; the oldest half goes when there are more.
const LINES: usize = 8192;
/// Threads remembered for a line.
const VISITORS: usize = 64;
/// How often a line that only one thread was seen at is watched, against one of several.
const CURIOSITY: f64 = 0.25;
/// How often any thread is watched rather than one that was seen at the line.
const STRANGER: f64 = 0.3;

/// A published access. Process and address are the home of what it touched, where processes share it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Published {
    pub time: Time,
    pub pid: Pid,
    pub tid: Tid,
    pub cpu: CpuId,
    pub address: Address,
    /// Where its process has that.
    pub at: Address,
    pub size: u32,
    pub operation: Operation,
}

/// A thread that was seen at a line.
#[derive(Clone, Copy, Debug)]
struct Visitor {
    tid: Tid,
    /// The chunks that it touched.
    chunks: u8,
    /// Where its process has the line: that may have it more than once.
    at: Address,
}

/// What is known of a line.
#[derive(Debug, Default)]
struct Line {
    /// Threads seen at it.
    visitors: Vec<Visitor>,
    last: Time,
}

/// The board.
#[derive(Debug)]
pub(crate) struct Board {
    line_size: u64,
    recent: VecDeque<Published>,
    lines: HashMap<(Pid, Address), Line>,
}

/// A thread to watch for a published access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub published: Published,
    pub watched: Tid,
    /// Chunks of the line that the thread was seen to touch.
    pub known_chunks: u8,
    /// Where the thread was seen to have the line.
    pub at: Option<Address>,
}

/// The chunks (8 bytes each) of its line that an access touches, as a mask. What lies on the next
/// line is left out.
pub(crate) fn chunk_mask(address: Address, size: u32, line_size: u64) -> u8 {
    let offset = address.0 - address.line(line_size).0;
    let first = offset / 8;
    let last = (offset + u64::from(size.max(1)) - 1).min(line_size - 1) / 8;
    (first..=last)
        .filter(|&chunk| chunk < 8)
        .fold(0, |mask, chunk| mask | (1 << chunk))
}

impl Board {
    pub(crate) fn new(line_size: u64) -> Self {
        Self {
            line_size,
            recent: VecDeque::new(),
            lines: HashMap::new(),
        }
    }

    /// Publishes a sampled access.
    pub(crate) fn publish(&mut self, access: Published) {
        let home = (access.pid, access.address);
        self.visit(access.tid, home, access.at, access.size, access.time);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(access);
    }

    /// Notes that a thread was seen at a line, by a sample or by a trap: `at` is where its process has the first byte with
    /// that home.
    pub(crate) fn visit(
        &mut self,
        tid: Tid,
        (pid, address): (Pid, Address),
        at: Address,
        size: u32,
        time: Time,
    ) {
        if self.lines.len() >= LINES {
            let mut times: Vec<Time> = self.lines.values().map(|line| line.last).collect();
            let middle = times.len() / 2;
            let (_, &mut cut, _) = times.select_nth_unstable(middle);
            self.lines.retain(|_, line| line.last > cut);
        }
        let mask = chunk_mask(address, size, self.line_size);
        let line = self
            .lines
            .entry((pid, address.line(self.line_size)))
            .or_default();
        line.last = line.last.max(time);
        let room = line.visitors.len() < VISITORS;
        let at = at.line(self.line_size);
        match line.visitors.iter_mut().find(|it| it.tid == tid) {
            Some(visitor) => {
                visitor.chunks |= mask;
                visitor.at = at;
            }
            None if room => line.visitors.push(Visitor {
                tid,
                chunks: mask,
                at,
            }),
            None => {}
        }
    }

    /// Chooses a thread to watch: `active` are the threads that ran lately of the processes that have the byte with that
    /// home, and `free` says whether a thread's debug registers are.
    pub(crate) fn choose(
        &mut self,
        now: Time,
        chance: &mut Chance,
        active: impl Fn((Pid, Address)) -> Vec<Tid>,
        free: impl Fn(Tid) -> bool,
    ) -> Option<Choice> {
        while self
            .recent
            .front()
            .is_some_and(|first| now.since(first.time) > FRESH_NS)
        {
            self.recent.pop_front();
        }
        for _ in 0..8 {
            let published = *self.recent.get(chance.below(self.recent.len()))?;
            let line = self
                .lines
                .get(&(published.pid, published.address.line(self.line_size)));
            let visitors = line.map_or(&[][..], |line| &line.visitors).iter();
            let visitors: Vec<Visitor> = visitors
                .filter(|it| it.tid != published.tid)
                .copied()
                .collect();
            if visitors.is_empty() && !chance.happens(CURIOSITY) {
                continue;
            }
            let threads = active((published.pid, published.address));
            let seen: Vec<Tid> = visitors
                .iter()
                .map(|it| it.tid)
                .filter(|&tid| threads.contains(&tid) && free(tid))
                .collect();
            let others: Vec<Tid> = threads
                .into_iter()
                .filter(|&tid| tid != published.tid && free(tid))
                .collect();
            let pool = if seen.is_empty() || chance.happens(STRANGER) {
                &others
            } else {
                &seen
            };
            let Some(&watched) = pool.get(chance.below(pool.len())) else {
                continue;
            };
            let visitor = visitors.iter().find(|it| it.tid == watched);
            return Some(Choice {
                published,
                watched,
                known_chunks: visitor.map_or(0, |it| it.chunks),
                at: visitor.map(|it| it.at),
            });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(tid: u32, address: u64, time: u64) -> Published {
        Published {
            time: Time(time),
            pid: Pid(1),
            tid: Tid(tid),
            cpu: CpuId(0),
            address: Address(address),
            at: Address(address),
            size: 8,
            operation: Operation::Store,
        }
    }

    #[test]
    fn an_access_covers_the_chunks_that_it_touches_and_no_others() {
        assert_eq!(chunk_mask(Address(0x1000), 8, 64), 0b1);
        assert_eq!(chunk_mask(Address(0x1004), 8, 64), 0b11);
        assert_eq!(
            chunk_mask(Address(0x103c), 8, 64),
            0b1000_0000,
            "the next line is left out"
        );
        assert_eq!(chunk_mask(Address(0x1000), 64, 64), 0xff);
    }

    #[test]
    fn a_thread_is_never_watched_for_its_own_access() {
        let mut board = Board::new(64);
        let mut chance = Chance::seeded(3);
        for i in 0..100 {
            board.publish(access(10, 0x1000 + i, 1));
        }
        let only_me = |_| vec![Tid(10)];
        for _ in 0..100 {
            assert_eq!(board.choose(Time(2), &mut chance, only_me, |_| true), None);
        }
    }

    #[test]
    fn lines_of_two_threads_come_first_and_stale_accesses_not_at_all() {
        let mut board = Board::new(64);
        let mut chance = Chance::seeded(5);
        for i in 0..50 {
            board.publish(access(10, 0x9000 + 64 * i, 1_000));
        }
        board.publish(access(10, 0x1000, 1_000));
        let home = (Pid(1), Address(0x1010));
        board.visit(Tid(11), home, Address(0x5010), 8, Time(1_000));
        let both = |_| vec![Tid(10), Tid(11)];
        let contested = (0..300)
            .filter_map(|_| board.choose(Time(2_000), &mut chance, both, |_| true))
            .filter(|choice| choice.published.address == Address(0x1000))
            .inspect(|choice| assert_eq!(choice.known_chunks, 0b100))
            .inspect(|choice| assert_eq!(choice.at, Some(Address(0x5000))))
            .count();
        assert!(
            contested > 12,
            "one of 51 accesses, chosen {contested} times of 300"
        );
        assert_eq!(
            board.choose(Time(FRESH_NS * 2), &mut chance, both, |_| true),
            None
        );
    }

    #[test]
    fn a_thread_without_free_debug_registers_is_not_chosen() {
        let mut board = Board::new(64);
        board.publish(access(10, 0x1000, 1));
        let none = board.choose(
            Time(2),
            &mut Chance::seeded(1),
            |_| vec![Tid(10), Tid(11)],
            |_| false,
        );
        assert_eq!(none, None);
    }
}
