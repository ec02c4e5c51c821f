//! The ring buffer that the kernel shares with us.
//!
//! ```text
//! page 0: control (data_head written by the kernel, data_tail by us)
//! page 1..: records, each a header { type u32, misc u16, size u16 } and a body, wrapping around
//! ```

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings as sys;

use crate::records::{Record, SampleFormat, parse};

/// A mapped ring. Unmapped on drop.
#[derive(Debug)]
pub struct Ring {
    base: *mut u8,
    length: usize,
    data_length: u64,
    format: SampleFormat,
    scratch: Vec<u8>,
}

// SAFETY: the mapping is not tied to the thread that made it, and `Ring` has no other alias to it
// on our side; the kernel's side is synchronised through data_head and data_tail.
unsafe impl Send for Ring {}

impl Ring {
    pub(crate) fn map(fd: RawFd, pages: usize, format: SampleFormat) -> io::Result<Self> {
        let page = page_size();
        let length = (pages + 1) * page;
        // SAFETY: a fresh mapping at an address of the kernel's choice; checked for failure below.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base: base.cast(),
            length,
            data_length: (pages * page) as u64,
            format,
            scratch: Vec::new(),
        })
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: the control page is mapped for as long as `self` lives, data_head is an aligned
        // u64 in it, and the kernel writes it with a plain store that pairs with our acquire load.
        unsafe {
            let control = self.base.cast::<sys::perf_event_mmap_page>();
            AtomicU64::from_ptr(std::ptr::addr_of_mut!((*control).data_head).cast())
        }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as in `head`; data_tail is ours to write.
        unsafe {
            let control = self.base.cast::<sys::perf_event_mmap_page>();
            AtomicU64::from_ptr(std::ptr::addr_of_mut!((*control).data_tail).cast())
        }
    }

    /// Whether there is anything to read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head().load(Ordering::Relaxed) == self.tail().load(Ordering::Relaxed)
    }

    /// Bytes waiting to be read.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.head()
            .load(Ordering::Acquire)
            .saturating_sub(self.tail().load(Ordering::Relaxed))
    }

    /// Reads all records that are there, in order.
    pub fn drain(&mut self, mut each: impl FnMut(Record)) {
        let head = self.head().load(Ordering::Acquire);
        let mut tail = self.tail().load(Ordering::Relaxed);
        let mut scratch = std::mem::take(&mut self.scratch);
        while tail < head {
            self.copy_out(tail, 8, &mut scratch);
            let size = u64::from(u16::from_ne_bytes([scratch[6], scratch[7]]));
            if size < 8 || size > head - tail {
                // Not a record: the ring was torn. Everything up to head is lost.
                tail = head;
                each(Record::Lost(1));
                break;
            }
            self.copy_out(tail, size as usize, &mut scratch);
            parse(&scratch, &self.format)
                .into_iter()
                .for_each(&mut each);
            tail += size;
        }
        self.tail().store(tail, Ordering::Release);
        self.scratch = scratch;
    }

    fn copy_out(&self, position: u64, length: usize, into: &mut Vec<u8>) {
        into.clear();
        into.reserve(length);
        let start = (position % self.data_length) as usize;
        let first = length.min(self.data_length as usize - start);
        let data_offset = self.length - self.data_length as usize;
        // SAFETY: start + first <= data_length and length - first <= start, so both ranges lie in
        // the mapped data pages; the bytes lie between tail and head, where the kernel does not
        // write until we move the tail.
        unsafe {
            let data = self.base.add(data_offset);
            into.extend_from_slice(std::slice::from_raw_parts(data.add(start), first));
            into.extend_from_slice(std::slice::from_raw_parts(data, length - first));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` got, and nobody keeps a pointer into it.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

/// Bytes of a page.
#[must_use]
pub fn page_size() -> usize {
    // SAFETY: no pointers involved.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
