//! What a report says of its run, and what it rests on, as terms.

use linewise_recording::Overhead;

use super::model::{Interval, Report, Samples};
use super::{contention, difference, exact, text};
use crate::diff::{Diff, Side};
use crate::section::{Section, Shown, Term, TermKind, bounded, more};

/// Kinds of a thing that are listed at most: there are fewer in every recording of ours.
const KINDS: usize = 24;

/// What a reader must know first, and what was recorded. The terminal has the notes.
pub(super) fn head(report: &Report) -> Section {
    let run = &report.run;
    let short = |name, words| Term::new(TermKind::Short, name, words);
    let recorded = text::nanoseconds(run.duration_ns as f64);
    let ending = contention::ending(run).map(|words| text::capital(&words) + ".");
    let ending = ending.map(|words| Term::new(TermKind::Note, "ended", words));
    let facts = [
        Term::new(TermKind::Code, "command", &run.command),
        short("recorded", recorded),
        short("threads", contention::threads_words(run)),
    ];
    let on_page = ending.into_iter().chain(facts);
    let doubted = contention::costs_doubted(report);
    let doubted = doubted.map(|words| Term::new(TermKind::Note, "note", words));
    Section {
        terms: (notes(&report.notes))
            .chain(doubted)
            .chain(on_page.map(|term| term.only(Shown::OnPage)))
            .collect(),
        ..Section::new("run", "What was recorded")
    }
}

/// The same of a comparison.
pub(super) fn diff_head(diff: &Diff) -> Section {
    let side = |name, side: &Side| {
        [
            Term::new(TermKind::Code, name, &side.command),
            Term::new(TermKind::Long, "recorded", difference::facts(side)),
            Term::new(TermKind::Long, "machine", &side.machine),
        ]
    };
    let sides = side("before", &diff.before)
        .into_iter()
        .chain(side("after", &diff.after));
    Section {
        terms: (notes(&diff.notes))
            .chain(sides.map(|term| term.only(Shown::OnPage)))
            .collect(),
        ..Section::new("run", "What was recorded")
    }
}

fn notes(notes: &[String]) -> impl Iterator<Item = Term> {
    (notes.iter()).map(|words| Term::new(TermKind::Note, "note", words))
}

fn transfers(report: &Report) -> String {
    let transfers = &report.sharing.transfers;
    let all = transfers.true_sharing + transfers.false_sharing;
    let falsely = transfers.false_sharing / all;
    let split = (all > 0.0).then(|| contention::split(falsely, Interval::exactly(falsely)));
    let of_what = split.map_or(String::new(), |split| format!(", {split}"));
    contention::all_transfers(report, &of_what)
}

/// What the report rests on. The terminal, which has no head, has here how the run ended.
pub(super) fn basis(report: &Report) -> Section {
    use TermKind::{Long, Short, Warning};
    let run = &report.run;
    let mut terms = Vec::new();
    match run.source.is_exact() {
        true => {
            let facts = exact::facts(report).into_iter();
            terms.extend(facts.map(|(name, words)| Term::new(Short, name, words)));
        }
        false => terms.push(Term::new(Long, "samples", samples(&report.samples))),
    }
    let lost = losses(report).into_iter();
    terms.extend(lost.map(|words| Term::new(Warning, "lost", words)));
    terms.extend(run.overhead.iter().flat_map(|it| price(report, it)));
    let transfers = Term::new(Long, "transfers", transfers(report));
    terms.push(transfers.only(Shown::OnPage));
    let source = format!("{}: {}", run.source, run.source_reason);
    let ending = contention::ending(run).map(|words| Term::new(Warning, "ended", words));
    let round_trip = contention::round_trip(run);
    terms.push(Term::new(Short, "round trip", round_trip));
    terms.push(Term::new(Long, "source", source));
    terms.push(Term::new(Long, "machine", &run.machine));
    terms.extend(ending.map(|term| term.only(Shown::OnTerminal)));
    terms.extend(words(report).map(|words| Term::new(Long, "words", words)));
    Section {
        terms,
        ..Section::new("basis", "What this rests on")
    }
}

/// The words of a report that are not everyone's; `None` where none of them is used.
fn words(report: &Report) -> Option<String> {
    let sampled = !report.run.source.is_exact();
    let found = !report.findings.is_empty();
    let is_contended = report.types.iter().any(|row| row.bounces);
    let all = [
        (
            true,
            "a transfer is a line that moves from one core's cache to another's",
        ),
        (
            found && sampled,
            "a watch is a debug register set on bytes of a line, a trap the access of another thread that it caught",
        ),
        (
            is_contended,
            "a type is contended if lines of its objects move",
        ),
        (
            found,
            "sharing is false where the threads do not touch the same bytes",
        ),
    ];
    let used: Vec<&str> = all.iter().filter(|it| it.0).map(|it| it.1).collect();
    (found || is_contended).then(|| used.join("; "))
}

/// What became of the samples, and why the access of some is unknown.
fn samples(samples: &Samples) -> String {
    let words = contention::samples_words(samples);
    match unknown_reasons(samples).as_slice() {
        [] => words,
        reasons => format!("{words} ({})", reasons.join(", ")),
    }
}

/// The reasons of the samples whose access is unknown, the most frequent first.
fn unknown_reasons(samples: &Samples) -> Vec<String> {
    let mut reasons: Vec<_> = samples.unknown.iter().filter(|(_, n)| **n > 0).collect();
    reasons.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let (shown, rest) = bounded(&reasons, |(_, n)| **n as f64, KINDS);
    let words = |what: &str, n: u64| format!("{what} {}", text::integer(n));
    let shown = shown.iter().map(|(reason, n)| words(reason, **n));
    let sum = sum(rest.iter().map(|(_, n)| **n));
    shown
        .chain(sum.map(|sum| words(&more(rest.len()), sum)))
        .collect()
}

/// What was lost, each kind in a sentence, then those kinds that are next to nothing beside the others.
fn losses(report: &Report) -> Vec<String> {
    let lost: Vec<_> = report
        .losses
        .iter()
        .filter(|(_, lost)| lost.count > 0)
        .collect();
    let (shown, rest) = bounded(&lost, |(_, lost)| lost.count as f64, KINDS);
    let words = |what: &str, n: u64| format!("{what} ({})", text::integer(n));
    let shown = shown.iter().map(|(what, lost)| match lost.detail.as_str() {
        "" => format!("{what}: {}", text::integer(lost.count)),
        detail => format!("{}: {detail}", words(what, lost.count)),
    });
    let sum = sum(rest.iter().map(|(_, lost)| lost.count));
    shown
        .chain(sum.map(|sum| words(&more(rest.len()), sum)))
        .collect()
}

/// The sum of counts, which may be any of a foreign recording; `None` of none.
fn sum(counts: impl Iterator<Item = u64>) -> Option<u64> {
    counts.reduce(u64::saturating_add)
}

/// What recording cost, of what it may.
fn budget_words(report: &Report, overhead: &Overhead) -> String {
    /// With less CPU time of the program's a share of it says nothing.
    const LITTLE_NS: u64 = 100_000_000;
    let of_program: u64 = report.run.threads.iter().map(|it| it.cpu_time_ns).sum();
    let budget = text::percent(overhead.budget);
    if of_program < LITTLE_NS && overhead.estimated > overhead.budget {
        let spent = text::nanoseconds(overhead.estimated * of_program as f64);
        let of_program = text::nanoseconds(of_program as f64);
        return format!(
            "{spent} estimated beside {of_program} of the program's CPU time, too little to keep to {budget} of"
        );
    }
    let estimated = text::percent(overhead.estimated);
    format!("{estimated} estimated of {budget} allowed")
}

/// What recording cost; the terminal has the sum, and the rest where all is asked for.
fn price(report: &Report, overhead: &Overhead) -> [Term; 4] {
    let watch_ns = match overhead.watch_ns > 0.0 {
        true => overhead.watch_ns,
        false => overhead.arm_ns + overhead.trap_ns,
    };
    let budget = budget_words(report, overhead);
    let cost = format!(
        "{} a sample, {} a watch",
        text::nanoseconds(overhead.sample_ns),
        text::nanoseconds(watch_ns)
    );
    let rates = format!(
        "{} samples and {} watches a second",
        text::count(overhead.samples_per_second),
        text::count(overhead.watches_per_second)
    );
    let collector = format!(
        "{} of CPU time, {} of memory",
        text::nanoseconds(overhead.collector_cpu_ns as f64),
        text::bytes(overhead.collector_rss_bytes)
    );
    let more = |name, words| Term::new(TermKind::Short, name, words).only(Shown::InFull);
    [
        Term::new(TermKind::Short, "overhead", budget),
        more("measured cost", cost),
        more("rates", rates),
        more("collector", collector),
    ]
}
