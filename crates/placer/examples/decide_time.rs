//! How long a decision takes, with tasks whose places are fought over in every interval: `cargo run --release -p
//! linewise-placer --example decide_time`. Medians of 2,000 decisions, and the fastest and slowest of their middle nine
//! tenths.

use std::hint::black_box;
use std::time::Instant;

use linewise_placer::{
    Activity, History, Machine, Mask, Sharing, Snapshot, Task, TaskKey, Thresholds, decide,
};
use linewise_topology::synthetic::Shape;

/// Sockets, last-level caches of one, cores of one, tasks.
const CASES: [(u32, u32, u32, u32); 2] = [(2, 1, 10, 200), (4, 8, 8, 5000)];

fn main() {
    for (sockets, llcs, cores, tasks) in CASES {
        let machine = Machine::new(&shape(sockets, llcs, cores).build());
        for knows_pairs in [false, true] {
            let told = time(&machine, tasks, knows_pairs);
            let how = if knows_pairs {
                "pairs known"
            } else {
                "counters"
            };
            println!(
                "{} CPUs, {tasks} tasks, {how}: {:.1} µs ({:.1} to {:.1}), {:.1} moves a decision",
                machine.len(),
                told.median,
                told.low,
                told.high,
                told.moves
            );
        }
    }
}

fn shape(sockets: u32, llcs: u32, cores: u32) -> Shape {
    Shape {
        sockets,
        llcs_per_socket: llcs,
        cores_per_llc: cores,
        threads_per_core: 2,
        l1_bytes: 32 << 10,
        l2_bytes: 256 << 10,
        l3_bytes: 25 << 20,
    }
}

struct Told {
    median: f64,
    low: f64,
    high: f64,
    moves: f64,
}

fn time(machine: &Machine, tasks: u32, knows_pairs: bool) -> Told {
    const DECISIONS: usize = 2_000;
    let mut seen = snapshot(machine, tasks, knows_pairs);
    let mut history = History::new();
    let mut times = Vec::with_capacity(DECISIONS);
    let mut moved = 0;
    for decision in 0..DECISIONS {
        let begin = Instant::now();
        let moves = decide(
            machine,
            &Thresholds::IVY_BRIDGE,
            black_box(&seen),
            &mut history,
        );
        times.push(begin.elapsed().as_secs_f64() * 1e6);
        moved += moves.len();
        for one in &moves {
            let at = (one.task.tid - 1) as usize;
            seen.tasks[at].cpu = one.to;
        }
        // What the tasks do changes every sixth interval, so that there is always something to decide.
        for (at, task) in seen.tasks.iter_mut().enumerate() {
            task.activity = activity(at + decision / 6);
        }
    }
    times.sort_by(f64::total_cmp);
    Told {
        median: times[DECISIONS / 2],
        low: times[DECISIONS / 20],
        high: times[DECISIONS * 19 / 20],
        moves: moved as f64 / DECISIONS as f64,
    }
}

/// A third shares across sockets, a third uses memory, a third computes.
fn activity(at: usize) -> Activity {
    let mut activity = Activity {
        load: 1.0,
        executed: 1.0,
        progress: Some(1e9),
        ..Activity::default()
    };
    match at % 3 {
        0 => activity.transfers = [1e5, 1e6, 1e6],
        1 => activity.misses = 2e7,
        _ => {}
    }
    activity
}

fn snapshot(machine: &Machine, tasks: u32, knows_pairs: bool) -> Snapshot {
    let all = (0..machine.len() as u32)
        .map(|cpu| machine.number(cpu))
        .collect();
    let task = |at: u32| Task {
        key: TaskKey {
            tid: at + 1,
            start: 1,
        },
        process: at / 10,
        cpu: at * 7 % machine.len() as u32,
        strays: [0.0; 2],
        mask: 0,
        activity: activity(at as usize),
    };
    // Groups of eight, each with each of its next four.
    let pairs =
        (0..tasks).flat_map(|one| (1..=4).map(move |step| (one, one / 8 * 8 + (one + step) % 8)));
    let sharing = pairs.filter(|&(_, other)| knows_pairs && other < tasks);
    let sharing = sharing.map(|(one, other)| Sharing {
        one,
        other,
        transfers: 1e6 + f32::from((one % 97) as u8),
    });
    Snapshot {
        tasks: (0..tasks).map(task).collect(),
        masks: vec![Mask::new(machine, &all)],
        sharing: sharing.collect(),
        other_load: Vec::new(),
    }
}
