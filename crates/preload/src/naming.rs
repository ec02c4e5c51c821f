//! What `linewise.h` calls: the program names objects that its own pools hand out, and marks what its threads work for.

use core::ffi::{c_char, c_void};

use linewise_heap::MarkCode;

use crate::hooks::hook;
use crate::marks::marked;
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
    let name = unsafe { label(name) };
    // SAFETY: the hook's frame.
    unsafe { named(object, size, name, frame) };
}

/// A name up to its NUL, cut off where no character is cut; none if null.
///
/// # Safety
/// Null, or a string that ends in NUL and lives as long as what is returned.
unsafe fn label<'a>(name: *const c_char) -> &'a [u8] {
    if name.is_null() {
        return &[];
    }
    let name: *const u8 = name.cast();
    // SAFETY: callers ask for no byte beyond the NUL.
    let byte = |at: usize| unsafe { *name.add(at) };
    let mut length = 0;
    while length < LABEL_BYTES && byte(length) != 0 {
        length += 1;
    }
    if length == LABEL_BYTES {
        // No byte of a character's middle may come next.
        let begins = |&at: &usize| byte(at) & 0xc0 != 0x80;
        let cut = (length - 3..=length).rev().find(begins);
        length = cut.unwrap_or(length);
    }
    // SAFETY: the string's own bytes.
    unsafe { core::slice::from_raw_parts(name, length) }
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

/// The calling thread works for this session from now on.
///
/// # Safety
/// `name` is null or a string that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linewise_session_begins(id: u64, name: *const c_char) {
    // SAFETY: the caller's promise.
    marked(MarkCode::Session, id, unsafe { label(name) });
}

/// The calling thread works for no session any more.
#[unsafe(no_mangle)]
pub extern "C" fn linewise_session_ends() {
    marked(MarkCode::SessionEnd, 0, &[]);
}

/// The calling thread is in this phase from now on.
///
/// # Safety
/// As for [`linewise_session_begins`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linewise_phase_begins(name: *const c_char) {
    // SAFETY: the caller's promise.
    marked(MarkCode::Phase, 0, unsafe { label(name) });
}

/// The calling thread is in no phase any more.
#[unsafe(no_mangle)]
pub extern "C" fn linewise_phase_ends() {
    marked(MarkCode::PhaseEnd, 0, &[]);
}
