//! What `linewise.h` calls: the program names objects that its own pools hand out.

use core::ffi::{CStr, c_char, c_void};

use crate::hooks::hook;
use crate::recorder::{LABEL_BYTES, named, unnamed};
use crate::stack::Frame;

hook!(linewise_object_begins, hooked_begins, "rcx");

unsafe extern "C" fn hooked_begins(
    object: *mut c_void,
    size: usize,
    name: *const c_char,
    frame: Frame,
) {
    if object.is_null() || name.is_null() {
        return;
    }
    // SAFETY: the caller gives a string that ends in NUL.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let name = name.get(..LABEL_BYTES).unwrap_or(name);
    // SAFETY: the hook's frame.
    unsafe { named(object, size, name, frame) };
}

/// An object that was named ends; other addresses are ignored.
///
/// # Safety
/// Any address may be given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linewise_object_ends(object: *mut c_void) {
    if !object.is_null() {
        unnamed(object);
    }
}
