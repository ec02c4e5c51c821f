//! The order of accesses to what threads share, made while the program runs.
//!
//! Each thread has a clock, which counts its own accesses. A thread makes an access to a line that others use, an
//! atomic access or a system call when its clock is behind those of all others that run (ties by the order in
//! which threads were made): that is its *turn*, which lasts until it begins its next access. So what is observed is
//! what would happen if all threads made their accesses at the same rate, whatever the machine does, and what they read
//! is what that order gives. Logical time after Olszewski, Ansel, Amarasinghe, *Kendo* (ASPLOS 2009).
//!
//! What a thread has for itself ([`crate::own`]) it accesses at full speed, and gets ahead by that. Ownership after
//! Bergan and others, *CoreDet* (ASPLOS 2010): time has *epochs*, at whose end all threads wait for each other. Who wants a
//! line that another thread has waits for the end of the epoch, when it is known what the owner did in it, and takes it there,
//! before anybody goes on. Lines that nobody has touched are taken in turn.
//!
//! A thread that is in the kernel, and may wait there, holds nobody back; when it comes back its clock is set to that of the
//! last that runs. Whom another thread wakes is back at the waker's time, see [`super::sleep`].
//!
//! Callbacks come after the access. So a thread waits before an instruction that lately [met](met) a line of others, and
//! before every atomic one; where an instruction meets one for the first time only its place in the order is right, the
//! value that it read is of the moment.
//!
//! A thread that waits for long leaves the state in which QEMU takes it for running, so that others can be alone for a
//! moment; within such a moment nobody waits.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use super::process::ASLEEP;
use super::qemu::{self, current_cpu, executing, finds_alone};
use super::{group, process, shadow};
use crate::own::Line;
use crate::region::{CALLS, JOINT, RESTS, RUNS, Time, Turn, futex_wait};
use crate::words;

/// Accesses of an epoch, in quarters: few while threads take lines from each other, which costs them the rest of the epoch, more
/// the longer they do not. An epoch is as long as this part of the time in which nobody did: so much who wants a line may
/// fall behind whom it need not wait for.
pub(super) const SHORTEST: u64 = 4 << 6;
const LONGEST: u64 = 4 << 12;
const PART: u64 = 16;
/// Of one access.
pub(super) const ACCESS: u64 = 4;
/// How often a clock is looked at before its reader sleeps.
const SPINS: u32 = 2000;
/// A sleeper looks so often whether something went wrong.
const LOOK: Duration = Duration::from_millis(20);
/// After so many looks at a thread that does not get on it is not waited for any more.
const PATIENCE: u32 = 100;
/// After so many at one that sleeps in a call which should not wait: it may wait for a lock of QEMU's, whose holder has no CPU.
const CALL_PATIENCE: u32 = 10;

/// By virtual CPU: its thread's place in the order, and one.
static PLACES: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];
/// By virtual CPU: the word that is cleared when its thread ends.
static CLEARED: [AtomicU64; 1 << 16] = [const { AtomicU64::new(0) }; 1 << 16];
/// One past the highest of which anything is known.
static HIGH: AtomicU32 = AtomicU32::new(0);
/// The order of this process's threads, as long as it has no memory in common with others.
pub(super) static OWN: Time = Time::new();
/// The order is made.
static WANTED: AtomicBool = AtomicBool::new(false);
/// This QEMU describes accesses as that takes.
static CAN_BE_MADE: AtomicBool = AtomicBool::new(false);
/// There has been a second thread.
static ON: AtomicBool = AtomicBool::new(false);
/// Nobody waits any more, see [`translates`].
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// Some thread ends the process, or changes its order: all others stop at the end of their epoch.
static ENDING: AtomicBool = AtomicBool::new(false);
pub(super) static CHANGING: AtomicBool = AtomicBool::new(false);
/// By the number under which a thread has lines: its place in the order, and one.
static OWNERS: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];
/// By instruction: before how many of its next executions its thread waits for its turn.
static MET: [AtomicU8; 1 << 22] = [const { AtomicU8::new(0) }; 1 << 22];
/// After meeting a line of others.
const MEETS: u8 = 2;

/// Has the order made from the second thread on, if this QEMU `can` describe accesses as that takes.
pub(super) fn want(can: bool) {
    CAN_BE_MADE.store(can, Ordering::Relaxed);
    WANTED.store(true, Ordering::Relaxed);
}

/// Counts that the order is not what it should be.
fn is_forced() {
    if let Some(process) = process::current() {
        process
            .region
            .header()
            .forced
            .fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts that somebody's place in the order is the machine's.
pub(super) fn comes_by_the_kernel() {
    if let Some(process) = process::current() {
        let came_back = &process.region.header().came_back;
        came_back.fetch_add(1, Ordering::Relaxed);
    }
}

#[inline(always)]
pub(super) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// All threads in orders, of all processes.
pub(super) fn turns() -> &'static [Turn] {
    process::current().map_or(&[], |process| process.region.turns())
}

/// The threads of this process that are or were in the order.
pub(super) fn own_turns() -> impl Iterator<Item = &'static Turn> {
    let image = process::current().map(|process| process.image.load(Ordering::Relaxed));
    turns()
        .iter()
        .filter(move |turn| Some(turn.image.load(Ordering::Relaxed)) == image)
}

fn place_of(vcpu: u32) -> &'static AtomicU32 {
    &PLACES[vcpu as usize & (PLACES.len() - 1)]
}

fn cleared_word(vcpu: u32) -> &'static AtomicU64 {
    &CLEARED[vcpu as usize & (CLEARED.len() - 1)]
}

/// The thread of a virtual CPU, if it is in the order.
pub(super) fn of(vcpu: u32) -> Option<&'static Turn> {
    let place = place_of(vcpu).load(Ordering::Relaxed);
    turns().get((place as usize).checked_sub(1)?)
}

/// The thread that has lines under this number, if it is in the order.
fn owner(number: u16) -> Option<&'static Turn> {
    let place = OWNERS[usize::from(number)].load(Ordering::Relaxed);
    let turn = turns().get((place as usize).checked_sub(1)?)?;
    (turn.owner.load(Ordering::Relaxed) == u32::from(number)).then_some(turn)
}

/// The thread of a virtual CPU, which is this one, has lines under this number from now on.
pub(super) fn owns(vcpu: u32, number: u16) {
    let Some(me) = of(vcpu) else { return };
    let place = place_of(vcpu).load(Ordering::Relaxed);
    OWNERS[usize::from(number)].store(place, Ordering::Relaxed);
    me.owner.store(number.into(), Ordering::Relaxed);
    me.cpu.store(current_cpu(), Ordering::Relaxed);
    me.tid.store(process::ids().1 as u32, Ordering::Relaxed);
}

/// The order is made from here on: there will be a second thread, or another process with the same memory. The first thread is
/// `vcpu`, with this clock. Only while it is in a system call.
pub(super) fn begin(vcpu: u32, group: u32, clock: u64) {
    if is_on() || !WANTED.load(Ordering::Relaxed) {
        return;
    }
    if !CAN_BE_MADE.load(Ordering::Relaxed) || !finds_alone() {
        WANTED.store(false, Ordering::Relaxed);
        is_forced();
        return;
    }
    if group != JOINT {
        OWN.epoch_end.store(clock + SHORTEST, Ordering::SeqCst);
    }
    if enter(vcpu, group, clock).is_some() {
        ON.store(true, Ordering::Relaxed);
    }
}

/// The threads of a group that run.
pub(super) fn in_group(group: u32) -> impl Iterator<Item = &'static Turn> {
    turns().iter().filter(move |turn| {
        matches!(turn.state.load(Ordering::SeqCst), RUNS | CALLS)
            && turn.group.load(Ordering::SeqCst) == group
    })
}

impl Turn {
    /// Whether this thread has all others stand still.
    fn is_alone(&self) -> bool {
        qemu::is_alone(self.cpu.load(Ordering::Relaxed))
    }

    fn key(&self) -> (u64, u64) {
        (
            self.clock.load(Ordering::Acquire),
            self.serial.load(Ordering::Relaxed),
        )
    }

    /// What it has in common with those that it waits for.
    fn time(&self) -> &'static Time {
        match process::current() {
            Some(process) if self.group.load(Ordering::Relaxed) == JOINT => {
                &process.region.header().joint
            }
            _ => &OWN,
        }
    }

    fn set_state(&self, state: u32) {
        self.state.store(state, Ordering::SeqCst);
        if state == RUNS {
            self.time().version.fetch_add(1, Ordering::SeqCst);
            // Who knew how far all others were did not know of this one.
            let clock = self.clock.load(Ordering::SeqCst);
            self.others().for_each(|other| {
                other.limit.fetch_min(clock, Ordering::SeqCst);
            });
        } else {
            self.tell();
        }
    }

    /// Sets when the thread looks up again.
    fn set_until(&self) {
        loop {
            let wake_at = self.wake_at.load(Ordering::SeqCst);
            self.until.store(
                wake_at.min(self.epoch_end.load(Ordering::Relaxed)),
                Ordering::SeqCst,
            );
            fence(Ordering::SeqCst);
            if self.wake_at.load(Ordering::SeqCst) == wake_at {
                return;
            }
        }
    }

    /// Comes in at a clock.
    pub(super) fn set_clock(&self, clock: u64) {
        let end = self.time().epoch_end.load(Ordering::SeqCst);
        self.epoch_end.store(end, Ordering::Relaxed);
        self.wake_at.store(u64::MAX, Ordering::SeqCst);
        self.clock.store(clock, Ordering::SeqCst);
        self.limit.store(0, Ordering::Relaxed);
        self.set_until();
    }

    /// The thread has come to this clock; what it did before is done.
    #[inline(always)]
    pub(super) fn comes_to(&self, clock: u64) -> bool {
        self.clock.store(clock, Ordering::Release);
        clock >= self.until.load(Ordering::Relaxed)
    }

    /// It may be that somebody waits for that, or that an epoch ends. The clock to go on with.
    #[cold]
    pub(super) fn looks_up(&self) -> u64 {
        if self.requests.swap(0, Ordering::SeqCst) != 0 {
            // Its clock may be where it was.
            self.tell();
        }
        self.rejoins();
        self.has_come_to(true)
    }

    /// Tells who waits for the clock that this thread has come to, and ends the epochs up to it; the clock to go on with.
    fn has_come_to(&self, executes: bool) -> u64 {
        self.tells_who_waits();
        self.ends_epochs(executes);
        self.set_until();
        self.clock.load(Ordering::Relaxed)
    }

    /// Wakes who waits for a clock that this thread has come to. Who began to while it came there was perhaps not seen then.
    fn tells_who_waits(&self) {
        fence(Ordering::SeqCst);
        if self.clock.load(Ordering::Relaxed) >= self.wake_at.load(Ordering::SeqCst) {
            self.wake_at.store(u64::MAX, Ordering::SeqCst);
            self.tell();
        }
    }

    /// Waits for all others at the end of each epoch up to its clock.
    fn ends_epochs(&self, executes: bool) {
        loop {
            let end = self.epoch_end.load(Ordering::Relaxed);
            if self.clock.load(Ordering::Relaxed) < end {
                return;
            }
            self.waits_for_end(end, executes);
            if self.stops_if_asked(executes) {
                continue;
            }
            // The first to go on sets the length of the next: all that was asked for in this one has been.
            let time = self.time();
            let quiet = end.saturating_sub(time.last_request.load(Ordering::SeqCst));
            let next = end + (quiet / PART).clamp(SHORTEST, LONGEST);
            let before =
                time.epoch_end
                    .compare_exchange(end, next, Ordering::SeqCst, Ordering::SeqCst);
            self.epoch_end
                .store(before.err().unwrap_or(next), Ordering::Relaxed);
        }
    }

    /// Waits for all others at the end of an epoch, and for those that take lines there.
    pub(super) fn waits_for_end(&self, end: u64, executes: bool) {
        self.waits(executes, || {
            self.before(end, |other| other.requests.load(Ordering::Acquire) != 0)
        });
    }

    /// Whom to wait for until all others have come to the end of an epoch, and those of them that take lines there, if
    /// `first`, have done so.
    fn before(&self, end: u64, first: impl Fn(&Turn) -> bool) -> Option<(&'static Turn, u64)> {
        // The last of them in turn comes last.
        let mut last = None;
        for other in self.others() {
            let clock = other.clock.load(Ordering::Acquire);
            let serial = other.serial.load(Ordering::Relaxed);
            let until = if clock < end {
                end
            } else if clock == end && first(other) {
                end + 1
            } else {
                continue;
            };
            if last.is_none_or(|(before, _, _)| serial > before) {
                last = Some((serial, other, until));
            }
        }
        last.map(|(_, other, until)| (other, until))
    }

    fn others(&self) -> impl Iterator<Item = &'static Turn> {
        let (me, group) = (ptr::from_ref(self), self.group.load(Ordering::SeqCst));
        in_group(group).filter(move |&other| !ptr::eq(other, me))
    }

    /// Waits until all others that run are ahead. `executes`: in the middle of a block.
    #[inline]
    pub(super) fn takes_turn(&self, executes: bool) {
        // A clock that is equal to the limit may be behind by the serial.
        if self.clock.load(Ordering::Relaxed) < self.limit.load(Ordering::Relaxed)
            && self.state.load(Ordering::Relaxed) == RUNS
        {
            return;
        }
        self.waits_for_turn(executes);
    }

    #[cold]
    fn waits_for_turn(&self, executes: bool) {
        // What it asked for is its own until it looks up, and others wait for that.
        if self.requests.load(Ordering::Relaxed) != 0 {
            return;
        }
        self.rejoins();
        let me = self.key();
        self.waits(executes, || {
            // For the one just before: who is behind has to come past him, too, and only one is woken at a time.
            let mut least = u64::MAX;
            let mut last = None;
            for other in self.others() {
                let key = other.key();
                least = least.min(key.0);
                if key < me && last.is_none_or(|(before, _)| key > before) {
                    last = Some((key, other));
                }
            }
            if let Some((key, other)) = last {
                let from = if key.1 < me.1 { me.0 + 1 } else { me.0 };
                return Some((other, from));
            }
            self.limit.store(least, Ordering::Relaxed);
            None
        });
    }

    /// Waits while `blocker` names somebody, and the clock that he has to come to.
    fn waits(&self, executes: bool, blocker: impl Fn() -> Option<(&'static Turn, u64)>) {
        if self.is_alone() || GIVEN_UP.load(Ordering::Relaxed) {
            return;
        }
        let mut looks = 0;
        let mut last = (ptr::null(), 0);
        loop {
            let version = self.time().version.load(Ordering::SeqCst);
            let found = blocker();
            fence(Ordering::SeqCst);
            if self.time().version.load(Ordering::SeqCst) != version {
                continue;
            }
            let Some((other, clock)) = found else { return };
            let detached = process::current().is_none_or(process::Process::detached);
            if detached || GIVEN_UP.load(Ordering::SeqCst) {
                return;
            }
            let at = (ptr::from_ref(other), other.clock.load(Ordering::Relaxed));
            if at != last {
                (last, looks) = (at, 0);
            }
            if self.waits_for(other, clock, executes) {
                looks = 0;
                continue;
            }
            looks += 1;
            // In a call of which that was not expected, and not for want of a CPU.
            let calls = other.state.load(Ordering::SeqCst) == CALLS;
            if looks > CALL_PATIENCE && other.is_gone() {
                other.leaves();
            } else if looks > PATIENCE || calls && looks > CALL_PATIENCE && !other.is_runnable() {
                let state = if calls { CALLS } else { RUNS };
                let gone =
                    other
                        .state
                        .compare_exchange(state, RESTS, Ordering::SeqCst, Ordering::SeqCst);
                if gone.is_ok() {
                    is_forced();
                    other.tell();
                }
            }
        }
    }

    /// Waits for another to come to a clock, or to change otherwise; `false` if nothing came for long.
    fn waits_for(&self, other: &'static Turn, clock: u64, executes: bool) -> bool {
        let news = other.news.load(Ordering::SeqCst);
        let came = || {
            other.clock.load(Ordering::Acquire) >= clock
                || other.news.load(Ordering::SeqCst) != news
        };
        self.tells_who_waits();
        let cpu = this_cpu();
        self.on.store(cpu, Ordering::Relaxed);
        let runs =
            other.on.load(Ordering::Relaxed) != cpu && other.dozes.load(Ordering::Relaxed) == 0;
        if runs {
            for _ in 0..SPINS {
                if came() {
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        other.wake_at.fetch_min(clock, Ordering::SeqCst);
        other.until.fetch_min(clock, Ordering::SeqCst);
        other.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut woken = came();
        if !woken {
            let sleeps = || {
                self.dozes.store(1, Ordering::Relaxed);
                futex_wait(&other.news, news, LOOK);
                self.dozes.store(0, Ordering::Relaxed);
            };
            self.stands_still(executes, sleeps);
            woken = came();
        }
        other.sleepers.fetch_sub(1, Ordering::SeqCst);
        self.on.store(this_cpu(), Ordering::Relaxed);
        woken
    }

    /// Whether the machine may run it, as the kernel says.
    fn is_runnable(&self) -> bool {
        let status = std::fs::read_to_string(self.file_in_kernel("stat"));
        status.is_ok_and(|text| {
            text.rsplit_once(") ")
                .is_some_and(|(_, it)| it.starts_with('R'))
        })
    }

    /// A file of `/proc` on the thread.
    pub(super) fn file_in_kernel(&self, name: &str) -> String {
        let (pid, tid) = (&self.pid, &self.tid);
        let [pid, tid] = [pid, tid].map(|id| id.load(Ordering::Relaxed));
        format!("/proc/{pid}/task/{tid}/{name}")
    }

    /// Does something for which QEMU does not take this thread for running, which it does if it `executes`.
    fn stands_still(&self, executes: bool, what: impl FnOnce()) {
        let cpu = self.cpu.load(Ordering::Relaxed);
        let Some(executing) = executing().filter(|_| executes && !cpu.is_null()) else {
            return what();
        };
        ASLEEP.fetch_add(1, Ordering::SeqCst);
        qemu::stands_still(&executing, cpu, what);
        ASLEEP.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits for the end of the epoch, when a line may be taken; the clock then. Until the thread next
    /// [looks up](Turn::looks_up) nobody goes on from there.
    pub(super) fn requests(&self) -> u64 {
        let end = self.epoch_end.load(Ordering::Relaxed);
        let clock = self.clock.load(Ordering::Relaxed);
        if self.is_alone() || clock >= end {
            return clock;
        }
        self.time().last_request.fetch_max(end, Ordering::SeqCst);
        self.asked_at.store(clock, Ordering::Release);
        let before = self.asked_until.load(Ordering::Relaxed);
        self.asked_before.store(before, Ordering::Release);
        self.asked_until.store(end, Ordering::Release);
        self.requests.store(1, Ordering::SeqCst);
        self.clock.store(end, Ordering::SeqCst);
        self.tell();
        let serial = self.serial.load(Ordering::Relaxed);
        self.waits(true, || {
            self.before(end, |other| {
                other.requests.load(Ordering::Acquire) != 0
                    && other.serial.load(Ordering::Relaxed) < serial
            })
        });
        self.stops_if_asked(true);
        self.until.store(0, Ordering::SeqCst);
        end
    }

    /// At its turn: whether no other thread waits for a line, or did so within an epoch of the shortest. It could not come to any other
    /// in that time. The same in every run, though others may be ahead, and even have asked for another line there.
    pub(super) fn others_had_time(&self) -> bool {
        let clock = self.clock.load(Ordering::Relaxed);
        self.others().all(|other| {
            let mut until = other.asked_until.load(Ordering::Acquire);
            if until > clock {
                if other.asked_at.load(Ordering::Acquire) < clock {
                    return false;
                }
                until = other.asked_before.load(Ordering::Acquire);
            }
            clock >= until + SHORTEST
        })
    }

    /// At which clock it asked for a line, if it has just waited for that.
    pub(super) fn asked(&self) -> Option<u64> {
        let waited = self.asked_until.load(Ordering::Relaxed) == self.clock.load(Ordering::Relaxed);
        waited.then(|| self.asked_at.load(Ordering::Relaxed))
    }

    /// Ends the process, at this thread's turn: waits until all that run have come to the end of the epoch, whence none of its threads
    /// goes on.
    pub(super) fn ends_process(&self) {
        let end = self.epoch_end.load(Ordering::Relaxed);
        ENDING.store(true, Ordering::SeqCst);
        self.clock.store(end, Ordering::SeqCst);
        self.tell();
        self.waits(false, || self.before(end, |_| false));
        own_turns().for_each(Turn::leaves);
    }

    /// At the end of an epoch in which another ends the process or changes its order: waits for that. Whether the clock is another
    /// now.
    fn stops_if_asked(&self, executes: bool) -> bool {
        let is_asked = || ENDING.load(Ordering::SeqCst) || CHANGING.load(Ordering::SeqCst);
        if !is_asked() {
            return false;
        }
        self.requests.store(0, Ordering::SeqCst);
        self.tell();
        self.stands_still(executes, || {
            let is_on = || process::current().is_some_and(|process| !process.detached());
            while is_asked() && is_on() && !GIVEN_UP.load(Ordering::SeqCst) {
                futex_wait(&self.news, self.news.load(Ordering::SeqCst), LOOK);
            }
        });
        !ENDING.load(Ordering::SeqCst)
    }

    /// If it was taken for resting and is not.
    fn rejoins(&self) {
        if self.state.load(Ordering::Relaxed) != RUNS {
            self.comes_back();
        }
    }

    /// The thread comes back from a rest, or ends a call.
    fn comes_back(&self) {
        let state = self
            .state
            .compare_exchange(CALLS, RUNS, Ordering::SeqCst, Ordering::SeqCst);
        if matches!(state, Ok(_) | Err(RUNS)) {
            return;
        }
        let mut least;
        loop {
            while CHANGING.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_micros(50));
            }
            group::adopts(self);
            let group = self.group.load(Ordering::SeqCst);
            least = self
                .others()
                .map(|other| other.clock.load(Ordering::Acquire))
                .min();
            let clock = self.clock.load(Ordering::Relaxed);
            self.set_clock(clock.max(least.unwrap_or(0)));
            self.set_state(RUNS);
            // Who changes the order may not have seen that it is back.
            if !CHANGING.load(Ordering::SeqCst) && group::group() == group {
                break;
            }
            self.set_state(RESTS);
        }
        if least.is_some() {
            comes_by_the_kernel();
        }
    }

    /// A system call begins, at the thread's turn; one that `waits` for others, or one that does not.
    pub(super) fn calls(&self, waits: bool) {
        self.set_state(if waits { RESTS } else { CALLS });
    }

    /// It is over; the clock to go on with.
    pub(super) fn called(&self) -> u64 {
        self.comes_back();
        // It may have made or woken others.
        self.limit.store(0, Ordering::Relaxed);
        let clock = self.clock.load(Ordering::Relaxed) + ACCESS;
        match self.comes_to(clock) {
            true => self.has_come_to(false),
            false => clock,
        }
    }

    /// Another thread, at its turn, lets this one go on, at its time.
    pub(super) fn is_woken_at(&self, clock: u64) {
        group::adopts(self);
        let clock = self.clock.load(Ordering::Relaxed).max(clock + ACCESS);
        self.set_clock(clock);
        self.set_state(RUNS);
    }

    /// It may wait for others.
    pub(super) fn rests(&self) {
        self.set_state(RESTS);
    }
}

/// A thread comes into the order of a group; `None` if there is no place for it.
pub(super) fn enter(vcpu: u32, group: u32, clock: u64) -> Option<&'static Turn> {
    let turn = make(group, clock);
    if let Some(turn) = turn {
        has_place(vcpu, turn);
    }
    turn
}

/// A thread that begins at a clock; `None` if there is no place for it.
pub(super) fn make(group: u32, clock: u64) -> Option<&'static Turn> {
    let process = process::current()?;
    let image = process.image.load(Ordering::Relaxed);
    let Some(turn) = process.region.claim_turn(image) else {
        is_forced();
        return None;
    };
    turn.group.store(group, Ordering::Relaxed);
    let before = turn.time().serial.fetch_add(1, Ordering::SeqCst);
    turn.serial.store(before + 1, Ordering::Relaxed);
    turn.set_clock(clock);
    turn.set_state(RUNS);
    Some(turn)
}

/// That is the thread of a virtual CPU.
pub(super) fn has_place(vcpu: u32, turn: &'static Turn) {
    let first: *const Turn = turns().as_ptr();
    // SAFETY: both are of the same array.
    let place = unsafe { ptr::from_ref(turn).offset_from(first) } as u32;
    place_of(vcpu).store(place + 1, Ordering::Relaxed);
    HIGH.fetch_max(vcpu + 1, Ordering::SeqCst);
}

/// The word at an address is cleared when the thread of a virtual CPU ends.
pub(super) fn clears(vcpu: u32, address: u64) {
    cleared_word(vcpu).store(address, Ordering::Relaxed);
}

/// The word that is cleared when the thread of a virtual CPU ends; 0 if there is none.
pub(super) fn cleared_by(vcpu: u32) -> u64 {
    cleared_word(vcpu).load(Ordering::Relaxed)
}

/// The thread of a virtual CPU has ended, or was never made.
pub(super) fn ends(vcpu: u32) {
    let image = process::current().map(|process| process.image.load(Ordering::Relaxed));
    // Else it was given back, when the process began to end.
    let is_mine = |turn: &&Turn| Some(turn.image.load(Ordering::Relaxed)) == image;
    if let Some(turn) = of(vcpu).filter(is_mine) {
        place_of(vcpu).store(0, Ordering::Relaxed);
        turn.leaves();
    }
}

/// Whether the word at this address tells the end of a thread, which lives if this is `Some(true)`.
pub(super) fn is_cleared_by_an_end(address: u64) -> Option<bool> {
    let high = HIGH.load(Ordering::SeqCst) as usize;
    let of_it = |&vcpu: &usize| CLEARED[vcpu].load(Ordering::Relaxed) == address;
    let lives = |vcpu: usize| PLACES[vcpu].load(Ordering::Relaxed) != 0;
    (0..high.min(CLEARED.len())).filter(of_it).map(lives).max()
}

/// In a child of fork: it has one thread, and that no place so far.
pub(super) fn forget() {
    let high = HIGH.swap(0, Ordering::Relaxed) as usize;
    for vcpu in 0..high.min(PLACES.len()) {
        PLACES[vcpu].store(0, Ordering::Relaxed);
        CLEARED[vcpu].store(0, Ordering::Relaxed);
    }
    ASLEEP.store(0, Ordering::Relaxed);
    CHANGING.store(false, Ordering::Relaxed);
    ENDING.store(false, Ordering::Relaxed);
}

/// A block is translated. QEMU throws all blocks away when it has no room for more, also one in whose middle a thread sleeps
/// here: before that happens the order is given up.
pub(super) fn translates() {
    if !is_on() || GIVEN_UP.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: QEMU's functions, which read numbers.
    let is_full = executing()
        .is_none_or(|qemu| unsafe { (qemu.code_bytes)() > (qemu.code_capacity)() / 8 * 7 });
    if is_full {
        GIVEN_UP.store(true, Ordering::SeqCst);
        is_forced();
    }
}

/// Whether a line that a thread has under this number must be asked for: it may be at work on it.
pub(super) fn is_at_work(number: u16) -> bool {
    owner(number).is_some_and(|turn| matches!(turn.state.load(Ordering::SeqCst), RUNS | CALLS))
}

/// Where the order has the line of an address: of one all accesses to which are told, beyond the guest's memory.
pub(super) fn place(address: u64) -> u64 {
    match shadow::find(address).is_some_and(Line::is_told) {
        true => beyond(address),
        false => address,
    }
}

/// Beyond the guest's memory.
const BEYOND: u64 = 1 << (words::ADDRESS_BITS - 1);

pub(super) fn beyond(address: u64) -> u64 {
    address | BEYOND
}

/// The address whose [`place`] that is.
pub(super) fn address(place: u64) -> u64 {
    place & !BEYOND
}

/// Whether an instruction lately met a line of others, so that its thread waits for its turn before it. It counts.
#[inline(always)]
pub(super) fn meets(instruction: u64) -> bool {
    let met = &MET[instruction as usize & (MET.len() - 1)];
    match met.load(Ordering::Relaxed) {
        0 => false,
        more => {
            met.store(more - 1, Ordering::Relaxed);
            true
        }
    }
}

/// An instruction met a line of others.
pub(super) fn met(instruction: u64) {
    MET[instruction as usize & (MET.len() - 1)].store(MEETS, Ordering::Relaxed);
}

fn this_cpu() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::sched_getcpu() as u32 }
}
