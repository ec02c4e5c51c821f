//! Who allocates: a walk up the stack by the collector's rules. Of the stack only the page that the hook's caller wrote
//! its return address to is read directly. What lies beyond may be anything (the end of a fibre's stack, a page
//! that somebody protects), so the kernel is asked to copy it, which fails where we would be ended.

use core::cell::UnsafeCell;

use linewise_heap::{Cursor, RINGS, Region, SLICE_WORDS, kernel};

use crate::gates::calling;
use crate::thread::Thread;

/// Where a hook was called: its frame as `push rbp; mov rbp, rsp` makes it.
pub(crate) type Frame = *const u64;

const PAGE: u64 = 4096;
/// Words that are copied at once; they never reach over the end of a page.
const PIECE_WORDS: usize = 128;
const PIECE: u64 = PIECE_WORDS as u64 * 8;

type Piece = [u64; PIECE_WORDS];

/// A place for copies for each ring: its thread uses it. A signal handler's stack has no room for them.
struct Pieces([UnsafeCell<Piece>; RINGS]);
// SAFETY: who has the ring of the same number uses it, and nobody else.
unsafe impl Sync for Pieces {}
static PIECES: Pieces = Pieces([const { UnsafeCell::new([0; PIECE_WORDS]) }; RINGS]);

/// The stack above a hook.
struct Stack<'a> {
    /// The lowest word, and one past the page that holds it.
    low: u64,
    page_end: u64,
    thread: &'a Thread,
    /// Whose memory is asked for; `None`: nobody may be asked.
    tid: Option<u32>,
    piece: *mut Piece,
    /// Where the piece begins; 0: nothing was copied.
    copied: u64,
    /// How many words of it.
    words: u64,
}

impl Stack<'_> {
    fn read(&mut self, address: u64) -> Option<u64> {
        if address < self.low || address & 7 != 0 {
            return None;
        }
        if address < self.page_end {
            // SAFETY: above the return address that was just written, in its page, aligned.
            return Some(unsafe { (address as *const u64).read_volatile() });
        }
        let start = address & !(PIECE - 1);
        if self.copied != start {
            self.copy(start);
        }
        let place = (address - start) / 8;
        // SAFETY: the piece is this thread's.
        (place < self.words)
            .then(|| unsafe { (*self.piece).get(place as usize).copied() })
            .flatten()
    }

    /// Copies the piece that begins there, as far as there is one.
    fn copy(&mut self, start: u64) {
        self.copied = start;
        self.words = 0;
        let Some(tid) = self.tid else { return };
        // SAFETY: the piece is this thread's.
        let piece = unsafe { &mut *self.piece };
        let bytes = calling(self.thread, || kernel::read_memory(tid, start, piece));
        self.words = bytes.unwrap_or(0) as u64 / 8;
    }
}

/// Walks up from the caller of a hook, in a set of loaded code. `tid` is the thread's number if system calls may be made.
///
/// # Safety
/// `frame` is the calling hook's, on this thread's stack; the thread has the ring of this number.
pub(crate) unsafe fn walk(
    region: &Region,
    thread: &Thread,
    (ring, layout): (usize, u32),
    tid: Option<u32>,
    frame: Frame,
) -> linewise_heap::Walked {
    // SAFETY: the hook pushed the frame pointer there, below its return address.
    let (bp, ip) = unsafe { (*frame, *frame.add(1)) };
    let low = frame as u64 + 16;
    let mut stack = above(thread, ring, tid, low);
    let at = Cursor { ip, sp: low, bp };
    linewise_heap::Walked::up(region, layout, at, |address| stack.read(address))
}

fn above(thread: &Thread, ring: usize, tid: Option<u32>, low: u64) -> Stack<'_> {
    let piece = PIECES
        .0
        .get(ring)
        .map_or(core::ptr::null_mut(), UnsafeCell::get);
    Stack {
        low,
        // The page of the return address below.
        page_end: ((low - 8) | (PAGE - 1)) + 1,
        thread,
        tid: tid.filter(|_| !piece.is_null()),
        piece,
        copied: 0,
        words: 0,
    }
}

/// The stack from where a walk ended, up to [`SLICE_WORDS`]: what of it lies in the hook's page, and what follows.
///
/// # Safety
/// As for [`walk`], which ended at `from`.
pub(crate) unsafe fn slice<'a>(
    thread: &Thread,
    ring: usize,
    tid: Option<u32>,
    (frame, from): (Frame, u64),
) -> (&'a [u64], &'a [u64]) {
    let mut stack = above(thread, ring, tid, frame as u64 + 16);
    if from & 7 != 0 || from < stack.low {
        return (&[], &[]);
    }
    let mut first: &[u64] = &[];
    if from < stack.page_end {
        let words = ((stack.page_end - from) / 8).min(SLICE_WORDS as u64);
        // SAFETY: above the return address that was just written, in its page, aligned.
        first = unsafe { core::slice::from_raw_parts(from as *const u64, words as usize) };
    }
    let next = from.max(stack.page_end);
    let left = SLICE_WORDS.saturating_sub(first.len());
    if left == 0 || stack.read(next).is_none() {
        return (first, &[]);
    }
    // SAFETY: the piece is this thread's, and is copied to again only by the next walk.
    let piece: &'a [u64] = unsafe { &*stack.piece };
    let begin = ((next - stack.copied) / 8) as usize;
    let end = (stack.words as usize).min(begin.saturating_add(left));
    (first, piece.get(begin..end).unwrap_or_default())
}
