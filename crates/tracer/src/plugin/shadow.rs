//! Which thread has which line for itself.
//!
//! ```text
//!              first touch                  touch by another
//!   untouched ─────────────► own of thread ──────────────────► shared
//!                                │ load by another,              ▲
//!                                │ nobody stored                 │ store
//!                                └────────► constant ────────────┘
//! ```
//!
//! As long as one thread alone touches a line, nothing that it does there can be told from a hit in its
//! core's cache, in whatever order threads are brought. So its accesses are not told one by one but noted
//! in the line's word here: how many, the first, the last load and the last store. Whoever takes the line
//! from it tells that ([`Taken`]), and from then on all accesses to it are told.
//!
//! A line that nobody has stored to is constant when a second thread loads it (tables of constants, mostly).
//! Of its loads the first of each thread is told; all others are hits.
//!
//! All of it lies in tables that are filled as memory is touched, half as large as that. A page that is
//! unmapped and mapped anew keeps its state, as its lines do in the simulated caches. A child of
//! fork begins with empty tables.
//!
//! No lock: a state changes by compare-and-swap. An owner notes without one, so an access that it
//! makes in the very moment in which another takes the line may be missing from what is told.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::region::MOST_OWNERS;
use crate::words::Taken;

/// Guest memory that one table is for, and addresses that differ.
const TABLE_BITS: u32 = 28;
const ADDRESS_BITS: u32 = crate::words::ADDRESS_BITS;
const TABLES: usize = 1 << (ADDRESS_BITS - TABLE_BITS);
const LINE_BITS: u32 = 6;
const TABLE_LINES: usize = 1 << (TABLE_BITS - LINE_BITS);

/// In the place of an owner.
const SHARED: u16 = MOST_OWNERS + 1;
const UNTOUCHED: u64 = 0;
/// Bits of the number of a thread's access.
const NUMBER_BITS: u32 = 48;

/// The state of a shared line, and of a constant one.
const SHARED_STATE: u64 = (SHARED as u64) << NUMBER_BITS;
const CONSTANT_STATE: u64 = SHARED_STATE | 1;

/// A line: its state, which is the owner (16 bits) and the number of its first access (48 bits), and what
/// the owner did. Of a constant line the first of `last` has a bit for each thread that loaded it.
#[repr(C, align(32))]
pub(super) struct Line {
    state: AtomicU64,
    quarters: [AtomicU32; 2],
    last: [AtomicU64; 2],
}

/// What a touch comes to.
pub(super) enum Touch {
    /// The line is the thread's own; `true`: since this touch, the first of all.
    Own(bool),
    /// It is constant, and the thread has loaded it before.
    Constant,
    /// It is shared, or constant and new to the thread.
    Shared,
    /// It was another's own and is shared now.
    Taken(Taken),
}

impl Line {
    #[inline(always)]
    pub(super) fn owner(&self) -> u16 {
        (self.state.load(Ordering::Relaxed) >> NUMBER_BITS) as u16
    }

    /// Whether the line is constant, and the thread has loaded it before.
    #[inline(always)]
    pub(super) fn is_constant_for(&self, thread: u16) -> bool {
        self.state.load(Ordering::Relaxed) == CONSTANT_STATE
            && self.last[0].load(Ordering::Relaxed) & bit(thread) != 0
    }

    /// Notes an access of the owner; `store` is 0 or 1.
    #[inline(always)]
    pub(super) fn note(&self, store: usize, deed: u64, quarters: u32) {
        let count = &self.quarters[store];
        count.store(
            count.load(Ordering::Relaxed).wrapping_add(quarters),
            Ordering::Relaxed,
        );
        self.last[store].store(deed, Ordering::Relaxed);
    }

    /// Thread `me` touches the line that begins at `address`, with its access of this number, which may be a
    /// `store`. `whole`: all accesses to it are told for good. With 0 for `me` it is nobody's touch, and a store.
    #[cold]
    pub(super) fn touch(
        &self,
        address: u64,
        me: u16,
        number: u64,
        store: bool,
        whole: impl Fn() -> bool,
    ) -> Touch {
        let number = number & ((1 << NUMBER_BITS) - 1);
        loop {
            let state = self.state.load(Ordering::Acquire);
            let owner = (state >> NUMBER_BITS) as u16;
            let (new, touch) = if state == UNTOUCHED {
                if me == 0 || whole() {
                    (SHARED_STATE, Touch::Shared)
                } else {
                    (u64::from(me) << NUMBER_BITS | number, Touch::Own(true))
                }
            } else if state == CONSTANT_STATE && store {
                (SHARED_STATE, Touch::Shared)
            } else if state == CONSTANT_STATE {
                let known = self.last[0].fetch_or(bit(me), Ordering::Relaxed);
                return match known & bit(me) {
                    0 => Touch::Shared,
                    _ => Touch::Constant,
                };
            } else if owner == SHARED {
                return Touch::Shared;
            } else if owner == me {
                return Touch::Own(false);
            } else {
                let taken = Taken {
                    owner,
                    line: address,
                    first: state & ((1 << NUMBER_BITS) - 1),
                    quarters: self
                        .quarters
                        .each_ref()
                        .map(|it| it.load(Ordering::Relaxed)),
                    last: self.last.each_ref().map(|it| it.load(Ordering::Relaxed)),
                };
                let new = match taken.last[1] {
                    0 if !store => CONSTANT_STATE,
                    _ => SHARED_STATE,
                };
                (new, Touch::Taken(taken))
            };
            let swapped =
                self.state
                    .compare_exchange(state, new, Ordering::AcqRel, Ordering::Relaxed);
            if swapped.is_ok() {
                if new == CONSTANT_STATE {
                    self.last[0].store(bit(owner) | bit(me), Ordering::Relaxed);
                }
                return touch;
            }
        }
    }
}

/// The bit of a thread; of more than 64 some have the same.
#[inline(always)]
fn bit(thread: u16) -> u64 {
    1 << (thread & 63)
}

/// The tables. All null, so that no page of it exists until it is touched.
static TABLES_OF_LINES: [AtomicPtr<Line>; TABLES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; TABLES];

/// The line of an address, if there is a table for it.
#[inline(always)]
pub(super) fn find(address: u64) -> Option<&'static Line> {
    let table =
        TABLES_OF_LINES[(address >> TABLE_BITS) as usize & (TABLES - 1)].load(Ordering::Acquire);
    if table.is_null() {
        return None;
    }
    let place = (address >> LINE_BITS) as usize & (TABLE_LINES - 1);
    // SAFETY: a table has so many lines and is never taken away; any bytes are valid atomics.
    Some(unsafe { &*table.add(place) })
}

/// The line of an address; `None` if there is no memory for its table.
#[cold]
pub(super) fn make(address: u64) -> Option<&'static Line> {
    let entry = &TABLES_OF_LINES[(address >> TABLE_BITS) as usize & (TABLES - 1)];
    if entry.load(Ordering::Acquire).is_null() {
        let length = TABLE_LINES * size_of::<Line>();
        // SAFETY: new memory at an address of the kernel's choice, which is not counted before it is
        // touched; a table that another thread was faster with is taken away before anybody saw it.
        unsafe {
            let table = libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if table == libc::MAP_FAILED {
                return None;
            }
            if libc::madvise(table, length, libc::MADV_WIPEONFORK) != 0
                || entry
                    .compare_exchange(
                        ptr::null_mut(),
                        table.cast(),
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                    .is_err()
            {
                libc::munmap(table, length);
            }
        }
    }
    find(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;

    fn line() -> Line {
        Line {
            state: AtomicU64::new(0),
            quarters: [AtomicU32::new(0), AtomicU32::new(0)],
            last: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    #[test]
    fn a_line_is_its_first_threads_own_until_another_comes_and_is_told_what_was_done() {
        let line = line();
        let no = || false;
        assert!(matches!(line.touch(64, 3, 7, true, no), Touch::Own(true)));
        assert!(matches!(line.touch(64, 3, 8, true, no), Touch::Own(false)));
        let deed = words::deed(0, 8, words::meta(3, true));
        line.note(1, deed, 4);
        let Touch::Taken(taken) = line.touch(64, 5, 1, true, no) else {
            panic!("not taken");
        };
        let expected = Taken {
            owner: 3,
            line: 64,
            first: 7,
            quarters: [0, 4],
            last: [0, deed],
        };
        assert_eq!(taken, expected);
        assert!(matches!(line.touch(64, 3, 9, true, no), Touch::Shared));
    }

    #[test]
    fn a_line_that_nobody_stores_to_is_constant_and_each_threads_first_load_is_told() {
        let line = line();
        let no = || false;
        assert!(matches!(line.touch(64, 3, 1, false, no), Touch::Own(true)));
        line.note(0, words::deed(0, 8, words::meta(3, false)), 4);
        assert!(matches!(line.touch(64, 5, 1, false, no), Touch::Taken(_)));
        for me in [3, 5] {
            assert!(line.is_constant_for(me));
            assert!(matches!(line.touch(64, me, 2, false, no), Touch::Constant));
        }
        assert!(!line.is_constant_for(9));
        assert!(matches!(line.touch(64, 9, 1, false, no), Touch::Shared));
        assert!(matches!(line.touch(64, 9, 2, false, no), Touch::Constant));
        assert!(matches!(line.touch(64, 9, 3, true, no), Touch::Shared));
        assert!(matches!(line.touch(64, 5, 4, false, no), Touch::Shared));
        assert!(!line.is_constant_for(5));
    }

    #[test]
    fn a_line_that_its_owner_stored_to_is_shared_when_another_loads_it() {
        let line = line();
        let no = || false;
        assert!(matches!(line.touch(64, 3, 1, true, no), Touch::Own(true)));
        line.note(1, words::deed(0, 8, words::meta(3, true)), 4);
        assert!(matches!(line.touch(64, 5, 1, false, no), Touch::Taken(_)));
        assert!(matches!(line.touch(64, 5, 2, false, no), Touch::Shared));
    }

    #[test]
    fn what_is_to_be_told_whole_is_nobodys_own() {
        let (chosen, given_up) = (line(), line());
        assert!(matches!(
            chosen.touch(0, 1, 0, true, || true),
            Touch::Shared
        ));
        assert!(matches!(
            chosen.touch(0, 1, 1, true, || false),
            Touch::Shared
        ));
        assert!(matches!(
            given_up.touch(0, 2, 0, true, || false),
            Touch::Own(true)
        ));
        assert!(matches!(
            given_up.touch(0, 0, 0, true, || true),
            Touch::Taken(_)
        ));
        assert!(matches!(
            given_up.touch(0, 2, 1, true, || false),
            Touch::Shared
        ));
    }

    #[test]
    fn a_table_is_made_once_and_neighbours_are_different_lines() {
        let address = 0x1234_5678_9abc;
        assert!(find(address).is_none());
        let made = make(address).unwrap();
        assert!(ptr::eq(made, find(address).unwrap()));
        assert!(!ptr::eq(made, find(address + 64).unwrap()));
        assert!(ptr::eq(made, find(address & !63).unwrap()));
    }
}
