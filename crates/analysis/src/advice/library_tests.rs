//! What is proposed where the type of an object is a library's.

use super::super::parts::tests::at;
use super::tests::{FALSE, object};
use super::*;
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
