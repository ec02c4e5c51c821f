//! The budget: how often to sample and to watch so that the target loses no more than it was told.
//!
//! The user gives a share of the target's CPU time. Samples get a fixed part of it, since their
//! period is fixed when they are opened; watches get what is left after what the collector itself
//! uses, and their rate follows what they and the collector were seen to cost.

use linewise_machine::probe::{SkidProbe, WatchpointCosts};
use linewise_recording::{Overhead, Time};

/// The part of the budget that goes into samples.
pub(crate) const SAMPLE_PART: f64 = 0.3;
/// Samples a second of thread time, at least and at most: below, a short run says nothing; above,
/// more samples say nothing new.
const SAMPLE_RATES: std::ops::RangeInclusive<f64> = 50.0..=4000.0;

/// What a sample, or a watch, costs a target that works in turns with others, in those of a busy loop: who waits for the
/// interrupted thread goes to sleep meanwhile. With nothing but timers of 300 a second on two CPUs memcached
/// under load lost 2.4 to 3.3 %, 80 to 110 µs each; of 150 a second 0.4 to 1.5 %. Here a loop lost 20.
const IN_TURNS: f64 = 4.0;

/// What a thread loses while watchpoints are armed in it that nothing touches, as a share of its time:
/// measured with `perf stat` on `zstd -T2` on a virtual machine of an Intel processor (2.5 %; nothing on
/// loops of few instructions).
const ARMED: f64 = 0.025;

/// The part of what is left for watches that breakpoints for the addresses of samples may take.
const HALF: f64 = 0.5;

/// The deepest debt, in watches: a collector that is too expensive still looks around now and then.
const DEBT: f64 = 50.0;

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Share of the target's CPU time, 0.02 is 2 %.
    pub overhead: f64,
    /// Samples a second of thread time, overriding the budget's choice.
    pub rate: Option<f64>,
}

impl Limits {
    /// Samples a second of thread time where one costs `sample_ns`.
    fn samples_per_second(&self, sample_ns: f64) -> f64 {
        self.rate.unwrap_or_else(|| {
            let rate = self.overhead * SAMPLE_PART * 1e9 / sample_ns;
            rate.clamp(*SAMPLE_RATES.start(), *SAMPLE_RATES.end())
        })
    }

    /// Thread time between two samples, ns, where one costs `sample_ns`.
    pub(crate) fn period_ns(&self, sample_ns: f64) -> u64 {
        (1e9 / self.samples_per_second(sample_ns)) as u64
    }
}

/// What was measured about this machine before the recording began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Of a sample.
    pub skid: SkidProbe,
    /// Of watching, where that is possible.
    pub watchpoints: Option<WatchpointCosts>,
    /// Of a switch between threads that are sampled, in addition to what it costs anyway, ns.
    pub switch_ns: f64,
    /// Of a switch from or to a thread in which all watchpoints are armed, likewise, ns.
    pub armed_switch_ns: f64,
}

/// Spends the budget.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    sample_ns: f64,
    /// What a sample costs now, ns.
    price_ns: f64,
    watch: Option<WatchpointCosts>,
    armed_switch_ns: f64,
    samples_per_second: f64,
    /// What may still be spent on watches, in ns of target time; negative after an overdraft.
    purse_ns: f64,
    spent_ns: f64,
    /// Of it on breakpoints for the addresses of samples, and what these may have taken: half of what there was.
    addresses_ns: f64,
    for_addresses_ns: f64,
    sampled_ns: f64,
    watches: u64,
    last: Time,
    start: Time,
}

impl Budget {
    /// A budget from what a sample and a watchpoint were measured to cost here; a sample comes every
    /// `period_ns` of thread time.
    pub(crate) fn new(limits: Limits, costs: &Costs, period_ns: u64, now: Time) -> Self {
        Self {
            limits,
            sample_ns: costs.skid.sample_ns,
            price_ns: costs.skid.sample_ns,
            watch: costs.watchpoints,
            armed_switch_ns: costs.armed_switch_ns,
            samples_per_second: 1e9 / period_ns as f64,
            purse_ns: 0.0,
            spent_ns: 0.0,
            addresses_ns: 0.0,
            for_addresses_ns: 0.0,
            sampled_ns: 0.0,
            watches: 0,
            last: now,
            start: now,
        }
    }

    /// What was asked for.
    pub(crate) fn overhead(&self) -> f64 {
        self.limits.overhead
    }

    /// CPU time between two samples of a thread, ns.
    pub(crate) fn period_ns(&self) -> u64 {
        (1e9 / self.samples_per_second) as u64
    }

    /// Samples come with a shorter period from now on, ns.
    pub(crate) fn shorten_period(&mut self, period_ns: u64) {
        self.samples_per_second = 1e9 / period_ns as f64;
    }

    /// The target works in turns with others. The period at which it can be sampled, ns.
    pub(crate) fn period_in_turns_ns(&self) -> u64 {
        self.limits.period_ns(IN_TURNS * self.sample_ns)
    }

    /// Whether samples come with that period.
    pub(crate) fn samples_in_turns(&self) -> bool {
        self.price_ns > self.sample_ns
    }

    /// They do from now on.
    pub(crate) fn sample_in_turns(&mut self) {
        self.price_ns = IN_TURNS * self.sample_ns;
        self.samples_per_second = 1e9 / self.period_in_turns_ns() as f64;
    }

    /// What an interruption of a thread costs the target now, in what it takes from that thread.
    fn dearness(&self) -> f64 {
        self.price_ns / self.sample_ns
    }

    /// Whether the period is the budget's choice, rather than the user's.
    pub(crate) fn chooses_period(&self) -> bool {
        self.limits.rate.is_none()
    }

    /// A sample came that stands for `period_ns` of thread time; what it cost more than such a sample may, ns, which
    /// pauses have to pay for. Nothing where the period is the user's choice.
    pub(crate) fn sampled(&mut self, period_ns: u64) -> f64 {
        let may_ns = self.limits.overhead * SAMPLE_PART * period_ns as f64;
        let extra_ns = match self.chooses_period() {
            true => (self.price_ns - may_ns).max(0.0),
            false => 0.0,
        };
        self.sampled_ns += self.price_ns;
        self.purse_ns -= self.price_ns - extra_ns;
        self.for_addresses_ns -= HALF * (self.price_ns - extra_ns);
        extra_ns
    }

    /// What arming `shots` breakpoints as one group is expected to take from the target, ns.
    fn cost_ns(&self, shots: u32) -> f64 {
        let Some(watch) = self.watch else { return 0.0 };
        let step = (watch.watch_ns - watch.shot_ns) / f64::from(watch.count.max(2) - 1);
        self.dearness() * (watch.shot_ns + step.max(0.0) * f64::from(shots.max(1) - 1))
    }

    /// `shots` breakpoints were armed in a thread.
    pub(crate) fn armed(&mut self, shots: u32) {
        let cost = self.cost_ns(shots);
        self.spend(cost);
        self.watches += 1;
    }

    /// One breakpoint was armed for the address of a sample.
    pub(crate) fn armed_for_an_address(&mut self) {
        self.addresses_ns += self.cost_ns(1);
        self.armed(1);
    }

    /// What arming one breakpoint in a thread and taking it down takes from that thread, ns.
    pub(crate) fn arming_ns(&self) -> f64 {
        let cost = |watch: WatchpointCosts| (watch.shot_ns - watch.trap_ns).max(0.0);
        self.watch.map_or(0.0, cost)
    }

    /// What a trap takes from its thread, ns.
    pub(crate) fn trap_ns(&self) -> f64 {
        self.watch.map_or(0.0, |watch| watch.trap_ns)
    }

    /// What the target lost to watches so far, ns.
    pub(crate) fn watched_ns(&self) -> f64 {
        self.spent_ns
    }

    /// The target lost that much time to something else than samples.
    pub(crate) fn spend(&mut self, ns: f64) {
        self.purse_ns -= ns;
        self.spent_ns += ns;
    }

    /// Somebody with a part of the budget took `ns` from the target and `own_ns` of the collector's time that was in
    /// the target's way, and pays `due_ns` now; the rest later.
    pub(crate) fn spend_apart(&mut self, ns: f64, own_ns: f64, due_ns: f64) {
        self.spent_ns += ns;
        // The collector's time is taken as such, with the rest of it.
        self.purse_ns += own_ns - due_ns;
    }

    /// A watch of so many `shots` was taken down that had been armed for `ns` of its thread's time, during
    /// which the thread came to a CPU `stays` times.
    pub(crate) fn was_armed(&mut self, ns: u64, stays: f64, shots: u32) {
        let armed_ns = ARMED * ns as f64 + stays * self.armed_stay_ns(shots);
        self.spend(self.dearness() * armed_ns);
    }

    /// What each stay on a CPU costs a thread more while so many `shots` are armed in it, ns.
    pub(crate) fn armed_stay_ns(&self, shots: u32) -> f64 {
        let count = self.watch.map_or(1, |watch| watch.count.max(1));
        self.armed_switch_ns * f64::from(shots) / f64::from(count)
    }

    /// Time has passed: `thread_ns` of target CPU time and `collector_ns` of ours, of which
    /// `in_the_way` (0 to 1) was taken from the target because no other CPU was free.
    pub(crate) fn passed(&mut self, now: Time, thread_ns: u64, collector_ns: u64, in_the_way: f64) {
        let allowed = self.limits.overhead * thread_ns as f64;
        let left_ns = allowed - collector_ns as f64 * in_the_way;
        self.purse_ns += left_ns;
        self.for_addresses_ns += HALF * left_ns;
        // No hoarding: what a quiet second did not use must not become a burst.
        let watch_ns = self.watch.map_or(1.0, |watch| watch.watch_ns.max(1.0));
        self.purse_ns = self.purse_ns.clamp(-DEBT * watch_ns, 10.0 * watch_ns);
        self.last = now;
    }

    /// Whether another `shots` breakpoints can be paid for.
    pub(crate) fn affords(&self, shots: u32) -> bool {
        self.purse_ns >= self.cost_ns(shots) * 0.5
    }

    /// Whether a sample may have a breakpoint for its address: before another watch is armed, since a
    /// sample without an address was paid for in vain. But where most samples want one, half of the budget is
    /// left to the watches; more only if these leave it.
    pub(crate) fn affords_an_address(&self) -> bool {
        let watch_ns = self.cost_ns(self.watch.map_or(1, |watch| watch.count));
        let own = self.addresses_ns <= self.for_addresses_ns + watch_ns;
        (own && self.purse_ns >= -watch_ns) || self.purse_ns >= 2.0 * watch_ns
    }

    /// The account, for `run.json`.
    pub(crate) fn account(&self, thread_ns: u64, collector_ns: u64, in_the_way: f64) -> Overhead {
        let seconds = self.last.since(self.start) as f64 * 1e-9;
        let lost = self.sampled_ns + self.spent_ns + collector_ns as f64 * in_the_way;
        Overhead {
            budget: self.limits.overhead,
            estimated: if thread_ns > 0 {
                lost / thread_ns as f64
            } else {
                0.0
            },
            sample_ns: self.sample_ns,
            arm_ns: self.watch.map_or(0.0, |watch| watch.arm_ns),
            trap_ns: self.watch.map_or(0.0, |watch| watch.trap_ns),
            watch_ns: self.watch.map_or(0.0, |watch| watch.watch_ns),
            samples_per_second: self.samples_per_second,
            watches_per_second: if seconds > 0.0 {
                self.watches as f64 / seconds
            } else {
                0.0
            },
            collector_cpu_ns: collector_ns,
            collector_rss_bytes: linewise_machine::procfs::own_peak_resident_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linewise_machine::probe::SkidRule;

    fn budget(overhead: f64, rate: Option<f64>) -> Budget {
        let skid = SkidProbe {
            rule: SkidRule::Next,
            agreement: 1.0,
            samples: 1,
            sample_ns: 10_000.0,
        };
        let watch = WatchpointCosts {
            count: 4,
            arm_ns: 15_000.0,
            trap_ns: 25_000.0,
            exposure_offset_ns: 0.0,
            trap_delay_ns: 0.0,
            shot_ns: 30_000.0,
            watch_ns: 60_000.0,
        };
        let costs = Costs {
            skid,
            watchpoints: Some(watch),
            switch_ns: 2_500.0,
            armed_switch_ns: 5_000.0,
        };
        let limits = Limits { overhead, rate };
        Budget::new(limits, &costs, limits.period_ns(skid.sample_ns), Time(0))
    }

    #[test]
    fn a_larger_budget_samples_more_often_and_a_rate_overrides_it() {
        let period_ns = |overhead, rate| Limits { overhead, rate }.period_ns(10_000.0);
        assert!(period_ns(0.05, None) < period_ns(0.01, None));
        assert_eq!(period_ns(0.05, Some(100.0)), 10_000_000);
    }

    #[test]
    fn a_target_that_works_in_turns_is_sampled_less_often_at_the_same_cost() {
        let mut budget = budget(0.02, None);
        let before = budget.limits.period_ns(budget.sample_ns);
        budget.sample_in_turns();
        let period_ns = budget.period_in_turns_ns();
        assert!(period_ns.abs_diff(4 * before) < 4, "{period_ns}");
        assert!(budget.sampled(period_ns) < 1.0);
        assert!((budget.sampled_ns - 4.0 * budget.sample_ns).abs() < 1.0);
    }

    #[test]
    fn a_watch_costs_a_target_that_works_in_turns_as_many_times_more_as_a_sample() {
        let spent_ns = |in_turns: bool| {
            let mut budget = budget(0.02, None);
            if in_turns {
                budget.sample_in_turns();
            }
            budget.armed(4);
            budget.was_armed(1_000_000, 3.0, 4);
            budget.watched_ns()
        };
        assert!((spent_ns(true) / spent_ns(false) - IN_TURNS).abs() < 1e-9);
    }

    #[test]
    fn an_address_is_looked_up_on_credit_where_a_watch_must_wait() {
        let mut budget = budget(0.02, None);
        budget.armed(4);
        assert!(!budget.affords(1) && budget.affords_an_address());
        budget.armed(1);
        assert!(!budget.affords_an_address());
    }

    #[test]
    fn addresses_leave_half_of_the_budget_to_the_watches() {
        let mut budget = budget(0.02, None);
        let mut armed = [0, 0];
        for tick in 1..2_000 {
            budget.passed(Time(tick * 5_000_000), 10_000_000, 0, 0.0);
            for _ in 0..10 {
                // Every sample wants its address, and a watch is armed where it can be paid for.
                if budget.affords_an_address() {
                    budget.armed_for_an_address();
                    armed[0] += 1;
                }
                if budget.affords(4) {
                    budget.armed(4);
                    armed[1] += 1;
                }
            }
        }
        let spent = [
            armed[0] as f64 * budget.cost_ns(1),
            armed[1] as f64 * budget.cost_ns(4),
        ];
        assert!((0.7..1.4).contains(&(spent[0] / spent[1])), "{spent:?}");
    }

    #[test]
    fn what_is_spent_over_a_run_stays_within_the_budget() {
        let mut budget = budget(0.02, None);
        let period_ns = budget.limits.period_ns(budget.sample_ns);
        let mut now = 0;
        for _ in 0..10_000 {
            now += 5_000_000;
            budget.passed(Time(now), 10_000_000, 20_000, 1.0);
            for _ in 0..10_000_000 / period_ns {
                budget.sampled(period_ns);
            }
            while budget.affords(4) {
                budget.armed(4);
            }
        }
        let account = budget.account(10_000 * 10_000_000, 10_000 * 20_000, 1.0);
        assert!(account.estimated <= 0.0205, "{account:?}");
        assert!(
            account.estimated >= 0.015,
            "the budget is used: {account:?}"
        );
    }
}
