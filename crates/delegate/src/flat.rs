//! Flat delegation: who serves when (the paper's section 2.2, "Scheduling Strategies").

use std::cell::RefCell;
use std::sync::Arc;

use crate::shard::Shard;

/// When a thread of a flat domain serves its own shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Pending queues; a client serves before it writes and reads request lines, and after every
    /// 256 calls on its own shard, which run inline. The paper's fastest, and the default.
    #[default]
    Queue,
    /// No pending queues: a request goes into a request line or the client serves until one is
    /// free. Calls on the own shard go through request lines too, so a client comes to serve
    /// whatever it calls.
    ServeWhenBlocked,
    /// As `ServeWhenBlocked`, but calls on the own shard run inline. A client that calls nothing
    /// else never serves (the paper's greedy client): others wait until it polls, waits or leaves.
    FastPath,
    /// As `FastPath`, and a client serves after so many calls on its own shard (at least 1).
    UpperBound(u32),
    /// As `FastPath`, and a blocked client rings the bell of the shard it waits for; a client looks
    /// at its bell at every call.
    Doorbell,
}

/// What a policy means to the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Requests go straight into request lines.
    pub(crate) direct: bool,
    /// Calls on the own shard run inline.
    pub(crate) inline_own: bool,
    /// Serve after so many calls on the own shard; 0: never for that reason.
    pub(crate) serve_every: u32,
    /// Serve before request lines are written and read.
    pub(crate) serve_first: bool,
    /// Ring when blocked, and look at the bell at every call.
    pub(crate) bell: bool,
}

/// Calls on the own shard between two looks at what others ask, under [`Policy::Queue`].
const OWN_CALLS: u32 = 256;

impl Policy {
    pub(crate) fn rules(self) -> Rules {
        let direct = Rules {
            direct: true,
            inline_own: true,
            serve_every: 0,
            serve_first: false,
            bell: false,
        };
        match self {
            Self::Queue => Rules {
                direct: false,
                serve_every: OWN_CALLS,
                serve_first: true,
                ..direct
            },
            Self::ServeWhenBlocked => Rules {
                inline_own: false,
                ..direct
            },
            Self::FastPath => direct,
            Self::UpperBound(calls) => Rules {
                serve_every: calls.max(1),
                ..direct
            },
            Self::Doorbell => Rules {
                bell: true,
                ..direct
            },
        }
    }
}

/// A seat that a client of this thread holds.
struct Sitting {
    shard: Arc<Shard>,
    /// Its client was dropped where it could not leave.
    deserted: bool,
}

impl Drop for Sitting {
    fn drop(&mut self) {
        if self.deserted {
            self.shard.leave();
        }
    }
}

thread_local! {
    /// The seats that this thread holds. A client may outlive the list, in another variable of the
    /// thread; it goes on without.
    static SITTING: RefCell<Vec<Sitting>> = const { RefCell::new(Vec::new()) };
}

/// Notes that this thread holds the shard's seat.
pub(crate) fn sit(shard: Arc<Shard>) {
    let sitting = Sitting {
        shard,
        deserted: false,
    };
    let _ = SITTING.try_with(|all| all.borrow_mut().push(sitting));
}

/// Notes that this thread no longer holds it.
pub(crate) fn stand(shard: &Arc<Shard>) {
    let _ = SITTING.try_with(|sitting| {
        sitting
            .borrow_mut()
            .retain(|other| !Arc::ptr_eq(&other.shard, shard));
    });
}

/// The client of this seat is gone without leaving: the thread serves the shard where it waits, and
/// leaves the seat when it ends.
pub(crate) fn desert(shard: &Arc<Shard>) {
    let _ = SITTING.try_with(|sitting| {
        for seat in sitting.borrow_mut().iter_mut() {
            seat.deserted |= Arc::ptr_eq(&seat.shard, shard);
        }
    });
}

/// Serves every shard whose seat this thread holds. True if something was done. The caller is not
/// inside a delegated function.
pub(crate) fn serve_sitting() -> bool {
    let at = |index: usize| {
        let shard = |all: &RefCell<Vec<Sitting>>| Some(all.borrow().get(index)?.shard.clone());
        SITTING.try_with(shard).ok().flatten()
    };
    let mut worked = false;
    let mut index = 0;
    // One at a time: a delegated function may change the list.
    while let Some(shard) = at(index) {
        // SAFETY: this thread holds the seat, and no delegated function, hence no pass, is running.
        worked |= unsafe { shard.pass() };
        index += 1;
    }
    worked
}

/// How many seats this thread holds.
pub(crate) fn sitting() -> usize {
    SITTING
        .try_with(|sitting| sitting.borrow().len())
        .unwrap_or(0)
}
