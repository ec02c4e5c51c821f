//! What fills the simulated caches, and which sets are too full: DProf's working set view (Pesterev, 2010,
//! section 4.2), counted.
//!
//! At moments spread over the run the content of each cache is told by who touched each line last and which heap
//! block it is of. How long a run is becomes known at its end, so moments come at equal distances, and when there
//! are too many every second one is forgotten and the distance doubled. A set of a first level can never hold more
//! than its ways; that it is too full is told by its misses by conflict.

use std::collections::HashMap;

use linewise_cache::hierarchy::{CacheShape, Hierarchy, Level, Ways};
use linewise_cache::line_hash;
use linewise_recording::{CacheContent, CacheLevel, Pid, StackId};

use super::machine::Model;
use super::names::Names;
use crate::heap_event::HeapNames;

/// Moments that are kept, at least half of them.
const MOMENTS: usize = 16;
/// Accesses between the first of them.
const FIRST: u64 = 1 << 16;
/// A look at a line is paid by so many accesses.
const PRICE: u64 = 16;
/// Lines of a cache that are looked up; of more a share, chosen by hash.
const LOOKED_UP: usize = 1 << 14;
/// Kinds of lines of a cache that have rows.
const KINDS: usize = 256;
/// Lines of a set that are told apart.
const SET_LINES: usize = 256;
/// Sets with rows, and how many times the mean of all sets their misses are at least (DProf's factor).
const SETS: usize = 16;
const CROWDED: f64 = 2.0;

/// The block that a line is of: process, call chain, name; and what tells it from others.
pub(crate) type OfBlock = ((u32, u32, u16), u64);

/// Lines of one kind: the site of the last access, and process, call chain and name of the blocks.
type Kind = (Option<u32>, Option<(u32, u32, u16)>);

/// Lines and blocks, by kind.
type Counted = HashMap<Kind, (f64, f64)>;

/// Which cache: level, and its core or group.
type Cache = (usize, u32);

/// A line that missed by conflict.
#[derive(Clone, Copy, Debug)]
struct Pressed {
    kind: Kind,
    block: Option<u64>,
    misses: u64,
}

/// See the module.
pub(crate) struct Contents {
    /// The group of each core.
    groups: Vec<u32>,
    line_shift: u32,
    sets: u64,
    ways: u64,
    passed: u64,
    next: u64,
    distance: u64,
    moments: Vec<HashMap<Cache, Counted>>,
    /// Misses by conflict of first levels, by core and set.
    pressed: HashMap<(u16, u64), (u64, HashMap<u64, Pressed>)>,
}

impl Contents {
    /// Nothing seen yet.
    pub(crate) fn new(model: &Model) -> Self {
        let line_bytes = u64::from(model.config.line_bytes);
        let shape = model.config.cores.first().map(|core| core.l1);
        let (sets, ways) = shape.map_or((1, 1), |shape| sets_and_ways(&shape, line_bytes));
        Self {
            groups: model.config.cores.iter().map(|core| core.group).collect(),
            line_shift: model.config.line_bytes.trailing_zeros(),
            sets,
            ways,
            passed: 0,
            next: FIRST,
            distance: FIRST,
            moments: Vec::new(),
            pressed: HashMap::new(),
        }
    }

    /// So many accesses have passed; whether it is time to [look](Contents::look).
    pub(crate) fn pass(&mut self, accesses: usize) -> bool {
        self.passed += accesses as u64;
        self.passed >= self.next
    }

    /// Whether nothing was looked at so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    /// Looks at what the caches hold now. `block` tells which block an address is in.
    pub(crate) fn look(
        &mut self,
        caches: &Hierarchy,
        mut block: impl FnMut(u64) -> Option<OfBlock>,
    ) {
        let mut moment: HashMap<Cache, Counted> = HashMap::new();
        let mut looked_at = 0;
        let mut groups_done: Vec<u32> = Vec::new();
        for core in 0..self.groups.len() {
            let first = caches.contents(core, Level::L1);
            if first.is_empty() {
                continue;
            }
            let group = self.groups[core];
            let mut levels = vec![((0, core as u32), first)];
            levels.push(((1, core as u32), caches.contents(core, Level::L2)));
            if !groups_done.contains(&group) {
                groups_done.push(group);
                levels.push(((2, group), caches.contents(core, Level::Llc)));
            }
            for (cache, lines) in levels {
                looked_at += lines.len() as u64;
                let counted = self.count(&lines, &mut block);
                if !counted.is_empty() {
                    moment.insert(cache, counted);
                }
            }
        }
        self.moments.push(moment);
        if self.moments.len() >= MOMENTS {
            let mut number = 0;
            self.moments.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.distance *= 2;
        }
        self.next = self.passed + self.distance.max(PRICE * looked_at);
    }

    fn count(
        &self,
        lines: &[(u64, Option<u32>)],
        block: &mut impl FnMut(u64) -> Option<OfBlock>,
    ) -> Counted {
        let one_in = lines.len().div_ceil(LOOKED_UP).max(1) as u64;
        let chosen = |line: u64| line_hash(line >> self.line_shift).is_multiple_of(one_in);
        let mut counted = Counted::new();
        let mut seen: HashMap<Kind, HashMap<u64, ()>> = HashMap::new();
        for &(line, site) in lines.iter().filter(|(line, _)| chosen(*line)) {
            let of = block(line);
            let kind = (site, of.map(|it| it.0));
            counted.entry(kind).or_default().0 += one_in as f64;
            if let Some((_, id)) = of {
                seen.entry(kind).or_default().insert(id, ());
            }
        }
        for (kind, blocks) in seen {
            // Of a block with several lines one may be chosen and another not: at least so many.
            counted.entry(kind).or_default().1 = blocks.len() as f64;
        }
        counted
    }

    /// An access of a site missed a line by conflict in the first level of a core.
    pub(crate) fn press(
        &mut self,
        core: u16,
        line: u64,
        site: u32,
        block: impl FnOnce() -> Option<OfBlock>,
    ) {
        let set = (line >> self.line_shift) % self.sets;
        let (misses, lines) = self.pressed.entry((core, set)).or_default();
        *misses += 1;
        if let Some(known) = lines.get_mut(&line) {
            known.misses += 1;
        } else if lines.len() < SET_LINES {
            let of = block();
            let pressed = Pressed {
                kind: (Some(site), of.map(|it| it.0)),
                block: of.map(|it| it.1),
                misses: 1,
            };
            lines.insert(line, pressed);
        }
    }

    /// The rows of the caches that this thread, the busiest, asks.
    pub(crate) fn rows(
        &self,
        busiest: u16,
        code: &Names<'_>,
        names: &HeapNames,
    ) -> Vec<CacheContent> {
        let model = code.trace.model;
        let (core, group) = (model.core(busiest), model.group(busiest));
        let mut rows = Vec::new();
        for (cache, level) in [
            ((0, core), CacheLevel::L1d),
            ((1, core), CacheLevel::L2),
            ((2, group), model.last_level),
        ] {
            let mut sum = Counted::new();
            for counted in self.moments.iter().filter_map(|moment| moment.get(&cache)) {
                for (kind, (lines, blocks)) in counted {
                    let (all, all_blocks) = sum.entry(*kind).or_default();
                    *all += lines / self.moments.len() as f64;
                    *all_blocks += blocks / self.moments.len() as f64;
                }
            }
            let mut kinds: Vec<(Kind, (f64, f64))> = sum.into_iter().collect();
            kinds.sort_by(|a, b| b.1.0.total_cmp(&a.1.0).then(a.0.cmp(&b.0)));
            let tid = code.tid(busiest).filter(|_| cache.0 < 2);
            let (shown, rest) = kinds.split_at(kinds.len().min(KINDS));
            let others = rest.iter().fold((0.0, 0.0), |sum, (_, more)| {
                (sum.0 + more.0, sum.1 + more.1)
            });
            let others = (others.0 > 0.0).then_some(((None, None), others));
            for &(kind, (lines, blocks)) in shown.iter().chain(&others) {
                rows.push(CacheContent {
                    level,
                    tid,
                    lines,
                    blocks,
                    ..row(kind, code, names)
                });
            }
        }
        rows.extend(self.crowded(core as u16, busiest, code, names));
        rows
    }

    fn crowded(
        &self,
        core: u16,
        busiest: u16,
        code: &Names<'_>,
        names: &HeapNames,
    ) -> Vec<CacheContent> {
        let own = self.pressed.iter().filter(|((of, _), _)| *of == core);
        let all: u64 = own.clone().map(|(_, (misses, _))| misses).sum();
        let mean = all as f64 / self.sets as f64;
        let mut sets: Vec<_> = own
            .map(|((_, set), (misses, lines))| (*misses, *set, lines))
            .filter(|(misses, _, lines)| {
                lines.len() as u64 > self.ways && *misses as f64 > CROWDED * mean
            })
            .collect();
        sets.sort_by_key(|(misses, set, _)| (std::cmp::Reverse(*misses), *set));
        let mut rows = Vec::new();
        for (_, set, lines) in sets.into_iter().take(SETS) {
            let mut kinds: HashMap<Kind, Vec<(u64, &Pressed)>> = HashMap::new();
            for (line, pressed) in lines {
                kinds
                    .entry(pressed.kind)
                    .or_default()
                    .push((*line, pressed));
            }
            let mut kinds: Vec<_> = kinds.into_iter().collect();
            kinds.sort_by_key(|(kind, lines)| (std::cmp::Reverse(lines.len()), *kind));
            for (kind, lines) in kinds {
                let mut blocks: Vec<u64> = lines.iter().filter_map(|it| it.1.block).collect();
                blocks.sort_unstable();
                blocks.dedup();
                rows.push(CacheContent {
                    level: CacheLevel::L1d,
                    tid: code.tid(busiest),
                    set: Some(set),
                    lines: lines.len() as f64,
                    blocks: blocks.len() as f64,
                    misses: lines.iter().map(|it| it.1.misses as f64).sum(),
                    stride: stride(lines.iter().map(|it| it.0)),
                    ..row(kind, code, names)
                });
            }
        }
        rows
    }
}

fn sets_and_ways(shape: &CacheShape, line_bytes: u64) -> (u64, u64) {
    let lines = (shape.size_bytes / line_bytes).max(1);
    let ways = match shape.ways {
        Ways::Number(ways) => u64::from(ways).clamp(1, lines),
        Ways::Full => lines,
    };
    ((lines / ways).max(1), ways)
}

fn row((site, block): Kind, code: &Names<'_>, names: &HeapNames) -> CacheContent {
    let ip = site.and_then(|site| code.ip(site));
    let pid = block.map(|it| Pid(it.0));
    CacheContent {
        level: CacheLevel::L1d,
        tid: None,
        set: None,
        pid: pid.or_else(|| code.pid(site?)),
        ip,
        stack: block.map(|it| StackId(it.1)),
        label: block.map_or_else(String::new, |it| names.label(it.2)),
        lines: 0.0,
        blocks: 0.0,
        misses: 0.0,
        stride: 0,
    }
}

/// The greatest number that all distances between these are a multiple of.
fn stride(mut lines: impl Iterator<Item = u64>) -> u64 {
    let Some(first) = lines.next() else {
        return 0;
    };
    lines.fold(0, |divisor, line| {
        let (mut a, mut b) = (divisor, line.abs_diff(first));
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    })
}

#[cfg(test)]
mod tests {
    use linewise_cache::{Access, Kind as Does};
    use linewise_topology::synthetic;

    use super::super::machine::SimulatedMachine;
    use super::*;

    fn model() -> Model {
        let machine = SimulatedMachine::this(synthetic::virtual_machine_of_two());
        Model::new(&machine, 1, true).unwrap()
    }

    #[test]
    fn moments_are_spread_over_a_run_of_any_length_and_their_number_is_bounded() {
        let model = model();
        let mut caches = Hierarchy::new(&model.config).unwrap();
        let mut contents = Contents::new(&model);
        for moment in 0..200u64 {
            caches.run(&[Access {
                address: moment * 64,
                size: 8,
                kind: Does::Load,
                thread: 0,
                site: 7,
            }]);
            if contents.pass(FIRST as usize) {
                contents.look(&caches, |line| Some(((1, 2, 0), line / 128)));
            }
        }
        let count = contents.moments.len();
        assert!((MOMENTS / 2..MOMENTS).contains(&count), "{count}");
        // The last has the lines of the first 12.5 or more, two of which are a block.
        let last = &contents.moments[count - 1][&(2, 0)];
        let [(kind, (lines, blocks))] = last.iter().collect::<Vec<_>>()[..] else {
            panic!("one kind: {last:?}");
        };
        assert_eq!(*kind, (Some(7), Some((1, 2, 0))));
        assert!(*lines > 150.0 && *blocks >= lines / 2.0, "{lines} {blocks}");
    }

    #[test]
    fn the_stride_of_a_set_is_what_all_distances_have_in_common() {
        assert_eq!(stride([0, 4096, 12_288].into_iter()), 4096);
        assert_eq!(stride([64].into_iter()), 0);
    }
}
