//! Findings: contended lines grouped by the object that they belong to, ranked by cost.

use std::collections::BTreeSet;

use linewise_recording::{Address, Object, ObjectKind, RunInfo, SharedMemory, Tables};

use super::accesses::{Accesses, beside};
use super::called_from::CallChains;
use super::change;
use super::groups::{Group, groups, main_object, objects};
use super::known::{Known, LINES};
use super::language::Languages;
use super::names::Names;
use super::proposal::{Language, language};
use super::votes::{Verdict, Votes};
use crate::model::{Cost, Evidence, Finding, FindingKind, Interval, LineField, LineRow, ObjectRow};
use crate::runtime::GO_NAME;
use crate::users::Goroutines;
use crate::views::sharing::{
    Basis, Estimate, Followed, LineSharing, SharingView, ThreadTime, WATCHED,
};

/// A finding needs to cost at least this share of all thread time: below, the estimate is noise.
const LEAST_SHARE: f64 = 0.005;
/// And to rest on at least so many samples and conflicting traps,
const LEAST_SAMPLES: u64 = 5;
const LEAST_TRAPS: u64 = 3;
/// or, where hardly a watch was armed, on so many samples of several threads,
const LEAST_UNWATCHED: u64 = 20;
/// or, where every access was seen, on so many transfers: what threads hand to each other when they
/// begin and end stays below.
const LEAST_TRANSFERS: f64 = 1_000.0;
/// on lines that moved so often each: what was written once, then read by another thread, nobody fights over, however much
/// it is.
const LEAST_OF_A_LINE: f64 = 4.0;

/// The findings, and the lines that are too cheap to be one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Advice {
    /// Ranked by cost.
    pub(crate) findings: Vec<Finding>,
    /// Lines that moved and are in no finding.
    pub(crate) small_lines: usize,
}

/// Makes findings of the lines of a view. Costs are shares of `time`.
#[must_use]
pub(crate) fn advise(
    view: &SharingView,
    tables: &Tables,
    info: &RunInfo,
    time: &ThreadTime,
    shared: &SharedMemory,
    goroutines: &Goroutines,
) -> Advice {
    let names = Names::new(tables);
    let votes = Votes::new(tables, &names);
    let known = Known {
        tables,
        names: &names,
        votes: &votes,
        chains: &CallChains::new(tables, shared, info.line_size),
        languages: &Languages::new(&tables.maps),
        goroutines,
    };
    let mut advice = Advice::default();
    let (moving, handed_over): (Vec<&LineSharing>, Vec<_>) = view
        .lines
        .iter()
        .partition(|line| line.basis != Basis::Traced || line.transfers.value >= LEAST_OF_A_LINE);
    advice.small_lines += handed_over.len();
    for (group, lines) in groups(moving, known) {
        let finding = finding(&group, &lines, known, info, time);
        let at_least = |count: Option<u64>, least: u64| count.is_none_or(|count| count >= least);
        let weighty = finding.cost.share >= LEAST_SHARE
            && at_least(finding.evidence.samples, LEAST_SAMPLES)
            && (at_least(finding.evidence.traps, LEAST_TRAPS)
                || finding.evidence.watches.is_some_and(|it| it < WATCHED)
                    && at_least(finding.evidence.samples, LEAST_UNWATCHED))
            && (!finding.is_exact() || finding.transfers >= LEAST_TRANSFERS);
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

fn finding(
    group: &Group,
    lines: &[&LineSharing],
    known: Known<'_>,
    info: &RunInfo,
    time: &ThreadTime,
) -> Finding {
    let Known { names, votes, .. } = known;
    let mut lines = lines.to_vec();
    lines.sort_by(|a, b| b.cost_ns.value.total_cmp(&a.cost_ns.value));
    let counted = summed(&lines, |line| line.transfers);
    let (false_share, false_share_interval) = false_share_of(&lines, counted.value);
    let kind = FindingKind::of(false_share_interval);
    let main = main_object(lines[0], names);
    let has_bounds = |object: &&Object| match object.kind {
        ObjectKind::Heap | ObjectKind::Stack => names.is_exact(object),
        // One that holds several objects is none.
        ObjectKind::Mapping => names.is_exact(object) && !matches!(group, Group::Functions(..)),
        ObjectKind::Static => true,
    };
    let several = matches!(group, Group::Alike(_));
    let place = main
        .filter(|object| has_bounds(object) && !several)
        .map(|object| (object.address, object.size));
    let verdict = votes.verdict(&lines, place);
    let mut object = object_row(lines[0], main, known, &verdict);
    object.count = objects(group, &lines, names);
    if several && object.kind == ObjectKind::Heap {
        object.name = object.name.replacen("block", "blocks", 1);
    }
    let followed = Followed::of(info);
    let extent = match group {
        Group::Object(..) => Some((Address(object.address), object.size)),
        Group::Functions(..) | Group::Alike(_) => None,
    };
    let scale = followed.scale(&lines, extent);
    let transfers = counted.times(scale);
    let cost_ns = summed(&lines, |line| line.cost_ns).times(scale);
    let share = time.share(cost_ns);
    let interval = share.interval();
    let line_rows = line_rows(&lines, several, &object, known, &verdict, info.line_size);
    let accesses = Accesses::of(&lines, known, &verdict, info.line_size);
    // In another process the same address is another line.
    let mut of_one = lines.clone();
    of_one.retain(|line| line.pid == lines[0].pid);
    let of_one_process = match of_one.len() == lines.len() {
        true => accesses.clone(),
        false => Accesses::of(&of_one, known, &verdict, info.line_size),
    };
    let beside = match group {
        Group::Object(..) => beside(&lines, &object, known, &verdict, info.line_size),
        Group::Functions(..) | Group::Alike(_) => Vec::new(),
    };
    let change = change::propose(
        false_share_interval,
        &object,
        &line_rows,
        &of_one_process.told,
        &beside,
    );
    let language = language(&accesses.told);
    let (accesses, unlisted) = accesses.summed();
    Finding {
        rank: 0,
        kind,
        cost: Cost {
            ns: cost_ns.value,
            share: share.value,
            interval,
        },
        transfers: transfers.value,
        transfers_interval: transfers.interval(),
        false_share,
        false_share_interval,
        doubt: doubt(
            &lines,
            false_share_interval,
            [
                sampled_words(followed, scale),
                disagreement(&verdict),
                unknown_block(&object, known.tables),
                goroutines(&lines, language, kind),
            ],
        ),
        object,
        line_count: (lines.iter().map(|line| line.line))
            .collect::<BTreeSet<_>>()
            .len() as u64,
        lines: line_rows,
        accesses,
        unlisted,
        change: change.text,
        change_source: change.source,
        expected_gain: expected_gain(kind, interval, false_share_interval),
        evidence: evidence(&lines),
    }
}

/// The sum of an estimate of each line.
fn summed(lines: &[&LineSharing], of: fn(&LineSharing) -> Estimate) -> Estimate {
    let sum = |end: fn(Estimate) -> f64| lines.iter().map(|line| end(of(line))).sum();
    Estimate {
        value: sum(|it| it.value),
        low: sum(|it| it.low),
        high: sum(|it| it.high),
    }
}

/// Of `transfers`, all of these lines, the share by false sharing, and between what it is known to lie.
fn false_share_of(lines: &[&LineSharing], transfers: f64) -> (f64, Interval) {
    let falsely: f64 = lines.iter().map(|line| line.false_transfers()).sum();
    let share = if transfers > 0.0 {
        falsely / transfers
    } else {
        0.0
    };
    let part_of_all = |of: fn(&LineSharing) -> f64| {
        let sum: f64 = lines.iter().map(|it| it.transfers.value * of(it)).sum();
        (sum / transfers.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
    };
    let interval = Interval {
        low: part_of_all(|line| line.false_share.low).min(share),
        high: part_of_all(|line| line.false_share.high).max(share),
    };
    (share, interval)
}

/// What a change can save of a cost.
fn expected_gain(kind: FindingKind, cost: Interval, false_share: Interval) -> Interval {
    match kind {
        // What is shared truly moves on.
        FindingKind::FalseSharing => Interval {
            low: cost.low * false_share.low,
            high: cost.high * false_share.high,
        },
        // How much less can be shared is up to the program.
        FindingKind::TrueSharing | FindingKind::Sharing => Interval {
            low: 0.0,
            high: cost.high,
        },
    }
}

/// The dearest of the lines; those of several processes that lie at one address are drawn as one.
fn line_rows(
    lines: &[&LineSharing],
    several: bool,
    object: &ObjectRow,
    known: Known<'_>,
    verdict: &Verdict<'_>,
    line_size: u64,
) -> Vec<LineRow> {
    let mut rows: Vec<LineRow> = Vec::new();
    for line in lines {
        if let Some(row) = rows.iter_mut().find(|row| row.address == line.line.0) {
            row.transfers += line.transfers.value;
            continue;
        }
        if rows.len() == LINES {
            break;
        }
        rows.push(
            match main_object(line, known.names).filter(|own| several && known.names.is_exact(own))
            {
                // Each in its own object.
                Some(own) => {
                    let verdict = known.votes.verdict(&[*line], Some((own.address, own.size)));
                    let object = object_row(line, Some(own), known, &verdict);
                    line_row(line, &object, known, &verdict, line_size)
                }
                None => line_row(line, object, known, verdict, line_size),
            },
        );
    }
    rows
}

fn evidence(lines: &[&LineSharing]) -> Evidence {
    let mut evidence = Evidence::default();
    let add = |sum: &mut Option<u64>, count: u64| *sum = Some(sum.unwrap_or(0) + count);
    for line in lines {
        match line.basis {
            Basis::Sampled {
                samples,
                watches,
                traps,
            } => {
                add(&mut evidence.samples, samples);
                add(&mut evidence.watches, watches);
                add(&mut evidence.traps, traps);
            }
            Basis::Traced => add(&mut evidence.accesses, line.transfers.value as u64),
        }
    }
    evidence
}

fn object_row(
    line: &LineSharing,
    object: Option<&Object>,
    known: Known<'_>,
    verdict: &Verdict<'_>,
) -> ObjectRow {
    let accessed_type = verdict.kind.map_or("", |row| row.type_name.as_str());
    let type_owner = (verdict.kind).map_or_else(String::new, |row| known.votes.owner(row));
    let (accessed_type, field) = (accessed_type.to_owned(), verdict.fields.join(", "));
    let reached_through = verdict.reached.join(", ");
    let type_votes = verdict.votes.clone();
    match object {
        Some(object) => ObjectRow {
            kind: object.kind,
            name: object.name.clone(),
            type_name: object.type_name.clone(),
            address: object.address.0,
            size: match known.names.has_bounds(object) {
                true => object.size,
                false => 0,
            },
            declared_at: object.declared_at.clone(),
            allocated_at: known.names.allocated_at(object),
            type_allocated_at: type_allocated_at(object, known.names, verdict),
            count: 1,
            accessed_type,
            type_owner,
            field,
            reached_through,
            type_votes,
        },
        None => ObjectRow {
            kind: ObjectKind::Mapping,
            name: format!("memory at {:#x}", line.line.0),
            type_name: String::new(),
            address: line.line.0,
            size: 0,
            declared_at: String::new(),
            allocated_at: Vec::new(),
            type_allocated_at: Vec::new(),
            count: 1,
            accessed_type,
            type_owner,
            field,
            reached_through,
            type_votes,
        },
    }
}

/// Where a block of Go's heap, which is not recorded, can come from.
fn type_allocated_at(object: &Object, names: &Names<'_>, verdict: &Verdict<'_>) -> Vec<String> {
    let is_memory = matches!(object.kind, ObjectKind::Heap | ObjectKind::Mapping);
    let kind = verdict.kind.filter(|_| is_memory);
    kind.map_or_else(Vec::new, |kind| names.type_allocated_at(kind))
}

fn line_row(
    line: &LineSharing,
    object: &ObjectRow,
    known: Known<'_>,
    verdict: &Verdict<'_>,
    line_size: u64,
) -> LineRow {
    let Known { names, votes, .. } = known;
    let mut fields = match object.kind {
        ObjectKind::Heap | ObjectKind::Mapping => {
            voted_fields(line, object, votes, verdict, line_size)
        }
        _ => Vec::new(),
    };
    let voted = !fields.is_empty();
    for found in names.objects_on(line.pid, line.line, line_size) {
        if !names.is_exact(found) || (voted && found.address.0 == object.address) {
            continue;
        }
        if !matches!(found.kind, ObjectKind::Static | ObjectKind::Stack) {
            fields.extend(fields_of_another(line, found, known, line_size));
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

/// What another block on a line is: its own members as far as accesses name them.
fn fields_of_another(
    line: &LineSharing,
    block: &Object,
    known: Known<'_>,
    line_size: u64,
) -> Vec<LineField> {
    let votes = known.votes;
    let verdict = votes.verdict(&[line], Some((block.address, block.size)));
    let object = object_row(line, Some(block), known, &verdict);
    let mut fields = voted_fields(line, &object, votes, &verdict, line_size);
    for field in &mut fields {
        field.path = format!("{} (another block)", field.path);
    }
    if fields.is_empty() {
        let (start, size) = (block.address.0, block.size);
        let kind = &block.type_name;
        fields.extend(on_line(line, line_size, start, size, &block.name, kind));
    }
    fields
}

/// The members, on a line, of those values of the type that the accesses name which these accesses
/// touch in the object; `[i].` before the name where they are elements of an array.
fn voted_fields(
    line: &LineSharing,
    object: &ObjectRow,
    votes: &Votes<'_>,
    verdict: &Verdict<'_>,
    line_size: u64,
) -> Vec<LineField> {
    let (Some(row), Some(base)) = (verdict.kind, verdict.base) else {
        return Vec::new();
    };
    let size = row.type_size.max(1);
    let start = |address: Address| {
        let within = i128::from(address.0) - i128::from(base);
        address.0 - within.rem_euclid(i128::from(size)) as u64
    };
    let extent = known_extent(object);
    let named = line.places.iter().filter(|place| {
        let at = place.touch.address.0;
        let of = votes.access(place.touch.pid, place.touch.ip);
        of.is_some_and(|of| verdict.speaks_of(of)) && extent.contains(&at)
    });
    let starts: BTreeSet<u64> = named.map(|place| start(place.touch.address)).collect();
    let several = starts.len() > 1;
    let first = starts.first().copied().unwrap_or_default();
    let begin = (object.size > 0).then_some(object.address);
    let mut fields = Vec::new();
    for &start in &starts {
        for member in votes.members(row) {
            let name = match member.name.as_str() {
                "" => format!("({})", member.member_type),
                name => name.to_owned(),
            };
            let name = match several {
                true => format!("[{}].{name}", index(begin, first, start, size)),
                false => name,
            };
            fields.extend(on_line(
                line,
                line_size,
                start.saturating_add(member.offset),
                member.size,
                &name,
                &member.member_type,
            ));
        }
    }
    fields
}

/// Which element of `size` bytes begins at `start`, in an object from `begin` on; where that is not known counted from the first that is
/// touched.
fn index(begin: Option<u64>, first: u64, start: u64, size: u64) -> String {
    match (begin, start - first) {
        (Some(begin), _) => (start.abs_diff(begin) / size).to_string(),
        (None, 0) => "i".to_owned(),
        (None, after) => format!("i+{}", after / size),
    }
}

/// Where an object lies; anywhere if nobody knows.
fn known_extent(object: &ObjectRow) -> std::ops::Range<u64> {
    match object.size {
        0 => 0..u64::MAX,
        size => object.address..object.address.saturating_add(size),
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

/// What following a share of the lines does to a finding; empty if all were followed.
fn sampled_words(followed: Followed, scale: Estimate) -> String {
    match followed.one_in() {
        1 => String::new(),
        one_in if scale.high > 1.0 => format!(
            "One line in {one_in} was followed: what was counted is multiplied by {:.1} ({:.1} to {:.1}), for the lines of this that were not.",
            scale.value, scale.low, scale.high
        ),
        one_in => format!(
            "One line in {one_in} was followed, all of this among them: nothing is scaled here."
        ),
    }
}

/// Where the accesses to the object name another type than those to the other blocks of its site.
fn disagreement(verdict: &Verdict<'_>) -> String {
    match (verdict.kind, verdict.disagrees) {
        (Some(row), Some(other)) => format!(
            "Its accesses name `{}`, most of those to blocks allocated at the same place `{other}`: one of the two may be a part of the other, or the place allocates several types.",
            row.type_name
        ),
        _ => String::new(),
    }
}

fn doubt(lines: &[&LineSharing], false_share: Interval, more: [String; 4]) -> String {
    let mut doubts: Vec<&str> = Vec::new();
    let places = || lines.iter().flat_map(|line| &line.places);
    if lines.iter().any(|line| line.basis == Basis::Traced) {
        doubts.push(
            "The cost is that of a model: a transfer at every access that wants the line, at the latency measured beside the run. A core that has a line keeps it for several accesses, so the true cost may be lower.",
        );
    } else if places().any(|place| !place.touch.locked && place.weight > 0.0) {
        doubts.push(
            "Plain loads and stores hide part of their waiting behind other work: the cost may lie anywhere in its interval.",
        );
    }
    if evidence(lines).watches.is_some_and(|it| it < WATCHED) {
        doubts.push("Hardly a watch was armed for it: that several threads were sampled there is known, whether at the same time is not.");
    }
    doubts.extend(more.iter().map(String::as_str).filter(|it| !it.is_empty()));
    if FindingKind::of(false_share) == FindingKind::Sharing {
        doubts.push("Whether a thread uses words of others while it has the line, so that it must move anyway, samples do not tell here: a longer run tells more, an exact run (`--source exact`) sees every access.");
    } else if false_share.low < 0.8 && false_share.high > 0.2 {
        doubts.push("Both kinds of sharing are at work here: separating the fields removes only the false part.");
    }
    doubts.join(" ")
}

/// What may be no sharing where threads take turns with the goroutines that run on them, and these are not known.
fn goroutines(lines: &[&LineSharing], language: Language, kind: FindingKind) -> String {
    let mut places = lines.iter().flat_map(|line| &line.places);
    let is_known = places.any(|it| it.touch.goroutine.is_some());
    match (language, kind) {
        (Language::Go, FindingKind::TrueSharing | FindingKind::Sharing) if !is_known => "A goroutine that goes on on another thread takes its data along, which counts as true sharing here: threads are known, and goroutines are not.".to_owned(),
        _ => String::new(),
    }
}

/// Why it is not known which block of the heap this is; empty where that is known, or no question.
fn unknown_block(object: &ObjectRow, tables: &Tables) -> String {
    // Of Go's blocks the heap recorder knows nothing.
    let may_be_known = object.kind == ObjectKind::Heap && object.name != GO_NAME;
    if !may_be_known || !object.allocated_at.is_empty() {
        return String::new();
    }
    let why = match (
        tables.heap_blocks.is_empty(),
        object.accessed_type.is_empty(),
    ) {
        (false, _) => {
            "is not known: it was allocated before blocks were recorded, or by an allocator of the program's own"
        }
        (true, true) => "was not recorded",
        (true, false) => "was not recorded (`--heap on` does, of what is allocated from then on)",
    };
    let told = match object.accessed_type.is_empty() {
        true => "the source places say what it holds",
        false => "its type is what its accesses name",
    };
    format!("Which heap block this is {why}: {told}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_count_from_the_object_or_where_that_begins_nowhere_known_from_the_first() {
        let of = |begin| [0x1030, 0x1048].map(|start| index(begin, 0x1030, start, 24));
        assert_eq!(of(Some(0x1000)), ["2", "3"]);
        assert_eq!(of(None), ["i", "i+1"]);
    }
}
