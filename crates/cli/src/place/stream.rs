//! A recorded stream of counter values: what `linewise place --counters FILE` reads, an interval a line.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use linewise_placer::{Counts, IntelCounts, TaskKey, ZenCounts};
use serde::Deserialize;

use super::observe::{Observer, Seen, SeenTask};

/// A stream of counters longer than this is refused, bytes.
const LONGEST_STREAM: u64 = 64 << 20;

/// Takes looks from a file of counter values, a line of JSON for each interval.
pub(super) struct ByStream {
    looks: std::vec::IntoIter<Seen>,
}

impl ByStream {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or a line is none of such a stream.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
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
            let interval: Interval = serde_json::from_str(line).with_context(|| {
                format!("{shown}, line {}: no interval of counters", number + 1)
            })?;
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
            activity: counts.activity(
                self.load.clamp(0.0, 1.0),
                self.cycles,
                self.hertz,
                self.instructions,
            ),
        }
    }
}
