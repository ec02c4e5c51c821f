//! Where the [lines](crate::own) of this process are: tables in the region, found by address.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::process;
use crate::own::{Line, SPACE_TABLES, TABLES, Table, place};

/// The tables. All null, so that no page of it exists until it is touched.
static TABLES_OF_LINES: [AtomicPtr<Table>; SPACE_TABLES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; SPACE_TABLES];
/// The numbers of those that were made, the first `COUNT` of them.
static MADE: [AtomicU32; TABLES] = [const { AtomicU32::new(0) }; TABLES];
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The line of an address, if there is a table for it.
#[inline(always)]
pub(super) fn find(address: u64) -> Option<Line<'static>> {
    let (number, at) = place(address);
    let table = TABLES_OF_LINES[number].load(Ordering::Acquire);
    if table.is_null() {
        return None;
    }
    // SAFETY: a table lies in a mapping that is never taken away; any bytes are valid atomics.
    Some(unsafe { &*table }.line(at))
}

/// The line of an address; `None` if there is no table left for it.
#[cold]
pub(super) fn make(address: u64) -> Option<Line<'static>> {
    let (number, _) = place(address);
    let entry = &TABLES_OF_LINES[number];
    if entry.load(Ordering::Acquire).is_null() {
        let process = process::current()?;
        let image = process.image.load(Ordering::Relaxed);
        let table = ptr::from_ref(process.region.claim_table(image, number)?);
        let made = entry.compare_exchange(
            ptr::null_mut(),
            table.cast_mut(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        // Where another thread was faster, this table stays unused until the process ends.
        if made.is_ok() {
            let count = COUNT.fetch_add(1, Ordering::Relaxed) as usize;
            MADE[count % TABLES].store(number as u32, Ordering::Relaxed);
        }
    }
    find(address)
}

/// The lines from an address to another of which anything may be known.
pub(super) fn touched(from: u64, to: u64) -> impl Iterator<Item = u64> {
    /// Those whose states lie on one page.
    const TOGETHER: u64 = 128 << 6;
    let begins = (from & !(TOGETHER - 1)..to).step_by(TOGETHER as usize);
    let is_used = |&address: &u64| {
        let (number, at) = place(address);
        let table = TABLES_OF_LINES[number].load(Ordering::Acquire);
        // SAFETY: as in `find`.
        !table.is_null() && unsafe { &*table }.has(at)
    };
    begins
        .filter(is_used)
        .flat_map(|begin| (begin..begin + TOGETHER).step_by(64))
        .filter(move |line| (from & !63..to).contains(line))
}

/// In a child of fork: the tables are its parent's.
pub(super) fn forget() {
    let count = COUNT.swap(0, Ordering::Relaxed) as usize;
    for number in &MADE[..count.min(TABLES)] {
        TABLES_OF_LINES[number.load(Ordering::Relaxed) as usize]
            .store(ptr::null_mut(), Ordering::Relaxed);
    }
}
