//! What a line costs between CPUs, looked at again and again: in a virtual machine it changes
//! within a second, and what a sample says is divided by the latency of its moment.
//!
//! What can be is measured before the target runs, where it takes nothing from it: 7 ms each on two CPUs.
//! After that once a second and no more: where both CPUs are busy a glance takes some 1 ms of collector
//! time, since its two sides wait for each other, a measurement of all costs 14 ms, and one that fails
//! 40 ms in vain. So looks have a part of the budget, and come later where it does not pay for them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use linewise_machine::latency::LatencyError;
use linewise_recording::{CpuId, Latency, Time};

use crate::kernel::{Kernel, Machine, Machinery};

/// Time between two looks, and from the target's start to the first: what was measured before it may
/// have been another state.
const LOOK_NS: u64 = 1_000_000_000;
const FIRST_LOOK_NS: u64 = 100_000_000;
/// The part of the budget that looks get. What they did not use does not add up.
const PART: f64 = 0.2;
/// Rounds of a measurement beside the running target, and how long it may take.
const ROUNDS: u32 = 4;
const LIMIT: Duration = Duration::from_millis(20);
/// Rounds of a glance, and how much the round trip moves within one state.
const GLANCE_ROUNDS: usize = 4;
const CHANGE: f64 = 1.3;
/// All costs between two CPUs are measured until they were so often, and again at that age.
const MEASUREMENTS: usize = 3;
const AGE_NS: u64 = 5_000_000_000;
/// States of latency that are remembered of two CPUs.
const STATES: usize = 4;

/// What is known of two CPUs.
#[derive(Default)]
struct Pair {
    measurements: usize,
    /// The last measurement in each state, the oldest first.
    states: VecDeque<Latency>,
}

impl Pair {
    fn is_due(&self, now: Time) -> bool {
        let last = self.states.back().map(|state| state.time);
        self.measurements < MEASUREMENTS || last.is_none_or(|last| now.since(last) >= AGE_NS)
    }

    /// Where the state with this round trip stands in the list; of several the newest.
    fn state(&self, round_trip_ns: f64) -> Option<usize> {
        self.states.iter().rposition(|state| {
            let change = round_trip_ns / state.round_trip_ns;
            (1.0 / CHANGE..=CHANGE).contains(&change)
        })
    }

    fn remember(&mut self, row: Latency) {
        self.measurements += 1;
        if let Some(same) = self.state(row.round_trip_ns) {
            self.states.remove(same);
        } else if self.states.len() == STATES {
            self.states.pop_front();
        }
        self.states.push_back(row);
    }

    /// The costs that hold now, as far as a glance at the round trip can tell, which takes a tenth
    /// of the time of measuring them all.
    fn glance(&self, kernel: &impl Machinery, now: Time, cpus: (u32, u32)) -> Option<Latency> {
        let trip = kernel.round_trip(cpus, GLANCE_ROUNDS, LIMIT).ok()?;
        let state = &self.states[self.state(trip.median_ns)?];
        Some(Latency {
            time: now,
            round_trip_ns: trip.median_ns,
            ..state.clone()
        })
    }
}

/// The latencies seen so far, and whose turn it is.
#[derive(Default)]
pub(crate) struct Latencies {
    pairs: BTreeMap<(u32, u32), Pair>,
    next: Time,
    /// What looks took from the target and the budget has not yet paid for, ns.
    debt_ns: f64,
    turn: usize,
}

impl Latencies {
    /// What is measured before the target runs, as often as two CPUs want it at first. CPUs that are
    /// too busy now are looked at later.
    pub(crate) fn before_the_target(kernel: &impl Kernel) -> (Self, Vec<Latency>) {
        let mut latencies = Self::default();
        let rows = (0..MEASUREMENTS)
            .filter_map(|_| latencies.look_anyway(kernel, kernel.now()).ok().flatten())
            .collect();
        latencies.next = Time(kernel.now().0 + FIRST_LOOK_NS);
        (latencies, rows)
    }

    /// The whole budget grew by so much, ns.
    pub(crate) fn earn(&mut self, allowed_ns: f64) {
        self.debt_ns = (self.debt_ns - PART * allowed_ns).max(0.0);
    }

    /// Looks at the next two CPUs if it is time for it and paid for: what a line costs between them now.
    /// `in_the_way`: the share of the time for it, 0 to 1, that is taken from the target.
    ///
    /// # Errors
    /// If the CPUs were too busy, see [`LatencyError`].
    pub(crate) fn look(
        &mut self,
        kernel: &impl Kernel,
        now: Time,
        in_the_way: f64,
    ) -> Result<Option<Latency>, LatencyError> {
        if now < self.next || self.debt_ns > 0.0 {
            return Ok(None);
        }
        let before = kernel.own_cpu_time_ns();
        let looked = self.look_anyway(kernel, now);
        self.debt_ns = (kernel.own_cpu_time_ns() - before) as f64 * in_the_way;
        looked
    }

    /// Looks at the next two CPUs whether it is time or not.
    ///
    /// # Errors
    /// See [`LatencyError`].
    pub(crate) fn look_anyway(
        &mut self,
        kernel: &impl Machinery,
        now: Time,
    ) -> Result<Option<Latency>, LatencyError> {
        self.next = Time(now.0 + LOOK_NS);
        let allowed = kernel.allowed_cpus();
        if allowed.len() < 2 {
            return Ok(None);
        }
        let a = allowed[self.turn % allowed.len()];
        let b = allowed[(self.turn + 1) % allowed.len()];
        self.turn += 1;
        let cpus = (a.min(b), a.max(b));
        let pair = self.pairs.entry(cpus).or_default();
        if !pair.is_due(now)
            && let Some(row) = pair.glance(kernel, now, cpus)
        {
            return Ok(Some(row));
        }
        let row = measured_by(kernel, now, cpus)?;
        pair.remember(row.clone());
        Ok(Some(row))
    }
}

/// Measures what a line costs between two CPUs.
///
/// # Errors
/// See [`LatencyError`].
pub(crate) fn measured(time: Time, cpus: (u32, u32)) -> Result<Latency, LatencyError> {
    measured_by(&Machine, time, cpus)
}

fn measured_by(
    kernel: &impl Machinery,
    time: Time,
    (cpu_a, cpu_b): (u32, u32),
) -> Result<Latency, LatencyError> {
    let costs = kernel.line_costs((cpu_a, cpu_b), ROUNDS, LIMIT)?;
    Ok(Latency {
        time,
        cpu_a: CpuId(cpu_a),
        cpu_b: CpuId(cpu_b),
        round_trip_ns: costs.round_trip.median_ns,
        transfer_idle_ns: costs.transfer_idle_ns,
        transfer_busy_ns: costs.transfer_busy_ns,
        busy_share: costs.busy_share,
        transfer_crowded_ns: costs.transfer_crowded_ns,
        crowded_share: costs.crowded_share,
        transfer_saturated_ns: costs.transfer_saturated_ns,
        hit_ns: costs.hit_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(time: u64, round_trip_ns: f64) -> Latency {
        Latency {
            time: Time(time),
            cpu_a: CpuId(0),
            cpu_b: CpuId(1),
            round_trip_ns,
            transfer_idle_ns: round_trip_ns,
            transfer_busy_ns: round_trip_ns,
            busy_share: 0.5,
            transfer_crowded_ns: round_trip_ns,
            crowded_share: 0.9,
            transfer_saturated_ns: round_trip_ns,
            hit_ns: 5.0,
        }
    }

    #[test]
    fn states_are_told_apart_by_the_round_trip_and_the_oldest_is_forgotten() {
        let mut pair = Pair::default();
        for (time, trip) in [(1, 60.0), (2, 340.0), (3, 65.0)] {
            pair.remember(row(time, trip));
        }
        let time_of = |pair: &Pair, trip| pair.state(trip).map(|at| pair.states[at].time);
        assert_eq!(time_of(&pair, 58.0), Some(Time(3)));
        assert_eq!(time_of(&pair, 300.0), Some(Time(2)));
        assert_eq!(time_of(&pair, 150.0), None);
        for (time, trip) in [(4, 1000.0), (5, 3000.0), (6, 9000.0)] {
            pair.remember(row(time, trip));
        }
        assert_eq!(pair.states.len(), STATES);
        assert_eq!(time_of(&pair, 340.0), None);
        assert_eq!(time_of(&pair, 65.0), Some(Time(3)));
    }

    #[test]
    fn costs_are_measured_some_times_and_then_when_they_are_old() {
        let mut pair = Pair::default();
        for time in 1..=MEASUREMENTS as u64 {
            assert!(pair.is_due(Time(time)));
            pair.remember(row(time, 60.0));
        }
        assert!(!pair.is_due(Time(AGE_NS)));
        assert!(pair.is_due(Time(AGE_NS + MEASUREMENTS as u64)));
    }
}
