//! What can go wrong, as values.

use std::any::Any;

/// Why the runtime or a fibre could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused.
    #[error("{what}: {why}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// What the kernel said, and what to try.
        why: String,
        /// The kernel's number of that, as in `<errno.h>`.
        errno: Option<i32>,
    },
    /// No stack is that large.
    #[error("a stack of {bytes} bytes: the largest is 1 GiB")]
    StackSize {
        /// What was asked for.
        bytes: usize,
    },
    /// A runtime needs a pool, and a pool a worker.
    #[error("{0}")]
    Plan(String),
    /// The runtime is being shut down.
    #[error("the runtime is shutting down: no new fibres")]
    ShuttingDown,
    /// The caller is no fibre, so it has no pool.
    #[error("no fibre runs on this thread; use Pool::spawn or Runtime::spawn")]
    NoFibre,
    /// The thread runs fibres already.
    #[error("fibres within a fibre: this thread runs some already")]
    Hosted,
    /// A fibre, or a call that it made by [`blocking`](crate::blocking), would wait for itself.
    #[error("a fibre waits for all fibres of its runtime, itself included")]
    Nested,
    /// After `fork` a child has none of the workers.
    #[error(
        "this process was forked from one with a runtime of fibres; its workers stayed there. Fork \
         before the runtime starts, or `exec` at once"
    )]
    Forked,
}

/// Why a fibre has no value to give.
#[derive(thiserror::Error)]
pub enum JoinError {
    /// It panicked, with this.
    #[error("the fibre panicked: {}", text(.0.as_ref()))]
    Panicked(Box<dyn Any + Send>),
    /// The runtime was shut down while it waited.
    #[error("the runtime was shut down before the fibre had ended")]
    Cancelled,
    /// This process was forked before the fibre had ended, so it never does here.
    #[error("{}", Error::Forked)]
    Forked,
}

impl std::fmt::Debug for JoinError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{self}")
    }
}

impl JoinError {
    /// Throws on what the fibre threw; panics if it threw nothing.
    pub fn resume(self) -> ! {
        match self {
            Self::Panicked(payload) => std::panic::resume_unwind(payload),
            Self::Cancelled | Self::Forked => panic!("{self}"),
        }
    }
}

/// What a panic says of itself.
fn text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("with a value that is no text")
}
