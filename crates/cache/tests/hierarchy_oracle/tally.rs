//! What the model counts.

use std::collections::BTreeMap;

use linewise_cache::hierarchy::Served;

/// Counts of a thread or site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) served: BTreeMap<(usize, Served), u64>,
    pub(crate) classes: [[u64; 5]; 3],
    pub(crate) overlapping: [u64; 3],
    pub(crate) llc_hits: u64,
    pub(crate) upgrades: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        for (&key, count) in &other.served {
            *self.served.entry(key).or_default() += count;
        }
        for level in 0..3 {
            for class in 0..5 {
                self.classes[level][class] += other.classes[level][class];
            }
            self.overlapping[level] += other.overlapping[level];
        }
        self.llc_hits += other.llc_hits;
        self.upgrades += other.upgrades;
    }
}
