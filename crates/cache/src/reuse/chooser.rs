//! Which accesses of a stream have to be looked at, found out once for several trackers.
//!
//! A tracker that follows one line in 64 has next to nothing to do for most accesses: they make the
//! clock of their group go on. Several trackers of one stream would each find that out by hashing
//! every address, and again for each order that the stream is brought into. A [`Chooser`] finds it
//! out once, for all of them; [`Chosen`](super::Chosen) keeps what they need to know of the accesses in between.

use super::engine::Choosing;
use super::options::Choice;
use super::tracker::ReuseTracker;

/// Blocks whose chosen units are remembered.
const BLOCKS: usize = 4096;
/// Units of a block: one for each bit of a word.
const UNIT_BITS: u32 = 6;

/// Tells the accesses that trackers have to look at from those that only count.
#[derive(Clone, Debug)]
pub struct Chooser {
    of: Vec<Choosing>,
    /// Logarithm of the smallest granularity.
    shift: u32,
    /// Blocks of 64 of the smallest units: number, and the chosen ones as bits.
    blocks: Box<[(u64, u64)]>,
}

impl Chooser {
    /// For these trackers; `None` if one of them follows all units, or there are none.
    #[must_use]
    pub fn new(trackers: &[&ReuseTracker]) -> Option<Self> {
        let of: Vec<Choosing> = trackers.iter().map(|tracker| tracker.choosing()).collect();
        if of.iter().any(Choosing::all) {
            return None;
        }
        Some(Self {
            shift: of.iter().map(|choosing| choosing.shift).min()?,
            of,
            blocks: vec![(u64::MAX, 0); BLOCKS].into(),
        })
    }

    /// Whether an access of `size` bytes at `address` touches a unit that one of the trackers
    /// follows, or several of the smallest units.
    #[inline]
    pub fn chooses(&mut self, address: u64, size: u16) -> bool {
        let unit = address >> self.shift;
        let block = unit >> UNIT_BITS;
        let known = &mut self.blocks[(block ^ block >> 12) as usize % BLOCKS];
        if known.0 != block {
            *known = (block, chosen_units(&self.of, self.shift, block));
        }
        let offset = address & ((1 << self.shift) - 1);
        let reaches_further = offset + u64::from(size.max(1)) > 1 << self.shift;
        known.1 >> (unit & 63) & 1 == 1 || reaches_further
    }
}

/// The units that trackers with [`Choice::Stratified`] follow, for who leaves accesses out before they
/// see them.
#[derive(Clone, Debug)]
pub struct StratifiedUnits(Vec<Choosing>);

impl StratifiedUnits {
    /// Of these sizes in bytes, each a power of two, one in so many.
    #[must_use]
    pub fn new(units: &[(u32, u32)]) -> Self {
        let choosing = |&(bytes, one_in): &(u32, u32)| {
            let rate = 1.0 / f64::from(one_in.max(1));
            Choosing::new(bytes, rate, Choice::Stratified)
        };
        Self(units.iter().map(choosing).collect())
    }

    /// Whether one of them lies within the `bytes` at `address`.
    #[must_use]
    pub fn any(&self, address: u64, bytes: u64) -> bool {
        let last = address.saturating_add(bytes.max(1) - 1);
        self.0.iter().any(|choosing| {
            (address >> choosing.shift..=last >> choosing.shift).any(|unit| choosing.follows(unit))
        })
    }
}

/// The units of a block that one of the trackers follows, as bits.
#[cold]
fn chosen_units(of: &[Choosing], shift: u32, block: u64) -> u64 {
    let first = block << UNIT_BITS;
    let mut chosen = 0;
    for choosing in of {
        let coarser = choosing.shift - shift;
        for place in 0..1 << UNIT_BITS {
            let follows = choosing.follows((first | place) >> coarser);
            chosen |= u64::from(follows) << place;
        }
    }
    chosen
}
