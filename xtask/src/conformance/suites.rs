//! `cargo xtask conformance --suites`: tests that other people wrote, each of which must pass in every mode if it
//! passes alone.
//!
//! They are not made for being compared: what one says may differ from run to run, and one that waits for a moment may
//! fail now and then on a busy machine. So the output counts only where two runs alone have the same, and what
//! differs is run again: it counts if it differs every time, and is told if it does not.

mod glibc;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context;

use glibc::Test;

use super::compared::difference;
use super::manifest::Program;
use super::mode::Mode;
use super::modes::{Place, Suite};
use super::process::Outcome;
use super::verdict::{Verdict, compare};
use super::workers::lock;

/// How long a test may take alone, s.
const SECONDS: u64 = 40;
/// One that takes longer alone is left out: under emulation it would take minutes.
const LONGEST: Duration = Duration::from_secs(5);
/// As long as that under emulation alone, s: an exact run would take minutes.
const LONGEST_EMULATED: u64 = 15;
/// How often it is tried whether a difference comes again.
const TRIES: usize = 3;
/// Runs alone after a difference.
const AGAIN: usize = 5;

/// What became of a test.
enum Came {
    /// It does not pass by itself, or takes too long.
    NotAlone(String),
    Compared(Vec<(Mode, Verdict, usize)>),
}

/// Runs all tests, or those that `only` means, and prints what differs and the sums. `false` if something differs.
///
/// # Errors
/// If something is not where it should be.
pub(super) fn run(suite: &Suite, only: Option<&str>, jobs: usize) -> anyhow::Result<bool> {
    let place = suite.place.join("suites");
    fs::create_dir_all(&place)?;
    let (tests, all) = match glibc::tests(&place, jobs)? {
        Ok(found) => found,
        Err(reason) => {
            println!("SKIP: conformance: glibc: {reason}");
            return Ok(true);
        }
    };
    println!("glibc: {all} tests, {} of them built", tests.len());
    let mut known = exceptions(&suite.sources.join("suites.toml"))?;
    let programs: Vec<Program> = tests
        .into_iter()
        .map(|test| {
            let except = known.remove(&test.name).unwrap_or_default();
            program(test, except)
        })
        .collect();
    let wanted = programs
        .into_iter()
        .filter(|program| only.is_none_or(|only| program.matches(only)));
    let waiting = Mutex::new(wanted.collect::<VecDeque<_>>());
    let rows = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = lock(&waiting).pop_front();
                    let Some(program) = next else { break };
                    let came = tried(suite, &place, &program)
                        .unwrap_or_else(|error| Came::NotAlone(format!("{error:#}")));
                    eprintln!("{}", line(&program.name, &came));
                    lock(&rows).insert(program.name, came);
                }
            });
        }
    });
    Ok(print(&rows.into_inner().unwrap_or_default(), &suite.modes))
}

/// By test: modes that cannot do it, and why.
type Exceptions = BTreeMap<String, BTreeMap<String, String>>;

fn exceptions(path: &Path) -> anyhow::Result<Exceptions> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let known: Exceptions = toml::from_str(&text).with_context(|| path.display().to_string())?;
    for mode in known.values().flat_map(BTreeMap::keys) {
        Mode::named(mode).with_context(|| path.display().to_string())?;
    }
    Ok(known)
}

fn program(test: Test, except: BTreeMap<String, String>) -> Program {
    let mut program = Program::of_command(test.name, test.command, SECONDS);
    // Their own guard against hanging is not to end them under emulation.
    let factor = ("TIMEOUTFACTOR".to_owned(), "10".to_owned());
    program.environment.extend([factor]);
    program.except = except;
    program.plain_seconds = Some(LONGEST_EMULATED);
    program
}

/// The test alone, and in every mode if it passes.
fn tried(suite: &Suite, folder: &Path, program: &Program) -> anyhow::Result<Came> {
    let place = Place {
        folder: suite.place.join(&program.name),
        linewise: suite.linewise.clone(),
        sources: suite.sources.clone(),
        binary: folder.to_owned(),
    };
    let began = Instant::now();
    let alone = place.alone(program, "alone")?;
    if alone.code != Some(0) {
        return Ok(Came::NotAlone(format!(
            "it ends with {}: {}",
            alone.end(),
            alone.last_words()
        )));
    }
    if began.elapsed() > LONGEST {
        return Ok(Came::NotAlone("it takes too long".to_owned()));
    }
    let again = place.alone(program, "again")?;
    if again.code != alone.code {
        return Ok(Came::NotAlone("it does not pass every time".to_owned()));
    }
    let steady = difference(&alone, &again).is_none();
    let mut compared = Vec::new();
    let mut different = false;
    for &mode in &suite.modes {
        let (verdict, tries) = in_mode(program, &place, mode, (&alone, steady))?;
        different |= matches!(verdict, Verdict::Different(_)) || tries > 1;
        compared.push((mode, verdict, tries));
    }
    if !different {
        fs::remove_dir_all(&place.folder)?;
    }
    Ok(Came::Compared(compared))
}

/// What becomes of the test in a mode, and in which try.
fn in_mode(
    program: &Program,
    place: &Place,
    mode: Mode,
    (alone, mut steady): (&Outcome, bool),
) -> anyhow::Result<(Verdict, usize)> {
    let mut tries = 1;
    loop {
        let mut verdict = compare(program, place, mode, alone, steady)?;
        if steady && mode == Mode::Exact && matches!(verdict, Verdict::Skipped(_)) {
            // What it says may be unsteady under emulation alone.
            verdict = compare(program, place, mode, alone, false)?;
        }
        if tries == TRIES || !matches!(verdict, Verdict::Different(_)) {
            return Ok((verdict, tries));
        }
        if let Verdict::Different(what) = &verdict {
            println!("once {} {}: {what}", program.name, mode.name());
        }
        for _ in 0..AGAIN {
            // It may be that two runs were the same by chance.
            steady = steady && difference(alone, &place.alone(program, "again")?).is_none();
        }
        tries += 1;
    }
}

fn line(name: &str, came: &Came) -> String {
    match came {
        Came::NotAlone(why) => format!("{name:<40} not alone: {why}"),
        Came::Compared(modes) => {
            let words = modes.iter().map(|(mode, verdict, tries)| {
                let word = match verdict {
                    Verdict::Same if *tries > 1 => "unsteady",
                    Verdict::Same => "same",
                    Verdict::Skipped(_) => "skipped",
                    Verdict::Different(_) => "DIFFERS",
                };
                format!(" {} {word}", mode.name())
            });
            format!("{name:<40}{}", words.collect::<String>())
        }
    }
}

/// Prints what differs and the sums. Whether nothing differs.
fn print(rows: &BTreeMap<String, Came>, modes: &[Mode]) -> bool {
    let mut failed = 0;
    let mut passed = 0;
    for (name, came) in rows {
        match came {
            Came::NotAlone(why) => println!("NOT ALONE {name}: {why}"),
            Came::Compared(compared) => {
                for (mode, verdict, _) in compared {
                    match verdict {
                        Verdict::Different(what) => {
                            println!("DIFFERS {name} {}: {what}", mode.name());
                        }
                        Verdict::Skipped(why) => {
                            println!("SKIP: conformance: {name} {}: {why}", mode.name());
                        }
                        Verdict::Same => {}
                    }
                }
            }
        }
    }
    let compared = || {
        rows.values().filter_map(|came| match came {
            Came::Compared(modes) => Some(modes),
            Came::NotAlone(_) => None,
        })
    };
    println!(
        "{} tests run, {} passed alone",
        rows.len(),
        compared().count()
    );
    for mode in modes {
        let of = |wanted: fn(&Verdict, usize) -> bool| {
            let found = compared()
                .flatten()
                .filter(|(of, verdict, tries)| of == mode && wanted(verdict, *tries));
            found.count()
        };
        let same = of(|verdict, _| *verdict == Verdict::Same);
        let unsteady = of(|verdict, tries| *verdict == Verdict::Same && tries > 1);
        let skipped = of(|verdict, _| matches!(verdict, Verdict::Skipped(_)));
        let different = of(|verdict, _| matches!(verdict, Verdict::Different(_)));
        println!(
            "{:<7} {same} the same ({unsteady} of them not at once), {skipped} skipped, {different} different",
            mode.name()
        );
        passed += same;
        failed += different;
    }
    println!("conformance: {passed} passed, {failed} failed");
    failed == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exceptions_of_the_tree_are_understood_and_have_reasons() -> anyhow::Result<()> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let known = exceptions(&here.join("../tests/conformance/suites.toml"))?;
        let reasons = known.values().flat_map(BTreeMap::values);
        assert!(reasons.clone().count() > 0 && reasons.clone().all(|reason| !reason.is_empty()));
        Ok(())
    }
}
