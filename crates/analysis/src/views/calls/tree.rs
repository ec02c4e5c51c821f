//! The tree of calls while it grows.

use std::collections::HashMap;

use linewise_recording::Frame;

use super::rows::{CallNode, Owner};
use crate::own_code::is_own;
use crate::views::chains::{KERNEL, UNKNOWN};

/// Calls within calls that are told; what is called deeper is its caller's.
const MOST_DEEP: usize = 200;
/// Nodes that there is memory for, before those with little time are left out.
const MOST_NODES: usize = 1 << 20;

/// Nodes, and what finds them.
pub(super) struct Tree<'a> {
    nodes: Vec<CallNode>,
    children: HashMap<Child<'a>, usize>,
    lines: Vec<HashMap<(&'a str, u32), u64>>,
}

/// By what a node is found: its caller, its name, its module.
type Child<'a> = (usize, std::borrow::Cow<'a, str>, &'a str);

impl Default for Tree<'_> {
    fn default() -> Self {
        let all = CallNode {
            name: "all threads".to_owned(),
            ..CallNode::default()
        };
        Self {
            nodes: vec![all],
            children: HashMap::new(),
            lines: vec![HashMap::new()],
        }
    }
}

impl<'a> Tree<'a> {
    /// Adds time `ns` of a thread in a call chain, innermost first; the node in which it was spent.
    pub(super) fn add(
        &mut self,
        thread: &str,
        frames: &[&'a Frame],
        in_kernel: bool,
        ns: u64,
    ) -> usize {
        let mut node = self.child(0, thread.to_owned().into(), "", Owner::Threads);
        let calls = frames.iter().rev().take(MOST_DEEP);
        for frame in calls {
            let (name, owner) = match frame.function.as_str() {
                "" => (UNKNOWN, Owner::Unknown),
                name if is_own(frame) => (name, Owner::Own),
                name => (name, Owner::Library),
            };
            node = self.child(node, name.into(), &frame.module, owner);
            if frame.line > 0 {
                let line = self.lines[node]
                    .entry((frame.file.as_str(), frame.line))
                    .or_default();
                *line = line.saturating_add(ns);
            }
        }
        if in_kernel {
            return self.child(node, KERNEL.into(), "", Owner::Kernel);
        }
        match frames {
            [] => self.child(node, UNKNOWN.into(), "", Owner::Unknown),
            _ => node,
        }
    }

    fn child(
        &mut self,
        parent: usize,
        name: std::borrow::Cow<'a, str>,
        module: &'a str,
        owner: Owner,
    ) -> usize {
        let key = (parent, name, module);
        if let Some(&node) = self.children.get(&key) {
            return node;
        }
        if self.nodes.len() >= MOST_NODES {
            return parent;
        }
        let node = self.nodes.len();
        self.nodes.push(CallNode {
            parent,
            name: key.1.clone().into_owned(),
            module: module.to_owned(),
            owner,
            ..CallNode::default()
        });
        self.lines.push(HashMap::new());
        self.children.insert(key, node);
        node
    }

    /// The nodes, each with its hottest line.
    pub(super) fn into_nodes(self) -> Vec<CallNode> {
        let mut nodes = self.nodes;
        for (node, lines) in nodes.iter_mut().zip(self.lines) {
            let hottest = lines
                .into_iter()
                .max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)));
            if let Some(((file, line), _)) = hottest {
                (node.file, node.line) = (file.to_owned(), line);
            }
        }
        nodes
    }
}
