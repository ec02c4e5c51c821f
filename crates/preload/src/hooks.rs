//! The functions that programs call to allocate and free. Each that allocates is a few instructions that
//! pass on where it was called, in front of a Rust function that does the work.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use linewise_heap::AllocatorCode;

use crate::real;
use crate::recorder::{about_to_free, allocated, freed, kept, unloaded};
use crate::stack::Frame;
use crate::thread::{Thread, this};

/// Exports `name`, which calls `function` with the arguments and, in the register `frame`, where the hook's
/// own frame is: the caller's frame pointer, below the return address.
macro_rules! hook {
    ($name:ident, $function:path, $frame:literal) => {
        /// Stands in front of the function of the same name.
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
                concat!("mov ", $frame, ", rbp"),
                "call {function}",
                "pop rbp",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                function = sym $function,
            )
        }
    };
}
pub(crate) use hook;

type Pointer = *mut c_void;

hook!(malloc, hooked_malloc, "rsi");
hook!(calloc, hooked_calloc, "rdx");
hook!(realloc, hooked_realloc, "rdx");
hook!(reallocarray, hooked_reallocarray, "rcx");
hook!(posix_memalign, hooked_posix_memalign, "rcx");
hook!(aligned_alloc, hooked_aligned_alloc, "rdx");
hook!(memalign, hooked_memalign, "rdx");
hook!(valloc, hooked_valloc, "rsi");
hook!(pvalloc, hooked_pvalloc, "rsi");
// jemalloc's and mimalloc's own: `linewise-preload-cxx` gives them their names where such an allocator is loaded. A
// program may ask whether they are there.
hook!(linewise_mallocx, hooked_mallocx, "rdx");
hook!(linewise_rallocx, hooked_rallocx, "rcx");
hook!(linewise_mi_malloc, hooked_mi_malloc, "rsi");
hook!(linewise_mi_calloc, hooked_mi_calloc, "rdx");
hook!(linewise_mi_realloc, hooked_mi_realloc, "rdx");

/// Runs a function of the real allocator; memory that is mapped meanwhile is its own business.
#[inline(always)]
fn inside<T>(thread: *mut Thread, real: impl FnOnce() -> T) -> T {
    if thread.is_null() {
        return real();
    }
    // SAFETY: this thread's own state.
    let before = unsafe { (*thread).inside };
    // SAFETY: likewise; a signal handler leaves it as it was.
    unsafe { (*thread).inside = before + 1 };
    let result = real();
    // SAFETY: likewise.
    unsafe { (*thread).inside = before };
    result
}

/// Out of memory, as the C library says it.
fn none() -> Pointer {
    // SAFETY: errno always exists.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    null_mut()
}

/// What [`malloc`] does, for another hook.
///
/// # Safety
/// `frame` is the calling hook's.
pub(crate) unsafe fn allocate(size: usize, frame: Frame) -> Pointer {
    // SAFETY: the caller's promise.
    unsafe { hooked_malloc(size, frame) }
}

/// What [`aligned_alloc`] does, for another hook and any size.
///
/// # Safety
/// As for [`allocate`].
pub(crate) unsafe fn allocate_aligned(alignment: usize, size: usize, frame: Frame) -> Pointer {
    let Some(size) = size.checked_next_multiple_of(alignment.max(1)) else {
        return none();
    };
    // SAFETY: the caller's promise.
    unsafe { hooked_aligned_alloc(alignment, size, frame) }
}

unsafe extern "C" fn hooked_malloc(size: usize, frame: Frame) -> Pointer {
    let Some(real) = real::malloc() else {
        return none();
    };
    let thread = this();
    // SAFETY: as we were called.
    let block = inside(thread, || unsafe { real(size) });
    // SAFETY: the hook's frame.
    unsafe { allocated(thread, block, size, AllocatorCode::Malloc, frame) };
    block
}

unsafe extern "C" fn hooked_calloc(count: usize, size: usize, frame: Frame) -> Pointer {
    let Some(real) = real::calloc() else {
        return none();
    };
    let thread = this();
    // SAFETY: as we were called.
    let block = inside(thread, || unsafe { real(count, size) });
    // SAFETY: the hook's frame. A product that overflows gave no block.
    unsafe {
        allocated(
            thread,
            block,
            count.wrapping_mul(size),
            AllocatorCode::Calloc,
            frame,
        )
    };
    block
}

unsafe extern "C" fn hooked_realloc(block: Pointer, size: usize, frame: Frame) -> Pointer {
    // SAFETY: as we were called.
    unsafe { reallocated(block, size, frame) }
}

unsafe extern "C" fn hooked_reallocarray(
    block: Pointer,
    count: usize,
    size: usize,
    frame: Frame,
) -> Pointer {
    match count.checked_mul(size) {
        // SAFETY: as we were called.
        Some(bytes) => unsafe { reallocated(block, bytes, frame) },
        None => none(),
    }
}

/// # Safety
/// That of realloc; `frame` is the calling hook's.
#[inline(always)]
unsafe fn reallocated(block: Pointer, size: usize, frame: Frame) -> Pointer {
    let Some(real) = real::realloc() else {
        return none();
    };
    let thread = this();
    let when = about_to_free(thread, block);
    // SAFETY: as we were called.
    let new = inside(thread, || unsafe { real(block, size) });
    // A block that could not be changed stays; one of no bytes is freed.
    if !new.is_null() || size == 0 {
        freed(block, when);
    } else {
        kept(block, when);
    }
    // SAFETY: the hook's frame.
    unsafe { allocated(thread, new, size, AllocatorCode::Realloc, frame) };
    new
}

/// Stands in front of the function of the same name.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: Pointer) {
    let Some(real) = real::free() else { return };
    let thread = this();
    if !block.is_null() {
        freed(block, about_to_free(thread, block));
    }
    // SAFETY: as we were called.
    inside(thread, || unsafe { real(block) });
}

unsafe extern "C" fn hooked_posix_memalign(
    place: *mut Pointer,
    alignment: usize,
    size: usize,
    frame: Frame,
) -> c_int {
    let Some(real) = real::posix_memalign() else {
        return libc::ENOMEM;
    };
    let thread = this();
    // SAFETY: as we were called.
    let failed = inside(thread, || unsafe { real(place, alignment, size) });
    if failed == 0 {
        // SAFETY: the hook's frame, and the caller's place, which was filled in.
        unsafe { allocated(thread, *place, size, AllocatorCode::Aligned, frame) };
    }
    failed
}

/// A function that takes an alignment and a size.
macro_rules! aligned {
    ($($function:ident = $name:ident;)+) => {$(
        unsafe extern "C" fn $function(alignment: usize, size: usize, frame: Frame) -> Pointer {
            let Some(real) = real::$name() else {
                return none();
            };
            let thread = this();
            // SAFETY: as we were called.
            let block = inside(thread, || unsafe { real(alignment, size) });
            // SAFETY: the hook's frame.
            unsafe { allocated(thread, block, size, AllocatorCode::Aligned, frame) };
            block
        }
    )+};
}
aligned! {
    hooked_aligned_alloc = aligned_alloc;
    hooked_memalign = memalign;
}

/// A function that takes a size alone, and that is no part of every C library.
macro_rules! sized {
    ($($function:ident = $name:ident, $code:ident;)+) => {$(
        unsafe extern "C" fn $function(size: usize, frame: Frame) -> Pointer {
            let Some(real) = real::$name() else {
                return none();
            };
            let thread = this();
            // SAFETY: as we were called.
            let block = inside(thread, || unsafe { real(size) });
            // SAFETY: the hook's frame.
            unsafe { allocated(thread, block, size, AllocatorCode::$code, frame) };
            block
        }
    )+};
}
sized! {
    hooked_valloc = valloc, Aligned;
    hooked_pvalloc = pvalloc, Aligned;
    hooked_mi_malloc = mi_malloc, Other;
}

unsafe extern "C" fn hooked_mi_calloc(count: usize, size: usize, frame: Frame) -> Pointer {
    let Some(real) = real::mi_calloc() else {
        return none();
    };
    let thread = this();
    // SAFETY: as we were called.
    let block = inside(thread, || unsafe { real(count, size) });
    // SAFETY: the hook's frame. A product that overflows gave no block.
    unsafe {
        allocated(
            thread,
            block,
            count.wrapping_mul(size),
            AllocatorCode::Other,
            frame,
        )
    };
    block
}

unsafe extern "C" fn hooked_mi_realloc(block: Pointer, size: usize, frame: Frame) -> Pointer {
    let Some(real) = real::mi_realloc() else {
        return none();
    };
    let thread = this();
    let when = about_to_free(thread, block);
    // SAFETY: as we were called.
    let new = inside(thread, || unsafe { real(block, size) });
    if !new.is_null() {
        freed(block, when);
    } else {
        kept(block, when);
    }
    // SAFETY: the hook's frame.
    unsafe { allocated(thread, new, size, AllocatorCode::Other, frame) };
    new
}

unsafe extern "C" fn hooked_mallocx(size: usize, flags: c_int, frame: Frame) -> Pointer {
    let Some(real) = real::mallocx() else {
        return none();
    };
    let thread = this();
    // SAFETY: as we were called.
    let block = inside(thread, || unsafe { real(size, flags) });
    // SAFETY: the hook's frame.
    unsafe { allocated(thread, block, size, AllocatorCode::Other, frame) };
    block
}

unsafe extern "C" fn hooked_rallocx(
    block: Pointer,
    size: usize,
    flags: c_int,
    frame: Frame,
) -> Pointer {
    let Some(real) = real::rallocx() else {
        return none();
    };
    let thread = this();
    let when = about_to_free(thread, block);
    // SAFETY: as we were called.
    let new = inside(thread, || unsafe { real(block, size, flags) });
    if !new.is_null() {
        freed(block, when);
    } else {
        kept(block, when);
    }
    // SAFETY: the hook's frame.
    unsafe { allocated(thread, new, size, AllocatorCode::Other, frame) };
    new
}

/// A function that frees its first argument.
macro_rules! freeing {
    ($($hook:ident = $name:ident($($argument:ident: $type:ty),*);)+) => {$(
        /// Stands in front of the function of the same name.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $hook(block: Pointer, $($argument: $type),*) {
            let Some(real) = real::$name() else { return };
            let thread = this();
            if !block.is_null() {
                freed(block, about_to_free(thread, block));
            }
            // SAFETY: as we were called.
            inside(thread, || unsafe { real(block, $($argument),*) });
        }
    )+};
}
freeing! {
    linewise_mi_free = mi_free();
    linewise_dallocx = dallocx(flags: c_int);
    linewise_sdallocx = sdallocx(size: usize, flags: c_int);
}

/// Stands in front of the function of the same name.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: Pointer) -> c_int {
    let Some(real) = real::dlclose() else {
        return -1;
    };
    // SAFETY: as we were called.
    let failed = unsafe { real(handle) };
    unloaded();
    failed
}
