//! How many of the paths of an object are found with how many history sets?
//!
//! Method: of a recording with `--flow`, the site with the most histories. A set is one history of each pair of
//! places that was watched, in the order of time. From the first 1, 2, 5, ... sets paths are made, and compared
//! with those of all sets, which stand for all there are (as in figure 6-3 of Pesterev, 2010).
//!
//! Finding: see docs/measured.md (`cargo xtask flow`).
//!
//! `paths` is the share of the paths found; `of_objects` the share of the objects that take these.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use linewise_analysis::resolve::{Files, resolve_recording};
use linewise_recording::{History, HistoryOutcome, Pid, Recording, Tables};

/// Numbers of sets.
const SETS: [usize; 10] = [1, 2, 3, 5, 10, 20, 30, 50, 70, 100];

/// Names are not asked for.
struct NoFiles;

impl Files for NoFiles {
    fn open(&self, _: Pid, _: &str) -> Option<Box<dyn linewise_analysis::resolve::File>> {
        None
    }
}

/// Step by step: instruction, place, thread.
type Signature = Vec<(u64, u64, u64)>;

/// The paths of these histories, and how frequent each is.
fn paths(tables: &Tables, histories: Vec<History>) -> BTreeMap<Signature, f64> {
    let part = Tables {
        histories,
        history_accesses: tables.history_accesses.clone(),
        ..Tables::default()
    };
    let mut paths: BTreeMap<u64, (Signature, f64)> = BTreeMap::new();
    for step in resolve_recording(&part, 64, &NoFiles).path_traces {
        let (signature, frequency) = paths.entry(step.path).or_default();
        signature.push((step.ip.0, step.offset, step.thread));
        *frequency = step.frequency;
    }
    paths.into_values().collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = std::env::args().nth(1).ok_or("a recording is wanted")?;
    let tables = Recording::open(Path::new(&place))?.tables()?;
    let mut sites: BTreeMap<_, Vec<&History>> = BTreeMap::new();
    for history in &tables.histories {
        let site = (history.pid, history.stack, history.size);
        sites.entry(site).or_default().push(history);
    }
    let most = sites.into_values().max_by_key(Vec::len);
    let histories = most.unwrap_or_default();
    // Each with the number of its set; what was cut short belongs to the set that is under way.
    let mut counts: BTreeMap<(u64, Option<u64>), usize> = BTreeMap::new();
    let numbered: Vec<(usize, &History)> = histories
        .into_iter()
        .map(|history| {
            let count = counts
                .entry((history.offset, history.other_offset))
                .or_default();
            let set = *count;
            *count += usize::from(history.outcome == HistoryOutcome::Whole);
            (set, history)
        })
        .collect();
    let first = |sets: usize| -> Vec<History> {
        let part = numbered.iter().filter(|(set, _)| *set < sets);
        part.map(|(_, history)| (*history).clone()).collect()
    };
    let all = paths(&tables, first(usize::MAX));
    let whole = |histories: &[History]| {
        let whole = |it: &&History| it.outcome == HistoryOutcome::Whole;
        histories.iter().filter(whole).count()
    };
    let sets = counts.values().copied().max().unwrap_or(0);
    let histories = whole(&first(usize::MAX));
    println!("histories {histories} sets {sets} paths {}", all.len());
    for count in SETS.into_iter().filter(|count| *count <= sets) {
        let found: BTreeSet<Signature> = paths(&tables, first(count)).into_keys().collect();
        let known = all.iter().filter(|(path, _)| found.contains(*path));
        // The sum of nothing is -0.
        let objects = known.clone().map(|(_, frequency)| frequency).sum::<f64>() + 0.0;
        println!(
            "sets {count} histories {} paths {:.2} of_objects {objects:.2}",
            whole(&first(count)),
            known.count() as f64 / all.len().max(1) as f64,
        );
    }
    Ok(())
}
