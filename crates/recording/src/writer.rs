//! Writing a recording while the target runs.
//!
//! Rows wait in memory until a flush writes them as one small Parquet file per table, a segment:
//! `samples.000001.parquet`. Whoever kills the collector finds whole segments and a `run.json`
//! that says `"complete": false`. Finishing makes one file of each table's segments, row group by
//! row group, and says `"complete": true` last.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::recording::read_run;
use crate::rows::{
    Field, Frame, Latency, Loss, Map, Object, Sample, Stack, Switch, Thread, Time, Trap, Watch,
};
use crate::rows_exact::{
    BlockUse, CacheContent, CacheCounts, CallPath, ReuseBin, ReusePairBin, TransferCount,
};
use crate::rows_flow::{History, HistoryAccess, PathStep};
use crate::rows_heap::HeapBlock;
use crate::rows_reuse::{ReuseTrap, ReuseWatch};
use crate::rows_types::{TypeMember, TypedAccess};
use crate::run::{FORMAT_VERSION, RunInfo};
use crate::storage::{
    Effort, FileRole, RUN_FILE, compact, remove, replace_file, segment_path, segments, table_path,
    write_rows,
};
use crate::tables::{Row, Tables, all_tables};

/// Rows of one table that wait at most; more are written without being asked.
const SEGMENT_ROWS: usize = 16_384;

/// How long rows wait at least and at most until [`Writer::flush_is_due`].
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What to do about a recording that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// Refuse to touch it.
    New,
    /// Write over it. Files that linewise did not write stay.
    Replace,
}

/// Where a recording called `name` lies: `name` itself if it ends in `.linewise`, else with that
/// added.
#[must_use]
pub fn recording_path(name: &Path) -> PathBuf {
    if name
        .extension()
        .is_some_and(|extension| extension == "linewise")
    {
        return name.to_owned();
    }
    let mut name = name.as_os_str().to_owned();
    name.push(".linewise");
    PathBuf::from(name)
}

/// Writes a recording.
///
/// Dropping it without [`Writer::finish`] leaves a recording that says it is cut short, with all
/// that was flushed.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    info: RunInfo,
    pending: Tables,
    segments: BTreeMap<&'static str, u32>,
    latest: Time,
    created: Instant,
    flushed: Instant,
}

impl Writer {
    /// Makes the directory `dir` (0700) with a `run.json` (0600) that says `"complete": false`.
    /// `dir` is taken as it is: see [`recording_path`] for the usual name.
    ///
    /// # Errors
    /// [`Error::AlreadyRecorded`] when a recording is there and `mode` is [`CreateMode::New`],
    /// [`Error::NotARecording`] when something else is there, [`Error::Write`] when the system
    /// refuses.
    pub fn create(dir: &Path, info: &RunInfo, mode: CreateMode) -> Result<Self, Error> {
        claim_directory(dir, mode)?;
        let now = Instant::now();
        let writer = Self {
            dir: dir.to_owned(),
            info: info.clone(),
            pending: Tables::default(),
            segments: BTreeMap::new(),
            latest: info.start,
            created: now,
            flushed: now,
        };
        writer.write_run(false)?;
        Ok(writer)
    }

    /// The directory of the recording.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Takes rows of one table. They are written by the next flush, or now if many wait.
    ///
    /// # Errors
    /// [`Error::Write`] when a segment cannot be written; the rows wait on.
    pub fn push<R: Row>(&mut self, rows: impl IntoIterator<Item = R>) -> Result<(), Error> {
        let pending = R::rows_mut(&mut self.pending);
        let first = pending.len();
        pending.extend(rows);
        let latest = pending[first..].iter().filter_map(Row::latest).max();
        let full = pending.len() >= SEGMENT_ROWS;
        self.latest = self.latest.max(latest.unwrap_or_default());
        if full {
            self.write_segment::<R>()
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
        self.write_segments()?;
        self.write_run(false)
    }

    /// Puts `rows` in place of all that one table held, at once: for tables of what is so far, which hold
    /// something other at every flush. Such a table takes no pushed rows.
    ///
    /// # Errors
    /// [`Error::Write`] when the system refuses; the table then holds what it did.
    pub fn replace<R: Row>(&mut self, rows: &[R]) -> Result<(), Error> {
        debug_assert!(R::rows_mut(&mut self.pending).is_empty(), "{}", R::TABLE);
        self.segments.insert(R::TABLE, 1);
        write_rows(&segment_path(&self.dir, R::TABLE, 1), Effort::Segment, rows)
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
        macro_rules! compact_all {
            ($($table:ident: $row:ident,)+) => {
                $(compact::<$row>(&self.dir, &segments(&self.dir, $row::TABLE)?)?;)+
            };
        }
        all_tables!(compact_all);
        self.write_run(true)
    }

    fn write_segments(&mut self) -> Result<(), Error> {
        macro_rules! write_all {
            ($($table:ident: $row:ident,)+) => { $(self.write_segment::<$row>()?;)+ };
        }
        all_tables!(write_all);
        Ok(())
    }

    fn write_segment<R: Row>(&mut self) -> Result<(), Error> {
        let pending = R::rows_mut(&mut self.pending);
        if pending.is_empty() {
            return Ok(());
        }
        let number = self.segments.entry(R::TABLE).or_default();
        let path = segment_path(&self.dir, R::TABLE, *number + 1);
        write_rows(&path, Effort::Segment, pending)?;
        *number += 1;
        pending.clear();
        // A burst must not hold its memory for the rest of the recording.
        pending.shrink_to(SEGMENT_ROWS);
        Ok(())
    }

    fn write_run(&self, complete: bool) -> Result<(), Error> {
        let mut info = RunInfo {
            format_version: FORMAT_VERSION,
            complete,
            ..self.info.clone()
        };
        if !complete {
            info.end = info.end.max(self.latest);
        }
        let path = self.dir.join(RUN_FILE);
        let mut text = serde_json::to_vec_pretty(&info)
            .map_err(|e| Error::write(&path, io::Error::other(e)))?;
        text.push(b'\n');
        replace_file(&path, |mut file| {
            file.write_all(&text).map_err(|e| Error::write(&path, e))
        })
    }
}

/// Writes one table of a recording that was ended, or cut short, in place of what it held: names
/// resolved afterwards go into `objects`, `fields` and `frames` like this.
///
/// # Errors
/// As [`Recording::open`](crate::Recording::open) if `dir` is no recording, [`Error::Write`] when
/// the system refuses; the older table then stays.
pub fn write_table<R: Row>(dir: &Path, rows: &[R]) -> Result<(), Error> {
    read_run(dir)?;
    write_rows(&table_path(dir, R::TABLE), Effort::Table, rows)?;
    segments(dir, R::TABLE)?
        .iter()
        .try_for_each(|segment| remove(segment))
}

/// Says whether `dir` holds an older recording, which [`Writer::create`] with this `mode` would
/// replace, and changes nothing: for who must know before something begins that it can be recorded.
///
/// # Errors
/// Those of [`Writer::create`] as far as they can be foreseen.
pub fn check_place(dir: &Path, mode: CreateMode) -> Result<bool, Error> {
    match inspect(dir, mode) {
        Ok(found) => {
            // Whether a file can be made is known for sure only from making one.
            let trial = dir.join(format!(".trial.{}.linewise-tmp", std::process::id()));
            fs::write(&trial, b"").map_err(|e| Error::write(&trial, e))?;
            remove(&trial)?;
            Ok(found.is_recording)
        }
        // A directory that is not there is made by `Writer::create`, before anything begins.
        Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes `dir` ours: a new or empty directory, or that of an older recording.
fn claim_directory(dir: &Path, mode: CreateMode) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(Error::write(dir, e)),
        Err(_) => {}
    }
    // `run.json` goes last, by being replaced: until then the directory stays replaceable.
    let found = inspect(dir, mode)?;
    found.ours.iter().try_for_each(|path| remove(path))?;
    fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(|e| Error::write(dir, e))
}

/// What is in a directory that can be recorded into.
struct Found {
    is_recording: bool,
    /// The files of an older recording but `run.json`.
    ours: Vec<PathBuf>,
}

/// Looks at a directory that is there; an error if it cannot be recorded into.
fn inspect(dir: &Path, mode: CreateMode) -> Result<Found, Error> {
    let foreign = |reason: &str| Error::NotARecording {
        path: dir.to_owned(),
        reason: format!("{reason}, and linewise does not write over it; choose another name"),
    };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Err(foreign("a file")),
        Err(e) => return Err(Error::read(dir, e)),
    };
    let mut ours = Vec::new();
    let (mut is_recording, mut has_others) = (false, false);
    for entry in entries {
        let entry = entry.map_err(|e| Error::read(dir, e))?;
        match FileRole::of(&entry.file_name()) {
            FileRole::Run => is_recording = true,
            FileRole::Table(_) | FileRole::Segment(..) => {
                has_others = true;
                ours.push(entry.path());
            }
            // A collector killed at its start leaves nothing else.
            FileRole::Temporary => ours.push(entry.path()),
            FileRole::Foreign => has_others = true,
        }
    }
    if is_recording {
        match read_run(dir) {
            // What a later linewise wrote, or what was damaged since, is a recording too.
            Ok(_) | Err(Error::NewerFormat { .. } | Error::Damaged { .. }) => {}
            Err(Error::NotARecording { .. }) => {
                return Err(foreign("its run.json is not one of linewise"));
            }
            Err(other) => return Err(other),
        }
        if mode == CreateMode::New {
            return Err(Error::AlreadyRecorded {
                path: dir.to_owned(),
            });
        }
    } else if has_others {
        return Err(foreign("a directory of other files"));
    }
    Ok(Found { is_recording, ours })
}
