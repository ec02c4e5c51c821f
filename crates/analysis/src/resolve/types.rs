//! Types from DWARF: sizes, names, and the members that lie in a range of bytes.

use gimli::{AttributeValue, DwTag, Operation};

use super::dimensions::Dimensions;
use super::dwarf::{Debug, Entry, EntryId};
use super::names::is_cpp;

/// Types nested deeper than this are cyclic or hostile.
const DEEPEST: u32 = 48;
/// Entries visited for one question, at most: unions of unions grow quickly.
const MOST_STEPS: u32 = 50_000;
/// Members reported for one question, at most.
const MOST_MEMBERS: usize = 4096;
/// A type's name is cut beyond this many bytes.
const LONGEST_NAME: usize = 400;

/// A member that has no members itself, somewhere in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Offset in the object.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Its path from the object: `counters[3].hits`.
    pub(super) path: String,
    /// The name of its type.
    pub(super) type_name: String,
}

/// Answers questions about the types of one module.
pub(super) struct Types<'d, 'a> {
    debug: &'d Debug<'a>,
    steps: u32,
}

/// What is asked of a walk, and what it found.
struct Walk {
    /// Bytes of the object that are asked for.
    start: u64,
    end: u64,
    members: Vec<Member>,
}

impl Walk {
    /// Whether any of so many bytes at an offset is asked for.
    fn asks(&self, offset: u64, size: u64) -> bool {
        size > 0 && offset < self.end && offset.saturating_add(size) > self.start
    }
}

/// A type with a qualifier: behind the star if it is the pointer that has it. An array is as its elements are, and
/// compilers say it of both.
fn with_qualifier(word: &str, inner: String) -> String {
    let dimensions = match inner.ends_with(']') {
        true => inner.rfind('>').unwrap_or(0),
        false => inner.len(),
    };
    let end = (inner[dimensions..].find('[')).map_or(inner.len(), |at| dimensions + at);
    let (base, dimensions) = inner.split_at(end);
    let has_it = match base.rsplit_once('*') {
        Some((_, of_pointer)) if !base.ends_with('>') => of_pointer.split(' ').any(|it| it == word),
        _ => base.split(' ').take(2).any(|it| it == word),
    };
    let is_pointer =
        base.ends_with('*') || base.ends_with("* const") || base.ends_with("* volatile");
    match (has_it, is_pointer) {
        (true, _) => inner,
        (_, true) => format!("{base} {word}{dimensions}"),
        _ => format!("{word} {inner}"),
    }
}

impl<'d, 'a> Types<'d, 'a> {
    /// Types of `debug`.
    pub(super) fn new(debug: &'d Debug<'a>) -> Self {
        Self { debug, steps: 0 }
    }

    /// Whether there is work left to do for this question; counts one step.
    fn step(&mut self, depth: u32) -> Option<()> {
        self.steps += 1;
        (depth < DEEPEST && self.steps < MOST_STEPS).then_some(())
    }

    /// The type of the variable or member `entry`, its own or that of its declaration.
    pub(super) fn type_of(&self, entry: &Entry<'a>) -> Option<EntryId> {
        self.debug
            .inherited(entry, |entry| self.debug.referred(entry, gimli::DW_AT_type))
    }

    /// Bytes of a value of type `id`; `None` if the debug info does not say.
    pub(super) fn size(&mut self, id: EntryId) -> Option<u64> {
        self.size_at(id, 0)
    }

    fn size_at(&mut self, id: EntryId, depth: u32) -> Option<u64> {
        self.step(depth)?;
        let entry = self.debug.entry(id)?;
        if let Some(size) = entry.number(gimli::DW_AT_byte_size) {
            return Some(size);
        }
        match entry.tag {
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => Some(8),
            gimli::DW_TAG_array_type => {
                let element = self.debug.referred(&entry, gimli::DW_AT_type)?;
                let size = self.size_at(element, depth + 1)?;
                Dimensions::of(self.debug, &entry)
                    .counts()
                    .try_fold(size, u64::checked_mul)
            }
            _ => {
                // A definition elsewhere (type unit), a qualifier or another name for a type.
                let next = self
                    .debug
                    .referred(&entry, gimli::DW_AT_signature)
                    .or_else(|| self.debug.referred(&entry, gimli::DW_AT_type))?;
                self.size_at(next, depth + 1)
            }
        }
    }

    /// The name of type `id` as its language writes it; empty if it has none.
    pub(super) fn name(&mut self, id: EntryId) -> String {
        let mut name = self.name_at(id, 0).unwrap_or_default();
        if name.len() > LONGEST_NAME {
            let cut = (0..=LONGEST_NAME)
                .rev()
                .find(|at| name.is_char_boundary(*at))
                .unwrap_or(0);
            name.truncate(cut);
            name.push('…');
        }
        name
    }

    fn name_at(&mut self, id: EntryId, depth: u32) -> Option<String> {
        self.step(depth)?;
        let entry = self.debug.entry(id)?;
        if let Some(name) = self.debug.text(&entry, gimli::DW_AT_name) {
            return Some(match (self.debug.language(id.unit), keyword(entry.tag)) {
                (Some(language), Some(keyword)) if is_c(language) => format!("{keyword} {name}"),
                (Some(language), _) if is_cpp(language) => self.debug.qualified(id, &name),
                _ => name,
            });
        }
        if let Some(definition) = self.debug.referred(&entry, gimli::DW_AT_signature) {
            return self.name_at(definition, depth + 1);
        }
        let target = self.debug.referred(&entry, gimli::DW_AT_type);
        let inner = match target {
            Some(target) => self.name_at(target, depth + 1)?,
            None => "void".to_owned(),
        };
        Some(match entry.tag {
            gimli::DW_TAG_pointer_type => format!("{inner}*"),
            gimli::DW_TAG_reference_type => format!("{inner}&"),
            gimli::DW_TAG_rvalue_reference_type => format!("{inner}&&"),
            gimli::DW_TAG_const_type => with_qualifier("const", inner),
            gimli::DW_TAG_volatile_type => with_qualifier("volatile", inner),
            gimli::DW_TAG_atomic_type => format!("_Atomic {inner}"),
            gimli::DW_TAG_restrict_type => inner,
            gimli::DW_TAG_array_type => {
                let rust = self.debug.language(id.unit) == Some(gimli::DW_LANG_Rust);
                let dimensions = Dimensions::of(self.debug, &entry);
                if rust {
                    (dimensions.counts().rev())
                        .fold(inner, |name, count| format!("[{name}; {count}]"))
                } else {
                    let mut name = inner;
                    for count in dimensions.written() {
                        let count = if count == 0 {
                            String::new()
                        } else {
                            count.to_string()
                        };
                        name.push_str(&format!("[{count}]"));
                    }
                    name
                }
            }
            gimli::DW_TAG_subroutine_type => "function".to_owned(),
            tag => match keyword(tag) {
                Some(keyword) => format!("(anonymous {keyword})"),
                None => inner,
            },
        })
    }

    /// The members of a value of type `id`, called `path`, that share a byte with `start..end`
    /// (offsets in the value), by offset.
    pub(super) fn members(&mut self, id: EntryId, path: &str, start: u64, end: u64) -> Vec<Member> {
        let mut walk = Walk {
            start,
            end,
            members: Vec::new(),
        };
        // Out of depth or steps: what was found until then is right, only not all.
        let _: Option<()> = self.walk(id, 0, path.to_owned(), &mut walk, 0);
        walk.members
            .sort_by(|a, b| (a.offset, a.size, &a.path).cmp(&(b.offset, b.size, &b.path)));
        walk.members.dedup();
        walk.members
    }

    fn walk(
        &mut self,
        id: EntryId,
        offset: u64,
        path: String,
        walk: &mut Walk,
        depth: u32,
    ) -> Option<()> {
        self.step(depth)?;
        let entry = self.debug.entry(id)?;
        if let Some(definition) = self.debug.referred(&entry, gimli::DW_AT_signature) {
            return self.walk(definition, offset, path, walk, depth + 1);
        }
        let name = self
            .debug
            .text(&entry, gimli::DW_AT_name)
            .unwrap_or_default();
        match entry.tag {
            gimli::DW_TAG_typedef if is_opaque(&name) => self.leaf(id, offset, path, walk),
            gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_template_alias => {
                let inner = self.debug.referred(&entry, gimli::DW_AT_type)?;
                // The qualified name is the one to show for what has no members.
                if self.is_scalar(inner, depth + 1) {
                    self.leaf(id, offset, path, walk)
                } else {
                    self.walk(inner, offset, path, walk, depth + 1)
                }
            }
            gimli::DW_TAG_array_type => self.walk_array(&entry, offset, &path, walk, depth),
            gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_interface_type
                if !is_opaque(&name) =>
            {
                let before = walk.members.len();
                self.walk_members(id, offset, &path, is_wrapper(&name), walk, depth)?;
                let empty = walk.members.len() == before;
                // Nothing inside that is known: the whole is the best there is.
                if empty && self.debug.children(id).is_empty() {
                    self.leaf(id, offset, path, walk)
                } else {
                    Some(())
                }
            }
            _ => self.leaf(id, offset, path, walk),
        }
    }

    /// Whether type `id` has no members, behind its qualifiers and other names.
    fn is_scalar(&mut self, id: EntryId, depth: u32) -> bool {
        if self.step(depth).is_none() {
            return true;
        }
        let Some(entry) = self.debug.entry(id) else {
            return true;
        };
        match entry.tag {
            gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_restrict_type => self
                .debug
                .referred(&entry, gimli::DW_AT_type)
                .is_none_or(|inner| self.is_scalar(inner, depth + 1)),
            gimli::DW_TAG_array_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_interface_type => false,
            _ => true,
        }
    }

    /// Whether the question has taken all the steps or members that it may.
    fn is_exhausted(&self, walk: &Walk) -> bool {
        self.steps >= MOST_STEPS || walk.members.len() >= MOST_MEMBERS
    }

    fn leaf(&mut self, id: EntryId, offset: u64, path: String, walk: &mut Walk) -> Option<()> {
        let size = self.size(id)?;
        self.push(offset, size, path, id, walk);
        Some(())
    }

    fn push(&mut self, offset: u64, size: u64, path: String, id: EntryId, walk: &mut Walk) {
        if walk.asks(offset, size) {
            let type_name = self.name(id);
            walk.members.push(Member {
                offset,
                size,
                path,
                type_name,
            });
        }
    }

    fn walk_array(
        &mut self,
        entry: &Entry<'a>,
        offset: u64,
        path: &str,
        walk: &mut Walk,
        depth: u32,
    ) -> Option<()> {
        let element = self.debug.referred(entry, gimli::DW_AT_type)?;
        let size = self.size(element)?;
        let mut dimensions = Dimensions::of(self.debug, entry);
        let inner = (dimensions.counts().skip(1)).try_fold(size, u64::checked_mul)?;
        // A flexible array reaches as far as the question does.
        dimensions.fill(walk.end.saturating_sub(offset).checked_div(inner)?);
        let count = (dimensions.counts()).try_fold(1, u64::checked_mul)?;
        let end = offset.checked_add(count.checked_mul(size)?)?;
        if size == 0 || offset >= walk.end || end <= walk.start {
            return Some(());
        }
        if size == 1 && self.is_character(element) {
            // Text and padding: an index for each byte would say nothing.
            self.push(offset, count, path.to_owned(), entry.id, walk);
            return Some(());
        }
        let first = walk.start.saturating_sub(offset) / size;
        let last = (walk.end - offset).div_ceil(size).min(count);
        for index in first..last {
            if self.is_exhausted(walk) {
                return None;
            }
            let place = offset + index * size;
            let path = format!("{path}{}", dimensions.subscripts(index));
            let _: Option<()> = self.walk(element, place, path, walk, depth + 1);
        }
        Some(())
    }

    /// Whether type `id` is a character, signed or not: what text and padding are made of.
    fn is_character(&mut self, id: EntryId) -> bool {
        let mut next = Some(id);
        for depth in 0..DEEPEST {
            let Some(entry) = next.and_then(|id| self.debug.entry(id)) else {
                return false;
            };
            if self.step(depth).is_none() {
                return false;
            }
            if entry.tag == gimli::DW_TAG_base_type {
                return matches!(
                    entry.value(gimli::DW_AT_encoding),
                    Some(AttributeValue::Encoding(
                        gimli::DW_ATE_signed_char | gimli::DW_ATE_unsigned_char | gimli::DW_ATE_UTF
                    ))
                ) || self.debug.text(&entry, gimli::DW_AT_name).as_deref() == Some("u8");
            }
            next = self.debug.referred(&entry, gimli::DW_AT_type);
        }
        false
    }

    /// The members of the struct, union or variant `id`; those of a wrapper keep its path.
    fn walk_members(
        &mut self,
        id: EntryId,
        offset: u64,
        path: &str,
        wrapper: bool,
        walk: &mut Walk,
        depth: u32,
    ) -> Option<()> {
        self.step(depth)?;
        let mut bits: Option<BitFields> = None;
        for child in self.debug.children(id) {
            if self.is_exhausted(walk) {
                return None;
            }
            // A member that cannot be read does not hide the others.
            match child.tag {
                // Rust enums: every variant lies over every other.
                gimli::DW_TAG_variant_part | gimli::DW_TAG_variant => {
                    let _: Option<()> =
                        self.walk_members(child.id, offset, path, false, walk, depth + 1);
                }
                gimli::DW_TAG_inheritance => {
                    let place = member_offset(&child).and_then(|more| offset.checked_add(more));
                    if let (Some(place), Some(base)) = (place, self.type_of(&child)) {
                        let _: Option<()> =
                            self.walk(base, place, path.to_owned(), walk, depth + 1);
                    }
                }
                gimli::DW_TAG_member if !child.flag(gimli::DW_AT_declaration) => {
                    let Some(kind) = self.type_of(&child) else {
                        continue;
                    };
                    let name = self.debug.text(&child, gimli::DW_AT_name);
                    if child.number(gimli::DW_AT_bit_size).is_some() {
                        self.bit_field(&child, kind, offset, path, name, &mut bits, walk);
                        continue;
                    }
                    let Some(place) = member_offset(&child).and_then(|at| offset.checked_add(at))
                    else {
                        continue;
                    };
                    if place >= walk.end
                        || self.size(kind).is_some_and(|size| {
                            size > 0 && place.saturating_add(size) <= walk.start
                        })
                    {
                        continue;
                    }
                    let path = match name {
                        Some(name) if !wrapper => join(path, &name),
                        _ => path.to_owned(),
                    };
                    let _: Option<()> = self.walk(kind, place, path, walk, depth + 1);
                }
                _ => {}
            }
        }
        if let Some(unit) = bits {
            self.push_bits(&unit, path, walk);
        }
        Some(())
    }

    /// Adds a bit field to its storage unit; bit fields of one unit are one member, because no
    /// instruction touches one without the others.
    #[expect(
        clippy::too_many_arguments,
        reason = "the state of one walk over the members"
    )]
    fn bit_field(
        &mut self,
        child: &Entry<'a>,
        kind: EntryId,
        offset: u64,
        path: &str,
        name: Option<String>,
        bits: &mut Option<BitFields>,
        walk: &mut Walk,
    ) {
        let Some(size) = self.size(kind).filter(|size| *size > 0) else {
            return;
        };
        let place = match child.number(gimli::DW_AT_data_bit_offset) {
            Some(bit) => bit / 8 / size * size,
            None => member_offset(child).unwrap_or(0),
        };
        let Some(place) = offset.checked_add(place) else {
            return;
        };
        let name = name.unwrap_or_default();
        let count = child.number(gimli::DW_AT_bit_size).unwrap_or(0);
        match bits {
            Some(unit) if (unit.offset, unit.size) == (place, size) => {
                unit.fields.push((name, count));
            }
            _ => {
                let fields = vec![(name, count)];
                let unit = BitFields {
                    offset: place,
                    size,
                    kind,
                    fields,
                };
                if let Some(unit) = bits.replace(unit) {
                    self.push_bits(&unit, path, walk);
                }
            }
        }
    }

    /// Adds a storage unit of bit fields: its type has the number of bits where it is of one.
    fn push_bits(&mut self, unit: &BitFields, path: &str, walk: &mut Walk) {
        if !walk.asks(unit.offset, unit.size) {
            return;
        }
        let mut type_name = self.name(unit.kind);
        let path = match unit.fields.as_slice() {
            [(name, count)] => {
                type_name = format!("{type_name} : {count}");
                join(path, name)
            }
            fields => {
                let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
                join(path, &format!("{{{}}}", names.join(",")))
            }
        };
        walk.members.push(Member {
            offset: unit.offset,
            size: unit.size,
            path,
            type_name,
        });
    }
}

/// Bit fields of one storage unit.
struct BitFields {
    /// Its first byte, and its bytes.
    offset: u64,
    size: u64,
    kind: EntryId,
    /// Their names and bits.
    fields: Vec<(String, u64)>,
}

/// `path.name`, with Rust's tuple fields as Rust writes them.
pub(super) fn join(path: &str, name: &str) -> String {
    let name = match name.strip_prefix("__") {
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => number,
        _ => name,
    };
    format!("{path}.{name}")
}

/// Where the member or base class `entry` starts in its struct; `None` if that is only known at
/// run time (virtual bases).
pub(super) fn member_offset(entry: &Entry<'_>) -> Option<u64> {
    match entry.value(gimli::DW_AT_data_member_location) {
        None => Some(0),
        Some(AttributeValue::Exprloc(expression)) => {
            let encoding = gimli::Encoding {
                address_size: 8,
                format: gimli::Format::Dwarf32,
                version: 4,
            };
            let mut operations = expression.operations(encoding);
            let offset = match operations.next().ok()?? {
                Operation::PlusConstant { value } | Operation::UnsignedConstant { value } => value,
                _ => return None,
            };
            match operations.next().ok()? {
                None | Some(Operation::Plus) => Some(offset),
                Some(_) => None,
            }
        }
        Some(value) => value.udata_value(),
    }
}

fn is_c(language: gimli::DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_C
            | gimli::DW_LANG_C89
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_C17
    )
}

fn keyword(tag: DwTag) -> Option<&'static str> {
    match tag {
        gimli::DW_TAG_structure_type => Some("struct"),
        gimli::DW_TAG_class_type => Some("class"),
        gimli::DW_TAG_union_type => Some("union"),
        gimli::DW_TAG_enumeration_type => Some("enum"),
        _ => None,
    }
}

/// The name of a type without its parameters and without what is around it: `atomic` of `std::atomic<db::State>`.
fn base_name(name: &str) -> &str {
    let base = name.split_once('<').map_or(name, |(base, _)| base);
    base.rsplit_once("::").map_or(base, |(_, base)| base)
}

/// Types that are shown whole: their insides are their library's business.
pub(super) fn is_opaque(name: &str) -> bool {
    let base = base_name(name);
    matches!(
        base,
        "atomic"
            | "__atomic_base"
            | "__atomic_float"
            | "atomic_flag"
            | "mutex"
            | "recursive_mutex"
            | "timed_mutex"
            | "shared_mutex"
            | "condition_variable"
            | "pthread_mutex_t"
            | "pthread_cond_t"
            | "pthread_rwlock_t"
            | "pthread_barrier_t"
            | "pthread_spinlock_t"
            | "sync.Mutex"
            | "sync.RWMutex"
            | "sync.WaitGroup"
    ) || base.starts_with("sync/atomic.")
        || base.strip_prefix("Atomic").is_some_and(|rest| {
            matches!(rest, "Bool" | "Ptr" | "Usize" | "Isize" | "")
                || rest
                    .strip_prefix(['I', 'U'])
                    .is_some_and(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()))
        })
}

/// Types that stand for the one thing in them: their members keep the path of the whole.
pub(super) fn is_wrapper(name: &str) -> bool {
    let base = base_name(name);
    name.contains('<')
        && matches!(
            base,
            "Cell"
                | "UnsafeCell"
                | "SyncUnsafeCell"
                | "CachePadded"
                | "CacheAligned"
                | "ManuallyDrop"
                | "MaybeUninit"
                | "MaybeDangling"
                | "Wrapping"
                | "Saturating"
                | "NonZero"
                | "NonNull"
                | "Unique"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualifiers_stand_once_and_where_they_belong() {
        for (inner, with) in [
            ("long", "volatile long"),
            ("volatile long[4]", "volatile long[4]"),
            ("const volatile long", "const volatile long"),
            ("volatile long*", "volatile long* volatile"),
            ("long* volatile[4]", "long* volatile[4]"),
            ("long*[4]", "long* volatile[4]"),
            ("set<char*, int[2]>", "volatile set<char*, int[2]>"),
        ] {
            assert_eq!(with_qualifier("volatile", inner.to_owned()), with);
        }
    }

    #[test]
    fn only_library_types_are_shown_whole() {
        for name in [
            "atomic<long int>",
            "std::atomic<db::State>",
            "std::mutex",
            "AtomicU64",
            "AtomicPtr<u8>",
            "Atomic<u64>",
            "AtomicBool",
        ] {
            assert!(is_opaque(name), "{name}");
        }
        for name in [
            "AtomicCounters",
            "AtomicUnion",
            "atomics",
            "atomic::counter",
            "counter",
            "Cell<u32>",
        ] {
            assert!(!is_opaque(name), "{name}");
        }
    }
}
