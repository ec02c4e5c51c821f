//! From a recording to a report: resolve addresses, compute views, rank findings, print.
//!
//! ```text
//! Sample, Trap ── resolve ──► names (tables objects, fields, frames)
//!       └──────── views ────► lines that moved ── advice ──► Finding ── report ──► text, HTML, JSON
//! ```
//!
//! Everything here is pure: tables in, plain values out. Only `resolve` looks at files, through
//! a trait, and only renderers in [`report`] know how things look.
//!
//! ```no_run
//! use std::path::Path;
//! let recording = linewise_recording::Recording::open(Path::new("run.linewise"))?;
//! let tables = recording.tables()?;
//! let report = linewise_analysis::analyse(recording.info(), &tables);
//! println!("{}", linewise_analysis::report::json::render(&report));
//! # Ok::<(), linewise_recording::Error>(())
//! ```

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

pub mod advice;
mod analyse;
mod command;
mod details;
pub mod diff;
mod group_threads;
mod locality;
mod lock_names;
pub mod model;
mod own_code;
pub mod quantity;
mod replaced;
pub mod report;
pub mod resolve;
mod runtime;
pub mod section;
mod users;
pub mod views;

pub use analyse::{analyse, analyse_for_page, analyse_with};
pub use details::{Details, Excerpt, ExcerptRow};
pub use diff::diff;
pub use group_threads::group_threads;
pub use views::sampled_reuse::ExactCounts;
