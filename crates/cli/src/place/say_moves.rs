//! Moves in words and as lines of JSON.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use linewise_machine::process;
use linewise_placer::{LevelKind, Reason};
use rustix::fs::OFlags;
use serde_json::{Value, json};

/// What a level's domains are called.
pub(super) fn domains(kind: LevelKind) -> &'static str {
    match kind {
        LevelKind::Socket => "sockets",
        LevelKind::Llc => "last-level caches",
    }
}

/// A reason as a clause.
pub(super) fn why(reason: &Reason) -> String {
    match reason {
        Reason::Coherence(kind, rate) => format!(
            "{rate:.2e} lines a second of its time come across {}, and others there have the same",
            domains(*kind)
        ),
        Reason::Group(kind, rate) => format!(
            "it shares with threads there: {rate:.2e} transfers a second need not cross {}",
            domains(*kind)
        ),
        Reason::Stay(kind, rate) => format!(
            "it shares with threads there and was elsewhere by turns: {rate:.2e} transfers a second need not cross {}",
            domains(*kind)
        ),
        Reason::MakesRoom(key) => {
            format!("it makes room for thread {}, and loses nothing", key.tid)
        }
        Reason::Reluctantly(key) => format!(
            "it makes room for thread {}, and goes home if its memory is remote then",
            key.tid
        ),
        Reason::Home(rate) => format!("it goes home: {rate:.2e} loads a second from remote memory"),
        Reason::Bandwidth(rate) => {
            format!("the memory where it was is saturated: {rate:.2e} misses a second")
        }
        Reason::Undo(kept) => format!(
            "it goes back: it had {:.0} % of its progress left",
            f64::from(*kept) * 100.0
        ),
    }
}

/// A reason as a word.
pub(super) fn word(reason: &Reason) -> &'static str {
    match reason {
        Reason::Coherence(..) => "coherence",
        Reason::Group(..) => "group",
        Reason::Stay(..) => "stay",
        Reason::MakesRoom(_) => "makes-room",
        Reason::Reluctantly(_) => "reluctantly",
        Reason::Home(_) => "home",
        Reason::Bandwidth(_) => "bandwidth",
        Reason::Undo(_) => "undo",
    }
}

/// Where events go, a line of JSON each.
pub(super) struct Events(Option<File>);

impl Events {
    /// Opens the file. Who reads a pipe slowly does not hold up the placement, nor what is undone at its end.
    ///
    /// # Errors
    /// It cannot be written, or is a pipe that nobody reads.
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let file = options
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(path);
        let file = file.with_context(|| {
            format!(
                "cannot write events to {} (a pipe needs its reader first)",
                path.display()
            )
        })?;
        Ok(Self(Some(file)))
    }

    /// Writes one, with the time of the monotonic clock. A full disk ends the events and not the placement.
    pub(super) fn tell(&mut self, event: &str, mut facts: Value) {
        let Some(file) = &mut self.0 else {
            return;
        };
        facts["event"] = json!(event);
        facts["time_ns"] = json!(process::monotonic_ns());
        let line = format!("{facts}\n");
        if let Err(error) = file.write_all(line.as_bytes()) {
            crate::say::say(&format!("no more events are written: {error}"));
            self.0 = None;
        }
    }
}
