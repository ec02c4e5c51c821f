//! Which thread has which line for itself.
//!
//! ```text
//!              first touch                  touch by another
//!   untouched ─────────────► own of thread ◄────────────────► shared
//!                                           touches in a row
//! ```
//!
//! A line that nobody stored to, or only its owner and long before, is *constant* when a second thread loads it, and a
//! shared line is when it is loaded long after the last store or the first load since. Of
//! its loads the first of each thread is told; all others are hits. A store makes it shared.
//!
//! As long as one thread alone touches a line, nothing that it does there can be told from a hit in its
//! core's cache, in whatever order threads are brought. So its accesses are not told one by one but noted
//! in the line's word here: how many, the first, the last load and the last store. Whoever takes the line
//! from it tells that ([`Taken`]), and from then on all accesses to it are told, until one thread has made
//! [`TOUCHES_IN_A_ROW`] of them: it has the line for itself again.
//!
//! The tables are filled as memory is touched, half as large as that and as much again where threads share
//! lines. A page that is unmapped and mapped anew keeps its state, as its lines do in the simulated caches.
//! A child of fork has tables of its own.
//!
//! No lock: a state changes by compare-and-swap. An owner notes without one, so an access that it
//! makes in the very moment in which another takes the line may be missing from what is told. An owner that is
//! interrupted in that moment writes its note when it goes on, which may be much later: so the notes of owners that
//! follow each other have two places, in turn.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::words::{ADDRESS_BITS, NUMBER_BITS, Taken, deed_number};

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
/// A thread's accesses after its last store to a line that it only prepared for others: more than it makes in a slice
/// of the machine's time, in which others could not be at the line.
const LONG: u64 = 1 << 19;
/// In the order that is made: what its owner has not touched for so many accesses it has done with, and whoever takes it has it
/// for itself at once.
const OLD: u64 = 1 << 10;
/// Lines that are handed over together where that is so: a page.
const TOGETHER: u64 = 1 << 12;
/// In [`SecondHalf::touched`].
const DOUBLINGS_SHIFT: u32 = 48;
const TOUCHED_BY_SHIFT: u32 = 32;

/// Threads that may have lines for themselves; the numbers above mean something else in the shadow.
pub(crate) const MOST_OWNERS: u16 = u16::MAX - 2;
/// In the place of an owner.
const SHARED: u16 = MOST_OWNERS + 1;
const UNTOUCHED: u64 = 0;
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
    /// Loads, and stores and updates, in quarters of an access as far as they are counted, and above them the parts of the line that
    /// they touched ([`words::granules`]).
    did: [AtomicU32; 2],
    last: [AtomicU64; 2],
}

const GRANULES_SHIFT: u32 = 16;
const COUNT: u32 = (1 << GRANULES_SHIFT) - 1;

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

/// What a line does not know of who touches it.
pub(crate) trait Others {
    /// All accesses to the line are told for good.
    fn want_all(&self) -> bool {
        false
    }

    /// How many accesses a thread has made, or somewhat less.
    fn made(&self, owner: u16) -> u64;

    /// In the order that is made: whether all other threads could have come to the line lately, had they wanted it.
    fn had_time(&self) -> bool {
        true
    }

    /// There: at which of its accesses who takes the line asked for it, if it had to.
    fn asked(&self) -> Option<u64> {
        None
    }
}

/// Which table is where: one of these for each.
#[repr(C)]
pub(crate) struct TableEntry {
    pub(crate) state: AtomicU32,
    pub(crate) image: AtomicU32,
    /// The upper bits of the addresses that it is for.
    pub(crate) number: AtomicU32,
}

impl Table {
    /// Whether anything was written to the first half of a line.
    pub(crate) fn has(&self, at: usize) -> bool {
        const PAGE: usize = 4096;
        let page = (ptr::from_ref(&self.first[at]) as usize) & !(PAGE - 1);
        let mut resident = 0u8;
        // SAFETY: a page of this table; one byte for it.
        let failed = unsafe { libc::mincore(page as *mut _, PAGE, &mut resident) } != 0;
        failed || resident & 1 != 0
    }

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
        is_constant(self.first.state.load(Ordering::Relaxed))
            && self.second.touched.load(Ordering::Relaxed) & bit(thread) != 0
    }

    /// Which thread has the line for itself, if it is another than `me`.
    pub(crate) fn owner_beside(self, me: u16) -> Option<u16> {
        let owner = (self.state_when_taken() >> OWNER_SHIFT) as u16;
        (!matches!(owner, 0 | SHARED) && owner != me).then_some(owner)
    }

    /// Whether all accesses to it are told for good.
    pub(crate) fn is_told(self) -> bool {
        self.first.state.load(Ordering::Relaxed) == TOLD
    }

    /// Whether threads load it without telling.
    pub(crate) fn is_constant(self) -> bool {
        is_constant(self.first.state.load(Ordering::Relaxed))
    }

    /// Thread `me` touches the line that begins at `address`, with its access of this number, which may be
    /// a store. With 0 for `me` it is nobody's touch.
    #[cold]
    pub(crate) fn touch(
        self,
        address: u64,
        me: u16,
        number: u64,
        store: bool,
        others: &impl Others,
    ) -> Touch {
        let number = number & NUMBER;
        let mine = u64::from(me) << OWNER_SHIFT;
        loop {
            let state = self.state_when_taken();
            let owner = (state >> OWNER_SHIFT) as u16;
            let (new, touch) = if state == UNTOUCHED {
                if me == 0 || others.want_all() {
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
                } else if is_constant(state) && !store {
                    return match self.is_known_to(me) {
                        true => Touch::Constant,
                        false => Touch::Shared,
                    };
                } else if is_constant(state) {
                    self.second
                        .touched
                        .store(u64::from(me) << TOUCHED_BY_SHIFT, Ordering::Relaxed);
                    self.remember(state, 0, mark(me, number));
                    (MAY_BE_OWN | state & SECOND, Touch::Shared)
                } else if state & !SECOND == MAY_BE_OWN && self.is_in_a_row(me, others) {
                    let second = !state & SECOND;
                    self.clear(second);
                    (
                        mine | AGAIN | second | ((number + 1) & NUMBER),
                        Touch::Again,
                    )
                } else if store {
                    self.remember_store(state, me, number, others);
                    return Touch::Shared;
                } else if self.is_loaded_for_long(state, me, number, others) {
                    self.second.touched.store(bit(me), Ordering::Relaxed);
                    (CONSTANT | state & SECOND, Touch::Shared)
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
                    _ if !store && taken.was_stored_long_before(others.made(owner)) => {
                        (CONSTANT | state & SECOND, bit(me) | bit(owner))
                    }
                    false => (MAY_BE_OWN | state & SECOND, by_me),
                    true => (
                        MAY_BE_OWN | state & SECOND,
                        self.doublings(&taken, others) << DOUBLINGS_SHIFT | by_me,
                    ),
                };
                self.second.touched.store(touched, Ordering::Relaxed);
                match (store, taken.stored()) {
                    (true, _) => self.remember(state, 0, mark(me, number)),
                    (false, Some(by)) => self.remember(state, mark(me, number), mark(owner, by)),
                    (false, None) => self.remember(state, mark(owner, taken.first), 0),
                }
                // Unless it took too long.
                self.change(BEING_TAKEN, new);
                return Touch::Taken(taken);
            };
            if self.change(state, new) {
                return touch;
            }
        }
    }

    /// In the order that is made: thread `me`, which just took the line with its access of this number, has it for itself.
    pub(crate) fn keep(self, me: u16, number: u64) -> bool {
        let state = self.first.state.load(Ordering::Acquire);
        if state & !SECOND != MAY_BE_OWN {
            return false;
        }
        let second = !state & SECOND;
        self.clear(second);
        let mine = u64::from(me) << OWNER_SHIFT;
        self.change(state, mine | AGAIN | second | ((number + 1) & NUMBER))
    }

    /// There: if the line that begins at `address` is `owner`'s, who has done with it, it is constant, or shared and `me`'s from its
    /// next touch on; what its owner did.
    pub(crate) fn hand_over(self, address: u64, owner: u16, me: u16, number: u64) -> Option<Taken> {
        let state = self.first.state.load(Ordering::Acquire);
        if (state >> OWNER_SHIFT) as u16 != owner || !self.taken(address, state).is_old(number) {
            return None;
        }
        let taken = self.take(address, state)?;
        let (touched, new) = match taken.was_stored_long_before(number) {
            true => (bit(owner), CONSTANT),
            false => (
                u64::from(me) << TOUCHED_BY_SHIFT | (TOUCHES_IN_A_ROW - 1),
                MAY_BE_OWN,
            ),
        };
        self.second.touched.store(touched, Ordering::Relaxed);
        let stored = taken.stored().map_or(0, |by| mark(owner, by));
        self.remember(state, mark(owner, taken.first), stored);
        self.change(BEING_TAKEN, new | state & SECOND);
        Some(taken)
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
    fn is_in_a_row(self, me: u16, others: &impl Others) -> bool {
        let touched = self.second.touched.load(Ordering::Relaxed);
        let doublings = touched >> DOUBLINGS_SHIFT;
        let touched = if (touched >> TOUCHED_BY_SHIFT) as u16 == me {
            touched + 1
        } else {
            doublings << DOUBLINGS_SHIFT | u64::from(me) << TOUCHED_BY_SHIFT
        };
        let row = u64::from(touched as u32);
        let enough = row >= TOUCHES_IN_A_ROW << doublings.min(MOST_DOUBLINGS);
        let had_time = !enough || others.had_time();
        let touched = if had_time { touched } else { touched - row };
        self.second.touched.store(touched, Ordering::Relaxed);
        enough && had_time
    }

    /// Remembers of a shared line the first load since the last store, and that store; either may be 0. They stand in
    /// the place of notes that the last owner had: another thread may have the line again before this is written, and
    /// notes in the other place.
    fn remember(self, state: u64, load: u64, store: u64) {
        let [loaded, stored] = &self.notes(state).last;
        loaded.store(load, Ordering::Relaxed);
        stored.store(store, Ordering::Relaxed);
    }

    /// Remembers a store to a shared line, unless it follows another that is remembered: threads that contend for it
    /// should not contend for this as well.
    fn remember_store(self, state: u64, me: u16, number: u64, others: &impl Others) {
        let [loaded, stored] = &self.notes(state).last;
        let last = stored.load(Ordering::Relaxed);
        let follows = last != 0 && since(last, me, number, others) < LONG / 8;
        if !follows || loaded.load(Ordering::Relaxed) != 0 {
            self.remember(state, 0, mark(me, number));
        }
    }

    /// Whether a shared line, which is loaded, was last stored to [long](LONG) before, or has been loaded for long since.
    fn is_loaded_for_long(self, state: u64, me: u16, number: u64, others: &impl Others) -> bool {
        let [loaded, stored] = &self.notes(state).last;
        let (load, store) = (
            loaded.load(Ordering::Relaxed),
            stored.load(Ordering::Relaxed),
        );
        if load == 0 {
            loaded.store(mark(me, number), Ordering::Relaxed);
        }
        [load, store]
            .into_iter()
            .any(|mark| mark != 0 && since(mark, me, number, others) >= LONG)
    }

    /// How often [`TOUCHES_IN_A_ROW`] is doubled, when this is taken from a thread that had the line again.
    fn doublings(self, taken: &Taken, others: &impl Others) -> u64 {
        let before = self.second.touched.load(Ordering::Relaxed) >> DOUBLINGS_SHIFT;
        let quarters = u64::from(taken.quarters[0]) + u64::from(taken.quarters[1]);
        let until_asked = others.asked().map(|at| at.saturating_sub(taken.first));
        match (quarters / 4).min(until_asked.unwrap_or(u64::MAX)) < WORTH_IT {
            true => (before + 1).min(MOST_DOUBLINGS),
            false => before.saturating_sub(1),
        }
    }

    /// Empties the place of notes that is next.
    fn clear(self, second: u64) {
        let notes = self.notes(second);
        for did in &notes.did {
            did.store(0, Ordering::Relaxed);
        }
        for last in &notes.last {
            last.store(0, Ordering::Relaxed);
        }
    }

    /// What the owner did.
    fn taken(self, address: u64, state: u64) -> Taken {
        let notes = self.notes(state);
        let did = notes.did.each_ref().map(|it| it.load(Ordering::Relaxed));
        Taken {
            owner: (state >> OWNER_SHIFT) as u16,
            again: state & AGAIN != 0,
            line: address,
            first: state & NUMBER,
            quarters: did.map(|it| it as u16),
            granules: did.map(|it| (it >> GRANULES_SHIFT) as u16),
            last: notes.last.each_ref().map(|it| it.load(Ordering::Relaxed)),
        }
    }
}

impl Notes {
    /// Notes an access of the owner to these parts of the line; `store` is 0 or 1.
    #[inline(always)]
    pub(crate) fn note(&self, store: usize, deed: u64, quarters: u32, granules: u16) {
        let did = &self.did[store];
        let before = did.load(Ordering::Relaxed);
        let count = ((before & COUNT) + quarters).min(COUNT);
        let granules = u32::from(granules) << GRANULES_SHIFT;
        did.store(before & !COUNT | granules | count, Ordering::Relaxed);
        self.last[store].store(deed, Ordering::Relaxed);
    }

    /// Notes that an update loaded these as well.
    #[inline(always)]
    pub(crate) fn note_loaded(&self, granules: u16) {
        let did = &self.did[0];
        let granules = u32::from(granules) << GRANULES_SHIFT;
        did.store(did.load(Ordering::Relaxed) | granules, Ordering::Relaxed);
    }
}

impl Taken {
    /// Whether nobody stored to the line in the last [`LONG`] accesses of `made` that the owner has made: before it
    /// had it again another may have.
    fn was_stored_long_before(&self, made: u64) -> bool {
        match self.stored() {
            Some(number) => made >= number + LONG,
            None => !self.again || made >= self.first + LONG,
        }
    }

    /// Whether its owner has done with it, at this time in the order that is made.
    pub(crate) fn is_old(&self, number: u64) -> bool {
        let last = self.last.iter().filter(|&&deed| deed != 0);
        let last = last.map(|&deed| deed_number(deed, self.first)).max();
        number >= last.unwrap_or(self.first) + OLD
    }

    /// The lines of the page of the one that was taken.
    pub(crate) fn neighbours(&self) -> impl Iterator<Item = u64> + use<> {
        let page = self.line & !(TOGETHER - 1);
        let line = self.line;
        (page..page + TOGETHER)
            .step_by(1 << LINE_BITS)
            .filter(move |&it| it != line)
    }

    /// The number of the owner's last store, or a little less.
    fn stored(&self) -> Option<u64> {
        let [_, store] = self.last;
        (store != 0).then(|| deed_number(store, self.first))
    }
}

/// A thread's access of this number.
fn mark(thread: u16, number: u64) -> u64 {
    u64::from(thread) << OWNER_SHIFT | number & NUMBER
}

/// How many accesses the thread of a mark has made since; `me` is at this number.
fn since(mark: u64, me: u16, number: u64, others: &impl Others) -> u64 {
    let who = (mark >> OWNER_SHIFT) as u16;
    let made = if who == me { number } else { others.made(who) };
    made.saturating_sub(mark & NUMBER)
}

#[inline(always)]
fn is_constant(state: u64) -> bool {
    state & !SECOND == CONSTANT
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

#[cfg(test)]
mod tests;
