//! The simulator's main loop: hits in the first level, and who is asked on a miss.
//!
//! `coherence.rs` holds what happens between caches.

use crate::{Access, Kind};

use super::array::{self, Array};
use super::config::{CacheShape, Config, Inclusion, Protocol, SharedSupply, Spanning};
use super::counts::{
    Answer, Class, Coherence, Counts, Level, Matrix, Report, Served, SetCounts, WriteBacks,
};
use super::follow::Follow;
use super::l1::{EMPTY, L1, Way};
use super::lines::{Info, Lines, NO_INFO, NONE, flag, state};
use super::mask::Mask;
use super::outcome::{Outcome, Party, Transfer};
use super::stays::Stays;
use super::touch::Touch;
use super::window::Window;

/// Accesses that are looked at together. Enough for the host to overlap its own misses, few enough
/// that what is loaded for the last is still there.
const CHUNK: usize = 32;

/// A cache behind the first level.
#[derive(Clone, Debug)]
pub(super) struct Outer {
    pub(super) array: Array,
    pub(super) window: Window,
    pub(super) inclusion: Inclusion,
}

impl Outer {
    fn new(shape: &CacheShape, line_bytes: u32, seed: u64) -> Self {
        Self {
            array: Array::new(
                shape.sets(line_bytes),
                shape.number_of_ways(line_bytes),
                shape.replacement,
                seed,
            ),
            window: Window::new(shape.lines(line_bytes)),
            inclusion: shape.inclusion,
        }
    }
}

/// What a request to the group and beyond brought.
pub(super) struct Fetched {
    pub(super) served: Served,
    /// State of the core's new copy.
    pub(super) state: u8,
    /// Outcome in the group, if it has a last level.
    pub(super) llc: Option<Option<Class>>,
    pub(super) supplier: Option<Party>,
    /// Whether the access's bytes overlap those that others wrote since the core lost the line.
    pub(super) overlaps: bool,
}

/// The state of a simulation whose lines have at most `M::BITS` bytes (or pairs of bytes).
#[derive(Clone, Debug)]
pub(super) struct Engine<M> {
    pub(super) line_shift: u32,
    offset_mask: u64,
    /// Logarithm of the bytes that a bit of a mask stands for.
    pub(super) granule: u32,
    /// The core of each thread seen or placed.
    core_of: Vec<u8>,
    config: Config,
    pub(super) group_of: Vec<u8>,
    /// Cores of each group.
    pub(super) members: Vec<u128>,
    pub(super) socket_of: Vec<u32>,
    pub(super) node_of: Vec<u8>,
    pub(super) protocol: Protocol,
    pub(super) shared_supply: SharedSupply,
    pub(super) victims_allocate: bool,
    spanning: Spanning,
    counted_sites: u32,

    pub(super) l1: Vec<L1<M>>,
    pub(super) l2: Vec<Option<Outer>>,
    pub(super) llc: Vec<Option<Outer>>,
    pub(super) lines: Lines<M>,
    /// A line on its way into a first-level cache, and whether the copy that the second level
    /// gave up meanwhile was dirty.
    pub(super) in_flight: (u32, bool),

    /// Accesses that private caches could not serve.
    fetches: u64,
    /// Whether the last chunk had enough of them to look ahead.
    many_fetches: bool,
    /// By thread.
    pub(super) threads: Vec<Counts>,
    /// By site plus one; at the front those for which there is no room.
    pub(super) sites: Vec<Counts>,
    /// Hits of the first level that needed nobody, by kind and site as above: apart, since most
    /// accesses count here and nowhere else.
    site_hits: [Vec<u64>; 3],
    pub(super) sets: [Vec<SetCounts>; 3],
    pub(super) core_transfers: Matrix,
    pub(super) thread_transfers: Matrix,
    /// Inside and between sockets.
    pub(super) coherence: [Coherence; 2],
    pub(super) back_invalidations: u64,
    pub(super) write_backs: WriteBacks,
    pub(super) follow: Follow<M>,
    pub(super) stays: Stays<M>,
}

impl<M: Mask> Engine<M> {
    /// An empty machine. The configuration is valid.
    pub(super) fn new(config: &Config) -> Self {
        let line_bytes = config.line_bytes;
        let sets = |shapes: &mut dyn Iterator<Item = CacheShape>| {
            let most = shapes.map(|shape| shape.sets(line_bytes)).max();
            vec![SetCounts::default(); most.unwrap_or(0) as usize]
        };
        let seed = |level: u64, at: usize| config.seed ^ level << 32 ^ (at as u64) << 40;
        let mut members = vec![0; config.groups.len()];
        for (core, described) in config.cores.iter().enumerate() {
            members[described.group as usize] |= 1 << core;
        }
        let mut core_transfers = Matrix::default();
        core_transfers.grow(config.cores.len());
        let mut engine = Self {
            line_shift: line_bytes.trailing_zeros(),
            offset_mask: u64::from(line_bytes) - 1,
            granule: (line_bytes / M::BITS.min(line_bytes)).trailing_zeros(),
            core_of: Vec::new(),
            config: config.clone(),
            group_of: config.cores.iter().map(|core| core.group as u8).collect(),
            members,
            socket_of: config.groups.iter().map(|group| group.socket).collect(),
            node_of: config.groups.iter().map(|group| group.node).collect(),
            protocol: config.protocol,
            shared_supply: config.shared_supply,
            victims_allocate: config.victims_allocate,
            spanning: config.spanning,
            counted_sites: config.counted_sites.min(NONE - 1),
            l1: (config.cores.iter().enumerate())
                .map(|(at, core)| L1::new(&core.l1, line_bytes, seed(1, at)))
                .collect(),
            l2: (config.cores.iter().enumerate())
                .map(|(at, core)| core.l2.map(|l2| Outer::new(&l2, line_bytes, seed(2, at))))
                .collect(),
            llc: (config.groups.iter().enumerate())
                .map(|(at, group)| {
                    group
                        .llc
                        .map(|llc| Outer::new(&llc, line_bytes, seed(3, at)))
                })
                .collect(),
            lines: Lines::new(
                config.cores.len(),
                config.groups.len(),
                config.homes,
                config.nodes(),
            ),
            in_flight: (NONE, false),
            fetches: 0,
            many_fetches: false,
            threads: Vec::new(),
            sites: vec![Counts::default(); 1],
            site_hits: std::array::from_fn(|_| vec![0; 1]),
            sets: [
                sets(&mut config.cores.iter().map(|core| core.l1)),
                sets(&mut config.cores.iter().filter_map(|core| core.l2)),
                sets(&mut config.groups.iter().filter_map(|group| group.llc)),
            ],
            core_transfers,
            thread_transfers: Matrix::default(),
            coherence: [Coherence::default(); 2],
            back_invalidations: 0,
            write_backs: WriteBacks::default(),
            follow: Follow::new(config.followed_lines),
            stays: Stays::new(),
        };
        engine.know_thread(config.threads.len().min(1 << 16) - 1);
        engine
    }

    /// Simulates accesses in their order; `observe` is told the index and what happened for every
    /// line that is touched, `moved` of the transfers whose kind is known by now.
    #[inline]
    pub(super) fn run<A: Copy + Into<Access>>(
        &mut self,
        accesses: &[A],
        mut observe: impl FnMut(usize, &Outcome),
        mut moved: impl FnMut(&Transfer),
    ) {
        let mut index = 0;
        let mut warm = 0;
        for chunk in accesses.chunks(CHUNK) {
            let fetches = self.fetches;
            if self.many_fetches {
                warm ^= self.warm(chunk);
            }
            for &access in chunk {
                self.step(&access.into(), &mut |outcome| observe(index, outcome));
                index += 1;
            }
            self.many_fetches = self.fetches - fetches > CHUNK as u64 / 8;
            self.count_moves(&mut moved);
        }
        std::hint::black_box(warm);
    }

    /// Loads what the simulation of these accesses will need of the host's memory if they miss:
    /// the loads do not depend on each other, so that the host waits for all at once.
    #[inline(never)]
    fn warm<A: Copy + Into<Access>>(&self, chunk: &[A]) -> u64 {
        let mut sum = 0;
        for &access in chunk {
            let access: Access = access.into();
            let Some(&core) = self.core_of.get(usize::from(access.thread)) else {
                continue;
            };
            let group = usize::from(self.group_of[usize::from(core)]);
            let line = access.address >> self.line_shift;
            sum ^= self.lines.warm(line, core.into(), group);
            if let Some(l2) = &self.l2[usize::from(core)] {
                let victim = l2.array.next_victim(line);
                if victim != array::EMPTY {
                    sum ^= self.lines.warm_victim(victim, core.into());
                }
            }
            if let Some(llc) = &self.llc[group] {
                let set = llc.array.sets.of(line);
                let victim = llc.array.next_victim(line);
                if victim != array::EMPTY {
                    sum ^= self.lines.lines[victim as usize].llcs;
                }
                sum ^= self.sets[2][set].hits;
            }
        }
        sum
    }

    /// Moves a thread to a core.
    pub(super) fn place(&mut self, thread: u16, core: usize) {
        self.know_thread(usize::from(thread));
        self.core_of[usize::from(thread)] = core as u8;
    }

    #[inline(always)]
    fn step(&mut self, access: &Access, observe: &mut impl FnMut(&Outcome)) {
        let first = (access.address & self.offset_mask) as u32;
        let last = first + u32::from(access.size.max(1)) - 1;
        let (thread, counted) = (usize::from(access.thread), access.site as usize + 1);
        let usual = u64::from(last) <= self.offset_mask
            && thread < self.core_of.len()
            && counted < self.sites.len();
        if !usual {
            self.unusual(access, observe);
            return;
        }
        let touch = Touch {
            line: access.address >> self.line_shift,
            first,
            last,
            site: access.site,
            counted: counted as u32,
            thread: access.thread,
            kind: access.kind,
        };
        let core = self.core_of[thread];
        let bits = self.bits_of(&touch);
        let l1 = &mut self.l1[usize::from(core)];
        let set = l1.sets.of(touch.line);
        let way = l1.find(set, touch.line);
        if let Some(way) = way
            && l1.needs_no_one(way, &touch)
        {
            l1.note(set, way, &touch, bits);
            self.threads[thread].served[touch.kind as usize][Served::L1 as usize] += 1;
            self.site_hits[touch.kind as usize][counted] += 1;
            self.sets[0][set].hits += 1;
            observe(&self.hit(core.into(), &touch, false));
        } else {
            let outcome = self.visit(&touch, way);
            self.count(&touch, &outcome);
            observe(&outcome);
        }
    }

    /// A thread or site not seen before, a site too many, or several lines.
    #[cold]
    fn unusual(&mut self, access: &Access, observe: &mut impl FnMut(&Outcome)) {
        self.know_thread(usize::from(access.thread));
        let counted = if access.site < self.counted_sites {
            let needed = access.site as usize + 2;
            if self.sites.len() < needed {
                let sites = needed.next_power_of_two();
                self.sites.resize(sites, Counts::default());
                for hits in &mut self.site_hits {
                    hits.resize(sites, 0);
                }
            }
            access.site + 1
        } else {
            0
        };
        let first = (access.address & self.offset_mask) as u32;
        let mut left = u32::from(access.size.max(1));
        let mut touch = Touch {
            line: access.address >> self.line_shift,
            first,
            last: (first + left - 1).min(self.offset_mask as u32),
            site: access.site,
            counted,
            thread: access.thread,
            kind: access.kind,
        };
        if self.spanning == Spanning::OneReference && first + left - 1 > self.offset_mask as u32 {
            let lines = (u64::from(first + left - 1) >> self.line_shift) + 1;
            let outcome = self.touch_together(touch, lines);
            observe(&outcome);
            return;
        }
        loop {
            let outcome = self.touch(&touch);
            observe(&outcome);
            left -= touch.last - touch.first + 1;
            if left == 0 {
                return;
            }
            // Memory ends where the address does: what reaches further begins again at 0.
            touch.line = (touch.line + 1) & (u64::MAX >> self.line_shift);
            touch.first = 0;
            touch.last = (left - 1).min(self.offset_mask as u32);
        }
    }

    fn know_thread(&mut self, thread: usize) {
        while self.core_of.len() <= thread {
            let core = self.config.core_of_thread(self.core_of.len());
            self.core_of.push(core as u8);
            self.threads.push(Counts::default());
        }
        self.thread_transfers.grow(self.core_of.len());
    }

    /// An access that is one reference although it touches `lines` lines, as cachegrind counts:
    /// the first level is asked for each; if it misses one, the last level is asked for all, in
    /// the order of the addresses. The machine has one core and two levels.
    fn touch_together(&mut self, first: Touch, lines: u64) -> Outcome {
        let mut merged: Option<Outcome> = None;
        let mut missed = false;
        for number in 0..lines {
            let touch = Touch {
                line: (first.line + number) & (u64::MAX >> self.line_shift),
                ..first
            };
            let way = self.way_of(0, touch.line);
            let hits = way.is_some();
            if !hits && !missed {
                missed = true;
                for earlier in 0..number {
                    self.ask_again(first.line + earlier, &mut merged);
                }
            }
            let outcome = self.visit(&touch, way);
            merge(&mut merged, &outcome);
            if hits && missed {
                self.ask_again(touch.line, &mut merged);
            }
        }
        let merged = merged.expect("an access touches a line");
        self.count(&first, &merged);
        merged
    }

    /// Asks the last level for a line that the first level of the only core has. The machine has
    /// one node.
    fn ask_again(&mut self, line: u64, merged: &mut Option<Outcome>) {
        let Some(merged) = merged else { return };
        if self.llc[0].is_some() {
            let id = self.lines.id(line, 0);
            let in_llc = self.lines.lines[id as usize].llcs & 1 == 1;
            let missed = self.ask_llc(0, id, in_llc);
            if !in_llc {
                merged.served = Served::LocalDram;
                self.llc_insert(0, id, false, false);
            }
            merge_answer(
                &mut merged.answers[Level::Llc as usize],
                missed.map_or(Answer::Hit, Answer::Miss),
            );
        }
    }

    /// An access to one line, counted.
    fn touch(&mut self, touch: &Touch) -> Outcome {
        let way = self.way_of(self.core(touch), touch.line);
        let outcome = self.visit(touch, way);
        self.count(touch, &outcome);
        outcome
    }

    fn core(&self, touch: &Touch) -> usize {
        self.core_of[usize::from(touch.thread)].into()
    }

    /// An access to one line, which the first level has in `way` or does not have. Counts
    /// evictions, coherence and transfers, not the access.
    #[inline(never)]
    fn visit(&mut self, touch: &Touch, way: Option<usize>) -> Outcome {
        let core = self.core(touch);
        let way = if way.is_none() && self.l1[core].wide {
            self.way_of(core, touch.line)
        } else {
            way
        };
        let Some(way) = way else {
            return self.miss(core, touch);
        };
        let upgrade = self.prepare(core, way, touch);
        let bits = self.bits_of(touch);
        let l1 = &mut self.l1[core];
        l1.note(l1.sets.of(touch.line), way, touch, bits);
        self.hit(core, touch, upgrade)
    }

    #[inline(always)]
    fn hit(&self, core: usize, touch: &Touch, upgrade: bool) -> Outcome {
        Outcome {
            line: touch.line << self.line_shift,
            core: core as u16,
            served: Served::L1,
            answers: [Answer::Hit, Answer::NotAsked, Answer::NotAsked],
            upgrade,
            supplier: None,
        }
    }

    /// The bytes of an access.
    #[inline]
    pub(super) fn bits_of(&self, touch: &Touch) -> M {
        M::range(touch.first >> self.granule, touch.last >> self.granule)
    }

    /// What a hit needs beyond its bytes; whether that was an upgrade.
    fn prepare(&mut self, core: usize, way: usize, touch: &Touch) -> bool {
        if !self.l1[core].is_young(way) {
            self.make_room_among_young(core);
            let l1 = &mut self.l1[core];
            l1.rejuvenate(way, l1.slots[way]);
        }
        if Info::thread(self.l1[core].held[way].last) != touch.thread {
            self.flush(core, way);
        }
        let held = &self.l1[core].held[way];
        if !touch.kind.writes() || held.ready {
            return false;
        }
        let (id, known) = (held.id, held.state);
        let upgrade = self.gain(core, id, known, touch);
        let held = &mut self.l1[core].held[way];
        held.state = state::MODIFIED;
        held.dirty = true;
        held.ready = true;
        upgrade
    }

    /// Lets the way of the first level that was used longest ago of those used last go to the window,
    /// if there is no room for another.
    fn make_room_among_young(&mut self, core: usize) {
        if let Some(oldest) = self.l1[core].oldest_of_full_young() {
            self.age(core, oldest);
        }
    }

    /// An access that the first level misses.
    fn miss(&mut self, core: usize, touch: &Touch) -> Outcome {
        let group = self.group_of[core] as usize;
        let id = self.lines.id(touch.line, self.node_of[group]);
        let at = self.lines.core_line(id, core);
        std::hint::black_box(self.warm_miss(core, id, at, touch.line));
        let mine = &self.lines.core_lines[at];
        let l1_class = class(
            mine.flags & flag::TOUCHED != 0,
            mine.flags & flag::L1_LOST != 0,
            self.l1[core].window.holds(mine.l1_slot),
        );
        let (l2_answer, in_l2) = self.ask_l2(core, id, at);

        let mut answers = [Answer::Miss(l1_class), l2_answer, Answer::NotAsked];
        let (served, new_state, supplier, upgrade);
        if in_l2 {
            let line = &self.lines.lines[id as usize];
            let known = if line.owner as usize == core {
                line.state
            } else {
                state::SHARED
            };
            served = Served::L2;
            supplier = None;
            upgrade = touch.kind.writes() && self.gain(core, id, known, touch);
            new_state = if touch.kind.writes() {
                state::MODIFIED
            } else {
                known
            };
        } else {
            self.fetches += 1;
            let fetched = self.fetch(core, id, at, touch);
            served = fetched.served;
            supplier = fetched.supplier;
            new_state = fetched.state;
            upgrade = false;
            answers[Level::Llc as usize] = match fetched.llc {
                None => Answer::NotAsked,
                Some(None) => Answer::Hit,
                Some(Some(class)) => Answer::Miss(class),
            };
            if fetched.overlaps {
                for answer in &mut answers[..2] {
                    if *answer == Answer::Miss(Class::FalseSharing) {
                        *answer = Answer::Miss(Class::TrueSharing);
                    }
                }
            } else {
                self.open(at, &answers, touch);
            }
        }
        let set = self.l1[core].sets.of(touch.line);
        let way = self.fill(core, set, id, at, in_l2);
        self.make_room_among_young(core);
        let bits = self.bits_of(touch);
        let mine = &mut self.lines.core_lines[at];
        mine.flags |= flag::TOUCHED | flag::IN_L1;
        mine.flags &= !(flag::L1_LOST | flag::L2_LOST);
        mine.way = way as u32;
        if !in_l2 {
            mine.stored = M::default();
        }
        let info = touch.info();
        let writes = touch.kind.writes();
        let last_store = if in_l2 { mine.last_store } else { NO_INFO };
        let exclusive = matches!(&self.l2[core], Some(l2) if l2.inclusion == Inclusion::Exclusive);
        let only_copy_dirty = exclusive && matches!(new_state, state::MODIFIED | state::OWNED);
        let (_, dirty_in_flight) = std::mem::replace(&mut self.in_flight, (NONE, false));
        let l1 = &mut self.l1[core];
        l1.tags[way] = touch.line;
        l1.rejuvenate(way, mine.l1_slot);
        l1.held[way] = Way {
            read: bits.only_if(touch.kind != Kind::Store),
            written: bits.only_if(writes),
            last: info,
            last_store: if writes { info } else { last_store },
            id,
            state: new_state,
            dirty: writes || dirty_in_flight || only_copy_dirty,
            ready: writes,
        };
        l1.used(way, set);
        Outcome {
            line: touch.line << self.line_shift,
            core: core as u16,
            served,
            answers,
            upgrade,
            supplier,
        }
    }

    /// Loads what a miss will need of the host's memory, of the line that comes and of the one that
    /// is likely to leave; the value means nothing. One after the other, where they are needed, the
    /// host would wait for each by itself.
    #[inline]
    fn warm_miss(&self, core: usize, id: u32, at: usize, line: u64) -> u64 {
        let l1 = &self.l1[core];
        let mut sum = self.lines.core_lines[at].l1_slot ^ self.lines.lines[id as usize].llcs;
        if let Some(victim) = l1.likely_victim(l1.sets.of(line)) {
            sum ^= self.lines.warm_victim(victim, core);
            sum ^= self.follow.warm(self.lines.lines[victim as usize].detail);
        }
        if let Some(l2) = &self.l2[core] {
            sum ^= u64::from(l2.array.next_victim(line));
        }
        sum
    }

    /// Asks the second level: what it says, and whether it has the line.
    #[inline]
    fn ask_l2(&mut self, core: usize, id: u32, at: usize) -> (Answer, bool) {
        let Some(l2) = &mut self.l2[core] else {
            return (Answer::NotAsked, false);
        };
        let mine = &self.lines.core_lines[at];
        let (l2_slot, place, flags) = (mine.l2_slot, mine.place, mine.flags);
        let in_window = l2.window.holds(l2_slot);
        let in_l2 = flags & flag::IN_L2 != 0;
        let exclusive = l2.inclusion == Inclusion::Exclusive;
        if in_l2 {
            let set = l2.array.sets.of(self.lines.number(id));
            if exclusive {
                l2.array.remove(set, id, place);
                self.lines.core_lines[at].flags &= !flag::IN_L2;
            } else {
                l2.array.touch(set, id, place);
            }
        }
        if exclusive {
            l2.window.remove(l2_slot);
            self.lines.core_lines[at].l2_slot = 0;
        } else {
            self.touch_l2_window(core, id, at);
        }
        if in_l2 {
            (Answer::Hit, true)
        } else {
            let had = flags & flag::TOUCHED != 0;
            let lost = flags & flag::L2_LOST != 0;
            (Answer::Miss(class(had, lost, in_window)), false)
        }
    }

    /// Counts an access.
    fn count(&mut self, touch: &Touch, outcome: &Outcome) {
        let core = usize::from(outcome.core);
        let group = self.group_of[core] as usize;
        let thread = &mut self.threads[usize::from(touch.thread)];
        let site = &mut self.sites[touch.counted as usize];
        for counts in [thread, site] {
            counts.served[touch.kind as usize][outcome.served as usize] += 1;
            counts.upgrades += u64::from(outcome.upgrade);
            counts.llc_hits += u64::from(outcome.answers[2] == Answer::Hit);
            for (level, answer) in outcome.answers.iter().enumerate() {
                // What looks false is open until the residency tells.
                if let Answer::Miss(class) = *answer
                    && class != Class::FalseSharing
                {
                    counts.classes[level][class as usize] += 1;
                    counts.overlapping[level] += u64::from(class == Class::TrueSharing);
                }
            }
        }
        let [l1, l2, llc] = outcome.answers;
        let set = self.l1[core].sets.of(touch.line);
        self.sets[0][set].add(l1);
        if l2 != Answer::NotAsked
            && let Some(outer) = &self.l2[core]
        {
            self.sets[1][outer.array.sets.of(touch.line)].add(l2);
        }
        if llc != Answer::NotAsked
            && let Some(outer) = &self.llc[group]
        {
            self.sets[2][outer.array.sets.of(touch.line)].add(llc);
        }
    }

    /// Ends the stream: closes all residencies and hands over the counts.
    pub(super) fn finish(mut self, mut moved: impl FnMut(&Transfer)) -> Report {
        for core in 0..self.l1.len() {
            for way in 0..self.l1[core].tags.len() {
                if self.l1[core].tags[way] != EMPTY {
                    self.flush(core, way);
                }
            }
        }
        for core in 0..self.l1.len() {
            let open: Vec<usize> = self.lines.of_core(core).collect();
            for at in open {
                self.close_core(at, Class::FalseSharing);
            }
        }
        for at in 0..self.lines.group_lines.len() {
            self.close_group(at, Class::FalseSharing);
        }
        self.stays.finish();
        self.count_moves(&mut moved);
        for (kind, hits) in self.site_hits.iter().enumerate() {
            for (site, hits) in self.sites.iter_mut().zip(hits) {
                site.served[kind][Served::L1 as usize] += hits;
            }
        }
        let mut total = Counts::default();
        for thread in &self.threads {
            total += thread;
        }
        let other_sites = self.sites.remove(0);
        trim(&mut self.sites);
        trim(&mut self.threads);
        let (lines, other_lines, other_line_transfers) = self.follow.finish(self.line_shift);
        let [intra_socket, inter_socket] = self.coherence;
        Report {
            total,
            threads: self.threads,
            sites: self.sites,
            other_sites,
            sets: self.sets,
            core_transfers: self.core_transfers,
            thread_transfers: self.thread_transfers,
            intra_socket,
            inter_socket,
            back_invalidations: self.back_invalidations,
            write_backs: self.write_backs,
            lines,
            other_lines,
            other_line_transfers,
        }
    }
}

/// Why a cache misses a line: whether it ever had it, lost it to an invalidation, and would have
/// it if it were fully associative. Sharing is not told true from false yet.
#[inline]
pub(super) fn class(had: bool, lost: bool, in_window: bool) -> Class {
    match (had, lost, in_window) {
        (false, _, _) => Class::Compulsory,
        (true, true, _) => Class::FalseSharing,
        (true, false, true) => Class::Conflict,
        (true, false, false) => Class::Capacity,
    }
}

/// Drops those at the end that counted nothing.
fn trim(counts: &mut Vec<Counts>) {
    let used = counts
        .iter()
        .rposition(|counts| *counts != Counts::default());
    counts.truncate(used.map_or(0, |last| last + 1));
}

/// Adds what happened to one line of a reference to what happened to those before.
fn merge(merged: &mut Option<Outcome>, outcome: &Outcome) {
    let Some(merged) = merged else {
        *merged = Some(*outcome);
        return;
    };
    merged.served = merged.served.max(outcome.served);
    for (into, from) in merged.answers.iter_mut().zip(&outcome.answers) {
        merge_answer(into, *from);
    }
}

/// A miss outweighs a hit, a hit the silence of a level that was not asked.
fn merge_answer(into: &mut Answer, from: Answer) {
    match (*into, from) {
        (Answer::Miss(_), _) | (Answer::Hit, Answer::Hit | Answer::NotAsked) => {}
        (Answer::Hit | Answer::NotAsked, _) => *into = from,
    }
}
