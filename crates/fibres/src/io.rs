//! Descriptors that are ready or not: sockets and pipes.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{net, path};

use crate::reactor::{Registered, Source, Way};
use crate::task::current_task;
use crate::wait::{Stop, after, thrown};
use crate::worker::Worker;

/// A socket, or an end of a pipe, whose calls block the fibre and not its worker. On a thread that is no
/// worker, and in a runtime [without events](crate::Builder::without_events), they block the thread.
///
/// It becomes known to the epoll of the worker on which a call first finds it not ready; the fibre that waits
/// is woken wherever it is. Where that worker's runtime has ended, calls block the thread.
#[derive(Debug)]
pub struct Io<T: AsRawFd> {
    // Dropped first: it must be unknown before it is closed.
    known: OnceLock<Registered>,
    inner: T,
    /// It is known to be TCP without a question to the kernel.
    is_tcp: bool,
    read_timeout: Timeout,
    write_timeout: Timeout,
}

/// How long a call waits at most: in nanoseconds, 0 for any time.
#[derive(Debug, Default)]
struct Timeout(AtomicU64);

impl Timeout {
    fn set(&self, time: Option<Duration>) {
        let nanoseconds = time.map_or(0, |time| {
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
        });
        self.0.store(nanoseconds, Ordering::Relaxed);
    }

    /// Until when a call that begins to wait now may.
    fn deadline(&self) -> Option<Instant> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            nanoseconds => Instant::now().checked_add(Duration::from_nanos(nanoseconds)),
        }
    }
}

/// For what a descriptor is to be ready.
#[derive(Clone, Copy, Debug)]
pub enum Direction {
    /// To read, or to accept.
    Read,
    /// To write, or to be connected.
    Write,
}

impl Direction {
    fn of(self, source: &Source) -> &Way {
        match self {
            Self::Read => &source.read,
            Self::Write => &source.write,
        }
    }

    fn event(self) -> i16 {
        match self {
            Self::Read => libc::POLLIN,
            Self::Write => libc::POLLOUT,
        }
    }
}

/// Lets calls on `fd` return at once.
fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: calls on a descriptor and numbers alone.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

impl<T: AsRawFd> Io<T> {
    /// Takes over `inner`, and sets it to return at once where it is not ready.
    ///
    /// # Errors
    /// If the kernel refuses that.
    pub fn new(inner: T) -> io::Result<Self> {
        set_nonblocking(inner.as_raw_fd())?;
        Ok(Self::around(inner, false))
    }

    /// Around what returns at once already.
    fn around(inner: T, is_tcp: bool) -> Self {
        Self {
            known: OnceLock::new(),
            inner,
            is_tcp,
            read_timeout: Timeout::default(),
            write_timeout: Timeout::default(),
        }
    }

    /// Lets calls that read, or accept, fail with [`io::ErrorKind::TimedOut`] after they have waited for so
    /// long; none: they wait for any time.
    pub fn set_read_timeout(&self, time: Option<Duration>) {
        self.read_timeout.set(time);
    }

    /// The same of calls that write.
    pub fn set_write_timeout(&self, time: Option<Duration>) {
        self.write_timeout.set(time);
    }

    /// What it is around. It returns at once where it is not ready.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// The epoll's view of it, where there is one.
    fn known(&self) -> io::Result<Option<&Registered>> {
        if let Some(known) = self.known.get() {
            return Ok(Some(known));
        }
        let Some(reactor) =
            current_task().and_then(|task| Worker::of(task.here()).reactor.as_ref())
        else {
            return Ok(None);
        };
        let fresh = reactor.register(self.inner.as_raw_fd(), self.is_tcp)?;
        // Another fibre may have been faster; then its view stays.
        Ok(Some(self.known.get_or_init(|| fresh)))
    }

    /// Reads by `attempt`, which is called until it does not say that it would block; the fibre waits
    /// between. So it may read in another place, as in a [`visit`](crate::visit), and still wait here.
    ///
    /// # Errors
    /// Those of `attempt`; [`io::ErrorKind::TimedOut`].
    #[inline]
    pub fn read_by(
        &self,
        buffer: &mut [u8],
        mut attempt: impl FnMut(&T, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let known = self.known.get().filter(|it| it.is_watched());
            let known = known.map(|it| &it.source);
            let seen = known.map(|it| it.read.times());
            let is_drained = known.is_some_and(|it| it.is_drained(seen));
            let result = if is_drained {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                attempt(&self.inner, buffer)
            };
            if let (Some(known), Ok(count)) = (known, &result)
                && *count > 0
                && *count < buffer.len()
            {
                known.say_drained(seen);
            }
            if let Some(result) = thrown(self.over(result, Direction::Read, seen, None))? {
                return Ok(result);
            }
        }
    }

    /// Writes by `attempt`, as [`Io::read_by`] reads.
    ///
    /// # Errors
    /// Those of `attempt`; [`io::ErrorKind::TimedOut`].
    #[inline]
    pub fn write_by<R>(&self, attempt: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.retry(Direction::Write, None, attempt)
    }

    /// Calls `attempt` until it does not say that it would block.
    #[inline]
    fn retry<R>(
        &self,
        direction: Direction,
        deadline: Option<Instant>,
        attempt: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        thrown(self.retry_or_stop(direction, deadline, attempt))
    }

    /// The same, and says if the caller is to end.
    #[inline]
    pub(crate) fn retry_or_stop<R>(
        &self,
        direction: Direction,
        deadline: Option<Instant>,
        mut attempt: impl FnMut(&T) -> io::Result<R>,
    ) -> Result<io::Result<R>, Stop> {
        loop {
            let seen = self.known.get().map(|it| direction.of(&it.source).times());
            match self.over(attempt(&self.inner), direction, seen, deadline)? {
                Ok(None) => {}
                Ok(Some(result)) => return Ok(Ok(result)),
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// What an attempt came to; none, after the wait, if it is to be made again.
    #[inline]
    fn over<R>(
        &self,
        result: io::Result<R>,
        direction: Direction,
        seen: Option<u32>,
        deadline: Option<Instant>,
    ) -> Result<io::Result<Option<R>>, Stop> {
        Ok(match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let deadline = deadline.or_else(|| match direction {
                    Direction::Read => self.read_timeout.deadline(),
                    Direction::Write => self.write_timeout.deadline(),
                });
                match self.wait(direction, seen, deadline)? {
                    Ok(true) => Ok(None),
                    Ok(false) => Err(io::ErrorKind::TimedOut.into()),
                    Err(error) => Err(error),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            result => result.map(Some),
        })
    }

    #[cold]
    fn wait(
        &self,
        direction: Direction,
        seen: Option<u32>,
        deadline: Option<Instant>,
    ) -> Result<io::Result<bool>, Stop> {
        if current_task().is_some() {
            match self.known() {
                Ok(Some(known)) if known.is_watched() => {
                    // What is ready as it becomes known is said at once, so the first time counts
                    // from 0.
                    let way = direction.of(&known.source);
                    return way.wait(seen.unwrap_or(0), deadline).map(Ok);
                }
                Ok(_) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        let timeout = deadline.map_or(-1, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            libc::c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX)
        });
        let mut poll = libc::pollfd {
            fd: self.inner.as_raw_fd(),
            events: direction.event(),
            revents: 0,
        };
        // SAFETY: one entry, which lives over the call.
        Ok(Ok(unsafe { libc::poll(&raw mut poll, 1, timeout) } != 0))
    }

    /// Waits until there is something to read, or the other side has closed; false if `time` was over
    /// before.
    ///
    /// # Errors
    /// If the kernel refuses to watch the descriptor.
    pub fn wait_readable(&self, time: Duration) -> io::Result<bool> {
        let is_ready = |inner: &T| {
            let mut poll = libc::pollfd {
                fd: inner.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry, which lives over the call.
            match unsafe { libc::poll(&raw mut poll, 1, 0) } {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        match self.retry(Direction::Read, Some(after(time)), is_ready) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(false),
            result => result.map(|()| true),
        }
    }
}

impl<T: AsRawFd + AsFd> AsFd for Io<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T: AsRawFd> AsRawFd for Io<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

impl<T: AsRawFd> Read for &Io<T>
where
    for<'t> &'t T: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_by(buffer, |mut inner, buffer| inner.read(buffer))
    }
}

impl<T: AsRawFd> Write for &Io<T>
where
    for<'t> &'t T: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(Direction::Write, None, |mut inner| inner.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<T: AsRawFd> Read for Io<T>
where
    for<'t> &'t T: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl<T: AsRawFd> Write for Io<T>
where
    for<'t> &'t T: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Io<net::TcpListener> {
    /// Listens at `address`. As many connections wait to be accepted as the system allows (`net.core.somaxconn`), and
    /// not only the 128 of [`net::TcpListener::bind`]: clients that find no room there try again after a second.
    ///
    /// # Errors
    /// As [`net::TcpListener::bind`].
    pub fn bind(address: impl net::ToSocketAddrs) -> io::Result<Self> {
        let listener = net::TcpListener::bind(address)?;
        // SAFETY: no pointers; the descriptor is the listener's.
        if unsafe { libc::listen(listener.as_raw_fd(), i32::MAX) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Self::new(listener)
    }

    /// The next connection.
    ///
    /// # Errors
    /// As [`net::TcpListener::accept`].
    pub fn accept(&self) -> io::Result<(Io<net::TcpStream>, SocketAddr)> {
        self.retry(Direction::Read, None, accept_from)
    }
}

impl Io<UnixListener> {
    /// Listens at `path`.
    ///
    /// # Errors
    /// As [`UnixListener::bind`].
    pub fn bind(path: impl AsRef<path::Path>) -> io::Result<Self> {
        Self::new(UnixListener::bind(path)?)
    }

    /// The next connection.
    ///
    /// # Errors
    /// As [`UnixListener::accept`].
    pub fn accept(&self) -> io::Result<Io<UnixStream>> {
        let (stream, _) = self.retry(Direction::Read, None, UnixListener::accept)?;
        Io::new(stream)
    }
}

impl Io<net::TcpStream> {
    /// Connects to the first of these addresses that takes it. Names are looked up in another thread.
    ///
    /// # Errors
    /// That of the last address.
    pub fn connect(addresses: impl net::ToSocketAddrs + Send) -> io::Result<Self> {
        let addresses: Vec<_> =
            crate::blocking(move || addresses.to_socket_addrs().map(Iterator::collect))?;
        let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to");
        for address in addresses {
            match connect_to(&address) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

/// Accepts a connection that returns at once where it is not ready: the standard library needs two calls more.
fn accept_from(listener: &net::TcpListener) -> io::Result<(Io<net::TcpStream>, SocketAddr)> {
    // SAFETY: plain numbers, for which zero is a value.
    let mut raw: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&raw) as libc::socklen_t;
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the kernel fills the address, up to the length that is told.
    let fd = unsafe {
        let address = (&raw mut raw).cast();
        libc::accept4(listener.as_raw_fd(), address, &raw mut length, flags)
    };
    let stream = net::TcpStream::from(crate::reactor::owned(fd)?);
    let address = address_of(&raw).map_or_else(|| stream.peer_addr(), Ok)?;
    Ok((Io::around(stream, true), address))
}

/// What the kernel wrote as an address.
fn address_of(raw: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let raw: *const libc::sockaddr_storage = raw;
    // SAFETY: the family says what it is, and the storage is large enough and aligned for each.
    unsafe {
        match libc::c_int::from((*raw).ss_family) {
            libc::AF_INET => {
                let v4 = &*raw.cast::<libc::sockaddr_in>();
                let ip = net::Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some((ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = &*raw.cast::<libc::sockaddr_in6>();
                let (ip, port) = (v6.sin6_addr.s6_addr.into(), u16::from_be(v6.sin6_port));
                Some(net::SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

fn connect_to(address: &SocketAddr) -> io::Result<Io<net::TcpStream>> {
    let (domain, address) = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: plain numbers, for which zero is a value.
            let mut raw: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            raw.sin_family = libc::AF_INET as libc::sa_family_t;
            raw.sin_port = v4.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            (libc::AF_INET, Address::V4(raw))
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let mut raw: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            raw.sin6_port = v6.port().to_be();
            raw.sin6_addr.s6_addr = v6.ip().octets();
            raw.sin6_scope_id = v6.scope_id();
            (libc::AF_INET6, Address::V6(raw))
        }
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a call on numbers alone.
    let socket = crate::reactor::owned(unsafe { libc::socket(domain, kind, 0) })?;
    let (raw, length) = match &address {
        Address::V4(raw) => (std::ptr::from_ref(raw).cast(), size_of_val(raw)),
        Address::V6(raw) => (std::ptr::from_ref(raw).cast(), size_of_val(raw)),
    };
    // SAFETY: the address lives over the call, in the length that is told.
    let result = unsafe { libc::connect(socket.as_raw_fd(), raw, length as libc::socklen_t) };
    let error = io::Error::last_os_error();
    let stream = Io::around(net::TcpStream::from(socket), true);
    if result == 0 {
        return Ok(stream);
    }
    if error.raw_os_error() != Some(libc::EINPROGRESS) {
        return Err(error);
    }
    let is_connected = |inner: &net::TcpStream| match inner.take_error()? {
        Some(error) => Err(error),
        None => match inner.peer_addr() {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            result => result.map(|_| ()),
        },
    };
    stream.retry(Direction::Write, None, is_connected)?;
    Ok(stream)
}

/// An address as the kernel has it.
enum Address {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl Io<UnixStream> {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// As [`UnixStream::connect`].
    pub fn connect(path: impl AsRef<path::Path>) -> io::Result<Self> {
        // A Unix socket is connected at once, or its listener's queue is full; another thread waits for
        // that.
        let path = path.as_ref();
        Self::new(crate::blocking(|| UnixStream::connect(path))?)
    }
}

/// A pipe: the end to read from and the end to write to.
///
/// # Errors
/// As [`io::pipe`].
pub fn pipe() -> io::Result<(Io<io::PipeReader>, Io<io::PipeWriter>)> {
    let (reader, writer) = io::pipe()?;
    Ok((Io::new(reader)?, Io::new(writer)?))
}

/// Sockets that block the fibre and not its worker.
pub type TcpListener = Io<net::TcpListener>;
/// See [`Io`].
pub type TcpStream = Io<net::TcpStream>;

impl<T: AsRawFd + Into<OwnedFd>> Io<T> {
    /// What it is around, as one whose calls block the thread.
    ///
    /// # Errors
    /// If the kernel refuses that.
    pub fn into_blocking(self) -> io::Result<T> {
        let Self { known, inner, .. } = self;
        drop(known);
        let fd = inner.as_raw_fd();
        // SAFETY: calls on a descriptor and numbers alone.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(inner)
    }
}
