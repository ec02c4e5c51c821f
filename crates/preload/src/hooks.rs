//! The functions that programs call to allocate and free. Each that allocates is a few instructions that
//! pass on where it was called, in front of a Rust function that does the work.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use linewise_heap::AllocatorCode;

use crate::operators;
use crate::real::{call, early, early_size, is_early, ready};
use crate::recorder::{about_to_free, allocated, attach, freed, kept, unloaded};
use crate::stack::Frame;
use crate::thread::this;

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
hook!(mallocx, hooked_mallocx, "rdx");
hook!(rallocx, hooked_rallocx, "rcx");
hook!(mi_malloc, hooked_mi_malloc, "rsi");
hook!(mi_calloc, hooked_mi_calloc, "rdx");
hook!(mi_realloc, hooked_mi_realloc, "rdx");

/// Runs a function of the real allocator; memory that is mapped meanwhile is its own business.
#[inline(always)]
fn inside<T>(real: impl FnOnce() -> T) -> T {
    let thread = this();
    // SAFETY: this thread's own state; a signal handler leaves it as it was.
    unsafe { (*thread).inside += 1 };
    let result = real();
    // SAFETY: likewise.
    unsafe { (*thread).inside -= 1 };
    result
}

/// The real function, looked for if it is not known yet.
macro_rules! real {
    ($name:ident) => {
        call::$name().or_else(|| ready().then(call::$name).flatten())
    };
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
    let Some(real) = real!(malloc) else {
        return early(size, 16);
    };
    // SAFETY: as we were called.
    let block = inside(|| unsafe { real(size) });
    // SAFETY: the hook's frame.
    unsafe { allocated(block, size, AllocatorCode::Malloc, frame) };
    block
}

unsafe extern "C" fn hooked_calloc(count: usize, size: usize, frame: Frame) -> Pointer {
    let Some(real) = real!(calloc) else {
        return count
            .checked_mul(size)
            .map_or_else(none, |bytes| early(bytes, 16));
    };
    // SAFETY: as we were called.
    let block = inside(|| unsafe { real(count, size) });
    // SAFETY: the hook's frame. A product that overflows gave no block.
    unsafe {
        allocated(
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
    if is_early(block) {
        // SAFETY: the hook's frame.
        let new = unsafe { hooked_malloc(size, frame) };
        if !new.is_null() {
            // SAFETY: the old block is ours and stays; the new one is as large as the lesser of both.
            unsafe {
                let bytes = early_size(block).min(size);
                core::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), bytes);
            }
        }
        return new;
    }
    let Some(real) = real!(realloc) else {
        // Whoever has a block that is not early knew the real functions.
        return early(size, 16);
    };
    let when = about_to_free(block);
    // SAFETY: as we were called.
    let new = inside(|| unsafe { real(block, size) });
    // A block that could not be changed stays; one of no bytes is freed.
    if !new.is_null() || size == 0 {
        freed(block, when);
    } else {
        kept(block, when);
    }
    // SAFETY: the hook's frame.
    unsafe { allocated(new, size, AllocatorCode::Realloc, frame) };
    new
}

/// Stands in front of the function of the same name.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: Pointer) {
    if is_early(block) {
        return;
    }
    let Some(real) = real!(free) else { return };
    if !block.is_null() {
        freed(block, about_to_free(block));
    }
    // SAFETY: as we were called.
    inside(|| unsafe { real(block) });
}

unsafe extern "C" fn hooked_posix_memalign(
    place: *mut Pointer,
    alignment: usize,
    size: usize,
    frame: Frame,
) -> c_int {
    let Some(real) = real!(posix_memalign) else {
        let block = early(size, alignment);
        // SAFETY: the caller's place for a pointer.
        unsafe { *place = block };
        return if block.is_null() { libc::ENOMEM } else { 0 };
    };
    // SAFETY: as we were called.
    let failed = inside(|| unsafe { real(place, alignment, size) });
    if failed == 0 {
        // SAFETY: the hook's frame, and the caller's place, which was filled in.
        unsafe { allocated(*place, size, AllocatorCode::Aligned, frame) };
    }
    failed
}

/// A function that takes an alignment and a size.
macro_rules! aligned {
    ($($function:ident = $name:ident;)+) => {$(
        unsafe extern "C" fn $function(alignment: usize, size: usize, frame: Frame) -> Pointer {
            let Some(real) = real!($name) else {
                return early(size, alignment);
            };
            // SAFETY: as we were called.
            let block = inside(|| unsafe { real(alignment, size) });
            // SAFETY: the hook's frame.
            unsafe { allocated(block, size, AllocatorCode::Aligned, frame) };
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
    ($($function:ident = $name:ident, $code:ident, $alignment:literal;)+) => {$(
        unsafe extern "C" fn $function(size: usize, frame: Frame) -> Pointer {
            let Some(real) = real!($name) else {
                return early(size, $alignment);
            };
            // SAFETY: as we were called.
            let block = inside(|| unsafe { real(size) });
            // SAFETY: the hook's frame.
            unsafe { allocated(block, size, AllocatorCode::$code, frame) };
            block
        }
    )+};
}
sized! {
    hooked_valloc = valloc, Aligned, 4096;
    hooked_pvalloc = pvalloc, Aligned, 4096;
    hooked_mi_malloc = mi_malloc, Other, 16;
}

unsafe extern "C" fn hooked_mi_calloc(count: usize, size: usize, frame: Frame) -> Pointer {
    let Some(real) = real!(mi_calloc) else {
        return none();
    };
    // SAFETY: as we were called.
    let block = inside(|| unsafe { real(count, size) });
    // SAFETY: the hook's frame. A product that overflows gave no block.
    unsafe { allocated(block, count.wrapping_mul(size), AllocatorCode::Other, frame) };
    block
}

unsafe extern "C" fn hooked_mi_realloc(block: Pointer, size: usize, frame: Frame) -> Pointer {
    let Some(real) = real!(mi_realloc) else {
        return none();
    };
    let when = about_to_free(block);
    // SAFETY: as we were called.
    let new = inside(|| unsafe { real(block, size) });
    if !new.is_null() {
        freed(block, when);
    } else {
        kept(block, when);
    }
    // SAFETY: the hook's frame.
    unsafe { allocated(new, size, AllocatorCode::Other, frame) };
    new
}

unsafe extern "C" fn hooked_mallocx(size: usize, flags: c_int, frame: Frame) -> Pointer {
    let Some(real) = real!(mallocx) else {
        return none();
    };
    // SAFETY: as we were called.
    let block = inside(|| unsafe { real(size, flags) });
    // SAFETY: the hook's frame.
    unsafe { allocated(block, size, AllocatorCode::Other, frame) };
    block
}

unsafe extern "C" fn hooked_rallocx(
    block: Pointer,
    size: usize,
    flags: c_int,
    frame: Frame,
) -> Pointer {
    let Some(real) = real!(rallocx) else {
        return none();
    };
    let when = about_to_free(block);
    // SAFETY: as we were called.
    let new = inside(|| unsafe { real(block, size, flags) });
    if !new.is_null() {
        freed(block, when);
    } else {
        kept(block, when);
    }
    // SAFETY: the hook's frame.
    unsafe { allocated(new, size, AllocatorCode::Other, frame) };
    new
}

/// A function that frees its first argument.
macro_rules! freeing {
    ($($name:ident($($argument:ident: $type:ty),*);)+) => {$(
        /// Stands in front of the function of the same name.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: Pointer, $($argument: $type),*) {
            let Some(real) = real!($name) else { return };
            if !block.is_null() {
                freed(block, about_to_free(block));
            }
            // SAFETY: as we were called.
            inside(|| unsafe { real(block, $($argument),*) });
        }
    )+};
}
freeing! {
    mi_free();
    dallocx(flags: c_int);
    sdallocx(size: usize, flags: c_int);
}

/// Stands in front of the function of the same name.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: Pointer) -> c_int {
    let Some(real) = real!(dlclose) else {
        return -1;
    };
    // SAFETY: as we were called.
    let failed = unsafe { real(handle) };
    unloaded();
    failed
}

/// Whether calls of `malloc` go to the program itself and not here.
pub(crate) fn has_own_malloc() -> bool {
    // SAFETY: a name that ends in NUL.
    let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    let (base, is_defined) = module_of(called);
    base != module_of(hooked_malloc as *const c_void).0 && is_defined
}

/// `RTLD_DL_SYMENT` of dlfcn.h: the symbol's entry is asked for.
const SYMBOL_ENTRY: c_int = 1;

/// Where the module of this address begins, and whether it has the code there under the symbol's own name: in a program at
/// fixed addresses that takes the address of a function of a library, that is the address of its jump to it.
fn module_of(address: *const c_void) -> (usize, bool) {
    // SAFETY: a structure of pointers, for which zeros are a value; dladdr1 fills it in.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    let mut symbol: Pointer = null_mut();
    // SAFETY: any address may be asked about, and there is room for the pointer that is asked for.
    let known = unsafe { libc::dladdr1(address, &mut found, &mut symbol, SYMBOL_ENTRY) };
    if known == 0 {
        return (0, true);
    }
    let symbol: *const libc::Elf64_Sym = symbol.cast();
    // SAFETY: if there is one it lies in the module's table of symbols.
    let undefined = !symbol.is_null() && unsafe { (*symbol).st_shndx } == 0;
    (found.dli_fbase as usize, !undefined)
}

extern "C" fn begin() {
    if ready() {
        operators::look();
        let thread = this();
        // What this allocates is not the program's.
        // SAFETY: this thread's own state.
        unsafe { (*thread).busy += 1 };
        let _ = attach();
        // SAFETY: likewise.
        unsafe { (*thread).busy -= 1 };
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
