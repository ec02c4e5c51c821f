//! Writing a recording while the target runs.
//!
//! Rows wait in memory until a flush writes them as one small Parquet file per table, a segment:
//! `samples.000001.parquet`. Whoever kills the collector finds whole segments and a `run.json`
//! that says `"complete": false`. Finishing makes one file of each table's segments, row group by
//! row group, and says `"complete": true` last.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::folder::{Folder, temporary};
use crate::recording::read_run_in;
use crate::run::{FORMAT_VERSION, RunInfo};
use crate::storage::{
    Effort, FILE_PERMISSIONS, FileRole, RUN_FILE, compact, segment_name, segments_of, table_name,
    write_rows,
};
use crate::tables::sealed::Buffered;
use crate::tables::{Row, RunFacts, Tables, all_tables};
use crate::values::Time;

/// Rows of one table that wait at most; more are written without being asked.
const SEGMENT_ROWS: usize = 16_384;

/// How long rows wait at least and at most until [`Writer::flush_is_due`].
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Bytes that are kept on the disk for the last `run.json`: several times what one takes.
const RESERVE_BYTES: usize = 16 << 10;

/// What to do about a recording that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// Refuse to touch it.
    New,
    /// Write over it. Files that linewise did not write stay.
    Replace,
}

/// Writes a recording.
///
/// Dropping it without [`Writer::finish`] leaves a recording that says it is cut short, with all
/// that was flushed.
#[derive(Debug)]
pub struct Writer {
    folder: Folder,
    /// The folder around, and the name in there, if the recording's folder was made by this writer.
    made_in: Option<(Folder, OsString)>,
    info: RunInfo,
    pending: Tables,
    segments: BTreeMap<&'static str, u32>,
    latest: Time,
    created: Instant,
    flushed: Instant,
    reserve: Option<Reserve>,
    /// Why the recording is cut short, if it is already: a reason of [`RunInfo::ended_by`].
    cut_short: Option<&'static str>,
}

/// Room on the disk, taken at the beginning, for a `run.json` that says why the recording was cut short:
/// once the disk is full there is none.
#[derive(Debug)]
struct Reserve {
    name: OsString,
    file: File,
}

impl Reserve {
    /// Takes the room; none where there is not even that much.
    fn take(folder: &Folder) -> Option<Self> {
        let name = temporary(OsStr::new("reserve"));
        let mut file = folder.make_file(&name, FILE_PERMISSIONS).ok()?;
        // Blanks, since a hole takes no room, and they may follow what is written over them.
        if file.write_all(&[b' '; RESERVE_BYTES]).is_err() {
            let _ = folder.remove_file(&name);
            return None;
        }
        Some(Self { name, file })
    }

    /// Puts `text` in place of `run.json` without asking for more room.
    fn spend(&self, folder: &Folder, text: &[u8]) -> Result<(), Error> {
        let path = folder.child(OsStr::new(RUN_FILE));
        if text.len() > RESERVE_BYTES {
            return Err(Error::write(&path, io::ErrorKind::StorageFull.into()));
        }
        self.file
            .write_all_at(text, 0)
            .and_then(|()| self.file.set_len(text.len() as u64))
            .map_err(|e| Error::write(&path, e))?;
        folder.rename(&self.name, OsStr::new(RUN_FILE))
    }
}

impl Writer {
    /// Makes the directory `dir` (0700) with a `run.json` (0600) that says `"complete": false`.
    /// `dir` is taken as it is: see [`recording_path`] for the usual name.
    ///
    /// # Errors
    /// [`Error::AlreadyRecorded`] when a recording is there and `mode` is [`CreateMode::New`],
    /// [`Error::NotARecording`] when something else is there, [`Error::Link`] when `dir` is a link,
    /// [`Error::OtherOwner`] when this is root and another user owns the directory or a file in it that
    /// would be replaced, [`Error::Write`] when the system refuses.
    pub fn create(dir: &Path, info: &RunInfo, mode: CreateMode) -> Result<Self, Error> {
        let Claimed { folder, made_in } = claim_directory(dir, mode)?;
        let now = Instant::now();
        let mut writer = Self {
            folder,
            made_in,
            info: info.clone(),
            pending: Tables::default(),
            segments: BTreeMap::new(),
            latest: info.start,
            created: now,
            flushed: now,
            reserve: None,
            cut_short: None,
        };
        if let Err(error) = writer.write_run(false) {
            writer.discard();
            return Err(error);
        }
        writer.reserve = Reserve::take(&writer.folder);
        Ok(writer)
    }

    /// The directory of the recording.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Takes the recording back, for who recorded nothing: a leftover would only be in the way of the
    /// next try. Best effort.
    pub fn discard(mut self) {
        if let Some(reserve) = self.reserve.take() {
            let _ = self.folder.remove_file(&reserve.name);
        }
        let _ = self.folder.remove_file(OsStr::new(RUN_FILE));
        if let Some((around, name)) = &self.made_in {
            let _ = around.remove_folder(name);
        }
    }

    /// Takes rows of one table. They are written by the next flush, or now if many wait.
    ///
    /// # Errors
    /// [`Error::Write`] when a segment cannot be written; the rows wait on.
    pub fn push<R: Row + Buffered>(
        &mut self,
        rows: impl IntoIterator<Item = R>,
    ) -> Result<(), Error> {
        let pending = R::rows_mut(&mut self.pending);
        let first = pending.len();
        pending.extend(rows);
        let latest = pending[first..].iter().filter_map(Row::latest).max();
        let full = pending.len() >= SEGMENT_ROWS;
        self.latest = self.latest.max(latest.unwrap_or_default());
        if full {
            let written = self.write_segment::<R>();
            self.noted(written)
        } else {
            Ok(())
        }
    }

    /// Replaces the facts that the next flush writes to `run.json`: end, overhead and whatever
    /// else changed.
    pub fn update(&mut self, info: &RunInfo) {
        self.info = info.clone();
    }

    /// Writes all rows that wait as segments, then `run.json`. What was flushed survives the
    /// death of this process.
    ///
    /// # Errors
    /// [`Error::Write`], naming the file, when the system refuses: the disk is full, for one.
    /// Earlier segments stay readable; rows that could not be written wait on.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.flushed = Instant::now();
        let written = self.write_segments().and_then(|()| self.write_run(false));
        self.noted(written)
    }

    /// Puts `rows` in place of all that one table held, at once: for tables of what is so far, which hold
    /// something other at every flush. Such a table takes no pushed rows.
    ///
    /// # Errors
    /// [`Error::Write`] when the system refuses; the table then holds what it did.
    pub fn replace<R: Row + Buffered>(&mut self, rows: &[R]) -> Result<(), Error> {
        debug_assert!(R::rows_mut(&mut self.pending).is_empty(), "{}", R::TABLE);
        self.segments.insert(R::TABLE, 1);
        let name = segment_name(R::TABLE, 1);
        let written = write_rows(&self.folder, &name, Effort::Segment, rows);
        self.noted(written)
    }

    /// Whether the last flush is a while ago: a second in a short recording, up to ten in a long one, so
    /// that an hour does not leave a hundred thousand files to compact. Meant to be asked at every turn
    /// of the collector's loop.
    #[must_use]
    pub fn flush_is_due(&self) -> bool {
        let wait = (self.created.elapsed() / 60).clamp(SHORTEST_WAIT, LONGEST_WAIT);
        self.flushed.elapsed() >= wait
    }

    /// Ends the recording: every table becomes one file, empty ones too, and `run.json` holds
    /// `info` with `"complete": true`.
    ///
    /// # Errors
    /// As [`Writer::flush`]. The recording is then left as cut short, with all that was flushed.
    pub fn finish(mut self, info: &RunInfo) -> Result<(), Error> {
        self.info = info.clone();
        self.flush()?;
        let written = (self.compact_all())
            .and_then(|()| self.write_facts())
            .and_then(|()| self.write_run(true));
        self.noted(written)
    }

    fn compact_all(&self) -> Result<(), Error> {
        macro_rules! compact_all {
            ($($table:ident: $row:ident,)+) => { $(compact::<crate::tables::$row>(&self.folder)?;)+ };
        }
        all_tables!(compact_all);
        Ok(())
    }

    /// Passes on how writing went; where it failed for the first time `run.json` says so from now on, in the
    /// room that was kept for that.
    fn noted(&mut self, written: Result<(), Error>) -> Result<(), Error> {
        let Err(Error::Write { source, .. }) = &written else {
            return written;
        };
        if self.cut_short.is_some() {
            return written;
        }
        self.cut_short = Some(match source.kind() {
            io::ErrorKind::StorageFull => "disk-full",
            io::ErrorKind::QuotaExceeded => "quota-used-up",
            _ => "write-failed",
        });
        // The first error is the one to tell.
        let _ = self.spend_reserve();
        written
    }

    fn spend_reserve(&mut self) -> Result<(), Error> {
        if let Some(reserve) = self.reserve.take() {
            let spent = reserve.spend(&self.folder, &self.run_text(false)?);
            if spent.is_ok() {
                return Ok(());
            }
            // A file system that writes nothing in place has room now.
            self.folder.remove_file(&reserve.name)?;
        }
        self.write_run(false)
    }

    fn write_segments(&mut self) -> Result<(), Error> {
        macro_rules! write_all {
            ($($table:ident: $row:ident,)+) => { $(self.write_segment::<crate::tables::$row>()?;)+ };
        }
        all_tables!(write_all);
        Ok(())
    }

    fn write_segment<R: Row + Buffered>(&mut self) -> Result<(), Error> {
        let pending = R::rows_mut(&mut self.pending);
        if pending.is_empty() {
            return Ok(());
        }
        let number = self.segments.entry(R::TABLE).or_default();
        let name = segment_name(R::TABLE, *number + 1);
        write_rows(&self.folder, &name, Effort::Segment, pending)?;
        *number += 1;
        pending.clear();
        // A burst must not hold its memory for the rest of the recording.
        pending.shrink_to(SEGMENT_ROWS);
        Ok(())
    }

    fn write_run(&self, complete: bool) -> Result<(), Error> {
        let name = OsStr::new(RUN_FILE);
        let path = self.folder.child(name);
        let text = self.run_text(complete)?;
        self.folder.replace(name, FILE_PERMISSIONS, |mut file| {
            file.write_all(&text).map_err(|e| Error::write(&path, e))
        })
    }

    /// Writes the row that others read for `run.json`.
    fn write_facts(&self) -> Result<(), Error> {
        let facts = RunFacts::of(&self.info_now(true));
        let name = table_name(RunFacts::TABLE);
        write_rows(&self.folder, &name, Effort::Table, &[facts])
    }

    fn info_now(&self, complete: bool) -> RunInfo {
        let mut info = RunInfo {
            format_version: FORMAT_VERSION,
            complete,
            ..self.info.clone()
        };
        if !complete {
            info.end = info.end.max(self.latest);
            if let Some(reason) = self.cut_short {
                info.ended_by = reason.to_owned();
            }
        }
        info
    }

    fn run_text(&self, complete: bool) -> Result<Vec<u8>, Error> {
        let info = self.info_now(complete);
        let path = self.folder.child(OsStr::new(RUN_FILE));
        let mut text = serde_json::to_vec_pretty(&info)
            .map_err(|e| Error::write(&path, io::Error::other(e)))?;
        text.push(b'\n');
        Ok(text)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(reserve) = self.reserve.take() {
            let _ = self.folder.remove_file(&reserve.name);
        }
    }
}

/// Writes one table of a recording that was ended, or cut short, in place of what it held: names
/// resolved afterwards go into `objects`, `fields` and `frames` like this.
///
/// # Errors
/// As [`Recording::open`](crate::Recording::open) if `dir` is no recording, [`Error::Link`] or
/// [`Error::OtherOwner`] if it is not to be written into, [`Error::Write`] when the system refuses; the
/// older table then stays.
pub fn write_table<R: Row>(dir: &Path, rows: &[R]) -> Result<(), Error> {
    let folder = Folder::open(dir)?;
    read_run_in(&folder)?;
    write_rows(&folder, &table_name(R::TABLE), Effort::Table, rows)?;
    segments_of(R::TABLE, folder.names()?)
        .iter()
        .try_for_each(|segment| folder.remove_file(segment))
}

/// Says whether `dir` holds an older recording, which [`Writer::create`] with this `mode` would
/// replace, and changes nothing: for who must know before something begins that it can be recorded.
///
/// # Errors
/// Those of [`Writer::create`] as far as they can be foreseen.
pub fn check_place(dir: &Path, mode: CreateMode) -> Result<bool, Error> {
    match Folder::open(dir) {
        Ok(folder) => {
            let found = inspect(&folder, mode)?;
            // Whether a file can be made is known for sure only from making one.
            let trial = temporary(OsStr::new("trial"));
            folder.remove_file(&trial)?;
            folder.make_file(&trial, FILE_PERMISSIONS)?;
            folder.remove_file(&trial)?;
            Ok(found.is_recording)
        }
        // A directory that is not there is made by `Writer::create`, before anything begins.
        Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(no_folder(dir, error)),
    }
}

/// A folder that is ours to record into.
struct Claimed {
    folder: Folder,
    /// The folder around it and its name in there, if it was made just now.
    made_in: Option<(Folder, OsString)>,
}

/// Makes `dir` ours: a new or empty directory, or that of an older recording.
fn claim_directory(dir: &Path, mode: CreateMode) -> Result<Claimed, Error> {
    let (around, name) = Folder::around(dir)?;
    match around.make(&name) {
        Ok(folder) => {
            return Ok(Claimed {
                folder,
                made_in: Some((around, name)),
            });
        }
        Err(Error::Write { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let folder = around.enter(&name).map_err(|error| no_folder(dir, error))?;
    let found = inspect(&folder, mode)?;
    folder.make_private()?;
    // `run.json` goes last, by being replaced: until then the directory stays replaceable.
    let mut ours = found.ours.iter();
    ours.try_for_each(|name| folder.remove_file(name))?;
    Ok(Claimed {
        folder,
        made_in: None,
    })
}

fn occupied(dir: &Path, reason: &str) -> Error {
    Error::NotARecording {
        path: dir.to_owned(),
        reason: format!("{reason}, and linewise does not write over it; choose another name"),
    }
}

/// Why `dir` could not be entered, in better words where there are some.
fn no_folder(dir: &Path, error: Error) -> Error {
    match error {
        Error::Read { source, .. } if source.kind() == io::ErrorKind::NotADirectory => {
            occupied(dir, "a file")
        }
        error => error,
    }
}

/// What is in a directory that can be recorded into.
struct Found {
    is_recording: bool,
    /// The files of an older recording but `run.json`.
    ours: Vec<OsString>,
}

/// Looks at a directory that is there; an error if it cannot be recorded into.
fn inspect(folder: &Folder, mode: CreateMode) -> Result<Found, Error> {
    let dir = folder.path();
    let mut ours = Vec::new();
    let (mut is_recording, mut has_others) = (false, false);
    for name in folder.names()? {
        let role = FileRole::of(&name);
        if role == FileRole::Foreign {
            has_others = true;
            continue;
        }
        let Some(found) = folder.look(&name)? else {
            continue;
        };
        found.check_owner(&folder.child(&name))?;
        if !found.is_file() {
            let name = name.to_string_lossy();
            return Err(occupied(dir, &format!("its {name} is no regular file")));
        }
        match role {
            FileRole::Run => is_recording = true,
            FileRole::Table(_) | FileRole::Segment(..) => {
                has_others = true;
                ours.push(name);
            }
            // A collector killed at its start leaves nothing else.
            FileRole::Temporary | FileRole::Foreign => ours.push(name),
        }
    }
    if is_recording {
        match read_run_in(folder) {
            // What a later linewise wrote, or what was damaged since, is a recording too.
            Ok(_)
            | Err(Error::NewerFormat { .. } | Error::NewerSource { .. } | Error::Damaged { .. }) => {
            }
            Err(Error::NotARecording { .. }) => {
                return Err(occupied(dir, "its run.json is not one of linewise"));
            }
            Err(other) => return Err(other),
        }
        if mode == CreateMode::New {
            return Err(Error::AlreadyRecorded {
                path: dir.to_owned(),
            });
        }
    } else if has_others {
        return Err(occupied(dir, "a directory of other files"));
    }
    Ok(Found { is_recording, ours })
}
