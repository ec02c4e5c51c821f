//! Allocators with C++ operators of their own: what the recorder saw against what the program did.

use std::path::{Path, PathBuf};
use std::process::Command;

use linewise_recording::{Allocator, HeapBlock, Recording};

use crate::heap::{agrees, heap, record, recorder, target};
use crate::util::{Output, Place, skip};

/// The libraries, and whether their operators throw where there is no memory: Debian's mimalloc ends the program.
const ALLOCATORS: [(&str, bool); 3] = [
    ("libjemalloc.so.2", true),
    ("libtcmalloc_minimal.so.4", true),
    ("libmimalloc.so.2", false),
];

/// Builds `operators.cpp`, linked with a library or with none; `None`, with the reason said, where that cannot be done.
fn operators(place: &Place, library: Option<&str>) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operators.cpp");
    let program = place.path("operators");
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-O1", "-g", "-pthread", "-o"]);
    compiler.args([&program, &source]);
    if let Some(library) = library {
        compiler.args(["-Wl,--no-as-needed", &format!("-l:{library}")]);
    }
    match compiler.output() {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            // Only that the library is missing is no mistake.
            assert!(said.contains("cannot find -l"), "{said}");
            skip(&format!("{} is not installed", library.unwrap_or_default()));
            None
        }
        Err(error) => {
            skip(&format!("g++ does not run: {error}"));
            None
        }
    }
}

/// What the program says is left and was allocated, against what the recorder saw; every form of operator is among it.
fn tells_the_truth(output: &Output, recording: &Recording) {
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let tables = recording.tables().unwrap();
    let own: Vec<&HeapBlock> = tables
        .heap_blocks
        .iter()
        .filter(|it| it.size % 8 == 5)
        .collect();
    let left = own.iter().filter(|it| it.freed.is_none());
    let (count, bytes) = left.fold((0, 0), |sum, it| (sum.0 + 1, sum.1 + it.size));
    assert_eq!(
        format!("{count} {bytes} {}", own.len()),
        output.stdout.trim(),
        "{:?}",
        tables.losses
    );
    let by_operators = own
        .iter()
        .filter(|it| it.allocator == Allocator::New)
        .count();
    assert!(by_operators > own.len() / 3, "{by_operators}");
    // What the allocator maps is its own; what the program maps is not.
    let mapped = tables
        .heap_blocks
        .iter()
        .filter(|it| it.allocator == Allocator::Mmap);
    let mapped: Vec<u64> = mapped.map(|it| it.size).collect();
    assert_eq!(mapped, [77 * 4096]);
    let lost = tables
        .losses
        .iter()
        .find(|loss| loss.what.starts_with("heap-"));
    assert!(lost.is_none(), "{lost:?}");
}

fn arguments(throws: bool) -> &'static [&'static str] {
    if throws { &[] } else { &["no-throw"] }
}

#[test]
fn operators_of_an_allocator_that_the_program_is_linked_with_are_seen() {
    for (library, throws) in ALLOCATORS {
        let place = Place::new();
        let Some(target) = operators(&place, Some(library)) else {
            continue;
        };
        let (output, recording) = record(&place, &["--heap", "on"], &target, arguments(throws));
        tells_the_truth(&output, &recording);
    }
}

#[test]
fn operators_of_an_allocator_that_the_user_preloads_are_seen() {
    for (library, throws) in ALLOCATORS {
        let place = Place::new();
        // Whether it is installed.
        if operators(&place, Some(library)).is_none() {
            continue;
        }
        let Some(target) = operators(&place, None) else {
            return;
        };
        let mut command = place.linewise(["record", "-o", "made", "--heap", "on", "--"]);
        command
            .arg(&target)
            .args(arguments(throws))
            .env("LD_PRELOAD", library)
            .env("LINEWISE_PRELOAD", recorder());
        let output = place.finish(&mut command);
        let recording = Recording::open(&place.path("made.linewise")).unwrap();
        tells_the_truth(&output, &recording);
    }
}

#[test]
fn a_program_without_operators_is_served_beside_an_allocator_that_has_them() {
    for (library, _) in ALLOCATORS {
        let place = Place::new();
        if operators(&place, Some(library)).is_none() {
            continue;
        }
        let Some(target) = target(&place, &[]) else {
            return;
        };
        let mut command = place.linewise(["record", "-o", "made", "--heap", "on", "--"]);
        command
            .arg(&target)
            .args(["crowd"])
            .env("LD_PRELOAD", library)
            .env("LINEWISE_PRELOAD", recorder());
        let output = place.finish(&mut command);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let recording = Recording::open(&place.path("made.linewise")).unwrap();
        agrees(&output, &recording);
    }
}

#[test]
fn an_exact_run_sees_each_operator_once() {
    if Command::new("qemu-x86_64")
        .arg("--version")
        .output()
        .is_err()
    {
        return skip("qemu-x86_64 does not run");
    }
    let place = Place::new();
    let (library, throws) = ALLOCATORS[0];
    let Some(target) = operators(&place, Some(library)) else {
        return;
    };
    let options = ["--source", "exact", "--heap", "on"];
    let (output, recording) = record(&place, &options, &target, arguments(throws));
    tells_the_truth(&output, &recording);
}

#[test]
fn a_program_that_goes_on_as_one_without_the_allocator_gets_the_operators_of_its_own_library() {
    let place = Place::new();
    let (library, _) = ALLOCATORS[0];
    if operators(&place, Some(library)).is_none() {
        return;
    }
    let build = |name: &str, compiler: &str, text: &str, options: &[&str]| {
        let source = place.path(&format!("{name}.cpp"));
        std::fs::write(&source, text).unwrap();
        let made = Command::new(compiler)
            .args(["-O1", "-o"])
            .args([&place.path(name), &source])
            .args(options)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{said}");
    };
    // A module that has a C++ library for itself alone, whose operator new fails once.
    build(
        "module.so",
        "g++",
        "#include <new>\n#include <string>\n#include <vector>\n\
         extern \"C\" int work() {\n\
             std::vector<std::string> all;\n\
             for (int i = 0; i < 1000; i++) all.push_back(std::string(100 + i, 'x'));\n\
             volatile std::size_t much = std::size_t(1) << 62;\n\
             try { ::operator delete(::operator new(much)); } catch (const std::bad_alloc &) { return all.size(); }\n\
             return 0;\n\
         }\n",
        &["-shared", "-fPIC"],
    );
    build(
        "loads",
        "gcc",
        "#include <dlfcn.h>\n#include <stdio.h>\n\
         int main() {\n\
             void *module = dlopen(\"./module.so\", RTLD_NOW | RTLD_LOCAL);\n\
             if (!module) return 1;\n\
             printf(\"%d\\n\", ((int (*)())dlsym(module, \"work\"))());\n\
         }\n",
        &["-fno-exceptions"],
    );
    build(
        "first",
        "g++",
        "#include <unistd.h>\nint main() { ::operator delete(::operator new(5)); return execl(\"./loads\", \"./loads\", (char *)0); }\n",
        &["-Wl,--no-as-needed", &format!("-l:{library}")],
    );
    let (output, recording) = record(&place, &["--heap", "on"], &place.path("first"), &[]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(output.stdout.trim(), "1000");
    assert_eq!(heap(&recording).processes, 2);
}
