//! The figures for people.

use super::result::{Experiment, Row};
use super::spec::{Contender, Operation};
use crate::drawing::{list, short};
use std::fmt::Write as _;

/// Columns of a table: with the names they fill a terminal of 80.
const COLUMNS: usize = 5;

/// The figures as tables for people, 80 columns wide: one for each operation and state, a line for
/// each contender.
#[must_use]
pub fn fetch_add_table(experiment: &Experiment) -> String {
    let mut out = String::new();
    for (operation, state) in groups(experiment) {
        let rows: Vec<&Row> = experiment
            .rows
            .iter()
            .filter(|row| row.operation == operation && row.state == state)
            .collect();
        let _ = writeln!(out, "{}", title(experiment, operation, state));
        let mut variables: Vec<usize> = rows.iter().map(|row| row.variables).collect();
        variables.sort_unstable();
        variables.dedup();
        for columns in variables.chunks(COLUMNS) {
            block(&mut out, experiment, &rows, columns);
        }
    }
    let _ = writeln!(
        out,
        "Mops, returned and checked: harmonic mean of up to {} samples of {} s, ± half\n\
         of what they spread, in %. {} threads on CPUs {}. Variables of 64 bytes.",
        experiment.samples_asked,
        experiment.seconds,
        experiment.threads,
        list(&experiment.cpus),
    );
    if experiment.left_out > 0 {
        let _ = writeln!(
            out,
            "{} of {} samples are in no row: the round trip changed meanwhile, or could not\n\
             be measured.",
            experiment.left_out,
            experiment.samples.len(),
        );
    }
    out
}

/// The operations and states of which there are rows, in their order.
pub(super) fn groups(experiment: &Experiment) -> Vec<(Operation, Option<usize>)> {
    let mut groups = Vec::new();
    for row in &experiment.rows {
        let group = (row.operation, row.state);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// What a group is, in a line.
pub(super) fn title(experiment: &Experiment, operation: Operation, state: Option<usize>) -> String {
    format!("{}, {}", operation.name(), state_name(experiment, state))
}

/// What a state is, in some words.
pub(super) fn state_name(experiment: &Experiment, state: Option<usize>) -> String {
    let span = state.and_then(|state| experiment.states.get(state));
    span.map_or_else(
        || "all threads on one CPU".to_owned(),
        |span| format!("round trip {} ns", span.words()),
    )
}

fn block(out: &mut String, experiment: &Experiment, rows: &[&Row], columns: &[usize]) {
    let _ = write!(out, "  {:<23}", "variables");
    for variables in columns {
        let _ = write!(out, "{variables:>11}");
    }
    out.push('\n');
    let measured = |contender: &&Contender| rows.iter().any(|row| row.contender == **contender);
    for contender in experiment.contenders.iter().filter(measured) {
        let _ = write!(out, "  {contender:<23}");
        for variables in columns {
            let row = rows
                .iter()
                .find(|row| row.contender == *contender && row.variables == *variables);
            let cell = row.map_or_else(|| "-".to_owned(), |row| cell(row));
            let _ = write!(out, "{cell:>11}");
        }
        out.push('\n');
    }
    out.push('\n');
}

fn cell(row: &Row) -> String {
    format!("{} ±{:<2.0}", short(row.mops), spread_percent(row))
}

/// Half of the distance between the slowest and the fastest sample, in percent of the figure.
pub(super) fn spread_percent(row: &Row) -> f64 {
    (row.mops_high - row.mops_low) / 2.0 / row.mops.max(f64::MIN_POSITIVE) * 100.0
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::{experiment, sample};
    use super::super::spec::Method;
    use super::*;

    #[test]
    fn no_line_is_wider_than_a_terminal_and_every_figure_is_there() {
        let trips = Some((330.0, 340.0));
        let samples = (0..=11).map(|power| {
            let mops = 1_000.0 / f64::from(power + 1);
            sample(Method::PthreadMutex, 1 << (2 * power), mops, trips)
        });
        let table = fetch_add_table(&experiment(samples.collect(), vec![0, 1]));
        assert!(table.starts_with("add, round trip 335 ns\n"), "{table}");
        for line in table.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for figure in ["1000 ±0", "83.3 ±0", "4194304"] {
            assert!(table.contains(figure), "{figure} is not in\n{table}");
        }
    }

    #[test]
    fn what_was_not_measured_is_a_dash_and_what_was_left_out_is_told() {
        let near = Some((60.0, 60.0));
        let table = fetch_add_table(&experiment(
            vec![
                sample(Method::Atomic, 1, 50.0, near),
                sample(Method::Atomic, 4, 50.0, near),
                sample(Method::Mcs, 1, 50.0, near),
                sample(Method::Ticket, 1, 50.0, Some((60.0, 300.0))),
            ],
            vec![0, 1],
        ));
        let mcs = table.lines().find(|line| line.contains("mcs"));
        assert!(
            mcs.is_some_and(|line| line.contains("50.0 ±0") && line.trim_end().ends_with('-')),
            "{table}"
        );
        assert!(!table.contains("ticket"), "{table}");
        assert!(table.contains("1 of 4 samples are in no row"), "{table}");
    }
}
