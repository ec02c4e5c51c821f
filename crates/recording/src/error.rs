//! What can go wrong with a recording, and what the user can do about it.

use std::io;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

use crate::run::FORMAT_VERSION;

/// Why a recording could not be written or read.
///
/// The text of an error does not repeat its source: print the whole chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The place is taken by a recording, and nobody asked for it to be replaced.
    #[error(
        "{} already holds a recording; choose another name, remove it, or ask for it to be replaced",
        path.display()
    )]
    AlreadyRecorded {
        /// The directory.
        path: PathBuf,
    },

    /// The place is something else than a recording.
    #[error("{} is not a linewise recording: {reason}", path.display())]
    NotARecording {
        /// The directory or file.
        path: PathBuf,
        /// What was found instead.
        reason: String,
    },

    /// The recording was written by a later linewise.
    #[error(
        "{} has recording format {found}, this linewise reads up to {FORMAT_VERSION}; read it with the linewise that wrote it, or a later one",
        path.display()
    )]
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// The version it names.
        found: u32,
    },

    /// The rows come from a source that only a later linewise has.
    #[error(
        "{} was recorded with the source {found:?}, which this linewise does not know; read it with the linewise that wrote it, or a later one",
        path.display()
    )]
    NewerSource {
        /// The file that says so.
        path: PathBuf,
        /// The source it names.
        found: String,
    },

    /// A file of the recording does not hold what it should.
    #[error(
        "{} is damaged ({reason}); copy the recording again, or record again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// The rows of a file of the recording take more memory than a file of its size, or the recording, may.
    #[error(
        "{} is too large: its rows would take more than {} MB of memory; record for a shorter time, or get it again from whoever made it",
        path.display(),
        bytes / 1_000_000
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What they may take, in bytes.
        bytes: u64,
    },

    /// A recording that ended properly lacks one of its tables.
    #[error("{} is missing; copy the recording again, or record again", path.display())]
    MissingTable {
        /// The file that should be there.
        path: PathBuf,
    },

    /// The operating system refused to write.
    #[error("cannot write {}{}", path.display(), write_hint(source))]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },

    /// The operating system refused to read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },

    /// The place belongs to another user.
    #[error(
        "{} belongs to another user (id {owner}), who could have put it there to lead linewise elsewhere; remove it, choose another name, or run linewise as that user",
        path.display()
    )]
    OtherOwner {
        /// The file, folder or link.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
    },

    /// The place is a link.
    #[error(
        "{} is a link, and a recording is written through none; name the folder that it leads to, or remove it",
        path.display()
    )]
    Link {
        /// The link.
        path: PathBuf,
    },

    /// Rows could not be turned into Parquet: a defect of linewise.
    #[error("cannot encode rows of the table {table}: {reason}; please report this")]
    Encode {
        /// The table.
        table: &'static str,
        /// What the encoder says.
        reason: String,
    },
}

impl Error {
    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        Self::Write {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            source,
        }
    }

    /// The error of opening `path`: what is no regular file is no part of a recording.
    pub(crate) fn opening(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::InvalidInput => Self::NotARecording {
                path: path.to_owned(),
                reason: source.to_string(),
            },
            _ => Self::read(path, source),
        }
    }

    pub(crate) fn too_large(path: &Path, bytes: u64) -> Self {
        Self::TooLarge {
            path: path.to_owned(),
            bytes,
        }
    }

    pub(crate) fn damaged(path: &Path, reason: impl ToString) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// The error of encoding into `path`: a full disk reaches us wrapped by the Parquet writer.
    pub(crate) fn encoding(path: &Path, table: &'static str, error: ParquetError) -> Self {
        match into_io(error) {
            Ok(source) => Self::write(path, source),
            Err(other) => Self::Encode {
                table,
                reason: other.to_string(),
            },
        }
    }

    /// The error of decoding `path`: bad bytes are damage, a bad disk is a failed read.
    pub(crate) fn decoding(path: &Path, error: ParquetError) -> Self {
        match into_io(error) {
            // A file cut short fails like this in the middle of a page.
            Ok(source)
                if source.kind() != io::ErrorKind::UnexpectedEof
                    && source.raw_os_error().is_some() =>
            {
                Self::read(path, source)
            }
            Ok(source) => Self::damaged(path, source),
            Err(other) => Self::damaged(path, other),
        }
    }

    /// Whether the file itself is at fault, so that its neighbours can still be read.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Damaged { .. } | Self::NotARecording { .. } | Self::TooLarge { .. }
        )
    }
}

fn into_io(error: ParquetError) -> Result<io::Error, ParquetError> {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(source) => Ok(*source),
            Err(inner) => Err(ParquetError::External(inner)),
        },
        other => Err(other),
    }
}

fn write_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull => {
            ": the disk is full; free some space or record elsewhere; what was flushed before can still be read"
        }
        io::ErrorKind::FileTooLarge => {
            ": files may not become so large here (`ulimit -f`); raise the limit; what was flushed before can still be read"
        }
        io::ErrorKind::QuotaExceeded => {
            ": your disk quota is used up; free some space or record elsewhere; what was flushed before can still be read"
        }
        io::ErrorKind::ReadOnlyFilesystem => ": the file system is read-only; record elsewhere",
        io::ErrorKind::PermissionDenied => ": no permission; record in a directory of your own",
        io::ErrorKind::NotFound => ": the directory around it does not exist; create it first",
        _ => "",
    }
}
