//! Where threads should run: near those that they share cache lines with, far from those that they contend with for
//! memory, and otherwise where they are.
//!
//! [`decide`](decide()) is pure. It takes what was seen of the tasks in an interval ([`Snapshot`]), the shape of the
//! machine ([`Machine`]) and what is remembered of earlier intervals ([`History`]), and says what to move, each move
//! with its reason. It is SAM's algorithm (Srikanthan, Dwarkadas, Shen: Data Sharing or Resource Contention, USENIX
//! ATC 2015, figures 3 and 4), for every level of the machine and not for sockets alone; with the hysteresis of its
//! successor SAM-MPH; and where it is known who shares with whom, it brings together those who share with each other.
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

mod categories;
mod counters;
mod decide;
mod events;
mod groups;
mod history;
mod machine;
mod memory;
mod plan;
mod seats;
mod snapshot;
mod thresholds_file;

pub use decide::decide;
pub use events::{Counts, IntelCounts, ZenCounts};
pub use groups::groups;
pub use history::History;
pub use machine::{Crossing, Level, LevelKind, Machine};
pub use plan::{Move, Reason};
pub use seats::apart;
pub use snapshot::{Activity, BUSY, Mask, Sharing, Snapshot, Task, TaskKey, Thresholds};
pub use thresholds_file::{Origin, OriginKind, Origins, ThresholdsFile, ThresholdsFileError};
