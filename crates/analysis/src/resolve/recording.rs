//! Which addresses of a recording to resolve, and all of them resolved.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use linewise_recording::{
    Address, BlockedLoad, Field, Frame, HeapBlock, Object, ObjectKind, PathEvent, PathStep, Pid,
    Polling, SampleClass, SharedMemory, Stack, StackId, Tables, Time, TypeAllocation, TypeMember,
    TypedAccess, Watch,
};

use super::accesses::Typed;
use super::callers::Callers;
use super::heap::{self, HeapBlocks, allocation_site};
use super::hot_loops::LoopRows;
use super::paths::{named_by_accesses, path_traces};
use super::source_frames::last_byte_of_call;
use super::{Files, Resolver, Store};

/// Call chains of allocations whose callers are named though no block of theirs has a row: those with the most bytes.
const MOST_SITES: usize = 5_000;
/// Lines whose objects are resolved: the hottest, by sampled time. No report shows more.
const MOST_LINES: usize = 2000;
/// Addresses touched on one line that are looked up one by one.
const MOST_TOUCHED: usize = 64;

/// Types are looked up by two threads, each with the debug info in its own memory, where that is at most so many bytes
/// and there are at least so many instructions.
const MOST_READ_TWICE: u64 = 64 << 20;
const LEAST_FOR_TWO: usize = 64;
/// So many of them are taken at once: mostly those of one function.
const TAKEN_AT_ONCE: usize = 16;
/// Debug info nests deeply; as much as the main thread has.
const STACK_BYTES: usize = 8 << 20;

/// What a report needs beside what was recorded: rows of the tables of these names, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    /// Functions and source lines.
    pub frames: Vec<Frame>,
    /// What the hottest lines belong to.
    pub objects: Vec<Object>,
    /// The fields of these.
    pub fields: Vec<Field>,
    /// Which types instructions touch.
    pub typed_accesses: Vec<TypedAccess>,
    /// The members of these types.
    pub type_members: Vec<TypeMember>,
    /// The paths of objects that were followed.
    pub path_traces: Vec<PathStep>,
    /// Instructions in loops that poll.
    pub polls: Vec<Polling>,
    /// Loads that wait for stores.
    pub blocked_loads: Vec<BlockedLoad>,
    /// Where values of the types are allocated, as the code says.
    pub type_allocations: Vec<TypeAllocation>,
}

/// Resolves what a report can ask of a recording: the frames of all its code addresses, the types
/// that its accesses touch, and the objects and fields on its hottest lines, 2,000 at most, those that
/// trapped first; of an exact run those that moved most.
///
/// Lines have `line_size` bytes, a power of two. The bytes of programs and debug info come from
/// `files`. Rows are sorted, each is there once.
#[must_use]
pub fn resolve_recording(tables: &Tables, line_size: u64, files: &dyn Files) -> Resolved {
    let store = Store::default();
    let mut resolver = Resolver::new(&tables.maps, &tables.threads, files, &store)
        .with_stack_frames(&tables.stack_frames);
    let LoopRows {
        polls,
        blocked_loads,
    } = resolver.hot_loops(tables);
    let mut code = accessing_code(tables);
    code.extend(polls.iter().map(|row| (row.pid, row.load_ip)));
    let code: Vec<(Pid, Address)> = code.into_iter().collect();
    let two = matches!(resolver.debug_size(&code), Some(0..=MOST_READ_TWICE))
        && code.len() >= LEAST_FOR_TWO;
    let untyped = Untyped::new(&code);
    let callers = Callers::new(tables);
    let ((mut frames, objects, fields, mut typed), more) = thread::scope(|scope| {
        let helper = two
            .then(|| {
                thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, || types_of(tables, files, &untyped, &callers))
                    .ok()
            })
            .flatten();
        let frames = resolve_code(tables, &polls, &mut resolver);
        let (objects, fields) = resolve_data(tables, line_size, &mut resolver);
        let last = resolver.typed_accesses(untyped.take_last(), &callers);
        let first = match helper {
            Some(helper) => helper.join().unwrap_or_else(|panic| resume_unwind(panic)),
            None => Typed::default(),
        };
        ((frames, objects, fields, first), last)
    });
    add_types(&mut typed, more);
    let Typed {
        accesses: typed_accesses,
        members: type_members,
        allocations: type_allocations,
    } = typed;
    let called: BTreeSet<_> = type_allocations.iter().map(|it| (it.pid, it.ip)).collect();
    let named: BTreeSet<_> = frames.iter().map(|it| (it.pid, it.address)).collect();
    for &(pid, ip) in called.difference(&named) {
        frames.extend(resolver.frames(pid, ip));
    }
    frames.sort_by_key(|frame| (frame.pid, frame.address, frame.depth));
    let path_traces = match tables.histories.is_empty() {
        true => named_by_accesses(&tables.path_traces, &typed_accesses),
        false => path_traces(tables, &typed_accesses),
    };
    Resolved {
        frames,
        objects,
        fields,
        typed_accesses,
        type_members,
        path_traces,
        polls,
        blocked_loads,
        type_allocations,
    }
}

/// Instructions whose types are asked for. Two threads take them from both ends until they meet, so that only one
/// function is analysed by both.
struct Untyped<'c> {
    code: &'c [(Pid, Address)],
    left: Mutex<Range<usize>>,
}

impl<'c> Untyped<'c> {
    fn new(code: &'c [(Pid, Address)]) -> Self {
        let left = Mutex::new(0..code.len());
        Self { code, left }
    }

    /// The next ones as `cut` divides what is left of them into what is taken and what stays.
    fn take(
        &self,
        cut: impl Fn(Range<usize>) -> (Range<usize>, Range<usize>),
    ) -> &'c [(Pid, Address)] {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, rest) = cut(left.clone());
        *left = rest;
        self.code.get(taken).unwrap_or_default()
    }

    fn take_first(&self) -> impl Iterator<Item = (Pid, Address)> {
        all(move || {
            self.take(|left| {
                let at = left.end.min(left.start + TAKEN_AT_ONCE);
                (left.start..at, at..left.end)
            })
        })
    }

    fn take_last(&self) -> impl Iterator<Item = (Pid, Address)> {
        all(move || {
            self.take(|left| {
                let at = left.start.max(left.end.saturating_sub(TAKEN_AT_ONCE));
                (at..left.end, left.start..at)
            })
        })
    }
}

/// Everything that `next` gives before it gives nothing.
fn all<'c, T: Copy + 'c>(next: impl Fn() -> &'c [T]) -> impl Iterator<Item = T> {
    std::iter::repeat_with(next)
        .take_while(|taken| !taken.is_empty())
        .flatten()
        .copied()
}

/// What instructions touch, by a resolver that nobody else uses.
fn types_of(
    tables: &Tables,
    files: &dyn Files,
    untyped: &Untyped<'_>,
    callers: &Callers<'_>,
) -> Typed {
    let store = Store::default();
    let mut resolver = Resolver::new(&tables.maps, &tables.threads, files, &store);
    resolver.typed_accesses(untyped.take_first(), callers)
}

/// Adds the rows of later instructions, and the members of types that are not there.
fn add_types(typed: &mut Typed, more: Typed) {
    fn key(member: &TypeMember) -> (&str, u64, &str) {
        (&member.type_name, member.type_size, &member.declared_at)
    }
    let Typed {
        accesses,
        members,
        allocations,
    } = typed;
    accesses.extend(more.accesses);
    accesses.sort_by_key(|row| (row.pid, row.ip));
    let known: HashSet<_> = members.iter().map(key).collect();
    let mut new = more.members;
    new.retain(|member| !known.contains(&key(member)));
    members.append(&mut new);
    members.sort_by(|one, other| key(one).cmp(&key(other)));
    allocations.extend(more.allocations);
    allocations.sort_by(|one, other| {
        let key = |it: &TypeAllocation| (it.pid, it.ip, it.type_size);
        (key(one).cmp(&key(other))).then_with(|| one.type_name.cmp(&other.type_name))
    });
    allocations.dedup();
}

/// The instructions that the recording saw access memory, by process and address.
fn accessing_code(tables: &Tables) -> BTreeSet<(Pid, Address)> {
    let samples = tables
        .samples
        .iter()
        .filter(|sample| sample.class == SampleClass::Access)
        .map(|sample| (sample.pid, sample.access_ip));
    let traps = tables.traps.iter().map(|trap| (trap.pid, trap.access_ip));
    samples
        .chain(traps)
        .chain(code_of_exact_run(tables))
        .chain(code_of_reuse(tables))
        .chain(code_of_histories(tables))
        .filter(|(_, ip)| ip.0 != 0)
        .collect()
}

fn resolve_code(tables: &Tables, polls: &[Polling], resolver: &mut Resolver<'_>) -> Vec<Frame> {
    let stacks: HashMap<StackId, &Stack> = tables
        .stacks
        .iter()
        .map(|stack| (stack.id, stack))
        .collect();
    let mut exact: BTreeSet<(Pid, Address)> = BTreeSet::new();
    let mut returns: BTreeSet<(Pid, Address)> = BTreeSet::new();
    let mut seen: HashSet<(Pid, StackId)> = HashSet::new();
    let mut add_stack = |pid: Pid,
                         id: StackId,
                         exact: &mut BTreeSet<(Pid, Address)>,
                         returns: &mut BTreeSet<(Pid, Address)>| {
        if !seen.insert((pid, id)) {
            return;
        }
        let Some(stack) = stacks.get(&id) else { return };
        if let Some((first, callers)) = stack.frames.split_first() {
            exact.insert((pid, *first));
            returns.extend(callers.iter().map(|address| (pid, *address)));
        }
    };
    for sample in &tables.samples {
        exact.insert((sample.pid, sample.ip));
        exact.insert((sample.pid, sample.access_ip));
        add_stack(sample.pid, sample.stack, &mut exact, &mut returns);
    }
    for trap in &tables.traps {
        exact.insert((trap.pid, trap.access_ip));
        add_stack(trap.pid, trap.stack, &mut exact, &mut returns);
    }
    let mut allocations: HashSet<(Pid, StackId)> = HashSet::new();
    let blocks = tables.heap_blocks.iter().map(|it| (it.pid, it.stack));
    let histories = tables.histories.iter().map(|it| (it.pid, it.stack));
    let uses = tables.block_uses.iter().map(|it| (it.pid, it.stack));
    let steps = tables.path_traces.iter().map(|it| (it.pid, it.stack));
    let contents = tables.cache_contents.iter();
    let contents = contents.filter_map(|it| it.pid.zip(it.stack));
    let mut sites: Vec<_> = tables.heap_sites.iter().collect();
    sites.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    let sites = sites
        .into_iter()
        .take(MOST_SITES)
        .map(|it| (it.pid, it.stack));
    let all = blocks
        .chain(sites)
        .chain(histories)
        .chain(uses)
        .chain(steps)
        .chain(contents);
    for (pid, stack) in all {
        if allocations.insert((pid, stack))
            && let Some(stack) = stacks.get(&stack)
        {
            returns.extend(stack.frames.iter().map(|address| (pid, *address)));
        }
    }
    exact.extend(code_of_exact_run(tables));
    exact.extend(code_of_reuse(tables));
    exact.extend(code_of_histories(tables));
    exact.extend(polls.iter().map(|row| (row.pid, row.load_ip)));
    let mut frames = Vec::new();
    for (pid, address) in exact.iter().filter(|(_, address)| address.0 != 0) {
        frames.extend(resolver.frames(*pid, *address));
    }
    for (pid, address) in returns.iter().filter(|(_, address)| address.0 != 0) {
        // An address can be both: then the call stands where no instruction begins.
        frames.extend(match exact.contains(&(*pid, *address)) {
            true => resolver.frames(*pid, last_byte_of_call(*address)),
            false => resolver.caller_frames(*pid, *address),
        });
    }
    frames.sort_by_key(|frame| (frame.pid, frame.address, frame.depth));
    frames
}

/// The instructions of watched and trapped accesses.
fn code_of_reuse(tables: &Tables) -> impl Iterator<Item = (Pid, Address)> {
    let watches = tables.reuse_watches.iter();
    let processes: HashMap<u64, Pid> = watches.clone().map(|row| (row.id, row.pid)).collect();
    let traps = tables.reuse_traps.iter();
    let trapped = traps.filter_map(move |row| Some((*processes.get(&row.watch)?, row.access_ip)));
    watches.map(|row| (row.pid, row.sample_ip)).chain(trapped)
}

/// The instructions that touched objects that were followed.
fn code_of_histories(tables: &Tables) -> impl Iterator<Item = (Pid, Address)> {
    let histories = tables.histories.iter();
    let processes: HashMap<u64, Pid> = histories.map(|row| (row.id, row.pid)).collect();
    let accesses = tables.history_accesses.iter();
    let accesses =
        accesses.filter_map(move |row| Some((*processes.get(&row.history)?, row.access_ip)));
    // An exact run tells paths without histories.
    let steps = tables.path_traces.iter();
    let steps = steps.filter(|step| step.event == PathEvent::Accessed);
    accesses.chain(steps.map(|step| (step.pid, step.ip)))
}

/// The instructions that the tables of an exact run name.
fn code_of_exact_run(tables: &Tables) -> impl Iterator<Item = (Pid, Address)> {
    let transfers = tables
        .transfers
        .iter()
        .flat_map(|row| [(row.pid, row.from_ip), (row.pid, row.to_ip)]);
    let pairs = tables
        .reuse_pairs
        .iter()
        .flat_map(|row| [(row.pid, row.use_ip), (row.pid, row.reuse_ip)]);
    let caches = tables.caches.iter().map(|row| (row.pid, row.ip));
    let uses = tables.block_uses.iter();
    let uses = uses.map(|row| (Some(row.pid), Some(row.ip)));
    let contents = tables.cache_contents.iter().map(|row| (row.pid, row.ip));
    let calls = tables
        .call_paths
        .iter()
        .map(|row| (Some(row.pid), Some(row.call_ip)));
    transfers
        .chain(pairs)
        .chain(calls)
        .chain(caches)
        .chain(uses)
        .chain(contents)
        .filter_map(|(pid, ip)| Some((pid?, ip?)))
}

/// Runs of bytes of one instruction at one line that are told apart; the last may have gaps.
const MOST_RUNS: usize = 8;

/// The bytes of a line that an instruction touched, as runs: offset of the first byte, and how
/// many. `mask` is a mask of table `transfers`: 64 bits for the whole line.
pub(crate) fn byte_runs(mask: u64, line_size: u64) -> Vec<(u64, u64)> {
    let bytes_of_a_bit = (line_size / 64).max(1);
    let mut runs = Vec::new();
    let mut rest = mask;
    while rest != 0 {
        let first = rest.trailing_zeros();
        let bits = if runs.len() + 1 == MOST_RUNS {
            64 - rest.leading_zeros() - first
        } else {
            (rest >> first).trailing_ones()
        };
        runs.push((
            u64::from(first) * bytes_of_a_bit,
            u64::from(bits) * bytes_of_a_bit,
        ));
        rest = match first + bits {
            64.. => 0,
            end => rest >> end << end,
        };
    }
    runs
}

/// How much a line matters, and where it was touched.
#[derive(Default)]
struct Heat<'a> {
    trapped: bool,
    weight_ns: u64,
    touched: BTreeSet<Address>,
    /// Recorded heap blocks that were touched, by their number, and how heavily.
    blocks: BTreeMap<u64, (u64, &'a HeapBlock)>,
}

impl<'a> Heat<'a> {
    /// The heap blocks to name: of those that lay in one place at different times the one that was
    /// touched most.
    fn heaviest_blocks(&self) -> Vec<&'a HeapBlock> {
        let mut blocks: Vec<_> = self.blocks.values().collect();
        blocks.sort_by_key(|(weight, block)| (std::cmp::Reverse(*weight), block.id));
        let mut kept: Vec<&HeapBlock> = Vec::new();
        for (_, block) in blocks {
            let end = |block: &HeapBlock| block.address.0.saturating_add(block.size);
            let apart =
                |other: &&HeapBlock| end(other) <= block.address.0 || end(block) <= other.address.0;
            if kept.iter().all(apart) {
                kept.push(block);
            }
        }
        kept
    }
}

fn resolve_data(
    tables: &Tables,
    line_size: u64,
    resolver: &mut Resolver<'_>,
) -> (Vec<Object>, Vec<Field>) {
    let mut objects: BTreeMap<(Pid, Address, u64), Object> = BTreeMap::new();
    let mut fields: BTreeMap<(Pid, Address, u64, u64, String), Field> = BTreeMap::new();
    let stacks: HashMap<StackId, &Stack> = tables
        .stacks
        .iter()
        .map(|stack| (stack.id, stack))
        .collect();
    for ((pid, line), heat) in hottest_lines(tables, line_size) {
        let blocks = heat.heaviest_blocks().into_iter().map(|block| {
            let callers = stacks.get(&block.stack).map_or(&[][..], |it| &it.frames);
            let frames: Vec<Frame> = callers
                .iter()
                .flat_map(|&address| resolver.caller_frames(pid, address))
                .collect();
            heap::object(block, allocation_site(&frames))
        });
        let blocks = blocks.collect();
        for object in objects_on(resolver, pid, line, line_size, &heat.touched, blocks) {
            for field in resolver.fields_in(&object, line, line_size) {
                let key = (
                    field.pid,
                    field.object,
                    field.offset,
                    field.size,
                    field.path.clone(),
                );
                fields.insert(key, field);
            }
            objects.insert((object.pid, object.address, object.size), object);
        }
    }
    (
        objects.into_values().collect(),
        fields.into_values().collect(),
    )
}

fn hottest_lines(tables: &Tables, line_size: u64) -> Vec<((Pid, Address), Heat<'_>)> {
    let blocks = HeapBlocks::new(&tables.heap_blocks);
    let mut lines: HashMap<(Pid, Address), Heat<'_>> = HashMap::new();
    let shared = SharedMemory::of(&tables.maps);
    let mut touch = |pid: Pid, address: Address, time: Time, weight_ns: u64, trapped: bool| {
        let (pid, address) = shared.home(pid, address);
        let heat = lines.entry((pid, address.line(line_size))).or_default();
        heat.weight_ns = heat.weight_ns.saturating_add(weight_ns);
        heat.trapped |= trapped;
        if heat.touched.len() < MOST_TOUCHED {
            heat.touched.insert(address);
        }
        if heat.blocks.len() < MOST_TOUCHED
            && let Some(block) = blocks.at(pid, address, time)
        {
            // A trap counts a little, for blocks whose accesses are hardly ever sampled.
            heat.blocks.entry(block.id).or_insert((0, block)).0 += weight_ns + u64::from(trapped);
        }
    };
    for sample in tables
        .samples
        .iter()
        .filter(|sample| sample.class == SampleClass::Access)
    {
        touch(
            sample.pid,
            sample.address,
            sample.time,
            sample.weight,
            false,
        );
    }
    let watches: HashMap<u64, &Watch> = tables
        .watches
        .iter()
        .map(|watch| (watch.id, watch))
        .collect();
    for trap in &tables.traps {
        touch(trap.pid, trap.address, trap.time, 0, true);
        // What the trap answers: the access of the thread that published the line.
        if let Some(watch) = watches.get(&trap.watch) {
            touch(watch.pid, watch.address, watch.armed, 0, true);
        }
    }
    for row in &tables.transfers {
        let (Some(pid), Some(line)) = (row.pid, row.line) else {
            continue;
        };
        for bytes in [row.from_bytes, row.to_bytes] {
            for (first, _) in byte_runs(bytes, line_size) {
                // Which block lay there is told by its number, not by a time.
                touch(
                    pid,
                    Address(line.0 + first),
                    Time(0),
                    row.count as u64,
                    true,
                );
            }
        }
    }
    let numbered: HashMap<u64, &HeapBlock> =
        tables.heap_blocks.iter().map(|it| (it.id, it)).collect();
    for row in &tables.transfers {
        let (Some(pid), Some(line)) = (row.pid, row.line) else {
            continue;
        };
        let Some(heat) = lines.get_mut(&(pid, line)) else {
            continue;
        };
        for id in [row.from_block, row.to_block].into_iter().flatten() {
            if let Some(&block) = numbered.get(&id) {
                heat.blocks.entry(id).or_insert((0, block)).0 += row.count as u64;
            }
        }
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by_key(|(place, heat)| (std::cmp::Reverse((heat.trapped, heat.weight_ns)), *place));
    lines.truncate(MOST_LINES);
    lines
}

/// The objects that were touched on the line, the heap blocks among them that are known, and the static
/// variables beside them: they are what a change would separate.
fn objects_on(
    resolver: &mut Resolver<'_>,
    pid: Pid,
    line: Address,
    line_size: u64,
    touched: &BTreeSet<Address>,
    blocks: Vec<Object>,
) -> Vec<Object> {
    let end = Address(line.0.saturating_add(line_size));
    let mut objects = blocks;
    let blocks_known = !objects.is_empty();
    for address in touched {
        if !objects.iter().any(|object| covers(object, *address)) {
            let object = resolver.object_at(pid, *address);
            // Where blocks are known, the line itself is no object beside them.
            if !(blocks_known && object.kind == ObjectKind::Heap) {
                objects.push(object);
            }
        }
    }
    let mut place = line;
    while place < end {
        let object = match objects.iter().find(|object| covers(object, place)) {
            Some(object) => object.clone(),
            None => resolver.object_at(pid, place),
        };
        if object.kind == ObjectKind::Static && covers(&object, place) {
            place = Address(object.address.0.saturating_add(object.size));
            if !objects.contains(&object) {
                objects.push(object);
            }
        } else {
            // A gap: on to the next variable, or by words where only symbols know them.
            let word = Address((place.0 & !7).saturating_add(8));
            place = match resolver.next_variable(pid, place) {
                Some(next) if next > place && next < word => next,
                _ => word,
            };
        }
    }
    objects
}

fn covers(object: &Object, address: Address) -> bool {
    address >= object.address && address.0 - object.address.0 < object.size
}

#[cfg(test)]
mod tests {
    use super::byte_runs;

    #[test]
    fn a_mask_becomes_the_runs_of_its_bits() {
        assert_eq!(byte_runs(0, 64), []);
        assert_eq!(byte_runs(0xff, 64), [(0, 8)]);
        assert_eq!(byte_runs(u64::MAX, 64), [(0, 64)]);
        assert_eq!(byte_runs(0xff00_0000_0000_000f, 64), [(0, 4), (56, 8)]);
        assert_eq!(byte_runs(0b110, 128), [(2, 4)]);
        // Every eighth byte: seven runs, and one from the eighth to the end.
        let every_fourth = 0x1111_1111_1111_1111;
        let runs = byte_runs(every_fourth, 64);
        assert_eq!(runs.len(), 8);
        assert_eq!(runs[7], (28, 33));
    }
}
