//! Files by HTTP/1.1, with a fibre for each connection.
#![allow(unsafe_code)]

mod content;
mod files;
#[path = "../common/hall.rs"]
mod hall;
#[path = "../common/host.rs"]
mod host;
mod http;
#[path = "../common/input.rs"]
mod input;
#[path = "../common/options.rs"]
mod options;
#[path = "../common/process.rs"]
mod process;
mod session;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use linewise_fibres::TcpStream;

use crate::content::{Blocking, LINGER, READ_SOCKET, STEPS, Site, WRITE};
use crate::files::{Part, Root};
use crate::hall::Fibres;
use crate::host::Host;
use crate::session::Wire;

const HELP: &str = "file_server: files by HTTP/1.1, with a fibre for each connection

  --root FOLDER         what is served (the current folder)
  --read read|mmap      files are read, or mapped (read)
  --write write|sendfile
                        files are written, or sent by the kernel, which reads them too (write)
";

fn main() -> ExitCode {
    hall::run("file_server", HELP, || {
        let mut root = PathBuf::from(".");
        let (mut maps, mut sends) = (false, false);
        let options = options::read(STEPS, |name, value| {
            match (name, value) {
                ("--root", _) => root = value.into(),
                ("--read", "read" | "mmap") => maps = value == "mmap",
                ("--write", "write" | "sendfile") => sends = value == "sendfile",
                ("--read", _) => return Err(format!("--read {value}: either `read` or `mmap`")),
                ("--write", _) => {
                    return Err(format!("--write {value}: either `write` or `sendfile`"));
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let Some(options) = options else {
            return Ok(None);
        };
        Ok(Some(Box::new(move || {
            let site = Site {
                root: open_root(&root)?,
                maps,
                sends,
                idle: options.idle,
            };
            hall::serve("file_server", &options, move |host, stream| {
                session::run(host, &mut Socket { host, stream }, &site)
            })
        })))
    })
}

fn open_root(path: &Path) -> Result<Root, String> {
    Root::open(path).map_err(|error| {
        let path = path.display();
        format!("the root {path}: {error}; --root names the folder that is served")
    })
}

impl Blocking for Fibres {
    fn blocking<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        linewise_fibres::blocking(work)
    }
}

/// A connection whose calls are steps.
struct Socket<'s> {
    host: &'s Fibres,
    stream: &'s TcpStream,
}

impl Wire for Socket<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.stream.read_by(room, |mut inner, room| {
            self.host
                .step(READ_SOCKET, || io::Read::read(&mut inner, room))
        })
    }

    unsafe fn send(&mut self, parts: [Part; 2], more: bool) -> io::Result<usize> {
        self.stream.write_by(|inner| {
            // SAFETY: the contract.
            let send = || unsafe { files::send(inner.as_fd(), parts, more) };
            self.host.step(WRITE, send)
        })
    }

    fn send_file(&mut self, file: &File, offset: u64, count: u64) -> io::Result<usize> {
        self.stream.write_by(|inner| {
            let send = || files::send_file(inner.as_fd(), file, offset, count);
            self.host.step(WRITE, send)
        })
    }

    fn finish(&mut self) -> io::Result<()> {
        self.stream.get_ref().shutdown(std::net::Shutdown::Write)
    }

    fn hurry(&mut self) {
        self.stream.set_read_timeout(Some(LINGER.1));
    }
}
