//! View `flow`: what happens to objects of a type between their allocation and their end?
//!
//! DProf's data flow view (Pesterev, 2010, section 4.4, figure 6-1): the path traces of a type as one graph.
//! Accesses of one function in a row are a node; paths that begin alike share their first nodes, and paths that
//! end alike their last. All places that allocate objects of a type are beginnings of one graph. Of an exact
//! run with simulated caches each node tells which level served its accesses, and what they take at the latencies
//! of this machine's levels.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{
    Address, Frame, LevelLatencies, PathEvent, PathStep, Pid, Stack, StackId, TypedAccess,
};
use serde::{Deserialize, Serialize};

use crate::resolve::{SourceFrames, allocation_site};

/// Types with a graph, at most: those with the most histories.
const MOST_TYPES: usize = 20;

/// The tables that the view needs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Table `path_traces`.
    pub steps: &'a [PathStep],
    /// Table `typed_accesses`.
    pub typed: &'a [TypedAccess],
    /// Table `stacks`.
    pub stacks: &'a [Stack],
    /// Table `frames`.
    pub frames: &'a [Frame],
    /// What a load takes by the level that serves it.
    pub level_ns: LevelLatencies,
}

/// What happens to objects of one type, wherever they are allocated; of objects whose type is not known, to
/// those of one allocation site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowRow {
    /// The type; empty if unknown.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Bytes of an object; of several sizes that of the site with the most histories.
    pub size: u64,
    /// Who allocates them: `function (file:line)`; empty if unknown. Of several sites the one with the most histories.
    pub allocated_at: String,
    /// All allocation sites, those with the most histories first.
    pub sites: Vec<FlowSite>,
    /// Histories from allocation to end that the paths rest on.
    pub histories: u64,
    /// The functions that objects come through, the allocation first.
    pub nodes: Vec<FlowNode>,
    /// Their order.
    pub edges: Vec<FlowEdge>,
    /// The paths, the most frequent first.
    pub paths: Vec<FlowPath>,
}

/// A place that allocates objects of a type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowSite {
    /// `function (file:line)`; empty if unknown.
    pub allocated_at: String,
    /// Bytes of an object.
    pub size: u64,
    /// Histories from allocation to end.
    pub histories: u64,
}

/// Which level of the simulated caches served accesses: shares from 0 to 1, together 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelHits {
    /// The first level.
    pub l1: f64,
    /// The core's second level.
    pub l2: f64,
    /// The last level.
    pub llc: f64,
    /// Another core, or another group of cores.
    pub core: f64,
    /// Memory.
    pub memory: f64,
}

impl LevelHits {
    /// What an access takes on average, ns; `None` if the latency of a level that serves any is not known.
    fn latency_ns(self, level_ns: LevelLatencies) -> Option<f64> {
        let levels = [
            (self.l1, level_ns.l1),
            (self.l2, level_ns.l2),
            (self.llc, level_ns.llc),
            (self.core, level_ns.core),
            (self.memory, level_ns.memory),
        ];
        let served = levels.into_iter().filter(|(share, _)| *share > 0.0);
        served.map(|(share, ns)| ns.map(|ns| share * ns)).sum()
    }
}

/// A function that an object comes through: accesses of one function in a row, on one path or on several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowNode {
    /// Its number in `nodes`, from 0.
    pub id: u64,
    /// `allocated`, `accessed` or `freed`.
    pub event: PathEvent,
    /// The function, demangled; of the allocation the one that asks for the object; an address when unknown.
    pub function: String,
    /// `file:line` of its first access; empty if unknown.
    pub place: String,
    /// The thread: 0 is the one that allocated the object, the others in the order in which they come to it.
    pub thread: u64,
    /// The share of the objects that come here, 0 to 1.
    pub frequency: f64,
    /// What it touches: the fields where they are known, else offsets like `+16`, in order.
    pub touches: Vec<String>,
    /// Time since the allocation, ns; while the object is watched, which takes time, or under emulation, which takes more.
    pub time_ns: f64,
    /// Which level of the caches served the accesses here; `null` unless an exact run simulated them.
    pub hits: Option<LevelHits>,
    /// What an access here takes on average, ns: `hits` by what a load from each level takes on this machine, as measured
    /// beside the run; `null` where `hits` is, or where the latency of a level that serves any was not measured. Accesses
    /// that do not wait for each other take less.
    #[serde(default)]
    pub latency_ns: Option<f64>,
    /// Of the time that was sampled at objects of the type on these paths, the share that passes here, 0 to 1.
    pub sampled_share: f64,
    /// The share of the objects that are on another CPU here than at their access before, 0 to 1.
    pub cpu_change: f64,
}

/// That one function comes after another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowEdge {
    /// The function before.
    pub from: u64,
    /// The function after.
    pub to: u64,
    /// The share of the objects that go this way, 0 to 1.
    pub frequency: f64,
    /// Whether another thread goes on: drawn bold.
    pub thread_change: bool,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowPath {
    /// The share of the objects that take it, estimated, 0 to 1.
    pub frequency: f64,
    /// Histories from allocation to end of which it is the likeliest path.
    pub histories: u64,
    /// The nodes that it goes through, in order.
    pub nodes: Vec<u64>,
}

/// A stop on a path.
#[derive(Clone, Debug)]
struct Stop {
    label: Label,
    place: String,
    touches: Vec<String>,
    time_ns: f64,
    sampled_ns: f64,
    cpu_change: f64,
    served: Served,
}

/// Accesses of an object that each level served.
#[derive(Clone, Copy, Debug, Default)]
struct Served(LevelHits);

impl Served {
    /// The accesses of a step.
    fn of(step: &PathStep) -> Self {
        let times = |share: Option<f64>| share.unwrap_or(0.0) * step.times;
        Self(LevelHits {
            l1: times(step.from_l1),
            l2: times(step.from_l2),
            llc: times(step.from_llc),
            core: times(step.from_core),
            memory: times(step.from_memory),
        })
    }

    fn add(&mut self, more: Self, weight: f64) {
        let (sum, more) = (&mut self.0, more.0);
        sum.l1 += weight * more.l1;
        sum.l2 += weight * more.l2;
        sum.llc += weight * more.llc;
        sum.core += weight * more.core;
        sum.memory += weight * more.memory;
    }

    /// As shares; `None` without accesses.
    fn shares(self) -> Option<LevelHits> {
        let sum = self.0;
        let all = sum.l1 + sum.l2 + sum.llc + sum.core + sum.memory;
        (all > 0.0).then(|| LevelHits {
            l1: sum.l1 / all,
            l2: sum.l2 / all,
            llc: sum.llc / all,
            core: sum.core / all,
            memory: sum.memory / all,
        })
    }
}

/// A path of one site: its share of all objects of the type, its histories, and where it goes.
struct Walk {
    frequency: f64,
    histories: u64,
    stops: Vec<Stop>,
}

/// What goes into one graph: a type, or without one size, process and call chain.
type Group<'a> = (&'a str, Option<(u64, Pid, StackId)>);

/// Type, size, process and call chain of the allocation.
type Site<'a> = (&'a str, u64, Pid, StackId);

/// What makes two stops one node.
type Label = (PathEvent, String, u64);

/// The flow of each type and site, those with the most histories first.
#[must_use]
pub fn flow(input: &Input<'_>) -> Vec<FlowRow> {
    let names = FlowNames::new(input);
    let mut sites: BTreeMap<Site<'_>, BTreeMap<u64, Vec<&PathStep>>> = BTreeMap::new();
    for step in input.steps {
        let site = (step.type_name.as_str(), step.size, step.pid, step.stack);
        let paths = sites.entry(site).or_default();
        paths.entry(step.path).or_default().push(step);
    }
    let mut groups: BTreeMap<Group<'_>, Vec<(FlowSite, Vec<Walk>)>> = BTreeMap::new();
    for ((type_name, size, pid, stack), mut paths) in sites {
        let site = names.site(pid, stack);
        let walks = paths.values_mut().filter_map(|steps| {
            steps.sort_by_key(|step| step.step);
            let first = steps.first()?;
            Some(Walk {
                frequency: first.frequency,
                histories: first.histories,
                stops: names.stops(steps, site),
            })
        });
        let walks: Vec<Walk> = walks.collect();
        let told = FlowSite {
            allocated_at: site.map_or_else(String::new, |frame| match frame.line {
                0 => frame.function.clone(),
                line => format!("{} ({}:{line})", frame.function, frame.file),
            }),
            size,
            histories: walks.iter().map(|walk| walk.histories).sum(),
        };
        let apart = type_name.is_empty().then_some((size, pid, stack));
        let group = groups.entry((type_name, apart)).or_default();
        group.push((told, walks));
    }
    let mut rows: Vec<FlowRow> = groups
        .into_iter()
        .map(|((type_name, _), sites)| merged(type_name, sites, input.level_ns))
        .collect();
    rows.sort_by(|a, b| {
        b.histories
            .cmp(&a.histories)
            .then(a.type_name.cmp(&b.type_name))
    });
    rows.truncate(MOST_TYPES);
    rows
}

/// The sites of a type as one row: each counts by its histories.
fn merged(
    type_name: &str,
    mut sites: Vec<(FlowSite, Vec<Walk>)>,
    level_ns: LevelLatencies,
) -> FlowRow {
    sites.sort_by_key(|(site, _)| std::cmp::Reverse(site.histories));
    let histories: u64 = sites.iter().map(|(site, _)| site.histories).sum();
    let count = sites.len() as f64;
    let mut walks = Vec::new();
    let mut told: Vec<FlowSite> = Vec::new();
    for (site, paths) in sites {
        let share = match histories {
            0 => 1.0 / count,
            all => site.histories as f64 / all as f64,
        };
        walks.extend(paths.into_iter().map(|path| Walk {
            frequency: path.frequency * share,
            ..path
        }));
        // What one place allocates in several processes, or is called from several.
        let same = |known: &&mut FlowSite| {
            (known.size, &known.allocated_at) == (site.size, &site.allocated_at)
        };
        match told.iter_mut().find(same) {
            Some(known) => known.histories += site.histories,
            None => told.push(site),
        }
    }
    walks.sort_by(|a, b| b.frequency.total_cmp(&a.frequency));
    told.sort_by_key(|site| std::cmp::Reverse(site.histories));
    let first = told.first();
    FlowRow {
        type_name: type_name.to_owned(),
        size: first.map_or(0, |site| site.size),
        allocated_at: first.map_or_else(String::new, |site| site.allocated_at.clone()),
        histories,
        sites: told,
        ..graph(&walks, level_ns)
    }
}

/// Looks names up.
struct FlowNames<'a> {
    frames: SourceFrames<'a>,
    typed: HashMap<(Pid, Address), &'a TypedAccess>,
    stacks: HashMap<StackId, &'a [Address]>,
}

impl<'a> FlowNames<'a> {
    fn new(input: &Input<'a>) -> Self {
        let typed = input.typed.iter().filter(|row| row.reason.is_none());
        let stacks = input.stacks.iter();
        Self {
            frames: SourceFrames::new(input.frames),
            typed: typed.map(|row| ((row.pid, row.ip), row)).collect(),
            stacks: stacks
                .map(|stack| (stack.id, stack.frames.as_slice()))
                .collect(),
        }
    }

    /// The frame that allocates.
    fn site(&self, pid: Pid, stack: StackId) -> Option<&'a Frame> {
        allocation_site(self.frames.of_callers(pid, self.stacks.get(&stack)?))
    }

    /// The steps of a path by function.
    fn stops(&self, steps: &[&PathStep], site: Option<&Frame>) -> Vec<Stop> {
        let mut stops: Vec<Stop> = Vec::new();
        for step in steps {
            let frame = match step.event {
                PathEvent::Allocated => site,
                PathEvent::Accessed => self.frames.at(step.pid, step.ip).first().copied(),
                PathEvent::Freed => None,
            };
            let function = match frame.map_or("", |frame| frame.function.as_str()) {
                "" if step.event == PathEvent::Freed => "free".to_owned(),
                "" => format!("{:#x}", step.ip.0),
                function => function.to_owned(),
            };
            let touched = match step.event {
                PathEvent::Accessed => Some(self.touched(step)),
                PathEvent::Allocated | PathEvent::Freed => None,
            };
            let label = (step.event, function, step.thread);
            if let Some(last) = stops.last_mut().filter(|last| last.label == label) {
                last.sampled_ns += step.sampled_ns;
                last.served.add(Served::of(step), 1.0);
                last.touches
                    .extend(touched.filter(|it| !last.touches.contains(it)));
                continue;
            }
            stops.push(Stop {
                label,
                place: frame
                    .filter(|frame| frame.line > 0)
                    .map_or_else(String::new, |frame| {
                        format!("{}:{}", frame.file, frame.line)
                    }),
                touches: touched.into_iter().collect(),
                time_ns: step.time_ns,
                sampled_ns: step.sampled_ns,
                cpu_change: step.cpu_change,
                served: Served::of(step),
            });
        }
        stops
    }

    /// The field that an access touches, or where it does.
    fn touched(&self, step: &PathStep) -> String {
        match self.typed.get(&(step.pid, step.ip)) {
            Some(row) if !row.path.is_empty() && row.type_name == step.type_name => {
                row.path.clone()
            }
            _ => format!("+{}", step.offset),
        }
    }
}

/// Which state of the graph each stop of each path is: the smallest graph that has exactly these paths, with what they have
/// in common at their beginnings and at their ends once.
fn states(paths: &[Walk]) -> Vec<Vec<usize>> {
    // Beginnings: a tree. What can still come after a state tells which of them are the same.
    let mut children: Vec<BTreeMap<&Label, usize>> = vec![BTreeMap::new()];
    let mut walks: Vec<Vec<usize>> = Vec::new();
    for path in paths {
        let mut state = 0;
        let mut walk = Vec::new();
        for stop in &path.stops {
            let new = children.len();
            state = *children[state].entry(&stop.label).or_insert(new);
            if state == new {
                children.push(BTreeMap::new());
            }
            walk.push(state);
        }
        walks.push(walk);
    }
    // A child is made after its parent, so from the last to the first all that follows is known.
    let mut labels: Vec<Option<&Label>> = vec![None; children.len()];
    for (label, &child) in children.iter().flatten() {
        labels[child] = Some(label);
    }
    let mut merged: Vec<usize> = (0..children.len()).collect();
    let mut known: BTreeMap<(Option<&Label>, Vec<usize>), usize> = BTreeMap::new();
    for state in (0..children.len()).rev() {
        let mut after: Vec<usize> = children[state]
            .values()
            .map(|&child| merged[child])
            .collect();
        after.sort_unstable();
        merged[state] = *known.entry((labels[state], after)).or_insert(state);
    }
    for state in walks.iter_mut().flatten() {
        *state = merged[*state];
    }
    walks
}

/// The paths as one graph.
fn graph(paths: &[Walk], level_ns: LevelLatencies) -> FlowRow {
    let walks = states(paths);
    // Numbered in the order in which the paths, the most frequent first, come to them.
    let mut ids: BTreeMap<usize, u64> = BTreeMap::new();
    let mut row = FlowRow::default();
    let mut edges: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    let all_sampled: f64 = {
        let mut counted = BTreeSet::new();
        let stops = paths
            .iter()
            .zip(&walks)
            .flat_map(|(path, walk)| walk.iter().zip(&path.stops));
        let own = stops.filter(|(state, _)| counted.insert(**state));
        own.map(|(_, stop)| stop.sampled_ns).sum()
    };
    let mut served: Vec<Served> = Vec::new();
    for (path, walk) in paths.iter().zip(&walks) {
        let frequency = path.frequency;
        let mut nodes: Vec<u64> = Vec::new();
        for (state, stop) in walk.iter().zip(&path.stops) {
            let new = ids.len() as u64;
            let id = *ids.entry(*state).or_insert(new);
            if id == new {
                let sampled_share = stop.sampled_ns / all_sampled.max(f64::MIN_POSITIVE);
                row.nodes.push(node_of(id, stop, sampled_share));
                served.push(Served::default());
            }
            served[id as usize].add(stop.served, frequency);
            row.nodes[id as usize].come(stop, frequency);
            if let Some(&before) = nodes.last() {
                *edges.entry((before, id)).or_default() += frequency;
            }
            nodes.push(id);
        }
        // Paths of other instructions, or from other sites, through the same functions.
        match row.paths.iter_mut().find(|known| known.nodes == nodes) {
            Some(known) => {
                known.frequency += frequency;
                known.histories += path.histories;
            }
            None => row.paths.push(FlowPath {
                frequency,
                histories: path.histories,
                nodes,
            }),
        }
    }
    row.paths
        .sort_by(|a, b| b.frequency.total_cmp(&a.frequency));
    for (node, served) in row.nodes.iter_mut().zip(served) {
        node.hits = served.shares();
        node.latency_ns = node.hits.and_then(|hits| hits.latency_ns(level_ns));
    }
    row.edges = edges
        .into_iter()
        .map(|((from, to), frequency)| FlowEdge {
            from,
            to,
            frequency,
            thread_change: row.nodes[from as usize].thread != row.nodes[to as usize].thread,
        })
        .collect();
    row
}

/// A node to which no path has come yet.
fn node_of(id: u64, stop: &Stop, sampled_share: f64) -> FlowNode {
    FlowNode {
        id,
        event: stop.label.0,
        function: stop.label.1.clone(),
        place: stop.place.clone(),
        thread: stop.label.2,
        frequency: 0.0,
        touches: Vec::new(),
        time_ns: 0.0,
        hits: None,
        latency_ns: None,
        sampled_share,
        cpu_change: 0.0,
    }
}

impl FlowNode {
    /// A path comes to it, so often.
    fn come(&mut self, stop: &Stop, frequency: f64) {
        let part = frequency / (self.frequency + frequency).max(f64::MIN_POSITIVE);
        self.time_ns += part * (stop.time_ns - self.time_ns);
        self.cpu_change += part * (stop.cpu_change - self.cpu_change);
        self.frequency += frequency;
        for touched in &stop.touches {
            if !self.touches.contains(touched) {
                self.touches.push(touched.clone());
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A step of a path: instruction (0: free), thread.
    fn steps(path: u64, frequency: f64, accesses: &[(u64, u64)]) -> Vec<PathStep> {
        let last = accesses.len() - 1;
        let mut before = 0;
        let rows = accesses.iter().enumerate().map(|(number, &(ip, thread))| {
            let row = PathStep {
                type_name: "struct packet".to_owned(),
                size: 48,
                pid: Pid(7),
                stack: StackId(1),
                path,
                frequency,
                histories: (frequency * 100.0) as u64,
                step: number as u64,
                event: match number {
                    0 => PathEvent::Allocated,
                    _ if number == last => PathEvent::Freed,
                    _ => PathEvent::Accessed,
                },
                ip: Address(ip),
                thread_change: thread != before,
                thread,
                cpu_change: 0.0,
                offset: ip,
                operation: None,
                times: 1.0,
                time_ns: 100.0 * number as f64,
                sampled_ns: if ip == 0x40 { 30.0 } else { 10.0 },
                from_l1: None,
                from_l2: None,
                from_llc: None,
                from_core: None,
                from_memory: None,
            };
            before = thread;
            row
        });
        rows.collect()
    }

    fn row() -> FlowRow {
        let handed = steps(
            1,
            0.7,
            &[
                (0x10, 0),
                (0x20, 0),
                (0x24, 0),
                (0x30, 0),
                (0x40, 1),
                (0, 1),
            ],
        );
        let again = steps(
            2,
            0.1,
            &[(0x10, 0), (0x20, 0), (0x24, 0), (0x40, 1), (0, 1)],
        );
        let dropped = steps(
            3,
            0.2,
            &[(0x10, 0), (0x20, 0), (0x24, 0), (0x50, 0), (0, 0)],
        );
        let frame = |address: u64, function: &str| Frame {
            pid: Pid(7),
            address: Address(address),
            depth: 0,
            function: function.to_owned(),
            file: "/src/flow.c".to_owned(),
            line: address as u32,
            module: String::new(),
            reason: String::new(),
        };
        let typed = TypedAccess {
            type_name: "struct packet".to_owned(),
            path: "length".to_owned(),
            ..crate::views::sampled_rows::typed(0x24, "struct packet")
        };
        let rows = flow(&Input {
            steps: &[handed, again, dropped].concat(),
            typed: &[typed],
            stacks: &[Stack {
                id: StackId(1),
                frames: vec![Address(0x10)],
            }],
            frames: &[
                frame(0x10, "make"),
                frame(0x20, "fill"),
                frame(0x24, "fill"),
                frame(0x30, "hand_over"),
                frame(0x40, "consume"),
                frame(0x50, "reject"),
            ],
            level_ns: LevelLatencies::default(),
        });
        assert_eq!(rows.len(), 1);
        rows.into_iter().next().unwrap()
    }

    #[test]
    fn paths_share_their_beginnings_and_ends() {
        let row = row();
        assert_eq!(
            (row.type_name.as_str(), row.histories),
            ("struct packet", 100)
        );
        assert_eq!(row.allocated_at, "make (/src/flow.c:16)");
        let names: Vec<&str> = row
            .nodes
            .iter()
            .map(|node| node.function.as_str())
            .collect();
        // One `consume` and one `free` behind it for both paths; the other `free` is another thread's.
        assert_eq!(
            names,
            [
                "make",
                "fill",
                "hand_over",
                "consume",
                "free",
                "reject",
                "free"
            ]
        );
        let of = |name: &str| row.nodes.iter().find(|node| node.function == name).unwrap();
        assert!((of("consume").frequency - 0.8).abs() < 1e-9);
        assert_eq!(of("fill").touches, ["+32", "length"]);
        let paths: Vec<&[u64]> = row.paths.iter().map(|path| path.nodes.as_slice()).collect();
        assert_eq!(paths, [&[0, 1, 2, 3, 4][..], &[0, 1, 5, 6], &[0, 1, 3, 4]]);
    }

    #[test]
    fn edges_are_bold_where_the_thread_changes() {
        let row = row();
        let bold: Vec<(u64, u64)> = row
            .edges
            .iter()
            .filter(|edge| edge.thread_change)
            .map(|edge| (edge.from, edge.to))
            .collect();
        assert_eq!(bold, [(1, 3), (2, 3)]);
        let out: f64 = row
            .edges
            .iter()
            .filter(|it| it.from == 1)
            .map(|it| it.frequency)
            .sum();
        assert!((out - 1.0).abs() < 1e-9);
    }

    #[test]
    fn sites_of_a_type_are_one_graph_and_count_by_their_histories() {
        let at = |stack: u32, rows: Vec<PathStep>| {
            rows.into_iter().map(move |row| PathStep {
                stack: StackId(stack),
                ..row
            })
        };
        let way = [(0x10, 0), (0x20, 0), (0, 0)];
        // 75 histories at one site, 25 at the other, which ends in another function.
        let first = steps(1, 0.75, &way).into_iter();
        let first = first.map(|row| PathStep {
            frequency: 1.0,
            from_l1: Some(0.5),
            from_memory: Some(0.5),
            ..row
        });
        let other = steps(1, 0.25, &[(0x18, 0), (0x20, 0), (0x50, 0), (0, 0)]).into_iter();
        let other = other.map(|row| PathStep {
            frequency: 1.0,
            size: 64,
            ..row
        });
        let all: Vec<PathStep> = at(1, first.collect())
            .chain(at(2, other.collect()))
            .collect();
        let rows = flow(&Input {
            steps: &all,
            typed: &[],
            stacks: &[],
            frames: &[],
            level_ns: LevelLatencies {
                l1: Some(2.0),
                memory: Some(100.0),
                ..LevelLatencies::default()
            },
        });
        let [row] = rows.as_slice() else {
            panic!("one type: {rows:?}");
        };
        assert_eq!((row.histories, row.size, row.sites.len()), (100, 48, 2));
        let shares: Vec<f64> = row.paths.iter().map(|path| path.frequency).collect();
        assert_eq!(shares, [0.75, 0.25]);
        let hits = row.nodes.iter().map(|node| node.hits.map(|hits| hits.l1));
        assert!(hits.clone().any(|share| share == Some(0.5)));
        let took = row
            .nodes
            .iter()
            .map(|node| (node.hits.is_some(), node.latency_ns));
        assert!(took.clone().any(|it| it == (true, Some(51.0))));
        assert!(took.clone().all(|(known, ns)| known == ns.is_some()));
        assert!(hits.clone().any(|share| share.is_none()));
    }

    #[test]
    fn a_recording_without_paths_has_no_flow() {
        let input = Input {
            steps: &[],
            typed: &[],
            stacks: &[],
            frames: &[],
            level_ns: LevelLatencies::default(),
        };
        assert_eq!(flow(&input), []);
    }

    #[test]
    fn what_a_level_takes_that_serves_nothing_need_not_be_known() {
        let hits = LevelHits {
            l1: 0.75,
            memory: 0.25,
            ..LevelHits::default()
        };
        let level_ns = LevelLatencies {
            l1: Some(1.0),
            memory: Some(101.0),
            ..LevelLatencies::default()
        };
        assert_eq!(hits.latency_ns(level_ns), Some(26.0));
        let unknown = LevelLatencies {
            memory: None,
            ..level_ns
        };
        assert_eq!(hits.latency_ns(unknown), None);
    }
}
