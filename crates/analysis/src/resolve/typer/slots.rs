//! The values that a function keeps on its stack.

use super::value::Value;

/// Values by distance from the canonical frame address, sorted: they are few, copied at every block and joined in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Slots(Vec<(i64, Value)>);

impl Slots {
    fn find(&self, slot: i64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&slot, |(it, _)| *it)
    }

    pub(super) fn get(&self, slot: i64) -> Option<Value> {
        let at = self.find(slot).ok()?;
        self.0.get(at).map(|(_, value)| *value)
    }

    /// Puts `value` there; a new one only while there are less than `most`.
    pub(super) fn put(&mut self, slot: i64, value: Value, most: usize) {
        match self.find(slot) {
            Ok(at) => self.0[at].1 = value,
            Err(at) if self.0.len() < most => self.0.insert(at, (slot, value)),
            Err(_) => {}
        }
    }

    pub(super) fn remove(&mut self, slot: i64) {
        if let Ok(at) = self.find(slot) {
            self.0.remove(at);
        }
    }

    pub(super) fn retain(&mut self, stays: impl Fn(i64, Value) -> bool) {
        self.0.retain(|(slot, value)| stays(*slot, *value));
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Joins `new` into these: `join` makes one of what is on both sides, and what is there only is added while there are
    /// less than `most`. Says whether that changed anything.
    pub(super) fn join(
        &mut self,
        new: &Self,
        most: usize,
        join: impl Fn(i64, Value, Value) -> Value,
    ) -> bool {
        let mut changed = false;
        let mut at = 0;
        for &(slot, new) in &new.0 {
            let room = self.0.len() < most;
            let rest = self.0.get(at..).unwrap_or_default();
            at += rest.iter().take_while(|(it, _)| *it < slot).count();
            match self.0.get_mut(at) {
                Some((it, old)) if *it == slot => {
                    let joined = join(slot, *old, new);
                    changed |= joined != *old;
                    *old = joined;
                }
                _ if room => {
                    self.0.insert(at, (slot, new));
                    changed = true;
                }
                _ => {}
            }
        }
        changed
    }
}
