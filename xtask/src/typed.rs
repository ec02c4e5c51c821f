//! `cargo xtask typed`: of the sampled accesses of programs that know their own objects
//! (fixtures/programs/typed), how many does linewise give a type and a field, and how many of these are
//! right?
//!
//! Each program is recorded by the real binary. What it prints says where its objects and their
//! fields are, and what leads to its arrays of numbers, so that every sampled address names the field that
//! was touched, or the member that holds the pointer; linewise derives it from the code alone
//! (crates/analysis/examples/typed_truth.rs compares). Of the struct that two threads share falsely the
//! proposed layout is pasted into the source, and an exact run counts what is left of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::recorded::{compile, record, report};
use crate::typed_real;

/// The share of the accesses that must have a type.
const TYPED_BAR: f64 = 0.85;
/// The share of the checked ones that must have the right field.
const RIGHT_BAR: f64 = 0.97;
/// Checked accesses below which nothing is said.
const FEWEST: u64 = 200;

/// A program, how it is compiled, and the share of its accesses that must have a type.
struct Program {
    language: &'static str,
    source: &'static str,
    compiler: &'static [&'static str],
    typed_bar: f64,
}

impl Program {
    /// What it is called: optimised unless that says otherwise.
    fn name(&self) -> String {
        let plain = self.compiler.contains(&"-O0");
        format!("{}{}", self.source, if plain { " -O0" } else { "" })
    }
}

const PROGRAMS: [Program; 10] = [
    Program {
        language: "C",
        source: "accounts.c",
        compiler: &["cc", "-g", "-O2"],
        typed_bar: TYPED_BAR,
    },
    Program {
        language: "C++",
        source: "shapes.cpp",
        compiler: &["c++", "-std=c++17", "-g", "-O2"],
        typed_bar: TYPED_BAR,
    },
    Program {
        language: "Rust",
        source: "orders.rs",
        compiler: &["rustc", "--edition", "2024", "-g", "-C", "opt-level=2"],
        typed_bar: TYPED_BAR,
    },
    Program {
        language: "C",
        source: "tables.c",
        compiler: &["cc", "-g", "-O2"],
        typed_bar: TYPED_BAR,
    },
    Program {
        language: "C++",
        source: "tables.cpp",
        compiler: &["c++", "-std=c++17", "-g", "-O2"],
        typed_bar: TYPED_BAR,
    },
    Program {
        language: "Rust",
        source: "tables.rs",
        compiler: &["rustc", "--edition", "2024", "-g", "-C", "opt-level=2"],
        typed_bar: TYPED_BAR,
    },
    // Without optimisation, where every variable has its place in the frame.
    Program {
        language: "C",
        source: "accounts.c",
        compiler: &["cc", "-g", "-O0"],
        typed_bar: TYPED_BAR,
    },
    Program {
        language: "C++",
        source: "shapes.cpp",
        compiler: &["c++", "-std=c++17", "-g", "-O0"],
        typed_bar: TYPED_BAR,
    },
    Program {
        language: "C",
        source: "tables.c",
        compiler: &["cc", "-g", "-O0"],
        typed_bar: TYPED_BAR,
    },
    Program {
        language: "C",
        source: SHARED,
        compiler: &["cc", "-g", "-O2", "-pthread"],
        typed_bar: 0.95,
    },
];
/// The program with a struct that two threads share falsely.
const SHARED: &str = "both.c";
/// Where they are.
const SOURCES: &str = "fixtures/programs/typed";

/// What the comparison prints.
#[derive(Debug, Deserialize, Serialize)]
struct Truth {
    accesses: u64,
    typed: u64,
    checked: u64,
    right: u64,
    reasons: BTreeMap<String, u64>,
    wrong: Vec<(String, u64)>,
}

#[derive(Debug, Serialize)]
struct Row {
    language: &'static str,
    source: String,
    typed_bar: f64,
    truth: Truth,
}

/// The struct of [`SHARED`] as it is, and in the layout that linewise proposes.
#[derive(Debug, Serialize)]
struct Twin {
    /// The members that the profile says are written, and those that it says are only read.
    written: Vec<String>,
    read: Vec<String>,
    /// The layout, as pasted.
    layout: String,
    /// Transfers by false sharing of an exact run, before and after.
    before: f64,
    after: f64,
}

impl Twin {
    fn passed(&self) -> bool {
        self.written == ["a", "b"]
            && self.read == ["c"]
            && self.before >= 1000.0
            && self.after <= self.before / 100.0
    }
}

/// What is read of a report (docs/report-json.md).
#[derive(Deserialize)]
struct Report {
    sharing: Sharing,
    #[serde(default)]
    types: Vec<TypeRow>,
}

#[derive(Deserialize)]
struct Sharing {
    transfers: Transfers,
}

#[derive(Deserialize)]
struct Transfers {
    #[serde(rename = "false")]
    by_false_sharing: f64,
}

#[derive(Deserialize)]
struct TypeRow {
    name: String,
    fields: Vec<Field>,
    layout: Option<Layout>,
}

#[derive(Deserialize)]
struct Field {
    name: String,
    padding: bool,
    loads: f64,
    stores: f64,
}

#[derive(Deserialize)]
struct Layout {
    source: String,
}

impl Row {
    fn typed(&self) -> f64 {
        self.truth.typed as f64 / self.truth.accesses.max(1) as f64
    }

    fn right(&self) -> f64 {
        self.truth.right as f64 / self.truth.checked.max(1) as f64
    }

    fn passed(&self) -> bool {
        self.truth.checked >= FEWEST && self.typed() >= self.typed_bar && self.right() >= RIGHT_BAR
    }
}

/// Records the programs and prints the table. `false` if a bar is missed.
///
/// # Errors
/// If linewise or a compiler is not there, a run fails, or the arguments are not understood.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    if arguments.switch("--real") {
        return typed_real::run(root, &release_binary(root)?, arguments);
    }
    let seconds = arguments.count("--seconds", 5)?;
    let json = arguments.switch("--json");
    arguments.finish()?;
    let linewise = release_binary(root)?;
    let compare = root.join("target/debug/examples/typed_truth");
    ensure!(
        compare.exists(),
        "{} is not there: cargo build -p linewise-analysis --examples",
        compare.display()
    );
    let work = root.join("target/typed");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let sources = root.join(SOURCES);
    let mut rows = Vec::new();
    for program in &PROGRAMS {
        let name = program.name();
        let binary = binary(&work, &name);
        compile(&binary, &sources.join(program.source), program.compiler)?;
        rows.push(Row {
            language: program.language,
            source: name,
            typed_bar: program.typed_bar,
            truth: measure(&linewise, &compare, &binary, seconds)?,
        });
    }
    let twin = twin(root, &linewise, &work)?;
    if json {
        let all = serde_json::json!({ "programs": rows, "twin": twin });
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        print_table(&rows);
        print_twin(&twin);
    }
    Ok(rows.iter().all(Row::passed) && twin.passed())
}

fn binary(work: &Path, source: &str) -> PathBuf {
    work.join(source.replace(['.', ' '], "_"))
}

/// Pastes the layout that the recording of [`SHARED`] suggests, and counts what both versions
/// transfer. [`measure`] has recorded the program.
fn twin(root: &Path, linewise: &Path, work: &Path) -> anyhow::Result<Twin> {
    let as_it_is = binary(work, SHARED);
    let profile: Report = report(linewise, &as_it_is.with_extension("linewise"))?;
    let shared = profile
        .types
        .into_iter()
        .find(|row| row.name == "struct both")
        .context("the profile does not name `struct both`")?;
    let named = |wanted: fn(&Field) -> bool| -> Vec<String> {
        let fields = shared.fields.iter().filter(|it| !it.padding && wanted(it));
        fields.map(|field| field.name.clone()).collect()
    };
    let written = named(|field| field.stores > 0.0);
    let read = named(|field| field.stores == 0.0 && field.loads > 0.0);
    let layout = shared.layout.context("no layout is proposed")?.source;
    let pasted = work.join("both_layout.h");
    fs::write(&pasted, &layout).with_context(|| pasted.display().to_string())?;
    let define = format!("-DLAYOUT=\"{}\"", pasted.display());
    let repaired = work.join("both_repaired");
    let compiler = ["cc", "-g", "-O2", "-pthread", &define];
    compile(&repaired, &root.join(SOURCES).join(SHARED), &compiler)?;
    let exact = |program: &Path| -> anyhow::Result<f64> {
        let recording = program.with_extension("exact.linewise");
        let words = ["1"];
        record(
            linewise,
            &recording,
            &["--source", "exact"],
            program,
            &words,
            Stdio::null(),
        )?;
        let report: Report = report(linewise, &recording)?;
        Ok(report.sharing.transfers.by_false_sharing)
    };
    Ok(Twin {
        written,
        read,
        layout,
        before: exact(&as_it_is)?,
        after: exact(&repaired)?,
    })
}

/// Records `program` and compares what linewise says with what it printed.
fn measure(
    linewise: &Path,
    compare: &Path,
    program: &Path,
    seconds: usize,
) -> anyhow::Result<Truth> {
    let recording = program.with_extension("linewise");
    let printed = program.with_extension("txt");
    let output = fs::File::create(&printed).with_context(|| printed.display().to_string())?;
    // Sampled densely: nothing here depends on how fast the program is.
    record(
        linewise,
        &recording,
        &["--rate", "2000"],
        program,
        &[&seconds.to_string()],
        output.into(),
    )?;
    let compared = Command::new(compare)
        .arg(&recording)
        .arg(&printed)
        .output()
        .context("running typed_truth")?;
    ensure!(
        compared.status.success(),
        "typed_truth: {}",
        String::from_utf8_lossy(&compared.stderr).trim()
    );
    serde_json::from_slice(&compared.stdout).context("what typed_truth printed")
}

fn print_table(rows: &[Row]) {
    println!(
        "{:<6}{:<16}{:>10}{:>9}{:>9}{:>9}",
        "", "program", "accesses", "typed", "checked", "right"
    );
    for row in rows {
        println!(
            "{:<6}{:<16}{:>10}{:>7.1} %{:>9}{:>7.1} %  {}",
            row.language,
            row.source,
            row.truth.accesses,
            row.typed() * 100.0,
            row.truth.checked,
            row.right() * 100.0,
            if row.passed() { "" } else { "MISSED" }
        );
        for (reason, count) in &row.truth.reasons {
            println!("      {count:>8} {reason}");
        }
        for (what, count) in row.truth.wrong.iter().take(5) {
            println!("      {count:>8} wrong: {what}");
        }
    }
    println!(
        "bars: {:.0} % typed ({SHARED} 95 %), {:.0} % right",
        TYPED_BAR * 100.0,
        RIGHT_BAR * 100.0
    );
}

fn print_twin(twin: &Twin) {
    println!(
        "{SHARED}: written {}, read {}; false sharing {:.0} transfers, {:.0} in the layout that is \
         proposed  {}",
        twin.written.join(" "),
        twin.read.join(" "),
        twin.before,
        twin.after,
        if twin.passed() { "" } else { "MISSED" }
    );
}
