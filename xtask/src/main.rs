//! Chores that need more than a shell script: the rules of the house (`cargo xtask tidy`,
//! `cargo xtask licences`) and measurements of the real binary (`cargo xtask answers`,
//! `cargo xtask overhead`, `cargo xtask exact-stability`, `cargo xtask conformance`).

mod addressed;
mod advice;
mod answers;
mod arguments;
mod cachegrind;
mod conformance;
mod curve;
mod exact_stability;
mod flow;
mod header;
mod heap;
mod inject;
mod licences;
mod metadata;
mod misses;
mod overhead;
mod paste;
mod recorded;
mod repairs;
mod round_trip;
mod slowdown;
mod soak;
mod spdx;
mod steal;
mod structures;
mod tidy;
mod twins;
mod typed;
mod typed_real;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use arguments::Arguments;

/// The verbs, with what each does.
pub(crate) const COMMANDS: &[(&str, &str)] = &[
    (
        "tidy",
        "file sizes, crate arrows, circles of files, unsafe, stray words, commands in the documents",
    ),
    (
        "licences",
        "licences, bans and sources of all dependencies against deny.toml",
    ),
    (
        "header",
        "makes the C header of crates/delegate-c with cbindgen",
    ),
    (
        "answers",
        "what linewise says of fixtures/programs against answers.json; at least 95 % must be right\n\
         [--runs 20] [--seconds 3] [--source timer|exact] [--only NAME] [--json]\n\
         with --runs 1, two of three",
    ),
    (
        "exact-stability",
        "transfers that exact runs of one program count on one CPU and on two\n\
         [--runs 10] [--times 1000000] [--json]",
    ),
    (
        "cachegrind",
        "references and misses of real programs beside those of valgrind --tool=cachegrind\n\
         [--d1 32768,8] [--ll 4194304,16] [--only NAME] [--json]",
    ),
    (
        "curve",
        "miss-ratio curves of real programs beside the caches that the same runs simulated\n\
         [--reuse all|1/64] [--machine NAME] [--only NAME] [--json]",
    ),
    (
        "slowdown",
        "slowdown of programs under the exact source, beside cachegrind\n\
         [--rounds 3] [--only NAME] [--sides count,lines,shards,exact,caches,all,cachegrind]",
    ),
    (
        "typed",
        "types and fields of sampled accesses against programs that know them; needs\n\
         `cargo build -p linewise-analysis --examples` and qemu-user; with --real how many accesses of\n\
         programs from the registry have a type (fixtures/real), and of the types how many agree with what\n\
         else is known of the memory; that needs these examples with --release\n\
         [--seconds 5] [--json | --real]",
    ),
    (
        "misses",
        "classes of misses from samples against the exact ones, on programs with one known cause each\n\
         [--seconds 4] [--json]",
    ),
    (
        "repairs",
        "the cost of findings beside what a repair brings, on programs with repaired twins\n\
         [--threads 2] [--pairs 3] [--seconds 2.4 of CPU time] [--only PROGRAM] [--json]",
    ),
    (
        "advice",
        "what findings advise: pasted, compiled, run and recorded again where there is something to paste\n\
         [--pairs 5] [--seconds 0.8 of CPU time] [--only PROGRAM] [--quick] [--json]",
    ),
    (
        "structures",
        "the kind of sharing of fourteen concurrent structures, packed on a line and padded\n\
         [--threads 2] [--runs 5] [--seconds 2 of CPU time] [--source timer|exact] [--only PROGRAM]",
    ),
    (
        "heap",
        "what the heap recorder costs, in turns with runs without it, and whether it tells the truth\n\
         [--pairs 5] [--seconds 3] [--only storm|rayon_sort|redis-server|memcached|live|many|stress|probed]\n\
         stress runs for as many seconds as are asked for",
    ),
    (
        "soak",
        "memory, files and threads of linewise over a long time, and what it leaves behind\n\
         [--minutes 60]",
    ),
    (
        "flow",
        "what following objects costs, and how many history sets find how many of their paths\n\
         [--rounds 3] [--seconds 8]",
    ),
    (
        "conformance",
        "programs whose output and exit code must be the same under linewise as without it (tests/conformance)\n\
         [--core] [--only NAME,...] [--mode run|record|pid|exact] [--jobs 2] [--linewise FILE]\n\
         a star in NAME stands for anything; --suites: instead the C library's own tests of its allocator and\n\
         threads, which `apt-get source` fetches",
    ),
    (
        "inject",
        "each system call of linewise fails once, under strace: no panic, the target unharmed, a message\n\
         [--core] [--verb run|record|pid|exact|report] [--only CALL] [--points 8] [--jobs 2] [--linewise FILE]",
    ),
    (
        "overhead",
        "slowdown of programs and servers under `linewise record`, in interleaved pairs\n\
         [--pairs 5] [--seconds 3] [--only NAME]",
    ),
];

/// Something that breaks a rule of the house.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    /// Where: `path`, `path:line`, or a crate.
    pub place: String,
    /// What is wrong and what to do.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
        }
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let verb = words.next().unwrap_or_default();
    let root = root();
    let outcome = match verb.as_str() {
        "tidy" => tidy::run(&root),
        "licences" => licences::run(&root),
        "header" => return measured(&verb, header::run(&root)),
        "answers" => return measured(&verb, answers::run(&root, Arguments::new(words))),
        "exact-stability" => {
            return measured(&verb, exact_stability::run(&root, Arguments::new(words)));
        }
        "cachegrind" => return measured(&verb, cachegrind::run(&root, Arguments::new(words))),
        "curve" => return measured(&verb, curve::run(&root, Arguments::new(words))),
        "slowdown" => return measured(&verb, slowdown::run(&root, Arguments::new(words))),
        "typed" => return measured(&verb, typed::run(&root, Arguments::new(words))),
        "soak" => return measured(&verb, soak::run(&root, Arguments::new(words))),
        "flow" => return measured(&verb, flow::run(&root, Arguments::new(words))),
        "repairs" => return measured(&verb, repairs::run(&root, Arguments::new(words))),
        "advice" => return measured(&verb, advice::run(&root, Arguments::new(words))),
        "structures" => return measured(&verb, structures::run(&root, Arguments::new(words))),
        "misses" => return measured(&verb, misses::run(&root, Arguments::new(words))),
        "heap" => return measured(&verb, heap::run(&root, Arguments::new(words))),
        "inject" => return measured(&verb, inject::run(&root, Arguments::new(words))),
        "conformance" => return measured(&verb, conformance::run(&root, Arguments::new(words))),
        "overhead" => return measured(&verb, overhead::run(&root, Arguments::new(words))),
        _ => {
            eprintln!("usage: cargo xtask VERB [OPTIONS]\n");
            for (name, what) in COMMANDS {
                eprintln!("  {name:<16}{}", what.replace('\n', "\n                  "));
            }
            return ExitCode::from(if verb == "help" { 0 } else { 2 });
        }
    };
    match outcome {
        Ok(mut problems) => {
            problems.sort();
            problems.dedup();
            for problem in &problems {
                eprintln!("{}: {}", problem.place, problem.what);
            }
            if problems.is_empty() {
                println!("{verb}: clean");
                ExitCode::SUCCESS
            } else {
                eprintln!("{verb}: {} problems", problems.len());
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("{verb}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The end of a verb that printed its own result: whether that is good.
fn measured(verb: &str, outcome: anyhow::Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{verb}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace: one above this crate.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
