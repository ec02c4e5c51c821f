//! The view on invented rows with a known answer.

use linewise_recording::{
    AddressOrigin, BlockedLoad, CpuId, GoroutineSeen, Latency, Map, MapKind, Overhead, RunInfo,
    Sample, SampleClass, SharedMemory, Source, StackId, Switch, Time, Trap, Watch, WatchOutcome,
};

use super::*;
use crate::users::Goroutines;

const LINE: u64 = 0x1000;
/// One sample stands for 2 ms.
const WEIGHT: u64 = 2_000_000;
const SECOND: u64 = 1_000_000_000;

/// A run of one second in which threads 1 and 2 are on CPUs 0 and 1.
#[derive(Default)]
struct Rows {
    samples: Vec<Sample>,
    watches: Vec<Watch>,
    traps: Vec<Trap>,
    switches: Vec<Switch>,
    blocked_loads: Vec<BlockedLoad>,
    maps: Vec<Map>,
    goroutines: Vec<GoroutineSeen>,
}

impl Rows {
    /// The second thread is a process of its own, which has the line at another address.
    fn in_two_processes(mut self, shared: bool) -> Self {
        const ELSEWHERE: u64 = 0x50_0000;
        for sample in self.samples.iter_mut().filter(|it| it.tid == Tid(2)) {
            (sample.pid, sample.address.0) = (Pid(2), sample.address.0 + ELSEWHERE);
        }
        for watch in self.watches.iter_mut().filter(|it| it.tid == Tid(2)) {
            (watch.pid, watch.address.0) = (Pid(2), watch.address.0 + ELSEWHERE);
        }
        for trap in self.traps.iter_mut().filter(|it| it.tid == Tid(2)) {
            (trap.pid, trap.address.0) = (Pid(2), trap.address.0 + ELSEWHERE);
        }
        self.maps = [(1, LINE), (2, LINE + ELSEWHERE)]
            .map(|(pid, start)| Map {
                pid: Pid(pid),
                time: Time(0),
                start: Address(start),
                end: Address(start + 0x1000),
                offset: 0,
                executable: false,
                writable: true,
                kind: MapKind::File,
                path: "/memfd:counters (deleted)".to_owned(),
                build_id: String::new(),
                device: shared.then_some(1),
                inode: shared.then_some(1025),
            })
            .to_vec();
        self
    }

    /// Samples of a thread at an address: `count` of them, spread over the second.
    fn at(
        mut self,
        tid: u32,
        address: u64,
        operation: Operation,
        locked: bool,
        count: u64,
    ) -> Self {
        for i in 0..count {
            self.samples.push(Sample {
                time: Time(SECOND + i * SECOND / count),
                pid: Pid(1),
                tid: Tid(tid),
                cpu: CpuId(tid - 1),
                ip: Address(0x40_0010),
                sp: Address(0x7000),
                stack: StackId(0),
                weight: WEIGHT,
                class: SampleClass::Access,
                access_ip: Address(0x40_0000 + u64::from(tid)),
                address: Address(address),
                size: 8,
                operation: Some(operation),
                locked,
                origin: Some(AddressOrigin::Registers),
                reason: None,
            });
        }
        self
    }

    /// Fifty watches of the line in a thread, all four chunks from 0, of which the chunk of
    /// `address` traps after `wait_ns`, if at all.
    fn met(mut self, tid: u32, address: u64, operation: Operation, wait_ns: Option<u64>) -> Self {
        for i in 0..50 {
            let armed = SECOND + i * 20_000_000;
            self.watch(tid, LINE, armed);
            if let Some(wait_ns) = wait_ns {
                self.trap(tid, address, operation, wait_ns);
            }
        }
        self
    }

    /// A watch of the first four chunks of a line in a thread, where the other published an update of the first.
    fn watch(&mut self, tid: u32, line: u64, armed: u64) {
        self.watches.push(Watch {
            id: self.watches.len() as u64,
            armed: Time(armed),
            closed: Time(armed + 16_000_000),
            pid: Pid(1),
            tid: Tid(tid),
            publisher: Tid(3 - tid),
            address: Address(line),
            size: 8,
            operation: Operation::Update,
            chunks: 0x0f,
            publisher_cpu: CpuId(2 - tid),
            outcome: WatchOutcome::Trapped,
            exposure_ns: 16_000_000,
        });
    }

    /// A trap of the last watch.
    fn trap(&mut self, tid: u32, address: u64, operation: Operation, wait_ns: u64) {
        let watch = self.watches.last().unwrap();
        self.traps.push(Trap {
            watch: watch.id,
            chunk: ((address - watch.address.0) / 8) as u8,
            exposure_ns: wait_ns,
            time: Time(watch.armed.0 + wait_ns),
            pid: Pid(1),
            tid: Tid(tid),
            cpu: CpuId(tid - 1),
            access_ip: Address(0x40_0000 + u64::from(tid)),
            address: Address(address),
            size: 8,
            operation,
            locked: true,
            stack: StackId(0),
        });
    }

    /// Updates of two threads at 300 lines, of which 250 are sampled once or twice and watched once; the other thread
    /// comes to a word of it after `wait_ns`, if at all.
    fn scattered(word: u64, wait_ns: Option<u64>) -> Self {
        let mut rows = Self::default();
        for i in 0..400 {
            let tid = 1 + i as u32 % 2;
            let line = LINE + (i * 3 % 250) * 64;
            rows = rows.at(tid, line, Operation::Update, true, 1);
            rows.samples.last_mut().unwrap().time = Time(SECOND + i * 2_500_000);
            if i < 250 {
                rows.watch(3 - tid, line, SECOND + i * 3_000_000);
                if let Some(wait_ns) = wait_ns {
                    rows.trap(3 - tid, line + 8 * word, Operation::Update, wait_ns);
                }
            }
        }
        rows
    }

    fn on_cpu(mut self, tid: u32, start: u64, end: u64) -> Self {
        self.switches.push(Switch {
            tid: Tid(tid),
            cpu: CpuId(tid - 1),
            start: Time(start),
            end: Time(end),
        });
        self
    }

    fn view(&self) -> SharingView {
        self.view_with(&[latency()])
    }

    fn view_with(&self, latencies: &[Latency]) -> SharingView {
        let info = RunInfo {
            format_version: 1,
            id: String::new(),
            linewise_version: String::new(),
            complete: true,
            command: vec![],
            pid: Pid(1),
            launched: true,
            source: Source::Timer,
            source_reason: String::new(),
            start: Time(SECOND),
            end: Time(2 * SECOND),
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
            skid_rule: "next".into(),
            exposure_offset_ns: 0.0,
            trap_delay_ns: 0.0,
            overhead: Overhead::default(),
            exact: None,
            reuse: None,
            heap: None,
            caches: Vec::new(),
        };
        sharing(&Input {
            info: &info,
            samples: &self.samples,
            watches: &self.watches,
            traps: &self.traps,
            switches: &self.switches,
            blocked_loads: &self.blocked_loads,
            latencies,
            shared: &SharedMemory::of(&self.maps),
            goroutines: &Goroutines::new(&self.goroutines),
        })
    }
}

fn latency() -> Latency {
    Latency {
        time: Time(SECOND),
        cpu_a: CpuId(0),
        cpu_b: CpuId(1),
        round_trip_ns: 400.0,
        transfer_idle_ns: 100.0,
        transfer_busy_ns: 120.0,
        busy_share: 0.5,
        transfer_crowded_ns: 180.0,
        crowded_share: 0.9,
        transfer_saturated_ns: 200.0,
        hit_ns: 5.0,
    }
}

/// Both threads spend the whole second at the line, each at a word of its own.
fn false_sharers() -> Rows {
    Rows::default()
        .at(1, LINE, Operation::Update, true, 500)
        .at(2, LINE + 8, Operation::Update, true, 500)
        .met(1, LINE, Operation::Update, Some(100))
        .met(2, LINE + 8, Operation::Update, Some(100))
}

#[test]
fn two_threads_at_one_line_all_the_time_transfer_it_as_fast_as_it_moves() {
    let view = false_sharers().view();
    let [line] = &view.lines[..] else {
        panic!("{} lines", view.lines.len())
    };
    // A second each at 200 ns a transfer, both ways.
    assert!(
        (line.transfers.value - 1e7).abs() < 5e5,
        "{:?}",
        line.transfers
    );
    assert!(line.transfers.low < 1e7 && line.transfers.high > 1e7);
    assert_eq!(line.true_transfers(), 0.0);
    assert!((line.false_transfers() - line.transfers.value).abs() < 1.0);
    assert!(
        line.cost_ns.value > 1.5e9 && line.cost_ns.value <= 2e9,
        "{:?}",
        line.cost_ns
    );
    let cpus = line.cpu_flows[&(CpuId(0), CpuId(1))];
    assert!((cpus.1 - line.transfers.value).abs() < 1.0, "{cpus:?}");
}

#[test]
fn how_much_a_thread_wants_the_line_is_told_by_the_time_at_which_the_other_is_beside_it() {
    // In the first half of the second both run and are at the line all the time. Then each runs alone for
    // half a second, in which its accesses are hits and take a tenth of its time.
    let half = SECOND / 2;
    let mut rows = Rows::default()
        .at(1, LINE, Operation::Update, true, 500)
        .at(2, LINE + 8, Operation::Update, true, 500)
        .met(1, LINE, Operation::Update, Some(100))
        .met(2, LINE + 8, Operation::Update, Some(100))
        .on_cpu(1, SECOND, 2 * SECOND)
        .on_cpu(2, SECOND, SECOND + half)
        .on_cpu(2, 2 * SECOND, 2 * SECOND + half);
    let alone = rows
        .samples
        .iter_mut()
        .filter(|it| it.time.0 >= SECOND + half);
    for (i, sample) in alone.enumerate() {
        if sample.tid == Tid(2) {
            sample.time.0 += half;
        }
        if i % 10 != 0 {
            sample.class = SampleClass::Compute;
            sample.operation = None;
        }
    }
    let view = rows.view();
    let [line] = &view.lines[..] else {
        panic!("{} lines", view.lines.len())
    };
    // Half a second each at 200 ns a transfer, both ways.
    let transfers = line.transfers.value;
    assert!((4.5e6..5.3e6).contains(&transfers), "{transfers}");
}

#[test]
fn calls_that_wait_for_a_word_cost_where_its_line_is_fought_over_and_nowhere_else() {
    let fought = || {
        Rows::default()
            .at(1, LINE, Operation::Update, true, 100)
            .at(2, LINE + 8, Operation::Update, true, 100)
            .met(1, LINE, Operation::Update, Some(100))
            .met(2, LINE + 8, Operation::Update, Some(100))
    };
    let with_calls = |at: u64| {
        let rows = fought();
        let before = rows.samples.len();
        let mut rows = rows.at(1, at, Operation::Update, true, 100);
        for sample in &mut rows.samples[before..] {
            sample.class = SampleClass::Kernel;
            sample.operation = None;
        }
        let lines = rows.view().lines;
        let cost = |it: &LineSharing| (it.cost_ns.low, it.cost_ns.value, it.cost_ns.high);
        lines.iter().map(cost).collect::<Vec<_>>()
    };
    let [(low, value, high)] = with_calls(LINE + 640)[..] else {
        panic!("one line is fought over")
    };
    let all = (100 * WEIGHT) as f64;
    assert_eq!(
        with_calls(LINE + 16),
        [(low, value + all / 2.0, high + all)]
    );
}

#[test]
fn a_thread_that_samples_found_and_no_watch_met_is_there_like_the_others() {
    let rows = |watched: bool| {
        let rows = Rows::default()
            .at(1, LINE, Operation::Update, true, 500)
            .at(2, LINE + 8, Operation::Update, true, 500)
            .met(2, LINE + 8, Operation::Update, Some(100));
        match watched {
            true => rows.met(1, LINE, Operation::Update, Some(100)),
            false => rows,
        }
    };
    let (met, unmet) = (rows(true).view(), rows(false).view());
    let transfers = |view: &SharingView| view.lines[0].transfers;
    assert!((transfers(&unmet).value - transfers(&met).value).abs() < 1e5);
    // Fifty watches of one thread, all of which met it, leave little open for the other.
    assert!(transfers(&unmet).low <= transfers(&met).low);
    assert!(transfers(&unmet).low > 0.9 * transfers(&met).low);
    // One that fifty watches looked for in vain is not.
    let visitor = Rows::default()
        .at(1, LINE, Operation::Update, true, 500)
        .at(2, LINE + 8, Operation::Update, true, 500)
        .met(1, LINE, Operation::Update, None)
        .met(2, LINE + 8, Operation::Update, Some(100))
        .view();
    assert!(visitor.lines.is_empty(), "{:?}", visitor.lines);
}

#[test]
fn who_updates_a_line_and_loses_no_time_there_is_hardly_there() {
    let all = |rows: Rows| -> f64 {
        let view = rows.view();
        view.lines.iter().map(|it| it.transfers.value).sum()
    };
    // Each watch meets it at once, as one that comes every 50 µs; samples find it elsewhere.
    let rows = |updates: u64, operation| {
        let rows = Rows::default()
            .at(1, LINE, Operation::Load, false, 500)
            .at(2, LINE + (1 << 12), Operation::Load, false, 500 - updates)
            .met(2, LINE + 8, operation, Some(100));
        match updates {
            0 => rows,
            _ => rows.at(2, LINE + 8, operation, false, updates),
        }
    };
    let often = all(rows(200, Operation::Update));
    let seldom = all(rows(0, Operation::Update));
    assert!(often > 5.0 * seldom, "{often} {seldom}");
    // A plain store loses none that samples could see.
    assert!(all(rows(0, Operation::Store)) > 5.0 * seldom);
}

#[test]
fn lines_with_hardly_a_sample_each_are_known_together() {
    let sums = |view: &SharingView| {
        let mut sum = Estimate::default();
        view.lines.iter().for_each(|line| sum.add(line.transfers));
        sum
    };
    // 280 lines, to each of which each of two threads comes every 0.4 ms, for a second: 1.4 million.
    let shared = Rows::scattered(0, Some(440_000)).view();
    let transfers = sums(&shared);
    assert!((0.9e6..1.8e6).contains(&transfers.value), "{transfers:?}");
    assert!((0.4e6..1.3e6).contains(&transfers.low), "{transfers:?}");
    assert!(shared.lines.len() > 200);
    let most = |of: fn(&LineSharing) -> f64| shared.lines.iter().map(of).fold(0.0, f64::max);
    assert!(most(|line| line.false_share.high) < 0.05);
    // The other word of each line.
    let beside = Rows::scattered(1, Some(440_000)).view();
    assert!(beside.lines.iter().all(|it| it.false_share.low > 0.95));
    // Of lines that the other hardly ever comes to little moves, and of those that nobody does, nothing.
    let mut seldom = Rows::scattered(0, None);
    for line in 0..4 {
        seldom.watch(2, LINE + line * 64, SECOND);
        seldom.trap(2, LINE + line * 64, Operation::Update, 8_000_000);
    }
    let seldom = sums(&seldom.view());
    assert!(seldom.value < 2_000.0, "{seldom:?}");
    assert!(Rows::scattered(0, None).view().lines.is_empty());
    // Threads that are never on CPUs at once.
    let turns = Rows::scattered(0, Some(440_000))
        .on_cpu(1, SECOND, SECOND + SECOND / 2)
        .on_cpu(2, SECOND + SECOND / 2, 2 * SECOND)
        .view();
    assert!(turns.lines.is_empty() && turns.taking_turns > 200);
    // More than a private cache holds: all were seen once.
    let mut many = Rows::scattered(0, Some(440_000));
    for (i, sample) in many.samples.iter_mut().enumerate().skip(250) {
        sample.address.0 += 64 * (1000 + i as u64);
    }
    let many = many.view();
    assert!(
        many.lines.is_empty() && many.spread > 16_384,
        "{}",
        many.spread
    );
}

#[test]
fn the_same_word_is_true_sharing() {
    let view = Rows::default()
        .at(1, LINE, Operation::Update, true, 500)
        .at(2, LINE, Operation::Update, true, 500)
        .met(1, LINE, Operation::Update, Some(100))
        .met(2, LINE, Operation::Update, Some(100))
        .view();
    assert_eq!(view.lines[0].false_transfers(), 0.0);
    assert!(view.lines[0].true_transfers() > 9e6);
}

#[test]
fn threads_that_never_run_at_the_same_time_transfer_nothing() {
    let view = false_sharers().on_cpu(1, SECOND, SECOND + SECOND / 2);
    let view = view.on_cpu(2, 5 * SECOND, 6 * SECOND).view();
    assert!(
        view.lines.iter().all(|line| line.transfers.value < 2e6),
        "{:?}",
        view.lines
    );
    let apart = false_sharers()
        .on_cpu(1, 5 * SECOND, 6 * SECOND)
        .on_cpu(2, 5 * SECOND, 6 * SECOND);
    // At once, but not while they were sampled.
    assert!(apart.view().lines.is_empty());
    assert_eq!((apart.view().taking_turns, apart.view().unmet), (0, 1));
}

#[test]
fn a_sample_in_the_moment_in_which_one_thread_hands_over_to_another_makes_no_sharing() {
    // Each runs for half of the second, and the first sleeps 2 ms after the second woke: as long as
    // a CPU is that the host takes away. A sample of the second falls into these 2 ms.
    let half = SECOND + SECOND / 2;
    let rows = |asleep| {
        false_sharers()
            .on_cpu(1, SECOND, asleep)
            .on_cpu(2, half, 2 * SECOND)
    };
    let handed_over = rows(half + 2_000_000).view();
    assert!(handed_over.lines.is_empty(), "{:?}", handed_over.lines);
    assert_eq!(handed_over.taking_turns, 1);
    let beside = rows(half + 100_000_000).view();
    assert_eq!(
        beside.lines.len(),
        1,
        "a fifth of their time is no handing over"
    );
}

#[test]
fn a_hot_private_line_is_none_of_the_view() {
    let view = Rows::default()
        .at(1, LINE, Operation::Update, true, 500)
        .met(2, LINE, Operation::Update, None)
        .view();
    assert!(view.lines.is_empty());
}

#[test]
fn a_hot_line_that_another_thread_visits_now_and_then_moves_only_so_often() {
    // Thread 2 comes every 2 ms; thread 1 is there all the time.
    let view = Rows::default()
        .at(1, LINE, Operation::Load, false, 500)
        .met(2, LINE + 8, Operation::Store, Some(2_000_000))
        .view();
    let line = &view.lines[0];
    assert!(line.transfers.value < 3_000.0, "{:?}", line.transfers);
    assert!(
        line.cost_ns.value < 1e6,
        "under a thousandth: {:?}",
        line.cost_ns
    );
}

#[test]
fn a_reader_takes_no_transfer_from_a_writer_that_only_it_disturbs() {
    // The reader's copies are transfers; the writer's upgrades are not.
    let both = |reader: Operation| {
        Rows::default()
            .at(1, LINE, Operation::Update, true, 500)
            .at(2, LINE, reader, false, 500)
            .met(1, LINE, Operation::Update, Some(100))
            .met(2, LINE, reader, Some(100))
            .view()
            .lines[0]
            .transfers
            .value
    };
    let (reading, writing) = (both(Operation::Load), both(Operation::Store));
    assert!(
        (reading * 2.0 - writing).abs() < 0.05 * writing,
        "{reading} and {writing}"
    );
}

/// A thread that works on the line all the time, and one that reads it within the 30 µs that the
/// watches cannot tell apart, with `at_line` of its 500 samples at the line.
fn writer_and_reader(at_line: u64) -> SharingView {
    Rows::default()
        .at(1, LINE, Operation::Update, true, 500)
        .at(2, LINE + 4096, Operation::Update, true, 500 - at_line)
        .at(2, LINE, Operation::Load, false, at_line)
        .met(2, LINE, Operation::Load, Some(30_000))
        .view()
}

#[test]
fn a_reader_that_is_hardly_ever_sampled_at_the_line_is_not_there_all_the_time() {
    let transfers = |at_line| writer_and_reader(at_line).lines[0].transfers;
    let (there, passing) = (transfers(250).value, transfers(0));
    // No sample of 500 where there are 0.7 in the mean: as often as not. Ten times hidden.
    let expected = there * 10.0 * 0.7 / 500.0;
    assert!(
        (0.3..3.0).contains(&(passing.value / expected)),
        "{passing:?} {expected}"
    );
    // At most 3 with 95 %.
    assert!(passing.high >= there * 10.0 * 3.0 / 500.0, "{passing:?}");
    assert!(passing.low < 0.2 * expected, "{passing:?}");
}

#[test]
fn without_a_latency_nothing_is_said() {
    let view = false_sharers().view_with(&[]);
    assert!(view.no_latency && view.lines.is_empty());
}

#[test]
fn processes_that_have_a_line_at_different_addresses_share_it() {
    let rows = || {
        Rows::default()
            .at(1, LINE, Operation::Update, true, 250)
            .at(2, LINE + 8, Operation::Update, true, 250)
            .met(1, LINE, Operation::Update, Some(14_000))
            .met(2, LINE + 8, Operation::Update, Some(14_000))
    };
    let alone = rows().view();
    let view = rows().in_two_processes(true).view();
    let [line] = &view.lines[..] else {
        panic!("{:?}", view.lines);
    };
    assert_eq!((line.pid, line.line), (Pid(1), Address(LINE)));
    assert_eq!(line.transfers, alone.lines[0].transfers);
    assert!(line.false_transfers() > 0.0 && line.true_transfers() == 0.0);
    let mut code: Vec<(Tid, Pid)> = line
        .places
        .iter()
        .map(|it| (it.tid, it.touch.pid))
        .collect();
    code.sort_unstable();
    code.dedup();
    assert_eq!(code, [(Tid(1), Pid(1)), (Tid(2), Pid(2))]);
    assert!(rows().in_two_processes(false).view().lines.is_empty());
}

/// Two goroutines, each of which updates a word and goes to the other thread every 50 ms.
fn swapping(words: [u64; 2]) -> Rows {
    let [one, other] = words.map(|word| LINE + 8 * word);
    let mut rows = Rows::default()
        .at(1, one, Operation::Update, true, 200)
        .at(2, other, Operation::Update, true, 200)
        .met(1, one, Operation::Update, Some(10_000))
        .met(
            2,
            other,
            Operation::Update,
            (words[1] < 8).then_some(10_000),
        );
    let swaps = |time: Time| (time.0 / 50_000_000).is_multiple_of(2);
    let mut ran = Vec::new();
    let mut place = |tid: &mut Tid, time: Time| {
        let goroutine = Address(0xc0_0000_0000 + u64::from(tid.0));
        if swaps(time) {
            *tid = Tid(3 - tid.0);
        }
        ran.push((time, *tid, goroutine));
    };
    for sample in &mut rows.samples {
        place(&mut sample.tid, sample.time);
    }
    for trap in &mut rows.traps {
        let watch = &mut rows.watches[trap.watch as usize];
        place(&mut trap.tid, trap.time);
        (watch.publisher, watch.tid) = (Tid(3 - trap.tid.0), trap.tid);
    }
    rows.goroutines = (ran.into_iter())
        .map(|(time, tid, goroutine)| GoroutineSeen {
            time,
            pid: Pid(1),
            tid,
            goroutine,
        })
        .collect();
    rows
}

#[test]
fn goroutines_that_move_between_threads_are_told_apart_by_what_each_uses() {
    let false_share = |rows: &Rows| rows.view().lines[0].false_share;
    let neighbours = swapping([0, 1]);
    let known = false_share(&neighbours);
    assert!(known.low > 0.95, "{known:?}");
    assert!(false_share(&swapping([0, 0])).high < 0.05);
    // By threads alone each uses both, now one and now the other.
    let by_threads = false_share(&Rows {
        goroutines: Vec::new(),
        ..neighbours
    });
    assert!(by_threads.high < known.low, "{by_threads:?}");
}

#[test]
fn a_line_that_one_goroutine_takes_along_to_another_thread_is_not_shared() {
    let view = swapping([0, 512]).view();
    assert!(view.lines.is_empty(), "{:?}", view.lines);
    assert_eq!((view.of_one_goroutine, view.unmet), (2, 0));
}

#[test]
fn the_time_at_a_load_that_waits_for_a_store_is_the_store_s() {
    const LOAD: Address = Address(0x40_0080);
    // `proven` is that of the rows, if there are any; `reads` is below where the loads do.
    let cost = |proven: Option<bool>, reads: u64, waits: bool| {
        let mut rows = Rows::default().at(1, LINE, Operation::Store, false, 10).at(
            2,
            LINE + 8,
            Operation::Store,
            false,
            10,
        );
        for tid in [1, 2] {
            rows = rows.at(
                tid,
                reads + u64::from(tid) * 0x1000,
                Operation::Load,
                false,
                190,
            );
            let stack = rows.samples.iter_mut().rev().take(190);
            stack.for_each(|sample| sample.access_ip = LOAD);
        }
        let row = |store: u64| BlockedLoad {
            pid: Pid(1),
            ip: LOAD,
            store_ip: Address(0x40_0000 + store),
            proven: proven == Some(true),
        };
        rows.blocked_loads = [1, 2]
            .map(row)
            .into_iter()
            .filter(|_| proven.is_some())
            .collect();
        let rows = rows.met(1, LINE, Operation::Store, Some(200));
        let view = rows.met(2, LINE + 8, Operation::Store, Some(200)).view();
        let line = &view.lines[0];
        assert_eq!(line.line, Address(LINE));
        let [first, ..] = &line.places[..] else {
            panic!("no place");
        };
        assert_eq!(first.samples, if waits { 200 } else { 10 });
        line.cost_ns.value
    };
    // The stack ends at 0x7000.
    let (without, with) = (cost(None, 0x7000, false), cost(Some(true), 0x7000, true));
    assert!(
        (15.0..=25.0).contains(&(with / without)),
        "{without} {with}"
    );
    // Where nothing proves it the load waits for a store if it reads the stack, and for its own line elsewhere.
    assert_eq!(cost(Some(false), 0x7000, true), with);
    assert_eq!(cost(Some(false), 0x7_0000, false), without);
    assert_eq!(cost(Some(true), 0x7_0000, true), with);
}
