//! Types as the typer walks them: members with offsets, arrays, what pointers point to. Each entry
//! of the debug info is read once and kept.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::super::dimensions::Dimensions;
use super::super::dwarf::{Debug, Entry, EntryId};
use super::super::types::{Types, is_opaque, is_wrapper, join, member_offset};
use super::quick::Quick;

/// Bytes of a pointer.
pub(super) const POINTER: u64 = 8;

/// Aliases and qualifiers in a row that are followed, at most.
const MOST_ALIASES: usize = 32;
/// Types nested deeper than this are cyclic or hostile.
const DEEPEST: u32 = 32;
/// Members that are looked at for one question, at most: no program's types need so many.
const MOST_STEPS: u64 = 50_000_000;
/// Places in a type at which an array that a pointer runs through is looked for, at most.
const MOST_ELEMENTS: u64 = 4096;
/// Members that one access can touch, at most: of a union all that lie over each other.
const MOST_LEAVES: usize = 64;

/// A type of one module: its definition, or the name by which a definition without a name is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TypeId(pub(super) EntryId);

/// What a type is made of.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// A pointer or reference; to nothing known, if it is `void *` or leads to a function: data is reached by
    /// another member of its union.
    Pointer(Option<EntryId>),
    /// A struct, class, union, or an enumeration with data: parts may lie over each other.
    Aggregate(Vec<Part>),
    /// All dimensions in one; without a bound for a flexible array.
    Array {
        element: EntryId,
        count: Option<u64>,
    },
    /// A number, a plain enumeration, a function.
    Scalar,
    /// Declared here, defined elsewhere.
    Incomplete,
}

/// A member or a base class.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Empty for a base class and for an unnamed struct or union.
    pub(super) name: String,
    /// Bytes from the start.
    pub(super) offset: u64,
    /// Its declared type.
    pub(super) kind: EntryId,
    /// Bytes.
    pub(super) size: u64,
    /// First bit and number of bits, of a bit field.
    pub(super) bits: Option<(u64, u64)>,
}

/// A type, read.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Which.
    pub(super) id: TypeId,
    /// What it is made of.
    pub(super) shape: Shape,
    /// Bytes; zero if the debug info does not say.
    pub(super) size: u64,
    /// Its name as its language writes it.
    pub(super) name: String,
    /// Of what a `Vec` of Rust keeps its elements in, their type: its own pointer leads to bytes.
    elements: Option<EntryId>,
}

/// What an access touches, somewhere in a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// From the type to the member: `.inner.hits[]`; empty for the type itself.
    pub(super) path: String,
    /// Its declared type.
    pub(super) kind: EntryId,
    /// Offset in the type, of the first element for an unknown element of an array.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Whether it is a bit field: others may lie in its bytes.
    pub(super) bits: bool,
}

/// Where a pointer is asked for: type, offset, size and multiple.
type Asked = (EntryId, u64, u64, u64);

/// What was read so far.
#[derive(Default)]
pub(super) struct Known {
    layouts: RefCell<HashMap<EntryId, Rc<Layout>, Quick>>,
    /// What pointers lead to.
    pointees: RefCell<HashMap<Asked, Option<TypeId>, Quick>>,
}

/// The types of one module.
pub(super) struct Layouts<'d, 'a> {
    debug: &'d Debug<'a>,
    known: &'d Known,
    /// Members that may still be looked at.
    steps: Cell<u64>,
}

impl<'d, 'a> Layouts<'d, 'a> {
    /// Types of `debug`, kept in `known`.
    pub(super) fn new(debug: &'d Debug<'a>, known: &'d Known) -> Self {
        Self {
            debug,
            known,
            steps: Cell::new(MOST_STEPS),
        }
    }

    /// The debug info that they are in.
    pub(super) fn debug(&self) -> &'d Debug<'a> {
        self.debug
    }

    /// Whether there is work left to do for `count` members more; counts them.
    fn step(&self, count: usize) -> bool {
        let left = self.steps.get().saturating_sub(count as u64);
        self.steps.set(left);
        left > 0
    }

    /// The type at `id`, behind its other names and qualifiers.
    pub(super) fn layout(&self, id: EntryId) -> Rc<Layout> {
        if let Some(known) = self.known.layouts.borrow().get(&id) {
            return Rc::clone(known);
        }
        let layout = Rc::new(self.read(id));
        let mut layouts = self.known.layouts.borrow_mut();
        layouts.insert(id, Rc::clone(&layout));
        layout
    }

    /// The declared type of the variable, member or function `entry`.
    pub(super) fn type_of(&self, entry: &Entry<'a>) -> Option<EntryId> {
        Types::new(self.debug).type_of(entry)
    }

    /// Whether both are the same type: of two units, or under two names.
    pub(super) fn same(&self, a: TypeId, b: TypeId) -> bool {
        if a == b {
            return true;
        }
        let (a, b) = (self.layout(a.0), self.layout(b.0));
        !a.name.is_empty() && a.name == b.name && a.size == b.size
    }

    fn read(&self, id: EntryId) -> Layout {
        let mut types = Types::new(self.debug);
        let mut at = id;
        let mut alias = None;
        for _ in 0..MOST_ALIASES {
            let Some(entry) = self.debug.entry(at) else {
                break;
            };
            let next = match entry.tag {
                gimli::DW_TAG_typedef | gimli::DW_TAG_template_alias => {
                    alias = Some(at);
                    self.debug.referred(&entry, gimli::DW_AT_type)
                }
                gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_atomic_type
                | gimli::DW_TAG_restrict_type => self.debug.referred(&entry, gimli::DW_AT_type),
                _ => self.debug.referred(&entry, gimli::DW_AT_signature),
            };
            if let Some(next) = next {
                at = next;
                continue;
            }
            let nameless = self.debug.text(&entry, gimli::DW_AT_name).is_none();
            // `typedef struct { ... } name;` is known by that name only.
            let named = alias.filter(|_| nameless).unwrap_or(at);
            let shape = self.shape(&entry);
            let size = match &shape {
                Shape::Pointer(_) => entry.number(gimli::DW_AT_byte_size).unwrap_or(8),
                _ => types.size(at).unwrap_or(0),
            };
            let name = types.name(named);
            let elements = || self.parameter(at, "T");
            return Layout {
                id: TypeId(named),
                shape,
                size,
                elements: name.starts_with("RawVec<").then(elements).flatten(),
                name,
            };
        }
        Layout {
            id: TypeId(id),
            shape: Shape::Incomplete,
            size: 0,
            name: types.name(id),
            elements: None,
        }
    }

    /// The type that stands for the parameter `name` of type `id`.
    fn parameter(&self, id: EntryId, name: &str) -> Option<EntryId> {
        let children = self.debug.children(id);
        let found = children.iter().find(|entry| {
            entry.tag == gimli::DW_TAG_template_type_parameter
                && self.debug.name(entry).as_deref() == Some(name)
        });
        self.debug.referred(found?, gimli::DW_AT_type)
    }

    fn shape(&self, entry: &Entry<'a>) -> Shape {
        match entry.tag {
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                let target = self.debug.referred(entry, gimli::DW_AT_type);
                Shape::Pointer(target.filter(|target| !self.has_no_data(*target)))
            }
            gimli::DW_TAG_array_type => {
                let Some(element) = self.debug.referred(entry, gimli::DW_AT_type) else {
                    return Shape::Incomplete;
                };
                let dimensions = Dimensions::of(self.debug, entry);
                let count = (dimensions.counts())
                    .try_fold(1, u64::checked_mul)
                    .filter(|count| *count > 0);
                Shape::Array { element, count }
            }
            gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_interface_type => {
                if entry.flag(gimli::DW_AT_declaration) {
                    return Shape::Incomplete;
                }
                let mut parts = Vec::new();
                self.parts(entry.id, 0, &mut parts);
                Shape::Aggregate(parts)
            }
            gimli::DW_TAG_unspecified_type => Shape::Incomplete,
            _ => Shape::Scalar,
        }
    }

    /// Whether `id` is a function, or nothing but a qualifier: `const void`.
    fn has_no_data(&self, id: EntryId) -> bool {
        let mut at = id;
        for _ in 0..MOST_ALIASES {
            let Some(entry) = self.debug.entry(at) else {
                return false;
            };
            match entry.tag {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_atomic_type
                | gimli::DW_TAG_restrict_type => {}
                tag => return tag == gimli::DW_TAG_subroutine_type,
            }
            match self.debug.referred(&entry, gimli::DW_AT_type) {
                Some(next) => at = next,
                None => return true,
            }
        }
        false
    }

    /// Whether values of type `kind` have no members: a pointer to one says nothing of what is there.
    pub(super) fn is_empty(&self, kind: TypeId) -> bool {
        let layout = self.layout(kind.0);
        matches!(layout.shape, Shape::Aggregate(_))
            && self.leaves(kind.0, 0, layout.size, 0).is_empty()
    }

    fn parts(&self, id: EntryId, depth: u32, parts: &mut Vec<Part>) {
        if depth > 3 {
            return;
        }
        for child in self.debug.children(id) {
            match child.tag {
                // Rust's enums: each variant lies over every other.
                gimli::DW_TAG_variant_part | gimli::DW_TAG_variant => {
                    self.parts(child.id, depth + 1, parts);
                }
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance
                    if !child.flag(gimli::DW_AT_declaration)
                        && !child.flag(gimli::DW_AT_external) =>
                {
                    parts.extend(self.part(&child));
                }
                _ => {}
            }
        }
    }

    fn part(&self, entry: &Entry<'a>) -> Option<Part> {
        let kind = self.type_of(entry)?;
        let size = Types::new(self.debug).size(kind).unwrap_or(0);
        let name = if entry.tag == gimli::DW_TAG_member {
            self.debug
                .text(entry, gimli::DW_AT_name)
                .unwrap_or_default()
        } else {
            String::new()
        };
        let Some(count) = entry.number(gimli::DW_AT_bit_size) else {
            return Some(Part {
                name,
                offset: member_offset(entry)?,
                kind,
                size,
                bits: None,
            });
        };
        let first = match entry.number(gimli::DW_AT_data_bit_offset) {
            Some(bit) => bit,
            // Before DWARF 4: counted from the most significant bit of the storage unit.
            None => {
                let from_top = entry.number(gimli::DW_AT_bit_offset)?;
                let unit = member_offset(entry)?.checked_mul(8)?;
                unit.checked_add(size.checked_mul(8)?)?
                    .checked_sub(from_top.checked_add(count)?)?
            }
        };
        let last = first.checked_add(count)?.checked_sub(1)?;
        Some(Part {
            name,
            offset: first / 8,
            kind,
            size: last / 8 - first / 8 + 1,
            bits: Some((first, count)),
        })
    }

    /// What the address of a value of type `id` is a multiple of, bytes.
    pub(super) fn alignment(&self, id: EntryId) -> u64 {
        self.alignment_at(id, 0)
    }

    fn alignment_at(&self, id: EntryId, depth: u32) -> u64 {
        if depth > 8 {
            return 1;
        }
        let stated = self
            .debug
            .entry(id)
            .and_then(|entry| entry.number(gimli::DW_AT_alignment));
        if let Some(stated) = stated.filter(|stated| *stated > 0) {
            return stated;
        }
        let layout = self.layout(id);
        match &layout.shape {
            Shape::Aggregate(parts) => parts
                .iter()
                .map(|part| self.alignment_at(part.kind, depth + 1))
                .max()
                .unwrap_or(1),
            Shape::Array { element, .. } => self.alignment_at(*element, depth + 1),
            Shape::Pointer(_) | Shape::Scalar | Shape::Incomplete => {
                layout.size.clamp(1, 16).next_power_of_two()
            }
        }
    }

    /// The members of type `kind` that `size` bytes at `offset` touch; `times` is what an unknown
    /// number of times is added to `offset`, zero if nothing is. All candidates of a union. Types of
    /// the standard libraries that their users see as one value (`std::atomic`) are one member.
    pub(super) fn leaves(&self, kind: EntryId, offset: u64, size: u64, times: u64) -> Vec<Leaf> {
        self.search(kind, offset, size, times, false)
    }

    fn search(&self, kind: EntryId, offset: u64, size: u64, times: u64, deep: bool) -> Vec<Leaf> {
        let mut search = Search {
            end: offset.saturating_add(size.max(1)),
            start: offset,
            deep,
            leaves: Vec::new(),
        };
        self.descend(kind, 0, times, String::new(), &mut search, 0);
        search.leaves
    }

    /// Where in a value of type `kind` an access of `size` bytes lies that is `plus` bytes behind
    /// its start and `times` an unknown number: the offset, and what is left of `times` for an
    /// array in it. `None` if it does not lie in it.
    pub(super) fn locate(
        &self,
        kind: TypeId,
        plus: i64,
        times: u64,
        size: u64,
    ) -> Option<(u64, u64)> {
        let layout = self.layout(kind.0);
        let whole = i64::try_from(layout.size).ok().filter(|whole| *whole > 0)?;
        if matches!(layout.shape, Shape::Scalar | Shape::Pointer(_)) {
            // A pointer to a number is one into an array of them, of which one instruction can touch
            // several; before the pointer only what is plainly an element.
            let elements = plus % whole == 0 && size.is_multiple_of(layout.size);
            let around = plus >= 0 || times != 0 || size == layout.size;
            if elements && around {
                return Some((0, 0));
            }
        }
        let element = u64::try_from(plus.rem_euclid(whole)).ok()?;
        if times != 0 && times.is_multiple_of(layout.size) && self.are_elements(kind, plus) {
            return Some((element, 0));
        }
        let open = || self.open_end(kind.0, 0).is_some();
        let inside = u64::try_from(plus).ok().filter(|plus| *plus < layout.size);
        if times == 0 {
            return match inside {
                Some(inside) => Some((inside, 0)),
                // Behind it: a flexible array, or a neighbour in an array, which only what fits a
                // member exactly is taken for.
                None if plus > 0 => {
                    let behind = u64::try_from(plus).ok()?;
                    if !self.leaves(kind.0, behind, size, 0).is_empty() {
                        return Some((behind, 0));
                    }
                    (!open() && self.fits(kind, element, size)).then_some((element, 0))
                }
                None => None,
            };
        }
        // An array in it, or behind it. The bytes before an array's first element are reached by
        // indices that do not begin at zero.
        let start = u64::try_from(plus).ok();
        if let Some(start) = start {
            let leaves = self.leaves(kind.0, start, size, times);
            if !leaves.is_empty() && leaves.iter().all(|leaf| leaf.path.contains("[]")) {
                return Some((start, times));
            }
        }
        if let Some(start) = self.array_around(kind, plus, times, size) {
            return Some((start, times));
        }
        // Who adds an unknown number to a pointer means elements.
        (!open() && self.fits(kind, element, size)).then_some((element, 0))
    }

    /// Whether `kind` is a byte, which pointers to raw memory lead to.
    pub(super) fn is_byte(&self, kind: TypeId) -> bool {
        let layout = self.layout(kind.0);
        matches!(layout.shape, Shape::Scalar) && layout.size <= 1
    }

    /// The size of the elements that values of type `kind` end in, as many as were allocated: of a flexible array of
    /// C, or of a slice of Rust, whose element is described as a member behind the end.
    fn open_end(&self, kind: EntryId, depth: u32) -> Option<u64> {
        let layout = self.layout(kind);
        let Shape::Aggregate(parts) = &layout.shape else {
            return None;
        };
        let last = parts
            .iter()
            .max_by_key(|part| part.offset.saturating_add(part.size))
            .filter(|_| depth <= DEEPEST)?;
        match &self.layout(last.kind).shape {
            _ if self.is_rust(kind) && last.offset.saturating_add(last.size) > layout.size => {
                Some(last.size)
            }
            Shape::Array {
                element,
                count: None,
            } if !self.is_rust(kind) => Some(self.layout(*element).size),
            _ => self.open_end(last.kind, depth + 1),
        }
    }

    fn is_rust(&self, kind: EntryId) -> bool {
        self.debug.language(kind.unit) == Some(gimli::DW_LANG_Rust)
    }

    /// Whether an access `plus` and any multiple of the size of `kind` behind its start is one to an element of an
    /// array of these. An array at the end of one can have larger or as large steps.
    fn are_elements(&self, kind: TypeId, plus: i64) -> bool {
        let size = self.layout(kind.0).size;
        self.open_end(kind.0, 0).is_none_or(|element| {
            let inside = u64::try_from(plus).is_ok_and(|plus| plus < size);
            !self.is_rust(kind.0) && inside && element != size
        })
    }

    /// Where in type `kind` the only array is in which an access of `size` bytes can lie that is `plus`
    /// and a multiple of `times` bytes behind the start: of a pointer that runs through an array only
    /// the remainder is known.
    fn array_around(&self, kind: TypeId, plus: i64, times: u64, size: u64) -> Option<u64> {
        let whole = self.layout(kind.0).size;
        if times < 4 || whole / times > MOST_ELEMENTS {
            return None;
        }
        let step = i64::try_from(times).ok()?;
        let mut found: Option<(u64, String)> = None;
        let mut at = u64::try_from(plus.rem_euclid(step)).ok()?;
        // A flexible array begins where the type ends.
        while at < whole.saturating_add(times) {
            let leaves = self.leaves(kind.0, at, size, times);
            let in_array = leaves.iter().any(|leaf| leaf.path.contains("[]"));
            if in_array {
                let path = leaves.iter().map(|leaf| leaf.path.as_str());
                let path = path.collect::<Vec<_>>().join(" ");
                match &found {
                    None => found = Some((at, path)),
                    Some((_, other)) if *other == path => {}
                    Some(_) => return None,
                }
            }
            at += times;
        }
        found.map(|(at, _)| at)
    }

    /// Whether `size` bytes at `offset` are one member of `kind`, or a value within a type that is
    /// shown as one.
    fn fits(&self, kind: TypeId, offset: u64, size: u64) -> bool {
        self.search(kind.0, offset, size, 0, true)
            .iter()
            .any(|leaf| leaf.offset == offset && leaf.size == size)
    }

    /// Whether a value of type `inner` begins at `offset` of a value of type `outer`, or could by
    /// adding a multiple of `times`.
    pub(super) fn holds(&self, outer: EntryId, offset: u64, times: u64, inner: TypeId) -> bool {
        let Some((offset, times)) = self.locate(
            self.layout(outer).id,
            i64::try_from(offset).unwrap_or(-1),
            times,
            self.layout(inner.0).size,
        ) else {
            return false;
        };
        self.holds_within(outer, offset, times, inner, 0)
    }

    fn holds_within(
        &self,
        kind: EntryId,
        offset: u64,
        times: u64,
        inner: TypeId,
        depth: u32,
    ) -> bool {
        let layout = self.layout(kind);
        if depth > 0 && offset == 0 && self.same(layout.id, inner) {
            return true;
        }
        if depth > DEEPEST {
            return false;
        }
        match &layout.shape {
            Shape::Aggregate(parts) => {
                self.step(parts.len())
                    && parts.iter().any(|part| {
                        let bytes = part.offset..part.offset.saturating_add(part.size);
                        part.bits.is_none()
                            && bytes.contains(&offset)
                            && self.holds_within(
                                part.kind,
                                offset - part.offset,
                                times,
                                inner,
                                depth + 1,
                            )
                    })
            }
            Shape::Array { element, .. } => {
                let size = self.layout(*element).size;
                if size == 0 {
                    return false;
                }
                let times = if times.is_multiple_of(size) { 0 } else { times };
                self.holds_within(*element, offset % size, times, inner, depth + 1)
            }
            Shape::Pointer(_) | Shape::Scalar | Shape::Incomplete => false,
        }
    }

    /// The element of what may be an array, at `offset` of it, to which an unknown number is added
    /// `times`: its type, the offset in it, and what is left of `times`.
    pub(super) fn element(&self, kind: EntryId, offset: u64, times: u64) -> (EntryId, u64, u64) {
        let (mut kind, mut offset, mut times) = (kind, offset, times);
        for _ in 0..DEEPEST {
            let Shape::Array { element, .. } = self.layout(kind).shape else {
                break;
            };
            let size = self.layout(element).size;
            if size == 0 {
                break;
            }
            offset %= size;
            if times.is_multiple_of(size) {
                times = 0;
            }
            kind = element;
        }
        (kind, offset, times)
    }

    /// `base` is where type `kind` starts in the type that the search is about.
    fn descend(
        &self,
        kind: EntryId,
        base: u64,
        times: u64,
        path: String,
        search: &mut Search,
        depth: u32,
    ) {
        if depth > DEEPEST || search.leaves.len() >= MOST_LEAVES {
            return;
        }
        let layout = self.layout(kind);
        match &layout.shape {
            Shape::Aggregate(_) if !search.deep && is_opaque(&layout.name) => {
                search.push(path, kind, base, layout.size, false);
            }
            Shape::Aggregate(parts) => {
                if !self.step(parts.len()) {
                    return;
                }
                let wrapper = !search.deep && is_wrapper(&layout.name);
                for part in parts {
                    let start = base.saturating_add(part.offset);
                    let flexible = part.size == 0 && start <= search.start;
                    if start >= search.end
                        || (start.saturating_add(part.size) <= search.start && !flexible)
                    {
                        continue;
                    }
                    let path = if wrapper || part.name.is_empty() {
                        path.clone()
                    } else {
                        join(&path, &part.name)
                    };
                    if part.bits.is_some() {
                        search.push(path, part.kind, start, part.size, true);
                    } else {
                        self.descend(part.kind, start, times, path, search, depth + 1);
                    }
                }
            }
            Shape::Array { element, count } => {
                let size = self.layout(*element).size;
                if size == 0 {
                    return;
                }
                let from = search.start.saturating_sub(base);
                let first = from / size;
                if count.is_some_and(|count| first >= count) {
                    return;
                }
                let any = times != 0 && times.is_multiple_of(size);
                if any {
                    // Any element stands for the first.
                    let (start, end) = (search.start, search.end);
                    search.start -= first * size;
                    search.end -= first * size;
                    let path = format!("{path}[]");
                    self.descend(*element, base, 0, path, search, depth + 1);
                    (search.start, search.end) = (start, end);
                    return;
                }
                let last = (search.end.saturating_sub(base).max(1) - 1) / size;
                for index in first..=last.min(first.saturating_add(MOST_LEAVES as u64)) {
                    if count.is_some_and(|count| index >= count) {
                        break;
                    }
                    let path = format!("{path}[{index}]");
                    let place = base.saturating_add(index * size);
                    self.descend(*element, place, times, path, search, depth + 1);
                }
            }
            Shape::Pointer(_) | Shape::Scalar | Shape::Incomplete => {
                search.push(path, kind, base, layout.size, false);
            }
        }
    }

    /// What the one pointer that `size` bytes at `offset` of `kind` are points to; `None` if they are no
    /// pointer, or of several candidates that do not point to the same.
    pub(super) fn pointee(
        &self,
        kind: EntryId,
        offset: u64,
        size: u64,
        times: u64,
    ) -> Option<TypeId> {
        let asked = (kind, offset, size, times);
        if let Some(known) = self.known.pointees.borrow().get(&asked) {
            return *known;
        }
        let found = self.find_pointee(kind, offset, size, times);
        if self.step(0) {
            self.known.pointees.borrow_mut().insert(asked, found);
        }
        found
    }

    fn find_pointee(&self, kind: EntryId, offset: u64, size: u64, times: u64) -> Option<TypeId> {
        let leaves = self.search(kind, offset, size, times, true);
        let fits = |leaf: &Leaf| leaf.size == size && (leaf.offset == offset || times != 0);
        if !leaves.iter().any(fits) {
            return None;
        }
        let mut targets = leaves
            .iter()
            .filter(|leaf| leaf.size == size)
            .filter_map(|leaf| match self.layout(leaf.kind).shape {
                Shape::Pointer(target) => target.map(|target| self.layout(target).id),
                _ => None,
            });
        let first = targets.next()?;
        if !targets.all(|other| self.same(first, other)) {
            return None;
        }
        let bytes = self.layout(first.0).size <= 1;
        let elements = bytes.then(|| self.elements(kind, offset, 0)).flatten();
        Some(elements.map_or(first, |elements| self.layout(elements).id))
    }

    /// Whether a pointer may be at `offset` of `kind`.
    pub(super) fn has_pointer(&self, kind: EntryId, offset: u64, times: u64) -> bool {
        self.search(kind, offset, POINTER, times, true)
            .iter()
            .any(|leaf| {
                leaf.size == POINTER
                    && (leaf.offset == offset || times != 0)
                    && matches!(self.layout(leaf.kind).shape, Shape::Pointer(_))
            })
    }

    /// The elements of the `Vec` of Rust whose parts are at `offset` of `kind`.
    fn elements(&self, kind: EntryId, offset: u64, depth: u32) -> Option<EntryId> {
        let (kind, offset, _) = self.element(kind, offset, 0);
        let layout = self.layout(kind);
        let Shape::Aggregate(parts) = &layout.shape else {
            return None;
        };
        if layout.elements.is_some() || depth > DEEPEST || !self.step(parts.len()) {
            return layout.elements;
        }
        parts
            .iter()
            .filter(|part| (part.offset..part.offset.saturating_add(part.size)).contains(&offset))
            .find_map(|part| self.elements(part.kind, offset - part.offset, depth + 1))
    }
}

struct Search {
    start: u64,
    end: u64,
    /// Whether to look into types that are shown as one value.
    deep: bool,
    leaves: Vec<Leaf>,
}

impl Search {
    fn push(&mut self, path: String, kind: EntryId, offset: u64, size: u64, bits: bool) {
        let touched = offset < self.end && offset.saturating_add(size) > self.start;
        if touched && self.leaves.len() < MOST_LEAVES {
            self.leaves.push(Leaf {
                path,
                kind,
                offset,
                size,
                bits,
            });
        }
    }
}
