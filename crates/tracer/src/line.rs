//! The hash-chosen share of lines.

use linewise_cache::line_hash;

/// The threshold that lets one in so many lines through; 1 lets all.
#[must_use]
pub fn threshold(one_in: u32) -> u64 {
    u64::MAX / u64::from(one_in.max(1))
}

/// Whether an access touches a chosen line: one of those that hold its first and its last byte.
#[inline(always)]
#[must_use]
pub fn kept(address: u64, last: u64, threshold: u64) -> bool {
    let first_line = address >> 6;
    let last_line = last >> 6;
    line_hash(first_line) <= threshold
        || (last_line != first_line && line_hash(last_line) <= threshold)
}
