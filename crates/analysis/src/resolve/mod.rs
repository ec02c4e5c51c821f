//! From addresses to names: functions, source lines, variables, fields.
//!
//! This runs when a recording ends, on the machine that recorded, so that the recording can be
//! carried away. Rows come in (mappings, threads), rows go out (frames, objects, fields);
//! the bytes of programs and of their debug info come from a [`Files`], which a test fakes.
//!
//! ```text
//!  Map rows ──► module + distance ──► DWARF (in the file, separate, of debuginfod) ──► function, line, inlining
//!                                │                                  └──► variable, type, fields
//!                                ├──► machine code ──► what each instruction touches (typer)
//!                                └──► ELF symbols ──► function or variable, when there is no DWARF
//!  Thread rows ──► stacks            none of these ──► module+0xoffset, a mapping, and a reason
//! ```
//!
//! Files are foreign: a broken or hostile one costs names, never a panic or a hang.
//!
//! Limits: the block of a heap address is known where the heap recorder told of it (its object is the
//! line that it is on otherwise), thread-local variables are named only by the stack or mapping that holds them,
//! and only 64-bit little-endian files are read.

mod accesses;
mod blocked_loads;
mod bytes;
mod callers;
mod debuginfod;
mod demangle;
mod dimensions;
mod dwarf;
mod elf;
mod files;
mod go_allocations;
mod heap;
mod hot_loops;
mod jit_dump;
mod loops;
mod made_code;
mod modules;
mod names;
mod objects;
mod paths;
mod poll_loop;
mod recording;
mod remedy;
mod scopes;
mod source_frames;
mod split;
mod stack_slots;
mod symbols;
mod typer;
mod types;
mod variables;
mod weight;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use linewise_recording::{Address, Frame, Map, MapKind, Pid, StackFrame, Thread};

pub use accesses::Typed;
pub use callers::Callers;
pub use debuginfod::{Debuginfod, NoDebugInfo};
pub use files::{DiskFiles, File, Files, Store};
pub use heap::{HeapBlocks, allocation_site};
#[cfg(test)]
pub(crate) use modules::reason_of_a_replaced_file;
pub(crate) use modules::replaced_file;
pub(crate) use objects::LINE;
pub(crate) use recording::byte_runs;
pub use recording::{Resolved, resolve_recording};
pub(crate) use source_frames::{SourceFrames, chains_by_id};

use elf::{Elf, Segment};
use made_code::MadeCode;
use modules::Module;
use source_frames::last_byte_of_call;

/// Of an address that is no code: what walks frames by their pointers may find such.
pub(crate) const UNMAPPED: &str = "nothing was mapped at this address when the recording looked";

/// How long names are looked up. What is slow by intent has an end, too; honest programs take seconds.
const PATIENCE: Duration = Duration::from_secs(600);

/// Resolves addresses of the processes of one recording. Files are read when the first address
/// in them is asked for, and kept.
pub struct Resolver<'a> {
    maps: HashMap<Pid, Vec<Map>>,
    threads: Vec<Thread>,
    stack_frames: Vec<StackFrame>,
    files: &'a dyn Files,
    store: &'a Store,
    modules: Vec<Module<'a>>,
    /// By path and build id.
    numbers: HashMap<(String, String), usize>,
    /// Those whose file is there as it was recorded, by path.
    there: HashMap<String, usize>,
    /// Where modules are in memory, by process: filled when the process is first asked about.
    loaded: HashMap<Pid, Vec<Loaded>>,
    /// Code without a file, by process.
    made: HashMap<Pid, MadeCode>,
    /// When nothing is looked up any more.
    deadline: Instant,
}

/// A module in the memory of a process.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    module: usize,
    /// What to add to an address of the module to get one of the process.
    bias: u64,
    start: u64,
    end: u64,
}

impl<'a> Resolver<'a> {
    /// A resolver for the processes that `maps` and `threads` describe. Bytes come from `files`
    /// and are kept in `store`.
    pub fn new(maps: &[Map], threads: &[Thread], files: &'a dyn Files, store: &'a Store) -> Self {
        let mut by_process: HashMap<Pid, Vec<Map>> = HashMap::new();
        for map in maps {
            by_process.entry(map.pid).or_default().push(map.clone());
        }
        for maps in by_process.values_mut() {
            maps.sort_by_key(|map| (map.start, map.time));
        }
        Self {
            maps: by_process,
            threads: threads.to_vec(),
            stack_frames: Vec::new(),
            files,
            store,
            modules: Vec::new(),
            made: HashMap::new(),
            numbers: HashMap::new(),
            there: HashMap::new(),
            loaded: HashMap::new(),
            deadline: Instant::now() + PATIENCE,
        }
    }

    /// What lies on stacks is told by these frames, too.
    #[must_use]
    pub fn with_stack_frames(mut self, frames: &[StackFrame]) -> Self {
        self.stack_frames = frames.to_vec();
        self
    }

    /// The source-level frames of the instruction at `address` of process `pid`, innermost first:
    /// at least one, with a reason for what is not known.
    pub fn frames(&mut self, pid: Pid, address: Address) -> Vec<Frame> {
        self.frames_at(pid, address, address)
    }

    /// The frames of the call that returns to `address`: the call itself is the instruction
    /// before, which may belong to another line or inlined function.
    pub fn caller_frames(&mut self, pid: Pid, address: Address) -> Vec<Frame> {
        self.frames_at(pid, address, last_byte_of_call(address))
    }

    fn frames_at(&mut self, pid: Pid, address: Address, probe: Address) -> Vec<Frame> {
        let unknown = |module: &str, function: String, reason: String| {
            vec![Frame {
                pid,
                address,
                depth: 0,
                function,
                file: String::new(),
                line: 0,
                module: module.to_owned(),
                reason,
            }]
        };
        // Made code may lie within the extent of a module: V8 puts it beside a copy of node's own.
        let is_anonymous =
            (self.map_at(pid, probe)).is_some_and(|it| it.kind == MapKind::Anonymous);
        if is_anonymous && self.made(pid).function(probe.0).is_some() {
            return self.made_frame(pid, address, probe, String::new());
        }
        let Some((number, bias)) = self.module_at(pid, probe) else {
            if self.is_late() {
                let minutes = PATIENCE.as_secs() / 60;
                let reason = format!(
                    "names were looked up for {minutes} minutes, and this one is among what was left: there is very much debug info, or it is made to be slow"
                );
                return unknown("", String::new(), reason);
            }
            return match self.map_at(pid, probe) {
                Some(map) if map.kind == MapKind::File => {
                    let offset = (probe.0 - map.start.0).saturating_add(map.offset);
                    let map = map.clone();
                    let number = self.open(&map);
                    let module = self.module(number);
                    let reason = module.map_or_else(String::new, Module::reason);
                    let name = module.map_or("", |module| &module.name);
                    unknown(&map.path, relative(name, offset), reason)
                }
                Some(map) => {
                    let module = map.path.clone();
                    self.made_frame(pid, address, probe, module)
                }
                None => unknown("", String::new(), UNMAPPED.to_owned()),
            };
        };
        let Some(module) = self.module(number) else {
            return Vec::new();
        };
        let own = probe.0.wrapping_sub(bias);
        let places = module.places(own);
        let nameless = || relative(&module.name, module.function_start(own).unwrap_or(own));
        if places.is_empty() {
            return unknown(&module.path, nameless(), module.reason());
        }
        let lack = module.lack(own);
        places
            .into_iter()
            .zip(0_u32..)
            .map(|(place, depth)| {
                let complete = !place.function.is_empty() && place.line != 0;
                Frame {
                    pid,
                    address,
                    depth,
                    function: match place.function.is_empty() {
                        true => nameless(),
                        false => place.function,
                    },
                    file: place.file,
                    line: place.line,
                    module: module.path.clone(),
                    reason: if complete {
                        lack.clone().unwrap_or_default()
                    } else {
                        module.reason()
                    },
                }
            })
            .collect()
    }

    /// What a runtime tells of the code that it made.
    fn made(&mut self, pid: Pid) -> &MadeCode {
        let (files, maps) = (self.files, self.maps.get(&pid));
        self.made.entry(pid).or_insert_with(|| {
            let mapped = maps.into_iter().flatten().map(|map| map.path.as_str());
            MadeCode::of(pid, mapped, files)
        })
    }

    /// The frame of code that was made at run time.
    fn made_frame(
        &mut self,
        pid: Pid,
        address: Address,
        probe: Address,
        module: String,
    ) -> Vec<Frame> {
        let place = self.made(pid).function(probe.0);
        let reason = match &place {
            Some(_) => "code made at run time, of which its runtime tells no lines",
            None => {
                "code made at run time, of which /tmp/perf-PID.map tells nothing, nor a jitdump: run node with --perf-basic-prof, Python with -X perf, .NET with DOTNET_PerfMapEnabled=1, Java with perf-map-agent"
            }
        };
        let place = place.unwrap_or_default();
        let reason = match place.line {
            0 => reason.to_owned(),
            _ => String::new(),
        };
        vec![Frame {
            pid,
            address,
            depth: 0,
            function: place.function,
            file: place.file,
            line: place.line,
            module,
            reason,
        }]
    }

    /// The machine code at `address` of process `pid`, at most `length` bytes, and its address in the file that it is from. Only
    /// of x86-64, and of a file that is by its build id the one that was recorded.
    pub(crate) fn code(
        &mut self,
        pid: Pid,
        address: Address,
        length: u64,
    ) -> Option<(u64, Vec<u8>)> {
        let is_known = !self.map_at(pid, address)?.build_id.is_empty();
        let (number, bias) = self.module_at(pid, address).filter(|_| is_known)?;
        let module = self.module(number).filter(|module| module.is_x86())?;
        let own = address.0.wrapping_sub(bias);
        Some((own, module.code(own, length)?))
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// The last recorded mapping that holds `address`.
    fn map_at(&self, pid: Pid, address: Address) -> Option<&Map> {
        let maps = self.maps.get(&pid)?;
        let after = maps.partition_point(|map| map.start <= address);
        // Mappings of different times can overlap: a long old one may start far before.
        maps.get(..after)?
            .iter()
            .rev()
            .filter(|map| address < map.end)
            .max_by_key(|map| map.time)
    }

    /// The module in whose memory `address` lies, .bss included, and its distance; none when it is late.
    fn module_at(&mut self, pid: Pid, address: Address) -> Option<(usize, u64)> {
        if self.is_late() {
            return None;
        }
        // An address in somebody else's mapping is not in the module, whatever its extent.
        let map = self.map_at(pid, address)?;
        let (kind, path) = (map.kind, map.path.clone());
        if !self.loaded.contains_key(&pid) {
            let loaded = self.load(pid);
            self.loaded.insert(pid, loaded);
        }
        let loaded = self.loaded.get(&pid)?;
        let found = loaded.iter().rev().find(|loaded| {
            (loaded.start..loaded.end).contains(&address.0)
                && match kind {
                    MapKind::File => self
                        .modules
                        .get(loaded.module)
                        .is_some_and(|module| module.path == path),
                    // Beyond the file's bytes, .bss is anonymous; the kernel may even have put
                    // the start of the brk heap behind it.
                    MapKind::Anonymous | MapKind::Heap => true,
                    MapKind::Stack => false,
                }
        })?;
        Some((found.module, found.bias))
    }

    fn module(&self, number: usize) -> Option<&Module<'a>> {
        self.modules.get(number)
    }

    /// Finds where the files mapped by process `pid` are in its memory.
    fn load(&mut self, pid: Pid) -> Vec<Loaded> {
        let maps: Vec<Map> = self
            .maps
            .get(&pid)
            .map(|maps| {
                maps.iter()
                    .filter(|map| map.kind == MapKind::File)
                    .cloned()
                    .collect()
            })
            .unwrap_or_default();
        // A file without executable mapping is data, or code that is gone.
        let mut candidates: HashMap<usize, Vec<(&Map, u64)>> = HashMap::new();
        let programs: HashSet<&str> = maps
            .iter()
            .filter(|map| map.executable)
            .map(|map| map.path.as_str())
            .collect();
        for map in maps
            .iter()
            .filter(|map| programs.contains(map.path.as_str()))
        {
            let number = self.open(map);
            if let Some(module) = self.modules.get(number) {
                for bias in module.biases(map) {
                    candidates.entry(number).or_default().push((map, bias));
                }
            }
        }
        let mut loaded = Vec::new();
        for (module, candidates) in candidates {
            let mut votes: HashMap<u64, usize> = HashMap::new();
            for (_, bias) in &candidates {
                *votes.entry(*bias).or_default() += 1;
            }
            // Of the distances that one mapping allows, the one that fits most mappings is right.
            let mut best: HashMap<Address, (&Map, u64)> = HashMap::new();
            for (map, bias) in candidates {
                let kept = best.entry(map.start).or_insert((map, bias));
                if votes.get(&bias) > votes.get(&kept.1) {
                    *kept = (map, bias);
                }
            }
            let segments = self.modules.get(module).map_or(&[][..], Module::segments);
            loaded.extend(extents(module, segments, best.into_values()));
        }
        loaded.sort_by_key(|loaded| (loaded.start, loaded.module, loaded.bias));
        loaded
    }

    /// What the file of `map` is called: a program that was started by a link to its file as the link, `redis-server` and not
    /// `redis-check-rdb`.
    fn called(&self, map: &Map) -> String {
        let (folder, name) = map.path.rsplit_once('/').unwrap_or(("", &map.path));
        let is_main = |it: &&Thread| it.pid == map.pid && it.tid.0 == map.pid.0;
        let started = self.threads.iter().filter(is_main).find(|thread| {
            // The kernel names a thread by the file that it was started by.
            let link = (!thread.name.contains('/')).then(|| format!("{folder}/{}", thread.name));
            let elf = link
                .filter(|_| thread.name != name && !map.build_id.is_empty())
                .and_then(|link| self.files.open(map.pid, &link))
                .and_then(Elf::open);
            elf.is_some_and(|elf| elf.build_id == map.build_id)
        });
        started.map_or_else(|| name.to_owned(), |thread| thread.name.clone())
    }

    /// The number of the module of `map`, opened now or before.
    fn open(&mut self, map: &Map) -> usize {
        let key = (map.path.clone(), map.build_id.clone());
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        // Of a process that had ended nobody saw the build id: the file is not to be read twice for that.
        let there = self.there.get(&map.path).copied();
        let is_it = |module: &Module<'_>| module.is_of(&map.build_id);
        let known = there.filter(|&number| self.module(number).is_some_and(is_it));
        let number = known.unwrap_or_else(|| {
            let module = Module::open(map, self.called(map), self.files, self.store);
            let number = self.modules.len();
            if module.is_of(&map.build_id) {
                self.there.insert(map.path.clone(), number);
            }
            self.modules.push(module);
            number
        });
        self.numbers.insert(key, number);
        number
    }
}

/// Where a module is in memory, by the distances that its mappings tell. A program may map a part of itself once more, as V8
/// does with its own code: beyond that part its memory is another's.
fn extents<'m>(
    module: usize,
    segments: &[Segment],
    mappings: impl Iterator<Item = (&'m Map, u64)>,
) -> Vec<Loaded> {
    let mut by_bias: BTreeMap<u64, Vec<&Map>> = BTreeMap::new();
    for (map, bias) in mappings {
        by_bias.entry(bias).or_default().push(map);
    }
    let first = segments.iter().map(|segment| segment.offset).min();
    let begins = |maps: &[&Map]| maps.iter().any(|map| Some(map.offset) <= first);
    let start = segments.iter().map(|segment| segment.address).min();
    let ends = segments.iter();
    let ends = ends.map(|segment| segment.address.saturating_add(segment.memory_size));
    let (Some(start), Some(end)) = (start, ends.max()) else {
        return Vec::new();
    };
    let is_whole_somewhere = by_bias.values().any(|maps| begins(maps));
    let extent = |(bias, maps): (u64, Vec<&Map>)| {
        let is_part = is_whole_somewhere && !begins(&maps);
        let mapped = is_part.then(|| {
            let start = maps.iter().map(|map| map.start.0).min();
            let end = maps.iter().map(|map| map.end.0).max();
            start.zip(end)
        });
        let whole = (start.wrapping_add(bias), end.wrapping_add(bias));
        let (start, end) = mapped.flatten().unwrap_or(whole);
        Loaded {
            module,
            bias,
            start,
            end,
        }
    };
    by_bias.into_iter().map(extent).collect()
}

/// `libc.so.6+0x1234`: what is left when neither function nor line is known.
fn relative(name: &str, offset: u64) -> String {
    format!("{name}+{offset:#x}")
}
