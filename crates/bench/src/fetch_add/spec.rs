//! What is compared: the ways to increment, the operations, and the figures of an experiment.

use crate::placement::{PlacementError, usable};
use serde::{Serialize, Serializer};
use std::fmt;

/// The most variables: 2^22, as in the thesis.
pub const MAX_VARIABLES: usize = 1 << 22;
/// The most threads.
const MAX_THREADS: usize = 1024;

/// Why an experiment could not be made, or must not be believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchAddError {
    /// A number is out of range.
    #[error("{what} must be from {low} to {high}, not {given}")]
    Range {
        /// What it is the number of.
        what: &'static str,
        /// The least.
        low: f64,
        /// The most.
        high: f64,
        /// What was asked for.
        given: f64,
    },
    /// No contender is left.
    #[error("no contender matches {only:?}; there are {}", names())]
    Nobody {
        /// What was asked for.
        only: Vec<String>,
    },
    /// The threads could not be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// Delegation could not be set up.
    #[error("delegation could not be set up")]
    Delegation(#[from] linewise_delegate::Error),
    /// Increments were lost, made twice, or answered wrongly: the contender is broken, and its
    /// speed means nothing.
    #[error(
        "{contender} is broken: its threads made {operations} increments and were given {returned} in all (modulo 2^64), the variables hold {held} and would have given {owed}"
    )]
    Sum {
        /// Which one.
        contender: String,
        /// What the threads counted.
        operations: u64,
        /// What the variables hold.
        held: u64,
        /// The sum of what the threads were given.
        returned: u64,
        /// The sum of what increments of such variables return.
        owed: u64,
    },
}

/// What is done to a variable. Both add one and return what it held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Adds one: the fast server of the thesis.
    Add,
    /// Takes a square root that the new value depends on, and adds one: the slow server.
    Sqrt,
}

impl Operation {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Add, Self::Sqrt];

    /// Its name on the command line and in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sqrt => "sqrt",
        }
    }
}

/// When a thread of a flat domain serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// When its queue of pending requests is full.
    Queue,
    /// When a request finds no room.
    Blocked,
    /// The same, and what it asks of itself runs at once.
    FastPath,
    /// The same, and it serves after so many calls at the latest.
    Bound,
    /// The same, and it serves when another rings.
    Doorbell,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Queue,
        Self::Blocked,
        Self::FastPath,
        Self::Bound,
        Self::Doorbell,
    ];

    /// Its name on the command line and in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "flat-queue",
            Self::Blocked => "flat-blocked",
            Self::FastPath => "flat-fast-path",
            Self::Bound => "flat-bound",
            Self::Doorbell => "flat-doorbell",
        }
    }
}

/// A way to increment variables that threads share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `pthread_mutex_t`, one for each variable and on its line, like all locks here.
    PthreadMutex,
    /// `pthread_spinlock_t`.
    PthreadSpin,
    /// `std::sync::Mutex`.
    StdMutex,
    /// `parking_lot::Mutex`.
    ParkingLot,
    /// A ticket lock.
    Ticket,
    /// The queue lock of Mellor-Crummey and Scott.
    Mcs,
    /// An atomic instruction.
    Atomic,
    /// A crossbeam channel to each of so many servers, and one back to each client.
    Channel(usize),
    /// Synchronous delegation to so many servers in the manner of ffwd.
    Ffwd(usize),
    /// Synchronous delegation to so many servers in the manner of Gepard: fibres in each client, and four
    /// of the lines of ffwd to each server.
    Gepard(usize),
    /// Delegation to so many servers, with 64 waiting fibres in each client.
    Fibres(usize),
    /// Delegation to so many servers, one waiting call after the other.
    Waiting(usize),
    /// Asynchronous delegation of closures to so many servers.
    Closures(usize),
    /// Asynchronous delegation of a prepared operation to so many servers, in batches.
    Async(usize),
    /// The same among threads that all serve and ask.
    Flat(Policy),
}

/// Fibres of a client: as many as Gepard is fastest with.
pub(super) const FIBRES: usize = 64;

impl Method {
    /// The threads that only serve.
    #[must_use]
    pub fn servers(self) -> usize {
        match self {
            Self::Channel(servers)
            | Self::Ffwd(servers)
            | Self::Gepard(servers)
            | Self::Fibres(servers)
            | Self::Waiting(servers)
            | Self::Closures(servers)
            | Self::Async(servers) => servers,
            _ => 0,
        }
    }

    /// The name without the number of servers.
    #[must_use]
    pub fn family(self) -> &'static str {
        match self {
            Self::PthreadMutex => "pthread-mutex",
            Self::PthreadSpin => "pthread-spin",
            Self::StdMutex => "std-mutex",
            Self::ParkingLot => "parking-lot",
            Self::Ticket => "ticket",
            Self::Mcs => "mcs",
            Self::Atomic => "atomic",
            Self::Channel(_) => "channel",
            Self::Ffwd(_) => "ffwd",
            Self::Gepard(_) => "gepard",
            Self::Fibres(_) => "fibres",
            Self::Waiting(_) => "waiting",
            Self::Closures(_) => "closures",
            Self::Async(_) => "async",
            Self::Flat(policy) => policy.name(),
        }
    }

    /// Whether the number of request lines and the length of the queues make a difference.
    fn has_knobs(self) -> bool {
        self.has_queue() || matches!(self, Self::Flat(_))
    }

    /// Whether requests wait in queues: the other flat policies write request lines directly.
    fn has_queue(self) -> bool {
        matches!(
            self,
            Self::Fibres(_) | Self::Closures(_) | Self::Async(_) | Self::Flat(Policy::Queue)
        )
    }

    /// All that `threads` threads can do: those with servers once for each number in `servers`.
    fn all(threads: usize) -> Vec<Self> {
        let mut all = vec![
            Self::PthreadMutex,
            Self::PthreadSpin,
            Self::StdMutex,
            Self::ParkingLot,
            Self::Ticket,
            Self::Mcs,
            Self::Atomic,
        ];
        // A dedicated server needs a client.
        if threads >= 2 {
            let half = threads / 2;
            all.extend([
                Self::Channel(half),
                Self::Ffwd(half),
                Self::Gepard(half),
                Self::Waiting(half),
                Self::Fibres(half),
                Self::Closures(half),
            ]);
        }
        all.extend((1..threads).map(Self::Async));
        all.extend(Policy::ALL.map(Self::Flat));
        all
    }
}

fn names() -> String {
    let names: Vec<&str> = Method::all(2).into_iter().map(Method::family).collect();
    names.join(", ")
}

/// A method with its knobs: what has a line of its own in the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contender {
    /// The method.
    pub method: Method,
    /// `None` for a method that has no such knobs. They are in the name where they are not the
    /// usual ones, as in `async-1s 4+8`: 4 request lines, 8 in the queue.
    pub knobs: Option<Knobs>,
}

/// Request lines unless asked for otherwise: the choice of the thesis.
const LINES: usize = 16;

/// The knobs of asynchronous delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Knobs {
    /// Request lines between a client and a server.
    pub request_lines: usize,
    /// Lines of pending requests that a client keeps for each server; 0 writes request lines
    /// directly.
    pub queue_length: usize,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            request_lines: LINES,
            queue_length: 2 * LINES,
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = self.method.family().to_owned();
        if self.method.servers() > 0 {
            name += &format!("-{}s", self.method.servers());
        }
        if let Some(knobs) = self.knobs {
            let Knobs {
                request_lines,
                queue_length,
            } = knobs;
            if self.method.has_queue() && knobs != Knobs::default() {
                name += &format!(" {request_lines}+{queue_length}");
            } else if request_lines != LINES {
                name += &format!(" {request_lines}");
            }
        }
        f.pad(&name)
    }
}

impl Serialize for Contender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchAddSpec {
    /// Numbers of variables.
    pub variables: Vec<usize>,
    /// What is done to them.
    pub operations: Vec<Operation>,
    /// Parts of the names of the contenders; all if empty.
    pub only: Vec<String>,
    /// Threads, servers among them.
    pub threads: usize,
    /// Thread i is pinned to the CPU at i modulo their number, servers first; empty means all CPUs
    /// where this process may run.
    pub cpus: Vec<u32>,
    /// How long a sample takes, in seconds.
    pub seconds: f64,
    /// Samples of each figure.
    pub samples: usize,
    /// Numbers of request lines between a client and a server.
    pub request_lines: Vec<usize>,
    /// Lengths of a client's queue for a server, in lines, 0 for none; twice the request lines if
    /// empty.
    pub queue_lengths: Vec<usize>,
    /// Calls on the own shard after which a client serves, for the flat policy with a bound.
    pub bound: u32,
    /// Reads the clock for every line of requests, for the latency and the server's time in the
    /// statistics. Costs some speed.
    pub timed: bool,
    /// Keeps each client's requests in order, also those to different servers.
    pub ordered: bool,
    /// Seed of the random choices.
    pub seed: u64,
}

impl Default for FetchAddSpec {
    /// The experiment of the thesis: 1 to 2^22 variables in powers of four, ten samples of three
    /// seconds, as many threads as CPUs, 16 request lines.
    fn default() -> Self {
        Self {
            variables: (0..=22).step_by(2).map(|power| 1 << power).collect(),
            operations: vec![Operation::Add],
            only: Vec::new(),
            threads: linewise_machine::affinity::allowed_cpus().len().max(1),
            cpus: Vec::new(),
            seconds: 3.0,
            samples: 10,
            request_lines: vec![LINES],
            queue_lengths: Vec::new(),
            bound: 64,
            timed: false,
            ordered: false,
            seed: 1,
        }
    }
}

fn within(what: &'static str, low: f64, high: f64, given: f64) -> Result<(), FetchAddError> {
    if (low..=high).contains(&given) {
        return Ok(());
    }
    Err(FetchAddError::Range {
        what,
        low,
        high,
        given,
    })
}

/// Threads of the experiment on one CPU: two clients and two servers, or four that do both.
const CROWD: usize = 4;

impl FetchAddSpec {
    /// The same with four threads on the first CPU: how those do whose threads must take turns.
    ///
    /// # Errors
    /// [`FetchAddError::Placement`] if a CPU was asked for where this process may not run.
    pub fn on_one_cpu(&self) -> Result<Self, FetchAddError> {
        let mut cpus = usable(&self.cpus)?;
        cpus.truncate(1);
        Ok(Self {
            threads: CROWD,
            cpus,
            ..self.clone()
        })
    }

    pub(super) fn validate(&self) -> Result<(), FetchAddError> {
        within("threads", 1.0, MAX_THREADS as f64, self.threads as f64)?;
        within("seconds of a sample", 0.001, 3600.0, self.seconds)?;
        within("samples", 1.0, 10_000.0, self.samples as f64)?;
        for &variables in &self.variables {
            within("variables", 1.0, MAX_VARIABLES as f64, variables as f64)?;
        }
        within("the bound", 1.0, f64::from(u32::MAX), f64::from(self.bound))?;
        for &lines in &self.request_lines {
            within("request lines", 1.0, 32.0, lines as f64)?;
        }
        for &length in &self.queue_lengths {
            within("the length of a queue", 0.0, 65_536.0, length as f64)?;
        }
        Ok(())
    }

    /// The CPU of every thread. Empty if the kernel does not tell where this process may run.
    pub(super) fn placement(&self) -> Result<Vec<u32>, FetchAddError> {
        let cpus = usable(&self.cpus)?;
        Ok(cpus.into_iter().cycle().take(self.threads).collect())
    }

    /// Everybody who takes part, in the order of every output.
    ///
    /// # Errors
    /// If nobody does.
    pub fn contenders(&self) -> Result<Vec<Contender>, FetchAddError> {
        let mut contenders = Vec::new();
        for method in Method::all(self.threads) {
            for knobs in self.knobs(method) {
                let contender = Contender { method, knobs };
                let name = contender.to_string();
                let wanted = self.only.is_empty()
                    || self.only.iter().any(|part| name.contains(part.as_str()));
                if wanted && !contenders.contains(&contender) {
                    contenders.push(contender);
                }
            }
        }
        if contenders.is_empty() {
            return Err(FetchAddError::Nobody {
                only: self.only.clone(),
            });
        }
        Ok(contenders)
    }

    /// Every combination that makes a difference to `method`.
    fn knobs(&self, method: Method) -> Vec<Option<Knobs>> {
        if !method.has_knobs() {
            return vec![None];
        }
        let of_lines = |&request_lines: &usize| {
            let lengths = if !method.has_queue() {
                vec![0]
            } else if self.queue_lengths.is_empty() {
                vec![2 * request_lines]
            } else {
                self.queue_lengths.clone()
            };
            lengths.into_iter().map(move |queue_length| {
                Some(Knobs {
                    request_lines,
                    queue_length,
                })
            })
        };
        self.request_lines.iter().flat_map(of_lines).collect()
    }
}
