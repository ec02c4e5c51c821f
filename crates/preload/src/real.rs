//! The functions that we stand in front of.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::lookup::next;

/// Not looked for yet, and not there.
const UNKNOWN: usize = 0;
const ABSENT: usize = 1;

macro_rules! reals {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)+) => {
        $(
            /// The real function; `None`: there is none of that name.
            #[inline(always)]
            pub(crate) fn $name() -> Option<unsafe extern "C" fn($($argument),*) -> $result> {
                static REAL: AtomicUsize = AtomicUsize::new(UNKNOWN);
                let mut found = REAL.load(Ordering::Relaxed);
                if found == UNKNOWN {
                    #[cold]
                    fn look() -> usize {
                        // SAFETY: a name that ends in its only NUL.
                        next(unsafe {
                            core::ffi::CStr::from_bytes_with_nul_unchecked(
                                concat!(stringify!($name), "\0").as_bytes(),
                            )
                        })
                        .max(ABSENT)
                    }
                    found = look();
                    // Whoever else looks finds the same.
                    REAL.store(found, Ordering::Relaxed);
                }
                if found == ABSENT {
                    return None;
                }
                // SAFETY: the address of the function of that name, which has this type.
                Some(unsafe {
                    core::mem::transmute::<usize, unsafe extern "C" fn($($argument),*) -> $result>(found)
                })
            }
        )+
    };
}

type Pointer = *mut c_void;
type Strings = *const *const c_char;

reals! {
    malloc: fn(usize) -> Pointer;
    calloc: fn(usize, usize) -> Pointer;
    realloc: fn(Pointer, usize) -> Pointer;
    free: fn(Pointer) -> ();
    posix_memalign: fn(*mut Pointer, usize, usize) -> c_int;
    aligned_alloc: fn(usize, usize) -> Pointer;
    memalign: fn(usize, usize) -> Pointer;
    valloc: fn(usize) -> Pointer;
    pvalloc: fn(usize) -> Pointer;
    mmap: fn(Pointer, usize, c_int, c_int, c_int, i64) -> Pointer;
    munmap: fn(Pointer, usize) -> c_int;
    mremap: fn(Pointer, usize, usize, c_int, Pointer) -> Pointer;
    dlclose: fn(Pointer) -> c_int;
    mallocx: fn(usize, c_int) -> Pointer;
    rallocx: fn(Pointer, usize, c_int) -> Pointer;
    dallocx: fn(Pointer, c_int) -> ();
    sdallocx: fn(Pointer, usize, c_int) -> ();
    mi_malloc: fn(usize) -> Pointer;
    mi_calloc: fn(usize, usize) -> Pointer;
    mi_realloc: fn(Pointer, usize) -> Pointer;
    mi_free: fn(Pointer) -> ();
    prctl: fn() -> ();
    syscall: fn() -> ();
    execve: fn(*const c_char, Strings, Strings) -> c_int;
    execvpe: fn(*const c_char, Strings, Strings) -> c_int;
    fexecve: fn(c_int, Strings, Strings) -> c_int;
    execveat: fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int;
    posix_spawn: fn(*mut c_int, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;
    posix_spawnp: fn(*mut c_int, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;
    system: fn(*const c_char) -> c_int;
    popen: fn(*const c_char, *const c_char) -> Pointer;
}
