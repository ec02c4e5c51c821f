//! View `workingset`: what fills the caches, and which associativity sets are too full?
//!
//! DProf's working set view (Pesterev, 2010, section 4.2), without its simulation, which needs traces of all
//! accesses: the lines in use are those that samples saw, and by Chao's bound (1984) those that they did not.
//! A level that is too small for all is taken to hold each type in proportion to its lines. Sets are told by
//! virtual addresses, so of the first level only. An exact run with simulated caches counts what they hold, at
//! moments spread over the run, and which sets miss by conflict.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{
    Address, BlockUse, CacheContent, CacheLevel, Frame, HeapBlock, Pid, RunInfo, Sample,
    SampleClass, SimulatedCache, Stack, StackId, Tid, TypedAccess,
};
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use super::lines_seen::{LinesSeen, Shape};
use crate::resolve::{HeapBlocks, SourceFrames, allocation_site};

/// Types of a level that a result names, at most.
const MOST_TYPES: usize = 50;
/// Crowded sets of a level, at most: the fullest.
const MOST_SETS: usize = 16;
/// Allocation sites of a type, at most: those with the most samples.
const MOST_SITES: usize = 4;

/// The tables that the view needs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// `run.json`.
    pub info: &'a RunInfo,
    /// Table `typed_accesses`.
    pub typed: &'a [TypedAccess],
    /// Table `samples`.
    pub samples: &'a [Sample],
    /// Table `heap_blocks`.
    pub blocks: &'a [HeapBlock],
    /// Table `block_uses`.
    pub uses: &'a [BlockUse],
    /// Table `cache_contents`.
    pub contents: &'a [CacheContent],
    /// Table `stacks`.
    pub stacks: &'a [Stack],
    /// Table `frames`.
    pub frames: &'a [Frame],
}

/// What fills a level of the machine's caches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelSet {
    /// The level.
    pub level: CacheLevel,
    /// Bytes of one such cache.
    pub size_bytes: u64,
    /// The thread with the most time at memory, if each core has a cache of its own; `null` for all threads together.
    pub tid: Option<u32>,
    /// Bytes of the lines in use, estimated: at least so many.
    pub in_use_bytes: f64,
    /// The types with the most lines first; at most 50.
    pub types: Vec<TypeSet>,
    /// Of the first level, the associativity sets with more lines than ways and twice the mean of all sets, not by
    /// chance, the fullest first; at most 16.
    pub crowded: Vec<CrowdedSet>,
}

/// What of a type is in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeSet {
    /// The type; empty for accesses whose type is not known.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Of a type without fields the member or static variable that leads to these, as in `types[].reached`; else the field is not there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub through: String,
    /// Lines of it that samples saw; of an exact run its lines in the simulated cache, the mean of moments spread over
    /// the run.
    pub lines_seen: u64,
    /// Bytes of its lines in use, estimated: at least so many.
    pub bytes: f64,
    /// The part of the level that it fills, 0 to 1.
    pub share: f64,
    /// Heap blocks of it that samples saw; 0 if the heap was not recorded.
    pub blocks_seen: u64,
    /// Who allocates them, most samples first: `function (file:line)`; at most 4.
    pub allocated_at: Vec<String>,
}

/// An associativity set that is too full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrowdedSet {
    /// Its number.
    pub set: u64,
    /// Lines in it that samples saw; of an exact run those that missed by conflict.
    pub lines: u64,
    /// The types of these lines, most lines first.
    pub types: Vec<CrowdedType>,
}

/// A type in a set that is too full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrowdedType {
    /// The type; empty for accesses whose type is not known.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Of a type without fields the member or static variable that leads to these, as in `types[].reached`; else the field is not there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub through: String,
    /// Its lines in the set.
    pub lines: u64,
    /// What all distances between them are a multiple of, bytes; 0 of a single line.
    pub stride: u64,
}

/// The heap blocks of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Blocks that samples saw.
    pub blocks_seen: u64,
    /// Who allocates them, most samples first: `function (file:line)`; at most 4.
    pub allocated_at: Vec<String>,
}

/// What was seen of a type.
#[derive(Default)]
struct Seen<'a> {
    lines: LinesSeen,
    blocks: BTreeSet<u64>,
    sites: BTreeMap<String, u64>,
    kind: Kind<'a>,
}

/// What fills each cache of the machine, the nearest to the core first. Empty without samples, of an exact run
/// without simulated caches, and where the machine does not tell its caches.
#[must_use]
pub fn working_set(input: &Input<'_>) -> Vec<LevelSet> {
    if let Some(exact) = &input.info.exact {
        return contents(input, &exact.caches);
    }
    if input.typed.is_empty() {
        return Vec::new();
    }
    let accesses = || {
        let samples = input.samples.iter();
        samples.filter(|sample| sample.class == SampleClass::Access)
    };
    let mut times: BTreeMap<Tid, u64> = BTreeMap::new();
    for sample in accesses() {
        *times.entry(sample.tid).or_default() += sample.weight;
    }
    let Some(busiest) = times.into_iter().max_by_key(|(_, time)| *time) else {
        return Vec::new();
    };
    let places = Places::new(input);
    let one: Vec<&Sample> = accesses().filter(|it| it.tid == busiest.0).collect();
    let all: Vec<&Sample> = accesses().collect();
    let levels = input.info.caches.iter();
    levels
        .map(|cache| {
            let private = cache.cores <= 1;
            let samples = if private { &one } else { &all };
            let types = places.seen(samples, |kind| kind);
            let line = input.info.line_size as f64;
            let in_use = line * types.iter().map(|seen| seen.lines.estimate()).sum::<f64>();
            let room = in_use.max(cache.size_bytes as f64);
            let mut rows: Vec<TypeSet> =
                types.into_iter().map(|seen| seen.row(line, room)).collect();
            rows.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
            rows.truncate(MOST_TYPES);
            LevelSet {
                level: cache.level,
                size_bytes: cache.size_bytes,
                tid: private.then_some(busiest.0.0),
                in_use_bytes: in_use,
                types: rows,
                crowded: match cache.level {
                    CacheLevel::L1d => places.crowded(samples),
                    _ => Vec::new(),
                },
            }
        })
        .collect()
}

/// What the simulated caches of an exact run held.
fn contents(input: &Input<'_>, caches: &[SimulatedCache]) -> Vec<LevelSet> {
    let places = Places::new(input);
    let kind_of = |row: &CacheContent| {
        let named = row.pid.zip(row.ip);
        let kind = named.and_then(|place| places.typed.get(&place).copied());
        kind.unwrap_or_default()
    };
    let line = input.info.line_size as f64;
    let mut levels: Vec<LevelSet> = Vec::new();
    for cache in caches {
        let rows = || input.contents.iter().filter(|row| row.level == cache.level);
        let whole = || rows().filter(|row| row.set.is_none());
        if levels.iter().any(|known| known.level == cache.level) || whole().next().is_none() {
            continue;
        }
        let mut types: BTreeMap<Kind<'_>, (f64, f64, BTreeMap<String, f64>)> = BTreeMap::new();
        for row in whole() {
            let (lines, blocks, sites) = types.entry(kind_of(row)).or_default();
            *lines += row.lines;
            *blocks += row.blocks;
            let site = row.pid.zip(row.stack);
            if let Some(site) = site.and_then(|(pid, stack)| places.site_of(pid, stack)) {
                *sites.entry(site).or_default() += row.lines;
            }
        }
        let mut rows_of_types: Vec<TypeSet> = types
            .into_iter()
            .map(|(kind, (lines, blocks, sites))| TypeSet {
                type_name: kind.type_name.to_owned(),
                through: kind.through.to_owned(),
                lines_seen: lines.round() as u64,
                bytes: lines * line,
                share: lines * line / cache.size_bytes.max(1) as f64,
                blocks_seen: blocks.round() as u64,
                allocated_at: most(sites),
            })
            .collect();
        rows_of_types.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
        rows_of_types.truncate(MOST_TYPES);
        levels.push(LevelSet {
            level: cache.level,
            size_bytes: cache.size_bytes,
            tid: whole().find_map(|row| row.tid).map(|tid| tid.0),
            in_use_bytes: whole().map(|row| row.lines * line).sum(),
            types: rows_of_types,
            crowded: crowded_in(rows().filter(|row| row.set.is_some()), kind_of),
        });
    }
    levels
}

/// The sets that miss by conflict, the one with the most misses first.
fn crowded_in<'a>(
    rows: impl Iterator<Item = &'a CacheContent>,
    kind_of: impl Fn(&CacheContent) -> Kind<'a>,
) -> Vec<CrowdedSet> {
    let mut sets: BTreeMap<u64, Vec<&CacheContent>> = BTreeMap::new();
    for row in rows {
        sets.entry(row.set.unwrap_or_default())
            .or_default()
            .push(row);
    }
    let misses = |rows: &[&CacheContent]| -> f64 { rows.iter().map(|row| row.misses).sum() };
    let mut sets: Vec<(u64, Vec<&CacheContent>)> = sets.into_iter().collect();
    sets.sort_by(|a, b| misses(&b.1).total_cmp(&misses(&a.1)).then(a.0.cmp(&b.0)));
    sets.truncate(MOST_SETS);
    let sets = sets.into_iter().map(|(set, rows)| {
        let mut types: BTreeMap<Kind<'_>, CrowdedType> = BTreeMap::new();
        for row in &rows {
            let kind = kind_of(row);
            let known = types.entry(kind).or_insert_with(|| CrowdedType {
                type_name: kind.type_name.to_owned(),
                through: kind.through.to_owned(),
                lines: 0,
                stride: 0,
            });
            known.lines += row.lines as u64;
            known.stride = common(known.stride, row.stride);
        }
        let mut types: Vec<CrowdedType> = types.into_values().collect();
        types.sort_by_key(|it| std::cmp::Reverse(it.lines));
        CrowdedSet {
            set,
            lines: rows.iter().map(|row| row.lines as u64).sum(),
            types,
        }
    });
    sets.collect()
}

/// The sites with the most, at most 4.
fn most(sites: BTreeMap<String, f64>) -> Vec<String> {
    let mut sites: Vec<(String, f64)> = sites.into_iter().collect();
    sites.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    sites.into_iter().take(MOST_SITES).map(|it| it.0).collect()
}

/// The greatest common divisor; 0 has all.
fn common(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The heap blocks of each type, by its name, that samples of all threads saw.
#[must_use]
pub fn allocations(input: &Input<'_>) -> BTreeMap<String, Allocations> {
    if input.info.exact.is_some() {
        return allocations_by_uses(input);
    }
    let samples = input.samples.iter();
    let accesses: Vec<&Sample> = samples
        .filter(|sample| sample.class == SampleClass::Access)
        .collect();
    let seen = Places::new(input).seen(&accesses, Kind::whole);
    seen.into_iter()
        .map(|seen| (seen.kind.type_name.to_owned(), seen.allocations()))
        .collect()
}

/// The same of an exact run, which tells what instructions did to the blocks of each call chain.
fn allocations_by_uses(input: &Input<'_>) -> BTreeMap<String, Allocations> {
    let places = Places::new(input);
    let mut types: BTreeMap<&str, (u64, BTreeMap<String, f64>)> = BTreeMap::new();
    for row in input.uses {
        let kind = places.typed.get(&(row.pid, row.ip)).copied();
        let name = kind.unwrap_or_default().type_name;
        let (blocks, sites) = types.entry(name).or_default();
        *blocks += row.blocks;
        if let Some(site) = places.site_of(row.pid, row.stack) {
            *sites.entry(site).or_default() += row.accesses;
        }
    }
    let allocations = types.into_iter().map(|(name, (blocks_seen, sites))| {
        let found = Allocations {
            blocks_seen,
            allocated_at: most(sites),
        };
        (name.to_owned(), found)
    });
    allocations.collect()
}

impl Seen<'_> {
    fn allocations(self) -> Allocations {
        let mut sites: Vec<(String, u64)> = self.sites.into_iter().collect();
        sites.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        Allocations {
            blocks_seen: self.blocks.len() as u64,
            allocated_at: sites.into_iter().take(MOST_SITES).map(|it| it.0).collect(),
        }
    }

    fn row(self, line: f64, room: f64) -> TypeSet {
        let bytes = line * self.lines.estimate();
        let (kind, lines) = (self.kind, self.lines.len());
        let allocations = self.allocations();
        TypeSet {
            type_name: kind.type_name.to_owned(),
            through: kind.through.to_owned(),
            lines_seen: lines as u64,
            bytes,
            share: bytes / room,
            blocks_seen: allocations.blocks_seen,
            allocated_at: allocations.allocated_at,
        }
    }
}

/// What samples are of.
struct Places<'i, 'a> {
    input: &'i Input<'a>,
    typed: HashMap<(Pid, Address), Kind<'a>>,
    blocks: HeapBlocks<'a>,
    stacks: HashMap<StackId, &'a [Address]>,
    frames: SourceFrames<'a>,
}

impl<'i, 'a> Places<'i, 'a> {
    fn new(input: &'i Input<'a>) -> Self {
        let typed = input.typed.iter();
        let stacks = input.stacks.iter();
        Self {
            input,
            typed: typed
                .map(|row| ((row.pid, row.ip), Kind::of(row)))
                .collect(),
            blocks: HeapBlocks::new(input.blocks),
            stacks: stacks
                .map(|stack| (stack.id, stack.frames.as_slice()))
                .collect(),
            frames: SourceFrames::new(input.frames),
        }
    }

    fn kind_of(&self, sample: &Sample) -> Kind<'a> {
        let key = (sample.pid, sample.access_ip);
        self.typed.get(&key).copied().unwrap_or_default()
    }

    /// The number of the line that `sample` touched. What processes have at one address counts as one line.
    fn line(&self, sample: &Sample) -> u64 {
        sample.address.0 / self.input.info.line_size.max(1)
    }

    /// What `samples` saw of each kind that `part` makes of theirs.
    fn seen(&self, samples: &[&Sample], part: impl Fn(Kind<'a>) -> Kind<'a>) -> Vec<Seen<'a>> {
        let mut kinds: BTreeMap<Kind<'a>, Seen<'a>> = BTreeMap::new();
        for sample in samples {
            let kind = part(self.kind_of(sample));
            let seen = kinds.entry(kind).or_default();
            seen.kind = kind;
            seen.lines.add(self.line(sample));
            let block = self.blocks.at(sample.pid, sample.address, sample.time);
            if let Some(block) = block {
                seen.blocks.insert(block.id);
                if let Some(site) = self.site(block) {
                    *seen.sites.entry(site).or_default() += 1;
                }
            }
        }
        kinds.into_values().collect()
    }

    /// `function (file:line)` that allocated `block`.
    fn site(&self, block: &HeapBlock) -> Option<String> {
        self.site_of(block.pid, block.stack)
    }

    /// The same of a call chain.
    fn site_of(&self, pid: Pid, stack: StackId) -> Option<String> {
        let callers = self.stacks.get(&stack)?;
        let frame = allocation_site(self.frames.of_callers(pid, callers))?;
        Some(match frame.line {
            0 => frame.function.clone(),
            line => format!("{} ({}:{line})", frame.function, frame.file),
        })
    }

    fn crowded(&self, samples: &[&Sample]) -> Vec<CrowdedSet> {
        let shape = Shape::of(self.input.info);
        let mut lines = LinesSeen::default();
        let mut kinds: HashMap<u64, Kind<'_>> = HashMap::new();
        for sample in samples {
            let line = self.line(sample);
            lines.add(line);
            kinds.insert(line, self.kind_of(sample));
        }
        let mut sets: Vec<CrowdedSet> = lines
            .crowded(&shape)
            .into_iter()
            .map(|(set, lines)| {
                let mut by_kind: BTreeMap<Kind<'_>, Vec<u64>> = BTreeMap::new();
                for line in &lines {
                    let kind = kinds.get(line).copied().unwrap_or_default();
                    by_kind.entry(kind).or_default().push(*line);
                }
                let mut types: Vec<CrowdedType> = by_kind
                    .into_iter()
                    .map(|(kind, lines)| CrowdedType {
                        type_name: kind.type_name.to_owned(),
                        through: kind.through.to_owned(),
                        lines: lines.len() as u64,
                        stride: stride(&lines) * self.input.info.line_size,
                    })
                    .collect();
                types.sort_by_key(|it| std::cmp::Reverse(it.lines));
                CrowdedSet {
                    set,
                    lines: lines.len() as u64,
                    types,
                }
            })
            .collect();
        sets.sort_by(|a, b| b.lines.cmp(&a.lines).then(a.set.cmp(&b.set)));
        sets.truncate(MOST_SETS);
        sets
    }
}

/// The greatest number that all distances between `lines` are a multiple of.
fn stride(lines: &[u64]) -> u64 {
    let Some(first) = lines.first() else {
        return 0;
    };
    let distances = lines.iter().map(|line| line.abs_diff(*first));
    distances.fold(0, common)
}

#[cfg(test)]
mod tests {
    use super::super::exact_rows;
    use super::super::sampled_rows::{sample, typed};
    use super::*;

    fn seen(samples: &[Sample]) -> Vec<LevelSet> {
        let cache = |level, size_bytes, ways, cores| SimulatedCache {
            level,
            size_bytes,
            ways,
            count: 1,
            cores,
        };
        working_set(&Input {
            info: &RunInfo {
                exact: None,
                caches: vec![
                    cache(CacheLevel::L1d, 32 << 10, 8, 1),
                    cache(CacheLevel::L3, 1 << 20, 16, 2),
                ],
                ..exact_rows::info()
            },
            typed: &[typed(0x10, "struct slot"), typed(0x20, "struct other")],
            samples,
            blocks: &[],
            uses: &[],
            contents: &[],
            stacks: &[],
            frames: &[],
        })
    }

    #[test]
    fn a_type_in_one_set_is_named_with_its_stride() {
        let slots = (0..240).map(|i| sample(1, 0x10, 0x10_0000 + i % 24 * 4096));
        let others = (0..100).map(|i| sample(1, 0x20, 0x80_0040 + i % 50 * 64));
        let levels = seen(&slots.chain(others).collect::<Vec<_>>());
        let [first, last] = levels.as_slice() else {
            panic!("two levels: {levels:?}");
        };
        let [set] = first.crowded.as_slice() else {
            panic!("one set: {first:?}");
        };
        assert_eq!((set.set, set.lines), (0, 24));
        assert_eq!(
            (set.types[0].type_name.as_str(), set.types[0].stride),
            ("struct slot", 4096)
        );
        // The others lie side by side.
        assert_eq!(
            (first.types[0].type_name.as_str(), first.types[0].lines_seen),
            ("struct other", 50)
        );
        assert_eq!((first.tid, last.tid), (Some(1), None));
        assert_eq!(last.crowded, []);
    }

    #[test]
    fn a_level_that_is_too_small_holds_the_types_in_proportion() {
        // Each of 1024 lines of one type and 512 of the other three times: all are seen.
        let lines = (0..1536 * 3).map(|i| i % 1536);
        let samples: Vec<Sample> = lines
            .map(|line| sample(1, if line < 1024 { 0x10 } else { 0x20 }, line * 64))
            .collect();
        let levels = seen(&samples);
        let shares =
            |level: &LevelSet| -> Vec<f64> { level.types.iter().map(|it| it.share).collect() };
        assert_eq!(levels[0].in_use_bytes, 1536.0 * 64.0);
        assert_eq!(shares(&levels[0]), [2.0 / 3.0, 1.0 / 3.0]);
        assert_eq!(shares(&levels[1]), [1.0 / 16.0, 1.0 / 32.0]);
    }

    #[test]
    fn an_exact_run_tells_what_the_simulated_caches_held_and_which_sets_missed() {
        let row = |level, ip: u64, set: Option<u64>, lines: f64| CacheContent {
            level,
            tid: (level == CacheLevel::L1d).then_some(Tid(7)),
            set,
            pid: Some(typed(ip, "").pid),
            ip: Some(Address(ip)),
            stack: None,
            label: String::new(),
            lines,
            blocks: lines / 2.0,
            misses: set.map_or(0.0, |set| 1000.0 * set as f64),
            stride: set.map_or(0, |_| 4096),
        };
        let (l1, l3) = (CacheLevel::L1d, CacheLevel::L3);
        let cache = |level, size_bytes| SimulatedCache {
            level,
            size_bytes,
            ways: 8,
            count: 1,
            cores: 1,
        };
        let mut info = exact_rows::info();
        if let Some(exact) = &mut info.exact {
            exact.caches = vec![
                cache(l1, 32 << 10),
                cache(CacheLevel::L2, 1),
                cache(l3, 1 << 20),
            ];
        }
        let levels = working_set(&Input {
            info: &info,
            typed: &[typed(0x10, "struct slot"), typed(0x20, "struct other")],
            samples: &[],
            blocks: &[],
            uses: &[],
            contents: &[
                row(l1, 0x10, None, 384.0),
                row(l1, 0x20, None, 128.0),
                row(l3, 0x10, None, 1024.0),
                row(l1, 0x10, Some(3), 24.0),
                row(l1, 0x20, Some(5), 20.0),
            ],
            stacks: &[],
            frames: &[],
        });
        let [first, last] = levels.as_slice() else {
            panic!("two levels hold something: {levels:?}");
        };
        assert_eq!((first.tid, last.tid, last.level), (Some(7), None, l3));
        assert_eq!(first.in_use_bytes, 512.0 * 64.0);
        let shares: Vec<f64> = first.types.iter().map(|it| it.share).collect();
        assert_eq!(shares, [0.75, 0.25]);
        assert_eq!(first.types[0].blocks_seen, 192);
        // Set 5 has more misses, though fewer lines.
        let sets: Vec<(u64, u64)> = first.crowded.iter().map(|it| (it.set, it.lines)).collect();
        assert_eq!(sets, [(5, 20), (3, 24)]);
        let slots = &first.crowded[1].types[0];
        assert_eq!(
            (slots.type_name.as_str(), slots.stride),
            ("struct slot", 4096)
        );
        assert_eq!(last.crowded, []);
    }

    #[test]
    fn a_private_level_is_that_of_the_busiest_thread() {
        let mut samples: Vec<Sample> = (0..9).map(|i| sample(1, 0x10, i % 3 * 64)).collect();
        samples.extend((0..6).map(|i| sample(2, 0x20, 0x1000 + i % 2 * 64)));
        let levels = seen(&samples);
        assert_eq!((levels[0].tid, levels[0].types.len()), (Some(1), 1));
        assert_eq!(levels[1].types.len(), 2);
    }
}
