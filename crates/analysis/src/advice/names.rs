//! Looking up what the resolver found: frames of code addresses, objects and fields of data.

use std::collections::{BTreeMap, HashMap, HashSet};

use linewise_recording::{
    Address, Field, Frame, Object, ObjectKind, Pid, Tables, Thread, Tid, TypedAccess,
};

use crate::resolve::{LINE, SourceFrames, allocation_site, chains_by_id};
use crate::runtime::Runtime;

/// What a type is known by: its name, its size, and where it is declared.
type TypeKey<'a> = (&'a str, u64, &'a str);

/// The resolved tables, ready for look-ups.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    frames: SourceFrames<'a>,
    /// By process and first byte.
    objects: BTreeMap<(Pid, Address), &'a Object>,
    fields: BTreeMap<(Pid, Address, u64), &'a Field>,
    threads: HashMap<Tid, &'a Thread>,
    /// The return addresses of the allocations of heap blocks, by process, first byte and size.
    allocations: HashMap<(Pid, Address, u64), &'a [Address]>,
    /// The calls that allocate values of a type.
    of_types: HashMap<TypeKey<'a>, Vec<(Pid, Address)>>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(tables: &'a Tables) -> Self {
        let field_key = |field: &'a Field| ((field.pid, field.object, field.offset), field);
        let mut of_types: HashMap<_, Vec<_>> = HashMap::new();
        for row in &tables.type_allocations {
            let kind = (&*row.type_name, row.type_size, &*row.declared_at);
            of_types.entry(kind).or_default().push((row.pid, row.ip));
        }
        Self {
            frames: SourceFrames::new(&tables.frames),
            objects: tables
                .objects
                .iter()
                .map(|object| ((object.pid, object.address), object))
                .collect(),
            fields: tables.fields.iter().map(field_key).collect(),
            allocations: allocations(tables),
            of_types,
            threads: tables
                .threads
                .iter()
                .map(|thread| (thread.tid, thread))
                .collect(),
        }
    }

    /// The frames of a code address, innermost first; empty when nothing was resolved.
    pub(crate) fn frames(&self, pid: Pid, ip: Address) -> &[&'a Frame] {
        self.frames.at(pid, ip)
    }

    /// The frames of a call chain, innermost first. `callers` are return addresses.
    pub(crate) fn callers(&self, pid: Pid, callers: &[Address]) -> Vec<&'a Frame> {
        self.frames.of_callers(pid, callers).collect()
    }

    /// The object that holds an address.
    pub(crate) fn object(&self, pid: Pid, address: Address) -> Option<&'a Object> {
        let before = self.objects.range((pid, Address(0))..=(pid, address));
        let holds = |object: &Object| address.0 < object.address.0 + object.size.max(1);
        before
            .rev()
            .take(4)
            .map(|(_, &object)| object)
            .find(|object| holds(object))
    }

    /// All objects that have bytes on a line.
    pub(crate) fn objects_on(&self, pid: Pid, line: Address, line_size: u64) -> Vec<&'a Object> {
        let mut found: Vec<&Object> = self.object(pid, line).into_iter().collect();
        let inside = self
            .objects
            .range((pid, line)..(pid, Address(line.0 + line_size)));
        for (_, &object) in inside {
            if !found.iter().any(|seen| seen.address == object.address) {
                found.push(object);
            }
        }
        found
    }

    /// The fields of an object that have bytes in a range.
    pub(crate) fn fields_in(&self, object: &Object, start: Address, length: u64) -> Vec<&'a Field> {
        let first = start.0.saturating_sub(object.address.0);
        let end = (start.0 + length).saturating_sub(object.address.0);
        self.fields
            .range((object.pid, object.address, 0)..(object.pid, object.address, end))
            .map(|(_, &field)| field)
            .filter(|field| field.offset + field.size > first)
            .collect()
    }

    /// Whether an object is known by its bounds, so that its name and fields can be spoken of.
    pub(crate) fn is_exact(&self, object: &Object) -> bool {
        let place = (object.pid, object.address, object.size);
        match object.kind {
            ObjectKind::Static => object.size > 0,
            ObjectKind::Heap | ObjectKind::Mapping => self.allocations.contains_key(&place),
            ObjectKind::Stack => !object.declared_at.is_empty(),
        }
    }

    /// Whether where an object begins and ends is known: of memory that nothing is known of a line stands for it.
    pub(crate) fn has_bounds(&self, object: &Object) -> bool {
        let is_memory = matches!(object.kind, ObjectKind::Heap | ObjectKind::Mapping);
        !is_memory || object.size > LINE || self.is_exact(object)
    }

    /// Where a heap block was allocated: `function (file:line)` of each caller, innermost first, from that on which
    /// names the block: what lies within it is the allocator's or a library's. Empty if that is not known.
    pub(crate) fn allocated_at(&self, object: &Object) -> Vec<String> {
        let place = (object.pid, object.address, object.size);
        let callers = self.allocations.get(&place).copied().unwrap_or_default();
        let frames = self.callers(object.pid, callers);
        let site = allocation_site(frames.iter().copied());
        // Whatever a runtime has in what it maps, it is not allocated there.
        if object.kind == ObjectKind::Mapping && site.and_then(Runtime::that_maps).is_some() {
            return Vec::new();
        }
        frames
            .iter()
            .skip_while(|frame| site.is_some_and(|site| !std::ptr::eq(site, **frame)))
            .map(|frame| frame_words(frame))
            .collect()
    }

    /// Where code allocates values of the type that `access` names, `function (file:line)` each, once; empty if it does not tell.
    pub(crate) fn type_allocated_at(&self, access: &TypedAccess) -> Vec<String> {
        let kind = (&*access.type_name, access.type_size, &*access.declared_at);
        let mut places: Vec<String> = Vec::new();
        for &(pid, ip) in self.of_types.get(&kind).into_iter().flatten() {
            let frame = self.frames(pid, ip).first();
            let place = frame.map(|frame| frame_words(frame));
            places.extend(place.filter(|place| !places.contains(place)));
        }
        places
    }

    /// The name of a thread; empty when it has none.
    pub(crate) fn thread(&self, tid: Tid) -> &'a str {
        self.threads
            .get(&tid)
            .map_or("", |thread| thread.name.as_str())
    }
}

/// A caller: `function (file:line)` as far as that is known.
pub(crate) fn frame_words(frame: &Frame) -> String {
    match (frame.function.as_str(), frame.line) {
        ("", _) => format!("{:#x}", frame.address.0),
        (function, 0) => function.to_owned(),
        (function, line) => format!("{function} ({}:{line})", frame.file),
    }
}

/// Where the heap blocks among the objects were allocated.
fn allocations(tables: &Tables) -> HashMap<(Pid, Address, u64), &[Address]> {
    let heap = tables
        .objects
        .iter()
        .filter(|it| matches!(it.kind, ObjectKind::Heap | ObjectKind::Mapping));
    let named: HashSet<_> = heap.map(|it| (it.pid, it.address, it.size)).collect();
    let stacks = chains_by_id(&tables.stacks);
    let blocks = tables.heap_blocks.iter();
    blocks
        .map(|block| ((block.pid, block.address, block.size), block.stack))
        .filter(|(place, _)| named.contains(place))
        .map(|(place, stack)| (place, stacks.get(&stack).copied().unwrap_or_default()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_stands_for_memory_has_no_bounds() {
        let tables = Tables::default();
        let names = Names::new(&tables);
        let has_bounds = |kind, size| {
            names.has_bounds(&Object {
                pid: Pid(1),
                address: Address(0x1000),
                size,
                kind,
                name: String::new(),
                type_name: String::new(),
                declared_at: String::new(),
            })
        };
        assert!(!has_bounds(ObjectKind::Heap, LINE) && !has_bounds(ObjectKind::Mapping, LINE));
        assert!(has_bounds(ObjectKind::Mapping, 4096) && has_bounds(ObjectKind::Static, LINE));
    }
}
