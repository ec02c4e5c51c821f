//! Hubench and Lubench (SAM, sections 2.1 and 4.1): two threads that share data, with more or less computation between
//! two accesses.
//!
//! ```text
//! loop: before = swap(line chosen at random, me); moved if before != me; compute, beginning with what was read
//! ```
//!
//! A core that has a line keeps it for several accesses while the other's request waits, and the more so the farther the
//! other is: with one shared line, distance would make fewer events of the same loop. So there are 64 lines, and about
//! every second access finds the other's value. Each line is alone on its pair of lines: nothing is shared falsely.
//! The computation needs the value that was read, so that it cannot hide the transfer.

use super::error::CalibrateError;
use super::pairs::{Distance, Pair};
use super::together::{Ran, together, waited_percent};
use crate::worker::{Line, NOBODY, Random, Stop};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Lines that the two share: a power of two.
const LINES: usize = 64;
/// Iterations between two looks at the flag that ends the run.
const CHUNK: u64 = 16;

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    iterations: u64,
    /// Accesses that found what the other had written: a line came, which is a coherence event.
    moved: u64,
}

/// Rates of a run, the mean of its two threads, per second of their CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    pub(super) iterations_per_s: f64,
    pub(super) events_per_s: f64,
}

/// Lines alone.
fn board() -> Vec<Line> {
    (0..LINES).map(|_| Line::new(NOBODY)).collect()
}

#[inline(never)]
fn contend(lines: &[Line], me: u64, steps: u64, stop: &Stop) -> Counts {
    let mut random = Random::new(me, me as usize);
    let mut counts = Counts {
        iterations: 0,
        moved: 0,
    };
    let mut private = me;
    while !stop.0.load(Ordering::Relaxed) {
        for _ in 0..CHUNK {
            let line = &lines[(random.next() >> 32) as usize % LINES];
            let before = line.words[0].swap(me, Ordering::AcqRel);
            counts.moved += u64::from(before != me);
            private = compute(private.wrapping_add(before), steps);
        }
        counts.iterations += CHUNK;
    }
    std::hint::black_box(private);
    counts
}

/// So many steps, each of which needs the one before.
#[inline(always)]
fn compute(mut value: u64, steps: u64) -> u64 {
    for _ in 0..steps {
        value = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
    }
    // A loop that is a formula would otherwise be one.
    std::hint::black_box(value)
}

/// What a step of the computation takes on this CPU, ns: the shortest of some looks.
pub(super) fn step_ns(cpu: u32) -> Result<f64, CalibrateError> {
    const STEPS: u64 = 200_000;
    const LOOKS: usize = 5;
    let look = || {
        let begin = Instant::now();
        compute(begin.elapsed().as_nanos() as u64, STEPS);
        begin.elapsed().as_nanos() as f64 / STEPS as f64
    };
    let ran = together(vec![(cpu, ())], 0.0, |(), _| {
        (0..LOOKS).map(|_| look()).fold(f64::INFINITY, f64::min)
    })?;
    Ok(ran.first().map_or(1.0, |it| it.made).max(0.01))
}

/// Lets two threads share (or not) for `seconds`, with so many steps of computation between two accesses; their rates,
/// and the share of the time that they waited for CPUs, in percent.
pub(super) fn share(pair: Pair, steps: u64, seconds: f64) -> Result<(Rates, f64), CalibrateError> {
    let boards = [board(), board()];
    let of = |index: usize| match pair.distance {
        Distance::Unshared => &boards[index],
        _ => &boards[0],
    };
    let tasks = [0, 1].map(|index| (pair.cpus[index], (of(index), index as u64)));
    let ran = together(tasks.into(), seconds, |(lines, me), stop| {
        contend(lines, me, steps, stop)
    })?;
    Ok((rates(&ran), waited_percent(&ran)))
}

fn rates(ran: &[Ran<Counts>]) -> Rates {
    let seconds = ran.iter().map(|it| it.cpu_ns).sum::<u64>() as f64 / 1e9;
    let sum = |what: fn(&Counts) -> u64| ran.iter().map(|it| what(&it.made)).sum::<u64>() as f64;
    Rates {
        iterations_per_s: sum(|it| it.iterations) / seconds,
        events_per_s: sum(|it| it.moved) / seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_thread_alone_moves_each_line_once() {
        let stop = Stop(AtomicBool::new(false));
        let lines = board();
        let counts = std::thread::scope(|scope| {
            let alone = scope.spawn(|| contend(&lines, 1, 10, &stop));
            std::thread::sleep(std::time::Duration::from_millis(5));
            stop.0.store(true, Ordering::Relaxed);
            alone.join().unwrap()
        });
        assert!(counts.moved <= LINES as u64, "{counts:?}");
        assert!(counts.iterations >= CHUNK);
    }

    #[test]
    fn rates_are_of_cpu_time_and_of_one_thread() {
        let thread = |iterations, moved, cpu_ns| Ran {
            made: Counts { iterations, moved },
            cpu_ns,
            waited_ns: 0,
            wall_ns: cpu_ns * 2,
        };
        let rates = rates(&[thread(100, 40, 500), thread(300, 60, 1500)]);
        assert!((rates.iterations_per_s - 400.0 / 2e-6).abs() < 1.0);
        assert!((rates.events_per_s - 100.0 / 2e-6).abs() < 1.0);
    }

    #[test]
    fn more_steps_take_more_time() {
        let cpu = linewise_machine::affinity::allowed_cpus();
        let Some(&cpu) = cpu.first() else { return };
        let step_ns = step_ns(cpu).unwrap();
        assert!(step_ns > 0.0 && step_ns.is_finite());
    }
}
