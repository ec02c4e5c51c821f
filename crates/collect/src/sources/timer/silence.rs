//! A target that computes and is not heard of: its samplers are gone.
//!
//! The kernel hands the samplers of a thread on to those it makes, and swaps them where two threads
//! of one program follow each other on a CPU. Where threads lived for half a millisecond, that lost
//! them now and then (Linux 6.18; 40 recordings of 80, and an hour later none of 200): neither samples
//! nor switches were told any more of any thread, though all samplers were said to be on. Starting them
//! again and again changed nothing; new ones were never lost.

/// CPU time of the target without a word of it after which its samplers are opened anew, ns. Twice as
/// long each time: a target may be in the kernel, where nothing is sampled.
const PATIENCE_NS: u64 = 100_000_000;

/// How long nothing was heard of a target.
#[derive(Debug)]
pub(crate) struct Silence {
    lasted_ns: u64,
    patience_ns: u64,
}

impl Default for Silence {
    fn default() -> Self {
        Self {
            lasted_ns: 0,
            patience_ns: PATIENCE_NS,
        }
    }
}

impl Silence {
    /// A sample was taken, or a switch recorded.
    pub(crate) fn heard(&mut self) {
        self.lasted_ns = 0;
    }

    /// The target used so much CPU time while its samplers, of this period, were on, ns. Whether they are to be opened
    /// anew: then it has been silent for so long, ns.
    pub(crate) fn passed(&mut self, thread_ns: u64, period_ns: u64) -> Option<u64> {
        self.lasted_ns += thread_ns;
        if self.lasted_ns < self.patience_ns.max(32 * period_ns) {
            return None;
        }
        self.patience_ns *= 2;
        Some(std::mem::take(&mut self.lasted_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samplers_are_opened_anew_after_a_while_and_each_time_later() {
        let mut silence = Silence::default();
        let mut due = |ms: u64| silence.passed(ms * 1_000_000, 2_000_000);
        assert_eq!(due(90), None);
        assert_eq!(due(10), Some(100_000_000));
        assert_eq!(due(150), None);
        assert_eq!(due(50), Some(200_000_000));
    }

    #[test]
    fn a_target_that_is_heard_of_is_left_alone_and_so_is_one_of_a_long_period() {
        let mut silence = Silence::default();
        for _ in 0..10 {
            assert_eq!(silence.passed(90_000_000, 1_000_000), None);
            silence.heard();
        }
        assert_eq!(silence.passed(900_000_000, 100_000_000), None);
    }
}
