//! Whether a domain takes calls: not after its shutdown, and not in a child of `fork`, which has none
//! of its threads.
//!
//! Every call looks, so it must cost one load. The flag is in a page of its own that the kernel fills
//! with zeros in a child (`MADV_WIPEONFORK`): there the domain is closed without anybody closing it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

/// The kernel fills whole pages; none is larger anywhere.
const BYTES: usize = 64 * 1024;

/// A flag that says whether calls are taken.
#[derive(Debug)]
pub(crate) struct Gate {
    open: *const AtomicBool,
    process: u32,
}

// SAFETY: the flag is atomic, and lives as long as the gate.
unsafe impl Send for Gate {}
// SAFETY: all that several threads do with it is to load and store an atomic.
unsafe impl Sync for Gate {}

impl Gate {
    /// An open gate of the calling process.
    pub(crate) fn new() -> Result<Self, Error> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing of ours; it
        // is asked about itself only where it is there.
        let page = unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if page != libc::MAP_FAILED && !cfg!(miri) {
                // Linux before 4.14 refuses: there only calls that ask the kernel know of the fork.
                libc::madvise(page, BYTES, libc::MADV_WIPEONFORK);
            }
            page
        };
        if page == libc::MAP_FAILED {
            return Err(Error::System {
                what: "reserving memory for a domain",
                why: std::io::Error::last_os_error().to_string(),
            });
        }
        let gate = Self {
            open: page.cast(),
            process: std::process::id(),
        };
        gate.flag().store(true, Ordering::Release);
        Ok(gate)
    }

    #[inline(always)]
    fn flag(&self) -> &AtomicBool {
        // SAFETY: mapped in `new`, aligned to a page, and any byte there is 0 or 1.
        unsafe { &*self.open }
    }

    /// Whether calls are taken.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.flag().load(Ordering::Acquire)
    }

    /// Takes no calls from now on.
    pub(crate) fn close(&self) {
        self.flag().store(false, Ordering::SeqCst);
    }

    /// Refuses a call where none is taken.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_open() {
            return Ok(());
        }
        Err(self.refusal())
    }

    #[cold]
    fn refusal(&self) -> Error {
        match self.check_process() {
            Ok(()) => Error::Shutdown,
            Err(forked) => forked,
        }
    }

    /// Refuses a call in a child of `fork`. Asks the kernel.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if std::process::id() == self.process {
            Ok(())
        } else {
            Err(Error::Forked)
        }
    }

    /// Refuses a call in a child of `fork`, also after a shutdown. Asks the kernel only if closed.
    #[inline]
    pub(crate) fn check_forked(&self) -> Result<(), Error> {
        if self.is_open() {
            return Ok(());
        }
        self.check_process()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and not used after this.
        unsafe { libc::munmap(self.open.cast_mut().cast(), BYTES) };
    }
}
