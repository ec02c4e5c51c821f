//! A store of values by keys that speaks memcached's text protocol, with a fibre for each connection.
#![allow(unsafe_code)]

#[path = "../common/hall.rs"]
mod hall;
#[path = "../common/host.rs"]
mod host;
#[path = "../common/input.rs"]
mod input;
#[path = "../common/options.rs"]
mod options;
#[path = "../common/process.rs"]
mod process;
mod protocol;
mod session;
mod store;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use linewise_fibres::TcpStream;

use crate::hall::Fibres;
use crate::host::Host;
use crate::session::{READ_SOCKET, STEPS, Session, Turn, WRITE};
use crate::store::Store;

const HELP: &str = "kv_server: memcached's text protocol, with a fibre for each connection

  --memory MIB          the most that is kept, before what came first is dropped (64)
";

fn main() -> ExitCode {
    hall::run("kv_server", HELP, || {
        let mut memory = 64;
        let options = options::read(STEPS, |name, value| {
            if name == "--memory" {
                memory = options::number::<usize>(name, value)?.clamp(1, 1 << 30);
                return Ok(true);
            }
            Ok(false)
        })?;
        let Some(options) = options else {
            return Ok(None);
        };
        Ok(Some(Box::new(move || {
            let store = Store::new(memory << 20);
            hall::serve("kv_server", &options, move |host, stream| {
                store.connections.fetch_add(1, Ordering::Relaxed);
                store.all_connections.fetch_add(1, Ordering::Relaxed);
                let result = serve(host, stream, &store);
                store.connections.fetch_sub(1, Ordering::Relaxed);
                result
            })
        })))
    })
}

fn serve(host: &Fibres, stream: &TcpStream, store: &Store) -> io::Result<()> {
    let mut session = Session::default();
    loop {
        let turn = session.turn(host, store);
        let mut left = &session.out[..];
        while !left.is_empty() {
            let sent = stream.write_by(|mut inner| host.step(WRITE, || inner.write(left)))?;
            left = &left[sent..];
        }
        session.sent();
        match turn {
            Turn::Send => {}
            Turn::End => return linger(stream),
            Turn::Read(wanted) => {
                let read = session.input.fill(wanted, |room| {
                    stream.read_by(room, |mut inner, room| {
                        host.step(READ_SOCKET, || io::Read::read(&mut inner, room))
                    })
                });
                if read? == 0 {
                    return Ok(());
                }
            }
        }
    }
}

/// Lets the client read the last answer: closed at once, with bytes unread, the connection would be reset.
fn linger(stream: &TcpStream) -> io::Result<()> {
    stream.get_ref().shutdown(std::net::Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut room = [0; 1024];
    for _ in 0..128 {
        if io::Read::read(&mut { stream }, &mut room)? == 0 {
            break;
        }
    }
    Ok(())
}
