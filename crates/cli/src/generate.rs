//! Completions and manual pages, generated from the command line's own definition.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use linewise_recording::write_file;

/// Arguments of `linewise completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    shell: clap_complete::Shell,
}

/// Arguments of `linewise man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write linewise.1 and a page for each verb into this folder
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

/// Prints completions.
pub(crate) fn completions(
    args: &CompletionArgs,
    command: &mut clap::Command,
) -> anyhow::Result<ExitCode> {
    // Not straight to the standard output: clap panics when its reader goes away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "linewise", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints or writes manual pages.
pub(crate) fn man(args: &ManArgs, command: clap::Command) -> anyhow::Result<ExitCode> {
    match &args.into {
        Some(directory) => {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
            let mut command = command.disable_help_subcommand(true);
            command.build();
            write_pages(command, directory)
                .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            std::io::stdout().write_all(&page)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command, and those of its verbs.
fn write_pages(command: clap::Command, directory: &Path) -> anyhow::Result<()> {
    let verbs = command.get_subcommands();
    for verb in verbs.filter(|verb| !verb.is_hide_set()).cloned() {
        write_pages(verb, directory)?;
    }
    let manual = clap_mangen::Man::new(command);
    let mut page = Vec::new();
    manual.render(&mut page)?;
    write_file(&directory.join(manual.get_filename()), &page)?;
    Ok(())
}
