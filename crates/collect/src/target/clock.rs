//! From the processor's time stamps to CLOCK_MONOTONIC.

use std::time::Duration;

use linewise_machine::process::monotonic_ns;
use linewise_tracer::stamp;

/// A line through two moments at which both clocks were read; moved as time goes by, without a step.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Where the line begins.
    stamp: u64,
    ns: u64,
    /// Ns a tick, in 2^-32.
    slope: u64,
    /// The first moment, for the slope.
    first: (u64, u64),
}

/// Both clocks at one moment: of several tries the one with the least time in between.
fn both() -> (u64, u64) {
    (0..5)
        .map(|_| {
            let before = stamp();
            let ns = monotonic_ns();
            let after = stamp();
            (
                after.wrapping_sub(before),
                before + (after - before) / 2,
                ns,
            )
        })
        .min()
        .map_or((0, 0), |(_, stamp, ns)| (stamp, ns))
}

impl Clock {
    /// Reads both clocks twice, some milliseconds apart.
    pub(crate) fn new() -> Self {
        let first = both();
        std::thread::sleep(Duration::from_millis(5));
        let mut clock = Self {
            stamp: first.0,
            ns: first.1,
            slope: 1 << 32,
            first,
        };
        let (stamp, ns) = both();
        clock.slope = slope(first, (stamp, ns)).max(1);
        clock
    }

    /// The time of a stamp; of one before the line begins, its beginning.
    #[inline]
    pub(crate) fn ns(&self, stamp: u64) -> u64 {
        let ticks = stamp.saturating_sub(self.stamp);
        self.ns
            .saturating_add(((u128::from(ticks) * u128::from(self.slope)) >> 32) as u64)
    }

    /// The length of so many ticks, ns.
    pub(crate) fn span_ns(&self, ticks: u64) -> f64 {
        ticks as f64 * self.slope as f64 / 4_294_967_296.0
    }

    /// Moves the line: it goes on from where it is at `reached`, the latest stamp that was
    /// converted, with the slope seen since the beginning.
    pub(crate) fn correct(&mut self, reached: u64) {
        let now = both();
        let slope = slope(self.first, now);
        if slope == 0 || reached <= self.stamp {
            return;
        }
        self.ns = self.ns(reached);
        self.stamp = reached;
        // Over the next second, back to where the true line will be.
        let target = now.1 + ((u128::from(SECOND) * u128::from(slope)) >> 32) as u64;
        let aim = (now.0 + SECOND).saturating_sub(reached);
        self.slope = ((u128::from(target.saturating_sub(self.ns)) << 32) / u128::from(aim.max(1)))
            .clamp(u128::from(slope / 2), u128::from(slope) * 2) as u64;
    }
}

/// About a second, in ticks.
const SECOND: u64 = 2_500_000_000;

/// Ns a tick between two moments, in 2^-32.
fn slope(from: (u64, u64), to: (u64, u64)) -> u64 {
    let ticks = to.0.saturating_sub(from.0).max(1);
    ((u128::from(to.1.saturating_sub(from.1)) << 32) / u128::from(ticks)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converted_stamps_stay_between_readings_of_the_clock_and_never_decrease() {
        let mut clock = Clock::new();
        let mut last = 0;
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            let before = monotonic_ns();
            let stamp = stamp();
            let after = monotonic_ns();
            let ns = clock.ns(stamp);
            assert!(ns >= last);
            assert!(
                ns + 1_000_000 > before && ns < after + 1_000_000,
                "{before} {ns} {after}"
            );
            last = ns;
            clock.correct(stamp);
            assert!(clock.ns(stamp) >= last);
        }
    }
}
