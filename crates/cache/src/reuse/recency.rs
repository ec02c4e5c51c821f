//! The order in which a group's lines were last used, as bits on a time line.
//!
//! Every use takes the next slot and sets its bit; the line's earlier slot loses its bit. The bits
//! behind a slot are the lines used since, which is the stack distance (Bennett, Kruskal: LRU
//! stack processing, 1975). Counting them reads one word of bits and a few counters:
//!
//! ```text
//! bits      64 slots in a word
//! words     set bits of a word, u8      8 words in a row
//! rows      of a row, u16               16 rows in a block
//! blocks    of a block, u16             8 blocks in a span
//! spans     of a span, u32              16 spans in a reach
//! reaches   of a reach (2^20 slots), u32
//! ```
//!
//! so a count is at most one popcount, four masked sums of fixed length (one of them in a register
//! of eight bytes) and a short sum over the reaches; a near slot needs only the first ones. When
//! all slots are taken, the set bits move together at the front (the caller renumbers the slots
//! that it remembers by [`Ranks`]).

/// Slots of each unit, as powers of two.
const WORD: u32 = 6;
const ROW: u32 = 9;
const BLOCK: u32 = 13;
const SPAN: u32 = 16;
const REACH: u32 = 20;

const ROW_WORDS: usize = 1 << (ROW - WORD);
const BLOCK_ROWS: usize = 1 << (BLOCK - ROW);
const SPAN_BLOCKS: usize = 1 << (SPAN - BLOCK);
const REACH_SPANS: usize = 1 << (REACH - SPAN);

/// Windows into these are masks for "all lanes behind this one".
static SHORTS: [u16; 2 * BLOCK_ROWS] = {
    let mut mask = [0; 2 * BLOCK_ROWS];
    let mut lane = BLOCK_ROWS;
    while lane < 2 * BLOCK_ROWS {
        mask[lane] = u16::MAX;
        lane += 1;
    }
    mask
};
static WORDS: [u32; 2 * REACH_SPANS] = {
    let mut mask = [0; 2 * REACH_SPANS];
    let mut lane = REACH_SPANS;
    while lane < 2 * REACH_SPANS {
        mask[lane] = u32::MAX;
        lane += 1;
    }
    mask
};

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Recency {
    bits: Vec<u64>,
    words: Vec<u8>,
    rows: Vec<u16>,
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
            + (self.rows.capacity() + self.blocks.capacity()) * 2
            + (self.spans.capacity() + self.reaches.capacity()) * 4
    }

    /// Takes the next slot for a line that is used now. The order must not be full.
    #[inline]
    pub(super) fn push(&mut self) -> u32 {
        let slot = self.next;
        self.next += 1;
        self.live += 1;
        self.bits[slot >> WORD] |= 1 << (slot & 63);
        self.words[slot >> WORD] += 1;
        self.rows[slot >> ROW] += 1;
        self.blocks[slot >> BLOCK] += 1;
        self.spans[slot >> SPAN] += 1;
        self.reaches[slot >> REACH] += 1;
        slot as u32
    }

    /// Takes a line out of the order.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let slot = slot as usize;
        self.live -= 1;
        self.bits[slot >> WORD] &= !(1 << (slot & 63));
        self.words[slot >> WORD] -= 1;
        self.rows[slot >> ROW] -= 1;
        self.blocks[slot >> BLOCK] -= 1;
        self.spans[slot >> SPAN] -= 1;
        self.reaches[slot >> REACH] -= 1;
    }

    /// Moves the line at `slot` to the next slot; returns how many lines were used since, and the
    /// new slot. The order must not be full. Counters above the level at which both slots meet
    /// neither have to be read nor change.
    #[inline]
    pub(super) fn renew(&mut self, slot: u32) -> (u64, u32) {
        let (old, new) = (slot as usize, self.next);
        self.next += 1;
        let renewed = new as u32;
        let (word, into) = (old >> WORD, new >> WORD);
        let mut count = (self.bits[word] >> (old & 63) >> 1).count_ones();
        self.bits[word] &= !(1 << (old & 63));
        self.bits[into] |= 1 << (new & 63);
        if word == into {
            return (u64::from(count), renewed);
        }

        count += words_behind(&self.words, word);
        self.words[word] -= 1;
        self.words[into] += 1;
        let (row, into) = (old >> ROW, new >> ROW);
        if row == into {
            return (u64::from(count), renewed);
        }

        count += lanes_behind::<BLOCK_ROWS>(&self.rows, row);
        self.rows[row] -= 1;
        self.rows[into] += 1;
        let (block, into) = (old >> BLOCK, new >> BLOCK);
        if block == into {
            return (u64::from(count), renewed);
        }

        count += lanes_behind::<SPAN_BLOCKS>(&self.blocks, block);
        self.blocks[block] -= 1;
        self.blocks[into] += 1;
        let (span, into) = (old >> SPAN, new >> SPAN);
        if span == into {
            return (u64::from(count), renewed);
        }

        count += spans_behind(&self.spans, span);
        self.spans[span] -= 1;
        self.spans[into] += 1;
        let (reach, into) = (old >> REACH, new >> REACH);
        if reach != into {
            count += self.reaches[reach + 1..=into].iter().sum::<u32>();
            self.reaches[reach] -= 1;
            self.reaches[into] += 1;
        }
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
        let slots = slots.max(self.live + 1).next_multiple_of(1 << BLOCK);
        assert!(u32::try_from(slots).is_ok(), "no more than 2^32 slots");
        let live = self.live;
        refill(&mut self.bits, slots >> WORD, |index| {
            let ones = live.saturating_sub(index << WORD);
            if ones >= 64 {
                u64::MAX
            } else {
                (1 << ones) - 1
            }
        });
        let full = |index: usize, log: u32| live.saturating_sub(index << log).min(1 << log);
        refill(&mut self.words, slots >> WORD, |index| {
            full(index, WORD) as u8
        });
        refill(&mut self.rows, slots >> ROW, |index| {
            full(index, ROW) as u16
        });
        let blocks = (slots >> BLOCK).next_multiple_of(SPAN_BLOCKS);
        refill(&mut self.blocks, blocks, |index| full(index, BLOCK) as u16);
        let spans = slots.div_ceil(1 << SPAN).next_multiple_of(REACH_SPANS);
        refill(&mut self.spans, spans, |index| full(index, SPAN) as u32);
        let reaches = slots.div_ceil(1 << REACH);
        refill(&mut self.reaches, reaches, |index| {
            full(index, REACH) as u32
        });
        self.next = live;
        self.slots = slots;
    }
}

/// The set bits of the words behind this one in its row.
#[inline]
fn words_behind(words: &[u8], word: usize) -> u32 {
    const PAIRS: u64 = 0x00ff_00ff_00ff_00ff;
    let row: &[u8; ROW_WORDS] = words[word & !(ROW_WORDS - 1)..]
        .first_chunk()
        .expect("rows are complete");
    let lane = 8 * (word % ROW_WORDS);
    let behind = u64::from_le_bytes(*row) >> lane >> 8;
    let pairs = (behind & PAIRS) + (behind >> 8 & PAIRS);
    (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as u32
}

/// The sum of the lanes behind this one among `LANES` aligned ones, which fits into 16 bits.
#[inline]
fn lanes_behind<const LANES: usize>(lanes: &[u16], lane: usize) -> u32 {
    let own: &[u16; LANES] = lanes[lane & !(LANES - 1)..]
        .first_chunk()
        .expect("groups of lanes are complete");
    let mask: &[u16; LANES] = SHORTS[BLOCK_ROWS - 1 - lane % LANES..]
        .first_chunk()
        .expect("the mask is twice as long");
    let masked = own.iter().zip(mask).map(|(&lane, &mask)| lane & mask);
    u32::from(masked.fold(0, u16::wrapping_add))
}

/// The set bits of the spans behind this one in its reach.
#[inline]
fn spans_behind(spans: &[u32], span: usize) -> u32 {
    let own: &[u32; REACH_SPANS] = spans[span & !(REACH_SPANS - 1)..]
        .first_chunk()
        .expect("reaches are complete");
    let mask: &[u32; REACH_SPANS] = WORDS[REACH_SPANS - 1 - span % REACH_SPANS..]
        .first_chunk()
        .expect("the mask is twice as long");
    own.iter().zip(mask).map(|(&lane, &mask)| lane & mask).sum()
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
