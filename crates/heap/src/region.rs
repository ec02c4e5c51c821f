//! The memory that the target's processes and the collector share.
//!
//! ```text
//! header | ring headers | known keys | rules | ring 0 | ring 1 | ...
//! ```
//!
//! One anonymous file (memfd) holds it all, sealed so that nobody can take its bytes away; memory is used only for what
//! was touched, and the size of /dev/shm does not matter. Of the rings the first few are mapped at first and the
//! others when a thread needs one, in chunks that double. Who cannot map it records nothing, and goes on.

use core::ffi::CStr;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::kernel::{self, File};
use crate::ring_header::{RING_WORDS, RINGS, RingHeader};
use crate::rules::Rule;

/// The environment variable that tells the recorder where the memory is.
pub const VARIABLE: &str = "LINEWISE_HEAP";

const MAGIC: u64 = u64::from_le_bytes(*b"linewhp4");
const HEADER_BYTES: usize = 4096;
const RINGS_OFFSET: usize = HEADER_BYTES;
const KNOWN: usize = 1 << 16;
const KNOWN_OFFSET: usize = RINGS_OFFSET + RINGS * size_of::<RingHeader>();
const RULES: usize = 1 << 16;
const RULES_OFFSET: usize = KNOWN_OFFSET + KNOWN * 8;
const DATA_OFFSET: usize = (RULES_OFFSET + RULES * 16).next_multiple_of(PAGE);
const RING_BYTES: usize = RING_WORDS * 8;
const LENGTH: usize = DATA_OFFSET + RINGS * RING_BYTES;
const PAGE: usize = 4096;
/// The power of two of the rings that are mapped with the rest.
const FIRST_RINGS_LOG: u32 = 2;
/// Bytes that are mapped at first.
const FIRST_BYTES: usize = DATA_OFFSET + (RING_BYTES << FIRST_RINGS_LOG);
/// Chunks of rings: the first ones, and each time as many again as there are before.
const CHUNKS: usize = (RINGS.ilog2() - FIRST_RINGS_LOG) as usize + 1;
/// Places that a key is looked for at, from its own on.
const PROBES: usize = 8;
/// Mean distance of the blocks to tell of where the allowance is used up, in allocated bytes.
const SPARING: u64 = 1 << 18;
/// The part of a limit of address space that is taken at most.
const SHARE_OF_LIMIT: u64 = 32;
/// Counters of what is lost by threads that have no ring, which share none of them mostly.
const RINGLESS: usize = 16;

/// What everybody shares.
#[repr(C)]
pub(crate) struct Header {
    magic: AtomicU64,
    length: AtomicU64,
    /// Mean distance of the blocks to tell of, in allocated bytes; 0: all.
    interval: AtomicU64,
    /// Ticks that the recorder may still take until the collector gives it others.
    allowance: AtomicI64,
    /// Nothing is to be recorded any more.
    detached: AtomicU32,
    /// Threads may wait for room: everything is to be told.
    patient: AtomicU32,
    /// Nobody is to wait for room now.
    hurried: AtomicU32,
    /// No block is told of.
    only_marks: AtomicU32,
    /// Marks of threads without a ring that are lost.
    ringless_marks: AtomicU64,
    /// Whether the recorder may make system calls where no filter watches them (1), and under the filter that this
    /// memory was made under (2).
    calls: AtomicU32,
    next_image: AtomicU32,
    next_layout: AtomicU32,
    /// One past the highest ring ever used.
    pub(crate) rings_used: AtomicU32,
    /// How often what is a [`Note`].
    notes: [AtomicU32; Note::COUNT],
    followed: Followed,
    ringless: [Ringless; RINGLESS],
}
const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

/// The address that an object is followed at. Every allocation reads it, so that it has a line of its own.
#[repr(C, align(64))]
struct Followed {
    /// 0: none.
    address: AtomicU64,
    /// Blocks there that are told of yet.
    left: AtomicI64,
}

/// Records of threads without a ring that are lost.
#[repr(C, align(64))]
struct Ringless(AtomicU64);

/// What processes say of themselves, once each, beside their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Note {
    /// Calls of malloc go to the program itself.
    OwnMalloc,
    /// A filter of system calls was installed: from then on the recorder makes none, and stacks end with their page.
    Filtered,
    /// The time stamp counter was forbidden: from then on nothing is recorded.
    Clockless,
    /// The limit of address space is too small for the recorder to be in it.
    NoSpace,
    /// A program was started without the recorder, which cannot be loaded into it or not from there.
    StartedWithout,
    /// The environment could not be put right: the program sees the recorder's variables.
    Visible,
}

impl Note {
    const COUNT: usize = 6;
}

/// The shared memory. In the target it is never unmapped.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    /// Where the chunks of rings lie, null while one is not mapped.
    chunks: [AtomicPtr<u8>; CHUNKS],
    /// Bytes that may still be mapped here.
    budget: AtomicUsize,
    /// The collector's descriptor of the memory, -1 in the target.
    fd: i32,
}

// SAFETY: plain memory that is only accessed through atomics.
unsafe impl Send for Region {}
// SAFETY: see above.
unsafe impl Sync for Region {}

#[cfg(feature = "collector")]
impl Drop for Region {
    fn drop(&mut self) {
        if self.fd < 0 {
            return;
        }
        self.detach();
        for chunk in 1..CHUNKS {
            let start = *self.chunks[chunk].get_mut();
            if !start.is_null() {
                // SAFETY: mapped with this length, and nothing outlives `self`.
                unsafe { kernel::unmap(start, rings_of(chunk).1 * RING_BYTES) };
            }
        }
        // SAFETY: likewise; the descriptor is ours.
        unsafe {
            kernel::unmap(self.start.as_ptr(), FIRST_BYTES);
            libc::close(self.fd);
        }
    }
}

/// The chunk of a ring, and its first ring.
fn chunk_of(ring: usize) -> (usize, usize) {
    match ring.checked_ilog2() {
        Some(log) if log >= FIRST_RINGS_LOG => ((log - FIRST_RINGS_LOG) as usize + 1, 1 << log),
        _ => (0, 0),
    }
}

/// The first ring of a chunk, and how many it has.
fn rings_of(chunk: usize) -> (usize, usize) {
    let first = 1 << (FIRST_RINGS_LOG as usize + chunk.saturating_sub(1));
    if chunk == 0 {
        (0, first)
    } else {
        (first, first)
    }
}

impl Region {
    fn new(start: NonNull<u8>, fd: i32, budget: usize) -> Self {
        let region = Self {
            start,
            chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS],
            budget: AtomicUsize::new(budget),
            fd,
        };
        let first = start.as_ptr().wrapping_add(DATA_OFFSET);
        region.chunks[0].store(first, Ordering::Release);
        // A core file of the target has no use for it.
        kernel::advise(start.as_ptr(), FIRST_BYTES, libc::MADV_DONTDUMP);
        region
    }

    /// Opens what a collector made, in the target. Makes no calls of the C library. `limit` is that of the
    /// address space, where there is one: of a small one a small part is taken, of a very small one nothing.
    #[must_use]
    pub fn open(path: &CStr, limit: Option<u64>) -> Option<Self> {
        let file = File::open(path, libc::O_RDWR)?;
        if file.status()?.st_size != LENGTH as i64 {
            return None;
        }
        let share = limit.map_or(u64::MAX, |limit| limit / SHARE_OF_LIMIT);
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        let fits = share >= FIRST_BYTES + size_of::<crate::Told>();
        let first = if fits { FIRST_BYTES } else { HEADER_BYTES };
        let start = NonNull::new(kernel::map(first, Some((file.number(), 0))))?;
        // SAFETY: at the start of the mapping, aligned to pages, all fields atomics.
        let header = unsafe { start.cast::<Header>().as_ref() };
        let ours = header.magic.load(Ordering::Acquire) == MAGIC
            && header.length.load(Ordering::Relaxed) == LENGTH as u64;
        if ours && fits {
            return Some(Self::new(start, -1, share - FIRST_BYTES));
        }
        if ours {
            header.notes[Note::NoSpace as usize].fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: mapped just now, with this length.
        unsafe { kernel::unmap(start.as_ptr(), first) };
        None
    }

    /// Makes the memory, for the collector.
    ///
    /// # Errors
    /// The kernel's: out of descriptors, memory or address space.
    #[cfg(feature = "collector")]
    pub fn create() -> std::io::Result<Self> {
        use std::io::Error;

        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a name that ends in NUL; the result is a new descriptor.
        let fd = unsafe { libc::memfd_create(c"linewise-heap".as_ptr(), flags) };
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: our descriptor, no pointers. What is in the memory is never taken away from under the collector.
        let made = unsafe {
            libc::ftruncate(fd, LENGTH as i64) == 0
                && libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0
        };
        let mapped = || NonNull::new(kernel::map(FIRST_BYTES, Some((fd, 0))));
        let Some(start) = made.then(mapped).flatten() else {
            let error = match made {
                true => Error::from(std::io::ErrorKind::OutOfMemory),
                false => Error::last_os_error(),
            };
            // SAFETY: our descriptor, used by nobody else.
            unsafe { libc::close(fd) };
            return Err(error);
        };
        let region = Self::new(start, fd, usize::MAX);
        let header = region.header();
        header.length.store(LENGTH as u64, Ordering::Relaxed);
        header.allowance.store(i64::MAX, Ordering::Relaxed);
        header.next_image.store(1, Ordering::Relaxed);
        header.next_layout.store(1, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(region)
    }

    /// Where a process of the same user finds the memory while this one lives; for [`VARIABLE`]. It is as long
    /// whatever this process's id is, so that the target's stack begins at the same place in every run.
    #[cfg(feature = "collector")]
    #[must_use]
    pub fn path(&self) -> String {
        let process = std::process::id();
        let slashes = "/".repeat(8_usize.saturating_sub(process.to_string().len()).max(1));
        format!("/proc/{process}{slashes}fd/{}", self.fd)
    }

    /// The memory's inode, by which it is found among what a process has mapped; 0 in the target.
    #[cfg(feature = "collector")]
    #[must_use]
    pub fn inode(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;

        std::fs::metadata(format!("/proc/self/fd/{}", self.fd)).map_or(0, |it| it.ino())
    }

    fn at<T>(&self, offset: usize) -> *const T {
        debug_assert!(offset + size_of::<T>() <= FIRST_BYTES);
        // SAFETY: callers pass offsets of the layout above, all inside the first mapping.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: at the start of the mapping, which is aligned to pages and lives as long as `self`;
        // all fields are atomics, for which any bytes are valid.
        unsafe { &*self.at::<Header>(0) }
    }

    pub(crate) fn ring_header(&self, index: usize) -> &RingHeader {
        // SAFETY: inside the mapping by the minimum, aligned by the layout, all fields atomics.
        unsafe {
            &*self.at::<RingHeader>(RINGS_OFFSET + index.min(RINGS - 1) * size_of::<RingHeader>())
        }
    }

    /// The words of a ring, if they are mapped here.
    pub(crate) fn ring_words(&self, index: usize) -> Option<&[AtomicU64]> {
        let (chunk, first) = chunk_of(index);
        let start = self.chunks.get(chunk)?.load(Ordering::Acquire);
        if start.is_null() {
            return None;
        }
        // SAFETY: inside the chunk, which is as long as its rings, aligned, atomics, and mapped as long as `self` lives.
        Some(unsafe {
            core::slice::from_raw_parts(
                start.add((index - first) * RING_BYTES).cast::<AtomicU64>(),
                RING_WORDS,
            )
        })
    }

    /// Maps the chunk of a ring, and those before it, if that is not done yet; whether it is now. Makes system calls.
    pub(crate) fn map_ring(&self, index: usize) -> bool {
        let (last, _) = chunk_of(index);
        (1..=last).all(|chunk| self.map_chunk(chunk))
    }

    fn map_chunk(&self, chunk: usize) -> bool {
        let (Some(place), Some(before)) = (self.chunks.get(chunk), self.chunks.get(chunk - 1))
        else {
            return false;
        };
        if !place.load(Ordering::Acquire).is_null() {
            return true;
        }
        let (first, count) = rings_of(chunk);
        // In the target the last page of the chunk before comes along.
        let (lead, bytes) = match self.fd {
            -1 => (PAGE, PAGE + count * RING_BYTES),
            _ => (0, count * RING_BYTES),
        };
        let pays = |left: usize| left.checked_sub(bytes);
        if (self.budget)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, pays)
            .is_err()
        {
            return false;
        }
        let start = match self.fd {
            -1 => {
                let (_, count) = rings_of(chunk - 1);
                let end = before
                    .load(Ordering::Acquire)
                    .wrapping_add(count * RING_BYTES);
                // SAFETY: the last page of a chunk that is mapped: chunks are mapped in order.
                unsafe { kernel::map_on(end.wrapping_sub(PAGE), bytes) }
            }
            fd => kernel::map(bytes, Some((fd, (DATA_OFFSET + first * RING_BYTES) as u64))),
        };
        if start.is_null() {
            return false;
        }
        let mine = start.wrapping_add(lead);
        if (place.compare_exchange(null_mut(), mine, Ordering::AcqRel, Ordering::Acquire)).is_err()
        {
            // SAFETY: mapped just now, and nobody knows of it.
            unsafe { kernel::unmap(start, bytes) };
        }
        true
    }

    fn known(&self) -> &[AtomicU64] {
        // SAFETY: inside the mapping, aligned, atomics, living as long as `self`.
        unsafe { core::slice::from_raw_parts(self.at(KNOWN_OFFSET), KNOWN) }
    }

    fn rules(&self) -> &[[AtomicU64; 2]] {
        // SAFETY: inside the mapping, aligned, atomics, living as long as `self`.
        unsafe { core::slice::from_raw_parts(self.at(RULES_OFFSET), RULES) }
    }

    /// Tells of one block for every so many allocated bytes on average; of all if 0.
    pub fn set_interval(&self, bytes: u64) {
        self.header().interval.store(bytes, Ordering::Relaxed);
    }

    /// Marks that were lost since there was no ring; [`crate::Ring::lost_marks`] has those of each ring.
    #[must_use]
    pub fn ringless_marks(&self) -> u64 {
        self.header().ringless_marks.load(Ordering::Relaxed)
    }

    /// Counts a mark of a thread that has no ring.
    pub fn lose_mark(&self) {
        let count = &self.header().ringless_marks;
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Has marks told and no blocks.
    pub fn tell_only_marks(&self) {
        self.header().only_marks.store(1, Ordering::Relaxed);
    }

    /// Whether no blocks are told of.
    #[must_use]
    pub fn tells_only_marks(&self) -> bool {
        self.header().only_marks.load(Ordering::Relaxed) != 0
    }

    /// The mean distance that [`Region::set_interval`] asked for; a large one where the allowance is used up, or this
    /// many words of room are too few: what is left is for the ends of what was told.
    #[must_use]
    pub fn interval(&self, room: usize) -> u64 {
        let header = self.header();
        let interval = header.interval.load(Ordering::Relaxed);
        let is_scarce = room < RING_WORDS / 2 && header.patient.load(Ordering::Relaxed) == 0;
        if is_scarce || header.allowance.load(Ordering::Relaxed) < 0 {
            interval.max(SPARING)
        } else {
            interval
        }
    }

    /// Lets the recorder take so many ticks of the target's threads, all together, until this is called again.
    pub fn allow(&self, ticks: i64) {
        self.header().allowance.store(ticks, Ordering::Relaxed);
    }

    /// Takes ticks from the allowance.
    pub(crate) fn take(&self, ticks: u64) {
        self.header()
            .allowance
            .fetch_sub(ticks as i64, Ordering::Relaxed);
    }

    /// Has the next so many blocks at `address` told of, whatever is told of others; 0 blocks: none.
    pub fn follow(&self, address: u64, blocks: u32) {
        let followed = &self.header().followed;
        followed.left.store(i64::from(blocks), Ordering::Relaxed);
        let address = if blocks == 0 { 0 } else { address };
        followed.address.store(address, Ordering::Relaxed);
    }

    /// Whether blocks at `address` are told of in any case: [`Region::follow`].
    #[inline]
    #[must_use]
    pub fn follows(&self, address: u64) -> bool {
        self.header().followed.address.load(Ordering::Relaxed) == address
    }

    /// A block at the followed address was told of.
    pub fn told_of_followed(&self) {
        let followed = &self.header().followed;
        if followed.left.fetch_sub(1, Ordering::Relaxed) <= 1 {
            followed.address.store(0, Ordering::Relaxed);
        }
    }

    /// Records that were lost since there was no ring; [`crate::Ring::lost`] has those of each ring.
    #[must_use]
    pub fn ringless(&self) -> u64 {
        let counts = self.header().ringless.iter();
        let counts = counts.map(|it| it.0.load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }

    /// Counts a record of a thread that has no ring; `thread` is any number of it.
    pub fn lose(&self, thread: usize) {
        let counters = &self.header().ringless;
        counters[thread % RINGLESS]
            .0
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Whether threads may wait for room.
    pub fn set_patient(&self, patient: bool) {
        self.header()
            .patient
            .store(u32::from(patient), Ordering::Relaxed);
    }

    /// Whoever waits for room, and whoever comes, is to wait no more, or may again.
    pub fn hurry(&self, hurried: bool) {
        self.header()
            .hurried
            .store(u32::from(hurried), Ordering::Relaxed);
    }

    /// Whether a thread may wait for room now.
    #[must_use]
    pub fn waits(&self) -> bool {
        let header = self.header();
        header.patient.load(Ordering::Relaxed) != 0
            && header.hurried.load(Ordering::Relaxed) == 0
            && !self.detached()
    }

    /// What the recorder may do: no system call (0), those that it needs where nobody filters them (1), and also under
    /// the filter that the collector has, too (2).
    pub fn allow_calls(&self, calls: u32) {
        self.header().calls.store(calls, Ordering::Relaxed);
    }

    /// See [`Region::allow_calls`].
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.header().calls.load(Ordering::Relaxed)
    }

    /// Says something of the process.
    pub fn note(&self, note: Note) {
        self.header().notes[note as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many processes said it.
    #[must_use]
    pub fn noted(&self, note: Note) -> u32 {
        self.header().notes[note as usize].load(Ordering::Relaxed)
    }

    /// Ends the recording in all processes.
    pub fn detach(&self) {
        self.header().detached.store(1, Ordering::SeqCst);
    }

    /// Whether the recording has ended.
    #[inline]
    #[must_use]
    pub fn detached(&self) -> bool {
        self.header().detached.load(Ordering::Relaxed) != 0
    }

    /// A number for a process that runs a program, or was forked.
    pub fn next_image(&self) -> u32 {
        self.header().next_image.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for a set of loaded code.
    pub fn next_layout(&self) -> u32 {
        self.header().next_layout.fetch_add(1, Ordering::Relaxed) & 0xffff
    }

    /// How many images there were.
    #[must_use]
    pub fn images(&self) -> u32 {
        self.header()
            .next_image
            .load(Ordering::Relaxed)
            .saturating_sub(1)
    }

    /// Whether what a key stands for was told.
    #[inline]
    #[must_use]
    pub fn is_known(&self, key: u64) -> bool {
        let table = self.known();
        (0..PROBES).any(|probe| {
            let slot = &table[(key as usize).wrapping_add(probe) % KNOWN];
            slot.load(Ordering::Acquire) == key
        })
    }

    /// What a key stands for has been told. Where the table is full it is told again.
    pub fn set_known(&self, key: u64) {
        let table = self.known();
        for probe in 0..PROBES {
            let slot = &table[(key as usize).wrapping_add(probe) % KNOWN];
            match slot.compare_exchange(0, key, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) if found == key => return,
                Err(_) => {}
            }
        }
    }

    fn rule_key(layout: u32, ip: u64) -> (u64, usize) {
        let key = ip << 16 | u64::from(layout & 0xffff);
        let place = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        (key, place as usize)
    }

    /// The rule for a return address in a set of loaded code, if the collector gave one.
    #[inline]
    #[must_use]
    pub fn rule(&self, layout: u32, ip: u64) -> Option<Rule> {
        let (key, place) = Self::rule_key(layout, ip);
        let table = self.rules();
        for probe in 0..PROBES {
            let slot = &table[place.wrapping_add(probe) % RULES];
            match slot[0].load(Ordering::Acquire) {
                0 => return None,
                found if found == key => {
                    return Some(Rule::from_word(slot[1].load(Ordering::Relaxed)));
                }
                _ => {}
            }
        }
        None
    }

    /// Gives the rule for a return address. Only the collector does. False if there is no room: then
    /// stacks through it are told by slices, or end there.
    pub fn set_rule(&self, layout: u32, ip: u64, rule: Rule) -> bool {
        let (key, place) = Self::rule_key(layout, ip);
        let table = self.rules();
        for probe in 0..PROBES {
            let slot = &table[place.wrapping_add(probe) % RULES];
            let found = slot[0].load(Ordering::Relaxed);
            if found == 0 || found == key {
                slot[1].store(rule.to_word(), Ordering::Relaxed);
                slot[0].store(key, Ordering::Release);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn both_ends_see_keys_and_rules() {
        let region = Region::create().unwrap();
        let path = CString::new(region.path()).unwrap();
        let other = Region::open(&path, None).unwrap();
        assert!(!other.is_known(77));
        region.set_known(77);
        assert!(other.is_known(77));
        let rule = Rule::Frame {
            from_bp: false,
            offset: 32,
            saved_bp: None,
        };
        assert!(region.set_rule(3, 0x40_1000, rule));
        assert_eq!(other.rule(3, 0x40_1000), Some(rule));
        assert_eq!(other.rule(4, 0x40_1000), None);
        assert_eq!(other.rule(3, 0x40_1001), None);
        region.set_interval(4096);
        assert_eq!(other.interval(RING_WORDS), 4096);
        assert_eq!(other.interval(RING_WORDS / 2 - 1), SPARING);
        region.follow(0x7000, 2);
        for follows in [true, true, false] {
            assert_eq!(other.follows(0x7000), follows);
            assert!(!other.follows(0x7010));
            other.told_of_followed();
        }
        region.allow(10);
        other.take(11);
        assert_eq!(other.interval(RING_WORDS), SPARING);
        region.allow(0);
        assert_eq!(other.interval(RING_WORDS), 4096);
        drop(region);
        assert!(other.detached());
    }

    #[test]
    fn something_else_is_refused() {
        for path in [c"/dev/null", c"/nowhere", c"/proc/self/exe"] {
            assert!(Region::open(path, None).is_none());
        }
    }

    #[test]
    fn every_ring_lies_in_one_chunk_at_a_place_of_its_own() {
        let mut expected = 0;
        for chunk in 0..CHUNKS {
            let (first, count) = rings_of(chunk);
            assert_eq!(first, expected);
            assert!((first..first + count).all(|ring| chunk_of(ring) == (chunk, first)));
            expected += count;
        }
        assert_eq!(expected, RINGS);
    }

    #[test]
    fn both_ends_see_the_same_rings_however_they_came_to_map_them() {
        let region = Region::create().unwrap();
        let path = CString::new(region.path()).unwrap();
        let other = Region::open(&path, None).unwrap();
        for index in [0, 3, 4, 7, 8, 100, RINGS - 1] {
            assert!(other.map_ring(index) && region.map_ring(index));
            let mark = 0x1000 + index as u64;
            other.ring_words(index).unwrap()[5].store(mark, Ordering::Relaxed);
            assert_eq!(
                region.ring_words(index).unwrap()[5].load(Ordering::Relaxed),
                mark
            );
        }
        assert!(!other.map_ring(RINGS) && other.ring_words(RINGS).is_none());
    }

    #[test]
    fn little_address_space_is_taken_where_there_is_little_and_none_where_there_is_less() {
        let region = Region::create().unwrap();
        let path = CString::new(region.path()).unwrap();
        let other = Region::open(&path, Some(500_000 << 10)).unwrap();
        assert!(other.ring_words(3).is_some());
        assert!(!other.map_ring(RINGS - 1));
        assert_eq!(region.noted(Note::NoSpace), 0);
        assert!(Region::open(&path, Some(100_000 << 10)).is_none());
        assert_eq!(region.noted(Note::NoSpace), 1);
    }

    #[test]
    fn nobody_can_take_the_memory_away() {
        let region = Region::create().unwrap();
        let file = std::fs::File::options()
            .write(true)
            .open(region.path())
            .unwrap();
        for length in [0, 1, LENGTH as u64 / 2, LENGTH as u64 * 2] {
            assert!(file.set_len(length).is_err());
        }
        region.note(Note::OwnMalloc);
        assert_eq!(region.noted(Note::OwnMalloc), 1);
    }
}
