//! The C++ operators `new` and `delete`, where an allocator has its own: `linewise-preload-cxx` gives these functions
//! the operators' names.
//!
//! - *Exceptions* pass: between the program and the allocator's `operator new` there is one frame without a landing
//!   pad, and nothing that would have to be put right when it is left.
//! - *An operator that calls malloc* (jemalloc's aligned ones do), or another operator, was told of by that: [`last`]
//!   is the block that was told of last.
//! - *No next definition*: a child that linewise did not look at may have no C++ library at first, and load one later for
//!   a module alone. It is looked for again then, and until there is one malloc serves.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use linewise_heap::AllocatorCode;

use crate::hooks::{allocate, allocate_aligned, free};
use crate::lookup::{Among, find, next};
use crate::recorder::{about_to_free, allocated, ending, forget_last, freed, last};
use crate::stack::Frame;
use crate::thread::this;

type Pointer = *mut c_void;
/// `operator delete`: the block, and what follows it.
type Delete = unsafe extern "C" fn(Pointer, usize, usize);

/// An operator of the program's allocator, 0 while it is not known.
struct Operator(AtomicUsize, &'static CStr);

impl Operator {
    fn address(&self) -> Option<usize> {
        match self.0.load(Ordering::Relaxed) {
            0 => self.find(),
            known => Some(known),
        }
    }

    #[cold]
    fn find(&self) -> Option<usize> {
        let found = next(self.1);
        self.0.store(found, Ordering::Relaxed);
        (found != 0).then_some(found)
    }
}

/// Of `operator new`: how it is called beyond its size.
#[derive(Clone, Copy)]
struct Form {
    /// The second argument is an alignment.
    aligned: bool,
    /// It says by null that there is no memory.
    nothrow: bool,
}

/// What an operator that allocates is to call: the allocator's, or `by_malloc`.
fn before(operator: &Operator, by_malloc: usize) -> usize {
    // Another thread may have freed what this one allocated last.
    forget_last(this());
    operator.address().unwrap_or(by_malloc)
}

/// An operator of the allocator gave this block; the block.
unsafe extern "C" fn after(block: Pointer, size: usize, frame: Frame) -> Pointer {
    let thread = this();
    if last(thread) != block {
        // SAFETY: the hook's frame.
        unsafe { allocated(thread, block, size, AllocatorCode::New, frame) };
    }
    block
}

/// # Safety
/// As the operator; `frame` is the calling hook's.
#[cold]
unsafe fn make_by_malloc(form: Form, size: usize, alignment: usize, frame: Frame) -> Pointer {
    let size = size.max(1);
    // SAFETY: the hook's frame.
    let block = unsafe {
        match form.aligned {
            true => allocate_aligned(alignment, size, frame),
            false => allocate(size, frame),
        }
    };
    if block.is_null() && !form.nothrow {
        // Nobody here can make the exception.
        const SAID: &[u8] = b"linewise: out of memory, in a program without operator new\n";
        // SAFETY: bytes that live through the call; it ends the process.
        unsafe {
            libc::write(2, SAID.as_ptr().cast(), SAID.len());
            libc::abort();
        }
    }
    block
}

/// # Safety
/// As the operator.
#[inline(always)]
unsafe fn unmake(operator: &Operator, block: Pointer, second: usize, third: usize) {
    let Some(address) = operator.address() else {
        // SAFETY: as we were called: the block is one of malloc's.
        return unsafe { free(block) };
    };
    let thread = this();
    if !block.is_null() {
        freed(block, about_to_free(thread, block));
    }
    // What it calls to free the block tells nothing more.
    let before = ending(thread, block);
    // SAFETY: the address of an operator with these arguments; those that it does not have it does not look at.
    unsafe { core::mem::transmute::<usize, Delete>(address)(block, second, third) };
    ending(thread, before);
}

/// Functions that stand in front of `operator new`, for `linewise-preload-cxx`. What calls the allocator's operator is
/// none of Rust's, which would end an exception that passes.
macro_rules! news {
    ($($name:ident, $before:ident, $by_malloc:ident = $symbol:literal, $aligned:literal, $nothrow:literal;)+) => {$(
        extern "C" fn $before() -> usize {
            static OPERATOR: Operator = Operator(AtomicUsize::new(0), $symbol);
            before(&OPERATOR, $by_malloc as *const () as usize)
        }

        unsafe extern "C" fn $by_malloc(size: usize, second: usize, _: usize, frame: Frame) -> Pointer {
            let form = Form {
                aligned: $aligned,
                nothrow: $nothrow,
            };
            // SAFETY: as we were called.
            unsafe { make_by_malloc(form, size, second, frame) }
        }

        /// Stands in front of the operator.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "push rdi",
                "push rsi",
                "push rdx",
                "sub rsp, 8",
                "call {before}",
                "mov rdi, qword ptr [rbp - 8]",
                "mov rsi, qword ptr [rbp - 16]",
                "mov rdx, qword ptr [rbp - 24]",
                "mov rcx, rbp",
                "call rax",
                "mov rdi, rax",
                "mov rsi, qword ptr [rbp - 8]",
                "mov rdx, rbp",
                "call {after}",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                before = sym $before,
                after = sym after,
            )
        }
    )+};
}
news! {
    linewise_Znwm, new_one, malloc_new_one = c"_Znwm", false, false;
    linewise_Znam, new_array, malloc_new_array = c"_Znam", false, false;
    linewise_ZnwmRKSt9nothrow_t, new_one_nothrow, malloc_new_one_nothrow = c"_ZnwmRKSt9nothrow_t", false, true;
    linewise_ZnamRKSt9nothrow_t, new_array_nothrow, malloc_new_array_nothrow = c"_ZnamRKSt9nothrow_t", false, true;
    linewise_ZnwmSt11align_val_t, new_one_aligned, malloc_new_one_aligned = c"_ZnwmSt11align_val_t", true, false;
    linewise_ZnamSt11align_val_t, new_array_aligned, malloc_new_array_aligned = c"_ZnamSt11align_val_t", true, false;
    linewise_ZnwmSt11align_val_tRKSt9nothrow_t, new_one_aligned_nothrow, malloc_new_one_aligned_nothrow =
        c"_ZnwmSt11align_val_tRKSt9nothrow_t", true, true;
    linewise_ZnamSt11align_val_tRKSt9nothrow_t, new_array_aligned_nothrow, malloc_new_array_aligned_nothrow =
        c"_ZnamSt11align_val_tRKSt9nothrow_t", true, true;
}

/// Functions that stand in front of `operator delete`.
macro_rules! deletes {
    ($($name:ident = $symbol:literal;)+) => {$(
        /// Stands in front of the operator.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: Pointer, second: usize, third: usize) {
            static OPERATOR: Operator = Operator(AtomicUsize::new(0), $symbol);
            // SAFETY: as we were called.
            unsafe { unmake(&OPERATOR, block, second, third) }
        }
    )+};
}
deletes! {
    linewise_ZdlPv = c"_ZdlPv";
    linewise_ZdaPv = c"_ZdaPv";
    linewise_ZdlPvm = c"_ZdlPvm";
    linewise_ZdaPvm = c"_ZdaPvm";
    linewise_ZdlPvRKSt9nothrow_t = c"_ZdlPvRKSt9nothrow_t";
    linewise_ZdaPvRKSt9nothrow_t = c"_ZdaPvRKSt9nothrow_t";
    linewise_ZdlPvSt11align_val_t = c"_ZdlPvSt11align_val_t";
    linewise_ZdaPvSt11align_val_t = c"_ZdaPvSt11align_val_t";
    linewise_ZdlPvmSt11align_val_t = c"_ZdlPvmSt11align_val_t";
    linewise_ZdaPvmSt11align_val_t = c"_ZdaPvmSt11align_val_t";
    linewise_ZdlPvSt11align_val_tRKSt9nothrow_t = c"_ZdlPvSt11align_val_tRKSt9nothrow_t";
    linewise_ZdaPvSt11align_val_tRKSt9nothrow_t = c"_ZdaPvSt11align_val_tRKSt9nothrow_t";
}

/// Where the allocator lies that has the operators: first byte and one past the last; zeros if there is none.
static ALLOCATOR: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Whether code at `address` is the allocator's: what that maps is its own business.
pub(crate) fn is_allocator(address: u64) -> bool {
    let [start, end] = &ALLOCATOR;
    (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&address)
}

/// Finds out, before the program's own code runs, where the allocator lies, if the operators have their names.
pub(crate) fn look() {
    let called = find(c"_Znwm", Among::All);
    let theirs = find(c"_Znwm", Among::Next);
    // Without the second library whoever is asked names the same one.
    if called.address == theirs.address || theirs.address == 0 {
        return;
    }
    let (start, end) = theirs.module;
    for (mine, found) in ALLOCATOR.iter().zip([start, end]) {
        mine.store(found, Ordering::Relaxed);
    }
}
