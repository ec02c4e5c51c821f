//! RIBench: streams of accesses whose reuse distances are known exactly.
//!
//! The reuse-invalidation benchmark of Sasongko, Chabbi, Marzijarani, Unat (ReuseTracker; listing
//! 6.1 and tables 6.4 to 6.7 of the thesis version). Each thread does, `outer` times, five loops
//! one after the other; each loop makes some passes, and each pass stores to all elements of an
//! array that all threads share, then goes through an array of the loop and the thread alone,
//! loading the even elements and storing to the odd ones.
//!
//! ```text
//! for _ in 0..outer
//!     for each of the five loops
//!         for _ in 0..passes
//!             for k in 0..shared: store shared[k]
//!             for k in (0..elements).step_by(2): load private[k]; store private[k + 1]
//! ```
//!
//! Here the threads go in lockstep, access by access, so everything about the stream is known, not
//! only what table 6.4 gives.

use super::histogram::Histogram;
use super::profile::Distances;
use crate::{Access, Kind};

/// Bytes of an element: the granularity at which the distances are known.
pub const ELEMENT_BYTES: u32 = 8;

/// One of the five loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Passes through the arrays (`a`, `b`, ... in the listing).
    pub passes: u64,
    /// Elements of the private array (`a1`, `b1`, ...); even.
    pub elements: u64,
}

/// What the benchmark can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Repetitions of all loops.
    pub outer: u64,
    /// The loops.
    pub loops: [Loop; 5],
    /// Elements of the shared array (`inv`).
    pub shared: u64,
}

/// A set of parameters of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The table: 5, 6 or 7 of chapter 6.
    pub table: u32,
    /// The name there.
    pub name: &'static str,
    /// The parameters.
    pub parameters: Parameters,
}

const fn case(
    table: u32,
    name: &'static str,
    passes: [u64; 5],
    elements: [u64; 5],
    shared: u64,
) -> Case {
    let mut loops = [Loop {
        passes: 0,
        elements: 0,
    }; 5];
    let mut index = 0;
    while index < 5 {
        loops[index] = Loop {
            passes: passes[index],
            elements: elements[index],
        };
        index += 1;
    }
    Case {
        table,
        name,
        parameters: Parameters {
            outer: 10,
            loops,
            shared,
        },
    }
}

const SHORT: [u64; 5] = [1_000, 2_000, 4_000, 8_000, 16_000];
const SHORT_2: [u64; 5] = [500, 1_500, 3_500, 7_500, 15_500];
const SHORT_3: [u64; 5] = [0, 1_000, 3_000, 7_000, 15_000];
const LONG: [u64; 5] = [100_000, 200_000, 400_000, 800_000, 1_600_000];
const LONG_2: [u64; 5] = [50_000, 150_000, 350_000, 750_000, 1_550_000];
const LONG_3: [u64; 5] = [0, 100_000, 300_000, 700_000, 1_500_000];
const BELL: [u64; 5] = [50, 40, 40, 10, 3];
const FALLING: [u64; 5] = [200, 60, 15, 4, 2];

/// Every parameter set of tables 6.5 (without invalidation), 6.6 (bell-shaped, more and more
/// invalidations) and 6.7 (decreasing, likewise).
pub const CASES: [Case; 20] = [
    case(5, "Short-RD Increasing", [20, 20, 20, 20, 20], SHORT, 0),
    case(5, "Short-RD Decreasing", FALLING, SHORT, 0),
    case(5, "Short-RD Bell-Shaped", BELL, SHORT, 0),
    case(5, "Short-RD Multi-Modal", [100, 30, 24, 8, 7], SHORT, 0),
    case(5, "Long-RD Increasing", [10, 10, 10, 10, 10], LONG, 0),
    case(5, "Long-RD Decreasing", [100, 30, 12, 5, 2], LONG, 0),
    case(5, "Long-RD Bell-Shaped", BELL, LONG, 0),
    case(5, "Long-RD Multi-Modal", [100, 30, 24, 8, 7], LONG, 0),
    case(6, "Short-RD Bell-Shaped Case 1", BELL, SHORT, 0),
    case(6, "Short-RD Bell-Shaped Case 2", BELL, SHORT_2, 1_000),
    case(6, "Short-RD Bell-Shaped Case 3", BELL, SHORT_3, 2_000),
    case(6, "Long-RD Bell-Shaped Case 1", BELL, LONG, 0),
    case(6, "Long-RD Bell-Shaped Case 2", BELL, LONG_2, 100_000),
    case(6, "Long-RD Bell-Shaped Case 3", BELL, LONG_3, 200_000),
    case(7, "Short-RD Decreasing Case 1", FALLING, SHORT, 0),
    case(7, "Short-RD Decreasing Case 2", FALLING, SHORT_2, 1_000),
    case(7, "Short-RD Decreasing Case 3", FALLING, SHORT_3, 2_000),
    case(7, "Long-RD Decreasing Case 1", FALLING, LONG, 0),
    case(7, "Long-RD Decreasing Case 2", FALLING, LONG_2, 100_000),
    case(7, "Long-RD Decreasing Case 3", FALLING, LONG_3, 200_000),
];

impl Parameters {
    /// The same pattern on arrays that are `divisor` times smaller (even numbers of elements).
    #[must_use]
    pub fn smaller(mut self, divisor: u64) -> Self {
        for each in &mut self.loops {
            each.elements = each.elements / divisor / 2 * 2;
        }
        self.shared /= divisor;
        self
    }

    /// Accesses of one thread in one repetition of all loops.
    fn of_one_repetition(&self) -> u64 {
        self.loops
            .iter()
            .map(|each| each.passes * (self.shared + each.elements))
            .sum()
    }

    /// Accesses in all.
    #[must_use]
    pub fn accesses(&self, threads: u16) -> u64 {
        u64::from(threads) * self.outer * self.of_one_repetition()
    }

    /// The stream, for 1 to 65,535 threads.
    #[must_use]
    pub fn stream(&self, threads: u16) -> Stream {
        let mut stream = Stream {
            parameters: *self,
            threads,
            thread: 0,
            repetition: 0,
            number: 0,
            pass: 0,
            step: 0,
        };
        stream.settle();
        stream
    }

    /// What the stream has at the granularity of [`ELEMENT_BYTES`], each thread by itself, all
    /// threads together: every distance of the listing in lockstep, cold touches and invalidations.
    ///
    /// Within a loop, an element comes back after one pass: `shared + elements - 1` accesses to as
    /// many elements in between. From a loop's last pass to its first one in the next repetition,
    /// everything else comes in between. The shared elements are invalidated each time, by the
    /// store of any other thread; a thread that is alone reuses them after one pass.
    #[must_use]
    pub fn expected(&self, threads: u16) -> Distances {
        let mut expected = Distances::default();
        if threads == 0 || self.outer == 0 {
            return expected;
        }
        let all = f64::from(threads);
        let mut add = |time: u64, stack: u64, count: u64| {
            if count > 0 {
                expected.time.add(time, all * count as f64);
                expected.stack.add(stack, all * count as f64);
            }
        };
        let run = self.loops.iter().filter(|each| each.passes > 0);
        let private: u64 = run.clone().map(|each| each.elements).sum();
        let passes: u64 = self.outer * run.clone().map(|each| each.passes).sum::<u64>();
        for each in run.clone() {
            let one_pass = self.shared + each.elements;
            let near = one_pass.saturating_sub(1);
            add(near, near, self.outer * (each.passes - 1) * each.elements);
            let far = self
                .of_one_repetition()
                .saturating_sub((each.passes - 1) * one_pass + 1);
            let others = (self.shared + private).saturating_sub(1);
            add(far, others, (self.outer - 1) * each.elements);
        }
        if threads == 1 {
            let last = run.clone().count().saturating_sub(1);
            for (number, each) in run.enumerate() {
                let near = (self.shared + each.elements).saturating_sub(1);
                let passes = self.outer * each.passes - u64::from(number == last);
                add(near, near, passes * self.shared);
            }
        }
        let shared = if passes > 0 { self.shared } else { 0 };
        let cold = all * (private + shared) as f64;
        let invalidated = if threads > 1 {
            all * (shared * passes.saturating_sub(1)) as f64
        } else {
            0.0
        };
        for histogram in [&mut expected.time, &mut expected.stack] {
            histogram.add_cold(cold);
            histogram.add_invalidated(invalidated);
        }
        expected
    }

    /// The reuses as table 6.4 counts them: the first pass of a loop as if it followed another one
    /// of the same loop. In units of accesses in between, as everywhere here.
    #[must_use]
    pub fn by_the_table(&self, threads: u16) -> Histogram {
        let mut histogram = Histogram::new();
        for each in &self.loops {
            let count = u64::from(threads) * self.outer * each.passes * each.elements;
            if count > 0 {
                histogram.add(self.shared + each.elements - 1, count as f64);
            }
        }
        histogram
    }
}

/// The accesses of RIBench. The site of an access is 3 times the number of its loop, plus 0 for
/// the store to the shared array, 1 for the load and 2 for the store of the private one.
#[derive(Clone, Debug)]
pub struct Stream {
    parameters: Parameters,
    threads: u16,
    thread: u16,
    repetition: u64,
    /// Of the loop.
    number: usize,
    pass: u64,
    /// Within the pass.
    step: u64,
}

impl Stream {
    fn pass_length(&self) -> u64 {
        self.parameters.shared + self.parameters.loops[self.number].elements
    }

    /// Goes on to the next place where there is something to do.
    fn settle(&mut self) {
        while self.repetition < self.parameters.outer {
            let each = self.parameters.loops[self.number];
            if self.pass < each.passes && self.step < self.pass_length() {
                return;
            }
            self.step = 0;
            self.pass += 1;
            if self.pass >= each.passes {
                self.pass = 0;
                self.number += 1;
            }
            if self.number == self.parameters.loops.len() {
                self.number = 0;
                self.repetition += 1;
            }
        }
    }
}

impl Iterator for Stream {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        if self.repetition >= self.parameters.outer || self.threads == 0 {
            return None;
        }
        let site = self.number as u32 * 3;
        let bytes = u64::from(ELEMENT_BYTES);
        let access = |address, kind, site| Access {
            address,
            size: ELEMENT_BYTES as u16,
            kind,
            thread: self.thread,
            site,
        };
        let access = if let Some(element) = self.step.checked_sub(self.parameters.shared) {
            let array = 1 << 45 | u64::from(self.thread) << 28 | (self.number as u64) << 25;
            let (kind, site) = if element % 2 == 0 {
                (Kind::Load, site + 1)
            } else {
                (Kind::Store, site + 2)
            };
            access(array + element * bytes, kind, site)
        } else {
            access(1 << 44 | (self.step * bytes), Kind::Store, site)
        };
        self.thread += 1;
        if self.thread == self.threads {
            self.thread = 0;
            self.step += 1;
            if self.step == self.pass_length() {
                self.settle();
            }
        }
        Some(access)
    }
}
