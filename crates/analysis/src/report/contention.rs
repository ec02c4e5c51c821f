//! Small sums over a report that more than one renderer prints: how much is shared, how much of the
//! time it takes, and what cannot be excluded.

use std::collections::BTreeSet;

use linewise_recording::{ObjectKind, Order};

use super::model::{
    AccessRow, Evidence, FieldRow, Finding, Interval, LineRow, ObjectRow, Report, Run, Samples,
    Sharing, ThreadRow, TypeRow, TypeVote,
};
use super::places::{self, OwnPlace};
use super::text;
use crate::lock_names::names_a_lock;
use crate::views::polls::polling_share;
use crate::views::run_coverage::{ENOUGH_SAMPLES, HALF, SELDOM, may_meet};

/// The share of the sampled thread time that is at contended lines; `None` without samples.
pub(crate) fn contended_share(report: &Report) -> Option<f64> {
    let all: f64 = report.timeline.iter().map(|bin| bin.thread_ns).sum();
    let contended: f64 = report.timeline.iter().map(|bin| bin.contended_ns).sum();
    (all > 0.0).then(|| contended / all)
}

/// `5 threads, 12 s of CPU time`, or `5 threads, 12 M accesses`.
pub(crate) fn threads_words(run: &Run) -> String {
    if run.threads.is_empty() && !run.complete {
        return "not known: the recording ended before they were written".to_owned();
    }
    let pids: std::collections::BTreeSet<u32> = run.threads.iter().map(|it| it.pid).collect();
    let mut threads = text::plural(run.threads.len() as u64, "thread");
    if pids.len() > 1 {
        threads += &format!(" of {}", text::plural(pids.len() as u64, "process"));
    }
    if run.threads.iter().any(|thread| thread.accesses.is_some()) {
        let all: f64 = run.threads.iter().map(|thread| thread.work() as f64).sum();
        return format!("{threads}, {} accesses", text::count(all));
    }
    let cpu_time: u64 = run.threads.iter().map(|t| t.cpu_time_ns).sum();
    format!(
        "{threads}, {} of CPU time",
        text::nanoseconds(cpu_time as f64)
    )
}

/// How often lines moved in the whole run, as far as that was counted; `of_what` stands behind the count.
pub(crate) fn all_transfers(report: &Report, of_what: &str) -> String {
    let all = &report.sharing.transfers;
    let sum = all.true_sharing + all.false_sharing;
    // Some were met, too seldom for a count.
    let met = report.types.iter().any(|row| row.bounces);
    let counted = match met && all.interval.high <= 0.0 {
        true => "none counted".to_owned(),
        false => transfers(sum, all.interval),
    };
    match uncounted(&report.sharing).as_slice() {
        [] => format!("{counted}{of_what}"),
        lines => format!("{counted}{of_what}, without {}", lines.join(" and ")),
    }
}

/// Lines of which transfers are not counted.
fn uncounted(sharing: &Sharing) -> Vec<String> {
    let lines = [
        (
            sharing.uncounted_lines,
            "",
            "that several threads use, hardly ever at once on different CPUs as far as that was seen",
        ),
        (
            sharing.spread_lines,
            "about ",
            "that several threads use, more than a private cache holds: they have left it when another comes",
        ),
    ];
    let some = lines.into_iter().filter(|(lines, ..)| *lines > 0);
    some.map(|(lines, about, which)| format!("{about}{} {which}", text::plural(lines, "line")))
        .collect()
}

/// Whether lines of a type's objects were seen to move.
pub(crate) fn of_type(report: &Report, row: &TypeRow) -> &'static str {
    match row.bounces {
        true => "yes",
        false if report.run.source.is_exact() => "no",
        false => "not seen",
    }
}

/// What was looked at: `1,200 samples of 10 threads; 83 % in the kernel, where nothing is watched; 66 % of the rest
/// are at a memory access whose address is known`.
pub(crate) fn looked_at(report: &Report) -> String {
    let samples = &report.samples;
    let looked = format!(
        "{} of {}",
        text::plural(samples.total, report.run.source.observation()),
        text::plural(report.run.threads.len() as u64, "thread"),
    );
    let share = |part: u64, all: u64| text::percent(part as f64 / all.max(1) as f64);
    let waiting = share(samples.accesses, samples.in_user_code());
    match samples.kernel {
        _ if report.run.source.is_exact() => looked,
        Some(kernel @ 1..) => format!(
            "{looked}; {} in the kernel, where nothing is watched; {waiting} of the rest are at a memory access whose address is known",
            share(kernel, samples.total)
        ),
        _ => format!("{looked}; {waiting} of them are at a memory access whose address is known"),
    }
}

/// What became of the samples: `1,200: 17 % at a memory access, 5.0 % computing, 75 % in the kernel, 3.0 % unknown`.
pub(crate) fn samples_words(samples: &Samples) -> String {
    let share = |part: u64| text::percent(part as f64 / samples.total.max(1) as f64);
    let kernel = samples
        .kernel
        .map(|it| format!("{} in the kernel, ", share(it)));
    format!(
        "{}: {} at a memory access, {} computing, {}{} unknown",
        text::integer(samples.total),
        share(samples.accesses),
        share(samples.compute.unwrap_or(0)),
        kernel.unwrap_or_default(),
        share(unknown(samples)),
    )
}

/// Samples of which the access is not known.
pub(crate) fn unknown(samples: &Samples) -> u64 {
    let counts = samples.unknown.values();
    counts.fold(0, |a, b| a.saturating_add(*b))
}

/// A thread that runs for less is hardly ever watched.
const WATCHED_LIFE_NS: u64 = 20_000_000;
/// More threads than that are many.
const MANY: usize = 8;

/// Samples with which a place that takes 1 % of thread time has the five that a finding rests on, with a probability of 90 %.
const SAMPLES_FOR_ONE_PERCENT: u64 = 800;

/// Polling that takes this share of the time is said before that nothing was found, since it is waiting, too.
const MUCH_POLLING: f64 = 0.1;

/// What to call a report without findings.
pub(crate) fn nothing_found(report: &Report) -> String {
    let nothing = match little_seen(report).is_empty() {
        true => "No finding",
        false => "Too little seen for a finding",
    };
    match is_polling(report) {
        Some(share) => format!(
            "{nothing}, but {} of thread time is polling",
            text::percent(share)
        ),
        None => nothing.to_owned(),
    }
}

/// The share of thread time that passes in polling where that is what there is to be said: nothing was found, and it is much.
pub(crate) fn is_polling(report: &Report) -> Option<f64> {
    let polls = (report.views.polls.as_deref()).filter(|_| report.findings.is_empty());
    polls.map(polling_share).filter(|it| *it >= MUCH_POLLING)
}

/// Why it says little that nothing was found: how much of the run was not seen, in words; nothing where enough was.
pub(crate) fn little_seen(report: &Report) -> Vec<String> {
    not_seen(report, SELDOM)
}

/// Why the costs of findings may be too low, and what to do; `None` where enough was seen.
pub(crate) fn costs_doubted(report: &Report) -> Option<String> {
    let little = match report.findings.is_empty() {
        true => Vec::new(),
        false => not_seen(report, HALF),
    };
    (!little.is_empty()).then(|| {
        let little = text::capital(&little.join("; "));
        format!("{little}. Costs may be too low: run again for longer on a quiet machine.")
    })
}

/// What was seen too little of; threads are to run at once for the share `at_once` of the time in which they could.
fn not_seen(report: &Report, at_once: f64) -> Vec<String> {
    let coverage = &report.coverage;
    let below = |share: Option<f64>, least: f64| share.filter(|it| *it < least);
    let times = report.run.threads.iter().map(|it| it.cpu_time_ns);
    let mut little = Vec::new();
    if report.run.source.is_exact() || report.run.threads.len() < 2 {
        return little;
    }
    let own = report.samples.in_user_code();
    if own < ENOUGH_SAMPLES {
        little.push(text::plural(own, "sample") + " of its own code");
    } else if let Some(share) = below(coverage.of_own_code(), HALF) {
        little.push(format!(
            "samples tell of {} of what its threads ran outside the kernel",
            text::percent(share)
        ));
    }
    if let Some(share) = below(coverage.switches, HALF) {
        little.push(format!(
            "which thread ran where is known for {} of the time",
            text::percent(share)
        ));
    }
    if let Some(share) = below(coverage.at_once, at_once * may_meet(times)) {
        little.push(format!(
            "threads ran at once for {} of their time, and only then lines move (others may have taken their CPUs)",
            text::percent(share)
        ));
    }
    little
}

/// After how long a place that takes 1 % of thread time would have been found; `None` where it would have been.
fn until_found(report: &Report) -> Option<String> {
    let own = report.samples.in_user_code();
    if own == 0 || own >= SAMPLES_FOR_ONE_PERCENT || report.run.threads.len() < 2 {
        return None;
    }
    let ns = report.run.duration_ns as f64 * SAMPLES_FOR_ONE_PERCENT as f64 / own as f64;
    Some(format!(
        "; at this rate sharing that costs 1 % of thread time is found after {}, with a larger `--overhead` sooner",
        text::nanoseconds(ns)
    ))
}

/// What a report without findings cannot exclude, in sentences.
pub(crate) fn not_excluded(report: &Report) -> Vec<String> {
    let samples = &report.samples;
    if samples.total == 0 {
        let what = report.run.source.observation();
        return vec![format!("anything: there is not a single {what}")];
    }
    if report.run.source.is_exact() {
        let order = match report.run.order {
            Some(Order::AsRun) => {
                "another order of the threads than the emulator's own, which is the one that was looked at"
            }
            _ => {
                "another order of the threads than all at equal rate, which is the one that was looked at"
            }
        };
        let kernel = "sharing in the kernel on the threads' behalf: the emulator does not see it";
        return [kernel, order].map(str::to_owned).into();
    }
    let total = samples.total as f64;
    // No sample at a place that takes the share p has the probability (1 - p)^total; at 10 % that
    // is the upper end of the 90 % interval for a place that was never seen.
    let unseen = -(0.1_f64.ln()) / total;
    let mut doubts = vec![format!(
        "an access that takes less than {} of thread time: it may have no sample at all{}",
        text::percent(unseen.min(1.0)),
        until_found(report).unwrap_or_default()
    )];
    let unknown = unknown(samples);
    if unknown > 0 {
        doubts.push(format!(
            "sharing among the {} of the samples whose access is unknown",
            text::percent(unknown as f64 / total)
        ));
    }
    let lost = |what: &str| report.losses.get(what);
    if lost("sampled-part-time")
        .or(lost("switches-part-time"))
        .is_some()
    {
        doubts.push(
            "what happened in the time that was not recorded, see what was lost below: `--overhead` gives it more".to_owned(),
        );
    }
    let threads = report.run.threads.len();
    let were_short = |it: &&ThreadRow| it.cpu_time_ns < WATCHED_LIFE_NS;
    let short = report.run.threads.iter().filter(were_short).count();
    if short > MANY && 2 * short > threads {
        doubts.push(format!(
            "sharing among the {} of {} that ran for less than {} ms: before others are watched for what a sample of one saw, they have ended",
            text::integer(short as u64),
            text::plural(threads as u64, "thread"),
            WATCHED_LIFE_NS / 1_000_000
        ));
    }
    let uncounted = uncounted(&report.sharing).into_iter();
    doubts.extend(uncounted.map(|lines| format!("transfers of {lines}")));
    doubts.push("sharing in the kernel on the threads' behalf: it is not watched".to_owned());
    doubts
}

/// What the object of a finding is called: of memory that has no name of its own by the type of what is touched there, or else by
/// who uses it.
pub(crate) fn object_title(finding: &Finding) -> String {
    let object = &finding.object;
    let name = match object.name.as_str() {
        "" => object.kind.word(),
        name => name,
    };
    let kind = object.accessed_type.as_str();
    // Where it was allocated tells which one it is, or its type if that is not every lock's, or else who uses it.
    let is_in_memory = matches!(object.kind, ObjectKind::Heap | ObjectKind::Mapping);
    let is_nameless = is_in_memory && object.allocated_at.is_empty();
    let users = match is_nameless && (kind.is_empty() || names_a_lock(kind)) {
        true => users(&finding.accesses),
        false => String::new(),
    };
    match (kind, object.kind) {
        (_, ObjectKind::Static) => name.to_owned(),
        ("", _) => match name.strip_prefix("heap") {
            Some(which) if is_nameless => format!("heap memory{which}{users}"),
            _ => format!("{name}{users}"),
        },
        (_, ObjectKind::Stack) if !object.declared_at.is_empty() => name.to_owned(),
        (kind, ObjectKind::Stack) => format!("{kind} on the {name}"),
        (kind, _) if name.starts_with("heap") => format!("{kind} on the {name}{users}"),
        (kind, _) => format!("{kind} in {name}{users}"),
    }
}

/// Who uses it: ` used by push (queue.c:41) and pop (queue.c:52)`; nothing where no place is known.
fn users(accesses: &[AccessRow]) -> String {
    const USERS: usize = 2;
    let words = |it: &OwnPlace<'_>| match it.place.line {
        0 => it.place.function.clone(),
        line => format!(
            "{} ({}:{line})",
            it.place.function,
            text::file_name(&it.place.file)
        ),
    };
    let mut places = places::of_accesses(accesses);
    let mut functions = BTreeSet::new();
    places.retain(|it| functions.insert(it.place.function.clone()));
    let mut users: Vec<String> = places.iter().map(words).collect();
    users.retain(|it| !it.is_empty());
    users.truncate(USERS);
    match users.is_empty() {
        true => String::new(),
        false => format!(" used by {}", text::listing(&users)),
    }
}

/// Who allocated an object, outwards as far as `limit` callers, or by whom values of its type are: `allocated by make (queue.c:5)`,
/// `its type is allocated by main.newQueue (main.go:9)`; `None` if nothing tells.
pub(crate) fn allocated_by(object: &ObjectRow, limit: usize) -> Option<String> {
    if !object.allocated_at.is_empty() {
        let callers = text::callers(&object.allocated_at, limit);
        return Some(format!("allocated by {callers}"));
    }
    let (shown, more) = object
        .type_allocated_at
        .split_at(object.type_allocated_at.len().min(TYPE_SITES));
    let mut places: Vec<_> = shown
        .iter()
        .map(|it| text::caller(it).into_owned())
        .collect();
    if !more.is_empty() {
        places.push(format!("{} more", more.len()));
    }
    (!places.is_empty()).then(|| format!("its type is allocated by {}", text::listing(&places)))
}

/// Calls that allocate a type that are shown.
const TYPE_SITES: usize = 3;

/// The votes for the type of an object: `96 %, struct list 4 %`, the first its own.
pub(crate) fn type_votes(object: &ObjectRow) -> String {
    let words = |vote: &TypeVote| match vote.name == object.accessed_type {
        true => text::percent(vote.share),
        false => format!("{} {}", vote.name, text::percent(vote.share)),
    };
    let of = |part: bool| -> String {
        let votes = object.type_votes.iter().filter(|vote| vote.part == part);
        votes.map(words).collect::<Vec<_>>().join(", ")
    };
    let (votes, parts) = (of(false), of(true));
    match (votes.as_str(), parts.as_str()) {
        (_, "") => votes,
        ("", _) => format!("parts of it: {parts}"),
        _ => format!("{votes}; parts of it: {parts}"),
    }
}

/// What a finding's object is: its bytes, how many of its kind there are, its address, and where it lies on its line.
pub(crate) fn extent_words(finding: &Finding) -> Vec<String> {
    let object = &finding.object;
    let several = object.count > 1;
    let mut facts = Vec::new();
    let of = text::integer(object.count);
    if object.size > 0 {
        let bytes = text::bytes(object.size);
        facts.push(match object.kind {
            ObjectKind::Mapping if object.allocated_at.is_empty() => format!("mapping of {bytes}"),
            ObjectKind::Stack if object.declared_at.is_empty() => format!("stack of {bytes}"),
            _ => bytes,
        });
    }
    match (several, object.kind) {
        (false, _) => {}
        (true, ObjectKind::Static) => facts.push(format!("the dearest of {of} of this name")),
        (true, _) if object.size > 0 => facts.push(format!("the dearest of {of}")),
        (true, _) => facts.push(format!("in {of} processes, the dearest")),
    }
    let address = text::address(object.address);
    facts.push(match is_line(finding) {
        true => format!("on the line at {address}"),
        false => format!("at {address}"),
    });
    match finding.lines.as_slice() {
        [line] if !several => match line.offset_in_object {
            0 => {}
            1.. => facts.push(format!("line at +{}", line.offset_in_object)),
            _ => facts.push(format!(
                "begins at byte {} of the line",
                line.offset_in_object.unsigned_abs()
            )),
        },
        [_] => {}
        _ => {
            let lines = text::plural(line_count(finding), "line");
            facts.push(match several {
                true => format!("{lines} of all together"),
                false => lines,
            });
        }
    }
    facts
}

/// Whether a line stands for the object of a finding, since nobody knows where that begins.
fn is_line(finding: &Finding) -> bool {
    let object = &finding.object;
    object.size == 0 && finding.lines.iter().any(|it| it.address == object.address)
}

/// Which line of a finding it is: `line 0x4040c0, from byte 64 of the object, 1.2 M transfers`.
pub(crate) fn line_words(finding: &Finding, line: &LineRow) -> String {
    let place = match line.offset_in_object {
        _ if is_line(finding) => String::new(),
        0 => "from the first byte of the object, ".to_owned(),
        1.. => format!("from byte {} of the object, ", line.offset_in_object),
        _ => format!(
            "the object begins at byte {}, ",
            line.offset_in_object.unsigned_abs()
        ),
    };
    let address = text::address(line.address);
    format!(
        "line {address}, {place}{} transfers",
        text::count(line.transfers)
    )
}

/// How many lines of a finding moved, as far as the report tells.
fn line_count(finding: &Finding) -> u64 {
    finding.line_count.max(finding.lines.len() as u64)
}

/// The lines that are not drawn if `drawn` are: `and 14 more lines of this object`.
pub(crate) fn more_lines(finding: &Finding, drawn: usize) -> Option<String> {
    let drawn = finding.lines.len().min(drawn) as u64;
    let hidden = line_count(finding) - drawn;
    let of = match finding.object.count {
        0 | 1 if is_line(finding) => "this memory",
        0 | 1 => "this object",
        _ => "these objects",
    };
    (hidden > 0).then(|| format!("and {} of {of}", text::plural(hidden, "more line")))
}

/// What a picture of a line does not show; empty if it shows all that was seen.
pub(crate) fn not_drawn(finding: &Finding) -> &'static str {
    match finding.is_exact() {
        true => {
            "Drawn are the accesses between which the line moved; what a thread does while it has the line to itself is not."
        }
        false => "",
    }
}

/// The members of a type as they are drawn: those that lie over each other, as in a union, are one.
pub(crate) fn drawn_members(row: &TypeRow) -> Vec<FieldRow> {
    let mut drawn: Vec<FieldRow> = Vec::new();
    for field in &row.fields {
        let over = (drawn.last_mut())
            .filter(|last| !last.padding && !field.padding && last.offset == field.offset);
        let Some(last) = over else {
            drawn.push(field.clone());
            continue;
        };
        let name = format!("{} | {}", last.label(), field.label());
        last.name = name;
        if field.size > last.size {
            last.type_name.clone_from(&field.type_name);
        }
        last.size = last.size.max(field.size);
        last.share += field.share;
        // What touches one of them was counted for each.
        last.loads = last.loads.max(field.loads);
        last.stores = last.stores.max(field.stores);
        for thread in &field.threads {
            match last.threads.iter_mut().find(|it| it.tid == thread.tid) {
                Some(known) => {
                    known.loads = known.loads.max(thread.loads);
                    known.stores = known.stores.max(thread.stores);
                }
                None => last.threads.push(thread.clone()),
            }
        }
    }
    drawn
}

/// How transfers divide into false and true sharing, in words.
pub(crate) fn split(false_share: f64, Interval { low, high }: Interval) -> String {
    if high - low > 0.2 {
        let (low, high) = (text::percent(low), text::percent(high));
        return format!("between {low} and {high} by false sharing");
    }
    match false_share {
        share if share >= 0.995 => "all by false sharing".to_owned(),
        share if share <= 0.005 => "all by true sharing".to_owned(),
        share => format!("{} by false sharing", text::percent(share)),
    }
}

/// How often lines moved: `about 4.1 M (3.2..5.0 M)`, or `4.1 M` if each was counted.
fn transfers(value: f64, interval: Interval) -> String {
    let count = text::count(value);
    match interval {
        Interval { high, .. } if high <= 0.0 => "none seen".to_owned(),
        Interval { low, high } if low == high => count,
        interval => format!("about {count} ({})", text::count_range(interval)),
    }
}

/// How often the lines of a finding moved: `about 4.1 M (3.2..5.0 M), 1.4 M a second, all by false sharing`. The
/// seconds of an emulator mean nothing.
pub(crate) fn transfers_of(finding: &Finding, duration_ns: u64) -> String {
    let interval = finding.transfers_interval;
    let mut words = match interval {
        Interval { low, high } if finding.is_exact() && low < high => format!(
            "{} ({})",
            text::count(finding.transfers),
            text::integers(interval)
        ),
        _ => transfers(finding.transfers, interval),
    };
    if duration_ns > 0 && !finding.is_exact() {
        let per_second = finding.transfers * 1e9 / duration_ns as f64;
        words += &format!(", {} a second", text::count(per_second));
    }
    words += ", ";
    words + &split(finding.false_share, finding.false_share_interval)
}

/// What a finding rests on: `812 samples`, `300 watches`, `121 traps`.
pub(crate) fn evidence(evidence: &Evidence) -> Vec<String> {
    let kinds = [
        (evidence.samples, "sample"),
        (evidence.watches, "watch"),
        (evidence.traps, "trap"),
        (evidence.accesses, "access"),
    ];
    kinds
        .into_iter()
        .filter_map(|(count, noun)| {
            let words = text::plural(count?, noun);
            Some(match noun {
                "access" => format!("{words} that waited for the line"),
                _ => words,
            })
        })
        .collect()
}

/// The round trip of the run, in words.
pub(crate) fn round_trip(run: &Run) -> String {
    let Some(median) = run.round_trip_ns else {
        return "not measured".to_owned();
    };
    let median = text::nanoseconds(median);
    match run.round_trip_range_ns {
        Some(seen) if seen.low < seen.high => format!(
            "{median} between cores (seen {})",
            text::nanoseconds_band(seen)
        ),
        _ => format!("{median} between cores"),
    }
}

/// How the run ended, if not as it should.
pub(crate) fn ending(run: &Run) -> Option<String> {
    let mut facts = Vec::new();
    if !run.complete {
        facts.push("the recording is cut short".to_owned());
    }
    match (run.exit_signal, run.exit_code) {
        (Some(signal), _) => facts.push(format!("the program was ended by signal {signal}")),
        (None, Some(code)) if code != 0 => {
            facts.push(format!("the program ended with exit code {code}"));
        }
        _ => {}
    }
    (!facts.is_empty()).then(|| text::listing(&facts))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::views::polls::Poll;

    #[test]
    fn nothing_found_is_a_result_only_where_enough_was_seen() {
        let with = |change: &dyn Fn(&mut Report)| {
            let mut report = sample::quiet();
            change(&mut report);
            little_seen(&report).join("; ")
        };
        assert_eq!(with(&|_| {}), "");
        assert_eq!(nothing_found(&sample::quiet()), "No finding");
        let mut polling = sample::quiet();
        polling.views.polls = Some(vec![Poll {
            share: 0.75,
            ..Poll::default()
        }]);
        let told = "No finding, but 75 % of thread time is polling";
        assert_eq!(nothing_found(&polling), told);
        polling.coverage.samples = Some(0.2);
        let told = "Too little seen for a finding, but 75 % of thread time is polling";
        assert_eq!(nothing_found(&polling), told);
        let few = with(&|it| (it.samples.total, it.samples.kernel) = (60, Some(0)));
        assert_eq!(few, "60 samples of its own code");
        let seldom = with(&|it| it.coverage.samples = Some(0.2));
        assert!(seldom.starts_with("samples tell of 20 %"), "{seldom}");
        // What passed in the kernel is no gap in what was seen of the rest.
        let in_kernel = with(&|it| {
            (it.coverage.samples, it.coverage.kernel) = (Some(0.2), Some(0.75));
        });
        assert_eq!(in_kernel, "");
        let switches = with(&|it| it.coverage.switches = Some(0.1));
        assert!(switches.contains("is known for 10 %"), "{switches}");
        let in_turns = with(&|it| it.coverage.at_once = Some(0.05));
        assert!(
            in_turns.starts_with("threads ran at once for 5.0 % of their time"),
            "{in_turns}"
        );
        // Where one thread does nearly all the work there is hardly a time to meet.
        let alone = with(&|it| {
            it.coverage.at_once = Some(0.05);
            it.run.threads[0].cpu_time_ns *= 100;
        });
        assert_eq!(alone, "");
    }

    #[test]
    fn of_memory_without_bounds_no_size_is_told_but_what_allocates_its_type() {
        let mut finding = sample::everyday().findings[0].clone();
        let object = &mut finding.object;
        (object.kind, object.size, object.count) = (ObjectKind::Heap, 0, 1);
        object.address = finding.lines[0].address;
        assert_eq!(allocated_by(object, 3), None);
        let sites = |count: u32| (0..count).map(|at| format!("main.f{at} (/a/m.go:{at})"));
        object.type_allocated_at = sites(1).collect();
        let told = "its type is allocated by main.f0 (m.go:0)";
        assert_eq!(allocated_by(object, 3).as_deref(), Some(told));
        object.type_allocated_at = sites(5).collect();
        let told = "main.f0 (m.go:0), main.f1 (m.go:1), main.f2 (m.go:2) and 2 more";
        let several = allocated_by(object, 3).unwrap_or_default();
        assert_eq!(several, format!("its type is allocated by {told}"));
        let facts = extent_words(&finding);
        assert!(facts[0].starts_with("on the line at 0x"), "{facts:?}");
        let words = line_words(&finding, &finding.lines[0]);
        assert!(!words.contains("object"), "{words}");
    }

    #[test]
    fn memory_without_a_name_is_called_by_who_uses_it() {
        let mut finding = sample::everyday().findings[0].clone();
        let place = |it: &mut AccessRow| {
            it.own = None;
            (it.function, it.file, it.line) = ("push".to_owned(), "/src/queue.c".to_owned(), 41);
        };
        finding.accesses.iter_mut().for_each(place);
        finding.object.kind = ObjectKind::Heap;
        finding.object.accessed_type.clear();
        let mut title = |name: &str| {
            finding.object.name = name.to_owned();
            object_title(&finding)
        };
        assert_eq!(title("heap"), "heap memory used by push (queue.c:41)");
        let arena = "heap memory (malloc arena of threads) used by push (queue.c:41)";
        assert_eq!(title("heap (malloc arena of threads)"), arena);
        finding.object.allocated_at = vec!["make (queue.c:5)".to_owned()];
        finding.object.name = "block allocated by make".to_owned();
        assert_eq!(object_title(&finding), "block allocated by make");
        finding.object.name = "heap".to_owned();
        finding.object.accessed_type = "struct queue".to_owned();
        assert_eq!(object_title(&finding), "struct queue on the heap");
        finding.object.allocated_at.clear();
        finding.object.accessed_type = "pthread_mutex_t".to_owned();
        let lock = "pthread_mutex_t on the heap used by push (queue.c:41)";
        assert_eq!(object_title(&finding), lock);
    }

    #[test]
    fn costs_of_findings_are_doubted_where_threads_hardly_met() {
        let with = |change: &dyn Fn(&mut Report)| {
            let mut report = sample::everyday();
            change(&mut report);
            costs_doubted(&report)
        };
        assert_eq!(with(&|_| {}), None);
        let meet = may_meet((sample::everyday().run.threads.iter()).map(|it| it.cpu_time_ns));
        assert_eq!(with(&|it| it.coverage.at_once = Some(0.6 * meet)), None);
        let busy = with(&|it| it.coverage.at_once = Some(0.2 * meet)).unwrap();
        assert!(
            busy.starts_with("Threads ran at once for")
                && busy.ends_with("run again for longer on a quiet machine."),
            "{busy}"
        );
        let short = with(&|it| (it.samples.total, it.samples.kernel) = (60, None));
        assert!(short.unwrap().starts_with("60 samples of its own code."));
        let nothing = with(&|it| {
            it.findings.clear();
            it.coverage.at_once = Some(0.0);
        });
        assert_eq!(nothing, None);
    }

    #[test]
    fn what_an_exact_run_does_not_exclude_is_another_order_than_its_own() {
        let mut report = sample::traced();
        let said = not_excluded(&report).join(" ");
        assert!(said.contains("than all at equal rate"), "{said}");
        assert!(
            !said.contains("two") && !said.contains("processes"),
            "{said}"
        );
        report.run.order = Some(Order::AsRun);
        assert!(
            not_excluded(&report)
                .join(" ")
                .contains("the emulator's own")
        );
    }

    #[test]
    fn a_round_trip_that_did_not_change_has_no_range() {
        let mut run = sample::traced().run;
        run.round_trip_ns = Some(315.0);
        let mut said = |low, high| {
            run.round_trip_range_ns = Some(Interval { low, high });
            round_trip(&run)
        };
        assert_eq!(said(315.0, 315.0), "315 ns between cores");
        let range = "315 ns between cores (seen 300 ns to 330 ns)";
        assert_eq!(said(300.0, 330.0), range);
    }

    #[test]
    fn the_lines_of_a_finding_are_counted_also_where_few_are_described() {
        let mut finding = sample::traced().findings[0].clone();
        let line = finding.lines[0].clone();
        finding.lines = vec![line; 16];
        finding.line_count = 33;
        assert!(extent_words(&finding).contains(&"33 lines".to_owned()));
        let more = |finding: &Finding| more_lines(finding, 2);
        assert_eq!(
            more(&finding).as_deref(),
            Some("and 31 more lines of this object")
        );
        finding.object.count = 3;
        assert!(extent_words(&finding).contains(&"33 lines of all together".to_owned()));
        assert_eq!(
            more(&finding).as_deref(),
            Some("and 31 more lines of these objects")
        );
        finding.lines.truncate(1);
        finding.line_count = 0;
        assert_eq!(more(&finding), None);
    }

    #[test]
    fn members_that_lie_over_each_other_are_drawn_as_one() {
        let report = sample::profiled();
        let mut row = report.types[0].clone();
        row.fields[0].name = "whole".to_owned();
        let half = FieldRow {
            name: "half".to_owned(),
            size: 4,
            ..row.fields[0].clone()
        };
        row.fields.insert(1, half);
        let drawn = drawn_members(&row);
        assert_eq!(drawn.len() + 1, row.fields.len());
        assert_eq!((drawn[0].name.as_str(), drawn[0].size), ("whole | half", 8));
        assert_eq!(drawn[0].stores, row.fields[0].stores);
    }
}
