//! Heap blocks: what the recorder saw against what the program did, and programs that make it hard.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use linewise_recording::{HeapBlock, HeapRun, Recording};

use crate::util::{BINARY, Output, Place, contended, emulator, signal, skip};

/// The recorder, built beside the binary under test; it is no library that a test could link.
pub(crate) fn recorder() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let beside = Path::new(crate::util::BINARY).parent().unwrap();
        // As it is loaded into programs, whatever the binary under test was built as.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--quiet", "--profile", "preload"]);
        for package in ["linewise-preload", "linewise-preload-cxx"] {
            cargo.args(["--package", package, "--features"]);
            cargo.arg(format!("{package}/bare"));
        }
        let status = cargo
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .status()
            .unwrap();
        assert!(status.success());
        let made = beside.with_file_name("preload");
        made.join("liblinewise_preload.so")
    })
}

/// Builds `heap.c` with gcc; `None`, with the reason said, where that cannot be done.
pub(crate) fn target(place: &Place, options: &[&str]) -> Option<PathBuf> {
    target_by(place, "gcc", options)
}

/// The same with another compiler.
pub(crate) fn target_by(place: &Place, compiler: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/heap.c");
    let program = place.path("heap");
    let built = Command::new(compiler)
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([&program, &source])
        .args(options)
        .output();
    match built {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            skip(&format!(
                "{compiler} does not build it with {options:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
            None
        }
        Err(error) => {
            skip(&format!("{compiler} does not run: {error}"));
            None
        }
    }
}

pub(crate) fn record(
    place: &Place,
    options: &[&str],
    target: &Path,
    arguments: &[&str],
) -> (Output, Recording) {
    let mut command = place.linewise(["record", "-o", "made", "--force"]);
    command
        .args(options)
        .arg("--")
        .arg(target)
        .args(arguments)
        // The loader of a static program would keep a copy of it, whose size is like that of a block of the test.
        .env_remove("LD_LIBRARY_PATH")
        .env("LINEWISE_PRELOAD", recorder());
    let output = place.finish(&mut command);
    let recording = Recording::open(&place.path("made.linewise"))
        .unwrap_or_else(|error| panic!("{error}: {}", output.stderr));
    (output, recording)
}

pub(crate) fn heap(recording: &Recording) -> HeapRun {
    recording
        .info()
        .heap
        .clone()
        .expect("heap blocks were recorded")
}

/// What the program says is left, against what the recorder saw. The sizes of its blocks tell them from
/// those of the C library.
pub(crate) fn agrees(output: &Output, recording: &Recording) {
    let tables = recording.tables().unwrap();
    let pid = recording.info().pid;
    let left: Vec<&HeapBlock> = tables
        .heap_blocks
        .iter()
        .filter(|it| it.pid == pid && it.freed.is_none() && [2, 5].contains(&(it.size % 8)))
        .collect();
    let seen = format!(
        "{} {}",
        left.iter().map(|it| it.weight).sum::<f64>(),
        left.iter().map(|it| it.size).sum::<u64>()
    );
    assert_eq!(seen, output.stdout.trim(), "{:?}", tables.losses);
    assert_eq!(heap(recording).sampled_bytes, 0);
    assert!(
        !tables
            .losses
            .iter()
            .any(|loss| loss.what.starts_with("heap-")),
        "{:?}",
        tables.losses
    );
}

#[test]
fn what_is_left_is_what_the_program_says_after_threads_forks_and_signal_handlers() {
    let place = Place::new();
    let Some(target) = target(&place, &[]) else {
        return;
    };
    let (output, recording) = record(&place, &["--heap", "on"], &target, &["churn", "4"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    agrees(&output, &recording);
    // Eight children, whose own frees and allocations are theirs.
    let processes = heap(&recording).processes;
    assert!(processes == 9, "{processes}");
}

#[test]
fn of_more_blocks_than_there_are_rows_each_place_has_its_count_and_its_name() {
    let place = Place::new();
    let source = place.path("many.cpp");
    std::fs::write(
        &source,
        r"
#include <vector>
struct Node { Node *next; long values[5]; };
__attribute__((noinline)) Node *make_node(Node *next) { return new Node{next, {}}; }
__attribute__((noinline)) std::vector<char> *make_text(int i) { return new std::vector<char>(100 + i % 7); }
int main() {
    Node *head = nullptr;
    for (int i = 0; i < 120000; i++) head = make_node(head);
    for (int i = 0; i < 40000; i++) { Node *next = head->next; delete head; head = next; }
    for (int i = 0; i < 70; i++) make_text(i);
}
",
    )
    .unwrap();
    for options in [&["-O0"][..], &["-O2"], &["-O2", "-fno-omit-frame-pointer"]] {
        let program = place.path("many");
        let mut compiler = Command::new("g++");
        compiler.args(["-g", "-o"]).args([&program, &source]);
        if !compiler.args(options).status().is_ok_and(|it| it.success()) {
            return skip("g++ does not build it");
        }
        let (output, _) = record(&place, &["--heap", "on"], &program, &[]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let report = place.finish(&mut place.linewise(["report", "made.linewise", "--json"]));
        let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
        let heap = &report["heap"];
        assert_eq!(heap["exact"], true, "{}", report["losses"]);
        let site = |name: &str| {
            let sites = heap["sites"].as_array().unwrap();
            let found = sites
                .iter()
                .filter(|site| site["name"].as_str().unwrap().starts_with(name));
            let sum =
                |key: &str| -> f64 { found.clone().map(|it| it[key].as_f64().unwrap()).sum() };
            ["blocks", "bytes", "live_blocks", "live_bytes", "peak_bytes"].map(sum)
        };
        let (all, left) = (120_000.0, 80_000.0);
        assert_eq!(
            site("make_node"),
            [all, all * 48.0, left, left * 48.0, all * 48.0]
        );
        let texts = 70.0 * (24.0 + 103.0);
        assert_eq!(site("make_text"), [140.0, texts, 140.0, texts, texts]);
        assert_eq!(site("operator new"), [0.0; 5]);
    }
}

#[test]
fn two_hundred_threads_are_told_apart() {
    let place = Place::new();
    let Some(target) = target(&place, &[]) else {
        return;
    };
    let (output, recording) = record(&place, &["--heap", "on"], &target, &["crowd"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    agrees(&output, &recording);
    let blocks = recording.read::<HeapBlock>().unwrap();
    let mut threads: Vec<_> = blocks.iter().map(|block| block.allocated_by).collect();
    threads.sort_unstable();
    threads.dedup();
    assert!(threads.len() > 190, "{}", threads.len());
    assert!(blocks.iter().any(|block| {
        block
            .freed_by
            .is_some_and(|thread| thread != block.allocated_by)
    }));
}

#[test]
fn a_contended_block_is_named_by_who_allocated_it() {
    let place = Place::new();
    let Some(target) = target(&place, &[]) else {
        return;
    };
    for (mode, name) in [
        ("array", "block allocated by make_counters"),
        ("pool", "struct session"),
    ] {
        let report = contended(|seconds| {
            let mut command = place.linewise("run --heap auto --overhead 10% --json --".split(' '));
            command
                .arg(&target)
                .args([mode, seconds])
                .env("LINEWISE_PRELOAD", recorder());
            Some(place.finish(&mut command))
        });
        let Some(report) = report else {
            return;
        };
        let object = &report["findings"][0]["object"];
        assert_eq!(object["kind"], "heap");
        assert_eq!(object["name"], name);
        let callers = object["allocated_at"].to_string();
        let function = if mode == "pool" {
            "take_from_pool"
        } else {
            "make_counters"
        };
        assert!(
            callers.contains(function) && callers.contains("main"),
            "{callers}"
        );
        assert!(callers.contains("heap.c:"), "{callers}");
    }
}

#[test]
fn run_loads_the_recorder_without_being_asked_and_record_does_not() {
    let place = Place::new();
    let target = place.path("environment.sh");
    // What the shell sees, and whether the recorder is in a program that it starts.
    std::fs::write(
        &target,
        "echo \"$LD_PRELOAD|$LINEWISE_HEAP|\"; grep -c liblinewise_preload.so /proc/self/maps\n",
    )
    .unwrap();
    let said = |words: &[&str]| {
        let mut command = place.linewise(words);
        command.args(["--quiet", "--force", "-o", "made", "sh"]);
        command.arg(&target).env_remove("LD_PRELOAD");
        let output = place.finish(command.env("LINEWISE_PRELOAD", recorder()));
        let mut lines = output.stdout.lines();
        assert_eq!(lines.next(), Some("||"), "{}", output.stderr);
        lines.next().is_some_and(|lines| lines != "0")
    };
    let recorded = || {
        Recording::open(&place.path("made.linewise"))
            .unwrap()
            .info()
            .heap
            .is_some()
    };
    for words in [
        &["run"][..],
        &["run", "--heap", "auto"],
        &["record", "--heap", "on"],
    ] {
        assert!(said(words), "{words:?}");
        assert!(recorded());
    }
    for words in [
        &["run", "--heap", "off"][..],
        &["record"],
        &["record", "--heap", "off"],
    ] {
        assert!(!said(words), "{words:?}");
        assert!(!recorded());
        let recording = Recording::open(&place.path("made.linewise")).unwrap();
        assert!(recording.read::<HeapBlock>().unwrap().is_empty());
    }
}

#[test]
fn a_program_that_takes_no_library_is_recorded_without_its_blocks_and_without_a_warning() {
    let place = Place::new();
    let Some(target) = target(&place, &["-static"]) else {
        return;
    };
    for source in ["timer", "exact"] {
        if source == "exact" && !emulator() {
            continue;
        }
        let words = [
            "run", "--quiet", "--force", "-o", "made", "--source", source,
        ];
        let mut command = place.linewise(words);
        command.arg(&target).args(["array", "0.1"]);
        let output = place.finish(command.env("LINEWISE_PRELOAD", recorder()));
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
        let recording = Recording::open(&place.path("made.linewise")).unwrap();
        assert!(recording.info().heap.is_none());
        let losses = recording.tables().unwrap().losses;
        let told = losses.iter().find(|it| it.what == "heap-not-recorded");
        let told = told.map(|it| it.detail.as_str()).unwrap_or_default();
        assert!(told.contains("is linked statically"), "{losses:?}");
        // The exact source has no probes.
        assert_eq!(told.contains("`--heap auto`"), source == "timer", "{told}");
    }
}

#[test]
fn a_program_with_little_data_or_address_space_runs_as_without_the_recorder_and_that_is_told() {
    let place = Place::new();
    let Some(target) = target(&place, &[]) else {
        return;
    };
    // In kB: room for the stacks of the program's threads, of which the second is data, and for no recorder.
    for limit in ["-d 30000", "-v 60000"] {
        let script = format!("ulimit {limit} && exec \"$0\" array 0.1");
        let arguments = ["-c", &script, target.to_str().unwrap()];
        let alone = place.finish(place.command("sh").args(arguments));
        let options = ["--heap", "on", "--quiet"];
        let (output, recording) = record(&place, &options, Path::new("sh"), &arguments);
        assert_eq!(output.code, alone.code, "{}", output.stderr);
        assert_eq!(output.stdout, alone.stdout);
        let losses = recording.tables().unwrap().losses;
        let is_told = |what: &str| losses.iter().any(|it| it.what == what && it.count == 1);
        assert!(is_told("heap-no-address-space"), "{limit}: {losses:?}");
    }
}

#[test]
fn what_a_command_starts_runs_although_it_cannot_be_loaded_into() {
    for (compiler, option) in [
        ("musl-gcc", "-O1"),
        ("gcc", "-fsanitize=address"),
        ("gcc", "-fsanitize=thread"),
        ("gcc", "-static"),
    ] {
        let place = Place::new();
        let source = place.path("program.c");
        let program = "#include <stdlib.h>\n#include <stdio.h>\n\
            int main(void) { char *volatile block = malloc(8); free(block); puts(\"ran\"); return 5; }\n";
        std::fs::write(&source, program).unwrap();
        let built = Command::new(compiler)
            .args(["-g", option, "-o"])
            .args([place.path("program"), source])
            .output();
        match built {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                skip(&format!(
                    "{compiler} {option}: {}",
                    String::from_utf8_lossy(&output.stderr)
                ));
                continue;
            }
            Err(error) => {
                skip(&format!("{compiler} does not run: {error}"));
                continue;
            }
        }
        let mut command = place.linewise(["record", "--quiet", "--heap", "auto", "-o", "made"]);
        command.args(["sh", "-c", "./program; exit $?"]);
        let output = place.finish(command.env("LINEWISE_PRELOAD", recorder()));
        let seen = (output.code, output.stdout.as_str());
        assert_eq!(
            seen,
            (Some(5), "ran\n"),
            "{compiler} {option}: {}",
            output.stderr
        );
        assert!(!output.stderr.contains("preload"), "{}", output.stderr);
    }
}

#[test]
fn a_program_that_is_killed_while_it_allocates_leaves_a_whole_recording() {
    let place = Place::new();
    let Some(target) = target(&place, &[]) else {
        return;
    };
    let (output, recording) = record(&place, &["--heap", "auto"], &target, &["killed"]);
    assert_eq!(output.code, Some(128 + 9), "{}", output.stderr);
    assert!(recording.info().complete);
    assert!(heap(&recording).blocks > 0);
    assert!(!recording.read::<HeapBlock>().unwrap().is_empty());
}

#[test]
fn the_program_goes_on_when_the_collector_is_killed() {
    let place = Place::new();
    let Some(target) = target(&place, &[]) else {
        return;
    };
    let mut command = place.linewise(["record", "--heap", "on", "-o", "made", "--"]);
    command
        .arg(&target)
        .arg("orphan")
        .env("LINEWISE_PRELOAD", recorder());
    let running = place.start(&mut command);
    let pid = place.wait_for("started");
    signal(&running.child.id().to_string(), "KILL");
    drop(running.finish());
    assert_eq!(place.wait_for("finished"), "done");
    crate::util::until("the program to end", || {
        (!crate::util::alive(&pid)).then_some(())
    });
    assert!(
        !Recording::open(&place.path("made.linewise"))
            .unwrap()
            .info()
            .complete
    );
}

#[test]
fn a_program_at_fixed_addresses_that_takes_the_address_of_malloc_has_no_malloc_of_its_own() {
    let place = Place::new();
    let source = place.path("pointer.c");
    let program = "#include <stdlib.h>\nvoid *(*make)(size_t) = malloc;\n\
        int main(void) { for (int i = 0; i < 100; i++) free(make(1000 + i)); return make == malloc ? 0 : 1; }\n";
    std::fs::write(&source, program).unwrap();
    let options = ["-fno-pie", "-no-pie", "-fno-builtin", "-g", "-o"];
    let built = Command::new("gcc")
        .args(options)
        .args([place.path("pointer"), source])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return skip("gcc does not build a program at fixed addresses");
    }
    let (output, recording) = record(&place, &["--heap", "on"], &place.path("pointer"), &[]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let losses = recording.tables().unwrap().losses;
    assert!(
        losses.iter().all(|it| it.what != "own-malloc"),
        "{losses:?}"
    );
    let blocks = recording.read::<HeapBlock>().unwrap();
    let own = blocks.iter().filter(|it| (1000..1100).contains(&it.size));
    assert_eq!(own.map(|it| it.weight).sum::<f64>(), 100.0);
}

/// A malloc that never gives anything back.
pub(crate) const OWN_MALLOC: &str = "#include <pthread.h>\n#include <stddef.h>\n#include <string.h>\n\
     #include <sys/mman.h>\n\
     static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n\
     static char *next, *end;\n\
     void *malloc(size_t size) {\n\
         pthread_mutex_lock(&lock);\n\
         size = (size + 15) / 16 * 16;\n\
         if (size > (size_t)(end - next)) {\n\
             size_t length = size + (1 << 20);\n\
             next = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
             end = next + length;\n\
         }\n\
         void *block = next;\n\
         next += size;\n\
         pthread_mutex_unlock(&lock);\n\
         return block;\n\
     }\n\
     void free(void *block) { (void)block; }\n\
     void *calloc(size_t count, size_t size) { return malloc(count * size); }\n\
     void *realloc(void *block, size_t size) {\n\
         void *larger = malloc(size);\n\
         if (block) memmove(larger, block, size);\n\
         return larger;\n\
     }\n";

#[test]
fn a_program_whose_own_malloc_maps_memory_under_its_lock_is_left_alone() {
    let place = Place::new();
    let source = place.path("own.c");
    let early = "static void early(void) { free(malloc(100)); }\n\
         __attribute__((section(\".preinit_array\"), used)) static void (*first)(void) = early;\n\
         int main(void) { free(malloc(1000)); return 0; }\n";
    std::fs::write(&source, format!("{OWN_MALLOC}{early}")).unwrap();
    let program = place.path("own");
    let built = Command::new("gcc")
        .args(["-O1", "-g", "-pthread", "-fno-builtin", "-o"])
        .args([&program, &source])
        .output();
    match built {
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => return skip(&format!("gcc does not run: {error}")),
    }
    // No library can stand in front of it, so that it is probed, or this is said where probes are not allowed.
    let not_allowed = ["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin", "--"];
    for before in [&[][..], &not_allowed] {
        let words = ["record", "-o", "made", "--force", "--heap", "on", "--"];
        let mut words = before.iter().copied().chain([BINARY]).chain(words);
        let mut command = place.command(words.next().unwrap_or(BINARY));
        command.env("LINEWISE_PRELOAD", recorder());
        let output = place.finish(command.args(words).arg(&program));
        if !before.is_empty() && output.stderr.contains("setpriv") {
            skip(&output.stderr);
            continue;
        }
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let recording = Recording::open(&place.path("made.linewise")).unwrap();
        let losses = recording.tables().unwrap().losses;
        let said = losses.iter().find(|loss| loss.what == "own-allocator");
        if heap(&recording).probed.is_none() {
            assert!(
                said.is_some_and(|loss| loss.detail.contains("BPF and uprobes")),
                "{losses:?}"
            );
        } else {
            assert!(said.is_none() && before.is_empty(), "{losses:?}");
        }
    }
}
