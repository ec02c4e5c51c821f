//! Measuring on a thread of its own, beside the one that reads the rings.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use linewise_cache::Kind;
use linewise_cache::reuse::Chooser;
use linewise_tracer::words::EventKind;

use super::contents::Contents;
use super::machine::Model;
use super::measures::{Counted, Measures};
use super::objects::Objects;
use super::options::{MeasureError, MeasureOptions};
use super::results::Results;
use super::step::Step;
use crate::access::{Consumer, Handover, HeapRecord, TracedAccess, TracedEvent};
use crate::calls::CallKind;
use crate::heap_event::{HeapEvent, HeapNames, HeapReader};

/// Accesses handed over at a time: 256 KiB.
const CHUNK: usize = 1 << 14;
/// Chunks that wait for the thread at most; then the target waits.
const QUEUE: usize = 6;

/// What lies between accesses.
#[derive(Clone, Copy, Debug)]
enum Between {
    Handover(Handover),
    Heap(HeapEvent),
    /// So many accesses of a thread that are not told.
    Passed(u16, u64),
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

    fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.between.is_empty()
    }

    /// Hands it all to `measures`, and to `objects` what they want.
    fn measure(&self, measures: &mut Measures, mut objects: Option<&mut Objects>) {
        measures.learn(&self.calls);
        let mut done = 0;
        for &(end, ref between) in &self.between {
            measures.take(&self.steps[done..end], objects.as_deref_mut());
            done = end;
            match between {
                Between::Handover(handover) => {
                    measures.hand_over(handover, objects.as_deref_mut());
                }
                Between::Heap(event) => {
                    if let Some(objects) = objects.as_deref_mut() {
                        objects.heap(event);
                    }
                }
                &Between::Passed(thread, count) => measures.pass(thread, count),
            }
        }
        measures.take(&self.steps[done..], objects);
    }
}

type Measurer = JoinHandle<(Measures, Option<Objects>)>;

/// The measurements, and the way to them. `H` understands the heap recorder.
pub struct Measuring<H> {
    /// Until the thread is there: the target is forked from a process of one.
    fresh: Option<(Measures, Option<Objects>)>,
    thread: Option<(SyncSender<Arc<Chunk>>, Measurer)>,
    heap: Option<H>,
    /// Finds out what the trackers have to look at.
    chooser: Option<Chooser>,
    chunk: Chunk,
    /// Chunks on their way; those that came back are filled again.
    sent: Vec<Arc<Chunk>>,
    /// What is known of accesses that are not told.
    counted: Counted,
}

impl<H: HeapReader> Measuring<H> {
    /// Nothing measured yet. `heap` if the heap recorder is loaded.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn new(
        model: &Model,
        options: &MeasureOptions,
        heap: Option<H>,
    ) -> Result<Self, MeasureError> {
        let measures = Measures::new(model, options)?;
        let contents = model.simulated.then(|| Contents::new(model));
        let wanted = heap.is_some() || contents.is_some();
        let follows = options.follows_objects && heap.is_some();
        let objects = wanted.then(|| Objects::new(follows, contents));
        Ok(Self {
            heap,
            chooser: measures.chooser(),
            fresh: Some((measures, objects)),
            thread: None,
            chunk: Chunk::default(),
            sent: Vec::new(),
            counted: Counted::default(),
        })
    }

    fn flush(&mut self) {
        if self.chunk.is_empty() {
            return;
        }
        let empty = self.empty_chunk();
        let chunk = Arc::new(std::mem::replace(&mut self.chunk, empty));
        self.sent.push(Arc::clone(&chunk));
        if let Some((sender, _)) = &self.thread {
            // A thread that is gone has panicked; joining it says so.
            let _ = sender.send(chunk);
        }
    }

    /// A chunk that the thread has done with, or a new one.
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

    /// Ends the measurement. A panic of the thread goes on here. `counted`: by thread its loads, stores and updates, and the
    /// lines that it was the first to touch and had for itself; zero where all accesses were told.
    ///
    /// # Panics
    /// As a measurement did.
    #[must_use]
    pub fn finish(mut self, counted: &[([u64; 3], u64)]) -> Results {
        self.flush();
        self.counted.add_threads(counted);
        let names = self
            .heap
            .take()
            .map_or_else(HeapNames::default, HeapReader::finish);
        let (measures, mut objects) = match (self.thread.take(), self.fresh.take()) {
            (Some((sender, thread)), _) => {
                drop(sender);
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            // Nothing ever began.
            (None, fresh) => fresh.expect("measures are fresh or with the thread"),
        };
        if let Some(objects) = &mut objects {
            measures.look_at_the_end(objects);
        }
        Results {
            measured: measures.finish(&self.counted),
            heap: objects.map(|objects| (objects.finish(), names)),
        }
    }
}

impl<H: HeapReader> Consumer for Measuring<H> {
    fn begin(&mut self) -> io::Result<()> {
        let Some((mut measures, mut objects)) = self.fresh.take() else {
            return Ok(());
        };
        let (sender, chunks) = sync_channel::<Arc<Chunk>>(QUEUE);
        let thread = Builder::new().spawn(move || {
            for chunk in chunks {
                chunk.measure(&mut measures, objects.as_mut());
            }
            (measures, objects)
        })?;
        self.thread = Some((sender, thread));
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
        if event.kind == EventKind::Passed {
            self.between(Between::Passed(event.thread, event.a));
        }
    }

    fn heap(&mut self, record: &HeapRecord<'_>) {
        let event = self.heap.as_mut().and_then(|heap| heap.event(record));
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

    fn sampled(&mut self, site: u32, kind: Kind) {
        self.counted.sample(site, kind);
    }

    fn calls(&mut self, kinds: &[CallKind]) {
        self.chunk.calls.extend_from_slice(kinds);
    }
}
