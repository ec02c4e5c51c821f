//! Which contended lines belong together: what is to be changed for them is one.

use std::collections::{BTreeMap, BTreeSet};

use linewise_recording::{Address, Object, ObjectKind, Pid, Tid};

use super::names::Names;
use crate::views::sharing::{LineSharing, Place};

/// Which lines belong together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// All lines of one known object.
    Object(Pid, Address),
    /// Lines of unnamed memory that the same functions fight over.
    Functions(Pid, BTreeSet<String>),
    /// Several of one of the two, alike.
    Alike(Likeness),
}

/// What groups have in common of which all want the same change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Likeness {
    /// Blocks of the heap, or mappings, that were allocated at one place, by processes of this name.
    Blocks(String, String),
    /// One variable in several processes of this name: its own name, its declaration, its type.
    Variable(String, [String; 3]),
    /// Unnamed memory of several processes of this name that the same functions fight over.
    Functions(String, BTreeSet<String>),
}

/// The lines by what they belong to, those together that are alike: a process that is forked again and again has the
/// same cause each time.
pub(super) fn groups<'v>(
    lines: impl IntoIterator<Item = &'v LineSharing>,
    names: &Names<'_>,
) -> BTreeMap<Group, Vec<&'v LineSharing>> {
    let mut groups: BTreeMap<Group, Vec<&LineSharing>> = BTreeMap::new();
    for line in lines {
        groups.entry(group(line, names)).or_default().push(line);
    }
    let mut counts: BTreeMap<Likeness, usize> = BTreeMap::new();
    for (group, lines) in &groups {
        if let Some(likeness) = likeness(group, lines[0], names) {
            *counts.entry(likeness).or_default() += 1;
        }
    }
    let mut together: BTreeMap<Group, Vec<&LineSharing>> = BTreeMap::new();
    for (group, lines) in groups {
        let several = likeness(&group, lines[0], names).filter(|it| counts[it] > 1);
        let group = several.map_or(group, Group::Alike);
        together.entry(group).or_default().extend(lines);
    }
    together
}

fn group(line: &LineSharing, names: &Names<'_>) -> Group {
    match main_object(line, names) {
        Some(object) if names.is_exact(object) => Group::Object(line.pid, object.address),
        _ => {
            let most = line.places.first().map_or(0.0, |place| place.weight);
            let function =
                |place: &Place| match names.frames(place.touch.pid, place.touch.ip).first() {
                    Some(frame) => frame.function.clone(),
                    None => place.touch.ip.to_string(),
                };
            let dear = line
                .places
                .iter()
                .filter(|place| place.weight >= 0.2 * most);
            Group::Functions(line.pid, dear.map(function).collect())
        }
    }
}

/// What a group has in common with others of its kind; `None` if nothing tells.
fn likeness(group: &Group, line: &LineSharing, names: &Names<'_>) -> Option<Likeness> {
    let process = |pid: &Pid| names.thread(Tid(pid.0)).to_owned();
    match group {
        Group::Functions(pid, functions) => {
            Some(Likeness::Functions(process(pid), functions.clone()))
        }
        Group::Object(pid, _) => {
            let object = main_object(line, names)?;
            match object.kind {
                ObjectKind::Heap | ObjectKind::Mapping => {
                    let is_known = !names.allocated_at(object).is_empty();
                    is_known.then(|| Likeness::Blocks(process(pid), object.name.clone()))
                }
                ObjectKind::Static => {
                    let words = [&object.name, &object.declared_at, &object.type_name];
                    Some(Likeness::Variable(process(pid), words.map(Clone::clone)))
                }
                ObjectKind::Stack => None,
            }
        }
        Group::Alike(_) => None,
    }
}

/// The object that most of the line's sampled time goes to.
pub(super) fn main_object<'a>(line: &LineSharing, names: &Names<'a>) -> Option<&'a Object> {
    let mut weights: BTreeMap<Address, (f64, &Object)> = BTreeMap::new();
    for place in &line.places {
        if let Some(object) = names.object(line.pid, place.touch.address) {
            // Traps count a little, for lines whose accesses are hardly ever sampled.
            weights.entry(object.address).or_insert((0.0, object)).0 +=
                place.weight + place.traps as f64;
        }
    }
    weights
        .into_values()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, object)| object)
}

/// How many objects the lines of a group are of.
pub(super) fn objects(group: &Group, lines: &[&LineSharing], names: &Names<'_>) -> u64 {
    if !matches!(group, Group::Alike(_)) {
        return 1;
    }
    let object = |line: &&LineSharing| match main_object(line, names) {
        Some(object) if names.is_exact(object) => (line.pid, object.address),
        // Of unnamed memory nobody knows how much is one object.
        _ => (line.pid, Address(0)),
    };
    lines.iter().map(object).collect::<BTreeSet<_>>().len() as u64
}

#[cfg(test)]
mod tests {
    use linewise_recording::{Operation, Tables, Thread, Time};

    use super::*;
    use crate::views::Touch;
    use crate::views::sharing::{Basis, Estimate};

    fn variable(pid: u32, name: &str) -> Object {
        Object {
            pid: Pid(pid),
            address: Address(0x1010),
            size: 16,
            kind: ObjectKind::Static,
            name: name.to_owned(),
            type_name: "struct s".to_owned(),
            declared_at: "work.c:6".to_owned(),
        }
    }

    fn thread(pid: u32, name: &str) -> Thread {
        Thread {
            pid: Pid(pid),
            tid: Tid(pid),
            name: name.to_owned(),
            start: Time(0),
            end: Time(1),
            cpu_time_ns: 1,
            stack_low: Address(0),
            stack_high: Address(0),
        }
    }

    fn line(pid: u32) -> LineSharing {
        let touch = Touch {
            pid: Pid(pid),
            ip: Address(0x10),
            address: Address(0x1018),
            size: 8,
            operation: Operation::Update,
            locked: false,
        };
        LineSharing {
            pid: Pid(pid),
            line: Address(0x1000),
            transfers: Estimate::default(),
            cost_ns: Estimate::default(),
            flows: Vec::new(),
            false_share: Estimate::default(),
            cpu_flows: BTreeMap::new(),
            places: vec![Place {
                tid: Tid(pid),
                touch,
                weight: 1.0,
                samples: 1,
                traps: 0,
            }],
            basis: Basis::Sampled {
                samples: 1,
                watches: 0,
                traps: 0,
            },
        }
    }

    #[test]
    fn one_variable_in_several_processes_of_a_name_is_one_finding() {
        let tables = Tables {
            objects: vec![variable(1, "g"), variable(2, "g"), variable(3, "g")],
            threads: vec![thread(1, "worker"), thread(2, "worker"), thread(3, "other")],
            ..Tables::default()
        };
        let names = Names::new(&tables);
        let lines = [line(1), line(2), line(3)];
        let found = groups(&lines, &names);
        let mut counts: Vec<(u64, usize)> = (found.iter())
            .map(|(group, lines)| (objects(group, lines, &names), lines.len()))
            .collect();
        counts.sort_unstable();
        assert_eq!(counts, [(1, 1), (2, 2)]);
    }
}
