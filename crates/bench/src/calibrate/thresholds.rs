//! From curves and latencies to three thresholds, each with how it was got.

use super::bandwidth::Bandwidth;
use super::crossing::{Crossing, computed_per_s};
use super::lines::{Lines, RemoteLoads};
use super::pairs::Distance;
use super::sweep::Comparison;
use crate::drawing::rate;
use linewise_placer::{Origin, OriginKind, Thresholds};
use serde::Serialize;

/// A threshold, and how it was got.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Threshold {
    /// Events a second.
    pub per_s: f64,
    /// How it was got.
    pub origin: Origin,
}

impl Threshold {
    fn new(per_s: f64, kind: OriginKind, words: String) -> Self {
        Self {
            per_s,
            origin: Origin { kind, words },
        }
    }
}

/// Coherence events per second of CPU time at which distance costs 5 % (SAM, section 2.1): measured between the sockets,
/// or else between last-level caches; else computed from what a transfer takes.
pub(super) fn coherence(lines: &Lines) -> Threshold {
    let between = |far| {
        let of_levels = |it: &&Comparison| it.far == far && it.near > Distance::SameCore;
        lines.comparisons.iter().find(of_levels)
    };
    let outermost = between(Distance::OtherSocket).or_else(|| between(Distance::SameSocket));
    let Some(comparison) = outermost else {
        return below_one_cache(lines);
    };
    let (near, far) = (comparison.near.words(), comparison.far.words());
    let why = match comparison.crossing {
        Some(Crossing::At(per_s)) => {
            let between = comparison
                .crossing_between
                .map_or_else(String::new, |(from, to)| {
                    format!(" ({} to {} by the runs)", rate(from), rate(to))
                });
            let words = format!(
                "from here on two threads that share lose 5 % on the {far} against the {near}{between}"
            );
            return Threshold::new(per_s, OriginKind::Measured, words);
        }
        Some(Crossing::NeverUpTo(per_s)) => format!("up to {} events/s", rate(per_s)),
        Some(Crossing::AlwaysFrom(per_s)) => format!("already at {} events/s", rate(per_s)),
        None => "no two runs were steady".to_owned(),
    };
    let reached = match comparison.crossing {
        Some(Crossing::NeverUpTo(_)) => "distance costs less than 5 %",
        Some(Crossing::AlwaysFrom(_)) => "distance costs more than 5 %",
        _ => "nothing is known",
    };
    from_latencies(
        lines,
        (comparison.near, comparison.far),
        &format!("{reached} {why}; "),
    )
}

/// Where lines never leave a last-level cache: what sharing costs at all.
fn below_one_cache(lines: &Lines) -> Threshold {
    if lines.measured.is_empty() {
        return of_the_paper("nothing was measured between CPUs; ");
    }
    let before = "no two last-level caches can be compared, and below one lines are always near; ";
    from_latencies(lines, (Distance::Unshared, Distance::SameLlc), before)
}

fn from_latencies(lines: &Lines, (near, far): (Distance, Distance), before: &str) -> Threshold {
    let latencies = lines.transfer_ns(near).zip(lines.transfer_ns(far));
    let computed = latencies.and_then(|(l, far_ns)| {
        let per_s = computed_per_s(l, far_ns)?;
        let without = match near {
            Distance::Unshared => "where a line stays".to_owned(),
            near => format!("on the {}", near.words()),
        };
        let words = format!(
            "{before}0.05 / (L - l) with L = {far_ns:.0} ns, half a round trip on the {}, and l = {l:.0} ns {without}",
            far.words()
        );
        Some(Threshold::new(per_s, OriginKind::Computed, words))
    });
    computed.unwrap_or_else(|| of_the_paper(before))
}

fn of_the_paper(before: &str) -> Threshold {
    let per_s = f64::from(Thresholds::IVY_BRIDGE.coherence);
    let words =
        format!("{before}taken is what the paper found on its machine (Ivy Bridge, 2.2 GHz)");
    Threshold::new(per_s, OriginKind::Assumed, words)
}

/// Loads from remote memory per second of CPU time at which they cost 5 %.
pub(super) fn remote(loads: Option<&RemoteLoads>, coherence: &Threshold) -> Threshold {
    let computed = loads.and_then(|loads| {
        let (local, remote) = (loads.local_ns.median, loads.remote_ns.median);
        let per_s = computed_per_s(local, remote)?;
        let words = format!(
            "0.05 / (R - r) with R = {remote:.0} ns, a load by CPU {} of memory of the node of CPU {}, and r = {local:.0} \
             ns there",
            loads.remote_cpu, loads.local_cpu
        );
        Some(Threshold::new(per_s, OriginKind::Computed, words))
    });
    computed.unwrap_or_else(|| {
        let words = "no other node can be compared: as coherence, since a remote load costs about what a transfer does";
        Threshold::new(coherence.per_s, OriginKind::Assumed, words.to_owned())
    })
}

/// Misses of a node in a second at which its memory is nearly saturated (SAM, section 2.2).
pub(super) fn misses(bandwidth: Option<&Bandwidth>) -> Threshold {
    let measured = bandwidth.and_then(|bandwidth| {
        let knee = bandwidth.knee?;
        let words = format!(
            "20 % below the most that tasks reach which copy a line of each row, {} misses/s with {} of them",
            rate(knee.highest_per_s),
            knee.tasks
        );
        Some(Threshold::new(bandwidth.threshold_per_s?, OriginKind::Measured, words))
    });
    measured.unwrap_or_else(|| {
        let words =
            "nothing was measured: what the paper found on its machine (Ivy Bridge, 4 channels)";
        let per_s = f64::from(Thresholds::IVY_BRIDGE.misses);
        Threshold::new(per_s, OriginKind::Assumed, words.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::super::lines::tests::lines;
    use super::super::samples::Spread;
    use super::*;

    #[test]
    fn sockets_are_measured_and_what_is_not_reached_is_computed() {
        let of = [
            (Distance::Unshared, 5.0),
            (Distance::SameLlc, 50.0),
            (Distance::OtherSocket, 200.0),
        ];
        let mut two_sockets = lines(&of);
        let found = coherence(&two_sockets);
        assert_eq!(found.origin.kind, OriginKind::Measured);
        assert!((found.per_s / 333e3 - 1.0).abs() < 0.02, "{found:?}");
        let across = two_sockets.comparisons.iter_mut();
        for comparison in across.filter(|it| it.far == Distance::OtherSocket) {
            comparison.crossing = Some(Crossing::NeverUpTo(1e5));
        }
        let found = coherence(&two_sockets);
        assert_eq!(found.origin.kind, OriginKind::Computed);
        assert!(
            found.origin.words.contains("less than 5 % up to 100 k"),
            "{found:?}"
        );
    }

    #[test]
    fn below_one_cache_it_is_computed_with_both_latencies() {
        let found = coherence(&lines(&[
            (Distance::Unshared, 5.0),
            (Distance::SameLlc, 60.0),
        ]));
        assert_eq!(found.origin.kind, OriginKind::Computed);
        let words = &found.origin.words;
        assert!(
            words.contains("L = ") && words.contains("l = 5 ns"),
            "{words}"
        );
        assert!(
            (0.05 / 70e-9..0.05 / 50e-9).contains(&found.per_s),
            "{found:?}"
        );
    }

    #[test]
    fn on_one_cpu_the_papers_is_taken_and_said_to_be() {
        let found = coherence(&lines(&[]));
        assert_eq!(
            (found.per_s, found.origin.kind),
            (550_000.0, OriginKind::Assumed)
        );
        assert!(misses(None).origin.words.contains("paper"));
        assert_eq!(remote(None, &found).per_s, 550_000.0);
    }

    #[test]
    fn remote_loads_are_computed_where_there_is_another_node() {
        let ns = |ns| Spread::of(&[ns]).unwrap();
        let loads = RemoteLoads {
            local_cpu: 0,
            remote_cpu: 10,
            local_ns: ns(90.0),
            remote_ns: ns(190.0),
        };
        let found = remote(Some(&loads), &coherence(&lines(&[])));
        assert_eq!(found.origin.kind, OriginKind::Computed);
        assert!((found.per_s - 500_000.0).abs() < 1.0, "{found:?}");
    }
}
