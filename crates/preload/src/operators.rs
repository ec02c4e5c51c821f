//! The C++ operators `new` and `delete`, where an allocator has its own: `linewise-preload-cxx` gives these functions
//! the operators' names.
//!
//! - *Exceptions* pass: between the program and the allocator's `operator new` there is one frame without a landing
//!   pad, and nothing that would have to be put right when it is left.
//! - *An operator that calls malloc* (jemalloc's aligned ones do), or another operator, was told of by that: [`last`]
//!   is the block that was told of last.
//! - *No next definition*: a child that linewise did not look at may have no C++ library at first, and load one later for
//!   a module alone, which `RTLD_NEXT` does not see. That library is asked for by its name, and else malloc serves.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use linewise_heap::AllocatorCode;

use crate::hooks::{allocate, allocate_aligned, free, hook};
use crate::real::next;
use crate::recorder::{about_to_free, allocated, ending, forget_last, freed, last};
use crate::stack::Frame;

type Pointer = *mut c_void;
/// `operator new`: the size, and what follows it.
type New = unsafe extern "C-unwind" fn(usize, usize, usize) -> Pointer;
/// `operator delete`: the block, and what follows it.
type Delete = unsafe extern "C-unwind" fn(Pointer, usize, usize);

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
        let mut found = next(self.1);
        if found == 0 {
            // SAFETY: a name that ends in NUL; nothing is loaded, and if it was it stays so, since the handle is kept.
            let library = unsafe {
                libc::dlopen(
                    c"libstdc++.so.6".as_ptr(),
                    libc::RTLD_LAZY | libc::RTLD_NOLOAD,
                )
            };
            if !library.is_null() {
                // SAFETY: a handle, and a name that ends in NUL.
                found = unsafe { libc::dlsym(library, self.1.as_ptr()) } as usize;
            }
        }
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

/// # Safety
/// As the operator; `frame` is the calling hook's.
#[inline(always)]
unsafe fn make(
    operator: &Operator,
    form: Form,
    (size, second, third): (usize, usize, usize),
    frame: Frame,
) -> Pointer {
    let Some(address) = operator.address() else {
        // SAFETY: as we were called.
        return unsafe { make_by_malloc(form, size, second, frame) };
    };
    // Another thread may have freed what this one allocated last.
    forget_last();
    // SAFETY: the address of an operator with these arguments; those that it does not have it does not look at.
    let block = unsafe { core::mem::transmute::<usize, New>(address)(size, second, third) };
    if last() != block {
        // SAFETY: the hook's frame.
        unsafe { allocated(block, size, AllocatorCode::New, frame) };
    }
    block
}

/// # Safety
/// As for [`make`].
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
    if !block.is_null() {
        freed(block, about_to_free(block));
    }
    // What it calls to free the block tells nothing more.
    let before = ending(block);
    // SAFETY: as in `make`.
    unsafe { core::mem::transmute::<usize, Delete>(address)(block, second, third) };
    ending(before);
}

/// Functions that stand in front of `operator new`.
macro_rules! news {
    ($($name:ident, $function:ident = $symbol:literal, $aligned:literal, $nothrow:literal;)+) => {$(
        hook!($name, $function, "rcx");

        unsafe extern "C-unwind" fn $function(
            size: usize,
            second: usize,
            third: usize,
            frame: Frame,
        ) -> Pointer {
            static OPERATOR: Operator = Operator(AtomicUsize::new(0), $symbol);
            let form = Form {
                aligned: $aligned,
                nothrow: $nothrow,
            };
            // SAFETY: as we were called.
            unsafe { make(&OPERATOR, form, (size, second, third), frame) }
        }
    )+};
}
news! {
    linewise_Znwm, new_one = c"_Znwm", false, false;
    linewise_Znam, new_array = c"_Znam", false, false;
    linewise_ZnwmRKSt9nothrow_t, new_one_nothrow = c"_ZnwmRKSt9nothrow_t", false, true;
    linewise_ZnamRKSt9nothrow_t, new_array_nothrow = c"_ZnamRKSt9nothrow_t", false, true;
    linewise_ZnwmSt11align_val_t, new_one_aligned = c"_ZnwmSt11align_val_t", true, false;
    linewise_ZnamSt11align_val_t, new_array_aligned = c"_ZnamSt11align_val_t", true, false;
    linewise_ZnwmSt11align_val_tRKSt9nothrow_t, new_one_aligned_nothrow =
        c"_ZnwmSt11align_val_tRKSt9nothrow_t", true, true;
    linewise_ZnamSt11align_val_tRKSt9nothrow_t, new_array_aligned_nothrow =
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
        pub unsafe extern "C-unwind" fn $name(block: Pointer, second: usize, third: usize) {
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
    // SAFETY: a name that ends in NUL.
    let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_Znwm".as_ptr()) } as usize;
    let theirs = next(c"_Znwm");
    // Without the second library whoever is asked names the same one.
    if called == theirs || theirs == 0 {
        return;
    }
    let mut place = Place {
        address: theirs as u64,
        found: [0; 2],
    };
    // SAFETY: the function gets what is given here, which lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(holds), (&raw mut place).cast()) };
    for (mine, found) in ALLOCATOR.iter().zip(place.found) {
        mine.store(found, Ordering::Relaxed);
    }
}

struct Place {
    address: u64,
    found: [u64; 2],
}

/// Ends the iteration at the module that holds the address.
unsafe extern "C" fn holds(
    module: *mut libc::dl_phdr_info,
    _: usize,
    place: *mut c_void,
) -> core::ffi::c_int {
    // SAFETY: what `look` and the loader give, for the call.
    let (module, place) = unsafe { (&*module, &mut *place.cast::<Place>()) };
    if module.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader's table of the module's segments.
    let segments =
        unsafe { core::slice::from_raw_parts(module.dlpi_phdr, usize::from(module.dlpi_phnum)) };
    let mut range = [u64::MAX, 0];
    for segment in segments.iter().filter(|it| it.p_type == libc::PT_LOAD) {
        let start = module.dlpi_addr.wrapping_add(segment.p_vaddr);
        range = [
            range[0].min(start),
            range[1].max(start.wrapping_add(segment.p_memsz)),
        ];
    }
    if !(range[0]..range[1]).contains(&place.address) {
        return 0;
    }
    place.found = range;
    1
}
