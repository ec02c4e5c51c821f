//! Values that live in a shard.

use std::ffi::c_void;

use linewise_delegate::{OwnedSlice, Target};

use crate::domain::{linewise_domain, versioned};
use crate::error::{Failure, edge};

/// Prepares the value at `index`, on the shard's server. Its bytes are zero before.
pub type linewise_begin =
    Option<unsafe extern "C" fn(value: *mut c_void, index: usize, context: *mut c_void)>;
/// Ends a value, on the shard's server. Its bytes are freed afterwards.
pub type linewise_end = Option<unsafe extern "C" fn(value: *mut c_void)>;

/// Options of an array. Set `size`, `count` and `value_bytes`; zero means the default for all others.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linewise_array_options {
    /// `sizeof (struct linewise_array_options)`.
    pub size: usize,
    /// The shard that owns the values.
    pub shard: u32,
    /// How many values, at least 1.
    pub count: usize,
    /// Bytes of a value, at least 1. Up to 48 lie in a line of their own, aligned to 8; more lie in
    /// memory of their own, aligned to 64.
    pub value_bytes: usize,
    /// Prepares each value; NULL leaves it zero.
    pub begin: linewise_begin,
    /// Passed to `begin`.
    pub context: *mut c_void,
    /// Ends each value; NULL for nothing.
    pub end: linewise_end,
}

/// Values side by side in a shard: only the thread that serves the shard touches them.
pub struct linewise_array(OwnedSlice<Value>);

/// Bytes that lie in the value itself: with what is beside them, a line.
const HERE: usize = 48;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u64; 8]);

enum Bytes {
    Here([u64; HERE / 8]),
    There(Box<[Line]>),
}

/// A value of C's.
#[repr(align(64))]
pub(crate) struct Value {
    bytes: Bytes,
    end: linewise_end,
}

const _: () = assert!(size_of::<Value>() == 64);

impl Value {
    fn new(bytes: usize, end: linewise_end) -> Self {
        let bytes = if bytes <= HERE {
            Bytes::Here([0; HERE / 8])
        } else {
            Bytes::There(vec![Line([0; 8]); bytes.div_ceil(64)].into())
        };
        Self { bytes, end }
    }

    /// Where C finds it.
    #[inline(always)]
    pub(crate) fn place(&mut self) -> *mut c_void {
        match &mut self.bytes {
            Bytes::Here(words) => words.as_mut_ptr().cast(),
            Bytes::There(lines) => lines.as_mut_ptr().cast(),
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            // SAFETY: the caller of `linewise_array_new` vouches for its function, and nobody
            // touches the value any more.
            unsafe { end(self.place()) };
        }
    }
}

/// A pointer of C's that goes to the server.
struct Context(*mut c_void);

// SAFETY: the caller of `linewise_array_new` passes a context that `begin` may use on the server.
unsafe impl Send for Context {}

impl Context {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

impl linewise_array {
    /// The value at `index`, as the target of a request.
    #[inline(always)]
    pub(crate) fn target(&self, index: usize) -> Result<Target<'_, Value>, Failure> {
        if index < self.0.len() {
            Ok(self.0.at(index))
        } else {
            Err(out_of_range(index, self.0.len()))
        }
    }
}

#[cold]
fn out_of_range(index: usize, count: usize) -> Failure {
    Failure::argument(format!("index {index} of {count}"))
}

/// Makes an array of values in a shard, and waits until it is made. Not inside a delegated function.
///
/// # Safety
/// `domain` is a valid handle; `options` points to options; `begin` and `end` may be called by the
/// shard's server with what they are promised; `array` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_array_new(
    domain: *const linewise_domain,
    options: *const linewise_array_options,
    array: *mut *mut linewise_array,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let domain = unsafe { domain.as_ref() }.ok_or_else(|| Failure::null("domain"))?;
        if array.is_null() {
            return Err(Failure::null("array"));
        }
        // SAFETY: the contract.
        let options = unsafe { versioned(options, "options")? };
        if options.count == 0 || options.value_bytes == 0 {
            return Err(Failure::argument(
                "an array needs a count and the bytes of a value",
            ));
        }
        if options.value_bytes > isize::MAX as usize / 2 {
            return Err(Failure::argument(format!("{} bytes", options.value_bytes)));
        }
        let (bytes, begin, end) = (options.value_bytes, options.begin, options.end);
        let context = Context(options.context);
        let build = move |index| {
            // Nothing to end if `begin` never runs.
            let mut value = Value::new(bytes, None);
            if let Some(begin) = begin {
                // SAFETY: the contract of the caller.
                unsafe { begin(value.place(), index, context.get()) };
            }
            value.end = end;
            value
        };
        let made = domain
            .domain
            .own_slice(options.shard as usize, options.count, build)?;
        // SAFETY: not null, and the contract.
        unsafe { array.write(Box::into_raw(Box::new(linewise_array(made)))) };
        Ok(())
    })
}

/// How many values an array has; 0 for NULL.
///
/// # Safety
/// `array` is a valid handle or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_array_count(array: *const linewise_array) -> usize {
    // SAFETY: the contract.
    unsafe { array.as_ref() }.map_or(0, |array| array.0.len())
}

/// Closes an array: its values end on their server, after all requests that were made before.
///
/// # Safety
/// `array` is a handle that was not closed, or NULL, and no thread uses it from now on.
#[no_mangle]
pub unsafe extern "C" fn linewise_array_close(array: *mut linewise_array) -> i32 {
    edge(|| {
        if !array.is_null() {
            // SAFETY: made by `linewise_array_new`, and the caller gives it up.
            drop(unsafe { Box::from_raw(array) });
        }
        Ok(())
    })
}
