//! Which thread has which line for itself.
//!
//! ```text
//!              first touch                  touch by another
//!   untouched ─────────────► own of thread ◄────────────────► shared
//!                                │          touches in a row
//!                                │ asked for by the collector
//!                                ▼
//!                             contended
//! ```
//!
//! A line that nobody stored to, or only its owner and long before, is *constant* when a second thread loads it. Of
//! its loads the first of each thread is told; all others are hits. A store makes it shared.
//!
//! As long as one thread alone touches a line, nothing that it does there can be told from a hit in its
//! core's cache, in whatever order threads are brought. So its accesses are not told one by one but noted
//! in the line's word here: how many, the first, the last load and the last store. Whoever takes the line
//! from it tells that ([`Taken`]), and from then on all accesses to it are told, until one thread has made
//! [`TOUCHES_IN_A_ROW`] of them: it has the line for itself again.
//!
//! That is right for the order that was observed. In the order in which all threads are equally fast, another
//! thread may have been at the line at the same time, though it touched it earlier. So the tables lie in
//! memory that the collector sees, and when it comes to such an access it takes the line itself
//! ([`Region::contend`]), for good: the line is contended, and all accesses to it are told.
//!
//! The tables are filled as memory is touched, half as large as that and as much again where threads share
//! lines. A page that is unmapped and mapped anew keeps its state, as its lines do in the simulated caches.
//! A child of fork has tables of its own.
//!
//! No lock: a state changes by compare-and-swap. An owner notes without one, so an access that it
//! makes in the very moment in which another takes the line may be missing from what is told. An owner that is
//! interrupted in that moment writes its note when it goes on, which may be much later: so the notes of owners that
//! follow each other have two places, in turn.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::region::{MOST_OWNERS, Region};
use crate::words::{ADDRESS_BITS, Taken, deed_number};

/// Guest memory that one table is for.
const TABLE_BITS: u32 = 28;
const LINE_BITS: u32 = 6;
/// Lines of a table.
pub(crate) const TABLE_LINES: usize = 1 << (TABLE_BITS - LINE_BITS);
/// Tables that an address space can have.
pub(crate) const SPACE_TABLES: usize = 1 << (ADDRESS_BITS - TABLE_BITS);
/// Tables that there can be at a time, of all processes.
pub(crate) const TABLES: usize = 1024;

/// A shared line is a thread's own again after so many touches with none of another's in between, and after
/// twice as many each time that the thread then made less than [`WORTH_IT`] before another came.
const TOUCHES_IN_A_ROW: u64 = 8;
const WORTH_IT: u64 = 32;
/// So often.
const MOST_DOUBLINGS: u64 = 16;
/// An owner's accesses after its last store to a line that it only prepared for others: more than it makes in a slice
/// of the machine's time, since in the order of equal rate others may have been at the line in their slices.
const LONG: u64 = 1 << 19;
/// In [`SecondHalf::touched`].
const DOUBLINGS_SHIFT: u32 = 48;
const TOUCHED_BY_SHIFT: u32 = 32;

/// In the place of an owner.
const SHARED: u16 = MOST_OWNERS + 1;
const UNTOUCHED: u64 = 0;
/// Bits of the number of a thread's access.
const NUMBER_BITS: u32 = 46;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
const OWNER_SHIFT: u32 = 48;
/// In a state: which of the two places the owner's notes have; of a line that may be had again, the last owner's had.
const SECOND: u64 = 1 << NUMBER_BITS;
/// In a state: the owner has the line not for the first time.
const AGAIN: u64 = 1 << (NUMBER_BITS + 1);
/// All accesses to it are told for good.
const TOLD: u64 = (SHARED as u64) << OWNER_SHIFT;
/// It is shared, and may be had again.
const MAY_BE_OWN: u64 = TOLD | 1;
/// It is constant.
const CONSTANT: u64 = TOLD | 2;
/// A thread is reading what its owner noted.
const BEING_TAKEN: u64 = TOLD | 3;
/// For how long, so that an owner that was just noting something is done: some 100 ns.
const PAUSES: u32 = 8;
/// For how long that is waited for: some milliseconds.
const MOST_PAUSES: u32 = 1 << 16;

/// Lines that follow each other.
#[repr(C)]
pub(crate) struct Table {
    first: [FirstHalf; TABLE_LINES],
    second: [SecondHalf; TABLE_LINES],
}

/// Of a line, what its first owner needs.
#[repr(C, align(32))]
#[derive(Default)]
struct FirstHalf {
    /// The owner (16 bits), [`AGAIN`], [`SECOND`] and the number of its first access (46 bits).
    state: AtomicU64,
    notes: Notes,
}

/// What is needed when others have come to it.
#[repr(C, align(32))]
#[derive(Default)]
struct SecondHalf {
    /// Of a line that is not constant: how often it was taken from threads that had it again (16 bits), who touched it
    /// last (16) and how often in a row (32). Of a constant one a bit for each thread that loaded it.
    touched: AtomicU64,
    notes: Notes,
}

/// A line.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    first: &'a FirstHalf,
    second: &'a SecondHalf,
}

/// What an owner did.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Notes {
    quarters: [AtomicU32; 2],
    last: [AtomicU64; 2],
}

/// What a touch comes to.
pub(crate) enum Touch {
    /// The line is the thread's own.
    Own,
    /// Likewise, since this touch, the first of all.
    First,
    /// Others had it, and from the next touch on it is the thread's own.
    Again,
    /// It is constant, and the thread has loaded it before.
    Constant,
    /// It is shared.
    Shared,
    /// It was another's own and is shared now.
    Taken(Taken),
}

/// Which table is where: one of these for each.
#[repr(C)]
pub(crate) struct TableEntry {
    state: AtomicU32,
    image: AtomicU32,
    /// The upper bits of the addresses that it is for.
    number: AtomicU32,
}

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const USED: u32 = 2;

impl Table {
    #[inline(always)]
    pub(crate) fn line(&self, at: usize) -> Line<'_> {
        Line {
            first: &self.first[at],
            second: &self.second[at],
        }
    }
}

impl<'a> Line<'a> {
    /// Where an owner notes what it does; `None` if the thread does not have the line for itself.
    #[inline(always)]
    pub(crate) fn notes_of(self, thread: u16) -> Option<&'a Notes> {
        let state = self.first.state.load(Ordering::Relaxed);
        let notes = self.notes(state);
        ((state >> OWNER_SHIFT) as u16 == thread).then_some(notes)
    }

    /// The notes of who has the line in this state.
    #[inline(always)]
    fn notes(self, state: u64) -> &'a Notes {
        match state & SECOND {
            0 => &self.first.notes,
            _ => &self.second.notes,
        }
    }

    /// Whether the line is constant, and the thread has loaded it before.
    #[inline(always)]
    pub(crate) fn is_constant_for(self, thread: u16) -> bool {
        self.first.state.load(Ordering::Relaxed) == CONSTANT
            && self.second.touched.load(Ordering::Relaxed) & bit(thread) != 0
    }

    /// Thread `me` touches the line that begins at `address`, with its access of this number, which may be
    /// a store. `whole`: all accesses to it are told for good. With 0 for `me` it is nobody's touch. `made`: how many
    /// accesses a thread has made, or somewhat less.
    #[cold]
    pub(crate) fn touch(
        self,
        address: u64,
        me: u16,
        number: u64,
        store: bool,
        whole: impl Fn() -> bool,
        made: impl Fn(u16) -> u64,
    ) -> Touch {
        let number = number & NUMBER;
        let mine = u64::from(me) << OWNER_SHIFT;
        loop {
            let state = self.state_when_taken();
            let owner = (state >> OWNER_SHIFT) as u16;
            let (new, touch) = if state == UNTOUCHED {
                if me == 0 || whole() {
                    (TOLD, Touch::Shared)
                } else {
                    (mine | number, Touch::First)
                }
            } else if owner == SHARED {
                if state == TOLD {
                    return Touch::Shared;
                }
                if me == 0 {
                    (TOLD, Touch::Shared)
                } else if state == CONSTANT && !store {
                    return match self.is_known_to(me) {
                        true => Touch::Constant,
                        false => Touch::Shared,
                    };
                } else if state == CONSTANT {
                    self.second
                        .touched
                        .store(u64::from(me) << TOUCHED_BY_SHIFT, Ordering::Relaxed);
                    (MAY_BE_OWN, Touch::Shared)
                } else if self.is_in_a_row(me) {
                    let second = !state & SECOND;
                    self.clear(second);
                    (
                        mine | AGAIN | second | ((number + 1) & NUMBER),
                        Touch::Again,
                    )
                } else {
                    return Touch::Shared;
                }
            } else if owner == me {
                return Touch::Own;
            } else {
                let Some(taken) = self.take(address, state) else {
                    continue;
                };
                let by_me = u64::from(me) << TOUCHED_BY_SHIFT;
                let (new, touched) = match taken.again {
                    _ if me == 0 => (TOLD, 0),
                    false if !store && taken.was_stored_long_before(made(owner)) => {
                        (CONSTANT, bit(me) | bit(owner))
                    }
                    false => (MAY_BE_OWN | state & SECOND, by_me),
                    true => (
                        MAY_BE_OWN | state & SECOND,
                        self.doublings(&taken) << DOUBLINGS_SHIFT | by_me,
                    ),
                };
                self.second.touched.store(touched, Ordering::Relaxed);
                // Unless it took too long.
                self.change(BEING_TAKEN, new);
                return Touch::Taken(taken);
            };
            if self.change(state, new) {
                return touch;
            }
        }
    }

    /// The state, when nobody is just taking the line any more. Who died over it is not waited for for long.
    fn state_when_taken(self) -> u64 {
        for _ in 0..MOST_PAUSES {
            let state = self.first.state.load(Ordering::Acquire);
            if state != BEING_TAKEN {
                return state;
            }
            std::hint::spin_loop();
        }
        self.change(BEING_TAKEN, TOLD);
        self.first.state.load(Ordering::Acquire)
    }

    /// Takes the line from its owner, which may be about to note an access: it is given the time for that. The state
    /// has to be set then. `None` if another was faster.
    fn take(self, address: u64, state: u64) -> Option<Taken> {
        self.change(state, BEING_TAKEN).then(|| {
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
            self.taken(address, state)
        })
    }

    fn change(self, state: u64, new: u64) -> bool {
        self.first
            .state
            .compare_exchange(state, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether a thread loaded a constant line before; from now on it has.
    fn is_known_to(self, me: u16) -> bool {
        let known = self.second.touched.load(Ordering::Relaxed);
        if known & bit(me) == 0 {
            self.second.touched.fetch_or(bit(me), Ordering::Relaxed);
        }
        known & bit(me) != 0
    }

    /// Counts a touch of a shared line; whether the thread now made enough of them.
    fn is_in_a_row(self, me: u16) -> bool {
        let touched = self.second.touched.load(Ordering::Relaxed);
        let doublings = touched >> DOUBLINGS_SHIFT;
        let touched = if (touched >> TOUCHED_BY_SHIFT) as u16 == me {
            touched + 1
        } else {
            doublings << DOUBLINGS_SHIFT | u64::from(me) << TOUCHED_BY_SHIFT
        };
        self.second.touched.store(touched, Ordering::Relaxed);
        let row = u64::from(touched as u32);
        row >= TOUCHES_IN_A_ROW << doublings.min(MOST_DOUBLINGS)
    }

    /// How often [`TOUCHES_IN_A_ROW`] is doubled, when this is taken from a thread that had the line again.
    fn doublings(self, taken: &Taken) -> u64 {
        let before = self.second.touched.load(Ordering::Relaxed) >> DOUBLINGS_SHIFT;
        let quarters = u64::from(taken.quarters[0]) + u64::from(taken.quarters[1]);
        match quarters < 4 * WORTH_IT {
            true => (before + 1).min(MOST_DOUBLINGS),
            false => before.saturating_sub(1),
        }
    }

    /// Empties the place of notes that is next.
    fn clear(self, second: u64) {
        let notes = self.notes(second);
        for quarters in &notes.quarters {
            quarters.store(0, Ordering::Relaxed);
        }
        for last in &notes.last {
            last.store(0, Ordering::Relaxed);
        }
    }

    /// What the owner did.
    fn taken(self, address: u64, state: u64) -> Taken {
        let notes = self.notes(state);
        Taken {
            owner: (state >> OWNER_SHIFT) as u16,
            again: state & AGAIN != 0,
            line: address,
            first: state & NUMBER,
            quarters: notes
                .quarters
                .each_ref()
                .map(|it| it.load(Ordering::Relaxed)),
            last: notes.last.each_ref().map(|it| it.load(Ordering::Relaxed)),
        }
    }

    /// Has all accesses to the line at `address` told from now on, if it is not constant; what its owner did, if it
    /// has one again.
    fn contend(self, address: u64) -> Option<Taken> {
        loop {
            let state = self.first.state.load(Ordering::Acquire);
            if [UNTOUCHED, TOLD, CONSTANT, BEING_TAKEN].contains(&state) {
                return None;
            }
            let owned = (state >> OWNER_SHIFT) as u16 != SHARED;
            if owned && state & AGAIN == 0 {
                return None;
            }
            if owned && let Some(taken) = self.take(address, state) {
                self.change(BEING_TAKEN, TOLD);
                return Some(taken);
            }
            if !owned && self.change(state, TOLD) {
                return None;
            }
        }
    }
}

impl Notes {
    /// Notes an access of the owner; `store` is 0 or 1.
    #[inline(always)]
    pub(crate) fn note(&self, store: usize, deed: u64, quarters: u32) {
        let count = &self.quarters[store];
        count.store(
            count.load(Ordering::Relaxed).wrapping_add(quarters),
            Ordering::Relaxed,
        );
        self.last[store].store(deed, Ordering::Relaxed);
    }
}

impl Taken {
    /// Whether the owner did not store to the line in the last [`LONG`] accesses of `made` that it has made.
    fn was_stored_long_before(&self, made: u64) -> bool {
        let [_, store] = self.last;
        store == 0 || made >= deed_number(store, self.first) + LONG
    }
}

/// The bit of a thread; of more than 64 some have the same.
#[inline(always)]
fn bit(owner: u16) -> u64 {
    1 << (owner & 63)
}

/// The table that an address belongs to, and the place in it.
#[inline(always)]
pub(crate) fn place(address: u64) -> (usize, usize) {
    (
        (address >> TABLE_BITS) as usize & (SPACE_TABLES - 1),
        (address >> LINE_BITS) as usize & (TABLE_LINES - 1),
    )
}

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
            let lines = self.table(index);
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

    /// Has all accesses to the line at `address` told from now on, since threads contend for it; what the thread
    /// did that has it for itself again, if one has.
    #[must_use]
    pub fn contend(&self, image: u32, address: u64) -> Option<Taken> {
        let (number, at) = place(address);
        // Two threads may have made a table for the same memory; one of the two is not used.
        (0..TABLES)
            .filter(|&index| {
                let entry = self.table_entry(index);
                entry.state.load(Ordering::Acquire) == USED
                    && entry.image.load(Ordering::Relaxed) == image
                    && entry.number.load(Ordering::Relaxed) as usize == number
            })
            .find_map(|index| self.table(index)?.line(at).contend(address & !63))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;

    #[derive(Default)]
    struct Halves(FirstHalf, SecondHalf);

    impl Halves {
        fn line(&self) -> Line<'_> {
            Line {
                first: &self.0,
                second: &self.1,
            }
        }
    }

    fn no() -> bool {
        false
    }

    /// A thread has made no accesses so far.
    fn never(_: u16) -> u64 {
        0
    }

    #[test]
    fn a_line_is_its_first_threads_own_until_another_comes_and_is_told_what_was_done() {
        let halves = Halves::default();
        let line = halves.line();
        assert!(matches!(
            line.touch(64, 3, 7, true, no, never),
            Touch::First
        ));
        assert!(matches!(line.touch(64, 3, 8, true, no, never), Touch::Own));
        let deed = words::deed(0, 8, words::meta(3, true));
        line.notes_of(3).unwrap().note(1, deed, 4);
        let Touch::Taken(taken) = line.touch(64, 5, 1, true, no, never) else {
            panic!("not taken");
        };
        let expected = Taken {
            owner: 3,
            again: false,
            line: 64,
            first: 7,
            quarters: [0, 4],
            last: [0, deed],
        };
        assert_eq!(taken, expected);
        assert!(matches!(
            line.touch(64, 3, 9, true, no, never),
            Touch::Shared
        ));
    }

    #[test]
    fn a_shared_line_is_own_again_after_touches_in_a_row_and_can_be_taken_for_good() {
        let halves = Halves::default();
        let line = halves.line();
        assert!(matches!(
            line.touch(64, 3, 1, true, no, never),
            Touch::First
        ));
        assert!(matches!(
            line.touch(64, 5, 1, true, no, never),
            Touch::Taken(_)
        ));
        for turn in 0..100 {
            let me = [3, 5][turn % 2];
            assert!(matches!(
                line.touch(64, me, 2, true, no, never),
                Touch::Shared
            ));
        }
        let shared = (0..100)
            .take_while(|_| matches!(line.touch(64, 3, 9, true, no, never), Touch::Shared))
            .count();
        assert_eq!(shared, TOUCHES_IN_A_ROW as usize);
        let deed = words::deed(0, 8, words::meta(3, false));
        line.notes_of(3).unwrap().note(0, deed, 4);
        let taken = line.contend(64).unwrap();
        assert_eq!((taken.owner, taken.first, taken.again), (3, 10, true));
        assert_eq!((taken.quarters, taken.last), ([4, 0], [deed, 0]));
        for _ in 0..100 {
            assert!(matches!(
                line.touch(64, 3, 9, true, no, never),
                Touch::Shared
            ));
        }
        assert!(line.contend(64).is_none());
    }

    #[test]
    fn the_late_note_of_an_interrupted_owner_does_not_reach_the_next_ones() {
        let halves = Halves::default();
        let line = halves.line();
        assert!(matches!(
            line.touch(64, 3, 1, true, no, never),
            Touch::First
        ));
        let late = line.notes_of(3).unwrap();
        assert!(matches!(
            line.touch(64, 5, 1, true, no, never),
            Touch::Taken(_)
        ));
        while !matches!(line.touch(64, 5, 9, true, no, never), Touch::Again) {}
        let deed = words::deed(0, 8, words::meta(3, true));
        line.notes_of(5).unwrap().note(1, deed, 4);
        late.note(1, words::deed(7, 16, words::meta(3, true)), 400);
        let Touch::Taken(taken) = line.touch(64, 3, 2, true, no, never) else {
            panic!("not taken");
        };
        assert_eq!((taken.quarters, taken.last), ([0, 4], [0, deed]));
    }

    #[test]
    fn a_line_that_nobody_stores_to_is_constant_and_each_threads_first_load_is_told() {
        let halves = Halves::default();
        let line = halves.line();
        assert!(matches!(
            line.touch(64, 3, 1, false, no, never),
            Touch::First
        ));
        line.notes_of(3)
            .unwrap()
            .note(0, words::deed(0, 8, words::meta(3, false)), 4);
        assert!(matches!(
            line.touch(64, 5, 1, false, no, never),
            Touch::Taken(_)
        ));
        for me in [3, 5] {
            assert!(matches!(
                line.touch(64, me, 2, false, no, never),
                Touch::Constant
            ));
        }
        assert!(matches!(
            line.touch(64, 9, 1, false, no, never),
            Touch::Shared
        ));
        assert!(matches!(
            line.touch(64, 9, 2, false, no, never),
            Touch::Constant
        ));
        assert!(matches!(
            line.touch(64, 9, 3, true, no, never),
            Touch::Shared
        ));
        assert!(matches!(
            line.touch(64, 5, 4, false, no, never),
            Touch::Shared
        ));
    }

    #[test]
    fn a_line_that_is_taken_by_who_died_is_told_for_good() {
        let halves = Halves::default();
        halves.0.state.store(BEING_TAKEN, Ordering::Relaxed);
        for _ in 0..100 {
            assert!(matches!(
                halves.line().touch(64, 3, 1, true, no, never),
                Touch::Shared
            ));
        }
    }

    #[test]
    fn who_touches_a_line_oftener_has_to_do_so_for_longer_the_more_often_others_come() {
        let halves = Halves::default();
        let line = halves.line();
        assert!(matches!(
            line.touch(64, 3, 1, true, no, never),
            Touch::First
        ));
        let mut touches = Vec::new();
        for _ in 0..4 {
            assert!(matches!(
                line.touch(64, 5, 1, true, no, never),
                Touch::Taken(_)
            ));
            let again = |_: &u64| matches!(line.touch(64, 3, 9, true, no, never), Touch::Again);
            touches.extend((1..1000).find(again));
        }
        assert_eq!(touches, [9, 17, 33, 65]);
    }

    #[test]
    fn a_line_that_its_owner_only_prepared_is_constant_as_well() {
        for (made, constant) in [(100 + LONG, true), (99, false)] {
            let halves = Halves::default();
            let line = halves.line();
            assert!(matches!(
                line.touch(64, 3, 64, true, no, never),
                Touch::First
            ));
            line.notes_of(3)
                .unwrap()
                .note(1, words::deed(1, 8, words::meta(3, true)), 4);
            let touch = line.touch(64, 5, 1, false, no, |_| made);
            assert!(matches!(touch, Touch::Taken(_)));
            let next = line.touch(64, 5, 2, false, no, never);
            assert_eq!(matches!(next, Touch::Constant), constant);
        }
    }

    #[test]
    fn what_is_to_be_told_whole_is_nobodys_own() {
        let (chosen, given_up) = (Halves::default(), Halves::default());
        let (chosen, given_up) = (chosen.line(), given_up.line());
        for _ in 0..100 {
            assert!(matches!(
                chosen.touch(0, 1, 0, true, || true, never),
                Touch::Shared
            ));
        }
        assert!(matches!(
            given_up.touch(0, 2, 0, true, no, never),
            Touch::First
        ));
        assert!(matches!(
            given_up.touch(0, 0, 0, true, || true, never),
            Touch::Taken(_)
        ));
        for _ in 0..100 {
            assert!(matches!(
                given_up.touch(0, 2, 1, true, no, never),
                Touch::Shared
            ));
        }
    }

    #[test]
    fn the_collector_takes_lines_that_the_target_has_again_and_frees_tables() {
        let region = Region::create().unwrap();
        let target = Region::open(std::path::Path::new(&region.path().unwrap())).unwrap();
        let address = 0x7000_1234_5678;
        let (number, at) = place(address);
        let line = target.claim_table(4, number).unwrap().line(at);
        line.touch(address & !63, 1, 0, true, no, never);
        line.touch(address & !63, 2, 0, true, no, never);
        while !matches!(
            line.touch(address & !63, 1, 7, true, no, never),
            Touch::Again
        ) {}
        assert!(region.contend(5, address).is_none(), "another space");
        let taken = region.contend(4, address).unwrap();
        assert_eq!((taken.line, taken.first), (address & !63, 8));
        region.free_tables(4);
        let again = target.claim_table(9, number).unwrap().line(at);
        assert!(matches!(
            again.touch(0, 3, 0, true, no, never),
            Touch::First
        ));
    }
}
