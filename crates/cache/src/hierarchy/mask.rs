//! Sets of the bytes of a line.

use std::fmt::Debug;
use std::ops::{BitAnd, BitOr, BitOrAssign};

/// A set of the bytes of one line, bit `i` for byte `i`; a register wide.
pub(super) trait Mask:
    Copy
    + Debug
    + Default
    + PartialEq
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitOrAssign
    + Into<u128>
{
    /// How many bits there are.
    const BITS: u32;

    /// The bits `first..=last`.
    fn range(first: u32, last: u32) -> Self;

    /// This set if `condition` holds, the empty one otherwise; without a branch.
    fn only_if(self, condition: bool) -> Self;

    /// This set without another's bits.
    fn without(self, other: Self) -> Self;

    /// How many of its words of eight bits have any, and all bits of these words.
    fn words(self) -> (u32, Self);

    /// Whether no bit is set.
    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

macro_rules! mask {
    ($integer:ty) => {
        impl Mask for $integer {
            const BITS: u32 = <$integer>::BITS;

            #[inline]
            fn without(self, other: Self) -> Self {
                self & !other
            }

            #[inline]
            fn only_if(self, condition: bool) -> Self {
                self & Self::from(condition).wrapping_neg()
            }

            #[inline]
            fn words(self) -> (u32, Self) {
                const LOW: $integer = <$integer>::MAX / 255;
                const MOST: $integer = LOW * 127;
                // The top bit of each word that has any.
                let some = (((self & MOST) + MOST) | self) & !MOST;
                (some.count_ones(), (some >> 7) * 255)
            }

            #[inline]
            fn range(first: u32, last: u32) -> Self {
                (!0 >> (<$integer>::BITS - 1 - (last - first))) << first
            }
        }
    };
}

mask!(u64);
mask!(u128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_any_bit_are_whole_and_counted() {
        assert_eq!(0u64.words(), (0, 0));
        assert_eq!(0x8000_0000_0001_0100u64.words(), (3, 0xff00_0000_00ff_ff00));
        assert_eq!(u64::MAX.words(), (8, u64::MAX));
        assert_eq!((1u128 << 127 | 1).words(), (2, 0xff << 120 | 0xff));
    }

    #[test]
    fn a_range_holds_its_ends_and_nothing_outside() {
        for first in 0..64 {
            for last in first..64 {
                let small = u64::range(first, last);
                assert_eq!(small.count_ones(), last - first + 1);
                assert_eq!(small.trailing_zeros(), first);
                assert_eq!(63 - small.leading_zeros(), last);
                assert_eq!(u128::range(first + 64, last + 64) >> 64, u128::from(small));
            }
        }
    }
}
