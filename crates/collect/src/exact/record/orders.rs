//! Both orders at once, each on a thread of its own beside the one that reads the rings.
//!
//! ```text
//! rings ─► chunks ─┬─► observed ─ Measures
//!                  └─► equal rate ─ EqualRate ─ Measures
//! ```
//!
//! Until the program makes a second thread or process the two orders are the same, and only one is
//! measured; then the other goes on with a copy of its state.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use linewise_cache::reuse::Chooser;
use linewise_tracer::words::EventKind;

use super::super::access::{Consumer, TracedAccess, TracedEvent};
use super::super::calls::CallKind;
use super::super::equal_rate::{Meetings, WINDOW};
use super::super::rounds::{Rounds, Turn};
use super::measures::{Measured, Measures};
use super::step::Step;

/// Accesses handed over at a time: 256 KiB.
const CHUNK: usize = 1 << 14;
/// Chunks that wait for a thread at most; then the target waits.
const QUEUE: usize = 6;

/// Accesses, and the events between them.
#[derive(Debug, Default)]
struct Chunk {
    steps: Vec<Step>,
    /// Each with the number of accesses before it.
    events: Vec<(usize, TracedEvent)>,
    /// What further instructions do to the stack of calls.
    calls: Vec<CallKind>,
}

impl Chunk {
    fn clear(&mut self) {
        self.steps.clear();
        self.events.clear();
        self.calls.clear();
    }

    /// Hands to `measures` what it wants of the accesses.
    fn observed(&self, measures: &mut Measures) {
        measures.learn(&self.calls);
        if self.steps.iter().all(Turn::chosen) {
            measures.take(&self.steps);
            return;
        }
        let alike = |one: &Step, next: &Step| one.chosen() == next.chosen();
        for piece in self.steps.chunk_by(alike).filter(|piece| piece[0].chosen()) {
            measures.take(piece);
        }
    }

    /// Hands everything on in order; the accesses only if there is somebody to measure them.
    fn at_equal_rate(&self, rounds: &mut Rounds<Step>, mut measures: Option<&mut Measures>) {
        if let Some(measures) = &mut measures {
            measures.learn(&self.calls);
        }
        let mut done = 0;
        let ends = self.events.iter().map(|&(before, _)| before);
        for (index, end) in ends.chain([self.steps.len()]).enumerate() {
            if let Some(measures) = &mut measures
                && end > done
            {
                rounds.accesses(&self.steps[done..end], |batch| measures.take(batch));
                done = end;
            }
            if let Some((_, event)) = self.events.get(index) {
                rounds.event(event);
            }
        }
    }
}

/// What the thread of the observed order is told.
enum ToObserved {
    Chunk(Arc<Chunk>),
    /// Give a copy of the state to the other thread.
    Copy(SyncSender<Box<Measures>>),
}

/// What the thread of the equal rate is told.
enum ToEqual {
    /// Nothing but the events counts: there is one thread only.
    Events(Arc<Chunk>),
    Chunk(Arc<Chunk>),
    /// From here on there may be two.
    Begin(Receiver<Box<Measures>>),
}

/// The threads that measure.
struct Threads {
    observed: SyncSender<ToObserved>,
    equal: SyncSender<ToEqual>,
    observed_thread: JoinHandle<Measures>,
    equal_thread: JoinHandle<(Option<Measures>, u64, Meetings)>,
}

/// What came of both orders.
pub(super) struct BothMeasured {
    pub(super) observed: Measured,
    /// `None` while there was one thread only: it is the same.
    pub(super) equal_rate: Option<Measured>,
    /// Rounds of the equal rate in which a thread that the machine did not run was not waited for.
    pub(super) forced_rounds: u64,
    /// Which threads ran beside which at equal rate.
    pub(super) meetings: Meetings,
}

/// Measures both orders.
pub(super) struct BothOrders {
    /// Until the first chunk is full: the target is forked from a process of one thread.
    fresh: Option<Measures>,
    /// Finds out once for both orders what the trackers have to look at.
    chooser: Option<Chooser>,
    threads: Option<Threads>,
    chunk: Chunk,
    /// Chunks on their way; those that came back are filled again.
    sent: Vec<Arc<Chunk>>,
    forked: bool,
}

impl BothOrders {
    pub(super) fn new(measures: Measures) -> Self {
        Self {
            chooser: measures.chooser(),
            fresh: Some(measures),
            threads: None,
            chunk: Chunk::default(),
            sent: Vec::new(),
            forked: false,
        }
    }

    fn flush(&mut self) {
        if self.chunk.steps.is_empty() && self.chunk.events.is_empty() {
            return;
        }
        if let Some(measures) = self.fresh.take() {
            self.threads = Some(start(measures));
        }
        let empty = self.empty_chunk();
        let chunk = Arc::new(std::mem::replace(&mut self.chunk, empty));
        self.sent.push(Arc::clone(&chunk));
        let Some(threads) = &self.threads else { return };
        // A thread that is gone has panicked; joining it says so.
        let _ = threads.observed.send(ToObserved::Chunk(Arc::clone(&chunk)));
        let _ = threads.equal.send(if self.forked {
            ToEqual::Chunk(chunk)
        } else {
            ToEqual::Events(chunk)
        });
    }

    /// A chunk that both threads have done with, or a new one.
    fn empty_chunk(&mut self) -> Chunk {
        let back = self
            .sent
            .iter()
            .position(|chunk| Arc::strong_count(chunk) == 1);
        if let Some(at) = back
            && let Ok(mut chunk) = Arc::try_unwrap(self.sent.swap_remove(at))
        {
            chunk.clear();
            return chunk;
        }
        Chunk {
            steps: Vec::with_capacity(CHUNK),
            ..Chunk::default()
        }
    }

    /// From here on there may be two threads.
    fn fork(&mut self) {
        self.flush();
        self.forked = true;
        if let Some(measures) = self.fresh.take() {
            self.threads = Some(start(measures));
        }
        if let Some(threads) = &self.threads {
            let (give, take) = sync_channel(1);
            let _ = threads.observed.send(ToObserved::Copy(give));
            let _ = threads.equal.send(ToEqual::Begin(take));
        }
    }

    /// Ends both measurements. A panic of one of the threads goes on here.
    pub(super) fn into_measured(mut self) -> BothMeasured {
        self.flush();
        let Some(threads) = self.threads.take() else {
            let measures = self.fresh.take();
            return BothMeasured {
                observed: measures
                    .expect("measures are fresh or with a thread")
                    .finish(),
                equal_rate: None,
                forced_rounds: 0,
                meetings: Meetings::default(),
            };
        };
        let Threads {
            observed,
            equal,
            observed_thread,
            equal_thread,
        } = threads;
        drop((observed, equal));
        let observed = joined(observed_thread);
        let (equal_rate, forced_rounds, meetings) = joined(equal_thread);
        BothMeasured {
            observed: observed.finish(),
            equal_rate: equal_rate.map(Measures::finish),
            forced_rounds,
            meetings,
        }
    }
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Consumer for BothOrders {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        let Self { chooser, chunk, .. } = self;
        match chooser {
            Some(chooser) => chunk.steps.extend(
                batch
                    .iter()
                    .map(|access| Step::new(access, chooser.chooses(access.address, access.size))),
            ),
            None => chunk
                .steps
                .extend(batch.iter().map(|access| Step::new(access, true))),
        }
        if chunk.steps.len() >= CHUNK {
            self.flush();
        }
    }

    fn event(&mut self, event: &TracedEvent) {
        if event.kind == EventKind::Creates && !self.forked {
            self.fork();
        }
        self.chunk.events.push((self.chunk.steps.len(), *event));
        if self.chunk.events.len() >= CHUNK {
            self.flush();
        }
    }

    fn calls(&mut self, kinds: &[CallKind]) {
        self.chunk.calls.extend_from_slice(kinds);
    }

    fn wants_orders(&self) -> bool {
        true
    }
}

fn start(mut measures: Measures) -> Threads {
    let (observed, chunks) = sync_channel(QUEUE);
    let observed_thread = std::thread::spawn(move || {
        for message in chunks {
            match message {
                ToObserved::Chunk(chunk) => chunk.observed(&mut measures),
                ToObserved::Copy(give) => {
                    // Nobody takes it if the other thread has panicked.
                    let _ = give.send(Box::new(measures.clone()));
                }
            }
        }
        measures
    });
    let (equal, chunks) = sync_channel(QUEUE);
    let equal_thread = std::thread::spawn(move || {
        let mut rounds = Rounds::new(WINDOW, false);
        let mut measures: Option<Box<Measures>> = None;
        for message in chunks {
            match message {
                ToEqual::Events(chunk) => chunk.at_equal_rate(&mut rounds, None),
                ToEqual::Chunk(chunk) => {
                    chunk.at_equal_rate(&mut rounds, measures.as_deref_mut());
                }
                ToEqual::Begin(take) => measures = take.recv().ok(),
            }
        }
        if let Some(measures) = &mut measures {
            rounds.finish(|batch| measures.take(batch));
        }
        (measures.map(|it| *it), rounds.forced(), rounds.meetings())
    });
    Threads {
        observed,
        equal,
        observed_thread,
        equal_thread,
    }
}
