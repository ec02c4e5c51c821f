//! What to run.

use crate::placement::{PlacementError, usable};
use std::fmt;
use std::str::FromStr;

/// The most threads that a workload runs.
pub const MAX_THREADS: usize = 32;

/// Why a workload could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("there is no workload `{0}`; there are {names}", names = Workload::names())]
    UnknownWorkload(String),
    /// The number of threads is out of range.
    #[error(
        "{workload} runs 1 to {most} threads, not {threads}; give --threads a number in that range"
    )]
    Threads {
        /// The workload.
        workload: Workload,
        /// What was asked for.
        threads: usize,
        /// The most that it runs.
        most: usize,
    },
    /// The fraction is not one.
    #[error("the fraction must be from 0 to 1, not {0}")]
    Fraction(f64),
    /// The time is not one.
    #[error("the run must last more than 0 and at most 3600 seconds, not {0}")]
    Seconds(f64),
    /// The threads could not be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

macro_rules! workloads {
    ($($(#[$meta:meta])* $variant:ident = $name:literal,)+) => {
        /// A benchmark that counts its own transfers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Workload {
            $($(#[$meta])* $variant,)+
        }

        impl Workload {
            /// Every workload.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its name on the command line and in every output.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

workloads!(
    /// Every thread swaps its id into one shared word or a private one (listing 5.1). The fraction
    /// is that of the shared accesses.
    WriteVolume = "write-volume",
    /// The same with plain loads and stores: every thread loads the others' words of the shared
    /// line and stores its own.
    WriteVolumePlain = "write-volume-plain",
    /// One line where all threads write one word, one where each has a word of its own (listing
    /// 5.2). The fraction is that of accesses to the second.
    FalseSharing = "false-sharing",
    /// One thread writes, the others read or write (listing 5.3). The fraction is that of reads.
    ReadWrite = "read-write",
    /// Pairs of threads, each pair with a word of its own (listing 5.4). The fraction is that of
    /// shared accesses in the first pair; pair i has fraction / (i + 1).
    PointToPoint = "point-to-point",
    /// A line of several words that one thread after the other reads and writes. The fraction is
    /// that of accesses to it, the rest is private.
    Migratory = "migratory",
    /// Rings between pairs of threads. The fraction is that of accesses to them.
    ProducerConsumer = "producer-consumer",
    /// Write-volume with all threads on one CPU: nothing can move.
    OneCpu = "one-cpu",
    /// Write-volume without any shared access.
    NoSharing = "no-sharing",
    /// Write-volume with one thread at a time, in phases of 50 ms.
    Alternating = "alternating",
);

impl Workload {
    /// The most threads that it runs: the words of a line limit those that each need one.
    #[must_use]
    pub fn max_threads(self) -> usize {
        match self {
            Self::FalseSharing | Self::WriteVolumePlain => 8,
            _ => MAX_THREADS,
        }
    }

    fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|workload| workload.name()).collect();
        names.join(", ")
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|workload| workload.name() == name)
            .ok_or_else(|| WorkloadError::UnknownWorkload(name.to_owned()))
    }
}

/// What to run and how.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadSpec {
    /// The benchmark.
    pub workload: Workload,
    /// How many threads.
    pub threads: usize,
    /// From 0 to 1; what it is a fraction of is said at the [`Workload`].
    pub fraction: f64,
    /// For how long, in seconds.
    pub seconds: f64,
    /// Seed of the threads' private random numbers.
    pub seed: u64,
    /// Thread i is pinned to the CPU at i modulo their number; empty means all CPUs where this
    /// process may run.
    pub cpus: Vec<u32>,
}

impl WorkloadSpec {
    /// Two threads, fraction 1, one second.
    #[must_use]
    pub fn new(workload: Workload) -> Self {
        Self {
            workload,
            threads: 2,
            fraction: 1.0,
            seconds: 1.0,
            seed: 1,
            cpus: Vec::new(),
        }
    }

    /// The fraction that is in force: some workloads have no choice.
    pub(crate) fn effective_fraction(&self) -> f64 {
        match self.workload {
            Workload::NoSharing => 0.0,
            _ => self.fraction,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), WorkloadError> {
        let most = self.workload.max_threads();
        if !(1..=most).contains(&self.threads) {
            return Err(WorkloadError::Threads {
                workload: self.workload,
                threads: self.threads,
                most,
            });
        }
        if !(0.0..=1.0).contains(&self.fraction) {
            return Err(WorkloadError::Fraction(self.fraction));
        }
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return Err(WorkloadError::Seconds(self.seconds));
        }
        Ok(())
    }

    /// The CPU of every thread. Empty if the kernel does not tell where this process may run.
    pub(crate) fn placement(&self) -> Result<Vec<u32>, WorkloadError> {
        let cpus = usable(&self.cpus)?;
        let used = if self.workload == Workload::OneCpu {
            cpus.len().min(1)
        } else {
            cpus.len()
        };
        Ok(cpus
            .into_iter()
            .take(used)
            .cycle()
            .take(self.threads)
            .collect())
    }
}
