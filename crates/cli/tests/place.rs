//! `linewise place` with real threads, on an invented machine whose two CPUs are a socket each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use linewise_machine::{affinity, procfs};

use crate::util::{Output, Place, Running, pipe, signal, skip, until};

/// A machine of two sockets, each with the CPU of its number.
fn two_sockets(place: &Place) -> Option<PathBuf> {
    if std::thread::available_parallelism().map_or(1, usize::from) != 2 {
        skip("the invented machine has the CPUs 0 and 1, and this one others");
        return None;
    }
    let root = place.path("machine");
    let cpus = root.join("sys/devices/system/cpu");
    let put = |path: PathBuf, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    put(cpus.join("online"), "0-1");
    for cpu in ["0", "1"] {
        let of = cpus.join(format!("cpu{cpu}"));
        put(of.join("topology/physical_package_id"), cpu);
        put(of.join("topology/core_id"), "0");
        put(of.join("topology/core_cpus_list"), cpu);
        for (index, level, kind, size) in
            [("0", "1", "Data", "48K"), ("1", "3", "Unified", "32768K")]
        {
            let cache = of.join("cache").join(format!("index{index}"));
            put(cache.join("level"), level);
            put(cache.join("type"), kind);
            put(cache.join("size"), size);
            put(cache.join("coherency_line_size"), "64");
            put(cache.join("ways_of_associativity"), "16");
            put(cache.join("number_of_sets"), "64");
            put(cache.join("shared_cpu_list"), cpu);
        }
    }
    Some(root)
}

/// Threads that spin get in each other's way: one test at a time has some.
static SPINNING: Mutex<()> = Mutex::new(());

/// Two pairs of threads that share a line each, for so long, and the right to have them.
fn two_pairs(place: &Place, seconds: &str) -> Option<(Running, MutexGuard<'static, ()>)> {
    let alone = SPINNING.lock().unwrap_or_else(PoisonError::into_inner);
    let program = place.compile("gcc", "fixtures/programs/two_pairs.c", "two_pairs", &[])?;
    Some((
        place.start(place.command(program).args([seconds, "--unpinned"])),
        alone,
    ))
}

/// The threads of a process.
fn threads(pid: &str) -> Vec<(String, u32)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let thread = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        Some((
            name.trim().to_owned(),
            task.file_name().to_str()?.parse().ok()?,
        ))
    };
    tasks.filter_map(thread).collect()
}

/// Where the threads of a process may run, by name.
fn masks(pid: &str) -> BTreeMap<String, String> {
    let mask = |tid| affinity::of_thread(tid).map(|cpus| cpus.to_string());
    let masks = threads(pid).into_iter();
    masks
        .filter_map(|(name, tid)| Some((name, mask(tid).ok()?)))
        .collect()
}

/// Whether each pair is on a CPU of its own, and somebody is held there.
fn is_placed(pid: &str) -> bool {
    let cpus: BTreeMap<String, Option<u32>> = threads(pid)
        .into_iter()
        .map(|(name, tid)| (name, procfs::last_cpu(tid)))
        .collect();
    let of = |name: &str| cpus.get(name).copied().flatten();
    let (left, right) = (of("left-push"), of("right-push"));
    let held = masks(pid)
        .values()
        .filter(|mask| ["0", "1"].contains(&mask.as_str()))
        .count();
    held >= 2
        && left.is_some()
        && left == of("left-pop")
        && right == of("right-pop")
        && left != right
}

/// A tenth of what usually counts: while other tests run these threads have their CPUs for a part of the time.
const THRESHOLDS: &str = r#"{
    "schema": 1, "coherence_per_s": 50000, "remote_per_s": 50000, "misses_per_s_node": 36000000,
    "how": {
        "coherence": { "kind": "assumed", "words": "a test" },
        "remote": { "kind": "assumed", "words": "a test" },
        "misses": { "kind": "assumed", "words": "a test" }
    },
    "machine": "a test's", "date": "2026-11-28"
}"#;

fn place_pid(place: &Place, root: &Path, pid: &str) -> Command {
    fs::write(place.path("thresholds"), THRESHOLDS).unwrap();
    let mut command = place.interruptible([
        "place",
        "--look",
        "700ms",
        "--overhead",
        "5%",
        "--every",
        "1s",
    ]);
    command.arg("--topology").arg(root).args([
        "--journal",
        "journal",
        "--thresholds",
        "thresholds",
    ]);
    command.args(["--events", "events", "--pid", pid]);
    command
}

fn journal(place: &Place) -> String {
    fs::read_to_string(place.path("journal")).unwrap_or_default()
}

fn events(place: &Place) -> String {
    fs::read_to_string(place.path("events")).unwrap_or_default()
}

#[test]
fn threads_that_share_come_together_and_are_free_again_afterwards() {
    let place = Place::new();
    let Some(root) = two_sockets(&place) else {
        return;
    };
    let Some((target, _alone)) = two_pairs(&place, "60") else {
        return;
    };
    let pid = target.child.id().to_string();
    let free = until("four threads", || {
        Some(masks(&pid)).filter(|all| all.len() == 5)
    });
    let placer = place.start(&mut place_pid(&place, &root, &pid));
    until("each pair on a socket of its own", || {
        is_placed(&pid).then_some(())
    });
    assert_ne!(journal(&place), "");
    let placer_pid = placer.child.id().to_string();
    signal(&placer_pid, "INT");
    let said = placer.finish();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(
        said.stderr.contains("it shares with threads there"),
        "{}",
        said.stderr
    );
    assert_eq!(masks(&pid), free, "{}", said.stderr);
    assert_eq!(journal(&place), "");
    for event in ["look", "move", "undone"] {
        assert!(
            events(&place).contains(&format!("\"event\":\"{event}\"")),
            "{}",
            events(&place)
        );
    }
    signal(&pid, "KILL");
    target.finish();
}

#[test]
fn what_a_killed_placer_left_is_undone_by_the_next() {
    let place = Place::new();
    let Some(root) = two_sockets(&place) else {
        return;
    };
    let Some((target, _alone)) = two_pairs(&place, "60") else {
        return;
    };
    let pid = target.child.id().to_string();
    let free = until("four threads", || {
        Some(masks(&pid)).filter(|all| all.len() == 5)
    });
    let placer = place.start(&mut place_pid(&place, &root, &pid));
    until("each pair on a socket of its own", || {
        is_placed(&pid).then_some(())
    });
    signal(&placer.child.id().to_string(), "KILL");
    placer.finish();
    assert!(is_placed(&pid));
    let damaged = journal(&place) + "{\"boot\":\"";
    fs::write(place.path("journal"), damaged).unwrap();
    let undone = place.finish(&mut place.linewise(["place", "--undo", "--journal", "journal"]));
    assert_eq!(undone.code, Some(0), "{}", undone.stderr);
    assert!(
        undone.stderr.contains("may run where they might before"),
        "{}",
        undone.stderr
    );
    let told = "the journal journal is damaged (1 of its lines)";
    assert!(undone.stderr.contains(told), "{}", undone.stderr);
    assert_eq!(masks(&pid), free);
    let again = place.finish(&mut place.linewise(["place", "--undo", "--journal", "journal"]));
    assert!(again.stderr.contains("nothing to undo"), "{}", again.stderr);
    signal(&pid, "KILL");
    target.finish();
}

#[test]
fn a_dry_run_moves_nothing_and_says_what_would() {
    let place = Place::new();
    let Some(root) = two_sockets(&place) else {
        return;
    };
    // The kernel may have put each pair on a CPU of its own by itself.
    for _ in 0..6 {
        let Some((target, _alone)) = two_pairs(&place, "60") else {
            return;
        };
        let pid = target.child.id().to_string();
        let free = until("four threads", || {
            Some(masks(&pid)).filter(|all| all.len() == 5)
        });
        let output =
            place.finish(place_pid(&place, &root, &pid).args(["--dry-run", "--duration", "4s"]));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert_eq!(masks(&pid), free);
        assert_eq!(journal(&place), "");
        signal(&pid, "KILL");
        target.finish();
        let would = ["would move from CPU", "would stay on CPUs"];
        if would.iter().any(|would| output.stderr.contains(would)) {
            return;
        }
    }
    panic!("in none of six runs there was anything to move");
}

#[test]
fn a_command_has_its_own_exit_code_and_output_wherever_it_runs() {
    let place = Place::new();
    let run = |arguments: &[&str]| -> Output {
        place.finish(
            place
                .linewise(["place", "--journal", "journal"])
                .args(arguments),
        )
    };
    let output = run(&["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(7), "out\n"),
        "{}",
        output.stderr
    );
    assert!(output.stderr.contains("err\n"), "{}", output.stderr);
    assert_eq!(
        run(&["--quiet", "--", "sh", "-c", "kill -TERM $$"]).code,
        Some(128 + 15)
    );
    assert_eq!(run(&["--", "/no/such/program"]).code, Some(127));
    assert_eq!(run(&["--", "/etc/hostname"]).code, Some(126));
    if let Some(root) = two_sockets(&place) {
        let root = root.display().to_string();
        let output = run(&[
            "--topology",
            &root,
            "--look",
            "200ms",
            "--",
            "sh",
            "-c",
            "sleep 1; exit 9",
        ]);
        assert_eq!(output.code, Some(9), "{}", output.stderr);
        assert_eq!(journal(&place), "");
    }
}

#[test]
fn where_no_place_is_nearer_nothing_is_moved_and_the_reason_said() {
    let place = Place::new();
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sysfs/epyc-vm-2cpu");
    let mut target = place.start(place.command("sleep").arg("30"));
    let pid = target.child.id().to_string();
    let output = place.finish(
        place
            .linewise(["place", "--journal", "journal", "--pid", &pid, "--topology"])
            .arg(tree),
    );
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(
        output.stderr.contains("nothing is to be moved: all CPUs"),
        "{}",
        output.stderr
    );
    target.child.kill().unwrap();
    target.finish();
}

#[test]
fn what_cannot_be_placed_is_refused_with_a_reason() {
    let place = Place::new();
    let refusal = |arguments: &[&str]| {
        let output = place.finish(place.linewise(["place"]).args(arguments));
        assert_eq!(output.code, Some(125), "{}", output.stderr);
        output.stderr
    };
    assert!(refusal(&[]).contains("what is to be placed?"));
    assert!(refusal(&["--pid", "4294967295"]).contains("there is no process"));
    assert!(refusal(&["--pid", "1", "--topology", "/nowhere"]).contains("/nowhere"));
    assert!(
        refusal(&["--pid", "1", "--events", "/no/such/folder/e"]).contains("cannot write events")
    );
    pipe(&place.path("unread"));
    assert!(refusal(&["--pid", "1", "--events", "unread"]).contains("needs its reader first"));
    assert!(refusal(&["--undo", "--journal", "/"]).contains("journal"));
    assert!(refusal(&["--trial", "--turn", "0s", "--pid", "1"]).contains("positive"));
    fs::write(place.path("stream"), "{\"tasks\": 5}\n").unwrap();
    if let Some(root) = two_sockets(&place) {
        let root = root.display().to_string();
        let told = refusal(&[
            "--topology",
            &root,
            "--journal",
            "j",
            "--dry-run",
            "--counters",
            "stream",
        ]);
        assert!(told.contains("line 1"), "{told}");
    }
}

#[test]
fn a_stream_of_counters_is_decided_on_as_it_was_recorded() {
    let place = Place::new();
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sysfs/two-sockets-8cpu");
    // Two threads on each socket of two cores, whose lines come from the other one: 2 million a second.
    let task = |tid: u32, cpu: u32| {
        format!(
            "{{\"tid\":{tid},\"start\":1,\"cpu\":{cpu},\"load\":1,\"cycles\":2e8,\"hertz\":2e9,\
             \"intel\":{{\"remote_hitm\":150000,\"remote_fwd\":50000}}}}"
        )
    };
    let tasks = [task(900_001, 0), task(900_002, 2)].join(",");
    let line = format!("{{\"tasks\":[{tasks}]}}\n");
    fs::write(place.path("stream"), line.repeat(8)).unwrap();
    let output = place.finish(
        place
            .linewise([
                "place",
                "--dry-run",
                "--journal",
                "j",
                "--counters",
                "stream",
                "--topology",
            ])
            .arg(tree),
    );
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(
        output
            .stderr
            .contains("2.00e6 lines a second of its time come across sockets"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_process_has_one_placer_whatever_its_journal_is_called() {
    let place = Place::new();
    let Some(root) = two_sockets(&place) else {
        return;
    };
    let mut target = place.start(place.command("sleep").arg("60"));
    let pid = target.child.id().to_string();
    let mut first = place.start(&mut place_pid(&place, &root, &pid));
    until("a look", || {
        events(&place).contains("\"look\"").then_some(())
    });
    let second = |what: &[&str]| {
        let mut command = place.linewise(["place", "--journal", "second", "--topology"]);
        place.finish(command.arg(&root).args(["--pid", &pid]).args(what))
    };
    let refused = second(&[]);
    assert_eq!(refused.code, Some(125), "{}", refused.stderr);
    let told = format!(
        "another `linewise place` (pid {}) places process {pid}",
        first.child.id()
    );
    assert!(refused.stderr.contains(&told), "{}", refused.stderr);
    let short = ["--look", "100ms", "--duration", "200ms"];
    let dry = second(&[&short[..], &["--dry-run"]].concat());
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    // Whose placer is killed is free.
    first.child.kill().unwrap();
    first.finish();
    let free = second(&short);
    assert_eq!(free.code, Some(0), "{}", free.stderr);
    target.child.kill().unwrap();
    target.finish();
}

#[test]
fn what_is_no_journal_is_left_as_it_is() {
    let place = Place::new();
    let Some(root) = two_sockets(&place) else {
        return;
    };
    let half = "{\"boot\":\"x\",\"tid\":1";
    for (text, is_one) in [
        ("user data that matters\n", false),
        ("root:x:0:0\n\u{0}\n", false),
        ("\n\n", true),
        (half, true),
    ] {
        fs::write(place.path("file"), text).unwrap();
        for what in [&["--", "true"][..], &["--undo"]] {
            let mut command = place.linewise(["place", "--journal", "file", "--topology"]);
            let output = place.finish(command.arg(&root).args(what));
            let refused = output.stderr.contains("left as it is");
            assert_eq!(refused, !is_one, "{text:?} {what:?}: {}", output.stderr);
            if !is_one {
                assert_eq!(fs::read_to_string(place.path("file")).unwrap(), text);
            }
        }
    }
}
