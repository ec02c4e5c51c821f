//! A domain: shards, the threads that serve them, and the settings they share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::arena::MOST_BYTES;
use crate::client::Client;
use crate::error::Error;
use crate::gate::Gate;
use crate::handle::Handle;
use crate::inner::{Account, Inner, Ordered, Settings, lock};
use crate::inside::is_serving;
use crate::line::MOST_LINES;
use crate::owned::{Owned, OwnedSlice, Sharded, Slot};
use crate::place;
use crate::policy::Policy;
use crate::shard::{Shard, token};
use crate::stats::{ClientStats, ShardStats};

/// Request lines of a pair unless set: the paper's choice.
const LINES: usize = 16;
/// The most shards: a shard's memory is reserved in the address space.
const MOST_SHARDS: usize = 1024;

/// Settings of a domain; [`Builder::build`] starts it.
#[derive(Clone, Debug)]
pub struct Builder {
    shards: usize,
    flat: Option<Policy>,
    lines: usize,
    pending: Option<usize>,
    direct: bool,
    ordered: Ordered,
    shard_bytes: usize,
    timed: bool,
    server_cpus: Vec<u32>,
    client_cpus: Vec<u32>,
}

impl Builder {
    fn new(shards: usize, flat: Option<Policy>) -> Self {
        Self {
            shards,
            flat,
            lines: LINES,
            pending: None,
            direct: false,
            ordered: Ordered::default(),
            // Miri has the memory of what is reserved.
            shard_bytes: if cfg!(miri) { 1 << 20 } else { MOST_BYTES },
            timed: false,
            server_cpus: Vec::new(),
            client_cpus: Vec::new(),
        }
    }

    /// Request lines between each client and each shard, 1 to 32 (default 16). A line carries up to
    /// 63 requests, and goes when it is full or flushed: who makes requests one by one for their latency
    /// wants fewer lines.
    pub fn request_lines(mut self, lines: usize) -> Self {
        self.lines = lines;
        self
    }

    /// Length of the pending queue of each client for each shard, in lines (default: twice the
    /// request lines). 0 is [`Builder::direct_write`].
    pub fn pending_queue(mut self, lines: usize) -> Self {
        self.pending = Some(lines);
        self
    }

    /// No pending queue: a request goes into a request line at once, and the client waits where none
    /// is free.
    pub fn direct_write(mut self) -> Self {
        self.direct = true;
        self
    }

    /// When a flat domain's threads serve (no effect on a dedicated domain).
    pub fn policy(mut self, policy: Policy) -> Self {
        if self.flat.is_some() {
            self.flat = Some(policy);
        }
        self
    }

    /// Which order requests keep.
    pub fn ordered(mut self, ordered: Ordered) -> Self {
        self.ordered = ordered;
        self
    }

    /// Address space to reserve for each shard, in bytes (default and most 64 GiB; at least 1 MiB).
    /// Memory is taken as values are made. Where the system refuses, less is reserved.
    pub fn shard_bytes(mut self, bytes: usize) -> Self {
        self.shard_bytes = bytes;
        self
    }

    /// Reads the clock at every line, for the latency and the cycles in the statistics. Costs some
    /// ten nanoseconds a line.
    pub fn timed(mut self) -> Self {
        self.timed = true;
        self
    }

    /// CPUs to pin servers to, one after another, beginning again at the first. See
    /// [`place::round_robin`]. Default: not pinned.
    pub fn server_cpus(mut self, cpus: impl Into<Vec<u32>>) -> Self {
        self.server_cpus = cpus.into();
        self
    }

    /// CPUs to pin the threads of [`Domain::spawn_client`] to. Default: not pinned.
    pub fn client_cpus(mut self, cpus: impl Into<Vec<u32>>) -> Self {
        self.client_cpus = cpus.into();
        self
    }

    /// Pins servers and then the threads of [`Domain::spawn_client`] to the CPUs where this process may
    /// run, one of each socket in turn ([`place::here`]): what the paper does. Begins again at the
    /// first where there are more threads.
    pub fn round_robin(self) -> Self {
        let mut cpus = place::here();
        let servers = if self.flat.is_some() { 0 } else { self.shards };
        let builder = self.server_cpus(cpus.clone());
        let first_client = servers % cpus.len().max(1);
        cpus.rotate_left(first_client);
        builder.client_cpus(cpus)
    }

    /// Reserves memory and, in a dedicated domain, starts the servers.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting out of range, [`Error::System`] if the system refuses memory,
    /// a thread, or a CPU of the plan.
    pub fn build(self) -> Result<Domain, Error> {
        let setting = |text: String| Err(Error::Setting(text));
        if self.shards == 0 || self.shards > MOST_SHARDS {
            let what = match self.flat {
                Some(_) => "shards of a flat domain",
                None => "shards, each with a server",
            };
            return setting(format!("{what}: {} is not 1 to {MOST_SHARDS}", self.shards));
        }
        if self.lines == 0 || self.lines > MOST_LINES {
            return setting(format!(
                "request lines: {} is not 1 to {MOST_LINES}",
                self.lines
            ));
        }
        let rules = self.flat.map(Policy::rules);
        let direct = self.direct || rules.is_some_and(|rules| rules.direct);
        let pending = if direct {
            0
        } else {
            self.pending.unwrap_or(2 * self.lines)
        };
        let gate = Arc::new(Gate::new()?);
        let shards = (0..self.shards)
            .map(|_| Shard::new(self.shard_bytes, self.timed, gate.clone()).map(Arc::new))
            .collect::<Result<Box<[_]>, _>>()?;
        let inner = Arc::new(Inner {
            shards,
            gate,
            settings: Settings {
                lines: self.lines,
                pending,
                ordered: self.ordered,
                timed: self.timed,
                flat: rules,
                client_cpus: self.client_cpus,
            },
            clients: Mutex::default(),
            next_client: AtomicUsize::new(0),
        });
        let domain = Domain {
            inner,
            servers: Mutex::default(),
        };
        if self.flat.is_none() {
            for (index, shard) in domain.inner.shards.iter().enumerate() {
                let cpu = place::nth(&self.server_cpus, index);
                let server = crate::server::start(index, shard.clone(), cpu)?;
                lock(&domain.servers).push(server);
            }
        }
        Ok(domain)
    }
}

/// Shards and who serves them. Dropping it shuts it down.
pub struct Domain {
    inner: Arc<Inner>,
    servers: Mutex<Vec<JoinHandle<()>>>,
}

impl Domain {
    /// A domain with `servers` threads that do nothing but serve, one for each shard.
    pub fn dedicated(servers: usize) -> Builder {
        Builder::new(servers, None)
    }

    /// A domain whose `threads` clients serve one shard each. Until a shard's client has come, and
    /// after it left, whoever waits for the shard serves it.
    pub fn flat(threads: usize) -> Builder {
        Builder::new(threads, Some(Policy::default()))
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.inner.shards.len()
    }

    /// A client for the calling thread. In a flat domain it takes the first free seat.
    ///
    /// `'c` is what the callbacks of its requests may borrow: it outlives the client.
    ///
    /// # Errors
    /// [`Error::Shutdown`], [`Error::Forked`]; [`Error::Nested`] inside a delegated function;
    /// [`Error::NoSeat`] if a flat domain's seats are taken.
    pub fn client<'c>(&self) -> Result<Client<'c>, Error> {
        Client::join(&self.inner, None)
    }

    /// A client of a flat domain for the calling thread, in the seat of `shard`.
    ///
    /// # Errors
    /// As [`Domain::client`]; [`Error::NoShard`].
    pub fn client_at<'c>(&self, shard: usize) -> Result<Client<'c>, Error> {
        self.inner.shard(shard)?;
        Client::join(&self.inner, Some(shard))
    }

    /// Starts a thread that runs `function` with a client of its own, and afterwards waits until all
    /// its requests are answered. Pinned by [`Builder::client_cpus`]. Its callbacks may borrow nothing of
    /// `function`'s own; in a scoped thread with [`Domain::client`] they may.
    ///
    /// # Errors
    /// [`Error::System`] if no thread could be started. The thread's result is an error where it
    /// could not be pinned or got no client.
    pub fn spawn_client<R: Send + 'static>(
        &self,
        function: impl FnOnce(&Client<'_>) -> R + Send + 'static,
    ) -> Result<JoinHandle<Result<R, Error>>, Error> {
        let inner = self.inner.clone();
        let number = inner.next_client.fetch_add(1, Ordering::Relaxed);
        std::thread::Builder::new()
            .name(format!("delegate-client-{number}"))
            .spawn(move || {
                if let Some(cpu) = place::nth(&inner.settings.client_cpus, number) {
                    place::pin(cpu)?;
                }
                let client = Client::join(&inner, None)?;
                let result = function(&client);
                client.barrier()?;
                Ok(result)
            })
            .map_err(|error| Error::System {
                what: "starting a client thread",
                why: error.to_string(),
            })
    }

    /// A handle for tasks and threads without a client; see [`Handle`].
    pub fn handle(&self) -> Handle {
        Handle::new(self.inner.clone())
    }

    /// Builds a value in a shard. `build` runs on the shard's server, so the value's pages are on
    /// its NUMA node; in a flat domain that holds once the shard's client has come.
    ///
    /// # Errors
    /// [`Error::NoShard`], [`Error::Full`], [`Error::Shutdown`], [`Error::Forked`], [`Error::Nested`],
    /// [`Error::Panicked`] if `build` panics.
    pub fn own<T: Send + 'static>(
        &self,
        shard: usize,
        build: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Owned<T>, Error> {
        let mut build = Some(build);
        let build = move |_| (build.take().expect("one value is built once"))();
        let offset = self.make(shard, 1, build, |_, _| ())?;
        Ok(Owned::new(self.inner.clone(), shard, offset))
    }

    /// Builds `count` values side by side in a shard; `build` gets each one's index.
    ///
    /// # Errors
    /// As [`Domain::own`].
    pub fn own_slice<T: Send + 'static>(
        &self,
        shard: usize,
        count: usize,
        build: impl FnMut(usize) -> T + Send + 'static,
    ) -> Result<OwnedSlice<T>, Error> {
        self.own_slice_in_place(shard, count, build, |_, _| ())
    }

    /// As [`Domain::own_slice`]; `begin` gets each value where it lies from then on, for what depends on
    /// its address. If it panics, the value is dropped with those before it.
    ///
    /// # Errors
    /// As [`Domain::own`].
    pub fn own_slice_in_place<T: Send + 'static>(
        &self,
        shard: usize,
        count: usize,
        build: impl FnMut(usize) -> T + Send + 'static,
        begin: impl FnMut(usize, &mut T) + Send + 'static,
    ) -> Result<OwnedSlice<T>, Error> {
        let offset = self.make(shard, count, build, begin)?;
        Ok(OwnedSlice::new(self.inner.clone(), shard, offset, count))
    }

    /// Builds `count` values spread over all shards: value `i` in shard `i % shards`. Neighbours are in
    /// different shards, so they cannot be used together: that wants [`Domain::own_slice`].
    ///
    /// # Errors
    /// As [`Domain::own`].
    pub fn own_sharded<T: Send + 'static>(
        &self,
        count: usize,
        build: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Result<Sharded<T>, Error> {
        self.own_sharded_in_place(count, build, |_, _| ())
    }

    /// As [`Domain::own_sharded`]; `begin` gets each value where it lies from then on, as with
    /// [`Domain::own_slice_in_place`].
    ///
    /// # Errors
    /// As [`Domain::own`].
    pub fn own_sharded_in_place<T: Send + 'static>(
        &self,
        count: usize,
        build: impl Fn(usize) -> T + Send + Sync + 'static,
        begin: impl Fn(usize, &mut T) + Send + Sync + 'static,
    ) -> Result<Sharded<T>, Error> {
        let shards = self.shards();
        let both = Arc::new((build, begin));
        let parts = (0..shards)
            .map(|shard| {
                let (builds, begins) = (both.clone(), both.clone());
                let here = count / shards + usize::from(shard < count % shards);
                self.own_slice_in_place(
                    shard,
                    here,
                    move |index| (builds.0)(index * shards + shard),
                    move |index, value| (begins.1)(index * shards + shard, value),
                )
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Sharded::new(self.inner.clone(), parts, count))
    }

    fn make<T: Send + 'static>(
        &self,
        shard: usize,
        count: usize,
        mut build: impl FnMut(usize) -> T + Send + 'static,
        mut begin: impl FnMut(usize, &mut T) + Send + 'static,
    ) -> Result<u32, Error> {
        if is_serving() {
            return Err(Error::Nested);
        }
        let receiver = self.inner.errand(shard, move |state| {
            let begin = |index, slot: &mut Slot<T>| begin(index, &mut slot.0);
            state.arena.build(count, |index| Slot(build(index)), begin)
        })?;
        self.inner.wait(shard, &receiver)
    }

    /// What each shard's server did so far.
    pub fn shard_stats(&self) -> Vec<ShardStats> {
        let shards = self.inner.shards.iter();
        shards.map(|shard| shard.counters.read()).collect()
    }

    /// What each client did so far, those that have left included, in the order they came.
    pub fn client_stats(&self) -> Vec<ClientStats> {
        lock(&self.inner.clients)
            .iter()
            .map(|account| match account {
                Account::Open(counters) => counters.read(),
                Account::Closed(stats) => *stats,
            })
            .collect()
    }

    /// Refuses calls from now on, and ends the servers when what was sent is answered. Requests that
    /// clients still hold are answered when their clients wait, poll or leave; errands that nobody
    /// serves come back as [`Error::Shutdown`]. Called again, it does nothing.
    ///
    /// # Errors
    /// [`Error::Nested`] inside a delegated function, which would wait for its own server.
    pub fn shutdown(&self) -> Result<(), Error> {
        if is_serving() {
            return Err(Error::Nested);
        }
        self.close();
        Ok(())
    }

    fn close(&self) {
        self.inner.gate.close();
        if self.inner.gate.check_process().is_err() {
            // The servers exist in the parent only.
            std::mem::forget(std::mem::take(&mut *lock(&self.servers)));
            return;
        }
        for shard in &self.inner.shards {
            shard.ring();
        }
        // Not under the lock: what a server's thread drops when it ends may shut the domain down, too.
        let servers = std::mem::take(&mut *lock(&self.servers));
        let this = std::thread::current().id();
        for server in servers.into_iter().filter(|it| it.thread().id() != this) {
            // A server has no way to panic; if it did, its seat is free and clients serve.
            let _ = server.join();
        }
        for shard in &self.inner.shards {
            if shard.seat.try_take(token()) {
                // SAFETY: the seat was taken just now.
                unsafe { shard.seal() };
                shard.leave();
            }
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if is_serving() {
            // A delegated function may not wait for its own server; the servers end by themselves.
            self.inner.gate.close();
            for shard in &self.inner.shards {
                shard.ring();
            }
            return;
        }
        self.close();
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Domain")
            .field("shards", &self.inner.shards.len())
            .field("settings", &self.inner.settings)
            .finish_non_exhaustive()
    }
}
