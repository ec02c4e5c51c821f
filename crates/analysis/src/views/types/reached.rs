//! Through which members and variables a type is reached: what tells arrays of numbers apart, which have
//! no fields.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{Operation, Tid, TypedAccess};

use super::uses::{FieldThread, Reached, Use, field_threads, share};

/// Members and variables of one type that a result names, at most.
const MOST_HOLDERS: usize = 16;

/// What was seen of a type through one member or variable.
#[derive(Default)]
struct Seen {
    cost: f64,
    uses: Use,
    by_thread: BTreeMap<Tid, Use>,
}

/// What was seen of a type, by member or variable.
#[derive(Default)]
pub(super) struct Holders<'a>(BTreeMap<&'a str, Seen>);

impl<'a> Holders<'a> {
    fn seen(&mut self, row: &'a TypedAccess) -> Option<&mut Seen> {
        let through = row.through.as_str();
        (!through.is_empty()).then(|| self.0.entry(through).or_default())
    }

    /// Counts what the accesses of `row` cost.
    pub(super) fn add_cost(&mut self, row: &'a TypedAccess, cost: f64) {
        if let Some(seen) = self.seen(row) {
            seen.cost += cost;
        }
    }

    /// Counts loads and stores of `row` by whichever threads.
    pub(super) fn add_uses(&mut self, row: &'a TypedAccess, loads: f64, stores: f64) {
        if let Some(seen) = self.seen(row) {
            seen.uses.loads += loads;
            seen.uses.stores += stores;
        }
    }

    /// Counts `count` accesses of `row` by thread `tid`.
    pub(super) fn add_thread(
        &mut self,
        row: &'a TypedAccess,
        tid: Tid,
        operation: Option<Operation>,
        count: f64,
    ) {
        if let Some(seen) = self.seen(row) {
            seen.by_thread.entry(tid).or_default().add(operation, count);
        }
    }

    /// The dearest of them; `cost` is that of the type.
    pub(super) fn rows(&self, cost: f64, names: &HashMap<Tid, &str>) -> Vec<Reached> {
        let mut rows: Vec<Reached> = self
            .0
            .iter()
            .map(|(through, seen)| {
                let threads: Vec<FieldThread> =
                    field_threads(seen.by_thread.iter().map(|(tid, uses)| (*tid, uses)), names);
                Reached {
                    through: (*through).to_owned(),
                    share: share(seen.cost, cost),
                    loads: seen.uses.loads,
                    stores: seen.uses.stores,
                    threads,
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            b.share
                .total_cmp(&a.share)
                .then_with(|| a.through.cmp(&b.through))
        });
        rows.truncate(MOST_HOLDERS);
        rows
    }
}
