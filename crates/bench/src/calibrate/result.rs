//! What is known of a machine afterwards.

use super::bandwidth::Bandwidth;
use super::lines::{Lines, RemoteLoads};
use super::samples::{LeftOut, QUIET_PERCENT};
use super::thresholds::{self, Threshold};
use linewise_placer::Origins;
use serde::Serialize;

/// A calibrated machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Coherence events per second of CPU time at which distance costs 5 %.
    pub coherence: Threshold,
    /// Loads from remote memory per second of CPU time at which they cost 5 %.
    pub remote: Threshold,
    /// Misses of a node in a second at which its memory is nearly saturated.
    pub misses: Threshold,
    /// What it costs that lines move.
    pub lines: Lines,
    /// Memory; `None` where none was to be had.
    pub bandwidth: Option<Bandwidth>,
    /// Remote memory; `None` on one node.
    pub remote_loads: Option<RemoteLoads>,
    /// What to know of these figures, in sentences without full stops.
    pub notes: Vec<String>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl Calibration {
    /// Finds the thresholds.
    pub(super) fn new(
        lines: Lines,
        bandwidth: Option<Bandwidth>,
        remote_loads: Option<RemoteLoads>,
        mut notes: Vec<String>,
        seconds: f64,
    ) -> Self {
        let coherence = thresholds::coherence(&lines);
        notes.extend(bandwidth.iter().flat_map(Bandwidth::doubts));
        notes.extend(disturbance(&lines, bandwidth.as_ref()));
        Self {
            remote: thresholds::remote(remote_loads.as_ref(), &coherence),
            misses: thresholds::misses(bandwidth.as_ref()),
            coherence,
            lines,
            bandwidth,
            remote_loads,
            notes,
            seconds,
        }
    }

    /// The three thresholds, and how each was got, as the file of them has it.
    #[must_use]
    pub fn thresholds(&self) -> ([f64; 3], Origins) {
        let all = [&self.coherence, &self.remote, &self.misses];
        let how = Origins {
            coherence: self.coherence.origin.clone(),
            remote: self.remote.origin.clone(),
            misses: self.misses.origin.clone(),
        };
        (all.map(|it| it.per_s), how)
    }
}

/// What others did to the figures.
fn disturbance(lines: &Lines, bandwidth: Option<&Bandwidth>) -> Vec<String> {
    let of_lines = lines.measured.iter().map(|it| it.left_out);
    let all = of_lines.chain(bandwidth.map(|it| it.left_out));
    let sum = all.fold(LeftOut::default(), LeftOut::with);
    let mut notes = Vec::new();
    if sum.waited + sum.state > 0 {
        notes.push(format!(
            "{} of {} runs are in no figure: in {} the round trip between the CPUs changed or could not be measured, and \
             in {} threads waited for CPUs for more than {QUIET_PERCENT} % of their time",
            sum.waited + sum.state,
            sum.of,
            sum.state,
            sum.waited
        ));
    }
    if sum.busy > 0 {
        notes.push(format!(
            "others had the CPUs: in {} of {} runs that count threads waited for more than {QUIET_PERCENT} % of their \
             time; calibrate again when the machine is quiet",
            sum.busy, sum.of
        ));
    }
    let several = lines
        .measured
        .iter()
        .any(|it| it.left_out.state * 5 > it.left_out.of);
    if several {
        notes.push(
            "the round trip has several states: a hypervisor moves the CPUs, or their frequency changes; the figures are \
             of the state that most runs were made in"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::lines::tests::lines;
    use super::super::pairs::Distance;
    use super::*;

    /// A calibrated machine.
    pub(crate) fn calibration(distances: &[(Distance, f64)]) -> Calibration {
        let notes = vec!["a note".to_owned()];
        Calibration::new(lines(distances), None, None, notes, 3.0)
    }

    #[test]
    fn what_others_did_is_told() {
        let mut lines = lines(&[(Distance::Unshared, 5.0), (Distance::SameLlc, 60.0)]);
        assert!(disturbance(&lines, None).is_empty());
        lines.measured[0].left_out = LeftOut {
            state: 5,
            waited: 1,
            of: 18,
            busy: 3,
        };
        let notes = disturbance(&lines, None);
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[0].starts_with("6 of 36 runs"), "{notes:?}");
        assert!(notes[1].contains("quiet"), "{notes:?}");
    }
}
