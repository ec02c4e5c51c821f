//! Paths to what is touched, as debug info names it: `rings[3].slots[1]`.

use super::locks::without_libc;
use super::parts::OnLine;
use crate::model::{LineField, LineRow};

/// What the dearest access to a part touches, as far as the program names it, where it does at all.
pub(super) fn path_of(part: &OnLine<'_>, lines: &[LineRow]) -> String {
    let path = whole_path(part, lines);
    match without_libc(&path) {
        "" => path,
        own => own.to_owned(),
    }
}

/// The same to its end: as the line's fields tell, which know one object on it from another, and as far as the access does,
/// which knows the members of a field; else as the access does alone.
fn whole_path(part: &OnLine<'_>, lines: &[LineRow]) -> String {
    let named = part.fields.first().copied().unwrap_or_default();
    match field_of(part, lines) {
        Some(field) if !named.is_empty() => {
            let within = named.strip_prefix(of_element(&field.path));
            let within = within.filter(|rest| rest.starts_with(['.', '[']));
            format!("{}{}", field.path, within.unwrap_or_default())
        }
        _ => named.to_owned(),
    }
}

/// The field on the line that the dearest access to a part touches.
pub(super) fn field_of<'l>(part: &OnLine<'_>, lines: &'l [LineRow]) -> Option<&'l LineField> {
    let line = lines.iter().find(|line| line.address == part.line)?;
    let holds = |it: &&LineField| part.at.wrapping_sub(it.offset) < it.size;
    line.fields.iter().find(holds)
}

/// Whether one value holds both: then there are no two of which each thread could have its own.
pub(super) fn in_one_value(ends: [&OnLine<'_>; 2], lines: &[LineRow]) -> bool {
    let [first, second] = ends.map(|end| field_of(end, lines));
    matches!((first, second), (Some(a), Some(b)) if std::ptr::eq(a, b))
}

/// A path without the element of an array that it begins with: `sent` of `[3].sent`.
fn of_element(path: &str) -> &str {
    let rest = path.strip_prefix('[').and_then(|it| it.split_once("]."));
    rest.map_or(path, |(_, rest)| rest)
}

/// What to call a field: one that has a number only, as those of a tuple in Rust (`__0` in debug info), with its type.
pub(super) fn told(field: &str, type_name: &str) -> String {
    let number = field.strip_prefix("__").unwrap_or(field);
    match number.starts_with(|c: char| c.is_ascii_digit()) && !type_name.is_empty() {
        true => format!("{type_name}.{number}"),
        false => field.to_owned(),
    }
}

/// The array whose elements the fields are, if they all are of one: `counters[0].hits` and
/// `counters[1].hits` give `counters`.
pub(super) fn common_array<'a>(fields: &[&'a str]) -> Option<&'a str> {
    let base = |field: &'a str| field.split_once('[').map(|(base, _)| base);
    let first = base(fields.first()?)?;
    fields
        .iter()
        .all(|field| base(field) == Some(first))
        .then_some(first)
}

/// Where two paths part: at an element of an array, which is named with `[]` for those that it is in, or at a member.
#[derive(Debug, PartialEq)]
pub(super) enum Parting<'a> {
    /// `counters[0].hits` and `counters[1].hits`, of which the rest is `.hits`.
    Elements {
        array: String,
        rest: &'a str,
    },
    Members,
}

/// `in_one_value`: both are within one value, so that the same elements, of which the index is not known, are different ones.
pub(super) fn parting<'a>(first: &str, second: &'a str, in_one_value: bool) -> Parting<'a> {
    let unknown = second.rsplit_once("[]");
    if let Some((array, rest)) = unknown.filter(|_| in_one_value && first == second) {
        return Parting::Elements {
            array: every_element(array),
            rest,
        };
    }
    let same = (first.bytes().zip(second.bytes()))
        .take_while(|(a, b)| a == b)
        .count();
    // An index is compared as a whole.
    let open = second.get(..same).and_then(|common| common.rfind('['));
    let Some(open) = open.filter(|&at| !second[at..same].contains(']')) else {
        return Parting::Members;
    };
    let rest = second[open..].split_once(']').map_or("", |(_, rest)| rest);
    Parting::Elements {
        array: every_element(&second[..open]),
        rest,
    }
}

/// A path with every element of an array that it goes through: `rings[].slots` of `rings[3].slots`, `rows` of `rows[3]`.
pub(super) fn every_element(path: &str) -> String {
    let parts: Vec<&str> = path
        .split('[')
        .enumerate()
        .map(|(i, part)| match (i, part.split_once(']')) {
            (0, _) | (_, None) => part,
            (_, Some((_, rest))) => rest,
        })
        .collect();
    // Which of a block's objects it is in, is not what a member is called.
    let every = parts.join("[]");
    let every = every.strip_prefix("[].").unwrap_or(&every);
    every.trim_end_matches("[]").to_owned()
}

/// Their names as the subject of a sentence, of the elements of an array only the array's.
pub(super) fn each_of(fields: &[&str]) -> String {
    const NAMED: usize = 3;
    let mut names: Vec<String> = Vec::new();
    for field in fields {
        let name = match (field.split_once('['), fields.len()) {
            (Some((array, _)), 2..) => format!("`{array}[]`"),
            _ => format!("`{field}`"),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        few if few.len() <= NAMED => format!("Each of {}", listed(few)),
        many => format!("Each of {} and others", many[..NAMED].join(", ")),
    }
}

/// `` `a`, `b` and `c` `` of names in backticks.
pub(super) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [some @ .., last] => format!("{} and {last}", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_one_array_are_recognised() {
        assert_eq!(common_array(&["c[0].hits", "c[1].hits"]), Some("c"));
        assert_eq!(common_array(&["c[0].hits", "d[1].hits"]), None);
        assert_eq!(common_array(&["head", "tail"]), None);
        assert_eq!(common_array(&[]), None);
    }

    #[test]
    fn paths_part_at_elements_or_at_members() {
        let of = |first: &str, second: &str| match parting(first, second, true) {
            Parting::Elements { array, rest } => format!("{array}|{rest}"),
            Parting::Members => String::new(),
        };
        assert_eq!(of("c[1].hits", "c[12].hits"), "c|.hits");
        assert_eq!(of("rows[5][0]", "rows[5][1]"), "rows|");
        assert_eq!(of("[0].y", "[1].n"), "|.n");
        assert_eq!(of("c[0].hits", "d[0].hits"), "");
        assert_eq!(of("head", "tail"), "");
        assert_eq!(of("sums[].n", "sums[].n"), "sums|.n");
    }

    #[test]
    fn fields_of_tuples_are_told_with_their_type() {
        assert_eq!(told("0", "shop::Pair"), "shop::Pair.0");
        assert_eq!(told("__1", "shop::Pair"), "shop::Pair.1");
        assert_eq!([told("key", "shop::Pair"), told("0", "")], ["key", "0"]);
    }

    #[test]
    fn several_fields_are_the_subject_of_a_sentence() {
        let slots = ["slots[1]", "slots[7]", "tail", "head", "count"];
        let said = "Each of `slots[]`, `tail`, `head` and others";
        assert_eq!(each_of(&slots), said);
    }
}
