//! `--pid`: processes that are gone, somebody else's, left running, or end meanwhile.

use std::process::Command;

use linewise_recording::{Recording, SampleClass};

use crate::util::{BINARY, Place, alive, as_somebody_else, signal, threads};

#[test]
fn a_process_that_is_gone_is_named() {
    let place = Place::new();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    for pid in [gone.id().to_string(), "0".to_owned(), u32::MAX.to_string()] {
        let output = place.finish(&mut place.linewise(["run", "--pid", &pid]));
        assert_eq!(output.code, Some(125), "{}", output.stderr);
        assert!(
            output
                .stderr
                .contains(&format!("there is no process {pid}")),
            "{}",
            output.stderr
        );
    }
    assert!(place.leftovers().is_empty());
}

#[test]
fn a_process_of_somebody_else_is_refused() {
    let place = Place::new();
    let Some(mut command) = as_somebody_else(&place) else {
        return;
    };
    crate::util::open_to_all(&place);
    let pid = std::process::id().to_string();
    let output = place.finish(command.args([BINARY, "run", "--pid", &pid]));
    assert_eq!(output.code, Some(125), "{}", output.stderr);
    assert!(
        output
            .stderr
            .contains(&format!("process {pid} is not yours to record")),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("as its owner or as root"),
        "{}",
        output.stderr
    );
    assert!(place.leftovers().is_empty());
}

#[test]
fn an_attached_process_outlives_its_recording() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let mut running = place.start(place.command(target).args(["take-after", "enough"]));
    let pid = running.child.id().to_string();
    let output =
        place.finish(&mut place.linewise(["run", "--json", "--pid", &pid, "--duration", "500ms"]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(threads(&output.json()).len(), 3, "{}", output.stdout);
    assert!(running.child.try_wait().unwrap().is_none(), "it was ended");
    std::fs::write(place.path("enough"), "").unwrap();
    // Its two threads get all their four debug registers: nothing stayed armed.
    assert_eq!(running.finish().code, Some(8));
}

#[test]
fn an_attached_process_that_ends_ends_its_recording_though_nobody_waits_for_it() {
    let place = Place::new();
    let mut child = place.command("sleep").arg("60").spawn().unwrap();
    let pid = child.id().to_string();
    let running = place.start(&mut place.linewise(["record", "-o", "end", "--pid", &pid]));
    crate::util::until("the recording to begin", || {
        place.path("end.linewise/run.json").exists().then_some(())
    });
    signal(&pid, "TERM");
    crate::util::until("the process to end", || (!alive(&pid)).then_some(()));
    let output = running.finish();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    child.wait().unwrap();
}

/// A script that does nothing itself, beside two copies of a program; its number and theirs.
fn idle_parent(
    place: &Place,
    program: &std::path::Path,
) -> (crate::util::Running, String, [String; 2]) {
    for copy in ["child-one", "child-two"] {
        std::fs::copy(program, place.path(copy)).unwrap();
    }
    let script = "./child-one 120 & echo $! > one; ./child-two 120 & echo $! > two; wait";
    let running = place.start(place.command("sh").args(["-c", script]));
    let parent = running.child.id().to_string();
    let children = ["one", "two"].map(|name| place.wait_for(name));
    (running, parent, children)
}

/// What the kernel counts of a process, ns.
fn cpu_time_ns(pid: &str) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let times = tasks.map(|task| {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<f64>().unwrap()
    });
    times.sum()
}

#[test]
fn what_descends_from_a_process_is_recorded_with_it() {
    let place = Place::new();
    let Some(program) = place.compile("gcc", "fixtures/programs/counters.c", "busy", &[]) else {
        return;
    };
    let (mut running, parent, children) = idle_parent(&place, &program);
    for by in ["auto", "thread"] {
        let options = ["--sample-by", by, "--duration", "1500ms", "--pid", &parent];
        let (told, counted) = told_and_counted(&place, by, &options, &children);
        let report = place
            .finish(&mut place.linewise(["report", "--json", &format!("{by}.linewise")]))
            .json();
        assert_eq!(threads(&report).len(), 7, "{:#}", report["run"]);
        assert!(crate::util::total_samples(&report) > 0, "{by}");
        assert!(
            counted.is(told),
            "{by}: {told} of {counted:?}: {:#}",
            report["notes"]
        );
    }
    for pid in &children {
        signal(pid, "TERM");
    }
    running.child.wait().unwrap();
}

#[test]
fn a_stopped_process_is_said_to_have_hardly_run() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let mut running = place.start(place.command(target).args(["sleepers", "enough"]));
    let pid = running.child.id().to_string();
    signal(&pid, "STOP");
    let options = ["run", "--json", "--duration", "500ms", "--pid", &pid];
    let output = place.finish(&mut place.linewise(options));
    signal(&pid, "KILL");
    running.child.wait().unwrap();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let notes = output.json()["notes"].to_string();
    assert!(notes.contains("It hardly ran: "), "{notes}");
}

/// What the kernel counted of processes while they were recorded, ns: no less than, and no more than.
/// How far apart they are is how far apart the readings around a begin and an end were.
#[derive(Debug)]
struct Counted {
    least: f64,
    most: f64,
}

impl Counted {
    /// From readings, the first before `start` and the last after `end`: (time, counted until then).
    fn between(seen: &[(u64, f64)], start: u64, end: u64) -> Self {
        let around = |moment| {
            let next = seen.partition_point(|&(time, _)| time < moment);
            (seen[next - 1].1, seen[next].1)
        };
        let ((before_start, after_start), (before_end, after_end)) = (around(start), around(end));
        Self {
            least: before_end - after_start,
            most: after_end - before_start,
        }
    }

    /// Whether a CPU time is this one, as exactly as it can be read while others have the CPUs.
    fn is(&self, told: f64) -> bool {
        (0.95 * self.least - 50e6..1.05 * self.most + 50e6).contains(&told)
    }
}

/// Records processes; how much CPU time it tells of all threads, ns, and what the kernel counted of the processes
/// meanwhile.
fn told_and_counted(
    place: &Place,
    name: &str,
    options: &[&str],
    pids: &[String],
) -> (f64, Counted) {
    let mut seen = Vec::new();
    let mut read = || {
        let time = linewise_machine::process::monotonic_ns();
        seen.push((time, pids.iter().map(|pid| cpu_time_ns(pid)).sum()));
    };
    read();
    let mut recorder = place.start(place.linewise(["record", "-o", name]).args(options));
    while recorder.child.try_wait().unwrap().is_none() {
        read();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    read();
    let output = recorder.finish();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let recording = Recording::open(&place.path(&format!("{name}.linewise"))).unwrap();
    let info = recording.info();
    let threads = recording.tables().unwrap().threads;
    let told: u64 = threads.iter().map(|thread| thread.cpu_time_ns).sum();
    (
        told as f64,
        Counted::between(&seen, info.start.0, info.end.0),
    )
}

#[test]
fn of_a_process_that_sleeps_and_wakes_all_the_time_the_time_on_cpus_is_told_and_its_calls_are_seen()
{
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let running = place.start(place.command(target).args(["sleepers", "enough"]));
    let pid = running.child.id().to_string();
    let options = ["--duration", "1500ms", "--pid", &pid];
    let (told, counted) = told_and_counted(&place, "made", &options, std::slice::from_ref(&pid));
    // The kernel counts from the wake-up on, which is up to twice the time on a CPU; where switches were not
    // recorded for long enough to tell, its count stands.
    let most = counted.most * 1.05 + 50e6;
    assert!(
        (counted.least * 0.3..most).contains(&told),
        "{told} {counted:?}"
    );
    std::fs::write(place.path("enough"), "").unwrap();
    let word = running.finish().stdout;
    let word = u64::from_str_radix(word.trim().trim_start_matches("0x"), 16).unwrap();

    let recording = Recording::open(&place.path("made.linewise")).unwrap();
    let tables = recording.tables().unwrap();
    let in_kernel = || {
        tables
            .samples
            .iter()
            .filter(|sample| sample.class == SampleClass::Kernel)
    };
    if in_kernel().count() == 0 {
        println!("skipped: the kernel may not be sampled here");
        return;
    }
    // It does hardly anything else.
    assert!(in_kernel().count() * 2 > tables.samples.len());
    let at_word = in_kernel()
        .filter(|sample| sample.address.0 == word)
        .count();
    assert!(
        at_word * 2 > in_kernel().count(),
        "{at_word} of {}",
        in_kernel().count()
    );
}

#[test]
fn several_processes_are_recorded_until_the_last_ends_and_a_name_stands_for_all_that_have_it() {
    let place = Place::new();
    let (mut running, _, [one, two]) = idle_parent(&place, std::path::Path::new("/bin/sleep"));
    let of = |names: &[&str]| {
        let options = ["run", "--json", "--duration", "300ms"];
        let output = place.finish(place.linewise(options).args(names));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        threads(&output.json()).len()
    };
    let both = format!("{one},{two}");
    assert_eq!(of(&["--pid", &one]), 1);
    assert_eq!(of(&["--pid", &both]), 2);
    assert_eq!(of(&["--pid", &one, "--pid", &two, "--pid", &one]), 2);
    // Another test may have one, too.
    assert!(of(&["--name", "child-two"]) >= 1);
    let recording = place.start(&mut place.linewise(["record", "-o", "both", "--pid", &both]));
    crate::util::until("the recording to begin", || {
        place.path("both.linewise/run.json").exists().then_some(())
    });
    signal(&one, "TERM");
    crate::util::until("the first to end", || (!alive(&one)).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(alive(&recording.child.id().to_string()));
    signal(&two, "TERM");
    assert_eq!(recording.finish().code, Some(0));
    running.child.wait().unwrap();
    let output = place.finish(&mut place.linewise(["run", "--name", "no-such-name"]));
    assert_eq!(output.code, Some(125));
    assert!(
        output
            .stderr
            .contains("no process is called `no-such-name`"),
        "{}",
        output.stderr
    );
}

#[test]
fn threads_beyond_the_limit_of_open_files_are_counted_and_the_others_sampled() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    // In a session of its own: in one the scheduler gives linewise no more than each of the threads has.
    let running = place.start(
        place
            .command("setsid")
            .arg(target)
            .args(["crowd", "enough"]),
    );
    let pid = running.child.id().to_string();
    crate::util::until("300 threads", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        (tasks.count() == 301).then_some(())
    });
    // The threads work for half a millisecond at a time: the period has to be shorter, whatever a
    // sample was measured to cost.
    let script = "ulimit -n 200 && exec \"$0\" run --json --sample-by thread --rate 10000 --pid $1 --duration 1s";
    let output = place.finish(place.command("sh").args(["-c", script, BINARY, &pid]));
    std::fs::write(place.path("enough"), "").unwrap();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let report = output.json();
    let lost = &report["losses"]["threads-not-sampled"];
    let count = lost["count"].as_u64().unwrap_or(0);
    assert!((1..301).contains(&count), "{:#}", report["losses"]);
    let reason = lost["detail"].as_str().unwrap();
    assert!(
        reason.contains("of the 301 threads") && reason.contains("raise it with `ulimit -n "),
        "{reason}"
    );
    assert!(output.stderr.contains(reason), "{}", output.stderr);
    assert!(crate::util::total_samples(&report) > 0);
    assert_eq!(running.finish().code, Some(12));
}
