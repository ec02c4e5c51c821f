//! What a program hands to an exec function may not be memory that can be read. The kernel refuses that with EFAULT, so
//! nothing is read here before it was asked for, a byte of each page.

use core::ffi::{CStr, c_char};

use linewise_heap::kernel;

type Text = *const c_char;

const PAGE: u64 = 4096;

/// Pages that were found to be readable, the last one remembered. Makes system calls.
pub(crate) struct Readable {
    tid: u32,
    page: u64,
}

impl Readable {
    /// For the calling thread, whose number this is.
    pub(crate) fn of(tid: u32) -> Self {
        Self {
            tid,
            page: u64::MAX,
        }
    }

    fn has(&mut self, address: u64) -> bool {
        let page = address / PAGE;
        if page != self.page {
            // Eight bytes in the page.
            if kernel::read_memory(self.tid, address & !7, &mut [0]) == 0 {
                return false;
            }
            self.page = page;
        }
        true
    }

    /// The string that begins there.
    ///
    /// # Safety
    /// Nobody takes its memory away while it is in use.
    pub(crate) unsafe fn string<'a>(&mut self, text: Text) -> Option<&'a CStr> {
        let mut at = text as u64;
        loop {
            if at == 0 || !self.has(at) {
                return None;
            }
            // SAFETY: the page can be read.
            if unsafe { *(at as *const u8) } == 0 {
                // SAFETY: it was read up to its NUL.
                return Some(unsafe { CStr::from_ptr(text) });
            }
            at = at.checked_add(1)?;
        }
    }

    /// How many strings the list has before its null; `None` where it or one of them cannot be read.
    ///
    /// # Safety
    /// As for [`Readable::string`].
    pub(crate) unsafe fn list(&mut self, list: *const Text) -> Option<usize> {
        if list.is_null() {
            return Some(0);
        }
        for count in 0.. {
            let place = (list as u64).checked_add(count as u64 * 8)?;
            if !self.has(place) || !self.has(place.checked_add(7)?) {
                return None;
            }
            // SAFETY: its pages can be read; it need not be aligned.
            let text = unsafe { (place as *const Text).read_unaligned() };
            if text.is_null() {
                return Some(count);
            }
            // SAFETY: the caller's promise.
            unsafe { self.string(text) }?;
        }
        None
    }
}
