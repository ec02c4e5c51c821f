//! What happens to a whole process: each test runs one as its child.
#![allow(unsafe_code)]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use linewise_fibres::fs::File;
use linewise_fibres::{
    Error, JoinError, Runtime, migrate, park, park_timeout, sleep, spawn, yield_now,
};

fn runtime(pools: &[(&str, usize)]) -> Runtime {
    let builder = Runtime::builder();
    let builder = pools.iter().fold(builder, |builder, (name, workers)| {
        builder.pool(name, *workers)
    });
    // SAFETY: these fibres hold nothing over a waiting call that belongs to their thread, unless they say so.
    unsafe { builder.start() }.unwrap()
}

/// Runs the scenario of this name in a process of its own, with a shell's limits before it.
fn run(limits: &str, scenario: &str) -> Output {
    run_by(limits, "", scenario)
}

/// The same, by a tool that runs programs.
fn run_by(limits: &str, tool: &str, scenario: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    Command::new("sh")
        .arg("-c")
        .arg(format!(
            "{limits} exec {tool} \"$0\" --ignored --exact --nocapture --test-threads 1 {scenario}"
        ))
        .arg(program)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[inline(never)]
fn deep(levels: u32) -> u64 {
    let here = std::hint::black_box([levels; 64]);
    if levels == 0 {
        return 0;
    }
    deep(levels - 1) + u64::from(std::hint::black_box(here)[3])
}

#[test]
#[ignore = "a scenario of the test below"]
fn scenario_overflow() {
    let runtime = runtime(&[("one", 1)]);
    let pool = runtime.pool("one").unwrap();
    let fits = pool.builder().stack_size(8 << 20).spawn(|| deep(10_000));
    assert_eq!(fits.unwrap().join().unwrap(), 10_000 * 10_001 / 2);
    let over = pool
        .builder()
        .name(&format!("deep\u{7}\n\u{9b}31m{}", "é".repeat(200)));
    let over = over.spawn(|| deep(10_000));
    let _ = over.unwrap().join();
}

#[test]
fn a_stack_that_is_used_up_is_told() {
    let output = run("", "scenario_overflow");
    let text = text(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{text}");
    assert!(text.contains("(deep\\u{7}\\n\\u{9b}31mééé"), "{text}");
    assert!(
        text.contains("éé...) has used up its stack of 64 KiB; give it more with Spawn::stack_size, or recurse less\n"),
        "{text}"
    );
}

#[test]
#[ignore = "a scenario of the test below"]
fn scenario_fault() {
    let runtime = runtime(&[("one", 1)]);
    let fault = runtime.spawn(|| {
        let nowhere = std::ptr::without_provenance::<u32>(std::hint::black_box(8));
        // SAFETY: none; it faults.
        unsafe { nowhere.read_volatile() }
    });
    let _ = fault.unwrap().join();
}

#[test]
fn another_fault_stays_what_it_is() {
    let output = run("", "scenario_fault");
    let text = text(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{text}");
    assert!(!text.contains("used up"), "{text}");
}

#[test]
#[ignore = "a scenario of the test below"]
fn scenario_fork() {
    let runtime = runtime(&[("one", 1)]);
    let ended = runtime.spawn(|| 5).unwrap();
    runtime.wait();
    let waits = runtime.spawn(park).unwrap();
    let wait = |child| {
        let mut status = 0;
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        std::process::ExitStatus::from_raw(status)
    };
    // SAFETY: the child calls only what is checked here, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.wait()));
        let refused = matches!(runtime.spawn(|| ()), Err(Error::Forked))
            && ended.join().is_ok_and(|value| value == 5)
            && matches!(waits.join(), Err(JoinError::Forked))
            && waited.is_err();
        // SAFETY: as above.
        unsafe { libc::_exit(if refused { 7 } else { 1 }) };
    }
    println!("outside {:?}", wait(child).code());
    let inside = runtime.spawn(move || {
        // SAFETY: as above.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                yield_now();
            }
        }
        wait(child).signal()
    });
    println!("inside {:?}", inside.unwrap().join().unwrap());
}

#[test]
fn a_fork_is_refused() {
    let output = run("", "scenario_fork");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("outside Some(7)"), "{text}");
    assert!(text.contains("inside Some(6)"), "{text}");
    assert!(text.contains("its workers stayed there"), "{text}");
}

/// Waits as it is dropped.
struct WaitsLong;

impl Drop for WaitsLong {
    fn drop(&mut self) {
        let other = spawn(|| println!("the other runs")).unwrap();
        let begun = Instant::now();
        while !other.is_finished() && begun.elapsed() < Duration::from_secs(3) {
            park_timeout(Duration::from_millis(1));
        }
        println!("other has ended: {}", other.is_finished());
    }
}

#[test]
#[ignore = "a scenario of the test below"]
fn scenario_unwinding() {
    let runtime = runtime(&[("one", 1)]);
    let pool = runtime.pool("one").unwrap();
    let fibre = pool.builder().name("late\n one").spawn(|| {
        let _waits = WaitsLong;
        panic!("no luck");
    });
    assert!(fibre.unwrap().join().is_err());
    runtime.wait();
}

#[test]
fn a_destructor_that_waits_for_a_fibre_of_its_own_worker_is_told_of() {
    let output = run("", "scenario_unwinding");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("other has ended: false"), "{text}");
    assert_eq!(
        text.matches("(late\\n one) waits in a destructor").count(),
        1,
        "{text}"
    );
    assert!(text.contains("the other runs"), "{text}");
}

thread_local! {
    static OWN: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Keeps an address of its thread's variables over a move, as it must not.
fn keeps_an_address() {
    let runtime = unsafe {
        // SAFETY: the fibre breaks the promise, but reads nothing by what it keeps.
        Runtime::builder()
            .pool("a", 1)
            .pool("b", 1)
            .check_moves()
            .start()
    }
    .unwrap();
    let pools = runtime.pools();
    let moves = runtime.spawn(move || {
        // SAFETY: nothing belongs to the thread.
        unsafe { migrate(&pools[1]) };
        let clean = Runtime::kept_addresses();
        let kept = std::hint::black_box([OWN.with(|own| std::ptr::from_ref(own).addr())]);
        // A visit comes back to this thread, so what is kept is right.
        linewise_fibres::visit(&pools[0], || ());
        let clean = clean + Runtime::kept_addresses();
        // SAFETY: an address is kept, but nothing is read by it.
        unsafe { migrate(&pools[0]) };
        std::hint::black_box(kept);
        (clean, Runtime::kept_addresses())
    });
    let (clean, kept) = moves.unwrap().join().unwrap();
    println!("clean {clean} kept {}", kept > 0);
}

#[test]
#[ignore = "a scenario of the test below"]
fn scenario_kept() {
    keeps_an_address();
}

#[test]
fn an_address_that_moves_along_is_told() {
    let output = run("", "scenario_kept");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("clean 0 kept true"), "{text}");
    assert!(
        text.contains("moves from worker 1 to worker 0 and keeps 0x"),
        "{text}"
    );
}

#[test]
#[ignore = "a scenario of the test below"]
fn scenario_many() {
    let runtime = runtime(&[("one", 1)]);
    let begun = runtime.spawn(|| {
        let mut handles = Vec::new();
        let refused = loop {
            match spawn(park) {
                Ok(handle) => handles.push(handle),
                Err(error) => break Some(error.to_string()),
            }
            if handles.len().is_multiple_of(1000) {
                yield_now();
            }
            if handles.len() == 100_000 {
                break None;
            }
        };
        yield_now();
        (handles.len(), refused)
    });
    let (count, refused) = begun.unwrap().join().unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{count} at once, {}, {refused:?}", peak.unwrap());
    sleep(Duration::from_millis(1));
    runtime.shut_down();
    println!("ended");
}

#[test]
fn a_hundred_thousand_fibres_wait_at_once() {
    let output = run("", "scenario_many");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    // Without guard regions (before Linux 6.13) a process has mappings for some 32,000.
    let refused = text.contains("max_map_count");
    assert!(text.contains("100000 at once") || refused, "{text}");
    let peak = text.split("VmHWM:").nth(1).unwrap();
    let kib: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
    assert!(kib < 2 << 20, "{text}");
    assert!(text.contains("ended"), "{text}");
}

#[test]
fn fibres_beyond_the_limit_of_memory_are_refused_and_the_others_live() {
    let output = run("ulimit -v 3000000;", "scenario_many");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("memory for stacks: "), "{text}");
    assert!(text.contains("`ulimit -v`"), "{text}");
    assert!(text.contains("ended"), "{text}");
}

#[test]
#[ignore = "a scenario of the test below"]
fn scenario_ring() {
    let runtime = runtime(&[("one", 1)]);
    let path = std::env::temp_dir().join(format!("fibres-ring-{}", std::process::id()));
    let written = runtime.spawn(move || {
        let file = File::create(&path).unwrap();
        assert_eq!(file.write_at(b"text", 0).unwrap(), 4);
        let mut read = [0; 8];
        let file = File::open(&path).unwrap();
        let count = file.read_at(&mut read, 0).unwrap();
        std::fs::remove_file(&path).unwrap();
        // What valgrind takes for uninitialised it tells of here.
        assert_eq!(&read[..count], b"text");
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.filter_map(|it| std::fs::read_link(it.ok()?.path()).ok())
            .filter(|leads| leads.to_string_lossy().contains("io_uring"))
            .count()
    });
    println!("rings: {}", written.unwrap().join().unwrap());
}

#[test]
fn files_go_by_no_ring_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: no valgrind");
        return;
    }
    let alone = text(&run("", "scenario_ring"));
    if !alone.contains("rings: 1") {
        println!("skipped: the kernel gives no ring: {alone}");
        return;
    }
    let output = run_by(
        "",
        "valgrind --quiet --error-exitcode=9 --fair-sched=yes",
        "scenario_ring",
    );
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("rings: 0"), "{text}");
}

#[test]
#[ignore = "a scenario of the test below"]
fn scenario_sessions() {
    let runtime = runtime(&[("one", 1)]);
    let pool = runtime.pool("one").unwrap();
    for name in ["echo", "echo", "other"] {
        let here = pool.builder().name(name).spawn(|| {
            let here = 0_u8;
            std::hint::black_box(&raw const here).addr()
        });
        println!("stack {name} {:x}", here.unwrap().join().unwrap());
    }
}

/// A recorder that prints what it is told.
const RECORDER: &str = r#"
#include <stdio.h>
void linewise_object_begins(const void *object, size_t size, const char *name) {
    printf("begins %lx %zu %s\n", (unsigned long)object, size, name);
    fflush(stdout);
}
void linewise_object_ends(const void *object) {
    printf("ends %lx\n", (unsigned long)object);
    fflush(stdout);
}
"#;

#[test]
fn whoever_records_is_told_of_sessions_and_no_stack_is_used_twice() {
    let folder = std::env::temp_dir().join(format!("fibres-recorder-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, library) = (folder.join("recorder.c"), folder.join("recorder.so"));
    std::fs::write(&source, RECORDER).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    if !built.is_ok_and(|it| it.success()) {
        println!("skipped: no C compiler");
        return;
    }
    let limits = format!(
        "export LINEWISE_SESSIONS=1 LD_PRELOAD={};",
        library.display()
    );
    let output = run(&limits, "scenario_sessions");
    std::fs::remove_dir_all(&folder).unwrap();
    let text = text(&output);
    let begun: Vec<(usize, usize, String)> = text
        .lines()
        .filter_map(|line| {
            // The harness says what it runs in the same line.
            let (_, told) = line.split_once("begins ")?;
            let mut words = told.splitn(3, ' ');
            let low = usize::from_str_radix(words.next()?, 16).ok()?;
            Some((low, words.next()?.parse().ok()?, words.next()?.to_owned()))
        })
        .collect();
    let stacks: Vec<usize> = text
        .lines()
        .filter_map(|line| line.strip_prefix("stack ")?.split(' ').nth(1))
        .map(|address| usize::from_str_radix(address, 16).unwrap())
        .collect();
    assert_eq!(begun.len(), 3, "{text}");
    for ((low, bytes, name), address) in begun.iter().zip(&stacks) {
        assert!((*low..low + bytes).contains(address), "{text}");
        assert!(name.starts_with("session "), "{text}");
        assert!(text.contains(&format!("ends {low:x}")), "{text}");
    }
    assert!(begun[0].2.ends_with(" echo"), "{text}");
    let mut lows: Vec<_> = begun.iter().map(|it| it.0).collect();
    lows.dedup();
    assert_eq!(lows.len(), 3, "{text}");
}
