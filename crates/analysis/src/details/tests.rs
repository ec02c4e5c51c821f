//! Sources and machine code that exist only in the test.

use std::collections::HashMap;

use linewise_recording::{Address, Map, MapKind, Time};

use super::*;
use crate::resolve::File;
use crate::views::hot::{HotInstruction, HotLine};

struct MemoryFiles(HashMap<String, Vec<u8>>);

impl Files for MemoryFiles {
    fn open(&self, _: Pid, path: &str) -> Option<Box<dyn File>> {
        Some(Box::new(self.0.get(path)?.clone()))
    }
}

fn hot(file: &str, lines: &[(u32, f64)]) -> HotFunction {
    let line = |&(line, share): &(u32, f64)| HotLine {
        file: file.to_owned(),
        line,
        share,
    };
    HotFunction {
        function: "work".to_owned(),
        file: file.to_owned(),
        share: 0.5,
        module: "/opt/app".to_owned(),
        lines: lines.iter().map(line).collect(),
        ..HotFunction::default()
    }
}

fn lines(function: &HotFunction, content: Vec<u8>) -> Vec<ExcerptRow> {
    let files = MemoryFiles([(function.file.clone(), content)].into());
    source::lines(function, Pid(1), &files)
}

fn numbered(lines: u32) -> Vec<u8> {
    let lines: Vec<String> = (1..=lines).map(|it| format!("\tline {it}")).collect();
    lines.join("\n").into_bytes()
}

#[test]
fn source_lines_stand_around_the_hot_ones_with_their_share() {
    let shown = lines(&hot("/src/a.c", &[(20, 0.3), (2, 0.2)]), numbered(22));
    let told: Vec<(u64, Option<f64>, bool)> =
        shown.iter().map(|it| (it.at, it.share, it.gap)).collect();
    let plain = |at| (at, None, false);
    assert_eq!(
        told,
        [
            plain(1),
            (2, Some(0.2), false),
            plain(3),
            plain(4),
            plain(5),
            (17, None, true),
            plain(18),
            plain(19),
            (20, Some(0.3), false),
            plain(21),
            plain(22),
        ]
    );
    assert_eq!(shown[1].text, "    line 2");
    let everywhere: Vec<_> = (1..=16).map(|it| (it * 50, 0.01)).collect();
    let shown = lines(&hot("/src/a.c", &everywhere), numbered(900));
    assert_eq!(shown.len(), 56, "of eight lines there is room");
}

#[test]
fn what_is_no_source_is_not_shown() {
    for (path, content) in [
        ("/src/a.c", b"int a;\0\n".to_vec()),
        ("/src/a.c", vec![b'\n'; (4 << 20) + 1]),
        ("", Vec::new()),
    ] {
        assert_eq!(lines(&hot(path, &[(1, 0.3)]), content), [], "{path}");
    }
    let not_utf8 = lines(&hot("/src/a.c", &[(1, 0.3)]), b"\xffx".to_vec());
    assert_eq!(not_utf8[0].text, "\u{fffd}x");
}

#[test]
fn sources_that_the_program_itself_does_not_name_are_not_shown() {
    let mut function = hot("/home/dev/secret.c", &[(1, 0.3)]);
    function.instructions = vec![HotInstruction {
        pid: 1,
        address: 0x1000,
        share: 0.3,
    }];
    let files = MemoryFiles([(function.file.clone(), numbered(9))].into());
    assert!(!source::lines(&function, Pid(1), &files).is_empty());
    let shown = code(std::slice::from_ref(&function), &Tables::default(), &files);
    assert_eq!(shown, []);
}

/// A program in ELF with `code` at 0x1000, and its build id.
fn program(code: &[u8], build_id: &[u8; 4]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    put(&[3, 0, 62, 0, 1, 0, 0, 0]);
    put(&0_u64.to_le_bytes()); // entry
    put(&64_u64.to_le_bytes()); // program headers
    put(&0_u64.to_le_bytes()); // no sections
    put(&[0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, 0, 0, 0, 0]);
    let mut header = |kind: u32, flags: u32, at: u64, size: u64| {
        put(&kind.to_le_bytes());
        put(&flags.to_le_bytes());
        [at, at, at, size, size, 4]
            .iter()
            .for_each(|it| put(&it.to_le_bytes()));
    };
    header(1, 5, 0x1000, code.len() as u64);
    header(4, 4, 0x200, 20);
    file.resize(0x200, 0);
    file.extend_from_slice(&[4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0]);
    file.extend_from_slice(b"GNU\0");
    file.extend_from_slice(build_id);
    file.resize(0x1000, 0);
    file.extend_from_slice(code);
    file
}

#[test]
fn instructions_are_those_of_the_file_that_was_recorded_from_the_hot_ones_on() {
    // push rbp; mov rbp,rsp; nop; nop; nop; nop; ret
    let code_bytes = [0x55, 0x48, 0x89, 0xe5, 0x90, 0x90, 0x90, 0x90, 0xc3];
    let files = |build_id| {
        let file = program(&code_bytes, build_id);
        MemoryFiles([("/opt/app".to_owned(), file)].into())
    };
    let map = Map {
        pid: Pid(7),
        time: Time(0),
        start: Address(0x55_1000),
        end: Address(0x55_2000),
        offset: 0x1000,
        executable: true,
        writable: false,
        kind: MapKind::File,
        path: "/opt/app".to_owned(),
        build_id: "01020304".to_owned(),
        device: None,
        inode: None,
    };
    let tables = Tables {
        maps: vec![map],
        ..Tables::default()
    };
    let hot_at = |address, share| HotInstruction {
        pid: 7,
        address,
        share,
    };
    let function = HotFunction {
        instructions: vec![hot_at(0x55_1008, 0.2), hot_at(0x55_1000, 0.1)],
        ..hot("", &[])
    };
    let shown = code(
        std::slice::from_ref(&function),
        &tables,
        &files(&[1, 2, 3, 4]),
    );
    let rows: Vec<_> = (shown[0].instructions.iter())
        .map(|it| (it.at, it.text.as_str(), it.share, it.gap))
        .collect();
    assert_eq!(
        rows,
        [
            (0x1000, "push rbp", Some(0.1), false),
            (0x1001, "mov rbp, rsp", None, false),
            (0x1004, "nop", None, false),
            (0x1005, "nop", None, false),
            (0x1008, "ret", Some(0.2), true),
        ]
    );
    let of_another = code(
        std::slice::from_ref(&function),
        &tables,
        &files(&[9, 9, 9, 9]),
    );
    assert_eq!(of_another, []);
}
