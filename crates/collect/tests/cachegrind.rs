//! The exact source and the cache model beside `valgrind --tool=cachegrind`, on one real program.
//! `cargo xtask cachegrind` compares more of them, and says what both sides have to be shown.

use std::process::{Command, Stdio};

use linewise_cache::hierarchy::{CacheShape, Config, Hierarchy, Level};
use linewise_collect::exact::{ExactOptions, trace};
use linewise_machine::signals::StopSignals;
use linewise_trace::{Consumer, TracedAccess};

/// Set in the process that traces: what both sides are shown has to be in its environment.
const TRACE: &str = "LINEWISE_TEST_TRACE";
const ENVIRONMENT: &[(&str, &str)] = &[
    ("LD_BIND_NOW", "1"),
    ("QEMU_CPU", "Haswell"),
    (
        "GLIBC_TUNABLES",
        "glibc.cpu.hwcaps=-ERMS,-FSRM:glibc.cpu.x86_data_cache_size=32768:\
         glibc.cpu.x86_shared_cache_size=1048576:glibc.cpu.x86_non_temporal_threshold=786432:\
         glibc.cpu.x86_rep_movsb_threshold=1000000000:\
         glibc.cpu.x86_rep_stosb_threshold=1000000000",
    ),
];
/// 32 KiB, 8 ways; 1 MiB, 16 ways: the text is larger than the first and smaller than the second.
const D1: (u64, u32) = (32 << 10, 8);
const LL: (u64, u32) = (1 << 20, 16);

struct Simulation {
    hierarchy: Hierarchy,
    references: u64,
}

impl Consumer for Simulation {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        let batch: Vec<_> = batch.iter().map(TracedAccess::access).collect();
        self.references += batch.len() as u64;
        self.hierarchy.run(&batch);
    }
}

fn traced(command: &str) {
    let shape = |(bytes, ways)| CacheShape::new(bytes, ways);
    let config = Config::cachegrind(shape(D1), shape(LL));
    let mut simulation = Simulation {
        hierarchy: Hierarchy::new(&config).unwrap(),
        references: 0,
    };
    let command = command.split(' ').map(Into::into).collect();
    let outcome = trace(
        &ExactOptions::new(command),
        &StopSignals::block().unwrap(),
        &mut simulation,
    )
    .unwrap();
    assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
    let total = simulation.hierarchy.finish().total;
    println!(
        "\ncounted {} {} {}",
        simulation.references,
        total.misses(Level::L1),
        total.misses(Level::Llc)
    );
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skip: {program} is not installed");
    }
    found
}

#[test]
fn references_and_misses_of_gzip_agree_with_cachegrind() {
    if let Ok(command) = std::env::var(TRACE) {
        traced(&command);
        return;
    }
    if cfg!(not(target_arch = "x86_64")) {
        eprintln!("skip: the environment is made for x86-64");
        return;
    }
    if !["valgrind", "qemu-x86_64", "gzip"].into_iter().all(has) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    let lines: String = (0..12_000u64)
        .map(|i| format!("{:x} {i}\n", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40))
        .collect();
    std::fs::write(&text, lines).unwrap();
    let command = format!("gzip -1 -k {}", text.display());
    let compressed = folder.path().join("text.gz");

    let valgrind = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cachegrind-out-file=/dev/null"])
        .arg(format!("--D1={},{},64", D1.0, D1.1))
        .arg(format!("--LL={},{},64", LL.0, LL.1))
        .args(command.split(' '))
        .envs(ENVIRONMENT.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&valgrind.stderr);
    assert!(valgrind.status.success(), "{said}");
    let theirs = ["D   refs:", "D1  misses:", "LLd misses:"].map(|what| {
        let (_, rest) = said.split_once(what).expect("valgrind prints its counts");
        let number = rest.split_whitespace().next().unwrap().replace(',', "");
        number.parse::<f64>().unwrap()
    });
    std::fs::remove_file(&compressed).unwrap();

    let own = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("references_and_misses_of_gzip_agree_with_cachegrind")
        .env(TRACE, &command)
        .envs(ENVIRONMENT.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&own.stdout);
    assert!(
        own.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&own.stderr)
    );
    assert!(compressed.exists());
    let counted = said.lines().find_map(|line| line.strip_prefix("counted "));
    let ours: Vec<f64> = counted
        .expect("the child prints its counts")
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();

    println!("references, D1 misses, LL misses: {ours:?}, cachegrind {theirs:?}");
    for ((what, bar), (ours, theirs)) in [("references", 0.01), ("D1", 0.03), ("LL", 0.03)]
        .into_iter()
        .zip(ours.iter().zip(theirs))
    {
        let off = (ours / theirs - 1.0).abs();
        assert!(off <= bar, "{what}: {ours} and {theirs}");
    }
}
