//! A session of the store: from what came to what is answered. It needs no socket, so that fibres, threads
//! and tasks run the same.

use std::io::Write;
use std::sync::atomic::Ordering;

use crate::host::Host;
use crate::input::{Input, position};
use crate::protocol::{self, Command, MOST_LINE};
use crate::store::{Counted, Store, Stored, put_number};

/// The steps of a session, as `--delegate` calls them.
pub(crate) const STEPS: &[&str] = &["read-socket", "parse", "lookup", "store", "write"];
pub(crate) const READ_SOCKET: usize = 0;
const PARSE: usize = 1;
const LOOKUP: usize = 2;
const STORE: usize = 3;
pub(crate) const WRITE: usize = 4;

/// Answers are sent together, up to about so many bytes.
const TOGETHER: usize = 64 * 1024;
/// Room for so many bytes is made at a time at most, whatever a client says that it will send.
const ROOM: usize = 64 * 1024;
/// A buffer of answers that grew beyond this is not kept.
const KEPT: usize = 256 * 1024;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Send what is there, and read with room for so many bytes.
    Read(usize),
    /// Send what is there.
    Send,
    /// Send what is there, and close.
    End,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// A line of a command comes next.
    #[default]
    Line,
    /// In the line that is so long, with its end: the keys from `at` on are to be looked up.
    Keys {
        line: usize,
        at: usize,
        with_cas: bool,
    },
    /// After the line that is so long a value comes.
    Value(Command, usize),
    /// So many bytes are passed over.
    Skip(usize),
}

/// One connection's state.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) input: Input,
    pub(crate) out: Vec<u8>,
    state: State,
}

impl Session {
    /// Answers what is there.
    pub(crate) fn turn(&mut self, host: &impl Host, store: &Store) -> Turn {
        loop {
            if self.out.len() >= TOGETHER {
                return Turn::Send;
            }
            let turn = match self.state {
                State::Line => self.line(host, store),
                State::Keys { line, at, with_cas } => {
                    self.next_key(host, store, (line, at), with_cas);
                    None
                }
                State::Value(command, line) => self.value(host, store, command, line),
                State::Skip(length) => self.skip(length),
            };
            if let Some(turn) = turn {
                return turn;
            }
        }
    }

    /// What was answered is sent.
    pub(crate) fn sent(&mut self) {
        self.out.clear();
        if self.out.capacity() > KEPT {
            self.out = Vec::new();
        }
    }

    fn say(&mut self, text: &str, quiet: bool) {
        if !quiet {
            self.out.extend_from_slice(text.as_bytes());
        }
    }

    fn line(&mut self, host: &impl Host, store: &Store) -> Option<Turn> {
        let bytes = self.input.bytes();
        let Some(end) = position(bytes, b'\n').filter(|end| *end <= MOST_LINE) else {
            if bytes.len() <= MOST_LINE {
                return Some(Turn::Read(1));
            }
            self.say(protocol::LONG_LINE, false);
            return Some(Turn::End);
        };
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        let command = host.step(PARSE, || protocol::parse(line));
        self.execute(host, store, command, end + 1)
    }

    /// Runs the command of a line that is so long, with its end.
    fn execute(
        &mut self,
        host: &impl Host,
        store: &Store,
        command: Command,
        line: usize,
    ) -> Option<Turn> {
        let bytes = self.input.bytes();
        match command {
            Command::Get { keys, with_cas } => {
                self.state = State::Keys {
                    line,
                    at: keys,
                    with_cas,
                };
                return None;
            }
            Command::Store { .. } => {
                self.state = State::Value(command, line);
                return None;
            }
            Command::Skip {
                key,
                length,
                answer,
                quiet,
            } => {
                if answer == protocol::TOO_LARGE {
                    // What was to be overwritten must not be read any more.
                    let key = &bytes[key.0..key.1];
                    host.step(STORE, || store.forget(key));
                }
                self.say(answer, quiet);
                self.state = State::Skip(length.saturating_add(2));
            }
            Command::Delete { key, quiet } => {
                let key = &bytes[key.0..key.1];
                let found = host.step(STORE, || store.delete(key));
                self.say(
                    if found {
                        "DELETED\r\n"
                    } else {
                        "NOT_FOUND\r\n"
                    },
                    quiet,
                );
            }
            Command::Count { key, up, by, quiet } => {
                let key = &bytes[key.0..key.1];
                match host.step(STORE, || store.count(key, up, by)) {
                    Counted::Now(now) if !quiet => {
                        put_number(&mut self.out, now);
                        self.say("\r\n", false);
                    }
                    Counted::Now(_) => {}
                    Counted::NotFound => self.say("NOT_FOUND\r\n", quiet),
                    Counted::NoNumber => self.say(
                        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
                        quiet,
                    ),
                }
            }
            Command::FlushAll { delay, quiet } => {
                host.step(STORE, || store.flush_all(delay));
                self.say("OK\r\n", quiet);
            }
            Command::Verbosity { quiet } => self.say("OK\r\n", quiet),
            Command::Version => self.say(
                concat!("VERSION ", env!("CARGO_PKG_VERSION"), "\r\n"),
                false,
            ),
            Command::Stats => put_stats(&mut self.out, store),
            Command::ResetStats => {
                store.reset_counts();
                self.say("RESET\r\n", false);
            }
            Command::Quit => return Some(Turn::End),
            Command::Wrong(answer) => self.say(answer, false),
        }
        self.input.consume(line);
        None
    }

    fn next_key(
        &mut self,
        host: &impl Host,
        store: &Store,
        (line, at): (usize, usize),
        with_cas: bool,
    ) {
        let bytes = &self.input.bytes()[..line - 1];
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let Some((begin, end)) = protocol::word(bytes, at) else {
            self.out.extend_from_slice(b"END\r\n");
            self.input.consume(line);
            self.state = State::Line;
            return;
        };
        let (key, out) = (&bytes[begin..end], &mut self.out);
        host.step(LOOKUP, || store.get(key, with_cas, out));
        self.state = State::Keys {
            line,
            at: end,
            with_cas,
        };
    }

    fn value(
        &mut self,
        host: &impl Host,
        store: &Store,
        command: Command,
        line: usize,
    ) -> Option<Turn> {
        let Command::Store {
            verb,
            key,
            flags,
            expires,
            length,
            quiet,
        } = command
        else {
            unreachable!("the state is entered with this command alone");
        };
        let bytes = self.input.bytes();
        let total = line + length + 2;
        if bytes.len() < total {
            return Some(Turn::Read((total - bytes.len()).min(ROOM)));
        }
        let (value, end) = bytes[line..total].split_at(length);
        if end == b"\r\n" {
            let key = &bytes[key.0..key.1];
            let stored = host.step(STORE, || store.store(verb, key, value, (flags, expires)));
            let answer = match stored {
                Stored::Yes => "STORED\r\n",
                Stored::No => "NOT_STORED\r\n",
                Stored::Exists => "EXISTS\r\n",
                Stored::NotFound => "NOT_FOUND\r\n",
                Stored::TooLarge => protocol::TOO_LARGE,
            };
            self.say(answer, quiet);
        } else {
            self.say(protocol::CHUNK, quiet);
        }
        self.input.consume(total);
        self.state = State::Line;
        None
    }

    fn skip(&mut self, length: usize) -> Option<Turn> {
        let there = self.input.bytes().len().min(length);
        self.input.consume(there);
        if there < length {
            self.state = State::Skip(length - there);
            return Some(Turn::Read(1));
        }
        self.state = State::Line;
        None
    }
}

fn put_stats(out: &mut Vec<u8>, store: &Store) {
    let counts = store.counts();
    let connections = store.connections.load(Ordering::Relaxed).max(0);
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let numbers = [
        ("pid", u64::from(std::process::id())),
        ("uptime", store.now() - 1),
        ("time", since_1970.map_or(0, |it| it.as_secs())),
        ("pointer_size", u64::from(usize::BITS)),
        ("curr_connections", connections.unsigned_abs()),
        (
            "total_connections",
            store.all_connections.load(Ordering::Relaxed),
        ),
        ("cmd_get", counts.get_hits + counts.get_misses),
        ("cmd_set", counts.stores),
        ("cmd_flush", store.flushes.load(Ordering::Relaxed)),
        ("get_hits", counts.get_hits),
        ("get_misses", counts.get_misses),
        ("get_expired", counts.expired),
        ("delete_hits", counts.delete_hits),
        ("delete_misses", counts.delete_misses),
        ("incr_hits", counts.incr_hits),
        ("incr_misses", counts.incr_misses),
        ("decr_hits", counts.decr_hits),
        ("decr_misses", counts.decr_misses),
        ("cas_hits", counts.cas_hits),
        ("cas_misses", counts.cas_misses),
        ("cas_badval", counts.cas_badval),
        ("evictions", counts.evictions),
        ("curr_items", counts.items),
        ("total_items", counts.total_items),
        ("bytes", counts.bytes),
        ("limit_maxbytes", store.most as u64),
    ];
    out.extend_from_slice(concat!("STAT version ", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes());
    for (name, number) in numbers {
        // A vector takes all that is written.
        let _ = write!(out, "STAT {name} {number}\r\n");
    }
    out.extend_from_slice(b"END\r\n");
}
