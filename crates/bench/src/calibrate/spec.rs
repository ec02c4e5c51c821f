//! How much is measured.

use std::time::Duration;

/// How thoroughly a machine is calibrated.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationSpec {
    /// Computation between two shared accesses of a loop, ns; 0 is Hubench.
    pub pauses_ns: Vec<u64>,
    /// Seconds of a run of two threads that share.
    pub sharing_seconds: f64,
    /// Runs of each of its figures.
    pub sharing_repeats: usize,
    /// Seconds of a run of tasks that copy memory.
    pub memory_seconds: f64,
    /// Runs of each of its figures.
    pub memory_repeats: usize,
    /// Numbers of tasks that are measured, at most.
    pub task_counts: usize,
    /// Bytes that are copied from and to, at most.
    pub memory_bytes: u64,
    /// No repeat begins later; the first is always made whole.
    pub limit: Duration,
}

impl CalibrationSpec {
    /// Under 60 s on any machine.
    #[must_use]
    pub fn thorough() -> Self {
        Self {
            pauses_ns: vec![0, 50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600],
            sharing_seconds: 0.06,
            sharing_repeats: 7,
            memory_seconds: 0.2,
            memory_repeats: 5,
            task_counts: 10,
            memory_bytes: 4 << 30,
            limit: Duration::from_secs(45),
        }
    }

    /// About 10 s.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            pauses_ns: vec![0, 100, 400, 1600, 6400, 25_600],
            sharing_seconds: 0.03,
            sharing_repeats: 3,
            memory_seconds: 0.1,
            memory_repeats: 3,
            task_counts: 4,
            memory_bytes: 1 << 30,
            limit: Duration::from_secs(7),
        }
    }
}
