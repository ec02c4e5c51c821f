//! Who shares with whom, as a section.

use super::model::{Matrix, Report};
use crate::section::{Cell, Drawing, Grid, Grids, Pair, Party, Section, Shown};

/// The threads of a report, and its CPUs, by transfers between them.
pub(super) fn section(report: &Report) -> Section {
    // The cores of an emulated run are a model's, not CPUs of the machine, and its seconds mean nothing.
    let real = !report.run.source.is_emulated();
    let (quantity, unit) = match real {
        true => ("transfers a second", " a second"),
        false => ("transfers", " in all"),
    };
    let (threads, cpus) = (threads(report), cpus(report));
    let nothing = threads.pairs.is_empty() && cpus.pairs.is_empty();
    let shown = match threads.pairs.is_empty() {
        true => Shown::OnPage,
        false => Shown::Everywhere,
    };
    let mut facts = Vec::new();
    if nothing {
        facts.push(vec![Cell::text("no transfer between threads was seen")]);
    }
    facts.extend(cheap_lines(report));
    let grids = [Some(threads), real.then_some(cpus)];
    let drawing = Drawing::Grids(Grids {
        noun: "transfer",
        quantity,
        unit,
        kind: "Kind of sharing",
        kinds: ["True", "False"],
        grids: grids.into_iter().flatten().collect(),
    });
    Section {
        shown,
        facts,
        drawing: (!nothing).then_some(drawing),
        ..Section::new("sharing", "Who shares with whom")
    }
}

/// How many of the transfers are in no finding, if that is more than a few.
fn cheap_lines(report: &Report) -> Option<Vec<Cell>> {
    const FEW: f64 = 0.05;
    let transfers = &report.sharing.transfers;
    let all = transfers.true_sharing + transfers.false_sharing;
    let found: f64 = report.findings.iter().map(|it| it.transfers).sum();
    let rest = all - found;
    (!report.findings.is_empty() && rest > FEW * all).then(|| {
        vec![
            Cell::Count(rest),
            Cell::text(" of "),
            Cell::Count(all),
            Cell::text(" transfers are at lines that are too cheap for a finding"),
        ]
    })
}

/// The threads that share anything.
fn threads(report: &Report) -> Grid {
    let known = report.run.threads.iter();
    let known: std::collections::HashMap<u32, &str> = known
        .map(|thread| (thread.tid, thread.name.as_str()))
        .collect();
    let party = |&tid: &u32| Party {
        name: (*known.get(&tid).unwrap_or(&"thread")).to_owned(),
        id: Some(tid),
    };
    let parties: Vec<Party> = report.sharing.threads.iter().map(party).collect();
    let pairs = pairs(parties.len(), &report.sharing.matrix, report);
    Grid::of("threads", "Threads", parties, pairs)
}

/// The CPUs that share anything.
fn cpus(report: &Report) -> Grid {
    let party = |cpu: &u32| Party {
        name: format!("CPU {cpu}"),
        id: None,
    };
    let parties: Vec<Party> = report.sharing.cpus.iter().map(party).collect();
    let pairs = pairs(parties.len(), &report.sharing.cpu_matrix, report);
    Grid::of("cpus", "CPUs", parties, pairs)
}

/// The pairs that are not zero, in transfers a second or, of an emulated run, in all.
fn pairs(size: usize, matrix: &Matrix, report: &Report) -> Vec<Pair> {
    // A run without a duration has no rate; its plain counts are better than nothing.
    let seconds = match report.run.duration_ns {
        ns if !report.run.source.is_emulated() && ns > 0 => ns as f64 / 1e9,
        _ => 1.0,
    };
    let cell = |rows: &[Vec<f64>], a: usize, b: usize| {
        let value = rows.get(a).and_then(|row| row.get(b)).copied();
        value.filter(|v| v.is_finite() && *v > 0.0).unwrap_or(0.0) / seconds
    };
    let all = (0..size).flat_map(|a| (a + 1..size).map(move |b| (a, b)));
    let pair = |(a, b)| Pair {
        a,
        b,
        parts: [
            cell(&matrix.true_sharing, a, b),
            cell(&matrix.false_sharing, a, b),
        ],
    };
    all.map(pair).filter(|pair| pair.sum() > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{cells, sample};
    use super::*;

    #[test]
    fn threads_that_share_nothing_are_left_out_of_the_matrix() {
        let grid = threads(&sample::everyday());
        let ids: Vec<u32> = grid.parties.iter().filter_map(|party| party.id).collect();
        assert_eq!(ids, [41_312, 41_313, 41_314, 41_315]);
        assert_eq!((grid.pairs[0].a, grid.pairs[0].b), (2, 3));
    }

    #[test]
    fn what_the_findings_do_not_have_of_the_transfers_is_said() {
        let mut report = sample::everyday();
        let found: f64 = report.findings.iter().map(|it| it.transfers).sum();
        report.sharing.transfers.true_sharing = found * 2.0;
        report.sharing.transfers.false_sharing = 0.0;
        let said = |report: &Report| cheap_lines(report).map(|it| cells::sentence(&it));
        let words = said(&report).unwrap();
        assert!(words.ends_with("too cheap for a finding"), "{words}");
        report.sharing.transfers.true_sharing = found * 1.04;
        assert_eq!(said(&report), None);
    }

    #[test]
    fn grouping_the_less_busy_loses_no_transfer() {
        let grid = threads(&sample::crowd(500));
        let (bounded, others) = grid.bounded(32);
        assert_eq!((bounded.parties.len(), others), (33, 468));
        assert_eq!(bounded.parties[32].name, "468 others");
        let sum = |grid: &Grid| grid.pairs.iter().map(Pair::sum).sum::<f64>();
        let (before, after) = (sum(&grid), sum(&bounded));
        assert!((before - after).abs() < before * 1e-9);
    }

    #[test]
    fn a_misshapen_matrix_counts_as_zero_where_it_lacks_cells() {
        let mut report = sample::everyday();
        report.sharing.matrix.true_sharing.truncate(1);
        report.sharing.matrix.false_sharing = vec![vec![f64::NAN; 3]; 5];
        assert!(threads(&report).pairs.is_empty());
        assert_eq!(section(&report).shown, Shown::OnPage);
    }
}
