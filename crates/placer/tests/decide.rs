//! Small machines and a few tasks: who moves, why, and who stays.

use linewise_placer::{
    Activity, History, LevelKind, Machine, Mask, Move, Reason, Sharing, Snapshot, Task, TaskKey,
    Thresholds, decide,
};
use linewise_topology::{Topology, synthetic};

/// Tasks on a machine, which are where the decisions put them.
struct World {
    machine: Machine,
    history: History,
    snapshot: Snapshot,
    /// Which share with each other: two tasks with the same number do. `None`: with nobody.
    group: Vec<Option<u32>>,
    knows_pairs: bool,
    /// Transfers a second from each other member of a group.
    rate: f32,
}

/// The rate unless told otherwise: beyond the threshold.
const RATE: f32 = 600_000.0;

impl World {
    fn new(topology: &Topology, cpus: &[u32], group: &[Option<u32>]) -> Self {
        let machine = Machine::new(topology);
        let all = Mask::new(&machine, &topology.cpu_set());
        let task = |(at, &cpu): (usize, &u32)| Task {
            key: TaskKey {
                tid: 100 + at as u32,
                start: 7,
            },
            process: 100,
            cpu: machine.index_of(cpu).unwrap(),
            strays: [0.0; 2],
            mask: 0,
            activity: Activity {
                load: 1.0,
                executed: 1.0,
                ..Activity::default()
            },
        };
        let tasks = cpus.iter().enumerate().map(task).collect();
        Self {
            snapshot: Snapshot {
                tasks,
                masks: vec![all],
                ..Snapshot::default()
            },
            machine,
            history: History::new(),
            group: group.to_vec(),
            knows_pairs: false,
            rate: RATE,
        }
    }

    /// What the tasks share, at the places that they have.
    fn look(&mut self) {
        let count = self.group.len();
        self.snapshot.sharing.clear();
        for task in &mut self.snapshot.tasks {
            task.activity.transfers = [0.0; 3];
        }
        let shares =
            |a: usize, b: usize, group: &[Option<u32>]| group[a].is_some() && group[a] == group[b];
        for a in 0..count {
            for b in (0..count).filter(|&b| b != a && shares(a, b, &self.group)) {
                let (from, to) = (self.snapshot.tasks[b].cpu, self.snapshot.tasks[a].cpu);
                let crossed = self
                    .machine
                    .levels()
                    .iter()
                    .position(|level| level.of_cpu[from as usize] != level.of_cpu[to as usize]);
                let distance = match crossed.map(|index| self.machine.levels()[index].kind) {
                    Some(LevelKind::Socket) => 2,
                    Some(LevelKind::Llc) => 1,
                    None => 0,
                };
                self.snapshot.tasks[a].activity.transfers[distance] += self.rate;
                if self.knows_pairs && a < b {
                    self.snapshot.sharing.push(Sharing {
                        one: a as u32,
                        other: b as u32,
                        transfers: 2.0 * self.rate,
                    });
                }
            }
        }
    }

    /// One interval: what moved.
    fn step(&mut self) -> Vec<Move> {
        self.look();
        let thresholds = Thresholds::IVY_BRIDGE;
        let moves = decide(
            &self.machine,
            &thresholds,
            &self.snapshot,
            &mut self.history,
        );
        for one in &moves {
            let mut tasks = self.snapshot.tasks.iter_mut();
            let task = tasks.find(|task| task.key == one.task).unwrap();
            assert_eq!(task.cpu, one.from);
            task.cpu = one.to;
        }
        moves
    }

    fn steps(&mut self, count: usize) -> Vec<Move> {
        (0..count).flat_map(|_| self.step()).collect()
    }

    /// The domain of each task at a level.
    fn domains(&self, level: usize) -> Vec<u32> {
        let of_cpu = &self.machine.levels()[level].of_cpu;
        let tasks = self.snapshot.tasks.iter();
        tasks.map(|task| of_cpu[task.cpu as usize]).collect()
    }

    fn is_together(&self, level: usize) -> bool {
        let domains = self.domains(level);
        let pairs = (0..domains.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let mut groups =
            pairs.filter(|&(a, b)| self.group[a].is_some() && self.group[a] == self.group[b]);
        groups.all(|(a, b)| domains[a] == domains[b])
    }

    fn activity(&mut self, at: usize) -> &mut Activity {
        &mut self.snapshot.tasks[at].activity
    }
}

const A: Option<u32> = Some(1);
const B: Option<u32> = Some(2);

#[test]
fn tasks_that_share_come_together_and_then_nothing_moves() {
    for knows_pairs in [false, true] {
        let cpus = [0, 10, 1, 11];
        let mut world = World::new(&synthetic::two_sockets_of_ten(), &cpus, &[A; 4]);
        world.knows_pairs = knows_pairs;
        assert_eq!(world.step(), [], "seen once is not enough");
        let moves = world.step();
        assert_eq!(moves.len(), 2, "{moves:?}");
        assert!(world.is_together(0));
        assert_eq!(world.steps(100), []);
    }
}

#[test]
fn two_groups_get_a_socket_each_if_their_pairs_are_known() {
    let cpus: Vec<u32> = (0..20).collect();
    let group: Vec<Option<u32>> = (0..20).map(|task| [A, B][task % 2]).collect();
    let mut world = World::new(&synthetic::two_sockets_of_ten(), &cpus, &group);
    world.knows_pairs = true;
    let moves = world.steps(3);
    assert!(world.is_together(0), "{:?}", world.domains(0));
    assert_eq!(moves.len(), 10, "half of each group is at home");
    assert_eq!(world.steps(100), []);
}

#[test]
fn what_fits_nowhere_is_left_alone() {
    let cpus: Vec<u32> = (0..20).collect();
    for knows_pairs in [false, true] {
        let mut world = World::new(&synthetic::two_sockets_of_ten(), &cpus, &[A; 20]);
        world.knows_pairs = knows_pairs;
        assert_eq!(world.steps(50), []);
    }
}

#[test]
fn within_a_socket_groups_gather_below_one_cache() {
    for knows_pairs in [false, true] {
        let group = [A, B, A, B, A, B, A, B];
        let cpus = [0, 1, 8, 9, 16, 17, 24, 25];
        let mut world = World::new(&synthetic::epyc_of_eight_ccxs(), &cpus, &group);
        world.knows_pairs = knows_pairs;
        world.steps(20);
        assert!(world.is_together(0), "{:?}", world.domains(0));
        assert_eq!(world.steps(50), []);
    }
}

#[test]
fn cpu_bound_tasks_make_room_before_memory_bound_ones() {
    // Socket 0 is full: two of the group, seven that compute, one that loads from memory. The others are on socket 1.
    let mut cpus: Vec<u32> = (0..10).collect();
    cpus.extend([10, 11]);
    let mut group = vec![None; 12];
    (group[0], group[1], group[10], group[11]) = (A, A, A, A);
    let mut world = World::new(&synthetic::two_sockets_of_ten(), &cpus, &group);
    world.activity(9).misses = 30e6;
    // All others of socket 1 are busy with something that is nobody's to move.
    world.snapshot.other_load = vec![0.0; 20];
    world.snapshot.other_load[12..20].fill(1.0);
    let moves = world.steps(3);
    assert!(world.is_together(0));
    assert_eq!(world.domains(0)[9], 0, "{moves:?}");
    let makes_room = moves
        .iter()
        .filter(|one| matches!(one.reason, Reason::MakesRoom(_)));
    assert_eq!(makes_room.count(), 2);
}

#[test]
fn who_made_room_reluctantly_goes_home_when_its_memory_is_remote() {
    let mut cpus: Vec<u32> = (0..10).collect();
    cpus.push(10);
    let mut group = vec![None; 11];
    (group[0], group[1], group[10]) = (A, A, A);
    let mut world = World::new(&synthetic::two_sockets_of_ten(), &cpus, &group);
    for task in 2..10 {
        world.activity(task).misses = 8e6;
    }
    world.snapshot.other_load = vec![0.0; 20];
    world.snapshot.other_load[11..20].fill(1.0);
    let moves = world.steps(3);
    let found = moves
        .iter()
        .find(|one| matches!(one.reason, Reason::Reluctantly(_)));
    let exile = found.expect("a memory-bound task makes room").task;
    let at = (exile.tid - 100) as usize;
    assert_eq!(world.domains(0)[at], 1);
    // One that computes ends, so that there is room at home.
    world.activity(at).remote = 2e6;
    world.activity(if at == 5 { 6 } else { 5 }).load = 0.0;
    let moves = world.steps(20);
    assert!(
        moves
            .iter()
            .any(|one| one.task == exile && matches!(one.reason, Reason::Home(_))),
        "{moves:?}"
    );
    assert_eq!(world.domains(0)[at], 0);
}

#[test]
fn memory_bound_tasks_leave_a_saturated_socket() {
    let cpus: Vec<u32> = (0..8).collect();
    let mut world = World::new(&synthetic::two_sockets_of_ten(), &cpus, &[None; 8]);
    for task in 0..8 {
        world.activity(task).misses = 15e6;
    }
    let moves = world.steps(3);
    assert!(
        moves
            .iter()
            .all(|one| matches!(one.reason, Reason::Bandwidth(_)))
    );
    let there = world
        .domains(0)
        .iter()
        .filter(|&&domain| domain == 1)
        .count();
    assert!((3..=5).contains(&there), "{there} of 8");
    assert_eq!(world.steps(50), []);
}

#[test]
fn a_move_that_made_it_slower_is_undone_and_not_tried_again() {
    let mut world = World::new(&synthetic::two_sockets_of_ten(), &[0, 1, 10], &[A; 3]);
    let mut seen = Vec::new();
    for _ in 0..100 {
        let together = world.is_together(0);
        // Who comes forward half as fast shares half as often.
        world.rate = if together { 2.0 * RATE } else { 4.0 * RATE };
        for task in 0..3 {
            world.activity(task).progress = Some(if together { 1e9 } else { 2e9 });
        }
        seen.extend(world.step());
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(matches!(seen[1].reason, Reason::Undo(kept) if kept < 0.9));
    assert_eq!((seen[0].from, seen[0].to), (seen[1].to, seen[1].from));
}

#[test]
fn nobody_is_moved_to_where_it_may_not_run() {
    for knows_pairs in [false, true] {
        let mut world = World::new(&synthetic::two_sockets_of_ten(), &[0, 10], &[A; 2]);
        world.knows_pairs = knows_pairs;
        let near = Mask::new(&world.machine, &"0-9".parse().unwrap());
        let far = Mask::new(&world.machine, &"10-19".parse().unwrap());
        world.snapshot.masks = vec![near, far];
        world.snapshot.tasks[1].mask = 1;
        assert_eq!(world.steps(20), []);
    }
}

#[test]
fn what_was_refused_is_not_asked_for_again() {
    let mut world = World::new(&synthetic::two_sockets_of_ten(), &[0, 10], &[A; 2]);
    let moves = world.steps(2);
    let [one] = moves.as_slice() else {
        panic!("{moves:?}");
    };
    world.history.refused(one.task);
    let at = (one.task.tid - 100) as usize;
    world.snapshot.tasks[at].cpu = one.from;
    let again = world.steps(50);
    assert!(
        again.iter().all(|other| other.task != one.task),
        "{again:?}"
    );
}

/// Two pairs on two sockets of a CPU each, as the kernel leaves them that balances loads alone.
fn two_pairs_that_wander(cpus: [u32; 4], strays: [f32; 4]) -> World {
    let groups = [Some(0), Some(1), Some(0), Some(1)];
    let two_of_one = synthetic::Shape {
        sockets: 2,
        llcs_per_socket: 1,
        cores_per_llc: 1,
        threads_per_core: 1,
        l1_bytes: 32 << 10,
        l2_bytes: 256 << 10,
        l3_bytes: 32 << 20,
    };
    let mut world = World::new(&two_of_one.build(), &cpus, &groups);
    world.knows_pairs = true;
    world.rate = 1.5e6;
    for (task, strays) in world.snapshot.tasks.iter_mut().zip(strays) {
        task.strays[0] = strays;
    }
    world
}

#[test]
fn who_wanders_is_brought_together_and_kept_there_wherever_it_was_last() {
    // At a moment both pairs seem to be together, or three tasks on one CPU.
    for cpus in [[0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]] {
        let mut world = two_pairs_that_wander(cpus, [0.5, 0.4, 0.5, 0.4]);
        let moves = world.steps(2);
        assert!(world.is_together(0), "{cpus:?}: {moves:?}");
        let domains = world.domains(0);
        assert_ne!(domains[0], domains[1], "{cpus:?}: {moves:?}");
        assert_eq!(moves.len(), 4, "all are kept: {cpus:?}: {moves:?}");
    }
}

#[test]
fn who_is_together_and_hardly_ever_elsewhere_is_left_alone() {
    let mut world = two_pairs_that_wander([0, 1, 0, 1], [0.02, 0.0, 0.0, 0.02]);
    assert_eq!(world.steps(5), []);
}

#[test]
fn what_crosses_counts_by_the_cpu_time_of_those_who_move() {
    for (executed, moved) in [(0.5, 2), (1.0, 0)] {
        let cpus = [0, 10, 1, 11];
        let mut world = World::new(&synthetic::two_sockets_of_ten(), &cpus, &[A, A, B, B]);
        world.knows_pairs = true;
        // Half of what a thread with all of its time would have to share.
        world.rate = RATE / 2.0;
        for at in 0..4 {
            world.activity(at).executed = executed;
        }
        assert_eq!(world.steps(3).len(), moved, "{executed}");
    }
}
