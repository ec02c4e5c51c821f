//! `linewise diff`: two recordings side by side.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use linewise_analysis::report::{html, json, terminal};

use crate::report::{Colour, analyse, print, terminal_options, write_html};

/// Arguments of `linewise diff`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// The recording of before
    before: PathBuf,
    /// The recording of after
    after: PathBuf,
    /// Print JSON (described in docs/diff-json.md) instead of text
    #[arg(long)]
    json: bool,
    /// Also write the comparison as one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print what differs by no more than noise, too
    #[arg(long)]
    all: bool,
    /// When to use colour
    #[arg(long, default_value = "auto", value_name = "WHEN")]
    colour: Colour,
}

/// Compares two recordings.
pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let (before, after) = (analyse(&args.before, None)?, analyse(&args.after, None)?);
    let diff = linewise_analysis::diff(&before, &after).with_context(|| {
        format!(
            "cannot compare {} and {}",
            args.before.display(),
            args.after.display()
        )
    })?;
    if let Some(path) = &args.html {
        write_html(path, &html::render_diff(&diff))?;
    }
    let text = if args.json {
        json::render_diff(&diff) + "\n"
    } else {
        terminal::render_diff(&diff, &terminal_options(args.colour, true), args.all)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
