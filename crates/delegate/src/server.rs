//! A dedicated server: passes over its shard's channels until the domain is shut down.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::error::Error;
use crate::place;
use crate::shard::{Shard, token};
use crate::wait::Ladder;

/// Starts the server of `shard`, pinned to `cpu` if there is one. Returns when it sits.
pub(crate) fn start(
    index: usize,
    shard: Arc<Shard>,
    cpu: Option<u32>,
) -> Result<JoinHandle<()>, Error> {
    let (seated, wait) = std::sync::mpsc::channel();
    let server = std::thread::Builder::new()
        .name(format!("delegate-server-{index}"))
        .spawn(move || {
            let pinned = cpu.map_or(Ok(()), place::pin);
            let failed = pinned.is_err();
            let sits = !failed && shard.seat.try_take(token());
            // The builder waits for this; it is there.
            let _ = seated.send(pinned);
            if sits {
                serve(&shard);
                shard.leave();
            }
        })
        .map_err(|error| Error::System {
            what: "starting a server thread",
            why: error.to_string(),
        })?;
    match wait.recv() {
        Ok(Ok(())) => Ok(server),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::System {
            what: "starting a server thread",
            why: "it ended".to_owned(),
        }),
    }
}

fn serve(shard: &Shard) {
    let mut ladder = Ladder::new();
    loop {
        // SAFETY: this thread holds the seat until this returns, and passes end before the next begins.
        unsafe {
            if shard.pass_with(!ladder.is_crowded()) {
                ladder.reset();
            } else if !shard.gate.is_open() {
                return shard.seal();
            } else if ladder.step() {
                shard
                    .parker
                    .sleep(|| shard.has_work() || !shard.gate.is_open());
            }
        }
    }
}
