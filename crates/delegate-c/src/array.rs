//! Values that live in a shard.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::marker::PhantomPinned;
use std::panic::resume_unwind;
use std::ptr::NonNull;

use linewise_delegate::{Client, Error, OwnedSlice, Sharded, Target};

use linewise_edge::{Passed, versioned};

use crate::domain::linewise_domain;
use crate::error::{Failure, edge};

/// Prepares the value at `index`, on the shard's server. Its bytes are zero before, and stay at this
/// address until the value ends.
pub type linewise_begin =
    Option<unsafe extern "C-unwind" fn(value: *mut c_void, index: usize, context: *mut c_void)>;
/// Ends a value, on the shard's server; after a shutdown in the thread that closes the last handle. Its
/// bytes are freed afterwards.
pub type linewise_end = Option<unsafe extern "C-unwind" fn(value: *mut c_void)>;

/// Options of an array. Set `size`, `count` and `value_bytes`; zero means the default for all others.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linewise_array_options {
    /// `sizeof (struct linewise_array_options)`.
    pub size: usize,
    /// The shard that owns the values.
    pub shard: u32,
    /// Not 0: the values are spread over all shards, the one at `index` in shard `index % shards`;
    /// `shard` is 0 then.
    pub spread: u32,
    /// How many values, at least 1.
    pub count: usize,
    /// Bytes of a value, at least 1. Up to 48 lie in a line of their own, aligned to 8; more lie in
    /// memory of their own, aligned to 64, on the server's NUMA node.
    pub value_bytes: usize,
    /// Prepares each value; NULL leaves it zero.
    pub begin: linewise_begin,
    /// Passed to `begin`.
    pub context: *mut c_void,
    /// Ends each value; NULL for nothing.
    pub end: linewise_end,
}

/// Values in a shard, or spread over all: only the thread that serves a shard touches those in it.
pub struct linewise_array(Values);

enum Values {
    Here(OwnedSlice<Value>),
    Spread(Sharded<Value>),
}

impl Values {
    fn count(&self) -> usize {
        match self {
            Self::Here(values) => values.len(),
            Self::Spread(values) => values.len(),
        }
    }
}

/// Bytes that lie in the value itself: with what is beside them, a line.
const HERE: usize = 48;
/// Where larger values begin.
const LINE: usize = 64;

enum Bytes {
    Here([u64; HERE / 8]),
    There(NonNull<u8>, Layout),
}

/// A value of C's.
#[repr(align(64))]
pub(crate) struct Value {
    bytes: Bytes,
    end: linewise_end,
    /// C may have kept the address: a reference to the value is not the only way to its bytes.
    _pinned: PhantomPinned,
}

const _: () = assert!(size_of::<Value>() == LINE);

// SAFETY: what lies elsewhere is the value's own; what C keeps in it, C's functions vouch for.
unsafe impl Send for Value {}

impl Value {
    /// A value of so many bytes, all zero; `None` if there is no memory for them.
    fn new(bytes: usize) -> Option<Self> {
        let bytes = if bytes <= HERE {
            Bytes::Here([0; HERE / 8])
        } else {
            let layout = Layout::from_size_align(bytes, LINE).ok()?;
            // SAFETY: the layout is not empty.
            Bytes::There(NonNull::new(unsafe { alloc_zeroed(layout) })?, layout)
        };
        Some(Self {
            bytes,
            end: None,
            _pinned: PhantomPinned,
        })
    }

    /// Where C finds it.
    #[inline(always)]
    pub(crate) fn place(&mut self) -> *mut c_void {
        match &mut self.bytes {
            Bytes::Here(words) => words.as_mut_ptr().cast(),
            Bytes::There(place, _) => place.as_ptr().cast(),
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
        if let Bytes::There(place, layout) = self.bytes {
            // SAFETY: allocated with this layout in `new`, and not used again.
            unsafe { dealloc(place.as_ptr(), layout) };
        }
    }
}

impl linewise_array {
    /// The array behind a handle.
    ///
    /// # Safety
    /// `handle` is a valid handle or null.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(handle: *const Self) -> Result<&'a Self, Failure> {
        // SAFETY: the contract.
        unsafe { handle.as_ref() }.ok_or_else(|| Failure::null("array"))
    }

    /// The value at `index`, as the target of a request.
    #[inline(always)]
    pub(crate) fn target(&self, index: usize) -> Result<Target<'_, Value>, Failure> {
        match &self.0 {
            Values::Here(values) if index < values.len() => Ok(values.at(index)),
            Values::Spread(values) if index < values.len() => Ok(values.at(index)),
            values => Err(out_of_range(index, values.count())),
        }
    }
}

impl linewise_array {
    /// Calls `operation` on the values at `indexes`, and waits.
    pub(crate) fn call_batch(
        &self,
        client: &Client<'static>,
        operation: impl Fn(&mut Value, u64) -> u64 + Copy + Send + 'static,
        operand: u64,
        indexes: &[usize],
    ) -> Result<Vec<u64>, Failure> {
        let count = self.0.count();
        if let Some(index) = indexes.iter().find(|index| **index >= count) {
            return Err(out_of_range(*index, count));
        }
        Ok(match &self.0 {
            Values::Here(values) => client.call_batch(values, operation, operand, indexes),
            Values::Spread(values) => client.call_batch(values, operation, operand, indexes),
        }?)
    }
}

#[cold]
fn out_of_range(index: usize, count: usize) -> Failure {
    Failure::argument(format!("index {index} of {count}"))
}

/// What building a value says when there is no memory for it: nothing else can come back from there.
const NO_MEMORY: &str = "no memory for a value";

/// Makes an array of values, and waits until it is made. Not inside a delegated function.
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
        let (domain, options) =
            unsafe { (linewise_domain::of(domain)?, versioned(options, "options")?) };
        if array.is_null() {
            return Err(Failure::null("array"));
        }
        if options.count == 0 || options.value_bytes == 0 {
            return Err(Failure::argument(
                "an array needs a count and the bytes of a value",
            ));
        }
        if options.spread != 0 && options.shard != 0 {
            return Err(Failure::argument(
                "a shard is given, and the values are to be spread over all",
            ));
        }
        let (bytes, begin, end) = (options.value_bytes, options.begin, options.end);
        let context = Passed(options.context);
        // Thrown without a message on the terminal: it comes back as an error.
        let build =
            move |_| Value::new(bytes).unwrap_or_else(|| resume_unwind(Box::new(NO_MEMORY)));
        let begin = move |index, value: &mut Value| {
            if let Some(begin) = begin {
                // SAFETY: the contract of the caller; the value is in its place.
                unsafe { begin(value.place(), index, context.get()) };
            }
            value.end = end;
        };
        let (shard, count) = (options.shard as usize, options.count);
        let made = if options.spread == 0 {
            domain
                .own_slice_in_place(shard, count, build, begin)
                .map(Values::Here)
        } else {
            domain
                .own_sharded_in_place(count, build, begin)
                .map(Values::Spread)
        };
        let made = made.map_err(|error| match error {
            Error::Panicked(panic) if panic.text() == NO_MEMORY => Failure::memory(bytes),
            error => error.into(),
        })?;
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
    unsafe { array.as_ref() }.map_or(0, |array| array.0.count())
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
