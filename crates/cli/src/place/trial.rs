//! The trial: old and new placement in short turns, and the new one stays only if it is better beyond noise.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
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
/// How long the command of a figure may take.
const PATIENCE: Duration = Duration::from_secs(10);
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
    let Some(before) = count(command, || target.is_over(signals))? else {
        return Ok(None);
    };
    let begin = Instant::now();
    if !target.wait_for(signals, placing.args.turn, || {}) {
        return Ok(None);
    }
    let after = count(command, || target.is_over(signals))?;
    Ok(after.map(|after| (after - before) / begin.elapsed().as_secs_f64()))
}

/// What a command prints: a number. `None` if all is over meanwhile.
///
/// # Errors
/// It cannot be run, takes longer than [`PATIENCE`], or prints something else.
fn count(command: &str, mut is_over: impl FnMut() -> bool) -> anyhow::Result<Option<f64>> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null());
    // A group of its own, so that all of it can be ended.
    let child = shell.stdout(Stdio::piped()).process_group(0).spawn();
    let mut child = Figure(child.with_context(|| format!("--figure: cannot run `{command}`"))?);
    let begin = Instant::now();
    while child
        .0
        .try_wait()
        .context("--figure: cannot wait for it")?
        .is_none()
    {
        if is_over() {
            return Ok(None);
        }
        if begin.elapsed() > PATIENCE {
            bail!(
                "--figure: `{command}` did not end within {} s",
                PATIENCE.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // What it left behind may hold the pipe open for ever: only what is there is read.
    let mut bytes = [0; 4096];
    let mut read = 0;
    if let Some(output) = &mut child.0.stdout {
        rustix::io::ioctl_fionbio(&*output, true)?;
        read = output.read(&mut bytes).unwrap_or(0);
    }
    let text = String::from_utf8_lossy(&bytes[..read]);
    let number = text.trim().parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite());
    let number = number.with_context(|| {
        let said: String = text.trim().chars().take(60).collect();
        format!("--figure: `{command}` printed `{said}`, and a number is wanted")
    });
    number.map(Some)
}

/// The command of a figure. Whatever of it still runs ends with this.
struct Figure(Child);

impl Drop for Figure {
    fn drop(&mut self) {
        if let Ok(group) = i32::try_from(self.0.id())
            && let Some(group) = rustix::process::Pid::from_raw(group)
        {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
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
            count("echo ' 12.5 '", || false).unwrap().map(f64::to_bits),
            Some(12.5_f64.to_bits())
        );
        let error = count("echo no number", || false).unwrap_err().to_string();
        assert!(error.contains("`no number`"), "{error}");
        assert!(count("echo inf", || false).is_err());
    }

    #[test]
    fn a_figure_that_leaves_something_behind_or_never_ends_holds_nobody_up() {
        let begin = Instant::now();
        let left = count("echo 5; sleep 777 &", || false).unwrap();
        assert_eq!(left.map(f64::to_bits), Some(5.0_f64.to_bits()));
        assert_eq!(
            count("sleep 778", || begin.elapsed().as_millis() > 50).unwrap(),
            None
        );
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{:?}",
            begin.elapsed()
        );
    }
}
