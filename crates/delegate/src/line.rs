//! The layout of a request line: four cache lines that carry up to sixty-three requests to a server
//! and their answers back in the same place.
//!
//! ```text
//!  byte  0        4                                                             256
//!        ┌────────┬──────────────────────────────────────────────────────────────┐
//!        │ header │ request 0 │ request 1 │ …            words of 32 bits        │
//!        └────────┴──────────────────────────────────────────────────────────────┘
//!        ┌───────────────────────────────────────────────────────────────────────┐
//!        │ upper halves of the answers, touched only where one exceeds 32 bits   │
//!        └───────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The header says whose turn it is. A client writes requests, then the header (turn: server); the
//! server overwrites each request with its answer, then the header (turn: client). So a cache line of
//! requests costs two transfers, one each way, and none is needed for the answers: the 64-byte request
//! and 16-byte response lines of ffwd and Gepard cost four.
//!
//! Four cache lines and not one, since taking turns costs both sides more than the transfers, which
//! run side by side. Those behind the last request are not touched.

use std::mem::MaybeUninit;

use crate::sync::{AtomicU32, Ordering, UnsafeCell};

/// Words of 32 bits that a line carries beside its header.
pub const WORDS: usize = 63;
/// A word of a request or an answer: some have bytes that were never written.
pub type Word = MaybeUninit<u32>;
/// The step in which [`prefetch_for_writing`] is asked for the cache lines of a request line.
const CACHE_LINE_BYTES: usize = 64;
/// Most request lines between one client and one server (the seed's largest setting is 16).
pub const MOST_LINES: usize = 32;

/// The turn bit of a header: set while the line is the server's.
const SERVER: u32 = 1;
/// An answer exceeds 32 bits: the upper halves are in the second line.
pub const WIDE: u32 = 1 << 1;
/// A request of the line panicked: see the channel's failures.
pub const FAILED: u32 = 1 << 2;

/// The one request of the line came alone: both sides stay at this line. A line that goes back and
/// forth is already in both caches, and nothing but it moves.
const ALONE: u32 = 1 << 3;

/// What a client says about a line of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// How many requests the line holds, at most 63. None where what threw meanwhile kept the first from being
    /// written.
    pub count: u32,
    /// Which entry of the channel's table of operations they call.
    pub operation: u32,
    /// Whether both sides use the same line for what comes next.
    pub alone: bool,
}

/// One request line and the room for what does not fit.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Line {
    header: AtomicU32,
    words: UnsafeCell<[Word; WORDS]>,
    high: UnsafeCell<[u32; WORDS + 1]>,
}

// SAFETY: the words are only touched by the side whose turn the header says it is; the header is
// written with Release and read with Acquire, which hands the words over.
unsafe impl Sync for Line {}
// SAFETY: a line holds plain words, and no thread's in particular.
unsafe impl Send for Line {}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Line {
    /// A line that is the client's turn.
    pub fn new() -> Self {
        Self {
            header: AtomicU32::new(0),
            words: UnsafeCell::new([Word::new(0); WORDS]),
            high: UnsafeCell::new([0; WORDS + 1]),
        }
    }

    /// Client: hands the line to the server.
    #[inline(always)]
    pub fn publish(&self, order: Order) {
        let alone = if order.alone { ALONE } else { 0 };
        let header = SERVER | alone | order.count << 8 | order.operation << 16;
        self.header.store(header, Ordering::Release);
    }

    /// Client: the flags of the answer, or `None` while it is the server's turn.
    #[inline(always)]
    pub fn answered(&self) -> Option<u32> {
        let header = self.header.load(Ordering::Acquire);
        (header & SERVER == 0).then_some(header)
    }

    /// Server: what it is asked, or `None` while it is the client's turn.
    #[inline(always)]
    pub fn asked(&self) -> Option<Order> {
        let header = self.header.load(Ordering::Acquire);
        (header & SERVER != 0).then_some(Order {
            count: header >> 8 & 0xff,
            operation: header >> 16,
            alone: header & ALONE != 0,
        })
    }

    /// Server: hands the line back with `flags` ([`WIDE`], [`FAILED`]).
    #[inline(always)]
    pub fn answer(&self, flags: u32) {
        self.header.store(flags & !SERVER, Ordering::Release);
    }

    /// The words, for the side whose turn it is.
    #[inline(always)]
    pub fn words(&self) -> *mut u32 {
        self.words.with_mut(|words| words.cast())
    }

    /// The upper halves, for the side whose turn it is.
    #[inline(always)]
    pub fn high(&self) -> *mut u32 {
        self.high.with_mut(|high| high.cast())
    }

    /// Asks for the cache lines of so many words to be fetched for writing, without waiting for them.
    #[inline(always)]
    pub fn prefetch(&self, words: usize) {
        let mut at = 0;
        while at <= words * 4 {
            prefetch_for_writing(std::ptr::from_ref(self).cast::<u8>().wrapping_add(at));
            at += CACHE_LINE_BYTES;
        }
    }

    /// Calls `f` with the words; loom sees the access.
    pub fn with_words<R>(&self, f: impl FnOnce(*mut [Word; WORDS]) -> R) -> R {
        self.words.with_mut(f)
    }
}

/// Asks for the line at `pointer` to be fetched for writing, without waiting for it.
#[inline(always)]
pub fn prefetch_for_writing<T>(pointer: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address has no effect but on the caches. Processors that lack
    // `prefetchw` treat it as a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) pointer, options(nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch of any address has no effect but on the caches.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) pointer, options(nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = pointer;
}
