//! For `crate::fuzzing`: an exact run without a target, whose rings somebody else writes.

use std::path::PathBuf;

use linewise_machine::process::Ended;
use linewise_recording::{Tables, Writer};
use linewise_trace::measure::{ReuseShare, SimulatedMachine};
use linewise_tracer::{Region, threshold};

use super::super::stream::Stream;
use super::super::tracing::outcome;
use super::*;
use crate::options::Wanted;

/// The reader of the rings, with all that measures what stands in them.
pub(crate) struct Reader {
    one_line_in: u32,
    model: Model,
    region: Region,
    stream: Stream,
    consumer: Both<Gathered, Measuring<Teller>>,
}

/// [`Beginning`] without a recording.
struct Gathered(Places);

impl Consumer for Gathered {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        self.0.passed(batch);
    }

    fn event(&mut self, event: &TracedEvent) {
        self.0.event(event);
    }
}

impl Reader {
    /// The bits of `switches` choose what is measured.
    pub(crate) fn new(switches: u8) -> Self {
        let is_on = |bit: u8| switches & 1 << bit != 0;
        let machine = SimulatedMachine::named("vm-2").expect("an invented machine");
        let source = ExactRecordOptions {
            one_line_in: if is_on(0) { 4 } else { 1 },
            caches: is_on(1),
            reuse: if is_on(2) {
                ReuseShare::OneLineIn(1)
            } else {
                ReuseShare::Usual
            },
            element_bytes: is_on(3).then_some(8),
            call_paths: is_on(4),
            ..ExactRecordOptions::new(machine)
        };
        let common = RecordOptions {
            target: Target::Launch(vec!["target".into()]),
            directory: PathBuf::new(),
            replace: true,
            duration: None,
            heap: HeapWhen::Loaded,
            flow: is_on(5).then_some(Wanted::Most),
        };
        let run = Run {
            command: &[],
            common: &common,
            source: &source,
        };
        let one_line_in = source.one_line_in;
        let model = Model::new(&source.machine, one_line_in, source.simulates());
        let model = model.expect("a machine");
        let region = Region::create().expect("memory to share");
        region.set_threshold(threshold(one_line_in));
        let heap = linewise_heap::Region::create().expect("memory to share");
        let teller = Teller::new(heap, common.flow.clone());
        let measuring = Measuring::new(&model, &run.measures(), Some(teller));
        let measuring = measuring.expect("measures");
        let mut consumer = Both(Gathered(Places::default()), measuring);
        consumer.begin().expect("threads");
        let stream = Stream::new(region.clone(), 62);
        Self {
            one_line_in,
            model,
            region,
            stream,
            consumer,
        }
    }

    /// The memory of the rings.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Reads what is there.
    pub(crate) fn round(&mut self, all: bool) {
        self.stream.round(&mut self.consumer, all);
    }

    /// The end of the run; its rows go to `writer`.
    pub(crate) fn finish(mut self, writer: &mut Writer) -> Result<(), crate::Error> {
        let others = self.stream.others(0);
        self.region.detach();
        while self.stream.round(&mut self.consumer, true) > 0 {}
        self.stream.finish(&mut self.consumer);
        self.stream.vanished(0);
        let Both(Gathered(places), measuring) = self.consumer;
        let (ended, by) = (Ended::Code(0), EndedBy::TargetExited);
        let outcome = outcome(&mut self.stream, &self.region, (ended, by), others);
        let results = measuring.finish(&outcome.counted);
        let trace = measured_trace(&outcome, &self.model, self.one_line_in);
        let tables: Tables = tables(&outcome, &results, &trace, &places, &[]);
        push(writer, tables, true)
    }
}
