//! How long a thread is at a line for each transfer to it, as a curve over how much the others
//! want the line at the same time.

use linewise_recording::Latency;

use crate::quantity;

/// Round trips that differ by no more than this factor are one state of the machine.
const SAME_STATE: f64 = 1.3;
/// So many measurements of one state make a curve.
const NEIGHBOURS: usize = 7;

/// The measured points of the curve, in ns, and what a hit costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferCurve {
    /// Share of their time that the others are at the line (ascending, from 0 to 1), and the time
    /// at the line for each transfer.
    points: [(f64, f64); 4],
    /// A serialised access that needs no transfer, ns.
    pub hit_ns: f64,
    /// The round trip measured beside it, ns.
    pub round_trip_ns: f64,
}

impl TransferCurve {
    /// The curve of one measurement.
    #[must_use]
    pub fn new(latency: &Latency) -> Self {
        let busy = latency.busy_share.clamp(0.05, 0.9);
        Self {
            points: [
                (0.0, latency.transfer_idle_ns),
                (busy, latency.transfer_busy_ns),
                (
                    latency.crowded_share.clamp(busy + 0.01, 0.99),
                    latency.transfer_crowded_ns,
                ),
                (1.0, latency.transfer_saturated_ns),
            ],
            hit_ns: latency.hit_ns,
            round_trip_ns: latency.round_trip_ns,
        }
    }

    /// Time at the line for each transfer when on average `others` other threads are at it: between
    /// the measured points a straight line; beyond one other thread in proportion, since each
    /// waits for all those before it.
    #[must_use]
    pub fn transfer_ns(&self, others: f64) -> f64 {
        if others >= 1.0 {
            return (self.points[3].1 * others).max(1.0);
        }
        let others = others.max(0.0);
        let upper = self
            .points
            .iter()
            .position(|point| point.0 > others)
            .unwrap_or(3)
            .max(1);
        let (low, high) = (self.points[upper - 1], self.points[upper]);
        let along = (others - low.0) / (high.0 - low.0);
        (low.1 + along * (high.1 - low.1)).max(1.0)
    }

    /// The transfer that nobody else is in the way of, ns.
    #[must_use]
    pub fn idle_ns(&self) -> f64 {
        self.points[0].1.max(1.0)
    }
}

/// The latencies of a run as one curve for each moment; medians where a moment has none near.
#[derive(Clone, Debug)]
pub struct Curves {
    curves: Vec<(u64, TransferCurve)>,
}

impl Curves {
    /// The curves of a recording.
    #[must_use]
    pub fn new(latencies: &[Latency]) -> Self {
        let mut rows: Vec<&Latency> = latencies
            .iter()
            .filter(|latency| latency.round_trip_ns > 0.0)
            .collect();
        rows.sort_by_key(|latency| latency.time);
        let mut measured = rows.clone();
        measured.dedup_by(|a, b| is_repeated(a, b));
        let curves = rows
            .iter()
            .map(|row| {
                (
                    row.time.0,
                    TransferCurve::new(&of_its_state(row, &measured)),
                )
            })
            .collect();
        Self { curves }
    }

    /// The curve in force at `time_ns`: the one measured nearest to it. `None` when none was.
    #[must_use]
    pub fn at(&self, time_ns: u64) -> Option<&TransferCurve> {
        self.get(self.nearest(time_ns)?)
    }

    /// Whether no latency was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.curves.is_empty()
    }

    /// The curve with a number that [`Curves::nearest`] gave.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&TransferCurve> {
        self.curves.get(number).map(|(_, curve)| curve)
    }

    /// The number of the curve measured nearest to `time_ns`. `None` when none was.
    #[must_use]
    pub fn nearest(&self, time_ns: u64) -> Option<usize> {
        let after = self.curves.partition_point(|&(time, _)| time < time_ns);
        let near = [after.checked_sub(1), Some(after)];
        near.into_iter()
            .flatten()
            .filter(|&i| i < self.curves.len())
            .min_by_key(|&i| self.curves[i].0.abs_diff(time_ns))
    }
}

/// Whether only the round trip was looked at again.
fn is_repeated(row: &Latency, earlier: &Latency) -> bool {
    let costs = |row: &Latency| {
        [
            row.transfer_idle_ns,
            row.transfer_busy_ns,
            row.transfer_crowded_ns,
            row.transfer_saturated_ns,
        ]
    };
    (row.cpu_a, row.cpu_b) == (earlier.cpu_a, earlier.cpu_b) && costs(row) == costs(earlier)
}

/// The row with the median of each cost over the measurements in its state nearest in time: one
/// measurement takes 2 ms beside a running program, and every tenth is disturbed.
fn of_its_state(row: &Latency, measured: &[&Latency]) -> Latency {
    let mut alike: Vec<&Latency> = measured
        .iter()
        .copied()
        .filter(|other| {
            let change = other.round_trip_ns / row.round_trip_ns;
            (row.cpu_a, row.cpu_b) == (other.cpu_a, other.cpu_b)
                && (1.0 / SAME_STATE..=SAME_STATE).contains(&change)
        })
        .collect();
    alike.sort_by_key(|other| other.time.0.abs_diff(row.time.0));
    alike.truncate(NEIGHBOURS);
    let median = |cost: fn(&Latency) -> f64| {
        let costs = alike.iter().map(|other| cost(other));
        quantity::median(costs).unwrap_or_else(|| cost(row))
    };
    Latency {
        transfer_idle_ns: median(|other| other.transfer_idle_ns),
        transfer_busy_ns: median(|other| other.transfer_busy_ns),
        busy_share: median(|other| other.busy_share),
        transfer_crowded_ns: median(|other| other.transfer_crowded_ns),
        crowded_share: median(|other| other.crowded_share),
        transfer_saturated_ns: median(|other| other.transfer_saturated_ns),
        hit_ns: median(|other| other.hit_ns),
        ..row.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linewise_recording::{CpuId, Time};

    fn latency(time: u64, scale: f64) -> Latency {
        Latency {
            time: Time(time),
            cpu_a: CpuId(0),
            cpu_b: CpuId(1),
            round_trip_ns: 100.0 * scale,
            transfer_idle_ns: 20.0 * scale,
            transfer_busy_ns: 30.0 * scale,
            busy_share: 0.5,
            transfer_crowded_ns: 40.0 * scale,
            crowded_share: 0.9,
            transfer_saturated_ns: 60.0 * scale,
            hit_ns: 5.0,
        }
    }

    #[test]
    fn the_curve_passes_through_what_was_measured_and_rises_in_between() {
        let curve = TransferCurve::new(&latency(0, 1.0));
        assert_eq!(curve.transfer_ns(0.0), 20.0);
        assert_eq!(curve.transfer_ns(0.5), 30.0);
        assert_eq!(curve.transfer_ns(1.0), 60.0);
        assert_eq!(curve.transfer_ns(3.0), 180.0);
        let steps: Vec<f64> = (0..=10)
            .map(|i| curve.transfer_ns(f64::from(i) / 10.0))
            .collect();
        assert!(steps.windows(2).all(|pair| pair[0] <= pair[1]), "{steps:?}");
    }

    #[test]
    fn the_nearest_measurement_is_in_force() {
        let curves = Curves::new(&[latency(1000, 1.0), latency(2000, 4.0)]);
        assert_eq!(curves.at(1400).unwrap().round_trip_ns, 100.0);
        assert_eq!(curves.at(1600).unwrap().round_trip_ns, 400.0);
        assert_eq!(curves.at(99_999).unwrap().round_trip_ns, 400.0);
        assert!(Curves::new(&[]).at(5).is_none());
    }

    #[test]
    fn a_disturbed_measurement_does_not_count_where_its_state_was_measured_often() {
        let disturbed = Latency {
            transfer_idle_ns: 90.0,
            ..latency(3000, 1.0)
        };
        let glance = Latency {
            time: Time(3500),
            ..disturbed.clone()
        };
        let rows = [
            latency(1000, 1.0),
            latency(2000, 1.1),
            disturbed,
            glance,
            latency(4000, 4.0),
        ];
        let curves = Curves::new(&rows);
        assert_eq!(curves.at(3500).unwrap().idle_ns(), 22.0);
        assert_eq!(curves.at(4000).unwrap().idle_ns(), 80.0);
    }
}
