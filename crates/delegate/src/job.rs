//! What a request line means: how the server runs its requests, how the client takes its answers.
//!
//! All requests of a line are of one [`Kind`], made at compile time for the types at the call site.
//! So the server makes one indirect call for a line of up to fifteen requests, and the delegated
//! function is inlined into the loop over them.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::arena::UNIT;
use crate::error::{Error, panic_text};
use crate::line::{FAILED, WIDE, WORDS};

/// Bytes for one callback in a client's record of a line; a larger one is boxed.
pub(crate) const CALLBACK_BYTES: usize = 16;
/// Bytes of a closure that travel in the line; a larger one is boxed.
const CLOSURE_BYTES: usize = 28;
/// Bytes of an answer that travel in the line; a larger one is boxed.
const ANSWER_BYTES: usize = 32;

/// Which request of a line panicked, and what it said.
pub(crate) type Failures = Vec<(usize, String)>;

/// What the server knows when it runs a line.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    /// The shard's memory.
    pub(crate) base: *mut u8,
    /// From the channel's table: the operand that all requests of the line share.
    pub(crate) operand: u64,
    /// From the channel's table: the bytes of the operation, if it has any.
    pub(crate) extra: u64,
    /// The line for upper halves.
    pub(crate) high: *mut u32,
    /// Filled with what panicked.
    pub(crate) failures: &'a mut Failures,
}

/// A line's answers, copied out of it.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) words: [u32; WORDS],
    pub(crate) high: [u32; WORDS],
    pub(crate) flags: u32,
    pub(crate) failures: Failures,
}

impl Answers {
    fn failure(&self, index: usize) -> Option<Error> {
        let (_, text) = self.failures.iter().find(|(at, _)| *at == index)?;
        Some(Error::Panicked(text.clone()))
    }
}

/// How requests of one shape are run and completed.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Server: runs the first so many requests and overwrites them with answers; returns the flags
    /// of the header.
    pub(crate) run: unsafe fn(&mut Run<'_>, *mut u32, usize) -> u32,
    /// Client: gives the answers, from the index in the cell on, to the callbacks.
    pub(crate) complete: unsafe fn(&Answers, *mut u8, &Cell<usize>, usize),
    /// Words of a request and of its answer.
    pub(crate) words: usize,
    /// Requests that fit a line.
    pub(crate) capacity: usize,
    /// Bytes from one callback to the next.
    pub(crate) callback_bytes: usize,
}

/// Runs `each` for all indices below `count`; a panic becomes a failure of its index.
#[inline(always)]
fn each_caught(count: usize, failures: &mut Failures, mut each: impl FnMut(usize)) -> u32 {
    let done = Cell::new(0);
    let mut flags = 0;
    loop {
        let result = catch_unwind(AssertUnwindSafe(|| {
            for index in done.get()..count {
                done.set(index);
                each(index);
            }
        }));
        let Err(payload) = result else {
            return flags;
        };
        failures.push((done.get(), panic_text(&*payload)));
        flags |= FAILED;
        done.set(done.get() + 1);
    }
}

/// # Safety
/// `offset` names a live `T` of the memory at `base` that the caller alone may touch.
#[inline(always)]
unsafe fn target<'a, T>(base: *mut u8, offset: u32) -> &'a mut T {
    // SAFETY: the contract.
    unsafe { &mut *base.add(offset as usize * UNIT).cast::<T>() }
}

/// Puts `callback` at `place`, boxed if it is large.
///
/// # Safety
/// `place` has room for [`callback_bytes`] and is aligned to 16.
#[inline(always)]
pub(crate) unsafe fn put_callback<C>(place: *mut u8, callback: C) {
    // SAFETY: the contract; what is boxed is 8 bytes.
    unsafe {
        if fits_record::<C>() {
            place.cast::<C>().write(callback);
        } else {
            place
                .cast::<*mut C>()
                .write(Box::into_raw(Box::new(callback)));
        }
    }
}

/// # Safety
/// `place` holds what [`put_callback`] put there, and is not read again.
#[inline(always)]
unsafe fn take_callback<C>(place: *mut u8) -> C {
    // SAFETY: the contract.
    unsafe {
        if fits_record::<C>() {
            place.cast::<C>().read()
        } else {
            *Box::from_raw(place.cast::<*mut C>().read())
        }
    }
}

const fn fits_record<C>() -> bool {
    size_of::<C>() <= CALLBACK_BYTES && align_of::<C>() <= CALLBACK_BYTES
}

const fn callback_bytes<C>() -> usize {
    if fits_record::<C>() {
        size_of::<C>()
    } else {
        8
    }
}

/// Puts `value` into words that it may not be aligned to, boxed if it exceeds `most` bytes.
///
/// # Safety
/// `place` has room for [`inline_bytes`] of it.
#[inline(always)]
unsafe fn put<V>(place: *mut u32, value: V, most: usize) {
    // SAFETY: the contract; the writes do not ask for alignment.
    unsafe {
        if size_of::<V>() <= most {
            place.cast::<V>().write_unaligned(value);
        } else {
            place
                .cast::<*mut V>()
                .write_unaligned(Box::into_raw(Box::new(value)));
        }
    }
}

/// # Safety
/// `place` holds what [`put`] put there with the same `most`, and is not read again.
#[inline(always)]
unsafe fn take<V>(place: *const u32, most: usize) -> V {
    // SAFETY: the contract.
    unsafe {
        if size_of::<V>() <= most {
            place.cast::<V>().read_unaligned()
        } else {
            *Box::from_raw(place.cast::<*mut V>().read_unaligned())
        }
    }
}

const fn inline_bytes<V>(most: usize) -> usize {
    if size_of::<V>() <= most {
        size_of::<V>()
    } else {
        8
    }
}

/// A closure that is run once on a `T`, with an answer `R` and a callback `C`.
pub(crate) struct Closure<T, F, R, C>(PhantomData<(T, F, R, C)>);

impl<T, F, R, C> Closure<T, F, R, C>
where
    F: FnOnce(&mut T) -> R,
    C: FnOnce(Result<R, Error>),
{
    const REQUEST_WORDS: usize = 1 + inline_bytes::<F>(CLOSURE_BYTES).div_ceil(4);
    const ANSWER_WORDS: usize = inline_bytes::<R>(ANSWER_BYTES).div_ceil(4);
    const STRIDE: usize = if Self::REQUEST_WORDS > Self::ANSWER_WORDS {
        Self::REQUEST_WORDS
    } else {
        Self::ANSWER_WORDS
    };

    /// How a line of these is run and completed.
    pub(crate) const KIND: &'static Kind = &Kind {
        run: Self::run,
        complete: Self::complete,
        words: Self::STRIDE,
        capacity: WORDS / Self::STRIDE,
        callback_bytes: callback_bytes::<C>(),
    };

    /// Writes the request for `offset` at `place`.
    ///
    /// # Safety
    /// `place` has room for the words of [`Self::KIND`].
    #[inline(always)]
    pub(crate) unsafe fn write(place: *mut u32, offset: u32, function: F) {
        // SAFETY: the contract.
        unsafe {
            place.write(offset);
            put(place.add(1), function, CLOSURE_BYTES);
        }
    }

    unsafe fn run(run: &mut Run<'_>, words: *mut u32, count: usize) -> u32 {
        let base = run.base;
        each_caught(count, run.failures, |index| {
            // SAFETY: the client wrote so many requests of this kind; the targets are alive until
            // their line was answered, and only the shard's server touches them.
            unsafe {
                let place = words.add(index * Self::STRIDE);
                let target = target::<T>(base, *place);
                let function: F = take(place.add(1), CLOSURE_BYTES);
                put(place, function(target), ANSWER_BYTES);
            }
        })
    }

    unsafe fn complete(answers: &Answers, callbacks: *mut u8, next: &Cell<usize>, count: usize) {
        while next.get() < count {
            let index = next.get();
            next.set(index + 1);
            // SAFETY: the client put a callback there for each request, and each is taken once.
            let callback: C =
                unsafe { take_callback(callbacks.add(index * callback_bytes::<C>())) };
            let failure = (answers.flags & FAILED != 0)
                .then(|| answers.failure(index))
                .flatten();
            callback(match failure {
                Some(error) => Err(error),
                // SAFETY: a request that did not fail was overwritten with its answer.
                None => Ok(unsafe {
                    take(
                        answers.words.as_ptr().add(index * Self::STRIDE),
                        ANSWER_BYTES,
                    )
                }),
            });
        }
    }
}

/// How the operands of typed operations travel.
pub(crate) trait Operands: 'static {
    /// Words beside the offset.
    const WORDS: usize;
    /// The operand of the request at `place`.
    ///
    /// # Safety
    /// `place` is a request of this form.
    unsafe fn get(place: *const u32, shared: u64) -> u64;
    /// Writes `operand` behind the offset at `place`.
    ///
    /// # Safety
    /// `place` has room for it.
    unsafe fn set(place: *mut u32, operand: u64);
}

/// One operand for the whole line, in the channel's table.
pub(crate) struct Same;
/// An operand of 32 bits in each request.
pub(crate) struct Narrow;
/// An operand of 64 bits in each request.
pub(crate) struct Wide;

impl Operands for Same {
    const WORDS: usize = 0;
    #[inline(always)]
    unsafe fn get(_: *const u32, shared: u64) -> u64 {
        shared
    }
    #[inline(always)]
    unsafe fn set(_: *mut u32, _: u64) {}
}

impl Operands for Narrow {
    const WORDS: usize = 1;
    #[inline(always)]
    unsafe fn get(place: *const u32, _: u64) -> u64 {
        // SAFETY: the contract.
        u64::from(unsafe { *place.add(1) })
    }
    #[inline(always)]
    unsafe fn set(place: *mut u32, operand: u64) {
        // SAFETY: the contract; whoever chose this form saw that the operand fits.
        unsafe { place.add(1).write(operand as u32) }
    }
}

impl Operands for Wide {
    const WORDS: usize = 2;
    #[inline(always)]
    unsafe fn get(place: *const u32, _: u64) -> u64 {
        // SAFETY: the contract.
        unsafe { place.add(1).cast::<u64>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn set(place: *mut u32, operand: u64) {
        // SAFETY: the contract.
        unsafe { place.add(1).cast::<u64>().write_unaligned(operand) }
    }
}

/// A small operation `(&mut T, u64) -> u64`: the packed path.
pub(crate) struct Typed<T, F, C, O>(PhantomData<(T, F, C, O)>);

impl<T, F, C, O> Typed<T, F, C, O>
where
    F: Fn(&mut T, u64) -> u64 + Copy,
    C: FnOnce(Result<u64, Error>),
    O: Operands,
{
    const STRIDE: usize = 1 + O::WORDS;

    const KIND: Kind = Kind {
        run: Self::run,
        complete: Self::complete,
        words: Self::STRIDE,
        capacity: WORDS / Self::STRIDE,
        callback_bytes: callback_bytes::<C>(),
    };

    /// The operation as the bits that travel in the channel's table.
    #[inline(always)]
    pub(crate) fn bits(function: F) -> u64 {
        const { assert!(size_of::<F>() <= 8, "an operation captures at most 8 bytes") };
        let mut bits = 0u64;
        // SAFETY: at most 8 bytes, asserted above.
        unsafe { (&raw mut bits).cast::<F>().write_unaligned(function) };
        bits
    }

    /// Writes the request for `offset` at `place`.
    ///
    /// # Safety
    /// `place` has room for the words of this form's kind.
    #[inline(always)]
    pub(crate) unsafe fn write(place: *mut u32, offset: u32, operand: u64) {
        // SAFETY: the contract.
        unsafe {
            place.write(offset);
            O::set(place, operand);
        }
    }

    unsafe fn run(run: &mut Run<'_>, words: *mut u32, count: usize) -> u32 {
        let (base, shared, high) = (run.base, run.operand, run.high);
        // SAFETY: the client put the bits of an `F` there.
        let function: F = unsafe { (&raw const run.extra).cast::<F>().read_unaligned() };
        let mut wide = 0;
        let flags = each_caught(count, run.failures, |index| {
            // SAFETY: the client wrote so many requests of this kind; the targets are alive until
            // their line was answered, and only the shard's server touches them. Both lines are the
            // server's until it answers.
            unsafe {
                let place = words.add(index * Self::STRIDE);
                let target = target::<T>(base, *place);
                let answer = function(target, O::get(place, shared));
                place.write(answer as u32);
                let upper = (answer >> 32) as u32;
                if upper != 0 {
                    if wide == 0 {
                        wide = WIDE;
                        high.write_bytes(0, WORDS);
                    }
                    high.add(index).write(upper);
                }
            }
        });
        flags | wide
    }

    unsafe fn complete(answers: &Answers, callbacks: *mut u8, next: &Cell<usize>, count: usize) {
        while next.get() < count {
            let index = next.get();
            next.set(index + 1);
            // SAFETY: the client put a callback there for each request, and each is taken once.
            let callback: C =
                unsafe { take_callback(callbacks.add(index * callback_bytes::<C>())) };
            // SAFETY: a line holds at most so many answers of this stride.
            let low = u64::from(unsafe { *answers.words.as_ptr().add(index * Self::STRIDE) });
            if answers.flags == 0 {
                callback(Ok(low));
                continue;
            }
            callback(match answers.failure(index) {
                Some(error) => Err(error),
                None if answers.flags & WIDE != 0 => Ok(low | u64::from(answers.high[index]) << 32),
                None => Ok(low),
            });
        }
    }
}

/// The three forms of an operation's requests.
#[derive(Debug)]
pub(crate) struct Forms {
    pub(crate) same: Kind,
    pub(crate) narrow: Kind,
    pub(crate) wide: Kind,
}

impl Forms {
    /// The forms for these types. Lines are told apart by the addresses of kinds, and the compiler
    /// may keep a constant in several places: who compares takes all addresses from one call.
    #[inline(always)]
    pub(crate) fn of<T, F, C>() -> &'static Self
    where
        F: Fn(&mut T, u64) -> u64 + Copy,
        C: FnOnce(Result<u64, Error>),
    {
        const {
            &Self {
                same: Typed::<T, F, C, Same>::KIND,
                narrow: Typed::<T, F, C, Narrow>::KIND,
                wide: Typed::<T, F, C, Wide>::KIND,
            }
        }
    }
}
