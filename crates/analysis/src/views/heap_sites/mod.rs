//! Who allocates how much: the sums of call chains, by the function that asks for the memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use linewise_recording::{
    Address, Frame, HeapRun, HeapSite, Loss, Pid, RunInfo, Stack, StackId, Tables,
};
use serde::{Deserialize, Serialize};

use crate::resolve::allocation_site;
use crate::section::{Cell, Column, Section, Table, View};

/// Blocks below which nothing is shown.
const FEW: f64 = 10_000.0;
/// Losses after which the sums are not counts.
const INEXACT: [&str; 4] = [
    "heap-events-lost",
    "heap-events-late",
    "heap-events-malformed",
    "heap-sites-cut",
];

/// What was allocated on the heap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeapTotals {
    /// Whether every block was told of (`--heap on`, or a program that allocates seldom) and nothing was lost: then the
    /// numbers are counts, else estimates.
    pub exact: bool,
    /// Allocations and frees that were lost, which the numbers lack.
    pub lost: u64,
    /// Blocks that were allocated, of all processes.
    pub blocks: f64,
    /// Their bytes, as asked for.
    pub bytes: f64,
    /// Blocks that were there when the recording ended or their process did.
    pub live_blocks: f64,
    /// Their bytes.
    pub live_bytes: f64,
    /// Who allocates, most bytes first.
    pub sites: Vec<AllocationSite>,
}

/// What one function allocates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocationSite {
    /// The innermost function of the call chains that is no allocator, nor of a language's library around one, or the name
    /// that the program gave the blocks; empty if not known.
    pub name: String,
    /// `file:line` of its call; empty if not known.
    pub place: String,
    /// Blocks.
    pub blocks: f64,
    /// Their bytes, as asked for.
    pub bytes: f64,
    /// Blocks that were there when the recording ended or their process did.
    pub live_blocks: f64,
    /// Their bytes.
    pub live_bytes: f64,
    /// The most bytes that were there at once, summed over its call chains: where it has several that are at their largest
    /// at different times, it had no more than this.
    pub peak_bytes: f64,
    /// Its call chains, in all processes.
    pub chains: u64,
}

const COLUMNS: [Column<AllocationSite>; 5] = [
    Column {
        head: "heap, by who allocates",
        width: 28,
        sums: false,
        cell: |site| match site.name.as_str() {
            "" => Cell::text("(an unknown place)"),
            name => Cell::text(name),
        },
    },
    Column {
        head: "allocated",
        width: 12,
        sums: true,
        cell: |site| Cell::Bytes(site.bytes),
    },
    Column {
        head: "blocks",
        width: 12,
        sums: true,
        cell: |site| Cell::Count(site.blocks),
    },
    Column {
        head: "at the end",
        width: 14,
        sums: true,
        cell: |site| Cell::Bytes(site.live_bytes),
    },
    // Peaks of different sites are at different times.
    Column {
        head: "peak",
        width: 12,
        sums: false,
        cell: |site| Cell::Bytes(site.peak_bytes),
    },
];

impl View for HeapTotals {
    fn of(info: &RunInfo, tables: &Tables) -> Option<Self> {
        heap_totals(
            info.heap.as_ref(),
            &tables.heap_sites,
            &tables.stacks,
            &tables.frames,
            &tables.losses,
        )
    }

    /// Of a program that allocates a lot, and whose every block was told of.
    fn section(&self) -> Option<Section> {
        let sum = vec![
            Cell::Bytes(self.bytes),
            Cell::text(" in "),
            Cell::Count(self.blocks),
            Cell::text(" blocks, "),
            Cell::Bytes(self.live_bytes),
            Cell::text(" of them there at the end"),
        ];
        (self.exact && self.blocks >= FEW).then(|| Section {
            facts: vec![sum],
            table: Some(Table::of("place", &COLUMNS, &self.sites, |site| site.bytes)),
            ..Section::new("heap", "Heap")
        })
    }
}

/// What the recording's sums say; `None` without any.
#[must_use]
fn heap_totals(
    heap: Option<&HeapRun>,
    sums: &[HeapSite],
    stacks: &[Stack],
    frames: &[Frame],
    losses: &[Loss],
) -> Option<HeapTotals> {
    let heap = heap.filter(|_| !sums.is_empty())?;
    let used: HashSet<StackId> = sums.iter().map(|sum| sum.stack).collect();
    let of_stack: HashMap<StackId, &[Address]> = stacks
        .iter()
        .filter(|stack| used.contains(&stack.id))
        .map(|stack| (stack.id, stack.frames.as_slice()))
        .collect();
    let mut at: HashMap<(Pid, Address), Vec<&Frame>> = HashMap::new();
    for frame in frames {
        at.entry((frame.pid, frame.address))
            .or_default()
            .push(frame);
    }
    for inlined in at.values_mut() {
        inlined.sort_by_key(|frame| frame.depth);
    }
    let mut sites: BTreeMap<(String, String), AllocationSite> = BTreeMap::new();
    let lost = losses.iter();
    let lost = lost.filter(|loss| INEXACT.contains(&loss.what.as_str()));
    let lost: u64 = lost.map(|loss| loss.count).sum();
    let mut totals = HeapTotals {
        exact: heap.sampled_bytes == 0 && heap.probed.is_none() && lost == 0,
        lost,
        ..HeapTotals::default()
    };
    for sum in sums {
        totals.blocks += sum.blocks;
        totals.bytes += sum.bytes;
        totals.live_blocks += sum.live_blocks;
        totals.live_bytes += sum.live_bytes;
        let chain = of_stack.get(&sum.stack).copied().unwrap_or_default();
        let callers = chain
            .iter()
            .filter_map(|address| at.get(&(sum.pid, *address)));
        let site = allocation_site(callers.flatten().copied());
        let function = site.map_or("", |frame| frame.function.as_str());
        let name = match sum.label.as_str() {
            "" => function,
            label => label,
        };
        let place = site
            .filter(|frame| frame.line > 0)
            .map_or_else(String::new, |frame| {
                format!("{}:{}", frame.file, frame.line)
            });
        let row = sites.entry((name.to_owned(), place)).or_default();
        row.blocks += sum.blocks;
        row.bytes += sum.bytes;
        row.live_blocks += sum.live_blocks;
        row.live_bytes += sum.live_bytes;
        row.peak_bytes += sum.peak_bytes;
        row.chains += 1;
    }
    let named = sites
        .into_iter()
        .map(|((name, place), row)| AllocationSite { name, place, ..row });
    totals.sites = named.collect();
    totals.sites.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    Some(totals)
}

#[cfg(test)]
mod tests;
