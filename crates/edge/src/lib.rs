//! What the C faces of linewise's runtimes have in common: how pointers and options come in, how panics and
//! errors go out.
#![expect(unsafe_code, reason = "takes the pointers of C")]

#[cfg(feature = "programs")]
pub mod header;
#[cfg(feature = "programs")]
pub mod programs;

use std::any::Any;
use std::ffi::{CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An argument that cannot be, with what is wrong about it.
#[derive(Debug)]
pub struct Refused(pub String);

impl Refused {
    /// What must not be NULL is.
    pub fn null(name: &str) -> Self {
        Self(format!("{name} is NULL"))
    }
}

/// A panic that reached the edge, as a text.
#[derive(Debug)]
pub struct Defect(pub String);

/// What a panic says of itself; none if it threw something else than a text.
pub fn panic_text(payload: &(dyn Any + Send)) -> Option<&str> {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Runs the body of a function of a header: no panic leaves it.
///
/// # Errors
/// What the body says; [`Defect`] if it panicked.
#[inline(always)]
pub fn caught<F: From<Defect>>(body: impl FnOnce() -> Result<(), F>) -> Result<(), F> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = panic_text(&*payload).unwrap_or("it panicked");
        Err(Defect(format!("a defect of linewise: {text}")).into())
    })
}

/// The text of the last error.
#[derive(Debug, Default)]
pub struct Last(CString);

impl Last {
    /// Another one.
    pub fn set(&mut self, text: &str) {
        let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
        self.0 = CString::new(bytes).unwrap_or_default();
    }

    /// It, until the next one.
    pub fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr()
    }
}

/// A pointer of C's that goes to another thread.
#[derive(Clone, Copy, Debug)]
pub struct Passed(pub *mut c_void);

// SAFETY: who passes it vouches that the functions it is for may use it where they run; it is only handed
// on.
unsafe impl Send for Passed {}
// SAFETY: a shared one is only copied; what it points to is for who passed it to vouch for.
unsafe impl Sync for Passed {}

impl Passed {
    /// The pointer. A method, so that closures capture the whole.
    #[inline(always)]
    pub fn get(self) -> *mut c_void {
        self.0
    }
}

/// The `count` things that a caller passed under this name.
///
/// # Safety
/// `first` points to so many that stay as they are for `'a`, or is null.
///
/// # Errors
/// If it is null, and there should be some.
pub unsafe fn passed<'a, T>(first: *const T, count: usize, name: &str) -> Result<&'a [T], Refused> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(Refused::null(name));
    }
    // SAFETY: not null, and the contract.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// What every version of a structure begins with, if it can be one.
///
/// # Safety
/// `place` is null or points to a structure that begins with its size.
unsafe fn size_of_given<T>(place: *const T, name: &str) -> Result<usize, Refused> {
    if place.is_null() {
        return Err(Refused::null(name));
    }
    // SAFETY: every version begins with its size.
    let size = unsafe { place.cast::<usize>().read_unaligned() };
    if (size_of::<usize>()..=1 << 16).contains(&size) {
        return Ok(size);
    }
    Err(wrong_size(size, name))
}

fn wrong_size(size: usize, name: &str) -> Refused {
    Refused(format!("{name}->size is {size}, not the structure's size"))
}

/// Copies a structure of C that begins with its size: a shorter one is of an older version, and what
/// it lacks is zero; a longer one is of a newer version, and what we do not know must be zero.
///
/// # Safety
/// `given` is null, or points to as many bytes as its first member says; `T` is plain C data for
/// which zeros are valid, and begins with its size.
///
/// # Errors
/// If it is null, its size cannot be, or it asks for what is not known.
pub unsafe fn versioned<T: Copy>(given: *const T, name: &str) -> Result<T, Refused> {
    // SAFETY: the contract.
    let size = unsafe { size_of_given(given, name)? };
    // Every version ends with a whole word.
    if size % size_of::<usize>() != 0 {
        return Err(wrong_size(size, name));
    }
    // SAFETY: the caller vouches for that many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(given.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if bytes[known..].iter().any(|byte| *byte != 0) {
        return Err(Refused(format!(
            "{name} has members that this version of linewise does not know"
        )));
    }
    // SAFETY: zeros are valid for T, and the bytes that are copied are those of a T, or its begin.
    unsafe {
        let mut copy = std::mem::zeroed::<T>();
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut copy).cast::<u8>(), known);
        Ok(copy)
    }
}

/// Writes as much of a structure as the caller's version of it has, and zero to what a newer one has
/// beyond ours.
///
/// # Safety
/// `place` is null, or points to as many bytes as its first member says; `T` begins with its size.
///
/// # Errors
/// If it is null, or its size cannot be.
pub unsafe fn tell<T>(
    place: *mut T,
    value: impl FnOnce(usize) -> T,
    name: &str,
) -> Result<(), Refused> {
    // SAFETY: the contract.
    let size = unsafe { size_of_given(place, name)? };
    let value = value(size);
    let known = size.min(size_of::<T>());
    // SAFETY: the caller vouches for `size` bytes, and a T has `known`.
    unsafe {
        let place = place.cast::<u8>();
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), place, known);
        place.add(known).write_bytes(0, size - known);
    }
    Ok(())
}
