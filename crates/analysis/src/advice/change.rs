//! What to change: a sentence or two, and source to paste where the language is known.

use linewise_recording::ObjectKind;

use super::libraries;
use super::managed;
use super::parts::{OnLine, Part, also_in_the_way, dearest_in_the_way, parts};
use super::paths::{Parting, every_element, in_one_value, listed, parting, path_of, told};
use super::proposal::{Change, Language, is_builtin, language};
use super::share_less::{Shared, share_less};
use crate::model::{AccessRow, FindingKind, Interval, LineField, LineRow, ObjectRow};
use crate::views::types::{declaration, padded_field};

/// What is in each other's way on one line.
struct Near<'b, 'a> {
    /// Those that cost most; what lies before the other first.
    ends: [&'b OnLine<'a>; 2],
    /// What else is in their way there.
    others: Vec<&'b OnLine<'a>>,
}

/// Proposes a change for a finding. `beside` are accesses to its object on lines that nobody waits for.
pub(crate) fn propose(
    false_share: Interval,
    object: &ObjectRow,
    lines: &[LineRow],
    accesses: &[AccessRow],
    beside: &[AccessRow],
) -> Change {
    let language = language(accesses);
    let parts = parts(accesses);
    let near = dearest_in_the_way(&parts).map(|ends| Near {
        ends,
        others: also_in_the_way(&parts, ends),
    });
    let kind = FindingKind::of(false_share);
    let near = near.filter(|it| kind == FindingKind::FalseSharing || !Part::guards(it.ends));
    // What lies on one line belongs together there: to part the words of a lock helps nobody.
    let is_one_lock = matches!(parts.as_slice(), [lock] if lock.is_lock());
    let false_share = match is_one_lock {
        true => Interval::exactly(0.0),
        false => false_share,
    };
    let shared = Shared {
        language,
        object,
        lines,
        accesses,
        beside,
        false_share,
    };
    match (kind, &near) {
        (FindingKind::TrueSharing, Some(near)) if false_share.high >= PART_FALSE => {
            let mut change = share_less(shared);
            let apart = separate(language, object, lines, Some(near)).text;
            if apart.starts_with("Move `") {
                change.text.push_str(" Beside that: ");
                change.text.push_str(&apart);
            }
            change
        }
        (FindingKind::TrueSharing, _) | (FindingKind::Sharing, None) => share_less(shared),
        (FindingKind::FalseSharing, None) if is_one_lock => share_less(shared),
        (FindingKind::FalseSharing, Some(_)) => separate(language, object, lines, near.as_ref()),
        // What it helps is not known, or which parts there are: so there is nothing to paste.
        (FindingKind::Sharing, Some(near)) => Change {
            text: format!(
                "{} {MAY_HARM}",
                separate(language, object, lines, Some(near)).text
            ),
            source: String::new(),
        },
        (FindingKind::FalseSharing, None) => Change {
            source: String::new(),
            ..separate(language, object, lines, None)
        },
    }
}

/// Where so much of true sharing may be false, what is in the way of the others is to be moved, too.
const PART_FALSE: f64 = 0.1;
/// An array of so many bytes is not taken apart element by element.
const LONG_ARRAY: u64 = 4096;
/// Where it is open whether threads use the same words in one visit.
const MAY_HARM: &str = "Try that, and measure: whether it helps is not known here, and where threads use both in one visit it makes them wait twice.";
/// What is said of a block of `malloc`.
const ALLOCATED_ALIGNED: &str = " Allocate it aligned, too (`aligned_alloc`; `new` of such a type does so since C++17): `malloc` and `calloc` align to 16 bytes only.";
/// What is said of one.
const PARTED: &str = "Let each thread use a part of";
/// What is said of a shorter one.
const ELEMENTS: &str = "Give each element of";

/// Whether what is to be changed lies within an array that is itself a member of the object's type, or is how an array is
/// used: a layout moves members, and so parts no elements.
pub(crate) fn is_of_elements(change: &str, object: &ObjectRow) -> bool {
    let named = change.strip_prefix(ELEMENTS).map(str::trim_start);
    let array = named.and_then(|it| it.strip_prefix('`')?.split('`').next());
    let is_member = |array: &str| {
        let mut arrays = (object.field.split(", ")).filter_map(|path| path.rsplit_once('['));
        arrays.any(|(member, _)| {
            let before = array.strip_suffix(&every_element(member));
            before.is_some_and(|it| it.is_empty() || it.ends_with('.'))
        })
    };
    change.starts_with(PARTED) || array.is_some_and(is_member)
}

/// How two parts of one line come to lines of their own.
fn separate(
    language: Language,
    object: &ObjectRow,
    lines: &[LineRow],
    near: Option<&Near<'_, '_>>,
) -> Change {
    let ends = near.map(|near| near.ends);
    let parts = ends.map_or_else(Default::default, |ends| ends.map(|end| path_of(end, lines)));
    let parts = parts.each_ref().map(String::as_str);
    let bytes = lines.first().map_or(64, |line| line.size);
    if let Some(change) = managed::separate(language, &of_named(object), bytes) {
        return change;
    }
    let aligned = || aligned_type(language, bytes);
    if let Some(ends) = ends
        && let Some(change) = libraries::separate(object, lines, ends, aligned())
    {
        return change;
    }
    let pad = bytes.max(64) * 2;
    // Go aligns nothing to a line.
    let align = |kind: &str| match language {
        Language::Go => format!("Put {bytes} bytes of padding at the end of the {kind}"),
        _ => format!("Align the {kind} to {bytes} bytes"),
    };
    let allocate = match (object.kind, language) {
        (ObjectKind::Heap, Language::C | Language::Cpp) => ALLOCATED_ALIGNED,
        _ => "",
    };
    let elements = |begin: &str, each: &str, kind: &str| {
        format!(
            "{begin} lines of its own: different threads use different {each}, which lie on one line. {} ({pad} where the CPU prefetches lines in pairs), or keep each thread's values on its own stack and add them up at the end.{allocate}",
            align(kind)
        )
    };
    let [first, second] = parts;
    let in_one_value = ends.is_some_and(|ends| in_one_value(ends, lines));
    let of_type = |source| Change {
        text: elements(
            &format!("Give each `{}`", object.accessed_type),
            "ones",
            "type",
        ),
        source,
    };
    match parting(first, second, in_one_value) {
        Parting::Elements { array, .. } if !array.is_empty() && object.size >= LONG_ARRAY => {
            // A line for each element makes of a long array one that fits no cache.
            return Change {
                text: format!(
                    "{PARTED} `{array}` in one piece, that begins on a line of its own: now different threads use elements that lie on one line."
                ),
                source: String::new(),
            };
        }
        Parting::Elements { array, rest } if !array.is_empty() => {
            return Change {
                text: elements(&format!("{ELEMENTS} `{array}`"), "elements", "element type"),
                source: aligned_element(language, rest, bytes),
            };
        }
        Parting::Elements { rest, .. } if !object.accessed_type.is_empty() => {
            return of_type(aligned_element(language, rest, bytes));
        }
        _ if first == second
            && !first.is_empty()
            && !object.accessed_type.is_empty()
            && !in_one_value =>
        {
            return of_type(aligned_type(language, bytes));
        }
        _ => {}
    }
    if let Some(change) = near.and_then(|near| separate_several(language, object, lines, near)) {
        return change;
    }
    let parts = [first, second];
    if let Some(change) = ends.and_then(|ends| move_apart(language, object, lines, ends, parts)) {
        return change;
    }
    if let Some(text) = separate_numbers(object, bytes, allocate).filter(|_| first.is_empty()) {
        return Change {
            text,
            source: String::new(),
        };
    }
    Change {
        text: separate_bytes(language, object, lines, ends),
        source: aligned_type(language, bytes),
    }
}

/// How two members, whose paths these are, come to lines of their own; `None` where they have no names.
fn move_apart(
    language: Language,
    object: &ObjectRow,
    lines: &[LineRow],
    ends: [&OnLine<'_>; 2],
    paths: [&str; 2],
) -> Option<Change> {
    let bytes = lines.first().map_or(64, |line| line.size);
    let named = |path: &str| told(&every_element(path), &object.accessed_type);
    let [first, second] = paths.map(named);
    if first == second || first.is_empty() || second.is_empty() {
        return None;
    }
    // What of the first lies behind the second would share the second's new line.
    let behind = ends[0].behind(ends[1]);
    let behind = behind.map(|it| path_of(&it, lines)).unwrap_or_default();
    let follows = Some(named(&behind));
    let follows = follows.filter(|it| !it.is_empty() && *it != second && *it != first);
    let moved = [Some(paths[1]), follows.as_ref().map(|_| behind.as_str())];
    let moved: Vec<&str> = moved.into_iter().flatten().collect();
    let names = match &follows {
        None => format!("`{second}`"),
        Some(it) => format!("`{second}` and, behind it, `{it}`"),
    };
    let how = match (language, &follows) {
        (Language::Go, None) => format!("Put {bytes} bytes of padding between them"),
        (Language::Go, Some(_)) => format!("Put {bytes} bytes of padding before and behind it"),
        _ => aligned_names(language, &names, &moved, lines),
    };
    let source = aligned_fields(language, &moved, lines);
    Some(Change {
        text: format!(
            "Move `{second}` to another line than `{first}`: they lie on one line and different threads use them. {how}, or put fields between them that only one of the threads uses."
        ),
        source,
    })
}

/// What to do that members with these paths, called so, begin on lines of their own, in a sentence without its full stop. Rust
/// aligns types alone, and nothing aligns bit fields.
fn aligned_names(language: Language, names: &str, paths: &[&str], lines: &[LineRow]) -> String {
    let bytes = lines.first().map_or(64, |line| line.size);
    let is_bits = |path: &&str| field_at(path, lines).is_some_and(LineField::is_bits);
    match language {
        Language::Rust => format!(
            "Give {names} a type that is aligned to {bytes} bytes, as CachePadded of the crate crossbeam-utils is"
        ),
        _ if paths.iter().any(is_bits) => format!(
            "Align {names} to {bytes} bytes, bit fields as members of a struct, since they cannot be aligned themselves"
        ),
        _ => format!("Align {names} to {bytes} bytes"),
    }
}

/// The declarations of members that begin lines, as `aligned_field` has them; empty if one is not known.
fn aligned_fields(language: Language, paths: &[&str], lines: &[LineRow]) -> String {
    let sources = paths
        .iter()
        .map(|path| aligned_field(language, path, lines));
    let sources: Vec<String> = sources.collect();
    match sources.iter().any(String::is_empty) {
        true => String::new(),
        false => sources.join("\n"),
    }
}

/// The same for more than two members, of which any two would still be in each other's way if the third were moved; `None` for
/// fewer of a name.
fn separate_several(
    language: Language,
    object: &ObjectRow,
    lines: &[LineRow],
    near: &Near<'_, '_>,
) -> Option<Change> {
    const NAMED: usize = 6;
    let mut all: Vec<&OnLine<'_>> = near.ends.iter().chain(&near.others).copied().collect();
    all.sort_by_key(|it| it.at);
    if !all[1..]
        .iter()
        .all(|it| libraries::is_editable(object, lines, it))
    {
        return None;
    }
    let mut paths: Vec<String> = all.iter().map(|it| path_of(it, lines)).collect();
    paths.retain(|it| !it.is_empty());
    paths.dedup();
    if paths.len() < 3 || paths.len() > NAMED {
        return None;
    }
    let named: Vec<String> = (paths.iter())
        .map(|it| format!("`{}`", told(&every_element(it), &object.accessed_type)))
        .collect();
    let [first, behind @ ..] = named.as_slice() else {
        return None;
    };
    let bytes = lines.first().map_or(64, |line| line.size);
    let moved: Vec<&str> = paths[1..].iter().map(String::as_str).collect();
    let how = match language {
        Language::Go => format!("Put {bytes} bytes of padding before each but {first}"),
        _ => aligned_names(language, &listed(behind), &moved, lines),
    };
    Some(Change {
        text: format!(
            "Move {} to a line each: they lie on one line and different threads use them. {how}.",
            listed(&named)
        ),
        source: aligned_fields(language, &moved, lines),
    })
}

/// The same for a block of numbers of which each thread has some: their type has no member that could be aligned, and one on
/// each line would be too much of it. `None` for another one, or if all of it lies on one line.
fn separate_numbers(object: &ObjectRow, bytes: u32, allocate: &str) -> Option<String> {
    let kind = &object.accessed_type;
    let is_array = object.kind != ObjectKind::Static && object.size > bytes.into();
    (is_array && is_builtin(kind)).then(|| {
        let name = match named(object) {
            name if name.is_empty() => "the array".to_owned(),
            name => name,
        };
        format!(
            "Let each thread's part of {name} begin on a line of its own: now parts of different threads lie on one line. Make the distance between their first elements, each a `{kind}`, a multiple of {bytes} bytes ({} where the CPU prefetches lines in pairs), or keep each thread's values on its own stack and add them up at the end.{allocate}",
            bytes * 2
        )
    })
}

/// What is to be changed where elements fill lines and their block does not begin at one; `None` if it does, or if the
/// language allocates by itself.
pub(crate) fn allocate_aligned(
    object: &ObjectRow,
    accesses: &[AccessRow],
    bytes: u64,
) -> Option<Change> {
    let (kind, begins) = (&object.accessed_type, object.address % bytes);
    let name = match language(accesses) {
        Language::C => "",
        Language::Cpp => "std::",
        _ => return None,
    };
    (object.kind == ObjectKind::Heap && begins != 0).then(|| Change {
        text: format!(
            "Allocate the block at the beginning of a line: each `{kind}` is as large as whole lines, but the block begins at byte {begins} of one, so that neighbours share theirs. To align the type alone changes nothing in memory of `malloc` or `calloc`, which align to 16 bytes; clear what `calloc` cleared."
        ),
        source: format!(
            "{name}aligned_alloc({bytes}, {})",
            object.size.next_multiple_of(bytes)
        ),
    })
}

/// What else changes where a type is declared as proposed.
pub(crate) fn beside_a_declaration(accesses: &[AccessRow]) -> &'static str {
    match language(accesses) {
        Language::Go => {
            "Literals of the type that do not name their fields no longer compile: name them."
        }
        Language::Rust => {
            "Where values of the type are made, the changed members are made as they are declared now."
        }
        _ => {
            "The proposed source has no initialisers, since debug info has none: keep those of the members, and the order of those by position."
        }
    }
}

/// What an object is called in a sentence; empty if it has no name.
fn named(object: &ObjectRow) -> String {
    match object.kind {
        ObjectKind::Static if !object.name.is_empty() => format!("`{}`", object.name),
        ObjectKind::Stack if !object.declared_at.is_empty() => {
            match object.name.split_once(" in ") {
                Some((variable, frame)) => format!("`{variable}` in {frame}"),
                None => String::new(),
            }
        }
        ObjectKind::Heap | ObjectKind::Mapping if !object.allocated_at.is_empty() => {
            format!("the {}", object.name)
        }
        _ => String::new(),
    }
}

/// The same behind what is in it: ` of NAME`; empty if it has none.
fn of_named(object: &ObjectRow) -> String {
    match named(object).as_str() {
        "" => String::new(),
        name => format!(" of {name}"),
    }
}

/// The same for parts without names.
fn separate_bytes(
    language: Language,
    object: &ObjectRow,
    lines: &[LineRow],
    parts: Option<[&OnLine<'_>; 2]>,
) -> String {
    let bytes = lines.first().map_or(64, |line| line.size);
    let (name, of_name) = (named(object), of_named(object));
    let places = parts.zip(lines.first()).map(|(parts, line)| {
        parts.map(|part| line.offset_in_object.saturating_add(part.at.into()))
    });
    let within = |at: &i64| u64::try_from(*at).is_ok_and(|at| at < object.size);
    let inside = places.filter(|places| !name.is_empty() && places.iter().all(within));
    let fits = (lines.first()).is_some_and(|line| {
        line.offset_in_object <= 0
            && line.offset_in_object.unsigned_abs() + object.size <= u64::from(line.size)
    });
    if let Some([first, second]) = inside.filter(|_| fits) {
        return format!(
            "Move what one of the threads uses to another line: different threads use what is at byte {first} and at byte {second}{of_name}, all of which lies on one line. To pad or align it as a whole changes nothing: let what is at byte {second} begin {bytes} bytes behind the other."
        );
    }
    let how = match (language, object.kind) {
        (Language::Go, _) => format!("Put {bytes} bytes of padding behind what each thread uses."),
        (_, ObjectKind::Static) if inside.is_none() && !name.is_empty() => format!(
            "Align each to {bytes} bytes. If it is a neighbour on the line that is in the way, align the variable itself."
        ),
        (Language::C | Language::Cpp, ObjectKind::Heap) => format!(
            "Align what each thread uses to {bytes} bytes: pad the struct to a multiple of {bytes}, and allocate it aligned, since `malloc` aligns to 16 only."
        ),
        _ => format!(
            "Align what each thread uses to {bytes} bytes, and pad it to a multiple of {bytes}."
        ),
    };
    format!("Different threads use different bytes of one line{of_name}. {how}")
}

/// What gives elements of an array lines of their own, of which the rest of a path is used.
fn aligned_element(language: Language, rest: &str, bytes: u32) -> String {
    match language {
        // Its elements are structs, of which the first member can be aligned.
        Language::C if rest.starts_with('.') => {
            format!("_Alignas({bytes}) /* in front of the first member */")
        }
        _ => aligned_type(language, bytes),
    }
}

/// A type whose values have lines of their own; empty where the language has no type of any value.
fn aligned_type(language: Language, bytes: u32) -> String {
    match language {
        Language::Cpp => {
            format!("template <class T> struct alignas({bytes}) padded {{ T value; }};")
        }
        Language::Rust => format!(
            "#[repr(align({bytes}))]\nstruct Padded<T>(T); // or CachePadded of the crate crossbeam-utils"
        ),
        Language::Go => {
            format!("type padded[T any] struct {{\n\tvalue T\n\t_     [{bytes}]byte\n}}")
        }
        _ => String::new(),
    }
}

/// The member that a path leads to: an element of an array moves with the array.
fn member_of(path: &str) -> &str {
    match path.rsplit_once('[') {
        Some((array, index)) if index.ends_with(']') => array,
        _ => path,
    }
}

/// The field of a line that a path leads to.
fn field_at<'l>(path: &str, lines: &'l [LineRow]) -> Option<&'l LineField> {
    let path = member_of(path);
    let mut fields = lines.iter().flat_map(|line| &line.fields);
    fields.find(|it| it.path == path)
}

/// The declaration of a member that begins a line; empty where its type is not known, or cannot be written down.
fn aligned_field(language: Language, path: &str, lines: &[LineRow]) -> String {
    let bytes = lines.first().map_or(64, |line| line.size);
    let name = member_of(path).rsplit(['.', ']', ')']).next();
    let name = linewise_foreign::sanitise(name.unwrap_or_default());
    let kind = field_at(path, lines).filter(|it| !it.is_bits());
    let kind = kind.map(|it| it.type_name.as_str());
    let language_name = match language {
        Language::Rust => "rust",
        _ => "c",
    };
    let declared = kind.and_then(|kind| declaration(&name, kind, 0, language_name));
    match (language, declared) {
        (Language::Go, _) if !name.is_empty() => format!("_ [{bytes}]byte // in front of {name}"),
        (Language::C, Some(declared)) => format!("_Alignas({bytes}) {declared};"),
        (Language::Cpp, Some(declared)) => format!("alignas({bytes}) {declared};"),
        (Language::Rust, Some(declared)) => match declared.split_once(": ") {
            Some((name, kind)) => padded_field(name, kind),
            None => String::new(),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
#[path = "compiles_tests.rs"]
mod compiles;

#[cfg(test)]
#[path = "library_tests.rs"]
mod of_libraries;

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
