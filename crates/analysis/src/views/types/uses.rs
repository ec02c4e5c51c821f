//! Who uses which field of which object.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{Operation, Pid, Tid};
use serde::{Deserialize, Serialize};

use crate::users::User;

/// Loads and stores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Use {
    pub(super) loads: f64,
    /// With the updates.
    pub(super) stores: f64,
    pub(super) updates: f64,
}

impl Use {
    pub(super) fn add(&mut self, operation: Option<Operation>, count: f64) {
        match operation {
            Some(Operation::Load) | None => self.loads += count,
            Some(Operation::Store) => self.stores += count,
            Some(Operation::Update) => {
                self.stores += count;
                self.updates += count;
            }
        }
    }
}

/// Use of objects (by first byte), by member and who uses it.
pub(super) type Objects = BTreeMap<(Pid, u64), BTreeMap<(usize, User), Use>>;

pub(super) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        (part / whole).min(1.0)
    } else {
        0.0
    }
}

/// A thread that touches a field. Of an exact run only the accesses that moved a line name threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldThread {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Loads seen.
    pub loads: f64,
    /// Stores and updates seen.
    pub stores: f64,
    /// Those of them that read as well.
    #[serde(default)]
    pub updates: f64,
}

impl FieldThread {
    /// `R`, `W`, or `U` for both, as in the picture of a line.
    #[must_use]
    pub fn letter(&self) -> char {
        match (self.loads + self.updates > 0.0, self.stores > 0.0) {
            (true, true) => 'U',
            (false, true) => 'W',
            _ => 'R',
        }
    }
}

/// A member or variable through which a type is reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// The member (`State.hash_table`, `Blocks.rows[]`), the static variable (`text`), or the local one (`end (local)`).
    pub through: String,
    /// Its share of the cost of the type, 0 to 1.
    pub share: f64,
    /// Loads: samples and traps, or loads of an exact run.
    pub loads: f64,
    /// Stores and updates likewise.
    pub stores: f64,
    /// Who comes this way, most accesses first.
    pub threads: Vec<FieldThread>,
}

/// Who uses what how, most accesses first.
pub(super) fn field_threads<'u>(
    uses: impl Iterator<Item = (Tid, &'u Use)>,
    names: &HashMap<Tid, &str>,
) -> Vec<FieldThread> {
    let mut threads: Vec<FieldThread> = uses
        .map(|(tid, uses)| FieldThread {
            tid: tid.0,
            name: names.get(&tid).copied().unwrap_or_default().to_owned(),
            loads: uses.loads,
            stores: uses.stores,
            updates: uses.updates,
        })
        .collect();
    threads.sort_by(|a, b| {
        let all = |thread: &FieldThread| thread.loads + thread.stores;
        all(b).total_cmp(&all(a)).then(a.tid.cmp(&b.tid))
    });
    threads
}
