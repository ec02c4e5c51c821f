//! What the thesis plots beside throughput, as figures: what domains counted, the equation of rates, and
//! throughput by number of threads.

use super::result::{Experiment, Row};
use super::spec::{Contender, Operation};
use super::table::{groups, title};
use crate::drawing::short;
use serde::Serialize;
use std::fmt::Write as _;

/// What the thesis's rule of thumb says of a system of servers and clients, beside what was measured:
/// `min(servers * rate of a server, clients * rate of a client)`. The rates are the highest that a server and a
/// client reached in any row of the same operation, state and number of variables: where servers were the
/// bound in one and clients in another, they are what each can do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Balance {
    /// Whose servers and clients.
    pub contender: Contender,
    /// What was done.
    pub operation: Operation,
    /// Among how many variables.
    pub variables: usize,
    /// Index of the state, as in [`Row::state`].
    pub state: Option<usize>,
    /// How many servers.
    pub servers: usize,
    /// How many clients.
    pub clients: usize,
    /// Million requests a second that one server takes at most.
    pub server_mops: f64,
    /// Million requests a second that one client makes at most.
    pub client_mops: f64,
    /// What follows.
    pub predicted_mops: f64,
    /// What was measured.
    pub measured_mops: f64,
}

/// The equation for all rows of prepared operations on dedicated servers.
#[must_use]
pub fn balances(experiment: &Experiment) -> Vec<Balance> {
    let is_dedicated = |row: &&Row| row.family == "async" && row.servers > 0 && row.clients > 0;
    let rows: Vec<&Row> = experiment.rows.iter().filter(is_dedicated).collect();
    let balance = |row: &&Row| {
        let alike = rows.iter().filter(|other| {
            (other.operation, other.state, other.variables)
                == (row.operation, row.state, row.variables)
                && (other.request_lines, other.queue_length)
                    == (row.request_lines, row.queue_length)
        });
        let best = |count: fn(&Row) -> usize| {
            let rates = alike.clone().map(|row| row.mops / count(row) as f64);
            rates.fold(0.0, f64::max)
        };
        let (server_mops, client_mops) = (best(|row| row.servers), best(|row| row.clients));
        let (servers, clients) = (row.servers as f64, row.clients as f64);
        Balance {
            contender: row.contender,
            operation: row.operation,
            variables: row.variables,
            state: row.state,
            servers: row.servers,
            clients: row.clients,
            server_mops,
            client_mops,
            predicted_mops: (servers * server_mops).min(clients * client_mops),
            measured_mops: row.mops,
        }
    };
    rows.iter().map(balance).collect()
}

/// What the domains counted, and the equation of rates, as tables 80 columns wide. Empty where nothing was
/// delegated.
#[must_use]
pub fn fetch_add_counts(experiment: &Experiment) -> String {
    let mut out = String::new();
    let balances = balances(experiment);
    for (operation, state) in groups(experiment) {
        let of_group = |row: &&Row| row.operation == operation && row.state == state;
        let counted = experiment.rows.iter().filter(of_group);
        let counted: Vec<_> = counted
            .filter_map(|row| Some((row, row.statistics?)))
            .collect();
        if counted.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "{}: what the domains counted\n  {:<20}{:>10}{:>8}{:>8}{:>8}{:>8}{:>9}{:>7}",
            title(experiment, operation, state),
            "",
            "variables",
            "busy %",
            "ready %",
            "empty %",
            "a line",
            "latency",
            "each"
        );
        for (row, one) in counted {
            let ticks = |ticks: Option<f64>| {
                ticks.map_or_else(|| "-".to_owned(), |ticks| format!("{ticks:.0}"))
            };
            let _ = writeln!(
                out,
                "  {:<20}{:>10}{:>8.1}{:>8.1}{:>8.1}{:>8.1}{:>9}{:>7}",
                row.contender,
                row.variables,
                one.server_saturation * 100.0,
                one.responses_ready * 100.0,
                one.failed_pops * 100.0,
                one.requests_a_line,
                ticks(one.latency_ticks),
                ticks(one.server_ticks_a_request),
            );
        }
        let of_group = |one: &&Balance| one.operation == operation && one.state == state;
        let balances: Vec<_> = balances.iter().filter(of_group).collect();
        if !balances.is_empty() {
            let _ = writeln!(
                out,
                "\n  {:<20}{:>10}{:>13}{:>13}{:>10}{:>11}",
                "rates, Mops", "variables", "servers", "clients", "the less", "measured"
            );
        }
        for one in balances {
            let times = |count: usize, mops: f64| format!("{count} * {}", short(mops));
            let _ = writeln!(
                out,
                "  {:<20}{:>10}{:>13}{:>13}{:>10}{:>11}",
                one.contender,
                one.variables,
                times(one.servers, one.server_mops),
                times(one.clients, one.client_mops),
                short(one.predicted_mops),
                short(one.measured_mops),
            );
        }
        out.push('\n');
    }
    if !out.is_empty() {
        out.push_str(
            "Busy: looks of servers that found requests; ready: looks of clients that found\n\
             answers; empty: free request lines for which nothing was pending; requests a\n\
             line; latency of a line and the server's time for each request in ticks\n\
             (--timed). Rates: the highest that one server and one client reached in these\n\
             rows; with one number of servers they say nothing.\n",
        );
    }
    out
}

/// Throughput by number of threads, 80 columns wide: a table for each operation and number of variables.
/// Empty of one experiment. States are not told apart, as each experiment has its own: a figure is that of
/// the state with the most samples.
#[must_use]
pub fn fetch_add_by_threads(experiments: &[&Experiment]) -> String {
    let mut out = String::new();
    if experiments.len() < 2 {
        return out;
    }
    let all = || experiments.iter().flat_map(|experiment| &experiment.rows);
    let mut tables: Vec<(Operation, usize)> = Vec::new();
    for row in all() {
        if !tables.contains(&(row.operation, row.variables)) {
            tables.push((row.operation, row.variables));
        }
    }
    for (operation, variables) in tables {
        let here = |row: &&Row| row.operation == operation && row.variables == variables;
        let mut contenders: Vec<Contender> = Vec::new();
        for row in all().filter(here) {
            if !contenders.contains(&row.contender) {
                contenders.push(row.contender);
            }
        }
        let _ = write!(
            out,
            "{}, {variables} variables, Mops by threads\n  {:<23}",
            operation.name(),
            ""
        );
        for experiment in experiments {
            let _ = write!(out, "{:>9}", experiment.threads);
        }
        out.push('\n');
        for contender in contenders {
            let _ = write!(out, "  {contender:<23}");
            for experiment in experiments {
                let rows = experiment.rows.iter().filter(here);
                let mine = rows.filter(|row| row.contender == contender);
                let most = mine.max_by_key(|row| row.samples);
                let cell = most.map_or_else(|| "-".to_owned(), |row| short(row.mops));
                let _ = write!(out, "{cell:>9}");
            }
            out.push('\n');
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::result::Sample;
    use super::super::result::tests::{experiment, sample};
    use super::super::spec::Method;
    use super::super::statistics::Statistics;
    use super::*;

    /// Servers that take 100 Mops each, and clients that make 50.
    fn balanced(servers: usize, clients: usize) -> Sample {
        let mops = (servers as f64 * 100.0).min(clients as f64 * 50.0);
        Sample {
            servers,
            clients,
            statistics: Some(Statistics {
                server_saturation: 0.25,
                responses_ready: 0.5,
                failed_pops: 0.125,
                requests_a_line: 63.0,
                latency_ticks: Some(4321.0),
                server_ticks_a_request: None,
            }),
            ..sample(Method::Async(servers), 64, mops, Some((60.0, 60.0)))
        }
    }

    #[test]
    fn the_equation_finds_the_rates_of_which_the_rows_are_made() {
        let rows = vec![
            balanced(1, 7),
            balanced(2, 6),
            balanced(3, 5),
            balanced(6, 2),
        ];
        let balances = balances(&experiment(rows, vec![0, 1]));
        assert_eq!(balances.len(), 4);
        for one in &balances {
            assert_eq!((one.server_mops, one.client_mops), (100.0, 50.0));
            assert_eq!(one.predicted_mops, one.measured_mops);
        }
    }

    #[test]
    fn what_was_counted_is_told_in_figures() {
        let told = fetch_add_counts(&experiment(
            vec![balanced(1, 7), balanced(6, 2)],
            vec![0, 1],
        ));
        for figure in [
            "25.0", "50.0", "12.5", "63.0", "4321", "1 * 100", "2 * 50.0", "measured",
        ] {
            assert!(told.contains(figure), "{figure} is not in\n{told}");
        }
        let atomic = sample(Method::Atomic, 64, 1.0, Some((60.0, 60.0)));
        assert_eq!(fetch_add_counts(&experiment(vec![atomic], vec![0, 1])), "");
    }

    #[test]
    fn threads_stand_side_by_side() {
        let near = Some((60.0, 60.0));
        let mut two = experiment(vec![sample(Method::Atomic, 64, 90.0, near)], vec![0, 1]);
        let mut four = experiment(vec![sample(Method::Mcs, 64, 45.0, near)], vec![0, 1]);
        (two.threads, four.threads) = (2, 4);
        assert_eq!(fetch_add_by_threads(&[&two]), "");
        let told = fetch_add_by_threads(&[&two, &four]);
        assert!(told.contains("        2        4\n"), "{told}");
        assert!(told.contains("90.0        -"), "{told}");
        assert!(told.contains("-     45.0"), "{told}");
    }
}
