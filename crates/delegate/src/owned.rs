//! Values that live in a shard, and handles to them.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::arena::{Arena, UNIT, layout};
use crate::inner::Inner;
use crate::inside::is_serving;
use crate::oneshot;
use crate::reply::Reply;
use crate::shard::{Ended, Shard};

/// A run of values in one shard; dropping it drops them, on the shard's server.
struct Block<T> {
    inner: Arc<Inner>,
    shard: u32,
    offset: u32,
    count: usize,
    /// The values go to somebody, and do not end here.
    is_taken: bool,
    /// Invariant: what a function may store through a handle, another may load through the same one.
    values: PhantomData<Cell<T>>,
}

// SAFETY: the handle itself touches no value; functions that do run on the shard's server, one at a
// time, so sharing the handle sends values (or their borrows) but never shares them.
unsafe impl<T: Send> Sync for Block<T> {}
// SAFETY: a handle that moves touches no value, and the values, which end on the server, are `Send`.
unsafe impl<T: Send> Send for Block<T> {}

impl<T> Block<T> {
    #[inline(always)]
    fn at(&self, index: usize) -> Target<'_, T> {
        assert!(index < self.count, "index {index} of {}", self.count);
        Target {
            inner: &self.inner,
            shard: self.shard,
            offset: nth::<T>(self.offset, index),
            value: PhantomData,
        }
    }
}

/// The offset of the value at `index` of those that begin at `first`.
#[inline(always)]
pub(crate) fn nth<T>(first: u32, index: usize) -> u32 {
    first + (index * (size_of::<Slot<T>>() / UNIT)) as u32
}

/// A value rounded up to the unit of offsets, which are those of the value itself.
#[repr(C, align(16))]
#[derive(Debug)]
pub(crate) struct Slot<T>(pub(crate) T);
const _: () = assert!(align_of::<Slot<u8>>() == UNIT);

impl<T: Send + 'static> Block<T> {
    /// Lets the server send the values, as `made` makes them up, instead of ending them.
    fn into_inner<R: Send + 'static>(
        mut self,
        made: impl FnOnce(Vec<Slot<T>>) -> R + Send + 'static,
    ) -> Reply<R> {
        // A domain that is shut down gives values back all the same.
        if let Err(error) = self.inner.gate.check_forked() {
            return Reply::refused(error);
        }
        self.is_taken = true;
        let (sender, receiver) = oneshot::pair();
        let shard = self.inner.shards[self.shard as usize].clone();
        let (offset, count) = (self.offset, self.count);
        let take = move |arena: &mut Arena| {
            // SAFETY: the handle is gone, and the server calls this when nothing is on its way any more that
            // could name its values, which it built there.
            let values = unsafe { arena.take(offset, count) };
            sender.send(Ok(made(values)));
        };
        shard.end(Ended {
            take: Some(Box::new(take)),
            ..self.ended(&shard)
        });
        Reply::of(receiver, shard)
    }
}

impl<T> Block<T> {
    /// Its end, after all requests that were made before.
    fn ended(&self, shard: &Shard) -> Ended {
        Ended {
            offset: self.offset,
            // It was built with this.
            layout: layout::<Slot<T>>(self.count).expect("as when it was built"),
            after: shard.opened(),
            take: None,
        }
    }
}

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let shard = &self.inner.shards[self.shard as usize];
        // In a child of fork nobody serves, and another thread may have held the shard's locks.
        if self.inner.gate.check_forked().is_err() {
            return;
        }
        // Requests that name the value may be on their way, in lines that were begun before now.
        shard.end(self.ended(shard));
        // After the end nobody comes for it. (Within a delegated function who leaves the seat last looks again.)
        if !self.inner.gate.is_open() && !is_serving() {
            shard.serve_if_free();
        }
    }
}

/// A value that lives in a shard: only the thread that serves the shard touches it.
///
/// The handle can be shared and sent freely. Dropping it drops the value, on the server, after all
/// requests that were made before.
pub struct Owned<T>(Block<T>);

/// Values side by side in one shard.
pub struct OwnedSlice<T>(Block<T>);

/// Values spread over all shards of a domain: value `i` is in shard `i % shards`.
pub struct Sharded<T> {
    /// One for each shard, in their order.
    blocks: Vec<Block<T>>,
    /// Where each block begins.
    offsets: Box<[u32]>,
    inner: Arc<Inner>,
    count: usize,
    /// Bits of an index that name the shard, where the number of shards is a power of two: a division
    /// takes longer than the rest of a request.
    bits: Option<u32>,
}

/// What a request is for: one value, borrowed from its owner. Copied freely.
pub struct Target<'t, T> {
    pub(crate) inner: &'t Arc<Inner>,
    pub(crate) shard: u32,
    pub(crate) offset: u32,
    value: PhantomData<fn(&mut T)>,
}

impl<T> Clone for Target<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Target<'_, T> {}

impl<'t, T> Target<'t, T> {
    /// The shard that the value lives in.
    pub fn shard(&self) -> usize {
        self.shard as usize
    }

    /// The same place, with nothing there: for a function that finds values by other ways.
    pub(crate) fn place(self) -> Target<'t, ()> {
        Target {
            inner: self.inner,
            shard: self.shard,
            offset: self.offset,
            value: PhantomData,
        }
    }
}

impl<'t, T> From<&'t Owned<T>> for Target<'t, T> {
    #[inline(always)]
    fn from(owned: &'t Owned<T>) -> Self {
        owned.target()
    }
}

impl<T> Owned<T> {
    pub(crate) fn new(inner: Arc<Inner>, shard: usize, offset: u32) -> Self {
        Self(Block::new(inner, shard, offset, 1))
    }

    /// The value as the target of a request.
    #[inline(always)]
    pub fn target(&self) -> Target<'_, T> {
        Target {
            inner: &self.0.inner,
            shard: self.0.shard,
            offset: self.0.offset,
            value: PhantomData,
        }
    }

    /// The shard that the value lives in.
    pub fn shard(&self) -> usize {
        self.0.shard as usize
    }
}

impl<T: Send + 'static> Owned<T> {
    /// Takes the value out of its shard, after all requests that were made before, those included that
    /// clients still hold.
    ///
    /// ```
    /// # use linewise_delegate::{Domain, Error};
    /// # fn main() -> Result<(), Error> {
    /// let domain = Domain::dedicated(1).build()?;
    /// let list = domain.own(0, || vec![1, 2])?;
    /// let client = domain.client()?;
    /// client.post(&list, |list| list.push(3))?;
    /// // In a thread that has a client: its requests are sent meanwhile. Else `Reply::wait`, or `.await`.
    /// assert_eq!(client.wait(list.into_inner())?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The value comes also after a shutdown. Where nobody waits for the reply, it is dropped on the server.
    ///
    /// A client that holds requests may send them whenever it likes, also after a shutdown, and one that was forgotten
    /// (`mem::forget`) never does: then the value does not come, and [`Reply::wait`] does not return
    /// ([`Reply::wait_timeout`] does).
    ///
    /// The reply's errors: [`Error::Forked`](crate::Error::Forked) in a child of `fork`.
    pub fn into_inner(self) -> Reply<T> {
        let only = |values: Vec<Slot<T>>| values.into_iter().next().expect("one value").0;
        self.0.into_inner(only)
    }
}

impl<T: Send + 'static> OwnedSlice<T> {
    /// Takes the values out of their shard, as [`Owned::into_inner`] does with one.
    pub fn into_inner(self) -> Reply<Vec<T>> {
        let all = |values: Vec<Slot<T>>| values.into_iter().map(|slot| slot.0).collect();
        self.0.into_inner(all)
    }
}

impl<T> Sharded<T> {
    /// The values of each shard by themselves: in slice `s` at `place` is what was at `place * shards + s`.
    pub fn into_slices(self) -> Vec<OwnedSlice<T>> {
        self.blocks.into_iter().map(OwnedSlice).collect()
    }
}

impl<T> Block<T> {
    /// Where it begins, and how many values there are.
    fn part(&self) -> (Target<'_, ()>, usize) {
        let place = Target {
            inner: &self.inner,
            shard: self.shard,
            offset: self.offset,
            value: PhantomData,
        };
        (place, self.count)
    }

    fn new(inner: Arc<Inner>, shard: usize, offset: u32, count: usize) -> Self {
        Self {
            inner,
            shard: shard as u32,
            offset,
            count,
            is_taken: false,
            values: PhantomData,
        }
    }
}

impl<T> OwnedSlice<T> {
    pub(crate) fn new(inner: Arc<Inner>, shard: usize, offset: u32, count: usize) -> Self {
        Self(Block::new(inner, shard, offset, count))
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.0.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// The shard that the values live in.
    pub fn shard(&self) -> usize {
        self.0.shard as usize
    }

    /// The value at `index`.
    ///
    /// # Panics
    /// If there is no such value.
    #[inline(always)]
    pub fn at(&self, index: usize) -> Target<'_, T> {
        self.0.at(index)
    }
}

impl<T> Sharded<T> {
    /// Of slices of `inner`'s shards, one for each, among which `count` values are divided.
    pub(crate) fn new(inner: Arc<Inner>, parts: Vec<OwnedSlice<T>>, count: usize) -> Self {
        Self {
            bits: (parts.len().is_power_of_two()).then(|| parts.len().trailing_zeros()),
            offsets: parts.iter().map(|part| part.0.offset).collect(),
            blocks: parts.into_iter().map(|part| part.0).collect(),
            inner,
            count,
        }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value at `index`, in shard `index % shards`.
    ///
    /// # Panics
    /// If there is no such value.
    #[inline(always)]
    pub fn at(&self, index: usize) -> Target<'_, T> {
        assert!(index < self.count, "index {index} of {}", self.count);
        let (shard, offset) = sealed::Places::place(self, index);
        Target {
            inner: &self.inner,
            shard,
            offset,
            value: PhantomData,
        }
    }
}

/// No handle may be taken for one to values of a longer or shorter life.
///
/// ```
/// use linewise_delegate::{Owned, OwnedSlice, Sharded, Target};
/// fn same<'s>(_: &Owned<fn(&'s str)>, _: &OwnedSlice<fn(&'s str)>, _: &Sharded<fn(&'s str)>) {}
/// ```
///
/// ```compile_fail,E0308
/// # use linewise_delegate::Owned;
/// fn longer(one: &Owned<for<'s> fn(&'s str)>) -> &Owned<fn(&'static str)> {
///     one
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use linewise_delegate::OwnedSlice;
/// fn longer(some: &OwnedSlice<for<'s> fn(&'s str)>) -> &OwnedSlice<fn(&'static str)> {
///     some
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use linewise_delegate::Sharded;
/// fn longer(all: &Sharded<for<'s> fn(&'s str)>) -> &Sharded<fn(&'static str)> {
///     all
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use linewise_delegate::Target;
/// fn longer<'t>(one: Target<'t, for<'s> fn(&'s str)>) -> Target<'t, fn(&'static str)> {
///     one
/// }
/// ```
///
/// A tag outlives its request, as [`Client::prepare`](crate::Client::prepare) asks of its type.
///
/// ```compile_fail
/// # use linewise_delegate::Prepared;
/// type Ask<'p, 'c, G, C> = Prepared<'p, 'c, u64, (), fn(&mut u64, ()) -> u64, G, C>;
/// fn shorter<'a, 'p, 'c, 's, C>(ask: &'a Ask<'p, 'c, &'c str, C>) -> &'a Ask<'p, 'c, &'s str, C>
/// where
///     'c: 's,
///     'c: 'a,
///     's: 'a,
/// {
///     ask
/// }
/// ```
#[cfg(doctest)]
struct Invariant;

pub(crate) mod sealed {
    use std::sync::Arc;

    use super::Target;
    use crate::inner::Inner;

    /// Where the values of a batch are.
    pub trait Places<T> {
        /// Whether these are values of the domain.
        #[doc(hidden)]
        fn are_of(&self, domain: &Arc<Inner>) -> bool;
        #[doc(hidden)]
        fn count(&self) -> usize;
        /// In each shard the place of the first, and how many there are.
        #[doc(hidden)]
        fn parts(&self) -> Vec<(Target<'_, ()>, usize)>;
        /// The shard and the offset of the first, if all are in one shard, side by side.
        #[doc(hidden)]
        fn run(&self) -> Option<(u32, u32)>;
        /// The shard and the offset of the value at an index below the count.
        #[doc(hidden)]
        fn place(&self, index: usize) -> (u32, u32);
    }
}

/// Values that the requests of a batch name by index: [`OwnedSlice`] or [`Sharded`]. See
/// [`Prepared::call_batch`](crate::Prepared::call_batch).
pub trait Values<T>: sealed::Places<T> {}

impl<T> Values<T> for OwnedSlice<T> {}

impl<T> sealed::Places<T> for OwnedSlice<T> {
    #[inline(always)]
    fn are_of(&self, domain: &Arc<Inner>) -> bool {
        Arc::ptr_eq(domain, &self.0.inner)
    }

    #[inline(always)]
    fn count(&self) -> usize {
        self.0.count
    }

    fn parts(&self) -> Vec<(Target<'_, ()>, usize)> {
        vec![self.0.part()]
    }

    #[inline(always)]
    fn run(&self) -> Option<(u32, u32)> {
        Some((self.0.shard, self.0.offset))
    }

    #[inline(always)]
    fn place(&self, index: usize) -> (u32, u32) {
        (self.0.shard, nth::<T>(self.0.offset, index))
    }
}

impl<T> Values<T> for Sharded<T> {}

impl<T> sealed::Places<T> for Sharded<T> {
    #[inline(always)]
    fn are_of(&self, domain: &Arc<Inner>) -> bool {
        Arc::ptr_eq(domain, &self.inner)
    }

    #[inline(always)]
    fn count(&self) -> usize {
        self.count
    }

    fn parts(&self) -> Vec<(Target<'_, ()>, usize)> {
        self.blocks.iter().map(Block::part).collect()
    }

    #[inline(always)]
    fn run(&self) -> Option<(u32, u32)> {
        (self.bits == Some(0)).then(|| (0, self.offsets[0]))
    }

    #[inline(always)]
    fn place(&self, index: usize) -> (u32, u32) {
        let (shard, place) = if let Some(bits) = self.bits {
            (index & ((1 << bits) - 1), index >> bits)
        } else {
            let shards = self.blocks.len();
            (index % shards, index / shards)
        };
        (shard as u32, nth::<T>(self.offsets[shard], place))
    }
}

impl<T> std::fmt::Debug for Owned<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "Owned(shard {}, {})",
            self.0.shard, self.0.offset
        )
    }
}

impl<T> std::fmt::Debug for OwnedSlice<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "OwnedSlice(shard {}, {} values)",
            self.0.shard, self.0.count
        )
    }
}

impl<T> std::fmt::Debug for Sharded<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Sharded({} values)", self.count)
    }
}
