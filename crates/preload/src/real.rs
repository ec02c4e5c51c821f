//! The functions that we stand in front of, and the memory until they are known.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// A function of the real allocator, 0 while it is not known.
pub(crate) struct Real(AtomicUsize);

macro_rules! reals {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty = $symbol:literal;)+) => {
        $(
            #[expect(non_upper_case_globals, reason = "named as the function")]
            static $name: Real = Real(AtomicUsize::new(0));
        )+

        /// The real functions; `None`: there is none of that name.
        pub(crate) mod call {
            use super::*;
            $(
                #[inline(always)]
                pub(crate) fn $name() -> Option<unsafe extern "C" fn($($argument),*) -> $result> {
                    let found = super::$name.0.load(Ordering::Relaxed);
                    // SAFETY: 0 is None; anything else is the address of the function of that name, which
                    // has this type.
                    unsafe { core::mem::transmute::<usize, Option<unsafe extern "C" fn($($argument),*) -> $result>>(found) }
                }
            )+
        }

        fn find_all() {
            $(
                $name.0.store(next($symbol), Ordering::Relaxed);
            )+
        }
    };
}

type Pointer = *mut c_void;

reals! {
    malloc: fn(usize) -> Pointer = c"malloc";
    calloc: fn(usize, usize) -> Pointer = c"calloc";
    realloc: fn(Pointer, usize) -> Pointer = c"realloc";
    free: fn(Pointer) -> () = c"free";
    posix_memalign: fn(*mut Pointer, usize, usize) -> c_int = c"posix_memalign";
    aligned_alloc: fn(usize, usize) -> Pointer = c"aligned_alloc";
    memalign: fn(usize, usize) -> Pointer = c"memalign";
    valloc: fn(usize) -> Pointer = c"valloc";
    pvalloc: fn(usize) -> Pointer = c"pvalloc";
    mmap: fn(Pointer, usize, c_int, c_int, c_int, i64) -> Pointer = c"mmap";
    munmap: fn(Pointer, usize) -> c_int = c"munmap";
    mremap: fn(Pointer, usize, usize, c_int, Pointer) -> Pointer = c"mremap";
    dlclose: fn(Pointer) -> c_int = c"dlclose";
    mallocx: fn(usize, c_int) -> Pointer = c"mallocx";
    rallocx: fn(Pointer, usize, c_int) -> Pointer = c"rallocx";
    dallocx: fn(Pointer, c_int) -> () = c"dallocx";
    sdallocx: fn(Pointer, usize, c_int) -> () = c"sdallocx";
    mi_malloc: fn(usize) -> Pointer = c"mi_malloc";
    mi_calloc: fn(usize, usize) -> Pointer = c"mi_calloc";
    mi_realloc: fn(Pointer, usize) -> Pointer = c"mi_realloc";
    mi_free: fn(Pointer) -> () = c"mi_free";
}

/// The address of the next definition after ours, 0 if there is none.
pub(crate) fn next(symbol: &CStr) -> usize {
    // SAFETY: a name that ends in NUL.
    unsafe { libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr()) as usize }
}

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const LOOKING: u8 = 1;
const KNOWN: u8 = 2;

/// Whether the real functions are known; looks for them if nobody has yet. False while somebody does,
/// which may be the caller's caller.
#[cold]
pub(crate) fn ready() -> bool {
    match STATE.compare_exchange(UNKNOWN, LOOKING, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            find_all();
            STATE.store(KNOWN, Ordering::Release);
            true
        }
        Err(state) => state == KNOWN,
    }
}

const ARENA: usize = 256 << 10;

#[repr(align(64))]
struct Arena(core::cell::UnsafeCell<[u8; ARENA]>);

// SAFETY: bytes are handed out once each, by `TAKEN`.
unsafe impl Sync for Arena {}

static ARENA_BYTES: Arena = Arena(core::cell::UnsafeCell::new([0; ARENA]));
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Memory for who allocates while the real functions are looked for: zeroed, never given back. Null
/// when there is no more.
#[cold]
pub(crate) fn early(size: usize, alignment: usize) -> Pointer {
    // In front of each block its size, for realloc.
    let alignment = alignment.max(16);
    let Some(needed) = size.checked_add(alignment + 16).filter(|&it| it <= ARENA) else {
        return core::ptr::null_mut();
    };
    let first = TAKEN.fetch_add(needed, Ordering::Relaxed);
    if first.saturating_add(needed) > ARENA {
        return core::ptr::null_mut();
    }
    let start = ARENA_BYTES.0.get() as usize;
    let block = (start + first + 16).next_multiple_of(alignment);
    // SAFETY: between `first` and `first + needed`, which nobody else was given; aligned to 16.
    unsafe { *((block - 16) as *mut usize) = size };
    block as Pointer
}

/// Whether a block is from [`early`].
#[inline(always)]
pub(crate) fn is_early(block: Pointer) -> bool {
    (block as usize).wrapping_sub(ARENA_BYTES.0.get() as usize) < ARENA
}

/// The size of a block from [`early`].
///
/// # Safety
/// `block` is one.
pub(crate) unsafe fn early_size(block: Pointer) -> usize {
    // SAFETY: `early` put it there.
    unsafe { *((block as usize - 16) as *const usize) }
}
