//! What the view needs.

use linewise_recording::{RunInfo, Tables};
use linewise_topology::Topology;

use super::super::sharing::{SharingView, ThreadTime};

/// What the view needs.
#[derive(Clone, Copy, Debug)]
pub struct GroupsInput<'a> {
    /// `run.json`.
    pub info: &'a RunInfo,
    /// The tables.
    pub tables: &'a Tables,
    /// What view `sharing` found.
    pub sharing: &'a SharingView,
    /// Thread time of the run.
    pub time: &'a ThreadTime,
    /// The machine that threads are to be placed on, where it is known.
    pub machine: Option<&'a Topology>,
}
