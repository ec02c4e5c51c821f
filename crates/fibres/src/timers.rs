//! Fibres that wait for a time, by worker.
//!
//! A fibre that is woken before its time leaves its entry where it is: the next time is mostly later, and is
//! entered when the fibre was woken by the old one and waits again. So a server whose connections each have
//! an hour to say something enters a time once an hour, not for each word.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Instant;

/// When, and which of those at that time.
type Key = (Instant, u64);

/// The entry of a fibre, and the address of those whose entry it is.
pub(crate) type Armed = (*const (), Key);

/// Those that wait at one worker; `F` is a reference to a fibre.
#[derive(Debug)]
pub(crate) struct Timers<F> {
    entries: BTreeMap<Key, F>,
    next: u64,
    /// What was due then is taken out, or about to be.
    looked_at: Option<Instant>,
}

impl<F> Default for Timers<F> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            next: 0,
            looked_at: None,
        }
    }
}

impl<F> Timers<F> {
    /// Sees that the fibre, which runs here and has `armed`, is woken at `at` or before.
    pub(crate) fn arm(
        &mut self,
        armed: &Cell<Option<Armed>>,
        at: Instant,
        fibre: impl FnOnce() -> F,
    ) {
        if let Some((_, key)) = self.own(armed) {
            if key.0 <= at && self.looked_at.is_none_or(|looked_at| key.0 > looked_at) {
                return;
            }
            self.entries.remove(&key);
        }
        self.next += 1;
        let key = (at, self.next);
        self.entries.insert(key, fibre());
        armed.set(Some((std::ptr::from_ref(self).cast(), key)));
    }

    /// The fibre, which ran here, needs no more waking.
    pub(crate) fn disarm(&mut self, armed: &Cell<Option<Armed>>) {
        if let Some((_, key)) = self.own(armed) {
            self.entries.remove(&key);
        }
    }

    /// What it has here. An entry at another worker stays until its time: it wakes the fibre once too often.
    fn own(&self, armed: &Cell<Option<Armed>>) -> Option<Armed> {
        let here = std::ptr::from_ref(self).cast();
        armed.get().filter(|(of, _)| std::ptr::eq(*of, here))
    }

    /// When the first is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(key, _)| key.0)
    }

    /// Takes out the first that is due.
    pub(crate) fn due(&mut self) -> Option<F> {
        let entry = self.entries.first_entry()?;
        let now = Instant::now();
        self.looked_at = Some(now);
        (entry.key().0 <= now).then(|| entry.remove())
    }
}
