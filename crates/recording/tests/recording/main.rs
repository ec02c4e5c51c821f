//! The tests of recordings as others see them.

/// Killed collectors and full disks.
mod deaths;
/// The rows that the tests write.
mod fixture_rows;
/// Files of any bytes.
mod hostile;
/// pyarrow, polars and DuckDB.
mod other_readers;
/// Links, other users' folders, and files that a user names.
mod places;
/// Questions in SQL with their answers.
mod questions;
/// How large a recording gets.
mod size;
/// The page about the tables.
mod tables_doc;
/// A recording of each format version.
mod versions;
/// Writing, reading back, refusing.
mod write_and_read;
