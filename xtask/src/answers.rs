//! `cargo xtask answers`: does linewise find what is wrong with every program of
//! `fixtures/programs/answers.json`, and nothing in the repaired twins and the controls?
//!
//! Each program is recorded and reported by the real binary; what it must say is derived from
//! answers.json and the markers in the sources (see `about` there).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::addressed::{Addressed, Samples};
use crate::arguments::Arguments;
use crate::round_trip::{Span, median};

/// A finding in a program without a fault may cost at most this share of its thread time.
const NOISE_SHARE: f64 = 0.02;
/// The share of a program's runs that must be right.
const BAR: f64 = 0.95;
/// The share of the samples waiting for memory that must know the address, by language.
const ADDRESS_BAR: f64 = 0.9;

#[derive(Deserialize)]
struct Fixtures {
    programs: Vec<Program>,
}

#[derive(Deserialize)]
struct Program {
    name: String,
    source: String,
    language: String,
    answer: Answer,
    bug: Option<Variant>,
    twin: Option<Variant>,
    control: Option<Variant>,
}

#[derive(Deserialize)]
struct Variant {
    binary: String,
}

#[derive(Clone, Deserialize)]
struct Answer {
    kind: String,
    object: Option<Object>,
    #[serde(default)]
    functions: Vec<String>,
    #[serde(default)]
    markers: Vec<String>,
    #[serde(default)]
    markers_of_different_threads: bool,
}

#[derive(Clone, Deserialize)]
struct Object {
    kind: String,
    name: String,
}

/// What the check reads of a report (docs/report-json.md).
#[derive(Deserialize)]
struct Report {
    run: Run,
    samples: Samples,
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct Run {
    round_trip_ns: Option<f64>,
}

#[derive(Deserialize)]
struct Finding {
    kind: String,
    cost: Cost,
    object: Object,
    accesses: Vec<Access>,
}

#[derive(Deserialize)]
struct Cost {
    share: f64,
}

#[derive(Deserialize)]
struct Access {
    tid: u32,
    function: String,
    file: String,
    line: usize,
    inlined_into: Vec<String>,
}

/// Where a marker stands.
#[derive(Debug, Default, PartialEq, Eq)]
struct Marked {
    lines: BTreeSet<usize>,
    /// The functions around these lines.
    functions: BTreeSet<String>,
}

/// What a report must say.
enum Expected {
    Nothing,
    Bug {
        answer: Answer,
        source: String,
        markers: Vec<Marked>,
    },
}

/// One binary, what is expected of it and what became of its runs.
struct Case {
    program: String,
    language: String,
    variant: &'static str,
    binary: PathBuf,
    expected: Expected,
    runs: Vec<Outcome>,
}

/// How a program is run.
struct How {
    linewise: PathBuf,
    seconds: usize,
    /// The collector's own choice without one.
    source: Option<String>,
    report: PathBuf,
}

/// What became of one run.
struct Outcome {
    round_trip_ns: Option<f64>,
    /// Of the dearest finding; 0 without one.
    cost_share: f64,
    addressed: Addressed,
    /// What was wrong, if anything.
    fault: Option<String>,
}

/// A line of the result.
#[derive(Serialize)]
struct Row {
    program: String,
    variant: &'static str,
    passed: bool,
    right: usize,
    runs: usize,
    cost_share_median: f64,
    /// Runs for each state of the machine.
    round_trips_ns: Option<Span>,
    failures: Vec<String>,
}

/// Runs all programs and prints the table. `false` if one of them is below the bar.
///
/// # Errors
/// If the programs or linewise are not there, or the arguments are not understood.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let runs = arguments.count("--runs", 20)?;
    let seconds = arguments.count("--seconds", 3)?;
    let source: Option<String> = arguments.value("--source")?;
    let only: Option<String> = arguments.value("--only")?;
    let json = arguments.switch("--json");
    arguments.finish()?;
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skip: answers: threads on one CPU fight over nothing; needs two");
        return Ok(true);
    }
    let linewise = release_binary(root)?;
    build_programs(root)?;
    let mut cases = cases(root, only.as_deref())?;
    let how = How {
        linewise,
        seconds,
        source,
        report: root.join("target/answers.json"),
    };
    for round in 1..=runs {
        for case in &mut cases {
            eprintln!("round {round} of {runs}: {} {}", case.program, case.variant);
            case.run_once(&how)?;
        }
    }
    if runs == 1 {
        // One run in a noisy moment is no verdict: the majority of three is.
        for case in cases.iter_mut().filter(|case| case.right() == 0) {
            eprintln!("again: {} {}", case.program, case.variant);
            case.run_once(&how)?;
            case.run_once(&how)?;
        }
    }
    let bar = if runs == 1 { 0.5 } else { BAR };
    let rows: Vec<Row> = cases.iter().map(|case| case.row(bar)).collect();
    let failed = rows.iter().filter(|row| !row.passed).count();
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print_table(&rows);
        println!("answers: {} passed, {failed} failed", rows.len() - failed);
    }
    if how.source.as_deref() == Some("exact") {
        // Every access has its address.
        return Ok(failed == 0);
    }
    let mut enough = true;
    for (language, addressed) in addressed_by_language(&cases) {
        // Go is shown; its runtime is not built for us. No sample at all is not enough either.
        let passed =
            language == "Go" || addressed.share().is_some_and(|share| share >= ADDRESS_BAR);
        enough &= passed;
        if !json {
            println!(
                "addresses, {language}: {:.1} % of {} samples that wait for memory{}",
                addressed.share().unwrap_or(0.0) * 100.0,
                addressed.all,
                if passed { "" } else { "  FAILED" }
            );
        }
    }
    Ok(failed == 0 && enough)
}

/// What the samples of all programs of a language know.
fn addressed_by_language(cases: &[Case]) -> BTreeMap<&str, Addressed> {
    let mut sums: BTreeMap<&str, Addressed> = BTreeMap::new();
    for case in cases {
        for run in &case.runs {
            *sums.entry(&case.language).or_default() += run.addressed;
        }
    }
    sums
}

/// The linewise that is measured.
///
/// # Errors
/// If it was not built.
pub(crate) fn release_binary(root: &Path) -> anyhow::Result<PathBuf> {
    let linewise = root.join("target/release/linewise");
    ensure!(
        linewise.exists(),
        "{} is missing: run `cargo build --release` first",
        linewise.display()
    );
    Ok(linewise)
}

/// Builds the programs with known answers.
///
/// # Errors
/// If make or a compiler fails.
pub(crate) fn build_programs(root: &Path) -> anyhow::Result<()> {
    let status = Command::new("make")
        .args(["--no-print-directory", "-C"])
        .arg(root.join("fixtures/programs"))
        .stdout(std::io::stderr())
        .status()
        .context("running make")?;
    ensure!(status.success(), "make -C fixtures/programs failed");
    Ok(())
}

fn cases(root: &Path, only: Option<&str>) -> anyhow::Result<Vec<Case>> {
    let folder = root.join("fixtures/programs");
    let path = folder.join("answers.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let fixtures: Fixtures =
        serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let mut cases = Vec::new();
    for program in fixtures.programs {
        if only.is_some_and(|only| only != program.name) {
            continue;
        }
        let variants = [
            ("bug", &program.bug),
            ("twin", &program.twin),
            ("control", &program.control),
        ];
        for (variant, built) in variants {
            let Some(built) = built else { continue };
            let binary = root.join("fixtures/build").join(&built.binary);
            if !binary.exists() {
                // The Makefile leaves out Go where it is not installed; the rest must be there.
                ensure!(
                    program.language == "Go",
                    "{} was not built",
                    binary.display()
                );
                println!("skip: {}: built without Go", built.binary);
                continue;
            }
            let expected = if variant == "bug" {
                Expected::bug(&folder, &program)?
            } else {
                Expected::Nothing
            };
            cases.push(Case {
                program: program.name.clone(),
                language: program.language.clone(),
                variant,
                binary,
                expected,
                runs: Vec::new(),
            });
        }
    }
    if cases.is_empty() {
        bail!("no program to run; answers.json names them");
    }
    Ok(cases)
}

impl Case {
    fn run_once(&mut self, how: &How) -> anyhow::Result<()> {
        let report = &how.report;
        // A report left over from the run before must not be judged.
        if report.exists() {
            fs::remove_file(report).with_context(|| report.display().to_string())?;
        }
        let mut command = Command::new(&how.linewise);
        command.args(["run", "--quiet", "--json"]);
        if let Some(source) = &how.source {
            command.args(["--source", source]);
        }
        let output = command
            .arg("--report-to")
            .arg(report)
            .arg("--")
            .arg(&self.binary)
            .arg(how.seconds.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .with_context(|| format!("running {}", how.linewise.display()))?;
        let read = fs::read(report)
            .ok()
            .map(|text| serde_json::from_slice::<Report>(&text));
        self.runs.push(match read {
            Some(Ok(report)) if output.status.success() => Outcome {
                round_trip_ns: report.run.round_trip_ns,
                cost_share: report
                    .findings
                    .iter()
                    .map(|f| f.cost.share)
                    .fold(0.0, f64::max),
                addressed: Addressed::from(&report.samples),
                fault: self.expected.fault(&report),
            },
            read => {
                let error = read.and_then(Result::err).map(|error| error.to_string());
                let said = String::from_utf8_lossy(&output.stderr);
                let why = error.unwrap_or_else(|| said.trim().to_owned());
                Outcome {
                    round_trip_ns: None,
                    cost_share: 0.0,
                    addressed: Addressed::default(),
                    fault: Some(format!("{}: {why}", output.status)),
                }
            }
        });
        Ok(())
    }

    fn right(&self) -> usize {
        self.runs.iter().filter(|run| run.fault.is_none()).count()
    }

    fn row(&self, bar: f64) -> Row {
        let trips: Vec<f64> = self
            .runs
            .iter()
            .filter_map(|run| run.round_trip_ns)
            .collect();
        let shares: Vec<f64> = self.runs.iter().map(|run| run.cost_share).collect();
        Row {
            program: self.program.clone(),
            variant: self.variant,
            passed: self.right() as f64 >= bar * self.runs.len() as f64,
            right: self.right(),
            runs: self.runs.len(),
            cost_share_median: median(&shares).unwrap_or(0.0),
            round_trips_ns: Span::of(&trips),
            failures: self
                .runs
                .iter()
                .filter_map(|run| run.fault.clone())
                .collect(),
        }
    }
}

impl Expected {
    fn bug(folder: &Path, program: &Program) -> anyhow::Result<Self> {
        let path = folder.join(&program.source);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let answer = program.answer.clone();
        let markers: Vec<Marked> = answer
            .markers
            .iter()
            .map(|marker| marked(&text, marker, &answer.functions))
            .collect();
        ensure!(
            !markers.is_empty() && markers.iter().all(|marked| !marked.lines.is_empty()),
            "{}: a marker of answers.json is missing",
            path.display()
        );
        Ok(Self::Bug {
            answer,
            source: program.source.clone(),
            markers,
        })
    }

    /// What is wrong with a report; `None` if it is right.
    fn fault(&self, report: &Report) -> Option<String> {
        let (answer, source, markers) = match self {
            Self::Nothing => {
                let dearest = report
                    .findings
                    .iter()
                    .max_by(|a, b| a.cost.share.total_cmp(&b.cost.share))?;
                return (dearest.cost.share > NOISE_SHARE)
                    .then(|| format!("should be clean, found {}", dearest.summary()));
            }
            Self::Bug {
                answer,
                source,
                markers,
            } => (answer, source, markers),
        };
        let Some(first) = report.findings.first() else {
            return Some("found nothing".to_owned());
        };
        let wrong = |what: &str| Some(format!("wrong {what}: {}", first.summary()));
        if !answer.kind.split(',').any(|kind| kind == first.kind) {
            return wrong("kind");
        }
        if answer
            .object
            .as_ref()
            .is_some_and(|object| !object.is(&first.object))
        {
            return wrong("object");
        }
        // The threads seen at each marker.
        let tids: Vec<BTreeSet<u32>> = markers
            .iter()
            .map(|marked| {
                let at = |access: &&Access| access.is_at(marked, source, &answer.functions);
                first
                    .accesses
                    .iter()
                    .filter(at)
                    .map(|access| access.tid)
                    .collect()
            })
            .collect();
        let all: BTreeSet<u32> = tids.iter().flatten().copied().collect();
        let places = if answer.markers_of_different_threads {
            tids.iter().all(|tids| !tids.is_empty())
        } else {
            true
        };
        if places && all.len() >= 2 {
            None
        } else {
            wrong("places")
        }
    }
}

impl Object {
    /// Whether `found` is this object: by name or its last path component, on the heap by kind.
    fn is(&self, found: &Self) -> bool {
        self.kind == found.kind
            && (self.kind == "heap"
                || self.name == found.name
                || found.name.rsplit("::").next() == Some(&self.name))
    }
}

impl Access {
    /// Whether this access is at a marked line, or in a library inlined into a function around one
    /// (a report does not say the lines of the outer frames).
    fn is_at(&self, marked: &Marked, source: &str, functions: &[String]) -> bool {
        if !functions
            .iter()
            .any(|function| function == bare_name(&self.function).as_str())
        {
            return false;
        }
        if Path::new(&self.file).ends_with(source) {
            return marked.lines.contains(&self.line);
        }
        self.inlined_into
            .iter()
            .any(|outer| marked.functions.contains(&bare_name(outer)))
    }
}

impl Finding {
    fn summary(&self) -> String {
        let mut text = format!(
            "{} of {} `{}`, cost {:.1} %",
            self.kind,
            self.object.kind,
            self.object.name,
            self.cost.share * 100.0
        );
        for access in self.accesses.iter().take(6) {
            let file = access.file.rsplit('/').next().unwrap_or_default();
            let (tid, function, line) = (access.tid, &access.function, access.line);
            text += &format!("; {tid} {function} {file}:{line}");
        }
        text
    }
}

/// The last component of a function's path, without generics and parameters.
fn bare_name(function: &str) -> String {
    let mut bare = String::new();
    let mut depth = 0_usize;
    for c in function.chars() {
        match c {
            // `operator<` and its kin open no generics.
            '<' if !bare
                .trim_end_matches(['<', '>', '=', '-'])
                .ends_with("operator") =>
            {
                depth += 1
            }
            '>' if depth > 0 => depth -= 1,
            '(' if depth == 0 => break,
            _ if depth == 0 => bare.push(c),
            _ => {}
        }
    }
    let bare = bare.trim_end_matches("::");
    bare.rsplit("::").next().unwrap_or(bare).to_owned()
}

/// Where `marker` stands in a source, and which of `functions` are around it: for each marked line
/// the one that was last defined above.
fn marked(text: &str, marker: &str, functions: &[String]) -> Marked {
    let comment = format!("// {marker}");
    let mut found = Marked::default();
    let mut around: Option<&String> = None;
    for (line, code) in text.lines().enumerate() {
        if code.ends_with(&comment) {
            found.lines.insert(line + 1);
            found.functions.extend(around.cloned());
        } else {
            around = functions
                .iter()
                .filter(|function| opens(code, function))
                .max_by_key(|function| function.len())
                .or(around);
        }
    }
    found
}

/// Whether a line of code begins the definition of `function`: its name, an opening parenthesis, and
/// neither a statement's end nor a call on something.
fn opens(code: &str, function: &str) -> bool {
    let name = function.rsplit('.').next().unwrap_or(function);
    let code = code.trim_end();
    !code.ends_with(';')
        && code.match_indices(&format!("{name}(")).any(|(at, _)| {
            !code[..at]
                .ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '>' | '('))
        })
}

fn print_table(rows: &[Row]) {
    println!(
        "{:<22} {:<8} {:>8} {:>10}  round trip/ns",
        "program", "variant", "right", "cost"
    );
    for row in rows {
        println!(
            "{:<22} {:<8} {:>8} {:>8.1} %  {}{}",
            row.program,
            row.variant,
            format!("{}/{}", row.right, row.runs),
            row.cost_share_median * 100.0,
            (row.round_trips_ns).map_or_else(|| "unknown".to_owned(), |span| span.to_string()),
            if row.passed { "" } else { "  FAILED" }
        );
    }
    for row in rows {
        for failure in &row.failures {
            println!("{} {}: {failure}", row.program, row.variant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
int push(int byte)
{
    int tail = tail_.load(0);
    tail_++; // HOT-A
}

int pop()
{
    head_++; // HOT-B
}
";

    fn expected(different_threads: bool) -> Expected {
        let functions: Vec<String> = ["push", "pop", "load", "operator++"]
            .map(str::to_owned)
            .into();
        let markers = ["HOT-A", "HOT-B"].map(|marker| marked(SOURCE, marker, &functions));
        Expected::Bug {
            answer: Answer {
                kind: "false-sharing".to_owned(),
                object: Some(Object {
                    kind: "static".to_owned(),
                    name: "rings".to_owned(),
                }),
                functions,
                markers: Vec::new(),
                markers_of_different_threads: different_threads,
            },
            source: "ring.cpp".to_owned(),
            markers: markers.into(),
        }
    }

    /// A report with one finding whose accesses are (thread, function, line).
    fn report(kind: &str, object: &str, accesses: &[(u32, &str, usize)]) -> Report {
        Report {
            samples: Samples::default(),
            run: Run {
                round_trip_ns: None,
            },
            findings: vec![Finding {
                kind: kind.to_owned(),
                cost: Cost { share: 0.5 },
                object: Object {
                    kind: "static".to_owned(),
                    name: object.to_owned(),
                },
                accesses: accesses
                    .iter()
                    .map(|&(tid, function, line)| Access {
                        tid,
                        function: function.to_owned(),
                        file: "/src/ring.cpp".to_owned(),
                        line,
                        inlined_into: Vec::new(),
                    })
                    .collect(),
            }],
        }
    }

    const BOTH: &[(u32, &str, usize)] = &[(1, "Ring::push", 4), (2, "Ring::pop", 9)];

    #[test]
    fn a_marker_knows_the_function_around_it() {
        let functions = ["push", "load"].map(str::to_owned);
        let found = marked(SOURCE, "HOT-A", &functions);
        assert_eq!(found.lines, BTreeSet::from([4]));
        assert_eq!(found.functions, BTreeSet::from(["push".to_owned()]));
    }

    #[test]
    fn both_places_in_two_threads_are_right() {
        let found = report("false-sharing", "audio::rings", BOTH);
        assert_eq!(expected(true).fault(&found), None);
    }

    #[test]
    fn a_wrong_kind_object_or_place_is_a_fault() {
        for found in [
            report("true-sharing", "rings", BOTH),
            report("false-sharing", "springs", BOTH),
            report("false-sharing", "rings", &[(1, "push", 4), (2, "push", 4)]),
            report("false-sharing", "rings", &[(1, "push", 4), (1, "pop", 9)]),
            report("false-sharing", "rings", &[(1, "push", 4), (2, "pop", 8)]),
            report("false-sharing", "rings", &[(1, "push", 4), (2, "main", 9)]),
        ] {
            assert!(expected(true).fault(&found).is_some());
        }
    }

    #[test]
    fn two_threads_at_one_marker_are_enough_where_all_run_the_same_lines() {
        let found = report("false-sharing", "rings", &[(1, "push", 4), (2, "push", 4)]);
        assert_eq!(expected(false).fault(&found), None);
    }

    #[test]
    fn an_access_in_a_library_belongs_to_the_function_that_it_is_inlined_into() {
        let mut found = report("false-sharing", "rings", BOTH);
        let library = &mut found.findings[0].accesses[0];
        library.function = "std::__atomic_base<unsigned long>::operator++(int)".to_owned();
        library.file = "/usr/include/c++/12/bits/atomic_base.h".to_owned();
        assert!(expected(true).fault(&found).is_some());
        found.findings[0].accesses[0].inlined_into = vec!["Ring::push".to_owned()];
        assert_eq!(expected(true).fault(&found), None);
    }

    #[test]
    fn a_dear_finding_in_a_clean_program_is_a_fault() {
        let mut found = report("true-sharing", "rings", &[]);
        assert!(Expected::Nothing.fault(&found).is_some());
        found.findings[0].cost.share = NOISE_SHARE;
        assert_eq!(Expected::Nothing.fault(&found), None);
    }

    #[test]
    fn generics_and_parameters_are_no_part_of_a_name() {
        for (function, bare) in [
            ("core::sync::atomic::atomic_add::<u64>", "atomic_add"),
            ("<ring::Producer as Push<u8>>::push", "push"),
            ("Reference::~Reference()", "~Reference"),
            ("std::atomic<int>::operator<(int)", "operator<"),
            ("main.worker", "main.worker"),
        ] {
            assert_eq!(bare_name(function), bare);
        }
    }
}
