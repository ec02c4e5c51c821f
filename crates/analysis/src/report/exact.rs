//! What an exact run rests on, in words for every renderer.

use linewise_recording::Order;

use super::model::{Repeated, Report, Run};
use super::text;

/// What an exact run rests on: a label and words each.
pub(crate) fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let facts = [
        ("accesses", Some(accesses_words(report))),
        ("order", order_words(report).map(str::to_owned)),
        ("repeated", repeated_words(&report.run)),
        ("waited", waited_words(&report.run)),
    ];
    let told = facts.into_iter();
    told.filter_map(|(label, words)| Some((label, words?)))
        .collect()
}

/// The accesses of an exact run, and whether they are all.
fn accesses_words(report: &Report) -> String {
    let count = text::integer(report.samples.total);
    match report.run.one_line_in {
        Some(one_in @ 2..) => format!("{count}, those of one line in {one_in}"),
        _ => format!("{count}, every one of them seen"),
    }
}

/// Whose order of the threads an exact run took; `None` from samples.
fn order_words(report: &Report) -> Option<&'static str> {
    let differed =
        |it: Repeated| it.accesses.low < it.accesses.high || it.transfers.low < it.transfers.high;
    // What the program asks the system, as the time, may be answered otherwise each time all the same.
    let by_the_machine = || {
        let losses = ["order-forced", "order-by-the-kernel"];
        losses.iter().any(|&loss| report.losses.contains_key(loss))
    };
    Some(match report.run.order? {
        Order::EqualRate if report.run.repeated.is_some_and(differed) || by_the_machine() => {
            "all threads at equal rate"
        }
        Order::EqualRate => "all threads at equal rate, the same in every run",
        Order::AsRun => "as the emulator ran the threads",
    })
}

/// Between what the counts of several runs lie; `None` of one run.
fn repeated_words(run: &Run) -> Option<String> {
    let repeated = run.repeated?;
    Some(format!(
        "{} runs: {} accesses, {} transfers",
        text::integer(repeated.runs),
        text::integers(repeated.accesses),
        text::integers(repeated.transfers)
    ))
}

/// How long the program waited for an exact run to be read; `None` if it did not.
fn waited_words(run: &Run) -> Option<String> {
    let waited = run.waited_ns.filter(|&ns| ns > 0)?;
    Some(format!(
        "{} of thread time, until linewise had read what was there; nothing is lost by it",
        text::nanoseconds(waited as f64)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn an_order_is_the_same_in_every_run_unless_repeats_differed() {
        let mut report = sample::traced();
        let same = "all threads at equal rate, the same in every run";
        assert_eq!(order_words(&report), Some("all threads at equal rate"));
        let repeated = report.run.repeated.as_mut().expect("repeated runs");
        repeated.accesses = repeated.transfers;
        assert_eq!(order_words(&report), Some(same));
        report.run.repeated = None;
        assert_eq!(order_words(&report), Some(same));
        let (_, lost) = sample::everyday().losses.pop_first().expect("a loss");
        report.losses.insert("order-by-the-kernel".to_owned(), lost);
        assert_eq!(order_words(&report), Some("all threads at equal rate"));
    }
}
