//! What is seen of the threads in one look.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use linewise_analysis::group_threads;
use linewise_collect::{
    EndedBy, Event, HeapWhen, RecordOptions, SampleBy, Source, Target, TimerOptions,
};
use linewise_machine::process::Ended;
use linewise_machine::procfs;
use linewise_machine::signals::StopSignals;
use linewise_placer::{Activity, TaskKey};
use linewise_recording::Recording;

use crate::say::say;
use crate::scratch::Scratch;

/// A thread as it was seen.
#[derive(Clone, Debug)]
pub(super) struct SeenTask {
    pub(super) key: TaskKey,
    pub(super) process: u32,
    pub(super) name: String,
    /// How much of its time it was on which CPU, by the CPU's number.
    pub(super) ran_on: BTreeMap<u32, f64>,
    pub(super) activity: Activity,
}

/// What one look gave.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// In the order of their keys.
    pub(super) tasks: Vec<SeenTask>,
    /// What pairs share, transfers a second of the look, by thread id; `None` where only counters are known.
    pub(super) pairs: Option<Vec<(u32, u32, f64)>>,
    /// The share of the threads' CPU time that went by at lines that others have, where a recording tells it.
    pub(super) waits: Option<f64>,
    /// How the target ended, where this process heard of it.
    pub(super) ended: Option<Ended>,
    /// Nothing more will come: the target ended, a signal came, the stream is at its end.
    pub(super) is_last: bool,
}

/// Where looks come from.
pub(super) trait Observer {
    /// Looks at the threads of these processes and of those that descend from them.
    ///
    /// # Errors
    /// It cannot look.
    fn look(&mut self, processes: &[u32]) -> anyhow::Result<Seen>;
}

/// Looks by a light recording of some seconds: who shares with whom, on any machine.
pub(super) struct ByRecording<'a> {
    pub(super) signals: &'a StopSignals,
    pub(super) time: Duration,
    pub(super) overhead: f64,
}

impl Observer for ByRecording<'_> {
    fn look(&mut self, processes: &[u32]) -> anyhow::Result<Seen> {
        let scratch = Scratch::new().with_context(of_look)?;
        let directory = scratch.path().join("look.linewise");
        let options = RecordOptions {
            target: Target::Attach(processes.to_vec()),
            directory: directory.clone(),
            replace: false,
            duration: Some(self.time),
            output_to_errors: true,
            heap: HeapWhen::Never,
            flow: None,
        };
        let source = Source::Timer(TimerOptions {
            overhead: self.overhead,
            rate: None,
            guard: None,
            reuse: false,
            sample_by: SampleBy::Auto,
        });
        let before = Loads::of(processes);
        let outcome = linewise_collect::record(&options, &source, self.signals, |event| {
            // What one look lacks the next may see.
            if let Event::Failed(error) = event {
                say(&format!("{}: {}", of_look(), crate::exit::chain(error)));
            }
        });
        let outcome = outcome.with_context(of_look)?;
        let mut seen = before.seen_since(processes);
        seen.ended = outcome.ended;
        seen.is_last = outcome.ended_by != EndedBy::Duration;
        if outcome.failure.is_none() {
            seen.add_sharing(&directory)?;
        }
        Ok(seen)
    }
}

/// What cannot be recorded, and where.
fn of_look() -> String {
    format!(
        "cannot look at the threads by a recording in {} (TMPDIR names another folder)",
        std::env::temp_dir().display()
    )
}

impl Seen {
    /// Adds who shares with whom, by a recording, and the share of the threads' time that it costs.
    fn add_sharing(&mut self, directory: &Path) -> anyhow::Result<()> {
        let recording = Recording::open(directory)?;
        let tables = recording.tables()?;
        let mut ran_on: BTreeMap<u32, BTreeMap<u32, f64>> = BTreeMap::new();
        for sample in &tables.samples {
            let of_thread = ran_on.entry(sample.tid.0).or_default();
            *of_thread.entry(sample.cpu.0).or_default() += sample.weight as f64;
        }
        for task in &mut self.tasks {
            if let Some(ran_on) = ran_on.remove(&task.key.tid) {
                task.ran_on = ran_on;
            }
        }
        let found = group_threads(recording.info(), &tables, None);
        let pairs = found.pairs.iter();
        let pairs = pairs.map(|pair| (pair.one, pair.other, pair.strength()));
        self.pairs = Some(pairs.collect());
        let load: f64 = self
            .tasks
            .iter()
            .map(|task| f64::from(task.activity.load))
            .sum();
        let cost: f64 = found
            .groups
            .iter()
            .map(|group| group.cost * group.load)
            .sum();
        self.waits = (load > 0.0).then(|| (cost / load).clamp(0.0, 1.0));
        Ok(())
    }
}

/// How long threads had run, and had waited for a CPU, at a moment, ns.
pub(super) struct Loads {
    at: Instant,
    of: BTreeMap<TaskKey, [u64; 2]>,
}

impl Loads {
    pub(super) fn of(processes: &[u32]) -> Self {
        let threads = threads(processes).into_iter();
        Self {
            at: Instant::now(),
            of: threads
                .map(|(key, process)| (key, times_ns(process, key.tid)))
                .collect(),
        }
    }

    /// The threads that were there.
    pub(super) fn threads(&self) -> impl Iterator<Item = TaskKey> {
        self.of.keys().copied()
    }

    /// The threads that are there now, with what they did since.
    pub(super) fn seen_since(&self, processes: &[u32]) -> Seen {
        let passed = self.at.elapsed().as_nanos().max(1) as f64;
        let tasks = threads(processes).into_iter().filter_map(|(key, process)| {
            let before = self.of.get(&key).copied().unwrap_or_default();
            let now = times_ns(process, key.tid);
            let share = |ns: u64| (ns as f64 / passed).clamp(0.0, 1.0) as f32;
            let [ran, waited] = [0, 1].map(|at| now[at].saturating_sub(before[at]));
            Some(SeenTask {
                key,
                process,
                name: procfs::thread_name(process, key.tid).unwrap_or_default(),
                ran_on: BTreeMap::from([(procfs::last_cpu(key.tid)?, 1.0)]),
                activity: Activity {
                    load: share(ran + waited),
                    executed: share(ran),
                    ..Activity::default()
                },
            })
        });
        Seen {
            tasks: tasks.collect(),
            ..Seen::default()
        }
    }
}

/// Time on a CPU and time waiting for one, ns.
fn times_ns(process: u32, tid: u32) -> [u64; 2] {
    let ran = procfs::thread_cpu_time_ns(process, tid).unwrap_or(0);
    [ran, procfs::thread_waited_ns(process, tid).unwrap_or(0)]
}

/// The threads of processes and of all that descend from them, with their processes.
fn threads(processes: &[u32]) -> BTreeMap<TaskKey, u32> {
    let mut all = processes.to_vec();
    all.extend(procfs::descendants(processes).unwrap_or_default());
    let mut threads = BTreeMap::new();
    for process in all {
        for tid in procfs::threads(process).unwrap_or_default() {
            if let Some(start) = procfs::started(tid) {
                threads.insert(TaskKey { tid, start }, process);
            }
        }
    }
    threads
}
