//! Memory in the largest pages that the machine gives, and how contiguous it is physically.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a small page.
const SMALL: usize = 4096;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Bytes of a gigantic page.
const GIGANTIC: usize = 1 << 30;
/// Words of a line of 64 bytes.
const LINE: usize = 16;

/// What memory consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pages {
    /// Reserved pages of 1 GiB.
    Gigantic,
    /// Reserved pages of 2 MiB.
    Huge,
    /// Pages of 2 MiB that the kernel made because it was asked to (transparent huge pages).
    Transparent,
    /// Pages of 4 KiB.
    Small,
}

impl Pages {
    /// All sorts, largest first.
    pub const ALL: [Self; 4] = [Self::Gigantic, Self::Huge, Self::Transparent, Self::Small];

    /// What they are, in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Gigantic => "reserved pages of 1 GiB",
            Self::Huge => "reserved pages of 2 MiB",
            Self::Transparent => "transparent huge pages of 2 MiB",
            Self::Small => "pages of 4 KiB",
        }
    }

    fn size(self) -> usize {
        match self {
            Self::Gigantic => GIGANTIC,
            Self::Huge | Self::Transparent => HUGE,
            Self::Small => SMALL,
        }
    }

    fn flags(self) -> i32 {
        match self {
            Self::Gigantic => libc::MAP_HUGETLB | libc::MAP_HUGE_1GB,
            Self::Huge => libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
            Self::Transparent | Self::Small => 0,
        }
    }
}

/// How memory lies physically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contiguity {
    /// Pieces that are physically contiguous.
    pub pieces: usize,
    /// Bytes of the largest piece.
    pub largest_bytes: usize,
}

/// Memory of zeros in the largest pages that the machine gives, all of it present.
#[derive(Debug)]
pub struct Buffer {
    /// What was mapped; begins at or before `base`.
    mapped: *mut libc::c_void,
    mapped_bytes: usize,
    base: NonNull<AtomicU32>,
    words: usize,
    pages: Pages,
}

// SAFETY: the mapping belongs to nobody's thread, and is reached as atomic words only.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// At least `bytes` of memory. Sorts of pages of which a single one is more than twice what is asked for are
    /// passed over where they are reserved: somebody else may need them.
    ///
    /// # Errors
    /// The kernel's, if it does not even give small pages.
    pub fn allocate(bytes: usize) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::OutOfMemory);
        for pages in Pages::ALL {
            let reserved = matches!(pages, Pages::Gigantic);
            if reserved && bytes.saturating_mul(2) < pages.size() {
                continue;
            }
            match Self::of(pages, bytes) {
                Ok(buffer) => return Ok(buffer),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// At least `bytes` of memory in such pages. Where the kernel makes small ones of transparent huge ones,
    /// [`Buffer::pages`] says so.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(pages: Pages, bytes: usize) -> io::Result<Self> {
        let size = pages.size();
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(size)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // What is mapped without a reservation may begin at any small page: it is aligned by hand.
        let spare = if pages == Pages::Transparent { HUGE } else { 0 };
        let mapped_bytes = bytes + spare;
        // SAFETY: a fresh mapping at an address of the kernel's choice; checked for failure below.
        let mapped = unsafe {
            libc::mmap(
                null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | pages.flags(),
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let skipped = if spare == 0 {
            0
        } else {
            mapped.addr().next_multiple_of(HUGE) - mapped.addr()
        };
        // SAFETY: at most `spare` bytes in, so `bytes` bytes are left.
        let base = unsafe { mapped.byte_add(skipped) };
        if pages == Pages::Transparent {
            // SAFETY: within the mapping, and only advice: a refusal leaves small pages, which is found out below.
            unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
        }
        let mut buffer = Self {
            mapped,
            mapped_bytes,
            base: NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?,
            words: bytes / size_of::<AtomicU32>(),
            pages,
        };
        for word in buffer.words().iter().step_by(SMALL / size_of::<u32>()) {
            word.store(0, Ordering::Relaxed);
        }
        if pages == Pages::Transparent && buffer.transparent_bytes() < bytes as u64 {
            buffer.pages = Pages::Small;
        }
        Ok(buffer)
    }

    /// Its words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: so many words are mapped from there for as long as `self` lives, readable and writable; all bits
        // are values, and nobody reaches them but through this.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    /// Its words, for one who has it alone.
    #[must_use]
    pub fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: as above, and the exclusive borrow means that nobody else reaches them; an atomic word has the size,
        // alignment and values of a plain one.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().cast::<u32>(), self.words) }
    }

    /// What it consists of.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Bytes of it in transparent huge pages; 0 if the kernel does not tell.
    fn transparent_bytes(&self) -> u64 {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let (low, high) = (
            self.base.addr().get(),
            self.base.addr().get() + self.words * 4,
        );
        let mut inside = false;
        let mut kib = 0;
        for line in smaps.lines() {
            if let Some(rest) = line.strip_prefix("AnonHugePages:") {
                let number = rest.split_ascii_whitespace().next();
                let number = number.and_then(|number| number.parse::<u64>().ok());
                kib += number.filter(|_| inside).unwrap_or(0);
            } else if let Some((from, to)) = extent(line) {
                inside = from < high && low < to;
            }
        }
        kib * 1024
    }

    /// How the first `bytes` of it lie physically; `None` where the kernel hides that (it tells root, or who has
    /// `CAP_SYS_ADMIN`).
    #[must_use]
    pub fn contiguity(&self, bytes: usize) -> Option<Contiguity> {
        const PRESENT: u64 = 1 << 63;
        const FRAME: u64 = (1 << 55) - 1;
        let file = fs::File::open("/proc/self/pagemap").ok()?;
        let bytes = bytes.clamp(1, self.words * 4);
        let mut entries = vec![0_u8; bytes.div_ceil(SMALL) * 8];
        let first = (self.base.addr().get() / SMALL * 8) as u64;
        file.read_exact_at(&mut entries, first).ok()?;
        let mut frames = Vec::with_capacity(entries.len() / 8);
        for entry in entries.chunks_exact(8) {
            let entry = u64::from_ne_bytes(entry.try_into().ok()?);
            // Without the right to know, every frame is 0.
            if entry & PRESENT == 0 || entry & FRAME == 0 {
                return None;
            }
            frames.push(entry & FRAME);
        }
        let pieces = frames.chunk_by(|a, b| *b == *a + 1);
        let lengths: Vec<usize> = pieces.map(<[u64]>::len).collect();
        Some(Contiguity {
            pieces: lengths.len(),
            largest_bytes: lengths.iter().max()? * SMALL,
        })
    }
}

/// Stores to every line, which drives whatever else was cached out of caches that are smaller.
pub fn store_to_lines(words: &[AtomicU32]) {
    for word in words.iter().step_by(LINE) {
        word.store(
            word.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and no borrow of its words is left. A refusal would leave it mapped.
        unsafe { libc::munmap(self.mapped, self.mapped_bytes) };
    }
}

/// The addresses of a mapping that a line of `/proc/PID/smaps` begins with.
fn extent(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split_ascii_whitespace().next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some((address(from)?, address(to)?))
}

/// Memory that this process can have without swapping, in bytes: what the machine has, and its control groups allow; `None`
/// if the kernel does not tell.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let allowed = crate::cgroup::memory_left_bytes(Path::new("/"));
    free_bytes().into_iter().chain(allowed).min()
}

fn free_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_writable_and_as_long_as_asked_for_in_any_sort_of_page() {
        for bytes in [1, 100_000, 5 << 20] {
            let buffer = Buffer::allocate(bytes).unwrap();
            assert!(buffer.words().len() * 4 >= bytes);
            assert!(
                buffer
                    .words()
                    .iter()
                    .all(|word| word.load(Ordering::Relaxed) == 0)
            );
            store_to_lines(buffer.words());
            let swept = buffer.words().iter().step_by(LINE);
            assert!(swept.clone().all(|word| word.load(Ordering::Relaxed) == 1));
            if let Some(told) = buffer.contiguity(bytes) {
                assert!(told.pieces >= 1 && told.largest_bytes >= SMALL, "{told:?}");
            }
        }
    }

    #[test]
    fn small_pages_are_the_last_resort_and_too_much_is_an_error() {
        let buffer = Buffer::of(Pages::Small, 3 * SMALL).unwrap();
        assert_eq!(buffer.pages(), Pages::Small);
        assert_eq!(buffer.words().len() * 4, 3 * SMALL);
        assert!(Buffer::allocate(usize::MAX / 4).is_err());
        assert!(Buffer::allocate(usize::MAX).is_err());
    }

    #[test]
    fn a_mapping_is_told_from_its_facts() {
        assert_eq!(
            extent("7f00-7f10 rw-p 00000000 00:00 0"),
            Some((0x7f00, 0x7f10))
        );
        assert_eq!(extent("AnonHugePages:      2048 kB"), None);
        assert!(available_bytes().is_none_or(|bytes| bytes > 0));
    }
}
