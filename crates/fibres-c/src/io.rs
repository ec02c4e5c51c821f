//! Descriptors that are ready or not: sockets and pipes.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use linewise_fibres::Io;
use linewise_fibres::raw::{self, Direction};

use crate::error::{Failure, edge};
use crate::{close, deadline, give, of, place, tell};

/// For linewise_fibres_io_wait: there is something to read or to accept, or the other side has closed.
pub const LINEWISE_FIBRES_READABLE: u32 = 0;
/// There is room to write, or a connection is made.
pub const LINEWISE_FIBRES_WRITABLE: u32 = 1;

/// A socket, or an end of a pipe, whose calls block the fibre and not its worker. On a thread that is no worker,
/// and in a runtime without events, they block the thread.
pub struct linewise_fibres_io(Io<Descriptor>);

/// A descriptor of the caller's, or of the handle's own.
struct Descriptor {
    fd: RawFd,
    is_owned: bool,
    /// Then a write says so when the other side is gone, instead of SIGPIPE, which ends the process.
    is_socket: bool,
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.is_owned {
            // SAFETY: it is this one's.
            unsafe { libc::close(self.fd) };
        }
    }
}

/// Makes a call of the system; its number if it fails. Never inlined: the caller waits between two calls and
/// may go on in another thread, whose `errno` is elsewhere.
#[inline(never)]
fn system(call: impl FnOnce() -> isize) -> io::Result<usize> {
    usize::try_from(call()).map_err(|_| io::Error::last_os_error())
}

impl linewise_fibres_io {
    fn new(fd: RawFd, is_owned: bool) -> io::Result<Self> {
        // Refused before it is taken: then it stays the caller's.
        // SAFETY: a call on a descriptor alone.
        system(|| unsafe { libc::fcntl(fd, libc::F_GETFL) as isize })?;
        Ok(Self(Io::new(Descriptor {
            fd,
            is_owned,
            is_socket: option(fd, libc::SO_TYPE).is_ok(),
        })?))
    }

    /// Calls `attempt` until it need not wait.
    fn retry(
        &self,
        direction: Direction,
        attempt: impl Fn(&Descriptor) -> isize,
    ) -> Result<usize, Failure> {
        Ok(raw::retry(&self.0, direction, None, |descriptor| {
            system(|| attempt(descriptor))
        })??)
    }
}

/// A number that the system keeps for a socket.
fn option(fd: RawFd, name: i32) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut length = size_of::<i32>() as libc::socklen_t;
    system(|| {
        let value = (&raw mut value).cast();
        // SAFETY: the value and its length live over the call.
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, value, &raw mut length) as isize }
    })?;
    Ok(value)
}

/// Takes a descriptor, and sets it to return at once where it is not ready (O_NONBLOCK), which stays so. If
/// `owns` is not 0, it is closed with the handle; else the caller closes it, after the handle. There is one
/// handle at a time for a descriptor, for the fibres of one runtime: that in which one first waits for it. Files
/// on a disk are not for this: linewise_fibres_file_open.
///
/// # Safety
/// `io` points to a place for a handle; the descriptor is open until the handle is closed.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_io_open(
    fd: i32,
    owns: i32,
    io: *mut *mut linewise_fibres_io,
) -> i32 {
    edge(|| {
        let to = place(io, "io")?;
        if fd < 0 {
            return Err(Failure::argument(format!("{fd} is no descriptor")));
        }
        let io = linewise_fibres_io::new(fd, owns != 0)?;
        // SAFETY: the contract.
        unsafe { give(to, io) };
        Ok(())
    })
}

/// Its descriptor; -1 for NULL.
///
/// # Safety
/// `io` is a valid handle or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_io_descriptor(io: *const linewise_fibres_io) -> i32 {
    // SAFETY: the contract.
    unsafe { io.as_ref() }.map_or(-1, |io| io.0.as_raw_fd())
}

/// Reads up to `count` bytes; `done`, which may be NULL, gets how many: 0 if the other side has closed.
///
/// # Safety
/// `io` is a valid handle; `buffer` has room for `count` bytes; `done` is NULL or a place for a number.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_io_read(
    io: *const linewise_fibres_io,
    buffer: *mut c_void,
    count: usize,
    done: *mut usize,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let io = unsafe { of(io, "io")? };
        let buffer = place(buffer, "buffer")?;
        // SAFETY: the contract.
        let read = io.retry(Direction::Read, |it| unsafe {
            libc::read(it.fd, buffer, count)
        })?;
        // SAFETY: the contract.
        unsafe { tell(done, read) };
        Ok(())
    })
}

/// Writes up to `count` bytes, at least one of them; `done`, which may be NULL, gets how many. Where the other
/// side of a socket is gone this fails (EPIPE), and no signal comes; that of a pipe sends SIGPIPE.
///
/// # Safety
/// `io` is a valid handle; `bytes` points to `count` bytes; `done` is NULL or a place for a number.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_io_write(
    io: *const linewise_fibres_io,
    bytes: *const c_void,
    count: usize,
    done: *mut usize,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let io = unsafe { of(io, "io")? };
        if bytes.is_null() {
            return Err(Failure::null("bytes"));
        }
        // SAFETY: the contract.
        let written = io.retry(Direction::Write, |it| unsafe {
            if it.is_socket {
                libc::send(it.fd, bytes, count, libc::MSG_NOSIGNAL)
            } else {
                libc::write(it.fd, bytes, count)
            }
        })?;
        // SAFETY: the contract.
        unsafe { tell(done, written) };
        Ok(())
    })
}

/// Waits for the next connection to a socket that listens; it owns its descriptor, which is closed in programs
/// that are executed.
///
/// # Safety
/// `io` is a valid handle; `connection` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_io_accept(
    io: *const linewise_fibres_io,
    connection: *mut *mut linewise_fibres_io,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let io = unsafe { of(io, "io")? };
        let to = place(connection, "connection")?;
        let fd = io.retry(Direction::Read, |it| {
            let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: no address is asked for.
            unsafe { libc::accept4(it.fd, address, length, flags) as isize }
        })?;
        let connection = linewise_fibres_io::new(fd as RawFd, true)?;
        // SAFETY: the contract.
        unsafe { give(to, connection) };
        Ok(())
    })
}

/// Connects a socket to an address (a struct sockaddr of some kind), and waits until it is connected.
///
/// # Safety
/// `io` is a valid handle; `address` points to `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_io_connect(
    io: *const linewise_fibres_io,
    address: *const c_void,
    length: usize,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let io = unsafe { of(io, "io")? };
        if address.is_null() {
            return Err(Failure::null("address"));
        }
        let length = libc::socklen_t::try_from(length)
            .map_err(|_| Failure::argument(format!("an address of {length} bytes")))?;
        let begin = || {
            let address = address.cast();
            // SAFETY: the contract.
            system(|| unsafe { libc::connect(io.0.as_raw_fd(), address, length) as isize })
        };
        loop {
            let Err(error) = begin() else { return Ok(()) };
            match error.raw_os_error() {
                // The queue of a listener of the Unix domain is full, and nobody says when it is not.
                Some(libc::EAGAIN) => raw::sleep(Duration::from_millis(1))?,
                Some(libc::EINPROGRESS | libc::EINTR) => break,
                _ => return Err(error.into()),
            }
        }
        Ok(raw::retry(&io.0, Direction::Write, None, is_connected)??)
    })
}

/// Whether a connection was made; [`io::ErrorKind::WouldBlock`] if that is not known yet.
fn is_connected(descriptor: &Descriptor) -> io::Result<()> {
    match option(descriptor.fd, libc::SO_ERROR)? {
        0 => {}
        number => return Err(io::Error::from_raw_os_error(number)),
    }
    // SAFETY: plain numbers, for which zero is a value.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&address) as libc::socklen_t;
    let named = system(|| {
        let address = (&raw mut address).cast();
        // SAFETY: the address and its length live over the call.
        unsafe { libc::getpeername(descriptor.fd, address, &raw mut length) as isize }
    });
    match named {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        result => result.map(|_| ()),
    }
}

/// Waits until a descriptor is LINEWISE_FIBRES_READABLE or LINEWISE_FIBRES_WRITABLE, for so long at most
/// (UINT64_MAX: without end): for calls that have no function here. They return at once (EAGAIN) where they would
/// have to wait, and are made again after this.
///
/// # Safety
/// `io` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_io_wait(
    io: *const linewise_fibres_io,
    readiness: u32,
    nanoseconds: u64,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let io = unsafe { of(io, "io")? };
        let (direction, event) = match readiness {
            LINEWISE_FIBRES_READABLE => (Direction::Read, libc::POLLIN),
            LINEWISE_FIBRES_WRITABLE => (Direction::Write, libc::POLLOUT),
            other => return Err(Failure::argument(format!("there is no readiness {other}"))),
        };
        let is_ready = |descriptor: &Descriptor| {
            let mut poll = libc::pollfd {
                fd: descriptor.fd,
                events: event,
                revents: 0,
            };
            // SAFETY: one entry, which lives over the call.
            match system(|| unsafe { libc::poll(&raw mut poll, 1, 0) as isize })? {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        };
        Ok(raw::retry(
            &io.0,
            direction,
            deadline(nanoseconds),
            is_ready,
        )??)
    })
}

/// Closes a handle, and its descriptor if it owns that.
///
/// # Safety
/// `io` is a handle that was not closed, or NULL, and nobody uses it from now on or waits for it.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_io_close(io: *mut linewise_fibres_io) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { close(io) };
        Ok(())
    })
}
