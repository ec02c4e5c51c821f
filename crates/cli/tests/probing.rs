//! Heap blocks of programs that no library can be loaded into: probes on their allocator.

use std::process::Command;

use linewise_recording::{HeapBlock, Loss, Recording};
use serde_json::Value;

use crate::heap::{OWN_MALLOC, heap, record, target, target_by};
use crate::util::{Output, Place, contended, skip};

/// Whether probes could be placed; if not, says so.
fn probed(output: &Output) -> bool {
    let missing = output.stderr.lines().find(|line| {
        line.contains("heap blocks are not recorded") && line.contains("BPF and uprobes")
    });
    if let Some(line) = missing {
        skip(line);
    }
    missing.is_none()
}

/// The block that is fought over is named by who allocated it.
fn names_the_counters(report: &Value) {
    let object = &report["findings"][0]["object"];
    assert_eq!(
        object["name"], "block allocated by make_counters",
        "{object:#}"
    );
    let callers = object["allocated_at"].to_string();
    assert!(callers.contains("main"), "{callers}");
}

#[test]
fn a_contended_block_of_a_static_program_or_one_of_another_c_library_is_named_by_who_allocated_it()
{
    for (compiler, option) in [
        ("gcc", "-static"),
        ("gcc", "-static-pie"),
        ("musl-gcc", "-O1"),
    ] {
        let place = Place::new();
        let Some(target) = target_by(&place, compiler, &[option]) else {
            continue;
        };
        let report = contended(|seconds| {
            let mut command = place.linewise("run --heap auto --overhead 10% --json --".split(' '));
            command.arg(&target).args(["array", seconds]);
            let output = place.finish(&mut command);
            probed(&output).then_some(output)
        });
        let Some(report) = report else {
            return;
        };
        names_the_counters(&report);
    }
}

#[test]
fn a_contended_block_of_an_allocator_in_the_program_under_names_of_its_own_is_named_by_who_allocated_it()
 {
    let place = Place::new();
    // As tikv-jemallocator calls them: Rust programs come like this.
    let allocator = place.path("allocator.c");
    std::fs::write(&allocator, OWN_MALLOC).unwrap();
    let names = ["malloc", "calloc", "realloc", "free"];
    let renamed = names.map(|name| format!("-D{name}=_rjem_{name}"));
    let mut options: Vec<&str> = renamed.iter().map(String::as_str).collect();
    let allocator = allocator.to_string_lossy();
    options.extend([&*allocator, "-fno-builtin"]);
    let Some(target) = target_by(&place, "gcc", &options) else {
        return;
    };
    let report = contended(|seconds| {
        let mut command = place.linewise("run --heap auto --overhead 10% --json --".split(' '));
        command
            .env("LINEWISE_PRELOAD", crate::heap::recorder())
            .arg(&target)
            .args(["array", seconds]);
        let output = place.finish(&mut command);
        if output.stdout.contains("own-allocator") {
            skip("probes are not allowed here");
            return None;
        }
        Some(output)
    });
    if let Some(report) = report {
        names_the_counters(&report);
    }
}

#[test]
fn a_block_that_a_running_program_allocates_later_is_named_by_who_allocated_it() {
    let report = contended(|seconds| {
        let place = Place::new();
        let target = target(&place, &[])?;
        let running = place.start(place.command(&target).args(["later", seconds]));
        let pid = place.wait_for("started");
        let mut command = place.linewise(["record", "--heap", "auto", "--overhead", "10%"]);
        let recording = place.start(command.args(["-o", "made", "--pid", &pid]));
        crate::util::until("the recording to begin", || {
            place.path("made.linewise/run.json").exists().then_some(())
        });
        std::fs::write(place.path("go"), "").unwrap();
        let output = recording.finish();
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        drop(running.finish());
        if !probed(&output) {
            return None;
        }
        let made = Recording::open(&place.path("made.linewise")).unwrap();
        // What was there before is said to be unknown.
        let losses = made.tables().unwrap().losses;
        assert!(
            losses.iter().any(|it| it.what == "heap-blocks-unknown"),
            "{losses:?}"
        );
        Some(place.finish(&mut place.linewise(["report", "--json", "made.linewise"])))
    });
    if let Some(report) = report {
        names_the_counters(&report);
    }
}

#[test]
fn what_is_left_of_a_static_program_is_what_it_says_after_threads_and_forks() {
    let place = Place::new();
    let Some(target) = target(&place, &["-static"]) else {
        return;
    };
    let (output, recording) = record(&place, &["--heap", "on"], &target, &["churn", "1"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    if !probed(&output) {
        return;
    }
    let losses = recording.tables().unwrap().losses;
    let of_children = |it: &&Loss| it.what == "heap-of-children-not-recorded";
    assert!(
        losses
            .iter()
            .find(of_children)
            .is_some_and(|it| it.count > 0),
        "{losses:?}"
    );
    if let Some(lost) = losses.iter().find(|it| it.what == "heap-events-lost") {
        return skip(&format!("too busy here: {} hits were lost", lost.count));
    }
    let blocks = recording.read::<HeapBlock>().unwrap();
    let left = blocks
        .iter()
        .filter(|it| it.freed.is_none() && [2, 5].contains(&(it.size % 8)));
    let (mut count, mut bytes) = left.fold((0_u64, 0_u64), |sum, it| (sum.0 + 1, sum.1 + it.size));
    let truth: Vec<u64> = (output.stdout.split_ascii_whitespace())
        .map(|word| word.parse().unwrap())
        .collect();
    // The loader in a static program keeps a string of 13 bytes.
    if [count, bytes] == [truth[0] + 1, truth[1] + 13] {
        (count, bytes) = (count - 1, bytes - 13);
    }
    assert_eq!([count, bytes][..], truth[..], "{losses:?}");
    assert!(heap(&recording).probed.unwrap().share > 0.95);
}

#[test]
fn a_program_that_allocates_very_often_is_probed_in_slices_and_no_block_outlives_one() {
    let place = Place::new();
    let Some(target) = target(&place, &["-static"]) else {
        return;
    };
    std::fs::write(place.path("go"), "").unwrap();
    let options = ["--heap", "auto", "--overhead", "20%"];
    let (output, recording) = record(&place, &options, &target, &["later", "2", "storm"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    if !probed(&output) {
        return;
    }
    let probed = heap(&recording).probed.unwrap();
    assert!(probed.slices > 1 && probed.share < 0.9, "{probed:?}");
    assert!(probed.frees > 100, "{probed:?}");
    let losses = recording.tables().unwrap().losses;
    let said = losses.iter().find(|it| it.what == "heap-blocks-unknown");
    assert!(
        said.is_some_and(|it| it.detail.contains("as the budget allows")),
        "{losses:?}"
    );
    let blocks = recording.read::<HeapBlock>().unwrap();
    assert!(
        blocks
            .iter()
            .any(|it| it.freed_by.is_none() && it.freed.is_some())
    );
}

#[test]
fn a_program_without_symbols_of_an_allocator_is_recorded_without_its_blocks_and_that_is_said() {
    let place = Place::new();
    let Some(target) = target(&place, &["-static", "-s"]) else {
        return;
    };
    let (output, recording) = record(&place, &["--heap", "auto"], &target, &["array", "0.3"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let lines = output.stderr.lines();
    let said: Vec<&str> = lines.filter(|it| it.contains("heap blocks")).collect();
    assert!(
        matches!(said[..], [line] if line.contains("linked statically") && line.contains("no symbols of malloc")),
        "{}",
        output.stderr
    );
    assert!(recording.info().heap.is_none());
    let losses = recording.tables().unwrap().losses;
    assert!(losses.iter().any(|it| it.what == "heap-not-recorded"));
}

#[test]
fn probes_are_gone_when_the_collector_is_killed() {
    let place = Place::new();
    let Some(target) = target(&place, &["-static"]) else {
        return;
    };
    let mut command = place.linewise(["record", "--heap", "on", "-o", "made", "--"]);
    let recording = place.start(command.arg(&target).args(["later", "0.1"]));
    let pid = place.wait_for("started");
    let malloc = |pid: &str| first_bytes_of_malloc(&target, pid);
    let Some(probed) = malloc(&pid) else {
        return skip("nm or the memory of the process cannot be read");
    };
    if probed[0] != 0xcc {
        crate::util::signal(&recording.child.id().to_string(), "KILL");
        std::fs::write(place.path("go"), "").unwrap();
        drop(recording.finish());
        return skip("malloc is not probed at its first byte here");
    }
    crate::util::signal(&recording.child.id().to_string(), "KILL");
    drop(recording.finish());
    crate::util::until("the breakpoints to go", || {
        (malloc(&pid)?[0] != 0xcc).then_some(())
    });
    std::fs::write(place.path("go"), "").unwrap();
    crate::util::until("the program to end", || {
        (!crate::util::alive(&pid)).then_some(())
    });
}

/// The code of `malloc` in the memory of a static program.
fn first_bytes_of_malloc(target: &std::path::Path, pid: &str) -> Option<[u8; 1]> {
    use std::os::unix::fs::FileExt;
    let symbols = Command::new("nm").arg(target).output().ok()?;
    let text = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let line = text.lines().find(|line| line.ends_with(" malloc"))?;
    let address = u64::from_str_radix(line.split_ascii_whitespace().next()?, 16).ok()?;
    let mut byte = [0];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut byte, address).ok()?;
    Some(byte)
}
