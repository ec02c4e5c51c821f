//! The door to the terminal: what linewise says on standard error. Names of the target and of recordings are in it, so
//! nothing in it is obeyed; what moves the cursor is sent by this file alone.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use linewise_recording::Outlet;

const SECOND: Duration = Duration::from_secs(1);

/// Goes back to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// Says one sentence, on a line of its own. That nobody hears it is no failure.
pub(crate) fn say(text: &str) {
    let text = linewise_foreign::sanitise(text);
    let _ = writeln!(io::stderr().lock(), "linewise: {text}");
}

/// Says lines as they are: what is wrong with a command line, whose words are in it.
pub(crate) fn lines(text: &str) {
    let mut terminal = io::stderr().lock();
    for line in text.lines() {
        let _ = writeln!(terminal, "{}", linewise_foreign::sanitise(line));
    }
}

/// Prints what was asked for to the standard output.
///
/// # Errors
/// Nobody reads it any more, or there is no room.
pub(crate) fn out(text: impl Display) -> io::Result<()> {
    let mut output = io::stdout().lock();
    write!(output, "{text}").and_then(|()| output.flush())
}

/// The same, and ends the line.
pub(crate) fn out_line(text: impl Display) -> io::Result<()> {
    out(format_args!("{text}\n"))
}

/// Finds out before something long whether its result can be written to `path`.
pub(crate) fn outlet(path: &Path) -> anyhow::Result<(&Path, Outlet)> {
    let found = Outlet::find(path);
    let outlet = found.with_context(|| format!("cannot write to {}", path.display()))?;
    Ok((path, outlet))
}

/// The same for two results, if they are asked for, which are to go to different files; `what` they are called.
pub(crate) fn two_outlets<'p>(
    what: [&str; 2],
    paths: [Option<&'p Path>; 2],
) -> anyhow::Result<[Option<(&'p Path, Outlet)>; 2]> {
    let [one, other] = paths.map(|path| path.map(outlet).transpose());
    let both = [one?, other?];
    if let [Some((one, file)), Some((other, same))] = &both {
        anyhow::ensure!(
            !file.is_same(same),
            "{} ({}) and {} ({}) would be written to the same file; name two",
            what[0],
            one.display(),
            what[1],
            other.display()
        );
    }
    Ok(both)
}

/// A line that tells how far something is, on a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgressLine {
    /// Whether there is one.
    pub(crate) shown: bool,
}

impl ProgressLine {
    /// One that is shown if standard error is a terminal.
    pub(crate) fn on_a_terminal() -> Self {
        Self {
            shown: io::stderr().is_terminal(),
        }
    }

    /// Puts `text` in place of what it showed.
    pub(crate) fn show(self, text: &str) {
        if self.shown {
            let text = linewise_foreign::sanitise(text);
            let mut terminal = io::stderr().lock();
            let _ = write!(terminal, "{CLEAR}{text}").and_then(|()| terminal.flush());
        }
    }

    /// Does `work` and shows for how long already, from the second second on: `looking up names for 3 s`.
    pub(crate) fn during<R>(self, what: &str, work: impl FnOnce() -> R) -> R {
        let (done, is_done) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let began = Instant::now();
            let tell = move || {
                while is_done.recv_timeout(SECOND) == Err(RecvTimeoutError::Timeout) {
                    self.show(&format!("{what} for {} s", began.elapsed().as_secs()));
                }
                if began.elapsed() >= SECOND {
                    self.clear();
                }
            };
            if self.shown {
                // Without a thread for it nothing is told.
                let _ = thread::Builder::new().spawn_scoped(scope, tell);
            }
            // Ends the other, by a panic, too.
            let _done = done;
            work()
        })
    }

    /// Removes it, so that something else can be said.
    pub(crate) fn clear(self) {
        if self.shown {
            let _ = write!(io::stderr().lock(), "{CLEAR}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_ends_with_its_work_and_hides_neither_result_nor_panic() {
        for shown in [false, true] {
            let line = ProgressLine { shown };
            assert_eq!(line.during("counting", || 5), 5);
            let began = Instant::now();
            let bug = std::panic::catch_unwind(|| line.during("counting", || panic!("a bug")));
            assert!(bug.is_err() && began.elapsed() < SECOND * 30, "{shown}");
        }
    }
}
