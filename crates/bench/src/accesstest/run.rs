//! One run: sessions walk a path for a time.

use super::error::AccesstestError;
use super::fibres::{self, Fibres};
use super::path::Path;
use super::session::{Run, SessionLog};
use super::spec::{AccesstestSpec, Mode, SessionType};
use super::threads::{self, Elsewhere, Threads};
use crate::waiting::Waiting;
use linewise_delegate::{Domain, Owned};
use linewise_machine::process::monotonic_ns;
use std::sync::Arc;
use std::sync::PoisonError;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long one that waits for sessions sleeps at a time.
const NAP: Duration = Duration::from_micros(200);

/// What a run gave.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) accesses: u64,
    /// From when the sessions were let begin until the last ended.
    pub(super) seconds: f64,
    /// The share of the CPUs' time that threads of this process waited for them, while others ran there.
    pub(super) waited: f64,
    pub(super) sessions: Vec<SessionLog>,
}

/// Sessions that were started.
enum Started {
    Threads(Threads),
    Fibres(Fibres),
    /// A client whose fibres they are.
    Client(JoinHandle<Result<(), AccesstestError>>),
}

impl Started {
    fn are_finished(&self) -> bool {
        match self {
            Self::Threads(threads) => threads.are_finished(),
            Self::Fibres(fibres) => fibres.are_finished(),
            Self::Client(client) => client.is_finished(),
        }
    }

    fn join(self) -> Result<(), AccesstestError> {
        match self {
            Self::Threads(threads) => threads.join(),
            Self::Fibres(fibres) => fibres.join(),
            Self::Client(client) => client
                .join()
                .unwrap_or(Err(AccesstestError::Session { session: 0 })),
        }
    }

    /// How many say that they are ready: sessions, or their client.
    fn expected(&self, sessions: usize) -> usize {
        match self {
            Self::Client(_) => 1,
            _ => sessions,
        }
    }
}

/// Lets sessions walk `path`. `before` is called when all are there, and they begin when it returns.
pub(super) fn execute(
    spec: &AccesstestSpec,
    path: &Arc<Path>,
    mode: Mode,
    cpus: &[u32],
    before: impl FnOnce(),
) -> Result<Outcome, AccesstestError> {
    let mut run = Run::new(Arc::clone(path), spec.sessions, spec.start);
    run.fresh = spec.fresh;
    run.logs = spec.logs_sessions;
    let run = Arc::new(run);
    let gate = run.gate.write().unwrap_or_else(PoisonError::into_inner);
    let begun = start(spec.session_type, &run, mode, cpus);
    let started = match begun {
        Ok(started) => started,
        Err(error) => {
            // Those that were started end at the first element.
            path.stop(spec.sessions);
            run.let_begin();
            return Err(error);
        }
    };
    let expected = started.expected(spec.sessions);
    while run.ready() < expected && !started.are_finished() {
        std::thread::sleep(NAP);
    }
    before();
    let waiting = Waiting::begin();
    let begin_ns = monotonic_ns();
    run.let_begin();
    drop(gate);
    let end_ns = begin_ns + (spec.seconds * 1e9) as u64;
    while monotonic_ns() < end_ns && !started.are_finished() {
        let left = Duration::from_nanos(end_ns.saturating_sub(monotonic_ns()));
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
    // Looked at while the threads are there.
    let waited = waiting.share(cpus.len());
    while !started.are_finished() {
        path.stop(spec.sessions);
        std::thread::sleep(NAP);
    }
    let joined = started.join();
    path.restore(spec.sessions);
    joined?;
    let sessions = run.told();
    if let Some(session) =
        (0..spec.sessions).find(|at| sessions.get(*at).is_none_or(|it| it.id != *at))
    {
        return Err(AccesstestError::Session { session });
    }
    let last_ns = sessions.iter().map(|log| log.end_ns).max();
    let seconds = last_ns.map_or(0, |last_ns| last_ns.saturating_sub(begin_ns)) as f64 / 1e9;
    Ok(Outcome {
        accesses: sessions.iter().map(|log| log.accesses).sum(),
        seconds,
        waited,
        sessions,
    })
}

fn start(
    session_type: SessionType,
    run: &Arc<Run>,
    mode: Mode,
    cpus: &[u32],
) -> Result<Started, AccesstestError> {
    match (session_type, mode) {
        (SessionType::Fibre, Mode::Requests) => {
            let (domain, places) = servers(cpus)?;
            let (run, cpus) = (Arc::clone(run), cpus.to_vec());
            let body = move || fibres::request(&run, &cpus, &domain, &places);
            let spawned = std::thread::Builder::new()
                .name("client".to_owned())
                .spawn(body);
            let client =
                spawned.map_err(|source| crate::PlacementError::Spawn { index: 0, source })?;
            Ok(Started::Client(client))
        }
        (SessionType::Fibre, _) => Ok(Started::Fibres(fibres::start(run, cpus, mode)?)),
        (SessionType::Thread, _) => {
            let elsewhere = match mode {
                Mode::Synchronous => Elsewhere::Nowhere,
                Mode::Delegated => Elsewhere::Move,
                Mode::Visit => Elsewhere::Visit(fibres::runtime(cpus)?),
                Mode::Requests => {
                    let (domain, places) = servers(cpus)?;
                    Elsewhere::Requests(domain, places)
                }
            };
            Ok(Started::Threads(threads::start(
                run, cpus, mode, elsewhere,
            )?))
        }
    }
}

/// A domain with a server on each CPU but the first, and something in each that requests are about.
fn servers(cpus: &[u32]) -> Result<(Domain, Vec<Owned<u64>>), AccesstestError> {
    let servers = cpus.get(1..).unwrap_or(&[]);
    let domain = Domain::dedicated(servers.len())
        .server_cpus(servers)
        .build()?;
    let places = (0..servers.len()).map(|shard| domain.own(shard, || 0));
    let places = places.collect::<Result<_, _>>()?;
    Ok((domain, places))
}
