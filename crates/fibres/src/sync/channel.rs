//! Channels of many senders and many receivers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::wait::{Stop, after, thrown};
use crate::wait_queue::WaitQueue;

/// All receivers are gone; the value comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody receives from this channel any more")]
pub struct SendError<T>(pub T);

/// All senders are gone, and nothing is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody sends to this channel any more, and it is empty")]
pub struct RecvError;

/// Why nothing was sent at once; the value comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError<T> {
    /// There is no room.
    #[error("the channel is full")]
    Full(T),
    /// All receivers are gone.
    #[error("nobody receives from this channel any more")]
    Disconnected(T),
}

/// Why nothing was received at once, or in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryRecvError {
    /// Nothing is in it.
    #[error("the channel is empty")]
    Empty,
    /// All senders are gone, and nothing is left.
    #[error("nobody sends to this channel any more, and it is empty")]
    Disconnected,
}

#[derive(Debug)]
struct State<T> {
    values: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

struct Channel<T> {
    /// Held for moments, never while a fibre waits.
    state: Mutex<State<T>>,
    capacity: usize,
    filled: WaitQueue,
    emptied: WaitQueue,
}

// Not what is under the lock: whoever shows it may wait, or panic.
impl<T> std::fmt::Debug for Channel<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Channel").finish_non_exhaustive()
    }
}

impl<T> Channel<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("nothing panics under it")
    }
}

/// The side that sends. Cloned, both send.
#[derive(Debug)]
pub struct Sender<T>(Arc<Channel<T>>);

/// The side that receives. Cloned, each value goes to one of both.
#[derive(Debug)]
pub struct Receiver<T>(Arc<Channel<T>>);

/// A channel for `capacity` values (at least 1); who sends more waits.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel {
        state: Mutex::new(State {
            values: VecDeque::new(),
            senders: 1,
            receivers: 1,
        }),
        capacity: capacity.max(1),
        filled: WaitQueue::default(),
        emptied: WaitQueue::default(),
    });
    (Sender(channel.clone()), Receiver(channel))
}

/// A channel whose senders never wait.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

impl<T> Sender<T> {
    /// Sends `value`; waits while there is no room.
    ///
    /// # Errors
    /// [`SendError`] if all receivers are gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        thrown(self.send_until(value, None)).map_err(|error| match error {
            TrySendError::Full(value) | TrySendError::Disconnected(value) => SendError(value),
        })
    }

    /// As [`Sender::send`], until `deadline` at most.
    pub(crate) fn send_until(
        &self,
        mut value: T,
        deadline: Option<Instant>,
    ) -> Result<Result<(), TrySendError<T>>, Stop> {
        loop {
            value = match self.try_send(value) {
                Err(TrySendError::Full(value)) => value,
                result => return Ok(result),
            };
            let place = self.0.emptied.enter();
            // What was taken before the place was called nobody.
            let state = self.0.state();
            if state.values.len() >= self.0.capacity && state.receivers > 0 {
                drop(state);
                if !place.wait(deadline)? {
                    return Ok(self.try_send(value));
                }
            }
        }
    }

    /// Sends `value` if there is room.
    ///
    /// # Errors
    /// [`TrySendError`] if there is none, or nobody to receive it.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.state();
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(value));
        }
        if state.values.len() >= self.0.capacity {
            return Err(TrySendError::Full(value));
        }
        state.values.push_back(value);
        drop(state);
        self.0.filled.call_one();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Receives the oldest value; waits while there is none.
    ///
    /// # Errors
    /// [`RecvError`] if all senders are gone and nothing is left.
    pub fn recv(&self) -> Result<T, RecvError> {
        thrown(self.recv_until(None)).map_err(|_| RecvError)
    }

    /// As [`Receiver::recv`], for `time` at most.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] if nothing came in time.
    pub fn recv_timeout(&self, time: Duration) -> Result<T, TryRecvError> {
        thrown(self.recv_until(Some(after(time))))
    }

    pub(crate) fn recv_until(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Result<T, TryRecvError>, Stop> {
        loop {
            match self.try_recv() {
                Err(TryRecvError::Empty) => {}
                result => return Ok(result),
            }
            let place = self.0.filled.enter();
            let state = self.0.state();
            if state.values.is_empty() && state.senders > 0 {
                drop(state);
                if !place.wait(deadline)? {
                    return Ok(self.try_recv());
                }
            }
        }
    }

    /// Receives the oldest value if there is one.
    ///
    /// # Errors
    /// [`TryRecvError`] if there is none.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state();
        let value = state.values.pop_front();
        let over = state.senders == 0;
        drop(state);
        match value {
            Some(value) => {
                self.0.emptied.call_one();
                Ok(value)
            }
            None if over => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// What comes, until all senders are gone.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state().senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.state().receivers += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.senders -= 1;
        if state.senders == 0 {
            drop(state);
            self.0.filled.call_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.receivers -= 1;
        if state.receivers == 0 {
            let left = std::mem::take(&mut state.values);
            drop(state);
            self.0.emptied.call_all();
            drop(left);
        }
    }
}
