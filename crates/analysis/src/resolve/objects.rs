//! What an address belongs to: static variable, stack, heap or mapping.

use linewise_recording::{Address, Field, Map, MapKind, Object, ObjectKind, Pid, Thread};

use super::Resolver;
use super::dwarf::EntryId;
use super::modules::Module;
use super::types::{Member, Types};
use super::variables::Variable;
use crate::runtime::GO_NAME;

/// glibc aligns the heaps of its arenas to this and grows each of them upwards from there.
const ARENA: u64 = 64 << 20;
/// Where Go puts its heap arenas on 64-bit Linux: from the first up to the second.
const GO_HEAP: std::ops::Range<u64> = 0xc0_0000_0000..0x1c0_0000_0000;
/// What a thread has of stack if nobody says otherwise: no frame lies further above what was seen of its pointer.
const STACK: u64 = 8 << 20;
/// Pointers of a thread further apart than this are of several stacks.
const LARGEST_STACK: u64 = 1 << 30;
/// What is said of memory in such an arena: of which threads is not known.
const ARENA_NAME: &str = "heap (malloc arena of threads)";
/// What is said of memory whose blocks are not known: the line that the address is on.
pub(crate) const LINE: u64 = 64;

/// Whether a program is Go's, and whether that alone: with the C library come threads whose stacks that maps.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Go {
    Alone,
    WithC,
    Not,
}

/// Bytes by which Go's heap grows, and what its parts begin at multiples of. See `runtime/mheap.go`.
const GO_CHUNK: u64 = 4 << 20;

/// A variable found at an address.
pub(super) struct Found {
    /// Its module, by number.
    pub(super) module: usize,
    pub(super) entry: Option<EntryId>,
    /// Where this starts in the variable, if it is a piece of one.
    pub(super) piece_offset: u64,
    /// First byte; of a static one in the module's own address space until that is known.
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) name: String,
    pub(super) bare_name: String,
    pub(super) type_name: String,
    pub(super) declared_at: String,
}

impl Found {
    pub(super) fn object(self, pid: Pid, kind: ObjectKind) -> Object {
        Object {
            pid,
            address: Address(self.address),
            size: self.size,
            kind,
            name: self.name,
            type_name: self.type_name,
            declared_at: self.declared_at,
        }
    }
}

impl Resolver<'_> {
    /// What `address` of process `pid` belongs to, and the fields of it on the line (64 bytes)
    /// that holds `address`.
    ///
    /// The blocks of a heap are not known: the object of a heap address is the line that it is
    /// on. The same goes for anonymous memory, whose object is the mapping.
    pub fn object(&mut self, pid: Pid, address: Address) -> (Object, Vec<Field>) {
        let object = self.object_at(pid, address);
        let fields = self.fields_in(&object, address.line(LINE), LINE);
        (object, fields)
    }

    /// The fields of `object`, which this resolver returned, that share a byte with the `length`
    /// bytes from `start`. Empty if the type of the object is not known.
    pub fn fields_in(&mut self, object: &Object, start: Address, length: u64) -> Vec<Field> {
        let is_declared = object.kind == ObjectKind::Stack && !object.declared_at.is_empty();
        if object.kind != ObjectKind::Static && !is_declared {
            return Vec::new();
        }
        let end = start
            .0
            .saturating_add(length)
            .saturating_sub(object.address.0);
        let first = start.0.saturating_sub(object.address.0);
        self.members(object.pid, object.address, first, end)
            .into_iter()
            .map(|member| Field {
                pid: object.pid,
                object: object.address,
                offset: member.offset,
                size: member.size,
                path: member.path,
                type_name: member.type_name,
            })
            .collect()
    }

    /// The first byte after `address` where another static variable may start, within the module
    /// that holds `address`.
    pub(super) fn next_variable(&mut self, pid: Pid, address: Address) -> Option<Address> {
        let (number, bias) = self.module_at(pid, address)?;
        let module = self.module(number)?;
        let next = module
            .debug()?
            .variables
            .next_after(address.0.wrapping_sub(bias))?;
        Some(Address(next.wrapping_add(bias)))
    }

    pub(super) fn object_at(&mut self, pid: Pid, address: Address) -> Object {
        if let Some(found) = self.static_at(pid, address) {
            return found.object(pid, ObjectKind::Static);
        }
        let map = self.map_at(pid, address).cloned();
        // A program's .bss reaches beyond its file, into memory without a name.
        let of_module = self.module_at(pid, address).is_some();
        let of_go = map
            .as_ref()
            .is_some_and(|map| !of_module && self.is_go_memory(pid, map, address));
        if of_go {
            return heap_line(pid, address, GO_NAME);
        }
        if let Some(stack) = self.stack_at(pid, address, map.as_ref()) {
            return self.in_frame(pid, address).unwrap_or(stack);
        }
        let Some(map) = map else {
            return unknown(pid, address, "unmapped memory");
        };
        if let Some(name) = self.heap_name(pid, &map, address) {
            return heap_line(pid, address, name);
        }
        self.mapping(pid, address, &map)
    }

    /// The mapping that holds `address`, or the section of the module, if it is one.
    fn mapping(&mut self, pid: Pid, address: Address, map: &Map) -> Object {
        if let Some((number, bias)) = self.module_at(pid, address)
            && let Some(module) = self.module(number)
            && let Some((name, start, size, _)) = module.section(address.0.wrapping_sub(bias))
        {
            return Object {
                pid,
                address: Address(start.wrapping_add(bias)),
                size,
                kind: ObjectKind::Mapping,
                name: format!("{} {name}", module.path),
                type_name: String::new(),
                declared_at: String::new(),
            };
        }
        let name = match anonymous_name(&map.path) {
            _ if map.path.is_empty() => "anonymous memory".to_owned(),
            Some(name) => format!("anonymous memory that the program calls `{name}`"),
            None => map.path.clone(),
        };
        Object {
            pid,
            address: map.start,
            size: map.end.0.saturating_sub(map.start.0),
            kind: ObjectKind::Mapping,
            name,
            type_name: String::new(),
            declared_at: String::new(),
        }
    }

    /// Whether it is memory of Go's heap, where goroutines have their stacks, too, so that the pointers of a thread are now
    /// here and now there: as the kernel says, by its place, or, since from Go 1.26 on that is drawn by lot, because the
    /// program is Go's and the memory has no name.
    fn is_go_memory(&mut self, pid: Pid, map: &Map, address: Address) -> bool {
        map.path.contains("Go: heap")
            || map.path.is_empty()
                && map.kind == MapKind::Anonymous
                && (GO_HEAP.contains(&address.0)
                    || match self.go(pid) {
                        Go::Alone => true,
                        // Beside stacks and arenas of the C library, which are cut otherwise.
                        Go::WithC => [map.start, map.end]
                            .iter()
                            .all(|end| end.0.is_multiple_of(GO_CHUNK)),
                        Go::Not => false,
                    })
    }

    /// Whether the program of a process is Go's.
    fn go(&mut self, pid: Pid) -> Go {
        let maps = self.maps.get(&pid).map_or(&[][..], Vec::as_slice);
        let is_c = |map: &Map| {
            ["/libc.so", "/ld-musl"]
                .iter()
                .any(|it| map.path.contains(it))
        };
        let with_c = maps.iter().any(is_c);
        let program = maps
            .iter()
            .find(|map| map.kind == MapKind::File && map.executable);
        let Some(start) = program.map(|map| map.start) else {
            return Go::Not;
        };
        let module = self
            .module_at(pid, start)
            .and_then(|(number, _)| self.module(number));
        match module.is_some_and(Module::is_go) {
            false => Go::Not,
            true if with_c => Go::WithC,
            true => Go::Alone,
        }
    }

    /// The name of the heap that `address` in `map` is on, if it is on one that is known by the name
    /// or the place of its memory. A large block that glibc maps by itself has neither, unless the
    /// program runs with `glibc.mem.decorate_maps`: it stays anonymous memory.
    fn heap_name(&self, pid: Pid, map: &Map, address: Address) -> Option<&'static str> {
        match map.kind {
            MapKind::Heap => return Some("heap"),
            MapKind::File | MapKind::Stack => return None,
            MapKind::Anonymous => {}
        }
        if let Some(name) = anonymous_name(&map.path) {
            return if name.contains("malloc arena") {
                Some(ARENA_NAME)
            } else if name.contains("malloc") {
                Some("heap (mapped by malloc)")
            } else {
                None
            };
        }
        if !map.path.is_empty() {
            return None;
        }
        let arena = address.0 & !(ARENA - 1);
        // An arena has its 64 MiB to itself: what it does not use yet is kept free for it. Other
        // memory may begin at such an address by chance.
        let alone = || {
            let within = map.end.0..arena.saturating_add(ARENA);
            self.maps
                .get(&pid)
                .is_none_or(|maps| !maps.iter().any(|other| within.contains(&other.start.0)))
        };
        (map.start.0 == arena && map.end.0 - arena <= ARENA && alone()).then_some(ARENA_NAME)
    }

    fn static_at(&mut self, pid: Pid, address: Address) -> Option<Found> {
        if let Some((number, bias)) = self.module_at(pid, address) {
            let module = self.module(number)?;
            let own = address.0.wrapping_sub(bias);
            let mut found = from_debug_info(module, own).or_else(|| from_symbols(module, own))?;
            found.module = number;
            found.address = found.address.wrapping_add(bias);
            return Some(found);
        }
        None
    }

    /// The members of the variable at `object` that lie in `start..end` of it.
    fn members(&mut self, pid: Pid, object: Address, start: u64, end: u64) -> Vec<Member> {
        let found = self.static_at(pid, object);
        let Some(found) = found.or_else(|| self.slot_at(pid, object)) else {
            return Vec::new();
        };
        let Some(debug) = self.module(found.module).and_then(Module::debug) else {
            return Vec::new();
        };
        let Some(entry) = found.entry.and_then(|entry| debug.debug.entry(entry)) else {
            return Vec::new();
        };
        let mut types = Types::new(&debug.debug);
        let Some(kind) = types.type_of(&entry) else {
            return Vec::new();
        };
        let end = if found.size > 0 {
            end.min(found.size)
        } else {
            end
        };
        let shift = found.piece_offset;
        let mut members = types.members(
            kind,
            &found.bare_name,
            start.saturating_add(shift),
            end.saturating_add(shift),
        );
        for member in &mut members {
            // Offsets count from the object; a member can only be cut by where its piece starts.
            member.size -= shift.saturating_sub(member.offset).min(member.size);
            member.offset = member.offset.saturating_sub(shift);
        }
        members
    }

    /// The stack that holds `address`, if it is on one.
    fn stack_at(&self, pid: Pid, address: Address, map: Option<&Map>) -> Option<Object> {
        let is_one = |thread: &&Thread| {
            thread.pid == pid
                && thread.stack_high.0.saturating_sub(thread.stack_low.0) <= LARGEST_STACK
        };
        let threads = || self.threads.iter().filter(is_one);
        let within = |thread: &&Thread| thread.stack_low <= address && address < thread.stack_high;
        if let Some(thread) = threads().find(within) {
            return Some(stack(
                pid,
                thread.stack_low,
                thread.stack_high,
                Some(thread),
            ));
        }
        let map = map?;
        // What was seen of the stack pointer is less than the stack: its mapping is the rest.
        let mut owners = threads().filter(|thread| {
            thread.stack_high > thread.stack_low
                && thread.stack_low >= map.start
                && thread.stack_high <= map.end
        });
        let owner = owners.next();
        let alone = owner.is_some() && owners.next().is_none();
        match (map.kind, owner) {
            (MapKind::Stack, _) if alone => Some(stack(pid, map.start, map.end, owner)),
            // Other memory that lies right above a stack is one mapping with it.
            (MapKind::Anonymous, Some(thread)) if alone => {
                let end = map.end.0.min(thread.stack_high.0.saturating_add(STACK));
                (address.0 < end).then(|| stack(pid, map.start, Address(end), owner))
            }
            (MapKind::Stack, _) => {
                let main = threads().find(|thread| map.path == "[stack]" && thread.tid.0 == pid.0);
                Some(stack(pid, map.start, map.end, main))
            }
            // Adjacent stacks can share a mapping: then the address is above the stack pointer of
            // its thread and below the next one's stack.
            (MapKind::Anonymous, Some(_)) => {
                let owner = threads()
                    .filter(|thread| {
                        thread.stack_low >= map.start
                            && thread.stack_high <= map.end
                            && thread.stack_low < thread.stack_high
                            && thread.stack_high <= address
                    })
                    .max_by_key(|thread| thread.stack_high)?;
                Some(stack(
                    pid,
                    owner.stack_low,
                    Address(address.0.saturating_add(1)),
                    Some(owner),
                ))
            }
            _ => None,
        }
    }
}

fn stack(pid: Pid, low: Address, high: Address, thread: Option<&Thread>) -> Object {
    let name = match thread {
        Some(thread) => format!("stack of {} ({})", thread.name, thread.tid),
        None => "stack of an unknown thread".to_owned(),
    };
    Object {
        pid,
        address: low,
        size: high.0.saturating_sub(low.0),
        kind: ObjectKind::Stack,
        name,
        type_name: String::new(),
        declared_at: String::new(),
    }
}

/// What is said of memory of a heap whose blocks are not known.
fn heap_line(pid: Pid, address: Address, name: &str) -> Object {
    Object {
        kind: ObjectKind::Heap,
        ..unknown(pid, address, name)
    }
}

fn unknown(pid: Pid, address: Address, name: &str) -> Object {
    Object {
        pid,
        address: address.line(LINE),
        size: LINE,
        kind: ObjectKind::Mapping,
        name: name.to_owned(),
        type_name: String::new(),
        declared_at: String::new(),
    }
}

/// The name that a program gave to memory without a file (`PR_SET_VMA_ANON_NAME`), as the kernel
/// shows it: `[anon:NAME]`, or `[anon_shmem:NAME]` for memory that processes share.
fn anonymous_name(path: &str) -> Option<&str> {
    let inner = path.strip_prefix('[')?.strip_suffix(']')?;
    let name = inner
        .strip_prefix("anon:")
        .or_else(|| inner.strip_prefix("anon_shmem:"))?;
    Some(name.trim())
}

fn from_debug_info(module: &Module<'_>, address: u64) -> Option<Found> {
    let info = module.debug()?;
    info.variables
        .before(address)
        .find_map(|variable: &Variable| {
            let entry = info.debug.entry(variable.entry)?;
            let mut types = Types::new(&info.debug);
            let kind = types.type_of(&entry);
            let whole = kind.and_then(|kind| types.size(kind)).unwrap_or(0);
            let stated = if variable.piece_size > 0 {
                variable.piece_size
            } else {
                whole
            };
            // A flexible array or an incomplete type: the linker knows how long it is.
            let linked = module
                .symbols()
                .object(variable.address)
                .filter(|symbol| symbol.address == variable.address)
                .map_or(0, |symbol| symbol.size);
            let size = stated.max(linked);
            if address - variable.address >= size {
                return None;
            }
            let (name, bare_name) = info.variables.names(&info.debug, variable)?;
            Some(Found {
                module: 0,
                entry: Some(variable.entry),
                piece_offset: variable.piece_offset,
                address: variable.address,
                size,
                name,
                bare_name,
                type_name: kind.map_or_else(String::new, |kind| types.name(kind)),
                declared_at: info.debug.declared_at(&entry).unwrap_or_default(),
            })
        })
}

fn from_symbols(module: &Module<'_>, address: u64) -> Option<Found> {
    let symbols = module.symbols();
    let symbol = symbols.object(address)?;
    let name = symbols.name(symbol);
    Some(Found {
        module: 0,
        entry: None,
        piece_offset: 0,
        address: symbol.address,
        size: symbol.size,
        bare_name: name.clone(),
        name,
        type_name: String::new(),
        declared_at: String::new(),
    })
}
