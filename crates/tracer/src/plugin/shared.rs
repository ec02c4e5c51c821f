//! Memory that this process may have in common with others: all accesses to it are told, in turn.
//!
//! What is behind it names it in all of them: device, inode, and the place there.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::lock::Lock;

/// Ranges that are told apart. More are taken for one that reaches over all of them.
const RANGES: usize = 256;

/// First byte and one past the last, both 0 if there is none; device, inode, and what is to be added to an address for its place
/// there.
struct Range([AtomicU64; 5]);

/// The device of a range that reaches over several.
const NO_DEVICE: u64 = u64::MAX;

static ALL: [Range; RANGES] = [const { Range([const { AtomicU64::new(0) }; 5]) }; RANGES];
/// One past the last place that was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Who changes them.
static CHANGES: Lock<()> = Lock::new(());

impl Range {
    fn bounds(&self) -> (u64, u64) {
        let [start, end, ..] = &self.0;
        (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed))
    }

    fn has(&self, address: u64) -> bool {
        let (start, end) = self.bounds();
        start <= address && address < end
    }

    fn set(&self, values: [u64; 5]) {
        for (word, value) in self.0.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn values(&self) -> [u64; 5] {
        std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }
}

fn used() -> &'static [Range] {
    &ALL[..USED.load(Ordering::Acquire)]
}

/// Whether there ever was any.
pub(super) fn is_used() -> bool {
    !used().is_empty()
}

/// Whether others may have the byte at `address`.
pub(super) fn has(address: u64) -> bool {
    used().iter().any(|range| range.has(address))
}

/// Device, inode and place of what is behind the byte at `address`, if others may have it.
pub(super) fn home(address: u64) -> Option<[u64; 3]> {
    let [_, _, device, inode, more] = used().iter().find(|it| it.has(address))?.values();
    (device != NO_DEVICE).then_some([device, inode, address.wrapping_add(more)])
}

/// Others may have these bytes from now on, behind which are this device and inode, from `offset` on.
pub(super) fn add(from: u64, to: u64, (device, inode): (u32, u64), offset: u64) {
    insert([from, to, device.into(), inode, offset.wrapping_sub(from)]);
}

fn insert(values: [u64; 5]) {
    let _held = CHANGES.lock();
    let free = used().iter().position(|range| range.bounds().1 == 0);
    let place = free.unwrap_or(USED.load(Ordering::Relaxed));
    match ALL.get(place) {
        Some(range) => {
            range.set(values);
            USED.fetch_max(place + 1, Ordering::Release);
        }
        None => {
            let last = &ALL[RANGES - 1];
            let (start, end) = last.bounds();
            last.set([start.min(values[0]), end.max(values[1]), NO_DEVICE, 0, 0]);
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
        for range in used() {
            let mut values = range.values();
            let [first, last, ..] = values;
            if last <= from || to <= first {
                continue;
            }
            if first < from && to < last {
                above = Some(values);
            }
            match (first < from, to < last) {
                (true, _) => values[1] = from,
                (false, true) => values[0] = to,
                (false, false) => values = [0; 5],
            }
            range.set(values);
        }
    }
    if let Some(mut values) = above {
        values[0] = to;
        insert(values);
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
        add(0x1000, 0x5000, (7, 8), 0x10000);
        remove(0x2000, 0x3000);
        let home_of = |address| home(address).map(|[device, inode, place]| (device, inode, place));
        assert_eq!(home_of(0x1234), Some((7, 8, 0x10234)));
        assert_eq!(home_of(0x2000), None);
        assert_eq!(home_of(0x4000), Some((7, 8, 0x13000)));
        assert!(has(0x1fff) && !has(0x2000) && !has(0x2fff) && has(0x3000) && !has(0x5000));
        remove(0, 0x1800);
        assert!(!has(0x17ff) && has(0x1800));
        remove(0, u64::MAX);
        assert!((0..0x6000).step_by(0x100).all(|address| !has(address)));
        for range in 0..2 * RANGES as u64 {
            add(range << 16, (range << 16) + 0x1000, (7, range), 0);
        }
        assert_eq!(home(0x50_0000), Some([7, 0x50, 0]));
        assert_eq!(home((RANGES as u64 + 1) << 16), None);
        assert!((0..2 * RANGES as u64).all(|range| has(range << 16)));
    }
}
