//! Fibres that wait for a time, by worker.

use std::collections::BTreeMap;
use std::time::Instant;

/// Which entry: taken out by it if the fibre is woken before.
pub(crate) type Key = (Instant, u64);

#[derive(Debug)]
pub(crate) struct Timers<F> {
    entries: BTreeMap<Key, F>,
    next: u64,
}

impl<F> Default for Timers<F> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<F> Timers<F> {
    pub(crate) fn add(&mut self, at: Instant, fibre: F) -> Key {
        self.next += 1;
        let key = (at, self.next);
        self.entries.insert(key, fibre);
        key
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.entries.remove(&key);
    }

    /// When the first is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(key, _)| key.0)
    }

    /// Takes out the first that is due.
    pub(crate) fn due(&mut self) -> Option<F> {
        let entry = self.entries.first_entry()?;
        (entry.key().0 <= Instant::now()).then(|| entry.remove())
    }
}
