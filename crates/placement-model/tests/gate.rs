//! The gate: few seeds of the whole table, held against what the placer must not fall below. The full figures stand in
//! `docs/measured/placement.md`.

use linewise_placement_model::{
    Effort, Experiment, PolicyKind, Row, Setup, Workload, WorkloadKind, workloads,
};

/// A debug build simulates a few, a release build all.
fn wanted() -> Vec<Workload> {
    let mut all = workloads();
    if cfg!(debug_assertions) {
        let some = [
            "Hubench (8t)",
            "SGD (10t)",
            "mix 1",
            "2 groups of 6, 1 process",
            "nothing shared, 20",
        ];
        all.retain(|workload| some.contains(&workload.name.as_str()));
    }
    all
}

fn mean(rows: &[&Row], of: impl Fn(&Row) -> f64) -> f64 {
    (rows.iter().map(|row| of(row).ln()).sum::<f64>() / rows.len() as f64).exp()
}

#[test]
fn the_placer_helps_where_it_can_and_harms_nowhere() {
    let effort = Effort {
        seeds: 2,
        seconds: 15.0,
        steps: 200,
    };
    let experiment = Experiment::new(wanted(), effort);
    let rows = experiment.rows(&PolicyKind::ALL, Setup::default(), |_| true, &|_| {});
    let of = |row: &Row, policy: PolicyKind| row.policies[&policy].speedup;
    for policy in [PolicyKind::Sam, PolicyKind::Matrix] {
        let alone: Vec<&Row> = rows
            .iter()
            .filter(|row| row.kind == WorkloadKind::Standalone)
            .collect();
        let over_oracle = mean(&alone, |row| of(row, policy) / of(row, PolicyKind::Oracle));
        assert!(over_oracle >= 0.97, "{policy:?}: {over_oracle}");
        for row in &rows {
            let over_linux = of(row, policy) / of(row, PolicyKind::Balancer);
            // Phases as short as an interval are what it must lose at.
            let least = if row.kind == WorkloadKind::Losing {
                0.94
            } else {
                0.97
            };
            assert!(
                over_linux >= least,
                "{policy:?}, {}: {over_linux}",
                row.name
            );
        }
    }
    let shares: Vec<&Row> = rows
        .iter()
        .filter(|row| row.shares && row.kind == WorkloadKind::Mix)
        .collect();
    let over_linux = mean(&shares, |row| {
        of(row, PolicyKind::Matrix) / of(row, PolicyKind::Balancer)
    });
    assert!(over_linux >= 1.08, "{over_linux}");
    let spans: Vec<&Row> = rows.iter().filter(|row| row.spans).collect();
    let over_cas = mean(&spans, |row| {
        of(row, PolicyKind::Matrix) / of(row, PolicyKind::Cas)
    });
    assert!(over_cas >= 1.1, "{over_cas}");
}
