//! Names of stripped programs: the symbols that they keep packed, and debug info from debuginfod's cache.

use std::fs;
use std::path::Path;

use linewise_recording::Frame;

use super::super::elf::Elf;
use super::super::{Debuginfod, DiskFiles, Files, Resolver, Store};
use super::{PATH, PID, Program, build_and, run_tool};

const C: &str = r"
__attribute__((noinline)) static long hidden(long a) { return a * 3; }
int main(int count, char **words) { return (int)hidden(count); }
";
const FLAGS: [&str; 3] = ["-g", "-O1", "-Wl,--build-id"];
/// How an xz file begins.
const XZ: &[u8] = b"\xfd7zXZ\0";

fn frame_of_hidden(program: &Program, files: &dyn Files) -> Frame {
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], files, &store);
    resolver.frames(PID, program.address("hidden")).remove(0)
}

/// A program with its symbols in .gnu_debugdata, as rpm leaves it.
fn with_mini_debug_info() -> Option<Program> {
    let pack = |folder: &Path| {
        let run = |tool: &str, words: &[&str]| run_tool(tool, words, folder).map(|_| ());
        run("objcopy", &["--only-keep-debug", "program", "mini"])?;
        run("objcopy", &["--strip-debug", "mini"])?;
        run("xz", &["mini"])?;
        run("strip", &["program"])?;
        let section = ["--add-section", ".gnu_debugdata=mini.xz", "program"];
        run("objcopy", &section)
    };
    build_and("gcc", &FLAGS, ("program.c", C), pack)
}

#[test]
fn a_stripped_program_has_the_names_of_its_packed_symbols() {
    let Some(program) = with_mini_debug_info() else {
        return;
    };
    let frame = frame_of_hidden(&program, &program.files);
    assert_eq!(frame.function, "hidden");
    assert!(frame.reason.contains("no debug info"), "{}", frame.reason);
}

#[test]
fn broken_packed_symbols_are_none() {
    let Some(program) = with_mini_debug_info() else {
        return;
    };
    let bytes = &program.files.0[PATH];
    let packed = |bytes: &[u8]| {
        let elf = Elf::open(Box::new(bytes.to_vec())).expect("the program itself is whole");
        elf.mini_debug_info().is_some()
    };
    assert!(packed(bytes));
    let is_start = |window: &[u8]| window == XZ;
    let start = bytes.windows(XZ.len()).position(is_start).expect("xz");
    for at in start..(start + 400).min(bytes.len()) {
        for bits in [1, 0x80, 0xff] {
            let mut broken = bytes.clone();
            broken[at] ^= bits;
            packed(&broken);
        }
    }
    let mut cut = bytes.clone();
    cut[start + 60..start + 400].fill(0);
    assert!(!packed(&cut));
}

#[test]
fn debug_info_is_taken_from_the_cache_of_debuginfod_by_its_build_id() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("opt/app");
    fs::create_dir_all(&place).unwrap();
    let separate = |folder: &Path| {
        run_tool(
            "objcopy",
            &["--only-keep-debug", "program", "debug"],
            folder,
        )?;
        run_tool("strip", &["program"], folder)?;
        fs::copy(folder.join("program"), place.join("program")).ok()?;
        fs::copy(folder.join("debug"), root.path().join("debug")).ok()?;
        Some(())
    };
    let Some(program) = build_and("gcc", &FLAGS, ("program.c", C), separate) else {
        return;
    };
    let found = || {
        let cache = |name: &str| (name == "DEBUGINFOD_CACHE_PATH").then(|| root.path().into());
        let files = DiskFiles::new(root.path()).with_debuginfod(Debuginfod::of(cache));
        frame_of_hidden(&program, &files)
    };
    assert_eq!(found().line, 0);
    let build_id = &program.maps[0].build_id;
    let folder = root.path().join(build_id);
    fs::create_dir(&folder).unwrap();
    fs::copy(root.path().join("debug"), folder.join("debuginfo")).unwrap();
    let frame = found();
    assert_eq!((frame.function.as_str(), frame.line), ("hidden", 2));
    assert_eq!(frame.reason, "");
    // What is no program is not taken, nor what is of another build.
    fs::write(folder.join("debuginfo"), "no ELF").unwrap();
    assert!(found().reason.contains("no debug info"));
    let mut other = fs::read(root.path().join("debug")).unwrap();
    let id: Vec<u8> = (0..build_id.len() / 2)
        .map(|at| u8::from_str_radix(&build_id[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let at = other.windows(id.len()).position(|it| it == id).unwrap();
    other[at] ^= 1;
    fs::write(folder.join("debuginfo"), other).unwrap();
    assert!(found().reason.contains("no debug info"));
}
