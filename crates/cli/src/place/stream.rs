//! A recorded stream of counter values: what `linewise place --counters FILE` reads, an interval a line.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use linewise_placer::{Counts, IntelCounts, Machine, TaskKey, ZenCounts};
use serde::Deserialize;

use super::observe::{Observer, Seen, SeenTask};

/// A stream of counters longer than this is refused, bytes.
const LONGEST_STREAM: u64 = 64 << 20;

/// A counter has 64 bits.
const MOST: f64 = 18_446_744_073_709_551_615.0;

/// Takes looks from a file of counter values, a line of JSON for each interval.
pub(super) struct ByStream {
    looks: std::vec::IntoIter<Seen>,
}

impl ByStream {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or a line is none of such a stream of this machine.
    pub(super) fn open(path: &Path, machine: &Machine) -> anyhow::Result<Self> {
        let shown = path.display();
        let bytes = linewise_foreign::read(path, LONGEST_STREAM);
        let bytes = bytes.with_context(|| format!("cannot read {shown}"))?;
        let text = String::from_utf8_lossy(&bytes);
        let mut looks = Vec::new();
        for (number, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let at = || format!("{shown}, line {}: no interval of counters", number + 1);
            let interval: Interval = serde_json::from_str(line).with_context(at)?;
            interval.check(machine).with_context(at)?;
            looks.push(interval.seen());
        }
        if let Some(last) = looks.last_mut() {
            last.is_last = true;
        }
        anyhow::ensure!(!looks.is_empty(), "{shown} has no intervals");
        Ok(Self {
            looks: looks.into_iter(),
        })
    }
}

impl Observer for ByStream {
    fn look(&mut self, _: &[u32]) -> anyhow::Result<Seen> {
        self.looks
            .next()
            .context("the stream of counters is at its end")
    }
}

/// One interval.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Interval {
    tasks: Vec<Task>,
}

/// One thread in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    tid: u32,
    #[serde(default)]
    start: u64,
    #[serde(default)]
    process: u32,
    #[serde(default)]
    name: String,
    cpu: u32,
    /// The share of the interval that it executed or was ready to.
    load: f32,
    /// Unhalted cycles.
    cycles: f64,
    /// Cycles of a second.
    hertz: f64,
    instructions: Option<f64>,
    intel: Option<Intel>,
    zen: Option<Zen>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Intel {
    l2_miss: f64,
    l3_hit: f64,
    l3_miss: f64,
    remote_hitm: f64,
    remote_fwd: f64,
    remote_dram: f64,
    llc_misses: f64,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Zen {
    local_ccx: f64,
    local_l3: f64,
    near_cache: f64,
    far_cache: f64,
    dram_near: f64,
    dram_far: f64,
}

impl Interval {
    /// Whether a machine may have counted so.
    fn check(&self, machine: &Machine) -> anyhow::Result<()> {
        for task in &self.tasks {
            let tid = task.tid;
            ensure!(tid != 0, "no thread has the number 0");
            let cpu = task.cpu;
            let is_there = machine.index_of(cpu).is_some();
            ensure!(is_there, "thread {tid}: the machine has no CPU {cpu}");
            for (name, value) in task.numbers() {
                ensure!(
                    (0.0..=MOST).contains(&value),
                    "thread {tid}: {name} is {value}, which nothing counts"
                );
            }
            let load = task.load;
            ensure!(
                load <= 1.0,
                "thread {tid}: load is {load}, and 1 is all of an interval"
            );
        }
        Ok(())
    }

    /// What was seen in it.
    pub(super) fn seen(self) -> Seen {
        let mut tasks: Vec<SeenTask> = self.tasks.into_iter().map(Task::seen).collect();
        tasks.sort_by_key(|task| task.key);
        tasks.dedup_by_key(|task| task.key);
        Seen {
            tasks,
            ..Seen::default()
        }
    }
}

impl Task {
    /// Everything that is a number and no name.
    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let mut all = vec![
            ("load", f64::from(self.load)),
            ("cycles", self.cycles),
            ("hertz", self.hertz),
            ("instructions", self.instructions.unwrap_or(0.0)),
        ];
        if let Some(it) = &self.intel {
            all.extend([
                ("l2_miss", it.l2_miss),
                ("l3_hit", it.l3_hit),
                ("l3_miss", it.l3_miss),
                ("remote_hitm", it.remote_hitm),
                ("remote_fwd", it.remote_fwd),
                ("remote_dram", it.remote_dram),
                ("llc_misses", it.llc_misses),
            ]);
        }
        if let Some(it) = &self.zen {
            all.extend([
                ("local_ccx", it.local_ccx),
                ("local_l3", it.local_l3),
                ("near_cache", it.near_cache),
                ("far_cache", it.far_cache),
                ("dram_near", it.dram_near),
                ("dram_far", it.dram_far),
            ]);
        }
        all
    }

    fn seen(self) -> SeenTask {
        let counts = match (self.intel, self.zen) {
            (Some(counts), _) => Counts::Intel(IntelCounts {
                l2_miss: counts.l2_miss,
                l3_hit: counts.l3_hit,
                l3_miss: counts.l3_miss,
                remote_hitm: counts.remote_hitm,
                remote_fwd: counts.remote_fwd,
                remote_dram: counts.remote_dram,
                llc_misses: counts.llc_misses,
            }),
            (None, counts) => {
                let counts = counts.unwrap_or_default();
                Counts::Zen(ZenCounts {
                    local_ccx: counts.local_ccx,
                    local_l3: counts.local_l3,
                    near_cache: counts.near_cache,
                    far_cache: counts.far_cache,
                    dram_near: counts.dram_near,
                    dram_far: counts.dram_far,
                })
            }
        };
        SeenTask {
            key: TaskKey {
                tid: self.tid,
                start: self.start,
            },
            process: self.process,
            name: self.name,
            ran_on: BTreeMap::from([(self.cpu, 1.0)]),
            activity: counts.activity(self.load, self.cycles, self.hertz, self.instructions),
        }
    }
}

#[cfg(test)]
mod tests {
    use linewise_topology::synthetic;

    use super::*;

    fn opened(text: &str) -> Result<ByStream, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stream");
        std::fs::write(&path, text).unwrap();
        let machine = Machine::new(&synthetic::two_sockets_of_ten());
        ByStream::open(&path, &machine).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn numbers_that_nothing_counts_are_refused_with_their_line() {
        let good = r#"{"tasks":[{"tid":5,"cpu":3,"load":1,"cycles":2e8,"hertz":2e9,"intel":{"l2_miss":7}}]}"#;
        assert!(opened(good).is_ok());
        for (from, to, reason) in [
            ("\"l2_miss\":7", "\"l2_miss\":-7", "l2_miss is -7"),
            ("\"l2_miss\":7", "\"l2_miss\":1e308", "l2_miss is 1"),
            ("\"l2_miss\":7", "\"l2_miss\":NaN", "expected value"),
            ("2e9", "-2e9", "hertz"),
            ("2e8", "1e300", "cycles"),
            ("\"load\":1", "\"load\":1.5", "load is 1.5"),
            ("\"load\":1", "\"load\":-1", "load is -1"),
            ("\"cpu\":3", "\"cpu\":99999", "no CPU 99999"),
            ("\"tid\":5", "\"tid\":0", "number 0"),
        ] {
            let told = opened(&format!("{good}\n{}\n", good.replace(from, to))).err();
            let told = told.unwrap_or_default();
            assert!(
                told.contains("line 2") && told.contains(reason),
                "{to}: {told}"
            );
        }
    }

    #[test]
    fn a_stream_that_is_too_long_is_refused_unread() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(LONGEST_STREAM + 1).unwrap();
        let machine = Machine::new(&synthetic::two_sockets_of_ten());
        let error = ByStream::open(file.path(), &machine).err().unwrap();
        assert!(format!("{error:#}").contains("cannot read"), "{error:#}");
    }
}
