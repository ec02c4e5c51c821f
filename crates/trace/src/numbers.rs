//! Numbers in as few bytes as they need: seven bits a byte.

pub(crate) fn put(column: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        column.push(value as u8 | 0x80);
        value >>= 7;
    }
    column.push(value as u8);
}

/// Takes a number from the front.
pub(crate) fn get(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
