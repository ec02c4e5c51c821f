//! Looking up what the resolver found: frames of code addresses, objects and fields of data.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{Address, Field, Frame, Object, ObjectKind, Pid, Tables, Thread, Tid};

/// The resolved tables, ready for look-ups.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    frames: HashMap<(Pid, Address), Vec<&'a Frame>>,
    /// By process and first byte.
    objects: BTreeMap<(Pid, Address), &'a Object>,
    fields: BTreeMap<(Pid, Address, u64), &'a Field>,
    threads: HashMap<Tid, &'a Thread>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(tables: &'a Tables) -> Self {
        let mut frames: HashMap<(Pid, Address), Vec<&Frame>> = HashMap::new();
        for frame in &tables.frames {
            frames
                .entry((frame.pid, frame.address))
                .or_default()
                .push(frame);
        }
        for frames in frames.values_mut() {
            frames.sort_by_key(|frame| frame.depth);
        }
        let field_key = |field: &'a Field| ((field.pid, field.object, field.offset), field);
        Self {
            frames,
            objects: tables
                .objects
                .iter()
                .map(|object| ((object.pid, object.address), object))
                .collect(),
            fields: tables.fields.iter().map(field_key).collect(),
            threads: tables
                .threads
                .iter()
                .map(|thread| (thread.tid, thread))
                .collect(),
        }
    }

    /// The frames of a code address, innermost first; empty when nothing was resolved.
    pub(crate) fn frames(&self, pid: Pid, ip: Address) -> &[&'a Frame] {
        self.frames.get(&(pid, ip)).map_or(&[], Vec::as_slice)
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

    /// The name of a thread; empty when it has none.
    pub(crate) fn thread(&self, tid: Tid) -> &'a str {
        self.threads
            .get(&tid)
            .map_or("", |thread| thread.name.as_str())
    }
}

/// Whether an object is known by its bounds, so that its name and fields can be spoken of.
pub(crate) fn is_exact(object: &Object) -> bool {
    object.kind == ObjectKind::Static && object.size > 0
}
