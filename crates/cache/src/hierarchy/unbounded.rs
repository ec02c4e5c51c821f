//! The sharing of lines alone: each core has a private cache without bounds.
//!
//! ```text
//! access ─► recent lines of the core ── has it, with the right to do that ─► a hit
//!                     │ else
//!                     ▼
//!           line: who had it, who has it, who may store ─► transfer, upgrade, first touch
//! ```
//!
//! Nothing is ever evicted, so a line that a core does not have was either never there or taken
//! away by another's store: all misses are compulsory ones or sharing. Between cores this is the
//! protocol of the whole [`Hierarchy`](super::Hierarchy), MESI, and its transfers are an upper bound
//! of that one's: a line that a finite cache would have lost meanwhile comes from its owner here.
//! Most accesses are to a line that the core touched lately, and cost one look.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::mem::take;

use crate::hash::KeyHasher;
use crate::{Access, Kind};

use super::config::{Config, ConfigError};
use super::counts::{
    Class, Coherence, Counts, Level, Matrix, Report, Served, Transfers, WriteBacks,
};
use super::lines::{Info, NO_INFO, NONE as NO_STAYS};
use super::mask::Mask as _;
use super::outcome::{Party, Transfer};
use super::stays::{Fetch, Stays};

/// Recent lines of a core: a power of two. Their records stay in the host's second level.
const RECENT: usize = 4096;
/// Recent pages of a core.
const RECENT_PAGES: usize = 256;
/// Lines of a page of the table.
const PAGE_BITS: u32 = 6;
const PAGE: usize = 1 << PAGE_BITS;
/// No line, no page, no core.
const NONE: u64 = u64::MAX;
const NO_CORE: u16 = u16::MAX;

/// A line that a core has, and touched lately.
#[derive(Clone, Copy, Debug)]
struct Recent {
    line: u64,
    /// Which block holds what is noted of it when it is not recent any more.
    copy: u32,
    /// Nobody else has it.
    may_store: bool,
    did: Copied,
}

/// The accesses of a core to a line since it has it.
#[derive(Clone, Copy, Debug)]
struct Copied {
    /// The last one, and the last store ([`Info`]).
    last: u64,
    last_store: u64,
    /// The bytes that it touched, and that it stored to, since it told of that last.
    touched: u64,
    stored: u64,
}

const NOT_COPIED: Copied = Copied {
    last: NO_INFO,
    last_store: NO_INFO,
    touched: 0,
    stored: 0,
};

/// What is kept of a page that two cores touch, bytes.
const A_PAGE: usize = size_of::<[Line; PAGE]>() + 2 * size_of::<[Copied; PAGE]>();

/// A line, as the cores see it.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Cores that had it at any time, and that have it.
    had: u128,
    has: u128,
    /// Its stays, from the time on at which a second core touches it.
    stays: u32,
    /// Who may store.
    owner: u16,
}

const UNTOUCHED: Line = Line {
    had: 0,
    has: 0,
    stays: NO_STAYS,
    owner: NO_CORE,
};

const FORGOTTEN: Recent = Recent {
    line: NONE,
    copy: 0,
    may_store: false,
    did: NOT_COPIED,
};

/// Where a page of the table is, and the block of a core's copies.
#[derive(Clone, Copy, Debug)]
struct Page {
    number: u64,
    page: u32,
    block: u32,
}

/// One core.
#[derive(Clone, Debug)]
struct Core {
    recent: Box<[Recent; RECENT]>,
    pages: Box<[Page; RECENT_PAGES]>,
}

impl Core {
    fn new() -> Self {
        let page = Page {
            number: NONE,
            page: 0,
            block: 0,
        };
        Self {
            recent: Box::new([FORGOTTEN; RECENT]),
            pages: Box::new([page; RECENT_PAGES]),
        }
    }

    /// A line, if it is among the recent ones.
    #[inline]
    fn recent(&mut self, line: u64) -> Option<&mut Recent> {
        let recent = &mut self.recent[place_of(line)];
        (recent.line == line).then_some(recent)
    }
}

/// Where a line is in the table.
#[derive(Clone, Copy)]
struct LineIndex {
    page: usize,
    at: usize,
}

/// One access to one line.
#[derive(Clone, Copy)]
struct Touch {
    line: u64,
    info: u64,
    bytes: u64,
    kind: Kind,
    thread: u16,
    site: u32,
}

/// Private caches without bounds; see the module.
#[derive(Clone, Debug)]
pub struct Unbounded {
    line_shift: u32,
    /// A bit of a set of bytes is so many, as a power of two: more than one where lines have more than 64.
    granule: u32,
    config: Config,
    /// The core of each thread that was met.
    core_of: Vec<u32>,
    group_of: Vec<u32>,
    socket_of: Vec<u32>,
    cores: Vec<Core>,
    pages: HashMap<u64, u32, BuildHasherDefault<KeyHasher>>,
    lines: Vec<[Line; PAGE]>,
    /// How many pages have records at most.
    most_pages: usize,
    forgotten_pages: u64,
    /// By page and core: where the core's copies of the page are, plus one.
    blocks: Vec<u32>,
    copies: Vec<[Copied; PAGE]>,
    threads: Vec<Counts>,
    sites: Vec<Counts>,
    /// Hits by thread and by site, of each kind.
    thread_hits: Vec<[u64; 4]>,
    site_hits: Vec<[u64; 4]>,
    core_transfers: Matrix,
    thread_transfers: Matrix,
    stays: Stays<u64>,
    /// Inside and between sockets.
    coherence: [Coherence; 2],
}

impl Unbounded {
    /// Empty caches for the cores of a machine; their sizes do not matter.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when the machine cannot be simulated.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let mut core_transfers = Matrix::default();
        core_transfers.grow(config.cores.len());
        Ok(Self {
            line_shift: config.line_bytes.trailing_zeros(),
            granule: (config.line_bytes / u64::BITS).max(1).trailing_zeros(),
            config: config.clone(),
            group_of: config.cores.iter().map(|core| core.group).collect(),
            socket_of: config.groups.iter().map(|group| group.socket).collect(),
            cores: vec![Core::new(); config.cores.len()],
            core_of: Vec::new(),
            pages: HashMap::default(),
            lines: Vec::new(),
            most_pages: usize::MAX,
            forgotten_pages: 0,
            blocks: Vec::new(),
            copies: Vec::new(),
            threads: Vec::new(),
            sites: Vec::new(),
            thread_hits: Vec::new(),
            site_hits: Vec::new(),
            core_transfers,
            thread_transfers: Matrix::default(),
            stays: Stays::new(),
            coherence: [Coherence::default(); 2],
        })
    }

    /// Takes accesses in their order, in any form that can be read as one. May be called again and
    /// again: the batches are one stream. `fetched` is told of each line that comes from another
    /// core, with the index of the access, the address of the line and who had it; `moved` of each
    /// transfer when its kind is known, of the last ones by [`Self::finish_with`].
    pub fn run_with<A: Copy + Into<Access>>(
        &mut self,
        accesses: &[A],
        mut fetched: impl FnMut(usize, u64, &Party),
        mut moved: impl FnMut(&Transfer),
    ) {
        let shift = self.line_shift;
        let granule = self.granule;
        let offset = |address: u64| (address & ((1 << shift) - 1)) as u32;
        let bytes = |first: u32, last: u32| u64::range(first >> granule, last >> granule);
        for (index, &access) in accesses.iter().enumerate() {
            let access: Access = access.into();
            let (thread, site) = (usize::from(access.thread), access.site as usize);
            if thread >= self.core_of.len() || site >= self.site_hits.len() {
                self.meet(thread, site);
            }
            let core = self.core_of[thread] as usize;
            let (first, size) = (access.address, u64::from(access.size.max(1)));
            let line = first >> shift;
            let last = offset(first) + size as u32 - 1;
            let writes = access.kind.writes();
            let recent = &mut self.cores[core].recent[place_of(line)];
            if recent.line == line && last >> shift == 0 && (recent.may_store || !writes) {
                let info = Info::pack(access.site, access.thread, offset(first), last);
                let did = &mut recent.did;
                did.last = info;
                // Without a branch, which nobody could foresee.
                did.last_store = if writes { info } else { did.last_store };
                let bytes = bytes(offset(first), last);
                did.touched |= bytes;
                did.stored |= bytes.only_if(writes);
                self.thread_hits[thread][access.kind as usize] += 1;
                self.site_hits[site][access.kind as usize] += 1;
                continue;
            }
            let end = first.saturating_add(size - 1);
            for line in line..=end >> shift {
                let first = if line == first >> shift {
                    offset(first)
                } else {
                    0
                };
                let last = offset(if line == end >> shift { end } else { u64::MAX });
                let touch = Touch {
                    line,
                    info: Info::pack(access.site, access.thread, first, last),
                    bytes: bytes(first, last),
                    kind: access.kind,
                    thread: access.thread,
                    site: access.site,
                };
                if let Some(supplier) = self.ask(core, touch) {
                    fetched(index, line << shift, &supplier);
                }
            }
            self.count_moves(&mut moved);
        }
    }

    /// Notes what a thread did to the line that begins at an address before its last access there: the bytes that it touched, and
    /// those of them that it stored to, a bit for each or as many as a bit stands for. It is counted nowhere.
    pub fn did(&mut self, thread: u16, address: u64, touched: u64, stored: u64) {
        let core = self.core_of.get(usize::from(thread));
        let line = address >> self.line_shift;
        if let Some(recent) = core.and_then(|&core| self.cores[core as usize].recent(line)) {
            recent.did.touched |= touched;
            recent.did.stored |= stored;
        }
    }

    #[cold]
    fn meet(&mut self, thread: usize, site: usize) {
        for thread in self.core_of.len()..=thread {
            self.core_of.push(self.config.core_of_thread(thread));
        }
        let threads = self.core_of.len();
        self.threads.resize(threads, Counts::default());
        self.thread_hits.resize(threads, [0; 4]);
        self.thread_transfers.grow(threads);
        let sites = self.sites.len().max(site + 1);
        self.sites.resize(sites, Counts::default());
        self.site_hits.resize(sites, [0; 4]);
    }

    /// An access that is not a hit among the recent lines; who has the line, if it comes from another core.
    #[inline(never)]
    fn ask(&mut self, core: usize, touch: Touch) -> Option<Party> {
        let (page, copy) = self.page(core, touch.line >> PAGE_BITS);
        let place = LineIndex {
            page,
            at: touch.line as usize % PAGE,
        };
        let line = self.lines[page][place.at];
        let me = 1u128 << core;
        let (has, writes) = (line.has & me != 0, touch.kind.writes());
        let others = line.has & !me;
        let mut supplier = None;
        let mut served = Served::L1;
        if !has && line.owner != NO_CORE {
            let owner = usize::from(line.owner);
            supplier = Some(self.supplier(place, owner, &touch));
            served = self.distance(owner, core);
            let between = usize::from(served == Served::OtherSocket);
            self.coherence[between].supplied += 1;
        } else if !has && others != 0 {
            let nearest = cores(others).map(|other| self.distance(other, core)).min();
            // Clean lines come from the last level.
            served = nearest
                .filter(|&by| by != Served::Peer)
                .unwrap_or(Served::Llc);
        } else if !has {
            served = Served::LocalDram;
        }
        let is_first = line.had & me == 0;
        if !has && others != 0 {
            self.open_stay(place, core, &touch, supplier, !is_first);
        }
        let upgrade = has && writes && others != 0;
        let owner = if writes {
            self.take_from(others, place, core, &touch, upgrade);
            core as u16
        } else if has {
            line.owner
        } else if others == 0 {
            core as u16
        } else {
            if line.owner != NO_CORE {
                self.share(usize::from(line.owner), place, touch.line);
            }
            NO_CORE
        };
        let mut mine = if has {
            self.recall(core, touch.line, copy, place.at)
        } else {
            NOT_COPIED
        };
        mine.last = touch.info;
        mine.touched |= touch.bytes;
        if writes {
            mine.last_store = touch.info;
            mine.stored |= touch.bytes;
        }
        let line = &mut self.lines[page][place.at];
        line.had |= me;
        line.has = if writes { me } else { line.has | me };
        line.owner = owner;
        self.remember(
            core,
            Recent {
                line: touch.line,
                copy,
                may_store: owner == core as u16,
                did: mine,
            },
        );
        self.count(&touch, served, is_first, upgrade);
        supplier
    }

    fn count(&mut self, touch: &Touch, served: Served, is_first: bool, upgrade: bool) {
        let thread = &mut self.threads[usize::from(touch.thread)];
        let site = &mut self.sites[touch.site as usize];
        for counts in [thread, site] {
            counts.served[touch.kind as usize][served as usize] += 1;
            counts.upgrades += u64::from(upgrade);
            counts.classes[Level::L1 as usize][Class::Compulsory as usize] += u64::from(is_first);
        }
    }

    /// Counts the transfers and sharing misses that were decided, and tells of the transfers.
    #[inline]
    fn count_moves(&mut self, moved: &mut impl FnMut(&Transfer)) {
        while let Some(verdict) = self.stays.next_verdict() {
            if let Some((thread, site)) = verdict.miss() {
                let class = match verdict.is_true {
                    true => Class::TrueSharing,
                    false => Class::FalseSharing,
                };
                self.threads[usize::from(thread)].classes[Level::L1 as usize][class as usize] += 1;
                self.sites[site as usize].classes[Level::L1 as usize][class as usize] += 1;
            }
            if let Some(transfer) = verdict.transfer(self.line_shift) {
                let (from, to, is_true) = (&transfer.from, &transfer.to, transfer.is_true);
                self.core_transfers.add(from.core, to.core, is_true);
                self.thread_transfers.add(from.thread, to.thread, is_true);
                moved(&transfer);
            }
        }
    }

    /// A core gets a line that others have, from one of them or from the last level.
    fn open_stay(
        &mut self,
        place: LineIndex,
        core: usize,
        touch: &Touch,
        from: Option<Party>,
        is_sharing_miss: bool,
    ) {
        let line = &mut self.lines[place.page][place.at];
        if line.stays == NO_STAYS {
            // It begins with those that have it, who tell of their stores when they lose it.
            line.stays = self.stays.begin(touch.line, core, 0);
        }
        let fetch = Fetch {
            from,
            to: touch.info,
            is_sharing_miss,
        };
        self.stays.open(line.stays, core, &fetch);
    }

    /// Who hands over a line that it owns.
    fn supplier(&mut self, place: LineIndex, owner: usize, touch: &Touch) -> Party {
        let copy = self.copy(place.page, owner);
        let theirs = self.recall(owner, touch.line, copy, place.at);
        let info = if touch.kind.writes() || theirs.last_store == NO_INFO {
            theirs.last
        } else {
            theirs.last_store
        };
        let common = theirs.stored & touch.bytes;
        Info::supplier(owner, info, touch.info, common, self.granule)
    }

    /// Takes a line from others, since `core` stores to it.
    fn take_from(
        &mut self,
        others: u128,
        place: LineIndex,
        core: usize,
        touch: &Touch,
        upgrade: bool,
    ) {
        let mut farthest = 0;
        for other in cores(others) {
            self.tell(other, place, touch.line);
            self.stays
                .end(self.lines[place.page][place.at].stays, other);
            if let Some(recent) = self.cores[other].recent(touch.line) {
                recent.line = NONE;
            }
            let between = usize::from(self.distance(other, core) == Served::OtherSocket);
            self.coherence[between].invalidations += 1;
            farthest = farthest.max(between);
        }
        self.coherence[farthest].upgrades += u64::from(upgrade);
    }

    /// The owner keeps a line, and may not store any more.
    fn share(&mut self, owner: usize, place: LineIndex, number: u64) {
        self.tell(owner, place, number);
        if let Some(recent) = self.cores[owner].recent(number) {
            recent.may_store = false;
        }
    }

    /// Tells of what a core did that loses a line, or the right to store to it.
    fn tell(&mut self, core: usize, place: LineIndex, number: u64) {
        let copy = self.copy(place.page, core);
        let did = match self.cores[core].recent(number) {
            Some(recent) => &mut recent.did,
            None => &mut self.copies[copy as usize][place.at],
        };
        let (touched, stored) = (take(&mut did.touched), take(&mut did.stored));
        let line = &self.lines[place.page][place.at];
        self.stays.did(line.stays, core, touched, stored);
    }

    /// What a core did to a line since it has it.
    fn recall(&mut self, core: usize, number: u64, copy: u32, at: usize) -> Copied {
        match self.cores[core].recent(number) {
            Some(recent) => recent.did,
            None => self.copies[copy as usize][at],
        }
    }

    /// Puts a line among the recent ones of a core; the one that was there is noted in the table.
    fn remember(&mut self, core: usize, line: Recent) {
        let recent = &mut self.cores[core].recent[place_of(line.line)];
        if recent.line != NONE && recent.line != line.line {
            self.copies[recent.copy as usize][recent.line as usize % PAGE] = recent.did;
        }
        *recent = line;
    }

    fn distance(&self, from: usize, to: usize) -> Served {
        let (from, to) = (self.group_of[from], self.group_of[to]);
        if from == to {
            Served::Peer
        } else if self.socket_of[from as usize] == self.socket_of[to as usize] {
            Served::OtherGroup
        } else {
            Served::OtherSocket
        }
    }

    /// Where a page of the table is, and the block of the core's copies.
    fn page(&mut self, core: usize, number: u64) -> (usize, u32) {
        let recent = number as usize % RECENT_PAGES;
        let known = self.cores[core].pages[recent];
        if known.number == number {
            return (known.page as usize, known.block);
        }
        let room = self.stays.bytes() / A_PAGE;
        if self.lines.len() + room >= self.most_pages && !self.pages.contains_key(&number) {
            self.forget();
        }
        let new = self.lines.len();
        let page = *self.pages.entry(number).or_insert(new as u32);
        if page as usize == new {
            self.lines.push([UNTOUCHED; PAGE]);
            self.blocks.resize((new + 1) * self.cores.len(), 0);
        }
        let block = self.copy(page as usize, core);
        self.cores[core].pages[recent] = Page {
            number,
            page,
            block,
        };
        (page as usize, block)
    }

    /// Keeps records of so many bytes at most. Where the stream touches more, all are given up and begun anew: the first
    /// touch of a line by each core is then taken for its first of all.
    pub fn set_limit(&mut self, bytes: u64) {
        self.most_pages = usize::try_from(bytes / A_PAGE as u64).map_or(usize::MAX, |it| it.max(1));
    }

    /// Lines whose records were given up for want of room.
    #[must_use]
    pub fn forgotten_lines(&self) -> u64 {
        self.forgotten_pages * PAGE as u64
    }

    #[cold]
    fn forget(&mut self) {
        self.forgotten_pages += self.lines.len() as u64;
        self.pages.clear();
        self.lines.clear();
        self.blocks.clear();
        self.copies.clear();
        self.stays.finish();
        self.stays.clear();
        let count = self.cores.len();
        self.cores = vec![Core::new(); count];
    }

    /// Tells of what all cores did, and ends their stays.
    fn end_stays(&mut self) {
        let mut pages: Vec<(u64, u32)> = self.pages.iter().map(|(&of, &page)| (of, page)).collect();
        pages.sort_unstable();
        for (number, page) in pages {
            let page = page as usize;
            for at in 0..PAGE {
                let line = self.lines[page][at];
                if line.stays != NO_STAYS {
                    for core in cores(line.has) {
                        self.tell(
                            core,
                            LineIndex { page, at },
                            number << PAGE_BITS | at as u64,
                        );
                    }
                }
            }
        }
        self.stays.finish();
    }

    /// Where a core's copies of the lines of a page are.
    fn copy(&mut self, page: usize, core: usize) -> u32 {
        let block = &mut self.blocks[page * self.cores.len() + core];
        if *block == 0 {
            self.copies.push([NOT_COPIED; PAGE]);
            *block = self.copies.len() as u32;
        }
        *block - 1
    }

    /// Adds hits to a thread's counts until its loads, stores and updates are as many as these. So many
    /// of its stores (or, where these do not suffice, loads) were first touches of lines that the stream
    /// did not show. How many accesses were added.
    pub fn complete_thread(&mut self, thread: u16, kinds: [u64; 3], first_touches: u64) -> u64 {
        let thread = usize::from(thread);
        if thread >= self.core_of.len() {
            self.meet(thread, 0);
        }
        let mut missing = [0; 3];
        for ((kind, all), missing) in kinds.into_iter().enumerate().zip(&mut missing) {
            let known = self.thread_hits[thread][kind]
                + self.threads[thread].served[kind].iter().sum::<u64>();
            *missing = all.saturating_sub(known);
        }
        let added = missing.iter().sum();
        let mut left = first_touches;
        for kind in [Kind::Store, Kind::Load, Kind::Update] {
            let missing = &mut missing[kind as usize];
            let first = left.min(*missing);
            left -= first;
            *missing -= first;
            let counts = &mut self.threads[thread];
            counts.served[kind as usize][Served::LocalDram as usize] += first;
            counts.classes[Level::L1 as usize][Class::Compulsory as usize] += first;
            self.thread_hits[thread][kind as usize] += *missing;
        }
        added
    }

    /// Adds hits of an instruction: loads, stores and updates.
    pub fn add_site_hits(&mut self, site: u32, kinds: [u64; 3]) {
        let site = site as usize;
        if site >= self.site_hits.len() {
            self.meet(0, site);
        }
        for (hits, more) in self.site_hits[site].iter_mut().zip(kinds) {
            *hits += more;
        }
    }

    /// Ends the stream and hands over the counts. Those of the first level are those of the caches
    /// without bounds; there are no others.
    #[must_use]
    pub fn finish(self) -> Report {
        self.finish_with(|_| {})
    }

    /// The same, and tells of the transfers whose stays the end of the stream cuts.
    #[must_use]
    pub fn finish_with(mut self, mut moved: impl FnMut(&Transfer)) -> Report {
        self.end_stays();
        self.count_moves(&mut moved);
        let counts = self.sites.iter_mut().chain(&mut self.threads);
        for (counts, hits) in counts.zip(self.site_hits.iter().chain(&self.thread_hits)) {
            for (served, hits) in counts.served.iter_mut().zip(hits) {
                served[Served::L1 as usize] += hits;
            }
        }
        let mut total = Counts::default();
        for thread in &self.threads {
            total += thread;
        }
        let [intra_socket, inter_socket] = self.coherence;
        Report {
            total,
            threads: self.threads,
            sites: self.sites,
            other_sites: Counts::default(),
            sets: [const { Vec::new() }; 3],
            core_transfers: self.core_transfers,
            thread_transfers: self.thread_transfers,
            intra_socket,
            inter_socket,
            back_invalidations: 0,
            write_backs: WriteBacks::default(),
            lines: Vec::new(),
            other_lines: 0,
            other_line_transfers: Transfers::default(),
        }
    }
}

/// Where the recent lines have this one.
#[inline(always)]
fn place_of(line: u64) -> usize {
    (line ^ line >> RECENT.ilog2()) as usize % RECENT
}

/// The cores of a set.
fn cores(set: u128) -> impl Iterator<Item = usize> {
    let mut left = set;
    std::iter::from_fn(move || {
        let core = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(core)
    })
}

#[cfg(test)]
#[path = "unbounded_tests.rs"]
mod tests;
