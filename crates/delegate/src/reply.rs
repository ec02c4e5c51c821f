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
/// awaited, or waited for. It comes once: whoever asks again gets [`Error::Taken`]. In a child of `fork` the answer to
/// a call of the parent is [`Error::Forked`].
#[must_use = "the call is made in any case; its answer and its errors are here"]
pub struct Reply<R>(Result<Sent<R>, Error>);

impl<R> Reply<R> {
    pub(crate) fn of(receiver: Receiver<R>, shard: Arc<Shard>) -> Self {
        Self(Ok(Sent { receiver, shard }))
    }

    pub(crate) fn refused(error: Error) -> Self {
        Self(Err(error))
    }

    /// Waits for the answer. The thread serves meanwhile what it may serve; a thread that has a client
    /// with requests on their way waits with [`Client::wait`](crate::Client::wait).
    ///
    /// # Errors
    /// Those of the call; [`Error::Taken`]; [`Error::Forked`]; [`Error::Nested`] inside a delegated function.
    pub fn wait(self) -> Result<R, Error> {
        let sent = self.0?;
        sent.may_wait()?;
        wait_for(&sent.receiver, &sent.shard, None).unwrap_or(Err(Error::TimedOut))
    }

    /// Waits for the answer for not longer than `time`: `None` then, and the answer may be asked for again.
    /// The thread serves others meanwhile, once at least; what it is asked at one time takes as long as it takes.
    /// Where the reply is dropped, the server drops the answer.
    ///
    /// # Errors
    /// Those of the call, and [`Error::Taken`] after that; [`Error::Forked`]; [`Error::Nested`] inside a delegated
    /// function.
    pub fn wait_timeout(&mut self, time: Duration) -> Option<Result<R, Error>> {
        let answer = match &self.0 {
            Err(_) => None,
            Ok(sent) => {
                if let Err(error) = sent.may_wait() {
                    return Some(Err(error));
                }
                let end = Instant::now().checked_add(time);
                Some(wait_for(&sent.receiver, &sent.shard, end)?)
            }
        };
        Some(self.took(answer))
    }

    /// The answer was taken, or there is none but an error.
    fn took(&mut self, answer: Option<Result<R, Error>>) -> Result<R, Error> {
        let before = std::mem::replace(&mut self.0, Err(Error::Taken));
        answer.unwrap_or_else(|| before.and(Err(Error::Taken)))
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
        let worked = sitting::serve() || shard.serve_if_free();
        // Also where others ask without end.
        let left = end.map_or(NAP, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return receiver.wait(Duration::ZERO);
        }
        if worked {
            ladder.reset();
        } else if ladder.step()
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
    /// Refuses to wait where waiting cannot end. (In a child of fork the answer is not even looked for: a thread of
    /// the parent may have held its lock.)
    fn may_wait(&self) -> Result<(), Error> {
        self.shard.gate.check_forked()?;
        if is_serving() {
            return Err(Error::Nested);
        }
        Ok(())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<R, Error>> {
        self.shard.gate.check_forked()?;
        let answer = Pin::new(&mut self.receiver).poll(context);
        if answer.is_ready() || is_serving() {
            return answer;
        }
        // Against the fence of who leaves the seat: it sees what was sent, or we that it is free.
        fence(Ordering::SeqCst);
        let served = self.shard.serve_if_held() || self.shard.serve_if_free();
        if !served {
            return answer;
        }
        let answer = Pin::new(&mut self.receiver).poll(context);
        if answer.is_pending() {
            // A value that is taken out waits for requests, of which more may be there.
            context.waker().wake_by_ref();
        }
        answer
    }
}

impl<R> Future for Reply<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.0 {
            Ok(sent) => Some(std::task::ready!(sent.poll(context))),
            Err(_) => None,
        };
        Poll::Ready(self.took(answer))
    }
}

impl<R> std::fmt::Debug for Reply<R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reply").finish_non_exhaustive()
    }
}
