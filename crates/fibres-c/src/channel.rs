//! Channels.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use linewise_edge::Passed;
use linewise_fibres::raw;
use linewise_fibres::sync::{Receiver, Sender, TryRecvError, TrySendError, bounded};

use crate::error::{Failure, LINEWISE_FIBRES_BUSY, LINEWISE_FIBRES_CLOSED, edge};
use crate::{close, deadline, give, of, place, tell};

/// A channel of pointers, which any number send to and receive from.
pub struct linewise_fibres_channel {
    /// None once nobody sends any more. Held for moments, never while a fibre waits.
    sender: Mutex<Option<Sender<Passed>>>,
    receiver: Receiver<Passed>,
}

impl linewise_fibres_channel {
    fn sender(&self) -> MutexGuard<'_, Option<Sender<Passed>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nothing could be had in `nanoseconds`.
fn not_in(nanoseconds: u64, text: &str) -> Failure {
    if nanoseconds == 0 {
        Failure::new(LINEWISE_FIBRES_BUSY, text)
    } else {
        Failure::timed_out()
    }
}

fn closed() -> Failure {
    Failure::new(
        LINEWISE_FIBRES_CLOSED,
        "nobody sends to this channel any more",
    )
}

/// Makes a channel for `capacity` pointers, at least 1.
///
/// # Safety
/// `channel` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_channel_open(
    capacity: usize,
    channel: *mut *mut linewise_fibres_channel,
) -> i32 {
    edge(|| {
        let channel = place(channel, "channel")?;
        if capacity == 0 {
            return Err(Failure::argument("a channel with room for nothing"));
        }
        let (sender, receiver) = bounded(capacity);
        let sender = Mutex::new(Some(sender));
        // SAFETY: the contract.
        unsafe { give(channel, linewise_fibres_channel { sender, receiver }) };
        Ok(())
    })
}

/// Sends `value`; waits while there is no room, for so long at most: UINT64_MAX without end, 0 not at all
/// (LINEWISE_FIBRES_BUSY).
///
/// # Safety
/// `channel` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_channel_send(
    channel: *const linewise_fibres_channel,
    value: *mut c_void,
    nanoseconds: u64,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let channel = unsafe { of(channel, "channel")? };
        let sender = channel.sender().clone();
        let sender = sender.ok_or_else(closed)?;
        let sent = if nanoseconds == 0 {
            sender.try_send(Passed(value))
        } else {
            raw::send(&sender, Passed(value), deadline(nanoseconds))?
        };
        sent.map_err(|error| match error {
            TrySendError::Full(_) => not_in(nanoseconds, "the channel is full"),
            TrySendError::Disconnected(_) => closed(),
        })
    })
}

/// Receives the oldest pointer; waits while there is none, for so long at most: UINT64_MAX without end, 0 not at
/// all (LINEWISE_FIBRES_BUSY). LINEWISE_FIBRES_CLOSED once all is received and nobody sends any more.
///
/// # Safety
/// `channel` is a valid handle; `value` is NULL or a place for a value.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_channel_receive(
    channel: *const linewise_fibres_channel,
    value: *mut *mut c_void,
    nanoseconds: u64,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let channel = unsafe { of(channel, "channel")? };
        let received = if nanoseconds == 0 {
            channel.receiver.try_recv()
        } else {
            raw::recv(&channel.receiver, deadline(nanoseconds))?
        };
        let received = received.map_err(|error| match error {
            TryRecvError::Empty => not_in(nanoseconds, "the channel is empty"),
            TryRecvError::Disconnected => closed(),
        })?;
        // SAFETY: the contract.
        unsafe { tell(value, received.get()) };
        Ok(())
    })
}

/// Says that no more is sent: later calls that send are refused (LINEWISE_FIBRES_CLOSED), those that wait go
/// on, and who receives gets what is left.
///
/// # Safety
/// `channel` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_channel_finish(
    channel: *const linewise_fibres_channel,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let channel = unsafe { of(channel, "channel")? };
        let sender = channel.sender().take();
        drop(sender);
        Ok(())
    })
}

/// Closes a channel. Pointers that are left in it are lost.
///
/// # Safety
/// `channel` is a handle that was not closed, or NULL, and nobody uses it from now on or waits there.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_channel_close(
    channel: *mut linewise_fibres_channel,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { close(channel) };
        Ok(())
    })
}
