//! Calls from tasks and threads that have no client.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::Error;
use crate::inner::Inner;
use crate::inside::is_serving;
use crate::oneshot::Receiver;
use crate::owned::Target;
use crate::panics::Panic;
use crate::reply::Reply;
use crate::shard::State;

/// Calls into a domain from anywhere: futures for any executor, and waiting calls for threads that
/// call rarely. It can be cloned, shared and sent.
///
/// A call goes through a lock and an allocation, where a [`Client`](crate::Client)'s goes through
/// request lines: 700 to 900 ns of a thread against a few. The server wakes the task itself, so no
/// thread has to poll. In a flat domain a shard is served when its client calls, polls or waits.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

impl Handle {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    fn send<T: Send + 'static, R: Send + 'static>(
        &self,
        target: Target<'_, T>,
        function: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<Receiver<R>, Error> {
        if !Arc::ptr_eq(&self.inner, target.inner) {
            return Err(Error::Foreign);
        }
        let offset = target.offset;
        self.inner.errand(target.shard(), move |state: &mut State| {
            // SAFETY: the target was borrowed when this was sent, and the end of its value comes
            // through the same queue; who runs errands holds the seat.
            let value = unsafe { &mut *state.arena.at::<T>(offset) };
            catch_unwind(AssertUnwindSafe(|| function(value)))
                .map_err(|payload| Error::Panicked(Panic::of(payload)))
        })
    }

    /// Runs `function` on the value. The call is made at once, not when the future is first polled;
    /// dropping the future does not take it back. Where nobody serves the shard, polling the future does.
    ///
    /// The future's errors: [`Error::Panicked`], [`Error::Shutdown`], [`Error::Foreign`].
    pub fn apply<'t, T: Send + 'static, R: Send + 'static>(
        &self,
        target: impl Into<Target<'t, T>>,
        function: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Reply<R> {
        let target = target.into();
        let sent = self.send(target, function);
        match sent {
            Ok(receiver) => Reply::of(receiver, self.inner.shards[target.shard()].clone()),
            Err(error) => Reply::refused(error),
        }
    }

    /// Runs `function` on the value and waits for its answer. In a fibre of `linewise-fibres` other fibres of
    /// the worker run meanwhile.
    ///
    /// # Errors
    /// [`Error::Panicked`], [`Error::Shutdown`], [`Error::Foreign`]; [`Error::Nested`] inside a
    /// delegated function.
    pub fn apply_waiting<'t, T: Send + 'static, R: Send + 'static>(
        &self,
        target: impl Into<Target<'t, T>>,
        function: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R, Error> {
        if is_serving() {
            return Err(Error::Nested);
        }
        let target = target.into();
        let receiver = self.send(target, function)?;
        self.inner.wait(target.shard(), &receiver)
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Handle").finish_non_exhaustive()
    }
}
