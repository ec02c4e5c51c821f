//! The loop of a session whose calls wait: in a fibre, or in a thread.

use std::fs::File;
use std::io;

use crate::content::{Blocking, Body, CHUNK, LINGER, Session, Site, TOGETHER, Turn, read_part};
use crate::files::Part;

/// A connection whose calls wait. Each is the step `read-socket` or `write`.
pub(crate) trait Wire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize>;
    /// Sends what it can; `more` follows at once.
    ///
    /// # Safety
    /// The parts are of memory that is there until this returns.
    unsafe fn send(&mut self, parts: [Part; 2], more: bool) -> io::Result<usize>;
    fn send_file(&mut self, file: &File, offset: u64, count: u64) -> io::Result<usize>;
    /// Says to the other side that nothing follows.
    fn finish(&mut self) -> io::Result<()>;
    /// Waits for the other side no longer than a lingering one may take.
    fn hurry(&mut self);
}

/// Serves until the other side has closed, or is told to go.
pub(crate) fn run(host: &impl Blocking, wire: &mut impl Wire, site: &Site) -> io::Result<()> {
    let mut session = Session::default();
    loop {
        match session.turn(host, site) {
            Turn::Read => {
                send_out(wire, &mut session.out)?;
                if session.input.fill(1, |room| wire.read(room))? == 0 {
                    return Ok(());
                }
            }
            Turn::Answer { body, ends } => {
                send_body(host, wire, &mut session.out, body)?;
                if ends {
                    send_out(wire, &mut session.out)?;
                    return linger(wire, &mut session);
                }
                if session.out.len() >= TOGETHER {
                    send_out(wire, &mut session.out)?;
                }
            }
        }
    }
}

fn send_body(
    host: &impl Blocking,
    wire: &mut impl Wire,
    out: &mut Vec<u8>,
    body: Body,
) -> io::Result<()> {
    match body {
        Body::Here => {}
        Body::Map(map) => {
            send_all(wire, [Part::of(out), map.part()], false)?;
            out.clear();
        }
        Body::Read(file, length) => {
            let mut offset = 0;
            while offset < length {
                let count = (length - offset).min(CHUNK as u64) as usize;
                if read_part(host, &file, offset, count, out)? < count {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                offset += count as u64;
                send_out(wire, out)?;
            }
        }
        Body::Send(file, length) => {
            send_all(wire, [Part::of(out), Part::of(&[])], true)?;
            out.clear();
            let mut offset = 0;
            while offset < length {
                let sent = wire.send_file(&file, offset, length - offset)?;
                if sent == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                offset += sent as u64;
            }
        }
    }
    Ok(())
}

fn send_out(wire: &mut impl Wire, out: &mut Vec<u8>) -> io::Result<()> {
    if !out.is_empty() {
        send_all(wire, [Part::of(out), Part::of(&[])], false)?;
        out.clear();
    }
    Ok(())
}

fn send_all(wire: &mut impl Wire, mut parts: [Part; 2], more: bool) -> io::Result<()> {
    while parts.iter().any(|part| part.length() > 0) {
        // SAFETY: the callers have what the parts are of.
        let sent = unsafe { wire.send(parts, more)? };
        let of_first = sent.min(parts[0].length());
        parts = [parts[0].after(of_first), parts[1].after(sent - of_first)];
    }
    Ok(())
}

/// Lets the client read the answer: closed at once, with bytes unread, the connection would be reset.
fn linger(wire: &mut impl Wire, session: &mut Session) -> io::Result<()> {
    wire.finish()?;
    if session.input.bytes().is_empty() {
        return Ok(());
    }
    wire.hurry();
    let mut left = LINGER.0;
    let mut room = [0; 1024];
    while left > 0 {
        match wire.read(&mut room)? {
            0 => break,
            count => left = left.saturating_sub(count),
        }
    }
    Ok(())
}
