//! Samples in loops that poll.

use linewise_recording::{CpuId, Field, Frame, Object, Polling, Sample, StackId, Time, Trap};

use super::*;
use crate::views::sampled_rows::{self, PID};

fn frame(depth: u32, function: &str, file: &str, line: u32) -> Frame {
    Frame {
        pid: PID,
        address: Address(0x10),
        depth,
        function: function.to_owned(),
        file: file.to_owned(),
        line,
        module: "/srv/app".to_owned(),
        reason: String::new(),
    }
}

fn sample(tid: u32, ip: u64, class: SampleClass, weight: u64) -> Sample {
    Sample {
        class,
        ip: Address(ip),
        access_ip: Address(0x10),
        weight,
        ..sampled_rows::sample(tid, ip, 0x5008)
    }
}

fn polling(ip: u64, load: u64) -> Polling {
    Polling {
        pid: PID,
        ip: Address(ip),
        load_ip: Address(load),
    }
}

fn written(ip: u64, operation: Operation) -> Trap {
    Trap {
        watch: 1,
        chunk: 1,
        exposure_ns: 0,
        time: Time(0),
        pid: PID,
        tid: Tid(3),
        cpu: CpuId(0),
        access_ip: Address(ip),
        address: Address(0x5008),
        size: 8,
        operation,
        locked: false,
        stack: StackId(0),
    }
}

/// A load at 0x10, behind which the loop goes on to 0x18; 0x20 is outside.
fn tables() -> Tables {
    Tables {
        polls: vec![polling(0x10, 0x10), polling(0x18, 0x10)],
        frames: vec![
            frame(
                0,
                "core::sync::atomic::load",
                "/rustc/1/library/core/atomic.rs",
                7,
            ),
            frame(1, "serve", "src/serve.rs", 40),
        ],
        samples: vec![
            sample(1, 0x10, SampleClass::Access, 30),
            sample(2, 0x18, SampleClass::Compute, 20),
            sample(2, 0x18, SampleClass::Kernel, 10),
            sample(3, 0x20, SampleClass::Compute, 40),
        ],
        ..Tables::default()
    }
}

#[test]
fn time_in_the_loop_counts_at_the_programs_own_line_of_the_load() {
    let rows = polls(&tables());
    let [row] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!((row.function.as_str(), row.line), ("serve", 40));
    assert_eq!((row.share, row.threads), (0.5, 2));
    assert_eq!(row.word, "");
    let section = rows.section().unwrap();
    assert_eq!(section.facts[0][0], Cell::Share(0.5));
    assert!(Vec::<Poll>::new().section().is_none());
}

#[test]
fn what_is_looked_at_has_the_name_of_its_variable_or_of_its_type() {
    let mut tables = tables();
    tables.typed_accesses = vec![sampled_rows::typed(0x10, "Queue")];
    tables.typed_accesses[0].path = "ready".to_owned();
    assert_eq!(polls(&tables)[0].word, "Queue.ready");
    tables.objects = vec![Object {
        pid: PID,
        address: Address(0x5000),
        size: 16,
        kind: ObjectKind::Static,
        name: "pending".to_owned(),
        type_name: String::new(),
        declared_at: String::new(),
    }];
    assert_eq!(polls(&tables)[0].word, "pending");
    tables.fields = vec![Field {
        pid: PID,
        object: Address(0x5000),
        offset: 8,
        size: 8,
        path: "pending.count".to_owned(),
        type_name: String::new(),
    }];
    assert_eq!(polls(&tables)[0].word, "pending.count");
}

#[test]
fn who_changes_what_is_looked_at_is_told_where_watches_saw_it() {
    let mut tables = tables();
    tables.traps = vec![
        written(0x30, Operation::Store),
        written(0x30, Operation::Update),
        written(0x10, Operation::Load),
        written(0x10, Operation::Load),
        written(0x10, Operation::Load),
    ];
    tables.frames.push(Frame {
        address: Address(0x30),
        ..frame(0, "publish", "src/publish.rs", 12)
    });
    let rows = polls(&tables);
    let changed = rows[0].changed.as_ref().unwrap();
    assert_eq!((changed.function.as_str(), changed.line), ("publish", 12));
    let notes = rows.section().unwrap().notes;
    let told = "serve waits until publish changes what is polled (publish.rs:12).";
    assert_eq!(notes[0], told);
    // By the thread that looks at it itself.
    tables.samples.retain(|it| it.tid == Tid(1));
    assert!(polls(&tables)[0].changed.is_some());
    tables.traps.iter_mut().for_each(|it| it.tid = Tid(1));
    assert_eq!(polls(&tables)[0].changed, None);
    tables.traps.truncate(0);
    assert_eq!(polls(&tables)[0].changed, None);
}

#[test]
fn of_two_words_that_end_a_loop_it_waits_for_the_one_that_others_change() {
    let mut tables = tables();
    tables.polls = vec![polling(0x10, 0x0c), polling(0x10, 0x10)];
    tables.samples.push(Sample {
        access_ip: Address(0x0c),
        address: Address(0x6000),
        ..sample(1, 0x10, SampleClass::Access, 900)
    });
    tables.typed_accesses = vec![
        sampled_rows::typed(0x0c, "Quit"),
        sampled_rows::typed(0x10, "Queue"),
    ];
    let words = |tables: &Tables| -> Vec<String> {
        polls(tables).into_iter().map(|row| row.word).collect()
    };
    assert_eq!(words(&tables), ["Quit.x or Queue.x"]);
    tables.traps = vec![written(0x30, Operation::Store)];
    assert_eq!(words(&tables), ["Queue.x"]);
    assert!(polls(&tables)[0].changed.is_some());
}
