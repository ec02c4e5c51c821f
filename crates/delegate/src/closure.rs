//! Closures as requests: any `FnOnce(&mut T) -> R`, as many of one type in a line as there is room for.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::error::Error;
use crate::job::{
    Answers, Callbacks, Kind, Run, callback_bytes, each_caught, each_from, nothing, take_callback,
    target,
};
use crate::line::{FAILED, WORDS};

/// Bytes of a closure that travel in the line; a larger one is boxed.
const CLOSURE_BYTES: usize = 60;
/// Bytes of an answer that travel in the line; a larger one is boxed.
const ANSWER_BYTES: usize = 64;

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

/// A closure `F` that is run once on a `T`, with an answer `R`, as it lies in a line.
pub(crate) struct Closure<T, F, R>(PhantomData<(T, F, R)>);

impl<T, F, R> Closure<T, F, R>
where
    F: FnOnce(&mut T) -> R,
{
    const REQUEST_WORDS: usize = 1 + inline_bytes::<F>(CLOSURE_BYTES).div_ceil(4);
    const ANSWER_WORDS: usize = inline_bytes::<R>(ANSWER_BYTES).div_ceil(4);
    /// Words of a request and of its answer.
    const STRIDE: usize = if Self::REQUEST_WORDS > Self::ANSWER_WORDS {
        Self::REQUEST_WORDS
    } else {
        Self::ANSWER_WORDS
    };

    /// Writes the request for `offset` at `place`.
    ///
    /// # Safety
    /// `place` has room for a request.
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

    /// The answer of request `index`.
    ///
    /// # Safety
    /// The line holds it, and it is not taken again.
    #[inline(always)]
    pub(crate) unsafe fn answer(answers: &Answers, index: usize) -> Result<R, Error> {
        if answers.flags & FAILED != 0
            && let Some(error) = answers.failure(index)
        {
            return Err(error);
        }
        // SAFETY: the contract; a request that did not fail was overwritten with its answer.
        Ok(unsafe { take(answers.words.add(index * Self::STRIDE), ANSWER_BYTES) })
    }
}

/// How closures travel that have a callback `C` each.
pub(crate) struct Single<T, F, R, C>(PhantomData<(T, F, R, C)>);

impl<T, F, R, C> Single<T, F, R, C>
where
    F: FnOnce(&mut T) -> R,
    C: FnOnce(Result<R, Error>),
{
    /// How a line of these is run and completed.
    pub(crate) const KIND: &'static Kind = &Kind {
        run: Closure::<T, F, R>::run,
        complete: Self::complete,
        words: Closure::<T, F, R>::STRIDE,
        capacity: WORDS / Closure::<T, F, R>::STRIDE,
        callback_bytes: callback_bytes::<C>(),
        release: nothing,
    };

    unsafe fn complete(answers: &Answers, callbacks: &Callbacks, next: &Cell<usize>, count: usize) {
        each_from(next, count, 1, |index| {
            // SAFETY: the client put a callback there for each request, and each is taken once; the
            // line holds so many answers.
            unsafe {
                let callback: C = take_callback(callbacks.each.add(index * callback_bytes::<C>()));
                callback(Closure::<T, F, R>::answer(answers, index));
            }
        });
    }
}

/// How closures travel that share one callback `C`, which gets the number of each.
pub(crate) struct Many<T, F, R, C>(PhantomData<(T, F, R, C)>);

impl<T, F, R, C> Many<T, F, R, C>
where
    F: FnOnce(&mut T) -> R,
    C: Fn(usize, Result<R, Error>),
{
    /// How a line of these is run and completed.
    pub(crate) const KIND: &'static Kind = &Kind {
        run: Closure::<T, F, R>::run,
        complete: Self::complete,
        words: Closure::<T, F, R>::STRIDE,
        capacity: WORDS / Closure::<T, F, R>::STRIDE,
        callback_bytes: size_of::<usize>(),
        release: Self::release,
    };

    unsafe fn complete(answers: &Answers, callbacks: &Callbacks, next: &Cell<usize>, count: usize) {
        each_from(next, count, 1, |index| {
            // SAFETY: the client put a number there for each request, and a share in the callback into
            // the line; the line holds so many answers, each of which is taken once.
            unsafe {
                let then = &*callbacks.common.cast::<C>();
                let number = callbacks.each.cast::<usize>().add(index).read();
                then(number, Closure::<T, F, R>::answer(answers, index));
            }
        });
    }

    unsafe fn release(common: *const ()) {
        // SAFETY: the client took a share for the line, with `Rc::clone`.
        drop(unsafe { Rc::from_raw(common.cast::<C>()) });
    }
}
