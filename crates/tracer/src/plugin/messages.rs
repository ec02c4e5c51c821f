//! What QEMU says where the guest writes its errors.
//!
//! When a signal ends the guest with a core dump, also where none is written (`ulimit -c 0`), QEMU tells so. Nobody says that
//! of a program without it: its shell does, if there is one. So QEMU's stream leads through here. The guest's own
//! output is its system calls', and does not pass.

#[cfg(target_env = "gnu")]
mod stream {
    use std::ffi::{c_char, c_int, c_void};
    use std::ptr;

    /// How the message begins.
    const ENDING: &[u8] = b"qemu: uncaught target signal ";

    /// `cookie_io_functions_t` of stdio.h.
    #[repr(C)]
    struct Functions {
        read: *const c_void,
        write: extern "C" fn(*mut c_void, *const c_char, usize) -> isize,
        seek: *const c_void,
        close: *const c_void,
    }

    unsafe extern "C" {
        static mut stderr: *mut libc::FILE;
        fn fopencookie(cookie: *mut c_void, mode: *const c_char, to: Functions) -> *mut libc::FILE;
    }

    pub(in super::super) fn lead_here() {
        let functions = Functions {
            read: ptr::null(),
            write,
            seek: ptr::null(),
            close: ptr::null(),
        };
        // SAFETY: the functions are what that structure wants, and null where it may be. The GNU library lets programs
        // assign to the variable; QEMU has a single thread yet. The old stream stays open for who remembers it.
        unsafe {
            let stream = fopencookie(ptr::null_mut(), c"w".as_ptr(), functions);
            if !stream.is_null() {
                libc::setvbuf(stream, ptr::null_mut(), libc::_IONBF, 0);
                stderr = stream;
            }
        }
    }

    /// One message is written at once, since the stream keeps nothing back.
    extern "C" fn write(_: *mut c_void, text: *const c_char, length: usize) -> isize {
        // SAFETY: the library gives so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
        if bytes.starts_with(ENDING) {
            return length as isize;
        }
        let error: c_int = 2;
        // SAFETY: the same bytes.
        unsafe { libc::write(error, text.cast(), length) }
    }
}

#[cfg(target_env = "gnu")]
pub(super) use stream::lead_here;

/// Elsewhere the variable is none.
#[cfg(not(target_env = "gnu"))]
pub(super) fn lead_here() {}
