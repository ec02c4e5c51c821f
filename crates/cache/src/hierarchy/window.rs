//! Which lines a fully-associative LRU cache would hold, in a few instructions an access.
//!
//! ```text
//!  slot   tail ..................................... now
//!  live    .  x  .  .  x  x  .  x  .  .  .  x  x       x: the last access to some line
//!  line    a  b  a  c  d  e  c  a  ...
//! ```
//!
//! Every access takes the next slot. The slot of a line's *last* access is live, all others are
//! stale, so the live slots from the newest to the oldest are Mattson's LRU stack (Mattson,
//! Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies", 1970). The window is
//! cut at `tail` so that at most `capacity` slots are live. A line is in the cache if and only if
//! its last slot is not before `tail`: a comparison, where a linked list needs a hash look-up and
//! three cache misses. Whoever owns the window stores each line's last slot and hands it back.

/// The window. Slots are numbered from 1 and only grow; a line never seen has slot 0.
#[derive(Clone, Debug)]
pub(super) struct Window {
    live: Vec<u64>,
    lines: Vec<u32>,
    slot_mask: u64,
    now: u64,
    tail: u64,
    count: u64,
    capacity: u64,
    /// Room to work in.
    kept: Vec<u32>,
}

impl Window {
    /// The window of a cache that holds `capacity` lines.
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            live: vec![0; 1],
            lines: vec![0; 64],
            slot_mask: 63,
            now: 1,
            tail: 1,
            count: 0,
            capacity,
            kept: Vec::new(),
        }
    }

    /// Whether the line that was last accessed in `slot` is in the cache.
    #[inline]
    pub(super) fn holds(&self, slot: u64) -> bool {
        slot >= self.tail
    }

    /// Whether the window must be compacted before the next [`touch`](Self::touch).
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.now - self.tail > self.slot_mask
    }

    /// Accesses `line`, whose last slot was `slot`; its new slot. The window must not be full.
    #[inline]
    pub(super) fn touch(&mut self, slot: u64, line: u32) -> u64 {
        debug_assert!(!self.is_full());
        if slot >= self.tail {
            self.clear(slot);
        } else if self.count == self.capacity {
            self.drop_oldest();
        } else {
            self.count += 1;
        }
        let new = self.now;
        let place = new & self.slot_mask;
        self.live[(place >> 6) as usize] |= 1 << (place & 63);
        self.lines[place as usize] = line;
        self.now += 1;
        new
    }

    /// Takes the line whose last slot is `slot` out of the cache, if it is there.
    pub(super) fn remove(&mut self, slot: u64) {
        if slot >= self.tail {
            self.clear(slot);
            self.count -= 1;
        }
    }

    /// Sees to it that the cache has room for this many lines besides those of the window.
    #[inline]
    pub(super) fn leave_room(&mut self, lines: u64) {
        while self.count + lines > self.capacity {
            self.drop_oldest();
            self.count -= 1;
        }
    }

    /// Makes room: accesses all lines of the cache again in their order. `moved` is told each
    /// line's new slot, the least recent first.
    #[cold]
    pub(super) fn compact(&mut self, mut moved: impl FnMut(u32, u64)) {
        let mut kept = std::mem::take(&mut self.kept);
        kept.clear();
        let mut slot = self.tail;
        while slot < self.now {
            let place = slot & self.slot_mask;
            let word = self.live[(place >> 6) as usize] >> (place & 63);
            if word == 0 {
                // To the next word; the window is a whole number of them.
                slot = (slot | 63) + 1;
            } else {
                slot += u64::from(word.trailing_zeros());
                if slot < self.now {
                    kept.push(self.lines[(slot & self.slot_mask) as usize]);
                }
                slot += 1;
            }
        }
        // At least three times as many slots as lines: what this costs for each line, two accesses or
        // more share. A large cache that holds few lines stays small.
        let slots = (kept.len() as u64 * 3).next_power_of_two();
        self.slot_mask = self.slot_mask.max(slots.wrapping_sub(1));
        self.live.clear();
        self.live.resize((self.slot_mask / 64 + 1) as usize, 0);
        self.lines.resize((self.slot_mask + 1) as usize, 0);
        self.tail = self.now;
        for &line in &kept {
            let place = self.now & self.slot_mask;
            self.live[(place >> 6) as usize] |= 1 << (place & 63);
            self.lines[place as usize] = line;
            moved(line, self.now);
            self.now += 1;
        }
        self.kept = kept;
    }

    #[inline]
    fn clear(&mut self, slot: u64) {
        let place = slot & self.slot_mask;
        self.live[(place >> 6) as usize] &= !(1 << (place & 63));
    }

    #[inline]
    fn drop_oldest(&mut self) {
        let mut place = self.tail & self.slot_mask;
        let mut word = self.live[(place >> 6) as usize] & (!0 << (place & 63));
        let start = place;
        while word == 0 {
            place = ((place | 63) + 1) & self.slot_mask;
            word = self.live[(place >> 6) as usize];
        }
        place = (place & !63) + u64::from(word.trailing_zeros());
        self.live[(place >> 6) as usize] &= !(1 << (place & 63));
        self.tail += (place.wrapping_sub(start) & self.slot_mask) + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_window_holds_what_an_lru_list_holds(
            capacity in 1u64..40,
            operations in prop::collection::vec((0u32..60, 0u8..20), 1..2000),
        ) {
            let mut window = Window::new(capacity);
            let mut slots = [0u64; 60];
            let mut list: Vec<u32> = Vec::new();
            for (line, operation) in operations {
                prop_assert_eq!(window.holds(slots[line as usize]), list.contains(&line));
                list.retain(|&other| other != line);
                if operation == 0 {
                    window.remove(slots[line as usize]);
                    slots[line as usize] = 0;
                } else {
                    if window.is_full() {
                        window.compact(|line, slot| slots[line as usize] = slot);
                    }
                    slots[line as usize] = window.touch(slots[line as usize], line);
                    list.push(line);
                    if list.len() as u64 > capacity {
                        list.remove(0);
                    }
                }
            }
        }
    }
}
