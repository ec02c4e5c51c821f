//! Where samples with known call chains count.

use linewise_recording::{SampleClass, Stack, StackId};

use super::*;
use crate::views::sampled_rows::{self, PID};

const PROGRAM: &str = "/opt/app";
const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";

fn frame(address: u64, depth: u32, function: &str, file: &str, line: u32, module: &str) -> Frame {
    Frame {
        pid: PID,
        address: Address(address),
        depth,
        function: function.to_owned(),
        file: file.to_owned(),
        line,
        module: module.to_owned(),
        reason: String::new(),
    }
}

fn sample(tid: u32, ip: u64, stack: u32, weight: u64) -> Sample {
    Sample {
        class: SampleClass::Compute,
        ip: Address(ip),
        access_ip: Address(0),
        stack: StackId(stack),
        weight,
        ..sampled_rows::sample(tid, ip, 0)
    }
}

fn stack(id: u32, frames: &[u64]) -> Stack {
    Stack {
        id: StackId(id),
        frames: frames.iter().map(|&it| Address(it)).collect(),
    }
}

/// `find` at line 10 and 12, with a loop of Rust's library inlined; `copy` calls memcpy.
fn tables(samples: Vec<Sample>) -> Tables {
    Tables {
        frames: vec![
            frame(0x10, 0, "find", "src/find.c", 10, PROGRAM),
            frame(
                0x20,
                0,
                "core::iter::next",
                "/rustc/1/library/core/iter.rs",
                90,
                PROGRAM,
            ),
            frame(0x20, 1, "find", "src/find.c", 12, PROGRAM),
            frame(0x90, 0, "memcpy", "", 0, LIBC),
            frame(0x30, 0, "copy", "src/copy.c", 5, PROGRAM),
            frame(0x40, 0, "main", "src/main.c", 3, PROGRAM),
        ],
        stacks: vec![
            stack(1, &[0x10, 0x40]),
            stack(2, &[0x20, 0x40]),
            stack(3, &[0x90, 0x30, 0x40]),
            stack(4, &[0x90]),
        ],
        samples,
        ..Tables::default()
    }
}

fn rows(samples: Vec<Sample>) -> Vec<HotFunction> {
    hot(&tables(samples)).unwrap()
}

#[test]
fn time_counts_at_the_programs_own_function_with_what_it_calls_of_libraries() {
    let rows = rows(vec![
        sample(1, 0x10, 1, 100),
        sample(1, 0x20, 2, 300),
        sample(2, 0x20, 2, 100),
        sample(2, 0x90, 3, 400),
        sample(3, 0x90, 4, 100),
    ]);
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row.function.as_str(), row.share, row.threads))
        .collect();
    assert_eq!(
        told,
        [("find", 0.5, 2), ("copy", 0.4, 1), ("memcpy", 0.1, 1)]
    );
    let [find, copy, alone] = &rows[..] else {
        panic!()
    };
    assert_eq!((find.file.as_str(), find.line), ("src/find.c", 12));
    let lines: Vec<_> = find.lines.iter().map(|it| (it.line, it.share)).collect();
    assert_eq!(lines, [(12, 0.4), (10, 0.1)]);
    let inside = |row: &HotFunction| -> Vec<(String, f64)> {
        let inside = row.inside.iter();
        inside.map(|it| (it.function.clone(), it.share)).collect()
    };
    assert_eq!(inside(find), [("core::iter::next".to_owned(), 0.4)]);
    assert_eq!(inside(copy), [("memcpy".to_owned(), 0.4)]);
    assert_eq!((inside(alone), alone.module.as_str()), (vec![], LIBC));
    let copied = &copy.instructions[0];
    assert_eq!((copied.address, copied.share), (0x30, 0.4));
}

#[test]
fn the_kernels_time_is_that_of_who_called_it() {
    let of_kernel = Sample {
        class: SampleClass::Kernel,
        ..sample(1, 0x90, 3, 100)
    };
    let rows = rows(vec![of_kernel]);
    assert_eq!(rows[0].function, "copy");
    assert_eq!(rows[0].inside[0].function, "the kernel");
}

#[test]
fn without_samples_there_is_nothing_to_say_and_unknown_code_keeps_its_share() {
    assert_eq!(hot(&tables(Vec::new())), None);
    let rows = rows(vec![sample(1, 0x10, 1, 100), sample(1, 0x999, 9, 300)]);
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].function.as_str(), rows[0].share), (UNKNOWN, 0.75));
}

#[test]
fn code_without_a_name_is_not_its_callers() {
    let mut tables = tables(vec![sample(1, 0x50, 5, 100), sample(1, 0x40, 6, 300)]);
    let reason = "code made at run time".to_owned();
    tables.frames.push(Frame {
        reason: reason.clone(),
        ..frame(0x50, 0, "", "", 0, "")
    });
    tables
        .stacks
        .extend([stack(5, &[0x50, 0x40]), stack(6, &[0x40])]);
    let rows = hot(&tables).unwrap();
    let told = rows.iter().map(|row| (row.function.as_str(), row.share));
    assert_eq!(told.collect::<Vec<_>>(), [("main", 0.75), (UNKNOWN, 0.25)]);
    assert_eq!(
        (&rows[1].missing, rows[1].instructions[0].address),
        (&reason, 0x50)
    );
}
