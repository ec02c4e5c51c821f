//! What a request line means: how the server runs its requests, how the client takes its answers.
//!
//! All requests of a line are of one [`Kind`], made at compile time for the types at the call site.
//! So the server makes one indirect call for a line of up to sixty-three requests, and the delegated
//! function is inlined into the loop over them.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use crate::arena::UNIT;
use crate::error::Error;
use crate::line::{FAILED, WIDE, WORDS, Word};
use crate::panics::Panic;

/// Bytes for one callback in a client's record of a line; a larger one is boxed.
pub(crate) const CALLBACK_BYTES: usize = 16;
/// Which request of a line panicked, and what it threw.
pub(crate) type Failures = Vec<(usize, Panic)>;

/// What the server knows when it runs a line.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    /// The shard's memory.
    pub(crate) base: *mut u8,
    /// From the channel's table: the operand that all requests of the line share.
    pub(crate) operand: u64,
    /// From the channel's table: what the operation captured, if it captured anything.
    pub(crate) captured: Captured,
    /// The line for upper halves.
    pub(crate) high: *mut u32,
    /// Filled with what panicked.
    pub(crate) failures: &'a mut Failures,
}

/// A line's answers, where the server left them.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) words: *const u32,
    /// Upper halves, if the flags say so.
    pub(crate) high: *const u32,
    pub(crate) flags: u32,
    pub(crate) failures: Failures,
}

impl Answers {
    pub(crate) fn failure(&self, index: usize) -> Option<Error> {
        let (_, panic) = self.failures.iter().find(|(at, _)| *at == index)?;
        Some(Error::Panicked(panic.clone()))
    }
}

/// How requests of one shape are run and completed.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Server: runs the first so many requests and overwrites them with answers; returns the flags
    /// of the header.
    pub(crate) run: unsafe fn(&mut Run<'_>, *mut u32, usize) -> u32,
    /// Client: gives the answers, from the index in the cell on, to the callbacks.
    pub(crate) complete: unsafe fn(&Answers, &Callbacks, &Cell<usize>, usize),
    /// Words of a request and of its answer.
    pub(crate) words: usize,
    /// Requests that fit a line.
    pub(crate) capacity: usize,
    /// Bytes from one callback to the next.
    pub(crate) callback_bytes: usize,
    /// Client: gives a line's share in its common callback back.
    pub(crate) release: unsafe fn(*const ()),
}

/// What a client keeps beside a line of requests.
#[derive(Debug)]
pub(crate) struct Callbacks {
    /// For each request its callback, or, if they have one in common, its tag.
    pub(crate) each: *mut u8,
    /// The callback of all requests of a [`Prepared`] line, else null.
    pub(crate) common: *const (),
}

/// For lines without a common callback.
pub(crate) unsafe fn nothing(_: *const ()) {}

/// Calls `each` for the indices from `next` to `count`. Where it panics, `next` is that index plus
/// `skip`; kept there only then, so that a loop that cannot panic keeps its index in a register.
#[inline(always)]
pub(crate) fn each_from(
    next: &Cell<usize>,
    count: usize,
    skip: usize,
    mut each: impl FnMut(usize),
) {
    struct Progress<'a> {
        next: &'a Cell<usize>,
        index: usize,
        skip: usize,
    }
    impl Drop for Progress<'_> {
        #[inline(always)]
        fn drop(&mut self) {
            self.next.set(self.index + self.skip);
        }
    }
    let mut progress = Progress {
        next,
        index: next.get(),
        skip,
    };
    while progress.index < count {
        each(progress.index);
        progress.index += 1;
    }
    std::mem::forget(progress);
    next.set(count);
}

/// Runs `each` for all indices below `count`; a panic becomes a failure of its index.
#[inline(always)]
pub(crate) fn each_caught(
    count: usize,
    failures: &mut Failures,
    mut each: impl FnMut(usize),
) -> u32 {
    let next = Cell::new(0);
    let mut flags = 0;
    loop {
        let result = catch_unwind(AssertUnwindSafe(|| each_from(&next, count, 0, &mut each)));
        let Err(payload) = result else {
            return flags;
        };
        failures.push((next.get(), Panic::of(payload)));
        flags |= FAILED;
        next.set(next.get() + 1);
    }
}

/// # Safety
/// `offset` names a live `T` of the memory at `base` that the caller alone may touch.
#[inline(always)]
pub(crate) unsafe fn target<'a, T>(base: *mut u8, offset: u32) -> &'a mut T {
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
pub(crate) unsafe fn take_callback<C>(place: *mut u8) -> C {
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

pub(crate) const fn callback_bytes<C>() -> usize {
    if fits_record::<C>() {
        size_of::<C>()
    } else {
        8
    }
}

/// How the operand of a [`Typed`] request travels.
pub(crate) trait Operand: Copy + 'static {
    /// The operand, if the line has `shared` in the channel's table.
    fn value(self, shared: u64) -> u64;
}

/// One operand for the whole line, in the channel's table.
impl Operand for () {
    #[inline(always)]
    fn value(self, shared: u64) -> u64 {
        shared
    }
}

/// An operand that fits 32 bits in each request.
impl Operand for u32 {
    #[inline(always)]
    fn value(self, _: u64) -> u64 {
        u64::from(self)
    }
}

/// An operand in each request.
impl Operand for u64 {
    #[inline(always)]
    fn value(self, _: u64) -> u64 {
        self
    }
}

/// Words of a small request: the value's offset and the operand.
const fn small_words<A>() -> usize {
    1 + size_of::<A>().div_ceil(4)
}

/// Writes a small request at `place`.
///
/// # Safety
/// `place` has room for [`small_words`].
#[inline(always)]
unsafe fn write_small<A>(place: *mut u32, offset: u32, operand: A) {
    // SAFETY: the contract; the write does not ask for alignment.
    unsafe {
        place.write(offset);
        place.add(1).cast::<A>().write_unaligned(operand);
    }
}

/// Runs a line of small requests.
///
/// # Safety
/// The client wrote so many requests on values of type `T` with operands of type `A`.
#[inline(always)]
unsafe fn run_small<T, A>(
    run: &mut Run<'_>,
    words: *mut u32,
    count: usize,
    function: impl Fn(&mut T, A) -> u64,
) -> u32 {
    let (base, high) = (run.base, run.high);
    let mut wide = 0;
    let flags = each_caught(count, run.failures, |index| {
        // SAFETY: the contract; the targets are alive until their line was answered, and only the
        // shard's server touches them. Both lines are the server's until it answers.
        unsafe {
            let place = words.add(index * small_words::<A>());
            let operand = place.add(1).cast::<A>().read_unaligned();
            let answer = function(target::<T>(base, *place), operand);
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

impl Answers {
    /// The answer of small request `index`, whose words begin at `index * stride`.
    ///
    /// # Safety
    /// The line holds it.
    #[inline(always)]
    unsafe fn small(&self, index: usize, stride: usize) -> Result<u64, Error> {
        // SAFETY: the contract; the upper halves are there where the flags say so.
        unsafe {
            let low = u64::from(*self.words.add(index * stride));
            if self.flags == 0 {
                return Ok(low);
            }
            match self.failure(index) {
                Some(error) => Err(error),
                None if self.flags & WIDE != 0 => Ok(low | u64::from(*self.high.add(index)) << 32),
                None => Ok(low),
            }
        }
    }
}

/// What an operation captured, as it travels in the channel's table: pointers keep what they may point
/// to, and bytes that were never written stay so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured(MaybeUninit<[u64; 2]>);

impl Captured {
    /// Of nothing.
    pub(crate) const NOTHING: Self = Self(MaybeUninit::uninit());

    /// What `function` captured.
    #[inline(always)]
    pub(crate) fn of<F: Copy>(function: F) -> Self {
        const {
            assert!(
                size_of::<F>() <= 16,
                "an operation captures at most 16 bytes"
            )
        };
        let mut captured = Self::NOTHING;
        // SAFETY: at most 16 bytes, asserted above.
        unsafe {
            captured
                .0
                .as_mut_ptr()
                .cast::<F>()
                .write_unaligned(function)
        };
        captured
    }

    /// # Safety
    /// This was made of an `F`.
    #[inline(always)]
    unsafe fn function<F: Copy>(&self) -> F {
        // SAFETY: the contract.
        unsafe { self.0.as_ptr().cast::<F>().read_unaligned() }
    }
}

/// A number that tells the operations of one type apart: those with the same may stand for each other.
/// Only where that can be known. The bytes of captures cannot be compared, since they may have some that
/// were never written.
#[inline(always)]
pub(crate) fn identity<T: 'static, F: 'static>(operation: &F) -> Option<u64> {
    if size_of::<F>() == 0 {
        return Some(0);
    }
    let pointer = (operation as &dyn Any).downcast_ref::<fn(&mut T, u64) -> u64>()?;
    Some(*pointer as usize as u64)
}

/// A small operation `(&mut T, u64) -> u64`: the packed path.
pub(crate) struct Typed<T, F, C, O>(PhantomData<(T, F, C, O)>);

impl<T, F, C, O> Typed<T, F, C, O>
where
    F: Fn(&mut T, u64) -> u64 + Copy,
    C: FnOnce(Result<u64, Error>),
    O: Operand,
{
    const KIND: Kind = Kind {
        run: Self::run,
        complete: Self::complete,
        words: small_words::<O>(),
        capacity: WORDS / small_words::<O>(),
        callback_bytes: callback_bytes::<C>(),
        release: nothing,
    };

    /// Writes the request for `offset` at `place`.
    ///
    /// # Safety
    /// `place` has room for the words of this form's kind.
    #[inline(always)]
    pub(crate) unsafe fn write(place: *mut u32, offset: u32, operand: O) {
        // SAFETY: the contract.
        unsafe { write_small(place, offset, operand) };
    }

    unsafe fn run(run: &mut Run<'_>, words: *mut u32, count: usize) -> u32 {
        let shared = run.operand;
        // SAFETY: the client put what an `F` captured there, and so many requests of this kind.
        unsafe {
            let function: F = run.captured.function();
            run_small(run, words, count, |target: &mut T, operand: O| {
                function(target, operand.value(shared))
            })
        }
    }

    unsafe fn complete(answers: &Answers, callbacks: &Callbacks, next: &Cell<usize>, count: usize) {
        each_from(next, count, 1, |index| {
            // SAFETY: the client put a callback there for each request, and each is taken once; the
            // line holds so many answers.
            unsafe {
                let callback: C = take_callback(callbacks.each.add(index * callback_bytes::<C>()));
                callback(answers.small(index, small_words::<O>()));
            }
        });
    }
}

/// A small operation `(&mut T, A) -> u64` whose requests share one callback `C` and have a tag `G`
/// each.
pub(crate) struct Prepared<T, A, F, G, C>(PhantomData<(T, A, F, G, C)>);

impl<T, A, F, G, C> Prepared<T, A, F, G, C>
where
    A: Copy,
    F: Fn(&mut T, A) -> u64 + Copy,
    C: Fn(G, Result<u64, Error>),
{
    /// Words of a request.
    pub(crate) const WORDS: usize = small_words::<A>();
    /// Requests in a line.
    pub(crate) const CAPACITY: usize = WORDS / Self::WORDS;
    /// Bytes from one tag to the next.
    pub(crate) const TAG_BYTES: usize = callback_bytes::<G>();

    /// How a line of these is run and completed.
    pub(crate) const KIND: &'static Kind = {
        assert!(Self::CAPACITY > 0, "an operand has at most 56 bytes");
        &Kind {
            run: Self::run,
            complete: Self::complete,
            words: Self::WORDS,
            capacity: Self::CAPACITY,
            callback_bytes: Self::TAG_BYTES,
            release: Self::release,
        }
    };

    /// Writes a request and its tag.
    ///
    /// # Safety
    /// `place` and `tag_place` have room for the next of [`Self::KIND`].
    #[inline(always)]
    pub(crate) unsafe fn write(
        (place, tag_place): (*mut u32, *mut u8),
        offset: u32,
        operand: A,
        tag: G,
    ) {
        // SAFETY: the contract.
        unsafe {
            write_small(place, offset, operand);
            put_callback(tag_place, tag);
        }
    }

    unsafe fn run(run: &mut Run<'_>, words: *mut u32, count: usize) -> u32 {
        // SAFETY: the client put what an `F` captured there, and so many requests of this kind.
        unsafe {
            let function: F = run.captured.function();
            run_small(run, words, count, function)
        }
    }

    unsafe fn complete(answers: &Answers, callbacks: &Callbacks, next: &Cell<usize>, count: usize) {
        // SAFETY: the line of this kind has so many answers and tags, each of which is taken once, and
        // a share in its callback until it is released. Its words are the client's turn until it is
        // settled.
        unsafe {
            let then = &*callbacks.common.cast::<C>();
            let tag = |index| take_callback(callbacks.each.add(index * Self::TAG_BYTES));
            if answers.flags == 0 {
                let words = &*answers.words.cast::<[Word; WORDS]>();
                Self::give(then, words, next, count, tag);
                return;
            }
            each_from(next, count, 1, |index| {
                then(tag(index), answers.small(index, Self::WORDS));
            });
        }
    }

    /// Gives answers without flags to the callback. Not inlined: its arguments tell the compiler that
    /// the callback's stores leave the words as they are, so that a sum stays in a register.
    ///
    /// # Safety
    /// Each of `count` requests was overwritten with an answer.
    #[inline(never)]
    unsafe fn give(
        then: &C,
        words: &[Word; WORDS],
        next: &Cell<usize>,
        count: usize,
        tag: impl Fn(usize) -> G,
    ) {
        each_from(next, count.min(Self::CAPACITY), 1, |index| {
            // SAFETY: the contract.
            let answer = unsafe { words[index * Self::WORDS].assume_init() };
            then(tag(index), Ok(u64::from(answer)));
        });
    }

    unsafe fn release(common: *const ()) {
        // SAFETY: the client took a share for the line, with `Rc::into_raw`.
        drop(unsafe { Rc::from_raw(common.cast::<C>()) });
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
                same: Typed::<T, F, C, ()>::KIND,
                narrow: Typed::<T, F, C, u32>::KIND,
                wide: Typed::<T, F, C, u64>::KIND,
            }
        }
    }
}
