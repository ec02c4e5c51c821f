//! Sessions that are fibres. A module of its own, since only promises about their bodies let them run and move.
#![expect(unsafe_code, reason = "fibres are not safe, whatever runs them")]

use super::error::AccesstestError;
use super::session::{Run, Session, name};
use super::spec::Mode;
use crate::placement::pin;
use linewise_delegate::{Domain, Owned};
use linewise_fibres::{JoinHandle, Pool, Runtime, migrate, stack_range, visit, yield_now};
use std::cell::RefCell;
use std::sync::Arc;

/// Fibres that were started.
pub(super) struct Fibres {
    handles: Vec<JoinHandle<()>>,
    // Goes after the handles: it cancels who still waits.
    _runtime: Runtime,
}

/// A runtime with a pool of one worker for each CPU.
pub(super) fn runtime(cpus: &[u32]) -> Result<Runtime, AccesstestError> {
    let pool = |builder: linewise_fibres::Builder, cpu: &u32| {
        builder.pinned_pool(&format!("cpu-{cpu}"), &[*cpu])
    };
    let builder = cpus.iter().fold(Runtime::builder().without_events(), pool);
    // SAFETY: the bodies below walk, and leave nothing in their thread.
    Ok(unsafe { builder.start() }?)
}

/// Starts a fibre for each session.
pub(super) fn start(run: &Arc<Run>, cpus: &[u32], mode: Mode) -> Result<Fibres, AccesstestError> {
    let runtime = runtime(cpus)?;
    let pools: Arc<[Pool]> = runtime.pools().into();
    let mut handles = Vec::with_capacity(run.sessions);
    for index in 0..run.sessions {
        let home = match mode {
            Mode::Synchronous => index,
            Mode::Delegated => run.start.of(index, run.path.phases()),
            Mode::Visit | Mode::Requests => 0,
        };
        let (run, all) = (Arc::clone(run), Arc::clone(&pools));
        let body = move || execute(&run, index, mode, &all);
        let fibre = pools[home % pools.len()].builder().name(&name(index));
        handles.push(fibre.spawn(body)?);
    }
    Ok(Fibres {
        handles,
        _runtime: runtime,
    })
}

impl Fibres {
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
        Ok(())
    }
}

fn execute(run: &Run, index: usize, mode: Mode, pools: &[Pool]) {
    let mut session = run.session(index);
    session.note_stack(stack_range());
    run.is_ready();
    while !run.is_open() {
        yield_now();
    }
    session.begin();
    match mode {
        Mode::Synchronous => staying(&mut session),
        Mode::Delegated => moving(&mut session, pools),
        Mode::Visit | Mode::Requests => visiting(&mut session, pools),
    }
}

#[inline(never)]
fn staying(session: &mut Session<'_>) {
    while session.walk() {
        if session.turn() {
            yield_now();
        }
    }
}

/// Goes on with each phase on the worker that it belongs to. Never inlined: it must not use a thread-local variable.
#[inline(never)]
fn moving(session: &mut Session<'_>, pools: &[Pool]) {
    let mut here = session.phase() % pools.len();
    while session.walk() {
        session.turn();
        let next = session.phase() % pools.len();
        if next == here {
            yield_now();
        } else {
            // SAFETY: a session and this frame hold nothing of their thread, and neither this function nor what is
            // inlined into it uses a thread-local variable.
            unsafe { migrate(&pools[next]) };
            here = next;
        }
    }
}

#[inline(never)]
fn visiting(session: &mut Session<'_>, pools: &[Pool]) {
    loop {
        let place = session.phase() % pools.len();
        let goes_on = if place == 0 {
            session.walk()
        } else {
            visit(&pools[place], || session.walk())
        };
        if !goes_on {
            return;
        }
        if session.turn() && place == 0 {
            yield_now(); // A visit gives way to others; this iteration ended without one.
        }
    }
}

/// Runs every session as a fibre of one client on the first CPU, whose other phases are requests to the servers on the
/// other CPUs; returns when all have ended.
pub(super) fn request(
    run: &Run,
    cpus: &[u32],
    domain: &Domain,
    places: &[Owned<u64>],
) -> Result<(), AccesstestError> {
    let placed = pin(0, Some(cpus[0]));
    run.is_ready();
    drop(run.gate.read());
    placed?;
    let failure = RefCell::new(None);
    let client = domain.client()?;
    let asks = &client;
    let failed = &failure;
    // SAFETY: the bodies walk, ask, and leave nothing in their thread.
    unsafe {
        client.fibres(|fibres| {
            for index in 0..run.sessions {
                fibres.spawn(move |_| {
                    let mut session = run.session(index);
                    session.note_stack(None);
                    session.begin();
                    loop {
                        let cpu = session.phase() % cpus.len();
                        let goes_on = if cpu == 0 {
                            Ok(session.walk())
                        } else {
                            asks.apply(&places[cpu - 1], |visits| {
                                *visits += 1;
                                session.walk()
                            })
                        };
                        match goes_on {
                            Ok(true) => session.turn(),
                            Ok(false) => return,
                            Err(error) => {
                                failed.borrow_mut().get_or_insert(error);
                                return;
                            }
                        };
                    }
                });
            }
        })?;
    }
    failure
        .into_inner()
        .map_or(Ok(()), |error| Err(error.into()))
}
