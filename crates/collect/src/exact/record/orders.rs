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

use linewise_tracer::words::EventKind;

use super::super::access::{Consumer, TracedAccess, TracedEvent};
use super::super::calls::CallKind;
use super::super::equal_rate::{EqualRate, Meetings};
use super::measures::{Measured, Measures};

/// Accesses handed over at a time: 512 KiB.
const CHUNK: usize = 1 << 14;
/// Chunks that wait for a thread at most; then the target waits.
const QUEUE: usize = 6;

/// Accesses, and the events between them.
#[derive(Debug, Default)]
struct Chunk {
    accesses: Vec<TracedAccess>,
    /// Each with the number of accesses before it.
    events: Vec<(usize, TracedEvent)>,
    /// What further instructions do to the stack of calls.
    calls: Vec<CallKind>,
}

impl Chunk {
    fn clear(&mut self) {
        self.accesses.clear();
        self.events.clear();
        self.calls.clear();
    }

    /// Hands everything on in order; the accesses only if asked for.
    fn replay(&self, consumer: &mut impl Consumer, with_accesses: bool) {
        consumer.calls(&self.calls);
        let mut done = 0;
        for (before, event) in &self.events {
            if with_accesses && *before > done {
                consumer.accesses(&self.accesses[done..*before]);
                done = *before;
            }
            consumer.event(event);
        }
        if with_accesses && done < self.accesses.len() {
            consumer.accesses(&self.accesses[done..]);
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
    threads: Option<Threads>,
    chunk: Chunk,
    /// Chunks on their way; those that came back are filled again.
    sent: Vec<Arc<Chunk>>,
    forked: bool,
}

impl BothOrders {
    pub(super) fn new(measures: Measures) -> Self {
        Self {
            fresh: Some(measures),
            threads: None,
            chunk: Chunk::default(),
            sent: Vec::new(),
            forked: false,
        }
    }

    fn flush(&mut self) {
        if self.chunk.accesses.is_empty() && self.chunk.events.is_empty() {
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
            accesses: Vec::with_capacity(CHUNK),
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
        self.chunk.accesses.extend_from_slice(batch);
        if self.chunk.accesses.len() >= CHUNK {
            self.flush();
        }
    }

    fn event(&mut self, event: &TracedEvent) {
        if event.kind == EventKind::Creates && !self.forked {
            self.fork();
        }
        self.chunk.events.push((self.chunk.accesses.len(), *event));
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
                ToObserved::Chunk(chunk) => chunk.replay(&mut measures, true),
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
        let mut rate = EqualRate::new(Late::default());
        for message in chunks {
            match message {
                ToEqual::Events(chunk) => chunk.replay(&mut rate, false),
                ToEqual::Chunk(chunk) => chunk.replay(&mut rate, true),
                ToEqual::Begin(take) => {
                    if let Ok(measures) = take.recv() {
                        rate.inner_mut().0 = Some(*measures);
                    }
                }
            }
        }
        rate.finish();
        let (forced, meetings) = (rate.forced_rounds(), rate.meetings());
        (rate.into_inner().0, forced, meetings)
    });
    Threads {
        observed,
        equal,
        observed_thread,
        equal_thread,
    }
}

/// Measures that come when they are needed.
#[derive(Default)]
struct Late(Option<Measures>);

impl Consumer for Late {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        if let Some(measures) = &mut self.0 {
            measures.accesses(batch);
        }
    }

    fn calls(&mut self, kinds: &[CallKind]) {
        if let Some(measures) = &mut self.0 {
            measures.calls(kinds);
        }
    }
}
