//! What the placer is held against.

use linewise_placement_model::{Outcome, PolicyKind, Row, WorkloadKind};
use serde::Serialize;

use super::{OURS, Results, mean};

/// Two figures are as good as each other if they differ by less than this: chance of one draw or another.
const ALIKE: f64 = 0.005;

/// One figure and its bar.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// What is measured.
    pub what: &'static str,
    /// Of which policy.
    pub policy: PolicyKind,
    /// What it is to be.
    pub bar: &'static str,
    /// What it is.
    pub value: f64,
    /// Which workload is the worst, where one is.
    pub worst: Option<String>,
    /// Whether the bar is met.
    pub is_met: bool,
}

/// All bars that the workloads of these results have figures for.
#[must_use]
pub fn bars(results: &Results) -> Vec<Bar> {
    let mut all = Vec::new();
    for policy in OURS {
        all.extend(of_policy(results, policy));
    }
    let everywhere = ratios(results, PolicyKind::Matrix, PolicyKind::Sam, |_| true);
    let spans = ratios(results, PolicyKind::Matrix, PolicyKind::Sam, |row| {
        row.spans
    });
    all.extend(worst_of(
        PolicyKind::Matrix,
        "over counters, worst workload",
        "at least 1.00",
        1.0 - ALIKE,
        everywhere,
    ));
    all.extend(mean_of(
        PolicyKind::Matrix,
        "over counters, where groups and processes differ",
        "above 1.00",
        1.0 + ALIKE,
        &spans,
    ));
    all
}

fn of_policy(results: &Results, policy: PolicyKind) -> Vec<Bar> {
    let alone = |row: &Row| row.kind == WorkloadKind::Standalone;
    let mix = |row: &Row| row.kind == WorkloadKind::Mix && !row.spans;
    let over = |base, wanted: &dyn Fn(&Row) -> bool| ratios(results, policy, base, wanted);
    let mut all = Vec::new();
    let programs = over(PolicyKind::Oracle, &alone);
    all.extend(mean_of(
        policy,
        "table 1, of the oracle, mean",
        "at least 0.98",
        0.98,
        &programs,
    ));
    all.extend(worst_of(
        policy,
        "table 1, of the oracle, worst",
        "at least 0.98",
        0.98,
        programs,
    ));
    all.extend(migrations(results, policy));
    let shares = over(PolicyKind::Balancer, &|row| mix(row) && row.shares);
    all.extend(mean_of(
        policy,
        "table 2 where tasks share, over the balancer",
        "at least 1.10",
        1.10,
        &shares,
    ));
    all.extend(worst_of(
        policy,
        "table 2, over the balancer, worst",
        "at least 0.98",
        0.98,
        over(PolicyKind::Balancer, &mix),
    ));
    all.extend(fairness(results, policy, mix));
    let spans = over(PolicyKind::Cas, &|row| row.spans);
    all.extend(mean_of(
        policy,
        "over cache-aware where groups and processes differ",
        "at least 1.10",
        1.10,
        &spans,
    ));
    all.extend(worst_of(
        policy,
        "over cache-aware, worst workload",
        "at least 0.99",
        0.99,
        over(PolicyKind::Cas, &|_| true),
    ));
    let losing = over(PolicyKind::Balancer, &|row| {
        row.kind == WorkloadKind::Losing
    });
    all.extend(worst_of(
        policy,
        "nothing to gain, over the balancer, worst",
        "at least 0.98",
        0.98,
        losing,
    ));
    all.extend(late(results, policy));
    let least = results
        .sensitivity
        .iter()
        .filter(|one| one.policy == policy);
    if let Some(worst) = least.min_by(|a, b| a.worst.total_cmp(&b.worst)) {
        all.push(Bar {
            what: "thresholds 0.1 to 2 times, worst",
            policy,
            bar: "at least 0.91",
            value: worst.worst,
            worst: Some(format!("{} x {}", worst.worst_name, worst.times)),
            is_met: worst.worst >= 0.91,
        });
    }
    all
}

/// Of each workload that is wanted, the speedup by one policy over that by another.
fn ratios(
    results: &Results,
    policy: PolicyKind,
    base: PolicyKind,
    wanted: impl Fn(&Row) -> bool,
) -> Vec<(f64, String)> {
    let of = |row: &Row, kind| row.policies.get(&kind).map(|one: &Outcome| one.speedup);
    let rows = results.rows.iter().filter(|row| wanted(row));
    rows.filter_map(|row| Some((of(row, policy)? / of(row, base)?, row.name.clone())))
        .collect()
}

fn mean_of(
    policy: PolicyKind,
    what: &'static str,
    bar: &'static str,
    least: f64,
    ratios: &[(f64, String)],
) -> Option<Bar> {
    let value = mean(ratios.iter().map(|&(ratio, _)| ratio));
    (!ratios.is_empty()).then_some(Bar {
        what,
        policy,
        bar,
        value,
        worst: None,
        is_met: value >= least,
    })
}

fn worst_of(
    policy: PolicyKind,
    what: &'static str,
    bar: &'static str,
    least: f64,
    ratios: Vec<(f64, String)>,
) -> Option<Bar> {
    let (value, name) = ratios.into_iter().min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    Some(Bar {
        what,
        policy,
        bar,
        value,
        worst: Some(name),
        is_met: value >= least,
    })
}

/// Migrations over those of table 1, of the program with the most.
fn migrations(results: &Results, policy: PolicyKind) -> Option<Bar> {
    let over = |row: &Row| {
        let paper = f64::from(row.paper_moves?);
        let moves = row.policies.get(&policy)?.moves;
        // Where the paper's made none, one is already too many.
        Some((moves / paper.max(0.5), row.name.clone()))
    };
    let all = results.rows.iter().filter_map(over);
    let (value, name) = all.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    Some(Bar {
        what: "table 1, migrations over the paper's, worst",
        policy,
        bar: "at most 2",
        value,
        worst: Some(name),
        is_met: value <= 2.0,
    })
}

/// The slowest program of each mix, over that by the balancer.
fn fairness(results: &Results, policy: PolicyKind, mix: impl Fn(&Row) -> bool) -> Option<Bar> {
    let least = |kind: PolicyKind| {
        let rows = results.rows.iter().filter(|row| mix(row));
        mean(
            rows.filter_map(|row| row.policies.get(&kind))
                .map(|one| one.min),
        )
    };
    let value = least(policy) / least(PolicyKind::Balancer);
    results.rows.iter().any(&mix).then_some(Bar {
        what: "table 2, slowest program, over the balancer",
        policy,
        bar: "above 1.00",
        value,
        worst: None,
        is_met: value > 1.0,
    })
}

/// Moves under constant load after 2 s.
fn late(results: &Results, policy: PolicyKind) -> Option<Bar> {
    let constant = results.rows.iter().filter(|row| row.constant);
    let moves =
        constant.filter_map(|row| Some((row.policies.get(&policy)?.late_moves, row.name.clone())));
    let (most, name) = moves.max_by_key(|&(moves, _)| moves)?;
    Some(Bar {
        what: "constant load, moves after 2 s, most of any run",
        policy,
        bar: "0",
        value: most as f64,
        worst: (most > 0).then_some(name),
        is_met: most == 0,
    })
}
