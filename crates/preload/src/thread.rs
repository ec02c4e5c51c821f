//! What each thread keeps, in static thread-local storage.

use core::arch::{asm, global_asm};
use core::mem::MaybeUninit;

use linewise_heap::Writer;

/// A thread's state: zeros when the thread begins.
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// Bytes until the next block that is told of.
    pub(crate) countdown: i64,
    /// The mean that the count was drawn with; 0: every block is told of.
    pub(crate) interval: u64,
    /// Inside the recorder: what allocates now is a signal handler, or a call of ours.
    pub(crate) busy: u32,
    /// Inside the real allocator: what maps memory now is that.
    pub(crate) inside: u32,
    /// The process's number when the ring was claimed.
    pub(crate) image: u32,
    /// Whether there is a writer.
    pub(crate) has_ring: bool,
    /// The thread has ended; what it still does is not told.
    pub(crate) ended: bool,
    /// It waited for room in its ring.
    pub(crate) waited: bool,
    pub(crate) writer: MaybeUninit<Writer>,
    /// The set of loaded code that the ring says.
    pub(crate) layout: u32,
    /// State of the random numbers; 0 before the first.
    pub(crate) random: u64,
    /// The mapping that holds the stack.
    pub(crate) stack: (u64, u64),
    /// How often memory had been unmapped when that was found.
    pub(crate) stack_seen: u32,
    /// Numbers slices.
    pub(crate) serial: u32,
    pub(crate) tid: u32,
    /// The block that was allocated last, told of or not, unless something was freed since.
    pub(crate) last: u64,
    /// The block that an operator frees at the moment.
    pub(crate) ending: u64,
}

const SIZE: usize = 128;
const _: () = assert!(size_of::<Thread>() <= SIZE);

// Rust's thread-locals may call into the loader, which may allocate. This is what a C compiler makes of
// `static __thread` with `-ftls-model=initial-exec`.
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 6",
    ".globl linewise_heap_thread",
    ".hidden linewise_heap_thread",
    ".type linewise_heap_thread, @object",
    ".size linewise_heap_thread, {size}",
    "linewise_heap_thread:",
    ".zero {size}",
    ".popsection",
    size = const SIZE,
);

/// The calling thread's state. Others never see it.
#[inline(always)]
pub(crate) fn this() -> *mut Thread {
    let this: *mut Thread;
    // SAFETY: reads the thread pointer and a constant offset; the storage is as large and aligned as
    // `Thread` needs, lives as long as the thread, and zeros are a value of all its fields.
    unsafe {
        asm!(
            "mov {this}, qword ptr fs:[0]",
            "add {this}, qword ptr [rip + linewise_heap_thread@GOTTPOFF]",
            this = out(reg) this,
            options(pure, readonly, nostack),
        );
    }
    this
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
    let mantissa = (x << zeros) as f64 / 9_223_372_036_854_775_808.0; // 1 up to 2
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let s2 = s * s;
    let ln = 2.0 * s * (1.0 + s2 * (1.0 / 3.0 + s2 * (0.2 + s2 * (1.0 / 7.0 + s2 / 9.0))));
    f64::from(zeros + 1) * core::f64::consts::LN_2 - ln
}
