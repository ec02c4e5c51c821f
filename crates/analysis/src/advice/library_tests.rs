//! What is proposed where the type of an object is a library's.

use super::super::parts::tests::at;
use super::tests::{FALSE, object};
use super::*;
use linewise_recording::Operation;

use crate::model::LineField;

fn said(kind: &str, fields: [(&str, &str, u32); 2], paths: [&str; 2]) -> Change {
    let object = ObjectRow {
        kind: ObjectKind::Heap,
        accessed_type: kind.to_owned(),
        type_owner: "the C++ library".to_owned(),
        ..object()
    };
    let line = LineRow {
        address: 0x40,
        size: 64,
        offset_in_object: 0,
        transfers: 1.0,
        fields: fields
            .map(|(path, type_name, offset)| LineField {
                offset,
                size: 8,
                path: path.to_owned(),
                type_name: type_name.to_owned(),
            })
            .to_vec(),
    };
    let rows: Vec<AccessRow> = (1..)
        .zip(fields.iter().zip(paths))
        .map(|(tid, ((_, _, offset), path))| at(tid, *offset, path, tid))
        .collect();
    propose(FALSE, &object, &[line], &rows, &[])
}

#[test]
fn nobody_is_told_to_edit_a_library() {
    let node = "std::_Rb_tree_node<std::pair<const int, Stats>>";
    let storage = "__gnu_cxx::__aligned_membuf<std::pair<const int, Stats>>";
    let fields = [
        ("[0]._M_storage", storage, 0),
        ("[1]._M_storage", storage, 48),
    ];
    let change = said(node, fields, ["_M_storage", "_M_storage"]);
    assert!(
        change
            .text
            .contains("Align what it holds, `Stats`, to 64 bytes"),
        "{}",
        change.text
    );
    assert!(
        change.source.contains("struct alignas(64) padded"),
        "{}",
        change.source
    );
    // The count of owners beside what they own.
    let arc = "alloc::sync::ArcInner<app::Counters>";
    let count = ("strong", "core::sync::atomic::Atomic<usize>", 0);
    let change = said(
        arc,
        [count, ("data", "Counters", 8)],
        ["strong", "data.sent"],
    );
    assert!(change.text.contains("`app::Counters`"), "{}", change.text);
    assert!(!change.text.contains("Move"), "{}", change.text);
    // Members of the library alone.
    let weak = ("weak", "core::sync::atomic::Atomic<usize>", 8);
    let change = said(arc, [count, weak], ["strong", "weak"]);
    assert!(
        change.text.starts_with("`strong` and `weak`, which"),
        "{}",
        change.text
    );
    assert_eq!(change.source, "");
}

#[test]
fn members_of_the_programs_own_type_in_a_library_are_moved() {
    let data = |offset| ("data", "app::Counters", offset);
    let change = said(
        "alloc::sync::ArcInner<app::Counters>",
        [data(0), data(8)],
        ["data.sent", "data.received"],
    );
    let moved = "Move `data.received` to another line than `data.sent`";
    assert!(change.text.starts_with(moved), "{}", change.text);
}

/// Thread, offset, field, source line, operation and share of an access.
type Seen<'a> = (u32, u32, &'a str, u32, Operation, f64);

fn shared(rows: &[Seen<'_>]) -> Change {
    let row = |&(tid, offset, field, line, op, share): &Seen<'_>| AccessRow {
        op,
        share,
        ..at(tid, offset, field, line)
    };
    let rows: Vec<AccessRow> = rows.iter().map(row).collect();
    propose(Interval::exactly(0.0), &object(), &[], &rows, &[])
}

#[test]
fn what_two_threads_hand_over_is_told_from_what_several_do_alike() {
    use Operation::{Load, Store, Update};
    // A slot that one fills and the other takes, beside the main thread that made it.
    let slots = [
        (1, 0, "slots[]", 10, Load, 0.2),
        (1, 0, "slots[]", 11, Store, 0.3),
        (2, 0, "slots[]", 20, Load, 0.2),
        (2, 0, "slots[]", 21, Store, 0.29),
        (3, 0, "slots[]", 1, Store, 0.001),
    ];
    let change = shared(&slots);
    assert!(
        change
            .text
            .starts_with("Two threads hand something over through `slots"),
        "{}",
        change.text
    );
    assert!(change.source.is_empty());
    // What both do alike, or three do, is no hand-over.
    for (at, other) in [
        (3, (2, 0, "slots[]", 11, Store, 0.29)),
        (4, (3, 0, "slots[]", 11, Store, 0.1)),
        (3, (2, 0, "slots[]", 21, Update, 0.29)),
    ] {
        let mut rows = slots;
        rows[at] = other;
        let said = shared(&rows).text;
        assert!(said.contains("Write it less often"), "{other:?}: {said}");
    }
    // Of an index the maker of the ring is no second writer.
    let index = [
        (1, 0, "tail", 11, Store, 0.5),
        (2, 0, "tail", 20, Load, 0.49),
        (3, 0, "tail", 1, Store, 0.001),
    ];
    let said = shared(&index).text;
    assert!(
        said.starts_with("`tail` is written by one thread"),
        "{said}"
    );
}

#[test]
fn owners_are_counted_less_often() {
    let count = |tid, function: &str| AccessRow {
        function: "__gnu_cxx::__exchange_and_add_dispatch".to_owned(),
        inlined_into: vec![function.to_owned(), "work(std::shared_ptr<S>)".to_owned()],
        op: Operation::Update,
        own: Some(crate::model::SourcePlace {
            function: "work(std::shared_ptr<S>)".to_owned(),
            ..Default::default()
        }),
        ..at(tid, 8, "_M_use_count", 1)
    };
    let said = |function| {
        let rows = [count(1, function), count(2, function)];
        propose(Interval::exactly(0.0), &object(), &[], &rows, &[]).text
    };
    let counted = said("std::_Sp_counted_base<(__gnu_cxx::_Lock_policy)2>::_M_release()");
    assert!(
        counted.starts_with("Threads count the owners of one object"),
        "{counted}"
    );
    assert!(said("add").contains("Write it less often"));
}

#[test]
fn what_lies_beside_a_lock_that_is_fought_over_is_told_to_be_moved_too() {
    let on = |tid, offset, field: &str, op| AccessRow {
        op,
        share: 0.3,
        function: "take_lock".to_owned(),
        ..at(tid, offset, field, 1)
    };
    let rows = [
        on(1, 0, "q.lock", Operation::Update),
        on(2, 0, "q.lock", Operation::Update),
        on(3, 16, "q.idle", Operation::Update),
    ];
    let said = |high| {
        let share = Interval { low: 0.0, high };
        propose(share, &object(), &[], &rows, &[]).text
    };
    let apart = "Beside that: Move `q.idle` to another line than `q.lock`";
    assert!(said(0.3).contains(apart), "{}", said(0.3));
    assert!(!said(0.05).contains("Move"));
}
