//! What sessions of every sort have in common: where they walk, when they begin, and what is known of them
//! afterwards.

use super::path::{Fresh, Path};
use super::spec::Start;
use super::walk::{Cursor, Reached};
use linewise_machine::process::monotonic_ns;
use linewise_machine::procfs;
use serde::Serialize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// What is known of a session after a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionLog {
    /// Its number, from 0.
    pub id: usize,
    /// Its name: `session-` and the number.
    pub name: String,
    /// The addresses of its stack; empty unless asked for.
    pub stack: Range<usize>,
    /// When it began to walk, ns of the monotonic clock.
    pub begin_ns: u64,
    /// When it ended, likewise.
    pub end_ns: u64,
    /// The phase that it began with.
    pub phase: usize,
    /// Accesses that it made.
    pub accesses: u64,
}

/// A run that sessions take part in.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) path: Arc<Path>,
    pub(super) sessions: usize,
    pub(super) start: Start,
    pub(super) fresh: bool,
    pub(super) logs: bool,
    /// Whether sessions may begin.
    open: AtomicBool,
    /// Threads wait for it: locked until then.
    pub(super) gate: RwLock<()>,
    ready: AtomicUsize,
    told: Mutex<Vec<SessionLog>>,
}

impl Run {
    pub(super) fn new(path: Arc<Path>, sessions: usize, start: Start) -> Self {
        Self {
            path,
            sessions,
            start,
            fresh: false,
            logs: false,
            open: AtomicBool::new(false),
            gate: RwLock::new(()),
            ready: AtomicUsize::new(0),
            told: Mutex::new(Vec::new()),
        }
    }

    /// The session takes its place. Dropped, it tells what it did.
    pub(super) fn session(&self, id: usize) -> Session<'_> {
        let phase = self.start.of(id, self.path.phases());
        Session {
            run: self,
            id,
            phase,
            first: phase,
            cursor: self.path.start(phase),
            fresh: None,
            stack: 0..0,
            begin_ns: 0,
        }
    }

    /// Another one is there. Sessions begin when so many are that somebody lets them.
    pub(super) fn is_ready(&self) {
        self.ready.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.load(Ordering::Acquire)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(super) fn let_begin(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// What is known of the sessions, by number.
    pub(super) fn told(&self) -> Vec<SessionLog> {
        let mut told =
            std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        told.sort_by_key(|log| log.id);
        told
    }
}

/// A session that walks.
#[derive(Debug)]
pub(super) struct Session<'r> {
    run: &'r Run,
    id: usize,
    /// The phase that comes next.
    phase: usize,
    /// The one that it began with.
    first: usize,
    cursor: Cursor,
    fresh: Option<Fresh>,
    stack: Range<usize>,
    begin_ns: u64,
}

impl Session<'_> {
    /// Notes where its stack is, if somebody wants to know: as told, or the mapping that it is in.
    pub(super) fn note_stack(&mut self, told: Option<Range<usize>>) {
        if self.run.logs {
            self.stack = told.or_else(mapping_of_stack).unwrap_or(0..0);
        }
    }

    /// It begins now.
    pub(super) fn begin(&mut self) {
        self.begin_ns = monotonic_ns();
        self.renew();
    }

    /// The phase that comes next.
    pub(super) fn phase(&self) -> usize {
        self.phase
    }

    /// Walks to the end of the phase; whether the run goes on.
    #[inline(always)]
    pub(super) fn walk(&mut self) -> bool {
        let path = &self.run.path;
        let reached = match &self.fresh {
            Some(fresh) => path.walk(fresh.words(), &mut self.cursor),
            None => path.walk(path.local_of(self.id), &mut self.cursor),
        };
        reached == Reached::End
    }

    /// Turns to the next phase; whether an iteration ended.
    #[inline(always)]
    pub(super) fn turn(&mut self) -> bool {
        self.phase += 1;
        if self.phase == self.run.path.phases() {
            self.phase = 0;
        }
        let is_end = self.phase == self.first;
        if is_end {
            self.renew();
        }
        is_end
    }

    fn renew(&mut self) {
        if self.run.fresh {
            // The old memory goes after the new is there, or the new would be the old again.
            self.fresh = Some(self.run.path.fresh());
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let log = SessionLog {
                id: self.id,
                name: name(self.id),
                stack: self.stack.clone(),
                begin_ns: self.begin_ns,
                end_ns: monotonic_ns(),
                phase: self.first,
                accesses: self.cursor.steps,
            };
            let mut told = self.run.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.push(log);
        }
    }
}

/// The name of a session.
pub(super) fn name(session: usize) -> String {
    format!("session-{session}")
}

/// The mapping that the caller's stack is in.
fn mapping_of_stack() -> Option<Range<usize>> {
    let here = 0_u8;
    let here = (&raw const here).addr() as u64;
    let maps = procfs::maps(std::process::id()).ok()?;
    let mapping = maps
        .iter()
        .find(|one| (one.start..one.end).contains(&here))?;
    Some(mapping.start as usize..mapping.end as usize)
}
