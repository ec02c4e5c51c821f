//! The trial: old and new placement in short turns, and the new one stays only if it is better beyond noise.

use std::process::Command;
use std::time::Instant;

use anyhow::Context;
use linewise_machine::signals::StopSignals;
use linewise_placer::Move;
use serde_json::json;

use super::observe::Observer;
use super::placing::Placing;
use super::target::Target;
use crate::say::say;

/// Pairs of turns: with six a difference counts if it is beyond 2.57 of its standard errors (95 %, five degrees of
/// freedom).
const PAIRS: usize = 6;
/// Student's t for that.
const BEYOND: f64 = 2.571;
/// A gain below this is none.
const LEAST: f64 = 0.01;

/// What a trial said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    /// What the new placement gains: the mean of the logarithms of new over old, more is better.
    pub(super) gain: f64,
    /// Half of the interval around it, 95 %.
    pub(super) margin: f64,
}

impl Verdict {
    /// From the logarithms of the ratios.
    pub(super) fn of(ratios: &[f64]) -> Self {
        let count = ratios.len() as f64;
        let gain = ratios.iter().sum::<f64>() / count;
        let squares = ratios
            .iter()
            .map(|ratio| (ratio - gain).powi(2))
            .sum::<f64>();
        let error = (squares / (count - 1.0).max(1.0) / count).sqrt();
        Self {
            gain,
            margin: BEYOND * error,
        }
    }

    pub(super) fn is_better(self) -> bool {
        self.gain >= LEAST && self.gain > self.margin
    }
}

/// Tries `moves`; keeps them if they help, and else remembers that they do not.
///
/// # Errors
/// The figure cannot be had; everything is as it was then.
pub(super) fn run(
    placing: &mut Placing<'_>,
    moves: &[Move],
    observer: &mut dyn Observer,
    target: &mut Target,
    signals: &StopSignals,
) -> anyhow::Result<()> {
    let mut ratios = Vec::with_capacity(PAIRS);
    for pair in 0..PAIRS {
        let mut turns = [0.0; 2];
        // Neither always comes first.
        for turn in [pair % 2, 1 - pair % 2] {
            if turn == 1 {
                placing.give_all(moves)?;
            } else {
                moves.iter().for_each(|one| {
                    placing.hands.take_back(one.task);
                });
            }
            match figure(placing, observer, target, signals)? {
                Some(figure) => turns[turn] = figure,
                None => return Ok(()),
            }
        }
        let ratio = (turns[1] / turns[0]).ln();
        if ratio.is_finite() {
            ratios.push(ratio);
        }
        placing
            .events
            .tell("turns", json!({ "old": turns[0], "new": turns[1] }));
    }
    let verdict = (ratios.len() == PAIRS).then(|| Verdict::of(&ratios));
    let keeps = verdict.is_some_and(Verdict::is_better);
    let percent = |log: f64| (log.exp() - 1.0) * 100.0;
    let words = match verdict {
        Some(Verdict { gain, margin }) => format!(
            "the new placement {} ({:+.1} %, {:+.1} to {:+.1})",
            if keeps { "is better and stays" } else { "is not better beyond noise and is undone" },
            percent(gain),
            percent(gain - margin),
            percent(gain + margin)
        ),
        None => "the figure did not grow in each turn, so nothing can be said, and the placement is undone".to_owned(),
    };
    placing.events.tell(
        if keeps { "kept" } else { "rejected" },
        json!({ "gain": verdict.map(|it| it.gain), "margin": verdict.map(|it| it.margin) }),
    );
    if !placing.args.quiet {
        say(&words);
    }
    if keeps {
        return placing.give_all(moves);
    }
    for one in moves {
        placing.hands.take_back(one.task);
        placing.history.refused(one.task);
    }
    Ok(())
}

/// The figure of one turn, more is better; `None` if the target is over.
fn figure(
    placing: &mut Placing<'_>,
    observer: &mut dyn Observer,
    target: &mut Target,
    signals: &StopSignals,
) -> anyhow::Result<Option<f64>> {
    let Some(command) = &placing.args.figure else {
        let seen = observer.look(&target.processes()?)?;
        target.heard(seen.ended);
        if seen.is_last || target.is_over(signals) {
            return Ok(None);
        }
        // The less time goes by at lines that others have, the better.
        let waits = seen.waits.context("the recordings of the turns do not tell the time at shared lines: name a figure with --figure COMMAND")?;
        return Ok(Some((1.0 - waits).max(1e-6)));
    };
    let (before, begin) = (count(command)?, Instant::now());
    if !target.wait_for(signals, placing.args.turn, || {}) {
        return Ok(None);
    }
    let after = count(command)?;
    Ok(Some((after - before) / begin.elapsed().as_secs_f64()))
}

/// What a command prints: a number.
fn count(command: &str) -> anyhow::Result<f64> {
    let output = Command::new("/bin/sh").args(["-c", command]).output();
    let output = output.with_context(|| format!("--figure: cannot run `{command}`"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite());
    number.with_context(|| {
        let said: String = text.trim().chars().take(60).collect();
        format!("--figure: `{command}` printed `{said}`, and a number is wanted")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_is_what_is_beyond_noise() {
        assert!(Verdict::of(&[0.10, 0.12, 0.09, 0.11, 0.10, 0.13]).is_better());
        assert!(!Verdict::of(&[0.10, -0.12, 0.09, -0.11, 0.10, 0.05]).is_better());
        assert!(!Verdict::of(&[-0.10, -0.12, -0.09, -0.11, -0.10, -0.13]).is_better());
        // Certain, and not worth it.
        assert!(!Verdict::of(&[0.001; 6]).is_better());
    }

    #[test]
    fn a_figure_is_a_number_or_an_error_that_shows_what_was_printed() {
        assert_eq!(
            count("echo ' 12.5 '").unwrap().to_bits(),
            12.5_f64.to_bits()
        );
        let error = count("echo no number").unwrap_err().to_string();
        assert!(error.contains("`no number`"), "{error}");
        assert!(count("echo inf").is_err());
    }
}
