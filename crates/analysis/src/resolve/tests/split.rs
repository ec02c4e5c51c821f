//! Debug info in files of its own: .dwo files, packages of them, and what dwz moved.

use std::fs;
use std::path::Path;

use linewise_recording::{Address, UntypedReason};

use super::super::{Resolver, Store};
use super::accesses::{has, touched};
use super::{PATH, PID, Program, all_fields, build_and, run_tool};

const C: &str = r"
struct inner { long x; int y[4]; };
struct node { struct node *next; int key; struct inner in; };
struct node nodes[4];
static inline __attribute__((always_inline)) long add(struct node *n, long a) { return n->in.x += a; }
__attribute__((noinline)) long worker(struct node *n, long a) {
    static long calls;
    long s = ++calls;
    for (; n; n = n->next) s += add(n, a) + n->in.y[2];
    return s;
}
int main(void) { return (int)worker(nodes, 1); }
";

/// Where the split files are when the program is resolved.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Where {
    /// Where the compiler put them.
    Built,
    /// In the folder of the program.
    Beside,
    /// Packed.
    Package,
    /// Packed, at the place that has the program's build id in its name.
    ByBuildId,
    Nowhere,
}

/// Builds `C` split, and gives the resolver what `place` says; `pack` packs.
fn split(tool: &str, flags: &[&str], place: Where, pack: &str) -> Option<Program> {
    build_split(tool, flags, ("program.c", C), place, pack)
}

fn build_split(
    tool: &str,
    flags: &[&str],
    source: (&str, &str),
    place: Where,
    pack: &str,
) -> Option<Program> {
    let found = std::cell::RefCell::new(Vec::new());
    let gather = |folder: &Path| {
        let read = |name: &str| fs::read(folder.join(name)).expect("file read");
        if matches!(place, Where::Package | Where::ByBuildId) {
            if !folder.join("program.dwp").exists() {
                run_tool(pack, &["-e", "program", "-o", "program.dwp"], folder)?;
            }
            let path = if place == Where::Package {
                format!("{PATH}.dwp")
            } else {
                let notes = run_tool("readelf", &["-n", "program"], folder)?;
                let notes = String::from_utf8_lossy(&notes).into_owned();
                let id = notes.split("Build ID: ").nth(1).expect("a build id");
                let id = id.split_whitespace().next().expect("digits");
                let (first, rest) = id.split_at(2);
                format!("/usr/lib/debug/.build-id/{first}/{rest}.dwp")
            };
            found.borrow_mut().push((path, read("program.dwp")));
            return Some(());
        }
        for file in fs::read_dir(folder).expect("folder listed") {
            let name = file.expect("file listed").file_name();
            let name = name.to_string_lossy();
            if !name.ends_with(".dwo") {
                continue;
            }
            let path = match place {
                Where::Built => folder.join(&*name).to_string_lossy().into_owned(),
                _ => format!("/opt/app/{name}"),
            };
            if place != Where::Nowhere {
                found.borrow_mut().push((path, read(&name)));
            }
        }
        Some(())
    };
    let mut program = build_and(tool, flags, source, gather)?;
    program.files.0.extend(found.into_inner());
    Some(program)
}

/// Checks that functions, inlined code, lines, variables and types of `C` are known.
fn check(program: &Program, what: &str) {
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let worker = program.address("worker");
    let inlined = (0..64)
        .map(|at| resolver.frames(PID, Address(worker.0 + at)))
        .find(|frames| frames.len() > 1);
    let frames = inlined.unwrap_or_else(|| panic!("{what}: nothing inlined"));
    let shown: Vec<_> = frames
        .iter()
        .map(|frame| (frame.function.as_str(), frame.line, frame.reason.as_str()))
        .collect();
    assert_eq!(shown, [("add", 5, ""), ("worker", 9, "")], "{what}");
    assert!(frames[0].file.ends_with("/program.c"), "{what}: {frames:?}");

    let (object, _) = resolver.object(PID, program.address("nodes"));
    assert_eq!(object.name, "nodes", "{what}");
    assert_eq!(object.type_name, "struct node[4]", "{what}");
    assert!(
        object.declared_at.ends_with("/program.c:4"),
        "{what}: {object:?}"
    );
    let fields = all_fields(&mut resolver, &object);
    assert!(
        fields.contains(&"8+4 nodes[0].key: int".to_owned()),
        "{what}: {fields:#?}"
    );
    let (calls, _) = resolver.object(PID, program.address_of_part("calls"));
    assert_eq!(calls.name, "worker::calls", "{what}");

    let (rows, _) = touched(program, "worker", 96);
    has(&rows, &["struct node+16 in.x", "struct node+0 next"]);
    let row = (0..96)
        .map(|at| resolver.typed_access(PID, Address(worker.0 + at)))
        .find(|row| row.type_name == "struct node")
        .expect("an access to a node");
    assert!(row.declared_at.ends_with("program.c:3"), "{what}: {row:?}");
}

#[test]
fn split_debug_info_is_found_where_it_was_built_beside_the_program_and_in_packages() {
    let gnu: &[&str] = &["-gdwarf-4", "-gsplit-dwarf", "-O2"];
    let dwarf5: &[&str] = &["-gdwarf-5", "-gsplit-dwarf", "-O2"];
    let types: &[&str] = &["-gdwarf-5", "-gsplit-dwarf", "-O2", "-fdebug-types-section"];
    let older_types: &[&str] = &["-gdwarf-4", "-gsplit-dwarf", "-O2", "-fdebug-types-section"];
    let compressed: &[&str] = &["-gdwarf-5", "-gsplit-dwarf", "-O2", "-gz"];
    for tool in ["gcc", "clang"] {
        for flags in [gnu, dwarf5, types, older_types, compressed] {
            // binutils' packer does not know DWARF 5.
            let pack = if flags.contains(&"-gdwarf-4") {
                "dwp"
            } else {
                "llvm-dwp"
            };
            for place in [Where::Built, Where::Beside, Where::Package] {
                if place == Where::Package && flags.contains(&"-gz") {
                    // LLVM's packer does not read what is compressed.
                    continue;
                }
                let Some(program) = split(tool, flags, place, pack) else {
                    continue;
                };
                check(&program, &format!("{tool} {flags:?} {place:?}"));
            }
        }
    }
    let flags = ["-gdwarf-5", "-gsplit-dwarf", "-O2", "-Wl,--build-id"];
    if let Some(program) = split("gcc", &flags, Where::ByBuildId, "llvm-dwp") {
        check(&program, "by build id");
    }
}

#[test]
fn a_missing_split_file_is_named_with_where_it_was_looked_for() {
    let flags = ["-g", "-gsplit-dwarf", "-O2"];
    let Some(program) = split("gcc", &flags, Where::Nowhere, "") else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let worker = program.address("worker");
    let frames = resolver.frames(PID, worker);
    // Symbols and the lines of the program are left.
    assert_eq!(frames[0].function, "worker");
    assert_ne!(frames[0].line, 0);
    let reason = &frames[0].reason;
    for part in [
        "1 of 1 are missing",
        ".dwo (looked for as /",
        ", /opt/app/",
        "dwp -e",
    ] {
        assert!(reason.contains(part), "no {part} in {reason}");
    }
    let (rows, reasons) = touched(&program, "worker", 48);
    assert!(rows.is_empty(), "{rows:?}");
    assert!(!reasons.contains(&UntypedReason::Stack), "{reasons:?}");
}

#[test]
fn a_split_file_of_another_build_is_not_taken() {
    let flags = ["-g", "-gsplit-dwarf", "-O2"];
    let Some(mut program) = split("gcc", &flags, Where::Beside, "") else {
        return;
    };
    let changed = C.replace("long x;", "long before, x;");
    let other = build_split("gcc", &flags, ("program.c", &changed), Where::Beside, "");
    let other = other.expect("built as before");
    let mut replaced = 0;
    for (path, bytes) in other.files.0 {
        if path.ends_with(".dwo") {
            replaced += 1;
            program.files.0.insert(path, bytes);
        }
    }
    assert_eq!(replaced, 1);
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let frames = resolver.frames(PID, program.address("worker"));
    assert!(frames[0].reason.contains("of another build"), "{frames:?}");
    let (object, fields) = resolver.object(PID, program.address("nodes"));
    assert_eq!((object.name.as_str(), fields.len()), ("nodes", 0));
}

#[test]
fn split_debug_info_of_rust_is_found() {
    let source = r"
        #[repr(C)] pub struct Pair { pub a: u64, pub b: u32 }
        #[no_mangle] #[inline(never)]
        pub fn worker(pairs: &mut [Pair]) { for pair in pairs { pair.a += u64::from(pair.b); } }
        fn main() { let mut pairs = vec![Pair { a: 1, b: 2 }]; worker(&mut pairs); }
    ";
    for (kind, place) in [
        ("unpacked", Where::Built),
        ("unpacked", Where::Beside),
        ("packed", Where::Package),
    ] {
        let kind = format!("-Csplit-debuginfo={kind}");
        let flags = ["-g", "-O", &kind];
        let Some(program) = build_split("rustc", &flags, ("program.rs", source), place, "") else {
            return;
        };
        let (rows, _) = touched(&program, "worker", 64);
        has(&rows, &["Pair+0 a", "Pair+8 b"]);
    }
}

#[test]
fn sections_packed_by_zstd_and_by_zlib_are_read() {
    for kind in ["zlib-gnu", "zlib-gabi", "zstd"] {
        let compress = format!("--compress-debug-sections={kind}");
        let Some(program) = build_and("gcc", &["-g", "-O2"], ("program.c", C), |folder| {
            run_tool("objcopy", &[&compress, "program"], folder).map(|_| ())
        }) else {
            return;
        };
        check(&program, kind);
    }
}

#[test]
fn entries_that_dwz_moved_are_found_from_the_file_that_names_them() {
    // Two programs, so that there is something to share; the debug info apart, as packages have it.
    let moved = std::cell::RefCell::new(Vec::new());
    let share = |folder: &Path| {
        fs::create_dir(folder.join("debug")).expect("a folder");
        run_tool(
            "objcopy",
            &["--only-keep-debug", "program", "debug/program.debug"],
            folder,
        )?;
        fs::copy(
            folder.join("debug/program.debug"),
            folder.join("debug/second.debug"),
        )
        .ok()?;
        run_tool("strip", &["program"], folder)?;
        let arguments = [
            "-m",
            "debug/shared",
            "-M",
            "shared",
            "debug/program.debug",
            "debug/second.debug",
        ];
        run_tool("dwz", &arguments, folder)?;
        for name in ["program.debug", "shared"] {
            moved
                .borrow_mut()
                .push((name, fs::read(folder.join("debug").join(name)).ok()?));
        }
        let link = ["--add-gnu-debuglink=debug/program.debug", "program"];
        run_tool("objcopy", &link, folder).map(|_| ())
    };
    let flags = ["-g", "-O2", "-Wl,--build-id"];
    let Some(mut program) = build_and("gcc", &flags, ("program.c", C), share) else {
        return;
    };
    for (name, bytes) in moved.into_inner() {
        let path = match name {
            "shared" => "/opt/app/.debug/shared",
            _ => "/opt/app/.debug/program.debug",
        };
        program.files.0.insert(path.to_owned(), bytes);
    }
    check(&program, "dwz");
    program.files.0.remove("/opt/app/.debug/shared");
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let row = resolver.typed_access(PID, program.address("worker"));
    assert_ne!(row.type_name, "struct node");
}
