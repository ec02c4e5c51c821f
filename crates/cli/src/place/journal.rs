//! What was changed, on disk before it is changed: so that it can be undone by whoever comes next, if this process is
//! killed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use linewise_machine::process;
use linewise_placer::TaskKey;
use linewise_topology::CpuSet;
use serde::{Deserialize, Serialize};

use crate::say::say;

/// A journal longer than this is none of ours, bytes.
const LONGEST: u64 = 256 << 20;

/// How each of its lines begins.
const BEGINS: &[u8] = b"{\"boot\":";

/// One change of one thread, or that it is somebody else's now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Which thread.
    pub(super) key: TaskKey,
    /// Its process.
    pub(super) process: u32,
    /// When that began: its number may be another's by the time of undoing.
    pub(super) process_start: u64,
    /// When that was, in the kernel's ticks since boot: who is born later may have inherited it.
    pub(super) since: u64,
    /// Where it might run before the first change.
    pub(super) before: CpuSet,
    /// Where it was to run from then on.
    pub(super) asked: CpuSet,
}

/// An entry as a line.
#[derive(Serialize, Deserialize)]
struct Line {
    boot: String,
    tid: u32,
    start: u64,
    process: u32,
    process_start: u64,
    since: u64,
    before: String,
    asked: String,
}

/// The open journal, locked for as long as it is open.
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    boot: String,
}

impl Journal {
    /// Opens the journal, and gives what a placer before wrote and did not undo. What was written before the machine
    /// was started is of threads that are gone.
    ///
    /// # Errors
    /// It cannot be made or read, is somebody else's, or another placer has it.
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<(Self, Vec<Entry>)> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => own_folder()?.join("place.journal"),
        };
        let shown = path.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.custom_flags(libc_flags()).open(&path);
        let file = file.with_context(|| {
            format!("cannot open the journal {shown}; --journal FILE takes another")
        })?;
        let about = file
            .metadata()
            .with_context(|| format!("cannot read {shown}"))?;
        if !about.is_file()
            || about.uid() != process::effective_user()
            || about.nlink() != 1
            || about.mode() & 0o022 != 0
        {
            bail!("{shown} is no journal of this user's alone: --journal FILE takes another");
        }
        if about.len() > LONGEST {
            bail!("{shown} is longer than any journal: remove it, or --journal FILE takes another");
        }
        if !process::try_lock(&file).with_context(|| format!("cannot lock {shown}"))? {
            bail!(
                "another `linewise place` is at work ({shown}): end it first, it undoes what it did"
            );
        }
        let boot = linewise_foreign::read(Path::new("/proc/sys/kernel/random/boot_id"), 100);
        let boot = String::from_utf8_lossy(&boot.unwrap_or_default())
            .trim()
            .to_owned();
        let (entries, damaged) = read(&file, &boot).with_context(|| {
            format!("{shown} is left as it is, and nothing is moved or undone: remove it, or --journal FILE takes another")
        })?;
        if damaged > 0 {
            say(&format!(
                "a part of the journal {shown} is damaged ({damaged} of its lines): a thread that they alone tell of keeps its CPUs (`taskset -p` of it shows them)"
            ));
        }
        let journal = Self { file, path, boot };
        Ok((journal, entries))
    }

    /// Writes what is about to be changed, and waits until it is on disk.
    ///
    /// # Errors
    /// The disk is full or broken: then nothing may be changed.
    pub(super) fn write(&mut self, entries: &[Entry]) -> anyhow::Result<()> {
        // A line that was cut off ends here.
        let mut text = "\n".to_owned();
        for entry in entries {
            let line = Line {
                boot: self.boot.clone(),
                tid: entry.key.tid,
                start: entry.key.start,
                process: entry.process,
                process_start: entry.process_start,
                since: entry.since,
                before: entry.before.to_string(),
                asked: entry.asked.to_string(),
            };
            text += &serde_json::to_string(&line)?;
            text.push('\n');
        }
        let written = self
            .file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_data());
        written.with_context(|| {
            format!(
                "cannot write to the journal {}, so nothing is moved",
                self.path.display()
            )
        })
    }

    /// Forgets all: it was undone.
    ///
    /// # Errors
    /// The file cannot be changed.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        let cleared = self.file.set_len(0).and_then(|()| self.file.rewind());
        cleared.with_context(|| format!("cannot clear the journal {}", self.path.display()))
    }
}

/// What stands in a journal, as far as it is of this boot, and how many lines make no sense: a disk may have lost a
/// part.
///
/// # Errors
/// It cannot be read, or is something else than a journal: whoever clears it would lose that.
fn read(file: &File, boot: &str) -> anyhow::Result<(Vec<Entry>, usize)> {
    let (mut entries, mut damaged) = (Vec::new(), 0);
    let (mut is_journal, mut is_empty) = (false, true);
    for line in BufReader::new(file).split(b'\n') {
        let line = line.context("cannot read the journal")?;
        let line = line.trim_ascii();
        is_empty &= line.is_empty();
        let told = serde_json::from_slice::<Line>(line).ok();
        is_journal |= told.is_some() || line.starts_with(BEGINS);
        match told {
            Some(told) if told.boot != boot => {}
            Some(told) => match told.entry() {
                Some(entry) => entries.push(entry),
                None => damaged += 1,
            },
            None => damaged += usize::from(!line.is_empty()),
        }
    }
    if !is_journal && !is_empty {
        bail!("no line of it is a journal's");
    }
    Ok((entries, damaged))
}

impl Line {
    /// `None` for what this program does not write: 0 would stand for whoever asks, or for all.
    fn entry(self) -> Option<Entry> {
        (self.tid != 0 && self.process != 0).then_some(())?;
        Some(Entry {
            key: TaskKey {
                tid: self.tid,
                start: self.start,
            },
            process: self.process,
            process_start: self.process_start,
            since: self.since,
            before: self.before.parse().ok()?,
            asked: self.asked.parse().ok()?,
        })
    }
}

/// Opening neither waits nor follows a link.
pub(super) fn libc_flags() -> i32 {
    let flags =
        rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    flags.bits().cast_signed()
}

/// The folder for this user's journal and for what is claimed, which nobody else may write to.
pub(super) fn own_folder() -> anyhow::Result<PathBuf> {
    let user = process::effective_user();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let folder = match runtime {
        _ if user == 0 => PathBuf::from("/run/linewise"),
        Some(runtime) => Path::new(&runtime).join("linewise"),
        None => std::env::temp_dir().join(format!("linewise-{user}")),
    };
    let shown = folder.display().to_string();
    if let Err(error) = DirBuilder::new().mode(0o700).create(&folder)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(error)
            .with_context(|| format!("cannot make {shown}; --journal FILE takes another place"));
    }
    let about = fs::symlink_metadata(&folder).with_context(|| format!("cannot read {shown}"))?;
    if !about.is_dir() || about.uid() != user || about.mode() & 0o022 != 0 {
        bail!("{shown} is not this user's alone: --journal FILE takes another place");
    }
    Ok(folder)
}
