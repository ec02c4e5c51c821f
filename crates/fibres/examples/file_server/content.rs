//! From a request to its answer: the steps of a session that need no socket.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use crate::files::{self, Facts, Map, Root};
use crate::host::Host;
use crate::http::{self, Clock, Parsed, Request, Status};
use crate::input::Input;

/// The steps of a session, as `--delegate` calls them.
pub(crate) const STEPS: &[&str] = &["read-socket", "parse", "open", "fstat", "read", "write"];
pub(crate) const READ_SOCKET: usize = 0;
const PARSE: usize = 1;
const OPEN: usize = 2;
const FSTAT: usize = 3;
pub(crate) const READ: usize = 4;
pub(crate) const WRITE: usize = 5;

/// Bytes of a file that are read at a time.
pub(crate) const CHUNK: usize = 64 * 1024;
/// Answers to a client that asks without waiting are sent together, up to so many bytes.
pub(crate) const TOGETHER: usize = 64 * 1024;
/// What a client that is told to go may still send, and for how long, so that it reads the answer.
pub(crate) const LINGER: (usize, Duration) = (64 * 1024, Duration::from_secs(1));

/// A host that can run what may block a thread for long.
pub(crate) trait Blocking: Host {
    fn blocking<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T;
}

/// What is served, and how.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) root: Root,
    /// Files are mapped, not read.
    pub(crate) maps: bool,
    /// The kernel sends files by itself.
    pub(crate) sends: bool,
    pub(crate) idle: Duration,
}

/// What follows the head of an answer.
#[derive(Debug)]
pub(crate) enum Body {
    /// Nothing that is not in the output already.
    Here,
    Map(Map),
    /// So many bytes of a file, to be read in parts.
    Read(File, u64),
    /// To be sent by the kernel.
    Send(File, u64),
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Send what is there, and read.
    Read,
    /// Send this too; the connection ends after it if `ends`.
    Answer { body: Body, ends: bool },
}

/// One connection's state.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) input: Input,
    pub(crate) out: Vec<u8>,
    clock: Clock,
    /// Since when there is a part of a request.
    partial_since: Option<Instant>,
}

impl Session {
    /// Answers the next request, if all of it is there.
    pub(crate) fn turn(&mut self, host: &impl Blocking, site: &Site) -> Turn {
        if self.input.bytes().is_empty() {
            self.partial_since = None;
            return Turn::Read;
        }
        let parsed = host.step(PARSE, || http::parse(self.input.bytes()));
        let (body, ends) = match parsed {
            Parsed::Partial => {
                let since = *self.partial_since.get_or_insert_with(Instant::now);
                if since.elapsed() < site.idle {
                    return Turn::Read;
                }
                self.refuse(Status::Timeout, None, true);
                (Body::Here, true)
            }
            Parsed::Whole(request, length) => {
                self.input.consume(length);
                self.partial_since = None;
                self.answer(host, site, &request)
            }
            Parsed::Bad(status) => {
                self.refuse(status, None, true);
                (Body::Here, true)
            }
        };
        Turn::Answer { body, ends }
    }

    fn answer(&mut self, host: &impl Blocking, site: &Site, request: &Request) -> (Body, bool) {
        let ends = !request.keep_alive;
        let Some(path) = &request.path else {
            self.refuse(Status::NotFound, Some(request), ends);
            return (Body::Here, ends);
        };
        let (file, facts) = match open(host, site, path) {
            Ok(opened) => opened,
            Err(error) => {
                self.refuse(status_of(&error), Some(request), ends);
                return (Body::Here, ends);
            }
        };
        if facts.is_folder && !request.names_folder {
            self.moved(request, path, ends);
            return (Body::Here, ends);
        }
        if !facts.is_file {
            self.refuse(Status::NotFound, Some(request), ends);
            return (Body::Here, ends);
        }
        let what = (http::content_type(path.to_bytes()), facts.length);
        let connection = (!ends, request.is_old);
        let date = self.clock.date();
        http::put_head(&mut self.out, Status::Ok, date, what, connection);
        self.out.extend_from_slice(b"\r\n");
        if request.head_only || facts.length == 0 {
            return (Body::Here, ends);
        }
        self.body(host, site, file, facts.length)
            .map_or((Body::Here, true), |body| (body, ends))
    }

    /// The body of an answer whose head is written; none if the file cannot be had any more.
    fn body(&mut self, host: &impl Blocking, site: &Site, file: File, length: u64) -> Option<Body> {
        if site.sends {
            return Some(Body::Send(file, length));
        }
        if site.maps {
            let size = usize::try_from(length).ok()?;
            return host
                .step(READ, || Map::new(&file, size))
                .ok()
                .map(Body::Map);
        }
        if length > CHUNK as u64 {
            return Some(Body::Read(file, length));
        }
        let whole = length as usize;
        let read = read_part(host, &file, 0, whole, &mut self.out).ok()?;
        (read == whole).then_some(Body::Here)
    }

    fn refuse(&mut self, status: Status, request: Option<&Request>, ends: bool) {
        let text = status.text();
        let is_old = request.is_some_and(|it| it.is_old);
        let what = ("text/plain; charset=utf-8", text.len() as u64 + 1);
        let date = self.clock.date();
        http::put_head(&mut self.out, status, date, what, (!ends, is_old));
        if status == Status::NoMethod {
            self.out.extend_from_slice(b"Allow: GET, HEAD\r\n");
        }
        self.out.extend_from_slice(b"\r\n");
        if !request.is_some_and(|it| it.head_only) {
            self.out.extend_from_slice(text.as_bytes());
            self.out.push(b'\n');
        }
    }

    /// A folder is asked for without the slash, by which what it refers to would be looked for elsewhere.
    fn moved(&mut self, request: &Request, path: &CStr, ends: bool) {
        let date = self.clock.date();
        let what = ("text/plain; charset=utf-8", 0);
        http::put_head(
            &mut self.out,
            Status::Moved,
            date,
            what,
            (!ends, request.is_old),
        );
        self.out.extend_from_slice(b"Location: /");
        for &byte in path.to_bytes() {
            if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
                self.out.push(byte);
            } else {
                self.out
                    .extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
        }
        self.out.extend_from_slice(b"/\r\n\r\n");
    }
}

/// Opens a file and asks what it is.
fn open(host: &impl Blocking, site: &Site, path: &CStr) -> io::Result<(File, Facts)> {
    let file = host.step(OPEN, || match site.root.open_file(path, true) {
        Err(error) if files::must_block(&error) => {
            host.blocking(|| site.root.open_file(path, false))
        }
        result => result,
    })?;
    let facts = host.step(FSTAT, || files::facts(&file))?;
    Ok((file, facts))
}

/// Adds `count` bytes of a file to `out`, or as many as it has.
pub(crate) fn read_part(
    host: &impl Blocking,
    file: &File,
    mut offset: u64,
    count: usize,
    out: &mut Vec<u8>,
) -> io::Result<usize> {
    let before = out.len();
    host.step(READ, || {
        while out.len() < before + count {
            let left = before + count - out.len();
            let read = match files::read(file, offset, left, out, true) {
                Err(error) if files::must_block(&error) => {
                    host.blocking(|| files::read(file, offset, left, out, false))
                }
                result => result,
            }?;
            if read == 0 {
                break;
            }
            offset += read as u64;
        }
        Ok(out.len() - before)
    })
}

fn status_of(error: &io::Error) -> Status {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Status::Forbidden,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Status::Busy,
        Some(libc::EIO) => Status::Failed,
        // What is not there, leads out of the root, or cannot be.
        _ => Status::NotFound,
    }
}
