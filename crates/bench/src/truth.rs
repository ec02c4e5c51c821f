//! What a workload knows about itself when it ends.

use crate::spec::Workload;
use serde::{Deserialize, Serialize};

/// Why a line of output is no [`Truth`].
#[derive(Debug, thiserror::Error)]
#[error("the workload's output holds no line of truth ({found}); was it killed before it ended?")]
pub struct TruthError {
    found: String,
    #[source]
    source: Option<serde_json::Error>,
}

/// The transfers of one run of a workload, counted by the workload itself.
///
/// A transfer here is a line's *data* coming to a core that had no valid copy: another thread, on
/// another CPU, wrote the line since this thread's last access. A core that has a valid copy and
/// asks for the right to write it (an upgrade) gets no data and is not counted; nor is a line that
/// left a cache for lack of room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// What ran.
    pub workload: Workload,
    /// How many threads.
    pub threads: usize,
    /// The fraction asked for.
    pub fraction: f64,
    /// From the start of the workers until the flag that ended them, in seconds.
    pub seconds: f64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Accesses of the benchmark's memory, shared and private, all threads.
    pub accesses: u64,
    /// Of them to lines that other threads access too.
    pub shared_accesses: u64,
    /// Transfers by true and false sharing: the sum of `matrix` above its diagonal.
    pub transfers: u64,
    /// Of them by true sharing.
    pub transfers_true: u64,
    /// Of them by false sharing.
    pub transfers_false: u64,
    /// Changes of hand between threads on one CPU: visible by value, but no line moved.
    pub handovers_on_one_cpu: u64,
    /// Transfers between each two threads, by index, both directions together: symmetric.
    pub matrix: Vec<Vec<u64>>,
    /// Of `matrix`, those by true sharing.
    pub matrix_true: Vec<Vec<u64>>,
    /// Of `matrix`, those by false sharing.
    pub matrix_false: Vec<Vec<u64>>,
    /// The kernel's ids of the threads, by index.
    pub tids: Vec<u32>,
    /// Where each was pinned, by index; empty if they could not be.
    pub cpus: Vec<u32>,
    /// The false-sharing fraction that was configured, where the workload has one.
    pub false_fraction_configured: Option<f64>,
    /// Accesses on which a count that is a sample rests; `None` where every transfer was counted.
    pub sampled_accesses: Option<u64>,
    /// Where a count is a sample and the run has the full count of something alike: how often the
    /// line had moved in sampled accesses, over how often it had in all. 1 if looking changes
    /// nothing.
    pub sampling_check: Option<f64>,
    /// How the transfers were counted and what that cannot see.
    pub notes: Vec<String>,
    /// The first byte of every shared line.
    pub line_addresses: Vec<u64>,
}

impl Truth {
    /// One line of JSON, without its line end.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| unreachable!("plain data: {error}"))
    }

    /// Finds the truth in what a workload printed: the last line that is a JSON object.
    ///
    /// # Errors
    /// There is no such line, or it is not a truth of this version.
    pub fn from_output(output: &str) -> Result<Self, TruthError> {
        let line = output.lines().rev().find(|line| line.starts_with('{'));
        let Some(line) = line else {
            return Err(TruthError {
                found: format!("{} bytes, no JSON", output.len()),
                source: None,
            });
        };
        serde_json::from_str(line).map_err(|source| TruthError {
            found: "its JSON does not fit".to_owned(),
            source: Some(source),
        })
    }

    /// Transfers a second.
    #[must_use]
    pub fn transfers_per_second(&self) -> f64 {
        self.transfers as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Of the transfers, the share by false sharing, 0 to 1; `None` without transfers.
    #[must_use]
    pub fn false_share(&self) -> Option<f64> {
        (self.transfers > 0).then(|| self.transfers_false as f64 / self.transfers as f64)
    }

    /// What in this truth contradicts itself; empty for every proper run.
    #[must_use]
    pub fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut claim = |holds: bool, what: &str| {
            if !holds {
                found.push(what.to_owned());
            }
        };
        claim(
            self.tids.len() == self.threads,
            "as many thread ids as threads",
        );
        claim(
            self.transfers == self.transfers_true + self.transfers_false,
            "true and false transfers add up",
        );
        claim(
            self.transfers <= self.shared_accesses,
            "a transfer needs a shared access",
        );
        claim(
            self.shared_accesses <= self.accesses,
            "shared accesses are accesses",
        );
        for (matrix, sum, name) in [
            (&self.matrix, self.transfers, "matrix"),
            (&self.matrix_true, self.transfers_true, "matrix_true"),
            (&self.matrix_false, self.transfers_false, "matrix_false"),
        ] {
            let square =
                matrix.len() == self.threads && matrix.iter().all(|row| row.len() == self.threads);
            claim(
                square,
                &format!("{name} has a row and a column for each thread"),
            );
            if !square {
                continue;
            }
            let cells = || (0..matrix.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
            claim(
                cells().all(|(a, b)| matrix[a][b] == matrix[b][a]),
                &format!("{name} is symmetric"),
            );
            claim(
                (0..matrix.len()).all(|a| matrix[a][a] == 0),
                &format!("{name} has an empty diagonal"),
            );
            claim(
                cells().map(|(a, b)| matrix[a][b]).sum::<u64>() == sum,
                &format!("{name} adds up"),
            );
        }
        found
    }
}
