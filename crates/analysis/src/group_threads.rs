//! The whole way from tables to groups of threads.

use linewise_recording::{RunInfo, SharedMemory, Tables, Tid};
use linewise_topology::Topology;

use crate::advice::{Sharers, placement_words};
use crate::analyse::sharing_of;
use crate::users::Goroutines;
use crate::views::groups::{Found, GroupsInput, PairSum, ThreadGroups, thread_groups};

/// Pairs whose objects are looked up; the weaker ones are told without.
const PAIRS: usize = 500;

/// Which threads share lines with which, and where they should run on `machine`, if its shape is known.
#[must_use]
pub fn group_threads(info: &RunInfo, tables: &Tables, machine: Option<&Topology>) -> ThreadGroups {
    let shared = SharedMemory::of(&tables.maps);
    let (sharing, time) = sharing_of(info, tables, &shared, &Goroutines::new(&tables.goroutines));
    let Found { mut groups, sums } = thread_groups(&GroupsInput {
        info,
        tables,
        sharing: &sharing,
        time: &time,
        machine,
    });
    let sharers = Sharers::new(&sharing, tables);
    for pair in groups.pairs.iter_mut().take(PAIRS) {
        let key = (Tid(pair.one), Tid(pair.other));
        if let Some(sum) = sums.get(&key) {
            pair.why = sharers.why(sum, |tid| tid == key.0 || tid == key.1);
        }
    }
    for group in &mut groups.groups {
        let is_of = |tid: Tid| group.threads.binary_search(&tid.0).is_ok();
        let mut inner = PairSum::default();
        let own = sums.iter().filter(|((a, b), _)| is_of(*a) && is_of(*b));
        own.for_each(|(_, sum)| inner.add(sum));
        group.why = sharers.why(&inner, is_of);
    }
    groups.advice.words = placement_words(&groups);
    groups.notes = notes(&groups, sharing.no_latency, info);
    groups
}

fn notes(groups: &ThreadGroups, no_latency: bool, info: &RunInfo) -> Vec<String> {
    let mut notes = Vec::new();
    if !info.complete {
        notes.push("The recording was cut short: what was written until then is shown.".to_owned());
    }
    if no_latency && info.exact.is_none() {
        notes.push("The latency between CPUs could not be measured, so transfers are not known: let linewise use at least two CPUs, and record again when others leave it two at the same time.".to_owned());
    }
    if groups
        .groups
        .iter()
        .any(|group| group.in_turns > group.transfers)
    {
        notes.push("Threads of a group use the same lines, but were hardly ever seen there at once, as when the kernel runs them on one CPU: little moved. More would if they ran at once.".to_owned());
    }
    if groups.latencies.iter().any(|it| !it.measured) && groups.latencies.len() > 1 {
        notes.push("Latencies that were not measured are taken from those that were, by the ratios of usual machines: 1 to 2.5 (1.5 to 4) to 5 (2.5 to 8) below one last-level cache, on one socket, apart.".to_owned());
    }
    notes
}
