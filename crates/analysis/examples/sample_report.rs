//! Writes made-up reports in all three forms: `cargo run --example sample_report -- DIRECTORY`.
//! The browser test and whoever works on the looks of a report use them.

use std::path::PathBuf;
use std::{env, fs, io};

use linewise_analysis::analyse_for_page;
use linewise_analysis::report::terminal::TerminalOptions;
use linewise_analysis::report::{html, json, model, terminal};
use linewise_analysis::resolve::DiskFiles;

/// The everyday report when its first finding was mended.
fn repaired() -> model::Report {
    let mut report = sample::everyday();
    report.findings.remove(0);
    report
}

#[path = "../src/report/sample.rs"]
mod sample;

use sample::sample_calls;

fn main() -> io::Result<()> {
    let directory = env::args_os().nth(1).map(PathBuf::from).ok_or_else(|| {
        let message = "which directory to write to? Give it as the argument";
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    fs::create_dir_all(&directory)?;
    let samples: [(&str, model::Report); 9] = [
        ("everyday", sample::everyday()),
        ("profiled", sample::profiled()),
        ("hostile", sample::hostile()),
        ("quiet", sample::quiet()),
        ("traced", sample::traced()),
        ("reuse-times", sample::with_reuse_times()),
        ("too-short", sample::too_short()),
        ("crowd", sample::crowd(500)),
        ("many-rows", sample::many_rows(300)),
    ];
    let coloured = TerminalOptions {
        colour: true,
        ..TerminalOptions::default()
    };
    for (name, report) in samples {
        let write = |ending: &str, content: String| {
            fs::write(directory.join(format!("{name}.{ending}")), content)
        };
        write("html", html::render(&report))?;
        write("json", json::render(&report))?;
        write("txt", terminal::render(&report, &coloured))?;
    }
    for (name, report, details) in [
        ("calls", sample::everyday(), sample_calls::details()),
        (
            "calls-hostile",
            sample::hostile(),
            sample_calls::hostile_details(sample::HOSTILE),
        ),
    ] {
        let page = html::render_with(&report, &details);
        fs::write(directory.join(format!("{name}.html")), page)?;
    }
    let (info, tables) = sample_calls::hour(860_000);
    let (report, details) = analyse_for_page(&info, &tables, None, &DiskFiles::default());
    let page = html::render_with(&report, &details);
    fs::write(directory.join("hour.html"), page)?;
    for (name, before, after) in [
        ("diff", sample::everyday(), repaired()),
        ("diff-hostile", sample::profiled(), sample::hostile()),
    ] {
        let diff = linewise_analysis::diff(&before, &after).map_err(io::Error::other)?;
        let page = html::render_diff(&diff);
        fs::write(directory.join(format!("{name}.html")), page)?;
    }
    // What a name of the hostile report looks like to the reader.
    println!("{}", sample::HOSTILE.escape_debug());
    Ok(())
}
