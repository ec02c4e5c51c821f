//! Files.

use std::ffi::{OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use linewise_fibres::fs::File;
use linewise_fibres::raw;

use crate::error::{Failure, edge};
use crate::{close, give, of, place, tell};

/// A file whose calls block the fibre and not its worker. They are waited for even where the caller is
/// cancelled.
pub struct linewise_fibres_file(File);

/// Opens a file with the flags and the mode of `open`, and O_CLOEXEC.
///
/// # Safety
/// `path` is a string; `file` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_file_open(
    path: *const c_char,
    flags: i32,
    mode: u32,
    file: *mut *mut linewise_fibres_file,
) -> i32 {
    edge(|| {
        if path.is_null() {
            return Err(Failure::null("path"));
        }
        let to = place(file, "file")?;
        // SAFETY: not null, and the contract.
        let path = unsafe { std::ffi::CStr::from_ptr(path) };
        let file = raw::open(Path::new(OsStr::from_bytes(path.to_bytes())), flags, mode)?;
        // SAFETY: the contract.
        unsafe { give(to, linewise_fibres_file(file)) };
        Ok(())
    })
}

/// A count of bytes that memory can have.
fn checked<T>(bytes: *const T, count: usize, name: &str) -> Result<(), Failure> {
    if bytes.is_null() {
        return Err(Failure::null(name));
    }
    if isize::try_from(count).is_err() {
        return Err(Failure::argument(format!("{count} bytes")));
    }
    Ok(())
}

/// Reads up to `count` bytes at `offset`; `done`, which may be NULL, gets how many: 0 at the end.
///
/// # Safety
/// `file` is a valid handle; `buffer` has room for `count` bytes; `done` is NULL or a place for a number.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_file_read_at(
    file: *const linewise_fibres_file,
    buffer: *mut c_void,
    count: usize,
    offset: u64,
    done: *mut usize,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let file = unsafe { of(file, "file")? };
        checked(buffer, count, "buffer")?;
        // SAFETY: the contract; nobody reads from it before the system has written there.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast(), count) };
        let read = file.0.read_at(buffer, offset)?;
        // SAFETY: the contract.
        unsafe { tell(done, read) };
        Ok(())
    })
}

/// Writes up to `count` bytes at `offset`; `done`, which may be NULL, gets how many.
///
/// # Safety
/// `file` is a valid handle; `bytes` points to `count` bytes; `done` is NULL or a place for a number.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_file_write_at(
    file: *const linewise_fibres_file,
    bytes: *const c_void,
    count: usize,
    offset: u64,
    done: *mut usize,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let file = unsafe { of(file, "file")? };
        checked(bytes, count, "bytes")?;
        // SAFETY: the contract.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast(), count) };
        let written = file.0.write_at(bytes, offset)?;
        // SAFETY: the contract.
        unsafe { tell(done, written) };
        Ok(())
    })
}

/// Waits until what was written is on the disk.
///
/// # Safety
/// `file` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_file_sync(file: *const linewise_fibres_file) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { of(file, "file")? }.0.sync_all()?;
        Ok(())
    })
}

/// Closes a file.
///
/// # Safety
/// `file` is a handle that was not closed, or NULL, and nobody uses it from now on.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_file_close(file: *mut linewise_fibres_file) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { close(file) };
        Ok(())
    })
}
