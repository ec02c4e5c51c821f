//! The example `kv_server` on threads, or on tokio.
#![allow(dead_code, reason = "shared files have more than each server needs")]

#[path = "../common.rs"]
mod common;
#[path = "../../../examples/common/host.rs"]
mod host;
#[path = "../../../examples/common/input.rs"]
mod input;
#[path = "../../../examples/common/options.rs"]
mod options;
#[path = "../../../examples/kv_server/protocol.rs"]
mod protocol;
#[path = "../../../examples/kv_server/session.rs"]
mod session;
#[path = "../../../examples/kv_server/store.rs"]
mod store;

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::Plain;
use crate::session::{STEPS, Session, Turn};
use crate::store::Store;

fn main() -> io::Result<()> {
    let (options, kind, _) = common::read(STEPS);
    let idle = options.idle;
    let store = Arc::new(Store::new(64 << 20));
    if kind == "threads" {
        common::serve_by_threads(&options, move |stream| by_thread(&stream, &store))
    } else {
        common::serve_by_tokio(&options, move |stream| by_task(stream, store.clone(), idle))
    }
}

fn by_thread(mut stream: &std::net::TcpStream, store: &Store) -> io::Result<()> {
    let mut session = Session::default();
    loop {
        let turn = session.turn(&Plain, store);
        if !session.out.is_empty() {
            stream.write_all(&session.out)?;
        }
        session.sent();
        match turn {
            Turn::Send => {}
            Turn::End => return Ok(()),
            Turn::Read(wanted) => {
                if session.input.fill(wanted, |room| stream.read(room))? == 0 {
                    return Ok(());
                }
            }
        }
    }
}

async fn by_task(
    mut stream: tokio::net::TcpStream,
    store: Arc<Store>,
    idle: Duration,
) -> io::Result<()> {
    let mut session = Session::default();
    loop {
        let turn = session.turn(&Plain, &store);
        if !session.out.is_empty() {
            tokio::time::timeout(idle, stream.write_all(&session.out)).await??;
        }
        session.sent();
        match turn {
            Turn::Send => {}
            Turn::End => return Ok(()),
            Turn::Read(wanted) => {
                let room = session.input.room(wanted);
                let count = tokio::time::timeout(idle, stream.read(room)).await??;
                if count == 0 {
                    return Ok(());
                }
                session.input.add(count);
            }
        }
    }
}
