//! Which contended lines belong together: what is to be changed for them is one.

use std::collections::{BTreeMap, BTreeSet};

use linewise_recording::{Address, Object, ObjectKind, Operation, Pid, Tid};

use super::called_from::At;
use super::known::Known;
use super::names::Names;
use crate::views::Clusters;
use crate::views::sharing::LineSharing;

/// Which lines belong together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// All lines of one known object.
    Object(Pid, Address),
    /// Lines of unnamed memory that the same functions fight over.
    Functions(Pid, Fought),
    /// Several of one of the two, alike.
    Alike(Likeness),
}

/// Unnamed memory: the functions that fight over it, and which of several regions it is over which the same do.
pub(super) type Fought = (BTreeSet<String>, usize);

/// What groups have in common of which all want the same change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Likeness {
    /// Blocks of the heap, or mappings, that were allocated at one place, by processes of this name.
    Blocks(String, String),
    /// One variable in several processes of this name: its own name, its declaration, its type.
    Variable(String, [String; 3]),
    /// Unnamed memory of several processes of this name that the same functions fight over.
    Functions(String, Fought),
}

/// The lines by what they belong to, those together that are alike: a process that is forked again and again has the
/// same cause each time.
pub(super) fn groups<'v>(
    lines: impl IntoIterator<Item = &'v LineSharing>,
    known: Known<'_>,
) -> BTreeMap<Group, Vec<&'v LineSharing>> {
    let mut groups: BTreeMap<Group, Vec<&LineSharing>> = BTreeMap::new();
    // Of what holds several objects, by where it begins.
    let mut unnamed: BTreeMap<(Pid, Option<Address>), Vec<&LineSharing>> = BTreeMap::new();
    for line in lines {
        match main_object(line, known.names) {
            Some(object) if known.names.is_exact(object) && !is_arena(object) => {
                let of_object = groups.entry(Group::Object(line.pid, object.address));
                of_object.or_default().push(line);
            }
            object => {
                let region = object.filter(|it| it.kind == ObjectKind::Mapping);
                let region = (line.pid, region.map(|it| it.address));
                unnamed.entry(region).or_default().push(line);
            }
        }
    }
    for ((pid, _), lines) in unnamed {
        for (functions, part) in taken_apart(&lines, known) {
            // A mapping of which some function touches all is an object.
            let object = main_object(part[0], known.names).filter(|it| known.names.is_exact(it));
            let group = match object {
                Some(object) if part.len() == lines.len() => Group::Object(pid, object.address),
                _ => {
                    let alike = |n: &usize| {
                        groups.contains_key(&Group::Functions(pid, (functions.clone(), *n)))
                    };
                    let regions = (0..).take_while(alike).count();
                    Group::Functions(pid, (functions, regions))
                }
            };
            groups.insert(group, part);
        }
    }
    let mut counts: BTreeMap<Likeness, usize> = BTreeMap::new();
    for (group, lines) in &groups {
        if let Some(likeness) = likeness(group, lines[0], known.names) {
            *counts.entry(likeness).or_default() += 1;
        }
    }
    let mut together: BTreeMap<Group, Vec<&LineSharing>> = BTreeMap::new();
    for (group, lines) in groups {
        let several = likeness(&group, lines[0], known.names).filter(|it| counts[it] > 1);
        let group = several.map_or(group, Group::Alike);
        together.entry(group).or_default().extend(lines);
    }
    together
}

/// Whether it may be a heap of its own: that of a runtime with a garbage collector, or of an allocator.
fn is_arena(object: &Object) -> bool {
    object.kind == ObjectKind::Mapping && object.size >= 1 << 20
}

/// A function of the program's own that comes to a line, the innermost, and the type that it touches there, if that is known.
type Visitor = (String, String, String);

/// Those that take a good part of the time at a line.
fn dear_visitors(line: &LineSharing, known: Known<'_>) -> BTreeSet<Visitor> {
    let mut weights: BTreeMap<Visitor, f64> = BTreeMap::new();
    for place in &line.places {
        let (pid, ip) = (place.touch.pid, place.touch.ip);
        let frames = known.names.frames(pid, ip);
        let at = At {
            pid,
            tid: place.tid,
            ip,
            line: line.line,
        };
        let kind = known.votes.access(pid, ip);
        let kind = kind.map_or_else(String::new, |row| row.type_name.clone());
        let innermost = frames.first().map(|frame| frame.function.clone());
        let innermost = innermost.unwrap_or_else(|| ip.to_string());
        for way in known.chains.ways(at, frames, known.names) {
            let own = (way.own).map_or_else(|| innermost.clone(), |own| own.place.function);
            let visitor = (own, innermost.clone(), kind.clone());
            *weights.entry(visitor).or_default() += place.weight * way.share;
        }
    }
    let most = weights.values().copied().fold(0.0, f64::max);
    let dear = weights.into_iter().filter(|it| it.1 >= 0.2 * most);
    dear.map(|(visitor, _)| visitor).collect()
}

/// Lines of unnamed memory by the objects that they may be of: those together to which the same functions come for the same type, with
/// these functions.
fn taken_apart<'v>(
    lines: &[&'v LineSharing],
    known: Known<'_>,
) -> Vec<(BTreeSet<String>, Vec<&'v LineSharing>)> {
    let visitors: Vec<BTreeSet<Visitor>> =
        lines.iter().map(|it| dear_visitors(it, known)).collect();
    let mut clusters = Clusters::apart(lines.len());
    let mut first_with: BTreeMap<&Visitor, usize> = BTreeMap::new();
    for (number, visitors) in visitors.iter().enumerate() {
        for visitor in visitors {
            let first = *first_with.entry(visitor).or_insert(number);
            clusters.join(number, first);
        }
    }
    let mut parts: BTreeMap<usize, (BTreeSet<String>, Vec<&LineSharing>)> = BTreeMap::new();
    for (number, (line, visitors)) in lines.iter().zip(&visitors).enumerate() {
        let (functions, part) = parts.entry(clusters.of(number)).or_default();
        functions.extend(visitors.iter().map(|(own, ..)| own.clone()));
        part.push(line);
    }
    parts.into_values().collect()
}

/// What a group has in common with others of its kind; `None` if nothing tells.
fn likeness(group: &Group, line: &LineSharing, names: &Names<'_>) -> Option<Likeness> {
    let process = |pid: &Pid| names.thread(Tid(pid.0)).to_owned();
    match group {
        Group::Functions(pid, fought) => Some(Likeness::Functions(process(pid), fought.clone())),
        Group::Object(pid, _) => {
            let object = main_object(line, names)?;
            match object.kind {
                ObjectKind::Heap | ObjectKind::Mapping => names
                    .is_exact(object)
                    .then(|| Likeness::Blocks(process(pid), object.name.clone())),
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

/// The object that most of the line's sampled time goes to, of those that somebody writes: what is only read waits for what lies
/// beside it.
pub(super) fn main_object<'a>(line: &LineSharing, names: &Names<'a>) -> Option<&'a Object> {
    let mut weights: BTreeMap<Address, (bool, f64, &Object)> = BTreeMap::new();
    for place in &line.places {
        if let Some(object) = names.object(line.pid, place.touch.address) {
            let (is_written, weight, _) = weights
                .entry(object.address)
                .or_insert((false, 0.0, object));
            *is_written |= place.touch.operation != Operation::Load;
            // Traps count a little, for lines whose accesses are hardly ever sampled.
            *weight += place.weight + place.traps as f64;
        }
    }
    weights
        .into_values()
        .max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))
        .map(|(.., object)| object)
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
    use linewise_recording::{
        Allocator, Frame, HeapBlock, Operation, StackId, Tables, Thread, Time, TypedAccess,
    };

    use super::super::known::tests::known_of;
    use super::*;
    use crate::views::Touch;
    use crate::views::sampled_rows;
    use crate::views::sharing::{Basis, Estimate, Place};

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
            goroutine: None,
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
        let lines = [line(1), line(2), line(3)];
        let mut counts: Vec<(u64, usize)> = known_of(&tables, |known| {
            let found = groups(&lines, known);
            let count = |(group, lines): (&Group, &Vec<&LineSharing>)| {
                (objects(group, lines, known.names), lines.len())
            };
            found.iter().map(count).collect()
        });
        counts.sort_unstable();
        assert_eq!(counts, [(1, 1), (2, 2)]);
    }

    #[test]
    fn what_is_only_read_is_not_what_threads_fight_over() {
        let constant = Object {
            address: Address(0x1020),
            ..variable(1, "limit")
        };
        let tables = Tables {
            objects: vec![variable(1, "lock"), constant],
            ..Tables::default()
        };
        let names = Names::new(&tables);
        let mut line = line(1);
        let reads = Place {
            touch: Touch {
                address: Address(0x1020),
                operation: Operation::Load,
                ..line.places[0].touch
            },
            weight: 20.0,
            ..line.places[0].clone()
        };
        line.places.insert(0, reads.clone());
        let main = |line: &LineSharing| main_object(line, &names).map(|it| it.name.clone());
        assert_eq!(main(&line).as_deref(), Some("lock"));
        // Where no write was seen at all, it is what most of the time goes to.
        line.places = vec![reads];
        assert_eq!(main(&line).as_deref(), Some("limit"));
    }

    #[test]
    fn a_mapping_of_which_no_function_touches_all_is_no_object() {
        let mapping = |size| Object {
            address: Address(0x1000),
            size,
            kind: ObjectKind::Mapping,
            ..variable(1, "heap")
        };
        let block = |size| HeapBlock {
            id: 1,
            pid: Pid(1),
            address: Address(0x1000),
            size,
            allocator: Allocator::Malloc,
            label: String::new(),
            allocated: Time(0),
            allocated_by: Tid(1),
            stack: StackId(1),
            freed: None,
            freed_by: None,
            weight: 1.0,
        };
        let at = |address: u64, ips: &[u64]| {
            let mut line = line(1);
            let place = line.places[0].clone();
            line.line = Address(address);
            line.places = (ips.iter().map(|&ip| Place {
                touch: Touch {
                    ip: Address(ip),
                    address: Address(address),
                    ..place.touch
                },
                ..place.clone()
            }))
            .collect();
            line
        };
        // The second and the third line have code in common.
        let lines = [at(0x1000, &[1]), at(0x2000, &[2, 3]), at(0x3000, &[3])];
        for (size, expected) in [(1 << 24, &[1, 2][..]), (1 << 16, &[3])] {
            let tables = Tables {
                objects: vec![mapping(size)],
                heap_blocks: vec![block(size)],
                ..Tables::default()
            };
            let counts = |known: Known<'_>| groups(&lines, known).values().map(Vec::len).collect();
            let mut counts: Vec<usize> = known_of(&tables, counts);
            counts.sort_unstable();
            assert_eq!(counts, expected, "{size}");
        }
    }

    #[test]
    fn unnamed_memory_is_one_where_the_same_code_comes_for_the_same_type_in_one_region() {
        let typed = |ip, kind: &str| TypedAccess {
            pid: Pid(1),
            ..sampled_rows::typed(ip, kind)
        };
        let at = |address: u64, ip: u64| {
            let mut line = line(1);
            line.line = Address(address);
            line.places[0].touch.ip = Address(ip);
            line.places[0].touch.address = Address(address);
            line
        };
        let frame = |ip: u64| Frame {
            pid: Pid(1),
            address: Address(ip),
            depth: 0,
            function: "work".to_owned(),
            file: "/src/work.c".to_owned(),
            line: 7,
            module: String::new(),
            reason: String::new(),
        };
        let mapping = Object {
            address: Address(0x9000),
            size: 4096,
            kind: ObjectKind::Mapping,
            ..variable(1, "anonymous memory")
        };
        let tables = Tables {
            objects: vec![mapping],
            frames: vec![frame(1), frame(2), frame(3)],
            typed_accesses: vec![typed(1, "Queue"), typed(2, "Pool"), typed(3, "Queue")],
            ..Tables::default()
        };
        // Two of a queue, one of a pool, and one of a queue elsewhere.
        let lines = [at(0x1000, 1), at(0x2000, 3), at(0x3000, 2), at(0x9000, 1)];
        let found = known_of(&tables, |known| {
            let found = groups(&lines, known);
            let of = |lines: Vec<&LineSharing>| lines.iter().map(|it| it.line.0).collect();
            found.into_values().map(of).collect::<BTreeSet<Vec<u64>>>()
        });
        let expected = [vec![0x1000, 0x2000], vec![0x3000], vec![0x9000]];
        assert_eq!(found, BTreeSet::from(expected));
    }
}
