//! What a heap block holds where most code that touches it knows only a part: a lock in an object is touched by a
//! library that knows nothing of the object.

use std::collections::{BTreeMap, BTreeSet};

use linewise_recording::{TypeMember, TypedAccess};

/// A type that a single access names, of which this is a smaller share, may be named in error, but where it is as large
/// as the block.
const LEAST_NAMED: f64 = 0.02;
/// Of the accesses that name the whole so many have to find it where it would lie in the block.
const LEAST_PLACED: f64 = 0.9;
/// And of all so many must lie in it.
const LEAST_HELD: f64 = 0.75;
/// Members in members that a path goes through, at most; broken debug info may put a type into itself.
const DEEPEST: usize = 8;

/// An access to a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// What the instruction says.
    pub(super) row: &'a TypedAccess,
    /// Distance from the first byte of the block.
    pub(super) within: u64,
    /// Bytes of the block.
    pub(super) block: u64,
}

impl Seen<'_> {
    /// Where the value that it names begins, from the first byte of the block; `None` where that depends on an index.
    fn start(&self) -> Option<i128> {
        let known = !self.row.path.contains("[]");
        known.then(|| i128::from(self.within) - i128::from(self.row.offset))
    }

    /// Whether that begins where one of the values does that fill the block, each of `size` bytes.
    fn fills(&self, size: u64) -> bool {
        let begins = |start: i128| start.rem_euclid(i128::from(size)) == 0;
        self.block.is_multiple_of(size) && self.start().is_none_or(begins)
    }

    /// Whether the value that it names lies in one of those.
    fn lies_in(&self, size: u64) -> bool {
        let of = |at: i128| at.div_euclid(i128::from(size));
        let end = |start: i128| start + i128::from(self.row.type_size.max(1)) - 1;
        let inside = |start: i128| of(start) == of(end(start));
        self.block.is_multiple_of(size) && self.start().is_none_or(inside)
    }
}

/// The members of types, by name and size.
pub(super) type Members<'m, 'a> = dyn Fn(&str, u64) -> &'m [&'a TypeMember] + 'm;

/// A type that fills blocks, once or as an array, and those of its parts that code touches without knowing it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Whole<'a> {
    /// An access that names it.
    pub(super) row: &'a TypedAccess,
    parts: BTreeSet<&'a str>,
    /// Types of which members are told.
    open: BTreeSet<&'a str>,
}

impl<'a> Whole<'a> {
    /// The largest type of those that the accesses to blocks of one allocation site name which fills them, and has in
    /// it what the others name.
    pub(super) fn find(seen: &[Seen<'a>], members: impl Fn(&TypedAccess) -> bool) -> Option<Self> {
        let all = seen.len() as f64;
        let mut candidates: BTreeMap<(u64, &str), &'a TypedAccess> = BTreeMap::new();
        for it in seen
            .iter()
            .filter(|it| it.row.type_size > 0 && members(it.row))
        {
            candidates.insert((it.row.type_size, &it.row.type_name), it.row);
        }
        let count = |which: &dyn Fn(&Seen<'a>) -> bool| -> f64 {
            seen.iter().filter(|it| which(it)).count() as f64
        };
        let mut largest = candidates.into_iter().rev();
        largest.find_map(|((size, name), row)| {
            let names_it = |it: &Seen<'a>| it.row.type_name == name && it.row.type_size == size;
            let named = count(&names_it);
            let placed = count(&|it| names_it(it) && it.fills(size));
            let part =
                |it: &Seen<'a>| (it.row.type_size < size || !members(it.row)) && it.lies_in(size);
            let held = count(&|it| names_it(it) || part(it));
            let sure = named > 1.0 || seen.iter().all(|it| it.block == size);
            let fits = (sure || named >= LEAST_NAMED * all)
                && placed >= LEAST_PLACED * named
                && held >= LEAST_HELD * all;
            fits.then(|| Self {
                row,
                parts: seen
                    .iter()
                    .filter(|it| !names_it(it) && part(it))
                    .map(|it| it.row.type_name.as_str())
                    .collect(),
                open: seen
                    .iter()
                    .filter(|it| !it.row.path.is_empty())
                    .map(|it| it.row.type_name.as_str())
                    .collect(),
            })
        })
    }

    /// Whether a type of this name is one that was found in it.
    pub(super) fn has_part(&self, name: &str) -> bool {
        self.parts.contains(name)
    }

    /// The member that an access which says `row` touches at a distance from the first byte of a block: `bid.lock`;
    /// empty if there is none.
    pub(super) fn path(&self, within: u64, row: &TypedAccess, members: &Members<'_, 'a>) -> String {
        if row.type_name == self.row.type_name {
            return row.path.clone();
        }
        let mut names: Vec<String> = Vec::new();
        let (mut kind, mut size) = (self.row.type_name.as_str(), self.row.type_size.max(1));
        let mut at = within % size;
        for _ in 0..DEEPEST {
            let holds = |it: &&&TypeMember| at.wrapping_sub(it.offset) < it.size;
            let Some(member) = members(kind, size).iter().find(holds) else {
                break;
            };
            // Which element of an array it is, is not what a member is called.
            let element = member.member_type.ends_with(']');
            names.push(match element {
                true => format!("{}[]", member.name),
                false => member.name.clone(),
            });
            if element || member.member_type == row.type_name {
                names.push(row.path.clone());
                break;
            }
            if !self.open.contains(member.member_type.as_str()) {
                break;
            }
            at -= member.offset;
            (kind, size) = (&member.member_type, member.size);
        }
        // Base classes and unnamed structs have no name.
        names.retain(|name| !name.is_empty());
        names.join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::sampled_rows;

    fn row(name: &str, size: u64, offset: u64, path: &str) -> TypedAccess {
        TypedAccess {
            type_size: size,
            offset,
            path: path.into(),
            ..sampled_rows::typed(0x10, name)
        }
    }

    fn has_members(row: &TypedAccess) -> bool {
        row.type_name.starts_with("struct")
    }

    /// `(access, distance in the block, how often)`, all of blocks of so many bytes.
    fn found(block: u64, accesses: &[(TypedAccess, u64, usize)]) -> Option<(String, Vec<String>)> {
        let seen: Vec<Seen<'_>> = accesses
            .iter()
            .flat_map(|(row, within, times)| {
                let within = *within;
                std::iter::repeat_n(Seen { row, within, block }, *times)
            })
            .collect();
        let whole = Whole::find(&seen, has_members)?;
        let parts = whole.parts.iter().map(|&it| it.to_owned()).collect();
        Some((whole.row.type_name.clone(), parts))
    }

    #[test]
    fn an_object_is_told_by_those_who_know_all_of_it() {
        let accesses = [
            (row("struct mutex", 40, 8, ""), 8, 50),
            (row("struct mutex", 40, 8, ""), 64, 30),
            (row("int", 4, 0, ""), 56, 10),
            (row("struct side", 56, 40, "root"), 96, 7),
            (row("struct book", 120, 112, "stats"), 112, 3),
        ];
        let parts = ["int", "struct mutex", "struct side"].map(str::to_owned);
        let book = ("struct book".to_owned(), parts.to_vec());
        assert_eq!(found(120, &accesses), Some(book.clone()));
        // Two of them.
        assert_eq!(found(240, &accesses), Some(book));
        // Blocks that it does not fill; then the side, which does not begin at their first byte, is none either.
        assert_eq!(found(128, &accesses), None);
        // Somewhere else than its member lies.
        let mut moved = accesses.clone();
        moved[4].1 = 104;
        assert_eq!(found(120, &moved), None);
        // Hardly named, and once.
        let mut rare = accesses.clone();
        rare[4].2 = 1;
        assert_eq!(found(240, &rare), None);
        assert!(found(120, &rare).is_some());
        let twice: Vec<_> = rare.iter().chain(&rare[4..]).cloned().collect();
        assert!(found(240, &twice).is_some());
    }

    #[test]
    fn types_of_which_none_holds_the_others_are_no_whole() {
        // Blocks that hold now the one and now the other.
        let accesses = [
            (row("struct node", 48, 8, "key"), 8, 6),
            (row("struct leaf", 48, 16, "value"), 16, 5),
        ];
        assert_eq!(found(48, &accesses), None);
        // A value across two elements lies in neither.
        let accesses = [
            (row("struct node", 48, 8, "key"), 8, 6),
            (row("struct wide", 40, 0, "a"), 40, 5),
        ];
        assert_eq!(found(96, &accesses), None);
    }

    #[test]
    fn paths_lead_through_the_members_to_types_that_are_shown_whole() {
        let member = |offset, size, name: &str, kind: &str| TypeMember {
            type_name: String::new(),
            type_size: 0,
            declared_at: String::new(),
            offset,
            size,
            alignment: 8,
            bits: 0,
            name: name.into(),
            member_type: kind.into(),
            language: String::new(),
        };
        let book = [
            member(0, 56, "bid", "struct side"),
            member(56, 56, "ask", "struct side"),
            member(112, 8, "stats", "struct stats*"),
            member(120, 112, "more", "struct side[2]"),
        ];
        let side = [
            member(0, 40, "lock", "struct mutex"),
            member(40, 8, "root", "struct level*"),
        ];
        let mutex = [member(0, 4, "word", "int")];
        let [book, side, mutex] =
            [&book[..], &side, &mutex].map(|it| it.iter().collect::<Vec<_>>());
        let members: &Members<'_, '_> = &|name, _| match name {
            "struct book" => book.as_slice(),
            "struct side" => &side,
            "struct mutex" => &mutex,
            _ => &[],
        };
        let rows = [
            row("struct book", 232, 112, "stats"),
            row("struct side", 56, 40, "root"),
            row("struct mutex", 40, 8, ""),
            row("int", 4, 0, ""),
        ];
        let places = [112, 40, 56, 68];
        let seen: Vec<Seen<'_>> = rows
            .iter()
            .zip(places)
            .map(|(row, within)| Seen {
                row,
                within,
                block: 464,
            })
            .collect();
        let whole = Whole::find(&seen, has_members).unwrap();
        let path = |of: usize, within| whole.path(within, &rows[of], members);
        assert_eq!(path(2, 0), "bid.lock");
        assert_eq!(path(1, 96), "ask.root");
        assert_eq!(path(0, 232 + 112), "stats");
        // What only knows that it touches four bytes of it.
        assert_eq!(path(3, 56 + 12), "ask.lock");
        assert_eq!([path(1, 160), path(2, 176)], ["more[].root", "more[]"]);
        assert!(whole.has_part("struct mutex") && !whole.has_part("struct book"));
    }
}
