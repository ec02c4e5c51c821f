//! The list of programs, `tests/conformance/programs.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::mode::Mode;
use super::process::tool;
use crate::metadata::Metadata;

/// What a program of ours ends with when all is as it should be (`DONE` in `common.h`).
const DONE: i32 = 23;
/// How long a program may take, s, unless it says otherwise.
const SECONDS: u64 = 60;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    program: Vec<Program>,
}

/// One program and how it is run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    pub(super) name: String,
    /// The file or folder that it is built from, in the folder of the list.
    #[serde(default)]
    pub(super) source: Option<String>,
    /// Its compiler, where that is not the usual one for such a file.
    #[serde(default)]
    pub(super) compiler: Option<String>,
    /// What the compiler is told besides.
    #[serde(default)]
    pub(super) flags: Vec<String>,
    /// What is run; `{program}` is what was built, `{sources}` the folder of the list, `{built}` the folder of what was
    /// built, `{crate}` the sources of the crate that it needs. The program alone where it is empty.
    #[serde(default)]
    pub(super) command: Vec<String>,
    /// What is put in front of the command, or in front of linewise.
    #[serde(default)]
    pub(super) around: Vec<String>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    /// What must be there: `tool NAME`, `header NAME`, `library NAME`, `python NAME`, `crate NAME`, `root`.
    #[serde(default)]
    needs: Vec<String>,
    /// Files that are built before it: `NAME_library.c` becomes `libNAME.so`.
    #[serde(default)]
    pub(super) with: Vec<String>,
    /// Whether it is run where there is little time.
    #[serde(default)]
    pub(super) core: bool,
    /// The exit code that it has by itself.
    #[serde(default)]
    code: Option<i32>,
    #[serde(default)]
    seconds: Option<u64>,
    /// How long plain QEMU may take, s; else it does not count.
    #[serde(default)]
    pub(super) plain_seconds: Option<u64>,
    /// Whether it begins when it is told to on its standard input; others are stopped before they begin, where
    /// linewise attaches to them.
    #[serde(default)]
    waits: Option<bool>,
    /// Whether blocks of its heap must have been recorded with `--heap on`, so that nothing is the same because
    /// nothing was done.
    #[serde(default)]
    pub(super) heap: bool,
    /// Modes that cannot do it, and why.
    #[serde(default)]
    pub(super) except: BTreeMap<String, String>,
}

/// The programs of the list.
///
/// # Errors
/// If it cannot be read, or says something that is not understood.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Program>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> anyhow::Result<Vec<Program>> {
    let list: List = toml::from_str(text)?;
    for (at, program) in list.program.iter().enumerate() {
        let name = &program.name;
        let earlier = &list.program[..at];
        ensure!(
            earlier.iter().all(|other| other.name != *name),
            "{name} is there twice"
        );
        ensure!(
            program.source.is_some() || !program.command.is_empty(),
            "{name} has neither a source nor a command"
        );
        for mode in program.except.keys() {
            Mode::named(mode).with_context(|| format!("what {name} excepts"))?;
        }
        for need in &program.needs {
            ensure!(
                Need::parse(need).is_some(),
                "{name} needs `{need}`, which is not understood"
            );
        }
    }
    Ok(list.program)
}

impl Program {
    /// A command that is not in the list, and may take so long alone.
    pub(super) fn of_command(name: String, command: Vec<String>, seconds: u64) -> Self {
        Self {
            name,
            command,
            seconds: Some(seconds),
            ..Self::default()
        }
    }

    /// Whether `--only` means it: by its name, or by what it begins and ends with around a star.
    pub(super) fn matches(&self, only: &str) -> bool {
        let name = self.name.as_str();
        only.split(',').any(|only| match only.split_once('*') {
            Some((beginning, end)) => name.starts_with(beginning) && name.ends_with(end),
            None => name == only,
        })
    }

    /// The exit code that it has by itself.
    pub(super) fn code(&self) -> i32 {
        let own = if self.source.is_some() { DONE } else { 0 };
        self.code.unwrap_or(own)
    }

    /// How long it may take alone.
    pub(super) fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(SECONDS)
    }

    /// Whether it waits on its standard input until it may begin.
    pub(super) fn waits(&self) -> bool {
        self.waits.unwrap_or(self.source.is_some())
    }

    /// Where the sources of the crate are that it needs.
    pub(super) fn crate_sources(&self) -> Option<PathBuf> {
        let mut needs = self.needs.iter().filter_map(|need| Need::parse(need));
        needs.find_map(|need| match need {
            Need::Crate(name) => crate_sources(name),
            _ => None,
        })
    }

    /// What the machine lacks for it.
    pub(super) fn missing(&self) -> Option<String> {
        let needs = self.needs.iter().filter_map(|need| Need::parse(need));
        needs.filter_map(|need| need.missing()).next()
    }
}

/// Something that a program cannot be built or run without.
enum Need<'a> {
    Tool(&'a str),
    Header(&'a str),
    Library(&'a str),
    Python(&'a str),
    Crate(&'a str),
    Root,
}

impl<'a> Need<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("tool", name)) => Some(Self::Tool(name)),
            Some(("header", name)) => Some(Self::Header(name)),
            Some(("library", name)) => Some(Self::Library(name)),
            Some(("python", name)) => Some(Self::Python(name)),
            Some(("crate", name)) => Some(Self::Crate(name)),
            None if text == "root" => Some(Self::Root),
            _ => None,
        }
    }

    /// Why it is not there, if so.
    fn missing(&self) -> Option<String> {
        let lacks = |is_there: bool, what: &str| (!is_there).then(|| format!("{what} is missing"));
        match self {
            Self::Tool(name) => lacks(tool(name).is_some(), name),
            Self::Header(name) => {
                let include = format!("#include <{name}>");
                let script = format!("echo '{include}' | g++ -E -x c++ -");
                lacks(succeeds("sh", &["-c", &script]), name)
            }
            Self::Library(name) => {
                let option = format!("-print-file-name={name}");
                let found = Command::new("gcc").arg(option).output();
                let found = found.is_ok_and(|found| found.stdout.starts_with(b"/"));
                lacks(found, name)
            }
            Self::Python(name) => {
                let import = format!("import {name}");
                let what = format!("Python's {name}");
                lacks(succeeds("python3", &["-c", &import]), &what)
            }
            Self::Crate(name) => {
                let what = format!("the source of the crate {name}");
                lacks(crate_sources(name).is_some(), &what)
            }
            Self::Root => {
                let status = fs::metadata("/proc/self");
                let root = status.is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
                (!root).then(|| "needs root".to_owned())
            }
        }
    }
}

/// Where cargo has the sources of a crate that linewise depends on.
fn crate_sources(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let metadata = Metadata::read(root).ok()?;
    let mut packages = metadata.packages.iter();
    let manifest = &packages.find(|package| package.name == name)?.manifest_path;
    let folder = Path::new(manifest).parent()?;
    folder.exists().then(|| folder.to_owned())
}

fn succeeds(tool: &str, words: &[&str]) -> bool {
    let mut command = Command::new(tool);
    command.args(words).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_tree_is_understood_and_has_a_core() -> anyhow::Result<()> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let programs = read(&here.join("../tests/conformance/programs.toml"))?;
        let core = programs.iter().filter(|program| program.core).count();
        assert!(core > 20 && core < programs.len());
        for program in &programs {
            if let Some(source) = &program.source {
                let path = here.join("../tests/conformance").join(source);
                assert!(path.exists(), "{source}");
            }
        }
        Ok(())
    }

    #[test]
    fn what_a_list_cannot_mean_is_refused() {
        let twice = "[[program]]\nname = 'a'\nsource = 'a.c'\n".repeat(2);
        for text in [
            twice.as_str(),
            "[[program]]\nname = 'a'\n",
            "[[program]]\nname = 'a'\nsource = 'a.c'\nneeds = ['a wand']\n",
            "[[program]]\nname = 'a'\nsource = 'a.c'\nexcept = { exactly = 'no' }\n",
            "[[program]]\nname = 'a'\nsource = 'a.c'\ncolour = 'red'\n",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_chosen_whole_or_by_what_is_around_a_star() {
        let program = Program {
            name: "addresses_c".to_owned(),
            ..Program::default()
        };
        assert!(program.matches("addresses_c") && program.matches("keys,addr*_c"));
        assert!(!program.matches("addresses") && !program.matches("keys"));
    }
}
