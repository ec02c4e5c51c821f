//! The tables of lines that one thread alone touches.

use std::sync::atomic::Ordering;

use super::Region;
use crate::own::{TABLES, Table};

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const USED: u32 = 2;

impl Region {
    /// Takes an unused table for an address space; its first line. `None` if all are in use.
    pub(crate) fn claim_table(&self, image: u32, number: usize) -> Option<&Table> {
        for index in 0..TABLES {
            let entry = self.table_entry(index);
            if entry.state.load(Ordering::Relaxed) != FREE
                || entry
                    .state
                    .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            let lines = self.admit_table(index);
            if lines.is_none() {
                entry.state.store(FREE, Ordering::Relaxed);
                return None;
            }
            entry.image.store(image, Ordering::Relaxed);
            entry.number.store(number as u32, Ordering::Relaxed);
            entry.state.store(USED, Ordering::Release);
            return lines;
        }
        None
    }

    /// Gives the tables of an address space back that is not used any more.
    pub fn free_tables(&self, image: u32) {
        for index in 0..TABLES {
            let entry = self.table_entry(index);
            if entry.state.load(Ordering::Acquire) == USED
                && entry.image.load(Ordering::Relaxed) == image
                && self.clear_table(index).is_ok()
            {
                entry.state.store(FREE, Ordering::Release);
            }
        }
    }
}
