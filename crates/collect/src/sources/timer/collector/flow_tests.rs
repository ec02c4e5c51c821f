//! Following objects on an invented kernel, with a heap that is told of by a real recorder's ring.

use std::ffi::CString;
use std::time::Duration;

use linewise_heap::{AllocatorCode, RecordKind, Region, RingIds, Writer as RingWriter, stamp};
use linewise_machine::perf::SamplerOptions;
use linewise_recording::{CreateMode, History, HistoryAccess, HistoryOutcome, Loss, Recording};

use super::*;
use crate::kernel::invented::{Asked, At, Invented};
use crate::kernel::{Clocks, Denial, Launching, Machinery};
use crate::options::Wanted;
use crate::sources::timer::budget::Limits;
use crate::sources::timer::description::describe;
use crate::sources::timer::samplers::threads::ThreadSamplers;

/// `lock add qword [rdi+8], 1`, and where it ends.
const CODE: u64 = 0x40_0000;
const BEHIND: u64 = CODE + 126;
/// The address of all objects, 32 bytes each, and their allocation site.
const OBJECT: u64 = 0x1_0000;
const SITE: u64 = 77;

/// The process of the target: the heap recorder forgets one that this machine does not know.
fn pid_here() -> u32 {
    std::process::id()
}

fn at(address: u64) -> At {
    At {
        ip: BEHIND,
        registers: vec![(5, address - 8)],
        chain: vec![BEHIND],
        ..At::default()
    }
}

struct Trial {
    kernel: Invented,
    collector: Collector<Invented>,
    target: Region,
    ring: RingWriter,
    folder: tempfile::TempDir,
}

impl Trial {
    fn new(wanted: Wanted) -> Self {
        let kernel = Invented::new();
        kernel.with(|world| {
            world.follow_real_time();
            let mut code = [0x48, 0x89, 0xd8].repeat(40);
            code.extend([0xf0, 0x48, 0x83, 0x47, 0x08, 0x01, 0x48, 0xff, 0xc1, 0x90]);
            world.make(pid_here(), 1, "program").memory = vec![(CODE, code)];
        });
        let costs = Costs {
            skid: kernel.skid_rule().unwrap(),
            watchpoints: kernel.watchpoint_costs().ok(),
            switch_ns: 1.0,
            armed_switch_ns: 1.0,
        };
        let options = SamplerOptions {
            period_ns: 1_000_000,
            enable_on_exec: false,
            inherit: true,
        };
        let samplers = ThreadSamplers::open(kernel.clone(), pid_here(), &[0, 1], options).unwrap();
        samplers.enable().unwrap();
        let limits = Limits {
            overhead: 0.5,
            rate: None,
        };
        let info = RunInfo {
            pid: Pid(pid_here()),
            ..describe(
                &kernel,
                "each thread",
                kernel.now(),
                &kernel.facts(),
                &costs,
                3,
            )
        };
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("recording");
        let writer = Writer::create(&directory, &info, CreateMode::New).unwrap();
        let budget = Budget::new(limits, &costs, options.period_ns, kernel.now());
        let mut collector = Collector::new(
            kernel.clone(),
            Samplers::Threads(samplers),
            writer,
            info,
            (budget, &costs),
            vec![0, 1],
            None,
        );
        collector.found_process(pid_here());
        let region = Region::create().unwrap();
        let path = CString::new(region.path()).unwrap();
        let target = Region::open(&path, None).unwrap();
        collector.record_heap(HeapRecorder::loaded(region, None));
        collector.follow_objects(FlowRecorder::new(wanted, 3));
        let ids = RingIds {
            pid: pid_here(),
            tid: pid_here(),
            image: 1,
            parent: 1,
        };
        let ring = RingWriter::claim(&target, ids, 1, stamp(), true).unwrap();
        let trial = Self {
            kernel,
            collector,
            target,
            ring,
            folder,
        };
        trial.tell(RecordKind::Stack, &[SITE, CODE + 50]);
        trial
    }

    fn tell(&self, kind: RecordKind, words: &[u64]) {
        let head = (kind, AllocatorCode::Malloc, 0);
        assert!(self.ring.write(&self.target, head, &[words]));
    }

    /// An object lives for a while, is touched and sampled, and ends.
    fn life(&self) {
        self.tell(RecordKind::Alloc, &[stamp(), OBJECT, 32, SITE]);
        std::thread::sleep(Duration::from_micros(200));
        self.kernel.with(|world| {
            world.works(pid_here(), pid_here(), 5_000_000);
            for offset in [0, 8] {
                let address = OBJECT + offset;
                world.touched(0, (pid_here(), pid_here()), (address, true), &at(address));
                world.sampled(0, (pid_here(), pid_here()), &at(address));
            }
        });
        std::thread::sleep(Duration::from_micros(200));
    }

    fn tick(&mut self) {
        self.kernel.wait_readable(&[], Duration::from_millis(1));
        self.collector.tick().unwrap();
    }

    fn run(&mut self, lives: usize) {
        for _ in 0..lives {
            self.life();
            // The object is alive when its sample is taken in.
            self.tick();
            self.tell(RecordKind::Free, &[stamp(), OBJECT]);
            self.tick();
        }
    }

    fn finish(mut self) -> (Recording, tempfile::TempDir) {
        self.collector.release().unwrap();
        self.collector.finish("target-exited", None).unwrap();
        assert_eq!(self.kernel.with(|world| world.open()), 0);
        let recording = Recording::open(&self.folder.path().join("recording")).unwrap();
        (recording, self.folder)
    }
}

fn losses(recording: &Recording) -> Vec<String> {
    let losses: Vec<Loss> = recording.read().unwrap();
    losses.into_iter().map(|loss| loss.what).collect()
}

#[test]
fn objects_are_followed_from_their_allocation_to_their_end() {
    let mut trial = Trial::new(Wanted::Most);
    trial.run(120);
    let (recording, _folder) = trial.finish();
    let histories: Vec<History> = recording.read().unwrap();
    let whole = histories
        .iter()
        .filter(|it| it.outcome == HistoryOutcome::Whole);
    assert!(
        whole.clone().count() > 5,
        "{} {:?}",
        histories.len(),
        losses(&recording)
    );
    for history in whole {
        assert_eq!((history.address, history.size), (Address(OBJECT), 32));
        assert_eq!(
            (history.allocated_by, history.freed_by),
            (Tid(pid_here()), Some(Tid(pid_here())))
        );
        assert!(history.freed.unwrap() > history.allocated);
    }
    let accesses: Vec<HistoryAccess> = recording.read().unwrap();
    assert!(!accesses.is_empty());
    for access in &accesses {
        assert!([0, 8].contains(&access.offset), "{}", access.offset);
        assert_eq!(
            (access.tid, access.access_ip),
            (Tid(pid_here()), Address(CODE + 120))
        );
        assert_eq!(access.operation, Some(Operation::Update));
    }
}

#[test]
fn of_more_threads_than_are_watched_the_rest_is_counted() {
    let mut trial = Trial::new(Wanted::Most);
    trial.kernel.with(|world| {
        for number in 1..20 {
            world.fork(pid_here(), pid_here(), pid_here() + number);
        }
    });
    trial.run(40);
    let (recording, _folder) = trial.finish();
    let losses: Vec<Loss> = recording.read().unwrap();
    let unwatched = losses
        .iter()
        .find(|loss| loss.what == "flow-threads-unwatched");
    assert_eq!(unwatched.map(|loss| loss.count), Some(4));
}

/// Objects in whose lives something happens that leaves their histories incomplete.
fn incomplete(happens: impl Fn(&Trial, u32), is_freed: bool) -> (Vec<History>, Vec<String>) {
    let mut trial = Trial::new(Wanted::Most);
    // Where objects end an address is found that is worth a watch.
    trial.run(20);
    for round in 0..40 {
        trial.life();
        happens(&trial, round);
        trial.tick();
        if is_freed {
            trial.tell(RecordKind::Free, &[stamp(), OBJECT]);
        }
        trial.tick();
    }
    let (recording, _folder) = trial.finish();
    (recording.read().unwrap(), losses(&recording))
}

#[test]
fn a_thread_that_begins_leaves_the_history_of_an_object_incomplete() {
    let begins = |trial: &Trial, round: u32| {
        trial.kernel.with(|world| {
            let tid = pid_here() + 1 + round;
            world.fork(pid_here(), pid_here(), tid);
            world.exit(pid_here(), tid);
        });
        std::thread::sleep(Duration::from_micros(200));
    };
    let (histories, losses) = incomplete(begins, true);
    let began = histories
        .iter()
        .filter(|it| it.outcome == HistoryOutcome::ThreadBegan);
    assert!(began.count() > 0, "{losses:?}");
    assert!(
        losses.contains(&"flow-thread-began".to_owned()),
        "{losses:?}"
    );
}

#[test]
fn an_object_that_is_touched_too_often_or_never_ends_has_no_whole_history() {
    let touches = |trial: &Trial, _: u32| {
        trial.kernel.with(|world| {
            for _ in 0..200 {
                for offset in [0, 8, 16, 24] {
                    let address = OBJECT + offset;
                    let whose = (pid_here(), pid_here());
                    world.touched(1, whose, (address, true), &at(address));
                }
            }
        });
        std::thread::sleep(Duration::from_micros(200));
    };
    let (histories, losses) = incomplete(touches, true);
    assert!(histories.iter().any(|it| it.outcome == HistoryOutcome::Hot));
    assert!(losses.contains(&"flow-hot".to_owned()), "{losses:?}");

    let (histories, losses) = incomplete(|_, _| {}, false);
    let unfinished = |it: &History| it.outcome == HistoryOutcome::Unfinished;
    assert!(histories.iter().any(unfinished), "{losses:?}");
    assert!(losses.contains(&"flow-unfinished".to_owned()), "{losses:?}");
}

#[test]
fn who_names_a_function_that_nothing_is_allocated_in_is_told() {
    let mut trial = Trial::new(Wanted::Named("no_such_function".to_owned()));
    trial.run(20);
    let (recording, _folder) = trial.finish();
    assert!(recording.read::<History>().unwrap().is_empty());
    assert!(losses(&recording).contains(&"flow-not-found".to_owned()));
}

#[test]
fn a_watchpoint_for_an_object_that_is_refused_is_a_loss() {
    let mut trial = Trial::new(Wanted::Most);
    let refuse = |world: &mut crate::kernel::invented::World| {
        world.refusals.insert(Asked::Breakpoint, Denial::NoRegister);
    };
    trial.kernel.with(refuse);
    trial.run(40);
    let (recording, _folder) = trial.finish();
    let losses = losses(&recording);
    assert!(
        losses.contains(&"flow-watch-refused".to_owned()),
        "{losses:?}"
    );
    assert!(
        losses.contains(&"flow-nothing-seen".to_owned()),
        "{losses:?}"
    );
}
