//! What stands in a ring: words of 64 bits.
//!
//! ```text
//! access       address 48 | slot, low 12 bits | log2(size) 3 | store 1     (low 4 bits: 0 to 11)
//! mark         stamp, low 28 bits | untold 16 | bank 16            | 12
//! far mark     untold 28          | bank 32                        | 13 , stamp 64
//! event        unused             | kind 8                         | 14 , stamp 64 , a 64 , b 64
//! taken        unused             | kind 8                         | 14 , stamp 64 , six words, see Taken
//! heap         words of it 16     | kind 8                         | 14 , stamp 64 , a record of linewise_heap
//! definition   words that follow 16 | kind 8                       | 15 , ...
//! ```
//!
//! A *slot* is an instruction that may access memory in a piece of code that QEMU translated; they
//! are numbered as they are translated, in *banks* of 4,096. An access belongs to the bank of the last
//! mark in front of it. Code that runs together was mostly translated together, so that banks change
//! seldom.
//!
//! A mark tells the bank and a stamp. It stands in front of every atomic access, of at most sixteen
//! others, and where the bank changes, then with the stamp of the mark before it. So an access takes
//! little more than 8 bytes.
//!
//! Where lines that one thread alone uses are left out (see `plugin::shadow`), a mark also says how many
//! accesses of the thread since the last mark are not told. An access word with the address
//! [`UNTOLD`] is a sample of those: its instruction made one.

/// Bits of the stamp in a mark.
pub const STAMP_BITS: u32 = 28;
/// Bits of the number of accesses that are not told, in a mark and in a far mark.
pub const UNTOLD_BITS: u32 = 16;
/// See [`UNTOLD_BITS`].
pub const FAR_UNTOLD_BITS: u32 = 28;
/// The address of an access that is not told.
pub const UNTOLD: u64 = (1 << ADDRESS_BITS) - 1;
/// Banks that fit in a mark; later ones need a far mark.
pub const NEAR_BANKS: u32 = 1 << 16;
/// Banks that there can be.
pub const BANKS: u32 = 1 << 14;
/// Slots of a bank.
pub const BANK_SLOTS: u32 = 1 << 12;
/// The slot of what has none; no slot from it on is ever defined.
pub const NO_SLOT: u32 = (BANKS - 1) * BANK_SLOTS;
/// Slots that a block of code can have; others of it are not followed.
pub const MAX_SLOTS: usize = 512;
/// Bits of an address in an access word.
pub const ADDRESS_BITS: u32 = 48;
/// Words of the longest record in a thread's ring.
pub const LONGEST: u64 = 12;

/// The bits of an access word that name the slot.
pub const SLOT_BITS: u64 = 0xfff0;

/// The tag of a mark; those below are accesses.
pub const MARK: u64 = 12;
/// The tag of a mark with a full stamp.
pub const FAR_MARK: u64 = 13;
/// The tag of an event.
pub const EVENT: u64 = 14;
/// The tag of a definition.
pub const DEFINITION: u64 = 15;

/// The tag of a word; below [`MARK`] it is an access and what this says of it, see [`meta`].
#[inline]
#[must_use]
pub fn tag(word: u64) -> u64 {
    word & 15
}

/// Packs an access of a slot; `meta` is size and kind, see [`meta`].
#[inline]
#[must_use]
pub fn access(address: u64, slot: u32, meta: u64) -> u64 {
    (address << 16) | ((u64::from(slot) << 4) & SLOT_BITS) | meta
}

/// The bits of an access that say what it does: `size` is 1, 2, 4, ... 32 bytes.
#[must_use]
pub fn meta(log2_size: u32, store: bool) -> u64 {
    (u64::from(log2_size.min(5)) << 1) | u64::from(store)
}

/// The guest address of an access word.
#[inline]
#[must_use]
pub fn address(word: u64) -> u64 {
    word >> 16
}

/// The slot of an access word, within its bank.
#[inline]
#[must_use]
pub fn slot_in_bank(word: u64) -> usize {
    (word >> 4) as usize & (BANK_SLOTS as usize - 1)
}

/// The bytes of an access word.
#[inline]
#[must_use]
pub fn size(word: u64) -> u16 {
    1 << ((word >> 1) & 7)
}

/// Whether an access word is a store.
#[inline]
#[must_use]
pub fn is_store(word: u64) -> bool {
    word & 1 != 0
}

/// Packs a mark with a bank below [`NEAR_BANKS`] and less than 2^[`UNTOLD_BITS`] untold accesses.
#[inline]
#[must_use]
pub fn mark(bank: u32, stamp: u64, untold: u64) -> u64 {
    (stamp << 36) | (untold << 20) | (u64::from(bank) << 4) | MARK
}

/// The bank of a mark.
#[inline]
#[must_use]
pub fn mark_bank(word: u64) -> u32 {
    (word >> 4) as u32 & (NEAR_BANKS - 1)
}

/// How many accesses before a mark are not told.
#[inline]
#[must_use]
pub fn mark_untold(word: u64) -> u64 {
    (word >> 20) & ((1 << UNTOLD_BITS) - 1)
}

/// The stamp of a mark, given the stamp before it in the same ring: the first one at or after `last`
/// that ends in the word's bits.
#[inline]
#[must_use]
pub fn mark_stamp(word: u64, last: u64) -> u64 {
    let low = word >> 36;
    let passed = low.wrapping_sub(last) & ((1 << STAMP_BITS) - 1);
    last.wrapping_add(passed)
}

/// Packs the first word of a far mark; its stamp follows.
#[must_use]
pub fn far_mark(bank: u32, untold: u64) -> u64 {
    (untold << 36) | (u64::from(bank) << 4) | FAR_MARK
}

/// The bank of a far mark.
#[must_use]
pub fn far_mark_bank(word: u64) -> u32 {
    (word >> 4) as u32
}

/// How many accesses before a far mark are not told.
#[must_use]
pub fn far_mark_untold(word: u64) -> u64 {
    word >> 36
}

/// In b of [`EventKind::Creates`].
pub const SHARES: u64 = 1;

/// What an event tells. Its two values are named in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// The thread was first seen. a: its process, b: its thread id. Where it is handed on, a has the process, and in its
    /// upper half the thread id, as the collector numbers them, b the thread id in its own namespace.
    ThreadStarted = 1,
    /// The thread makes no more accesses.
    ThreadEnded = 2,
    /// A system call begins. a: its number in the guest's numbering, b: 0 if it is one that only takes
    /// the kernel's own time (mmap, clone, getpid, ...), 1 if it may wait for something.
    CallBegan = 3,
    /// A system call is over. a: its number, b: what it returned.
    CallEnded = 4,
    /// A thread or process is about to be made. a: the address that its end will clear and wake, or
    /// 0; b: [`SHARES`] if it shares the memory.
    Creates = 5,
    /// A futex call that may wait begins. a: the address.
    FutexWaits = 6,
    /// A futex call that may wake others begins. a: the address, b: how many at most.
    FutexWakes = 7,
    /// The program is about to be replaced by one that cannot be traced. a: see [`ExecTrouble`].
    ExecUntraced = 8,
    /// The program is about to be replaced by one that will be traced.
    ExecTraced = 9,
    /// The thread takes a line from one that had it for itself: see [`Taken`]. Only in a ring.
    Taken = 10,
    /// Accesses of the thread that are not told have passed. a: how many. Not in a ring.
    Passed = 11,
    /// Something happened to the heap: see [`heap_event`]. Only in a ring.
    Heap = 12,
}

impl EventKind {
    /// The one with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        use EventKind::*;
        [
            ThreadStarted,
            ThreadEnded,
            CallBegan,
            CallEnded,
            Creates,
            FutexWaits,
            FutexWakes,
            ExecUntraced,
            ExecTraced,
            Taken,
            Heap,
        ]
        .into_iter()
        .find(|&kind| kind as u64 == number)
    }
}

/// Why a new program cannot be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum ExecTrouble {
    /// It is not an ELF file of the traced architecture, nor a script for one.
    Architecture = 1,
    /// It runs with other rights than its caller (set-user-id, capabilities), which QEMU would take
    /// away.
    Rights = 2,
    /// The call to run QEMU in its place failed.
    Exec = 3,
    /// How it is named could not be read, or it is named by an open file.
    Unnamed = 4,
    /// QEMU, the tracer or the memory of the rings cannot be opened from where the program is: it has changed its user,
    /// its root directory or a namespace.
    Unreachable = 5,
    /// Its limits leave no descriptors or no address space for QEMU.
    Limits = 6,
}

impl ExecTrouble {
    /// The one with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Architecture,
            2 => Self::Rights,
            3 => Self::Exec,
            4 => Self::Unnamed,
            5 => Self::Unreachable,
            6 => Self::Limits,
            _ => return None,
        })
    }
}

/// Packs the first word of an event; stamp, a and b follow.
#[must_use]
pub fn event(kind: EventKind) -> u64 {
    ((kind as u64) << 4) | EVENT
}

/// Packs the first word of an event of the heap; stamp and a record of so many words follow.
#[must_use]
pub fn heap_event(words: u16) -> u64 {
    (u64::from(words) << 16) | event(EventKind::Heap)
}

/// The words of an event, this one included.
#[must_use]
pub fn event_length(word: u64) -> u64 {
    match event_kind(word) {
        Some(EventKind::Taken) => 8,
        Some(EventKind::Heap) => 2 + (word >> 16 & 0xffff),
        _ => 4,
    }
}

/// The kind of an event word.
#[must_use]
pub fn event_kind(word: u64) -> Option<EventKind> {
    EventKind::from_number(word >> 4 & 0xff)
}

/// What a thread did to a line while no other touched it, told when another does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The ring's owner number, see [`Ring::owner`](crate::Ring::owner).
    pub owner: u16,
    /// It had the line not for the first time.
    pub again: bool,
    /// Address of its first byte.
    pub line: u64,
    /// Number of the thread's access that was the first.
    pub first: u64,
    /// Loads, and stores and updates, in quarters of an access, at most `u16::MAX`.
    pub quarters: [u16; 2],
    /// What it loaded and what it stored to: a bit for each [`GRANULE`] bytes. Updates did both.
    pub granules: [u16; 2],
    /// The last load and the last store, if any: see [`deed`].
    pub last: [u64; 2],
}

impl Taken {
    /// What stands behind the stamp.
    #[must_use]
    pub fn pack(&self) -> [u64; 6] {
        [
            u64::from(self.owner) | (u64::from(self.again) << 16),
            self.line,
            self.first,
            u64::from(self.quarters[0])
                | (u64::from(self.granules[0]) << 16)
                | (u64::from(self.quarters[1]) << 32)
                | (u64::from(self.granules[1]) << 48),
            self.last[0],
            self.last[1],
        ]
    }

    /// Reads what [`Taken::pack`] made; of what it did not make, something that could be.
    #[must_use]
    pub fn unpack(words: [u64; 6]) -> Self {
        Self {
            owner: words[0] as u16,
            again: words[0] >> 16 & 1 != 0,
            line: words[1] & ((1 << ADDRESS_BITS) - 1) & !63,
            first: words[2] & ((1 << NUMBER_BITS) - 1),
            quarters: [words[3] as u16, (words[3] >> 32) as u16],
            granules: [(words[3] >> 16) as u16, (words[3] >> 48) as u16],
            last: [words[4], words[5]],
        }
    }
}

/// Bytes of a part of a line that is told apart where its owner did something.
pub const GRANULE: u64 = 4;

/// The parts of a line that `size` bytes at `offset` lie in, which do not reach beyond it: a bit for each.
#[inline(always)]
#[must_use]
pub fn granules(offset: u64, size: u64) -> u16 {
    let last = (offset + size - 1) / GRANULE;
    ((2u32 << last) - (1u32 << (offset / GRANULE))) as u16
}

/// Packs an access to a line that its thread has for itself: `number` of the thread's accesses in units of
/// 2^[`DEED_UNIT_BITS`], low 28 bits | offset in the line 6 | slot 26 | size and kind 4. Never 0.
#[inline(always)]
#[must_use]
pub fn deed(number_in_units: u64, offset: u64, slot_and_meta: u64) -> u64 {
    (number_in_units << DEED_NUMBER_SHIFT) | (offset << DEED_OFFSET_SHIFT) | slot_and_meta
}

/// Bits of the number of a thread's access.
pub const NUMBER_BITS: u32 = 46;
/// A deed's time in numbers of accesses is so coarse.
pub const DEED_UNIT_BITS: u32 = 6;
const DEED_OFFSET_SHIFT: u32 = 30;
const DEED_NUMBER_SHIFT: u32 = 36;

/// Bank, slot in the bank, offset and the size of a deed.
#[must_use]
pub fn deed_parts(deed: u64) -> (u32, usize, u64, u16) {
    (
        (deed >> 16) as u32 & (BANKS - 1),
        slot_in_bank(deed),
        (deed >> DEED_OFFSET_SHIFT) & 63,
        size(deed),
    )
}

/// The number of the thread's access that a deed was, or a little less; at least `first`. A deed of before that is
/// none of the owner's: it counts as `first`.
#[must_use]
pub fn deed_number(deed: u64, first: u64) -> u64 {
    const BITS: u32 = u64::BITS - DEED_NUMBER_SHIFT;
    let number = deed >> DEED_NUMBER_SHIFT;
    let passed = number.wrapping_sub(first >> DEED_UNIT_BITS) & ((1 << BITS) - 1);
    if passed >= 1 << (BITS - 1) {
        return first;
    }
    (((first >> DEED_UNIT_BITS) + passed) << DEED_UNIT_BITS).max(first)
}

/// A definition's kind: a block. Its first slot, then for each slot three words: its address (48 bits, above it
/// [`UPDATES`], [`ORDERS`] and from bit 56 on the bytes of its operand, 0 if not known), then its
/// length and bytes in two words (length in the top byte of the second).
pub const DEFINES_BLOCK: u64 = 1;
/// In a slot's first word: it reads and writes the same bytes.
pub const UPDATES: u64 = 1 << 48;
/// In a slot's first word: it orders threads (atomic, acquiring or releasing).
pub const ORDERS: u64 = 1 << 49;
/// A definition's kind: a mapping. Stamp, start, end, offset, flags (1 executable, 2 writable, [`SHARED_MAP`], [`UNMAPPED`]), device and inode of
/// what is behind it where it is shared, then the path: its length in bytes and the bytes.
pub const DEFINES_MAP: u64 = 2;
/// In the flags of a mapping: other processes may have its bytes.
pub const SHARED_MAP: u64 = 4;
/// In the flags of a mapping: nothing is there any more, where others might have had it.
pub const UNMAPPED: u64 = 8;
/// A definition's kind: a program that is about to run untraced. An [`ExecTrouble`], then its path.
pub const DEFINES_UNTRACED: u64 = 3;

/// Packs the first word of a definition with this many words behind it.
#[must_use]
pub fn definition(kind: u64, words: u16) -> u64 {
    (u64::from(words) << 12) | ((kind & 0xff) << 4) | DEFINITION
}

/// Kind of a definition, and the words behind its first.
#[must_use]
pub fn definition_parts(word: u64) -> (u64, usize) {
    ((word >> 4) & 0xff, (word >> 12) as usize & 0xffff)
}

/// Packs an instruction of up to 15 bytes.
#[must_use]
pub fn pack_instruction(bytes: &[u8]) -> [u64; 2] {
    let mut packed = [0u8; 16];
    let length = bytes.len().min(15);
    packed[..length].copy_from_slice(&bytes[..length]);
    packed[15] = length as u8;
    let value = u128::from_le_bytes(packed);
    [value as u64, (value >> 64) as u64]
}

/// The bytes of a packed instruction and how many of them count.
#[must_use]
pub fn unpack_instruction(packed: [u64; 2]) -> ([u8; 15], usize) {
    let value = (u128::from(packed[1]) << 64) | u128::from(packed[0]);
    let all = value.to_le_bytes();
    let mut bytes = [0; 15];
    bytes.copy_from_slice(&all[..15]);
    (bytes, usize::from(all[15]).min(15))
}

/// Appends a text as its length and its bytes, eight to a word, little end first.
pub fn push_text(words: &mut Vec<u64>, text: &[u8]) {
    words.push(text.len() as u64);
    for piece in text.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..piece.len()].copy_from_slice(piece);
        words.push(u64::from_le_bytes(bytes));
    }
}

/// Reads what [`push_text`] wrote; `None` if it claims to be longer than the words are.
#[must_use]
pub fn text(words: &[u64]) -> Option<Vec<u8>> {
    let (&length, rest) = words.split_first()?;
    let mut bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_le_bytes()).collect();
    if length > bytes.len() as u64 {
        return None;
    }
    bytes.truncate(length as usize);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_access_comes_back(address in 0u64..1 << 48, slot: u32, log in 0u32..6, store: bool) {
            let word = access(address, slot, meta(log, store));
            prop_assert!(tag(word) < MARK);
            prop_assert_eq!(super::address(word), address);
            prop_assert_eq!(slot_in_bank(word), (slot % BANK_SLOTS) as usize);
            prop_assert_eq!(size(word), 1 << log);
            prop_assert_eq!(is_store(word), store);
        }

        #[test]
        fn a_stamp_comes_back_when_little_time_passed(
            bank in 0..NEAR_BANKS, last in 0u64..1 << 62, passed in 0u64..1 << STAMP_BITS,
            untold in 0u64..1 << UNTOLD_BITS,
        ) {
            let word = mark(bank, last + passed, untold);
            prop_assert_eq!(mark_untold(word), untold);
            prop_assert_eq!(tag(word), MARK);
            prop_assert_eq!(mark_bank(word), bank);
            prop_assert_eq!(mark_stamp(word, last), last + passed);
        }

        #[test]
        fn a_far_mark_comes_back(bank: u32, untold in 0u64..1 << FAR_UNTOLD_BITS) {
            let word = far_mark(bank, untold);
            prop_assert_eq!(tag(word), FAR_MARK);
            prop_assert_eq!(far_mark_bank(word), bank);
            prop_assert_eq!(far_mark_untold(word), untold);
        }

        #[test]
        fn a_deed_comes_back(
            first in 0u64..1 << 46, passed in 0u64..1 << 33, offset in 0u64..64,
            slot in 0..BANKS * BANK_SLOTS, log in 0u32..6,
        ) {
            let number = first + passed;
            let word = deed(number >> DEED_UNIT_BITS, offset, (u64::from(slot) << 4) | meta(log, true));
            let parts = (slot / BANK_SLOTS, (slot % BANK_SLOTS) as usize, offset, 1 << log);
            prop_assert_eq!(deed_parts(word), parts);
            let found = deed_number(word, first);
            prop_assert!(found <= number && number - found < 1 << DEED_UNIT_BITS);
        }

        #[test]
        fn what_was_taken_comes_back(
            owner: u16, again: bool, line: u64, first: u64, quarters: [u16; 2], granules: [u16; 2],
            last: [u64; 2]
        ) {
            let line = line & ((1 << ADDRESS_BITS) - 1) & !63;
            let first = first & ((1 << NUMBER_BITS) - 1);
            let taken = Taken { owner, again, line, first, quarters, granules, last };
            prop_assert_eq!(Taken::unpack(taken.pack()), taken);
        }

        #[test]
        fn instructions_and_texts_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let cut = &bytes[..bytes.len().min(15)];
            let (back, length) = unpack_instruction(pack_instruction(&bytes));
            prop_assert_eq!(&back[..length], cut);
            let mut words = Vec::new();
            push_text(&mut words, &bytes);
            prop_assert_eq!(text(&words), Some(bytes.clone()));
        }

        #[test]
        fn no_words_are_a_text_that_panics(words in proptest::collection::vec(any::<u64>(), 0..8)) {
            if let Some(bytes) = text(&words) {
                prop_assert!(bytes.len() <= words.len() * 8);
            }
        }
    }

    #[test]
    fn events_and_definitions_come_back() {
        assert_eq!(
            event_kind(event(EventKind::FutexWakes)),
            Some(EventKind::FutexWakes)
        );
        assert_eq!(event_kind(EVENT), None);
        let heap = heap_event(229);
        assert_eq!(event_kind(heap), Some(EventKind::Heap));
        assert_eq!((tag(heap), event_length(heap)), (EVENT, 231));
        assert_eq!(tag(definition(DEFINES_MAP, 65_535)), DEFINITION);
        assert_eq!(
            definition_parts(definition(DEFINES_MAP, 65_535)),
            (DEFINES_MAP, 65_535)
        );
    }
}
