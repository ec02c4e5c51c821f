//! What a report says of its run, and what it rests on, as terms.

use linewise_recording::Overhead;

use super::model::{Interval, Report, Samples};
use super::{contention, exact, text};
use crate::section::{Section, Shown, Term, TermKind};

fn term(term: &'static str, words: String) -> Term {
    Term {
        term,
        words,
        kind: TermKind::Short,
        shown: Shown::Everywhere,
    }
}

fn long(name: &'static str, words: String) -> Term {
    Term {
        kind: TermKind::Long,
        ..term(name, words)
    }
}

fn warning(name: &'static str, words: String) -> Term {
    Term {
        kind: TermKind::Warning,
        ..term(name, words)
    }
}

/// What was recorded.
pub(super) fn run(report: &Report) -> Section {
    let run = &report.run;
    let command = Term {
        kind: TermKind::Code,
        ..term("command", run.command.clone())
    };
    Section {
        shown: Shown::OnPage,
        terms: vec![
            command,
            term("recorded", text::nanoseconds(run.duration_ns as f64)),
            term("threads", contention::threads_words(run)),
            term("transfers", transfers(report)),
            term("round trip", contention::round_trip(run)),
            long("machine", run.machine.clone()),
        ],
        ..Section::new("run", "What was recorded")
    }
}

fn transfers(report: &Report) -> String {
    let transfers = &report.sharing.transfers;
    let all = transfers.true_sharing + transfers.false_sharing;
    let falsely = transfers.false_sharing / all;
    let split = (all > 0.0).then(|| contention::split(falsely, Interval::exactly(falsely)));
    let of_what = split.map_or(String::new(), |split| format!(", {split}"));
    contention::all_transfers(report, &of_what)
}

/// What the report rests on. The terminal, which has no head, has the machine and the like here.
pub(super) fn basis(report: &Report) -> Section {
    let run = &report.run;
    let on_terminal = |term: Term| Term {
        shown: Shown::OnTerminal,
        ..term
    };
    let mut terms = Vec::new();
    if run.source.is_exact() {
        let facts = exact::facts(report).into_iter();
        terms.extend(facts.map(|(name, words)| term(name, words)));
    } else {
        terms.push(long("samples", samples(&report.samples)));
    }
    terms.extend(losses(report).map(|words| warning("lost", words)));
    terms.extend(run.overhead.iter().flat_map(price));
    terms.push(on_terminal(term("round trip", contention::round_trip(run))));
    terms.push(long(
        "source",
        format!("{}: {}", run.source, run.source_reason),
    ));
    terms.push(on_terminal(term("machine", run.machine.clone())));
    let ending = contention::ending(run).map(|words| on_terminal(warning("ended", words)));
    terms.extend(ending);
    Section {
        terms,
        ..Section::new("basis", "What this rests on")
    }
}

/// What became of the samples, and why the access of some is unknown.
fn samples(samples: &Samples) -> String {
    let words = contention::samples_words(samples);
    match contention::unknown_reasons(samples).as_slice() {
        [] => words,
        reasons => format!("{words} ({})", reasons.join(", ")),
    }
}

/// What was lost, each kind in a sentence.
fn losses(report: &Report) -> impl Iterator<Item = String> {
    let (losses, more) = contention::losses(report);
    let words = losses.into_iter().map(|(what, lost)| {
        let count = text::integer(lost.count);
        match lost.detail.as_str() {
            "" => format!("{what}: {count}"),
            detail => format!("{what} ({count}): {detail}"),
        }
    });
    words.chain(more)
}

/// What recording cost; the terminal has the sum.
fn price(overhead: &Overhead) -> [Term; 4] {
    let watch_ns = match overhead.watch_ns > 0.0 {
        true => overhead.watch_ns,
        false => overhead.arm_ns + overhead.trap_ns,
    };
    let on_page = |name, words| Term {
        shown: Shown::OnPage,
        ..term(name, words)
    };
    let budget = format!(
        "{} estimated of {} allowed",
        text::percent(overhead.estimated),
        text::percent(overhead.budget)
    );
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
    [
        term("overhead", budget),
        on_page("measured cost", cost),
        on_page("rates", rates),
        on_page("collector", collector),
    ]
}
