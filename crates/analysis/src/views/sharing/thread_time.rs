//! All thread time of a run, of which a cost is a share.

use super::Estimate;

/// All thread time of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThreadTime {
    /// CPU time of all threads, ns.
    Measured(f64),
    /// As if the program ran on the machine itself, not under an emulator, ns.
    Modelled {
        /// Time of all accesses, none of which waits for another core.
        work: Estimate,
        /// What all transfers cost.
        lost: Estimate,
    },
}

impl ThreadTime {
    /// A cost in ns as a share of it, 0 to 1, with its interval.
    ///
    /// A modelled time contains the cost itself, so the ends of the interval pair the lowest cost
    /// with the longest time of work and the highest with the shortest.
    #[must_use]
    pub fn share(&self, cost: Estimate) -> Estimate {
        match *self {
            Self::Measured(all) => Estimate {
                value: share(cost.value, all),
                low: share(cost.low, all),
                high: share(cost.high, all),
            },
            Self::Modelled { work, lost } => {
                let rest = (lost.value - cost.value).max(0.0);
                Estimate {
                    value: share(cost.value, work.value + rest + cost.value),
                    low: share(cost.low, work.high + rest + cost.low),
                    high: share(cost.high, work.low + rest + cost.high),
                }
            }
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        (part / whole).min(1.0)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_measured_time_is_a_plain_ratio() {
        let cost = Estimate {
            value: 25.0,
            low: 10.0,
            high: 300.0,
        };
        let share = ThreadTime::Measured(100.0).share(cost);
        assert_eq!((share.low, share.value, share.high), (0.1, 0.25, 1.0));
        assert_eq!(ThreadTime::Measured(0.0).share(cost).value, 0.0);
    }

    #[test]
    fn a_share_of_modelled_time_counts_the_cost_among_the_time() {
        let of = |value, low, high| Estimate { value, low, high };
        let time = ThreadTime::Modelled {
            work: of(100.0, 50.0, 300.0),
            lost: of(200.0, 0.0, 400.0),
        };
        // 100 of the 200 that are lost, of 300 in all; the others stay lost.
        let share = time.share(of(100.0, 0.0, 350.0));
        assert_eq!((share.low, share.value, share.high), (0.0, 1.0 / 3.0, 0.7));
    }
}
