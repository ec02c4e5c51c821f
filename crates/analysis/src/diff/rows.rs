//! The rows of two reports, paired by name.

use std::collections::BTreeMap;

use super::estimate::{NINETY, Unit, ValueInterval, View};
use crate::model::{Finding, FindingKind, Interval, MissRow, Reached, Report};

/// Costs below this share are not worth a row, and what is not there may have cost as much.
const LEAST_COST: f64 = 0.005;
/// Shares of misses, and of the time of threads, likewise.
const LEAST_SHARE: f64 = 0.02;
/// Bytes in use likewise: samples see the lines that are used most.
const LEAST_BYTES: f64 = 4096.0;
/// Transfers a second, or for each million accesses, likewise.
const LEAST_TRANSFERS: f64 = 1000.0;
/// By so much the share of a thread's time differs between runs, however long they are.
const THREAD_TIME: f64 = 0.02;
/// Variance of a number of samples over its mean: they come in bursts.
const BURSTS: f64 = 2.0;

/// A row of both reports, or of one.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) view: View,
    pub(super) name: String,
    pub(super) detail: String,
    pub(super) unit: Unit,
    pub(super) before: Option<ValueInterval>,
    pub(super) after: Option<ValueInterval>,
    /// The least value that would have been seen.
    least: f64,
    /// Whether it is time at lines that move.
    pub(super) waits: bool,
}

impl Row {
    /// Standard deviations of the logarithm of the ratio from 0, where two runs differ by `between`.
    pub(super) fn z(&self, between: f64) -> f64 {
        let value =
            |side: Option<ValueInterval>| side.map_or(self.least, |it| it.value.max(self.least));
        // Of what is not there the least that would have been seen is a bound, and bounds have no error.
        let error = |side: Option<ValueInterval>| {
            side.filter(|it| it.value > self.least).map_or(0.0, |it| {
                let low = it.interval.low.max(self.least / 2.0).min(it.value);
                let high = it.interval.high.max(it.value);
                (high / low).ln() / (2.0 * NINETY)
            })
        };
        let ratio = value(self.after) / value(self.before);
        ratio.ln() / between.hypot(error(self.before)).hypot(error(self.after))
    }
}

/// The values of one report by name and detail.
type Values = BTreeMap<(String, String), ValueInterval>;

/// A kind of rows.
struct Part {
    view: View,
    unit: Unit,
    least: f64,
    waits: bool,
    values: fn(&Report) -> Values,
}

/// All rows that are worth one on a side.
pub(super) fn rows(before: &Report, after: &Report) -> Vec<Row> {
    let transfers = if before.run.source.is_emulated() {
        Unit::PerMillion
    } else {
        Unit::PerSecond
    };
    let part = |view, unit, least, waits, values: fn(&Report) -> Values| Part {
        view,
        unit,
        least,
        waits,
        values,
    };
    let parts: [Part; 7] = [
        part(View::Findings, Unit::Share, LEAST_COST, true, findings),
        part(View::Totals, Unit::Share, LEAST_COST, true, sharing_cost),
        part(
            View::Totals,
            transfers,
            LEAST_TRANSFERS,
            false,
            transfer_rate,
        ),
        part(View::Types, Unit::Share, LEAST_COST, true, types),
        part(View::Misses, Unit::Share, LEAST_SHARE, true, misses),
        part(
            View::WorkingSet,
            Unit::Bytes,
            LEAST_BYTES,
            false,
            working_set,
        ),
        part(View::Threads, Unit::Share, LEAST_SHARE, false, threads),
    ];
    let mut rows = Vec::new();
    for Part {
        view,
        unit,
        least,
        waits,
        values,
    } in parts
    {
        let (mut first, mut second) = (values(before), values(after));
        // One side did not look.
        if view == View::Misses && before.caches.is_empty() != after.caches.is_empty() {
            continue;
        }
        let names: std::collections::BTreeSet<_> =
            first.keys().chain(second.keys()).cloned().collect();
        for key in names {
            let (before, after) = (first.remove(&key), second.remove(&key));
            let seen = |side: Option<ValueInterval>| side.is_some_and(|it| it.value > least);
            if seen(before) || seen(after) {
                let (name, detail) = key;
                rows.push(Row {
                    view,
                    name,
                    detail,
                    unit,
                    before,
                    after,
                    least,
                    waits,
                });
            }
        }
    }
    rows
}

/// Adds a value to that of the same name.
fn add(values: &mut Values, name: String, detail: &str, value: f64, interval: Interval) {
    let sum = values
        .entry((name, detail.to_owned()))
        .or_insert(ValueInterval {
            value: 0.0,
            interval: Interval::default(),
        });
    sum.value += value;
    sum.interval.low += interval.low;
    sum.interval.high += interval.high;
}

/// The interval of a value that so many samples stand for.
fn sampled(value: f64, samples: f64) -> Interval {
    let share = NINETY * (BURSTS / samples.max(1.0)).sqrt();
    Interval {
        low: value / (1.0 + share),
        high: value * (1.0 + share),
    }
}

/// The cost of each object that is fought over.
fn findings(report: &Report) -> Values {
    let mut values = Values::new();
    for finding in &report.findings {
        let kind = match finding.kind {
            FindingKind::FalseSharing => "false sharing",
            FindingKind::TrueSharing => "true sharing",
            FindingKind::Sharing => "sharing",
        };
        let cost = finding.cost;
        add(
            &mut values,
            object(finding),
            kind,
            cost.share,
            cost.interval,
        );
    }
    values
}

/// What an object is called in every run: without addresses and thread ids, and a heap block by who allocated it.
fn object(finding: &Finding) -> String {
    let object = &finding.object;
    let place = object.allocated_at.first().or_else(|| {
        let place = &object.declared_at;
        (!place.is_empty()).then_some(place)
    });
    let kind = [&object.accessed_type, &object.type_name]
        .into_iter()
        .find(|name| !name.is_empty());
    let mut name = without_numbers(&object.name);
    if let Some(kind) =
        kind.filter(|_| object.declared_at.is_empty() || !object.allocated_at.is_empty())
    {
        name = format!("{name}, {kind}");
    }
    match place {
        Some(place) if !object.allocated_at.is_empty() && !name.contains(place.as_str()) => {
            format!("{name}, allocated by {place}")
        }
        _ => name,
    }
}

/// A name with addresses and ids, which every run has others of, left out.
fn without_numbers(name: &str) -> String {
    name.split(' ')
        .filter(|word| {
            let bare = word.trim_matches(['(', ')', ',', ':']);
            let is_id = bare.len() > 2 && bare.bytes().all(|byte| byte.is_ascii_digit());
            !is_id && !bare.starts_with("0x")
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn sharing_cost(report: &Report) -> Values {
    let mut values = Values::new();
    for finding in &report.findings {
        let cost = finding.cost;
        add(
            &mut values,
            "thread time lost to sharing".to_owned(),
            "",
            cost.share,
            cost.interval,
        );
    }
    values
}

fn transfer_rate(report: &Report) -> Values {
    let transfers = report.sharing.transfers;
    let by = if report.run.source.is_emulated() {
        let accesses: u64 = report.run.threads.iter().filter_map(|it| it.accesses).sum();
        accesses as f64 / 1e6
    } else {
        report.run.duration_ns as f64 / 1e9
    };
    let mut values = Values::new();
    if by > 0.0 {
        let kinds = [
            ("true sharing", transfers.true_sharing),
            ("false sharing", transfers.false_sharing),
        ];
        let sum = transfers.true_sharing + transfers.false_sharing;
        for (kind, value) in kinds.into_iter().filter(|(_, value)| *value > 0.0) {
            let part = value / sum / by;
            let interval = Interval {
                low: transfers.interval.low * part,
                high: transfers.interval.high * part,
            };
            add(
                &mut values,
                "transfers".to_owned(),
                kind,
                value / by,
                interval,
            );
        }
    }
    values
}

fn types(report: &Report) -> Values {
    let mut values = Values::new();
    for row in &report.types {
        // Of numbers each member that leads to some, and the rest.
        let numbers = row.fields.is_empty();
        let local = |it: &&Reached| !it.through.ends_with("(local)");
        let mut rest = 1.0;
        for holder in row.reached.iter().filter(local).filter(|_| numbers) {
            rest -= holder.share;
            let share = row.cost.share * holder.share;
            let interval = sampled(share, row.accesses * holder.share);
            add(
                &mut values,
                known(&row.name, &holder.through),
                "",
                share,
                interval,
            );
        }
        let rest = f64::max(rest, 0.0);
        // Not what rounding leaves.
        if rest > 1e-9 {
            let interval = sampled(row.cost.share * rest, row.accesses * rest);
            add(
                &mut values,
                row.name.clone(),
                "",
                row.cost.share * rest,
                interval,
            );
        }
    }
    values
}

fn misses(report: &Report) -> Values {
    let mut accesses: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for row in &report.types {
        accesses.insert((&row.name, ""), row.accesses);
        for holder in &row.reached {
            let through = (row.name.as_str(), holder.through.as_str());
            accesses.insert(through, row.accesses * holder.share);
        }
    }
    let mut values = Values::new();
    for row in &report.misses {
        let kind = (row.type_name.as_str(), row.through.as_str());
        let seen = accesses.get(&kind).copied().unwrap_or(1.0);
        for (cause, share) in causes(row) {
            let value = share * row.share;
            let name = known(&row.type_name, &row.through);
            // Of the accesses those that fall to this cause.
            add(
                &mut values,
                name,
                cause,
                value,
                sampled(value, seen * share),
            );
        }
    }
    values
}

fn causes(row: &MissRow) -> [(&'static str, f64); 5] {
    [
        ("first use", row.compulsory),
        ("capacity", row.capacity),
        ("conflict", row.conflict),
        ("true sharing", row.true_sharing),
        ("false sharing", row.false_sharing),
    ]
}

fn known(type_name: &str, through: &str) -> String {
    match (type_name, through) {
        ("", _) => "unknown type".to_owned(),
        (name, "") => name.to_owned(),
        (name, through) => format!("{through}: {name}"),
    }
}

fn working_set(report: &Report) -> Values {
    // On machines with longer lines the bound is lower than need be.
    let least = |lines: u64| lines as f64 * 64.0;
    let mut values = Values::new();
    for level in &report.working_set {
        for row in &level.types {
            // What was seen is a bound from below; the estimate may as well be too low by as much.
            let low = least(row.lines_seen).min(row.bytes);
            let spread = sampled(row.bytes, row.lines_seen as f64);
            let interval = Interval {
                low: low.min(spread.low),
                high: (2.0 * row.bytes - low).max(spread.high),
            };
            let name = known(&row.type_name, &row.through);
            add(&mut values, name, level.level.word(), row.bytes, interval);
        }
    }
    values
}

fn threads(report: &Report) -> Values {
    let time = |row: &crate::model::ThreadRow| {
        row.accesses
            .map_or(row.cpu_time_ns as f64, |accesses| accesses as f64)
    };
    let all: f64 = report.run.threads.iter().map(time).sum();
    let program = program_name(&report.run.command);
    let mut values = Values::new();
    for row in &report.run.threads {
        let share = time(row) / all.max(1.0);
        let interval = Interval {
            low: share - THREAD_TIME,
            high: share + THREAD_TIME,
        };
        // Threads without a name of their own have the program's, and that may be another now.
        let name = match row.name.as_str() {
            name if name == program => "threads named as the program",
            name => name,
        };
        add(&mut values, name.to_owned(), "", share, interval);
    }
    values
}

/// What the kernel calls a program that was started by this command, or that has the process `pid N (command)`.
fn program_name(command: &str) -> &str {
    let of_process = || {
        let (pid, words) = command.strip_prefix("pid ")?.split_once(" (")?;
        pid.parse::<u32>().ok()?;
        words.strip_suffix(')')
    };
    let command = of_process().unwrap_or(command);
    let path = command.split(' ').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    name.get(..15).unwrap_or(name)
}
