use linewise_recording::Operation;

use super::*;
use crate::model::LineField;

pub(super) const FALSE: Interval = Interval {
    low: 1.0,
    high: 1.0,
};
const TRUE: Interval = Interval {
    low: 0.0,
    high: 0.0,
};
const OPEN: Interval = Interval {
    low: 0.0,
    high: 1.0,
};

#[test]
fn what_lies_behind_is_aligned_and_a_long_array_is_parted_by_threads() {
    let at = |tid, offset, field: &str| super::super::parts::tests::at(tid, offset, field, 1);
    let text = |object: &ObjectRow, rows: &[AccessRow]| propose(FALSE, object, &[], rows, &[]).text;
    // The dearer one lies behind the other.
    let mut rows = [at(1, 24, "tail"), at(2, 16, "pop_empty")];
    rows[0].share = 0.9;
    let said = text(&object(), &rows);
    assert!(
        said.starts_with("Move `tail` to another line than `pop_empty`"),
        "{said}"
    );
    let elements = [at(1, 0, "s[0]"), at(2, 8, "s[1]")];
    assert!(text(&object(), &elements).starts_with("Give each element of `s` lines"));
    let long = ObjectRow {
        size: 1 << 17,
        ..object()
    };
    assert!(text(&long, &elements).starts_with("Let each thread use a part of `s`"));
}

#[test]
fn of_several_lines_the_change_is_about_the_dearest() {
    let on = |line_address, share, tid, offset, field: &str| AccessRow {
        share,
        line_address,
        ..super::super::parts::tests::at(tid, offset, field, offset)
    };
    // What all update costs most, and parting it from what one thread reads beside it saves next to nothing.
    let ring = [
        on(0x40, 0.30, 1, 0, "tail"),
        on(0x40, 0.30, 2, 0, "tail"),
        on(0x40, 0.01, 3, 8, "head"),
    ];
    let counters = [
        on(0x80, 0.20, 1, 0, "pushed"),
        on(0x80, 0.19, 2, 8, "popped"),
    ];
    let text = |rows: &[AccessRow]| propose(FALSE, &object(), &[], rows, &[]).text;
    let said = text(&[&ring[..], &counters].concat());
    assert!(
        said.starts_with("Move `popped` to another line than `pushed`"),
        "{said}"
    );
    // Alone it is no change to propose.
    let said = text(&ring);
    assert!(!said.contains("Move `"), "{said}");
}

#[test]
fn what_is_only_read_is_not_moved_away_from_two_that_stay_in_each_others_way() {
    let on = |share, tid, offset, field: &str, op| AccessRow {
        share,
        op,
        file: "stats.c".to_owned(),
        ..super::super::parts::tests::at(tid, offset, field, offset)
    };
    let rows = [
        on(0.4, 1, 0, "limit", Operation::Load),
        on(0.4, 2, 0, "limit", Operation::Load),
        on(0.1, 1, 8, "reads", Operation::Update),
        on(0.1, 2, 16, "writes", Operation::Update),
    ];
    let drawn = line_of(
        &rows,
        &[("limit", "long"), ("reads", "long"), ("writes", "long")],
    );
    let change = propose(FALSE, &object(), &[drawn], &rows, &[]);
    assert!(
        change
            .text
            .starts_with("Move `limit`, `reads` and `writes` to a line each"),
        "{}",
        change.text
    );
    assert_eq!(
        change.source,
        "_Alignas(64) long reads;\n_Alignas(64) long writes;"
    );
}

#[test]
fn what_lies_behind_a_member_that_is_moved_does_not_move_with_it() {
    let on = |share, tid, offset, field: &str, op| AccessRow {
        share,
        op,
        ..super::super::parts::tests::at(tid, offset, field, offset)
    };
    // One thread's lock and value, and between them what the other reads.
    let rows = [
        on(0.4, 1, 0, "m", Operation::Update),
        on(0.4, 2, 8, "limit", Operation::Load),
        on(0.1, 1, 16, "value", Operation::Update),
    ];
    let change = |kind| {
        let drawn = line_of(&rows, &[("m", "long"), ("limit", "long"), ("value", kind)]);
        propose(FALSE, &object(), &[drawn], &rows, &[])
    };
    let Change { text, source } = change("long");
    let aligned = "Align `limit` and, behind it, `value` to 64 bytes, or";
    assert!(text.contains(aligned), "{text}");
    assert_eq!(source, "alignas(64) long limit;\nalignas(64) long value;");
    let Change { text, source } = change("long : 4");
    let aligned = "`value` to 64 bytes, bit fields as members of a struct, since";
    assert!(text.contains(aligned), "{text}");
    assert_eq!(source, "");
}

#[test]
fn what_a_library_has_beside_a_variable_is_not_told_to_be_moved() {
    let on = |share, tid, offset, field: &str| AccessRow {
        share,
        op: Operation::Update,
        file: "link.rs".to_owned(),
        ..super::super::parts::tests::at(tid, offset, field, offset)
    };
    let said = |third: &str| {
        let rows = [
            on(0.4, 1, 0, "LINK.sent"),
            on(0.4, 2, 8, "LINK.received"),
            on(0.1, 3, 16, third),
        ];
        let kind = |path| (path, "AtomicU64");
        let drawn = line_of(&rows, &["LINK.sent", "LINK.received", third].map(kind));
        propose(FALSE, &object(), &[drawn], &rows, &[]).text
    };
    let own = said("LINK.lost");
    assert!(
        own.starts_with("Move `LINK.sent`, `LINK.received` and `LINK.lost`"),
        "{own}"
    );
    // Rust aligns types, and no members.
    assert!(
        own.contains("Give `LINK.received` and `LINK.lost` a type that is aligned"),
        "{own}"
    );
    let library = said("std::io::stdio::STDOUT");
    assert!(
        library.starts_with("Move `LINK.received` to another line"),
        "{library}"
    );
    assert!(!library.contains("STDOUT"), "{library}");
}

#[test]
fn members_of_one_element_are_moved_and_elements_are_aligned() {
    let at = |tid, offset, field: &str| super::super::parts::tests::at(tid, offset, field, 1);
    let text = |object: &ObjectRow, rows: &[AccessRow]| propose(FALSE, object, &[], rows, &[]).text;
    let long = ObjectRow {
        size: 1 << 17,
        ..object()
    };
    for object in [object(), long] {
        let one = [at(1, 0, "rings[3].head"), at(2, 8, "rings[3].tail")];
        let said = text(&object, &one);
        assert!(
            said.starts_with("Move `rings[].tail` to another line than `rings[].head`"),
            "{said}"
        );
    }
    let two = [at(1, 0, "rings[3].slots[1]"), at(2, 8, "rings[3].slots[2]")];
    assert!(text(&object(), &two).starts_with("Give each element of `rings[].slots` lines"));
}

#[test]
fn objects_side_by_side_in_one_block_are_aligned_and_allocated_aligned() {
    let mut line = line(&[("[0].y", "long"), ("[1].n", "long")]);
    line.address = 0x40;
    line.fields[1].offset = 8;
    let heap = ObjectRow {
        kind: ObjectKind::Heap,
        accessed_type: "struct sums".to_owned(),
        ..object()
    };
    let mut rows =
        [(1, 0, "y"), (2, 8, "n")].map(|(t, o, f)| super::super::parts::tests::at(t, o, f, 1));
    for row in &mut rows {
        row.file = "sums.c".to_owned();
    }
    let lines = [line];
    let change = propose(FALSE, &heap, &lines, &rows, &[]);
    assert!(
        change
            .text
            .starts_with("Give each `struct sums` lines of its own")
    );
    assert!(change.text.contains(ALLOCATED_ALIGNED), "{}", change.text);
    assert!(change.source.starts_with("_Alignas(64)"));
    let stack = ObjectRow {
        kind: ObjectKind::Stack,
        accessed_type: String::new(),
        ..object()
    };
    for row in &mut rows {
        row.field.clear();
    }
    let said = propose(FALSE, &stack, &[], &rows, &[]).text;
    assert!(!said.contains("malloc"), "{said}");
}

#[test]
fn elements_that_fill_lines_want_a_block_that_begins_at_one() {
    let accesses = [access("work", "/src/main.cpp")];
    let object = ObjectRow {
        kind: ObjectKind::Heap,
        address: 0x1020,
        size: 128,
        accessed_type: "args".into(),
        ..object()
    };
    let change = allocate_aligned(&object, &accesses, 64).unwrap();
    assert!(change.text.contains("begins at byte 32"), "{}", change.text);
    assert_eq!(change.source, "std::aligned_alloc(64, 128)");
    let aligned = ObjectRow {
        address: 0x1040,
        ..object.clone()
    };
    assert_eq!(allocate_aligned(&aligned, &accesses, 64), None);
    let rust = [access("work", "/src/main.rs")];
    assert_eq!(allocate_aligned(&object, &rust, 64), None);
}

#[test]
fn what_a_lock_guards_stays_beside_it() {
    let at = |tid, offset, field: &str| super::super::parts::tests::at(tid, offset, field, 1);
    // Of the slot only one thread's accesses were seen, which took the lock first, as others did.
    let queue = [
        at(1, 0, "q.lock"),
        at(2, 0, "q.lock"),
        at(1, 40, "q.slots[3]"),
    ];
    let said = propose(OPEN, &object(), &[], &queue, &[]).text;
    assert!(
        said.starts_with("Threads fight over a lock (`q.lock`)"),
        "{said}"
    );
    let mut beside = queue;
    beside[2].tid = 3;
    let said = propose(OPEN, &object(), &[], &beside, &[]).text;
    let moved = "Move `q.slots` to another line than `q.lock`";
    assert!(said.starts_with(moved) && said.ends_with(MAY_HARM));
}

#[test]
fn an_array_that_several_write_is_not_said_to_be_written_by_one() {
    let at = |tid, offset, field: &str, op| AccessRow {
        op,
        ..super::super::parts::tests::at(tid, offset, field, 1)
    };
    let cells = [
        at(1, 0, "cells[0].at", Operation::Store),
        at(2, 0, "cells[0].at", Operation::Load),
        at(2, 16, "cells[1].at", Operation::Store),
        at(1, 16, "cells[1].at", Operation::Load),
    ];
    let said = propose(TRUE, &object(), &[], &cells, &[]).text;
    assert!(said.starts_with("Threads really share `cells`"), "{said}");
}

#[test]
fn what_is_moved_lies_on_one_line_with_what_it_is_moved_from() {
    // A ring whose indices have lines of their own, each with a copy of the other beside it.
    let at = |tid, line: u64, offset, field: &str, op| AccessRow {
        op,
        line_address: 0x40 * line,
        ..super::super::parts::tests::at(tid, offset, field, 1)
    };
    let ring = [
        at(1, 0, 0, "head", Operation::Store),
        at(2, 0, 0, "head", Operation::Load),
        at(1, 0, 8, "tail_copy", Operation::Store),
        at(2, 1, 0, "tail", Operation::Store),
        at(1, 1, 0, "tail", Operation::Load),
        at(2, 1, 8, "head_copy", Operation::Store),
    ];
    let said = propose(FALSE, &object(), &[], &ring, &[]).text;
    for (one, other) in [
        ("tail", "tail_copy"),
        ("head", "head_copy"),
        ("head", "tail"),
    ] {
        for (one, other) in [(one, other), (other, one)] {
            let moved = format!("Move `{one}` to another line than `{other}`");
            assert!(!said.starts_with(&moved), "{said}");
        }
    }
}

#[test]
fn several_elements_that_are_shared_are_their_array() {
    let of = |field: &str| AccessRow {
        field: field.to_owned(),
        ..access("add", "add.c")
    };
    let text = |rows: &[AccessRow]| propose(TRUE, &object(), &[], rows, &[]).text;
    assert!(text(&[of("bins[3]"), of("bins[4]")]).contains("really share `bins`"));
    assert!(text(&[of("bins[3]"), of("bins[3]")]).contains("really share `bins[3]`"));
}

#[test]
fn what_is_only_read_beside_a_lock_is_told_to_be_moved() {
    let at = |tid, offset, field: &str, op, share| AccessRow {
        op,
        share,
        ..super::super::parts::tests::at(tid, offset, field, offset)
    };
    let said = |read_share, read: Operation| {
        let rows = [
            at(1, 0, "q.lock", Operation::Update, 0.1),
            at(2, 0, "q.lock", Operation::Update, 0.1),
            at(1, 40, "q.limit", read, read_share),
            at(2, 40, "q.limit", Operation::Load, read_share),
        ];
        propose(TRUE, &object(), &[], &rows, &[]).text
    };
    let words = "is where `q.limit` is read, which nobody was seen to write";
    let text = said(0.4, Operation::Load);
    assert!(text.contains(words) && text.contains(" 80 % of"), "{text}");
    // Next to nothing, or written.
    assert!(!said(0.05, Operation::Load).contains("q.limit` is read"));
    assert!(!said(0.4, Operation::Store).contains("q.limit` is read"));
}

#[test]
fn padding_is_said_to_help_as_much_as_is_known() {
    let part = Interval {
        low: 0.3,
        high: 0.36,
    };
    let says = |share, words: &str| {
        let text = propose(share, &object(), &[], &[access("add", "add.c")], &[]).text;
        assert!(text.contains(words), "{text}");
    };
    says(TRUE, "padding alone does not end that");
    says(part, "padding helps with at most 36 % of the transfers");
    says(OPEN, "whether padding helps, samples do not tell");
}

#[test]
fn the_words_of_one_lock_are_not_taken_apart() {
    let at = |tid, offset, line| AccessRow {
        tid,
        offset,
        line,
        ..access("lll_mutex_unlock_optimized", "pthread_mutex_unlock.c")
    };
    let advice = |accesses: &[AccessRow]| propose(OPEN, &object(), &[], accesses, &[]).text;
    let one = [at(1, 8, 43), at(2, 8, 43), at(2, 24, 51)];
    assert!(advice(&one).starts_with("Threads fight over a lock"));
    assert!(advice(&one).contains("padding alone does not end that"));
    // By the names of its members, whatever code touches them.
    let named =
        [(1, 0, "q.m.__data.__lock"), (2, 8, "q.m.__data.__owner")].map(|(tid, offset, field)| {
            AccessRow {
                field: field.to_owned(),
                ..at(tid, offset, 43)
            }
        });
    assert!(advice(&named).starts_with("Threads fight over a lock (`q.m`)"));
    // Two on one line.
    let two = [at(1, 8, 43), at(2, 48, 43)];
    assert!(!advice(&two).contains("fight over a lock"));
    // Its holder and its count, by functions that lock.
    let fields = [("owner", 8, 3), ("count", 16, 4)].map(|(field, offset, line)| AccessRow {
        field: field.to_owned(),
        function: "spin_lock".to_owned(),
        ..at(offset / 8, offset, line)
    });
    assert!(!advice(&fields).contains("fight over a lock"));
    // And data beside one.
    let add = AccessRow {
        tid: 2,
        ..access("add", "add.c")
    };
    let beside = [at(1, 8, 43), add];
    assert!(!advice(&beside).contains("fight over a lock"));
}

#[test]
fn what_all_threads_update_is_counted_per_thread_and_not_taken_apart() {
    let both = |offset, field: &str, line| {
        [1, 2].map(|tid| super::super::parts::tests::at(tid, offset, field, line))
    };
    let three = [
        both(0, "requests", 1),
        both(8, "bytes", 2),
        both(16, "parsed", 3),
    ]
    .concat();
    for share in [TRUE, OPEN] {
        let change = propose(share, &object(), &[], &three, &[]);
        assert!(change.text.contains("count in a variable of the thread"));
        assert!(!change.source.contains("alignas"));
    }
}

#[test]
fn what_threads_wait_at_is_not_counted_per_thread() {
    let at = |tid, offset, field: &str, op, share| AccessRow {
        op,
        share,
        size: 4,
        ..super::super::parts::tests::at(tid, offset, field, 1)
    };
    let spin = |tid, name: &str| {
        [
            at(tid, 0, &format!("{name}.count"), Operation::Update, 0.1),
            at(tid, 4, &format!("{name}.generation"), Operation::Load, 0.4),
            at(tid, 4, &format!("{name}.generation"), Operation::Store, 0.0),
        ]
    };
    let text = |rows: &[AccessRow]| propose(TRUE, &object(), &[], rows, &[]).text;
    for (name, begin) in [
        (
            "barrier",
            "Threads wait for each other at a barrier (`barrier.",
        ),
        (
            "b",
            "Threads look at `b.generation` until another writes it",
        ),
    ] {
        let said = text(&[spin(1, name), spin(2, name)].concat());
        assert!(said.starts_with(begin), "{said}");
        assert!(!said.contains("count in a variable"), "{said}");
    }
    let runtime = access("libgomp.so.1.0.0+0x1f7e3", "");
    assert!(text(&[runtime]).contains("OpenMP's runtime"));
    let swap = AccessRow {
        own: None,
        inlined_into: vec!["core::sync::atomic::AtomicPtr<T>::compare_exchange".to_owned()],
        ..access("push", "stack.rs")
    };
    assert!(!text(&[swap]).contains("count in a variable"));
    let read = text(&[access("__pthread_rwlock_rdlock_full64", "rw.c")]);
    assert!(read.starts_with("Readers of a lock"), "{read}");
}

#[test]
fn a_block_on_one_line_is_not_told_to_pad_itself() {
    let at = |tid, offset| super::super::parts::tests::at(tid, offset, "", 1);
    let block = ObjectRow {
        kind: ObjectKind::Heap,
        name: "block allocated by main".to_owned(),
        allocated_at: vec!["main (main.c:3)".to_owned()],
        type_allocated_at: Vec::new(),
        ..object()
    };
    let rows = [at(1, 0), at(2, 32)];
    let said = |object: &ObjectRow| propose(FALSE, object, &[line(&[])], &rows, &[]).text;
    let whole = said(&block);
    assert!(whole.starts_with("Move what one of the threads uses to another line"));
    let larger = said(&ObjectRow {
        size: 4096,
        ..block.clone()
    });
    assert!(larger.contains("`malloc` aligns to 16 only"), "{larger}");
    let mapped = said(&ObjectRow {
        kind: ObjectKind::Mapping,
        size: 4096,
        ..block
    });
    assert!(!mapped.contains("malloc"), "{mapped}");
}

#[test]
fn threads_with_objects_of_their_own_are_told_to_align_the_type() {
    let at = |tid, offset, field: &str| super::super::parts::tests::at(tid, offset, field, 1);
    let own = [
        at(1, 0, "sum"),
        at(1, 8, "n"),
        at(2, 16, "sum"),
        at(2, 24, "n"),
    ];
    let object = ObjectRow {
        kind: ObjectKind::Heap,
        accessed_type: "Partial".to_owned(),
        ..object()
    };
    let advice = |accesses: &[AccessRow]| propose(FALSE, &object, &[], accesses, &[]).text;
    assert!(advice(&own).starts_with("Give each `Partial` lines of its own"));
    let two = [at(1, 0, "head"), at(2, 8, "tail")];
    assert!(advice(&two).starts_with("Move `tail` to another line than `head`"));
    // One value on this line, and another far away.
    let mut far = two;
    far[1].line_address += 64;
    assert!(!advice(&far).contains("Move `"));
}

#[test]
fn every_known_language_gets_source_to_paste() {
    for language in [Language::C, Language::Cpp, Language::Rust, Language::Go] {
        assert!(aligned_type(language, 64).contains("64") || language == Language::C);
        let line = line(&[("s.tail", "T"), ("s.d", "long[4]"), ("s.u", "")]);
        let source = |path| aligned_field(language, path, std::slice::from_ref(&line));
        assert!(source("s.tail").contains("tail"));
        if matches!(language, Language::C | Language::Cpp) {
            assert!(source("s.d[3]").ends_with("(64) long d[4];"));
            assert_eq!(source("s.u") + &source("s.gone"), "");
        }
    }
    assert!(aligned_type(Language::Other, 64).is_empty());
}

#[test]
fn what_one_thread_writes_and_others_read_is_to_be_read_less() {
    let at = |tid, offset, field: &str, op| AccessRow {
        op,
        ..super::super::parts::tests::at(tid, offset, field, 1)
    };
    let ring = [
        at(1, 0, "head", Operation::Store),
        at(2, 0, "head", Operation::Load),
        at(2, 8, "tail", Operation::Store),
        at(1, 8, "tail", Operation::Load),
    ];
    let change = propose(TRUE, &object(), &[], &ring, &[]);
    let begin = "Each of `head` and `tail` is written by one thread and read by others: padding alone does not end that.";
    assert!(change.text.starts_with(begin), "{}", change.text);
    assert_eq!(change.source, "");
    let flag = propose(OPEN, &object(), &[], &ring[..2], &[]).text;
    assert!(
        flag.starts_with("`head` is written by one thread"),
        "{flag}"
    );
    let mut both = ring;
    both[3].op = Operation::Update;
    let both = propose(TRUE, &object(), &[], &both, &[]).text;
    assert!(both.starts_with("Threads really share"), "{both}");
}

/// A line with these fields, of 8 bytes each: path and type.
pub(super) fn line(fields: &[(&str, &str)]) -> LineRow {
    let field = |(at, (path, kind)): (u32, &(&str, &str))| LineField {
        offset: 8 * at,
        size: 8,
        path: (*path).to_owned(),
        type_name: (*kind).to_owned(),
    };
    LineRow {
        address: 0,
        size: 64,
        offset_in_object: 0,
        transfers: 0.0,
        fields: (0..).zip(fields).map(field).collect(),
    }
}

/// The same as that of these accesses.
fn line_of(rows: &[AccessRow], fields: &[(&str, &str)]) -> LineRow {
    LineRow {
        address: rows[0].line_address,
        ..line(fields)
    }
}

fn access(function: &str, file: &str) -> AccessRow {
    AccessRow {
        tid: 1,
        thread_name: String::new(),
        goroutine: None,
        function: function.to_owned(),
        file: file.to_owned(),
        line: 1,
        own: None,
        ends_scope: false,
        language: String::new(),
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

pub(super) fn object() -> ObjectRow {
    ObjectRow {
        kind: ObjectKind::Static,
        name: "cache".to_owned(),
        type_name: String::new(),
        address: 0,
        size: 64,
        declared_at: String::new(),
        allocated_at: Vec::new(),
        type_allocated_at: Vec::new(),
        count: 1,
        accessed_type: String::new(),
        type_owner: String::new(),
        field: String::new(),
        reached_through: String::new(),
        type_votes: Vec::new(),
    }
}

#[test]
fn nothing_is_delegated_that_an_atomic_instruction_does() {
    let object = object();
    let change = |access: AccessRow| {
        let other = AccessRow {
            tid: 2,
            ..access.clone()
        };
        propose(TRUE, &object, &[], &[access, other], &[])
    };
    let lock = change(access("pthread_mutex_lock", "cache.c"));
    assert!(lock.text.contains("a lock") && lock.text.contains("use an atomic instruction"));
    assert_eq!(
        lock.source, "",
        "a call of the runtime takes more than a paste"
    );
    let inlined = change(AccessRow {
        own: None,
        inlined_into: vec!["std::sync::Mutex<T>::lock".to_owned()],
        called_from: Vec::new(),
        ..access("core::sync::atomic::atomic_compare_exchange", "atomic.rs")
    });
    assert!(inlined.text.contains("a lock"), "{}", inlined.text);
    let counter = change(access("count", "count.rs"));
    assert!(!counter.text.contains("a lock") && !counter.text.contains("delegate"));
    assert_eq!(counter.source, "");
    assert_eq!(change(access("main.count", "main.go")).source, "");
}

#[test]
fn fields_of_one_object_are_moved_and_not_called_objects() {
    let mut line = line(&[("data", "Stats")]);
    (line.address, line.fields[0].size) = (0x40, 24);
    let heap = ObjectRow {
        kind: ObjectKind::Heap,
        accessed_type: "ArcInner<Stats>".to_owned(),
        ..object()
    };
    let of = |line: &LineRow, fields: [&str; 2]| {
        let [sent, received] = fields;
        let rows = [
            super::super::parts::tests::at(1, 0, sent, 1),
            super::super::parts::tests::at(2, 8, received, 2),
        ];
        propose(FALSE, &heap, std::slice::from_ref(line), &rows, &[]).text
    };
    let said = of(&line, ["data.sent", "data.received"]);
    let moved = "Move `data.received` to another line than `data.sent`";
    assert!(said.starts_with(moved), "{said}");
    // In an element of an array.
    line.fields[0].path = "[3].data".to_owned();
    let said = of(&line, ["data.sent", "data.received"]);
    assert!(said.starts_with(moved), "{said}");
    // What only knows the whole member.
    let said = of(&line, ["data", "data"]);
    assert!(!said.contains("different ones"), "{said}");
    let said = of(&line, ["data.slots[]", "data.slots[]"]);
    let elements = "Give each element of `data.slots` lines of its own";
    assert!(said.starts_with(elements), "{said}");
}

#[test]
fn elements_of_a_member_are_no_matter_of_a_layout() {
    let object = |field: &str| ObjectRow {
        field: field.to_owned(),
        ..object()
    };
    let of = |array: &str| format!("{ELEMENTS} `{array}` lines of its own: different");
    assert!(is_of_elements(&of("g.done"), &object("total, done[]")));
    assert!(is_of_elements(&of("rings[].slots"), &object("slots[].at")));
    assert!(is_of_elements(PARTED, &object("")));
    // An array of objects of the type.
    assert!(!is_of_elements(&of("counters"), &object("hits, misses")));
    assert!(!is_of_elements("Give each `T` lines", &object("done[]")));
}

#[test]
fn parts_of_an_array_of_numbers_begin_lines_and_nothing_is_pasted() {
    let at = |tid, offset, share| AccessRow {
        share,
        ..super::super::parts::tests::at(tid, offset, "", 1)
    };
    let block = ObjectRow {
        kind: ObjectKind::Heap,
        name: "block allocated by main".to_owned(),
        allocated_at: vec!["main (main.cpp:3)".to_owned()],
        type_allocated_at: Vec::new(),
        accessed_type: "double".to_owned(),
        size: 128,
        ..object()
    };
    let mut rows = vec![at(1, 0, 0.5), at(2, 32, 0.4)];
    let change = propose(FALSE, &block, &[line(&[])], &rows, &[]);
    let begin = "Let each thread's part of the block allocated by main begin on a line of its own";
    assert!(change.text.starts_with(begin), "{}", change.text);
    assert!(
        change.text.contains("a multiple of 64 bytes"),
        "{}",
        change.text
    );
    assert_eq!(change.source, "");
    // On a line that hardly anybody waits for others are side by side as well.
    for (tid, offset, field) in [(1, 8, "cost"), (2, 40, "coord")] {
        rows.push(AccessRow {
            line_address: 0,
            share: 0.05,
            ..super::super::parts::tests::at(tid, offset, field, 1)
        });
    }
    let change = propose(FALSE, &block, &[line(&[])], &rows, &[]);
    assert!(change.text.starts_with(begin), "{}", change.text);
    for builtin in [
        "unsigned int",
        "long int",
        "uint64_t",
        "u8",
        "f64",
        "float64",
        "uintptr",
        "usize",
        "node*",
        "*node",
    ] {
        assert!(is_builtin(builtin), "{builtin}");
    }
    for other in [
        "",
        "struct s",
        "Partial",
        "std::atomic<long int>",
        "interval",
        "u",
        "fields",
    ] {
        assert!(!is_builtin(other), "{other}");
    }
}

#[test]
fn what_nobody_writes_is_not_what_threads_share() {
    let at = |tid, offset, field: &str, op, share| AccessRow {
        op,
        share,
        ..super::super::parts::tests::at(tid, offset, field, 1)
    };
    let entry = |key: &str, val: &str| {
        [
            // Whoever set up the table wrote all of it once.
            at(3, 0, key, Operation::Store, 0.0),
            at(1, 0, key, Operation::Load, 0.5),
            at(2, 16, key, Operation::Load, 0.4),
            at(1, 8, val, Operation::Update, 0.02),
            at(2, 8, val, Operation::Update, 0.01),
        ]
    };
    let map = ObjectRow {
        accessed_type: "Pair".to_owned(),
        ..object()
    };
    let text = |rows: &[AccessRow]| propose(TRUE, &map, &[], rows, &[]).text;
    let said = text(&entry("key", "val"));
    assert!(said.starts_with("Threads really share `val`"), "{said}");
    assert!(!text(&entry("key", "val")[..3]).contains("`val`"));
    let said = text(&entry("0", "1"));
    assert!(said.starts_with("Threads really share `Pair.1`"), "{said}");
}

#[test]
fn what_changes_beside_a_declaration_is_told_in_its_language() {
    let of = |file: &str| {
        let mut row = access("work", file);
        row.share = 1.0;
        beside_a_declaration(&[row])
    };
    assert!(
        of("main.go").contains("name their fields"),
        "{}",
        of("main.go")
    );
    assert!(of("main.rs").contains("made"), "{}", of("main.rs"));
    assert!(of("main.c").contains("initialisers"), "{}", of("main.c"));
}
