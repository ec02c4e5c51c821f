//! What is measured of traces whose answers are counted by hand: lists of accesses, without an emulator.

use linewise_cache::Kind;
use linewise_recording::{
    Address, CacheLevel, CacheSubject, Measure, Operation, Pid, ReuseScope, Sharing, Tables, Tid,
    Time, Touch, Unit,
};
use linewise_trace::live::Block;
use linewise_trace::measure::{
    MeasureError, MeasureOptions, Measuring, Model, ReuseShare, SimulatedMachine, Trace,
};
use linewise_trace::{
    Both, Consumer, EventKind, ExactThread, HeapEvent, HeapNames, HeapReader, HeapRecord,
    Instruction, KeepTrace, TraceReader, TraceTables, TraceWriter, TracedAccess, TracedEvent,
};

/// Tells the events that its records are the numbers of.
struct Script(Vec<HeapEvent>);

impl HeapReader for Script {
    fn event(&mut self, record: &HeapRecord<'_>) -> Option<HeapEvent> {
        self.0.get(*record.words.first()? as usize).copied()
    }

    fn finish(self) -> HeapNames {
        HeapNames {
            recorded: true,
            processes: 1,
            labels: vec![String::new()],
            ..HeapNames::default()
        }
    }
}

fn options() -> MeasureOptions {
    MeasureOptions {
        one_line_in: 1,
        simulates: false,
        reuse: ReuseShare::OneLineIn(1),
        element_bytes: None,
        follows_calls: false,
        follows_objects: false,
        most_bytes: 1 << 28,
    }
}

fn access(thread: u16, kind: Kind, address: u64) -> TracedAccess {
    TracedAccess {
        address,
        time_ns: 1000,
        site: thread.into(),
        before: 0,
        size: 8,
        thread,
        kind,
        orders: false,
    }
}

/// Two threads of process 7, and the instruction of each.
fn numbers() -> TraceTables {
    let thread = |tid| ExactThread {
        pid: Pid(7),
        tid,
        space: 0,
        start_ns: 0,
        end_ns: 2000,
        accesses: 0,
        waited_ns: 0,
    };
    let instruction = |address| Instruction {
        address,
        pid: Pid(7),
        bytes: [0; 15],
        length: 3,
        updates: true,
        orders: false,
    };
    TraceTables {
        threads: vec![thread(7), thread(8)],
        instructions: vec![instruction(0x40_1000), instruction(0x40_2000)],
        maps: Vec::new(),
    }
}

/// A machine of two cores.
fn model(options: &MeasureOptions) -> Model {
    let machine = SimulatedMachine::named("vm-2").expect("a machine");
    Model::new(&machine, options.one_line_in, options.simulates).expect("a model")
}

fn rows(options: &MeasureOptions, feed: impl FnOnce(&mut Measuring<Script>)) -> Tables {
    rows_with(options, None, feed)
}

fn rows_with(
    options: &MeasureOptions,
    script: Option<Vec<HeapEvent>>,
    feed: impl FnOnce(&mut Measuring<Script>),
) -> Tables {
    let model = model(options);
    let mut measuring = Measuring::new(&model, options, script.map(Script)).expect("measures");
    measuring.begin().expect("a thread");
    feed(&mut measuring);
    let results = measuring.finish(&[]);
    let numbers = numbers();
    results.tables(&Trace {
        threads: &numbers.threads,
        instructions: &numbers.instructions,
        one_line_in: options.one_line_in,
        model: &model,
        end: Time(2000),
    })
}

/// Transfers of a kind, and of those the ones of one line from one thread to another.
fn transfers(tables: &Tables, kind: Sharing) -> f64 {
    let rows = tables.transfers.iter().filter(|row| row.sharing == kind);
    rows.map(|row| row.count).sum()
}

/// Both threads in turns, each at its own address.
fn turns(count: u64, addresses: [u64; 2]) -> Vec<TracedAccess> {
    (0..count)
        .flat_map(|_| [0, 1])
        .map(|thread| access(thread, Kind::Update, addresses[usize::from(thread)]))
        .collect()
}

#[test]
fn a_word_that_two_threads_update_in_turns_moves_with_every_update_and_is_truly_shared() {
    let tables = rows(&options(), |it| {
        it.accesses(&turns(1000, [0x1000, 0x1000]));
    });
    assert_eq!(transfers(&tables, Sharing::True), 1999.0);
    assert_eq!(transfers(&tables, Sharing::False), 0.0);
    let [there, back] = &tables.transfers[..] else {
        panic!("two directions: {:?}", tables.transfers);
    };
    assert_eq!((there.count, back.count), (1000.0, 999.0));
    assert_eq!(there.from_tid, Some(Tid(7)));
    assert_eq!(there.to_tid, Some(Tid(8)));
    assert_eq!(there.line, Some(Address(0x1000)));
    assert_eq!(there.from_ip, Some(Address(0x40_1000)));
    assert_eq!(there.to_operation, Some(Operation::Update));
}

#[test]
fn two_words_of_one_line_are_shared_falsely_and_two_lines_not_at_all() {
    let one = rows(&options(), |it| {
        it.accesses(&turns(1000, [0x1000, 0x1008]));
    });
    assert_eq!(transfers(&one, Sharing::False), 1999.0);
    assert_eq!(transfers(&one, Sharing::True), 0.0);
    let two = rows(&options(), |it| {
        it.accesses(&turns(1000, [0x1000, 0x1040]));
    });
    assert!(two.transfers.is_empty(), "{:?}", two.transfers);
}

#[test]
fn a_walk_over_so_many_lines_reuses_each_at_that_distance() {
    let lines = 100;
    let walk: Vec<TracedAccess> = (0..10 * lines)
        .map(|step| access(0, Kind::Load, 0x10_0000 + step % lines * 64))
        .collect();
    let tables = rows(&options(), |it| it.accesses(&walk));
    let of = |touch: Touch| {
        let rows = tables.reuse.iter().filter(move |row| {
            row.touch == touch
                && row.scope == ReuseScope::Private
                && row.measure == Measure::Stack
                && row.unit == Unit::Line
        });
        rows.map(|row| (row.from, row.to, row.count))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(Touch::Cold), [(0, 0, 100.0)]);
    let [(from, to, count)] = of(Touch::Reuse)[..] else {
        panic!("one distance: {:?}", of(Touch::Reuse));
    };
    assert!(from <= 99 && 99 < to, "{from} to {to}");
    assert_eq!(count, 900.0);
}

#[test]
fn elements_and_pairs_of_lines_have_rows_of_their_own_where_they_are_wanted() {
    let units = |options: &MeasureOptions| {
        let tables = rows(options, |it| it.accesses(&turns(10, [0x1000, 0x2000])));
        let mut units: Vec<Unit> = tables.reuse.iter().map(|row| row.unit).collect();
        units.dedup();
        units
    };
    assert_eq!(units(&options()), [Unit::Line]);
    let with = MeasureOptions {
        element_bytes: Some(8),
        simulates: true,
        ..options()
    };
    assert_eq!(units(&with), [Unit::Line, Unit::Element, Unit::LinePair]);
    let none = MeasureOptions {
        reuse: ReuseShare::None,
        ..options()
    };
    assert_eq!(units(&none), []);
}

#[test]
fn elements_as_large_as_a_line_are_refused() {
    let options = MeasureOptions {
        element_bytes: Some(64),
        ..options()
    };
    let refused = Measuring::<Script>::new(&model(&options), &options, None).err();
    assert_eq!(
        refused,
        Some(MeasureError::Element {
            element_bytes: 64,
            line_bytes: 64
        })
    );
}

#[test]
fn simulated_caches_miss_what_does_not_fit_and_hit_what_does() {
    let options = MeasureOptions {
        simulates: true,
        reuse: ReuseShare::None,
        ..options()
    };
    // 48 KiB of first level: 512 lines fit, 2,048 do not.
    for (lines, hits) in [(512u64, 512 * 9), (2048, 0)] {
        let walk: Vec<TracedAccess> = (0..10 * lines)
            .map(|step| access(0, Kind::Load, 0x10_0000 + step % lines * 64))
            .collect();
        let tables = rows(&options, |it| it.accesses(&walk));
        let total = tables
            .caches
            .iter()
            .find(|row| row.level == CacheLevel::L1d && row.subject == CacheSubject::Total)
            .expect("a sum");
        assert_eq!(total.loads, 10.0 * lines as f64);
        assert_eq!(total.hits, hits as f64, "{lines} lines");
        assert_eq!(total.compulsory, lines as f64);
    }
}

#[test]
fn accesses_that_were_passed_over_are_counted_and_told_by_nobody() {
    let model = model(&options());
    let mut measuring = Measuring::<Script>::new(&model, &options(), None).expect("measures");
    measuring.begin().expect("a thread");
    measuring.accesses(&[access(0, Kind::Load, 0x1000)]);
    measuring.event(&TracedEvent {
        thread: 0,
        time_ns: 1000,
        kind: EventKind::Passed,
        a: 4096,
        b: 0,
    });
    measuring.accesses(&[access(0, Kind::Load, 0x2000)]);
    assert_eq!(measuring.finish(&[]).followed(), 4098);
}

#[test]
fn a_heap_block_on_a_line_that_moves_has_a_row_and_its_transfers_name_it() {
    let block = Block {
        address: 0x1000,
        size: 64,
        allocated: 5,
        stack: 0,
        thread: 0,
        label: 0,
        interval: 0,
        allocator: 0,
        touched: false,
        halved: 0,
    };
    let events = vec![
        HeapEvent::Alloc {
            spaces: (0, 0),
            pid: 7,
            block,
            follow: false,
        },
        HeapEvent::Free {
            space: 0,
            address: 0x1000,
            named: false,
            time: 1500,
            thread: 1,
        },
    ];
    let record = |words| HeapRecord {
        thread: 0,
        time_ns: 5,
        spaces: (0, 0),
        pid: Pid(7),
        words,
        maps: &[],
    };
    let tables = rows_with(&options(), Some(events), |it| {
        it.heap(&record(&[0]));
        it.accesses(&turns(1000, [0x1000, 0x1000]));
        it.heap(&record(&[1]));
        // Freed: nobody's any more.
        it.accesses(&turns(1000, [0x3000, 0x3000]));
    });
    let [row] = &tables.heap_blocks[..] else {
        panic!("one block: {:?}", tables.heap_blocks);
    };
    assert_eq!((row.address, row.size), (Address(0x1000), 64));
    assert_eq!((row.freed, row.freed_by), (Some(Time(1500)), Some(Tid(8))));
    for moved in &tables.transfers {
        let of_block = moved.line == Some(Address(0x1000));
        assert_eq!(moved.to_block.is_some(), of_block, "{moved:?}");
    }
}

#[test]
fn a_trace_that_is_kept_and_replayed_gives_the_same_rows() {
    let options = MeasureOptions {
        simulates: true,
        element_bytes: Some(8),
        ..options()
    };
    let model = model(&options);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    let keep = KeepTrace {
        path: path.clone(),
        max_bytes: 1 << 30,
    };
    let numbers = numbers();
    let trace = Trace {
        threads: &numbers.threads,
        instructions: &numbers.instructions,
        one_line_in: 1,
        model: &model,
        end: Time(2000),
    };
    let measuring = || Measuring::<Script>::new(&model, &options, None).expect("measures");
    let mut live = Both(
        measuring(),
        TraceWriter::create(&keep).expect("a file for the trace"),
    );
    live.begin().expect("a thread");
    for round in 0..50 {
        live.accesses(&turns(100, [0x1000, 0x1000 + round * 8]));
    }
    let Both(measured, mut writer) = live;
    writer.close(&numbers);
    let first = measured.finish(&[]).tables(&trace);

    let mut again = measuring();
    again.begin().expect("a thread");
    let mut reader = TraceReader::open(&path).expect("a trace");
    assert_eq!(reader.replay(&mut again).expect("a whole trace"), numbers);
    let second = again.finish(&[]).tables(&trace);
    assert!(first.transfers.len() > 2 && !first.reuse.is_empty());
    assert_eq!(first.transfers, second.transfers);
    assert_eq!(first.reuse, second.reuse);
    assert_eq!(first.reuse_pairs, second.reuse_pairs);
    assert_eq!(first.caches, second.caches);
}
