//! Several values in one call: many requests that are waited for, values that are used together, and a
//! function for every shard.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;

use crate::client::Client;
use crate::error::Error;
use crate::handle::Handle;
use crate::job;
use crate::owned::{Owned, Slot, Target, Values};
use crate::panics::NoUnwind;
use crate::reply::Reply;
use crate::wait::LONGEST_NAP;

/// Where an answer of a batch goes.
type Place<R> = Cell<Option<Result<R, Error>>>;

impl<'c> Client<'c> {
    /// Runs each function on its target and waits for all answers, which come in the order of the
    /// requests. Functions may borrow from the caller, and each has its own arguments. Those for
    /// different shards run at the same time; those of one type share lines.
    ///
    /// ```
    /// # use linewise_delegate::{Domain, Error};
    /// # fn main() -> Result<(), Error> {
    /// let domain = Domain::dedicated(2).build()?;
    /// let names = domain.own_sharded(10, |_| String::new())?;
    /// let client = domain.client()?;
    /// let words = [(3, "line"), (4, "some"), (3, "wise")];
    /// let lengths = client.apply_all(words.iter().map(|(index, word)| {
    ///     let push = move |name: &mut String| {
    ///         name.push_str(word);
    ///         name.len()
    ///     };
    ///     (names.at(*index), push)
    /// }))?;
    /// assert_eq!(lengths, [4, 4, 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::apply`]; of several the first in the order of the requests. All requests are made,
    /// unless one is refused: then those before it.
    ///
    /// # Panics
    /// If the iterator panics: then nothing is called. If a callback of an earlier request panics that is
    /// answered meanwhile: then after all requests that were made are answered.
    pub fn apply_all<'t, T, R, F>(
        &self,
        requests: impl IntoIterator<Item = (Target<'t, T>, F)>,
    ) -> Result<Vec<R>, Error>
    where
        T: Send + 'static,
        R: Send,
        F: FnOnce(&mut T) -> R + Send,
    {
        self.may_wait()?;
        // Drawn before the first is made: what the caller wrote runs while nothing is lent.
        let requests: Vec<_> = requests.into_iter().collect();
        let answers: Vec<Place<R>> = requests.iter().map(|_| Cell::new(None)).collect();
        let asked = Cell::new(0);
        let left = Cell::new(0);
        let ask = || {
            for ((target, function), place) in requests.into_iter().zip(&answers) {
                self.check(target)?;
                if self.is_inline(target.shard) {
                    place.set(Some(self.run_inline(target.offset, function)));
                } else {
                    let left = &left;
                    self.put_waiting(target, function, move |answer| {
                        place.set(Some(answer));
                        left.set(left.get() - 1);
                    });
                    // The answer comes in a later call of the client.
                    left.set(left.get() + 1);
                }
                asked.set(asked.get() + 1);
            }
            Ok(())
        };
        // What a callback of others throws meanwhile waits until nothing is lent any more.
        let made = catch_unwind(AssertUnwindSafe(ask));
        let lends = NoUnwind;
        if left.get() > 0 {
            self.await_until(None, LONGEST_NAP, || left.get() == 0);
        }
        lends.passed();
        let made = made.unwrap_or_else(|payload| resume_unwind(payload));
        self.throw_on();
        made?;
        let answers = answers.into_iter();
        answers
            .map(|place| place.into_inner().expect("waited for"))
            .collect()
    }

    /// Runs `function` on every target and waits for all answers, which come in the order of the
    /// targets. [`Client::apply_all`] with one function.
    ///
    /// # Errors
    /// As [`Client::apply_all`].
    ///
    /// # Panics
    /// As [`Client::apply_all`].
    pub fn apply_batch<'t, T, R, F>(
        &self,
        targets: impl IntoIterator<Item = Target<'t, T>>,
        function: F,
    ) -> Result<Vec<R>, Error>
    where
        T: Send + 'static,
        R: Send,
        F: Fn(&mut T) -> R + Clone + Send,
    {
        let targets = targets.into_iter();
        self.apply_all(targets.map(|target| {
            let function = function.clone();
            (target, move |value: &mut T| function(value))
        }))
    }

    /// Runs `function` once in every shard, on all of `values` that live there, and waits for the
    /// answers, which come in the order of the shards. The shards run at the same time. It may borrow from
    /// the caller.
    ///
    /// ```
    /// # use linewise_delegate::{Domain, Error};
    /// # fn main() -> Result<(), Error> {
    /// let domain = Domain::dedicated(2).build()?;
    /// let counters = domain.own_sharded(100, |index| index as u64)?;
    /// let client = domain.client()?;
    /// let sums: Vec<u64> = client.broadcast(&counters, |mut part| part.iter_mut().map(|(_, counter)| *counter).sum())?;
    /// assert_eq!(sums, [2450, 2500]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Of an [`OwnedSlice`](crate::OwnedSlice) that is one shard.
    ///
    /// # Errors
    /// As [`Client::apply_all`].
    ///
    /// # Panics
    /// As [`Client::apply_all`].
    pub fn broadcast<T, R, F>(&self, values: &impl Values<T>, function: F) -> Result<Vec<R>, Error>
    where
        T: Send + 'static,
        R: Send,
        F: Fn(Part<'_, T>) -> R + Sync,
    {
        let function = &function;
        let parts = values.parts();
        let shards = parts.len();
        let requests = parts
            .into_iter()
            .enumerate()
            .map(|(first, (target, count))| {
                let base = base(target);
                let run = move |_: &mut ()| {
                    // SAFETY: so many values lie there side by side since the handle was made, and stay until this
                    // is answered, as the caller has the handle; the server that runs this has them alone.
                    let values = unsafe {
                        let first = job::target::<Slot<T>>(base.into_inner(), target.offset);
                        std::slice::from_raw_parts_mut(first, count)
                    };
                    function(Part {
                        values,
                        first,
                        shards,
                    })
                };
                (target, run)
            });
        self.apply_all(requests)
    }
}

/// The values of one shard, in a function of [`Client::broadcast`].
#[derive(Debug)]
pub struct Part<'v, T> {
    values: &'v mut [Slot<T>],
    first: usize,
    shards: usize,
}

impl<T> Part<'_, T> {
    /// How many values live here.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Each value with its index among those of all shards.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let (first, shards) = (self.first, self.shards);
        let number = move |place: usize| first + place * shards;
        let values = self.values.iter_mut().enumerate();
        values.map(move |(place, slot)| (number(place), &mut slot.0))
    }
}

/// Where a target's shard has its memory. In a form that may be sent: who runs the request is the
/// server of that shard.
fn base<T>(target: Target<'_, T>) -> AtomicPtr<u8> {
    AtomicPtr::new(target.inner.shards[target.shard()].base())
}

pub(crate) mod sealed {
    use super::{Lender, Owned, Target};

    /// One value of those that are used together.
    pub trait One<'t> {
        /// Its type.
        type Value: Send + 'static;
        #[doc(hidden)]
        fn one(&self) -> Target<'t, Self::Value>;
    }

    impl<'t, T: Send + 'static> One<'t> for Target<'t, T> {
        type Value = T;
        fn one(&self) -> Self {
            *self
        }
    }

    impl<'t, T: Send + 'static> One<'t> for &'t Owned<T> {
        type Value = T;
        fn one(&self) -> Target<'t, T> {
            self.target()
        }
    }

    /// Values that are used together.
    pub trait Some<'t> {
        #[doc(hidden)]
        type Offsets: AsRef<[u32]> + Send + 'static;
        /// What a function gets of them.
        type Lent<'v>;
        /// Each one's place.
        #[doc(hidden)]
        fn places(&self, each: impl FnMut(Target<'t, ()>));
        #[doc(hidden)]
        fn offsets(&self) -> Self::Offsets;
        /// What is lent, one after the other in the order of the offsets.
        #[doc(hidden)]
        fn lend<'v>(lender: Lender<'v>) -> Self::Lent<'v>;
    }
}

use sealed::One;

/// Values of one shard that a function uses together: a pair, a triple or four of targets or
/// `&`[`Owned`], an array of them, or a `Vec`. See [`Client::apply_together`].
pub trait Together<'t>: sealed::Some<'t> {}

impl<'t, S: sealed::Some<'t>> Together<'t> for S {}

macro_rules! tuple {
    ($count:literal: $($one:ident $place:tt),*) => {
        impl<'t, $($one: One<'t>),*> sealed::Some<'t> for ($($one,)*) {
            type Offsets = [u32; $count];
            type Lent<'v> = ($(&'v mut $one::Value,)*);

            fn places(&self, mut each: impl FnMut(Target<'t, ()>)) {
                $(each(self.$place.one().place());)*
            }

            fn offsets(&self) -> Self::Offsets {
                [$(self.$place.one().offset),*]
            }

            fn lend<'v>(mut lender: Lender<'v>) -> Self::Lent<'v> {
                ($(lender.next::<$one::Value>(),)*)
            }
        }
    };
}

tuple!(2: A 0, B 1);
tuple!(3: A 0, B 1, C 2);
tuple!(4: A 0, B 1, C 2, D 3);

impl<'t, A: One<'t>, const N: usize> sealed::Some<'t> for [A; N] {
    type Offsets = [u32; N];
    type Lent<'v> = [&'v mut A::Value; N];

    fn places(&self, each: impl FnMut(Target<'t, ()>)) {
        self.iter().map(|one| one.one().place()).for_each(each);
    }

    fn offsets(&self) -> Self::Offsets {
        std::array::from_fn(|index| self[index].one().offset)
    }

    fn lend<'v>(mut lender: Lender<'v>) -> Self::Lent<'v> {
        std::array::from_fn(|_| lender.next())
    }
}

impl<'t, A: One<'t>> sealed::Some<'t> for Vec<A> {
    type Offsets = Vec<u32>;
    type Lent<'v> = Vec<&'v mut A::Value>;

    fn places(&self, each: impl FnMut(Target<'t, ()>)) {
        self.iter().map(|one| one.one().place()).for_each(each);
    }

    fn offsets(&self) -> Self::Offsets {
        self.iter().map(|one| one.one().offset).collect()
    }

    fn lend<'v>(mut lender: Lender<'v>) -> Self::Lent<'v> {
        (0..lender.offsets.len()).map(|_| lender.next()).collect()
    }
}

/// Values that may be lent together: of one shard, each named once.
struct Found<O> {
    base: AtomicPtr<u8>,
    offsets: O,
}

impl<O: AsRef<[u32]>> Found<O> {
    /// Looks whether they may be.
    fn of<'t, V: Together<'t, Offsets = O>>(values: &V) -> Result<(Target<'t, ()>, Self), Error> {
        let mut first: Option<Target<'t, ()>> = None;
        let mut refused = Ok(());
        values.places(|place| {
            let first = *first.get_or_insert(place);
            if !Arc::ptr_eq(first.inner, place.inner) {
                refused = Err(Error::Foreign);
            } else if first.shard != place.shard && refused.is_ok() {
                refused = Err(Error::Apart);
            }
        });
        refused?;
        let first = first.ok_or_else(|| Error::Setting("no values to use together".to_owned()))?;
        let offsets = values.offsets();
        if !are_different(offsets.as_ref()) {
            return Err(Error::Twice);
        }
        let base = base(first);
        Ok((first, Self { base, offsets }))
    }

    /// Lends them, in a request to their shard: nobody else calls this.
    fn lend<'t, V: Together<'t, Offsets = O>, R>(
        self,
        function: impl for<'v> FnOnce(V::Lent<'v>) -> R,
    ) -> R {
        let lender = Lender {
            base: self.base.into_inner(),
            offsets: self.offsets.as_ref().iter(),
        };
        function(V::lend(lender))
    }
}

/// Lends values that [`Found`] found, each once, in a request that their server runs.
pub struct Lender<'v> {
    base: *mut u8,
    offsets: std::slice::Iter<'v, u32>,
}

impl<'v> Lender<'v> {
    /// The next of them, which is a `T`.
    fn next<T>(&mut self) -> &'v mut T {
        let offset = *self.offsets.next().expect("as many as there are offsets");
        // SAFETY: `Found` was asked about values of these types in this order. Their offsets differ, so they
        // are different values of one shard, and each is lent once. They stay until the request is answered,
        // as their handles were there when it was made; its server has them alone.
        unsafe { job::target(self.base, offset) }
    }
}

fn are_different(offsets: &[u32]) -> bool {
    if offsets.len() <= 8 {
        let before = |index: usize| &offsets[..index];
        return (0..offsets.len()).all(|index| !before(index).contains(&offsets[index]));
    }
    let mut sorted = offsets.to_vec();
    sorted.sort_unstable();
    sorted.is_sorted_by(|one, next| one < next)
}

impl<'c> Client<'c> {
    /// Runs `function` on several values of one shard at once, and waits for its answer. It may borrow
    /// from the caller.
    ///
    /// ```
    /// # use linewise_delegate::{Domain, Error};
    /// # fn main() -> Result<(), Error> {
    /// let domain = Domain::dedicated(1).build()?;
    /// let (account, log) = (domain.own(0, || 5)?, domain.own(0, Vec::new)?);
    /// let client = domain.client()?;
    /// client.apply_together((&account, &log), |(account, log)| {
    ///     log.push(*account);
    ///     *account += 1;
    /// })?;
    /// // Of a slice any number; none is lent twice.
    /// let all = domain.own_slice(0, 10, |index| index)?;
    /// client.apply_together([all.at(2), all.at(7)], |[two, seven]| std::mem::swap(two, seven))?;
    /// let twice = client.apply_together([all.at(2), all.at(2)], |_| ());
    /// assert_eq!(twice, Err(Error::Twice));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Apart`] if the values live in different shards, [`Error::Twice`] if one is named twice
    /// (values without a size count as the same within a slice), [`Error::Setting`] if there is none: then
    /// nothing is called. Else as [`Client::apply`].
    ///
    /// # Panics
    /// As [`Client::apply`].
    pub fn apply_together<'t, V, R, F>(&self, values: V, function: F) -> Result<R, Error>
    where
        V: Together<'t>,
        R: Send,
        F: for<'v> FnOnce(V::Lent<'v>) -> R + Send,
    {
        let (target, found) = Found::of(&values)?;
        self.apply(target, move |()| found.lend::<V, R>(function))
    }

    /// Runs `function` on several values of one shard at once; `then` gets its answer, as with
    /// [`Client::apply_async`].
    ///
    /// # Errors
    /// [`Error::Apart`], [`Error::Twice`] and [`Error::Setting`] as [`Client::apply_together`]; else as
    /// [`Client::apply_async`].
    ///
    /// # Panics
    /// As [`Client::apply_async`].
    pub fn apply_together_async<'t, V, R, F, C>(
        &self,
        values: V,
        function: F,
        then: C,
    ) -> Result<(), Error>
    where
        V: Together<'t>,
        R: Send + 'static,
        F: for<'v> FnOnce(V::Lent<'v>) -> R + Send + 'static,
        C: FnOnce(Result<R, Error>) + 'c,
    {
        let (target, found) = Found::of(&values)?;
        self.apply_async(target, move |()| found.lend::<V, R>(function), then)
    }
}

impl Handle {
    /// Runs `function` on several values of one shard at once, as [`Handle::apply`] does on one.
    ///
    /// The future's errors: [`Error::Apart`], [`Error::Twice`] and [`Error::Setting`] as
    /// [`Client::apply_together`]; else those of [`Handle::apply`].
    pub fn apply_together<'t, V, R, F>(&self, values: V, function: F) -> Reply<R>
    where
        V: Together<'t>,
        R: Send + 'static,
        F: for<'v> FnOnce(V::Lent<'v>) -> R + Send + 'static,
    {
        match Found::of(&values) {
            Ok((target, found)) => self.apply(target, move |()| found.lend::<V, R>(function)),
            Err(error) => Reply::refused(error),
        }
    }
}
