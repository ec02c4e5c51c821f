//! How the recorder tells where every access of the program is traced: by one store that the tracer knows.
//!
//! No ring and no shared memory: the recorder puts a record on its stack and executes an instruction of
//! which there is no other. The tracer sees it when it translates the code, and gets the record's address
//! as that of the store. So what is told stands in the trace at its place among the thread's accesses.

/// The value of [`crate::VARIABLE`] where the program is traced: there is no memory to share.
pub const TRACED: &str = "traced";

/// The store: `mov [rdi + DISTANCE], rax`, in the encoding that assemblers choose for a distance of 32 bits.
pub const MARKER: [u8; 7] = [0x48, 0x89, 0x87, b'l', b'w', b'h', b'p'];

/// What the store adds to its register.
const DISTANCE: u64 = u32::from_le_bytes([b'l', b'w', b'h', b'p']) as u64;

/// The first word of a record, and what the store writes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lwtraced");

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum TracedKind {
    /// The recorder was loaded. `size`: whether the program has a malloc of its own.
    Loaded = 1,
    /// A block was allocated.
    Alloc = 2,
    /// A block is about to be freed.
    Free = 3,
    /// `size` bytes of memory are about to be unmapped.
    Unmap = 4,
    /// An object begins that the program names.
    Named = 5,
    /// A named object ends.
    Unname = 6,
    /// Code was unloaded: other code may come to lie there.
    Unloaded = 7,
}

impl TracedKind {
    /// The one with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        use TracedKind::*;
        [Loaded, Alloc, Free, Unmap, Named, Unname, Unloaded]
            .into_iter()
            .find(|&kind| kind as u64 == number)
    }
}

/// A record as it lies in the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Traced {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`TracedKind`].
    pub kind: u64,
    /// [`crate::AllocatorCode`].
    pub allocator: u64,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Where the frame of the hook that was called lies: the caller's frame pointer, and above it the
    /// return address; 0: it is not needed.
    pub frame: u64,
    /// The name: where it lies and how long it is.
    pub label: [u64; 2],
}

/// Tells a record, if somebody traces; else it is a store to the record alone.
#[inline(always)]
pub fn tell(record: &mut Traced) {
    let base = (core::ptr::from_mut(record) as u64).wrapping_sub(DISTANCE);
    // SAFETY: the bytes are those of `mov [rdi + DISTANCE], rax`, a store of 8 bytes to the first word of
    // `record`, which is ours for the call.
    unsafe {
        core::arch::asm!(
            ".byte 0x48, 0x89, 0x87, 0x6c, 0x77, 0x68, 0x70",
            in("rdi") base,
            in("rax") MAGIC,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_stores_into_the_record_alone() {
        let mut record = Traced {
            magic: 0,
            kind: TracedKind::Alloc as u64,
            allocator: 0,
            address: 0x1000,
            size: 48,
            frame: 0,
            label: [0; 2],
        };
        let told = Traced {
            magic: MAGIC,
            ..record
        };
        tell(&mut record);
        assert_eq!(record, told);
        assert_eq!(MARKER[3..], DISTANCE.to_le_bytes()[..4]);
    }

    #[test]
    fn kinds_come_back_from_their_numbers() {
        for number in 1..=7 {
            assert_eq!(
                TracedKind::from_number(number).map(|it| it as u64),
                Some(number)
            );
        }
        assert_eq!(TracedKind::from_number(0), None);
        assert_eq!(TracedKind::from_number(8), None);
    }
}
