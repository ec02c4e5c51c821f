//! Accesses that the emulator makes in pieces, and the load and store of an update.

use linewise_cache::Kind;
use linewise_trace::TracedAccess;
use linewise_tracer::{Ring, words};

use super::code::{NO_SITE, Slot};

/// The words of a ring behind an access, up to `head`.
pub(super) struct Pieces<'a> {
    pub(super) ring: &'a Ring,
    pub(super) next: u64,
    pub(super) head: u64,
    /// That of the access.
    pub(super) bank: u32,
}

impl Pieces<'_> {
    /// Joins to an access, which was `word`, what the emulator made further accesses of; how many
    /// words that are. `None` if more of it may come, and nothing is joined.
    ///
    /// A mark between pieces is passed over: it would put them under another stamp, behind what
    /// another thread did in the middle of this access.
    #[inline(always)]
    pub(super) fn join(&self, access: &mut TracedAccess, word: u64, slot: Slot) -> Option<u64> {
        let wide = u16::from(slot.wide);
        let mut size = access.size;
        let mut next = self.next;
        while size < wide && !(slot.updates && access.kind == Kind::Load) {
            let mut at = next;
            if at == self.head {
                return None;
            }
            let mut piece = self.ring.word(at);
            let is_mark = words::tag(piece) == words::MARK && words::mark_bank(piece) == self.bank;
            if is_mark && at + 1 < self.head {
                at += 1;
                piece = self.ring.word(at);
            }
            let follows = words::tag(piece) < words::MARK
                && words::slot_in_bank(piece) == words::slot_in_bank(word)
                && words::is_store(piece) == words::is_store(word)
                && words::address(piece) == words::address(word) + u64::from(size)
                && size + words::size(piece) <= wide;
            if !follows {
                break;
            }
            size += words::size(piece);
            next = at + 1;
        }
        access.size = size;
        Some(next - self.next)
    }
}

/// What becomes of an access that is not simply handed on.
pub(super) enum Special {
    One(TracedAccess),
    /// The load of an update, whose store follows.
    PartOfUpdate,
    /// Its instruction was never described.
    Unexplained,
}

/// Makes one access of an instruction's several, or none.
#[inline(always)]
pub(super) fn special(mut access: TracedAccess, slot: Slot) -> Special {
    if slot.updates {
        // Its store follows, or stands for both.
        if access.kind == Kind::Load {
            return Special::PartOfUpdate;
        }
        access.kind = Kind::Update;
    }
    if slot.site == NO_SITE {
        return Special::Unexplained;
    }
    Special::One(access)
}
