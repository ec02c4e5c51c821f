//! `cargo xtask flow`: objects followed from allocation to end, what it costs, and how many history sets find
//! how many of the paths.
//!
//! The program is that of the tests (`crates/cli/tests/flow.c`): packets on two paths, and on eight. Each is run
//! alone and under `linewise record --flow`, in turns; overhead is what an object takes more, median over the
//! rounds, with the recording's own account beside. Histories, sets and the curve are of the last round.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::arguments::Arguments;
use crate::round_trip::median;

/// What is run: words of the program, what it is called, and how many paths its objects take.
const PROGRAMS: [(&str, &str, u32); 2] = [("", "two paths", 2), ("many", "eight paths", 8)];
/// What recording may cost, per cent.
const BUDGETS: [&str; 3] = ["2%", "10%", "30%"];

/// Runs the measurement.
///
/// # Errors
/// If something does not build or run.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let rounds = arguments.count("--rounds", 3)?;
    let seconds = arguments.count("--seconds", 8)?;
    arguments.finish()?;
    let place = root.join("target/flow");
    std::fs::create_dir_all(&place)?;
    let program = place.join("flow");
    let built = Command::new("gcc")
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([&program, &root.join("crates/cli/tests/flow.c")])
        .status()
        .context("gcc does not run")?;
    ensure!(built.success(), "gcc does not build flow.c");
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--locked",
            "-q",
            "-p",
            "linewise",
            "-p",
            "linewise-preload",
            "-p",
            "linewise-preload-cxx",
        ])
        .args([
            "-p",
            "linewise-analysis",
            "--example",
            "history_sets",
            "--bins",
            "--lib",
        ])
        .current_dir(root)
        .status()?;
    ensure!(built.success(), "linewise does not build");
    let release = root.join("target/release");
    println!("program      budget  slowdown  account  histories  sets  paths  seconds");
    for (mode, name, truth) in PROGRAMS {
        let words: Vec<String> = [seconds.to_string(), mode.to_owned()]
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect();
        for budget in BUDGETS {
            let (mut slowdowns, mut accounts) = (Vec::new(), Vec::new());
            let mut curve = String::new();
            for _ in 0..rounds {
                let alone = objects(Command::new(&program).args(&words))?;
                let recording = place.join("run.linewise");
                let recorded = objects(
                    Command::new(release.join("linewise"))
                        .args([
                            "record",
                            "--quiet",
                            "--force",
                            "--flow=make_packet",
                            // To tell of every block takes more than these budgets by itself.
                            "--heap",
                            "auto",
                        ])
                        .args(["--overhead", budget, "-o"])
                        .arg(&recording)
                        .arg("--")
                        .arg(&program)
                        .args(&words),
                )?;
                slowdowns.push(alone / recorded - 1.0);
                let info = std::fs::read_to_string(recording.join("run.json"))?;
                let info: serde_json::Value = serde_json::from_str(&info)?;
                accounts.push(info["overhead"]["estimated"].as_f64().unwrap_or(f64::NAN));
                let output = Command::new(release.join("examples/history_sets"))
                    .arg(&recording)
                    .output()?;
                ensure!(
                    output.status.success(),
                    "history_sets: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                curve = String::from_utf8(output.stdout)?;
            }
            let mut lines = curve.lines();
            let head: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
            let figure = |index: usize| head.get(index).copied().unwrap_or("?");
            println!(
                "{name:<12} {budget:>6} {:>8.1}% {:>7.1}% {:>10} {:>5} {:>4}/{truth} {seconds:>8}",
                100.0 * median(&slowdowns).unwrap_or(f64::NAN),
                100.0 * median(&accounts).unwrap_or(f64::NAN),
                figure(1),
                figure(3),
                figure(5),
            );
            for line in lines {
                println!("    {line}");
            }
        }
    }
    Ok(true)
}

/// Runs the program; how many objects it made.
fn objects(command: &mut Command) -> anyhow::Result<f64> {
    let output = command.output().context("the program does not run")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text
        .split_whitespace()
        .map(|word| word.parse::<f64>().unwrap_or(0.0));
    Ok(numbers.sum())
}
