//! The example `file_server` on threads, or on tokio.
#![allow(dead_code, reason = "shared files have more than each server needs")]

#[path = "../common.rs"]
mod common;
#[path = "../../../examples/file_server/content.rs"]
mod content;
#[path = "../../../examples/file_server/files.rs"]
mod files;
#[path = "../../../examples/common/host.rs"]
mod host;
#[path = "../../../examples/file_server/http.rs"]
mod http;
#[path = "../../../examples/common/input.rs"]
mod input;
#[path = "../../../examples/common/options.rs"]
mod options;
#[path = "../../../examples/file_server/session.rs"]
mod session;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

use crate::common::Plain;
use crate::content::{Blocking, Body, CHUNK, STEPS, Session, Site, TOGETHER, Turn, read_part};
use crate::files::{Part, Root};
use crate::host::Host;

fn main() -> io::Result<()> {
    let (options, kind, others) = common::read(STEPS);
    let mut site = Site {
        root: Root::open(Path::new("."))?,
        maps: false,
        sends: false,
        idle: options.idle,
    };
    for (name, value) in others {
        match &*name {
            "--root" => site.root = Root::open(Path::new(&value))?,
            "--read" => site.maps = value == "mmap",
            "--write" => site.sends = value == "sendfile",
            _ => return Err(io::Error::other(format!("there is no option {name}"))),
        }
    }
    let site = Arc::new(site);
    if kind == "threads" {
        common::serve_by_threads(&options, move |stream| {
            session::run(&Plain, &mut Wire(stream), &site)
        })
    } else {
        common::serve_by_tokio(&options, move |stream| by_task(stream, site.clone()))
    }
}

impl Blocking for Plain {
    fn blocking<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        work()
    }
}

struct Wire(std::net::TcpStream);

impl session::Wire for Wire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.read(room)
    }

    unsafe fn send(&mut self, parts: [Part; 2], more: bool) -> io::Result<usize> {
        // SAFETY: the contract.
        unsafe { files::send(self.0.as_fd(), parts, more) }
    }

    fn send_file(&mut self, file: &File, offset: u64, count: u64) -> io::Result<usize> {
        files::send_file(self.0.as_fd(), file, offset, count)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.shutdown(std::net::Shutdown::Write)
    }

    fn hurry(&mut self) {
        let _ = self.0.set_read_timeout(Some(Duration::from_secs(1)));
    }
}

/// Calls on a worker of tokio that may block it.
struct Tasks;

impl Host for Tasks {
    #[inline]
    fn step<T: Send>(&self, _: usize, work: impl FnOnce() -> T + Send) -> T {
        work()
    }
}

impl Blocking for Tasks {
    fn blocking<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        tokio::task::block_in_place(work)
    }
}

async fn by_task(mut stream: tokio::net::TcpStream, site: Arc<Site>) -> io::Result<()> {
    let mut session = Session::default();
    loop {
        match session.turn(&Tasks, &site) {
            Turn::Read => {
                if !session.out.is_empty() {
                    let sent = stream.write_all(&session.out);
                    tokio::time::timeout(site.idle, sent).await??;
                    session.out.clear();
                }
                let room = session.input.room(1);
                let count = tokio::time::timeout(site.idle, stream.read(room)).await??;
                if count == 0 {
                    return Ok(());
                }
                session.input.add(count);
            }
            Turn::Answer { body, ends } => {
                send_body(&mut stream, &mut session.out, body, &site).await?;
                if (ends || session.out.len() >= TOGETHER) && !session.out.is_empty() {
                    let sent = stream.write_all(&session.out);
                    tokio::time::timeout(site.idle, sent).await??;
                    session.out.clear();
                }
                if ends {
                    return stream.shutdown().await;
                }
            }
        }
    }
}

async fn send_body(
    stream: &mut tokio::net::TcpStream,
    out: &mut Vec<u8>,
    body: Body,
    site: &Site,
) -> io::Result<()> {
    match body {
        Body::Here => {}
        Body::Map(map) => {
            send_all(stream, [Part::of(out), map.part()], false, site).await?;
            out.clear();
        }
        Body::Read(file, length) => {
            let mut offset = 0;
            while offset < length {
                let count = (length - offset).min(CHUNK as u64) as usize;
                if read_part(&Tasks, &file, offset, count, out)? < count {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                offset += count as u64;
                tokio::time::timeout(site.idle, stream.write_all(out)).await??;
                out.clear();
            }
        }
        Body::Send(file, length) => {
            send_all(stream, [Part::of(out), Part::of(&[])], true, site).await?;
            out.clear();
            let mut offset = 0;
            while offset < length {
                let sent = stream.async_io(Interest::WRITABLE, || {
                    files::send_file(stream.as_fd(), &file, offset, length - offset)
                });
                let sent = tokio::time::timeout(site.idle, sent).await??;
                if sent == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                offset += sent as u64;
            }
        }
    }
    Ok(())
}

async fn send_all(
    stream: &tokio::net::TcpStream,
    mut parts: [Part; 2],
    more: bool,
    site: &Site,
) -> io::Result<()> {
    while parts.iter().any(|part| part.length() > 0) {
        let sent = stream.async_io(Interest::WRITABLE, || {
            // SAFETY: the callers have what the parts are of.
            unsafe { files::send(stream.as_fd(), parts, more) }
        });
        let sent = tokio::time::timeout(site.idle, sent).await??;
        let of_first = sent.min(parts[0].length());
        parts = [parts[0].after(of_first), parts[1].after(sent - of_first)];
    }
    Ok(())
}
