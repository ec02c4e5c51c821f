//! How many of the paths of an object are found with how many history sets?
//!
//! Method: of a recording with `--flow`, the site with the most histories. A set is what it takes to have one more
//! history of each pair of places that was watched, in the order of time. From the first 1, 2, 5, ... sets paths are made, and compared
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
    let mut lives: BTreeMap<_, Vec<&History>> = BTreeMap::new();
    for history in histories {
        let life = (history.allocated, history.address);
        lives.entry(life).or_default().push(history);
    }
    // Each with the number of its set; what was cut short belongs to the set that is under way.
    let mut counts: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let numbered: Vec<(usize, Vec<&History>)> = lives
        .into_values()
        .map(|rows| {
            let places = rows
                .iter()
                .flat_map(|row| [Some(row.offset), row.other_offset]);
            let mut places: Vec<u64> = places.flatten().collect();
            places.sort_unstable();
            // A place alone is a pair with itself.
            let later = |index: usize| match places.len() {
                1 => &places[..],
                _ => &places[index + 1..],
            };
            let pairs: Vec<(u64, u64)> = (0..places.len())
                .flat_map(|index| later(index).iter().map(move |other| (index, *other)))
                .map(|(index, other)| (places[index], other))
                .collect();
            let whole = usize::from(rows[0].outcome == HistoryOutcome::Whole);
            let before = pairs.iter().map(|pair| {
                let count = counts.entry(*pair).or_default();
                *count += whole;
                *count - whole
            });
            (before.min().unwrap_or(0), rows)
        })
        .collect();
    let lives = |sets: usize| numbered.iter().filter(move |(set, _)| *set < sets);
    let first = |sets: usize| -> Vec<History> {
        let rows = lives(sets).flat_map(|(_, rows)| rows.iter().copied());
        rows.cloned().collect()
    };
    let all = paths(&tables, first(usize::MAX));
    let whole = |sets: usize| {
        let whole = lives(sets).filter(|(_, rows)| rows[0].outcome == HistoryOutcome::Whole);
        whole.count()
    };
    let sets = numbered.iter().map(|(set, _)| set + 1).max().unwrap_or(0);
    let histories = whole(usize::MAX);
    println!("histories {histories} sets {sets} paths {}", all.len());
    for count in SETS.into_iter().filter(|count| *count <= sets) {
        let found: BTreeSet<Signature> = paths(&tables, first(count)).into_keys().collect();
        let known = all.iter().filter(|(path, _)| found.contains(*path));
        // The sum of nothing is -0.
        let objects = known.clone().map(|(_, frequency)| frequency).sum::<f64>() + 0.0;
        println!(
            "sets {count} histories {} paths {:.2} of_objects {objects:.2}",
            whole(count),
            known.count() as f64 / all.len().max(1) as f64,
        );
    }
    Ok(())
}
