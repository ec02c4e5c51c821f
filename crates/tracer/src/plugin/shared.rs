//! Memory that this process may have in common with others: all accesses to it are told, in turn.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::lock::Lock;

/// Ranges that are told apart. More are taken for one that reaches over all of them.
const RANGES: usize = 256;

/// First byte and one past the last; both 0 if there is none.
static ALL: [(AtomicU64, AtomicU64); RANGES] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; RANGES];
/// One past the last place that was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Who changes them.
static CHANGES: Lock<()> = Lock::new(());

fn used() -> &'static [(AtomicU64, AtomicU64)] {
    &ALL[..USED.load(Ordering::Acquire)]
}

/// Whether there ever was any.
pub(super) fn is_used() -> bool {
    !used().is_empty()
}

/// Whether others may have the byte at `address`.
pub(super) fn has(address: u64) -> bool {
    used().iter().any(|(start, end)| {
        start.load(Ordering::Relaxed) <= address && address < end.load(Ordering::Relaxed)
    })
}

/// Others may have these bytes from now on.
pub(super) fn add(from: u64, to: u64) {
    let _held = CHANGES.lock();
    let free = used()
        .iter()
        .position(|(_, end)| end.load(Ordering::Relaxed) == 0);
    let place = free.unwrap_or(USED.load(Ordering::Relaxed));
    match ALL.get(place) {
        Some((start, end)) => {
            start.store(from, Ordering::Relaxed);
            end.store(to, Ordering::Relaxed);
            USED.fetch_max(place + 1, Ordering::Release);
        }
        None => {
            let (start, end) = &ALL[RANGES - 1];
            start.fetch_min(from, Ordering::Relaxed);
            end.fetch_max(to, Ordering::Relaxed);
        }
    }
}

/// These bytes are gone, or somebody else's.
pub(super) fn remove(from: u64, to: u64) {
    if !is_used() {
        return;
    }
    let mut above = None;
    {
        let _held = CHANGES.lock();
        for (start, end) in used() {
            let (first, last) = (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
            if last <= from || to <= first {
                continue;
            }
            if first < from && to < last {
                above = Some((to, last));
            }
            match (first < from, to < last) {
                (true, _) => end.store(from, Ordering::Relaxed),
                (false, true) => start.store(to, Ordering::Relaxed),
                (false, false) => {
                    end.store(0, Ordering::Relaxed);
                    start.store(0, Ordering::Relaxed);
                }
            }
        }
    }
    if let Some((start, end)) = above {
        add(start, end);
    }
}

/// In a child of fork, which has one thread.
pub(super) fn forget_lock() {
    CHANGES.release();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_out_of_a_range_is_nobody_elses_and_too_many_are_one() {
        add(0x1000, 0x5000);
        remove(0x2000, 0x3000);
        assert!(has(0x1fff) && !has(0x2000) && !has(0x2fff) && has(0x3000) && !has(0x5000));
        remove(0, 0x1800);
        assert!(!has(0x17ff) && has(0x1800));
        remove(0, u64::MAX);
        assert!((0..0x6000).step_by(0x100).all(|address| !has(address)));
        for range in 0..2 * RANGES as u64 {
            add(range << 16, (range << 16) + 0x1000);
        }
        assert!((0..2 * RANGES as u64).all(|range| has(range << 16)));
    }
}
