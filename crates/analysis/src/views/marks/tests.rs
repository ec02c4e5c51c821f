//! Samples in and outside of marks.

use linewise_recording::Time;

use super::*;
use crate::views::sampled_rows::{self, PID};

fn mark(tid: u32, kind: MarkKind, name: &str, (start, end): (u64, u64)) -> Mark {
    Mark {
        pid: PID,
        tid: Tid(tid),
        kind,
        id: if kind == MarkKind::Session { start } else { 0 },
        name: name.to_owned(),
        start: Time(start),
        end: Time(end),
    }
}

fn sample(tid: u32, time: u64, address: u64, operation: Operation) -> Sample {
    Sample {
        time: Time(time),
        operation: Some(operation),
        ..sampled_rows::sample(tid, 0x10, address)
    }
}

fn tables() -> Tables {
    let phase = |tid, name, times| mark(tid, MarkKind::Phase, name, times);
    let session = |times| mark(1, MarkKind::Session, "connection", times);
    Tables {
        marks: vec![
            phase(1, "fight", (20, 30)),
            phase(1, "parse", (10, 20)),
            phase(2, "fight", (10, 30)),
            session((10, 15)),
            session((15, 20)),
        ],
        samples: vec![
            // The line at 0x1000 is touched by both, the one at 0x2000 by both and written by none.
            sample(1, 12, 0x2000, Operation::Load),
            sample(1, 20, 0x1000, Operation::Update),
            sample(2, 12, 0x1008, Operation::Load),
            sample(2, 29, 0x2000, Operation::Load),
            // After the end of a mark, and of a thread without marks.
            sample(1, 30, 0x3000, Operation::Store),
            sample(3, 12, 0x4000, Operation::Store),
            sample(3, 13, 0x4000, Operation::Store),
            sample(3, 14, 0x4000, Operation::Store),
        ],
        ..Tables::default()
    }
}

#[test]
fn time_counts_where_the_thread_was_and_shared_lines_are_those_that_one_writes() {
    let info = crate::views::exact_rows::info();
    let found = Marked::of(&info, &tables()).unwrap();
    let shown = |rows: &[MarkedTime]| -> Vec<(String, f64, f64, u64, u64, u64)> {
        let row = |it: &MarkedTime| {
            let MarkedTime {
                share,
                at_shared_lines,
                ..
            } = *it;
            (
                it.name.clone(),
                share,
                at_shared_lines,
                it.times,
                it.threads,
                it.sessions,
            )
        };
        rows.iter().map(row).collect()
    };
    assert_eq!(
        shown(&found.phases),
        [
            ("fight".to_owned(), 0.375, 2.0 / 3.0, 2, 2, 0),
            ("parse".to_owned(), 0.125, 0.0, 1, 1, 0),
        ]
    );
    assert_eq!(
        shown(&found.sessions),
        [("connection".to_owned(), 0.125, 0.0, 2, 1, 2)]
    );
    assert_eq!((found.no_phase, found.no_session), (0.5, 0.875));
    let section = found.section().unwrap();
    assert_eq!(section.facts[0][0], Cell::Share(0.5));
    assert_eq!(section.table.unwrap().rows.len(), 3);
}

#[test]
fn without_marks_there_is_nothing_and_of_many_names_the_first_are_told() {
    let info = crate::views::exact_rows::info();
    let mut tables = tables();
    tables.marks.clear();
    assert_eq!(Marked::of(&info, &tables), None);
    for number in 0..50 {
        let times = (number * 10, number * 10 + 10);
        let phase = mark(1, MarkKind::Phase, &format!("phase {number}"), times);
        tables.marks.push(phase);
    }
    let found = Marked::of(&info, &tables).unwrap();
    assert_eq!(found.phases.len(), NAMES);
    assert!(found.sessions.is_empty());
}
