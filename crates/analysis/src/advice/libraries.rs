//! What to change where a type of a library is in the way: nobody edits the node of `std::map`. What the program can change is what the
//! type holds, where a value of it lies, and how it is used.

use linewise_recording::ObjectKind;

use super::parts::OnLine;
use super::paths::{Parting, every_element, field_of, in_one_value, parting, path_of};
use super::proposal::{Change, is_builtin};
use crate::model::{LineField, LineRow, ObjectRow};
use crate::own_code::is_named_in_library;

/// How two parts of one line come to lines of their own where the type of the object is a library's; `None` where it is the
/// program's own, or what is to be moved is a member of a type of the program's in it. `source` is a type that is aligned.
pub(super) fn separate(
    object: &ObjectRow,
    lines: &[LineRow],
    ends: [&OnLine<'_>; 2],
    source: String,
) -> Option<Change> {
    let (kind, owner) = (&object.accessed_type, &object.type_owner);
    if owner.is_empty() || kind.is_empty() || object.kind == ObjectKind::Static {
        return None;
    }
    let bytes = lines.first().map_or(64, |line| line.size);
    let held = Held::of(kind);
    let fields = ends.map(|end| field_of(end, lines));
    let paths = ends.map(|end| path_of(end, lines));
    let [first, second] = paths.each_ref().map(String::as_str);
    let apart = matches!(
        parting(first, second, in_one_value(ends, lines)),
        Parting::Elements { .. }
    );
    let [one, other] = fields.map(|it| held.is_in(it));
    let begin = format!("`{kind}` is of {owner} and not to be changed");
    let pad = bytes * 2;
    let aligned = format!("{bytes} bytes ({pad} where the CPU prefetches lines in pairs)");
    if apart || one || other {
        let is_named =
            |field: Option<&LineField>, path: &str| field.is_some_and(|it| it.path != path);
        if !apart && one && other && is_named(fields[0], first) && is_named(fields[1], second) {
            return None;
        }
        let what = match (held.own, held.values.is_empty()) {
            (Some(own), _) => format!("Align what it holds, `{own}`, to {aligned}"),
            (None, false) => format!("Put what it holds into a type that is aligned to {aligned}"),
            (None, true) => format!("Put each into a type that is aligned to {aligned}"),
        };
        let text = match apart {
            true => format!(
                "Different threads use different values that lie on one line. {begin}: {what}, or let each thread have a container of its own."
            ),
            false => format!(
                "What it holds lies on one line with members that other threads use. {begin}: {what}."
            ),
        };
        return Some(Change { text, source });
    }
    let names = [first, second].map(every_element);
    let members = match &names {
        [a, b] if a != b && !a.is_empty() && !b.is_empty() => format!("`{a}` and `{b}`"),
        _ => "Its members".to_owned(),
    };
    Some(Change {
        text: format!(
            "{members}, which different threads use, lie on one line. {begin}. Let threads use it less: each a value of its own, or one that a thread keeps instead of taking and giving it back every time (of a counted pointer a copy for each thread, and references to that)."
        ),
        source: String::new(),
    })
}

/// Whether a part lies in what the type of the object holds, or the type is the program's own: then its members are to be edited.
/// Beside a variable on its line may lie one of a language's library.
pub(super) fn is_editable(object: &ObjectRow, lines: &[LineRow], part: &OnLine<'_>) -> bool {
    let field = field_of(part, lines);
    let is_of_library = field.is_some_and(|it| is_named_in_library(&it.path));
    match object.kind {
        ObjectKind::Static => !is_of_library,
        _ => object.type_owner.is_empty() || Held::of(&object.accessed_type).is_in(field),
    }
}

/// What a type holds by its parameters.
struct Held<'a> {
    /// Those that are types, and no allocators.
    values: Vec<&'a str>,
    /// The first of the program's own, however deep.
    own: Option<&'a str>,
}

impl<'a> Held<'a> {
    fn of(kind: &'a str) -> Self {
        // What lies in the library's own namespace is of it, too.
        let root = kind.split(['<', ':']).next().unwrap_or_default();
        let mut values = parameters(kind);
        values.retain(|value| is_value(value));
        let own = values.iter().find_map(|value| own_in(value, root));
        Self { values, own }
    }

    /// Whether a member is what is held, or has it in it.
    fn is_in(&self, field: Option<&LineField>) -> bool {
        field.is_some_and(|it| {
            let kind = without_paths(&it.type_name);
            let mut values = self.values.iter().map(|it| without_paths(it));
            values.any(|value| kind.contains(&value))
        })
    }
}

/// A type without the modules that it lies in, of which Rust's debug info tells now and then: `Pair<A>` of `app::Pair<app::A>`.
fn without_paths(kind: &str) -> String {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
    let names = kind.split_inclusive(|c: char| !is_name(c));
    names
        .map(|name| name.rsplit("::").next().unwrap_or(name))
        .collect()
}

/// Whether a parameter is a type whose values are held: no number, and no allocator.
fn is_value(parameter: &str) -> bool {
    let is_number = parameter
        .trim_start_matches(['-', '('])
        .starts_with(|c: char| c.is_ascii_digit());
    let is_word = matches!(parameter, "true" | "false" | "");
    let name = parameter
        .split('<')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    !is_number && !is_word && !name.contains("alloc")
}

/// The first type in `kind`, itself or a parameter, that is neither built in nor of a library; `root` is a namespace of one.
fn own_in<'a>(kind: &'a str, root: &str) -> Option<&'a str> {
    let kind = ["const ", "struct ", "class ", "enum ", "union "]
        .iter()
        .fold(kind, |kind, word| kind.strip_prefix(word).unwrap_or(kind));
    let plain = kind.split('<').next().unwrap_or_default();
    let in_root = plain
        .split_once("::")
        .is_some_and(|(first, _)| first == root);
    if is_named_in_library(plain) || in_root {
        let mut held = parameters(kind).into_iter().filter(|it| is_value(it));
        return held.find_map(|it| own_in(it, root));
    }
    let is_name = plain
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | ':'));
    let is_own = is_name && !plain.is_empty() && !is_builtin(plain);
    is_own.then_some(kind)
}

/// The outermost parameters of a type: `int` and `S<long>` of `T<int, S<long>>`.
fn parameters(kind: &str) -> Vec<&str> {
    let inside = kind
        .split_once('<')
        .and_then(|(_, rest)| rest.strip_suffix('>'));
    let Some(inside) = inside else {
        return Vec::new();
    };
    let mut depth = 0_u32;
    let at_comma = |c: char| {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    inside.split(at_comma).map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_told_from_the_library_around_it() {
        let own = |kind| Held::of(kind).own;
        for (kind, held) in [
            (
                "std::_Rb_tree_node<std::pair<const int, Stats>>",
                Some("Stats"),
            ),
            (
                "std::__detail::_Hash_node<std::pair<const std::string, app::Foo<int>>, true>",
                Some("app::Foo<int>"),
            ),
            (
                "std::_Sp_counted_ptr_inplace<Widget, std::allocator<Widget>, (__gnu_cxx::_Lock_policy)2>",
                Some("Widget"),
            ),
            (
                "alloc::sync::ArcInner<app::Counters>",
                Some("app::Counters"),
            ),
            ("boost::container::node<boost::pair<int, long>>", None),
            ("std::_Rb_tree_node<std::pair<const int, long int>>", None),
            (
                "alloc::sync::ArcInner<core::sync::atomic::Atomic<u64>>",
                None,
            ),
            ("pthread_mutex_t", None),
        ] {
            assert_eq!(own(kind), held, "{kind}");
        }
        let values = Held::of("std::_Sp_counted_ptr_inplace<long, std::allocator<void>, 2>").values;
        assert_eq!(values, ["long"]);
    }
}
