//! Pauses, for targets whose threads come and go so often that what is done at each switch would cost
//! more than the budget has, or live so shortly that they need more samples than it pays for.
//!
//! At every context switch the kernel stops and starts the timer of a thread's sampler, which in a
//! virtual machine means leaving it: 2 to 16 µs, as measured at start. A server that switches 30,000
//! times a second would lose half its speed. Where CPUs have the samplers a switch costs no more than
//! its record, a tenth of that. So the samplers of threads, or the recording of switches, are on for a
//! while, and off for as long as that while has cost:
//!
//! ```text
//! on up to 100 ms, add up costs ─► off until the budget has paid for them
//! ```
//!
//! Samples of an on-phase stand for the off-phase before it as well, if none were taken then.

use linewise_recording::Time;

use crate::sources::timer::budget::SAMPLE_PART;

/// The longest on-phase before its cost is looked at, ns: long enough for a hundred samples of a busy
/// machine.
const ON_NS: u64 = 100_000_000;
/// The shortest on-phase, ns.
const SHORTEST_ON_NS: u64 = 8_000_000;
/// The longest off-phase, ns: a phase of the target that is shorter may be missed. An on-phase ends
/// early when it has cost what the longest off-phase pays for, but for the first.
const LONGEST_OFF_NS: u64 = 2_000_000_000;
/// The part of the budget that may go into switching and into samples beyond those that the budget has
/// chosen: where samples stop in pauses most of their own part is left, where they go on it is not.
const PART_WITH_SAMPLES: f64 = 0.5;
const PART: f64 = 0.15;

/// Where switches cost so many times what samples do, more samples while they are on are cheaper than
/// staying on for longer.
pub(crate) const DEAR_SWITCHES: f64 = 2.0;

/// What a switch costs more with an eighth of the period: the sampler's timer is more often due before
/// the kernel's own, and has to be set anew (5 and 12 µs were measured at 2.5 and 0.3 ms).
const FINE_SWITCH: f64 = 2.4;

/// A target that leaves its CPUs more often than that in a second of its CPU time, or of half of the time where it
/// uses less than half a CPU, works in turns with others: its threads, or those of a client.
const IN_TURNS: f64 = 2_000.0;

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing.
    Stay,
    /// Go on, and count anew what it costs.
    Again,
    /// Pause.
    Off,
    /// Resume.
    On,
}

/// The phases of a recording.
#[derive(Debug)]
pub(crate) struct Duty {
    overhead: f64,
    cpus: f64,
    switch_ns: f64,
    /// Whether samples are not taken in a pause.
    weighs: bool,
    on: bool,
    since: Time,
    until: Time,
    /// Length of the last on-phase that is over, ns; 0 before there was one.
    on_ns: u64,
    /// Since the last turn, ns of target time.
    cost_ns: f64,
    /// The part of it that is for switches.
    switches_ns: f64,
    /// Whether switches cost many times what samples did before the last pause.
    dear: bool,
    /// Switches since the last turn, and whether there were many before that.
    switches: u64,
    in_turns: bool,
    /// What pauses have not paid for yet, ns.
    debt_ns: f64,
    weight: f64,
    total_on_ns: u64,
    total_off_ns: u64,
}

impl Duty {
    /// `switch_ns` is what a switch costs more in an on-phase; `weighs`: whether the samples of an
    /// on-phase stand for the pause before it.
    pub(crate) fn new(overhead: f64, cpus: usize, switch_ns: f64, weighs: bool, now: Time) -> Self {
        Self {
            overhead,
            cpus: cpus.max(1) as f64,
            switch_ns,
            weighs,
            on: true,
            since: now,
            until: Time(now.0 + ON_NS),
            on_ns: 0,
            cost_ns: 0.0,
            switches_ns: 0.0,
            dear: false,
            switches: 0,
            in_turns: false,
            debt_ns: 0.0,
            weight: 1.0,
            total_on_ns: 0,
            total_off_ns: 0,
        }
    }

    /// A thread left its CPU: what that cost more because it is sampled, ns.
    pub(crate) fn switched(&mut self) -> f64 {
        self.cost_ns += self.switch_ns;
        self.debt_ns += self.switch_ns;
        self.switches_ns += self.switch_ns;
        self.switches += 1;
        self.switch_ns
    }

    /// So many switches of others were recorded. The target lost nothing by them, but somebody did.
    pub(crate) fn passed_over(&mut self, switches: u64) {
        self.cost_ns += switches as f64 * self.switch_ns;
    }

    /// A sample came that cost this much more than the budget had chosen to spend on it, ns.
    pub(crate) fn sampled(&mut self, extra_ns: f64) {
        self.cost_ns += extra_ns;
        self.debt_ns += extra_ns;
    }

    /// The target used so much CPU time, ns: what is paid out of that for switches and samples, ns. No more than their
    /// part, since watches would have to wait for the debt of the first on-phase, which may be all that a short run has.
    pub(crate) fn pays(&mut self, thread_ns: u64) -> f64 {
        let due_ns = self
            .debt_ns
            .min(self.overhead * self.part() * thread_ns as f64);
        self.debt_ns -= due_ns;
        due_ns
    }

    /// The part of the budget for switches, and for samples beyond what the budget has chosen.
    fn part(&self) -> f64 {
        if self.weighs { PART_WITH_SAMPLES } else { PART }
    }

    /// The samplers got an eighth of their period.
    pub(crate) fn refined(&mut self) {
        self.switch_ns *= FINE_SWITCH;
    }

    /// Whether the last pause was for switches that cost [`DEAR_SWITCHES`] times what samples did.
    pub(crate) fn switches_are_dear(&self) -> bool {
        self.dear
    }

    /// Whether the target works in turns with others, by the last on-phase.
    pub(crate) fn works_in_turns(&self) -> bool {
        self.in_turns
    }

    /// Whether this is no pause.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// How many times its period a sample of now stands for.
    pub(crate) fn weight(&self) -> f64 {
        if self.weighs { self.weight } else { 1.0 }
    }

    /// The time until `now` that was not paused, and that was, ns.
    fn on_and_off_ns(&self, now: Time) -> (u64, u64) {
        let lately = now.since(self.since);
        match self.on {
            true => (self.total_on_ns + lately, self.total_off_ns),
            false => (self.total_on_ns, self.total_off_ns + lately),
        }
    }

    /// The length of this on-phase, if it is one, and of the one before, ns.
    pub(crate) fn lately_on_ns(&self, now: Time) -> u64 {
        let this = if self.on { now.since(self.since) } else { 0 };
        this + self.on_ns
    }

    /// The same as a share of the time.
    pub(crate) fn share(&self, now: Time) -> f64 {
        let (on, off) = self.on_and_off_ns(now);
        if on > 0 {
            on as f64 / (on + off) as f64
        } else {
            1.0
        }
    }

    /// Decides at a tick. `thread_ns` is the CPU time that the target used since the last turn that
    /// was not [`Turn::Stay`].
    pub(crate) fn turn(&mut self, now: Time, thread_ns: u64) -> Turn {
        let lasted = now.since(self.since);
        if !self.on {
            if now < self.until {
                return Turn::Stay;
            }
            self.total_off_ns += lasted;
            // What comes now is likely to be as long as what came before.
            self.weight = (self.on_ns + lasted) as f64 / self.on_ns as f64;
            self.on = true;
            self.begin(now);
            return Turn::On;
        }
        // A server that mostly sleeps has time to spare: what matters is the work it does.
        let busy_ns = (thread_ns as f64).max(0.1 * lasted as f64 * self.cpus);
        let afforded = self.overhead * self.part() * busy_ns;
        let longest = afforded * (1.0 + LONGEST_OFF_NS as f64 / lasted.max(1) as f64);
        // Not the first: it may be all that there is.
        let is_dear = self.cost_ns >= longest && lasted >= SHORTEST_ON_NS && self.total_on_ns > 0;
        if now < self.until && !is_dear {
            return Turn::Stay;
        }
        self.total_on_ns += lasted;
        self.on_ns = lasted.max(1);
        let worked_ns = (thread_ns as f64).max(0.5 * lasted as f64);
        self.in_turns = self.switches as f64 > IN_TURNS * 1e-9 * worked_ns;
        if self.cost_ns <= 1.2 * afforded {
            self.weight = 1.0;
            self.begin(now);
            return Turn::Again;
        }
        let off_ns = (lasted as f64 * (self.cost_ns / afforded - 1.0)) as u64;
        // The beginning of a program is not yet like the rest of it: no pause longer than what was.
        let so_far = self.total_on_ns + self.total_off_ns;
        self.dear = self.switches_ns > DEAR_SWITCHES * self.overhead * SAMPLE_PART * busy_ns;
        self.on = false;
        self.since = now;
        self.until = Time(now.0 + off_ns.min(LONGEST_OFF_NS).min(so_far));
        Turn::Off
    }

    /// Begins an on-phase, or its next part.
    fn begin(&mut self, now: Time) {
        self.since = now;
        self.until = Time(now.0 + ON_NS);
        self.cost_ns = 0.0;
        self.switches_ns = 0.0;
        self.switches = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `seconds` with that many switches a second on two busy CPUs; the share that was on.
    fn share(switches_per_second: u64, seconds: u64) -> f64 {
        let mut duty = Duty::new(0.02, 2, 2_500.0, true, Time(0));
        let tick = 10_000_000;
        let (mut on, mut busy) = (true, 0);
        for now in (0..seconds * 1_000_000_000).step_by(tick as usize) {
            if on {
                busy += 2 * tick;
                (0..switches_per_second / 100).for_each(|_| {
                    duty.switched();
                });
            }
            match duty.turn(Time(now), busy) {
                Turn::Stay => {}
                Turn::Again => busy = 0,
                Turn::Off => on = false,
                Turn::On => {
                    on = true;
                    busy = 0;
                }
            }
        }
        duty.share(Time(seconds * 1_000_000_000))
    }

    #[test]
    fn a_debt_is_paid_with_no_more_than_its_part() {
        let mut duty = Duty::new(0.02, 2, 2_500.0, true, Time(0));
        (0..4).for_each(|_| {
            duty.switched();
        });
        duty.sampled(5_000.0);
        // 10 us a millisecond, of a debt of 15 us.
        assert_eq!(duty.pays(1_000_000), 10_000.0);
        assert_eq!(duty.pays(1_000_000), 5_000.0);
        assert_eq!(duty.pays(1_000_000), 0.0);
    }

    #[test]
    fn a_target_that_leaves_its_cpus_often_works_in_turns_and_one_that_sleeps_much_does_not() {
        let works_in_turns = |switches: u64, cpu_time_ns: u64| {
            let mut duty = Duty::new(0.02, 2, 100.0, false, Time(0));
            (0..switches).for_each(|_| {
                duty.switched();
            });
            assert_ne!(duty.turn(Time(ON_NS), cpu_time_ns), Turn::Stay);
            duty.works_in_turns()
        };
        // In 100 ms: memcached under load, zstd, a server that is asked 500 times a second.
        assert!(works_in_turns(2_200, 100_000_000));
        assert!(!works_in_turns(20, 200_000_000));
        assert!(!works_in_turns(50, 2_000_000));
    }

    #[test]
    fn a_target_that_hardly_switches_is_sampled_all_the_time() {
        assert_eq!(share(1_000, 5), 1.0);
    }

    #[test]
    fn the_more_a_target_switches_the_less_of_it_is_sampled() {
        let (some, many) = (share(20_000, 60), share(200_000, 60));
        assert!(many < some && some < 0.6, "{some} {many}");
        assert!(many > 0.02, "something is always seen: {many}");
    }

    #[test]
    fn samples_after_a_pause_stand_for_the_pause() {
        let mut duty = Duty::new(0.02, 2, 2_500.0, true, Time(0));
        (0..100_000).for_each(|_| {
            duty.switched();
        });
        assert_eq!(duty.turn(Time(ON_NS), 2 * ON_NS), Turn::Off);
        assert_eq!(duty.turn(Time(2 * ON_NS), 0), Turn::On);
        assert!((duty.weight() - 2.0).abs() < 0.1, "{}", duty.weight());
        assert!((duty.share(Time(2 * ON_NS)) - 0.5).abs() < 0.01);
    }
}
