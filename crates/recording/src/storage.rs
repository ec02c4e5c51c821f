//! The files of a recording: names, permissions, atomic replacement, Parquet in and out.
//!
//! A file appears under its name only when it is whole: it is written beside it and renamed.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use arrow_array::{Array, ListArray, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::column::ColumnKind;
use crate::error::Error;
use crate::folder::{Folder, TEMPORARY};
use crate::pages;
use crate::run::FORMAT_VERSION;
use crate::tables::{Row, schema, table_columns};

/// The file that makes a directory a recording.
pub(crate) const RUN_FILE: &str = "run.json";

/// Permissions of a recording's files: the owner's alone.
pub(crate) const FILE_PERMISSIONS: u32 = 0o600;

/// Rows that are encoded or decoded together.
pub(crate) const BATCH_ROWS: usize = 8192;

/// Parquet key of the format version.
const VERSION_KEY: &str = "linewise.format_version";
/// Parquet key of the table's name.
const TABLE_KEY: &str = "linewise.table";

/// Parquet key of the length of the rows' bytes, which come first in the file, and their CRC-32.
const CHECKSUM_KEY: &str = "linewise.checksum";

/// A row group of a compacted table is closed at this size, which bounds the collector's memory.
const ROW_GROUP_BYTES: usize = 4 << 20;

/// Values that a column may claim before its file must be of some size: constant columns compress
/// to nearly nothing, but not without limit.
const VALUES_ALWAYS_ALLOWED: u64 = 1 << 20;
/// Values that a column may claim for each byte of its file.
const VALUES_PER_BYTE: u64 = 4096;

/// Memory that the rows of one file may take: something, and so much for each byte of the file.
const MEMORY_ALWAYS_ALLOWED: u64 = 256 << 20;
const MEMORY_PER_BYTE: u64 = 256;
/// Memory that the rows of a recording may take.
pub(crate) const MOST_MEMORY: u64 = 8 << 30;
/// Bytes of one column that are decoded together, at most: as many rows as could all have the longest text of a page.
const BATCH_BYTES: u64 = 512 << 20;
/// A page is written at 1 MB, or with one text that is longer.
const LARGEST_PAGE: u64 = 64 << 20;
/// Bytes of a footer: it describes each column of each row group.
const LARGEST_FOOTER: u32 = 64 << 20;

/// What a file is to a recording, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileRole {
    Run,
    Table(&'static str),
    Segment(&'static str, u32),
    Temporary,
    Foreign,
}

impl FileRole {
    pub(crate) fn of(name: &OsStr) -> Self {
        let Some(name) = name.to_str() else {
            return Self::Foreign;
        };
        if name == RUN_FILE {
            return Self::Run;
        }
        if name.starts_with('.') && name.ends_with(TEMPORARY) {
            return Self::Temporary;
        }
        let Some(stem) = name.strip_suffix(".parquet") else {
            return Self::Foreign;
        };
        let (table, number) = match stem.split_once('.') {
            Some((table, number)) => (table, Some(number)),
            None => (stem, None),
        };
        let Some(known) = table_columns()
            .into_iter()
            .find(|known| known.table == table)
        else {
            return Self::Foreign;
        };
        match number.map(str::parse) {
            None => Self::Table(known.table),
            Some(Ok(number)) => Self::Segment(known.table, number),
            Some(Err(_)) => Self::Foreign,
        }
    }
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

pub(crate) fn table_path(dir: &Path, table: &str) -> PathBuf {
    dir.join(table_name(table))
}

pub(crate) fn table_name(table: &str) -> OsString {
    OsString::from(format!("{table}.parquet"))
}

pub(crate) fn segment_name(table: &str, number: u32) -> OsString {
    OsString::from(format!("{table}.{number:06}.parquet"))
}

/// The segments of a table, in the order of writing.
///
/// # Errors
/// [`Error::Read`] if the directory cannot be listed.
pub(crate) fn segments(dir: &Path, table: &str) -> Result<Vec<PathBuf>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| Error::read(dir, e))? {
        names.push(entry.map_err(|e| Error::read(dir, e))?.file_name());
    }
    let segments = segments_of(table, names).into_iter();
    Ok(segments.map(|name| dir.join(name)).collect())
}

/// Those of the `names` that segments of a table have, in the order of writing.
pub(crate) fn segments_of(table: &str, names: Vec<OsString>) -> Vec<OsString> {
    let mut found = Vec::new();
    for name in names {
        if let FileRole::Segment(owner, number) = FileRole::of(&name)
            && owner == table
        {
            found.push((number, name));
        }
    }
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

/// How hard to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// While the target runs: cheap, and read once more soon.
    Segment,
    /// When the recording ended: kept and carried away.
    Table,
}

fn properties<R: Row>(effort: Effort) -> Result<WriterProperties, ParquetError> {
    let (compression, statistics) = match effort {
        // Setting a compressor up costs more than it could save on so few rows.
        Effort::Segment => (Compression::UNCOMPRESSED, EnabledStatistics::None),
        Effort::Table => (
            Compression::ZSTD(ZstdLevel::try_new(3)?),
            EnabledStatistics::Chunk,
        ),
    };
    let mut properties = WriterProperties::builder()
        .set_compression(compression)
        .set_statistics_enabled(statistics)
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .set_created_by(format!("linewise {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![
            KeyValue::new(VERSION_KEY.to_owned(), FORMAT_VERSION.to_string()),
            KeyValue::new(TABLE_KEY.to_owned(), R::TABLE.to_owned()),
            KeyValue::new("linewise.description".to_owned(), R::DESCRIPTION.to_owned()),
        ]));
    for column in R::columns() {
        // Times grow from row to row, and hardly any two are equal: a dictionary only costs.
        if column.kind == ColumnKind::Time {
            let path = ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(properties.build())
}

/// Writes a table batch by batch to the file `name`, readable by its owner alone.
pub(crate) fn write_batches<R: Row>(
    folder: &Folder,
    name: &OsStr,
    effort: Effort,
    batches: impl Iterator<Item = Result<RecordBatch, Error>>,
) -> Result<(), Error> {
    let path = folder.child(name);
    folder.replace(name, FILE_PERMISSIONS, |file| {
        encode::<R>(&path, file, effort, batches)
    })
}

fn encode<R: Row>(
    path: &Path,
    sink: impl Write + Send,
    effort: Effort,
    batches: impl Iterator<Item = Result<RecordBatch, Error>>,
) -> Result<(), Error> {
    let refused = |error| Error::encoding(path, R::TABLE, error);
    let properties = properties::<R>(effort).map_err(refused)?;
    let options = ArrowWriterOptions::new()
        .with_properties(properties)
        // The columns' descriptions would be half of a small segment.
        .with_skip_arrow_metadata(effort == Effort::Segment);
    let mut writer = ArrowWriter::try_new_with_options(Summing::new(sink), schema::<R>(), options)
        .map_err(refused)?;
    for batch in batches {
        writer.write(&batch?).map_err(refused)?;
    }
    // Everything but the footer, so that the footer can tell what it was.
    writer.flush().map_err(refused)?;
    writer.sync().map_err(|e| Error::write(path, e))?;
    let checksum = writer.inner().checksum();
    writer.append_key_value_metadata(KeyValue::new(CHECKSUM_KEY.to_owned(), checksum.to_string()));
    writer.close().map_err(refused)?;
    Ok(())
}

/// The length and CRC-32 of the bytes before a file's footer. Parquet itself would take a page
/// with a flipped bit for other rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checksum {
    bytes: u64,
    crc: u32,
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:08x}", self.bytes, self.crc)
    }
}

impl Checksum {
    fn parse(text: &str) -> Option<Self> {
        let (bytes, crc) = text.split_once(' ')?;
        Some(Self {
            bytes: bytes.parse().ok()?,
            crc: u32::from_str_radix(crc, 16).ok()?,
        })
    }
}

/// Passes bytes on and sums them up.
struct Summing<W> {
    sink: W,
    bytes: u64,
    crc: crc32fast::Hasher,
}

impl<W> Summing<W> {
    fn new(sink: W) -> Self {
        Self {
            sink,
            bytes: 0,
            crc: crc32fast::Hasher::new(),
        }
    }

    fn checksum(&self) -> Checksum {
        Checksum {
            bytes: self.bytes,
            crc: self.crc.clone().finalize(),
        }
    }
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.bytes += written as u64;
        self.crc.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Writes rows to the file `name`.
pub(crate) fn write_rows<R: Row>(
    folder: &Folder,
    name: &OsStr,
    effort: Effort,
    rows: &[R],
) -> Result<(), Error> {
    let batches = rows.chunks(BATCH_ROWS).map(R::to_batch);
    write_batches::<R>(folder, name, effort, batches)
}

/// Writes the rows of a table's segments to its one file, then removes the segments. Holds one
/// row group in memory.
pub(crate) fn compact<R: Row>(folder: &Folder) -> Result<(), Error> {
    let segments = segments_of(R::TABLE, folder.names()?);
    let batches = segments.iter().flat_map(|name| {
        let segment = folder.child(name);
        let opened = folder.open_file(name);
        let (batches, failure) = match opened.and_then(|file| decode::<R>(&segment, file)) {
            Ok((reader, _)) => (Some(reader), None),
            Err(error) => (None, Some(Err(error))),
        };
        batches
            .into_iter()
            .flatten()
            .map(move |batch| {
                let batch = batch.map_err(|e| Error::damaged(&segment, e))?;
                // The reader's schema carries the file's metadata too; the writer wants its own.
                RecordBatch::try_new(schema::<R>(), batch.columns().to_vec())
                    .map_err(|e| Error::damaged(&segment, e))
            })
            .chain(failure)
    });
    write_batches::<R>(folder, &table_name(R::TABLE), Effort::Table, batches)?;
    segments
        .iter()
        .try_for_each(|segment| folder.remove_file(segment))
}

/// All rows of a file, which may take `room` bytes of memory; that is then less by as much as they take.
///
/// # Errors
/// [`Error::Damaged`], [`Error::NotARecording`] or [`Error::NewerFormat`] for bytes that are not
/// this table, whatever they are; [`Error::TooLarge`]; [`Error::Read`] when the system refuses.
pub(crate) fn read_rows<R: Row>(path: &Path, room: &mut u64) -> Result<Vec<R>, Error> {
    // The Parquet decoder asserts some of what it expects of a file. The bytes are a stranger's,
    // so a failed assertion is damage of this file and not the end of the program.
    catch_unwind(AssertUnwindSafe(|| {
        let file = linewise_foreign::open(path).map_err(|e| Error::opening(path, e))?;
        let size = file.metadata().map_err(|e| Error::read(path, e))?.len();
        let allowed = (*room).min(memory_allowed(size));
        let mut left = allowed;
        let too_large = || Error::too_large(path, allowed);
        let mut rows = Vec::new();
        let (batches, version) = decode::<R>(path, file)?;
        for batch in batches {
            let batch = batch.map_err(|e| Error::decoding(path, ParquetError::from(e)))?;
            left = left
                .checked_sub(memory_of::<R>(&batch))
                .ok_or_else(too_large)?;
            rows.extend(R::from_batch(&batch, version).map_err(|error| match error {
                Error::Damaged { reason, .. } => Error::damaged(path, reason),
                other => other,
            })?);
        }
        *room -= allowed - left;
        Ok(rows)
    }))
    .unwrap_or_else(|_| Err(Error::damaged(path, "the Parquet decoder gave up on it")))
}

/// Memory that the rows of a file of `size` bytes may take.
fn memory_allowed(size: u64) -> u64 {
    MEMORY_ALWAYS_ALLOWED.saturating_add(size.saturating_mul(MEMORY_PER_BYTE))
}

/// Memory that the rows of a batch take.
fn memory_of<R: Row>(batch: &RecordBatch) -> u64 {
    let behind = batch.columns().iter().map(|column| {
        let column = column.as_any();
        if let Some(texts) = column.downcast_ref::<StringArray>() {
            texts.value_data().len()
        } else if let Some(lists) = column.downcast_ref::<ListArray>() {
            lists.values().len() * size_of::<u64>()
        } else {
            0
        }
    });
    (batch.num_rows() * size_of::<R>() + behind.sum::<usize>()) as u64
}

/// The batches of a file that is open, called `path` in errors, and its format.
fn decode<R: Row>(path: &Path, file: File) -> Result<(ParquetRecordBatchReader, u32), Error> {
    let size = file.metadata().map_err(|e| Error::read(path, e))?.len();
    check_footer(path, &file, size)?;
    // The types follow from Parquet's own schema; the Arrow schema beside it is for others, and
    // one more parser of foreign bytes.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let clone = || file.try_clone().map_err(|e| Error::read(path, e));
    let (bytes, headers) = (clone()?, clone()?);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
        .map_err(|e| Error::decoding(path, e))?;
    let version = check_identity::<R>(path, builder.metadata())?;
    check_size::<R>(path, builder.metadata(), size)?;
    check_bytes(path, builder.metadata(), bytes)?;
    let rows = rows_at_once(path, builder.metadata(), &headers)?;
    let batches = builder.with_batch_size(rows).build();
    Ok((batches.map_err(|e| Error::decoding(path, e))?, version))
}

/// How many rows to decode together. Refuses pages that are larger than any that is written.
fn rows_at_once(path: &Path, metadata: &ParquetMetaData, file: &File) -> Result<usize, Error> {
    let mut largest = 1;
    for column in metadata.row_groups().iter().flat_map(|it| it.columns()) {
        let (start, length) = column.byte_range();
        let pages = pages::sizes(file, start, length)
            .ok_or_else(|| Error::damaged(path, "a column that has no pages"))?;
        if pages.largest > LARGEST_PAGE {
            return Err(Error::too_large(path, LARGEST_PAGE));
        }
        largest = largest.max(pages.largest);
    }
    let rows = usize::try_from(BATCH_BYTES / largest).unwrap_or(BATCH_ROWS);
    Ok(rows.clamp(1, BATCH_ROWS))
}

/// Refuses a footer that is larger than any that is written: its parts take many times its bytes.
fn check_footer(path: &Path, file: &File, size: u64) -> Result<(), Error> {
    let mut end = [0; 8];
    let Some(at) = size.checked_sub(8) else {
        return Err(Error::damaged(path, "it is too short for a table"));
    };
    file.read_exact_at(&mut end, at)
        .map_err(|e| Error::read(path, e))?;
    let [a, b, c, d, ..] = end;
    if u32::from_le_bytes([a, b, c, d]) > LARGEST_FOOTER {
        return Err(Error::damaged(path, "its footer is far too large"));
    }
    Ok(())
}

fn value<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

/// The format of a file that linewise wrote for this table.
fn check_identity<R: Row>(path: &Path, metadata: &ParquetMetaData) -> Result<u32, Error> {
    let foreign = |reason: String| Error::NotARecording {
        path: path.to_owned(),
        reason,
    };
    let version = value(metadata, VERSION_KEY)
        .and_then(|version| version.parse::<u32>().ok())
        .filter(|version| *version > 0)
        .ok_or_else(|| foreign("a Parquet file that linewise did not write".to_owned()))?;
    if version > FORMAT_VERSION {
        return Err(Error::NewerFormat {
            path: path.to_owned(),
            found: version,
        });
    }
    match value(metadata, TABLE_KEY) {
        Some(table) if table == R::TABLE => Ok(version),
        table => Err(foreign(format!(
            "it holds the table {:?}, not {:?}",
            table.unwrap_or_default(),
            R::TABLE
        ))),
    }
}

/// Refuses a file whose rows are not the bytes that were written.
fn check_bytes(path: &Path, metadata: &ParquetMetaData, mut file: File) -> Result<(), Error> {
    let written = value(metadata, CHECKSUM_KEY)
        .and_then(Checksum::parse)
        .ok_or_else(|| Error::damaged(path, "its checksum is missing"))?;
    file.rewind().map_err(|e| Error::read(path, e))?;
    let mut sum = Summing::new(io::sink());
    io::copy(&mut file.take(written.bytes), &mut sum).map_err(|e| Error::read(path, e))?;
    if sum.checksum() == written {
        Ok(())
    } else {
        Err(Error::damaged(
            path,
            "its bytes are not those that were written",
        ))
    }
}

/// Refuses a small file that claims to hold more than memory, or parts at negative places.
fn check_size<R: Row>(path: &Path, metadata: &ParquetMetaData, size: u64) -> Result<(), Error> {
    let lists = R::columns()
        .iter()
        .any(|column| column.kind == ColumnKind::Addresses);
    let memory = memory_allowed(size);
    let allowed = VALUES_ALWAYS_ALLOWED.saturating_add(size.saturating_mul(VALUES_PER_BYTE));
    let mut rows = 0_u64;
    for group in metadata.row_groups() {
        let negative = group.columns().iter().any(|column| {
            let dictionary = column.dictionary_page_offset().unwrap_or(0);
            column
                .data_page_offset()
                .min(dictionary)
                .min(column.compressed_size())
                < 0
        });
        if negative {
            return Err(Error::damaged(path, "a column at a negative place"));
        }
        let group_rows = u64::try_from(group.num_rows()).unwrap_or(u64::MAX);
        rows = rows.saturating_add(group_rows);
        let values = group
            .columns()
            .iter()
            .map(|column| column.num_values())
            .max()
            .unwrap_or(0);
        let values = u64::try_from(values).unwrap_or(u64::MAX);
        if rows > allowed || values > allowed {
            return Err(Error::damaged(
                path,
                format!(
                    "{size} bytes cannot hold the {} values that it claims",
                    values.max(rows)
                ),
            ));
        }
        // A list is decoded as one, however long it is.
        let of_lists = if lists { values } else { 0 };
        let least = rows.saturating_mul(size_of::<R>() as u64);
        if least.max(of_lists.saturating_mul(8)) > memory {
            return Err(Error::too_large(path, memory));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Loss;
    use crate::values::{Tid, Time};

    /// Accepts some bytes, then is full.
    struct SmallDisk {
        left: usize,
    }

    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.left < bytes.len() {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            self.left -= bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Writes a table of as many batches as are asked for, all alike, and reads it.
    fn read_back(batch: &[Loss], times: usize) -> Result<Vec<Loss>, Error> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("losses.parquet");
        let batch = Loss::to_batch(batch).unwrap();
        let batches = std::iter::repeat_n(batch, times).map(Ok);
        let file = File::create(&path).unwrap();
        encode::<Loss>(&path, &file, Effort::Table, batches).unwrap();
        let mut room = MOST_MEMORY;
        let rows = read_rows(&path, &mut room);
        let taken = MOST_MEMORY - room;
        assert_eq!(taken > 0, rows.is_ok());
        rows
    }

    fn with_text(bytes: usize) -> Loss {
        Loss {
            detail: "x".repeat(bytes),
            ..losses(1).remove(0)
        }
    }

    #[test]
    fn a_small_file_cannot_unfold_into_all_memory() {
        let too_large = |read: Result<Vec<Loss>, Error>| {
            let error = read.unwrap_err();
            assert!(matches!(error, Error::TooLarge { .. }), "{error}");
        };
        // Rows that are all the same.
        too_large(read_back(&vec![losses(1).remove(0); BATCH_ROWS], 600));
        // One text, named over and over.
        too_large(read_back(&vec![with_text(256 << 10); 64], 32));
        // One page.
        too_large(read_back(&[with_text(LARGEST_PAGE as usize + 1)], 1));
        // And what is well below stays whole.
        assert_eq!(
            read_back(&vec![with_text(256 << 10); 64], 4).unwrap().len(),
            256
        );
        assert_eq!(read_back(&losses(100), 100).unwrap().len(), 10_000);
    }

    fn losses(count: u64) -> Vec<Loss> {
        (0..count)
            .map(|i| Loss {
                time: Time(i),
                tid: (i % 2 == 0).then_some(Tid(7)),
                what: "ring-buffer-full".to_owned(),
                count: i,
                detail: format!("the {i}th"),
            })
            .collect()
    }

    #[test]
    fn a_full_disk_is_named_wherever_it_strikes() {
        let path = Path::new("trial.linewise/losses.000001.parquet");
        let rows = losses(1000);
        let mut refused = 0;
        for left in (0..20_000).step_by(512) {
            let batches = rows.chunks(100).map(Loss::to_batch);
            match encode::<Loss>(path, SmallDisk { left }, Effort::Segment, batches) {
                Err(error @ Error::Write { .. }) => {
                    let text = error.to_string();
                    assert!(text.contains("losses.000001.parquet"), "{text}");
                    assert!(text.contains("the disk is full"), "{text}");
                    refused += 1;
                }
                Err(other) => panic!("{left} bytes left: {other}"),
                Ok(()) => assert!(left > 4000, "a disk of {left} bytes held all"),
            }
        }
        assert!(refused > 4, "only {refused} disks were too small");
    }

    #[test]
    fn a_file_name_tells_what_the_file_is() {
        let role = |name: &str| FileRole::of(OsStr::new(name));
        assert_eq!(role("run.json"), FileRole::Run);
        assert_eq!(role("samples.parquet"), FileRole::Table("samples"));
        assert_eq!(
            role("samples.000012.parquet"),
            FileRole::Segment("samples", 12)
        );
        assert_eq!(
            role(".samples.parquet.77.linewise-tmp"),
            FileRole::Temporary
        );
        for foreign in [
            "notes.txt",
            "other.parquet",
            "samples.x.parquet",
            ".hidden",
            "samples",
        ] {
            assert_eq!(role(foreign), FileRole::Foreign, "{foreign}");
        }
    }

    #[test]
    fn a_failed_write_leaves_the_older_file_and_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let path = table_path(dir.path(), "losses");
        let folder = Folder::open(dir.path()).unwrap();
        write_rows(&folder, &table_name("losses"), Effort::Table, &losses(3)).unwrap();
        let failed = write_batches::<Loss>(
            &folder,
            &table_name("losses"),
            Effort::Table,
            [Err(Error::damaged(&path, "on purpose"))].into_iter(),
        );
        assert!(failed.is_err());
        assert_eq!(
            read_rows::<Loss>(&path, &mut MOST_MEMORY.clone()).unwrap(),
            losses(3)
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
