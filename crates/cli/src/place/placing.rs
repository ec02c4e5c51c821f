//! One who places: what was seen becomes a snapshot, what was decided is carried out.

use std::collections::BTreeMap;

use linewise_machine::procfs;
use linewise_placer::{
    BUSY, History, Machine, Mask, Move, Reason, Sharing, Snapshot, Task, TaskKey, Thresholds,
    apart, decide,
};
use linewise_topology::CpuSet;
use serde_json::json;

use super::args::PlaceArgs;
use super::claims::{Claim, Claims, placed_by};
use super::hands::{Done, Hands};
use super::kernel::{Kernel, Linux};
use super::observe::Seen;
use super::remembered::Remembered;
use super::say_moves::{Events, domains, why, word};
use crate::say::say;

/// How many pairs the event of a look tells.
const STRONGEST: usize = 10;

/// One who places: the machine, what is remembered, and the hands.
pub(super) struct Placing<'a> {
    pub(super) args: &'a PlaceArgs,
    pub(super) machine: &'a Machine,
    pub(super) thresholds: Thresholds,
    pub(super) history: History,
    /// The processes that are ours to place; `None` where others cannot be told.
    pub(super) claims: Option<Claims>,
    pub(super) hands: Hands<Linux>,
    pub(super) events: &'a mut Events,
    /// The threads of the newest look.
    pub(super) names: BTreeMap<TaskKey, (u32, String)>,
    /// Who shares with whom, over looks.
    pub(super) remembered: Remembered,
}

impl Placing<'_> {
    /// What the placer says to what was seen.
    pub(super) fn decided(&mut self, seen: &Seen, snapshot: &Snapshot) -> Vec<Move> {
        let moves = decide(self.machine, &self.thresholds, snapshot, &mut self.history);
        self.events.tell(
            "look",
            json!({
                "threads": snapshot.tasks.len(),
                "pairs": seen.pairs.as_ref().map(Vec::len),
                "strongest": strongest(snapshot),
                "moves": moves.len(),
            }),
        );
        moves
    }

    pub(super) fn snapshot(&mut self, seen: &Seen) -> Snapshot {
        let mut masks: Vec<CpuSet> = Vec::new();
        let mut tasks = Vec::with_capacity(seen.tasks.len());
        self.names.clear();
        if let Some(claims) = &mut self.claims {
            claims.forget(|pid, start| procfs::started(pid) == Some(start));
        }
        let mut shared: BTreeMap<u32, f64> = BTreeMap::new();
        for (one, other, transfers) in seen.pairs.iter().flatten() {
            for tid in [one, other] {
                *shared.entry(*tid).or_default() += transfers;
            }
        }
        for task in &seen.tasks {
            let ran_on = match &seen.pairs {
                Some(_) if !task.ran_on.is_empty() => {
                    let shared = shared.get(&task.key.tid).copied().unwrap_or(0.0);
                    let cpu_time = task.activity.executed.max(BUSY);
                    let rate = shared / f64::from(cpu_time);
                    self.remembered.place(task.key, &task.ran_on, rate)
                }
                _ => task.ran_on.clone(),
            };
            let Some((cpu, strays)) = self.place_of(&ran_on) else {
                continue;
            };
            if self.hands.is_theirs(task.key) {
                continue;
            }
            let allowed = match self.hands.before(task.key) {
                Some(before) => before.clone(),
                None => match Linux.cpus(task.key.tid) {
                    Ok(cpus) => cpus,
                    // A stream may be of threads of another machine, or of earlier.
                    Err(_) if self.args.dry_run => self.all_cpus(),
                    Err(_) => continue,
                },
            };
            let known = masks.iter().position(|mask| *mask == allowed);
            let mask = known.unwrap_or_else(|| {
                masks.push(allowed);
                masks.len() - 1
            });
            self.names
                .insert(task.key, (task.process, task.name.clone()));
            tasks.push(Task {
                key: task.key,
                process: task.process,
                cpu,
                strays,
                mask: mask as u32,
                activity: task.activity,
            });
        }
        let index: BTreeMap<u32, u32> = tasks
            .iter()
            .enumerate()
            .map(|(at, task)| (task.key.tid, at as u32))
            .collect();
        let pairs = seen.pairs.iter().flatten();
        let sharing = pairs.filter_map(|&(one, other, transfers)| {
            Some(Sharing {
                one: *index.get(&one)?,
                other: *index.get(&other)?,
                transfers: transfers as f32,
            })
        });
        let mut snapshot = Snapshot {
            sharing: sharing.collect(),
            masks: masks
                .iter()
                .map(|mask| Mask::new(self.machine, mask))
                .collect(),
            tasks,
            other_load: Vec::new(),
        };
        if seen.pairs.is_some() {
            self.remembered.mix(&mut snapshot);
        }
        snapshot
    }

    /// The CPU where a thread mostly was, and the share of its time in other domains than there, by level.
    fn place_of(&self, ran_on: &BTreeMap<u32, f64>) -> Option<(u32, [f32; 2])> {
        let ran_on = ran_on.iter();
        let ran_on = ran_on.filter_map(|(&cpu, &time)| Some((self.machine.index_of(cpu)?, time)));
        let ran_on: Vec<(u32, f64)> = ran_on.collect();
        let &(cpu, _) = ran_on.iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let all: f64 = ran_on.iter().map(|(_, time)| time).sum();
        let mut strays = [0.0; 2];
        for (strays, level) in strays.iter_mut().zip(self.machine.levels()) {
            let of = |cpu: u32| level.of_cpu[cpu as usize];
            let others = ran_on.iter().filter(|(other, _)| of(*other) != of(cpu));
            let elsewhere: f64 = others.map(|(_, time)| time).sum();
            // A sum of nothing is -0.
            *strays = (elsewhere / all.max(f64::MIN_POSITIVE)) as f32 + 0.0;
        }
        Some((cpu, strays))
    }

    pub(super) fn all_cpus(&self) -> CpuSet {
        (0..self.machine.len() as u32)
            .map(|cpu| self.machine.number(cpu))
            .collect()
    }

    /// Where a thread that is to be on this CPU may run: there, or wherever it is as near.
    pub(super) fn cpus_around(&self, key: TaskKey, cpu: u32) -> CpuSet {
        let number = self.machine.number(cpu);
        if self.args.pin {
            return [number].into_iter().collect();
        }
        let innermost = self.machine.innermost();
        let domain = innermost.of_cpu[cpu as usize] as usize;
        let cpus = innermost.domains[domain]
            .iter()
            .map(|&cpu| self.machine.number(cpu));
        let cpus: CpuSet = cpus.collect();
        let before = self.hands.before(key).cloned();
        let allowed = before.or_else(|| Linux.cpus(key.tid).ok());
        allowed.map_or(cpus.clone(), |allowed| allowed.intersection(&cpus))
    }

    /// Whether what a pair shares crosses domains at half of the rate that is worth a move or more, and neither is held.
    pub(super) fn crosses(&self, snapshot: &Snapshot) -> bool {
        let Some(level) = self.machine.levels().len().checked_sub(1) else {
            return false;
        };
        let domain_of = &self.machine.levels()[level].of_cpu;
        snapshot.sharing.iter().any(|pair| {
            let tasks = [pair.one, pair.other].map(|at| &snapshot.tasks[at as usize]);
            let [one, other] = tasks.map(|task| domain_of[task.cpu as usize]);
            let apart = apart(one == other, tasks.map(|task| task.strays[level]));
            let is_held = tasks.iter().any(|it| self.hands.before(it.key).is_some());
            !is_held && snapshot.rate(pair) * apart >= self.thresholds.coherence / 2.0
        })
    }

    /// Holds those where they are to whom others were brought: the kernel would take them away again.
    pub(super) fn hold(&mut self, snapshot: &Snapshot, moves: &[Move]) -> anyhow::Result<()> {
        let innermost = self.machine.innermost();
        let cpu = |task: &Task| {
            let moved = moves.iter().find(|one| one.task == task.key);
            moved.map_or(task.cpu, |one| one.to)
        };
        for pair in &snapshot.sharing {
            let tasks = [pair.one, pair.other].map(|at| &snapshot.tasks[at as usize]);
            let [one, other] = tasks.map(|task| innermost.of_cpu[cpu(task) as usize]);
            if one != other || snapshot.rate(pair) < self.thresholds.coherence {
                continue;
            }
            let [one, other] = tasks.map(|task| self.hands.before(task.key).is_some());
            let free = match (one, other) {
                (true, false) => tasks[1],
                (false, true) => tasks[0],
                _ => continue,
            };
            let cpus = self.cpus_around(free.key, cpu(free));
            let done = self.give(free.key, free.process, &cpus)?;
            self.events.tell(
                "hold",
                json!({ "tid": free.key.tid, "cpus": cpus.to_string(), "held": matches!(done, Done::Moved) }),
            );
        }
        Ok(())
    }

    /// Lets a thread run on these CPUs alone, if its process is ours to place.
    fn give(&mut self, key: TaskKey, process: u32, cpus: &CpuSet) -> anyhow::Result<Done> {
        if let Some(claims) = &mut self.claims
            && let Some(start) = procfs::started(process)
            && let Claim::Theirs(holder) = claims.take(process, start)?
        {
            return Ok(Done::Claimed(holder));
        }
        let done = self.hands.give(key, process, cpus)?;
        if matches!(done, Done::Moved) {
            self.remembered.forget_place(key);
        }
        Ok(done)
    }

    /// Carries moves out; says what could not be.
    pub(super) fn give_all(&mut self, moves: &[Move]) -> anyhow::Result<()> {
        for one in moves {
            let process = self
                .names
                .get(&one.task)
                .map_or(one.task.tid, |(process, _)| *process);
            let cpus = self.cpus_around(one.task, one.to);
            let done = self.give(one.task, process, &cpus)?;
            let told = match &done {
                Done::Moved => continue,
                Done::Ended => ("ended", "it has ended".to_owned()),
                Done::Theirs => (
                    "theirs",
                    "somebody else changed where it may run; it is left to them".to_owned(),
                ),
                Done::Claimed(holder) => ("theirs", placed_by(process, *holder)),
                Done::Refused(error) => ("refused", format!("the kernel refuses: {error}")),
            };
            self.history.refused(one.task);
            self.events.tell(told.0, json!({ "tid": one.task.tid }));
            if !matches!(done, Done::Ended) && !self.args.quiet {
                say(&format!("thread {} stays: {}", one.task.tid, told.1));
            }
        }
        Ok(())
    }

    pub(super) fn tell_move(&mut self, one: &Move) {
        let name = self
            .names
            .get(&one.task)
            .map_or("", |(_, name)| name.as_str());
        let (from, to) = (self.machine.number(one.from), self.machine.number(one.to));
        let cpus = self.cpus_around(one.task, one.to);
        let reason = why(&one.reason);
        self.events.tell(
            "move",
            json!({
                "tid": one.task.tid, "name": name, "from": from, "to": to, "cpus": cpus.to_string(),
                "reason": word(&one.reason), "why": reason, "dry_run": self.args.dry_run,
            }),
        );
        if !self.args.quiet {
            let (would, stays) = if self.args.dry_run {
                ("would move", "would stay")
            } else {
                ("moves", "stays")
            };
            let tid = one.task.tid;
            say(&if matches!(one.reason, Reason::Stay(..)) {
                format!("thread {tid} `{name}` {stays} on CPUs {cpus}: {reason}")
            } else {
                format!(
                    "thread {tid} `{name}` {would} from CPU {from} to {to} (CPUs {cpus}): {reason}"
                )
            });
        }
    }

    pub(super) fn why_nothing(&self, seen: &Seen) -> String {
        let levels = self.machine.levels().iter();
        let kinds = levels.map(|level| domains(level.kind));
        let kinds = kinds.collect::<Vec<_>>().join(" and ");
        match &seen.pairs {
            Some(_) if !self.hands.is_empty() => {
                "nothing more is to be moved: the placement holds (threads that take turns on one CPU cannot be seen to share)".to_owned()
            }
            Some(pairs) if pairs.is_empty() => {
                "nothing is to be moved so far: in the last look no threads were seen to share lines".to_owned()
            }
            _ => format!(
                "nothing is to be moved so far: what crosses {kinds} costs less than 5 %, or does whatever place the threads have"
            ),
        }
    }

    pub(super) fn free_heirs(&mut self) {
        let freed = self.hands.free_heirs();
        if freed > 0 {
            self.events.tell("heirs", json!({ "freed": freed }));
        }
    }

    pub(super) fn free_heirs_if_any(&mut self) {
        if !self.hands.is_empty() {
            self.free_heirs();
        }
    }
}

/// The pairs that share most, with where they are and how busy.
fn strongest(snapshot: &Snapshot) -> serde_json::Value {
    let mut pairs: Vec<&Sharing> = snapshot.sharing.iter().collect();
    pairs.sort_by(|a, b| b.transfers.total_cmp(&a.transfers));
    let pairs = pairs.into_iter().take(STRONGEST).map(|pair| {
        let tasks = [pair.one, pair.other].map(|at| &snapshot.tasks[at as usize]);
        json!({
            "tids": tasks.map(|task| task.key.tid),
            "cpus": tasks.map(|task| task.cpu),
            "elsewhere": tasks.map(|task| task.strays[0]),
            "loads": tasks.map(|task| task.activity.load),
            "executed": tasks.map(|task| task.activity.executed),
            "transfers_per_s": pair.transfers,
            "transfers_per_cpu_s": snapshot.rate(pair),
        })
    });
    pairs.collect()
}
