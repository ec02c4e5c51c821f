//! The order in which a group's lines were last used, as bits on a time line.
//!
//! Every use takes the next slot and sets its bit; the line's earlier slot loses its bit. The bits
//! behind a slot are the lines used since, which is the stack distance (Bennett, Kruskal: LRU
//! stack processing, 1975). Counting them reads one word of bits and a few counters:
//!
//! ```text
//! bits      64 slots in a word
//! words     set bits of a word, u8      64 words in a block
//! blocks    of a block, u16             16 blocks in a span
//! spans     of a span, u32              16 spans in a reach
//! reaches   of a reach (2^20 slots), u32
//! ```
//!
//! so a count is at most one popcount, three masked sums of fixed length and a short sum over
//! the reaches; a near slot needs only the first two. When all slots are taken, the set bits move
//! together at the front (the caller renumbers the slots that it remembers by [`Ranks`]).

const BLOCK: usize = 64;
const SPAN: usize = 16;
const REACH: usize = 16;

/// Windows into these give masks for "all lanes behind this one".
static BYTES: [u8; 2 * BLOCK] = behind();
static SHORTS: [u16; 2 * SPAN] = behind_short();
static WORDS: [u32; 2 * REACH] = behind_word();

const fn behind() -> [u8; 2 * BLOCK] {
    let mut mask = [0; 2 * BLOCK];
    let mut lane = BLOCK;
    while lane < 2 * BLOCK {
        mask[lane] = u8::MAX;
        lane += 1;
    }
    mask
}

const fn behind_short() -> [u16; 2 * SPAN] {
    let mut mask = [0; 2 * SPAN];
    let mut lane = SPAN;
    while lane < 2 * SPAN {
        mask[lane] = u16::MAX;
        lane += 1;
    }
    mask
}

const fn behind_word() -> [u32; 2 * REACH] {
    let mut mask = [0; 2 * REACH];
    let mut lane = REACH;
    while lane < 2 * REACH {
        mask[lane] = u32::MAX;
        lane += 1;
    }
    mask
}

/// See the module.
#[derive(Default)]
pub(super) struct Recency {
    bits: Vec<u64>,
    words: Vec<u8>,
    blocks: Vec<u16>,
    spans: Vec<u32>,
    reaches: Vec<u32>,
    /// The next slot.
    next: usize,
    slots: usize,
    live: usize,
}

impl Recency {
    /// Lines in the order.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Whether a use finds no slot.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.next == self.slots
    }

    /// Memory held, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bits.capacity() * 8
            + self.words.capacity()
            + self.blocks.capacity() * 2
            + (self.spans.capacity() + self.reaches.capacity()) * 4
    }

    /// Takes the next slot for a line that is used now. The order must not be full.
    #[inline]
    pub(super) fn push(&mut self) -> u32 {
        let slot = self.next;
        self.next += 1;
        self.live += 1;
        self.bits[slot >> 6] |= 1 << (slot & 63);
        self.words[slot >> 6] += 1;
        self.blocks[slot >> 12] += 1;
        self.spans[slot >> 16] += 1;
        self.reaches[slot >> 20] += 1;
        slot as u32
    }

    /// Takes a line out of the order.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let slot = slot as usize;
        self.live -= 1;
        self.bits[slot >> 6] &= !(1 << (slot & 63));
        self.words[slot >> 6] -= 1;
        self.blocks[slot >> 12] -= 1;
        self.spans[slot >> 16] -= 1;
        self.reaches[slot >> 20] -= 1;
    }

    /// Moves the line at `slot` to the next slot; returns how many lines were used since, and the
    /// new slot. The order must not be full. Counters above the level at which both slots meet
    /// neither have to be read nor change.
    #[inline]
    pub(super) fn renew(&mut self, slot: u32) -> (u64, u32) {
        let (old, new) = (slot as usize, self.next);
        self.next += 1;
        let renewed = new as u32;
        let mut count = (self.bits[old >> 6] >> (old & 63) >> 1).count_ones();
        self.bits[old >> 6] &= !(1 << (old & 63));
        self.bits[new >> 6] |= 1 << (new & 63);
        if old >> 6 == new >> 6 {
            return (u64::from(count), renewed);
        }

        count += words_behind(&self.words, old >> 6);
        self.words[old >> 6] -= 1;
        self.words[new >> 6] += 1;
        if old >> 12 == new >> 12 {
            return (u64::from(count), renewed);
        }

        count += blocks_behind(&self.blocks, old >> 12);
        self.blocks[old >> 12] -= 1;
        self.blocks[new >> 12] += 1;
        if old >> 16 == new >> 16 {
            return (u64::from(count), renewed);
        }

        count += spans_behind(&self.spans, old >> 16);
        self.spans[old >> 16] -= 1;
        self.spans[new >> 16] += 1;
        if old >> 20 == new >> 20 {
            return (u64::from(count), renewed);
        }

        count += self.reaches[(old >> 20) + 1..=new >> 20]
            .iter()
            .sum::<u32>();
        self.reaches[old >> 20] -= 1;
        self.reaches[new >> 20] += 1;
        (u64::from(count), renewed)
    }

    /// Loads what [`renew`](Self::renew) will read first, for its effect on the caches.
    #[inline]
    pub(super) fn touch(&self, slot: u32) -> u64 {
        let word = slot as usize >> 6;
        self.bits[word] ^ u64::from(self.words[word])
    }

    /// The rank of every slot that is in use.
    pub(super) fn ranks(&self) -> Ranks<'_> {
        let mut sum = 0;
        let before = self
            .words
            .iter()
            .take(self.next.div_ceil(64))
            .map(|&count| {
                let before = sum;
                sum += u32::from(count);
                before
            })
            .collect();
        Ranks {
            bits: &self.bits,
            before,
        }
    }

    /// Moves all lines together at the front and makes room for `slots` slots in all (rounded up).
    pub(super) fn pack(&mut self, slots: usize) {
        let slots = slots.max(self.live + 1).next_multiple_of(64 * BLOCK);
        assert!(u32::try_from(slots).is_ok(), "no more than 2^32 slots");
        let live = self.live;
        refill(&mut self.bits, slots / 64, |index| {
            let ones = live.saturating_sub(index * 64);
            if ones >= 64 {
                u64::MAX
            } else {
                (1 << ones) - 1
            }
        });
        let full = |index: usize, size: usize| live.saturating_sub(index * size).min(size);
        refill(&mut self.words, slots / 64, |index| {
            full(index, 1 << 6) as u8
        });
        let blocks = (slots >> 12).next_multiple_of(SPAN);
        refill(&mut self.blocks, blocks, |index| {
            full(index, 1 << 12) as u16
        });
        let spans = slots.div_ceil(1 << 16).next_multiple_of(REACH);
        refill(&mut self.spans, spans, |index| full(index, 1 << 16) as u32);
        let reaches = slots.div_ceil(1 << 20);
        refill(&mut self.reaches, reaches, |index| {
            full(index, 1 << 20) as u32
        });
        self.next = live;
        self.slots = slots;
    }
}

/// The set bits of the words behind this one in its block.
#[inline]
fn words_behind(words: &[u8], word: usize) -> u32 {
    let lanes = &words[word / BLOCK * BLOCK..][..BLOCK];
    let mask = &BYTES[BLOCK - 1 - word % BLOCK..][..BLOCK];
    let masked = lanes
        .iter()
        .zip(mask)
        .map(|(&lane, &mask)| u32::from(lane & mask));
    masked.sum()
}

/// The set bits of the blocks behind this one in its span.
#[inline]
fn blocks_behind(blocks: &[u16], block: usize) -> u32 {
    let lanes = &blocks[block / SPAN * SPAN..][..SPAN];
    let mask = &SHORTS[SPAN - 1 - block % SPAN..][..SPAN];
    // 15 blocks of 4096 slots fit into 16 bits.
    let masked = lanes.iter().zip(mask).map(|(&lane, &mask)| lane & mask);
    u32::from(masked.fold(0, u16::wrapping_add))
}

/// The set bits of the spans behind this one in its reach.
#[inline]
fn spans_behind(spans: &[u32], span: usize) -> u32 {
    let lanes = &spans[span / REACH * REACH..][..REACH];
    let mask = &WORDS[REACH - 1 - span % REACH..][..REACH];
    lanes
        .iter()
        .zip(mask)
        .map(|(&lane, &mask)| lane & mask)
        .sum()
}

/// Makes the vector exactly `length` long, giving memory back where it shrinks.
fn refill<T>(vector: &mut Vec<T>, length: usize, value: impl Fn(usize) -> T) {
    if vector.capacity() < length || vector.capacity() > 2 * length {
        *vector = Vec::with_capacity(length);
    }
    vector.clear();
    vector.extend((0..length).map(value));
}

/// Where each line will be after [`Recency::pack`].
pub(super) struct Ranks<'a> {
    bits: &'a [u64],
    before: Vec<u32>,
}

impl Ranks<'_> {
    /// The new slot of a slot in use.
    #[inline]
    pub(super) fn of(&self, slot: u32) -> u32 {
        let word = slot as usize >> 6;
        let below = self.bits[word] & ((1 << (slot & 63)) - 1);
        self.before[word] + below.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_and_ranks_agree_with_a_list_over_every_level() {
        let mut recency = Recency::default();
        recency.pack(3 << 20);
        // Lines 0..n used once, then far and near ones again.
        let count = (1 << 20) + 12_345;
        let mut slots: Vec<u32> = (0..count).map(|_| recency.push()).collect();
        let mut order: Vec<usize> = (0..slots.len()).collect();
        for line in [
            0usize, 5, 70_000, 4_100, 1_000_000, 0, 63, 64, 65, 5, 999_999,
        ] {
            let at = order
                .iter()
                .position(|&other| other == line)
                .expect("is in the order");
            let (distance, slot) = recency.renew(slots[line]);
            assert_eq!(distance, (order.len() - 1 - at) as u64, "line {line}");
            slots[line] = slot;
            order.remove(at);
            order.push(line);
        }
        recency.remove(slots[77]);
        order.retain(|&line| line != 77);
        let ranks = recency.ranks();
        for (rank, &line) in order.iter().enumerate().step_by(97) {
            assert_eq!(ranks.of(slots[line]), rank as u32);
        }
        recency.pack(2 << 20);
        assert_eq!(recency.live(), order.len());
        let (distance, _) = recency.renew(3);
        assert_eq!(distance, order.len() as u64 - 4);
    }
}
