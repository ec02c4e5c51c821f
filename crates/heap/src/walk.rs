//! A walk up the stack by the collector's rules.

use crate::{Cursor, MOST_FRAMES, Region};

/// A stack as far as it could be walked.
#[derive(Clone, Debug)]
pub struct Walked {
    frames: [u64; MOST_FRAMES],
    count: usize,
    /// A hash of the frames, top bit clear.
    pub key: u64,
    /// Where the walk went no further for want of a rule.
    pub missing: Option<Cursor>,
}

impl Walked {
    /// Walks up from `at` in a set of loaded code. `read` reads a word of the stack, and knows its bounds.
    #[inline]
    pub fn up(
        region: &Region,
        layout: u32,
        at: Cursor,
        mut read: impl FnMut(u64) -> Option<u64>,
    ) -> Self {
        let mut at = at;
        let mut walked = Self {
            frames: [0; MOST_FRAMES],
            count: 0,
            key: u64::from(layout) << 1 | 1,
            missing: None,
        };
        while walked.count < MOST_FRAMES {
            let Some(rule) = region.rule(layout, at.ip) else {
                walked.missing = Some(at);
                break;
            };
            walked.push(at.ip);
            match rule.step(at, &mut read) {
                Some(caller) => at = caller,
                None => break,
            }
        }
        walked
    }

    /// The return addresses, innermost first.
    #[must_use]
    pub fn frames(&self) -> &[u64] {
        self.frames.get(..self.count).unwrap_or_default()
    }

    fn push(&mut self, ip: u64) {
        if let Some(place) = self.frames.get_mut(self.count) {
            *place = ip;
            self.count += 1;
            let mixed = (self.key ^ ip).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.key = mixed.rotate_left(23) & u64::MAX >> 1 | 1;
        }
    }

    /// Makes do with the frames that were walked, and the one that there is no rule for.
    pub fn end(&mut self) {
        if let Some(at) = self.missing.take() {
            self.push(at.ip);
        }
    }
}
