//! The recording: the wall between collecting and analysing.
//!
//! A recording is a directory `NAME.linewise/` with `run.json` ([`RunInfo`]) and one Parquet file
//! for each table ([`table_columns`] lists them all; [`RunFacts`] is `run.json` for who reads Parquet). Its rows are raw facts: nothing in them is
//! interpreted, and no part of Linux is needed to read them.
//!
//! - [`Writer`] writes one while the target runs, in batches: what was flushed survives the death
//!   of the collector.
//! - [`write_table`] adds the names that were resolved when the recording ended.
//! - [`Recording`] reads one, whole or cut short, and [`Tables`] holds all its rows.
//!
//! ```
//! use linewise_recording::{CreateMode, Recording, RunInfo, Switch, Writer};
//! use linewise_recording::{CpuId, Overhead, Pid, Source, Tid, Time};
//!
//! # let directory = tempfile::tempdir()?;
//! # let dir = &directory.path().join("trial.linewise");
//! let mut info = RunInfo {
//!     format_version: linewise_recording::FORMAT_VERSION,
//!     id: "8f14e45fceea167a5a36dedd4bea2543".into(),
//!     linewise_version: "0.1.0".into(),
//!     complete: false,
//!     command: vec!["./counters".into(), "--threads=2".into()],
//!     pid: Pid(100),
//!     launched: true,
//!     source: Source::Timer,
//!     source_reason: "no PMU".into(),
//!     start: Time(1_000),
//!     end: Time(1_000),
//!     ended_by: String::new(),
//!     exit_code: None,
//!     exit_signal: None,
//!     line_size: 64,
//!     cpus: 2,
//!     watchpoint_bytes: 32,
//!     host: "tower".into(),
//!     boot_id: String::new(),
//!     cpu_model: "AMD EPYC".into(),
//!     hypervisor: "KVM".into(),
//!     kernel: "6.18".into(),
//!     skid_rule: "next".into(),
//!     exposure_offset_ns: 0.0,
//!     trap_delay_ns: 0.0,
//!     overhead: Overhead::default(),
//!     exact: None,
//!     reuse: None,
//!     heap: None,
//!     caches: Vec::new(),
//! };
//! let mut writer = Writer::create(dir, &info, CreateMode::New)?;
//! writer.push([Switch { tid: Tid(101), cpu: CpuId(1), start: Time(1_000), end: Time(5_000) }])?;
//! writer.flush()?; // From here on the row is safe.
//! info.end = Time(9_000);
//! info.ended_by = "target-exited".into();
//! writer.finish(&info)?;
//!
//! let recording = Recording::open(dir)?;
//! assert!(recording.info().complete);
//! assert_eq!(recording.read::<Switch>()?[0].cpu, CpuId(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

mod column;
mod damage;
mod error;
mod folder;
mod outlet;
mod pages;
mod recording;
mod run;
mod shared;
mod storage;
mod tables;
mod values;
mod writer;

pub use column::{Column, ColumnKind};
pub use damage::Damage;
pub use error::Error;
pub use folder::{Folder, Found};
pub use outlet::{Outlet, write_file};
pub use recording::Recording;
pub use run::*;
pub use shared::SharedMemory;
pub use storage::recording_path;
pub use tables::*;
pub use values::*;
pub use writer::{CreateMode, Writer, check_place, write_table};
