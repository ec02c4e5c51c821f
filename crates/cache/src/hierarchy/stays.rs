//! Which moves of lines are true sharing: decided by what the core does while it has the line.
//!
//! ```text
//! a core stores ──► news of all others ── used by one of them ──► no news any more
//!                          │ used in this stay?
//!                          ▼
//!           the move that began the stay is true, else at its end false
//! ```
//!
//! A move is true if the core, before it loses the line again, uses bytes that another stored to
//! since it used them itself (M. Dubois, J. Skeppstedt, L. Ricciulli, K. Ramamurthy, P. Stenström,
//! *The Detection and Elimination of Useless Misses in Multiprocessors*, ISCA 1993, section 2: a
//! useless miss brings nothing that is used, and news that it brought in vain is news still).
//!
//! False is what would not be if words lay apart. Then each word of news would come by a move of its
//! own. So where a stay uses a word beside others that an earlier one brought in vain, that one was
//! not in vain: a thread that waits for a flag fetches the line when the other stores the word beside
//! it, and when it stores the flag, and would fetch both if they lay apart. As it was decided when it
//! ended, the next one like it is true instead.
//!
//! Only lines that moved are kept here, from their first move on.

use std::mem::{replace, take};

use super::lines::{Info, NONE};
use super::mask::Mask;
use super::outcome::{Party, Transfer};

/// A core's stay at a line, and what it does not know of it.
#[derive(Clone, Copy, Debug)]
struct Stay<M> {
    /// Bytes that others stored to since this core used them.
    news: M,
    /// The access whose core had the line ([`Info`]), and the one that fetched it.
    from: u64,
    to: u64,
    /// The next core of this line, or [`NONE`].
    next: u32,
    core: u8,
    from_core: u8,
    /// Why this stay waits for its verdict.
    open: u8,
    /// News that is as a stay that ended in vain brought it.
    vain: M,
    /// Words of news that this stay used, and those of them that were brought in vain before.
    used: u8,
    used_late: u8,
    /// Stays that were not in vain, and others are true for.
    surplus: u8,
}

/// Reasons why a stay waits for its verdict.
const MOVED: u8 = 1;
const MISSED: u8 = 2;
/// It has one, and began with a move.
const BROUGHT: u8 = 4;
/// At most so many are made up for: what one phase of a program leaves over says nothing of the next.
const MOST_SURPLUS: u8 = 8;

/// A line that moved.
#[derive(Clone, Copy, Debug)]
struct Moved<M> {
    number: u64,
    /// Bytes that any core stored to.
    stored: M,
    /// The first of its cores.
    first: u32,
}

/// What is now known of a stay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    number: u64,
    from: u64,
    to: u64,
    core: u8,
    from_core: u8,
    open: u8,
    /// Whether news was used.
    pub(super) is_true: bool,
}

impl Verdict {
    /// The transfer that began the stay, if one did; the line has `1 << line_shift` bytes.
    pub(super) fn transfer(&self, line_shift: u32) -> Option<Transfer> {
        (self.open & MOVED != 0).then(|| Transfer {
            line: self.number << line_shift,
            from: Info::party(self.from_core, self.from),
            to: Info::party(self.core, self.to),
            is_true: self.is_true,
        })
    }

    /// Thread and site of the sharing miss that began the stay, if one did.
    pub(super) fn miss(&self) -> Option<(u16, u32)> {
        (self.open & MISSED != 0).then(|| (Info::thread(self.to), Info::site(self.to)))
    }
}

/// What began a stay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch {
    /// Who had the line, if it came from another core's private cache.
    pub(super) from: Option<Party>,
    /// The access that fetches it ([`Info`]).
    pub(super) to: u64,
    /// Whether the core had the line before and lost it.
    pub(super) is_sharing_miss: bool,
}

/// The lines that moved. They take memory as they do so, which [`Stays::bytes`] tells.
#[derive(Clone, Debug)]
pub(super) struct Stays<M> {
    lines: Vec<Moved<M>>,
    stays: Vec<Stay<M>>,
    verdicts: Vec<Verdict>,
}

impl<M: Mask> Stays<M> {
    pub(super) fn new() -> Self {
        Self {
            lines: Vec::new(),
            stays: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    /// Keeps a line from now on, which one core stored to so far; its handle.
    pub(super) fn begin(&mut self, number: u64, core: usize, stored: M) -> u32 {
        self.lines.push(Moved {
            number,
            stored: M::default(),
            first: NONE,
        });
        let line = (self.lines.len() - 1) as u32;
        self.did(line, core, stored, stored);
        line
    }

    /// A core gets the line. What others did to it is known by now.
    pub(super) fn open(&mut self, line: u32, core: usize, fetch: &Fetch) {
        let at = self.of(line, core);
        let stay = &mut self.stays[at];
        debug_assert_eq!(
            stay.open & !BROUGHT,
            0,
            "a stay ends before the next begins"
        );
        stay.open = if fetch.is_sharing_miss { MISSED } else { 0 };
        stay.to = fetch.to;
        if let Some(from) = &fetch.from {
            stay.open |= MOVED;
            stay.from_core = from.core as u8;
            stay.from = Info::of(from);
        }
    }

    /// A core touched and stored to these bytes of a line that it has.
    pub(super) fn did(&mut self, line: u32, core: usize, touched: M, stored: M) {
        let at = self.of(line, core);
        let stay = &mut self.stays[at];
        let (words, whole) = (stay.news & touched).words();
        let (late, _) = (stay.vain & whole).words();
        stay.used += words as u8;
        stay.used_late += late as u8;
        stay.news = stay.news.without(touched | whole);
        stay.vain = stay.vain & stay.news;
        if words > 0 && stay.open & (MOVED | MISSED) != 0 {
            self.decide(line, at, true);
        }
        if stored.is_empty() {
            return;
        }
        self.lines[line as usize].stored |= stored;
        let mut other = self.lines[line as usize].first;
        while let Some(stay) = self.stays.get_mut(other as usize) {
            if other as usize != at {
                stay.news |= stored;
                stay.vain = stay.vain.without(stored);
            }
            other = stay.next;
        }
    }

    /// A core has the line no more. What it did is known.
    pub(super) fn end(&mut self, line: u32, core: usize) {
        let at = self.of(line, core);
        self.end_at(line, at);
    }

    /// Ends all stays: those that nothing was used in are false. What all cores did is known.
    pub(super) fn finish(&mut self) {
        for line in 0..self.lines.len() {
            let mut at = self.lines[line].first;
            while let Some(stay) = self.stays.get(at as usize) {
                let next = stay.next;
                self.end_at(line as u32, at as usize);
                at = next;
            }
        }
    }

    /// Forgets all lines; their stays have ended.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.stays.clear();
    }

    /// What was decided since the last call.
    pub(super) fn next_verdict(&mut self) -> Option<Verdict> {
        self.verdicts.pop()
    }

    /// The memory of the lines.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of_val(&*self.stays)
    }

    fn end_at(&mut self, line: u32, at: usize) {
        let stay = &mut self.stays[at];
        let (used, late) = (take(&mut stay.used), take(&mut stay.used_late));
        if stay.open & MOVED != 0 {
            let is_paid = stay.surplus > 0;
            stay.surplus -= u8::from(is_paid);
            stay.vain |= stay.news;
            self.decide(line, at, is_paid);
        } else if stay.open & MISSED != 0 {
            self.decide(line, at, false);
        } else if stay.open & BROUGHT != 0 {
            stay.surplus = (stay.surplus + late.min(used - 1)).min(MOST_SURPLUS);
        }
        self.stays[at].open = 0;
    }

    fn decide(&mut self, line: u32, at: usize, is_true: bool) {
        let stay = &mut self.stays[at];
        let brought = if stay.open & MOVED != 0 { BROUGHT } else { 0 };
        self.verdicts.push(Verdict {
            number: self.lines[line as usize].number,
            from: stay.from,
            to: stay.to,
            core: stay.core,
            from_core: stay.from_core,
            open: replace(&mut stay.open, brought),
            is_true,
        });
    }

    /// Where a core's stay at a line is; to one that was never here all that was stored is news.
    fn of(&mut self, line: u32, core: usize) -> usize {
        let new = self.stays.len() as u32;
        let moved = &mut self.lines[line as usize];
        let mut at = moved.first;
        while let Some(stay) = self.stays.get(at as usize) {
            if usize::from(stay.core) == core {
                return at as usize;
            }
            at = stay.next;
        }
        self.stays.push(Stay {
            news: moved.stored,
            from: 0,
            to: 0,
            next: replace(&mut moved.first, new),
            core: core as u8,
            from_core: 0,
            open: 0,
            vain: M::default(),
            used: 0,
            used_late: 0,
            surplus: 0,
        });
        new as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 0xff;
    const OTHERS: u64 = 0xff00;

    fn fetch(from: u16) -> Fetch {
        let from = Party {
            core: from,
            thread: from,
            site: 7,
            bytes: (0, 7),
        };
        Fetch {
            from: Some(from),
            to: Info::pack(9, 1, 8, 15),
            is_sharing_miss: true,
        }
    }

    /// What was decided, in its order.
    fn decided(stays: &mut Stays<u64>) -> Vec<bool> {
        let verdicts = std::iter::from_fn(|| stays.next_verdict());
        let mut verdicts: Vec<bool> = verdicts.map(|verdict| verdict.is_true).collect();
        verdicts.reverse();
        verdicts
    }

    #[test]
    fn a_stay_is_true_as_soon_as_news_is_used_and_false_when_it_ends_without() {
        let mut stays = Stays::new();
        let line = stays.begin(5, 0, OTHERS);
        stays.open(line, 1, &fetch(0));
        stays.did(line, 1, OWN, OWN);
        assert!(decided(&mut stays).is_empty());
        stays.did(line, 1, OTHERS, 0);
        assert_eq!(decided(&mut stays), [true]);
        stays.end(line, 1);
        assert!(decided(&mut stays).is_empty(), "decided once");
        stays.open(line, 0, &fetch(1));
        stays.did(line, 0, OTHERS, OTHERS);
        stays.end(line, 0);
        assert_eq!(decided(&mut stays), [false]);
    }

    #[test]
    fn what_was_brought_in_vain_is_news_still_and_what_was_used_is_none() {
        let mut stays = Stays::new();
        let line = stays.begin(5, 0, OTHERS);
        // The other stored once; its own word brings core 1 back again and again.
        for round in 0..3 {
            stays.open(line, 1, &fetch(0));
            stays.did(line, 1, OWN, OWN);
            if round == 2 {
                stays.did(line, 1, OTHERS, 0);
            }
            stays.end(line, 1);
        }
        assert_eq!(decided(&mut stays), [false, false, true]);
        stays.open(line, 1, &fetch(0));
        stays.did(line, 1, OTHERS, 0);
        stays.finish();
        assert_eq!(decided(&mut stays), [false]);
    }

    #[test]
    fn a_word_that_was_brought_in_vain_and_is_used_beside_another_would_have_come_by_itself() {
        let mut stays = Stays::new();
        let line = stays.begin(5, 0, 0);
        for _ in 0..3 {
            // The other stores a word, is looked at in vain, and stores the flag beside it.
            stays.did(line, 0, OTHERS, OTHERS);
            stays.open(line, 1, &fetch(0));
            stays.did(line, 1, OWN, 0);
            stays.end(line, 1);
            stays.did(line, 0, OWN, OWN);
            stays.open(line, 1, &fetch(0));
            stays.did(line, 1, OWN, 0);
            stays.did(line, 1, OTHERS, 0);
            stays.end(line, 1);
        }
        assert_eq!(decided(&mut stays), [false, true, true, true, true, true]);
        // What comes in whole at once does not.
        stays.did(line, 0, u64::MAX, u64::MAX);
        stays.open(line, 1, &fetch(0));
        stays.did(line, 1, u64::MAX, 0);
        stays.end(line, 1);
        for _ in 0..20 {
            stays.open(line, 1, &fetch(0));
            stays.end(line, 1);
        }
        // The last turn's second word was left over.
        let paid = decided(&mut stays).iter().filter(|&&it| it).count();
        assert_eq!(paid, 1 + 1);
    }

    #[test]
    fn a_verdict_names_both_accesses() {
        let mut stays = Stays::new();
        let line = stays.begin(5, 3, OTHERS);
        stays.open(line, 1, &fetch(3));
        stays.finish();
        let verdict = stays.next_verdict().unwrap();
        let transfer = verdict.transfer(6).unwrap();
        assert_eq!(transfer.line, 320);
        assert_eq!((transfer.from.core, transfer.from.site), (3, 7));
        assert_eq!((transfer.to.core, transfer.to.bytes), (1, (8, 15)));
        assert_eq!(verdict.miss(), Some((1, 9)));
    }
}
