//! Elements of a path: four bytes that say which element comes next, whether that one is written, and
//! whether a phase ends here.
//!
//! ```text
//! bit  0       the next element is written
//! bit  1       a phase ends with this element
//! bit  2       the next element is in the session's own lines, not in those that all share
//! bits 3 to n  index of the next element from the base of its buffer
//! the rest     how often this element is accessed, less one
//! ```

/// Overwrites an element to end every session that comes to it. No element is like it: the highest index is
/// never used.
pub(super) const FINISHED: u32 = u32::MAX;
/// Elements of a line of 64 bytes.
pub(super) const ELEMENTS: u64 = 16;
/// Bytes of a line.
pub(super) const LINE: u64 = 64;
/// Bits that an index may have at most.
pub(super) const BITS: u32 = 29;

const WRITE: u32 = 1;
const END: u32 = 2;
const LOCAL: u32 = 4;
const SHIFT: u32 = 3;

/// An element's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element(pub(super) u32);

/// How many bits of an element the index takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) index_bits: u32,
}

impl Layout {
    /// For buffers of so many elements; `None` if there are too many.
    pub(super) fn of(elements: u64) -> Option<Self> {
        let index_bits = u64::BITS - elements.leading_zeros();
        (index_bits <= BITS).then_some(Self { index_bits })
    }

    /// How often one element can be accessed in a row.
    pub(super) fn most_repeats(self) -> u64 {
        1 << (BITS - self.index_bits)
    }

    fn mask(self) -> u32 {
        (1 << self.index_bits) - 1
    }
}

impl Element {
    /// An element that is accessed `repeats` times and leads to that at `index`.
    pub(super) fn new(layout: Layout, index: u32, write: bool, local: bool, repeats: u64) -> Self {
        let flags = u32::from(write) * WRITE + u32::from(local) * LOCAL;
        let repeats = (repeats - 1) as u32;
        // Bits that do not exist are shifted out where indices take all of them.
        let repeats = repeats.checked_shl(SHIFT + layout.index_bits).unwrap_or(0);
        Self(repeats | index << SHIFT | flags)
    }

    pub(super) fn ending(self) -> Self {
        Self(self.0 | END)
    }

    /// The index of the next one, where no element has a repeat count.
    #[inline(always)]
    pub(super) fn index(self) -> usize {
        (self.0 >> SHIFT) as usize
    }

    /// The index of the next one.
    #[inline(always)]
    pub(super) fn index_in(self, layout: Layout) -> usize {
        (self.0 >> SHIFT & layout.mask()) as usize
    }

    /// Accesses of this element after the first.
    #[inline(always)]
    pub(super) fn more(self, layout: Layout) -> u32 {
        self.0.checked_shr(SHIFT + layout.index_bits).unwrap_or(0)
    }

    #[inline(always)]
    pub(super) fn is_next_written(self) -> bool {
        self.0 & WRITE != 0
    }

    #[inline(always)]
    pub(super) fn is_next_local(self) -> bool {
        self.0 & LOCAL != 0
    }

    #[inline(always)]
    pub(super) fn ends_phase(self) -> bool {
        self.0 & END != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_keeps_what_it_is_told() {
        for elements in [1, 16, 1000, (1 << BITS) - 1] {
            let layout = Layout::of(elements).unwrap();
            for index in [0, elements as u32 / 2, elements as u32 - 1] {
                for repeats in [1, layout.most_repeats()] {
                    for flags in 0..4 {
                        let (write, local) = (flags & 1 != 0, flags & 2 != 0);
                        let element = Element::new(layout, index, write, local, repeats);
                        for element in [element, element.ending()] {
                            assert_eq!(element.index_in(layout), index as usize);
                            assert_eq!(u64::from(element.more(layout)) + 1, repeats);
                            assert_eq!(element.is_next_written(), write);
                            assert_eq!(element.is_next_local(), local);
                            assert_ne!(element.0, FINISHED);
                        }
                        assert!(!element.ends_phase() && element.ending().ends_phase());
                        if repeats == 1 {
                            assert_eq!(element.index(), index as usize);
                        }
                    }
                }
            }
        }
        assert!(Layout::of(1 << BITS).is_none());
    }
}
