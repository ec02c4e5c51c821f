//! The benchmarks, one file each: what the threads do, how the moves of lines are counted, and
//! what that count cannot see.
//!
//! Shared lines are static variables, so that a report can name them; the bodies of the threads
//! are named functions that are never inlined, so that a profile can be read.

mod alternating;
mod false_sharing;
mod migratory;
mod point_to_point;
mod producer_consumer;
mod read_write;
mod write_volume;
mod write_volume_plain;

use crate::spec::Workload;
use crate::worker::Program;

pub(crate) fn program(workload: Workload) -> Program {
    match workload {
        Workload::WriteVolume | Workload::NoSharing | Workload::OneCpu => write_volume::PROGRAM,
        Workload::WriteVolumePlain => write_volume_plain::PROGRAM,
        Workload::FalseSharing => false_sharing::PROGRAM,
        Workload::ReadWrite => read_write::PROGRAM,
        Workload::PointToPoint => point_to_point::PROGRAM,
        Workload::Migratory => migratory::PROGRAM,
        Workload::ProducerConsumer => producer_consumer::PROGRAM,
        Workload::Alternating => alternating::PROGRAM,
    }
}
