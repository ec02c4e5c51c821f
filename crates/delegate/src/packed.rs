//! The packed path: small operations, of which up to sixty-three share a line.

use crate::client::Client;
use crate::error::Error;
use crate::job::{Captured, Forms, Kind, Operand, Typed, identity};
use crate::lane::{Lane, Sort};
use crate::owned::Target;

/// Lines that carry an operand in each request before one for the whole line is tried again.
const VARIED_LINES: u32 = 16;

/// How the operands of a line travel.
enum Form {
    Same,
    Narrow,
    Wide,
}

/// An operation, with the number that tells it apart.
#[derive(Clone, Copy)]
struct Known<F> {
    operation: F,
    identity: u64,
}

impl<'c> Client<'c> {
    /// Calls a small operation on the value and waits for its answer.
    ///
    /// # Errors
    /// As [`Client::apply`].
    ///
    /// # Panics
    /// As [`Client::apply`].
    pub fn call<'t, T, F>(
        &self,
        target: impl Into<Target<'t, T>>,
        operation: F,
        operand: u64,
    ) -> Result<u64, Error>
    where
        T: Send + 'static,
        F: Fn(&mut T, u64) -> u64 + Copy + Send + 'static,
    {
        self.apply(target, move |value| operation(value, operand))
    }

    /// Calls a small operation on the value; `then` gets its answer on this thread, in a later call
    /// of this client. The packed path: up to 63 such requests share a line if they have the
    /// operation, the operand and the callback's type in common, 31 if operands differ and fit 32
    /// bits, 21 otherwise.
    ///
    /// That is for functions and closures that capture nothing. An operation that captures something (at
    /// most 16 bytes) travels in each request, as with [`Client::apply_async`]: some 12 share a line.
    /// [`Client::prepare`] packs those too.
    ///
    /// # Errors
    /// As [`Client::apply_async`].
    ///
    /// # Panics
    /// If a callback panics that is run meanwhile.
    #[inline(always)]
    pub fn call_async<'t, T, F, C>(
        &self,
        target: impl Into<Target<'t, T>>,
        operation: F,
        operand: u64,
        then: C,
    ) -> Result<(), Error>
    where
        T: Send + 'static,
        F: Fn(&mut T, u64) -> u64 + Copy + Send + 'static,
        C: FnOnce(Result<u64, Error>) + 'c,
    {
        match identity::<T, F>(&operation) {
            // SAFETY: operations of one type with the same identity are the same.
            Some(identity) => unsafe {
                self.call_async_identified(target, operation, identity, operand, then)
            },
            None => self.apply_async(target, move |value| operation(value, operand), then),
        }
    }

    /// As [`Client::call_async`], packed also where the operation captures something.
    ///
    /// # Safety
    /// Operations of the type `F` that this client gets with the same `identity` may stand for each
    /// other.
    ///
    /// # Errors
    /// As [`Client::call_async`].
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn call_async_identified<'t, T, F, C>(
        &self,
        target: impl Into<Target<'t, T>>,
        operation: F,
        identity: u64,
        operand: u64,
        then: C,
    ) -> Result<(), Error>
    where
        T: Send + 'static,
        F: Fn(&mut T, u64) -> u64 + Copy + Send + 'static,
        C: FnOnce(Result<u64, Error>) + 'c,
    {
        let target = target.into();
        self.check(target)?;
        if self.is_inline(target.shard) {
            let answer = self.run_inline(target.offset, |value| operation(value, operand));
            self.call_back(then, answer);
            return Ok(());
        }
        let known = Known {
            operation,
            identity,
        };
        let forms = Forms::of::<T, F, C>();
        let takes = |lane: &Lane| lane.takes(&raw const forms.same, operand, identity);
        let same = self.look(|core| core.look_at(target.shard(), takes));
        if same {
            self.push_typed(target, &forms.same, known, operand, (), then);
        } else {
            self.call_varied(target, forms, known, operand, then);
        }
        Ok(())
    }

    /// Calls a small operation on the value, without an answer.
    ///
    /// # Errors
    /// As [`Client::post`].
    ///
    /// # Panics
    /// If a callback panics that is run meanwhile.
    #[inline(always)]
    pub fn call_post<'t, T, F>(
        &self,
        target: impl Into<Target<'t, T>>,
        operation: F,
        operand: u64,
    ) -> Result<(), Error>
    where
        T: Send + 'static,
        F: Fn(&mut T, u64) -> u64 + Copy + Send + 'static,
    {
        self.call_async(target, operation, operand, |_| {})
    }

    /// Makes a request of the form `kind`, whose line shares `shared`.
    #[inline(always)]
    fn push_typed<T, F, C, O>(
        &self,
        target: Target<'_, T>,
        kind: &'static Kind,
        known: Known<F>,
        shared: u64,
        operand: O,
        then: C,
    ) where
        F: Fn(&mut T, u64) -> u64 + Copy,
        C: FnOnce(Result<u64, Error>),
        O: Operand,
    {
        let sort = Sort {
            operand: shared,
            identity: known.identity,
            captured: Captured::of(known.operation),
            ..Sort::of(kind)
        };
        let write = |place: *mut u32| {
            // SAFETY: `push` gives room for this kind.
            unsafe { Typed::<T, F, C, O>::write(place, target.offset, operand) };
        };
        self.push(target.shard, &sort, write, then);
    }

    /// The line being filled does not share the operand: chooses the form of the next.
    #[inline(never)]
    fn call_varied<T, F, C>(
        &self,
        target: Target<'_, T>,
        forms: &'static Forms,
        known: Known<F>,
        operand: u64,
        then: C,
    ) where
        F: Fn(&mut T, u64) -> u64 + Copy,
        C: FnOnce(Result<u64, Error>),
    {
        let Forms { same, narrow, wide } = forms;
        let (fits, identity) = (u32::try_from(operand).is_ok(), known.identity);
        // SAFETY: the lanes are not borrowed elsewhere, and this reference ends before anything is called.
        let form = unsafe {
            let lane = &mut *(*self.core()).lane(target.shard as usize);
            if lane.takes_kind(wide, identity) {
                Form::Wide
            } else if fits && lane.takes_kind(narrow, identity) {
                Form::Narrow
            } else {
                // A line that a change of operand ends half empty is worse than one with operands.
                if lane.takes_kind(same, identity) && (lane.filled() as usize) < narrow.capacity {
                    lane.varied = VARIED_LINES;
                }
                let varied = lane.varied;
                lane.varied = varied.saturating_sub(1);
                match (varied, fits) {
                    (0, _) => Form::Same,
                    (_, true) => Form::Narrow,
                    (_, false) => Form::Wide,
                }
            }
        };
        match form {
            Form::Same => self.push_typed(target, same, known, operand, (), then),
            Form::Narrow => self.push_typed(target, narrow, known, 0, operand as u32, then),
            Form::Wide => self.push_typed(target, wide, known, 0, operand, then),
        }
    }
}
