//! Records of invented processes become rows.

use std::ffi::CString;

use linewise_heap::{
    AllocatorCode, MarkCode, RecordKind, Region, RingIds, Writer as RingWriter, stamp,
};
use linewise_recording::{
    Address, CreateMode, HeapBlock, HeapRun, Mark, MarkKind, Overhead, Pid, Recording, RunInfo,
    StackId, Tid, Time, Writer,
};

use super::ledger::{Event, LINGER, Ledger, MOST_LIVE, What};
use super::recorder::HeapRecorder;
use crate::target::follow::Stacks;

fn info() -> RunInfo {
    RunInfo {
        format_version: linewise_recording::FORMAT_VERSION,
        id: String::new(),
        linewise_version: "0.1.0".into(),
        complete: false,
        command: vec!["./invented".into()],
        pid: Pid(1),
        launched: true,
        source: linewise_recording::Source::Timer,
        source_reason: String::new(),
        start: Time(0),
        end: Time(0),
        ended_by: String::new(),
        exit_code: None,
        exit_signal: None,
        line_size: 64,
        cpus: 2,
        watchpoint_bytes: 32,
        host: String::new(),
        boot_id: String::new(),
        cpu_model: String::new(),
        hypervisor: String::new(),
        kernel: String::new(),
        skid_rule: String::new(),
        exposure_offset_ns: 0.0,
        trap_delay_ns: 0.0,
        overhead: Overhead::default(),
        exact: None,
        reuse: None,
        heap: None,
        caches: Vec::new(),
    }
}

/// Both ends of a recorder, and a recording.
struct Trial {
    target: Region,
    recorder: HeapRecorder,
    writer: Writer,
    stacks: Stacks,
    directory: tempfile::TempDir,
}

/// A thread of the target.
struct Thread<'a>(&'a Region, RingWriter);

impl Trial {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let region = Region::create().unwrap();
        let path = CString::new(region.path()).unwrap();
        Self {
            target: Region::open(&path, None).unwrap(),
            recorder: HeapRecorder::loaded(region, None),
            writer: Writer::create(&directory.path().join("made"), &info(), CreateMode::New)
                .unwrap(),
            stacks: Stacks::default(),
            directory,
        }
    }

    fn thread(&self, pid: u32, tid: u32, image: u32, parent: u32) -> Thread<'_> {
        let ids = RingIds {
            pid,
            tid,
            image,
            parent,
        };
        Thread(
            &self.target,
            RingWriter::claim(&self.target, ids, 1, stamp(), true).unwrap(),
        )
    }

    fn round(&mut self) {
        self.recorder
            .round(&mut self.writer, &mut self.stacks, 0, 0.0)
            .unwrap();
    }

    fn finish(mut self) -> (HeapRun, Vec<HeapBlock>) {
        let (run, _) = self
            .recorder
            .finish(&mut self.writer, &mut self.stacks)
            .unwrap();
        self.writer.flush().unwrap();
        let recording = Recording::open(&self.directory.path().join("made")).unwrap();
        let mut rows = recording.read::<HeapBlock>().unwrap();
        rows.sort_by_key(|row| (row.pid, row.address, row.allocated));
        (run.unwrap(), rows)
    }
}

impl Thread<'_> {
    fn mark(&self, code: MarkCode, mark: [u64; 3]) {
        self.1.mark(self.0, 0, code, mark);
    }

    fn label(&self, name: &[u8; 8]) -> u64 {
        let key = linewise_heap::key_of_bytes(name);
        let head = (RecordKind::Label, AllocatorCode::Pool, 8);
        let word = u64::from_le_bytes(*name);
        assert!(self.1.write(self.0, head, &[&[key], &[word]]));
        key
    }

    fn allocate(&self, stamp: u64, address: u64, size: u64, stack: u64) {
        let head = (RecordKind::Alloc, AllocatorCode::Malloc, 0);
        assert!(
            self.1
                .write(self.0, head, &[&[stamp, address, size, stack]])
        );
    }

    fn free(&self, stamp: u64, address: u64) {
        let head = (RecordKind::Free, AllocatorCode::Malloc, 0);
        assert!(self.1.write(self.0, head, &[&[stamp, address]]));
    }

    fn stack(&self, key: u64, frames: &[u64]) {
        let head = (RecordKind::Stack, AllocatorCode::Malloc, 0);
        assert!(self.1.write(self.0, head, &[&[key], frames]));
    }
}

#[test]
fn blocks_that_go_from_thread_to_thread_end_with_who_freed_them() {
    let mut trial = Trial::new();
    let now = stamp();
    let (one, two) = (trial.thread(7, 8, 1, 1), trial.thread(7, 9, 1, 1));
    one.stack(5, &[0x40_1000, 0x40_2000]);
    // The other thread's ring is read after this one's, its records belong in between.
    one.allocate(now + 1, 0x1000, 48, 5);
    one.allocate(now + 3, 0x1000, 32, 5);
    two.free(now + 2, 0x1000);
    two.allocate(now + 4, 0x2000, 1 << 20, 6);
    // Told too late: of the block that lay there before the one of today.
    two.free(now, 0x2000);
    trial.round();
    let (run, rows) = trial.finish();
    assert_eq!((run.processes, run.blocks, run.live_blocks), (1, 3, 2.0));
    assert_eq!(run.live_bytes, f64::from(32 + (1 << 20)));
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row.address.0, row.size, row.allocated_by, row.freed_by))
        .collect();
    assert_eq!(
        told,
        [
            (0x1000, 48, Tid(8), Some(Tid(9))),
            (0x1000, 32, Tid(8), None),
            (0x2000, 1 << 20, Tid(9), None),
        ]
    );
    assert!(rows[0].freed.unwrap() <= rows[1].allocated && rows[1].freed.is_none());
    assert_eq!(rows[0].stack, rows[1].stack);
    assert_ne!(rows[0].stack, StackId(0));
    assert_eq!(rows[2].stack, StackId(0));
}

#[test]
fn a_child_has_its_own_heap_and_what_it_touches_of_its_parents() {
    let mut trial = Trial::new();
    let now = stamp();
    let parent = trial.thread(7, 7, 1, 1);
    parent.allocate(now, 0x1000, 64, 0);
    parent.allocate(now + 1, 0x2000, 64, 0);
    trial.round();
    let child = trial.thread(20, 20, 2, 1);
    let later = stamp();
    child.free(later, 0x1000);
    child.allocate(later + 1, 0x3000, 16, 0);
    let touched = Time(linewise_machine::process::monotonic_ns());
    trial.recorder.touched(Pid(20), Address(0x2008), touched);
    trial.round();
    let (run, rows) = trial.finish();
    assert_eq!(run.processes, 2);
    let told: Vec<_> = rows.iter().map(|row| (row.pid.0, row.address.0)).collect();
    assert_eq!(told, [(7, 0x1000), (7, 0x2000), (20, 0x2000), (20, 0x3000)]);
    assert!(rows.iter().all(|row| row.freed.is_none()));
}

#[test]
fn another_program_in_the_same_process_ends_the_blocks_of_the_first() {
    let mut trial = Trial::new();
    let now = stamp();
    trial.thread(7, 7, 1, 1).allocate(now, 0x1000, 64, 0);
    trial.round();
    trial.thread(7, 7, 2, 2).allocate(stamp(), 0x1000, 32, 0);
    trial.round();
    let (run, rows) = trial.finish();
    assert_eq!(run.live_blocks, 2.0);
    assert!(rows[0].freed.is_some() && rows[0].freed_by.is_none());
    assert!(rows[0].freed.unwrap() <= rows[1].allocated && rows[1].freed.is_none());
}

#[test]
fn of_two_programs_in_one_process_the_later_is_alive_whichever_ring_is_looked_at_first() {
    let mut trial = Trial::new();
    let now = stamp();
    let (earlier, later) = (trial.thread(7, 9, 1, 1), trial.thread(7, 7, 2, 2));
    earlier.allocate(now, 0x1000, 64, 0);
    later.allocate(stamp(), 0x2000, 32, 0);
    trial.round();
    let (_, rows) = trial.finish();
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row.address.0, row.freed.is_some()))
        .collect();
    assert_eq!(told, [(0x1000, true), (0x2000, false)]);
}

#[test]
fn a_ring_that_was_not_read_yet_is_not_taken_for_one_of_a_thread_that_is_gone() {
    let mut trial = Trial::new();
    let pid = std::process::id();
    let alive = trial.thread(pid, pid, 1, 1).1;
    let gone = trial.thread(u32::MAX - 1, u32::MAX - 1, 2, 2).1;
    let both = |trial: &Trial| {
        [
            alive.is_of(&trial.target, (pid, 1)),
            gone.is_of(&trial.target, (u32::MAX - 1, 2)),
        ]
    };
    let HeapRecorder::Loaded(loaded) = &mut trial.recorder else {
        panic!("no library's");
    };
    loaded.bury(&mut trial.writer).unwrap();
    assert_eq!(both(&trial), [true, true]);
    trial.round();
    assert_eq!(both(&trial), [true, false]);
}

#[test]
fn many_blocks_become_fewer_rows_that_stand_for_all_and_touched_ones_stay() {
    const BLOCKS: u64 = 400_000;
    let mut trial = Trial::new();
    let now = stamp();
    let thread = trial.thread(7, 7, 1, 1).1;
    for number in 0..BLOCKS {
        let own = Thread(&trial.target, thread);
        own.allocate(now + number, 0x10_0000 + number * 64, 64, 0);
        if number % 5_000 == 0 {
            trial.round();
        }
    }
    trial.round();
    let time = Time(linewise_machine::process::monotonic_ns());
    let address = Address(0x10_0000 + 123_456 * 64 + 63);
    trial.recorder.touched(Pid(7), address, time);
    trial.round();
    let (run, rows) = trial.finish();
    assert_eq!((run.blocks, run.live_blocks), (BLOCKS, BLOCKS as f64));
    assert!(rows.len() < 150_000, "{}", rows.len());
    let stood_for: f64 = rows.iter().map(|row| row.weight).sum();
    assert!(
        (stood_for / BLOCKS as f64 - 1.0).abs() < 0.03,
        "{stood_for}"
    );
    let touched = rows.iter().find(|row| row.address.0 == address.0 - 63);
    assert_eq!(touched.unwrap().weight, 1.0);
}

#[test]
fn what_is_no_record_costs_itself_and_is_counted() {
    let mut trial = Trial::new();
    let head = (RecordKind::Alloc, AllocatorCode::Malloc, 0);
    let thread = trial.thread(7, 7, 1, 1);
    assert!(thread.1.write(&trial.target, head, &[&[1, 2]]));
    thread.allocate(stamp(), 0x1000, 64, 0);
    trial.round();
    let recorder = trial.recorder;
    let (run, losses) = recorder
        .finish(&mut trial.writer, &mut trial.stacks)
        .unwrap();
    assert_eq!(run.unwrap().blocks, 1);
    assert!(
        losses
            .iter()
            .any(|(what, count, _)| (*what, *count) == ("heap-events-malformed", 1))
    );
}

#[test]
fn a_block_whose_free_may_be_missed_names_nobody_who_comes_later() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer =
        Writer::create(&directory.path().join("made"), &info(), CreateMode::New).unwrap();
    let mut ledger = Ledger::new(None);
    ledger.found_image(1, 1, 7, 0);
    let thread = ledger.threads.number(8, || 8);
    let event = |stamp, address, size| Event {
        stamp,
        image: 1,
        thread,
        what: match size {
            0 => What::Free {
                address,
                named: false,
            },
            size => What::Alloc {
                address,
                size,
                stack: 0,
                allocator: 0,
                interval: 0,
                label: 0,
            },
        },
    };
    ledger.events = vec![
        event(10, 0x1000, 64),
        event(11, 0x2000, 64),
        event(12, 0x2000, 0),
    ];
    ledger.apply(20);
    // The probes go at 20 and come back; somebody else has the address then.
    ledger.cut(1, 20);
    ledger.touched(Pid(7), Address(0x1008), Time(15));
    ledger.look_up_touches();
    ledger.touched(Pid(7), Address(0x1008), Time(25));
    ledger.look_up_touches();
    ledger.events = vec![event(30, 0x3000, 0), event(31, 0x4000, 32)];
    ledger.apply(40);
    // What an ending thread had kept for later is freed once more.
    ledger.events = vec![event(41, 0x3000, 0)];
    ledger.apply(50);
    assert_eq!((ledger.frees, ledger.frees_of_unknown), (2, 1));
    ledger.close(&mut writer).unwrap();
    writer.flush().unwrap();
    let recording = Recording::open(&directory.path().join("made")).unwrap();
    let mut rows = recording.read::<HeapBlock>().unwrap();
    rows.sort_by_key(|row| row.address);
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row.address.0, row.freed.map(|time| time.0), row.freed_by))
        .collect();
    assert_eq!(
        told,
        [
            (0x1000, Some(20), None),
            (0x2000, Some(12), Some(Tid(8))),
            (0x4000, None, None),
        ]
    );
}

/// What a program of one process does, ten million times.
fn ten_million(mut happens: impl FnMut(u64) -> What) -> (Ledger, u64) {
    const EVENTS: u64 = 10_000_000;
    const ROUND: u64 = 10_000;
    let directory = tempfile::tempdir().unwrap();
    let mut writer =
        Writer::create(&directory.path().join("made"), &info(), CreateMode::New).unwrap();
    let mut ledger = Ledger::new(None);
    ledger.found_image(1, 1, 7, 0);
    let thread = ledger.threads.number(8, || 8);
    let mut most = 0;
    for round in 0..EVENTS / ROUND {
        let stamps = round * ROUND..(round + 1) * ROUND;
        let events = stamps.clone().map(|stamp| Event {
            stamp,
            image: 1,
            thread,
            what: happens(stamp),
        });
        ledger.events = events.collect();
        ledger.touched(Pid(7), Address(64 * stamps.start), Time(stamps.end));
        ledger.apply(stamps.end);
        ledger.look_up_touches();
        ledger.settle(&mut writer, LINGER).unwrap();
        most = most.max(ledger.held());
    }
    (ledger, most as u64)
}

fn alloc(address: u64) -> What {
    What::Alloc {
        address,
        size: 48,
        stack: 0,
        allocator: 0,
        interval: 0,
        label: 0,
    }
}

#[test]
fn a_program_that_only_allocates_is_known_by_a_bounded_share_of_its_blocks() {
    let (ledger, most) = ten_million(|stamp| alloc(64 * stamp));
    assert!(most <= MOST_LIVE as u64 + 50_000, "{most}");
    assert!(ledger.live() > MOST_LIVE / 4, "{}", ledger.live());
    assert_eq!(ledger.live() as u64 + ledger.forgotten, 10_000_000);
    let (what, count, said) = ledger.losses().next().unwrap();
    assert_eq!((what, count), ("heap-blocks-forgotten", ledger.forgotten));
    assert!(said.contains("forgotten"), "{said}");
    // Those that are left stand for all.
    let mut ledger = ledger;
    let directory = tempfile::tempdir().unwrap();
    let mut writer =
        Writer::create(&directory.path().join("made"), &info(), CreateMode::New).unwrap();
    ledger.close(&mut writer).unwrap();
    assert_eq!(ledger.run.live_blocks, 1e7);
    assert_eq!(ledger.run.live_bytes, 48e7);
}

#[test]
fn of_a_program_that_frees_what_it_allocated_little_is_held() {
    // A thousand blocks at a time, at addresses that move on, and frees of blocks that nobody knew.
    let (ledger, most) = ten_million(|stamp| match stamp % 3 {
        0 => alloc(64 * stamp),
        1 => What::Free {
            address: 64 * (stamp - 1).saturating_sub(3000),
            named: false,
        },
        _ => What::Free {
            address: 64 * stamp + 8,
            named: false,
        },
    });
    assert!(most <= 200_000, "{most}");
    assert_eq!(ledger.losses().next(), None);
}

#[test]
fn a_mark_has_the_name_that_another_thread_told_and_stops_where_its_thread_did() {
    let mut trial = Trial::new();
    let first = trial.thread(u32::MAX, 11, 1, 1);
    let second = trial.thread(u32::MAX, 12, 1, 1);
    let key = second.label(b"replying");
    first.mark(MarkCode::Phase, [stamp(), 0, key]);
    first.mark(MarkCode::PhaseEnd, [stamp(), 0, 0]);
    first.mark(MarkCode::Session, [stamp(), 7, 0]);
    // Nothing is told before it happens.
    first.mark(MarkCode::Session, [u64::MAX, 8, 0]);
    (0..3).for_each(|_| trial.round());
    let ended = |_, _, since: Time| Time(since.0 + 5);
    let (writer, stacks) = (&mut trial.writer, &mut trial.stacks);
    trial.recorder.finish_marks(writer, stacks, ended).unwrap();
    writer.flush().unwrap();
    let recording = Recording::open(&trial.directory.path().join("made")).unwrap();
    let rows = recording.read::<Mark>().unwrap();
    let [phase, session] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!(
        (phase.kind, phase.name.as_str()),
        (MarkKind::Phase, "replying")
    );
    assert_eq!((session.kind, session.id), (MarkKind::Session, 7));
    assert_eq!((phase.tid, session.tid), (Tid(11), Tid(11)));
    assert!(phase.start <= phase.end && phase.end <= session.start);
    assert_eq!(session.end.0, session.start.0 + 5);
}
