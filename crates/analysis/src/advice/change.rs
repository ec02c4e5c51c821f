//! What to change: a sentence or two, and source to paste where the language is known.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{AccessRow, FindingKind, LineRow, ObjectRow};
use linewise_recording::ObjectKind;

/// The language of a source file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    C,
    Cpp,
    Rust,
    Go,
    Other,
}

fn language(accesses: &[AccessRow]) -> Language {
    let extension = accesses
        .iter()
        .find_map(|access| access.file.rsplit_once('.').map(|(_, extension)| extension))
        .unwrap_or_default();
    match extension {
        "c" => Language::C,
        "cc" | "cpp" | "cxx" | "h" | "hh" | "hpp" | "tcc" => Language::Cpp,
        "rs" => Language::Rust,
        "go" => Language::Go,
        _ => Language::Other,
    }
}

/// A proposed change.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Change {
    pub(crate) text: String,
    pub(crate) source: String,
}

/// Proposes a change for a finding.
pub(crate) fn propose(
    kind: FindingKind,
    object: &ObjectRow,
    lines: &[LineRow],
    accesses: &[AccessRow],
) -> Change {
    let language = language(accesses);
    match kind {
        FindingKind::FalseSharing if !is_one_lock(accesses) => {
            separate(language, object, lines, accesses)
        }
        _ => share_less(language, object, accesses),
    }
}

/// The distinct fields that different threads touch, dearest first.
fn touched_fields<'a>(accesses: impl IntoIterator<Item = &'a AccessRow>) -> Vec<&'a str> {
    let mut fields: Vec<&str> = Vec::new();
    for access in accesses {
        if !access.field.is_empty() && !fields.contains(&access.field.as_str()) {
            fields.push(&access.field);
        }
    }
    fields
}

/// The array whose elements the fields are, if they all are of one: `counters[0].hits` and
/// `counters[1].hits` give `counters`.
fn common_array<'a>(fields: &[&'a str]) -> Option<&'a str> {
    let base = |field: &'a str| field.split_once('[').map(|(base, _)| base);
    let first = base(fields.first()?)?;
    fields
        .iter()
        .all(|field| base(field) == Some(first))
        .then_some(first)
}

/// Whether each thread uses objects of its own of one type: the same field at another place of the line, and no
/// place that two of them use.
fn own_objects(accesses: &[AccessRow]) -> bool {
    let mut threads: BTreeMap<(u64, u32), u32> = BTreeMap::new();
    let mut places: BTreeMap<&str, BTreeSet<(u64, u32)>> = BTreeMap::new();
    for access in accesses.iter().filter(|access| !access.field.is_empty()) {
        let place = (access.line_address, access.offset);
        if *threads.entry(place).or_insert(access.tid) != access.tid {
            return false;
        }
        places.entry(&access.field).or_default().insert(place);
    }
    let owners = |places: &BTreeSet<(u64, u32)>| {
        let owners: BTreeSet<u32> = places.iter().map(|place| threads[place]).collect();
        owners.len()
    };
    places.values().any(|places| owners(places) > 1)
}

fn separate(
    language: Language,
    object: &ObjectRow,
    lines: &[LineRow],
    accesses: &[AccessRow],
) -> Change {
    let fields = touched_fields(accesses);
    let threads_touch_elements = common_array(&fields);
    let bytes = lines.first().map_or(64, |line| line.size);
    let pad = bytes.max(64) * 2;
    // Go aligns nothing to a line.
    let align = match language {
        Language::Go => "Pad",
        _ => "Align",
    };
    if let Some(array) = threads_touch_elements {
        return Change {
            text: format!(
                "Give each element of `{array}` lines of its own: the elements belong to different threads and lie on one line. {align} the element type to {bytes} bytes ({pad} where the CPU prefetches lines in pairs), or keep each thread's values on its own stack and add them up at the end."
            ),
            source: aligned_type(language, bytes),
        };
    }
    if own_objects(accesses) && !object.accessed_type.is_empty() {
        return Change {
            text: format!(
                "Give each `{}` lines of its own: different threads use different ones, which lie on one line. {align} the type to {bytes} bytes ({pad} where the CPU prefetches lines in pairs), or keep each thread's values on its own stack and add them up at the end.",
                object.accessed_type
            ),
            source: aligned_type(language, bytes),
        };
    }
    match (object.kind, fields.as_slice()) {
        (_, [first, second, ..]) => Change {
            text: format!(
                "Move `{second}` to another line than `{first}`: they lie on one line and different threads use them. Align `{second}` to {bytes} bytes, or put fields between them that only one of the threads uses."
            ),
            source: aligned_field(language, second, bytes),
        },
        (ObjectKind::Static, _) if !object.name.is_empty() => Change {
            text: format!(
                "Give the parts of `{}` that different threads use lines of their own: align each to {bytes} bytes. If it is a neighbour on the line that is in the way, align the variable itself.",
                object.name
            ),
            source: aligned_type(language, bytes),
        },
        (ObjectKind::Heap, _) if !object.allocated_at.is_empty() => Change {
            text: format!(
                "Different threads use different bytes of one line of the {}. Align what each thread uses to {bytes} bytes: pad the struct to a multiple of {bytes}, and allocate it aligned, since `malloc` aligns to 16 only.",
                object.name
            ),
            source: aligned_type(language, bytes),
        },
        _ => Change {
            text: format!(
                "Different threads use different bytes of the same line. Align what each thread uses to {bytes} bytes: pad the struct to a multiple of {bytes} and allocate it aligned, since `malloc` aligns to 16 only."
            ),
            source: aligned_type(language, bytes),
        },
    }
}

fn aligned_type(language: Language, bytes: u32) -> String {
    match language {
        Language::C => format!("struct element {{ ... }} __attribute__((aligned({bytes})));"),
        Language::Cpp => format!("struct alignas({bytes}) Element {{ ... }};"),
        Language::Rust => format!(
            "#[repr(align({bytes}))]\nstruct Padded<T>(T); // or crossbeam_utils::CachePadded"
        ),
        Language::Go => format!(
            "type element struct {{\n\tvalue uint64\n\t_     [{}]byte\n}}",
            bytes.saturating_sub(8)
        ),
        Language::Other => String::new(),
    }
}

fn aligned_field(language: Language, field: &str, bytes: u32) -> String {
    let name = field
        .rsplit(['.', ']'])
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or(field);
    // In source text a line break would be one.
    let name = linewise_foreign::sanitise(name);
    match language {
        Language::C => format!("_Alignas({bytes}) /* type */ {name};"),
        Language::Cpp => format!("alignas({bytes}) /* type */ {name};"),
        Language::Rust => format!("{name}: crossbeam_utils::CachePadded</* type */>,"),
        Language::Go => format!("_ [{bytes}]byte // in front of {name}"),
        Language::Other => String::new(),
    }
}

/// Whether a name says that it locks: `pthread_mutex_lock`, `RawMutex::lock_slow`, `spin_lock`; but
/// not `clock` or `next_block`.
fn names_a_lock(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| {
        matches!(word, "lock" | "unlock" | "trylock" | "spin")
            || ["mutex", "futex", "spinlock", "rwlock"]
                .iter()
                .any(|part| word.contains(part))
    })
}

/// Whether it is a lock that is touched, by the names of where and what.
fn is_lock(access: &AccessRow) -> bool {
    let places = std::iter::once(&access.function).chain(&access.inlined_into);
    places.chain([&access.field]).any(|name| names_a_lock(name))
}

/// Whether all that is touched is one lock of a library, whose words do not belong on lines of their own: each is touched
/// by code of its own, where the same code touches the words of several locks.
fn is_one_lock(accesses: &[AccessRow]) -> bool {
    let mut words: BTreeMap<(&str, &str, u32), (u64, u32)> = BTreeMap::new();
    let one = accesses.iter().all(|access| {
        let code = (access.function.as_str(), access.file.as_str(), access.line);
        let word = (access.line_address, access.offset);
        is_lock(access) && *words.entry(code).or_insert(word) == word
    });
    one && !accesses.is_empty() && touched_fields(accesses).len() < 2
}

fn share_less(language: Language, object: &ObjectRow, accesses: &[AccessRow]) -> Change {
    let locks: Vec<&AccessRow> = accesses.iter().filter(|access| is_lock(access)).collect();
    let fields = match locks.as_slice() {
        [] => touched_fields(accesses),
        locks => touched_fields(locks.iter().copied()),
    };
    let name = match fields.first() {
        Some(field) => format!("`{field}`"),
        None if object.kind == ObjectKind::Static && !object.name.is_empty() => {
            format!("`{}`", object.name)
        }
        None => String::new(),
    };
    let text = if !locks.is_empty() {
        let what = if name.is_empty() {
            name
        } else {
            format!(" ({name})")
        };
        format!(
            "Threads fight over a lock{what}. Padding cannot help. Hold it for less, split what it protects so that threads take different locks, or let one thread own the data and delegate the work to it."
        )
    } else {
        let what = if name.is_empty() {
            "the same bytes"
        } else {
            name.as_str()
        };
        format!(
            "Threads really share {what}: padding cannot help. Write it less often (count in a variable of the thread and add it up now and then), give each thread or CPU a copy of its own, or let one thread own it and delegate the work to it."
        )
    };
    Change {
        text,
        source: delegated(language),
    }
}

/// How the work is delegated with our own runtime, where it has a face for the language.
fn delegated(language: Language) -> String {
    match language {
        Language::C | Language::Cpp => {
            "linewise_apply(client, data, index, work, argument); // linewise_delegate.h".to_owned()
        }
        Language::Rust => {
            "client.apply(&owned, |data| /* what was done under the lock */)?; // linewise-delegate"
                .to_owned()
        }
        Language::Go | Language::Other => String::new(),
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
    fn the_words_of_one_lock_are_not_taken_apart() {
        let at = |tid, offset, line| AccessRow {
            tid,
            offset,
            line,
            ..access("lll_mutex_unlock_optimized", "pthread_mutex_unlock.c")
        };
        let advice = |accesses: &[AccessRow]| {
            propose(FindingKind::FalseSharing, &object(), &[], accesses).text
        };
        let one = [at(1, 8, 43), at(2, 8, 43), at(2, 24, 51)];
        assert!(advice(&one).starts_with("Threads fight over a lock"));
        // Two on one line.
        let two = [at(1, 8, 43), at(2, 48, 43)];
        assert!(!advice(&two).contains("fight over a lock"));
        // Its holder and its count, by functions that lock.
        let fields = [("owner", 8, 3), ("count", 16, 4)].map(|(field, offset, line)| AccessRow {
            field: field.to_owned(),
            function: "spin_lock".to_owned(),
            ..at(1, offset, line)
        });
        assert!(!advice(&fields).contains("fight over a lock"));
        // And data beside one.
        let beside = [at(1, 8, 43), access("add", "add.c")];
        assert!(!advice(&beside).contains("fight over a lock"));
    }

    #[test]
    fn threads_with_objects_of_their_own_are_told_to_align_the_type() {
        let at = |tid, offset, field: &str| AccessRow {
            tid,
            offset,
            field: field.to_owned(),
            ..access("add", "add.cpp")
        };
        let own = [
            at(1, 0, "sum"),
            at(1, 8, "n"),
            at(2, 16, "sum"),
            at(2, 24, "n"),
        ];
        assert!(own_objects(&own));
        let object = ObjectRow {
            kind: ObjectKind::Heap,
            accessed_type: "Partial".to_owned(),
            ..object()
        };
        let change = propose(FindingKind::FalseSharing, &object, &[], &own);
        assert!(
            change
                .text
                .starts_with("Give each `Partial` lines of its own")
        );
        // Two fields of one object, and a neighbour's field that both use.
        assert!(!own_objects(&[at(1, 0, "head"), at(2, 8, "tail")]));
        assert!(!own_objects(&[
            at(1, 0, "sum"),
            at(2, 0, "sum"),
            at(2, 16, "sum")
        ]));
        assert!(!own_objects(&[at(1, 0, ""), at(2, 16, "")]));
    }

    #[test]
    fn every_known_language_gets_source_to_paste() {
        for language in [Language::C, Language::Cpp, Language::Rust, Language::Go] {
            assert!(aligned_type(language, 64).contains("64") || language == Language::Go);
            assert!(aligned_field(language, "s.tail", 64).contains("tail"));
        }
        assert!(aligned_type(Language::Other, 64).is_empty());
    }

    #[test]
    fn locks_are_known_by_name_and_clocks_are_none() {
        for lock in [
            "pthread_mutex_lock",
            "__lll_lock_wait",
            "parking_lot::raw_mutex::RawMutex::lock_slow",
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "pthread_spin_lock",
            "shard.lock",
        ] {
            assert!(names_a_lock(lock), "{lock}");
        }
        for other in ["clock_gettime", "next_block", "unblock", "spindle", "add"] {
            assert!(!names_a_lock(other), "{other}");
        }
    }

    fn access(function: &str, file: &str) -> AccessRow {
        AccessRow {
            tid: 1,
            thread_name: String::new(),
            function: function.to_owned(),
            file: file.to_owned(),
            line: 1,
            inlined_into: Vec::new(),
            called_from: Vec::new(),
            op: linewise_recording::Operation::Update,
            offset: 0,
            size: 8,
            field: String::new(),
            share: 1.0,
            line_address: 0,
            missing: String::new(),
        }
    }

    fn object() -> ObjectRow {
        ObjectRow {
            kind: ObjectKind::Static,
            name: "cache".to_owned(),
            type_name: String::new(),
            address: 0,
            size: 64,
            declared_at: String::new(),
            allocated_at: Vec::new(),
            accessed_type: String::new(),
            field: String::new(),
            reached_through: String::new(),
            type_votes: Vec::new(),
        }
    }

    #[test]
    fn true_sharing_of_a_lock_or_a_counter_is_to_be_delegated() {
        let object = object();
        let change = |access: AccessRow| propose(FindingKind::TrueSharing, &object, &[], &[access]);
        let lock = change(access("pthread_mutex_lock", "cache.c"));
        assert!(lock.text.contains("a lock") && lock.text.contains("delegate"));
        assert!(lock.source.starts_with("linewise_apply("));
        let inlined = change(AccessRow {
            inlined_into: vec!["std::sync::Mutex<T>::lock".to_owned()],
            called_from: Vec::new(),
            ..access("core::sync::atomic::atomic_compare_exchange", "atomic.rs")
        });
        assert!(inlined.text.contains("a lock"), "{}", inlined.text);
        let counter = change(access("count", "count.rs"));
        assert!(!counter.text.contains("a lock") && counter.text.contains("delegate"));
        assert!(counter.source.starts_with("client.apply("));
        assert_eq!(change(access("main.count", "main.go")).source, "");
    }
}
