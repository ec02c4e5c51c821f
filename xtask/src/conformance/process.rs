//! Running a command with its output in files, for a limited time.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// A program of ours that the machine cannot run ends with this (`SKIPPED` in `common.h`).
const SKIPPED: i32 = 77;
/// How often it is looked whether something has ended.
const PAUSE: Duration = Duration::from_millis(3);

/// What a command left behind.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Its exit code, or 128 and the signal that ended it; `None` if it had to be ended.
    pub(super) code: Option<i32>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// Whether it was ended because it took too long.
    pub(super) late: bool,
    pub(super) limit: Duration,
}

impl Outcome {
    /// The same, without what was said unless it is `steady`.
    pub(super) fn counting(self, steady: bool) -> Self {
        let said = |text: Vec<u8>| if steady { text } else { Vec::new() };
        Self {
            stdout: said(self.stdout),
            stderr: said(self.stderr),
            ..self
        }
    }

    /// How it ended, in words.
    pub(super) fn end(&self) -> String {
        match self.code {
            Some(code) if code > 128 => format!("{code} (signal {})", code - 128),
            Some(code) => code.to_string(),
            None => "nothing".to_owned(),
        }
    }

    /// Why the program says that it cannot run here, if so.
    pub(super) fn skipped(&self) -> Option<String> {
        let said = String::from_utf8_lossy(&self.stdout);
        let reason = said.lines().find_map(|line| line.strip_prefix("SKIP: "))?;
        (self.code == Some(SKIPPED)).then(|| reason.to_owned())
    }

    /// The last line of what it said.
    pub(super) fn last_words(&self) -> String {
        let last = |text: &[u8]| -> Option<String> {
            let text = String::from_utf8_lossy(text);
            text.trim_end().lines().last().map(cut)
        };
        (last(&self.stderr).or_else(|| last(&self.stdout))).unwrap_or_default()
    }
}

/// A command under way, in a process group of its own.
pub(super) struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    limit: Duration,
    end: Instant,
}

/// Starts a command whose output goes to `NAME.stdout` and `NAME.stderr` in `folder`.
///
/// # Errors
/// If it cannot be started.
pub(super) fn start(
    mut command: Command,
    stdin: Stdio,
    folder: &Path,
    name: &str,
    limit: Duration,
) -> anyhow::Result<Running> {
    let file = |kind: &str| -> anyhow::Result<(PathBuf, File)> {
        let path = folder.join(format!("{name}.{kind}"));
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        Ok((path, file))
    };
    let (stdout, out) = file("stdout")?;
    let (stderr, err) = file("stderr")?;
    let child = command
        .stdin(stdin)
        .stdout(out)
        .stderr(err)
        .process_group(0)
        .spawn()
        .with_context(|| format!("running {}", command.get_program().to_string_lossy()))?;
    Ok(Running {
        child,
        stdout,
        stderr,
        limit,
        end: Instant::now() + limit,
    })
}

impl Running {
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The other end of its standard input, where that is a pipe.
    pub(super) fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Waits until `done` or the command's end; whether it is done.
    pub(super) fn until(&mut self, mut done: impl FnMut() -> bool) -> anyhow::Result<bool> {
        while self.child.try_wait()?.is_none() && Instant::now() < self.end {
            if done() {
                return Ok(true);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(done())
    }

    /// Waits for the end of the command, or ends it and its group.
    pub(super) fn finish(mut self) -> anyhow::Result<Outcome> {
        let mut late = false;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if !late && Instant::now() >= self.end {
                late = true;
                signal("KILL", &format!("-{}", self.child.id()));
                // A stopped leader of a group that was left behind ends with it.
                let _ = self.child.kill();
            }
            std::thread::sleep(PAUSE);
        };
        let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
        Ok(Outcome {
            code: (!late).then(|| code(status)).flatten(),
            stdout: read(&self.stdout)?,
            stderr: read(&self.stderr)?,
            late,
            limit: self.limit,
        })
    }
}

/// An exit code as a shell sees it.
fn code(status: ExitStatus) -> Option<i32> {
    status.code().or_else(|| Some(128 + status.signal()?))
}

/// Sends a signal to a process, or with a minus to a group of them.
pub(super) fn signal(name: &str, to: &str) {
    // It may have ended by itself.
    let _ = Command::new("kill")
        .args(["-s", name, "--", to])
        .stderr(Stdio::null())
        .status();
}

/// How much of a line is shown.
const SHOWN: usize = 160;

/// The beginning of a line.
pub(super) fn cut(line: &str) -> String {
    let mut shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < line.len() {
        shown.push_str("...");
    }
    shown
}

/// Where a tool is.
pub(super) fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path);
    let mut candidates = places.map(|place| place.join(name));
    candidates.find(|candidate| candidate.is_file())
}
