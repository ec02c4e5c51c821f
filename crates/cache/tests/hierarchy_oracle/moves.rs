//! The kinds of transfers, written down from their definition: what is news to a core, and which of its stays used it.

use std::collections::{BTreeMap, BTreeSet};

use linewise_cache::Access;

use crate::model::{Line, bytes};

/// A transfer whose kind is not known yet.
pub(crate) struct Moving {
    pub(crate) supplier: usize,
    /// The supplier's access, and the one that fetches the line.
    pub(crate) from: Access,
    pub(crate) to: Access,
}

/// What moved.
#[derive(Default)]
pub(crate) struct Moves {
    cores: usize,
    /// Lines that moved, what each core has not used of what others stored since, and the moves of stays that go on.
    moved: BTreeSet<Line>,
    news: BTreeMap<(usize, Line), BTreeSet<u64>>,
    moving: BTreeMap<(usize, Line), Moving>,
    /// Stays whose moves are true, news as a stay in vain brought it, the words of news that a stay used and those of them
    /// that were brought in vain, and the stays that were not in vain after all.
    brought: BTreeSet<(usize, Line)>,
    vain: BTreeMap<(usize, Line), BTreeSet<u64>>,
    used: BTreeMap<(usize, Line), (usize, usize)>,
    surplus: BTreeMap<(usize, Line), usize>,
    /// From core, to core, true or false.
    pub(crate) core_transfers: BTreeMap<(usize, usize, bool), u64>,
    pub(crate) thread_transfers: BTreeMap<(u16, u16, bool), u64>,
    /// Line, site, site, true or false.
    pub(crate) line_transfers: BTreeMap<(Line, u32, u32, bool), u64>,
}

impl Moves {
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            cores,
            ..Self::default()
        }
    }

    /// A core gets a line from another, which stored to these bytes of it since it alone has it.
    pub(crate) fn open(&mut self, core: usize, line: Line, moving: Moving, stored: &BTreeSet<u64>) {
        if self.moved.insert(line) {
            self.tell_others(moving.supplier, line, stored);
        }
        let before = self.moving.insert((core, line), moving);
        assert!(before.is_none(), "a stay ends before the next begins");
    }

    /// The stream is over.
    pub(crate) fn finish(&mut self) {
        for (core, line) in self.moving.keys().copied().collect::<Vec<_>>() {
            self.end_stay(core, line);
        }
    }

    /// What a core stored to a line is news to the others.
    fn tell_others(&mut self, core: usize, line: Line, stored: &BTreeSet<u64>) {
        for other in (0..self.cores).filter(|&other| other != core) {
            self.news.entry((other, line)).or_default().extend(stored);
            let vain = self.vain.entry((other, line)).or_default();
            vain.retain(|byte| !stored.contains(byte));
        }
    }

    /// A core that has a line uses bytes of it.
    pub(crate) fn use_news(&mut self, core: usize, line: Line, access: &Access) {
        if !self.moved.contains(&line) {
            return;
        }
        let used = bytes(access);
        let news = self.news.entry((core, line)).or_default();
        let words: BTreeSet<u64> = news.intersection(&used).map(|byte| byte / 8).collect();
        news.retain(|byte| !used.contains(byte) && !words.contains(&(byte / 8)));
        let vain = self.vain.entry((core, line)).or_default();
        let in_vain: BTreeSet<u64> = vain.iter().map(|byte| byte / 8).collect();
        let in_vain = in_vain.intersection(&words).count();
        vain.retain(|byte| news.contains(byte));
        let counts = self.used.entry((core, line)).or_default();
        counts.0 += words.len();
        counts.1 += in_vain;
        if !words.is_empty() {
            self.decide(core, line, true);
        }
        if access.kind.writes() {
            self.tell_others(core, line, &used);
        }
    }

    /// A core loses a line that it may have got by a move: false, unless a stay that brought more pays for it.
    pub(crate) fn end_stay(&mut self, core: usize, line: Line) {
        let (used, late) = self.used.remove(&(core, line)).unwrap_or_default();
        if self.brought.remove(&(core, line)) {
            let surplus = self.surplus.entry((core, line)).or_default();
            *surplus = (*surplus + late.min(used - 1)).min(8);
        }
        if self.moving.contains_key(&(core, line)) {
            let surplus = self.surplus.entry((core, line)).or_default();
            let is_paid = *surplus > 0;
            *surplus -= usize::from(is_paid);
            let news = self.news.entry((core, line)).or_default();
            let vain = self.vain.entry((core, line)).or_default();
            vain.extend(news.iter());
            self.decide(core, line, is_paid);
            self.brought.remove(&(core, line));
        }
    }

    /// Counts the move with which a core's stay began, unless that is done.
    fn decide(&mut self, core: usize, line: Line, is_true: bool) {
        let Some(Moving { supplier, from, to }) = self.moving.remove(&(core, line)) else {
            return;
        };
        self.brought.insert((core, line));
        let cores = self.core_transfers.entry((supplier, core, is_true));
        *cores.or_default() += 1;
        let threads = self
            .thread_transfers
            .entry((from.thread, to.thread, is_true));
        *threads.or_default() += 1;
        let sites = self
            .line_transfers
            .entry((line, from.site, to.site, is_true));
        *sites.or_default() += 1;
    }
}
