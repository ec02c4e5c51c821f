//! `linewise place`: puts threads where what they share is near, as long as it runs.

mod hands;
#[cfg(test)]
mod hands_tests;
mod journal;
mod kernel;
mod observe;
mod say_moves;
mod stream;
mod target;
mod trial;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use linewise_machine::signals::StopSignals;
use linewise_machine::sysfs;
use linewise_placer::{
    History, LevelKind, Machine, Mask, Move, Sharing, Snapshot, Task, TaskKey, Thresholds,
    ThresholdsFile, decide,
};
use linewise_topology::CpuSet;
use serde_json::json;

use crate::record::{parse_duration, parse_percent};
use crate::report::whole_number;
use crate::say::say;
use hands::{Done, Hands, Undone};
use journal::Journal;
use kernel::{Kernel, Linux};
use observe::{ByRecording, ByStream, Observer, Seen};
use say_moves::{Events, why, word};
use target::Target;

/// A file of thresholds is shorter than this, bytes.
const LONGEST_THRESHOLDS: u64 = 1 << 20;

/// Arguments of `linewise place`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// The command to run and place
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
    /// Place the threads of this running process, and of all that descend from it
    #[arg(help_heading = "What to place", long, value_name = "PID", value_delimiter = ',', value_parser = whole_number::<u32>)]
    pid: Vec<u32>,
    /// Place the threads of all processes that use a fifth of a CPU or more
    #[arg(help_heading = "What to place", long)]
    system: bool,
    /// Undo what a placer left that was killed, and end
    #[arg(help_heading = "What to place", long, conflicts_with_all = ["command", "pid", "system"])]
    undo: bool,
    /// Say what would move, and why; move nothing
    #[arg(help_heading = "How", long)]
    dry_run: bool,
    /// Decide once, and hold that until the end
    #[arg(help_heading = "How", long)]
    once: bool,
    /// Try each change in short turns against what was before, and keep it only if it is better beyond noise
    #[arg(help_heading = "How", long)]
    trial: bool,
    /// What --trial compares: a command that prints how much work has been done so far, a growing number
    ///
    /// Without it the CPU time that the threads need at shared lines decides, as far as recordings of the turns tell it
    #[arg(help_heading = "How", long, value_name = "COMMAND", requires = "trial")]
    figure: Option<String>,
    /// How long a turn of --trial lasts
    #[arg(help_heading = "How", long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    turn: Duration,
    /// Let a thread run on one CPU and not on all of its cache or socket
    #[arg(help_heading = "How", long)]
    pin: bool,
    /// How long a look lasts
    #[arg(help_heading = "How much", long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    look: Duration,
    /// The time between looks once nothing is to be moved
    #[arg(help_heading = "How much", long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    every: Duration,
    /// What a look may cost, as a share of the threads' CPU time
    #[arg(help_heading = "How much", long, value_name = "PERCENT", default_value = "1%", value_parser = parse_percent)]
    overhead: f64,
    /// End after this long
    #[arg(help_heading = "How much", long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Take what was seen from a file of counter values, a line of JSON for each interval, instead of looking
    #[arg(help_heading = "From where", long, value_name = "FILE")]
    counters: Option<PathBuf>,
    /// From where on something costs enough to move a thread for it: what `linewise calibrate -o FILE` wrote
    ///
    /// Without it those of the machine of the algorithm's paper: 550,000 transfers a second of a thread's time
    #[arg(help_heading = "From where", long, value_name = "FILE")]
    thresholds: Option<PathBuf>,
    /// Place for the machine whose /sys is in this folder, instead of this one
    #[arg(help_heading = "From where", long, value_name = "FOLDER")]
    topology: Option<PathBuf>,
    /// Where the journal is, from which everything can be undone
    #[arg(help_heading = "From where", long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Write what happens to this file, a line of JSON for each event
    #[arg(help_heading = "What to show", long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Say only what failed
    #[arg(help_heading = "What to show", long, short)]
    quiet: bool,
}

/// Places, and undoes it.
pub(crate) fn run(args: &PlaceArgs) -> anyhow::Result<ExitCode> {
    if args.undo {
        return undo_leftovers(args);
    }
    if [
        !args.command.is_empty(),
        !args.pid.is_empty(),
        args.system,
        args.counters.is_some(),
    ]
    .into_iter()
    .all(|given| !given)
    {
        bail!("what is to be placed? `linewise place -- COMMAND`, --pid PID, or --system");
    }
    let root = args.topology.as_deref().unwrap_or(Path::new("/"));
    let topology = sysfs::read_topology(root)
        .with_context(|| format!("cannot read the machine's shape from {}", root.display()))?;
    let machine = Machine::new(&topology);
    let mut events = Events::open(args.events.as_deref())?;
    let mut target = Target::begin(args)?;
    let signals = StopSignals::block().context("cannot wait for signals")?;
    let placed = match nothing_to_gain(&machine) {
        None => place(args, &machine, &mut target, &signals, &mut events),
        Some(reason) => {
            if !args.quiet {
                say(&format!("nothing is to be moved: {reason}"));
            }
            events.tell("nothing", json!({ "reason": reason }));
            Ok(())
        }
    };
    // A command has its own exit code, whatever failed of ours.
    match (placed, target.end(&signals)) {
        (Ok(()), code) => Ok(code.unwrap_or(ExitCode::SUCCESS)),
        (Err(error), Some(code)) => {
            crate::exit::report_failure(&error);
            Ok(code)
        }
        (Err(error), None) => Err(error),
    }
}

/// Why no placement can be better than another here, if that is so.
fn nothing_to_gain(machine: &Machine) -> Option<&'static str> {
    if machine.len() < 2 {
        return Some("this machine has one CPU");
    }
    let flat = machine.levels().is_empty() && machine.memory().domains.len() < 2;
    flat.then_some(
        "all CPUs are below one last-level cache, or the machine does not tell how they are connected, so no place is nearer than another",
    )
}

/// The thresholds of a file, or of the paper's machine.
fn thresholds(file: Option<&Path>) -> anyhow::Result<Thresholds> {
    let Some(file) = file else {
        return Ok(Thresholds::IVY_BRIDGE);
    };
    let bytes = linewise_foreign::read(file, LONGEST_THRESHOLDS);
    let bytes =
        bytes.with_context(|| format!("cannot read the thresholds in {}", file.display()))?;
    let told = ThresholdsFile::from_json(&String::from_utf8_lossy(&bytes));
    let told = told.with_context(|| format!("{} holds no thresholds", file.display()))?;
    Ok(told.thresholds())
}

fn undo_leftovers(args: &PlaceArgs) -> anyhow::Result<ExitCode> {
    let (journal, left) = Journal::open(args.journal.as_deref())?;
    let mut hands = Hands::new(Linux, journal, left);
    if hands.is_empty() {
        say("there is nothing to undo");
        return Ok(ExitCode::SUCCESS);
    }
    let undone = hands.undo()?;
    say(&words(undone));
    Ok(if undone.refused == 0 {
        ExitCode::SUCCESS
    } else {
        crate::exit::LINEWISE_FAILED.into()
    })
}

/// What was undone, in words.
fn words(undone: Undone) -> String {
    let mut text = format!(
        "{} threads may run where they might before",
        undone.restored
    );
    for (count, what) in [
        (undone.ended, "had ended"),
        (
            undone.theirs,
            "were changed by somebody else meanwhile and are left so",
        ),
        (
            undone.refused,
            "could not be changed: end this as the user who placed them, `linewise place --undo`",
        ),
    ] {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    text
}

/// One who places: the machine, what is remembered, and the hands.
struct Placing<'a> {
    args: &'a PlaceArgs,
    machine: &'a Machine,
    thresholds: Thresholds,
    history: History,
    hands: Hands<Linux>,
    events: &'a mut Events,
    /// The threads of the newest look.
    names: BTreeMap<TaskKey, (u32, String)>,
}

fn place(
    args: &PlaceArgs,
    machine: &Machine,
    target: &mut Target,
    signals: &StopSignals,
    events: &mut Events,
) -> anyhow::Result<()> {
    let (journal, left) = Journal::open(args.journal.as_deref())?;
    let mut hands = Hands::new(Linux, journal, left);
    if !hands.is_empty() {
        let undone = hands.undo()?;
        say(&format!("a placer before was killed; {}", words(undone)));
    }
    let mut placing = Placing {
        args,
        machine,
        thresholds: thresholds(args.thresholds.as_deref())?,
        history: History::new(),
        hands,
        events,
        names: BTreeMap::new(),
    };
    let mut observer: Box<dyn Observer + '_> = match &args.counters {
        Some(file) => Box::new(ByStream::open(file)?),
        None => Box::new(ByRecording {
            signals,
            time: args.look,
            overhead: args.overhead,
        }),
    };
    let result = placing.follow(observer.as_mut(), target, signals);
    // Whatever happened: everything as it was.
    let undone = placing.hands.undo()?;
    placing.events.tell(
        "undone",
        json!({ "restored": undone.restored, "ended": undone.ended, "theirs": undone.theirs, "refused": undone.refused }),
    );
    if undone.refused > 0 || (!args.quiet && undone != Undone::default()) {
        say(&words(undone));
    }
    result
}

impl Placing<'_> {
    /// Looks and moves until the target, its time or the user ends it.
    fn follow(
        &mut self,
        observer: &mut dyn Observer,
        target: &mut Target,
        signals: &StopSignals,
    ) -> anyhow::Result<()> {
        let mut calm = 0;
        let mut said_nothing = false;
        loop {
            let processes = target.processes()?;
            let seen = observer.look(&processes)?;
            target.heard(seen.ended);
            let snapshot = self.snapshot(&seen);
            let moves = self.decided(&seen, &snapshot);
            calm = if moves.is_empty() { calm + 1 } else { 0 };
            if moves.is_empty() && calm == 2 && !said_nothing && !self.args.quiet {
                said_nothing = true;
                say(&self.why_nothing(&seen));
            }
            let carried = !moves.is_empty();
            if carried {
                self.carry_out(&moves, observer, target, signals)?;
            }
            self.hold(&snapshot, &moves)?;
            self.free_heirs();
            let is_over = seen.is_last && self.args.counters.is_none();
            if is_over || (seen.is_last && self.args.dry_run) || target.is_over(signals) {
                return Ok(());
            }
            if (self.args.once && carried) || seen.is_last {
                target.wait(signals, || self.free_heirs_if_any());
                return Ok(());
            }
            let waits = calm >= 2 && self.args.counters.is_none();
            if waits && !target.wait_for(signals, self.args.every, || self.free_heirs_if_any()) {
                return Ok(());
            }
        }
    }

    /// What the placer says to what was seen.
    fn decided(&mut self, seen: &Seen, snapshot: &Snapshot) -> Vec<Move> {
        let moves = decide(self.machine, &self.thresholds, snapshot, &mut self.history);
        self.events.tell(
            "look",
            json!({ "threads": snapshot.tasks.len(), "pairs": seen.pairs.as_ref().map(Vec::len), "moves": moves.len() }),
        );
        moves
    }

    fn snapshot(&mut self, seen: &Seen) -> Snapshot {
        let mut masks: Vec<CpuSet> = Vec::new();
        let mut tasks = Vec::with_capacity(seen.tasks.len());
        self.names.clear();
        for task in &seen.tasks {
            let Some(cpu) = self.machine.index_of(task.cpu) else {
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
        Snapshot {
            sharing: sharing.collect(),
            masks: masks
                .iter()
                .map(|mask| Mask::new(self.machine, mask))
                .collect(),
            tasks,
            other_load: Vec::new(),
        }
    }

    fn all_cpus(&self) -> CpuSet {
        (0..self.machine.len() as u32)
            .map(|cpu| self.machine.number(cpu))
            .collect()
    }

    /// Where a thread that is to be on this CPU may run: there, or wherever it is as near.
    fn cpus_around(&self, key: TaskKey, cpu: u32) -> CpuSet {
        let number = self.machine.number(cpu);
        if self.args.pin {
            return [number].into_iter().collect();
        }
        let innermost = self
            .machine
            .levels()
            .last()
            .unwrap_or(self.machine.memory());
        let domain = innermost.of_cpu[cpu as usize] as usize;
        let cpus = innermost.domains[domain]
            .iter()
            .map(|&cpu| self.machine.number(cpu));
        let cpus: CpuSet = cpus.collect();
        let before = self.hands.before(key).cloned();
        let allowed = before.or_else(|| Linux.cpus(key.tid).ok());
        allowed.map_or(cpus.clone(), |allowed| allowed.intersection(&cpus))
    }

    fn carry_out(
        &mut self,
        moves: &[Move],
        observer: &mut dyn Observer,
        target: &mut Target,
        signals: &StopSignals,
    ) -> anyhow::Result<()> {
        for one in moves {
            self.tell_move(one);
        }
        if self.args.dry_run {
            // What was not done is not to be judged.
            moves.iter().for_each(|one| self.history.refused(one.task));
            return Ok(());
        }
        if self.args.trial {
            return trial::run(self, moves, observer, target, signals);
        }
        self.give_all(moves)
    }

    /// Holds those where they are to whom others were brought: the kernel would take them away again.
    fn hold(&mut self, snapshot: &Snapshot, moves: &[Move]) -> anyhow::Result<()> {
        let innermost = self
            .machine
            .levels()
            .last()
            .unwrap_or(self.machine.memory());
        let cpu = |task: &Task| {
            let moved = moves.iter().find(|one| one.task == task.key);
            moved.map_or(task.cpu, |one| one.to)
        };
        for pair in &snapshot.sharing {
            let tasks = [pair.one, pair.other].map(|at| &snapshot.tasks[at as usize]);
            let [one, other] = tasks.map(|task| innermost.of_cpu[cpu(task) as usize]);
            if one != other || pair.transfers < self.thresholds.coherence {
                continue;
            }
            let [one, other] = tasks.map(|task| self.hands.before(task.key).is_some());
            let free = match (one, other) {
                (true, false) => tasks[1],
                (false, true) => tasks[0],
                _ => continue,
            };
            let cpus = self.cpus_around(free.key, cpu(free));
            let done = self.hands.give(free.key, free.process, &cpus)?;
            self.events.tell(
                "hold",
                json!({ "tid": free.key.tid, "cpus": cpus.to_string(), "held": matches!(done, Done::Moved) }),
            );
        }
        Ok(())
    }

    /// Carries moves out; says what could not be.
    fn give_all(&mut self, moves: &[Move]) -> anyhow::Result<()> {
        for one in moves {
            let process = self
                .names
                .get(&one.task)
                .map_or(one.task.tid, |(process, _)| *process);
            let cpus = self.cpus_around(one.task, one.to);
            let done = self.hands.give(one.task, process, &cpus)?;
            let told = match &done {
                Done::Moved => continue,
                Done::Ended => ("ended", "it has ended".to_owned()),
                Done::Theirs => (
                    "theirs",
                    "somebody else changed where it may run; it is left to them".to_owned(),
                ),
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

    fn tell_move(&mut self, one: &Move) {
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
            let would = if self.args.dry_run {
                "would move"
            } else {
                "moves"
            };
            say(&format!(
                "thread {} `{name}` {would} from CPU {from} to {to} (CPUs {cpus}): {reason}",
                one.task.tid
            ));
        }
    }

    fn why_nothing(&self, seen: &Seen) -> String {
        let kinds = self.machine.levels().iter().map(|level| match level.kind {
            LevelKind::Socket => "sockets",
            LevelKind::Llc => "last-level caches",
        });
        let kinds = kinds.collect::<Vec<_>>().join(" and ");
        match &seen.pairs {
            Some(pairs) if pairs.is_empty() => {
                "nothing is to be moved so far: no threads were seen to share lines".to_owned()
            }
            _ => format!(
                "nothing is to be moved so far: what crosses {kinds} costs less than 5 %, or does whatever place the threads have"
            ),
        }
    }

    fn free_heirs(&mut self) {
        let freed = self.hands.free_heirs();
        if freed > 0 {
            self.events.tell("heirs", json!({ "freed": freed }));
        }
    }

    fn free_heirs_if_any(&mut self) {
        if !self.hands.is_empty() {
            self.free_heirs();
        }
    }
}
