//! The ways in which a program is run: alone, by plain QEMU, and under linewise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use super::compared::difference;
use super::manifest::Program;
use super::mode::{Mode, qemu};
use super::process::{Outcome, Running, cut, signal, start, tool};

/// How much longer than alone a program may take under linewise's timer, and under emulation.
const SLOWER: u32 = 3;
const MUCH_SLOWER: u32 = 6;
/// How long linewise may need to attach, and to end after its target.
const ATTACHING: Duration = Duration::from_secs(60);
/// All that programs are given of the environment besides what they want themselves.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Python itself: what is first in the path may be a script that looks for it.
fn python() -> Option<PathBuf> {
    let mut command = Command::new("python3");
    let output = command
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    (!path.trim().is_empty()).then(|| path.trim().into())
}

/// Where a program is run, and with what.
pub(super) struct Place {
    /// All of this program's files.
    pub(super) folder: PathBuf,
    pub(super) linewise: PathBuf,
    pub(super) sources: PathBuf,
    /// What was built of it.
    pub(super) binary: PathBuf,
}

/// What became of a program under linewise.
pub(super) struct Found {
    pub(super) target: Outcome,
    /// What was wrong with linewise itself.
    pub(super) fault: Option<String>,
    /// What linewise said.
    words: String,
}

impl Found {
    /// A difference with what linewise said about it.
    pub(super) fn with_words(&self, difference: String) -> String {
        let mut text = difference;
        if let Some(fault) = &self.fault {
            text += &format!("; {fault}");
        }
        // What `record` says of every recording tells nothing.
        let mut lines = self.words.lines();
        if let Some(line) = lines.find(|line| !line.contains("; see `linewise report")) {
            text += &format!("; said: `{}`", cut(line));
        }
        text
    }
}

/// The part of a recording's `run.json` that is read.
#[derive(Deserialize)]
struct RunInfo {
    heap: Option<HeapRun>,
}

#[derive(Deserialize)]
struct HeapRun {
    blocks: u64,
}

impl Place {
    /// The program without linewise.
    pub(super) fn alone(&self, program: &Program, name: &str) -> anyhow::Result<Outcome> {
        let command = self.command(program, &[], &[])?;
        let limit = Duration::from_secs(program.seconds());
        self.start(command, Stdio::null(), name, limit)?.finish()
    }

    /// The program under plain QEMU, or why that says nothing. What it says counts if it is `steady`.
    pub(super) fn plain(
        &self,
        program: &Program,
        alone: &Outcome,
        steady: bool,
    ) -> anyhow::Result<Result<Outcome, String>> {
        let qemu = qemu().context("no qemu-user")?.display().to_string();
        let usual = program.seconds() * u64::from(MUCH_SLOWER);
        let limit = Duration::from_secs(program.plain_seconds.unwrap_or(usual));
        let run = |name: &str| {
            let command = self.command(program, &[], std::slice::from_ref(&qemu))?;
            let outcome = self.start(command, Stdio::null(), name, limit)?.finish()?;
            anyhow::Ok(outcome.counting(steady))
        };
        let plain = run("plain")?;
        let Some(difference) = difference(alone, &plain) else {
            return Ok(Ok(plain));
        };
        if plain.code != alone.code {
            return Ok(Err(format!("plain QEMU cannot do it: {difference}")));
        }
        let again = run("plain-again")?;
        Ok(match super::difference(&plain, &again) {
            Some(difference) => Err(format!("two runs by plain QEMU differ: {difference}")),
            None => Ok(plain),
        })
    }

    /// The program under linewise.
    pub(super) fn under(&self, program: &Program, mode: Mode) -> anyhow::Result<Found> {
        if mode == Mode::Pid {
            return self.attached(program);
        }
        let recording = self.recording(mode)?;
        let report = self.folder.join(format!("{}.report", mode.name()));
        let given = |path: &Path| path.display().to_string();
        let mut words = vec![given(&self.linewise)];
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        match mode {
            Mode::Record => add(&[
                "record",
                "--quiet",
                "--heap",
                "on",
                "-o",
                &given(&recording),
            ]),
            Mode::Exact => add(&["run", "--quiet", "--source", "exact"]),
            Mode::Run | Mode::Pid => add(&["run", "--quiet"]),
        }
        if mode != Mode::Record {
            add(&["--report-to", &given(&report)]);
        }
        add(&["--"]);
        let slower = if mode == Mode::Exact {
            MUCH_SLOWER
        } else {
            SLOWER
        };
        let limit = Duration::from_secs(program.seconds()) * slower;
        let command = self.command(program, &words, &[])?;
        let mut target = self
            .start(command, Stdio::null(), mode.name(), limit)?
            .finish()?;
        let words = own_words(&mut target.stderr);
        let mut fault = None;
        if mode == Mode::Record && program.heap {
            let told = info(&recording)?.heap.map_or(0, |heap| heap.blocks);
            if told == 0 {
                fault = Some("no block of its heap was recorded".to_owned());
            }
        }
        Ok(Found {
            target,
            fault,
            words,
        })
    }

    /// The program with linewise attached to it before it begins.
    fn attached(&self, program: &Program) -> anyhow::Result<Found> {
        let limit = Duration::from_secs(program.seconds()) * SLOWER;
        let mut target = if program.waits() {
            let command = self.command(program, &[], &[])?;
            self.start(command, Stdio::piped(), "pid", limit)?
        } else {
            // Stopped before it becomes the program.
            let stopped = self.built().join("stopped").display().to_string();
            let command = self.command(program, &[stopped], &[])?;
            self.start(command, Stdio::null(), "pid", limit)?
        };
        let recording = self.recording(Mode::Pid)?;
        let mut command = Command::new(&self.linewise);
        command
            .args(["record", "--quiet", "--heap", "auto", "-o"])
            .arg(&recording)
            .arg("--pid")
            .arg(target.id().to_string());
        let name = "pid-linewise";
        let mut collector = start(
            command,
            Stdio::null(),
            &self.folder,
            name,
            limit + ATTACHING,
        )?;
        let begun = collector.until(|| recording.join("run.json").exists())?;
        match target.stdin() {
            // Its end, when this is dropped, is the sign.
            Some(stdin) => drop(stdin),
            None => signal("CONT", &format!("-{}", target.id())),
        }
        let target = target.finish()?;
        let collector = collector.finish()?;
        let words = String::from_utf8_lossy(&collector.stderr).into_owned();
        let fault = if collector.late {
            Some("linewise did not end after its target".to_owned())
        } else if collector.code != Some(0) {
            Some(format!("linewise ended with {}", collector.end()))
        } else {
            (!begun).then(|| "linewise did not attach".to_owned())
        };
        Ok(Found {
            target,
            fault,
            words,
        })
    }

    /// Where what was built is.
    fn built(&self) -> PathBuf {
        self.folder.with_file_name("built")
    }

    /// Where a recording of this mode goes; none is there.
    fn recording(&self, mode: Mode) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(format!("{}.linewise", mode.name()));
        remove(&path)?;
        Ok(path)
    }

    /// The words of the program's command, with `under` in front of them, and `emulator` in front of the program alone.
    fn command(
        &self,
        program: &Program,
        under: &[String],
        emulator: &[String],
    ) -> anyhow::Result<Command> {
        let built = self.built();
        let of_crate = program.crate_sources().unwrap_or_default();
        let fill = |word: &String| {
            word.replace("{crate}", &of_crate.display().to_string())
                .replace("{program}", &self.binary.display().to_string())
                .replace("{sources}", &self.sources.display().to_string())
                .replace("{built}", &built.display().to_string())
        };
        let mut words: Vec<String> = program.command.iter().map(fill).collect();
        if words.is_empty() {
            words.push(self.binary.display().to_string());
        }
        // QEMU looks for nothing, so that nobody else has to.
        if !words[0].contains('/') {
            let path = match words[0].as_str() {
                "python3" => python(),
                name => tool(name),
            };
            let path = path.with_context(|| format!("{} is missing", words[0]))?;
            words[0] = path.display().to_string();
        }
        let mut all: Vec<String> = program.around.iter().map(fill).collect();
        all.extend(under.iter().chain(emulator).cloned());
        all.extend(words);
        let work = self.folder.join("work");
        let mut command = Command::new(&all[0]);
        command
            .args(&all[1..])
            .env_clear()
            .env("HOME", &work)
            .env("LANG", "C")
            .env("PATH", PATH)
            .env("PWD", &work)
            .env("TMPDIR", self.folder.join("tmp"))
            .envs(
                program
                    .environment
                    .iter()
                    .map(|(name, value)| (name, fill(value))),
            )
            .current_dir(&work);
        Ok(command)
    }

    /// Starts a command in a fresh folder.
    fn start(
        &self,
        command: Command,
        stdin: Stdio,
        name: &str,
        limit: Duration,
    ) -> anyhow::Result<Running> {
        for part in ["work", "tmp"] {
            let path = self.folder.join(part);
            remove(&path)?;
            fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        }
        start(command, stdin, &self.folder, name, limit)
    }
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

fn info(recording: &Path) -> anyhow::Result<RunInfo> {
    let path = recording.join("run.json");
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// Takes linewise's own lines out of what it and its target wrote to their common standard error.
fn own_words(stderr: &mut Vec<u8>) -> String {
    let mut own = Vec::new();
    let mut rest = Vec::new();
    for line in stderr.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"linewise: ") {
            own.extend_from_slice(line);
        } else {
            rest.extend_from_slice(line);
        }
    }
    *stderr = rest;
    String::from_utf8_lossy(&own).into_owned()
}

/// What all programs have in common.
pub(super) struct Suite {
    pub(super) sources: PathBuf,
    /// Where all is built, run and kept.
    pub(super) place: PathBuf,
    pub(super) linewise: PathBuf,
    pub(super) modes: Vec<Mode>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_of_linewise_are_its_own() {
        let mut text = b"one\nlinewise: a note\ntwo linewise: x\nrest".to_vec();
        assert_eq!(own_words(&mut text), "linewise: a note\n");
        assert_eq!(text, b"one\ntwo linewise: x\nrest");
    }
}
