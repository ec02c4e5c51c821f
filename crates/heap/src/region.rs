//! The memory that the target's processes and the collector share.
//!
//! ```text
//! header | ring headers | known keys | rules | ring 0 | ring 1 | ...
//! ```
//!
//! One anonymous file (memfd) holds it all; memory is used only for what was touched, and the size of
//! /dev/shm does not matter. Who cannot map it records nothing, and goes on.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::io;

use crate::ring::{RING_WORDS, RINGS, RingHeader};
use crate::rules::Rule;

/// The environment variable that tells the recorder where the memory is.
pub const VARIABLE: &str = "LINEWISE_HEAP";

/// The same for who has no strings of Rust.
pub const VARIABLE_C: &CStr = c"LINEWISE_HEAP";

const MAGIC: u64 = u64::from_le_bytes(*b"linewhp2");
const HEADER_BYTES: usize = 4096;
const RINGS_OFFSET: usize = HEADER_BYTES;
const KNOWN: usize = 1 << 16;
const KNOWN_OFFSET: usize = RINGS_OFFSET + RINGS * size_of::<RingHeader>();
const RULES: usize = 1 << 16;
const RULES_OFFSET: usize = KNOWN_OFFSET + KNOWN * 8;
const DATA_OFFSET: usize = RULES_OFFSET + RULES * 16;
const LENGTH: usize = DATA_OFFSET + RINGS * RING_WORDS * 8;
/// Places that a key is looked for at, from its own on.
const PROBES: usize = 8;
/// Mean distance of the blocks to tell of where the allowance is used up, in allocated bytes.
const SPARING: u64 = 1 << 18;

/// What everybody shares.
#[repr(C)]
pub(crate) struct Header {
    magic: AtomicU64,
    length: AtomicU64,
    /// Mean distance of the blocks to tell of, in allocated bytes; 0: all.
    interval: AtomicU64,
    /// Ticks that the recorder may still take until the collector gives it others.
    allowance: AtomicI64,
    /// Records that no ring had room for, or that there was no ring for.
    pub(crate) lost: AtomicU64,
    collector: AtomicU32,
    /// Nothing is to be recorded any more.
    detached: AtomicU32,
    /// Nobody is to wait for room.
    pub(crate) hurried: AtomicU32,
    /// Processes whose calls of malloc go to the program itself.
    own_malloc: AtomicU32,
    next_image: AtomicU32,
    next_layout: AtomicU32,
    /// One past the highest ring ever used.
    pub(crate) rings_used: AtomicU32,
    followed: Followed,
}

/// The address that an object is followed at. Every allocation reads it, so that it has a line of its own.
#[repr(C, align(64))]
struct Followed {
    /// 0: none.
    address: AtomicU64,
    /// Blocks there that are told of yet.
    left: AtomicI64,
}

/// The shared memory. In the target it is never unmapped.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    /// The collector's descriptor of the memory, -1 in the target.
    fd: i32,
}

// SAFETY: plain memory that is only accessed through atomics.
unsafe impl Send for Region {}
// SAFETY: see above.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        if self.fd >= 0 {
            self.detach();
            // SAFETY: mapped with this length, and nothing outlives `self`; the descriptor is ours.
            unsafe {
                libc::munmap(self.start.as_ptr().cast(), LENGTH);
                libc::close(self.fd);
            }
        }
    }
}

fn map(fd: i32) -> Option<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            LENGTH,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            fd,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    // A core file of the target has no use for it.
    // SAFETY: our mapping.
    unsafe { libc::madvise(start, LENGTH, libc::MADV_DONTDUMP) };
    NonNull::new(start.cast())
}

impl Region {
    /// Makes the memory, for the collector.
    ///
    /// # Errors
    /// The kernel's: out of descriptors, memory or address space.
    pub fn create() -> io::Result<Self> {
        // SAFETY: a name that ends in NUL; the result is a new descriptor.
        let fd = unsafe { libc::memfd_create(c"linewise-heap".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: our descriptor, no pointers.
        let sized = unsafe { libc::ftruncate(fd, LENGTH as i64) } == 0;
        let Some(start) = sized.then(|| map(fd)).flatten() else {
            let error = io::Error::last_os_error();
            // SAFETY: our descriptor, used by nobody else.
            unsafe { libc::close(fd) };
            return Err(error);
        };
        let region = Self { start, fd };
        let header = region.header();
        header
            .collector
            .store(std::process::id(), Ordering::Relaxed);
        header.length.store(LENGTH as u64, Ordering::Relaxed);
        header.allowance.store(i64::MAX, Ordering::Relaxed);
        header.next_image.store(1, Ordering::Relaxed);
        header.next_layout.store(1, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(region)
    }

    /// Opens what a collector made, in the target. Calls nothing but open, fstat, mmap and close.
    #[must_use]
    pub fn open(path: &CStr) -> Option<Self> {
        // SAFETY: a path that ends in NUL; the result is a new descriptor, closed below.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if fd < 0 {
            return None;
        }
        // SAFETY: a plain structure of integers, for which zeros are a value; fstat fills it in.
        let mut found: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: our descriptor, and room for one structure.
        let told = unsafe { libc::fstat(fd, &mut found) } == 0;
        let start = if told && found.st_size == LENGTH as i64 {
            map(fd)
        } else {
            None
        };
        // SAFETY: our descriptor; the mapping does not need it.
        unsafe { libc::close(fd) };
        let region = Self {
            start: start?,
            fd: -1,
        };
        let header = region.header();
        (header.magic.load(Ordering::Acquire) == MAGIC
            && header.length.load(Ordering::Relaxed) == LENGTH as u64)
            .then_some(region)
    }

    /// Where a process of the same user finds the memory while this one lives; for [`VARIABLE`].
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd)
    }

    fn at<T>(&self, offset: usize) -> *const T {
        debug_assert!(offset + size_of::<T>() <= LENGTH);
        // SAFETY: callers pass offsets of the layout above, all inside the mapping.
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

    /// The words of a ring.
    pub(crate) fn ring_words(&self, index: usize) -> &[AtomicU64] {
        let first = self.at::<AtomicU64>(DATA_OFFSET + index.min(RINGS - 1) * RING_WORDS * 8);
        // SAFETY: inside the mapping by the minimum, aligned, atomics, living as long as `self`.
        unsafe { core::slice::from_raw_parts(first, RING_WORDS) }
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

    /// The mean distance that [`Region::set_interval`] asked for; a large one where the allowance is used up.
    #[must_use]
    pub fn interval(&self) -> u64 {
        let interval = self.header().interval.load(Ordering::Relaxed);
        match self.header().allowance.load(Ordering::Relaxed) {
            ..0 => interval.max(SPARING),
            _ => interval,
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

    /// Records that were lost since a ring was full or there was none.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.header().lost.load(Ordering::Relaxed)
    }

    /// Counts records that are lost.
    pub fn lose(&self, count: u64) {
        self.header().lost.fetch_add(count, Ordering::Relaxed);
    }

    /// Whoever waits for room, and whoever comes, is to wait no more, or may again.
    pub fn hurry(&self, hurried: bool) {
        self.header()
            .hurried
            .store(u32::from(hurried), Ordering::Relaxed);
    }

    /// See [`Region::hurry`].
    #[must_use]
    pub fn hurried(&self) -> bool {
        self.header().hurried.load(Ordering::Relaxed) != 0
    }

    /// A process has an allocator of its own, which nothing stands in front of.
    pub fn note_own_malloc(&self) {
        self.header().own_malloc.fetch_add(1, Ordering::Relaxed);
    }

    /// How many such processes there were.
    #[must_use]
    pub fn own_mallocs(&self) -> u32 {
        self.header().own_malloc.load(Ordering::Relaxed)
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

    /// Ends the recording if the collector is gone; whether it is.
    pub fn collector_gone(&self) -> bool {
        let pid = self.header().collector.load(Ordering::Relaxed) as i32;
        // SAFETY: signal 0 only asks whether there is such a process.
        let gone = unsafe { libc::kill(pid, 0) != 0 && *libc::__errno_location() == libc::ESRCH };
        if gone {
            self.detach();
        }
        gone
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
        let other = Region::open(&path).unwrap();
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
        assert_eq!(other.interval(), 4096);
        region.follow(0x7000, 2);
        for follows in [true, true, false] {
            assert_eq!(other.follows(0x7000), follows);
            assert!(!other.follows(0x7010));
            other.told_of_followed();
        }
        region.allow(10);
        other.take(11);
        assert_eq!(other.interval(), SPARING);
        region.allow(0);
        assert_eq!(other.interval(), 4096);
        assert!(!other.collector_gone());
        drop(region);
        assert!(other.detached());
    }

    #[test]
    fn something_else_is_refused() {
        assert!(Region::open(c"/dev/null").is_none());
        assert!(Region::open(c"/nowhere").is_none());
    }
}
