//! One answer from a shard to a thread, fibre or task that has no client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use linewise_fibres::sync::{Condvar, Mutex, MutexGuard};

use crate::error::Error;

struct Pending<R> {
    answer: Option<Result<R, Error>>,
    waker: Option<Waker>,
}

struct Shared<R> {
    place: Mutex<Pending<R>>,
    there: Condvar,
}

impl<R> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, Pending<R>> {
        self.place.lock()
    }
}

/// The side that answers. Dropped without an answer, it answers [`Error::Shutdown`].
pub(crate) struct Sender<R>(Option<Arc<Shared<R>>>);

/// The side that waits.
pub(crate) struct Receiver<R>(Arc<Shared<R>>);

pub(crate) fn pair<R>() -> (Sender<R>, Receiver<R>) {
    let shared = Arc::new(Shared {
        place: Mutex::new(Pending {
            answer: None,
            waker: None,
        }),
        there: Condvar::new(),
    });
    (Sender(Some(shared.clone())), Receiver(shared))
}

impl<R> Sender<R> {
    pub(crate) fn send(mut self, answer: Result<R, Error>) {
        self.give(answer);
    }

    fn give(&mut self, answer: Result<R, Error>) {
        let Some(shared) = self.0.take() else {
            return;
        };
        let waker = {
            let mut place = shared.lock();
            place.answer = Some(answer);
            place.waker.take()
        };
        shared.there.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<R> Drop for Sender<R> {
    fn drop(&mut self) {
        self.give(Err(Error::Shutdown));
    }
}

impl<R> Receiver<R> {
    /// The answer, waited for at most `time`.
    pub(crate) fn wait(&self, time: Duration) -> Option<Result<R, Error>> {
        let mut place = self.0.lock();
        if place.answer.is_none() && !time.is_zero() {
            place = self.0.there.wait_timeout(place, time).0;
        }
        place.answer.take()
    }
}

impl<R> Future for Receiver<R> {
    type Output = Result<R, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut new = None;
        loop {
            let mut place = self.0.lock();
            if let Some(answer) = place.answer.take() {
                return Poll::Ready(answer);
            }
            let is_same = |old: &Waker| old.will_wake(context.waker());
            if place.waker.as_ref().is_some_and(is_same) {
                return Poll::Pending;
            }
            // Wakers are cloned and dropped by foreign code, which may wait for the side that answers: not under
            // the lock.
            if let Some(new) = new.take() {
                let old = place.waker.replace(new);
                drop(place);
                drop(old);
                return Poll::Pending;
            }
            drop(place);
            new = Some(context.waker().clone());
        }
    }
}
