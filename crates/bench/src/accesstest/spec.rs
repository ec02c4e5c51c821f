//! What is asked for.

use super::characters::{Characteristics, number};
use super::error::{AccesstestError, count_within, within};
use crate::placement::usable;
use serde::Serialize;

/// The most sessions.
pub const MAX_SESSIONS: usize = 10_000;

/// How the phases are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each CPU executes all phases of its part of the sessions.
    Synchronous,
    /// Each CPU executes some phases of all sessions, and sessions move from one to the next.
    Delegated,
    /// Sessions stay on the first CPU and ship the phases of other CPUs there as closures.
    Visit,
    /// Sessions stay on the first CPU, and the phases of other CPUs are requests to servers there.
    Requests,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Synchronous,
        Self::Delegated,
        Self::Visit,
        Self::Requests,
    ];

    /// Its name on the command line and in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Synchronous => "synchronous",
            Self::Delegated => "delegated",
            Self::Visit => "visit",
            Self::Requests => "requests",
        }
    }
}

/// What a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionType {
    /// A thread of the kernel.
    Thread,
    /// A user thread.
    Fibre,
}

/// Where sessions begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// All with the phase of this index.
    Phase(usize),
    /// Spread evenly over the phases.
    Spread,
}

impl Start {
    pub(super) fn of(self, session: usize, phases: usize) -> usize {
        match self {
            Self::Phase(phase) => phase,
            Self::Spread => session % phases,
        }
    }
}

/// A path to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What the phases access.
    pub characteristics: Characteristics,
    /// The share of accesses that are to write, as asked for, in percent; `None` where it differs from phase to
    /// phase.
    pub update_percent: Option<f64>,
}

/// An access test: paths, and how sessions walk them.
#[derive(Clone, Debug, PartialEq)]
pub struct AccesstestSpec {
    /// The paths.
    pub cases: Vec<Case>,
    /// How the phases are executed; in every way that the CPUs and the paths allow if empty.
    pub modes: Vec<Mode>,
    /// What sessions are.
    pub session_type: SessionType,
    /// How many sessions.
    pub sessions: usize,
    /// Where they begin.
    pub start: Start,
    /// How long a run takes, in seconds.
    pub seconds: f64,
    /// Runs of each figure.
    pub repeats: usize,
    /// Seed of the path of the first run of each figure; the next have the next seeds.
    pub seed: u64,
    /// The CPUs, in the order of the phases; the first two where this process may run if empty.
    pub cpus: Vec<u32>,
    /// Sessions allocate their own lines anew in each iteration.
    pub fresh: bool,
    /// The caches are wiped before each run.
    pub wipes: bool,
    /// Runs whose threads waited for the CPUs for a larger share of the time, in percent, are in no figure.
    pub quiet_percent: f64,
    /// The first run begins when SIGUSR1 comes.
    pub on_signal: bool,
    /// Keeps what [`SessionLog`](super::SessionLog) tells of each session.
    pub logs_sessions: bool,
}

impl Default for AccesstestSpec {
    /// A hundred fibres, all beginning with the first phase; five runs of a second; no path yet.
    fn default() -> Self {
        Self {
            cases: Vec::new(),
            modes: Vec::new(),
            session_type: SessionType::Fibre,
            sessions: 100,
            start: Start::Phase(0),
            seconds: 1.0,
            repeats: 5,
            seed: 5489,
            cpus: Vec::new(),
            fresh: false,
            wipes: true,
            quiet_percent: f64::INFINITY,
            on_signal: false,
            logs_sessions: false,
        }
    }
}

/// CPUs if none are named: the two of the thesis.
const CPUS: usize = 2;

impl AccesstestSpec {
    /// The seconds of a run as they are written.
    ///
    /// # Errors
    /// [`AccesstestError::Range`], or [`AccesstestError::Syntax`] for what is no number.
    pub fn seconds_of(written: &str) -> Result<f64, AccesstestError> {
        let seconds = number(written, written, ("number of seconds", "0.5"))?;
        Self::check_seconds(seconds, written)?;
        Ok(seconds)
    }

    fn check_seconds(seconds: f64, written: &str) -> Result<(), AccesstestError> {
        within("seconds of a run", (0.001, 86_400.0), seconds, written)
    }

    pub(super) fn validate(&self) -> Result<(), AccesstestError> {
        count_within("sessions", 1, MAX_SESSIONS, self.sessions)?;
        Self::check_seconds(self.seconds, &self.seconds.to_string())?;
        count_within("runs of a figure", 1, 10_000, self.repeats)?;
        for case in &self.cases {
            case.characteristics.check()?;
            let phases = case.characteristics.phases.len();
            match self.start {
                Start::Phase(phase) if phase >= phases => {
                    return Err(AccesstestError::NoPhase { phase, phases });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The CPUs in use.
    pub(super) fn placement(&self) -> Result<Vec<u32>, AccesstestError> {
        let mut cpus = usable(&self.cpus)?;
        if self.cpus.is_empty() {
            cpus.truncate(CPUS);
        }
        if cpus.is_empty() {
            cpus.push(0); // The kernel does not tell; there is one.
        }
        Ok(cpus)
    }

    /// The modes that there are on these CPUs, and why others are left out.
    ///
    /// # Errors
    /// If one was asked for that there is not.
    pub(super) fn modes_on(
        &self,
        cpus: &[u32],
    ) -> Result<(Vec<Mode>, Option<String>), AccesstestError> {
        let is_one_phase = |case: &Case| case.characteristics.phases.len() < 2;
        let refusal = |mode: Mode| match mode {
            Mode::Synchronous => None,
            _ if cpus.len() < 2 => Some(AccesstestError::OneCpu {
                mode: mode.name(),
                cpus: cpus.to_vec(),
            }),
            _ if self.cases.iter().any(is_one_phase) => {
                Some(AccesstestError::OnePhase { mode: mode.name() })
            }
            _ => None,
        };
        if self.modes.is_empty() {
            let why = refusal(Mode::Delegated).map(|error| error.to_string());
            let modes = Mode::ALL
                .into_iter()
                .filter(|mode| refusal(*mode).is_none());
            return Ok((modes.collect(), why));
        }
        match self.modes.iter().find_map(|mode| refusal(*mode)) {
            Some(error) => Err(error),
            None => Ok((self.modes.clone(), None)),
        }
    }
}
