//! The door to the terminal: what linewise says on standard error. Names of the target and of recordings are in it, so
//! nothing in it is obeyed; what moves the cursor is sent by this file alone.

use std::io::{self, IsTerminal as _, Write};

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

    /// Removes it, so that something else can be said.
    pub(crate) fn clear(self) {
        if self.shown {
            let _ = write!(io::stderr().lock(), "{CLEAR}");
        }
    }
}
