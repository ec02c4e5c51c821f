//! Invented reports side by side.

use linewise_recording::Source;
use serde_json::json;

use super::*;
use crate::model::TypeRow;
use crate::report::sample::{crowd, everyday};

/// A type with this share of the thread time, in so many samples.
fn type_row(share: f64, samples: f64) -> TypeRow {
    serde_json::from_value(json!({
        "name": "struct node", "description": "", "size": 64, "cost": { "ns": 0.0, "share": share },
        "accesses": samples, "misses": [], "lines_seen": 1, "bounces": false, "variables": [], "fields": [],
        "layout": null,
    }))
    .unwrap()
}

/// What is more than noise: verdict, view, name.
fn real(before: &Report, after: &Report) -> Vec<(Verdict, View, String)> {
    let diff = diff(before, after).unwrap();
    diff.real()
        .map(|change| (change.verdict, change.view, change.name.clone()))
        .collect()
}

#[test]
fn nothing_differs_from_itself_or_from_a_repetition() {
    for mut report in [everyday(), crowd(40)] {
        report.types = vec![type_row(0.3, 400.0)];
        let same = diff(&report, &report).unwrap();
        assert!(!same.changes.is_empty());
        assert!(same.changes.iter().all(|change| change.z == 0.0));
        // Another run of the same: everything a little different, each in its own direction.
        let mut again = report.clone();
        for (number, finding) in again.findings.iter_mut().enumerate() {
            let by = if number % 2 == 0 { 1.25 } else { 0.8 };
            finding.cost.share *= by;
            finding.cost.interval.low *= by;
            finding.cost.interval.high *= by;
            // In another place of memory, in a thread of another number.
            finding.object.address += 4096;
            finding.object.name += " 41999";
        }
        for row in &mut again.types {
            row.cost.share *= 0.85;
        }
        assert_eq!(real(&report, &again), []);
    }
}

#[test]
fn of_numbers_the_members_that_lead_to_them_are_compared() {
    let numbers = |hash: f64, chain: f64| {
        let mut row = type_row(hash + chain, 4000.0);
        let reached = |through: &str, cost: f64| {
            json!({
                "through": through, "share": cost / (hash + chain), "loads": 0.0, "stores": 0.0, "threads": [],
            })
        };
        row.reached = serde_json::from_value(json!([
            reached("matcher.hash", hash),
            reached("matcher.chain", chain)
        ]))
        .unwrap();
        let mut report = everyday();
        report.types = vec![row];
        report
    };
    // What one has lost the other has gained.
    let changes = real(&numbers(0.5, 0.1), &numbers(0.1, 0.5));
    let named: Vec<&str> = changes.iter().map(|it| it.2.as_str()).collect();
    assert_eq!(named.len(), 2, "{changes:?}");
    assert!(named.contains(&"matcher.hash: struct node"), "{named:?}");
    assert!(named.contains(&"matcher.chain: struct node"), "{named:?}");
    assert_eq!(real(&numbers(0.5, 0.1), &numbers(0.48, 0.11)), []);
}

#[test]
fn what_the_repaired_program_no_longer_fights_over_is_gone() {
    let before = everyday();
    let mut after = everyday();
    let repaired = after.findings.remove(0);
    let changes = diff(&before, &after).unwrap();
    let first = &changes.changes[0];
    assert_eq!((first.verdict, first.view), (Verdict::Gone, View::Findings));
    assert!(
        first.name.contains(&repaired.object.name),
        "{} {}",
        first.name,
        repaired.object.name
    );
    assert_eq!(
        (first.detail.as_str(), first.after),
        ("false sharing", None)
    );
    let back = diff(&after, &before).unwrap();
    assert_eq!(back.changes[0].verdict, Verdict::New);
    assert!((back.changes[0].z + first.z).abs() < 1e-9);
}

#[test]
fn a_type_that_many_samples_tell_of_grew_and_one_of_a_few_may_not_have() {
    let of = |share: f64, samples: f64| {
        let mut report = everyday();
        report.findings.clear();
        report.types = vec![type_row(share, samples)];
        report
    };
    let grew = real(&of(0.1, 400.0), &of(0.4, 1600.0));
    assert!(
        grew.iter()
            .any(|(verdict, view, _)| (*verdict, *view) == (Verdict::Grew, View::Types)),
        "{grew:?}"
    );
    assert_eq!(real(&of(0.01, 4.0), &of(0.04, 16.0)), []);
}

#[test]
fn costs_are_doubted_where_the_machine_changed_its_state() {
    let before = everyday();
    let mut after = everyday();
    // Every transfer takes four times as long, and costs that.
    after.run.round_trip_ns = before.run.round_trip_ns.map(|trip| trip * 4.0);
    for finding in &mut after.findings {
        for share in [
            &mut finding.cost.share,
            &mut finding.cost.interval.low,
            &mut finding.cost.interval.high,
        ] {
            *share = (*share * 4.0).min(1.0);
        }
    }
    assert_eq!(real(&before, &after), []);
    assert_eq!(diff(&before, &after).unwrap().notes.len(), 1);
}

#[test]
fn recordings_of_two_sources_are_refused() {
    let (before, mut after) = (everyday(), everyday());
    after.run.source = Source::Exact;
    let refused = diff(&before, &after).unwrap_err();
    assert!(matches!(refused, Incomparable::Sources { .. }));
    assert!(refused.to_string().contains("`exact`"));
    let mut empty = everyday();
    empty.samples.total = 0;
    assert!(matches!(
        diff(&before, &empty),
        Err(Incomparable::Empty { .. })
    ));
}

#[test]
fn quantiles_are_those_of_the_tables() {
    for (p, z) in [(0.025, 1.960), (0.005, 2.576), (0.0005, 3.291), (0.5, 0.0)] {
        assert!((quantile(p) - z).abs() < 1e-3, "{p}: {}", quantile(p));
    }
}

#[test]
fn threads_named_as_the_program_are_called_that_also_where_its_process_was_attached_to() {
    let mut before = everyday();
    let mut names = Vec::new();
    for command in [
        "/opt/server-before --fast",
        "pid 4194 (/opt/server-before --fast)",
    ] {
        before.run.command = command.to_owned();
        before.run.threads[0].name = "server-before".to_owned();
        let after = before.clone();
        let diff = diff(&before, &after).unwrap();
        let threads = diff.changes.iter().filter(|it| it.view == View::Threads);
        names.push(threads.map(|it| it.name.clone()).collect::<Vec<_>>());
    }
    let is_there = |name: &str| names[0].iter().any(|it| it == name);
    assert!(is_there("threads named as the program"), "{names:?}");
    assert!(!is_there("server-before"), "{names:?}");
    assert_eq!(names[0], names[1]);
}
