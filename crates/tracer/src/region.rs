//! The memory that the target and the collector share, and its rings.
//!
//! ```text
//! header | configuration, a text | ring headers | ring 0 | ring 1 | ... | tables of lines
//! ```
//!
//! One anonymous file (memfd) holds it all, reserved at its full length and filled as it is
//! touched: memory is used only for rings that were in use at the same time, and for tables of memory that
//! the target has. It does not count against the size of /dev/shm.
//!
//! A ring has one writer, a thread of the target, and one reader, the collector. The writer
//! publishes words by moving `head`, the reader frees them by moving `tail`; both only grow. A
//! writer without room sleeps on `waiting` (a futex); a reader without work sleeps on `doorbell`.
//! The reader trusts nothing in here: a target that writes over it can end its trace, not the
//! collector.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::own::{TABLES, Table, TableEntry};
use crate::words;

/// Rings that there can be at a time; each process needs one besides those of its threads.
const RINGS: usize = 4096;
/// Rings of the full size; the others are an eighth of it, so that a crowd of threads does not take
/// all memory.
const LARGE_RINGS: usize = 64;
const LARGE_WORDS: u64 = 1 << 17;
const SMALL_WORDS: u64 = 1 << 14;
const MAGIC: u64 = u64::from_le_bytes(*b"linewise");
/// Changes whenever anything in here or in `words` does.
const VERSION: u32 = 5;
const HEADER_BYTES: usize = 4096;
const CONFIGURATION_BYTES: usize = 1 << 20;
const RINGS_OFFSET: usize = HEADER_BYTES + CONFIGURATION_BYTES;
const ENTRIES_OFFSET: usize = RINGS_OFFSET + RINGS * size_of::<RingHeader>();
const DATA_OFFSET: usize =
    (ENTRIES_OFFSET + TABLES * size_of::<TableEntry>()).next_multiple_of(4096);
const TABLES_OFFSET: usize = DATA_OFFSET + RINGS * (LARGE_WORDS as usize) * 8;
const TABLE_BYTES: usize = size_of::<Table>();
const LENGTH: usize = TABLES_OFFSET + TABLES * TABLE_BYTES;

/// Threads that may have lines for themselves; the numbers above mean something else in the shadow.
pub(crate) const MOST_OWNERS: u16 = u16::MAX - 2;

/// What everybody shares.
#[repr(C)]
pub(crate) struct Header {
    magic: AtomicU64,
    pub(crate) collector_started: AtomicU64,
    /// Lines whose hash is at most this are recorded.
    pub(crate) threshold: AtomicU64,
    /// Accesses that no ring was there for.
    pub(crate) unrecorded: AtomicU64,
    version: AtomicU32,
    pub(crate) collector: AtomicU32,
    /// The plugin was installed.
    pub(crate) installed: AtomicU32,
    /// Nothing is to be recorded or waited for any more.
    pub(crate) detached: AtomicU32,
    pub(crate) next_slot: AtomicU32,
    pub(crate) next_image: AtomicU32,
    next_owner: AtomicU32,
    /// One past the highest ring ever used.
    rings_used: AtomicU32,
    pub(crate) doorbell: AtomicU32,
    configuration_length: AtomicU32,
}

/// One ring. The writer's, the reader's and everybody's words are on lines of their own, two apart,
/// since processors fetch lines in pairs.
#[repr(C, align(128))]
pub(crate) struct RingHeader {
    pub(crate) head: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    pub(crate) waits: AtomicU64,
    /// Loads, stores and updates of the thread so far, told or not, in quarters.
    pub(crate) quarters: [AtomicU64; 3],
    /// Lines that it was the first to touch, and had for itself.
    pub(crate) first_touches: AtomicU64,
    /// See [`Ring::owner`].
    pub(crate) owner: AtomicU32,
    /// The thread is in a system call that may wait for others.
    pub(crate) resting: AtomicU32,
    _writer: [u32; 16],
    pub(crate) tail: AtomicU64,
    pub(crate) waiting: AtomicU32,
    _reader: [u32; 29],
    pub(crate) state: AtomicU32,
    pub(crate) kind: AtomicU32,
    pub(crate) pid: AtomicU32,
    pub(crate) tid: AtomicU32,
    /// The address space: numbered from 0, a new one for each fork and exec.
    pub(crate) image: AtomicU32,
    /// The image that it was forked from, or its own number.
    pub(crate) parent: AtomicU32,
    pub(crate) opened: AtomicU64,
}

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
pub(crate) const OPEN: u32 = 2;
const CLOSED: u32 = 3;

/// What is in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// The accesses and events of a thread.
    Thread,
    /// The definitions of a process.
    Process,
}

/// Whether more can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingState {
    /// Nobody uses it.
    Free,
    /// Somebody writes.
    Open,
    /// Its writer is done.
    Closed,
}

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    /// All, or all but the tables.
    length: usize,
    file: Option<File>,
}

// SAFETY: the mapping is plain memory that is only accessed through atomics, and stays until drop.
unsafe impl Send for Mapping {}
// SAFETY: see above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length by `map`; nobody has a reference past the last handle.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Mapping {
    /// Where there is no address space for the tables (`ulimit -v`), it does without them.
    fn map(file: &File) -> io::Result<(NonNull<u8>, usize)> {
        Self::map_part(file, LENGTH)
            .map(|start| (start, LENGTH))
            .or_else(|_| Self::map_part(file, TABLES_OFFSET).map(|start| (start, TABLES_OFFSET)))
    }

    fn map_part(file: &File, length: usize) -> io::Result<NonNull<u8>> {
        // SAFETY: a new mapping of a file that is long enough, at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // What is reserved would be filled by whoever writes it to a core file.
        // SAFETY: the mapping just made.
        unsafe { libc::madvise(start, length, libc::MADV_DONTDUMP) };
        NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }

    fn at<T>(&self, offset: usize) -> *const T {
        debug_assert!(offset + size_of::<T>() <= self.length);
        // SAFETY: callers pass offsets of the layout above, all inside the mapping.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }
}

/// The shared memory.
#[derive(Clone, Debug)]
pub struct Region(Arc<Mapping>);

impl Region {
    /// Makes the memory, for the collector.
    ///
    /// # Errors
    /// The kernel's: out of descriptors, memory or address space (`ulimit -v`).
    pub fn create() -> io::Result<Self> {
        // SAFETY: a name that ends in NUL; the result is a new descriptor.
        let fd = unsafe { libc::memfd_create(c"linewise".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: new and ours.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(LENGTH as u64)?;
        let (start, length) = Mapping::map(&file)?;
        let region = Self(Arc::new(Mapping {
            start,
            length,
            file: Some(file),
        }));
        let header = region.header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.threshold.store(u64::MAX, Ordering::Relaxed);
        let pid = std::process::id();
        header.collector.store(pid, Ordering::Relaxed);
        header
            .collector_started
            .store(started(pid).unwrap_or(0), Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(region)
    }

    /// Opens what a collector made, in the target.
    ///
    /// # Errors
    /// The path cannot be opened or mapped (the collector is gone, or another user's), or it is not
    /// of this version.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != LENGTH as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is not linewise's, or of another version",
            ));
        }
        let (start, length) = Mapping::map(&file)?;
        let region = Self(Arc::new(Mapping {
            start,
            length,
            file: None,
        }));
        let header = region.header();
        if header.magic.load(Ordering::Acquire) != MAGIC
            || header.version.load(Ordering::Relaxed) != VERSION
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the plugin and linewise are of different versions",
            ));
        }
        Ok(region)
    }

    /// Where another process of this user finds the memory, while this one lives. Only for who
    /// created it.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        let file = self.0.file.as_ref()?;
        Some(format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            file.as_raw_fd()
        ))
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the header lies at the start of the mapping, which is aligned to pages and lives
        // as long as `self`; all its fields are atomics, for which any bytes are valid.
        unsafe { &*self.0.at::<Header>(0) }
    }

    /// Sets which lines are recorded: see [`crate::threshold`].
    pub fn set_threshold(&self, threshold: u64) {
        self.header().threshold.store(threshold, Ordering::Relaxed);
    }

    /// Writes the text that the plugin reads when it is installed.
    ///
    /// # Errors
    /// It is longer than a mebibyte.
    pub fn set_configuration(&self, text: &[u8]) -> io::Result<()> {
        if text.len() > CONFIGURATION_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the configuration is too long",
            ));
        }
        // SAFETY: the area is inside the mapping, as long as was checked, and not read by anybody
        // before the length is stored.
        unsafe {
            std::ptr::copy_nonoverlapping(
                text.as_ptr(),
                self.0.at::<u8>(HEADER_BYTES).cast_mut(),
                text.len(),
            );
        }
        self.header()
            .configuration_length
            .store(text.len() as u32, Ordering::Release);
        Ok(())
    }

    pub(crate) fn configuration(&self) -> Vec<u8> {
        let length = self.header().configuration_length.load(Ordering::Acquire) as usize;
        let mut text = vec![0; length.min(CONFIGURATION_BYTES)];
        // SAFETY: inside the mapping; written before the length was.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.0.at::<u8>(HEADER_BYTES),
                text.as_mut_ptr(),
                text.len(),
            );
        }
        text
    }

    /// Whether the plugin came to life in at least one process.
    #[must_use]
    pub fn installed(&self) -> bool {
        self.header().installed.load(Ordering::Acquire) != 0
    }

    /// Accesses that were not recorded since no ring was left.
    #[must_use]
    pub fn unrecorded(&self) -> u64 {
        self.header().unrecorded.load(Ordering::Relaxed)
    }

    /// Lets whoever still writes run on without waiting or being read.
    pub fn detach(&self) {
        self.header().detached.store(1, Ordering::SeqCst);
        for index in 0..self.rings_used() {
            let ring = self.ring_header(index);
            ring.waiting.store(0, Ordering::SeqCst);
            futex_wake(&ring.waiting);
        }
    }

    /// How many rings have ever been in use.
    #[must_use]
    pub fn rings_used(&self) -> usize {
        (self.header().rings_used.load(Ordering::Acquire) as usize).min(RINGS)
    }

    pub(crate) fn ring_header(&self, index: usize) -> &RingHeader {
        assert!(index < RINGS);
        // SAFETY: inside the mapping by the assertion, aligned by the layout, all fields atomics.
        unsafe {
            &*self
                .0
                .at::<RingHeader>(RINGS_OFFSET + index * size_of::<RingHeader>())
        }
    }

    /// The first word of a ring and how many there are, a power of two.
    pub(crate) fn ring_words(&self, index: usize) -> (NonNull<AtomicU64>, u64) {
        assert!(index < RINGS);
        let first = self
            .0
            .at::<AtomicU64>(DATA_OFFSET + index * (LARGE_WORDS as usize) * 8);
        let words = if index < LARGE_RINGS {
            LARGE_WORDS
        } else {
            SMALL_WORDS
        };
        // SAFETY: an address inside a mapping is not null.
        (unsafe { NonNull::new_unchecked(first.cast_mut()) }, words)
    }

    pub(crate) fn table_entry(&self, index: usize) -> &TableEntry {
        assert!(index < TABLES);
        let offset = ENTRIES_OFFSET + index * size_of::<TableEntry>();
        // SAFETY: inside the mapping by the assertion, aligned by the layout, all fields atomics.
        unsafe { &*self.0.at::<TableEntry>(offset) }
    }

    /// The lines of a table; `None` if there was no address space for them.
    pub(crate) fn table(&self, index: usize) -> Option<&Table> {
        assert!(index < TABLES);
        if self.0.length < LENGTH {
            return None;
        }
        // SAFETY: inside the mapping by the assertion and the check, aligned to pages, all fields of its lines
        // atomics.
        Some(unsafe { &*self.0.at::<Table>(TABLES_OFFSET + index * TABLE_BYTES) })
    }

    /// Forgets all lines of a table, and gives its memory back. Only for who created the memory.
    ///
    /// # Errors
    /// The kernel's, none of which is expected.
    pub(crate) fn clear_table(&self, index: usize) -> io::Result<()> {
        let file = self.0.file.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let offset = TABLES_OFFSET + index * TABLE_BYTES;
        // SAFETY: a descriptor of ours and plain numbers.
        let failed = unsafe {
            libc::fallocate(
                file.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                offset as libc::off_t,
                TABLE_BYTES as libc::off_t,
            )
        };
        match failed {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes a free ring for a writer; `None` if all are in use.
    pub(crate) fn claim(&self, kind: RingKind, image: u32, parent: u32) -> Option<usize> {
        for index in 0..RINGS {
            let ring = self.ring_header(index);
            if ring.state.load(Ordering::Relaxed) != FREE
                || ring
                    .state
                    .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            // SAFETY: no arguments; both cannot fail.
            let (pid, tid) = unsafe { (libc::getpid() as u32, libc::gettid() as u32) };
            ring.kind
                .store(u32::from(kind == RingKind::Process), Ordering::Relaxed);
            ring.pid.store(pid, Ordering::Relaxed);
            ring.tid.store(tid, Ordering::Relaxed);
            ring.image.store(image, Ordering::Relaxed);
            ring.parent.store(parent, Ordering::Relaxed);
            ring.waited_ns.store(0, Ordering::Relaxed);
            ring.waits.store(0, Ordering::Relaxed);
            ring.waiting.store(0, Ordering::Relaxed);
            ring.resting.store(0, Ordering::Relaxed);
            for count in ring.quarters.iter().chain([&ring.first_touches]) {
                count.store(0, Ordering::Relaxed);
            }
            let owner = match kind {
                RingKind::Thread => self.take_owner(),
                RingKind::Process => 0,
            };
            ring.owner.store(u32::from(owner), Ordering::Relaxed);
            ring.head.store(0, Ordering::Relaxed);
            ring.tail.store(0, Ordering::Relaxed);
            ring.opened.store(crate::stamp(), Ordering::Relaxed);
            ring.state.store(OPEN, Ordering::Release);
            self.header()
                .rings_used
                .fetch_max(index as u32 + 1, Ordering::AcqRel);
            return Some(index);
        }
        None
    }

    /// A number for a thread that may have lines for itself; 0 if there are no more.
    fn take_owner(&self) -> u16 {
        let next = self.header().next_owner.fetch_add(1, Ordering::Relaxed);
        match u16::try_from(next.saturating_add(1)) {
            Ok(owner) if owner <= MOST_OWNERS => owner,
            _ => 0,
        }
    }

    /// Numbers for the slots of a block, in one bank; `None` if there are no more.
    pub(crate) fn take_slots(&self, count: u32) -> Option<u32> {
        let bank = words::BANK_SLOTS;
        let first = |next: u32| {
            let left = bank - next % bank;
            if count <= left {
                Some(next)
            } else {
                next.checked_add(left)
            }
        };
        let taken =
            self.header()
                .next_slot
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                    let end = first(next)?.checked_add(count)?;
                    (end <= words::NO_SLOT).then_some(end)
                });
        taken.ok().and_then(first)
    }

    /// The writer of a ring is done.
    pub(crate) fn close(&self, index: usize) {
        self.ring_header(index)
            .state
            .store(CLOSED, Ordering::Release);
    }

    /// The reader's view of a ring.
    #[must_use]
    pub fn ring(&self, index: usize) -> Ring {
        let (words, count) = self.ring_words(index);
        Ring {
            region: self.clone(),
            index,
            words,
            count,
        }
    }

    /// Wakes the collector, if it sleeps in [`Region::sleep`].
    pub(crate) fn ring_the_bell(&self) {
        let doorbell = &self.header().doorbell;
        if doorbell.swap(0, Ordering::SeqCst) != 0 {
            futex_wake(doorbell);
        }
    }

    /// Announces that the collector will sleep unless it finds work in one more look.
    pub fn prepare_sleep(&self) {
        self.header().doorbell.store(1, Ordering::SeqCst);
    }

    /// Sleeps until a writer has filled a good part of its ring since [`Region::prepare_sleep`], or
    /// the time is over.
    pub fn sleep(&self, timeout: Duration) {
        futex_wait(&self.header().doorbell, 1, timeout);
        self.header().doorbell.store(0, Ordering::Relaxed);
    }
}

/// The reader's view of a ring.
#[derive(Debug)]
pub struct Ring {
    region: Region,
    index: usize,
    words: NonNull<AtomicU64>,
    count: u64,
}

// SAFETY: points into the region, which is `Send` and lives as long as the ring.
unsafe impl Send for Ring {}

impl Ring {
    fn header(&self) -> &RingHeader {
        self.region.ring_header(self.index)
    }

    /// What is in it.
    #[must_use]
    pub fn kind(&self) -> RingKind {
        match self.header().kind.load(Ordering::Relaxed) {
            0 => RingKind::Thread,
            _ => RingKind::Process,
        }
    }

    /// Whether more can come.
    #[must_use]
    pub fn state(&self) -> RingState {
        match self.header().state.load(Ordering::Acquire) {
            FREE | CLAIMED => RingState::Free,
            OPEN => RingState::Open,
            _ => RingState::Closed,
        }
    }

    /// Process and thread id of the writer.
    #[must_use]
    pub fn ids(&self) -> (u32, u32) {
        let header = self.header();
        (
            header.pid.load(Ordering::Relaxed),
            header.tid.load(Ordering::Relaxed),
        )
    }

    /// The writer's image and the one it was forked from (or the same number again).
    #[must_use]
    pub fn images(&self) -> (u32, u32) {
        let header = self.header();
        (
            header.image.load(Ordering::Relaxed),
            header.parent.load(Ordering::Relaxed),
        )
    }

    /// The stamp when it was opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.header().opened.load(Ordering::Relaxed)
    }

    /// How long the writer has waited for room, in ns, and how often.
    #[must_use]
    pub fn waited(&self) -> (u64, u64) {
        let header = self.header();
        (
            header.waited_ns.load(Ordering::Relaxed),
            header.waits.load(Ordering::Relaxed),
        )
    }

    /// The number under which its writer has lines for itself, one of its own for each ring of a
    /// thread that was ever opened; 0 if it has none.
    #[must_use]
    pub fn owner(&self) -> u16 {
        self.header().owner.load(Ordering::Relaxed) as u16
    }

    /// Loads, stores and updates that the writer made so far, told or not, and the lines that it was the
    /// first to touch and had for itself. Noted now and then, and only where such lines are left out.
    #[must_use]
    pub fn counted(&self) -> ([u64; 3], u64) {
        let header = self.header();
        let quarters = header.quarters.each_ref();
        (
            quarters.map(|count| count.load(Ordering::Relaxed) / 4),
            header.first_touches.load(Ordering::Relaxed),
        )
    }

    /// How many words it holds.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.count
    }

    /// The first word that is not yet written, counted from the ring's opening.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.header().head.load(Ordering::Acquire)
    }

    /// The word at a position, counted from the ring's opening; of a later lap if it was freed.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, position: u64) -> u64 {
        // SAFETY: masked to the ring's `count` words, which are inside the mapping and live as long
        // as `self`.
        unsafe {
            (*self
                .words
                .as_ptr()
                .add((position & (self.count - 1)) as usize))
            .load(Ordering::Relaxed)
        }
    }

    /// Frees the words before `tail`, and wakes the writer if it waits and half the ring is free.
    pub fn free(&self, tail: u64) {
        let header = self.header();
        header.tail.store(tail, Ordering::SeqCst);
        if header.waiting.load(Ordering::SeqCst) != 0 {
            let used = header.head.load(Ordering::Relaxed).saturating_sub(tail);
            if used <= self.count / 2 && header.waiting.swap(0, Ordering::SeqCst) != 0 {
                futex_wake(&header.waiting);
            }
        }
    }

    /// Gives a closed ring back, or one whose writer is gone.
    pub fn recycle(&self) {
        self.header().state.store(FREE, Ordering::Release);
    }
}

/// Sleeps while `word` is `value`, at most `timeout`; may wake early.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    // SAFETY: the word and the timeout live through the call. Not FUTEX_PRIVATE: two processes.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const timeout,
        );
    }
}

/// Wakes who sleeps on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word is only used as an address.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}

/// When a process started, in the kernel's ticks since boot; `None` if it is gone or a zombie. With
/// the process id this names a process for good, though ids are used again.
#[must_use]
pub fn started(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything, brackets too.
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_see_the_same_memory_and_the_configuration_comes_through() {
        let region = Region::create().unwrap();
        region.set_configuration(b"qemu=/usr/bin/qemu\0").unwrap();
        let other = Region::open(Path::new(&region.path().unwrap())).unwrap();
        assert_eq!(other.configuration(), b"qemu=/usr/bin/qemu\0");
        let index = other.claim(RingKind::Thread, 3, 2).unwrap();
        let ring = region.ring(index);
        assert_eq!(ring.state(), RingState::Open);
        assert_eq!(ring.images(), (3, 2));
        assert_eq!(ring.ids().0, std::process::id());
        other.close(index);
        assert_eq!(ring.state(), RingState::Closed);
    }

    #[test]
    fn something_else_is_refused() {
        let file = tempfile();
        assert!(Region::open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).is_err());
        assert!(Region::open(Path::new("/nowhere")).is_err());
    }

    fn tempfile() -> File {
        // SAFETY: a name that ends in NUL; the descriptor is new and ours.
        unsafe { File::from_raw_fd(libc::memfd_create(c"other".as_ptr(), libc::MFD_CLOEXEC)) }
    }

    #[test]
    fn words_are_found_around_the_end() {
        let region = Region::create().unwrap();
        let index = region.claim(RingKind::Thread, 0, 0).unwrap();
        let (first, count) = region.ring_words(index);
        // SAFETY: the first word of a ring of `count` words.
        unsafe { first.as_ref() }.store(7, Ordering::Relaxed);
        let ring = region.ring(index);
        assert_eq!(ring.capacity(), count);
        assert_eq!(ring.word(0), 7);
        assert_eq!(ring.word(count * 3), 7);
        assert_eq!(ring.word(u64::MAX), 0);
    }

    #[test]
    fn the_slots_of_a_block_lie_in_one_bank_and_are_nobody_elses() {
        let region = Region::create().unwrap();
        let mut end = 0;
        for count in [1, 512, 0, 511, 300].repeat(20) {
            let first = region.take_slots(count).unwrap();
            assert!(first >= end && first < end + 512);
            assert!(
                count == 0 || first / words::BANK_SLOTS == (first + count - 1) / words::BANK_SLOTS
            );
            end = first + count;
        }
        region
            .header()
            .next_slot
            .store(words::NO_SLOT - 10, Ordering::Relaxed);
        assert_eq!(region.take_slots(12), None);
        assert_eq!(region.take_slots(10), Some(words::NO_SLOT - 10));
        assert_eq!(region.take_slots(1), None);
    }

    #[test]
    fn a_process_that_lives_has_a_start_and_none_else() {
        let own = started(std::process::id()).unwrap();
        assert_eq!(started(std::process::id()), Some(own));
        assert_eq!(started(u32::MAX), None);
    }
}
