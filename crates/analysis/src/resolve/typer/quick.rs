//! A hash of few numbers, for what is looked up at each step of the analysis.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Multiplies by a number that nobody outside knows: debug info is foreign, and could be made to collide.
#[derive(Clone, Debug)]
pub(super) struct Quick(u64);

impl Default for Quick {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0) | 1)
    }
}

impl BuildHasher for Quick {
    type Hasher = Product;

    fn build_hasher(&self) -> Product {
        Product {
            factor: self.0,
            value: !self.0,
        }
    }
}

/// The numbers so far, folded.
#[derive(Debug)]
pub(super) struct Product {
    factor: u64,
    value: u64,
}

impl Hasher for Product {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.value ^ number) * u128::from(self.factor);
        self.value = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.value
    }
}
