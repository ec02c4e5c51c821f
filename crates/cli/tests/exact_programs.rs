//! `--source exact` with programs of all kinds, and in places that are short of something.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use linewise_recording::Recording;
use serde_json::Value;

use crate::util::{Place, alive, emulator, root, signal, skip, threads, until};

/// The programs of `exact_programs.c`.
fn programs(place: &Place, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = "crates/cli/tests/exact_programs.c";
    place.compile(compiler, source, "programs", flags)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn a_program_for_another_architecture_runs_under_its_own_emulator() {
    let place = Place::new();
    let compiler = "aarch64-linux-gnu-gcc";
    let Some(program) = programs(&place, compiler, &["-static"]) else {
        return;
    };
    if Command::new("qemu-aarch64")
        .arg("--version")
        .output()
        .is_err()
    {
        skip("qemu-aarch64 does not run: install qemu-user");
        return;
    }
    let Some(report) = place.traced(&[], &program, &["quiet"]) else {
        return;
    };
    assert!(number(&report["samples"]["accesses"]) > 8192.0);
    let functions = report["reuse"]["by_function"].as_array().unwrap();
    let named = |row: &Value| row["function"] == "sum" || row["function"] == "main";
    assert!(
        functions.iter().any(named),
        "{:#}",
        report["reuse"]["by_function"]
    );
    assert!(report["reuse"]["by_path"].as_array().unwrap().is_empty());
}

#[test]
fn a_statically_linked_program_is_traced_like_any_other() {
    let place = Place::new();
    let Some(program) = programs(&place, "gcc", &["-static"]) else {
        return;
    };
    let Some(report) = place.traced(&[], &program, &["crowd", "3"]) else {
        return;
    };
    assert_eq!(threads(&report).len(), 4);
    assert!(number(&report["samples"]["accesses"]) > 3.0 * 8192.0);
}

#[test]
fn a_program_that_uses_avx_512_is_told_what_it_lacks() {
    if !emulator() || !cfg!(target_arch = "x86_64") {
        return;
    }
    let place = Place::new();
    let Some(program) = programs(&place, "gcc", &[]) else {
        return;
    };
    let mut command = place.linewise(["run", "--source", "exact", "--"]);
    let output = place.finish(command.arg(program).arg("wide"));
    if output.code == Some(0) {
        skip("this emulator knows AVX-512");
        return;
    }
    assert_eq!(output.code, Some(128 + 4), "{}", output.stderr);
    assert!(
        output.words().contains("QEMU emulates no AVX-512"),
        "{}",
        output.stdout
    );
}

#[test]
fn two_hundred_threads_at_a_time_are_traced() {
    let place = Place::new();
    let Some(program) = programs(&place, "gcc", &[]) else {
        return;
    };
    let Some(report) = place.traced(&[], &program, &["crowd", "200"]) else {
        return;
    };
    assert_eq!(threads(&report).len(), 201);
    // The first one, which begins the others, too.
    let worked = |row: &&Value| number(&row["accesses"]) >= 8192.0;
    assert_eq!(threads(&report).iter().filter(worked).count(), 201);
    assert!(
        report["losses"].get("no-ring").is_none(),
        "{:#}",
        report["losses"]
    );
}

#[test]
fn reuse_is_told_by_the_calls_that_led_to_it_and_by_elements() {
    let place = Place::new();
    let Some(program) = programs(&place, "gcc", &[]) else {
        return;
    };
    let options = ["--calls", "--element", "8", "--reuse", "all"];
    let Some(report) = place.traced(&options, &program, &["paths"]) else {
        return;
    };
    let reuse = &report["reuse"];
    let calls = |path: &Value| -> Vec<String> {
        let calls = path["calls"].as_array().unwrap().iter();
        calls
            .map(|call| call["function"].as_str().unwrap().to_owned())
            .collect()
    };
    // Of 12 walks, the first is of lines that nobody has used.
    let walk = f64::from(1 << 16);
    for (caller, walks) in [("often", 8.0), ("seldom", 3.0)] {
        let touches: f64 = reuse["by_path"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|path| path["function"] == "walk")
            .filter(|path| calls(path).starts_with(&[caller.to_owned(), "main".to_owned()]))
            .map(|path| number(&path["touches"]["count"]))
            .sum();
        // Seven of eight touches of the first walk come back to a line.
        let expected = (walks + if caller == "often" { 0.875 } else { 0.0 }) * walk;
        assert!(
            (touches - expected).abs() < 0.01 * expected,
            "{caller}: {touches}"
        );
    }
    let elements = &reuse["private_bytes"];
    assert_eq!(elements["unit"], "element");
    assert_eq!(elements["unit_bytes"], 8);
    assert!(number(&elements["cold"]) > walk && number(&elements["cold"]) < 2.0 * walk);
    let far = |histogram: &Value, units: u64| -> f64 {
        let bins = histogram["bins"].as_array().unwrap().iter();
        bins.filter(|bin| bin["from"].as_u64() >= Some(units))
            .map(|bin| number(&bin["count"]))
            .sum()
    };
    // By elements every touch comes from a whole walk away, by lines one in eight.
    assert!(far(elements, 60_000) > 10.9 * walk);
    assert!(far(&reuse["private"], 7_500) < 1.5 * walk);

    let Some(report) = place.traced(&[], &program, &["paths"]) else {
        return;
    };
    assert!(report["reuse"]["by_path"].as_array().unwrap().is_empty());
    assert!(report["reuse"]["private_bytes"].is_null());
}

#[test]
fn a_finding_of_a_share_of_the_lines_stands_for_all_of_its_object() {
    let place = Place::new();
    let Some(program) = programs(&place, "gcc", &[]) else {
        return;
    };
    let measure = |options: &[&str]| -> Option<(f64, f64, f64)> {
        let report = place.traced(options, &program, &["lines", "512", "200"])?;
        let first = &report["findings"][0];
        assert_eq!(first["object"]["name"], "counters", "{report:#}");
        let interval = &first["transfers_interval"];
        let of = |key: &str| number(&interval[key]);
        Some((number(&first["transfers"]), of("low"), of("high")))
    };
    let Some((all, ..)) = measure(&[]) else {
        return;
    };
    let Some((estimate, low, high)) = measure(&["--lines", "1/16"]) else {
        return;
    };
    assert!(all > 100_000.0, "{all}");
    // The object has 4,096 lines, 512 of which are used, so the choice among them has its error.
    assert!(
        estimate > 0.4 * all && estimate < 2.5 * all,
        "{estimate} of {all}"
    );
    assert!(low < estimate && estimate < high, "{low} {estimate} {high}");
}

#[test]
fn threads_that_live_a_millisecond_share_at_equal_rate_what_long_ones_do() {
    let place = Place::new();
    let Some(program) = programs(&place, "gcc", &[]) else {
        return;
    };
    // Each of two threads increments its word 20,000 times. In half of such runs one has ended before the machine
    // would let the other begin.
    for how in ["lines", "begun"] {
        for options in [&[] as &[&str], &["--caches"]] {
            for _ in 0..2 {
                let Some(report) = place.traced(options, &program, &[how, "1", "20000"]) else {
                    return;
                };
                let transfers = number(&report["sharing"]["transfers"]["false"]);
                assert!(
                    (36_000.0..44_000.0).contains(&transfers),
                    "{how} {options:?}: {:#}",
                    report["sharing"]["transfers"]
                );
            }
        }
    }
}

#[test]
fn children_and_what_a_program_goes_on_as_share_lines_of_their_own() {
    let place = Place::new();
    let Some(program) = programs(&place, "gcc", &[]) else {
        return;
    };
    // Most of it is left out and told when another thread comes, in each address space anew.
    let Some(report) = place.traced(&[], &program, &["family", "1", "50000"]) else {
        return;
    };
    let transfers = number(&report["sharing"]["transfers"]["false"]);
    assert!(
        (380_000.0..420_000.0).contains(&transfers),
        "four times two threads that store 50,000 times: {:#}",
        report["sharing"]["transfers"]
    );
    assert_eq!(report["findings"][0]["object"]["name"], "counters");
}

#[test]
fn a_full_dev_shm_is_not_in_the_way() {
    if !emulator() || !root() {
        skip("only root can mount a small /dev/shm, and an emulator is wanted");
        return;
    }
    let place = Place::new();
    let script = "mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero > /dev/shm/full; \
                  exec \"$@\"";
    let mut command = place.command("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", crate::util::BINARY]);
    command.args([
        "record", "--source", "exact", "-o", "made", "--", "sh", "-c",
    ]);
    command.arg("df /dev/shm | tail -n 1 > shm");
    let output = place.finish(&mut command);
    if output.stderr.contains("unshare") || output.stderr.contains("mount:") {
        skip(&output.stderr);
        return;
    }
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let free = place.wait_for("shm");
    assert_eq!(free.split_whitespace().nth(3), Some("0"), "{free}");
    assert!(recorded(&place.path("made.linewise")) > 10_000.0);
}

fn recorded(path: &Path) -> f64 {
    let recording = Recording::open(path).unwrap();
    let run = recording.info();
    assert!(run.complete);
    run.exact.as_ref().unwrap().accesses
}

#[test]
fn a_slow_reader_loses_nothing_and_the_report_says_how_long_the_program_waited() {
    if !emulator() {
        return;
    }
    let place = Place::new();
    let Some(program) = programs(&place, "gcc", &[]) else {
        return;
    };
    let times = 60_000_000;
    let mut command = place.linewise(["record", "--source", "exact", "-o", "made"]);
    command.args(["--reuse", "none", "--"]).arg(program);
    command.args(["busy", "begun", &times.to_string()]);
    let running = place.start(&mut command);
    let target = place.wait_for("begun");
    let collector = running.child.id().to_string();
    signal(&collector, "STOP");
    // Its ring is full soon; then it sleeps.
    until("the program to sleep", || {
        let stat = std::fs::read_to_string(format!("/proc/{target}/stat")).ok()?;
        let state = stat.rsplit(')').next()?.trim_start().chars().next();
        (state == Some('S')).then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    assert!(alive(&target));
    signal(&collector, "CONT");
    let output = running.finish();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(recorded(&place.path("made.linewise")) > f64::from(times));
    let mut command = place.linewise(["report", "made.linewise"]);
    let output = place.finish(command.arg("--json"));
    let report = output.json();
    assert!(
        number(&report["run"]["waited_ns"]) > 4e8,
        "{:#}",
        report["run"]
    );
    let output = place.finish(&mut place.linewise(["report", "made.linewise"]));
    assert!(
        output.words().contains("until linewise had read"),
        "{}",
        output.stdout
    );
}
