//! `cargo xtask advice`: is what findings advise right? Programs with known causes are recorded; of every finding that
//! prints source, it is pasted into the program, which must compile, end well, be no slower, and lose the transfers
//! that the finding calls false. What the others say is held against the source and against the report's own rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::paste::{Paste, Sources};
use crate::recorded::{record, report};
use crate::round_trip::median;
use crate::slowdown::children_cpu_seconds;
use crate::twins::{Interval, calibrate};
use crate::{repairs, structures};

/// Findings with an advice that there must be, all in all.
const FEWEST: usize = 30;
/// What a paste may cost at most, as a share of the time before.
const SLOWER: f64 = 0.1;
/// From this low end of a promised gain on a paste must bring a third of it: on a Rocket Lake `typedef.c` saves 12 % for 26.
const PROMISED: f64 = 0.2;
/// Of the false transfers of an object a paste may leave so many.
const LEFT: f64 = 0.2;
/// Of a measurement that fails so many are made: others may use the machine.
const TRIES: usize = 3;

/// The programs with known answers, and those that are there for their types.
const ANSWERS: [&str; 10] = [
    "counters.c",
    "lock_beside_data.c",
    "messages.c",
    "refcount.cpp",
    "ring.cpp",
    "straddle.cpp",
    "demo/requests.cpp",
    "counters.rs",
    "ring.rs",
    "counters_go/main.go",
];
const TYPES: [&str; 10] = [
    "typedef.c",
    "nested.c",
    "bits.c",
    "block.c",
    "filled.c",
    "shop.cpp",
    "fields.rs",
    "generic.rs",
    "laid_out.rs",
    "embedded_go/main.go",
];
/// What `--quick` takes: one of each sort of paste, and of those without.
const QUICK: [&str; 10] = [
    "lock_beside.c",
    "flag.c",
    "counter.c",
    "typedef.c",
    "block.c",
    "filled.c",
    "shop.cpp",
    "generic.rs",
    "fields.rs",
    "embedded_go/main.go",
];

/// A program by its source, and how much it does.
struct Program {
    source: PathBuf,
    /// For so many seconds, or of a fixed amount of work.
    seconds: Option<f64>,
}

/// What is read of a report (docs/report-json.md).
#[derive(Deserialize)]
struct Report {
    findings: Vec<Advised>,
}

#[derive(Deserialize)]
struct Advised {
    kind: String,
    transfers: f64,
    false_share: f64,
    expected_gain: Interval,
    change: String,
    change_source: String,
    object: Subject,
    lines: Vec<Line>,
    accesses: Vec<Touch>,
}

#[derive(Deserialize)]
struct Subject {
    kind: String,
    name: String,
    type_name: String,
    #[serde(rename = "type")]
    accessed_type: String,
}

#[derive(Deserialize)]
struct Line {
    address: u64,
    fields: Vec<LineField>,
}

#[derive(Deserialize)]
struct LineField {
    offset: u32,
    size: u32,
    path: String,
}

#[derive(Deserialize)]
struct Touch {
    tid: u32,
    op: String,
    offset: u32,
    field: String,
    function: String,
    inlined_into: Vec<String>,
    line_address: u64,
}

/// What became of one advice.
#[derive(Serialize)]
struct Row {
    program: String,
    finding: String,
    sort: &'static str,
    /// What was pasted.
    source: String,
    compiles: Option<bool>,
    /// Of each pair, the time afterwards as a share of that before.
    times: Vec<f64>,
    promised: f64,
    /// False transfers of the object before and afterwards.
    transfers: Option<(f64, f64)>,
    faults: Vec<String>,
}

/// How all programs are run.
struct How {
    root: PathBuf,
    linewise: PathBuf,
    pairs: usize,
    seconds: f64,
}

/// A program that was compiled, with what it is given.
struct Built {
    binary: PathBuf,
    words: Vec<String>,
}

/// Checks the advice for all programs and prints the table. `false` if one is wrong.
///
/// # Errors
/// If linewise is not there, a program as it is does not compile or run, or the arguments are not understood.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let how = How {
        root: root.to_owned(),
        linewise: release_binary(root)?,
        pairs: arguments.count("--pairs", 5)?,
        seconds: arguments.value("--seconds")?.unwrap_or(0.8),
    };
    let only: Option<String> = arguments.value("--only")?;
    let quick = arguments.switch("--quick");
    let json = arguments.switch("--json");
    arguments.finish()?;
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skip: advice: threads on one CPU fight over nothing; needs two");
        return Ok(true);
    }
    let is_wanted = |program: &Program| {
        let chosen = |name: &str| program.source.ends_with(name);
        only.as_ref().is_none_or(|only| chosen(only))
            && (!quick || QUICK.iter().any(|it| chosen(it)))
    };
    let mut rows = Vec::new();
    for program in programs(root).iter().filter(|it| is_wanted(it)) {
        if !has_compiler(&program.source) {
            println!(
                "skip: {}: its compiler is missing",
                program.source.display()
            );
            continue;
        }
        let found = check(&how, program)?;
        if !json {
            found.iter().for_each(print);
        }
        rows.extend(found);
    }
    let pasted = rows.iter().filter(|row| row.compiles.is_some()).count();
    let faulty = rows.iter().filter(|row| !row.faults.is_empty()).count();
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        println!(
            "{} findings with an advice, {pasted} pasted, {faulty} wrong; bars: {FEWEST} findings, 0 wrong, at most {:.0} % slower, {:.0} % of the false transfers left",
            rows.len(),
            SLOWER * 100.0,
            LEFT * 100.0
        );
    }
    let enough = quick || only.is_some() || rows.len() >= FEWEST;
    Ok(enough && faulty == 0)
}

fn programs(root: &Path) -> Vec<Program> {
    let folder = root.join("fixtures/programs");
    let fixed = |folder: PathBuf| {
        move |name: &str| Program {
            source: folder.join(name),
            seconds: None,
        }
    };
    let in_c = |name: &str| format!("{name}.c");
    let of_repairs = repairs::PROGRAMS.map(|it| in_c(it.0));
    let of_structures = structures::PROGRAMS.map(|it| in_c(it.0));
    let timed = ANSWERS.iter().map(|name| Program {
        source: folder.join(name),
        seconds: Some(1.0),
    });
    let mut all: Vec<Program> = timed.collect();
    all.extend(TYPES.map(fixed(folder.join("advice"))));
    all.extend(
        of_repairs
            .iter()
            .map(|it| fixed(folder.join("repairs"))(it)),
    );
    all.extend(
        of_structures
            .iter()
            .map(|it| fixed(folder.join("structures"))(it)),
    );
    all
}

/// The compiler of a source file and what it is given: the flags of the programs' own Makefile.
fn compiler(source: &Path) -> &'static [&'static str] {
    match source.extension().and_then(|it| it.to_str()) {
        // Through memory at every step.
        Some("c") if source.ends_with("members.c") => &["cc", "-O0", "-g", "-pthread"],
        Some("c") => &["cc", "-O2", "-g", "-pthread"],
        Some("cpp") => &["c++", "-std=c++17", "-O2", "-g", "-pthread"],
        Some("rs") => &["rustc", "--edition", "2024", "-C", "opt-level=2", "-g"],
        _ => &["go", "build"],
    }
}

fn has_compiler(source: &Path) -> bool {
    let word = match compiler(source) {
        ["go", ..] => "version",
        _ => "--version",
    };
    let mut command = Command::new(compiler(source)[0]);
    let status = command.arg(word).stdout(Stdio::null()).status();
    status.is_ok_and(|it| it.success())
}

/// The files beside a source that may belong to it.
fn sources(source: &Path) -> anyhow::Result<Sources> {
    let folder = source.parent().context("a folder")?;
    let mut sources = Sources::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        let extension = path.extension().and_then(|it| it.to_str());
        let is_own = path == source
            || matches!(extension, Some("h" | "mod" | "go"))
            || matches!(name.to_str(), Some("common.rs" | "fixed_work.rs"));
        if is_own && path.is_file() {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            sources.insert(name, text);
        }
    }
    Ok(sources)
}

impl How {
    /// Writes the sources into a folder and compiles them there; what the compiler said, if it does not take them.
    fn build(
        &self,
        program: &Program,
        sources: &Sources,
        form: &str,
    ) -> anyhow::Result<Result<PathBuf, String>> {
        let name = self.name(program).replace(['/', '.'], "_");
        let folder = self.root.join("target/advice").join(&name).join(form);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        for (file, text) in sources {
            fs::write(folder.join(file), text).with_context(|| file.display().to_string())?;
        }
        let binary = folder.join("program");
        let words = compiler(&program.source);
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .arg("-o")
            .arg(&binary)
            .current_dir(&folder);
        if words[0] != "go" {
            command.arg(program.source.file_name().context("a file")?);
        }
        if words[0].starts_with('c') {
            // What the sources include from beside their own folder.
            command
                .arg("-I")
                .arg(program.source.parent().context("a folder")?);
        }
        let output = command.output().with_context(|| words[0].to_owned())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(output.status.success().then_some(binary).ok_or(said))
    }

    fn name(&self, program: &Program) -> String {
        let folder = self.root.join("fixtures/programs");
        let name = program
            .source
            .strip_prefix(folder)
            .unwrap_or(&program.source);
        name.display().to_string()
    }

    /// CPU time of a run by what it did, s.
    fn time(&self, built: &Built) -> anyhow::Result<f64> {
        let before = children_cpu_seconds()?;
        let output = Command::new(&built.binary)
            .args(&built.words)
            .output()
            .with_context(|| built.binary.display().to_string())?;
        let took = children_cpu_seconds()? - before;
        ensure!(output.status.success(), "it ended with {}", output.status);
        let said = String::from_utf8_lossy(&output.stdout);
        let done = said.split_once("iterations=").and_then(|(_, rest)| {
            let count = rest.split_whitespace().next()?;
            count.parse::<f64>().ok()
        });
        Ok(took / done.unwrap_or(1.0))
    }

    fn recorded(&self, built: &Built) -> anyhow::Result<Report> {
        let recording = built.binary.with_extension("linewise");
        let words: Vec<&str> = built.words.iter().map(String::as_str).collect();
        record(
            &self.linewise,
            &recording,
            &[],
            &built.binary,
            &words,
            Stdio::null(),
        )?;
        let found = report(&self.linewise, &recording);
        fs::remove_dir_all(&recording).with_context(|| recording.display().to_string())?;
        found
    }
}

fn check(how: &How, program: &Program) -> anyhow::Result<Vec<Row>> {
    let name = how.name(program);
    let original = sources(&program.source)?;
    let binary = how
        .build(program, &original, "before")?
        .map_err(|said| anyhow::anyhow!("{name}: {said}"))?;
    let words = match program.seconds {
        Some(seconds) => vec![seconds.to_string()],
        None => {
            let rounds = calibrate(&binary, 2, how.seconds)?;
            vec!["2".to_owned(), rounds.to_string()]
        }
    };
    let before = Built { binary, words };
    let mut rows = Vec::new();
    for (number, finding) in how.recorded(&before)?.findings.iter().enumerate() {
        if finding.change.is_empty() {
            continue;
        }
        let mut row = Row {
            program: name.clone(),
            finding: format!("{} {}", finding.kind, finding.object.name),
            sort: sort(finding),
            source: finding.change_source.clone(),
            compiles: None,
            times: Vec::new(),
            promised: finding.expected_gain.low,
            transfers: None,
            faults: faults(finding, &original),
        };
        let paste = paste(finding);
        if !paste.source.is_empty() {
            let mut changed = original.clone();
            let applied = match sort(finding) {
                ALLOCATE => Ok(()),
                _ => paste.apply(&mut changed),
            };
            match applied {
                Ok(()) => {
                    aligned_allocation(finding, &mut changed);
                    let form = format!("after{number}");
                    match how.build(program, &changed, &form)? {
                        Ok(binary) => {
                            row.compiles = Some(true);
                            let words = before.words.clone();
                            measure(how, &before, &Built { binary, words }, finding, &mut row)?;
                        }
                        Err(said) => {
                            row.compiles = Some(false);
                            let errors = said.lines().filter(|it| it.contains("error"));
                            row.faults.extend(errors.take(3).map(str::to_owned));
                            row.faults.push("does not compile".to_owned());
                        }
                    }
                }
                Err(error) => row.faults.push(format!("cannot be pasted: {error:#}")),
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

fn paste(finding: &Advised) -> Paste<'_> {
    let object = &finding.object;
    // What is aligned is the element of the variable, of which the accesses may name only a part.
    let is_of_elements = finding.change.contains("element of");
    let known = !object.type_name.is_empty() && !object.type_name.contains("(anonymous");
    Paste {
        source: &finding.change_source,
        type_name: match is_of_elements && known && !finding.change_source.starts_with("alignas") {
            true => &object.type_name,
            false => &object.accessed_type,
        },
        variable: object.name.rsplit([':', '.']).next().unwrap_or_default(),
    }
}

/// What an advice says besides, where it does.
fn aligned_allocation(finding: &Advised, sources: &mut Sources) {
    const ALIGNED: &str = "#include <stdlib.h>\n#include <string.h>\nstatic inline void *aligned(size_t n) {\n    void *p = aligned_alloc(128, (n + 127) / 128 * 128);\n    return p ? memset(p, 0, n) : p;\n}\n#define malloc(n) aligned(n)\n#define calloc(n, m) aligned((n) * (m))\n";
    if finding.change.contains("`malloc`") {
        for text in sources.values_mut().filter(|it| it.contains("alloc(")) {
            let behind = text
                .rfind("#include")
                .map_or(0, |at| at + text[at..].find('\n').unwrap_or(0) + 1);
            text.insert_str(behind, ALIGNED);
        }
    }
}

/// What the pasted program takes and transfers beside the other.
fn measure(
    how: &How,
    before: &Built,
    after: &Built,
    finding: &Advised,
    row: &mut Row,
) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let named = |it: &&Advised| {
        (&it.object.kind, &it.object.name) == (&finding.object.kind, &finding.object.name)
    };
    let was = finding.transfers * finding.false_share;
    let mut promised = finding.expected_gain.low;
    for attempt in 0..TRIES {
        if attempt > 0 {
            // What a transfer takes changes from minute to minute: the promise is to be of the time in which it is tried.
            let again = how.recorded(before)?.findings;
            let again = again.iter().find(named);
            promised = promised.min(again.map_or(0.0, |it| it.expected_gain.low));
        }
        for _ in 0..how.pairs {
            let took = how.time(before)?;
            match how.time(after) {
                Ok(now) => row.times.push(now / took),
                Err(error) => {
                    row.faults.push(format!("{error:#}"));
                    return Ok(());
                }
            }
        }
        let left: f64 = (how.recorded(after)?.findings.iter().filter(named))
            .map(|it| it.transfers * it.false_share)
            .fold(0.0, |sum, it| sum + it);
        row.transfers = Some((was, left));
        wrong.clear();
        let time = median(&row.times).unwrap_or(1.0);
        if time > 1.0 + SLOWER {
            wrong.push(format!("{:.0} % slower", (time - 1.0) * 100.0));
        }
        if promised > PROMISED && 1.0 - time < promised / 3.0 {
            wrong.push(format!(
                "saves {:.0} % instead of {:.0}",
                (1.0 - time) * 100.0,
                promised * 100.0
            ));
        }
        if left > LEFT * was {
            wrong.push(format!(
                "{:.0} % of the false transfers are left",
                left / was * 100.0
            ));
        }
        if wrong.is_empty() {
            break;
        }
    }
    row.faults.extend(wrong);
    Ok(())
}

/// What is pasted is where the block is allocated.
const ALLOCATE: &str = "allocate aligned";
/// Functions that allocate, of which an advice speaks.
const ALLOCATORS: [&str; 4] = ["malloc", "calloc", "aligned_alloc", "new"];

/// The sorts of advice, by how they begin.
fn sort(finding: &Advised) -> &'static str {
    let begins = |words: &str| finding.change.starts_with(words);
    match &*finding.change {
        it if it.contains("written by one thread") => "read less often",
        _ if begins("Move ") => "move a member",
        _ if begins("Give each ") => "align elements",
        _ if begins("Allocate the block") => ALLOCATE,
        _ if begins("Let each thread use a part") || begins("Let each thread's part") => {
            "part an array"
        }
        _ if begins("Keep what each thread writes") => "arrays by thread",
        _ if begins("Threads fight over a lock") => "split a lock",
        _ if begins("Threads really share") => "share less",
        _ if begins("Give the parts") || begins("Different threads") => "align parts",
        _ => "unknown",
    }
}

/// What is named in an advice.
fn named(change: &str) -> Vec<&str> {
    change.split('`').skip(1).step_by(2).collect()
}

/// A path without which element it goes through.
fn bare(path: &str) -> String {
    let parts = path
        .split('[')
        .map(|part| part.split_once(']').map_or(part, |(_, rest)| rest));
    parts.collect()
}

/// What of an advice does not agree with the source and the rows of its finding.
fn faults(finding: &Advised, sources: &Sources) -> Vec<String> {
    let mut faults = Vec::new();
    let change = finding.change.as_str();
    let names: Vec<&str> = named(change)
        .into_iter()
        .filter(|it| !ALLOCATORS.contains(it))
        .collect();
    for name in &names {
        let is_part = |part: &&str| part.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let plain = bare(name);
        let mut parts = plain.split(['.', ':', ' ', '(', ')']).filter(is_part);
        let holds =
            |part: &str| part == "anonymous" || sources.values().any(|text| text.contains(part));
        // A type of a library is not in the sources, nor are built-in ones' words all.
        let is_type = *name == finding.object.accessed_type;
        if !is_type && !parts.all(holds) {
            faults.push(format!("`{name}` is not in the source"));
        }
    }
    if change.contains("`malloc`") && !["heap", "mapping"].contains(&finding.object.kind.as_str()) {
        faults.push(format!("speaks of `malloc` of a {}", finding.object.kind));
    }
    match (sort(finding), names.as_slice()) {
        ("unknown", _) => faults.push("an advice of no known sort".to_owned()),
        ("move a member", [second, first, ..]) => faults.extend(moved(finding, first, second)),
        ("align elements" | "part an array" | "align parts" | ALLOCATE, _) => {
            faults.extend(apart(finding))
        }
        ("read less often", _) => faults.extend(one_writer(finding, &names)),
        ("split a lock", _) => {
            let says = |it: &String| {
                ["lock", "mutex", "futex", "spin"]
                    .iter()
                    .any(|w| it.to_lowercase().contains(w))
            };
            let by = |it: &Touch| {
                says(&it.field) || says(&it.function) || it.inlined_into.iter().any(says)
            };
            if !finding.accesses.iter().any(by) {
                faults.push("no access is a lock's".to_owned());
            }
        }
        _ => {}
    }
    if finding.kind == "true-sharing" && !finding.change_source.is_empty() {
        faults.push("pads what is shared truly".to_owned());
    }
    faults
}

/// What two threads touch on one line, one of them writing, where `is_pair` holds of their accesses.
fn in_the_way(finding: &Advised, is_pair: impl Fn(&Touch, &Touch) -> bool) -> bool {
    let touches = &finding.accesses;
    touches.iter().any(|a| {
        touches.iter().any(|b| {
            let writes = a.op != "load" || b.op != "load";
            a.tid != b.tid && a.line_address == b.line_address && writes && is_pair(a, b)
        })
    })
}

/// The path of what an access touches, by the fields of its line.
fn path(finding: &Advised, touch: &Touch) -> String {
    let line = finding
        .lines
        .iter()
        .find(|it| it.address == touch.line_address);
    let mut fields = line.into_iter().flat_map(|it| &it.fields);
    let found = fields.find(|it| touch.offset.wrapping_sub(it.offset) < it.size);
    found.map_or_else(|| touch.field.clone(), |it| it.path.clone())
}

fn moved(finding: &Advised, first: &str, second: &str) -> Option<String> {
    let (first, second) = (bare(first), bare(second));
    let of = |touch: &Touch, name: &str| {
        bare(&path(finding, touch)) == name || bare(&touch.field) == name
    };
    let is_pair = |a: &Touch, b: &Touch| of(a, &first) && of(b, &second);
    if first == second {
        return Some("moves a member away from itself".to_owned());
    }
    if !in_the_way(finding, is_pair) {
        return Some(format!(
            "no two threads use `{first}` and `{second}` on one line"
        ));
    }
    let element = |touch: &Touch| {
        let path = path(finding, touch);
        let found = path.split_once(']');
        found.map(|(element, _)| element.to_owned())
    };
    // Of which only one is in an array, or both are in one element.
    let is_one = |a: &Touch, b: &Touch| {
        let (a_in, b_in) = (element(a), element(b));
        is_pair(a, b) && (a_in.is_none() || b_in.is_none() || a_in == b_in)
    };
    (!in_the_way(finding, is_one))
        .then(|| format!("`{first}` and `{second}` are of different elements"))
}

fn apart(finding: &Advised) -> Option<String> {
    let (mut elements, mut same): (bool, bool) = (false, true);
    let is_pair = |a: &Touch, b: &Touch| a.offset != b.offset;
    if !in_the_way(finding, is_pair) {
        return Some("no two threads use different bytes of one line".to_owned());
    }
    let index = |touch: &Touch| {
        let path = path(finding, touch);
        path.rfind(']').map(|end| path[..=end].to_owned())
    };
    for a in &finding.accesses {
        for b in finding
            .accesses
            .iter()
            .filter(|b| b.tid != a.tid && b.line_address == a.line_address)
        {
            if let (Some(a), Some(b)) = (index(a), index(b)) {
                elements = true;
                same &= a == b;
            }
        }
    }
    // Parts may be of one element, elements not.
    let is_of_parts = sort(finding) == "align parts";
    (elements && same && !is_of_parts).then(|| "all threads use one element".to_owned())
}

fn one_writer(finding: &Advised, names: &[&str]) -> Option<String> {
    let names: BTreeSet<String> = names.iter().map(|it| bare(it)).collect();
    let mut writers: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for touch in finding.accesses.iter().filter(|it| it.op != "load") {
        // An array stands for all of its elements.
        let field = bare(&touch.field);
        let of = names
            .iter()
            .find(|it| field == **it || field.starts_with(&format!("{it}.")));
        if let Some(name) = of {
            writers.entry(name.clone()).or_default().insert(touch.tid);
        }
    }
    let several = writers.iter().find(|(_, by)| by.len() > 1);
    several.map(|(name, by)| format!("`{name}` is written by {} threads", by.len()))
}

fn print(row: &Row) {
    let result = match (row.compiles, row.transfers) {
        (None, _) => "said".to_owned(),
        (Some(false), _) => "does not compile".to_owned(),
        (Some(true), None) => "compiles".to_owned(),
        (Some(true), Some((was, left))) => format!(
            "compiles  time {:.2} (promised {:.0} %)  false transfers {was:.0} -> {left:.0}",
            median(&row.times).unwrap_or(f64::NAN),
            row.promised * 100.0
        ),
    };
    println!(
        "{:<26}{:<40}{:<18}{result}",
        row.program, row.finding, row.sort
    );
    for fault in &row.faults {
        println!("    WRONG: {fault}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_advice_names_stands_in_marks() {
        let change = "Move `rings[].tail` to another line than `rings[].head`: they lie on one.";
        assert_eq!(named(change), ["rings[].tail", "rings[].head"]);
        assert_eq!(bare("rings[].tail"), "rings.tail");
        assert_eq!(bare("[3].n"), ".n");
    }
}
