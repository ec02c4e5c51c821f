//! What can go wrong, as values.

use crate::panics::Panic;

/// Why a request has no answer, or a call was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The delegated function panicked; the value stays in place as the panic left it. What it threw
    /// comes along: [`Panic::resume`] throws it on.
    #[error("the delegated function panicked: {0}")]
    Panicked(Panic),
    /// The domain was shut down before the call.
    #[error("the domain is shut down; requests made before the shutdown were answered")]
    Shutdown,
    /// A waiting call inside a delegated function or a callback would wait for itself. With
    /// [`Ordered::Client`](crate::Ordered::Client) also one that would have to wait first, to keep the order.
    #[error(
        "a waiting call inside a delegated function or a callback would wait for itself; use \
         apply_async or post there, or make the call in a fibre"
    )]
    Nested,
    /// The value belongs to another domain than the client.
    #[error("the value belongs to another domain than this client")]
    Foreign,
    /// Every seat of a flat domain is taken, or the wanted one is.
    #[error("no free seat: a flat domain has one client for each shard")]
    NoSeat,
    /// The domain has no such shard.
    #[error("no shard {shard}: the domain has {shards}")]
    NoShard {
        /// What was asked for.
        shard: usize,
        /// How many shards there are.
        shards: usize,
    },
    /// The shard's memory is used up.
    #[error("the shard's reserved memory ({bytes} bytes) is used up; see Builder::shard_bytes")]
    Full {
        /// Bytes reserved for the shard.
        bytes: usize,
    },
    /// The time was over before the answer was there.
    #[error("the time was over before the answer was there; the function may have run, or may yet")]
    TimedOut,
    /// The answer of a reply was taken before.
    #[error("the answer of this reply was taken before")]
    Taken,
    /// Values that are used together live in different shards.
    #[error("values that are used together must live in one shard")]
    Apart,
    /// The same value was named twice where each is lent for writing.
    #[error("the same value was named twice: it cannot be lent for writing to both")]
    Twice,
    /// A process made by `fork` has none of the domain's threads.
    #[error("the domain belongs to the parent process; build a new one after fork")]
    Forked,
    /// The system refused a thread, a place or memory.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        why: String,
    },
    /// A setting is out of its range.
    #[error("{0}")]
    Setting(String),
}

impl Error {
    /// What the fibres' runtime said.
    pub(crate) fn of_fibres(error: &linewise_fibres::Error) -> Self {
        match error {
            linewise_fibres::Error::System { what, why, .. } => Self::System {
                what,
                why: why.clone(),
            },
            linewise_fibres::Error::Forked => Self::Forked,
            _ => Self::Nested,
        }
    }
}
