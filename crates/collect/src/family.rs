//! The processes that descend from a launched target.
//!
//! A shell script that is asked to end leaves its children behind, who then belong to init and to
//! nobody's care. So the collector takes the place of init: orphans of the target become its children
//! (`PR_SET_CHILD_SUBREAPER`), and whoever descends from the collector and was not there before the
//! target descends from the target, whatever became of the processes between.

use std::collections::HashSet;

use linewise_machine::process::{self, Child};
use linewise_machine::procfs;

/// The descendants of a launched target.
#[derive(Debug)]
pub(crate) struct Family {
    /// What descended from this process before there was a target.
    strangers: HashSet<u32>,
    adopts: bool,
}

impl Family {
    /// The family of a target that is launched after this call.
    pub(crate) fn before_the_first() -> Self {
        Self {
            strangers: descendants().into_iter().collect(),
            adopts: process::adopt_orphans().is_ok(),
        }
    }

    /// No family: a process that was not launched here.
    pub(crate) fn none() -> Self {
        Self {
            strangers: HashSet::new(),
            adopts: false,
        }
    }

    /// All that are alive, the target among them.
    pub(crate) fn members(&self) -> Vec<u32> {
        let mut members = descendants();
        members.retain(|pid| !self.strangers.contains(pid));
        members
    }

    /// Takes away what is left of orphans that have ended; `target` waits for the target itself.
    pub(crate) fn reap(&self, target: &Child) {
        if self.adopts {
            process::reap_orphans(|pid| pid == target.pid() || self.strangers.contains(&pid));
        }
    }
}

fn descendants() -> Vec<u32> {
    // Without /proc nothing here works; the target itself is then ended all the same.
    procfs::descendants(&[std::process::id()]).unwrap_or_default()
}
