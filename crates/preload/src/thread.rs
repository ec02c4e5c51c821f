//! What each thread keeps: in a table of ours, by the address of its control block. Thread-local storage of a library
//! would move the program's: it lies on top of each thread's stack, and its directory is a block of the heap.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use linewise_heap::Writer;

use crate::shared::{LAST_IMAGE, shared};

/// Threads that are known at a time, of all that ever allocated.
const THREADS: usize = 1 << 12;
/// Places that a thread is looked for at, from its own on.
const PROBES: usize = 32;

/// A thread's state: zeros when it is met.
#[repr(C, align(128))]
pub(crate) struct Thread {
    /// Where its control block is; 0: nobody's.
    owner: AtomicUsize,
    /// Bytes until the next block that is told of.
    pub(crate) countdown: i64,
    /// The mean that the count was drawn with; 0: every block is told of.
    pub(crate) interval: u64,
    /// The block that was allocated last, told of or not, unless something was freed since.
    pub(crate) last: u64,
    /// The block that an operator frees at the moment.
    pub(crate) ending: u64,
    /// State of the random numbers; 0 before the first.
    pub(crate) random: u64,
    /// Its ring, if it has one.
    pub(crate) writer: Option<Writer>,
    /// Inside the recorder: what allocates now is a signal handler.
    pub(crate) busy: u32,
    /// Inside the real allocator: what maps memory now is that.
    pub(crate) inside: u32,
    /// The process's number when the ring was claimed.
    pub(crate) image: u32,
    /// The set of loaded code that the ring says.
    pub(crate) layout: u32,
    /// Numbers slices.
    pub(crate) serial: u32,
    /// Its number when the ring was claimed.
    pub(crate) tid: u32,
    /// Marks that it told.
    pub(crate) marks: u32,
    /// It waited for room in its ring.
    pub(crate) waited: bool,
    /// It makes a system call that a filter could forbid.
    pub(crate) calling: AtomicU32,
}
const _: () = assert!(size_of::<Thread>() == 128);

struct Table([UnsafeCell<Thread>; THREADS]);
// SAFETY: a thread uses its own state alone; of others' it looks at what is atomic.
unsafe impl Sync for Table {}
static TABLE: Table = Table(
    [const {
        UnsafeCell::new(Thread {
            owner: AtomicUsize::new(0),
            countdown: 0,
            interval: 0,
            last: 0,
            ending: 0,
            random: 0,
            writer: None,
            busy: 0,
            inside: 0,
            image: 0,
            layout: 0,
            serial: 0,
            tid: 0,
            marks: 0,
            waited: false,
            calling: AtomicU32::new(0),
        })
    }; THREADS],
);

/// Where in a thread's control block its number is; 0: not known.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Where the calling thread's control block is.
#[inline(always)]
pub(crate) fn control_block() -> usize {
    let block: usize;
    // SAFETY: reads the thread pointer, which the ABI wants to be at the block's beginning.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) block, options(pure, readonly, nostack, preserves_flags));
    }
    block
}

#[inline(always)]
fn place(owner: usize, step: usize) -> *mut Thread {
    let hash = (owner >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    TABLE.0[hash.wrapping_add(step) % THREADS].get()
}

/// Whose state this is.
#[inline(always)]
fn owner<'a>(thread: *mut Thread) -> &'a AtomicUsize {
    // SAFETY: of the table, which stays; an atomic.
    unsafe { &(*thread).owner }
}

/// The calling thread's state, null if there is no room for it. Others never use it.
#[inline(always)]
pub(crate) fn this() -> *mut Thread {
    let block = control_block();
    let first = place(block, 0);
    if owner(first).load(Ordering::Relaxed) == block {
        return first;
    }
    find(block)
}

#[cold]
#[inline(never)]
fn find(block: usize) -> *mut Thread {
    let places = || (0..PROBES).map(|step| place(block, step));
    for thread in places() {
        let found = owner(thread).load(Ordering::Relaxed);
        if found == block {
            return thread;
        }
        if found == 0 && take(thread, 0, block) {
            return thread;
        }
    }
    for thread in places() {
        let found = owner(thread).load(Ordering::Relaxed);
        // SAFETY: what is read of it decides only whether it is taken.
        if is_gone(unsafe { &*thread }) && take(thread, found, block) {
            // SAFETY: ours from now on.
            let thread = unsafe { &mut *thread };
            thread.writer = None;
            thread.countdown = 0;
            thread.interval = 0;
            thread.inside = 0;
            return thread;
        }
    }
    core::ptr::null_mut()
}

fn take(thread: *mut Thread, from: usize, to: usize) -> bool {
    owner(thread)
        .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Whether another thread makes a system call at this moment, as far as that is known.
pub(crate) fn is_somebody_calling() -> bool {
    let own = control_block();
    TABLE.0.iter().any(|thread| {
        let thread = thread.get();
        let whose = owner(thread).load(Ordering::Relaxed);
        // SAFETY: of the table; an atomic.
        whose != 0 && whose != own && unsafe { &(*thread).calling }.load(Ordering::SeqCst) != 0
    })
}

/// Finds out where threads' control blocks have their numbers: by what the C library has for debuggers. `tid` is the
/// calling thread's.
pub(crate) fn learn_numbers(tid: u32) {
    let found = crate::lookup::find(c"_thread_db_pthread_tid", crate::lookup::Among::All);
    if found.address == 0 {
        return;
    }
    // SAFETY: three numbers, as the library that finds threads for debuggers reads them: bits, elements, offset.
    let [bits, _, offset] = unsafe { *(found.address as *const [u32; 3]) };
    if bits == 32 && (64..4096).contains(&offset) {
        NUMBER.store(u64::from(offset), Ordering::Relaxed);
        if number() != Some(tid) {
            forget_numbers();
        }
    }
}

/// The blocks do not say it: processes are forked behind the C library's back.
pub(crate) fn forget_numbers() {
    NUMBER.store(0, Ordering::Relaxed);
}

/// The calling thread's number, as its control block says; `None` where that is not known.
pub(crate) fn number() -> Option<u32> {
    let offset = NUMBER.load(Ordering::Relaxed);
    // SAFETY: inside the control block, which is there as long as the thread.
    (offset != 0).then(|| unsafe { *((control_block() + offset as usize) as *const u32) })
}

impl Thread {
    /// A random number from an exponential distribution with this mean, at least 1.
    pub(crate) fn exponential(&mut self, mean: u64) -> i64 {
        if self.random == 0 {
            self.random = (core::ptr::from_mut(self) as u64 ^ linewise_heap::stamp()) | 1;
        }
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let uniform = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
        let drawn = minus_ln(uniform) * mean as f64;
        (drawn as i64).max(1)
    }
}

/// -ln(x / 2^64), without the mathematics library, which the program may not have: the series of the
/// inverse hyperbolic tangent, good to 1e-5.
fn minus_ln(x: u64) -> f64 {
    let zeros = x.leading_zeros();
    let mantissa = (x << (zeros & 63)) as f64 / 9_223_372_036_854_775_808.0; // 1 up to 2
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let s2 = s * s;
    let ln = 2.0 * s * (1.0 + s2 * (1.0 / 3.0 + s2 * (0.2 + s2 * (1.0 / 7.0 + s2 / 9.0))));
    f64::from(zeros + 1) * core::f64::consts::LN_2 - ln
}

/// Whether a thread's state is nobody's any more, as far as can be told: its ring is another's, or it has none and loses
/// nothing but a count.
fn is_gone(thread: &Thread) -> bool {
    let (Some(region), Some(writer)) = (shared(), thread.writer) else {
        return thread.busy == 0 && thread.inside == 0;
    };
    let own = LAST_IMAGE.load(Ordering::Relaxed);
    thread.image != own || !writer.is_of(region, (thread.tid, own))
}
