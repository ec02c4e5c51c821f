//! Groups of threads in words, and their matrix: what the terminal and the page have in common.

use std::collections::{BTreeMap, BTreeSet};

use super::model::Interval;
use super::text;
use crate::section::Party;
use crate::views::groups::{
    Distance, GroupPlace, PlacementVerdict, SharedObject, SharingPair, ThreadGroup, ThreadGroups,
};

/// Threads, or several of them as one, in the order of their groups, and what they move between them.
#[derive(Clone, Debug)]
pub(super) struct OrderedMatrix {
    /// What a row is: `thread`.
    pub(super) noun: &'static str,
    pub(super) parties: Vec<GroupParty>,
    /// By the indices of two parties, the lower first; the same twice of what is one row.
    pub(super) cells: BTreeMap<(usize, usize), PairCell>,
}

/// A row and column.
#[derive(Clone, Debug)]
pub(super) struct GroupParty {
    pub(super) party: Party,
    pub(super) group: Option<u32>,
}

/// What two of them share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PairCell {
    /// Transfers.
    pub(super) transfers: f64,
    /// Those that taking turns avoids.
    pub(super) in_turns: f64,
}

impl PairCell {
    pub(super) fn strength(self) -> f64 {
        self.transfers + self.in_turns
    }
}

impl OrderedMatrix {
    /// Threads where there is room for so many rows; else those of a group that are named alike as one; else groups, of
    /// which those that share least are one row.
    pub(super) fn of(groups: &ThreadGroups, most: usize) -> Self {
        let strong: BTreeSet<u32> = (groups.pairs.iter())
            .flat_map(|pair| [pair.one, pair.other])
            .collect();
        let threads = groups.threads.iter().filter(|it| strong.contains(&it.tid));
        let threads: Vec<_> = threads.collect();
        let each = threads
            .iter()
            .map(|it| (it.tid, (it.group, it.name.clone(), Some(it.tid))));
        let each: Vec<(u32, PartyKey)> = each.collect();
        if each.len() <= most {
            return Self::by(groups, "thread", &each);
        }
        let alike = |it: &(u32, PartyKey)| (it.0, (it.1.0, stem(&it.1.1).to_owned(), None));
        let alike: Vec<(u32, PartyKey)> = each.iter().map(alike).collect();
        let distinct: BTreeSet<_> = alike.iter().map(|(_, key)| key).collect();
        if distinct.len() <= most {
            return Self::by(groups, "kind of thread", &alike);
        }
        let last = most.saturating_sub(2) as u32;
        let whole = |it: &(u32, PartyKey)| {
            let name = match it.1.0 {
                Some(id) if id > last => {
                    return (it.0, (Some(last + 1), "other groups".to_owned(), None));
                }
                Some(id) => format!("group {id}"),
                None => "in no group".to_owned(),
            };
            (it.0, (it.1.0, name, None))
        };
        let whole: Vec<(u32, PartyKey)> = each.iter().map(whole).collect();
        Self::by(groups, "group", &whole)
    }

    fn by(groups: &ThreadGroups, noun: &'static str, of: &[(u32, PartyKey)]) -> Self {
        let mut members: BTreeMap<(u32, &PartyKey), u64> = BTreeMap::new();
        for (_, key) in of {
            *members.entry((key.0.unwrap_or(u32::MAX), key)).or_default() += 1;
        }
        let at: BTreeMap<&PartyKey, usize> = (members.keys().zip(0..))
            .map(|(&(_, key), i)| (key, i))
            .collect();
        let party = |(&(_, key), &count): (&(u32, &PartyKey), &u64)| GroupParty {
            party: Party {
                name: match count {
                    1 => key.1.clone(),
                    count => format!("{} ×{count}", key.1),
                },
                id: key.2,
            },
            group: key.0,
        };
        let parties = members.iter().map(party).collect();
        let index: BTreeMap<u32, usize> = of.iter().map(|(tid, key)| (*tid, at[key])).collect();
        let mut cells: BTreeMap<(usize, usize), PairCell> = BTreeMap::new();
        for pair in &groups.pairs {
            if let (Some(&a), Some(&b)) = (index.get(&pair.one), index.get(&pair.other)) {
                let cell = cells.entry((a.min(b), a.max(b))).or_default();
                cell.transfers += pair.transfers;
                cell.in_turns += pair.in_turns;
            }
        }
        Self {
            noun,
            parties,
            cells,
        }
    }

    /// What the strongest cell has.
    pub(super) fn highest(&self) -> f64 {
        self.cells
            .values()
            .map(|it| it.strength())
            .fold(0.0, f64::max)
    }
}

/// What makes threads one row: their group, their name, and their id where each is one.
type PartyKey = (Option<u32>, String, Option<u32>);

/// A name without the number at its end.
fn stem(name: &str) -> &str {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match stem.trim_end_matches(['-', '_', '#', '/', ':', ' ']) {
        "" => name,
        stem => stem,
    }
}

/// What follows an amount.
pub(super) fn unit(groups: &ThreadGroups) -> &'static str {
    match groups.is_counted() {
        true => " in all",
        false => " a second",
    }
}

/// The whole answer in a few words.
pub(super) fn verdict(groups: &ThreadGroups) -> String {
    let number = text::plural(groups.groups.len() as u64, "group");
    let found = match groups.groups.len() {
        0 => "No group of threads that share".to_owned(),
        _ => format!("{number} of threads that share"),
    };
    match groups.advice.verdict {
        PlacementVerdict::Move => format!("{found}; to be brought together"),
        PlacementVerdict::MachineUnknown => found,
        _ => format!("{found}; nothing should be moved"),
    }
}

/// `1.9 M (0.3..11 M) transfers a second, true sharing`.
pub(super) fn transfers(
    (amount, interval, false_share, in_turns): (f64, Interval, f64, f64),
    unit: &str,
) -> String {
    let turns = format!("up to {}{unit}", text::count(in_turns));
    if amount <= 0.0 {
        return format!("none seen, as they were hardly ever there at once; {turns} if they were");
    }
    let kind = match false_share {
        share if share >= 0.8 => "false sharing".to_owned(),
        share if share <= 0.2 => "true sharing".to_owned(),
        share => format!("{} of it false sharing", text::percent(share)),
    };
    let moved = format!(
        "{} transfers{unit}, {kind}",
        text::count_band(amount, interval)
    );
    match in_turns > 0.0 {
        true => format!("{moved}; {turns} more at lines where they were hardly ever at once"),
        false => moved,
    }
}

/// [`transfers`] of a pair.
pub(super) fn of_pair(pair: &SharingPair, unit: &str) -> String {
    transfers(
        (
            pair.transfers,
            pair.interval,
            pair.false_share,
            pair.in_turns,
        ),
        unit,
    )
}

/// [`transfers`] of a group.
pub(super) fn of_group(group: &ThreadGroup, unit: &str) -> String {
    transfers(
        (
            group.transfers,
            group.interval,
            group.false_share,
            group.in_turns,
        ),
        unit,
    )
}

/// `left: head, tail (worker), 97 %`.
pub(super) fn why(object: &SharedObject) -> String {
    let mut words = object.object.clone();
    if !object.fields.is_empty() && object.fields != object.object {
        words += &format!(": {}", object.fields);
    }
    if !object.functions.is_empty() {
        words += &format!(" in {}", object.functions);
    }
    format!("{words}, {}", text::percent(object.share))
}

/// The members of a group: those that are named alike with their ids behind each other.
pub(super) fn members(groups: &ThreadGroups, group: &ThreadGroup, most: usize) -> String {
    let mut by_name: Vec<(&str, Vec<u32>)> = Vec::new();
    for &tid in &group.threads {
        let name = groups.thread(tid).map_or("thread", |it| it.name.as_str());
        match by_name.iter_mut().find(|(it, _)| *it == name) {
            Some((_, tids)) => tids.push(tid),
            None => by_name.push((name, vec![tid])),
        }
    }
    let rest = by_name.len().saturating_sub(most);
    let words = by_name
        .iter()
        .take(most)
        .map(|(name, tids)| match tids.as_slice() {
            [tid] => format!("{name} {tid}"),
            tids => format!("{name} ×{}", tids.len()),
        });
    let mut words: Vec<String> = words.collect();
    if rest > 0 {
        words.push(format!("{rest} more"));
    }
    text::listing(&words)
}

/// A distance in words.
pub(super) fn distance(distance: Distance) -> &'static str {
    match distance {
        Distance::Llc => "below one last-level cache",
        Distance::Socket => "on one socket",
        Distance::Apart => "on different sockets",
    }
}

/// What a group would cost at each distance.
pub(super) fn elsewhere(groups: &ThreadGroups, group: &ThreadGroup) -> String {
    if groups.shape.llcs == Some(1) {
        return "all CPUs are below one last-level cache: there is no other placement".to_owned();
    }
    if groups.shape.below.is_empty() {
        return "the shape of the machine is not known".to_owned();
    }
    let of = |it: &crate::views::groups::DistanceCost| {
        let measured = groups
            .latencies
            .iter()
            .any(|level| level.distance == it.distance && level.measured);
        let by = if measured { "" } else { ", by usual ratios" };
        let (share, range) = (text::percent(it.cost), text::percent_range(it.interval));
        format!("{} {share} ({range}{by})", distance(it.distance))
    };
    group
        .elsewhere
        .iter()
        .map(of)
        .collect::<Vec<_>>()
        .join("; ")
}

/// What a group's transfers cost where it ran.
pub(super) fn cost(groups: &ThreadGroups, group: &ThreadGroup) -> String {
    let of = match groups.source.is_emulated() {
        true => "of the time of all threads",
        false => "of its thread time",
    };
    let (share, range) = (
        text::percent(group.cost),
        text::percent_range(group.cost_interval),
    );
    format!("{share} {of} where it ran ({range})")
}

/// How large the shared hot set of a group is.
pub(super) fn hot_set(groups: &ThreadGroups, group: &ThreadGroup) -> String {
    let (lines, bytes) = (
        text::plural(group.lines, "line"),
        text::binary_bytes(group.hot_bytes),
    );
    let seen = match groups.source.is_emulated() {
        true => "",
        false => " at least, as far as samples saw",
    };
    format!("{lines}, {bytes}{seen}; {:.1} CPUs used", group.load)
}

/// Where a group is to run, and what it gains by that.
pub(super) fn place(group: &ThreadGroup, place: &GroupPlace) -> String {
    let (gain, range) = (
        text::percent(group.gain),
        text::percent_range(group.gain_interval),
    );
    let gains = match group.verdict {
        _ if place.is_there => ", where it ran".to_owned(),
        PlacementVerdict::Move if group.takes_turns() => {
            format!(": apart it might lose {gain} ({range})")
        }
        PlacementVerdict::Move => format!(": saves {gain} ({range})"),
        PlacementVerdict::TooCheap => format!(": not worth a move, would save {gain} ({range})"),
        _ => String::new(),
    };
    format!("CPUs {} ({}){gains}", place.cpus, distance(place.distance))
}

/// The machine in words.
pub(super) fn machine(groups: &ThreadGroups) -> String {
    let shape = &groups.shape;
    let some = |number: Option<u64>, noun: &str| match number {
        Some(number) => text::plural(number, noun),
        None => format!("{noun}s unknown"),
    };
    let way = |it: &crate::views::groups::LevelLatency| {
        let by = if it.measured {
            "measured"
        } else {
            "by usual ratios"
        };
        format!(
            "{} {} ({by})",
            distance(it.distance),
            text::nanoseconds(it.round_trip_ns)
        )
    };
    let ways: Vec<String> = groups.latencies.iter().map(way).collect();
    format!(
        "{}, {}, {}; a line's way there and back {}",
        text::plural(shape.cpus, "CPU"),
        some(shape.llcs, "last-level cache"),
        some(shape.sockets, "socket"),
        ways.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_at_the_end_of_a_name_does_not_make_a_row() {
        assert_eq!(stem("worker-17"), "worker");
        assert_eq!(stem("17"), "17");
        assert_eq!(stem("tokio-runtime-w"), "tokio-runtime-w");
    }
}
