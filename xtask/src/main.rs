//! Chores that need more than a shell script: the rules of the house (`cargo xtask tidy`,
//! `cargo xtask licences`) and measurements of the real binary (`cargo xtask answers`,
//! `cargo xtask overhead`, `cargo xtask exact-stability`, `cargo xtask conformance`).

mod addressed;
mod advice;
mod answers;
mod arguments;
mod cachegrind;
mod commands;
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
mod problem;
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
use commands::COMMANDS;

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
