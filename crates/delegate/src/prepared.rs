//! A small operation that is prepared once and called often.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::core;
use crate::error::Error;
use crate::exchange;
use crate::gate::Gate;
use crate::inner::Inner;
use crate::job::{self, Captured};
use crate::lane::{Lane, Sort};
use crate::owned::Target;
use crate::turn::turn;

/// A small operation with its callback, prepared by [`Client::prepare`] to be called often: what
/// [`Client::call_async`] does for each request is done here once, or once for each line.
///
/// Requests are packed: 63 share a line if the operand `A` has no bytes, 31 if it has up to 4, 21 up to
/// 8, and so on. On the client's own shard a line of requests runs when it is full, and at
/// every call that sends lines (the bound of [`Policy::UpperBound`](crate::Policy::UpperBound) is
/// rounded up to a line).
pub struct Prepared<'p, 'c, T, A, F, G, C> {
    pub(crate) client: &'p Client<'c>,
    pub(crate) lanes: *mut Lane,
    pub(crate) domain: &'p Arc<Inner>,
    pub(crate) gate: &'p Gate,
    /// The callback; lines on their way have a share in it.
    then: Rc<C>,
    /// No other operation of this client has it.
    identity: u64,
    captured: Captured,
    /// Invariant: a tag of a shorter life than `prepare` was asked for would not outlive its request.
    requests: PhantomData<Cell<(T, A, F, G)>>,
}

/// What a prepared operation may answer: what fits the word or two in which answers travel. Numbers,
/// `bool`, `char`, `()`, [`Duration`] up to 584 years, and `Option`s of numbers of up to 32 bits; of your own types
/// what you say.
///
/// ```
/// # use linewise_delegate::{Answer, Domain, Error};
/// #[derive(Debug, PartialEq)]
/// enum Found { Old, New }
///
/// impl Answer for Found {
///     fn into_bits(self) -> u64 { self as u64 }
///     fn from_bits(bits: u64) -> Self { if bits == 0 { Self::Old } else { Self::New } }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let domain = Domain::dedicated(1).build()?;
/// let seen = domain.own(0, std::collections::HashSet::new)?;
/// let found = std::cell::RefCell::new(Vec::new());
/// let client = domain.client()?;
/// let insert = client.prepare(
///     |seen: &mut std::collections::HashSet<u32>, number: u32| {
///         if seen.insert(number) { Found::New } else { Found::Old }
///     },
///     |(), answer| found.borrow_mut().push(answer.unwrap()),
/// );
/// for number in [3, 4, 3] {
///     insert.call(&seen, number, ())?;
/// }
/// client.barrier()?;
/// assert_eq!(*found.borrow(), [Found::New, Found::New, Found::Old]);
/// # Ok(())
/// # }
/// ```
pub trait Answer {
    /// The answer as it travels. Beyond 32 bits it costs a second line.
    fn into_bits(self) -> u64;
    /// The answer that was made into these bits.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! number {
    ($($number:ty as $unsigned:ty),*) => {$(
        impl Answer for $number {
            #[inline(always)]
            fn into_bits(self) -> u64 {
                self as $unsigned as u64
            }

            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as Self
            }
        }
    )*};
}

number!(u8 as u8, u16 as u16, u32 as u32, u64 as u64, usize as usize);
number!(i8 as u8, i16 as u16, i32 as u32, i64 as u64, isize as usize);

macro_rules! other {
    ($($other:ty: $answer:ident => $into:expr, $bits:ident => $from:expr;)*) => {$(
        impl Answer for $other {
            #[inline(always)]
            fn into_bits(self) -> u64 {
                let $answer = self;
                $into
            }

            #[inline(always)]
            fn from_bits($bits: u64) -> Self {
                $from
            }
        }
    )*};
}

other! {
    (): _nothing => 0, _bits => ();
    bool: answer => u64::from(answer), bits => bits != 0;
    char: answer => u64::from(answer), bits => char::from_u32(bits as u32).unwrap_or_default();
    f32: answer => u64::from(answer.to_bits()), bits => Self::from_bits(bits as u32);
    f64: answer => answer.to_bits(), bits => Self::from_bits(bits);
    Duration: answer => u64::try_from(answer.as_nanos()).unwrap_or(u64::MAX), bits => Self::from_nanos(bits);
}

/// Room for the number, and whether it is there: in the bit above it.
macro_rules! optional {
    ($($number:ty),*) => {$(
        impl Answer for Option<$number> {
            #[inline(always)]
            fn into_bits(self) -> u64 {
                self.map_or(0, |number| number.into_bits() | 1 << <$number>::BITS)
            }

            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                (bits >> <$number>::BITS != 0).then_some(bits as $number)
            }
        }
    )*};
}

optional!(u8, u16, u32, i8, i16, i32);

impl<'c> Client<'c> {
    /// Prepares a small operation for calls that do not wait. `then` gets each answer on this thread
    /// in a later call of this client, with the tag that the call was given.
    ///
    /// ```
    /// # use linewise_delegate::{Domain, Error};
    /// # fn main() -> Result<(), Error> {
    /// let domain = Domain::dedicated(1).build()?;
    /// let counters = domain.own_sharded(100, |index| index as u64)?;
    /// let found = std::cell::RefCell::new(vec![0; 100]);
    /// let client = domain.client()?;
    /// let add = client.prepare(
    ///     |counter: &mut u64, more: u32| {
    ///         *counter += u64::from(more);
    ///         *counter
    ///     },
    ///     |index: usize, answer| found.borrow_mut()[index] = answer.unwrap(),
    /// );
    /// for index in 0..100 {
    ///     add.call(counters.at(index), 1000, index)?;
    /// }
    /// client.barrier()?;
    /// assert_eq!(found.borrow()[7], 1007);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The operation captures at most 16 bytes, and the operand has at most 56 (checked when
    /// compiling). What it answers is a number or something else small, see [`Answer`]; beyond 32 bits it
    /// costs a second line.
    // What the two closures become has no name.
    #[allow(clippy::type_complexity)]
    pub fn prepare<T, A, R, F, G, C>(
        &self,
        operation: F,
        then: C,
    ) -> Prepared<
        '_,
        'c,
        T,
        A,
        impl Fn(&mut T, A) -> u64 + Copy + Send + 'static,
        G,
        impl Fn(G, Result<u64, Error>) + 'c,
    >
    where
        T: Send + 'static,
        A: Copy + Send + 'static,
        R: Answer,
        F: Fn(&mut T, A) -> R + Copy + Send + 'static,
        G: 'c,
        C: Fn(G, Result<R, Error>) + 'c,
    {
        let operation = move |value: &mut T, operand| operation(value, operand).into_bits();
        let then = move |tag, answer: Result<u64, Error>| then(tag, answer.map(R::from_bits));
        self.prepare_bits(operation, then)
    }

    /// The same, with answers as they travel.
    fn prepare_bits<T, A, F, G, C>(&self, operation: F, then: C) -> Prepared<'_, 'c, T, A, F, G, C>
    where
        T: Send + 'static,
        A: Copy + Send + 'static,
        F: Fn(&mut T, A) -> u64 + Copy + Send + 'static,
        G: 'c,
        C: Fn(G, Result<u64, Error>) + 'c,
    {
        let core = self.core();
        // SAFETY: the core is not borrowed, and lives as long as the client; its lanes and its domain
        // are never replaced.
        let (lanes, domain, identity) = unsafe {
            (*core).prepared += 1;
            ((*core).lanes(), core::inner(core), (*core).prepared)
        };
        Prepared {
            client: self,
            lanes,
            domain,
            gate: &domain.gate,
            then: Rc::new(then),
            identity,
            captured: Captured::of(operation),
            requests: PhantomData,
        }
    }
}

impl<T, A, F, G, C> Prepared<'_, '_, T, A, F, G, C>
where
    T: Send + 'static,
    A: Copy + Send + 'static,
    F: Fn(&mut T, A) -> u64 + Copy + Send + 'static,
    C: Fn(G, Result<u64, Error>),
{
    /// Calls the operation on the value with `operand`; the callback gets `tag` with the answer.
    ///
    /// # Errors
    /// As [`Client::apply_async`]: then the operation is not called, and neither is the callback, which gets [`Error::Panicked`] if the operation panics.
    ///
    /// # Panics
    /// If a callback panics that is run meanwhile.
    #[inline(always)]
    pub fn call<'t>(
        &self,
        target: impl Into<Target<'t, T>>,
        operand: A,
        tag: G,
    ) -> Result<(), Error> {
        let target = target.into();
        if !Arc::ptr_eq(target.inner, self.domain) {
            return Err(Error::Foreign);
        }
        self.gate.check()?;
        // SAFETY: a value of the client's domain.
        unsafe { self.put(target.shard as usize, target.offset, operand, tag) }
    }

    /// Puts a request into the line being filled, or a new one.
    ///
    /// # Safety
    /// `offset` names a live `T` in `shard` of the client's domain.
    #[inline(always)]
    pub(crate) unsafe fn put(
        &self,
        shard: usize,
        offset: u32,
        operand: A,
        tag: G,
    ) -> Result<(), Error> {
        let lane = self.lanes.wrapping_add(shard);
        // SAFETY: a value of the domain is in one of its shards, each of which has a lane. Nothing
        // borrows the lanes while user code runs, and this thread alone has them. A line that has our
        // callback is one of this kind, so there is room for another request until it is full.
        unsafe {
            if !(*lane).takes_common(self.common()) {
                self.open(shard)?;
            }
            let put = |words: *mut u32, tags: *mut u8| {
                Job::<T, A, F, G, C>::write((words, tags), offset, operand, tag);
            };
            let (words, tag_bytes) = (Job::<T, A, F, G, C>::WORDS, Job::<T, A, F, G, C>::TAG_BYTES);
            if (*lane).put(1, words, tag_bytes, Job::<T, A, F, G, C>::CAPACITY, put) {
                self.send(lane, shard);
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn common(&self) -> *const () {
        Rc::as_ptr(&self.then).cast()
    }

    /// What the lines of these requests have in common.
    #[inline(always)]
    fn sort(&self) -> Sort {
        Sort {
            kind: Job::<T, A, F, G, C>::KIND,
            operand: 0,
            identity: self.identity,
            captured: self.captured,
            common: self.common(),
        }
    }

    /// Begins a line.
    #[inline(never)]
    pub(crate) fn open(&self, shard: usize) -> Result<(), Error> {
        let core = self.client.core();
        // SAFETY: the shard has a lane; this thread alone has the core, and nobody borrows it now. The line
        // gives the share in the callback back.
        unsafe {
            if (*core).strict {
                exchange::keep_order(core, shard)?;
            }
            std::mem::forget(self.then.clone());
            exchange::open(core, shard, &self.sort());
        }
        Ok(())
    }

    /// Sends a full line, and begins the next where that is done at once.
    ///
    /// # Safety
    /// `lane` is that to `shard`, with a full line of ours.
    #[inline(never)]
    pub(crate) unsafe fn send(&self, lane: *mut Lane, shard: usize) {
        let core = self.client.core();
        // SAFETY: the contract; this thread alone has the core, and nobody borrows it now.
        unsafe {
            turn(core, lane, shard, &self.sort());
        }
    }
}

pub(crate) type Job<T, A, F, G, C> = job::Prepared<T, A, F, G, C>;

impl<T, A, F, G, C> std::fmt::Debug for Prepared<'_, '_, T, A, F, G, C> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Prepared").finish_non_exhaustive()
    }
}
