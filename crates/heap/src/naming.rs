//! For programs in Rust with pools of their own: what `linewise.h` is for C.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a name with its NUL; longer ones are cut off.
const NAME_BYTES: usize = 128;

/// A function of the recorder: not looked for yet, not there, or its address.
struct Function(AtomicUsize, &'static CStr);

const UNKNOWN: usize = 0;
const ABSENT: usize = 1;

static BEGINS: Function = Function(AtomicUsize::new(UNKNOWN), c"linewise_object_begins");
static ENDS: Function = Function(AtomicUsize::new(UNKNOWN), c"linewise_object_ends");

impl Function {
    fn address(&self) -> Option<usize> {
        let mut address = self.0.load(Ordering::Relaxed);
        if address == UNKNOWN {
            // SAFETY: a name that ends in NUL.
            address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.1.as_ptr()) as usize };
            address = address.max(ABSENT);
            self.0.store(address, Ordering::Relaxed);
        }
        (address != ABSENT).then_some(address)
    }
}

/// Names an object that a pool hands out by its type, and gives linewise its bounds. Without linewise that
/// is a load and a branch. Call it where the object begins, and [`object_ends`] where it ends.
///
/// ```
/// struct Session { hits: u64 }
///
/// let session = Session { hits: 0 };
/// linewise_heap::object_begins(&session);
/// // ...
/// linewise_heap::object_ends(&session);
/// # assert_eq!(session.hits, 0);
/// ```
#[inline]
pub fn object_begins<T: ?Sized>(object: &T) {
    let Some(address) = BEGINS.address() else {
        return;
    };
    let mut name = [0_u8; NAME_BYTES];
    let bytes = name.iter_mut().zip(core::any::type_name::<T>().bytes());
    // The last byte stays NUL.
    bytes
        .take(NAME_BYTES - 1)
        .for_each(|(place, byte)| *place = byte);
    // SAFETY: the function of that name, as crates/preload defines it.
    let begins = unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn(*const c_void, usize, *const c_char)>(
            address,
        )
    };
    let object: (*const T, usize) = (object, size_of_val(object));
    // SAFETY: the name ends in NUL and lives through the call.
    unsafe { begins(object.0.cast(), object.1, name.as_ptr().cast()) };
}

/// The object that was named ends; its memory stays the pool's.
#[inline]
pub fn object_ends<T: ?Sized>(object: &T) {
    let Some(address) = ENDS.address() else {
        return;
    };
    // SAFETY: the function of that name, as crates/preload defines it.
    let ends =
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*const c_void)>(address) };
    // SAFETY: any address may be given.
    unsafe { ends(core::ptr::from_ref(object).cast()) };
}
