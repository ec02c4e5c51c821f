//! A worker: a thread of the kernel that runs fibres, and what others reach of it.
//!
//! ```text
//!  spawn ──▶ stealable ──┐        (fibres that have not begun, or roam: idle workers take half)
//!  move ───▶ lanes ──────┼──▶ run ──▶ ready (its own: no lock, no atomic)
//!  wake ───▶ arrived ────┘      ◀─────┘
//! ```

use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize as Count, Ordering as Order};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use corosensei::CoroutineResult;

use crate::bell::Bell;
use crate::end::End;
use crate::fork;
use crate::here;
use crate::kept;
use crate::lane::{Lane, prefetch};
use crate::operation::Operation;
use crate::outsider::{self, Outsider};
use crate::pool_of::PoolOf;
use crate::queue::Queue;
use crate::reactor::Reactor;
use crate::ring::Ring;
use crate::stack::{self, Stack, slabs};
use crate::task::{self, Action, Here, Runnable, Task, TaskRef, VISIT, WAIT, YIELD};

/// After so many fibres of its own a worker looks for those that others brought.
const TURN: u32 = 32;
/// After so many turns a busy worker looks at its sockets and timers.
const TURNS_TO_EVENTS: u32 = 2;
/// An idle worker that never finds what it looks for still looks so often before it sleeps: once at its sockets.
const LEAST_LOOKS: u32 = 8;
/// Who was woken by another worker after a sleep that was shorter had better looked around.
const SHORT_SLEEP: Duration = Duration::from_micros(30);
/// Numbers of fibres that a worker takes at a time.
const IDS: u64 = 1024;
/// Stacks that a worker keeps for itself.
const KEPT_STACKS: usize = 64;
/// How often an idle worker looks at its lanes for each look at everything.
const LOOKS_AT_LANES: usize = 16;
/// Of the lanes, so many are looked at in a turn while there is other work.
const LANES_A_TURN: usize = 8;

/// What only the worker itself reaches.
pub(crate) struct Own {
    ready: UnsafeCell<VecDeque<Runnable>>,
    /// Fibres to run before the next look at what others brought.
    left: Cell<u32>,
    turns: Cell<u32>,
    next_lane: Cell<usize>,
    /// How often it looks before it sleeps: less and less while that finds nothing, so that it does not keep
    /// the CPU from those whom it waits for.
    looks: Cell<u32>,
    /// Workers to which fibres were sent since their bells were last rung for certain.
    sent_to: UnsafeCell<Vec<usize>>,
    stacks: UnsafeCell<Vec<Stack>>,
    ring: UnsafeCell<Ring>,
    next_id: Cell<u64>,
    next_of_pool: Cell<usize>,
}

/// A thread of the kernel that runs fibres.
#[repr(align(128))]
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) pool: usize,
    pub(crate) shared: *const Shared,
    pub(crate) here: Here,
    own: Own,
    pub(crate) bell: Bell,
    pub(crate) reactor: Option<Arc<Reactor>>,
    /// Fibres that this worker or an idle one of its pool takes.
    pub(crate) stealable: Queue<Runnable>,
    /// Fibres of this worker, from threads that have no lane here.
    arrived: Queue<Runnable>,
    /// From the worker of each index.
    lanes: Box<[Lane]>,
    spawned: Count,
    ended: Count,
}

// SAFETY: `own` is used by the worker's thread alone, as every function that touches it says; all else is
// immutable or made for all threads. `shared` outlives it, as it is a part of it.
unsafe impl Sync for Worker {}
// SAFETY: as above.
unsafe impl Send for Worker {}

/// What the workers of a runtime have in common.
pub(crate) struct Shared {
    pub(crate) workers: Box<[Worker]>,
    pub(crate) pools: Box<[PoolOf]>,
    /// Idle workers also take fibres of other pools.
    pub(crate) steals_across: bool,
    /// How often an idle worker looks before it sleeps.
    pub(crate) looks: u32,
    /// Addresses of a thread's variables that move along with a fibre are reported.
    pub(crate) checks: bool,
    /// Whoever records is told of each fibre.
    pub(crate) announces: bool,
    pub(crate) end: End,
    spawned_outside: Count,
    /// Somebody waits until all fibres have ended.
    awaited: AtomicBool,
    all_ended: (Mutex<()>, Condvar),
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The first of [`IDS`] numbers for fibres, which no other in the process has.
pub(crate) fn new_ids() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(IDS);
    NEXT.fetch_add(IDS, Order::Relaxed)
}

/// Wakes a fibre, from any thread.
pub(crate) fn wake(reference: &TaskRef) {
    let task = reference.task();
    let here = Worker::here().filter(|here| std::ptr::eq(here.shared.cast(), task.shared));
    let outsider = here.is_none().then(Outsider::enter);
    if !task.token.notify() {
        return;
    }
    let fibre = Runnable(std::ptr::NonNull::from(task));
    // SAFETY: it waits, so it has run on a worker; which lives, since this fibre has not ended.
    let home = Worker::of(unsafe { &*task.here.get() });
    match here {
        Some(here) if std::ptr::eq(here, home) => here.enqueue(fibre),
        Some(here) => here.send(fibre, home),
        None => {
            home.arrived.push(fibre);
            home.bell.ring();
        }
    }
    drop(outsider);
}

/// One more of what a worker alone counts and others read.
fn count_one(count: &Count) {
    count.store(count.load(Order::Relaxed) + 1, Order::Release);
}

impl Worker {
    pub(crate) fn new(
        (index, pool, workers): (usize, usize, usize),
        shared: *const Shared,
        bell: Bell,
        reactor: Option<Arc<Reactor>>,
    ) -> Self {
        Self {
            index,
            pool,
            shared,
            here: Here::new(),
            own: Own {
                ready: UnsafeCell::new(VecDeque::with_capacity(64)),
                left: Cell::new(TURN),
                turns: Cell::new(0),
                next_lane: Cell::new(0),
                looks: Cell::new(u32::MAX),
                sent_to: UnsafeCell::new(Vec::new()),
                stacks: UnsafeCell::new(Vec::with_capacity(KEPT_STACKS)),
                ring: UnsafeCell::new(Ring::default()),
                next_id: Cell::new(0),
                next_of_pool: Cell::new(index),
            },
            bell,
            reactor,
            stealable: Queue::new(),
            arrived: Queue::new(),
            lanes: (0..workers).map(|_| Lane::new()).collect(),
            spawned: Count::new(0),
            ended: Count::new(0),
        }
    }

    /// The worker that this is a part of.
    pub(crate) fn of(here: &Here) -> &Self {
        // SAFETY: `become_here` set it to the worker, of which it is a part.
        unsafe { &*here.worker.get().cast() }
    }

    /// The worker whose thread this is. The answer holds until the fibre leaves its stack.
    #[inline(always)]
    pub(crate) fn here<'a>() -> Option<&'a Self> {
        task::here().map(Self::of)
    }

    /// From now on this thread is the worker's.
    pub(crate) fn become_here(&self) {
        self.here.worker.set(std::ptr::from_ref(self).cast());
        here::set(std::ptr::from_ref(&self.here).cast());
    }

    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: a worker is a part of it.
        unsafe { &*self.shared }
    }

    /// Changes the fibres that are ready. By its thread, never within itself.
    #[inline]
    fn ready<T>(&self, change: impl FnOnce(&mut VecDeque<Runnable>) -> T) -> T {
        // SAFETY: this thread alone has it, and `change` calls nothing that comes here.
        change(unsafe { &mut *self.own.ready.get() })
    }

    /// Runs fibres until the runtime has ended. By its thread.
    pub(crate) fn work(&self) {
        self.become_here();
        while let Some(fibre) = self.next() {
            self.run(fibre);
        }
        if let Some(reactor) = &self.reactor {
            reactor.end();
        }
        here::set(std::ptr::null());
    }

    /// Runs each fibre that is ready once, or waits until one is. By its thread.
    pub(crate) fn round(&self) {
        // Others may always be ready: who was woken from elsewhere, or by its time, has its turn too.
        self.arrive();
        self.expire();
        let count = self.ready(|ready| ready.len());
        for _ in 0..count.max(1) {
            self.own.left.set(1);
            let Some(fibre) = self.next() else { return };
            self.run(fibre);
        }
        self.here.running.set(std::ptr::null());
    }

    /// Runs `call` on the thread's own stack, by a fibre that runs here; meanwhile none does.
    pub(crate) fn off_stack<T>(&self, call: impl FnOnce() -> T + Send) -> T {
        self.here.aside(|running| {
            // SAFETY: it runs, and calls this.
            unsafe { (*running.cast::<Task>()).off_stack(call) }
        })
    }

    /// The next fibre; none when the runtime has ended.
    #[inline(always)]
    fn next(&self) -> Option<Runnable> {
        let left = self.own.left.get();
        if left > 0 {
            self.own.left.set(left - 1);
            if let Some(fibre) = self.ready(VecDeque::pop_front) {
                return Some(fibre);
            }
        }
        self.look_around()
    }

    /// Runs one fibre until it leaves its stack, and does what it asked for.
    #[inline(always)]
    fn run(&self, fibre: Runnable) {
        let task = fibre.task();
        task.here.set(&self.here);
        self.here.running.set(std::ptr::from_ref(task).cast());
        // SAFETY: who has the right to run has the routine. It borrows what the caller of `make` keeps.
        let routine = unsafe { (*task.routine.get()).as_mut().unwrap_unchecked() };
        let result = routine.resume(self.here.cancelling.get());
        match result {
            CoroutineResult::Yield(YIELD) => self.enqueue(fibre),
            CoroutineResult::Yield(WAIT) => {
                if !task.token.settle() {
                    self.enqueue(fibre);
                }
            }
            CoroutineResult::Yield(action) => self.move_on(fibre, action),
            CoroutineResult::Return(()) => {
                // What is dropped at its end may ask which fibre it is in.
                self.here.running.set(std::ptr::null());
                self.end(fibre);
            }
        }
    }

    /// It goes on with the worker whose address `action` is.
    fn move_on(&self, fibre: Runnable, action: Action) {
        let target = std::ptr::with_exposed_provenance::<Self>(action & !VISIT);
        // SAFETY: `fibre::move_to` takes it from a worker of this runtime.
        let target = unsafe { &*target };
        // Who visits goes on with this very thread: what is its stays right.
        if self.shared().checks && action & VISIT == 0 {
            kept::report(fibre.task(), self.index, target.index);
        }
        self.send(fibre, target);
    }

    /// It has ended: its stack goes to the next, and who waits for it goes on.
    fn end(&self, fibre: Runnable) {
        let task = fibre.task();
        // SAFETY: as in `run`.
        let routine = unsafe { (*task.routine.get()).take() };
        let stack = routine.expect("it ran").into_stack();
        stack.belongs_to(std::ptr::null_mut(), std::ptr::null_mut());
        let is_announced = self.shared().announces;
        if is_announced {
            crate::announce::ended(stack.low_usable());
        }
        self.keep_stack(stack, !is_announced);
        if task.timer.get().is_some() {
            self.here.timers(|timers| timers.disarm(&task.timer));
        }
        task.token.end();
        let waiter = task.ending.end();
        drop(fibre.into_reference());
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        count_one(&self.ended);
    }

    /// Uses the ring for files. By its thread, never within itself.
    fn ring<T>(&self, change: impl FnOnce(&mut Ring) -> T) -> T {
        // SAFETY: this thread alone has it, and `change` calls nothing that comes here.
        change(unsafe { &mut *self.own.ring.get() })
    }

    /// Puts a call on a file into the ring, if there is one. By its thread.
    ///
    /// # Safety
    /// `entry` has the key of an [`Operation`], which lives, as what it points to does, until that has a result.
    pub(crate) unsafe fn submit(
        &self,
        entry: &io_uring::squeue::Entry,
    ) -> Option<std::io::Result<()>> {
        // SAFETY: the contract.
        self.ring(|ring| unsafe { ring.submit(self.reactor.as_deref(), entry) })
    }

    /// Wakes those whose calls on files have ended. By its thread.
    pub(crate) fn complete_files(&self) {
        let mut ended = Vec::new();
        self.ring(|ring| {
            ring.complete(|key, result| {
                // SAFETY: `submit` is given operations alone; each ends once.
                ended.push(unsafe { Operation::end(key, result) });
            });
        });
        // Not within: the last reference to a fibre may be dropped here, and its value with it.
        for task in ended {
            task.wake();
        }
    }

    fn keep_stack(&self, stack: Stack, again: bool) {
        // SAFETY: of this thread alone.
        let stacks = unsafe { &mut *self.own.stacks.get() };
        if again && stacks.len() < KEPT_STACKS && stack.size() == stack::DEFAULT {
            stacks.push(stack);
        } else {
            stack.give_back(again);
        }
    }

    /// A stack that this worker kept. By its thread.
    pub(crate) fn kept_stack(&self) -> Option<Stack> {
        // SAFETY: of this thread alone.
        unsafe { (*self.own.stacks.get()).pop() }
    }

    /// A number for a new fibre. By its thread.
    pub(crate) fn new_id(&self) -> u64 {
        let next = self.own.next_id.get();
        let next = if next.is_multiple_of(IDS) {
            new_ids()
        } else {
            next
        };
        self.own.next_id.set(next + 1);
        next
    }

    /// It is ready, here. By its thread.
    #[inline]
    pub(crate) fn enqueue(&self, fibre: Runnable) {
        let roams = fibre.task().roams;
        self.put(fibre, roams);
    }

    /// A new fibre, here. By its thread.
    pub(crate) fn enqueue_new(&self, fibre: Runnable) {
        count_one(&self.spawned);
        self.put(fibre, self.shared().may_steal_from(self));
    }

    /// Puts a fibre where idle workers take it too, or where they do not.
    #[inline]
    fn put(&self, fibre: Runnable, stealable: bool) {
        if stealable {
            self.stealable.push(fibre);
            self.shared().wake_thief(self);
        } else {
            self.ready(|ready| ready.push_back(fibre));
        }
    }

    /// A new fibre, in another pool. By its thread.
    pub(crate) fn enqueue_elsewhere(&self, fibre: Runnable, pool: usize) {
        count_one(&self.spawned);
        self.shared().begin_in(pool, Some(self), fibre);
    }

    /// Gives a fibre to another worker of this runtime. By the thread of this one.
    pub(crate) fn send(&self, fibre: Runnable, target: &Self) {
        if std::ptr::eq(self, target) {
            self.enqueue(fibre);
            return;
        }
        let hint = fibre.task().hint();
        let value = fibre.0.as_ptr().expose_provenance();
        // SAFETY: this thread alone writes this lane; a fibre is aligned to 64 bytes.
        if !unsafe { target.lanes[self.index].push(value, hint) } {
            target.arrived.push(fibre);
        }
        if std::thread::panicking() {
            // It does not come to `ring_bells` before it has unwound.
            target.bell.ring();
        } else {
            target.bell.ring_soon();
        }
        // SAFETY: of this thread alone.
        let sent_to = unsafe { &mut *self.own.sent_to.get() };
        if !sent_to.contains(&target.index) {
            sent_to.push(target.index);
        }
    }

    /// Those to whom something was sent are woken for certain.
    fn ring_bells(&self) {
        // SAFETY: of this thread alone.
        let sent_to = unsafe { &mut *self.own.sent_to.get() };
        if sent_to.is_empty() {
            return;
        }
        crate::atomic::fence(crate::atomic::Ordering::SeqCst);
        for index in sent_to.drain(..) {
            self.shared().workers[index].bell.ring_soon();
        }
    }

    /// Takes what came by the lanes; some of them if there is other work.
    fn take_lanes(&self, some: bool) {
        let count = self.lanes.len();
        let looked_at = if some { count.min(LANES_A_TURN) } else { count };
        let mut index = self.own.next_lane.get();
        for _ in 0..looked_at {
            let lane = &self.lanes[index];
            index = if index + 1 == count { 0 } else { index + 1 };
            // SAFETY: this thread alone reads its lanes.
            while let Some((value, hint)) = unsafe { lane.pop() } {
                let task = std::ptr::with_exposed_provenance_mut::<Task>(value);
                prefetch(value, hint);
                // SAFETY: a lane carries fibres, each with the right to run it.
                self.enqueue(Runnable(unsafe { std::ptr::NonNull::new_unchecked(task) }));
            }
        }
        self.own.next_lane.set(index);
    }

    /// Takes what came from threads that have no lane here.
    fn arrive(&self) {
        for fibre in self.arrived.take_all() {
            self.enqueue(fibre);
        }
    }

    /// Looks at nothing but the lanes for a while: what moves here is to go on at once. No pause between two
    /// looks, which takes as long as a line takes to come.
    fn watch_lanes(&self) {
        for _ in 0..LOOKS_AT_LANES {
            // SAFETY: this thread alone reads its lanes.
            if self.lanes.iter().any(|lane| unsafe { lane.is_filled() }) {
                return;
            }
        }
        std::hint::spin_loop();
    }

    /// What others brought, sockets, timers, and if there is nothing: what other workers have, or sleep.
    #[cold]
    #[inline(never)]
    fn look_around(&self) -> Option<Runnable> {
        // What is dropped from here on may ask which fibre it is in.
        self.here.running.set(std::ptr::null());
        self.here.held.set(Duration::ZERO);
        self.own.left.set(TURN);
        self.own.turns.set(self.own.turns.get().wrapping_add(1));
        fork::abort_if_forked();
        self.ring_bells();
        let mut looks = 0;
        loop {
            let idle = self.ready(|ready| ready.is_empty());
            self.take_lanes(!idle);
            self.arrive();
            if idle && looks % 64 == 1
                || looks == 0 && self.own.turns.get().is_multiple_of(TURNS_TO_EVENTS)
            {
                self.events();
            }
            // Before what is ready: who gives way for ever is to be told.
            if self.shared().end.has_begun() && self.has_ended() {
                return None;
            }
            if let Some(fibre) = self.stealable.pop() {
                return Some(fibre);
            }
            if let Some(fibre) = self.ready(VecDeque::pop_front) {
                return Some(fibre);
            }
            if let Some(fibre) = self.shared().steal(self) {
                return Some(fibre);
            }
            looks += 1;
            if looks < self.own.looks.get().min(self.shared().looks) {
                self.watch_lanes();
            } else {
                // Those whom sockets and timers woke may have gone to others since.
                self.ring_bells();
                self.sleep();
                looks = 0;
            }
        }
    }

    /// Wakes whom sockets and timers wake.
    fn events(&self) {
        if let Some(reactor) = &self.reactor {
            reactor.poll();
            self.complete_files();
        }
        self.expire();
    }

    /// Wakes whose time has come.
    fn expire(&self) {
        while let Some(task) = self.here.timers(|timers| timers.due()) {
            wake(&task);
        }
    }

    fn sleep(&self) {
        let shared = self.shared();
        let pool = &shared.pools[self.pool];
        pool.asleep.fetch_add(1, Order::SeqCst);
        let begun = Instant::now();
        let next = self.here.timers(|timers| timers.next());
        let timeout = next.map(|next| next.saturating_duration_since(begun));
        self.bell.sleep(timeout, || {
            shared.say_if_all_ended();
            self.has_work()
        });
        pool.asleep.fetch_sub(1, Order::Relaxed);
        let paid = self.has_work() && begun.elapsed() < SHORT_SLEEP;
        let looks = self.own.looks.get().min(shared.looks);
        self.own.looks.set(if paid {
            shared.looks
        } else {
            (looks / 2).max(LEAST_LOOKS)
        });
        // Sockets were looked at in the sleep.
        self.complete_files();
        self.expire();
    }

    /// Whether others sent it a fibre. By its thread.
    fn was_sent_something(&self) -> bool {
        // SAFETY: this thread alone reads its lanes.
        self.lanes.iter().any(|lane| unsafe { lane.is_filled() })
            || self.arrived.length() > 0
            || self.stealable.length() > 0
    }

    /// Whether there is something for this worker to do. By its thread.
    fn has_work(&self) -> bool {
        let shared = self.shared();
        self.was_sent_something()
            || shared.victims(self).any(|it| it.stealable.length() > 0)
            || shared.end.is_halting()
            || shared.end.is_cancelling() && shared.all_ended()
    }

    /// While the runtime ends: halts with the others, cancels; true when no fibre is left.
    fn has_ended(&self) -> bool {
        let shared = self.shared();
        if !self.here.cancelling.get() {
            let workers = shared.workers.len();
            let halts =
                shared
                    .end
                    .halt(workers, || self.was_sent_something(), || shared.wake_all());
            if !halts {
                return false;
            }
            self.here.cancelling.set(true);
        }
        if !shared.all_ended() {
            return false;
        }
        for worker in &shared.workers {
            worker.bell.ring();
        }
        true
    }
}

impl Shared {
    pub(crate) fn new(workers: Box<[Worker]>, pools: Box<[PoolOf]>) -> Self {
        Self {
            workers,
            pools,
            steals_across: false,
            looks: 0,
            checks: false,
            announces: false,
            end: End::default(),
            spawned_outside: Count::new(0),
            awaited: AtomicBool::new(false),
            all_ended: (Mutex::new(()), Condvar::new()),
        }
    }

    fn workers_of(&self, pool: usize) -> &[Worker] {
        let pool = &self.pools[pool];
        &self.workers[pool.first..pool.first + pool.count]
    }

    /// A worker of the pool, each in turn.
    pub(crate) fn any_of(&self, pool: usize, here: Option<&Worker>) -> &Worker {
        let workers = self.workers_of(pool);
        if let [only] = workers {
            return only;
        }
        let turn = match here {
            Some(here) => {
                let turn = here.own.next_of_pool.get();
                here.own.next_of_pool.set(turn.wrapping_add(1));
                turn
            }
            None => self.pools[pool].next.fetch_add(1, Order::Relaxed),
        };
        &workers[turn % workers.len()]
    }

    /// From whom a worker steals.
    fn victims(&self, thief: &Worker) -> impl Iterator<Item = &Worker> {
        let index = thief.index;
        let workers = if self.steals_across {
            &self.workers[..]
        } else {
            self.workers_of(thief.pool)
        };
        workers.iter().filter(move |it| it.index != index)
    }

    fn may_steal_from(&self, worker: &Worker) -> bool {
        self.pools[worker.pool].count > 1 || self.steals_across && self.workers.len() > 1
    }

    /// Half of what another worker has; the oldest of it is to be run now.
    fn steal(&self, thief: &Worker) -> Option<Runnable> {
        let mut taken = self
            .victims(thief)
            .map(|victim| victim.stealable.take_half())
            .find(|taken| !taken.is_empty())?;
        let first = taken.pop_front();
        thief.stealable.extend(taken);
        first
    }

    /// `worker` has something to steal: wakes one that could.
    fn wake_thief(&self, worker: &Worker) {
        if !self.may_steal_from(worker) {
            return;
        }
        crate::atomic::fence(crate::atomic::Ordering::SeqCst);
        let pools = if self.steals_across {
            &self.pools[..]
        } else {
            std::slice::from_ref(&self.pools[worker.pool])
        };
        if pools
            .iter()
            .all(|pool| pool.asleep.load(Order::Relaxed) == 0)
        {
            return;
        }
        if let Some(asleep) = self.victims(worker).find(|it| it.bell.is_asleep()) {
            asleep.bell.ring();
        }
    }

    /// A new fibre from a thread that is none of its workers, and was admitted.
    pub(crate) fn take_from_outside(&self, pool: usize, fibre: Runnable) {
        self.spawned_outside.fetch_add(1, Order::Release);
        self.begin_in(pool, None, fibre);
    }

    /// Gives a new fibre to a worker of the pool, and wakes it, or another that is idle.
    fn begin_in(&self, pool: usize, from: Option<&Worker>, fibre: Runnable) {
        let target = self.any_of(pool, from);
        target.stealable.push(fibre);
        target.bell.ring();
        self.wake_thief(target);
    }

    /// Whether every fibre that was begun has ended.
    pub(crate) fn all_ended(&self) -> bool {
        // What ended is read first: what was begun is never less.
        let ended: usize = self
            .workers
            .iter()
            .map(|it| it.ended.load(Order::Acquire))
            .sum();
        let spawned: usize = self
            .workers
            .iter()
            .map(|it| it.spawned.load(Order::Acquire))
            .sum();
        ended == spawned + self.spawned_outside.load(Order::Acquire)
    }

    fn say_if_all_ended(&self) {
        if self.awaited.load(Order::Relaxed) && self.all_ended() {
            drop(self.all_ended.0.lock());
            self.all_ended.1.notify_all();
        }
    }

    /// Waits until all fibres have ended. By a thread that is no worker.
    pub(crate) fn wait_for_all(&self) {
        let mut held = self.all_ended.0.lock().expect("nothing panics under it");
        self.awaited.store(true, Order::SeqCst);
        while !self.all_ended() {
            for worker in &self.workers {
                worker.bell.ring();
            }
            held = self
                .all_ended
                .1
                .wait(held)
                .expect("nothing panics under it");
        }
    }

    /// Begins the end of the runtime.
    pub(crate) fn begin_to_end(&self) {
        self.end.begin();
        for worker in &self.workers {
            worker.bell.ring();
        }
    }

    /// While all halt: hands those that wait to their workers, to be cancelled.
    fn wake_all(&self) {
        for owner in slabs().flat_map(|slab| &slab.owners) {
            let shared = owner.shared.load(Order::Acquire);
            if !std::ptr::eq(shared.cast_const().cast(), self) {
                continue;
            }
            // SAFETY: a fibre of this runtime, none of which ends now, and none is made. One that has not
            // begun is not waiting.
            let Some(task) = (unsafe { owner.task.load(Order::Acquire).cast::<Task>().as_ref() })
            else {
                continue;
            };
            if task.token.notify() {
                // SAFETY: it waited, so it has run on a worker of this runtime.
                let home = Worker::of(unsafe { &*task.here.get() });
                home.arrived.push(Runnable(std::ptr::NonNull::from(task)));
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Its fibres have ended, but a thread may still be on its way out of `wake`.
        outsider::wait_until_gone();
    }
}

// A panic of a fibre ends in its worker: what workers share is whole at every point where one could be thrown.
impl std::panic::RefUnwindSafe for Shared {}
impl std::panic::UnwindSafe for Shared {}
