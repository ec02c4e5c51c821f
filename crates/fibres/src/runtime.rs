//! Runtimes: pools of pinned workers.

use std::collections::HashSet;
use std::sync::{Arc, mpsc};
use std::thread;

use linewise_topology::Topology;

use crate::announce;
use crate::bell::{Bell, Futex, Park};
use crate::blocking;
use crate::error::Error;
use crate::fork;
use crate::kept;
use crate::no_unwind::NoUnwind;
use crate::overflow::{self, HandlerStack};
use crate::pool::{JoinHandle, Pool};
use crate::pool_of::PoolOf;
use crate::reactor::{Epoll, Reactor};
use crate::worker::{Shared, Worker};

/// How often an idle worker looks around before it sleeps, where each worker has a CPU.
const LOOKS: u32 = 2000;

/// What a runtime is made of.
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    pools: Vec<(String, Vec<Option<u32>>)>,
    steals_across: bool,
    without_events: bool,
    checks: bool,
    announces: bool,
    looks: Option<u32>,
}

/// Pools of workers. Dropped, it is shut down as by [`Runtime::shut_down`].
#[derive(Debug)]
pub struct Runtime {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Runtime {
    /// A runtime, pool by pool.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The pool of this name.
    pub fn pool(&self, name: &str) -> Option<Pool> {
        let index = self.shared.pools.iter().position(|it| &*it.name == name)?;
        Some(self.nth_pool(index))
    }

    /// All pools, in the order in which they were added.
    pub fn pools(&self) -> Vec<Pool> {
        (0..self.shared.pools.len())
            .map(|index| self.nth_pool(index))
            .collect()
    }

    fn nth_pool(&self, index: usize) -> Pool {
        Pool {
            shared: self.shared.clone(),
            index,
        }
    }

    /// Begins a fibre in the first pool.
    ///
    /// # Errors
    /// As [`Pool::spawn`].
    pub fn spawn<T: Send + 'static>(
        &self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, Error> {
        self.nth_pool(0).spawn(body)
    }

    /// Waits until every fibre has ended.
    ///
    /// # Panics
    /// In a fibre of this runtime, or in [`blocking`](crate::blocking) of one: it would wait for itself.
    /// In a child of `fork`, unless all had ended before.
    pub fn wait(&self) {
        if let Err(error) = self.may_wait() {
            panic!("{error}");
        }
        self.shared.wait_for_all();
    }

    /// Whether [`Runtime::wait`] would come to an end, as far as the caller matters.
    pub(crate) fn may_wait(&self) -> Result<(), Error> {
        if self.holds_caller() {
            return Err(Error::Nested);
        }
        if fork::is_forked() && !self.shared.all_ended() {
            return Err(Error::Forked);
        }
        Ok(())
    }

    /// Whether one of its fibres runs the caller, or waits for it.
    fn holds_caller(&self) -> bool {
        self.is_here() || blocking::is_for(Arc::as_ptr(&self.shared).cast())
    }

    /// Ends the runtime: fibres that wait, or wait next, are cancelled (they unwind, and their values are
    /// [`JoinError::Cancelled`](crate::JoinError::Cancelled)); one that neither waits nor ends is waited
    /// for. To let them all end by themselves call [`Runtime::wait`] before.
    pub fn shut_down(self) {
        drop(self);
    }

    /// How often a fibre that moved took along an address of its old thread's variables, in this process;
    /// counted where [`Builder::check_moves`] was asked for.
    pub fn kept_addresses() -> usize {
        kept::found()
    }

    /// Whether the caller is one of its fibres.
    pub fn is_here(&self) -> bool {
        Worker::here().is_some_and(|it| std::ptr::eq(it.shared(), Arc::as_ptr(&self.shared)))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if fork::is_forked() {
            return; // Its workers are in the parent.
        }
        self.shared.begin_to_end();
        if self.holds_caller() {
            return; // A fibre of its own: the workers end after it.
        }
        for thread in self.threads.drain(..) {
            // A worker runs every fibre under `catch_unwind`; what panics beyond that was reported.
            let _ = thread.join();
        }
    }
}

impl Builder {
    /// Adds a pool of so many workers, which the kernel places.
    pub fn pool(mut self, name: &str, workers: usize) -> Self {
        self.pools.push((name.to_owned(), vec![None; workers]));
        self
    }

    /// Adds a pool with a worker pinned to each of these CPUs.
    pub fn pinned_pool(mut self, name: &str, cpus: &[u32]) -> Self {
        let cpus = cpus.iter().copied().map(Some).collect();
        self.pools.push((name.to_owned(), cpus));
        self
    }

    /// Adds a pool for each last-level cache of `topology`, with a worker pinned to each of its CPUs,
    /// named `cache 0`, `cache 1` and so on.
    pub fn pool_for_each_cache(mut self, topology: &Topology) -> Self {
        for (index, cpus) in topology.llc_groups().iter().enumerate() {
            let cpus: Vec<_> = cpus.iter().collect();
            self = self.pinned_pool(&format!("cache {index}"), &cpus);
        }
        self
    }

    /// Lets idle workers take fibres of other pools too, before these begin.
    pub fn steal_across_pools(mut self) -> Self {
        self.steals_across = true;
        self
    }

    /// Leaves out what sockets and files need: workers sleep in a futex. A socket then blocks its worker.
    pub fn without_events(mut self) -> Self {
        self.without_events = true;
        self
    }

    /// How often an idle worker looks around before it sleeps. Some 20 µs' worth where each worker has a
    /// CPU, none where there are fewer CPUs than workers.
    pub fn looks_before_sleep(mut self, looks: u32) -> Self {
        self.looks = Some(looks);
        self
    }

    /// Looks at each move whether the fibre takes along an address of its old thread's variables, and
    /// says so on the standard error. For tests: a move takes longer by the depth of the stack.
    pub fn check_moves(mut self) -> Self {
        self.checks = true;
        self
    }

    /// Tells whoever records of each fibre: its number and name, where its stack is, its begin and its end, by
    /// the functions of `linewise.h`. Then an address of a stack stands for one fibre in the whole run: no
    /// stack is used again, and each fibre costs some microseconds more. Without a recorder, nothing. The
    /// environment variable `LINEWISE_SESSIONS=1` asks for it, too.
    pub fn announce_sessions(mut self) -> Self {
        self.announces = true;
        self
    }

    /// Starts the workers.
    ///
    /// # Safety
    /// Fibres of one worker run between each other's waiting calls, and end in any order. So no fibre of
    /// this runtime holds over a waiting call what is right only while the calls of a thread nest: it is
    /// not inside `set` of a scoped thread-local, not inside `with` of a thread-local whose borrow
    /// another fibre could end, nor inside anything else that takes back on return what it left in the
    /// thread (rust-lang/unsafe-code-guidelines, 602). No bound of the language tells such code from
    /// other code, so who starts the runtime promises it for its fibres.
    ///
    /// # Errors
    /// [`Error::Plan`] if there is no pool, an empty one, two of one name, or a CPU that two workers
    /// share; [`Error::System`] if a thread cannot be started or pinned, or there are no descriptors.
    pub unsafe fn start(self) -> Result<Runtime, Error> {
        self.check()?;
        if fork::is_forked() {
            return Err(Error::Forked);
        }
        overflow::install();
        fork::watch();
        let asked =
            self.announces || std::env::var_os("LINEWISE_SESSIONS").is_some_and(|it| it == "1");
        let announces = asked && announce::is_heard();
        let plan: Vec<(usize, Option<u32>)> = self
            .pools
            .iter()
            .enumerate()
            .flat_map(|(pool, (_, cpus))| cpus.iter().map(move |&cpu| (pool, cpu)))
            .collect();
        let mut sleeps = Vec::new();
        for _ in &plan {
            sleeps.push(self.sleep()?);
        }
        let shared = Arc::new_cyclic(|shared| {
            let workers = plan
                .iter()
                .zip(sleeps)
                .enumerate()
                .map(|(index, (&(pool, _), (bell, reactor)))| {
                    Worker::new((index, pool, plan.len()), shared.as_ptr(), bell, reactor)
                })
                .collect();
            let mut first = 0;
            let pools = self.pools.iter().map(|(name, cpus)| {
                first += cpus.len();
                PoolOf::new(name, first - cpus.len(), cpus.len())
            });
            let mut shared = Shared::new(workers, pools.collect());
            shared.steals_across = self.steals_across;
            shared.checks = self.checks;
            shared.announces = announces;
            shared.looks = self.looks.unwrap_or_else(|| looks_for(plan.len()));
            shared
        });
        let mut runtime = Runtime {
            shared,
            threads: Vec::new(),
        };
        let (told, started) = mpsc::channel();
        for (index, &(pool, cpu)) in plan.iter().enumerate() {
            let shared = runtime.shared.clone();
            let told = told.clone();
            let thread = thread::Builder::new()
                .name(format!("{} {index}", self.pools[pool].0))
                .spawn(move || {
                    let pinned = cpu.map_or(Ok(()), crate::place::pin);
                    let _faults = HandlerStack::install();
                    let _ = told.send(pinned);
                    // Its fibres would be left to nobody.
                    let works = NoUnwind;
                    shared.workers[index].work();
                    works.passed();
                })
                .map_err(|error| Error::System {
                    what: "starting a worker",
                    why: error.to_string(),
                    errno: error.raw_os_error(),
                });
            match thread {
                Ok(thread) => runtime.threads.push(thread),
                Err(error) => {
                    runtime.shared.end.give_up(plan.len() - index);
                    return Err(error);
                }
            }
        }
        drop(told);
        started
            .into_iter()
            .take(plan.len())
            .collect::<Result<(), _>>()?;
        Ok(runtime)
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Plan(text));
        if self.pools.is_empty() {
            return refuse(
                "a runtime needs a pool: add one with `pool` or `pinned_pool`".to_owned(),
            );
        }
        let mut names = HashSet::new();
        let mut pinned = HashSet::new();
        for (name, cpus) in &self.pools {
            if cpus.is_empty() {
                return refuse(format!("the pool `{name}` has no worker"));
            }
            if !names.insert(name) {
                return refuse(format!("two pools are called `{name}`"));
            }
            if let Some(cpu) = cpus.iter().flatten().find(|cpu| !pinned.insert(**cpu)) {
                return refuse(format!(
                    "two workers on CPU {cpu}: one would wait for the other"
                ));
            }
        }
        Ok(())
    }

    /// What a worker sleeps in.
    fn sleep(&self) -> Result<(Bell, Option<Arc<Reactor>>), Error> {
        if self.without_events {
            return Ok((Bell::new(Box::new(Futex)), None));
        }
        let reactor = Arc::new(Reactor::new().map_err(|error| Error::System {
            what: "an epoll for a worker",
            why: format!("{error}; raise `ulimit -n`, or use Builder::without_events"),
            errno: error.raw_os_error(),
        })?);
        let park: Box<dyn Park> = Box::new(Epoll(reactor.clone()));
        Ok((Bell::new(park), Some(reactor)))
    }
}

/// A worker that looks for work takes its CPU from those that have some, where CPUs are too few.
fn looks_for(workers: usize) -> u32 {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    if workers <= cpus { LOOKS } else { 1 }
}
