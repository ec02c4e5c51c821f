//! Sockets and pipes: a fibre waits until one is ready, its worker does not. One epoll for each worker.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::atomic::AtomicU32 as Word;
use crate::bell::Park;
use crate::fork;
use crate::task::Waiter;
use crate::wait::{Stop, wait_here};

/// The key of the descriptor by which others end the worker's sleep.
const BELL: u64 = 0;
/// That of the ring for files.
const RING: u64 = 1;
/// Events taken at a time.
const EVENTS: usize = 256;

/// One way of a socket: to read or to write.
#[derive(Default)]
pub(crate) struct Way {
    /// How often it became ready.
    times: AtomicU32,
    waiters: Mutex<Waiters>,
}

/// Who waits: mostly one.
#[derive(Debug, Default)]
struct Waiters {
    first: Option<Waiter>,
    others: Vec<Waiter>,
}

// Not what is under the lock: whoever shows it may wait, or panic.
impl std::fmt::Debug for Way {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Way").finish_non_exhaustive()
    }
}

impl Way {
    fn say_ready(&self) {
        self.times.fetch_add(1, Ordering::Release);
        let waiters = std::mem::take(&mut *self.waiters());
        for waiter in waiters.first.into_iter().chain(waiters.others) {
            waiter.wake();
        }
    }

    fn waiters(&self) -> std::sync::MutexGuard<'_, Waiters> {
        self.waiters.lock().expect("nothing panics under it")
    }

    fn enter(&self, waiter: Waiter) {
        let mut waiters = self.waiters();
        match &waiters.first {
            // Woken by something else, it waits again.
            Some(first) if first.is(&waiter) => {}
            None if waiters.others.is_empty() => waiters.first = Some(waiter),
            _ if waiters.others.iter().any(|other| other.is(&waiter)) => {}
            _ => waiters.others.push(waiter),
        }
    }

    /// How often it became ready until now: to be read before the attempt that finds it is not.
    pub(crate) fn times(&self) -> u32 {
        self.times.load(Ordering::Acquire)
    }

    /// Waits until it became ready more often than `seen`; false if `deadline` came first.
    pub(crate) fn wait(&self, seen: u32, deadline: Option<Instant>) -> Result<bool, Stop> {
        let mut waited = Ok(());
        while waited.is_ok() && self.times() == seen {
            self.enter(Waiter::current());
            // What came between the look and the entry woke nobody.
            if self.times() == seen {
                waited = wait_here(deadline);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
        let is_ready = self.times() != seen;
        if !is_ready {
            self.forget(&Waiter::current());
        }
        waited.map(|()| is_ready)
    }

    /// Who waited does not any more.
    #[cold]
    fn forget(&self, waiter: &Waiter) {
        let mut waiters = self.waiters();
        waiters.first.take_if(|first| first.is(waiter));
        waiters.others.retain(|other| !other.is(waiter));
    }
}

/// A socket or pipe that is known to a reactor.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) read: Way,
    pub(crate) write: Way,
    /// A read that is not filled leaves nothing: so it is with TCP, and not with a terminal.
    is_stream: bool,
    /// One more than the times it had become ready when a read left nothing; 0 for none.
    drained: AtomicU64,
    /// The other side has closed: that is said once.
    closed: AtomicBool,
}

impl Source {
    /// Whether nothing came since a read left nothing: the next would find nothing.
    #[inline]
    pub(crate) fn is_drained(&self, seen: Option<u32>) -> bool {
        self.is_stream
            && seen.is_some_and(|seen| {
                self.drained.load(Ordering::Relaxed) == u64::from(seen) + 1
                    && !self.closed.load(Ordering::Relaxed)
            })
    }

    /// A read that began after it had become ready so often left nothing.
    #[inline]
    pub(crate) fn say_drained(&self, seen: Option<u32>) {
        if let Some(seen) = seen {
            self.drained.store(u64::from(seen) + 1, Ordering::Relaxed);
        }
    }
}

/// Whether `fd` is a TCP socket.
fn is_tcp(fd: RawFd) -> bool {
    let mut protocol: libc::c_int = 0;
    let mut length = size_of_val(&protocol) as libc::socklen_t;
    // SAFETY: the kernel fills the number, of the length that is told.
    let result = unsafe {
        let protocol = (&raw mut protocol).cast();
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PROTOCOL,
            protocol,
            &raw mut length,
        )
    };
    result == 0 && protocol == libc::IPPROTO_TCP
}

/// A source, as long as it is known.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) source: Arc<Source>,
    reactor: Arc<Reactor>,
    key: u64,
    fd: RawFd,
}

impl Registered {
    /// Whether a worker looks at it.
    pub(crate) fn is_watched(&self) -> bool {
        !self.reactor.over.load(Ordering::Relaxed)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.reactor.forget(self.fd, self.key);
    }
}

/// The epoll of a worker.
pub(crate) struct Reactor {
    epoll: OwnedFd,
    bell: OwnedFd,
    sources: Mutex<HashMap<u64, Arc<Source>>>,
    count: AtomicUsize,
    next: AtomicU64,
    /// Its worker has ended: nobody looks at it any more.
    over: AtomicBool,
}

/// The descriptor that a call returned.
pub(crate) fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reactor").finish_non_exhaustive()
    }
}

impl Reactor {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: calls that only make descriptors.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: as above.
        let bell = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let reactor = Self {
            epoll,
            bell,
            sources: Mutex::default(),
            count: AtomicUsize::new(0),
            next: AtomicU64::new(RING + 1),
            over: AtomicBool::new(false),
        };
        reactor.add(reactor.bell.as_raw_fd(), BELL, libc::EPOLLIN)?;
        Ok(reactor)
    }

    fn add(&self, fd: RawFd, key: u64, events: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32 | libc::EPOLLET as u32,
            u64: key,
        };
        // SAFETY: the event lives over the call.
        let result = unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd,
                &raw mut event,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Its worker ends.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        // Fibres of another runtime may wait for them: they look, and find that nobody else does.
        let all: Vec<_> = self.sources().values().cloned().collect();
        for source in all {
            source.read.say_ready();
            source.write.say_ready();
        }
    }

    /// Lets the worker's sleep end when a call on a file has.
    pub(crate) fn watch_ring(&self, fd: RawFd) -> io::Result<()> {
        self.add(fd, RING, libc::EPOLLIN)
    }

    /// Makes `fd` known. It must stay open while it is.
    pub(crate) fn register(self: &Arc<Self>, fd: RawFd, tcp: bool) -> io::Result<Registered> {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let source = Arc::new(Source {
            is_stream: tcp || is_tcp(fd),
            ..Source::default()
        });
        self.sources().insert(key, source.clone());
        let both = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP;
        if let Err(error) = self.add(fd, key, both) {
            self.sources().remove(&key);
            return Err(error);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(Registered {
            source,
            reactor: self.clone(),
            key,
            fd,
        })
    }

    fn sources(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Source>>> {
        self.sources.lock().expect("nothing panics under it")
    }

    fn forget(&self, fd: RawFd, key: u64) {
        if fork::is_forked() {
            return; // The epoll is the parent's, too.
        }
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: a call on descriptors alone.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
        self.sources().remove(&key);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes those whose sockets are ready. By the worker.
    pub(crate) fn poll(&self) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.wait(0);
        }
    }

    /// Waits for events, for `timeout` milliseconds at most (-1: for ever), and wakes for whom they are.
    fn wait(&self, timeout: libc::c_int) {
        let mut events = [const { libc::epoll_event { events: 0, u64: 0 } }; EVENTS];
        // SAFETY: the kernel fills as many as there is room for.
        let count = unsafe {
            let epoll = self.epoll.as_raw_fd();
            libc::epoll_wait(epoll, events.as_mut_ptr(), EVENTS as libc::c_int, timeout)
        };
        let Ok(count) = usize::try_from(count) else {
            return; // Interrupted by a signal: the worker looks around and comes back.
        };
        let mut ready: [Option<(Arc<Source>, u32)>; EVENTS] = [const { None }; EVENTS];
        {
            let sources = self.sources();
            for (event, ready) in events[..count].iter().zip(&mut ready) {
                let (key, events) = (event.u64, event.events);
                if key == BELL {
                    self.silence();
                } else if key != RING {
                    *ready = sources.get(&key).map(|source| (source.clone(), events));
                }
            }
        }
        let closed = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        for (source, events) in ready.into_iter().take(count).flatten() {
            if events & (libc::EPOLLRDHUP as u32 | closed) != 0 {
                source.closed.store(true, Ordering::Relaxed);
            }
            if events & ((libc::EPOLLIN | libc::EPOLLRDHUP) as u32 | closed) != 0 {
                source.read.say_ready();
            }
            if events & (libc::EPOLLOUT as u32 | closed) != 0 {
                source.write.say_ready();
            }
        }
    }

    fn silence(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes into a place of eight.
        unsafe { libc::read(self.bell.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

/// The reactor of a worker, as what it sleeps in.
#[derive(Debug)]
pub(crate) struct Epoll(pub(crate) Arc<Reactor>);

impl Park for Epoll {
    fn sleep(&self, _: &Word, timeout: Option<Duration>) {
        // Rounded up: a worker that wakes too early would look for its timers in vain.
        let timeout = timeout.map_or(-1, |timeout| {
            let up = timeout.as_micros().div_ceil(1000);
            libc::c_int::try_from(up).unwrap_or(libc::c_int::MAX)
        });
        self.0.wait(timeout);
    }

    fn wake(&self, _: &Word) {
        let one = 1u64;
        // SAFETY: eight bytes from a place of eight.
        unsafe { libc::write(self.0.bell.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}
