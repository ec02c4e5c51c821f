//! Rules about the documents: every command in them exists, every link leads somewhere.
//!
//! Commands are looked for in inline code and in fenced blocks marked `sh` or `console`. A command
//! of linewise is checked against the help of the real binary, verb and long options; one of make
//! or xtask against the Makefile and this crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::files::File;
use crate::answers::release_binary;
use crate::commands::COMMANDS;
use crate::problem::Problem;

/// What is wrong with the documents among `files`.
///
/// # Errors
/// If linewise cannot be built to ask it for its verbs.
pub(super) fn problems(root: &Path, files: &[File]) -> anyhow::Result<Vec<Problem>> {
    let makefile = files.iter().find(|file| file.path == "Makefile");
    let targets = makefile.map_or_else(Vec::new, |file| make_targets(&file.text));
    let mut helps = Helps::new(root);
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        for (line, text) in file.text.lines().enumerate() {
            for link in links(text) {
                if !root.join(folder).join(&link).exists() {
                    problems.push(Problem::new(
                        format!("{}:{}", file.path, line + 1),
                        format!("links to `{link}`, which does not exist"),
                    ));
                }
            }
        }
        for (line, command) in commands(&file.text) {
            let fault = match command.program.as_str() {
                "make" => make_fault(&command.words, &targets, root),
                "cargo" => xtask_fault(&command.words),
                "linewise" => helps.fault(&command.words)?,
                _ => None,
            };
            if let Some(fault) = fault {
                problems.push(Problem::new(format!("{}:{line}", file.path), fault));
            }
        }
    }
    Ok(problems)
}

/// A command in a document.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    /// Base name of the program.
    program: String,
    /// Its arguments.
    words: Vec<String>,
}

/// Every command in the code of a document, with its line number.
fn commands(text: &str) -> Vec<(usize, Shown)> {
    let mut found = Vec::new();
    let mut fence: Option<bool> = None;
    for (number, line) in text.lines().enumerate() {
        if let Some(mark) = line.trim_start().strip_prefix("```") {
            fence = match fence {
                Some(_) => None,
                None => Some(matches!(mark.trim(), "sh" | "console")),
            };
            continue;
        }
        let pieces: Vec<&str> = match fence {
            Some(true) => vec![line],
            Some(false) => Vec::new(),
            None => line.split('`').skip(1).step_by(2).collect(),
        };
        for piece in pieces {
            found.extend(
                piece
                    .split("&&")
                    .filter_map(shown)
                    .map(|command| (number + 1, command)),
            );
        }
    }
    found
}

fn shown(piece: &str) -> Option<Shown> {
    let piece = piece.split(" #").next().unwrap_or_default();
    let mut words = piece.split_whitespace().skip_while(|word| {
        matches!(*word, "$" | "#" | "sudo") || (word.contains('=') && !word.starts_with('-'))
    });
    let program = words.next()?.rsplit('/').next()?.to_owned();
    Some(Shown {
        program,
        words: words.map(str::to_owned).collect(),
    })
}

/// Relative links of a line, without their fragment.
fn links(line: &str) -> Vec<String> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|link| !link.contains("://") && !link.starts_with('#'))
        .filter_map(|link| link.split('#').next())
        .map(str::to_owned)
        .collect()
}

fn make_targets(makefile: &str) -> Vec<String> {
    makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', ' ', '#', '.']))
        .filter_map(|line| line.split_once(':'))
        .filter(|(_, rest)| !rest.starts_with('='))
        .flat_map(|(names, _)| names.split_whitespace())
        .map(str::to_owned)
        .collect()
}

fn make_fault(words: &[String], targets: &[String], root: &Path) -> Option<String> {
    if let [flag, folder, ..] = words
        && flag == "-C"
    {
        let makefile = Path::new(folder).join("Makefile");
        let exists = root.join(&makefile).exists();
        return (!exists).then(|| format!("{} does not exist", makefile.display()));
    }
    let target = words
        .iter()
        .find(|word| !word.starts_with('-') && !word.contains('='))?;
    (!targets.contains(target)).then(|| format!("the Makefile has no target `{target}`"))
}

fn xtask_fault(words: &[String]) -> Option<String> {
    let [first, verb, ..] = words else {
        return None;
    };
    let known = COMMANDS.iter().any(|(name, _)| name == verb);
    (first == "xtask" && !known).then(|| format!("xtask has no verb `{verb}`"))
}

/// The help texts of linewise, asked for when first needed.
struct Helps<'a> {
    root: &'a Path,
    binary: Option<PathBuf>,
    texts: BTreeMap<Vec<String>, Option<String>>,
}

impl<'a> Helps<'a> {
    fn new(root: &'a Path) -> Self {
        Self {
            root,
            binary: None,
            texts: BTreeMap::new(),
        }
    }

    /// What is wrong with `linewise WORDS`, checked against the help of its verb.
    fn fault(&mut self, words: &[String]) -> anyhow::Result<Option<String>> {
        // What stands after `--` belongs to the target.
        let words: Vec<&String> = words.iter().take_while(|word| *word != "--").collect();
        let verbs: Vec<String> = words
            .iter()
            .take_while(|word| !word.starts_with('-'))
            .take_while(|word| {
                let mut bytes = word.bytes();
                bytes.all(|byte| byte.is_ascii_lowercase() || byte == b'-')
            })
            .map(|word| (*word).clone())
            .collect();
        // A verb may have a noun below it (`bench sharing`), or a file name behind it.
        let mut help = None;
        for depth in (0..=verbs.len().min(2)).rev() {
            if let Some(text) = self.help(&verbs[..depth])? {
                help = Some((depth, text));
                break;
            }
        }
        let Some((depth, help)) = help else {
            bail!("linewise --help fails");
        };
        if depth == 0 && !verbs.is_empty() {
            return Ok(Some(format!("linewise has no verb `{}`", verbs[0])));
        }
        let option = words
            .iter()
            .filter(|word| word.starts_with("--"))
            .filter_map(|word| word.split('=').next())
            .find(|option| !mentions(&help, option));
        Ok(option.map(|option| {
            let command = verbs[..depth].join(" ");
            format!("`linewise {command}` has no option `{option}`")
        }))
    }

    /// The help of a verb; `None` when there is no such verb.
    fn help(&mut self, verbs: &[String]) -> anyhow::Result<Option<String>> {
        if let Some(known) = self.texts.get(verbs) {
            return Ok(known.clone());
        }
        let output = Command::new(self.binary()?)
            .args(verbs)
            .arg("--help")
            .output()
            .context("cannot run linewise")?;
        let text = output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned());
        self.texts.insert(verbs.to_vec(), text.clone());
        Ok(text)
    }

    fn binary(&mut self) -> anyhow::Result<PathBuf> {
        if let Some(binary) = &self.binary {
            return Ok(binary.clone());
        }
        let output = Command::new("make")
            .args(["--silent", "build"])
            .current_dir(self.root)
            .output()
            .context("cannot run make build")?;
        if !output.status.success() {
            bail!(
                "linewise does not build: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let binary = release_binary(self.root)?;
        self.binary = Some(binary.clone());
        Ok(binary)
    }
}

/// Whether `help` speaks of exactly this long option.
fn mentions(help: &str, option: &str) -> bool {
    help.split(|character: char| !character.is_alphanumeric() && character != '-')
        .any(|word| word == option)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn commands_are_found_in_inline_code_and_in_shell_blocks_only() {
        let text = "Say `make demo` or `linewise`.\n```sh\n$ sudo linewise doctor  # see\n```\n\
                    ```text\nmake nothing\n```\n";
        let found = commands(text);
        let programs: Vec<(usize, &str)> = found
            .iter()
            .map(|(line, command)| (*line, command.program.as_str()))
            .collect();
        assert_eq!(programs, [(1, "make"), (1, "linewise"), (3, "linewise")]);
        assert_eq!(found[2].1.words, words("doctor"));
    }

    #[test]
    fn both_sides_of_a_chain_are_commands() {
        let found = commands("`make build && target/release/linewise doctor`");
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].1.program, "linewise");
    }

    #[test]
    fn a_target_of_the_makefile_is_known_and_a_variable_is_none() {
        let targets = make_targets("PREFIX := x\n.PHONY: ghost\nall build: dep\n\tcc: x\ntest:\n");
        assert_eq!(targets, ["all", "build", "test"]);
        let root = Path::new("no-such-root");
        assert_eq!(make_fault(&words("PREFIX=x build"), &targets, root), None);
        assert!(make_fault(&words("ghost"), &targets, root).is_some());
        assert!(make_fault(&words("-C nowhere all"), &targets, root).is_some());
    }

    #[test]
    fn a_verb_that_xtask_does_not_have_is_a_fault() {
        assert_eq!(xtask_fault(&words("xtask tidy")), None);
        assert!(xtask_fault(&words("xtask dance")).is_some());
        assert_eq!(xtask_fault(&words("test --workspace")), None);
    }

    #[test]
    fn an_option_is_not_mentioned_by_a_longer_one() {
        assert!(mentions("      --json  Print", "--json"));
        assert!(!mentions("      --json-lines  Print", "--json"));
    }

    #[test]
    fn links_into_the_web_and_into_the_page_are_not_files() {
        let line = "[a](docs/a.md#x) [b](https://example.org) [c](#here) ![d](d.png)";
        assert_eq!(links(line), ["docs/a.md", "d.png"]);
    }
}
