//! An access on its way to the measurements.

use linewise_cache::{Access, Kind};

use crate::access::TracedAccess;

/// What measurements need to know of an access: it goes through a queue and from one CPU to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    address: u64,
    site: u32,
    /// Accesses of the thread right before it that are not told.
    before: u32,
    /// See [`Step::time`].
    time: u32,
    thread: u16,
    size: u8,
    /// The kind, and above it the bits below.
    flags: u8,
}

const KIND: u8 = 3;
const LOOKED_AT: u8 = 1 << 2;
const OWN: u8 = 1 << 3;

impl Step {
    /// See [`Step::time`].
    pub(crate) const TIME_UNIT_NS: u64 = 64;

    /// The low bits of a time in ns, in units of [`Step::TIME_UNIT_NS`]: good for differences below four
    /// minutes.
    pub(crate) fn time_of(ns: u64) -> u32 {
        (ns / Self::TIME_UNIT_NS) as u32
    }

    /// When it was: see [`Step::time_of`].
    pub(crate) fn time(self) -> u32 {
        self.time
    }

    /// `looked_at`: trackers of reuse distances have to look at it.
    #[inline]
    pub(crate) fn new(access: &TracedAccess, looked_at: bool) -> Self {
        Self {
            address: access.address,
            site: access.site,
            before: access.before,
            time: Self::time_of(access.time_ns),
            thread: access.thread,
            // One access of the tracer, or the pieces of one of at most so many.
            size: access.size.min(u8::MAX.into()) as u8,
            flags: access.kind as u8 | if looked_at { LOOKED_AT } else { 0 },
        }
    }

    /// A thread's last load or store to a line that it had for itself: it is counted there.
    pub(crate) fn own(access: &TracedAccess) -> Self {
        let step = Self::new(access, false);
        Self {
            flags: step.flags | OWN,
            ..step
        }
    }

    /// The thread.
    #[inline]
    pub(crate) fn thread(self) -> u16 {
        self.thread
    }

    /// How many accesses of its thread it stands for: itself, and those before it that are not told. 0 if it
    /// is one of those.
    #[inline]
    pub(crate) fn stands_for(self) -> u32 {
        if self.flags & OWN != 0 {
            0
        } else {
            self.before.saturating_add(1)
        }
    }

    /// Whether trackers of reuse distances have to look at it.
    #[inline]
    pub(crate) fn looked_at(self) -> bool {
        self.flags & LOOKED_AT != 0
    }
}

impl From<Step> for Access {
    #[inline]
    fn from(step: Step) -> Self {
        Self {
            address: step.address,
            size: step.size.into(),
            kind: match step.flags & KIND {
                0 => Kind::Load,
                1 => Kind::Store,
                _ => Kind::Update,
            },
            thread: step.thread,
            site: step.site,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_access_that_it_was_made_of() {
        for kind in [Kind::Load, Kind::Store, Kind::Update] {
            for looked_at in [true, false] {
                let access = TracedAccess {
                    address: 0xffff_7fff_1234_5678,
                    time_ns: 640,
                    site: u32::MAX - 1,
                    size: 64,
                    thread: u16::MAX - 1,
                    kind,
                    before: 7,
                    orders: false,
                };
                let step = Step::new(&access, looked_at);
                assert_eq!(Access::from(step), access.access());
                assert_eq!(step.looked_at(), looked_at);
                assert_eq!((step.stands_for(), Step::own(&access).stands_for()), (8, 0));
                assert_eq!(step.thread(), access.thread);
                assert_eq!((step.time(), size_of::<Step>()), (10, 24));
            }
        }
    }
}
