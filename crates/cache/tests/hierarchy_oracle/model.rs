//! The hierarchy written down from its definitions: lists, sets and a log of all writes, nothing
//! that is fast. LRU only.

use std::collections::{BTreeMap, BTreeSet};

use crate::moves::{Moves, Moving};
use crate::tally::Tally;
use linewise_cache::Access;
use linewise_cache::hierarchy::{
    CacheShape, Config, Inclusion, Protocol, Served, SharedSupply, Ways,
};

pub(crate) type Line = u64;

/// One cache, and the fully-associative cache of the same capacity that is asked the same.
pub(crate) struct Cache {
    pub(crate) sets: Vec<Vec<Line>>,
    ways: usize,
    pub(crate) inclusion: Inclusion,
    ideal: Vec<Line>,
    capacity: usize,
    had: BTreeSet<Line>,
    invalidated: BTreeSet<Line>,
    /// By set: hits, misses, evictions, different lines.
    pub(crate) counts: Vec<[u64; 4]>,
}

impl Cache {
    fn new(shape: &CacheShape, line_bytes: u32) -> Self {
        let capacity = (shape.size_bytes / u64::from(line_bytes)) as usize;
        let ways = match shape.ways {
            Ways::Number(ways) => ways as usize,
            Ways::Full => capacity,
        };
        Self {
            sets: vec![Vec::new(); capacity / ways],
            ways,
            inclusion: shape.inclusion,
            ideal: Vec::new(),
            capacity,
            had: BTreeSet::new(),
            invalidated: BTreeSet::new(),
            counts: vec![[0; 4]; capacity / ways],
        }
    }

    fn set(&self, line: Line) -> usize {
        (line % self.sets.len() as u64) as usize
    }

    pub(crate) fn has(&self, line: Line) -> bool {
        self.sets[self.set(line)].contains(&line)
    }

    fn remove(&mut self, line: Line) {
        let set = self.set(line);
        self.sets[set].retain(|&other| other != line);
    }

    /// To the most recent place, coming from outside or not; who had to leave.
    fn put(&mut self, line: Line) -> Option<Line> {
        let set = self.set(line);
        self.remove(line);
        self.sets[set].push(line);
        (self.sets[set].len() > self.ways).then(|| {
            self.counts[set][2] += 1;
            self.sets[set].remove(0)
        })
    }

    fn ideal_put(&mut self, line: Line) {
        self.ideal.retain(|&other| other != line);
        self.ideal.push(line);
        if self.ideal.len() > self.capacity {
            self.ideal.remove(0);
        }
    }

    /// Why a miss on `line` happens: 0 compulsory, 1 capacity, 2 conflict, 3 invalidated.
    fn why(&self, line: Line) -> usize {
        if !self.had.contains(&line) {
            0
        } else if self.invalidated.contains(&line) {
            3
        } else if self.ideal.contains(&line) {
            2
        } else {
            1
        }
    }

    /// Counts the answer and notes the request in the ideal cache.
    fn answer(&mut self, line: Line, hit: bool) {
        let set = self.set(line);
        let why = self.why(line);
        let counts = &mut self.counts[set];
        counts[usize::from(!hit)] += 1;
        counts[3] += u64::from(!hit && why == 0);
    }
}

/// State of a core's copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Shared,
    Owned,
    Exclusive,
    Modified,
}

pub(crate) struct Core {
    pub(crate) group: usize,
    pub(crate) l1: Cache,
    pub(crate) l2: Option<Cache>,
    pub(crate) states: BTreeMap<Line, State>,
    /// First-level copies newer than the second level.
    l1_dirty: BTreeSet<Line>,
    last: BTreeMap<Line, Access>,
    last_store: BTreeMap<Line, Access>,
    /// Bytes that it stored to since it alone has the line.
    stored: BTreeMap<Line, BTreeSet<u64>>,
    lost_at: BTreeMap<Line, usize>,
}

pub(crate) struct Group {
    pub(crate) llc: Option<Cache>,
    socket: u32,
    node: u8,
    dirty: BTreeSet<Line>,
    lost_at: BTreeMap<Line, usize>,
}

/// A sharing miss, by what its residency touches.
struct Open {
    /// The core, or the group for the last level.
    who: usize,
    line: Line,
    level: usize,
    foreign: BTreeSet<u64>,
    access: Access,
    needed: bool,
    over: bool,
}

pub(crate) struct Model {
    line_bytes: u64,
    config: Config,
    pub(crate) cores: Vec<Core>,
    pub(crate) groups: Vec<Group>,
    homes: BTreeMap<Line, u8>,
    /// Who wrote which byte, in order.
    writes: Vec<(usize, u64)>,
    open: Vec<Open>,
    pub(crate) moves: Moves,
    pub(crate) threads: BTreeMap<u16, Tally>,
    pub(crate) sites: BTreeMap<u32, Tally>,
    /// Within and between sockets: supplied, upgrades, invalidations.
    pub(crate) coherence: [[u64; 3]; 2],
    pub(crate) back_invalidations: u64,
    /// First to second level, private to last level, to memory.
    pub(crate) write_backs: [u64; 3],
}

pub(crate) fn bytes(access: &Access) -> BTreeSet<u64> {
    (access.address..access.address + u64::from(access.size)).collect()
}

impl Model {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            line_bytes: config.line_bytes.into(),
            cores: (config.cores.iter())
                .map(|core| Core {
                    group: core.group as usize,
                    l1: Cache::new(&core.l1, config.line_bytes),
                    l2: core.l2.map(|l2| Cache::new(&l2, config.line_bytes)),
                    states: BTreeMap::new(),
                    l1_dirty: BTreeSet::new(),
                    last: BTreeMap::new(),
                    last_store: BTreeMap::new(),
                    stored: BTreeMap::new(),
                    lost_at: BTreeMap::new(),
                })
                .collect(),
            groups: (config.groups.iter())
                .map(|group| Group {
                    llc: group.llc.map(|llc| Cache::new(&llc, config.line_bytes)),
                    socket: group.socket,
                    node: group.node,
                    dirty: BTreeSet::new(),
                    lost_at: BTreeMap::new(),
                })
                .collect(),
            config: config.clone(),
            homes: BTreeMap::new(),
            writes: Vec::new(),
            open: Vec::new(),
            moves: Moves::new(config.cores.len()),
            threads: BTreeMap::new(),
            sites: BTreeMap::new(),
            coherence: [[0; 3]; 2],
            back_invalidations: 0,
            write_backs: [0; 3],
        }
    }

    /// An access: each line that it touches by itself.
    pub(crate) fn run(&mut self, access: &Access) {
        let mut rest = *access;
        while rest.size > 0 {
            let room = self.line_bytes - rest.address % self.line_bytes;
            let part = u64::from(rest.size).min(room) as u16;
            self.one(&Access { size: part, ..rest });
            rest.address += u64::from(part);
            rest.size -= part;
        }
    }

    fn one(&mut self, access: &Access) {
        let threads = &self.config.threads;
        let mut place = usize::from(access.thread);
        while place >= threads.len() {
            place = (place + 1 - threads.len()).min(place - 1);
        }
        let core = threads[place] as usize;
        let group = self.cores[core].group;
        let line = access.address / self.line_bytes;
        let writes = access.kind.writes();
        let home = *self
            .homes
            .entry(line / 64)
            .or_insert(self.groups[group].node);
        let mut counted = Tally::default();

        let in_l1 = self.cores[core].l1.has(line);
        let why_l1 = self.cores[core].l1.why(line);
        self.cores[core].l1.answer(line, in_l1);
        self.cores[core].l1.ideal_put(line);
        let served;
        if in_l1 {
            served = Served::L1;
            self.cores[core].l1.put(line);
            if writes {
                counted.upgrades += u64::from(self.gain(core, line));
            }
        } else {
            let mut in_l2 = false;
            let mut why_l2 = None;
            if let Some(l2) = &mut self.cores[core].l2 {
                in_l2 = l2.has(line);
                let why = l2.why(line);
                l2.answer(line, in_l2);
                why_l2 = (!in_l2).then_some(why);
                if l2.inclusion == Inclusion::Exclusive {
                    l2.remove(line);
                    l2.ideal.retain(|&other| other != line);
                } else {
                    l2.ideal_put(line);
                    if in_l2 {
                        l2.put(line);
                    }
                }
            }
            let mut whys = [Some(why_l1), why_l2, None];
            if in_l2 {
                served = Served::L2;
                if writes {
                    counted.upgrades += u64::from(self.gain(core, line));
                }
            } else {
                let (by, why_llc, llc_hit) = self.fetch(core, line, access, home);
                served = by;
                whys[2] = why_llc;
                counted.llc_hits += u64::from(llc_hit);
                self.cores[core].last_store.remove(&line);
                self.cores[core].stored.remove(&line);
            }
            for (level, why) in whys.into_iter().enumerate() {
                match why {
                    Some(3) => {
                        let (who, since) = if level == 2 {
                            (group, self.groups[group].lost_at[&line])
                        } else {
                            (core, self.cores[core].lost_at[&line])
                        };
                        let own = |writer: usize| {
                            if level == 2 {
                                self.cores[writer].group
                            } else {
                                writer
                            }
                        };
                        let foreign: BTreeSet<u64> = self.writes[since..]
                            .iter()
                            .filter(|&&(writer, byte)| {
                                own(writer) != who && byte / self.line_bytes == line
                            })
                            .map(|&(_, byte)| byte)
                            .collect();
                        counted.overlapping[level] +=
                            u64::from(!foreign.is_disjoint(&bytes(access)));
                        self.open.push(Open {
                            who,
                            line,
                            level,
                            foreign,
                            access: *access,
                            needed: false,
                            over: false,
                        });
                    }
                    Some(why) => counted.classes[level][why] += 1,
                    None => {}
                }
            }
            self.fill(core, line, in_l2);
        }

        let mine = &mut self.cores[core];
        mine.l1.had.insert(line);
        mine.l1.invalidated.remove(&line);
        if let Some(l2) = &mut mine.l2 {
            l2.had.insert(line);
            l2.invalidated.remove(&line);
        }
        mine.last.insert(line, *access);
        if writes {
            mine.last_store.insert(line, *access);
            mine.stored.entry(line).or_default().extend(bytes(access));
            mine.l1_dirty.insert(line);
            self.writes
                .extend(bytes(access).into_iter().map(|byte| (core, byte)));
        }
        self.moves.use_news(core, line, access);
        for open in &mut self.open {
            let here = if open.level == 2 {
                open.who == group
            } else {
                open.who == core
            };
            if here && !open.over && open.line == line && !open.foreign.is_disjoint(&bytes(access))
            {
                open.needed = true;
            }
        }
        *counted
            .served
            .entry((access.kind as usize, served))
            .or_default() += 1;
        self.threads.entry(access.thread).or_default().add(&counted);
        self.sites.entry(access.site).or_default().add(&counted);
    }

    /// Decides the sharing misses and moves that are left.
    pub(crate) fn finish(&mut self) {
        self.moves.finish();
        for open in std::mem::take(&mut self.open) {
            let class = if open.needed { 3 } else { 4 };
            self.threads.get_mut(&open.access.thread).unwrap().classes[open.level][class] += 1;
            self.sites.get_mut(&open.access.site).unwrap().classes[open.level][class] += 1;
        }
    }

    fn holders(&self, line: Line) -> Vec<usize> {
        (0..self.cores.len())
            .filter(|&core| self.cores[core].states.contains_key(&line))
            .collect()
    }

    fn owner(&self, line: Line) -> Option<usize> {
        self.holders(line)
            .into_iter()
            .find(|&core| self.cores[core].states[&line] != State::Shared)
    }

    fn llcs(&self, line: Line) -> Vec<usize> {
        let has = |&group: &usize| {
            self.groups[group]
                .llc
                .as_ref()
                .is_some_and(|llc| llc.has(line))
        };
        (0..self.groups.len()).filter(has).collect()
    }

    fn dirty_llc(&self, line: Line) -> Option<usize> {
        (0..self.groups.len()).find(|&group| self.groups[group].dirty.contains(&line))
    }

    fn far(&self, a: usize, b: usize) -> usize {
        usize::from(self.groups[a].socket != self.groups[b].socket)
    }

    fn distance(&self, a: usize, b: usize) -> Served {
        match (a == b, self.far(a, b)) {
            (true, _) => Served::Peer,
            (false, 0) => Served::OtherGroup,
            _ => Served::OtherSocket,
        }
    }

    /// The right to store for a core that has the line; whether others had to be asked.
    fn gain(&mut self, core: usize, line: Line) -> bool {
        let asks = matches!(self.cores[core].states[&line], State::Shared | State::Owned);
        if asks {
            let far = self.invalidate_others(core, line);
            self.coherence[far][1] += 1;
            self.cores[core].stored.remove(&line);
        }
        self.cores[core].states.insert(line, State::Modified);
        for group in &mut self.groups {
            group.dirty.remove(&line);
        }
        asks
    }

    fn invalidate_others(&mut self, core: usize, line: Line) -> usize {
        let group = self.cores[core].group;
        let now = self.writes.len();
        let mut far = 0;
        let mut losers = BTreeSet::new();
        for other in self.holders(line) {
            if other == core {
                continue;
            }
            let theirs = self.cores[other].group;
            self.coherence[self.far(group, theirs)][2] += 1;
            far = far.max(self.far(group, theirs));
            losers.insert(theirs);
            let lost = &mut self.cores[other];
            lost.states.remove(&line);
            lost.lost_at.insert(line, now);
            if lost.l1.has(line) {
                lost.l1.invalidated.insert(line);
                lost.l1.remove(line);
            }
            if let Some(l2) = &mut lost.l2 {
                if l2.has(line) || l2.inclusion == Inclusion::Exclusive {
                    l2.invalidated.insert(line);
                }
                l2.remove(line);
            }
            self.close(other, usize::MAX, line);
        }
        for other in self.llcs(line) {
            if other != group {
                self.coherence[self.far(group, other)][2] += 1;
                far = far.max(self.far(group, other));
                losers.insert(other);
                self.groups[other].llc.as_mut().unwrap().remove(line);
            }
        }
        losers.remove(&group);
        for other in losers {
            if let Some(llc) = &mut self.groups[other].llc {
                llc.invalidated.insert(line);
                self.groups[other].lost_at.insert(line, now);
                self.close(usize::MAX, other, line);
            }
        }
        far
    }

    /// Ends residencies of a line in a core, and in a group.
    fn close(&mut self, core: usize, group: usize, line: Line) {
        self.moves.end_stay(core, line);
        for open in &mut self.open {
            let who = if open.level == 2 { group } else { core };
            open.over |= open.who == who && open.line == line;
        }
    }

    fn close_group_if_gone(&mut self, group: usize, line: Line) {
        let held = self
            .holders(line)
            .iter()
            .any(|&core| self.cores[core].group == group);
        if !held && !self.llcs(line).contains(&group) {
            self.close(usize::MAX, group, line);
        }
    }

    /// From outside the private caches: who served it, why the group missed, whether it hit.
    fn fetch(
        &mut self,
        core: usize,
        line: Line,
        access: &Access,
        home: u8,
    ) -> (Served, Option<usize>, bool) {
        let group = self.cores[core].group;
        let owner = self.owner(line);
        let peer = self
            .holders(line)
            .into_iter()
            .find(|&other| self.cores[other].group == group);
        let in_llc = self.llcs(line).contains(&group);
        let dirty = self.dirty_llc(line);
        let mut others: Vec<usize> = self
            .holders(line)
            .iter()
            .map(|&other| self.cores[other].group)
            .collect();
        others.extend(self.llcs(line));
        let nearest = others
            .into_iter()
            .min_by_key(|&other| (self.distance(group, other), other));
        let mut supplier = None;
        let served = match (owner, in_llc, peer, dirty, nearest) {
            (Some(owner), ..) => {
                supplier = Some(owner);
                self.distance(group, self.cores[owner].group)
            }
            (None, true, ..) => Served::Llc,
            (None, false, Some(peer), ..) => {
                supplier = Some(peer);
                Served::Peer
            }
            (None, false, None, Some(dirty), _) => self.distance(group, dirty),
            (None, false, None, None, Some(nearest))
                if self.config.shared_supply == SharedSupply::Cache =>
            {
                if !self.llcs(line).contains(&nearest) {
                    supplier = self
                        .holders(line)
                        .into_iter()
                        .find(|&other| self.cores[other].group == nearest);
                }
                self.distance(group, nearest)
            }
            _ if home == self.groups[group].node => Served::LocalDram,
            _ => Served::RemoteDram,
        };
        match served {
            Served::Peer | Served::OtherGroup => self.coherence[0][0] += 1,
            Served::OtherSocket => self.coherence[1][0] += 1,
            _ => {}
        }
        if let Some(supplier) = supplier {
            let theirs = &self.cores[supplier];
            let other = match theirs.last_store.get(&line) {
                Some(store) if !access.kind.writes() => store,
                _ => &theirs.last[&line],
            };
            let moving = Moving {
                supplier,
                from: *other,
                to: *access,
            };
            let stored = theirs.stored.get(&line).cloned().unwrap_or_default();
            self.moves.open(core, line, moving, &stored);
        }

        // The last level's answer.
        let mut why = None;
        let mut hit = false;
        let exclusive = self.groups[group]
            .llc
            .as_ref()
            .is_some_and(|llc| llc.inclusion == Inclusion::Exclusive);
        if let Some(llc) = &mut self.groups[group].llc {
            hit = in_llc || peer.is_some();
            let reason = llc.why(line);
            llc.answer(line, hit);
            why = (!hit).then_some(reason);
            if exclusive {
                llc.remove(line);
                llc.ideal.retain(|&other| other != line);
            } else {
                llc.ideal_put(line);
                if in_llc {
                    llc.put(line);
                }
            }
            llc.had.insert(line);
            llc.invalidated.remove(&line);
        }
        let moved_dirt = exclusive && self.groups[group].dirty.remove(&line);

        // Coherence.
        if access.kind.writes() {
            self.invalidate_others(core, line);
            for group in &mut self.groups {
                group.dirty.remove(&line);
            }
            self.cores[core].states.insert(line, State::Modified);
        } else {
            let mesi = self.config.protocol == Protocol::Mesi;
            if let Some(dirty) = self.dirty_llc(line)
                && dirty != group
                && mesi
            {
                self.groups[dirty].dirty.remove(&line);
                self.write_backs[2] += 1;
            }
            let alone = self.holders(line).is_empty()
                && self.llcs(line).iter().all(|&other| other == group);
            let mut state = if alone {
                State::Exclusive
            } else {
                State::Shared
            };
            if moved_dirt {
                state = if alone { State::Modified } else { State::Owned };
            }
            if let Some(owner) = owner {
                let theirs = self.cores[owner].group;
                let was = self.cores[owner].states[&line];
                let becomes = match was {
                    State::Exclusive => State::Shared,
                    _ if mesi => State::Shared,
                    _ => State::Owned,
                };
                self.cores[owner].states.insert(line, becomes);
                if becomes == State::Shared {
                    self.cores[owner].l1_dirty.remove(&line);
                }
                if was == State::Modified && mesi {
                    if theirs == group && self.groups[group].llc.is_some() && !exclusive {
                        self.write_backs[1] += 1;
                        self.groups[group].dirty.insert(line);
                    } else {
                        self.write_backs[2] += 1;
                    }
                }
            }
            self.cores[core].states.insert(line, state);
        }
        if !in_llc && !exclusive {
            self.llc_put(group, line);
        }
        let outermost = match &self.cores[core].l2 {
            None => true,
            Some(l2) => l2.inclusion == Inclusion::Exclusive,
        };
        if outermost
            && matches!(
                self.cores[core].states[&line],
                State::Modified | State::Owned
            )
        {
            self.cores[core].l1_dirty.insert(line);
        } else {
            self.cores[core].l1_dirty.remove(&line);
        }
        (served, why, hit)
    }

    fn llc_put(&mut self, group: usize, line: Line) {
        let Some(llc) = &mut self.groups[group].llc else {
            return;
        };
        let inclusive = llc.inclusion == Inclusion::Inclusive;
        let Some(victim) = llc.put(line) else { return };
        let mut dirty = self.groups[group].dirty.remove(&victim);
        if inclusive {
            for core in self.holders(victim) {
                if self.cores[core].group == group {
                    self.back_invalidations += 1;
                    let theirs = &mut self.cores[core];
                    theirs.l1.remove(victim);
                    if let Some(l2) = &mut theirs.l2 {
                        l2.remove(victim);
                    }
                    let state = theirs.states.remove(&victim).unwrap();
                    dirty |= matches!(state, State::Modified | State::Owned);
                    self.close(core, usize::MAX, victim);
                }
            }
        }
        self.write_backs[2] += u64::from(dirty);
        self.close_group_if_gone(group, victim);
    }

    /// Into the private caches.
    fn fill(&mut self, core: usize, line: Line, in_l2: bool) {
        let inclusion = self.cores[core].l2.as_ref().map(|l2| l2.inclusion);
        if in_l2 {
            let dirty = matches!(
                self.cores[core].states[&line],
                State::Modified | State::Owned
            );
            if inclusion == Some(Inclusion::Exclusive) && dirty {
                self.cores[core].l1_dirty.insert(line);
            } else {
                self.cores[core].l1_dirty.remove(&line);
            }
        }
        if inclusion == Some(Inclusion::Inclusive) && !in_l2 {
            self.l2_put(core, line, line);
        }
        if let Some(victim) = self.cores[core].l1.put(line) {
            self.l1_evicted(core, victim, line);
        }
        if inclusion == Some(Inclusion::NonInclusive) && !in_l2 {
            self.l2_put(core, line, line);
        }
    }

    fn l1_evicted(&mut self, core: usize, victim: Line, coming: Line) {
        let mine = &mut self.cores[core];
        let dirty = mine.l1_dirty.remove(&victim);
        let Some(l2) = &mut mine.l2 else {
            self.left(core, victim);
            return;
        };
        let stays = l2.has(victim);
        let goes = match l2.inclusion {
            Inclusion::Exclusive => true,
            Inclusion::NonInclusive => !stays && dirty && self.config.victims_allocate,
            Inclusion::Inclusive => false,
        };
        if goes {
            l2.ideal_put(victim);
        }
        if stays || goes {
            self.write_backs[0] += u64::from(dirty);
        }
        if goes {
            self.l2_put(core, victim, coming);
        } else if !stays {
            self.left(core, victim);
        }
    }

    fn l2_put(&mut self, core: usize, line: Line, coming: Line) {
        let mine = &mut self.cores[core];
        let l2 = mine.l2.as_mut().unwrap();
        let inclusion = l2.inclusion;
        let Some(victim) = l2.put(line) else { return };
        let in_l1 = mine.l1.has(victim);
        if inclusion == Inclusion::NonInclusive && (in_l1 || victim == coming) {
            if matches!(mine.states[&victim], State::Modified | State::Owned) {
                mine.l1_dirty.insert(victim);
            }
            return;
        }
        if in_l1 {
            self.back_invalidations += 1;
            mine.l1.remove(victim);
        }
        self.left(core, victim);
    }

    /// A line that the private caches have evicted.
    fn left(&mut self, core: usize, line: Line) {
        let group = self.cores[core].group;
        let state = self.cores[core].states.remove(&line).unwrap();
        self.close(core, usize::MAX, line);
        let dirty = matches!(state, State::Modified | State::Owned);
        let in_llc = self.llcs(line).contains(&group);
        let peers = self
            .holders(line)
            .iter()
            .any(|&other| self.cores[other].group == group);
        let goes = match self.groups[group].llc.as_ref().map(|llc| llc.inclusion) {
            None => false,
            Some(Inclusion::Exclusive) => !peers,
            Some(Inclusion::Inclusive) => dirty,
            Some(Inclusion::NonInclusive) => dirty && (in_llc || self.config.victims_allocate),
        };
        if goes {
            self.write_backs[1] += u64::from(dirty);
            if dirty {
                self.groups[group].dirty.insert(line);
            }
            if !in_llc {
                self.groups[group].llc.as_mut().unwrap().ideal_put(line);
                self.llc_put(group, line);
            }
        } else {
            self.write_backs[2] += u64::from(dirty);
        }
        self.close_group_if_gone(group, line);
    }
}
