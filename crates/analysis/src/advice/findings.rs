//! Findings: contended lines grouped by the object that they belong to, ranked by cost.

use std::collections::{BTreeMap, BTreeSet};

use linewise_recording::{Address, Object, ObjectKind, Pid, RunInfo, Tables};

use super::change;
use super::names::{Names, is_exact};
use crate::model::{
    AccessRow, Cost, Evidence, Finding, FindingKind, Interval, LineField, LineRow, ObjectRow,
};
use crate::views::sharing::{LineSharing, Place, SharingView};

/// A finding needs to cost at least this share of all thread time: below, the estimate is noise.
const LEAST_SHARE: f64 = 0.005;
/// And to rest on at least so many samples and conflicting traps.
const LEAST_SAMPLES: u64 = 5;
const LEAST_TRAPS: u64 = 3;
/// Lines of one finding that are described.
const LINES: usize = 16;
/// Access places of one finding that are described.
const PLACES: usize = 40;

/// The findings, and the lines that are too cheap to be one.
#[derive(Clone, Debug, Default)]
pub struct Advice {
    /// Ranked by cost.
    pub findings: Vec<Finding>,
    /// Lines that moved and are in no finding.
    pub small_lines: usize,
}

/// Which lines belong together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// All lines of one known object.
    Object(Pid, Address),
    /// Lines of unnamed memory that the same functions fight over.
    Functions(Pid, BTreeSet<String>),
}

/// Makes findings of the lines of a view. `thread_ns` is the CPU time of all threads.
#[must_use]
pub fn advise(view: &SharingView, tables: &Tables, info: &RunInfo, thread_ns: f64) -> Advice {
    let names = Names::new(tables);
    let mut groups: BTreeMap<Group, Vec<&LineSharing>> = BTreeMap::new();
    for line in &view.lines {
        groups.entry(group(line, &names)).or_default().push(line);
    }
    let mut advice = Advice::default();
    for lines in groups.into_values() {
        let finding = finding(&lines, &names, info, thread_ns);
        let weighty = finding.cost.share >= LEAST_SHARE
            && finding.evidence.samples >= LEAST_SAMPLES
            && finding.evidence.traps >= LEAST_TRAPS;
        if weighty {
            advice.findings.push(finding);
        } else {
            advice.small_lines += lines.len();
        }
    }
    advice
        .findings
        .sort_by(|a, b| b.cost.ns.total_cmp(&a.cost.ns));
    for (rank, finding) in (1..).zip(&mut advice.findings) {
        finding.rank = rank;
    }
    advice
}

/// The object that most of the line's sampled time goes to.
fn main_object<'a>(line: &LineSharing, names: &Names<'a>) -> Option<&'a Object> {
    let mut weights: BTreeMap<Address, (f64, &Object)> = BTreeMap::new();
    for place in &line.places {
        if let Some(object) = names.object(line.pid, place.touch.address) {
            // Traps count a little, for lines whose accesses are hardly ever sampled.
            weights.entry(object.address).or_insert((0.0, object)).0 +=
                place.weight_ns + place.traps as f64;
        }
    }
    weights
        .into_values()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, object)| object)
}

fn group(line: &LineSharing, names: &Names<'_>) -> Group {
    match main_object(line, names) {
        Some(object) if is_exact(object) => Group::Object(line.pid, object.address),
        _ => {
            let most = line.places.first().map_or(0.0, |place| place.weight_ns);
            let function = |place: &Place| match names.frames(line.pid, place.touch.ip).first() {
                Some(frame) => frame.function.clone(),
                None => place.touch.ip.to_string(),
            };
            let dear = line
                .places
                .iter()
                .filter(|place| place.weight_ns >= 0.2 * most);
            Group::Functions(line.pid, dear.map(function).collect())
        }
    }
}

fn finding(lines: &[&LineSharing], names: &Names<'_>, info: &RunInfo, thread_ns: f64) -> Finding {
    let mut lines = lines.to_vec();
    lines.sort_by(|a, b| b.cost_ns.value.total_cmp(&a.cost_ns.value));
    let sum = |of: fn(&LineSharing) -> f64| lines.iter().map(|line| of(line)).sum::<f64>();
    let share = |ns: f64| {
        if thread_ns > 0.0 {
            (ns / thread_ns).min(1.0)
        } else {
            0.0
        }
    };
    let transfers = sum(|line| line.transfers.value);
    let false_transfers = sum(LineSharing::false_transfers);
    let false_share = if transfers > 0.0 {
        false_transfers / transfers
    } else {
        0.0
    };
    let kind = if false_share >= 0.5 {
        FindingKind::FalseSharing
    } else {
        FindingKind::TrueSharing
    };
    let cost_ns = sum(|line| line.cost_ns.value);
    let interval = Interval {
        low: share(sum(|line| line.cost_ns.low)),
        high: share(sum(|line| line.cost_ns.high)),
    };
    let object = object_row(lines[0], names);
    let line_rows: Vec<LineRow> = lines
        .iter()
        .take(LINES)
        .map(|line| line_row(line, &object, names, info.line_size))
        .collect();
    let accesses = access_rows(&lines, names, info.line_size);
    let change = change::propose(kind, &object, &line_rows, &accesses);
    Finding {
        rank: 0,
        kind,
        cost: Cost {
            ns: cost_ns,
            share: share(cost_ns),
            interval,
        },
        transfers,
        transfers_interval: Interval {
            low: sum(|line| line.transfers.low),
            high: sum(|line| line.transfers.high),
        },
        false_share,
        doubt: doubt(&lines, &object, false_share),
        object,
        lines: line_rows,
        accesses,
        change: change.text,
        change_source: change.source,
        expected_gain: match kind {
            FindingKind::FalseSharing => interval,
            // How much less can be shared is up to the program.
            FindingKind::TrueSharing => Interval {
                low: 0.0,
                high: interval.high,
            },
        },
        evidence: Evidence {
            samples: lines.iter().map(|line| line.samples).sum(),
            watches: lines.iter().map(|line| line.watches).sum(),
            traps: lines.iter().map(|line| line.traps).sum(),
        },
    }
}

fn object_row(line: &LineSharing, names: &Names<'_>) -> ObjectRow {
    match main_object(line, names) {
        Some(object) => ObjectRow {
            kind: object.kind,
            name: object.name.clone(),
            type_name: object.type_name.clone(),
            address: object.address.0,
            size: object.size,
            declared_at: object.declared_at.clone(),
        },
        None => ObjectRow {
            kind: ObjectKind::Mapping,
            name: format!("memory at {:#x}", line.line.0),
            type_name: String::new(),
            address: line.line.0,
            size: 0,
            declared_at: String::new(),
        },
    }
}

fn line_row(line: &LineSharing, object: &ObjectRow, names: &Names<'_>, line_size: u64) -> LineRow {
    let mut fields = Vec::new();
    for found in names.objects_on(line.pid, line.line, line_size) {
        if !is_exact(found) {
            continue;
        }
        let members = names.fields_in(found, line.line, line_size);
        if members.is_empty() {
            fields.extend(on_line(
                line,
                line_size,
                found.address.0,
                found.size,
                &found.name,
                &found.type_name,
            ));
        }
        for member in members {
            let start = found.address.0 + member.offset;
            fields.extend(on_line(
                line,
                line_size,
                start,
                member.size,
                &member.path,
                &member.type_name,
            ));
        }
    }
    fields.sort_by_key(|field| field.offset);
    LineRow {
        address: line.line.0,
        size: line_size as u32,
        offset_in_object: line.line.0.wrapping_sub(object.address) as i64,
        transfers: line.transfers.value,
        fields,
    }
}

/// The part of a byte range that lies on a line, named.
fn on_line(
    line: &LineSharing,
    line_size: u64,
    start: u64,
    size: u64,
    path: &str,
    type_name: &str,
) -> Option<LineField> {
    let first = start.max(line.line.0);
    let end = (start + size).min(line.line.0 + line_size);
    (first < end).then(|| LineField {
        offset: (first - line.line.0) as u32,
        size: (end - first) as u32,
        path: path.to_owned(),
        type_name: type_name.to_owned(),
    })
}

fn access_rows(lines: &[&LineSharing], names: &Names<'_>, line_size: u64) -> Vec<AccessRow> {
    let total: f64 = lines
        .iter()
        .flat_map(|line| &line.places)
        .map(|place| place.weight_ns)
        .sum();
    let mut rows: Vec<(f64, u64, AccessRow)> = Vec::new();
    for line in lines {
        for place in &line.places {
            let row = access_row(line, place, names, line_size, total);
            rows.push((place.weight_ns, place.traps, row));
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    keep_each_thread(rows.into_iter().map(|(_, _, row)| row).collect())
}

/// The dearest places, but of every thread at least its dearest one: a finding names both sides.
fn keep_each_thread(rows: Vec<AccessRow>) -> Vec<AccessRow> {
    let mut seen = BTreeSet::new();
    let mut kept = Vec::new();
    for (i, row) in rows.into_iter().enumerate() {
        let first_of_thread = seen.insert(row.tid);
        if i < PLACES || first_of_thread {
            kept.push(row);
        }
    }
    kept
}

fn access_row(
    line: &LineSharing,
    place: &Place,
    names: &Names<'_>,
    line_size: u64,
    total: f64,
) -> AccessRow {
    let frames = names.frames(line.pid, place.touch.ip);
    let innermost = frames.first();
    // The first frame that has a source line names the place; library code without debug info
    // still has a function.
    let located = frames.iter().find(|frame| frame.line > 0).or(innermost);
    let object = names.object(line.pid, place.touch.address);
    let field = object
        .filter(|object| is_exact(object))
        .map(|object| {
            names
                .fields_in(object, place.touch.address, 1)
                .first()
                .map_or_else(|| object.name.clone(), |field| field.path.clone())
        })
        .unwrap_or_default();
    AccessRow {
        tid: place.tid.0,
        thread_name: names.thread(place.tid).to_owned(),
        function: match innermost.filter(|frame| !frame.function.is_empty()) {
            Some(frame) => frame.function.clone(),
            None if place.touch.ip.0 == 0 => "unknown instruction".to_owned(),
            None => format!("{:#x}", place.touch.ip.0),
        },
        file: located.map(|frame| frame.file.clone()).unwrap_or_default(),
        line: located.map_or(0, |frame| frame.line),
        inlined_into: frames
            .iter()
            .skip(1)
            .map(|frame| frame.function.clone())
            .collect(),
        op: place.touch.operation,
        offset: (place.touch.address.0 - place.touch.address.line(line_size).0) as u32,
        size: place.touch.size,
        field,
        share: if total > 0.0 {
            place.weight_ns / total
        } else {
            0.0
        },
        line_address: line.line.0,
        missing: innermost
            .map(|frame| frame.reason.clone())
            .unwrap_or_default(),
    }
}

fn doubt(lines: &[&LineSharing], object: &ObjectRow, false_share: f64) -> String {
    let mut doubts = Vec::new();
    let places = || lines.iter().flat_map(|line| &line.places);
    if places().any(|place| !place.touch.locked && place.weight_ns > 0.0) {
        doubts.push(
            "Plain loads and stores hide part of their waiting behind other work: the cost may lie anywhere in its interval.",
        );
    }
    if (0.2..0.8).contains(&false_share) {
        doubts.push("Both kinds of sharing are at work here: separating the fields removes only the false part.");
    }
    if object.kind == ObjectKind::Heap {
        doubts.push(
            "Which heap block this is was not recorded: the source places say what it holds.",
        );
    }
    doubts.join(" ")
}
