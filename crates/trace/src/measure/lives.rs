//! Objects followed from their allocation to their end: all their accesses.
//!
//! Of the objects of a call chain, a size and a name so many are kept as a reservoir holds (Vitter, 1985,
//! algorithm R): of all objects allocated each has the same chance. Their histories are whole, so those of one
//! path are alike by what they are, and nothing has to be put together from pairs of places. Loops are
//! folded, as in the paths of the timer's histories; an instruction that runs through an object (a copy) is a
//! loop, whatever bytes it touches.

use std::collections::{BTreeMap, HashMap};

use linewise_cache::{Access, Kind, line_hash};
use linewise_recording::{Address, Loss, Operation, PathEvent, PathStep, Pid, StackId, Time};

use super::names::Names;
use super::step::Step;
use crate::access::GUEST_BITS;
use crate::heap_event::HeapNames;
use crate::live::Block;
use linewise_cache::Chance;

/// Objects of a site whose histories are kept.
const KEPT: usize = 1024;
/// Sites.
const MOST_SITES: usize = 512;
/// Steps of a history, after folding.
const MOST_STEPS: usize = 1024;
/// Steps of all histories together.
const ALL_STEPS: usize = 1 << 20;
/// Larger objects are not followed.
const LARGEST: u64 = 64 << 10;
/// The longest loop that is folded, in accesses.
const LOOP: usize = 4;
/// Paths of a site, and the share that one has at least.
const MOST_PATHS: usize = 256;
const RARE: f64 = 0.01;
/// Places in the filter of lines.
const FILTER: usize = 1 << 16;

/// Who served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    L1,
    L2,
    Llc,
    Core,
    Memory,
}

impl From<linewise_cache::hierarchy::Served> for Served {
    fn from(by: linewise_cache::hierarchy::Served) -> Self {
        use linewise_cache::hierarchy::Served as By;
        match by {
            By::L1 => Self::L1,
            By::L2 => Self::L2,
            By::Llc => Self::Llc,
            By::Peer | By::OtherGroup | By::OtherSocket => Self::Core,
            By::LocalDram | By::RemoteDram => Self::Memory,
        }
    }
}

/// Those that it is counted for.
const SERVED: usize = 5;

/// Process, call chain, size and number of the name.
type Site = (u32, u32, u64, u16);

/// What tells accesses of a history apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Token {
    site: u32,
    /// Within the history: 0 is the one that allocated.
    thread: u16,
}

/// An access, or several in a loop.
#[derive(Clone, Copy, Debug)]
struct Seen {
    token: Token,
    offset: u32,
    times: u32,
    kind: Kind,
    /// Since the allocation, in units of time.
    after: u32,
    served: [u32; SERVED],
}

/// A history.
#[derive(Clone, Debug, Default)]
struct Life {
    threads: Vec<u16>,
    steps: Vec<Seen>,
    /// Who freed it, within the history, and when.
    freed: Option<(u16, u32)>,
}

/// The objects of a site.
#[derive(Default)]
struct OfSite {
    /// Allocated so far.
    allocated: u64,
    /// Places of the reservoir; `None` while the object of the place is alive.
    kept: Vec<Option<Life>>,
}

/// An object that is being followed.
struct Followed {
    end: u64,
    site: Site,
    /// Its place in the reservoir, and which object of it.
    place: (usize, u64),
    since: u32,
    life: Life,
    /// It was touched more often than is kept.
    cut: bool,
}

/// See the module.
pub(crate) struct Lives {
    sites: HashMap<Site, OfSite>,
    /// Which object each place of a reservoir belongs to, by site and place.
    owners: HashMap<(Site, usize), u64>,
    /// By first byte, as in an access.
    following: BTreeMap<u64, Followed>,
    /// How many lines of objects that are followed have this hash.
    filter: Vec<u16>,
    chance: Chance,
    steps: usize,
    served: Vec<Option<Served>>,
    too_large: u64,
    cut: u64,
    no_room: u64,
    unfinished: u64,
}

impl Default for Lives {
    fn default() -> Self {
        Self {
            sites: HashMap::new(),
            owners: HashMap::new(),
            following: BTreeMap::new(),
            filter: vec![0; FILTER],
            chance: Chance::seeded(0x2545_f491_4f6c_dd1d),
            steps: 0,
            served: Vec::new(),
            too_large: 0,
            cut: 0,
            no_room: 0,
            unfinished: 0,
        }
    }
}

fn place_of(line: u64) -> usize {
    line_hash(line) as usize % FILTER
}

impl Lives {
    /// Whether any object is being followed.
    pub(crate) fn is_following(&self) -> bool {
        !self.following.is_empty()
    }

    fn note_lines(&mut self, address: u64, end: u64, more: bool) {
        for line in address >> 6..=(end - 1) >> 6 {
            let count = &mut self.filter[place_of(line)];
            *count = if more {
                count.saturating_add(1)
            } else {
                count.saturating_sub(1)
            };
        }
    }

    /// A block of a site that is wanted was allocated.
    pub(crate) fn begin(&mut self, space: u16, pid: u32, block: &Block) {
        if block.size > LARGEST {
            self.too_large += 1;
            return;
        }
        let site = (pid, block.stack, block.size, block.label);
        let full = self.sites.len() >= MOST_SITES && !self.sites.contains_key(&site);
        if full || self.steps >= ALL_STEPS {
            self.no_room += 1;
            return;
        }
        let of_site = self.sites.entry(site).or_default();
        of_site.allocated += 1;
        let place = if of_site.kept.len() < KEPT {
            of_site.kept.push(None);
            of_site.kept.len() - 1
        } else {
            let drawn = self.chance.share() * of_site.allocated as f64;
            if drawn >= KEPT as f64 {
                return;
            }
            let place = drawn as usize;
            let gone = of_site.kept[place].take();
            self.steps -= gone.map_or(0, |life| life.steps.len());
            place
        };
        let number = of_site.allocated;
        self.owners.insert((site, place), number);
        let address = u64::from(space) << GUEST_BITS | block.address;
        let end = address + block.size.max(1);
        self.note_lines(address, end, true);
        let followed = Followed {
            end,
            site,
            place: (place, number),
            since: Step::time_of(block.allocated),
            life: Life {
                threads: vec![block.thread],
                ..Life::default()
            },
            cut: false,
        };
        if let Some(old) = self.following.insert(address, followed) {
            self.note_lines(address, old.end, false);
            self.unfinished += 1;
        }
    }

    /// A block ended: when and by whom, if that was seen.
    pub(crate) fn end(&mut self, space: u16, block: &Block, by: Option<(u64, u16)>) {
        let address = u64::from(space) << GUEST_BITS | block.address;
        let Some(mut followed) = self.following.remove(&address) else {
            return;
        };
        self.note_lines(address, followed.end, false);
        let (place, number) = followed.place;
        if self.owners.get(&(followed.site, place)) != Some(&number) {
            return;
        }
        match by {
            _ if followed.cut => self.cut += 1,
            None => self.unfinished += 1,
            Some((time, thread)) => {
                let after = Step::time_of(time).wrapping_sub(followed.since);
                let thread = followed.life.thread(thread);
                followed.life.freed = Some((thread, after));
                self.steps += followed.life.steps.len();
                if let Some(of_site) = self.sites.get_mut(&followed.site) {
                    of_site.kept[place] = Some(followed.life);
                }
            }
        }
    }

    /// Which level served an access of the batch to come: of one to several lines the farthest.
    pub(crate) fn served(&mut self, index: usize, served: Served) {
        if self.served.len() <= index {
            self.served.resize(index + 1, None);
        }
        let known = &mut self.served[index];
        if known.is_none_or(|known| (known as u8) < served as u8) {
            *known = Some(served);
        }
    }

    /// Takes the next accesses.
    pub(crate) fn accesses(&mut self, batch: &[Step]) {
        if self.following.is_empty() {
            self.served.clear();
            return;
        }
        for (index, step) in batch.iter().enumerate() {
            let access = Access::from(*step);
            if self.filter[place_of(access.address >> 6)] == 0 {
                continue;
            }
            let Some((&first, followed)) = self.following.range_mut(..=access.address).next_back()
            else {
                continue;
            };
            if access.address < followed.end {
                let served = self.served.get(index).copied().flatten();
                followed.take(&access, access.address - first, step.time(), served);
            }
        }
        self.served.clear();
    }

    /// The paths of all sites, the most frequent first.
    pub(crate) fn paths(&self, code: &Names<'_>, names: &HeapNames) -> Vec<PathStep> {
        let mut sites: Vec<(&Site, &OfSite)> = self.sites.iter().collect();
        sites.sort_by_key(|(site, _)| **site);
        let mut steps = Vec::new();
        for (&(pid, stack, size, label), of_site) in sites {
            let chain = names.stacks.iter().find(|it| it.id == StackId(stack));
            let caller = chain.and_then(|it| it.frames.first().copied());
            let mut paths: BTreeMap<(Vec<Token>, u16), Vec<&Life>> = BTreeMap::new();
            let lives = of_site.kept.iter().flatten();
            for (life, (by, _)) in lives.filter_map(|life| Some((life, life.freed?))) {
                let tokens = life.steps.iter().map(|seen| seen.token).collect();
                paths.entry((tokens, by)).or_default().push(life);
            }
            let all: usize = paths.values().map(Vec::len).sum();
            let mut paths: Vec<Vec<&Life>> = paths.into_values().collect();
            paths.sort_by_key(|lives| std::cmp::Reverse(lives.len()));
            let often = |lives: &Vec<&Life>| lives.len() as f64 >= RARE * all as f64;
            for (lives, number) in paths
                .iter()
                .take(MOST_PATHS)
                .filter(|it| often(it))
                .zip(1..)
            {
                let row = PathStep {
                    // By its label; without one its accesses say it when they are resolved.
                    type_name: names.label(label),
                    size,
                    pid: Pid(pid),
                    stack: StackId(stack),
                    path: number,
                    frequency: lives.len() as f64 / all as f64,
                    histories: lives.len() as u64,
                    ..nothing()
                };
                steps.extend(path(&row, lives, caller.unwrap_or_default(), code));
            }
        }
        steps
    }

    /// What was not followed.
    pub(crate) fn losses(&self, time: Time) -> Vec<Loss> {
        let unfinished = self.unfinished + self.following.len() as u64;
        [
            (
                "objects-too-large",
                self.too_large,
                "objects of more than 64 KiB, which are not followed",
            ),
            (
                "objects-too-busy",
                self.cut,
                "objects with more than 1,024 steps between allocation and end: they are in no path",
            ),
            (
                "objects-not-followed",
                self.no_room,
                "objects that were allocated when the memory for histories was used up, or at a place \
                 beyond the first 512",
            ),
            (
                "objects-unfinished",
                unfinished,
                "objects that had no end when the run ended: they are in no path",
            ),
        ]
        .into_iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(what, count, detail)| Loss::new(time, what, count, detail))
        .collect()
    }
}

impl Life {
    /// The number of a thread within the history.
    fn thread(&mut self, thread: u16) -> u16 {
        let known = self.threads.iter().position(|&known| known == thread);
        known.unwrap_or_else(|| {
            self.threads.push(thread);
            self.threads.len() - 1
        }) as u16
    }

    /// Folds the repetition at the end, if there is one.
    fn fold(&mut self) {
        let steps = &mut self.steps;
        for period in 1..=LOOP.min(steps.len() / 2) {
            let (first, second) = (steps.len() - 2 * period, steps.len() - period);
            let tokens = |range: std::ops::Range<usize>| steps[range].iter().map(|it| it.token);
            if tokens(first..second).eq(tokens(second..steps.len())) {
                for place in 0..period {
                    let again = steps[second + place];
                    let folded = &mut steps[first + place];
                    folded.times = folded.times.saturating_add(again.times);
                    for (sum, more) in folded.served.iter_mut().zip(again.served) {
                        *sum = sum.saturating_add(more);
                    }
                }
                steps.truncate(second);
                return;
            }
        }
    }
}

impl Followed {
    fn take(&mut self, access: &Access, offset: u64, time: u32, by: Option<Served>) {
        if self.life.steps.len() >= MOST_STEPS {
            self.cut = true;
            return;
        }
        let thread = self.life.thread(access.thread);
        let mut served = [0; SERVED];
        if let Some(by) = by {
            served[by as usize] = 1;
        }
        self.life.steps.push(Seen {
            token: Token {
                site: access.site,
                thread,
            },
            offset: offset as u32 & !7,
            times: 1,
            kind: access.kind,
            after: time.wrapping_sub(self.since),
            served,
        });
        self.life.fold();
    }
}

fn nothing() -> PathStep {
    PathStep {
        type_name: String::new(),
        size: 0,
        pid: Pid(0),
        stack: StackId(0),
        path: 0,
        frequency: 0.0,
        histories: 0,
        step: 0,
        event: PathEvent::Accessed,
        ip: Address(0),
        thread_change: false,
        thread: 0,
        cpu_change: 0.0,
        offset: 0,
        operation: None,
        times: 1.0,
        time_ns: 0.0,
        sampled_ns: 0.0,
        from_l1: None,
        from_l2: None,
        from_llc: None,
        from_core: None,
        from_memory: None,
    }
}

/// The steps of a path that these objects took.
fn path(row: &PathStep, lives: &[&Life], caller: Address, code: &Names<'_>) -> Vec<PathStep> {
    let Some(first) = lives.first() else {
        return Vec::new();
    };
    let mut rows = vec![PathStep {
        event: PathEvent::Allocated,
        ip: caller,
        ..row.clone()
    }];
    for (number, seen) in first.steps.iter().enumerate() {
        let all = || lives.iter().map(|life| &life.steps[number]);
        let times: f64 = all().map(|seen| f64::from(seen.times)).sum();
        let mut served = [0.0; SERVED];
        for seen in all() {
            for (sum, more) in served.iter_mut().zip(seen.served) {
                *sum += f64::from(more);
            }
        }
        let known: f64 = served.iter().sum();
        let share = |by: Served| (known > 0.0).then(|| served[by as usize] / known);
        rows.push(PathStep {
            ip: code.ip(seen.token.site).unwrap_or_default(),
            thread: seen.token.thread.into(),
            offset: seen.offset.into(),
            operation: Some(match seen.kind {
                Kind::Load => Operation::Load,
                Kind::Store => Operation::Store,
                Kind::Update => Operation::Update,
            }),
            times: times / lives.len() as f64,
            time_ns: median(all().map(|seen| seen.after).collect()),
            from_l1: share(Served::L1),
            from_l2: share(Served::L2),
            from_llc: share(Served::Llc),
            from_core: share(Served::Core),
            from_memory: share(Served::Memory),
            ..row.clone()
        });
    }
    let ends = lives.iter().filter_map(|life| life.freed);
    rows.push(PathStep {
        event: PathEvent::Freed,
        thread: first.freed.map_or(0, |(thread, _)| thread).into(),
        time_ns: median(ends.map(|(_, after)| after).collect()),
        ..row.clone()
    });
    let mut before = 0;
    for (row, number) in rows.iter_mut().zip(0..) {
        row.step = number;
        row.thread_change = row.thread != before;
        before = row.thread;
    }
    rows
}

/// The median of times, in ns.
fn median(mut times: Vec<u32>) -> f64 {
    times.sort_unstable();
    let middle = times.get(times.len() / 2).copied().unwrap_or(0);
    f64::from(middle) * Step::TIME_UNIT_NS as f64
}
