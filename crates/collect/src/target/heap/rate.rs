//! How many blocks are told of: within a part of the budget.

/// The part of the budget that the loaded recorder may take: samples and the collector take most of it, and watches,
/// which findings need first, what is left.
pub(super) const LOADED_PART: f64 = 0.12;
/// The part for probes: taking them away takes so long that a slice of a program that allocates often costs 0.1 s,
/// and with less there would be one in half a minute.
pub(super) const PROBED_PART: f64 = 0.35;
/// The same where objects are followed, as a part of both what it may take and of its advance: addresses that are
/// allocated again show in few blocks, and at the one that is watched all are told of.
const WHILE_FOLLOWING: f64 = 0.7;
/// What may be taken at the beginning, ns, before the program's time pays for more: programs build what lives
/// long when they begin, and that is better known whole.
const ADVANCE_NS: f64 = 8_000_000.0;
/// No more than this is saved up, ns.
const SAVINGS_NS: f64 = 100_000_000.0;
/// The least and the largest mean distance of sampled blocks, as powers of two of bytes.
const FINEST: u32 = 8;
const COARSEST: u32 = 36;
/// Rounds between two changes: those that follow a change show what it did.
const PAUSE: i32 = 6;

/// Chooses the mean distance of sampled blocks.
#[derive(Debug)]
pub(super) struct Rate {
    /// Share of the target's time, or none: everything is told, whatever it costs.
    overhead: Option<f64>,
    /// The part of it that the recorder may take.
    part: f64,
    /// The power of two of bytes; 0: every block.
    exponent: u32,
    /// What may be taken now.
    credit_ns: f64,
    /// What is left to pay of the advance.
    debt_ns: f64,
    /// What was taken and not yet paid for out of the budget.
    owed_ns: f64,
    /// Since the last change.
    spent_ns: f64,
    allowed_ns: f64,
    /// Below 0 after a change: what was told before it is still read.
    rounds: i32,
}

impl Rate {
    /// May take this part of `overhead`.
    pub(super) fn new(overhead: Option<f64>, part: f64) -> Self {
        Self {
            overhead,
            part,
            exponent: 0,
            credit_ns: ADVANCE_NS,
            debt_ns: ADVANCE_NS,
            owed_ns: 0.0,
            spent_ns: 0.0,
            allowed_ns: 0.0,
            rounds: 0,
        }
    }

    /// Objects are followed: most of the budget is for that. Call it before anything was told.
    pub(super) fn make_way(&mut self) {
        self.part *= WHILE_FOLLOWING;
        self.credit_ns = ADVANCE_NS * WHILE_FOLLOWING;
        self.debt_ns = self.credit_ns;
    }

    /// The target ran for `thread_ns`, of which the recorder took `spent_ns`, both sides together. What the budget
    /// has to pay for it now, ns: never more than the recorder's part, so that the advance leaves others theirs.
    pub(super) fn passed(&mut self, thread_ns: u64, spent_ns: f64) -> f64 {
        let Some(overhead) = self.overhead else {
            return spent_ns;
        };
        let allowed = overhead * self.part * thread_ns as f64;
        let due = (self.owed_ns + spent_ns).min(allowed);
        self.owed_ns += spent_ns - due;
        self.adapt(allowed, spent_ns);
        due
    }

    /// Chooses the distance anew, when it has shown what it costs.
    fn adapt(&mut self, allowed: f64, spent_ns: f64) {
        let paid = allowed.min(self.debt_ns);
        self.debt_ns -= paid;
        self.credit_ns =
            (self.credit_ns + allowed - paid - spent_ns).clamp(-SAVINGS_NS, SAVINGS_NS);
        self.rounds += 1;
        if self.rounds <= 0 {
            return;
        }
        self.spent_ns += spent_ns;
        self.allowed_ns += allowed;
        if self.rounds < PAUSE {
            return;
        }
        let before = self.exponent;
        if self.credit_ns < 0.0 && self.spent_ns > self.allowed_ns {
            // By as much as it was too dear: the cost goes with the number of blocks told of.
            let times = (self.spent_ns / self.allowed_ns.max(1000.0)).clamp(2.0, 64.0);
            self.exponent = (self.exponent.max(FINEST) + times.log2().ceil() as u32).min(COARSEST);
        } else if self.exponent > 0 && self.credit_ns > 0.0 && self.spent_ns < 0.4 * self.allowed_ns
        {
            self.exponent = match self.exponent - 1 {
                ..FINEST => 0,
                finer => finer,
            };
        }
        (self.spent_ns, self.allowed_ns) = (0.0, 0.0);
        self.rounds = if self.exponent == before { 0 } else { -PAUSE };
    }

    /// Mean distance of the blocks to tell of, in allocated bytes; 0: all.
    pub(super) fn interval(&self) -> u64 {
        match self.exponent {
            0 => 0,
            exponent => 1 << exponent,
        }
    }

    /// What the recorder may take until the next round, ns.
    pub(super) fn allowance_ns(&self) -> f64 {
        match self.overhead {
            Some(_) => self.credit_ns,
            None => f64::INFINITY,
        }
    }
}

/// Blocks that a sampled one of `size` bytes stands for: one over the chance that it was sampled, where
/// the distances between sampled bytes are exponential with mean `interval`.
pub(super) fn weight(size: u64, interval: f64) -> f64 {
    if interval > 0.0 {
        1.0 / -(-(size.max(1) as f64) / interval).exp_m1()
    } else {
        1.0
    }
}

/// How many blocks one stands for that was told of, whatever was forgotten since; `interval` as in [`Block`].
pub(super) fn told_weight(size: u64, interval: u8) -> f64 {
    let interval = match interval {
        0 => 0.0,
        exponent => (1_u64 << exponent.min(63)) as f64,
    };
    weight(size, interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_of_a_block_is_what_it_was_sampled_from() {
        assert_eq!(weight(64, 0.0), 1.0);
        assert!((weight(64, 65_536.0) - 1024.5).abs() < 0.1);
        assert!((weight(1 << 30, 65_536.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_told_settles_within_its_part_of_the_budget() {
        let mut rate = Rate::new(Some(0.02), LOADED_PART);
        // Five million blocks of 64 bytes a second, each told for 300 ns, in rounds of 8 ms on two CPUs.
        let cost = |interval: u64| 40_000.0 * 300.0 / weight(64, interval as f64);
        let mut late = 0.0;
        for round in 0..2_000 {
            let spent = cost(rate.interval());
            rate.passed(16_000_000, spent);
            if round >= 1_000 {
                late += spent;
            }
        }
        let share = late / (1_000.0 * 16_000_000.0);
        assert!(share < 0.02 * LOADED_PART * 1.3, "{share}");
        assert!(share > 0.02 * LOADED_PART * 0.2, "{share}");
        assert!(rate.interval() >= 4096);
        // When the storm is over, every block is told again.
        for _ in 0..2_000 {
            rate.passed(16_000_000, 10.0);
        }
        assert_eq!(rate.interval(), 0);
    }

    #[test]
    fn following_objects_leaves_the_recorder_a_small_part() {
        const ROUNDS: u64 = 2_000;
        const ROUND_NS: u64 = 16_000_000;
        let share = |following: bool| -> f64 {
            let mut rate = Rate::new(Some(0.02), LOADED_PART);
            if following {
                rate.make_way();
            }
            let cost = |interval: u64| 40_000.0 * 300.0 / weight(64, interval as f64);
            let spent: f64 = (0..ROUNDS)
                .map(|_| rate.passed(ROUND_NS, cost(rate.interval())))
                .sum();
            spent / (0.02 * (ROUNDS * ROUND_NS) as f64)
        };
        let (following, otherwise) = (share(true), share(false));
        assert!(following < 0.09, "of the budget: {following}");
        assert!(following < 0.75 * otherwise, "{following} {otherwise}");
    }

    #[test]
    fn nothing_is_left_out_where_everything_was_asked_for() {
        let mut rate = Rate::new(None, LOADED_PART);
        for _ in 0..100 {
            rate.passed(16_000_000, 16_000_000.0);
        }
        assert_eq!(rate.interval(), 0);
    }
}
