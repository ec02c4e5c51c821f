//! Locks, conditions, barriers and channels that block the fibre and not its worker. Threads that are no
//! workers may use them too, and are blocked as they are by those of the standard library.

mod barrier;
mod channel;
mod condvar;
pub(crate) mod mutex;

pub use barrier::Barrier;
pub use channel::{
    Receiver, RecvError, SendError, Sender, TryRecvError, TrySendError, bounded, unbounded,
};
pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
