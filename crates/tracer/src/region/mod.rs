//! The memory that the target and the collector share, and its rings.
//!
//! ```text
//! header | configuration, a text | ring headers | turns | ring 0 | ring 1 | ... | tables of lines
//! ```
//!
//! One anonymous file (memfd) holds it all, reserved at its full length and filled as it is
//! touched: memory is used only for rings that were in use at the same time, and for tables of memory that
//! the target has. It does not count against the size of /dev/shm. A target may read and write only what it claimed: the
//! rest would be filled by one that locks its memory.
//!
//! A ring has one writer, a thread of the target, and one reader, the collector. The writer
//! publishes words by moving `head`, the reader frees them by moving `tail`; both only grow. A
//! writer without room sleeps on `waiting` (a futex); a reader without work sleeps on `doorbell`.
//! The reader trusts nothing in here: a target that writes over it can end its trace, not the
//! collector. Nor can it take the file's bytes away, which is sealed.

mod collector;
mod futex;
#[cfg(fuzzing)]
mod fuzzing;
mod layout;
mod mapping;
mod naming;
mod ring;
mod ring_header;
mod tables;
#[cfg(test)]
mod tests;
mod turn;
mod turns;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

pub use collector::Hold;
pub(crate) use futex::{futex_wait, futex_wake};
#[cfg(fuzzing)]
pub use fuzzing::RingPlace;
pub use naming::{pid_namespace, started};
pub use ring::{Ring, RingState};
pub use ring_header::RingKind;
pub(crate) use ring_header::{OPEN, RingHeader};
pub(crate) use turn::{CALLS, JOINT, RESTS, RUNS, Time, Turn};

use crate::own::{MOST_OWNERS, TABLES, Table, TableEntry};
use crate::words;
use layout::{
    CONFIGURATION_BYTES, DATA_OFFSET, ENTRIES_OFFSET, HEADER_BYTES, LARGE_RINGS, LARGE_WORDS,
    LENGTH, RINGS, RINGS_OFFSET, SMALL_WORDS, TABLE_BYTES, TABLES_OFFSET, ring_offset,
};
use mapping::Mapping;
use ring_header::{CLAIMED, CLOSED, FREE};

const MAGIC: u64 = u64::from_le_bytes(*b"linewise");
/// Changes whenever anything in here or in `words` does.
const VERSION: u32 = 10;

/// What everybody shares.
#[repr(C)]
pub(crate) struct Header {
    magic: AtomicU64,
    collector_started: AtomicU64,
    /// The inode of the collector's namespace of process ids.
    collector_space: AtomicU64,
    /// Lines whose hash is at most this are recorded.
    pub(crate) threshold: AtomicU64,
    /// Accesses that no ring was there for.
    pub(crate) unrecorded: AtomicU64,
    version: AtomicU32,
    collector: AtomicU32,
    /// See [`Hold`].
    holder: AtomicU32,
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
    /// How often a thread that did not get on was not waited for in the order that is made.
    pub(crate) forced: AtomicU64,
    /// How often one came back from a wait that the kernel ended, while others ran.
    pub(crate) came_back: AtomicU64,
    /// The order of processes that may have memory in common.
    pub(crate) joint: Time,
    /// One past the highest place of a thread in the order that was ever used.
    turns_used: AtomicU32,
}

/// The shared memory. Who writes to it is let go when the last handle of its maker is dropped.
#[derive(Clone, Debug)]
pub struct Region(Arc<Mapping>);

/// What names a file for good while it is open somewhere.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|it| (it.dev(), it.ino()))
}

impl Region {
    /// Makes the memory, for the collector.
    ///
    /// # Errors
    /// The kernel's: out of descriptors, memory or address space (`ulimit -v`).
    pub fn create() -> io::Result<Self> {
        let file = Mapping::create()?;
        let (start, length) = Mapping::map(&file, libc::PROT_READ | libc::PROT_WRITE)?;
        let region = Self(Arc::new(Mapping {
            start,
            length,
            identity: identity(&file)?,
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
        header
            .collector_space
            .store(pid_namespace(), Ordering::Relaxed);
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
        let (start, length) = Mapping::map(&file, libc::PROT_NONE)?;
        let region = Self(Arc::new(Mapping {
            start,
            length,
            identity: identity(&file)?,
            file: None,
        }));
        region.0.admit(0, DATA_OFFSET)?;
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

    /// The address space that it takes at least.
    pub(crate) fn least_bytes() -> u64 {
        TABLES_OFFSET as u64
    }

    /// Whether this process can open the memory at `path` once more.
    pub(crate) fn opens_at(&self, path: &Path) -> bool {
        let file = File::options().read(true).write(true).open(path);
        file.and_then(|file| identity(&file))
            .is_ok_and(|its| its == self.0.identity)
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

    /// How often a thread that did not get on was not waited for, where the order of threads is made.
    #[must_use]
    pub fn forced(&self) -> u64 {
        self.header().forced.load(Ordering::Relaxed)
    }

    /// There: how often a thread came back from a wait that the kernel ended, while others ran.
    #[must_use]
    pub fn came_back(&self) -> u64 {
        self.header().came_back.load(Ordering::Relaxed)
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

    /// Whether nobody reads any more, by agreement or since the collector was found to be gone.
    pub(crate) fn is_detached(&self) -> bool {
        self.header().detached.load(Ordering::Relaxed) != 0
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
        let first = self.0.at::<AtomicU64>(ring_offset(index));
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

    /// Lets this process use a table that it claimed; `None` if there is no address space for it.
    pub(crate) fn admit_table(&self, index: usize) -> Option<&Table> {
        let table = self.table(index)?;
        let offset = TABLES_OFFSET + index * TABLE_BYTES;
        self.0.admit(offset, TABLE_BYTES).ok()?;
        Some(table)
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
            let (from, to) = (ring_offset(index), ring_offset(index + 1));
            if self.0.admit(from, to - from).is_err() {
                ring.state.store(FREE, Ordering::Release);
                return None;
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
            ring.namespace.store(pid_namespace(), Ordering::Relaxed);
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
