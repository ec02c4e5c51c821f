//! `linewise report`, and what `linewise run` prints.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use linewise_analysis::model::Report;
use linewise_analysis::report::terminal::TerminalOptions;
use linewise_analysis::report::{html, json, terminal};
use linewise_analysis::resolve::{Debuginfod, DiskFiles, Resolved, resolve_recording};
use linewise_analysis::{Details, ExactCounts, analyse_with};
use linewise_recording::{Outlet, Recording, RunInfo, Tables, write_file, write_table};

use crate::panics;
use crate::say::{ProgressLine, say};

/// Arguments of `linewise report`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// The recording
    #[arg(default_value = "run.linewise")]
    recording: PathBuf,
    #[command(flatten)]
    show: OutputArgs,
}

/// What to print where.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "What to show")]
pub(crate) struct OutputArgs {
    /// Print JSON (schema 1, described in docs/report-json.md) instead of text
    ///
    /// What a command started here prints goes to the standard error then, unless the report goes to a file (--report-to)
    #[arg(long)]
    json: bool,
    /// Also write the report as one HTML file
    ///
    /// It holds lines of the program's source where that is readable: look before you send it to others
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Findings to print in full
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = whole_number::<usize>)]
    top: usize,
    /// Print all that is known: every place, the members of types, what is in each cache, what recording cost
    #[arg(long, short)]
    verbose: bool,
    /// When to use colour
    #[arg(long, default_value = "auto", value_name = "WHEN")]
    colour: Colour,
    /// For a recording with --reuse sampled: an exact recording of the same command, by whose counts times between uses become distances
    #[arg(long, value_name = "EXACT")]
    rate_from: Option<PathBuf>,
    /// Print the report to this file instead of the standard output, which the target may use
    #[arg(long, value_name = "FILE")]
    report_to: Option<PathBuf>,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl OutputArgs {
    /// Whether a program is to read the standard output, which a command that runs before must not write to.
    pub(crate) fn takes_standard_output(&self) -> bool {
        self.json && self.report_to.is_none()
    }

    /// Finds out before a long run whether its report can be written.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        for path in [&self.html, &self.report_to].into_iter().flatten() {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            anyhow::ensure!(
                parent.is_dir(),
                "cannot write {}: {} is no folder",
                path.display(),
                parent.display()
            );
            Outlet::find(path)?;
        }
        self.exact_counts()?;
        Ok(())
    }

    /// What the exact recording of --rate-from counted.
    fn exact_counts(&self) -> anyhow::Result<Option<ExactCounts>> {
        let Some(path) = &self.rate_from else {
            return Ok(None);
        };
        let recording = Recording::open(path)?;
        let counts = ExactCounts::new(recording.info(), &recording.tables()?);
        let counts = counts.with_context(|| {
            format!(
                "--rate-from {}: it does not hold the counts of an exact run; record one with \
                 `linewise record --source exact`",
                path.display()
            )
        })?;
        Ok(Some(counts))
    }
}

/// Reports on a recording.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    args.show.check()?;
    show(&args.recording, &args.show)?;
    Ok(ExitCode::SUCCESS)
}

/// Finds names for the addresses of a recording and adds them to it.
pub(crate) fn resolve(directory: &Path) -> anyhow::Result<()> {
    let recording = Recording::open(directory)?;
    let resolved = names(recording.info(), &recording.tables()?);
    write_table(directory, &resolved.frames)?;
    write_table(directory, &resolved.objects)?;
    write_table(directory, &resolved.fields)?;
    write_table(directory, &resolved.typed_accesses)?;
    write_table(directory, &resolved.type_members)?;
    write_table(directory, &resolved.path_traces)?;
    write_table(directory, &resolved.polls)?;
    write_table(directory, &resolved.blocked_loads)?;
    write_table(directory, &resolved.type_allocations)?;
    Ok(())
}

fn names(info: &RunInfo, tables: &Tables) -> Resolved {
    panics::where_a_test_wants_it("resolve");
    let debuginfod = Debuginfod::of(|variable| std::env::var_os(variable));
    let files = DiskFiles::new("/").with_debuginfod(debuginfod);
    resolve_recording(tables, info.line_size, &files)
}

/// Analyses a recording. Where linewise was killed before it had looked up names they are looked up now:
/// files that were built anew since are known by their build ids.
pub(crate) fn analyse(directory: &Path, counts: Option<&ExactCounts>) -> anyhow::Result<Report> {
    analyse_by(directory, |info, tables| {
        (analyse_with(info, tables, counts), ())
    })
    .map(|(report, ())| report)
}

/// The same with what only a page shows.
fn analyse_for_page(
    directory: &Path,
    counts: Option<&ExactCounts>,
) -> anyhow::Result<(Report, Details)> {
    analyse_by(directory, |info, tables| {
        linewise_analysis::analyse_for_page(info, tables, counts, &DiskFiles::new("/"))
    })
}

fn analyse_by<D>(
    directory: &Path,
    analyse: impl FnOnce(&RunInfo, &Tables) -> (Report, D),
) -> anyhow::Result<(Report, D)> {
    let ((mut report, details), notes) = with_names(directory, analyse)?;
    report.notes.extend(notes);
    Ok((report, details))
}

/// What `analyse` makes of a recording whose names are looked up, and what is to be said of those.
pub(crate) fn with_names<A>(
    directory: &Path,
    analyse: impl FnOnce(&RunInfo, &Tables) -> A,
) -> anyhow::Result<(A, Vec<String>)> {
    let recording = Recording::open(directory)?;
    let (info, mut tables) = (recording.info(), recording.tables()?);
    let nameless = tables.frames.is_empty() && tables.objects.is_empty() && !tables.maps.is_empty();
    let resolved = nameless.then(|| panics::caught(|| names(info, &tables)));
    let (resolved, bug) = match resolved.transpose() {
        Ok(resolved) => (resolved, None),
        Err(bug) => (None, Some(bug)),
    };
    let resolved_now = resolved.is_some();
    if let Some(resolved) = resolved {
        tables.frames = resolved.frames;
        tables.objects = resolved.objects;
        tables.fields = resolved.fields;
        tables.typed_accesses = resolved.typed_accesses;
        tables.type_members = resolved.type_members;
        tables.path_traces = resolved.path_traces;
        tables.polls = resolved.polls;
        tables.blocked_loads = resolved.blocked_loads;
        tables.type_allocations = resolved.type_allocations;
    }
    let mut notes = Vec::new();
    let analysed = analyse(info, &tables);
    if let Some(bug) = bug {
        let note = format!("Names are missing, since looking them up failed: {bug}.");
        notes.push(note);
    }
    if resolved_now {
        notes.push(
            "Names are looked up now, in the programs and libraries of this machine, since linewise ended before it had: what has no build id (`readelf -n` shows it) and was built anew meanwhile has wrong ones.".to_owned(),
        );
    }
    Ok((analysed, notes))
}

/// Prints and writes what was asked for.
pub(crate) fn show(directory: &Path, args: &OutputArgs) -> anyhow::Result<()> {
    panics::where_a_test_wants_it("report");
    let counts = args.exact_counts()?;
    let progress = ProgressLine::on_a_terminal();
    let analysed = || -> anyhow::Result<Report> {
        let Some(path) = &args.html else {
            return analyse(directory, counts.as_ref());
        };
        let (report, details) = analyse_for_page(directory, counts.as_ref())?;
        write_html(path, &html::render_with(&report, &details))?;
        Ok(report)
    };
    let report = progress.during("analysing the recording", analysed)?;
    let text = if args.json {
        json::render(&report) + "\n"
    } else {
        terminal::render(
            &report,
            &TerminalOptions {
                top: args.top,
                verbose: args.verbose,
                ..terminal_options(args.colour, args.report_to.is_none())
            },
        )
    };
    match &args.report_to {
        Some(path) => write_file(path, text.as_bytes())
            .with_context(|| format!("cannot write the report to {}", path.display()))?,
        None => print(&text)?,
    }
    if let Some(path) = &args.html {
        say(&format!("HTML report in {}", path.display()));
    }
    Ok(())
}

/// Writes a page.
pub(crate) fn write_html(path: &Path, page: &str) -> anyhow::Result<()> {
    write_file(path, page.as_bytes())
        .with_context(|| format!("cannot write the HTML report to {}", path.display()))
}

/// Prints to the standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader has seen enough; the exit code stays the target's.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot print the report"),
    }
}

/// How to print, to the standard output or elsewhere.
pub(crate) fn terminal_options(colour: Colour, to_standard_output: bool) -> TerminalOptions {
    TerminalOptions {
        width: width(to_standard_output),
        colour: match colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => {
                to_standard_output
                    && std::io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none()
            }
        },
        ..TerminalOptions::default()
    }
}

/// A number without a sign and a fraction.
pub(crate) fn whole_number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("`{text}` is no whole number, or too large a one"))
}

/// Columns of the terminal that is printed to, if that is known.
fn columns_of_terminal() -> Option<usize> {
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size_of(std::io::stdout())?;
    (columns > 0).then_some(columns.into())
}

/// Columns to print in: the terminal's, or as many as the user asks for. A file has room for what a terminal cuts.
fn width(to_standard_output: bool) -> usize {
    let asked = || std::env::var("COLUMNS").ok()?.parse().ok();
    let is_terminal = to_standard_output && std::io::stdout().is_terminal();
    let terminal = is_terminal.then(columns_of_terminal).flatten();
    terminal.or_else(asked).unwrap_or(match is_terminal {
        true => 80,
        false => usize::MAX,
    })
}
