//! Memory that programs map by themselves. What the C library maps inside does not come by here.

use core::ffi::{c_int, c_void};

use linewise_heap::AllocatorCode;

use crate::hooks::hook;
use crate::operators::is_allocator;
use crate::real;
use crate::recorder::{allocated, unmapping};
use crate::stack::Frame;
use crate::thread::this;

type Pointer = *mut c_void;

/// Exports `name`, which calls `function` with six arguments and, as the seventh on the stack, where the
/// hook's own frame is.
macro_rules! hook_of_six {
    ($name:ident, $function:path) => {
        /// Stands in front of the function of the same name.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "sub rsp, 16",
                "mov qword ptr [rsp], rbp",
                "call {function}",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                function = sym $function,
            )
        }
    };
}

hook_of_six!(mmap, hooked_mmap);
hook_of_six!(mmap64, hooked_mmap);
hook!(mremap, hooked_mremap, "r9");

/// Whether the real allocator maps this, for blocks that are told of by themselves.
fn is_inside() -> bool {
    let thread = this();
    // SAFETY: this thread's own state.
    !thread.is_null() && unsafe { (*thread).inside != 0 || (*thread).busy != 0 }
}

/// The same for who has the calling hook's frame: an operator that may end by an exception is not counted in and out.
///
/// # Safety
/// `frame` is the calling hook's.
unsafe fn is_allocators(frame: Frame) -> bool {
    // SAFETY: the caller's promise: the return address.
    is_inside() || is_allocator(unsafe { *frame.add(1) })
}

unsafe extern "C" fn hooked_mmap(
    at: Pointer,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
    frame: Frame,
) -> Pointer {
    // SAFETY: the hook's frame.
    let ours = unsafe { !is_allocators(frame) };
    if flags & libc::MAP_FIXED != 0 && ours {
        unmapping(at, length);
    }
    let mapped = match real::mmap() {
        // SAFETY: as we were called.
        Some(real) => unsafe { real(at, length, protection, flags, fd, offset) },
        // SAFETY: as we were called; the result is an address or MAP_FAILED.
        None => unsafe {
            libc::syscall(libc::SYS_mmap, at, length, protection, flags, fd, offset) as Pointer
        },
    };
    // Addresses that are only reserved hold nothing yet.
    if ours && mapped != libc::MAP_FAILED && protection != libc::PROT_NONE {
        // SAFETY: the hook's frame.
        unsafe { allocated(this(), mapped, length, AllocatorCode::Mmap, frame) };
    }
    mapped
}

/// Stands in front of the function of the same name.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: Pointer, length: usize) -> c_int {
    if !is_inside() {
        unmapping(start, length);
    }
    match real::munmap() {
        // SAFETY: as we were called.
        Some(real) => unsafe { real(start, length) },
        // SAFETY: as we were called.
        None => unsafe { libc::syscall(libc::SYS_munmap, start, length) as c_int },
    }
}

unsafe extern "C" fn hooked_mremap(
    start: Pointer,
    old: usize,
    new: usize,
    flags: c_int,
    to: Pointer,
    frame: Frame,
) -> Pointer {
    // SAFETY: the hook's frame.
    let ours = unsafe { !is_allocators(frame) };
    let mapped = match real::mremap() {
        // SAFETY: as we were called; where the fifth argument was not given it is not looked at.
        Some(real) => unsafe { real(start, old, new, flags, to) },
        // SAFETY: likewise.
        None => unsafe { libc::syscall(libc::SYS_mremap, start, old, new, flags, to) as Pointer },
    };
    if ours && mapped != libc::MAP_FAILED {
        // What lies at the old place from now on has no block yet that could be taken for it.
        unmapping(start, old);
        // SAFETY: the hook's frame.
        unsafe { allocated(this(), mapped, new, AllocatorCode::Mmap, frame) };
    }
    mapped
}
