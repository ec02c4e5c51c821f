//! The hash by which lines are chosen.

use std::hash::Hasher;

/// Mixes a line's number (its address divided by the size of a line) into 64 even bits: the
/// finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
/// OOPSLA 2014). Whoever looks at a share of all lines keeps those whose hash is at most
/// `u64::MAX` times the share, so that everybody keeps the same ones (SHARDS: Waldspurger, Park,
/// Garthwaite, Ahmad, FAST 2015).
#[inline]
#[must_use]
pub fn line_hash(line: u64) -> u64 {
    let mixed = (line ^ (line >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A hasher for small dense numbers and numbers of lines, which need no more than mixing.
#[derive(Clone, Debug, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = line_hash(self.0 ^ value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_of_lines_has_its_share_below_the_threshold() {
        let threshold = u64::MAX / 64;
        for start in [0u64, 1 << 20, 0x7f00_0000_0000 >> 6] {
            for stride in [1u64, 2, 64, 4096] {
                let kept = (0..64_000)
                    .filter(|index| line_hash(start + index * stride) <= threshold)
                    .count();
                assert!((800..1200).contains(&kept), "{kept} of 1000 at {start:#x}");
            }
        }
    }

    #[test]
    fn neighbours_differ_in_about_half_of_the_bits() {
        let changed: u32 = (0..10_000u64)
            .map(|line| (line_hash(line) ^ line_hash(line + 1)).count_ones())
            .sum();
        assert!((31 * 10_000..33 * 10_000).contains(&changed), "{changed}");
    }
}
