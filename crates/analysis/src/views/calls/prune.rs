//! What of a tree of calls is kept, so that a page of it stays small.

use super::rows::{CallCell, CallNode, CallTree, SLICES};

/// Nodes with a smaller share of all time are their callers' time.
const LEAST_SHARE: f64 = 1e-3;
/// Nodes that are told.
const MOST_NODES: usize = 3_000;
/// Cells that are told: of more, slices of the run are taken together.
const MOST_CELLS: usize = 500_000;
/// The numbers of slices that there may be.
const DIVISIONS: [usize; 5] = [SLICES, 30, 15, 5, 1];

/// The tree without the nodes that have next to no time. `nodes` have their callers before them.
pub(super) fn prune(mut nodes: Vec<CallNode>, cells: Vec<CallCell>) -> CallTree {
    sum(&mut nodes, &cells);
    let all = nodes.first().map_or(0, |it| it.sum_ns);
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    // A caller has no less time than what it calls, and a lower index.
    order.sort_by(|&a, &b| nodes[b].sum_ns.cmp(&nodes[a].sum_ns).then(a.cmp(&b)));
    let least = all as f64 * LEAST_SHARE;
    let mut kept = vec![false; nodes.len()];
    for &node in order.iter().take(MOST_NODES) {
        kept[node] = node == 0 || nodes[node].sum_ns as f64 >= least;
    }
    // Where each node is now; of one that is left out where its caller is.
    let mut place: Vec<usize> = Vec::with_capacity(nodes.len());
    let mut tree = CallTree::default();
    let mut left_out_ns = 0_u64;
    for (index, node) in nodes.into_iter().enumerate() {
        let parent = place.get(node.parent).copied().unwrap_or_default();
        if kept[index] {
            place.push(tree.nodes.len());
            tree.nodes.push(CallNode { parent, ..node });
            continue;
        }
        if kept.get(node.parent).copied().unwrap_or_default() {
            left_out_ns = left_out_ns.saturating_add(node.sum_ns);
        }
        place.push(parent);
        tree.left_out += 1;
    }
    let moved = cells.into_iter().map(|cell| CallCell {
        node: place.get(cell.node).copied().unwrap_or_default(),
        ..cell
    });
    (tree.cells, tree.slices) = few(moved.collect());
    let folded_ns = fold(&mut tree.cells, &tree.nodes);
    if folded_ns > 0 {
        tree.nodes.iter_mut().for_each(|node| node.sum_ns = 0);
        sum(&mut tree.nodes, &tree.cells);
    }
    let told_elsewhere = left_out_ns.saturating_add(folded_ns) as f64;
    tree.left_out_share = (told_elsewhere / all.max(1) as f64).min(1.0);
    tree
}

/// Gives each node the time of its cells and of what it calls.
fn sum(nodes: &mut [CallNode], cells: &[CallCell]) {
    for cell in cells {
        if let Some(node) = nodes.get_mut(cell.node) {
            node.sum_ns = node.sum_ns.saturating_add(cell.ns);
        }
    }
    for index in (1..nodes.len()).rev() {
        let (parent, ns) = (nodes[index].parent, nodes[index].sum_ns);
        nodes[parent].sum_ns = nodes[parent].sum_ns.saturating_add(ns);
    }
}

/// The cells of as many slices of the run as there is room for, and how many slices those are.
fn few(cells: Vec<CallCell>) -> (Vec<CallCell>, usize) {
    let mut cells = cells;
    let mut slices = SLICES;
    for division in DIVISIONS {
        for cell in &mut cells {
            cell.slice = cell.slice * division / slices;
        }
        slices = division;
        merge(&mut cells);
        if cells.len() <= MOST_CELLS {
            break;
        }
    }
    (cells, slices)
}

/// Gives the time of the lightest cells to callers, as long as there are too many; how much it was, ns.
fn fold(cells: &mut Vec<CallCell>, nodes: &[CallNode]) -> u64 {
    let (mut folded_ns, mut times) = (0_u64, 1_usize);
    while cells.len() > MOST_CELLS {
        let mut amounts: Vec<u64> = (cells.iter())
            .filter(|cell| cell.node > 0)
            .map(|cell| cell.ns)
            .collect();
        if amounts.is_empty() {
            break;
        }
        let light = times
            .saturating_mul(cells.len() - MOST_CELLS)
            .min(amounts.len())
            - 1;
        let (_, &mut most, _) = amounts.select_nth_unstable(light);
        for cell in cells.iter_mut() {
            if cell.node > 0 && cell.ns <= most {
                cell.node = nodes.get(cell.node).map_or(0, |node| node.parent);
                folded_ns = folded_ns.saturating_add(cell.ns);
            }
        }
        merge(cells);
        // Of a deep tree more each time, so that it has an end soon.
        times = times.saturating_mul(2);
    }
    folded_ns
}

/// One cell of those that stand for the same.
fn merge(cells: &mut Vec<CallCell>) {
    cells.sort();
    cells.dedup_by(|next, cell| {
        let same = (next.node, next.thread, next.slice) == (cell.node, cell.thread, cell.slice);
        if same {
            cell.ns = cell.ns.saturating_add(next.ns);
        }
        same
    });
}
