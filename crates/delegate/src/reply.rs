//! Answers to calls without a client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::inside::is_serving;
use crate::oneshot::Receiver;
use crate::shard::Shard;
use crate::sitting;
use crate::sync::{Ordering, fence};
use crate::wait::Ladder;

/// The answer to [`Handle::apply`](crate::Handle::apply), or what [`Owned::into_inner`](crate::Owned::into_inner) takes out: to be
/// awaited, or waited for.
#[must_use = "the call is made in any case; its answer and its errors are here"]
pub struct Reply<R>(Result<Sent<R>, Option<Error>>);

impl<R> Reply<R> {
    pub(crate) fn of(receiver: Receiver<R>, shard: Arc<Shard>) -> Self {
        Self(Ok(Sent { receiver, shard }))
    }

    pub(crate) fn refused(error: Error) -> Self {
        Self(Err(Some(error)))
    }

    /// Waits for the answer. The thread serves meanwhile what it may serve; a thread that has a client
    /// with requests on their way waits with [`Client::wait`](crate::Client::wait).
    ///
    /// # Errors
    /// Those of the call; [`Error::Nested`] inside a delegated function.
    pub fn wait(self) -> Result<R, Error> {
        let sent = self.0.map_err(|error| error.unwrap_or(Error::Shutdown))?;
        if is_serving() {
            return Err(Error::Nested);
        }
        wait_for(&sent.receiver, &sent.shard, None).unwrap_or(Err(Error::TimedOut))
    }

    /// Waits for the answer for not longer than `time`: `None` then, and the answer may be asked for again.
    /// What this thread serves for others meanwhile takes as long as it takes. Where the reply is
    /// dropped, the server drops the answer.
    ///
    /// # Errors
    /// Those of the call, once; [`Error::Nested`] inside a delegated function.
    pub fn wait_timeout(&mut self, time: Duration) -> Option<Result<R, Error>> {
        match &mut self.0 {
            Err(error) => error.take().map(Err),
            Ok(_) if is_serving() => Some(Err(Error::Nested)),
            Ok(sent) => {
                let end = Instant::now().checked_add(time);
                wait_for(&sent.receiver, &sent.shard, end)
            }
        }
    }
}

/// Waits for what a shard sends, until `end` if there is one; serves meanwhile what this thread may serve.
pub(crate) fn wait_for<R>(
    receiver: &Receiver<R>,
    shard: &Shard,
    end: Option<Instant>,
) -> Option<Result<R, Error>> {
    /// Nobody who waits here is woken by a change of seats, so it looks again by itself.
    const NAP: Duration = Duration::from_micros(500);
    let mut ladder = Ladder::new();
    loop {
        if let Some(answer) = receiver.wait(Duration::ZERO) {
            return Some(answer);
        }
        if sitting::serve() || shard.serve_if_free() {
            ladder.reset();
            continue;
        }
        let left = end.map_or(NAP, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return None;
        }
        if ladder.step()
            && let Some(answer) = receiver.wait(left.min(NAP))
        {
            return Some(answer);
        }
    }
}

/// A call that was made.
struct Sent<R> {
    receiver: Receiver<R>,
    shard: Arc<Shard>,
}

impl<R> Sent<R> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<R, Error>> {
        let answer = Pin::new(&mut self.receiver).poll(context);
        if answer.is_ready() || is_serving() {
            return answer;
        }
        // Against the fence of who leaves the seat: it sees what was sent, or we that it is free.
        fence(Ordering::SeqCst);
        if !self.shard.serve_if_free() {
            return answer;
        }
        Pin::new(&mut self.receiver).poll(context)
    }
}

impl<R> Future for Reply<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(sent) => sent.poll(context),
            Err(error) => match error.take() {
                Some(error) => Poll::Ready(Err(error)),
                None => Poll::Pending,
            },
        }
    }
}

impl<R> std::fmt::Debug for Reply<R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reply").finish_non_exhaustive()
    }
}
