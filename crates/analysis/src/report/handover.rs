//! A placement in the form that others take: shell lines, units, specifications.
//!
//! Names of the target stand in them. In a shell they are quoted, in a comment they hold no control characters, and a
//! thread whose name has any is never looked for by it.

mod named;
mod placed;
mod schedulers;

use std::fmt::Write as _;

use linewise_foreign::{is_safe, sanitise};
use linewise_topology::CpuSet;

use super::groups as words;
use crate::views::groups::{GroupedThread, PlacementVerdict, ThreadGroup, ThreadGroups};
use named::{Finder, quoted};
pub use placed::Handed;
use placed::Placed;

/// Who takes a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// Shell lines with `taskset`, one a thread.
    Taskset,
    /// Shell lines with `numactl`, which starts whole programs.
    Numactl,
    /// A drop-in of a systemd service.
    Systemd,
    /// Shell lines that make cpusets of cgroup v2, one a group.
    Cpuset,
    /// A specification of layers for scx_layered.
    ScxLayered,
    /// A configuration of an application for schedqos.
    Schedqos,
}

/// The placement of `groups` as `to` takes it: of those that should move, and of those that are to stay where they are.
///
/// # Errors
/// Whole sentences why there is nothing to hand over: nothing should be moved, or `to` cannot say what.
pub fn hand_over(groups: &ThreadGroups, to: Handover) -> Result<Handed, String> {
    use PlacementVerdict as It;
    if groups.advice.verdict != It::Move {
        return Err(groups.advice.words.clone());
    }
    let placed = |group| -> Option<Placed<'_>> {
        let group: &ThreadGroup = group;
        matches!(group.verdict, It::Move | It::AlreadyThere).then_some(())?;
        let is_member = |it: &&GroupedThread| it.group == Some(group.id);
        Some(Placed {
            group,
            place: group.place.as_ref()?,
            threads: groups.threads.iter().filter(is_member).collect(),
        })
    };
    let placed: Vec<Placed<'_>> = groups.groups.iter().filter_map(placed).collect();
    let who = match to {
        Handover::Numactl => Some("numactl"),
        Handover::Systemd => Some("systemd"),
        _ => None,
    };
    let (cpus, _) = cpus_and_nodes(&placed);
    if let Some(who) = who
        && cpus.len() as u64 == groups.shape.cpus
    {
        return Err(format!(
            "{who} places whole processes, and together the groups have all CPUs: it would change nothing. `--write taskset` or `--write cpuset` places their threads."
        ));
    }
    Ok(match to {
        Handover::Taskset => taskset(groups, &placed),
        Handover::Numactl => numactl(groups, &placed),
        Handover::Systemd => systemd(groups, &placed),
        Handover::Cpuset => cpuset(groups, &placed),
        Handover::ScxLayered => schedulers::scx_layered(groups, &placed),
        Handover::Schedqos => schedulers::schedqos(groups, &placed),
    })
}

/// A comment about a group: its members, on one line whatever they are called.
fn comment(groups: &ThreadGroups, group: &ThreadGroup) -> String {
    let members = words::members(groups, group, 8);
    format!("# Group {}: {}\n", group.id, sanitise(&members))
}

fn taskset(groups: &ThreadGroups, placed: &[Placed<'_>]) -> Handed {
    let finder = Finder::new(groups);
    let mut text = String::from("#!/bin/sh\n");
    text += &finder.script(placed, |it, task| {
        format!("taskset -cp {} {task}", it.place.cpus)
    });
    Handed {
        text,
        notes: finder.notes(placed),
    }
}

fn cpuset(groups: &ThreadGroups, placed: &[Placed<'_>]) -> Handed {
    let finder = Finder::new(groups);
    let folder = |it: &Placed<'_>| format!("\"$cgroup\"/group-{}", it.group.id);
    let mut text = String::from("#!/bin/sh\n");
    text += "# The cgroup that the program runs in; its threads are put into cpusets below it.\n";
    text += "cgroup=${1:?the folder of its cgroup: /sys/fs/cgroup/...}\nset -e\n";
    text += "grep -qw cpuset \"$cgroup\"/cgroup.controllers || { echo \"no cpuset controller in $cgroup\" >&2; exit 1; }\n";
    for it in placed {
        let folder = folder(it);
        let _ = writeln!(text, "mkdir -p {folder}");
        let _ = writeln!(text, "echo threaded > {folder}/cgroup.type");
        text += "echo +cpuset > \"$cgroup\"/cgroup.subtree_control\n";
        let _ = writeln!(text, "echo {} > {folder}/cpuset.cpus", it.place.cpus);
        if !it.place.nodes.is_empty() {
            let _ = writeln!(text, "echo {} > {folder}/cpuset.mems", it.place.nodes);
        }
    }
    text += "# A thread that has ended holds no other up.\nset +e\n";
    text += &finder.script(placed, |it, task| {
        format!("echo {task} > {}/cgroup.threads", folder(it))
    });
    Handed {
        text,
        notes: finder.notes(placed),
    }
}

/// Lists of CPUs or nodes as one, each once.
fn union<'a>(lists: impl Iterator<Item = &'a String>) -> CpuSet {
    let sets = lists.filter_map(|list| list.parse::<CpuSet>().ok());
    sets.flat_map(|set| set.iter().collect::<Vec<u32>>())
        .collect()
}

fn cpus_and_nodes(placed: &[Placed<'_>]) -> (CpuSet, CpuSet) {
    (
        union(placed.iter().map(|it| &it.place.cpus)),
        union(placed.iter().map(|it| &it.place.nodes)),
    )
}

/// What is lost where whole processes are placed.
fn whole(placed: &[Placed<'_>], who: &str) -> Vec<String> {
    let first = placed.first().map(|it| &it.place.cpus);
    match placed.iter().all(|it| Some(&it.place.cpus) == first) {
        true => Vec::new(),
        false => vec![format!(
            "{who} places whole processes, so the groups are not kept apart on these CPUs: `--write taskset` or `--write cpuset` does that for their threads."
        )],
    }
}

fn numactl(groups: &ThreadGroups, placed: &[Placed<'_>]) -> Handed {
    let (cpus, nodes) = cpus_and_nodes(placed);
    let mut text = String::from("#!/bin/sh\n");
    for it in placed {
        text += &comment(groups, it.group);
    }
    let _ = write!(text, "numactl --physcpubind={cpus}");
    if !nodes.is_empty() {
        let _ = write!(text, " --membind={nodes}");
    }
    for word in &groups.command {
        text.push(' ');
        text += &quoted(word);
    }
    text.push('\n');
    let mut notes = whole(placed, "numactl");
    if groups.command.iter().any(|word| !word.chars().all(is_safe)) {
        notes.push("The command has characters that cannot be shown: they were written as escapes, so edit it.".to_owned());
    }
    Handed { text, notes }
}

fn systemd(groups: &ThreadGroups, placed: &[Placed<'_>]) -> Handed {
    let (cpus, nodes) = cpus_and_nodes(placed);
    let mut text = String::from("# /etc/systemd/system/NAME.service.d/linewise.conf\n");
    for it in placed {
        text += &comment(groups, it.group);
    }
    let _ = writeln!(text, "[Service]\nAllowedCPUs={cpus}");
    if !nodes.is_empty() {
        let _ = writeln!(text, "AllowedMemoryNodes={nodes}");
    }
    Handed {
        text,
        notes: whole(placed, "systemd"),
    }
}

#[cfg(test)]
mod tests;
