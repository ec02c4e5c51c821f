//! Reading a recording.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

use crate::damage::Damage;
use crate::error::Error;
use crate::folder::Folder;
use crate::run::{FORMAT_VERSION, RunInfo};
use crate::storage::{MOST_MEMORY, RUN_FILE, read_rows, recording_path, segments, table_path};
use crate::tables::{Loss, Row, Tables, all_tables};
use crate::values::Source;

/// `run.json` is read up to this size; it holds one command line and some facts.
const RUN_BYTES: u64 = 16 << 20;

/// A recording on disk, finished or cut short.
#[derive(Debug)]
pub struct Recording {
    dir: PathBuf,
    info: RunInfo,
    damage: Mutex<Vec<Damage>>,
}

impl Recording {
    /// Opens the recording in the directory `dir`, or under the name that [it was given](crate::recording_path). Tables are read
    /// when they are asked for.
    ///
    /// # Errors
    /// [`Error::Read`] if there is nothing, [`Error::NotARecording`] if there is something else,
    /// [`Error::NewerFormat`] or [`Error::NewerSource`] if a later linewise wrote it,
    /// [`Error::Damaged`] if its `run.json` does not hold together.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let named = recording_path(dir);
        let dir = if !dir.exists() && named.is_dir() {
            named
        } else {
            dir.to_owned()
        };
        let info = read_run(&dir)?;
        Ok(Self {
            dir,
            info,
            damage: Mutex::new(Vec::new()),
        })
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The facts of the run. `complete` is false if the recording was cut short.
    #[must_use]
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// All rows of one table, in the order of writing.
    ///
    /// A damaged segment of a recording that was cut short is left out and told by
    /// [`Recording::damage`].
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::NotARecording`] or [`Error::NewerFormat`] if the table's file
    /// is not what it should be, [`Error::MissingTable`] if the recording ended properly and it is
    /// gone, [`Error::TooLarge`] if it takes too much memory, [`Error::Read`] when the system refuses.
    pub fn read<R: Row>(&self) -> Result<Vec<R>, Error> {
        self.read_within(&mut MOST_MEMORY.clone())
    }

    /// As [`Recording::read`], with `room` bytes of memory left for rows.
    fn read_within<R: Row>(&self, room: &mut u64) -> Result<Vec<R>, Error> {
        let path = table_path(&self.dir, R::TABLE);
        match read_rows(&path, room) {
            Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
        if self.info.complete && R::expected(&self.info) {
            return Err(Error::MissingTable { path });
        }
        let mut rows = Vec::new();
        for segment in segments(&self.dir, R::TABLE)? {
            match read_rows::<R>(&segment, room) {
                Ok(more) => rows.extend(more),
                Err(error) if error.is_damage() => self.note_damage::<R>(segment, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(rows)
    }

    /// All rows of all tables. Damaged segments are rows of `losses` besides what was recorded
    /// there (`what` is `segment-unreadable`), and are listed in `damage`.
    ///
    /// # Errors
    /// As [`Recording::read`].
    pub fn tables(&self) -> Result<Tables, Error> {
        let mut tables = Tables::default();
        let mut room = MOST_MEMORY;
        macro_rules! read_all {
            ($($table:ident: $row:ident,)+) => {
                $(tables.$table = self.read_within::<crate::tables::$row>(&mut room)?;)+
            };
        }
        all_tables!(read_all);
        tables.damage = self.damage();
        tables
            .losses
            .extend(tables.damage.iter().map(|damage| Loss {
                time: self.info.end,
                tid: None,
                what: "segment-unreadable".to_owned(),
                count: 1,
                detail: format!(
                    "rows of the table {} are missing: {} is damaged ({})",
                    damage.table,
                    damage.path.display(),
                    damage.reason
                ),
            }));
        Ok(tables)
    }

    /// The segments that turned out to be unreadable so far, by [`Recording::read`].
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        self.damage
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note_damage<R: Row>(&self, path: PathBuf, error: &Error) {
        let mut known = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(|damage| damage.path == path) {
            return;
        }
        let reason = match error {
            Error::Damaged { reason, .. } | Error::NotARecording { reason, .. } => reason.clone(),
            other => other.to_string(),
        };
        known.push(Damage {
            path,
            table: R::TABLE,
            reason,
        });
    }
}

/// Reads and checks the `run.json` of `dir`.
pub(crate) fn read_run(dir: &Path) -> Result<RunInfo, Error> {
    let foreign = |reason: &str| Error::NotARecording {
        path: dir.to_owned(),
        reason: reason.to_owned(),
    };
    let path = dir.join(RUN_FILE);
    let mut text = Vec::new();
    match linewise_foreign::open(&path) {
        Ok(file) => {
            file.take(RUN_BYTES + 1)
                .read_to_end(&mut text)
                .map_err(|e| Error::read(&path, e))?;
        }
        Err(e) => {
            return Err(match (e.kind(), dir.is_dir()) {
                (io::ErrorKind::NotFound, true) => foreign("it has no run.json"),
                (io::ErrorKind::NotADirectory, _) => {
                    foreign("a file; a recording is a directory NAME.linewise")
                }
                (_, true) => Error::opening(&path, e),
                (_, false) => Error::read(dir, e),
            });
        }
    }
    if text.len() as u64 > RUN_BYTES {
        return Err(foreign("its run.json is far too large"));
    }
    parse_run(&path, &text)
}

/// As [`read_run`], of a folder that is open to be written into.
pub(crate) fn read_run_in(folder: &Folder) -> Result<RunInfo, Error> {
    let name = OsStr::new(RUN_FILE);
    let path = folder.child(name);
    let mut text = Vec::new();
    match folder.open_file(name) {
        Ok(file) => {
            file.take(RUN_BYTES)
                .read_to_end(&mut text)
                .map_err(|e| Error::read(&path, e))?;
        }
        Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NotARecording {
                path: folder.path().to_owned(),
                reason: "it has no run.json".to_owned(),
            });
        }
        Err(error) => return Err(error),
    }
    parse_run(&path, &text)
}

fn parse_run(path: &Path, text: &[u8]) -> Result<RunInfo, Error> {
    // What every version of the format has, so that a later one is recognised as such.
    #[derive(Deserialize)]
    struct Version {
        format_version: u32,
        #[serde(rename = "linewise_version")]
        _linewise_version: String,
    }

    let value: serde_json::Value =
        serde_json::from_slice(text).map_err(|e| Error::damaged(path, e))?;
    let foreign = |_| Error::NotARecording {
        path: path.to_owned(),
        reason: "it does not name a format_version and a linewise_version".to_owned(),
    };
    let version = Version::deserialize(&value)
        .map_err(foreign)?
        .format_version;
    if version > FORMAT_VERSION {
        return Err(Error::NewerFormat {
            path: path.to_owned(),
            found: version,
        });
    }
    if version == 0 {
        return Err(Error::damaged(path, "there is no format_version 0"));
    }
    if let Some(found) = value["source"].as_str()
        && Source::from_word(found).is_none()
    {
        return Err(Error::NewerSource {
            path: path.to_owned(),
            found: found.to_owned(),
        });
    }
    let info = RunInfo::deserialize(value).map_err(|e| Error::damaged(path, e))?;
    // Analyses mask addresses with it.
    if !info.line_size.is_power_of_two() || !(8..=65_536).contains(&info.line_size) {
        return Err(Error::damaged(
            path,
            format!("a line of {} bytes", info.line_size),
        ));
    }
    Ok(info)
}
