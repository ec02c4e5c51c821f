//! What holds of every decision, whatever was seen.

use linewise_placer::{
    Activity, History, Machine, Mask, Move, Sharing, Snapshot, Task, TaskKey, Thresholds, decide,
};
use linewise_topology::{CpuSet, synthetic};
use proptest::prelude::*;

fn machine(which: usize) -> Machine {
    Machine::new(&match which {
        0 => synthetic::two_sockets_of_ten(),
        1 => synthetic::two_sockets_of_ten_with_hyperthreads(),
        2 => synthetic::epyc_of_eight_ccxs(),
        _ => synthetic::virtual_machine_of_two(),
    })
}

/// A rate: none, about the threshold, far above it, or nonsense.
fn rate() -> impl Strategy<Value = f32> {
    prop_oneof![
        Just(0.0),
        0.0_f32..2e6,
        1e6_f32..1e9,
        Just(f32::INFINITY),
        Just(f32::NAN),
        Just(-1.0),
    ]
}

prop_compose! {
    fn activity()(
        load in 0.0_f32..=1.0,
        transfers in prop::array::uniform3(rate()),
        remote in rate(),
        misses in rate(),
        progress in prop::option::of(rate()),
    ) -> Activity {
        Activity { load, executed: load, transfers, remote, misses, progress }
    }
}

/// A task: its number, where it is, where it may run.
type Made = (u32, usize, usize, Activity);

prop_compose! {
    fn made()(tid in 0..60_u32, cpu in 0..1000_usize, mask in 0..3_usize, activity in activity()) -> Made {
        (tid, cpu, mask, activity)
    }
}

fn snapshot(machine: &Machine, made: &[Made], pairs: &[(usize, usize, f32)]) -> Snapshot {
    let count = machine.len();
    let half: CpuSet = (0..count as u32 / 2)
        .map(|cpu| machine.number(cpu))
        .collect();
    let all: CpuSet = (0..count as u32).map(|cpu| machine.number(cpu)).collect();
    let masks = vec![
        Mask::new(machine, &all),
        Mask::new(machine, &half),
        Mask::new(machine, &CpuSet::new()),
    ];
    let mut tasks: Vec<Task> = made
        .iter()
        .map(|&(tid, cpu, mask, activity)| Task {
            key: TaskKey { tid, start: 1 },
            process: 1,
            cpu: (cpu % count) as u32,
            strays: [(tid % 3) as f32 / 3.0, (tid % 5) as f32 / 5.0],
            mask: mask as u32,
            activity,
        })
        .collect();
    tasks.sort_by_key(|task| task.key);
    tasks.dedup_by_key(|task| task.key);
    let of = |at: usize| (at % tasks.len().max(1)) as u32;
    let sharing = pairs.iter().filter(|_| !tasks.is_empty());
    let sharing = sharing.map(|&(one, other, transfers)| Sharing {
        one: of(one),
        other: of(other),
        transfers,
    });
    Snapshot {
        sharing: sharing.collect(),
        tasks,
        masks,
        other_load: Vec::new(),
    }
}

fn check(snapshot: &Snapshot, moves: &[Move]) -> Result<(), TestCaseError> {
    for pair in moves.windows(2) {
        prop_assert!(
            pair[0].task < pair[1].task,
            "twice, or out of order: {:?}",
            pair
        );
    }
    for one in moves {
        let task = snapshot.tasks.iter().find(|task| task.key == one.task);
        prop_assert!(task.is_some(), "no such task: {:?}", one);
        let task = task.unwrap();
        prop_assert_eq!(task.cpu, one.from);
        let stays = matches!(one.reason, linewise_placer::Reason::Stay(..));
        prop_assert_eq!(one.from == one.to, stays, "{:?}", one);
        let mask = &snapshot.masks[task.mask as usize];
        prop_assert!(mask.has(one.to), "not allowed: {:?}", one);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_move_is_of_one_task_to_where_it_may_run_and_can_be_undone(
        which in 0..4_usize,
        intervals in prop::collection::vec(prop::collection::vec(made(), 0..60), 1..8),
        pairs in prop::collection::vec((0..60_usize, 0..60_usize, rate()), 0..80),
        refuses in any::<bool>(),
    ) {
        let machine = machine(which);
        let mut history = History::new();
        let mut place: std::collections::BTreeMap<u32, usize> = std::collections::BTreeMap::new();
        for made in &intervals {
            // A task is where it was put, as long as it lives.
            let made: Vec<Made> = made
                .iter()
                .map(|&(tid, cpu, mask, activity)| (tid, place.get(&tid).copied().unwrap_or(cpu), mask, activity))
                .collect();
            let seen = snapshot(&machine, &made, &pairs);
            let moves = decide(&machine, &Thresholds::IVY_BRIDGE, &seen, &mut history);
            check(&seen, &moves)?;
            // Carried out and undone, all are where they were.
            let mut cpus: Vec<u32> = seen.tasks.iter().map(|task| task.cpu).collect();
            let at = |key: TaskKey| seen.tasks.iter().position(|task| task.key == key).unwrap();
            for one in &moves {
                cpus[at(one.task)] = one.to;
            }
            for task in &seen.tasks {
                place.insert(task.key.tid, cpus[at(task.key)] as usize);
            }
            for one in moves.iter().rev() {
                prop_assert_eq!(cpus[at(one.task)], one.to);
                cpus[at(one.task)] = one.from;
            }
            let before: Vec<u32> = seen.tasks.iter().map(|task| task.cpu).collect();
            prop_assert_eq!(cpus, before);
            if refuses {
                for one in &moves {
                    history.refused(one.task);
                    place.insert(one.task.tid, one.from as usize);
                }
            }
        }
    }

    #[test]
    fn the_same_again_gives_the_same(
        made in prop::collection::vec(made(), 0..60),
        pairs in prop::collection::vec((0..60_usize, 0..60_usize, rate()), 0..80),
    ) {
        let machine = machine(1);
        let decided = || {
            let seen = snapshot(&machine, &made, &pairs);
            let mut history = History::new();
            let first = decide(&machine, &Thresholds::IVY_BRIDGE, &seen, &mut history);
            (first, decide(&machine, &Thresholds::IVY_BRIDGE, &seen, &mut history))
        };
        // Debug, since a rate that is no number is not equal to itself.
        prop_assert_eq!(format!("{:?}", decided()), format!("{:?}", decided()));
    }
}
