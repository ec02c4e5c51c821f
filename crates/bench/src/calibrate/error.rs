//! Why there are no thresholds.

use crate::placement::PlacementError;

/// Why a machine could not be calibrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// Threads could not be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The kernel does not tell where this process may run.
    #[error("the kernel does not tell on which CPUs this process may run")]
    NoCpu,
    /// Somebody ended it.
    #[error("interrupted before all was measured")]
    Interrupted,
    /// A thread ended before its time.
    #[error("thread {index} ended by a panic; this is a bug, and nothing was measured")]
    Thread {
        /// Which one.
        index: usize,
    },
}
