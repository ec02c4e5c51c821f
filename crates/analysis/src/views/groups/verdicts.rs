//! What is to be done with each group, and so with all.

use super::input::GroupsInput;
use super::rows::{GroupedThread, PlacementVerdict, ThreadGroup, ThreadGroups};
use crate::quantity::{Estimate, Interval};
use crate::views::run_coverage::{ENOUGH_SAMPLES, RunCoverage, may_meet};
use linewise_recording::SharedMemory;

/// A move that saves less than this of a group's time is within what moving costs.
const LEAST_GAIN: f64 = 0.005;
/// Threads that use less of a CPU do not count among those that a group leaves out.
const IDLE: f64 = 0.01;
/// A group with this share of all thread time is all of the program.
const NEARLY_ALL: f64 = 0.9;

impl ThreadGroups {
    /// Says what is to be done, and what each group gains by it.
    pub(super) fn judge(&mut self, input: &GroupsInput<'_>) {
        use PlacementVerdict as It;
        let everywhere = self.reason_to_stay(input);
        let without_place = match self.is_one_group() {
            true => It::AllWithAll,
            false => It::NoRoom,
        };
        for group in &mut self.groups {
            let gain = group.gain_there().unwrap_or_default();
            (group.gain, group.gain_interval) = (gain.value, gain.interval());
            group.verdict = everywhere.unwrap_or(match &group.place {
                None => without_place,
                Some(place) if place.is_there => It::AlreadyThere,
                Some(_) if group.is_worth_a_move() => It::Move,
                Some(_) => It::TooCheap,
            });
        }
        let is_any = |verdict: &It| self.groups.iter().any(|it| it.verdict == *verdict);
        let of_groups = [It::Move, It::TooCheap, It::AlreadyThere];
        let of_groups = of_groups.into_iter().find(is_any).unwrap_or(without_place);
        self.advice.verdict = everywhere.unwrap_or(of_groups);
    }

    /// Why nothing at all can be said or gained.
    fn reason_to_stay(&self, input: &GroupsInput<'_>) -> Option<PlacementVerdict> {
        use PlacementVerdict as It;
        if self.groups.is_empty() {
            let seen = (input.tables.samples.len() as u64) + input.sharing.lines.len() as u64;
            let times = input.tables.threads.iter().map(|it| it.cpu_time_ns);
            let is_thin = || {
                let shared = SharedMemory::of(&input.tables.maps);
                let coverage = RunCoverage::of(input.info, input.tables, &shared);
                self.threads.len() > 1
                    && (input.sharing.no_latency || coverage.is_little(may_meet(times)))
            };
            let little = input.info.exact.is_none() && (seen < ENOUGH_SAMPLES || is_thin());
            return Some(match little || self.threads.is_empty() {
                true => It::TooLittleSeen,
                false => It::NothingShared,
            });
        }
        if self.shape.llcs == Some(1) {
            return Some(It::OneLlc);
        }
        let is_unknown = input.machine.is_none() || self.shape.llcs.is_none();
        is_unknown.then_some(It::MachineUnknown)
    }

    /// Whether one group is all of the program.
    fn is_one_group(&self) -> bool {
        let all: f64 = self.threads.iter().map(|thread| thread.load).sum();
        self.groups.first().is_some_and(|first| {
            let outside = |it: &GroupedThread| it.group != Some(first.id) && it.load > IDLE;
            !self.threads.iter().any(outside) || first.load >= NEARLY_ALL * all
        })
    }
}

impl ThreadGroup {
    /// Whether more is shared in turns than moves.
    #[must_use]
    pub fn takes_turns(&self) -> bool {
        self.in_turns > self.transfers
    }

    /// The most that its transfers would cost anywhere.
    #[must_use]
    pub fn worst(&self) -> Estimate {
        let costs = self.elsewhere.iter();
        let worst = costs.max_by(|a, b| a.cost.total_cmp(&b.cost));
        worst.map_or(Estimate::default(), |it| Estimate {
            value: it.cost,
            low: it.interval.low,
            high: it.interval.high,
        })
    }

    /// What it would save at its place, as a share of its time; `None` where it has none, or is there.
    fn gain_there(&self) -> Option<Estimate> {
        let place = self.place.as_ref().filter(|place| !place.is_there)?;
        let mut elsewhere = self.elsewhere.iter();
        let there = elsewhere.find(|it| it.distance == place.distance)?;
        if self.takes_turns() {
            // Nothing is lost yet, but nothing keeps it from being parted.
            let worst = self.worst();
            return Some(Estimate {
                value: (worst.value - there.cost).max(0.0),
                low: 0.0,
                high: (worst.high - there.interval.low).max(0.0),
            });
        }
        // The same transfers cost it more or less here and there: beside them only the ratio of the ways is uncertain.
        let Interval { low, high } = self.cost_interval;
        let left = |there: f64, here: f64| if here > 0.0 { there / here } else { 0.0 };
        Some(Estimate {
            value: (self.cost - there.cost).max(0.0),
            low: (low * (1.0 - left(there.interval.high, high))).max(0.0),
            high: (high * (1.0 - left(there.interval.low, low))).max(0.0),
        })
    }

    /// Whether it saves enough; and, where transfers were seen, something for certain.
    fn is_worth_a_move(&self) -> bool {
        self.gain >= LEAST_GAIN && (self.takes_turns() || self.gain_interval.low > 0.0)
    }
}
