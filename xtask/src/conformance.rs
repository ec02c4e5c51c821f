//! `cargo xtask conformance`: are programs under linewise what they are without it?
//!
//! Each program of `tests/conformance/programs.toml` runs alone and in every mode; its standard output, its standard
//! error and its exit code must be the same, byte for byte. Exact runs are compared with what plain QEMU makes of the
//! program, where they differ from the program alone. Whatever goes wrong is kept in `target/conformance/NAME`.

mod built;
mod compared;
mod manifest;
mod mode;
mod modes;
mod process;
mod suites;
mod verdict;
mod workers;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, ensure};

use crate::answers::release_binary;
use crate::arguments::Arguments;
use compared::difference;
use manifest::Program;
use mode::Mode;
use modes::{Place, Suite};
use verdict::{Verdict, compare};
use workers::lock;

/// How many programs are under way at a time, unless told otherwise.
const JOBS: usize = 2;

/// What became of a program: in all modes at once, or in each.
struct Row {
    name: String,
    verdicts: Vec<(Mode, Verdict)>,
}

/// Runs all that is wanted and prints a table and the sum. `false` if something differs.
///
/// # Errors
/// If linewise or the list of programs is not there, or the arguments are not understood.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let core = arguments.switch("--core");
    let suites = arguments.switch("--suites");
    let only: Option<String> = arguments.value("--only")?;
    let mode: Option<String> = arguments.value("--mode")?;
    let linewise: Option<PathBuf> = arguments.value("--linewise")?;
    let jobs = arguments.count("--jobs", JOBS)?;
    arguments.finish()?;
    let modes: Vec<Mode> = match &mode {
        Some(name) => vec![Mode::named(name)?],
        None => Mode::ALL.to_vec(),
    };
    let linewise = match linewise {
        Some(path) => std::path::absolute(path).context("--linewise")?,
        None => release_binary(root)?,
    };
    let folder = root.join("tests/conformance");
    let suite = Suite {
        sources: folder,
        place: root.join("target/conformance"),
        linewise,
        modes,
    };
    let stopped = || built::build_file("stopped.c", &suite.sources, &suite.place.join("built"));
    if suites {
        stopped()?;
        return suites::run(&suite, only.as_deref(), jobs);
    }
    let programs: Vec<Program> = manifest::read(&suite.sources.join("programs.toml"))?
        .into_iter()
        .filter(|program| match &only {
            Some(only) => program.matches(only),
            None => program.core || !core,
        })
        .collect();
    ensure!(!programs.is_empty(), "there is no such program");
    stopped()?;
    let waiting = Mutex::new(VecDeque::from(programs));
    let rows = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = lock(&waiting).pop_front();
                    let Some(program) = next else { break };
                    let row = suite.row(&program);
                    eprintln!("{}", row.line());
                    lock(&rows).push(row);
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_default();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(print(&rows, &suite.modes))
}

impl Suite {
    /// The program in all modes; what keeps it from running at all holds for all of them.
    fn row(&self, program: &Program) -> Row {
        let verdicts = match self.verdicts(program) {
            Ok(verdicts) => verdicts,
            Err(error) => self.all(&Verdict::Different(format!("{error:#}"))),
        };
        Row {
            name: program.name.clone(),
            verdicts,
        }
    }

    fn all(&self, verdict: &Verdict) -> Vec<(Mode, Verdict)> {
        let of = |mode: &Mode| (*mode, verdict.clone());
        self.modes.iter().map(of).collect()
    }

    fn verdicts(&self, program: &Program) -> anyhow::Result<Vec<(Mode, Verdict)>> {
        if let Some(reason) = program.missing() {
            return Ok(self.all(&Verdict::Skipped(reason)));
        }
        let binary = built::build(program, &self.sources, &self.place.join("built"))?;
        let place = Place {
            folder: self.place.join(&program.name),
            linewise: self.linewise.clone(),
            sources: self.sources.clone(),
            binary,
        };
        let alone = place.alone(program, "alone")?;
        if let Some(reason) = alone.skipped() {
            return Ok(self.all(&Verdict::Skipped(reason)));
        }
        ensure!(
            alone.code == Some(program.code()),
            "without linewise it ended with {}, not with {}: {}",
            alone.end(),
            program.code(),
            alone.last_words()
        );
        let again = place.alone(program, "again")?;
        if let Some(difference) = difference(&alone, &again) {
            anyhow::bail!("two runs without linewise differ: {difference}");
        }
        self.modes
            .iter()
            .map(|mode| Ok((*mode, compare(program, &place, *mode, &alone, true)?)))
            .collect()
    }
}

impl Row {
    fn line(&self) -> String {
        let mut line = format!("{:<30}", self.name);
        for (mode, verdict) in &self.verdicts {
            let word = match verdict {
                Verdict::Same => "same",
                Verdict::Skipped(_) => "skipped",
                Verdict::Different(_) => "DIFFERS",
            };
            line += &format!(" {:>6} {word:<8}", mode.name());
        }
        line.trim_end().to_owned()
    }
}

/// Prints the table, what differs, what was skipped, and the sum. Whether nothing differs.
fn print(rows: &[Row], modes: &[Mode]) -> bool {
    let mut header = format!("{:<30}", "program");
    for mode in modes {
        header += &format!(" {:<8}", mode.name());
    }
    println!("{}", header.trim_end());
    let (mut passed, mut failed) = (0, 0);
    for row in rows {
        let mut line = format!("{:<30}", row.name);
        for (_, verdict) in &row.verdicts {
            let word = match verdict {
                Verdict::Same => {
                    passed += 1;
                    "same"
                }
                Verdict::Skipped(_) => "-",
                Verdict::Different(_) => {
                    failed += 1;
                    "DIFFERS"
                }
            };
            line += &format!(" {word:<8}");
        }
        println!("{}", line.trim_end());
    }
    for row in rows {
        for (mode, verdict) in &row.verdicts {
            if let Verdict::Different(what) = verdict {
                println!("DIFFERS {} {}: {what}", row.name, mode.name());
            }
        }
    }
    for row in rows {
        for (mode, verdict) in &row.verdicts {
            if let Verdict::Skipped(reason) = verdict {
                println!("SKIP: conformance: {} {}: {reason}", row.name, mode.name());
            }
        }
    }
    println!("conformance: {passed} passed, {failed} failed");
    failed == 0
}
