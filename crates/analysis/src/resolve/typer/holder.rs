//! What holds the pointer through which memory is reached.
//!
//! A number in an array has a type and no field: of a compressor nearly all accesses are to an `unsigned`
//! or a `char`. What tells its tables apart is the member or the variable that leads to them:
//!
//! ```text
//! mov rsi,[rdi+0x70]     rdi leads to a `State`, at 0x70 of which `hash_table` is
//! mov eax,[rsi+rax*4]    an `unsigned`, reached through `State.hash_table`
//! ```
//!
//! Elements of an array of pointers are reached through what leads to the array, and what a container
//! of a library holds through what leads to the container.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;

use super::super::dwarf::EntryId;
use super::layout::{Layouts, Part, Shape, TypeId};
use super::quick::Quick;

/// Holders that are told apart in one module, at most.
const MOST_HOLDERS: usize = 1 << 20;
/// Types nested deeper than this are cyclic or hostile.
const DEEPEST: u32 = 32;

/// What holds a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// `offset` bytes behind the start of a value of the type; for any element of an array of pointers the
    /// first.
    Member { kind: TypeId, offset: u64 },
    /// The static variable at this address.
    Static(u64),
    /// A local variable or a parameter: its entry.
    Local(EntryId),
    /// Whatever held it in the caller of the function.
    Argument(Argument),
}

/// A pointer that a function is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::resolve) struct Argument {
    /// Where the function begins.
    pub(super) function: u64,
    /// The register that has it there (DWARF number).
    pub(super) register: u16,
    /// The parameter's entry.
    pub(super) parameter: EntryId,
}

/// Which holder, as far as the code tells. What is known of it only grows where paths join:
///
/// ```text
/// not known  <  a local variable  <  an argument  <  a member or static variable  <  several of these
/// ```
///
/// A local variable comes so low because each is named before the code that filled it has been followed, and an
/// argument below members because it is where walks of lists and trees begin; of several members or arguments, the
/// variable that they are kept in is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Through(u32);

/// How much is known stands in the three highest bits, above the number of the holder and 1.
const RANK: u32 = 29;
const LOCAL: u32 = 1;
const ARGUMENT: u32 = 2;
const HELD: u32 = 3;
const SEVERAL: u32 = 4;

impl Through {
    /// None is known.
    pub(super) const UNKNOWN: Self = Self(0);

    /// Several that no one variable keeps.
    pub(super) const SEVERAL: Self = Self(SEVERAL << RANK);

    fn of(rank: u32, number: u32) -> Self {
        Self(rank << RANK | number)
    }

    fn rank(self) -> u32 {
        self.0 >> RANK
    }

    fn number(self) -> u32 {
        self.0 & ((1 << RANK) - 1)
    }

    /// What is known where paths join. Of two local variables it stays the one that came first, so that
    /// nothing is followed again for the other.
    pub(super) fn join(self, other: Self) -> Self {
        match self.rank().cmp(&other.rank()) {
            Ordering::Less => other,
            Ordering::Greater => self,
            Ordering::Equal if matches!(self.rank(), ARGUMENT | HELD) && self != other => {
                Self::SEVERAL
            }
            Ordering::Equal => self,
        }
    }

    /// Of the sum of two numbers, of which one may be a pointer.
    pub(super) fn of_sum(self, other: Self) -> Self {
        match (self, other) {
            (one, Self::UNKNOWN) | (Self::UNKNOWN, one) => one,
            _ => Self::UNKNOWN,
        }
    }

    /// Of a pointer that is kept in the variable `local`.
    pub(super) fn kept_in(self, local: Self) -> Self {
        if self == Self::UNKNOWN {
            local
        } else if self == Self::SEVERAL {
            Self::of(SEVERAL, local.number())
        } else {
            self
        }
    }
}

/// The holders of one module.
#[derive(Default)]
pub(super) struct Holders(RefCell<Numbered>);

#[derive(Default)]
struct Numbered {
    holders: Vec<Holder>,
    numbers: HashMap<Holder, u32, Quick>,
}

impl Holders {
    /// The number of `holder`.
    pub(super) fn number(&self, holder: Holder) -> Through {
        let Numbered { holders, numbers } = &mut *self.0.borrow_mut();
        let rank = match holder {
            Holder::Local(_) => LOCAL,
            Holder::Argument(_) => ARGUMENT,
            Holder::Member { .. } | Holder::Static(_) => HELD,
        };
        if let Some(number) = numbers.get(&holder) {
            return Through::of(rank, *number);
        }
        if holders.len() >= MOST_HOLDERS {
            return Through::UNKNOWN;
        }
        holders.push(holder);
        let number = holders.len() as u32;
        numbers.insert(holder, number);
        Through::of(rank, number)
    }

    /// The holder, or the variable that several are kept in; `None` if it is not known.
    pub(super) fn get(&self, through: Through) -> Option<Holder> {
        let index = (through.number() as usize).checked_sub(1)?;
        self.0.borrow().holders.get(index).copied()
    }
}

impl Layouts<'_, '_> {
    /// What holds a pointer that was loaded `offset` bytes behind the start of a value of type `kind`, `times` an
    /// unknown number behind that; `None` where that is no member, but an element of an array of
    /// pointers or a part of a container.
    pub(super) fn holder(&self, kind: EntryId, offset: u64, times: u64) -> Option<Holder> {
        let (kind, offset, _) = self.element(kind, offset, times);
        let layout = self.layout(kind);
        let member = matches!(layout.shape, Shape::Aggregate(_)) && !is_container(&layout.name);
        member.then(|| Holder::Member {
            kind: layout.id,
            // One loop runs through all of them, so that the code does not tell one element from another.
            offset: self.without_indices(kind, offset, 0),
        })
    }

    /// `offset` in type `kind`, but in the first element of each array.
    fn without_indices(&self, kind: EntryId, offset: u64, depth: u32) -> u64 {
        match &self.layout(kind).shape {
            _ if depth > DEEPEST => offset,
            Shape::Aggregate(parts) => {
                let holds =
                    |part: &&Part| offset >= part.offset && offset - part.offset < part.size;
                let mut parts = parts.iter().filter(holds);
                match (parts.next(), parts.next()) {
                    (Some(part), None) => {
                        let within = offset - part.offset;
                        part.offset + self.without_indices(part.kind, within, depth + 1)
                    }
                    _ => offset,
                }
            }
            Shape::Array { element, .. } => match self.layout(*element).size {
                0 => offset,
                size => self.without_indices(*element, offset % size, depth + 1),
            },
            _ => offset,
        }
    }

    /// How a member of `size` bytes is written: `State.hash_table`, `Blocks.rows[]`; a union as a whole.
    pub(super) fn member_path(&self, kind: TypeId, offset: u64, size: u64) -> Option<String> {
        let leaves = self.leaves(kind.0, offset, size, 0);
        let mut paths = leaves.iter().map(|leaf| outside_of_containers(&leaf.path));
        let first = paths.next()?;
        let path = paths.fold(first, common_part);
        let layout = self.layout(kind.0);
        let name = ["struct ", "union "]
            .iter()
            .find_map(|word| layout.name.strip_prefix(word))
            .unwrap_or(&layout.name);
        let path = path.replace("[0]", "[]");
        (!path.is_empty() && !name.is_empty()).then(|| format!("{name}.{path}"))
    }
}

/// Whether a type is a container of a language's library, or a part of one.
fn is_container(name: &str) -> bool {
    let base = name.split_once('<').map_or(name, |(base, _)| base);
    base.starts_with("_Vector_")
        || matches!(
            base,
            "Vec"
                | "RawVec"
                | "RawVecInner"
                | "Box"
                | "NonNull"
                | "Unique"
                | "vector"
                | "unique_ptr"
                | "basic_string"
                | "_Alloc_hider"
                | "__uniq_ptr_impl"
                | "_Head_base"
        )
}

/// `path` up to the insides of a container: names that C++ reserves for its library, and the parts of a
/// `Vec` or a slice of Rust.
fn outside_of_containers(path: &str) -> &str {
    let path = path.trim_start_matches('.');
    let reserved = |part: &str| part.starts_with("_M_") || part.starts_with("__");
    let mut end = 0;
    for part in path.split('.') {
        if reserved(part) {
            break;
        }
        end += part.len() + 1;
    }
    let path = path.get(..end.saturating_sub(1)).unwrap_or(path);
    [".buf.inner.ptr", ".buf.ptr", ".data_ptr"]
        .iter()
        .find_map(|inside| path.strip_suffix(inside))
        .unwrap_or(path)
}

/// What two paths have in common, in whole names.
fn common_part<'p>(one: &'p str, other: &str) -> &'p str {
    let mut end = 0;
    for (name, same) in one.split('.').zip(other.split('.')) {
        if name != same {
            break;
        }
        end += name.len() + 1;
    }
    one.get(..end.saturating_sub(1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_paths_have_in_common_is_whole_names() {
        assert_eq!(common_part("value.gc", "value.gcd"), "value");
        assert_eq!(common_part("value", "value"), "value");
        assert_eq!(common_part("a.b.c", "a.b"), "a.b");
        assert_eq!(common_part("whole", "half"), "");
    }

    #[test]
    fn a_path_ends_where_a_container_begins() {
        for (path, outside) in [
            (".table", "table"),
            (".solver.vals._M_impl._M_start", "solver.vals"),
            ("._M_impl._M_start", ""),
            (".rows[].buf.inner.ptr", "rows[]"),
            (".text.data_ptr", "text"),
            ("", ""),
        ] {
            assert_eq!(outside_of_containers(path), outside, "{path}");
        }
    }

    #[test]
    fn a_member_outdoes_a_variable_and_several_are_told_by_the_variable_that_keeps_them() {
        let holders = Holders::default();
        let member = |offset| {
            let kind = TypeId(EntryId { unit: 0, offset: 8 });
            holders.number(Holder::Member { kind, offset })
        };
        let local = |offset| holders.number(Holder::Local(EntryId { unit: 0, offset }));
        let (pointer, first, second) = (local(16), member(0), member(8));
        assert_eq!(Through::UNKNOWN.join(pointer), pointer);
        assert_eq!(pointer.join(first), first);
        assert_eq!(first.join(pointer), first);
        assert_eq!(first.kept_in(pointer), first);
        let several = first.join(second);
        assert_eq!(holders.get(several), None);
        let kept = several.kept_in(pointer);
        assert_eq!(holders.get(kept), holders.get(pointer));
        // Whatever joins it later: no single member again.
        assert_eq!(kept.join(first), kept);
        assert_eq!(kept.join(pointer), kept);
        assert_eq!(
            holders.number(Holder::Static(8)),
            holders.number(Holder::Static(8))
        );
    }
}
