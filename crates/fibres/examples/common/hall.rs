//! What the servers have in common that is made of fibres: workers, listeners, connections, the end.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linewise_fibres::{Pool, Runtime, TcpListener, TcpStream, sleep, visit, yield_now};

use crate::host::{Host, Mode};
use crate::options::Options;
use crate::process;

/// After a signal connections have so long to end by themselves.
const GRACE: Duration = Duration::from_secs(5);
/// While there are too few descriptors, it is tried again after so long.
const RETRY: Duration = Duration::from_millis(10);
/// Connections that wait to be accepted.
const BACKLOG: libc::c_int = 4096;

/// Runs steps in fibres.
#[derive(Debug)]
pub(crate) struct Fibres {
    modes: Vec<Mode>,
    delegated: Option<Pool>,
}

impl Host for Fibres {
    #[inline]
    fn step<T: Send>(&self, step: usize, work: impl FnOnce() -> T + Send) -> T {
        match self.modes[step] {
            Mode::Normal => work(),
            Mode::Yield => {
                yield_now();
                let value = work();
                yield_now();
                value
            }
            Mode::Delegate => match &self.delegated {
                Some(pool) => visit(pool, work),
                None => work(),
            },
        }
    }
}

/// The connections that are open.
#[derive(Debug, Default)]
struct Hall {
    ending: AtomicBool,
    open: Mutex<HashSet<RawFd>>,
}

impl Hall {
    fn open(&self) -> std::sync::MutexGuard<'_, HashSet<RawFd>> {
        self.open.lock().expect("nothing panics under it")
    }

    /// Lets no descriptor wait for more; who has a request in work answers it.
    fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        for fd in self.open().iter() {
            // SAFETY: a call on a descriptor that is open as long as it is in the set.
            unsafe { libc::shutdown(*fd, libc::SHUT_RD) };
        }
    }
}

/// A descriptor in the hall: dropped before it is closed.
struct Entry<'h>(&'h Hall, RawFd);

impl<'h> Entry<'h> {
    fn new(hall: &'h Hall, fd: RawFd) -> Self {
        hall.open().insert(fd);
        if hall.ending.load(Ordering::SeqCst) {
            // SAFETY: a call on an open descriptor.
            unsafe { libc::shutdown(fd, libc::SHUT_RD) };
        }
        Self(hall, fd)
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.0.open().remove(&self.1);
    }
}

/// Starts the workers, serves each connection by `session` until a signal comes, and ends.
pub(crate) fn serve<F>(name: &'static str, options: &Options, session: F) -> Result<(), String>
where
    F: Fn(&Fibres, &TcpStream) -> io::Result<()> + Send + Sync + 'static,
{
    process::hold_signals();
    process::raise_descriptor_limit();
    let listeners = listeners(options)?;
    let address = listeners[0].get_ref().local_addr();
    let address = address.map_err(|error| format!("the listener has no address: {error}"))?;
    let runtime = runtime(options)?;
    let pools: Arc<[Pool]> = runtime.pools()[..options.cpus.len()].into();
    let host = Arc::new(Fibres {
        modes: options.modes.clone(),
        delegated: runtime.pool("delegated"),
    });
    let hall = Arc::new(Hall::default());
    let session = Arc::new(session);
    for (index, listener) in listeners.into_iter().enumerate() {
        let (hall, host, session) = (hall.clone(), host.clone(), session.clone());
        let idle = options.idle;
        let targets: Arc<[Pool]> = if options.listener_each {
            pools[index..=index].into()
        } else {
            pools.clone()
        };
        let accepting = pools[index].builder().name("accepts").spawn(move || {
            accept_all(name, &listener, &hall, &targets, move |hall, stream| {
                let _entry = Entry::new(hall, stream.as_raw_fd());
                let ready = stream.get_ref().set_nodelay(true);
                stream.set_read_timeout(Some(idle));
                stream.set_write_timeout(Some(idle));
                // The other side is gone or too slow: nothing that the server could mend.
                let _ = ready.and_then(|()| session(&host, stream));
            });
        });
        accepting.map_err(|error| error.to_string())?;
    }
    println!("{name}: listening on {address}");
    process::wait_for_signal();
    // The next one ends the process at once.
    process::release_signals();
    hall.end();
    let begun = Instant::now();
    while !hall.open().is_empty() && begun.elapsed() < GRACE {
        sleep(Duration::from_millis(5));
    }
    let left = hall.open().len();
    runtime.shut_down();
    if left > 0 {
        eprintln!("{name}: {left} connections were cut off");
    }
    Ok(())
}

/// Accepts until the listener is shut down.
fn accept_all<F>(name: &str, listener: &TcpListener, hall: &Arc<Hall>, targets: &[Pool], serve: F)
where
    F: Fn(&Hall, &TcpStream) + Clone + Send + 'static,
{
    let _entry = Entry::new(hall, listener.as_raw_fd());
    let mut said: Option<Instant> = None;
    let mut next = 0;
    while !hall.ending.load(Ordering::Relaxed) {
        let error = match listener.accept() {
            Ok((stream, _)) => {
                let (hall, serve) = (hall.clone(), serve.clone());
                next = (next + 1) % targets.len();
                match targets[next].spawn(move || serve(&hall, &stream)) {
                    Ok(_) => continue,
                    Err(error) => error.to_string(),
                }
            }
            // The client gave up while it waited.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(_) if hall.ending.load(Ordering::Relaxed) => break,
            Err(error) => error.to_string(),
        };
        if said.is_none_or(|said| said.elapsed() > Duration::from_secs(1)) {
            said = Some(Instant::now());
            eprintln!("{name}: cannot accept: {error}; `ulimit -n` bounds descriptors");
        }
        sleep(RETRY);
    }
}

/// A pool for each worker, so that a connection stays with the one that has it, and the delegated one.
fn runtime(options: &Options) -> Result<Runtime, String> {
    let mut builder = Runtime::builder();
    for (index, cpu) in options.cpus.iter().enumerate() {
        let name = format!("worker {index}");
        builder = match cpu {
            Some(cpu) => builder.pinned_pool(&name, &[*cpu]),
            None => builder.pool(&name, 1),
        };
    }
    if options.modes.contains(&Mode::Delegate) {
        builder = match options.delegate_cpu {
            Some(cpu) => builder.pinned_pool("delegated", &[cpu]),
            None => builder.pool("delegated", 1),
        };
    }
    // SAFETY: a session holds nothing over a step that belongs to its thread: locks of the standard library
    // are taken and let go of within a step.
    unsafe { builder.start() }.map_err(|error| error.to_string())
}

/// One listener, or one for each worker, among which the kernel deals out connections.
fn listeners(options: &Options) -> Result<Vec<TcpListener>, String> {
    let count = if options.listener_each {
        options.cpus.len()
    } else {
        1
    };
    let mut address = options.address;
    let mut listeners = Vec::new();
    for _ in 0..count {
        let listener = listen(&address, options.listener_each).map_err(|error| {
            let port = address.port();
            let advice = match error.kind() {
                io::ErrorKind::AddrInUse => "; another program has it: give another --port, or 0",
                io::ErrorKind::PermissionDenied if port < 1024 => "; ports below 1024 are root's",
                _ => "",
            };
            format!("cannot listen on {address}: {error}{advice}")
        })?;
        if let Ok(bound) = listener.get_ref().local_addr() {
            address = bound;
        }
        listeners.push(listener);
    }
    Ok(listeners)
}

fn listen(address: &SocketAddr, shared: bool) -> io::Result<TcpListener> {
    if !shared {
        let listener = std::net::TcpListener::bind(address)?;
        // SAFETY: a call on an open descriptor: the standard library's queue is short.
        unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) };
        return TcpListener::new(listener);
    }
    let domain = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: a call on numbers alone; what it returns is a new descriptor.
    let socket = unsafe {
        let fd = libc::socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let on: libc::c_int = 1;
    for option in [libc::SO_REUSEADDR, libc::SO_REUSEPORT] {
        // SAFETY: the number lives over the call.
        let set = unsafe {
            let size = size_of_val(&on) as libc::socklen_t;
            let on = (&raw const on).cast();
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, on, size)
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    bind(&socket, address)?;
    // SAFETY: a call on an open descriptor.
    if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } != 0 {
        return Err(io::Error::last_os_error());
    }
    TcpListener::new(socket.into())
}

fn bind(socket: &OwnedFd, address: &SocketAddr) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    let size = |bytes: usize| bytes as libc::socklen_t;
    // SAFETY: addresses of plain numbers, for which zero is a value, that live over the call.
    let bound = unsafe {
        match address {
            SocketAddr::V4(v4) => {
                let mut raw: libc::sockaddr_in = std::mem::zeroed();
                raw.sin_family = libc::AF_INET as libc::sa_family_t;
                raw.sin_port = v4.port().to_be();
                raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                libc::bind(fd, (&raw const raw).cast(), size(size_of_val(&raw)))
            }
            SocketAddr::V6(v6) => {
                let mut raw: libc::sockaddr_in6 = std::mem::zeroed();
                raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                raw.sin6_port = v6.port().to_be();
                raw.sin6_addr.s6_addr = v6.ip().octets();
                raw.sin6_scope_id = v6.scope_id();
                libc::bind(fd, (&raw const raw).cast(), size(size_of_val(&raw)))
            }
        }
    };
    if bound == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Runs `main`; what it fails with is said, and is 2 if it is about the command line.
pub(crate) fn run(
    name: &str,
    help: &str,
    read: impl FnOnce() -> Result<Option<Box<dyn FnOnce() -> Result<(), String>>>, String>,
) -> ExitCode {
    let failed = |error: String, code: u8| {
        eprintln!("{name}: {error}");
        ExitCode::from(code)
    };
    match read() {
        Err(error) => failed(error, 2),
        Ok(None) => {
            print!("{help}{}", crate::options::HELP);
            ExitCode::SUCCESS
        }
        Ok(Some(work)) => match work() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(error, 1),
        },
    }
}
