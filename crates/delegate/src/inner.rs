//! What a domain's handles and clients share: its shards, its settings, and the accounts of its clients.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::gate::Gate;
use crate::oneshot::{self, Receiver};
use crate::panics::Panic;
use crate::policy::Rules;
use crate::reply::wait_for;
use crate::shard::{Errand, Shard, State};
use crate::stats::{ClientCounters, ClientStats};

/// What a request keeps in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ordered {
    /// A client's requests to one shard run in the order they were made; to different shards in any
    /// order. Holds at every number of request lines.
    #[default]
    Shard,
    /// All requests of a client run in the order they were made: before it asks another shard, it
    /// waits until what it asked of the last is answered. Slow where shards alternate. A callback cannot
    /// wait: there asking another shard than the last is [`Error::Nested`], while that has something to
    /// answer or callbacks to run.
    Client,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) lines: usize,
    pub(crate) pending: usize,
    pub(crate) ordered: Ordered,
    pub(crate) timed: bool,
    pub(crate) flat: Option<Rules>,
    pub(crate) client_cpus: Vec<u32>,
}

/// What a domain's handles and clients share.
pub struct Inner {
    pub(crate) shards: Box<[Arc<Shard>]>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) settings: Settings,
    /// By the numbers of the clients, in the order they came.
    pub(crate) clients: Mutex<Vec<Account>>,
    pub(crate) next_client: AtomicUsize,
}

/// What a client did.
pub(crate) enum Account {
    Open(Arc<ClientCounters>),
    Closed(ClientStats),
}

impl Inner {
    /// Begins to count what a client does, and returns its number.
    pub(crate) fn open_account(&self, counters: Arc<ClientCounters>) -> usize {
        let mut clients = lock(&self.clients);
        clients.push(Account::Open(counters));
        clients.len() - 1
    }

    /// A client has left: only what it did is kept.
    pub(crate) fn close_account(&self, number: usize, stats: ClientStats) {
        lock(&self.clients)[number] = Account::Closed(stats);
    }

    pub(crate) fn shard(&self, shard: usize) -> Result<&Arc<Shard>, Error> {
        self.shards.get(shard).ok_or(Error::NoShard {
            shard,
            shards: self.shards.len(),
        })
    }

    /// Sends `function` to a shard without a client. What it throws is the answer.
    pub(crate) fn errand<R: Send + 'static>(
        &self,
        shard: usize,
        function: impl FnOnce(&mut State) -> Result<R, Error> + Send + 'static,
    ) -> Result<Receiver<R>, Error> {
        self.gate.check()?;
        let (sender, receiver) = oneshot::pair();
        self.shard(shard)?.send(Errand::Run(Box::new(move |state| {
            let answer = catch_unwind(AssertUnwindSafe(|| function(state)));
            sender.send(answer.unwrap_or_else(|payload| Err(Error::Panicked(Panic::of(payload)))));
        })))?;
        Ok(receiver)
    }

    /// Waits for an errand's answer; serves meanwhile what this thread may serve.
    pub(crate) fn wait<R>(&self, shard: usize, receiver: &Receiver<R>) -> Result<R, Error> {
        wait_for(receiver, &self.shards[shard], None).unwrap_or(Err(Error::TimedOut))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
