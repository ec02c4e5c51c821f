//! Sessions that are threads of the kernel.

use super::error::AccesstestError;
use super::session::{Run, Session, name};
use super::spec::Mode;
use crate::placement::{PlacementError, pin};
use linewise_delegate::{Domain, Owned};
use linewise_fibres::Runtime;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Where the phases of other CPUs are executed.
pub(super) enum Elsewhere {
    /// On the thread's own CPU, all of them.
    Nowhere,
    /// The thread moves.
    Move,
    /// By a fibre in the pool of its CPU.
    Visit(Runtime),
    /// By the server of its CPU.
    Requests(Domain, Vec<Owned<u64>>),
}

/// Threads that were started.
pub(super) struct Threads {
    handles: Vec<JoinHandle<()>>,
    failure: Arc<Mutex<Option<AccesstestError>>>,
}

/// Starts a thread for each session.
pub(super) fn start(
    run: &Arc<Run>,
    cpus: &[u32],
    mode: Mode,
    elsewhere: Elsewhere,
) -> Result<Threads, AccesstestError> {
    let failure = Arc::new(Mutex::new(None));
    let shared = Arc::new((elsewhere, cpus.to_vec(), Arc::clone(&failure)));
    let mut handles = Vec::with_capacity(run.sessions);
    for session in 0..run.sessions {
        let (run, shared) = (Arc::clone(run), Arc::clone(&shared));
        let body = move || {
            let (elsewhere, cpus, failure) = &*shared;
            if let Err(error) = execute(&run, session, cpus, mode, elsewhere) {
                let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(error);
            }
        };
        let spawned = std::thread::Builder::new()
            .name(name(session))
            .stack_size(256 * 1024)
            .spawn(body);
        match spawned {
            Ok(handle) => handles.push(handle),
            Err(source) => {
                return Err(PlacementError::Spawn {
                    index: session,
                    source,
                }
                .into());
            }
        }
    }
    Ok(Threads { handles, failure })
}

impl Threads {
    pub(super) fn are_finished(&self) -> bool {
        self.handles.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all have ended.
    pub(super) fn join(self) -> Result<(), AccesstestError> {
        for (session, handle) in self.handles.into_iter().enumerate() {
            handle
                .join()
                .map_err(|_| AccesstestError::Session { session })?;
        }
        let failure = self
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        failure.map_or(Ok(()), Err)
    }
}

fn execute(
    run: &Run,
    index: usize,
    cpus: &[u32],
    mode: Mode,
    elsewhere: &Elsewhere,
) -> Result<(), AccesstestError> {
    let mut session = run.session(index);
    session.note_stack(None);
    let home = match mode {
        Mode::Synchronous => cpus[index % cpus.len()],
        Mode::Delegated => cpus[session.phase() % cpus.len()],
        Mode::Visit | Mode::Requests => cpus[0],
    };
    let placed = pin(index, Some(home));
    run.is_ready();
    drop(run.gate.read());
    placed?;
    session.begin();
    match elsewhere {
        Elsewhere::Nowhere => {
            while session.walk() {
                if session.turn() {
                    std::thread::yield_now();
                }
            }
        }
        Elsewhere::Move => moving(&mut session, index, cpus)?,
        Elsewhere::Visit(runtime) => {
            let pools = runtime.pools();
            shipping(&mut session, cpus.len(), |session, cpu| {
                Ok(linewise_fibres::visit(&pools[cpu], || session.walk()))
            })?;
        }
        Elsewhere::Requests(domain, places) => {
            let client = domain.client()?;
            shipping(&mut session, cpus.len(), |session, cpu| {
                Ok(client.apply(&places[cpu - 1], |_| session.walk())?)
            })?;
        }
    }
    Ok(())
}

fn moving(session: &mut Session<'_>, index: usize, cpus: &[u32]) -> Result<(), AccesstestError> {
    let mut here = session.phase() % cpus.len();
    while session.walk() {
        session.turn();
        let next = session.phase() % cpus.len();
        if next == here {
            std::thread::yield_now();
        } else {
            pin(index, Some(cpus[next]))?;
            here = next;
        }
    }
    Ok(())
}

/// Executes the phases of the first CPU here, and lets `ship` execute those of the others.
fn shipping<'r>(
    session: &mut Session<'r>,
    cpus: usize,
    mut ship: impl FnMut(&mut Session<'r>, usize) -> Result<bool, AccesstestError>,
) -> Result<(), AccesstestError> {
    loop {
        let cpu = session.phase() % cpus;
        let goes_on = if cpu == 0 {
            session.walk()
        } else {
            ship(session, cpu)?
        };
        if !goes_on {
            return Ok(());
        }
        if session.turn() && cpu == 0 {
            std::thread::yield_now();
        }
    }
}
