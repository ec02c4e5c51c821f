//! What the kernel counts of a thread's CPU time, and how much of that the thread was on a CPU.
//!
//! Where switches are told for a part of the time, the rest of a thread's CPU time is the kernel's count. That may begin
//! before the thread does: a thread that another CPU wakes is charged from then on (the clock of its CPU was read at that moment and is
//! not read again at the switch), though until the interrupt is there somebody else runs, or nobody. In a virtual machine
//! that is 10 to 20 µs at each wake-up, as long as what many a thread does between two. So both are compared while both are known.

use linewise_recording::Time;

/// Less counted CPU time than that is no base for a comparison, ns: the kernel's count may be a tick old.
const ENOUGH_NS: u64 = 10_000_000;

/// What the kernel counts of a thread, ns of CPU time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    /// When it was opened.
    first_ns: u64,
    /// What had been told before that.
    before_ns: u64,
    /// When it was last asked for.
    last_ns: u64,
    asked: Time,
    /// How much of it had been told by switches then.
    told_ns: u64,
    /// What was counted and what was told when both were known last; none while switches are not told.
    both: Option<(u64, u64)>,
    /// What was counted while switches were told, and what they told.
    counted_in_sight_ns: u64,
    told_in_sight_ns: u64,
}

impl Account {
    /// That of a thread of which so much was counted at `now`, and told until then.
    pub(super) fn new(first_ns: u64, told_ns: u64, now: Time, in_sight: bool) -> Self {
        Self {
            first_ns,
            before_ns: told_ns,
            last_ns: first_ns,
            asked: now,
            told_ns,
            both: in_sight.then_some((first_ns, told_ns)),
            counted_in_sight_ns: 0,
            told_in_sight_ns: 0,
        }
    }

    /// At `now` so much was counted and told; `in_sight`: all that the thread does is being told.
    pub(super) fn read(&mut self, counted_ns: u64, told_ns: u64, now: Time, in_sight: bool) {
        if in_sight {
            if let Some((counted, told)) = self.both {
                self.counted_in_sight_ns += counted_ns.saturating_sub(counted);
                self.told_in_sight_ns += told_ns.saturating_sub(told);
            }
            self.both = Some((counted_ns, told_ns));
        }
        if counted_ns > self.last_ns {
            self.last_ns = counted_ns;
            self.asked = now;
            self.told_ns = told_ns;
        }
    }

    /// Switches are not told any more.
    pub(super) fn lose_sight(&mut self) {
        self.both = None;
    }

    /// The share of what is counted that the thread was on a CPU.
    fn on_cpu(&self) -> f64 {
        match self.counted_in_sight_ns >= ENOUGH_NS {
            true => (self.told_in_sight_ns as f64 / self.counted_in_sight_ns as f64).min(1.0),
            false => 1.0,
        }
    }

    /// The CPU time of the thread until `end`, of which switches told `told_ns`, and `share` of what was not counted yet.
    pub(super) fn cpu_time_ns(&self, told_ns: u64, share: f64, end: Time) -> u64 {
        let since = scaled(told_ns.saturating_sub(self.told_ns), share);
        // It cannot have run for longer than that is ago.
        let since = since.min(end.since(self.asked));
        let counted = self.last_ns.saturating_sub(self.first_ns) as f64 * self.on_cpu();
        self.before_ns + counted as u64 + since
    }
}

/// All of the time of which switches told a share.
pub(super) fn scaled(told_ns: u64, share: f64) -> u64 {
    (told_ns as f64 / share.clamp(0.01, 1.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_counted_of_a_thread_that_is_woken_often_is_more_than_it_ran() {
        let mut account = Account::new(5 * MS, 0, Time(0), true);
        // In sight for 100 ms: 30 ms counted, 15 of which on a CPU. Then 60 ms more are counted.
        account.read(20 * MS, 8 * MS, Time(50 * MS), true);
        account.read(35 * MS, 15 * MS, Time(100 * MS), true);
        account.lose_sight();
        account.read(95 * MS, 15 * MS, Time(300 * MS), false);
        let all = account.cpu_time_ns(15 * MS, 0.3, Time(300 * MS));
        assert_eq!(all, 45 * MS);
        // In sight again: what was counted meanwhile is not compared with what was told.
        account.read(125 * MS, 16 * MS, Time(400 * MS), true);
        account.read(135 * MS, 21 * MS, Time(450 * MS), true);
        let all = account.cpu_time_ns(21 * MS, 0.3, Time(450 * MS));
        assert_eq!(all, 65 * MS);
    }

    #[test]
    fn what_was_told_before_an_account_was_opened_is_part_of_the_time() {
        let mut account = Account::new(70 * MS, 20 * MS, Time(100 * MS), false);
        assert_eq!(account.cpu_time_ns(20 * MS, 0.5, Time(100 * MS)), 20 * MS);
        account.read(100 * MS, 30 * MS, Time(160 * MS), false);
        assert_eq!(account.cpu_time_ns(32 * MS, 0.5, Time(170 * MS)), 54 * MS);
    }

    #[test]
    fn of_little_that_was_compared_nothing_follows() {
        let mut account = Account::new(0, 0, Time(0), true);
        account.read(4 * MS, MS, Time(10 * MS), true);
        assert_eq!(account.cpu_time_ns(MS, 0.5, Time(10 * MS)), 4 * MS);
        // Nor is a thread on its CPU for longer than is counted.
        account.read(50 * MS, 60 * MS, Time(70 * MS), true);
        assert_eq!(account.cpu_time_ns(60 * MS, 0.5, Time(70 * MS)), 50 * MS);
    }
}
