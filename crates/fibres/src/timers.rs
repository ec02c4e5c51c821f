//! Fibres that wait for a time, by worker.
//!
//! A fibre that is woken before its time leaves its entry where it is: the next time is mostly later, and is
//! entered when the fibre was woken by the old one and waits again. So a server whose connections each have
//! an hour to say something enters a time once an hour, not for each word.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::task::{Task, TaskRef};

/// When, and which of those at that time.
type Key = (Instant, u64);

/// The entry of a fibre, and whose entry it is.
pub(crate) type Armed = (*const Timers, Key);

#[derive(Debug, Default)]
pub(crate) struct Timers {
    entries: BTreeMap<Key, TaskRef>,
    next: u64,
    /// What was due then is taken out, or about to be.
    looked_at: Option<Instant>,
}

impl Timers {
    /// Sees that the fibre, which runs here, is woken at `at` or before.
    pub(crate) fn arm(&mut self, task: &Task, at: Instant) {
        if let Some((_, key)) = self.armed(task) {
            if key.0 <= at && self.looked_at.is_none_or(|looked_at| key.0 > looked_at) {
                return;
            }
            self.entries.remove(&key);
        }
        self.next += 1;
        let key = (at, self.next);
        self.entries.insert(key, TaskRef::of(task));
        task.timer.set(Some((self, key)));
    }

    /// The fibre, which ran here, needs no more waking.
    pub(crate) fn disarm(&mut self, task: &Task) {
        if let Some((_, key)) = self.armed(task) {
            self.entries.remove(&key);
        }
    }

    /// What it has here. An entry at another worker stays until its time: it wakes the fibre once too often.
    fn armed(&self, task: &Task) -> Option<Armed> {
        task.timer.get().filter(|(of, _)| std::ptr::eq(*of, self))
    }

    /// When the first is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(key, _)| key.0)
    }

    /// Takes out the first that is due.
    pub(crate) fn due(&mut self) -> Option<TaskRef> {
        let entry = self.entries.first_entry()?;
        let now = Instant::now();
        self.looked_at = Some(now);
        (entry.key().0 <= now).then(|| entry.remove())
    }
}
