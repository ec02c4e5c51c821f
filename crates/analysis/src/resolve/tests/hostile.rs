//! Broken files: no panic, no hang, whatever the bytes are.

use std::sync::OnceLock;

use linewise_recording::{Address, Pid};
use proptest::prelude::*;

use super::super::elf::Elf;
use super::super::{Callers, File, Files, Resolver, Store};
use super::{MemoryFiles, PATH, PID, Program, build, build_and, map_on_paper, run_tool};

const SOURCE: &str = r"
struct node { struct node *next; union { long a; char b[8]; } value; } nodes[4];
static inline __attribute__((always_inline)) long add(long a) { return nodes[1].value.a += a; }
__attribute__((noinline)) long worker(long a) { static long calls; return add(a) + ++calls; }
int main(void) { return (int)worker(1); }
";

/// A small program, built once; `None` without a compiler.
fn small_program() -> Option<&'static Program> {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    let flags = ["-g", "-O1", "-nostartfiles", "-e", "main", "-static"];
    PROGRAM
        .get_or_init(|| build("gcc", &flags, ("program.c", SOURCE)))
        .as_ref()
}

/// Asks everything about the program `bytes`, mapped as `like` was.
fn ask_everything(bytes: Vec<u8>, like: &Program) {
    ask_everything_beside(bytes, like, MemoryFiles::default());
}

/// The same with other files around it.
fn ask_everything_beside(bytes: Vec<u8>, like: &Program, mut files: MemoryFiles) {
    files.0.insert(PATH.to_owned(), bytes);
    let mut maps = like.maps.clone();
    for map in &mut maps {
        map.build_id.clear();
    }
    let store = Store::default();
    let mut resolver = Resolver::new(&maps, &[], &files, &store);
    for map in &like.maps {
        for step in 0..64 {
            let address = Address(map.start.0 + (map.end.0 - map.start.0) / 64 * step);
            assert!(!resolver.frames(PID, address).is_empty());
            resolver.object(PID, address);
        }
    }
    for name in ["worker", "main", "nodes", "calls.0"] {
        let address = like.address(name);
        resolver.frames(PID, address);
        resolver.caller_frames(PID, address);
        let (object, _) = resolver.object(PID, address);
        resolver.fields_in(&object, Address(0), u64::MAX);
    }
    let worker = like.address("worker");
    let code = (0..48).map(|byte| (PID, Address(worker.0 + byte)));
    resolver.typed_accesses(code, &Callers::default());
}

/// Where the sections that matter lie in the file: flips elsewhere change nothing.
fn interesting(bytes: &[u8]) -> Vec<usize> {
    let sections = [
        ".debug_info",
        ".debug_abbrev",
        ".debug_line",
        ".symtab",
        ".debug_rnglists",
        ".debug_loclists",
        ".eh_frame",
        ".text",
    ];
    bytes_of_sections(bytes, &sections)
}

/// Where those of split files are.
fn interesting_split(bytes: &[u8]) -> Vec<usize> {
    let sections = [
        ".debug_info.dwo",
        ".debug_abbrev.dwo",
        ".debug_str_offsets.dwo",
        ".debug_rnglists.dwo",
        ".debug_loclists.dwo",
        ".debug_loc.dwo",
        ".debug_cu_index",
        ".debug_tu_index",
    ];
    bytes_of_sections(bytes, &sections)
}

/// The same program with its debug info in a file of its own, and the name of that; packed, if so
/// asked. `None` without the tools.
fn split_program(packed: bool) -> Option<&'static (Program, String)> {
    static PROGRAMS: [OnceLock<Option<(Program, String)>>; 2] = [OnceLock::new(), OnceLock::new()];
    PROGRAMS[usize::from(packed)]
        .get_or_init(|| {
            let name = if packed { "program.dwp" } else { "program.dwo" };
            let found = std::cell::RefCell::new(Vec::new());
            let gather = |folder: &std::path::Path| {
                let dwo = std::fs::read_dir(folder)
                    .ok()?
                    .filter_map(|file| file.ok()?.file_name().into_string().ok())
                    .find(|name| name.ends_with(".dwo"))?;
                if packed {
                    run_tool("dwp", &["-e", "program", "-o", "program.dwp"], folder)?;
                }
                let file = if packed { name } else { &*dwo };
                let bytes = std::fs::read(folder.join(file)).ok()?;
                found.borrow_mut().push((format!("/opt/app/{file}"), bytes));
                Some(())
            };
            let flags = [
                "-gdwarf-4",
                "-gsplit-dwarf",
                "-O1",
                "-nostartfiles",
                "-e",
                "main",
                "-static",
            ];
            let mut program = build_and("gcc", &flags, ("program.c", SOURCE), gather)?;
            let found = found.into_inner();
            let path = found.first()?.0.clone();
            program.files.0.extend(found);
            Some((program, path))
        })
        .as_ref()
}

fn bytes_of_sections(bytes: &[u8], sections: &[&str]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..64).collect();
    let elf = Elf::open(Box::new(bytes.to_vec())).expect("an ELF file");
    for name in sections {
        let Some(section) = elf
            .section_bytes(name)
            .filter(|section| !section.is_empty())
        else {
            continue;
        };
        let start = bytes
            .windows(section.len())
            .position(|window| window == section);
        places.extend(
            start
                .into_iter()
                .flat_map(|start| start..start + section.len()),
        );
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes_cost_names_and_nothing_else(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let Some(program) = small_program() else { return Ok(()) };
        let mut bytes = program.files.0[PATH].clone();
        let places = interesting(&bytes);
        for (place, value) in flips {
            bytes[*place.get(&places)] = value;
        }
        ask_everything(bytes, program);
    }

    #[test]
    fn a_truncated_file_costs_names_and_nothing_else(length in any::<prop::sample::Index>()) {
        let Some(program) = small_program() else { return Ok(()) };
        let mut bytes = program.files.0[PATH].clone();
        bytes.truncate(length.index(bytes.len()));
        ask_everything(bytes, program);
    }

    #[test]
    fn flipped_bytes_of_split_debug_info_cost_names_and_nothing_else(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        packed in any::<bool>(),
        length in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let Some((program, path)) = split_program(packed) else { return Ok(()) };
        let mut bytes = program.files.0[path].clone();
        let places = interesting_split(&bytes);
        for (place, value) in flips {
            bytes[*place.get(&places)] = value;
        }
        if let Some(length) = length {
            bytes.truncate(length.index(bytes.len()));
        }
        let mut files = MemoryFiles::default();
        files.0.insert(path.clone(), bytes);
        ask_everything_beside(program.files.0[PATH].clone(), program, files);
    }

    #[test]
    fn random_bytes_are_no_program(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let Some(program) = small_program() else { return Ok(()) };
        ask_everything(bytes, program);
    }
}

#[test]
fn the_unbroken_program_is_resolved_in_the_same_way() {
    let Some(program) = small_program() else {
        return;
    };
    ask_everything(program.files.0[PATH].clone(), program);
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let frames = resolver.frames(PID, program.address("worker"));
    assert_eq!(
        frames.last().map(|frame| frame.function.as_str()),
        Some("worker")
    );
    assert_eq!(
        resolver.object(PID, program.address("nodes")).0.name,
        "nodes"
    );
}

#[test]
fn the_unbroken_split_program_is_resolved_from_its_file_and_from_its_package() {
    for packed in [false, true] {
        let Some((program, _)) = split_program(packed) else {
            continue;
        };
        let store = Store::default();
        let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
        let (object, fields) = resolver.object(PID, program.address("nodes"));
        assert_eq!((object.name.as_str(), object.size), ("nodes", 64));
        assert!(!fields.is_empty(), "packed: {packed}");
    }
}

#[test]
fn types_that_contain_themselves_end() {
    // In assembly, because no compiler writes it: a struct whose only member is itself, and a
    // typedef of itself.
    let source = r#"
    .text
    ret
    .data
    .globl cyclic
    .type cyclic, @object
    .size cyclic, 8
cyclic: .quad 0
    .section .debug_abbrev,"",@progbits
    .uleb128 1, 0x11, 1, 0, 0
    .uleb128 2, 0x34, 0, 0x03, 0x08, 0x49, 0x13, 0x02, 0x18, 0, 0
    .uleb128 3, 0x13, 1, 0x0b, 0x0b, 0, 0
    .uleb128 4, 0x0d, 0, 0x03, 0x08, 0x49, 0x13, 0x38, 0x0b, 0, 0
    .uleb128 5, 0x16, 0, 0x03, 0x08, 0x49, 0x13, 0, 0
    .byte 0
    .section .debug_info,"",@progbits
unit: .long end - start
start: .short 4
    .long 0
    .byte 8
    .uleb128 1
    .uleb128 2
    .asciz "cyclic"
    .long structure - unit
    .byte 9, 3
    .quad cyclic
structure: .uleb128 3
    .byte 8
    .uleb128 4
    .asciz "self"
    .long structure - unit
    .byte 0
    .uleb128 4
    .asciz "again"
    .long alias - unit
    .byte 0
    .byte 0
alias: .uleb128 5
    .asciz "alias"
    .long alias - unit
    .byte 0
end:
"#;
    let flags = ["-nostdlib", "-static", "-Wl,-e,0"];
    let Some(program) = build("gcc", &flags, ("program.s", source)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let (object, fields) = resolver.object(PID, program.address("cyclic"));
    assert_eq!((object.name.as_str(), object.size), ("cyclic", 8));
    assert!(fields.is_empty(), "{fields:?}");
}

#[test]
fn a_huge_compressed_section_is_left_out() {
    let flags = ["-g", "-O1", "-gz", "-nostartfiles", "-e", "main", "-static"];
    let Some(program) = build("gcc", &flags, ("program.c", SOURCE)) else {
        return;
    };
    let mut bytes = program.files.0[PATH].clone();
    assert_eq!(resolve_main(&bytes), "main");
    // The compression header says how large the section becomes: claim all there is.
    let header = [1_u8, 0, 0, 0, 0, 0, 0, 0];
    let mut found = 0;
    for place in (0..bytes.len() - 24).step_by(8) {
        let is_header = bytes[place..place + 8] == header
            && bytes[place + 16..place + 24] == [1_u8, 0, 0, 0, 0, 0, 0, 0]
            && bytes[place + 24] == 0x78;
        if is_header {
            bytes[place + 8..place + 16].fill(0xff);
            found += 1;
        }
    }
    if found == 0 {
        eprintln!("skipped: this compiler does not compress debug info with zlib");
        return;
    }
    // Only the symbol table is left.
    assert_eq!(resolve_main(&bytes), "main");
}

fn resolve_main(bytes: &[u8]) -> String {
    let (maps, _) = map_on_paper(bytes, PATH);
    let mut files = MemoryFiles::default();
    files.0.insert(PATH.to_owned(), bytes.to_vec());
    let store = Store::default();
    let mut resolver = Resolver::new(&maps, &[], &files, &store);
    let entry = u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes"));
    resolver.frames(PID, Address(entry))[0].function.clone()
}

/// What is said of the functions that were compiled from `source`, and how much room `Store` has.
fn reason_of(source: &str, flags: &[&str]) -> Option<String> {
    let all = [flags, &["-nostdlib", "-static", "-Wl,-e,0"]].concat();
    let program = build("gcc", &all, ("program.s", source))?;
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let frames = resolver.frames(PID, program.address("code"));
    assert_eq!(frames[0].function, "code", "{frames:?}");
    assert_eq!(frames[0].line, 0, "{frames:?}");
    Some(frames[0].reason.clone())
}

/// A unit with code, whose line table is what `lines` says; `units` more units refer to it.
fn assembly(lines: &str, abbreviation: &str, units: usize) -> String {
    let unit = "
    .long 2f - 1f
1:  .short 4
    .long 0
    .byte 8
    .uleb128 1
    .quad code
    .quad 16
    .long table
2:
";
    let units = unit.repeat(units + 1);
    format!(
        r#"
    .text
    .globl code
    .type code, @function
    .size code, 16
code: .fill 16, 1, 0x90
    .section .debug_abbrev,"",@progbits
    .uleb128 1, 0x11, 0, 0x11, 0x01, 0x12, 0x07, 0x10, 0x17, {abbreviation} 0, 0
    .byte 0
    .section .debug_info,"",@progbits
{units}
    .section .debug_line,"",@progbits
table: .long 4f - 3f
3:  .short 4
    .long 6f - 5f
5:  .byte 1, 1, 1, 0xfb, 14, 13
    .byte 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1
    .byte 0
{lines}
4:
"#
    )
}

#[test]
fn a_line_table_of_millions_of_rows_in_some_kilobytes_is_too_large() {
    // Sixty million rows, each a byte that packs to nothing.
    let lines = "
    .byte 'a', 0, 0, 0, 0, 0
6:  .byte 0, 9, 2
    .quad code
    .fill 60000000, 1, 0x20
    .byte 0, 1, 1
";
    let Some(reason) = reason_of(&assembly(lines, "", 0), &["-gz"]) else {
        return;
    };
    assert!(
        reason.contains("the debug info of /opt/app/program is too large: its lines"),
        "{reason}"
    );
}

#[test]
fn a_unit_whose_code_ends_behind_the_last_address_has_none() {
    let lines = "    .byte 'a', 0, 0, 0, 0, 0\n6:\n";
    let source = assembly(lines, "", 0).replace(".quad 16", ".quad -16");
    let Some(reason) = reason_of(&source, &[]) else {
        return;
    };
    assert!(!reason.is_empty());
}

#[test]
fn names_of_megabytes_are_cut() {
    let name = "a".repeat(3 << 20);
    let source =
        format!("int {name}(void) {{ return 1; }}\nint main(void) {{ return {name}(); }}\n");
    let Some(program) = build("gcc", &["-g", "-O0"], ("program.c", &source)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let frames = resolver.frames(PID, program.address(&name));
    let shown = &frames[0].function;
    assert!(
        shown.starts_with("aaa") && shown.len() < 10_000,
        "{}",
        shown.len()
    );
}

#[test]
fn a_list_of_files_that_many_units_share_is_too_large() {
    let lines = "
    .rept 20000
    .byte 'a', 0, 0, 0, 0
    .endr
    .byte 0
6:
";
    let Some(reason) = reason_of(&assembly(lines, "", 5000), &["-gz"]) else {
        return;
    };
    assert!(reason.contains("is too large: its lines"), "{reason}");
}

#[test]
fn an_entry_with_thousands_of_attributes_is_too_large() {
    let lines = "    .byte 'a', 0, 0, 0, 0, 0\n6:\n";
    let abbreviation = "0x3f, 0x19, ".repeat(1000);
    let Some(reason) = reason_of(&assembly(lines, &abbreviation, 0), &[]) else {
        return;
    };
    assert!(reason.contains("is too large: its lines"), "{reason}");
}

#[test]
fn a_symbol_table_of_gigabytes_of_nothing_is_named_and_not_read() {
    /// A file with a hole behind it.
    struct Sparse(Vec<u8>);

    impl File for Sparse {
        fn size(&self) -> u64 {
            4 << 30
        }

        fn read(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
            assert!(length < 64 << 20, "{length} bytes of nothing are read");
            let mut bytes = vec![0; usize::try_from(length).ok()?];
            let start = usize::try_from(offset).ok()?.min(self.0.len());
            let there = &self.0[start..self.0.len().min(start + bytes.len())];
            bytes[..there.len()].copy_from_slice(there);
            Some(bytes)
        }
    }

    struct OneFile(Vec<u8>);

    impl Files for OneFile {
        fn open(&self, _pid: Pid, path: &str) -> Option<Box<dyn File>> {
            (path == PATH).then(|| Box::new(Sparse(self.0.clone())) as Box<dyn File>)
        }
    }

    let Some(program) = small_program() else {
        return;
    };
    let mut bytes = program.files.0[PATH].clone();
    // Of each symbol table the section header says that it has three gigabytes.
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let table = word(40) as usize;
    let count = usize::from(u16::from_le_bytes([bytes[60], bytes[61]]));
    let mut changed = 0;
    for header in (0..count).map(|number| table + 64 * number) {
        if bytes[header + 4] == 2 {
            bytes[header + 32..header + 40].copy_from_slice(&(3_u64 << 30).to_le_bytes());
            changed += 1;
        }
        // And the debug info is gone.
        if bytes[header + 4] == 1 && bytes[header + 8] == 0 {
            bytes[header + 4] = 8;
        }
    }
    assert_eq!(changed, 1);
    let files = OneFile(bytes);
    let store = Store::default();
    let mut maps = program.maps.clone();
    for map in &mut maps {
        map.build_id.clear();
    }
    let mut resolver = Resolver::new(&maps, &[], &files, &store);
    let frames = resolver.frames(PID, program.address("worker"));
    assert!(
        frames[0]
            .reason
            .contains("the symbols of /opt/app/program are too large"),
        "{frames:?}"
    );
}

#[test]
fn code_in_a_segment_that_may_not_run_has_no_instructions_to_type() {
    let Some(program) = small_program() else {
        return;
    };
    let mut bytes = program.files.0[PATH].clone();
    let number = |at: usize, width: usize| {
        let word = bytes[at..at + width].iter().rev();
        word.fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    for header in (0..count).map(|segment| table + size * segment) {
        // PF_X
        bytes[header + 4] &= !1;
    }
    let (mut maps, _) = map_on_paper(&bytes, PATH);
    for map in &mut maps {
        // It ran all the same: mprotect.
        map.executable = true;
    }
    let mut files = MemoryFiles::default();
    files.0.insert(PATH.to_owned(), bytes);
    let store = Store::default();
    let mut resolver = Resolver::new(&maps, &[], &files, &store);
    let worker = program.address("worker");
    let code: Vec<_> = (0..48).map(|at| (PID, Address(worker.0 + at))).collect();
    let typed = resolver.typed_accesses(code, &Callers::default());
    assert!(typed.accesses.iter().all(|row| row.type_name.is_empty()));
}
