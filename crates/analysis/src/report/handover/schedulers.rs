//! A placement as schedulers read it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::named::Finder;
use super::placed::{Handed, Placed};
use crate::report::groups as words;
use crate::views::groups::{GroupedThread, ThreadGroups};

/// Alternatives of a layer, and layers, that scx_layered takes.
const MATCHES: usize = 32;
const LAYERS: usize = 16;

/// Layers that scx_layered confines to the last-level caches of their groups, and one of all others.
pub(super) fn scx_layered(groups: &ThreadGroups, placed: &[Placed<'_>]) -> Handed {
    let finder = Finder::new(groups);
    let mut notes = Vec::new();
    let mut layers: Vec<Value> = Vec::new();
    for it in placed.iter().take(LAYERS - 1) {
        let mut matches = matches(groups, &finder, it);
        if matches.len() > MATCHES {
            matches.truncate(MATCHES);
            notes.push(format!("Group {} has more threads than a layer can tell apart: give them a name in common.", it.group.id));
        }
        let mut kind = Map::new();
        kind.insert("util_range".to_owned(), json!([0.5, 0.8]));
        kind.insert("weight".to_owned(), json!(100));
        let list = |set: &str| -> Vec<u32> {
            set.parse::<linewise_topology::CpuSet>()
                .map_or(Vec::new(), |it| it.iter().collect())
        };
        match it.place.llc {
            Some(llc) => kind.insert("llcs".to_owned(), json!([llc])),
            None => kind.insert("nodes".to_owned(), json!(list(&it.place.nodes))),
        };
        layers.push(json!({
            "name": format!("group-{}", it.group.id),
            "comment": format!("{}; CPUs {}", words::members(groups, it.group, 8), it.place.cpus),
            "matches": matches,
            "kind": { "Confined": kind },
        }));
    }
    if placed.len() >= LAYERS {
        notes.push(format!(
            "scx_layered takes {LAYERS} layers: the groups that share least are left out."
        ));
    }
    layers.push(json!({
        "name": "others",
        "comment": "all other threads",
        "matches": [[]],
        "kind": { "Open": { "weight": 100 } },
    }));
    let by_id = placed
        .iter()
        .flat_map(|it| &it.threads)
        .any(|it| !is_prefix(groups, &finder, it));
    if by_id && groups.launched {
        notes.push("Threads whose name does not tell their group are left out, since the process that was recorded has ended: name them apart, or record the running program with `--pid`.".to_owned());
    } else if by_id {
        notes.push("Threads whose name does not tell their group are matched by their id, which holds while the recorded process lives: name them apart for more.".to_owned());
    }
    notes.push("`llcs` and `nodes` are numbered in the order of their first CPUs: compare with what scx_layered prints when it starts.".to_owned());
    Handed {
        text: linewise_foreign::json(pretty(&Value::Array(layers))),
        notes,
    }
}

/// What makes a thread one of a group: its name and its program, or its id.
fn matches(groups: &ThreadGroups, finder: &Finder<'_>, placed: &Placed<'_>) -> Vec<Value> {
    let mut names = BTreeSet::new();
    let mut matches = Vec::new();
    for thread in &placed.threads {
        if !is_prefix(groups, finder, thread) {
            // Of a command that was launched the id is over with it, and may be another's.
            if !groups.launched {
                matches.push(json!([{ "PIDEquals": thread.tid }]));
            }
        } else if names.insert(&thread.name) {
            matches
                .push(json!([{ "CommPrefix": thread.name }, { "PcommPrefix": finder.program() }]));
        }
    }
    matches
}

/// Whether all threads whose name begins so are of this one's group.
fn is_prefix(groups: &ThreadGroups, finder: &Finder<'_>, thread: &GroupedThread) -> bool {
    let mut alike = groups
        .threads
        .iter()
        .filter(|it| it.name.starts_with(&thread.name));
    finder.tells(thread) && alike.all(|it| it.group == thread.group)
}

/// The application for schedqos. It knows no CPUs: it gives the threads that share one class, so that none of them waits
/// behind another's.
pub(super) fn schedqos(groups: &ThreadGroups, placed: &[Placed<'_>]) -> Handed {
    let finder = Finder::new(groups);
    let threads = placed.iter().flat_map(|it| &it.threads);
    let threads = threads.filter(|it| !it.name.is_empty());
    let classes: BTreeMap<&str, &str> = threads
        .map(|it| (it.name.as_str(), "QOS_USER_INITIATED"))
        .collect();
    let program = finder.program();
    let value = json!({ program: { "thread_qos": classes } });
    Handed {
        text: linewise_foreign::json(pretty(&value)),
        notes: vec!["schedqos knows classes of threads, not CPUs: the threads of all groups get one class, and stay where the kernel puts them. Use another form for their place.".to_owned()],
    }
}

fn pretty(value: &Value) -> String {
    let text =
        serde_json::to_string_pretty(value).expect("keys are strings, and memory does not fail");
    text + "\n"
}
