//! `cargo xtask cachegrind`: references and misses of real programs as the exact source and the cache
//! model count them, beside those of `valgrind --tool=cachegrind` with the same caches.
//!
//! Both run the program from its first instruction, without the kernel's accesses and without a
//! vdso. So that it takes the same paths on both sides, it is shown the processor that valgrind
//! emulates (`QEMU_CPU=Haswell`), glibc is told the sizes that it would ask the processor for and to
//! allocate from one heap (where the kernel puts a mapping, and whether it can grow there, differs),
//! and libraries are bound at once (the code that binds lazily saves all registers, which valgrind
//! counts as one access). An instruction that reads and writes the same place is one reference on
//! both sides: cachegrind merges the two and counts it among the reads, the exact source
//! makes it an update.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::metadata;

/// How far references may be off, and misses.
const REFERENCES: f64 = 0.01;
const MISSES: f64 = 0.03;

/// What both sides are shown.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("LC_ALL", "C"),
    ("LD_BIND_NOW", "1"),
    ("PERL_HASH_SEED", "0"),
    ("QEMU_CPU", "Haswell"),
    (
        "GLIBC_TUNABLES",
        "glibc.cpu.hwcaps=-ERMS,-FSRM:glibc.cpu.x86_data_cache_size=32768:\
         glibc.cpu.x86_shared_cache_size=1048576:glibc.cpu.x86_non_temporal_threshold=786432:\
         glibc.cpu.x86_rep_movsb_threshold=1000000000:\
         glibc.cpu.x86_rep_stosb_threshold=1000000000:\
         glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824",
    ),
];

/// A program, and its arguments in the folder with the inputs. All run with one thread.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("gzip", &["-1", "-c", "text"]),
    (
        "zstd",
        &["-1", "-q", "--single-thread", "--no-asyncio", "-c", "text"],
    ),
    ("xz", &["-0", "-T1", "-c", "text"]),
    ("sort", &["--parallel=1", "text"]),
    ("sqlite3", &[":memory:", ".read query.sql"]),
    (
        "perl",
        &[
            "-ne",
            "for (split) {$h{$_}++} END { print qq($_ $h{$_}\\n) for sort keys %h }",
            "text",
        ],
    ),
];

const QUERY: &str = "create table t(a integer, b text);
with recursive c(x) as (select 1 union all select x+1 from c where x<12000)
  insert into t select x, hex(x*7919%10007) from c;
create index i on t(b);
select b,count(*),sum(a) from t group by b order by 2 desc, 1 limit 5;
select count(*) from t x join t y on x.b=y.b;
";
/// Size of the text that the others read.
const TEXT_BYTES: usize = 1 << 20;

/// What one side counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Counts {
    references: u64,
    d1_misses: u64,
    ll_misses: u64,
}

/// What the example `exact_counts` prints.
#[derive(Deserialize)]
struct Counted {
    loads: u64,
    stores: u64,
    updates: u64,
    d1_misses: u64,
    ll_misses: u64,
    threads: usize,
    losses: usize,
}

/// One program on both sides.
#[derive(Debug, Serialize)]
struct Row {
    program: &'static str,
    cachegrind: Counts,
    linewise: Counts,
    /// linewise ÷ cachegrind, less 1.
    references_off: f64,
    d1_off: f64,
    ll_off: f64,
    passed: bool,
}

impl Row {
    fn new(program: &'static str, cachegrind: Counts, linewise: Counts) -> Self {
        let off = |ours: u64, theirs: u64| ours as f64 / theirs.max(1) as f64 - 1.0;
        let references_off = off(linewise.references, cachegrind.references);
        let d1_off = off(linewise.d1_misses, cachegrind.d1_misses);
        let ll_off = off(linewise.ll_misses, cachegrind.ll_misses);
        Self {
            program,
            cachegrind,
            linewise,
            references_off,
            d1_off,
            ll_off,
            passed: references_off.abs() <= REFERENCES
                && d1_off.abs() <= MISSES
                && ll_off.abs() <= MISSES,
        }
    }
}

/// Compares all programs and prints a line for each; good if all that are installed agree.
///
/// # Errors
/// If the example cannot be built, or a program fails on either side.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let d1: String = arguments
        .value("--d1")?
        .unwrap_or_else(|| "32768,8".to_owned());
    let ll: String = arguments
        .value("--ll")?
        .unwrap_or_else(|| "4194304,16".to_owned());
    let only: Option<String> = arguments.value("--only")?;
    let json = arguments.switch("--json");
    arguments.finish()?;
    for tool in ["valgrind", "qemu-x86_64"] {
        if !installed(tool) {
            println!("skip: {tool} is not installed; scripts/install-needs.sh test fetches it");
            return Ok(true);
        }
    }
    build(root)?;
    let sides = Sides {
        work: root.join("target/cachegrind"),
        example: root.join("target/release/examples/exact_counts"),
        d1,
        ll,
    };
    fs::create_dir_all(&sides.work).with_context(|| sides.work.display().to_string())?;
    fs::write(sides.work.join("text"), text())?;
    fs::write(sides.work.join("query.sql"), QUERY)?;
    if !json {
        println!("D1 {}, LL {}, lines of 64 bytes", sides.d1, sides.ll);
        println!(
            "{:<9}{:>13}{:>9}{:>13}{:>9}{:>11}{:>9}",
            "program", "references", "off", "D1 misses", "off", "LL misses", "off"
        );
    }
    let mut rows = Vec::new();
    for &(program, words) in PROGRAMS {
        if only.as_deref().is_some_and(|only| only != program) {
            continue;
        }
        if !installed(program) {
            eprintln!("skip: {program} is not installed");
            continue;
        }
        let cachegrind = sides.cachegrind(program, words)?;
        let linewise = sides.linewise(program, words)?;
        let row = Row::new(program, cachegrind, linewise);
        if !json {
            println!(
                "{:<9}{:>13}{:>8.2}%{:>13}{:>8.2}%{:>11}{:>8.2}%{}",
                program,
                cachegrind.references,
                row.references_off * 100.0,
                cachegrind.d1_misses,
                row.d1_off * 100.0,
                cachegrind.ll_misses,
                row.ll_off * 100.0,
                if row.passed { "" } else { "  missed" }
            );
        }
        rows.push(row);
    }
    ensure!(!rows.is_empty(), "no program is left to compare");
    if json {
        let table = serde_json::json!({ "d1": sides.d1, "ll": sides.ll, "programs": rows });
        println!("{table:#}");
    }
    Ok(rows.iter().all(|row| row.passed))
}

/// Whether a program is on the path.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Builds the plugin and the examples of the exact source.
///
/// # Errors
/// If cargo fails.
pub(crate) fn build(root: &Path) -> anyhow::Result<()> {
    let status = Command::new(metadata::cargo())
        .args(["build", "--release", "--quiet", "--locked"])
        .args([
            "--package",
            "linewise-tracer",
            "--package",
            "linewise-collect",
        ])
        .args([
            "--lib",
            "--example",
            "exact_counts",
            "--example",
            "exact_speed",
        ])
        .current_dir(root)
        .status()
        .context("running cargo")?;
    ensure!(
        status.success(),
        "the examples of linewise-collect do not build"
    );
    Ok(())
}

struct Sides {
    work: PathBuf,
    example: PathBuf,
    d1: String,
    ll: String,
}

impl Sides {
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.work)
            // The caller's environment lies above the stack and moves it, with it its conflicts.
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .envs(ENVIRONMENT.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn cachegrind(&self, program: &str, words: &[&str]) -> anyhow::Result<Counts> {
        let output = self
            .command("valgrind")
            .args(["--tool=cachegrind", "--cachegrind-out-file=/dev/null"])
            .args([
                format!("--D1={},64", self.d1),
                format!("--LL={},64", self.ll),
            ])
            .arg(program)
            .args(words)
            .output()
            .context("running valgrind")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{program} failed under valgrind: {said}"
        );
        parse(&said).with_context(|| format!("valgrind counted nothing of {program}: {said}"))
    }

    fn linewise(&self, program: &str, words: &[&str]) -> anyhow::Result<Counts> {
        let output = self
            .command(&self.example)
            .args([&self.d1, &self.ll])
            .arg(program)
            .args(words)
            .output()
            .with_context(|| self.example.display().to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program} failed: {said}");
        let last = said.lines().next_back().unwrap_or_default();
        let counted: Counted =
            serde_json::from_str(last).with_context(|| format!("{program}: {said}"))?;
        ensure!(
            counted.threads == 1 && counted.losses == 0,
            "{program} is not traced as one thread without losses: {said}"
        );
        Ok(Counts {
            references: counted.loads + counted.stores + counted.updates,
            d1_misses: counted.d1_misses,
            ll_misses: counted.ll_misses,
        })
    }
}

/// The three counts in cachegrind's summary.
fn parse(said: &str) -> Option<Counts> {
    let count = |what: &str| -> Option<u64> {
        let (_, rest) = said.split_once(what)?;
        let digits: String = rest
            .trim_start()
            .chars()
            .take_while(|character| character.is_ascii_digit() || *character == ',')
            .filter(char::is_ascii_digit)
            .collect();
        digits.parse().ok()
    };
    Some(Counts {
        references: count("D   refs:")?,
        d1_misses: count("D1  misses:")?,
        ll_misses: count("LLd misses:")?,
    })
}

/// A mebibyte of lines of words, the same on every machine.
pub(crate) fn text() -> String {
    let mut random = 88_172_645_463_325_252_u64;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let words: Vec<String> = (0..3000)
        .map(|_| {
            let letters = 2 + draw(8);
            (0..letters)
                .map(|_| char::from(b'a' + draw(26) as u8))
                .collect()
        })
        .collect();
    let mut text = String::with_capacity(TEXT_BYTES + 64);
    while text.len() < TEXT_BYTES {
        text += &words[draw(3000) as usize];
        text.push(if draw(9) == 0 { '\n' } else { ' ' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_cachegrind_is_read() {
        let said = "==7== D   refs:       58,555  (44,145 rd   + 14,410 wr)\n\
                    ==7== D1  misses:      1,794  ( 1,446 rd   +    348 wr)\n\
                    ==7== LLd misses:      1,502  ( 1,176 rd   +    326 wr)\n";
        let counts = parse(said).expect("has all three");
        assert_eq!(
            counts,
            Counts {
                references: 58_555,
                d1_misses: 1_794,
                ll_misses: 1_502
            }
        );
        assert_eq!(parse("==7== I   refs: 4,237,300"), None);
        let off = Counts {
            d1_misses: 1_900,
            ..counts
        };
        assert!(Row::new("any", counts, counts).passed);
        assert!(!Row::new("any", counts, off).passed);
    }
}
