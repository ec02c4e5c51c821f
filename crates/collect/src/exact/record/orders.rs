//! Both orders at once, each on a thread of its own beside the one that reads the rings.
//!
//! ```text
//! rings ─► chunks ─┬─► observed ─ Measures
//!                  └─► equal rate ─ EqualRate ─ Measures
//! ```
//!
//! Until the program makes a second thread or process the two orders are the same, and only one is
//! measured; then the other goes on with a copy of its state.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use linewise_cache::Kind;
use linewise_cache::reuse::Chooser;
use linewise_tracer::words::{EventKind, IN_ORDER};

use super::super::access::{Consumer, Handover, HeapTold, TracedAccess, TracedEvent};
use super::super::calls::CallKind;
use super::super::equal_rate::{Meetings, WINDOW};
use super::super::own_lines::OwnLines;
use super::super::rounds::{Rounds, Turn};
use super::blocks::{HeapEvent, Names, Teller};
use super::contents::Contents;
use super::measures::{Counted, Measured, Measures};
use super::objects::{Found, Objects};
use super::step::Step;

/// Accesses handed over at a time: 256 KiB.
const CHUNK: usize = 1 << 14;
/// Chunks that wait for a thread at most; then the target waits.
const QUEUE: usize = 6;

/// What lies between accesses.
#[derive(Clone, Copy, Debug)]
enum Between {
    Event(TracedEvent),
    Handover(Handover),
    Heap(HeapEvent),
    /// An address space is not used any more.
    Ended(u16),
}

/// Accesses, and what lies between them.
#[derive(Debug, Default)]
struct Chunk {
    steps: Vec<Step>,
    /// Each with the number of accesses before it.
    between: Vec<(usize, Between)>,
    /// What further instructions do to the stack of calls.
    calls: Vec<CallKind>,
}

impl Chunk {
    fn clear(&mut self) {
        self.steps.clear();
        self.between.clear();
        self.calls.clear();
    }

    /// The pieces of the accesses that nothing lies between, each with what follows it.
    fn pieces(&self) -> impl Iterator<Item = (&[Step], Option<&Between>)> {
        let mut done = 0;
        let ends = self
            .between
            .iter()
            .map(|(end, between)| (*end, Some(between)));
        ends.chain([(self.steps.len(), None)])
            .map(move |(end, between)| {
                let piece = &self.steps[done..end];
                done = end;
                (piece, between)
            })
    }

    /// Hands to `measures` what it wants of the accesses.
    fn observed(&self, measures: &mut Measures, mut objects: Option<&mut Objects>) {
        measures.learn(&self.calls);
        let alike = |one: &Step, next: &Step| one.chosen() == next.chosen();
        let mut begin = 0;
        // Most of what lies between makes no difference here, and long batches are cheaper.
        let ends = self
            .between
            .iter()
            .filter(|(_, between)| !matches!(between, Between::Event(_) | Between::Ended(_)))
            .map(|(end, between)| (*end, Some(between)));
        for (end, between) in ends.chain([(self.steps.len(), None)]) {
            let piece = &self.steps[begin..end];
            begin = end;
            if piece.iter().all(Turn::chosen) {
                measures.take_with(piece, objects.as_deref_mut());
            } else {
                for piece in piece.chunk_by(alike).filter(|piece| piece[0].chosen()) {
                    measures.take_with(piece, objects.as_deref_mut());
                }
            }
            match between {
                Some(Between::Handover(handover)) => {
                    measures.hand_over(handover, objects.as_deref_mut());
                }
                Some(Between::Heap(event)) => {
                    if let Some(objects) = objects.as_deref_mut() {
                        objects.heap(event);
                    }
                }
                Some(Between::Event(_) | Between::Ended(_)) | None => {}
            }
        }
        for (_, between) in &self.between {
            if let Between::Event(event) = between {
                measures.pass(event);
            }
        }
    }

    /// Hands everything on in order; the accesses only if there is somebody to measure them.
    fn at_equal_rate(&self, rounds: &mut Rounds<Step>, mut measures: Option<&mut Measures>) {
        if let Some(measures) = &mut measures {
            measures.learn(&self.calls);
        }
        for (piece, between) in self.pieces() {
            match &mut measures {
                Some(measures) if !piece.is_empty() => {
                    rounds.accesses(piece, |batch| measures.take(batch));
                }
                Some(_) => {}
                None => {
                    for step in piece {
                        rounds.made_alone(step.thread(), step.stands_for().into());
                    }
                }
            }
            match between {
                Some(Between::Event(event))
                    if event.kind == EventKind::Passed && measures.is_none() =>
                {
                    rounds.made_alone(event.thread, event.a);
                }
                Some(Between::Event(event)) => rounds.event(event),
                Some(Between::Handover(handover)) if measures.is_some() => {
                    rounds.handover(handover);
                }
                Some(Between::Ended(space)) => rounds.space_ended(*space),
                Some(Between::Handover(_) | Between::Heap(_)) | None => {}
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
    observed_thread: JoinHandle<(Measures, Option<Objects>)>,
    equal_thread: JoinHandle<(Option<Measures>, [u64; 2], Meetings)>,
}

/// What came of both orders.
pub(super) struct BothMeasured {
    pub(super) observed: Measured,
    /// `None` while there was one thread only: it is the same.
    pub(super) equal_rate: Option<Measured>,
    /// Rounds of the equal rate in which a thread that the machine did not run was not waited for.
    pub(super) forced_rounds: u64,
    /// Events that it had no room for.
    pub(super) dropped: u64,
    /// Which threads ran beside which at equal rate.
    pub(super) meetings: Meetings,
    /// The heap, if its recorder was loaded, and what fills simulated caches.
    pub(super) heap: Option<(Found, Names)>,
}

/// Measures both orders.
pub(super) struct BothOrders {
    /// Until the threads are there: the target is forked from a process of one.
    fresh: Option<Measures>,
    /// The heap, likewise.
    objects: Option<Objects>,
    /// What understands the heap recorder.
    teller: Option<Teller>,
    /// Finds out once for both orders what the trackers have to look at.
    chooser: Option<Chooser>,
    threads: Option<Threads>,
    chunk: Chunk,
    /// Chunks on their way; those that came back are filled again.
    sent: Vec<Arc<Chunk>>,
    forked: bool,
    /// The tracer makes the order of equal rate: it is the observed one.
    in_order: bool,
    /// What is known of accesses that are not told.
    counted: Counted,
    /// What the order of equal rate may take from threads.
    own_lines: Option<Arc<OwnLines>>,
}

impl BothOrders {
    /// `teller` if the heap recorder is loaded, and whether objects are followed.
    /// `contents` if caches are simulated.
    pub(super) fn new(
        measures: Measures,
        teller: Option<Teller>,
        follows: bool,
        contents: Option<Contents>,
    ) -> Self {
        let wanted = teller.is_some() || contents.is_some();
        Self {
            objects: wanted.then(|| Objects::new(follows && teller.is_some(), contents)),
            teller,
            chooser: measures.chooser(),
            fresh: Some(measures),
            threads: None,
            chunk: Chunk::default(),
            sent: Vec::new(),
            forked: false,
            in_order: false,
            counted: Counted::default(),
            own_lines: None,
        }
    }

    /// The tracer makes the order of equal rate.
    pub(super) fn in_order(mut self, in_order: bool) -> Self {
        self.in_order = in_order;
        self
    }

    fn flush(&mut self) {
        if self.chunk.steps.is_empty() && self.chunk.between.is_empty() {
            return;
        }
        let empty = self.empty_chunk();
        let chunk = Arc::new(std::mem::replace(&mut self.chunk, empty));
        self.sent.push(Arc::clone(&chunk));
        let Some(threads) = &self.threads else { return };
        // A thread that is gone has panicked; joining it says so.
        let _ = threads.observed.send(ToObserved::Chunk(Arc::clone(&chunk)));
        if self.forked {
            let _ = threads.equal.send(ToEqual::Chunk(chunk));
        } else if !self.in_order {
            let _ = threads.equal.send(ToEqual::Events(chunk));
        }
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

    fn between(&mut self, between: Between) {
        self.chunk.between.push((self.chunk.steps.len(), between));
        if self.chunk.between.len() >= CHUNK {
            self.flush();
        }
    }

    /// From here on there may be two threads.
    fn fork(&mut self) {
        self.flush();
        self.forked = true;
        if let Some(threads) = &self.threads {
            let (give, take) = sync_channel(1);
            let _ = threads.observed.send(ToObserved::Copy(give));
            let _ = threads.equal.send(ToEqual::Begin(take));
        }
    }

    /// Ends both measurements. A panic of one of the threads goes on here.
    /// `counted` is [`ExactOutcome::counted`](super::super::ExactOutcome::counted).
    pub(super) fn into_measured(mut self, counted: &[([u64; 3], u64)]) -> BothMeasured {
        self.flush();
        let mut all = std::mem::take(&mut self.counted);
        all.add_threads(counted);
        let names = self
            .teller
            .take()
            .map_or_else(Names::default, Teller::finish);
        let Some(threads) = self.threads.take() else {
            // Nothing ever began.
            let measures = self.fresh.take();
            if let (Some(measures), Some(objects)) = (&measures, &mut self.objects) {
                measures.look_at_the_end(objects);
            }
            return BothMeasured {
                observed: measures
                    .expect("measures are fresh or with a thread")
                    .finish(&all),
                equal_rate: None,
                forced_rounds: 0,
                dropped: 0,
                meetings: Meetings::default(),
                heap: self.objects.take().map(|it| (it.finish(), names)),
            };
        };
        let Threads {
            observed,
            equal,
            observed_thread,
            equal_thread,
        } = threads;
        drop((observed, equal));
        let (observed, objects) = joined(observed_thread);
        let (equal_rate, [forced_rounds, dropped], meetings) = joined(equal_thread);
        BothMeasured {
            observed: observed.finish(&all),
            equal_rate: equal_rate.map(|measures| measures.finish(&all)),
            forced_rounds,
            dropped,
            meetings,
            heap: objects.map(|it| (it.finish(), names)),
        }
    }
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Consumer for BothOrders {
    fn begin(&mut self) -> io::Result<()> {
        if let Some(measures) = self.fresh.take() {
            let threads = start(measures, self.objects.take(), self.own_lines.clone());
            self.threads = Some(threads?);
        }
        Ok(())
    }

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
        if event.kind == EventKind::Creates && event.b & IN_ORDER == 0 && !self.forked {
            self.fork();
        }
        self.between(Between::Event(*event));
    }

    fn heap(&mut self, told: &HeapTold<'_>) {
        let event = self.teller.as_mut().and_then(|teller| teller.told(told));
        if let Some(event) = event {
            self.between(Between::Heap(event));
        }
    }

    fn handover(&mut self, handover: &Handover) {
        if !handover.again {
            self.counted.hand_over(handover);
        }
        self.between(Between::Handover(*handover));
    }

    fn own_lines(&mut self, lines: &Arc<OwnLines>) {
        self.own_lines = Some(Arc::clone(lines));
    }

    fn space_ended(&mut self, space: u16) {
        self.between(Between::Ended(space));
    }

    fn sampled(&mut self, site: u32, kind: Kind) {
        self.counted.sample(site, kind);
    }

    fn calls(&mut self, kinds: &[CallKind]) {
        self.chunk.calls.extend_from_slice(kinds);
    }

    fn wants_orders(&self) -> bool {
        true
    }
}

fn start(
    mut measures: Measures,
    mut objects: Option<Objects>,
    own_lines: Option<Arc<OwnLines>>,
) -> io::Result<Threads> {
    let (observed, chunks) = sync_channel(QUEUE);
    // If the other does not come, it ends for want of a sender.
    let observed_thread = Builder::new().spawn(move || {
        for message in chunks {
            match message {
                ToObserved::Chunk(chunk) => chunk.observed(&mut measures, objects.as_mut()),
                ToObserved::Copy(give) => {
                    // Nobody takes it if the other thread has panicked.
                    let _ = give.send(Box::new(measures.clone()));
                }
            }
        }
        if let Some(objects) = &mut objects {
            measures.look_at_the_end(objects);
        }
        (measures, objects)
    })?;
    let (equal, chunks) = sync_channel(QUEUE);
    let equal_thread = Builder::new().spawn(move || {
        let mut rounds = Rounds::new(WINDOW, false);
        if let Some(lines) = own_lines {
            rounds.set_own_lines(lines);
        }
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
        let counts = [rounds.forced(), rounds.dropped()];
        (measures.map(|it| *it), counts, rounds.meetings())
    })?;
    Ok(Threads {
        observed,
        equal,
        observed_thread,
        equal_thread,
    })
}
