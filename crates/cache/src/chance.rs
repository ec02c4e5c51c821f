//! Random choices that a seed repeats.

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016): one state of eight
/// bytes, for what is chosen on hot paths.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The same choices for the same seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`, which is no more than 2^32; 0 when `limit` is 0.
    #[inline]
    pub fn below(&mut self, limit: usize) -> usize {
        (((self.next() >> 32) * limit as u64) >> 32) as usize
    }

    /// A number from 0 to 1, without 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / ((1u64 << 53) as f64)
    }

    /// True with the given probability.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    /// A uniform choice of `count` of the 8 chunks of a line that are set in `from`, as a mask.
    pub fn chunks(&mut self, from: u8, count: u32) -> u8 {
        let mut left = from;
        let mut chosen = 0;
        for _ in 0..count.min(from.count_ones()) {
            let nth = self.below(left.count_ones() as usize);
            let bit = (0..8)
                .filter(|i| left & (1 << i) != 0)
                .nth(nth)
                .map_or(0, |i| 1u8 << i);
            chosen |= bit;
            left &= !bit;
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_as_many_as_asked_and_each_comes_up_equally_often() {
        let mut chance = Chance::seeded(7);
        let mut counts = [0u32; 8];
        for _ in 0..8000 {
            let chosen = chance.chunks(0xff, 4);
            assert_eq!(chosen.count_ones(), 4);
            for (i, count) in counts.iter_mut().enumerate() {
                *count += u32::from(chosen & (1 << i) != 0);
            }
        }
        assert!(
            counts.iter().all(|&count| (3700..4300).contains(&count)),
            "{counts:?}"
        );
    }

    #[test]
    fn no_more_chunks_come_than_there_are() {
        assert_eq!(Chance::seeded(1).chunks(0b11, 4), 0b11);
        assert_eq!(Chance::seeded(1).chunks(0, 4), 0);
        assert_eq!(Chance::seeded(1).below(0), 0);
    }
}
