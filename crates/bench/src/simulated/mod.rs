//! Placement on simulated machines: the model is [`linewise_placement_model`]'s; here are its runs, the bars that they are
//! held against, and how both are shown.

mod bars;
mod json;
mod page;
mod replay;
mod table;

pub use bars::{Bar, bars};
pub use json::json;
pub use page::page;
pub use replay::{Placed, Placement, ReplayError, Replayed, Said, replay, replay_table};
pub use table::table;

use linewise_placement_model::{
    Effort, Experiment, PolicyKind, Row, Setup, Workload, WorkloadKind, workloads,
};
use serde::Serialize;

/// What to simulate.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Seeds, from 1.
    pub seeds: u64,
    /// Only workloads whose names contain one of these; all if empty.
    pub only: Vec<String>,
    /// Less of everything.
    pub quick: bool,
}

/// The placer with other thresholds.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// What all thresholds were multiplied by.
    pub times: f32,
    /// Which policy.
    pub policy: PolicyKind,
    /// Speedup over that with the thresholds as they are: geometric mean.
    pub mean: f64,
    /// The same of the workload that loses most.
    pub worst: f64,
    /// Which that is.
    pub worst_name: String,
}

/// All that came out.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Seeds of each figure.
    pub seeds: u64,
    /// Seconds of each run.
    pub seconds: f64,
    /// By workload.
    pub rows: Vec<Row>,
    /// By factor and policy.
    pub sensitivity: Vec<Sensitivity>,
}

/// The policies that are ours.
pub(crate) const OURS: [PolicyKind; 2] = [PolicyKind::Sam, PolicyKind::Matrix];
/// What thresholds are multiplied by (SAM, section 4.5).
const TIMES: [f32; 5] = [0.1, 0.25, 0.5, 1.5, 2.0];

/// Simulates. `told` hears the name of each workload that is done, and how many there are in all.
#[must_use]
pub fn run(spec: &Spec, told: &(dyn Fn(&str, usize) + Sync)) -> Results {
    let mut effort = if spec.quick {
        Effort::QUICK
    } else {
        Effort::FULL
    };
    effort.seeds = if spec.quick {
        spec.seeds.min(effort.seeds)
    } else {
        spec.seeds
    };
    let is_wanted = |name: &str| {
        spec.only.is_empty() || spec.only.iter().any(|part| name.contains(part.as_str()))
    };
    let mut wanted = workloads();
    wanted.retain(|workload| is_wanted(&workload.name));
    // Where a placer can only lose, thresholds decide nothing that counts.
    let is_helped = |workload: &Workload| workload.kind != WorkloadKind::Losing;
    let helped = wanted.iter().filter(|workload| is_helped(workload)).count();
    let of = wanted.len() + TIMES.len() * helped;
    let told = |name: &str| told(name, of);
    let experiment = Experiment::new(wanted, effort);
    let rows = experiment.rows(&PolicyKind::ALL, Setup::default(), |_| true, &told);
    let mut sensitivity = Vec::new();
    for times in TIMES {
        let setup = Setup {
            thresholds: times,
            ..Setup::default()
        };
        let others = experiment.rows(&OURS, setup, is_helped, &told);
        for policy in OURS {
            sensitivity.extend(sensitive(&rows, &others, policy, times));
        }
    }
    Results {
        seeds: effort.seeds,
        seconds: effort.seconds,
        rows,
        sensitivity,
    }
}

fn sensitive(rows: &[Row], others: &[Row], policy: PolicyKind, times: f32) -> Option<Sensitivity> {
    let speedup = |row: &Row| row.policies.get(&policy).map(|outcome| outcome.speedup);
    let ratios = others.iter().filter_map(|other| {
        let row = rows.iter().find(|row| row.name == other.name)?;
        Some((speedup(other)? / speedup(row)?, other.name.clone()))
    });
    let ratios: Vec<(f64, String)> = ratios.collect();
    let (worst, worst_name) = ratios
        .iter()
        .min_by(|(a, _), (b, _)| a.total_cmp(b))?
        .clone();
    Some(Sensitivity {
        times,
        policy,
        mean: mean(ratios.iter().map(|&(ratio, _)| ratio)),
        worst,
        worst_name,
    })
}

/// The geometric mean; 1 of nothing.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| {
        (sum + value.ln(), count + 1)
    });
    (sum / f64::from(count.max(1))).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_has_a_row_in_the_table_the_json_and_the_page() {
        let spec = Spec {
            seeds: 2,
            only: vec!["Hubench (8t)".to_owned()],
            quick: true,
        };
        let results = run(&spec, &|_, _| {});
        let json = json(&results);
        let workload = &json["workloads"][0];
        assert_eq!(workload["name"], "Hubench (8t)");
        assert_eq!(workload["kind"], "standalone");
        assert_eq!(workload["shares"], true);
        for policy in PolicyKind::ALL {
            let one = &workload["policies"][policy.name()];
            for figure in ["speedup", "min", "max", "moves"] {
                assert!(one[figure].is_number(), "{policy:?} {figure}: {one}");
            }
        }
        assert!(json["bars"].as_array().is_some_and(|bars| !bars.is_empty()));
        assert!(table(&results).contains("Hubench (8t) "));
        let page = page(&results);
        assert!(page.contains("<svg") && page.contains("Hubench (8t)"));
        assert!(!page.contains("<script"));
    }
}
