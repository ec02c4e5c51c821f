//! Lines at which threads trapped, and whose frames on a stack are looked for.

use std::collections::BTreeMap;

use linewise_recording::{Address, Pid, Time};

/// Lines that are looked for, at most; those that trapped first.
const MOST_LINES: usize = 64;
/// How often a line is looked for, each time after twice as long: its owner may run.
const TRIES: u32 = 8;
const FIRST_PAUSE_NS: u64 = 20_000_000;

/// Lines at which threads trapped, and when each is looked for next.
#[derive(Debug, Default)]
pub(super) struct LentLines {
    lines: BTreeMap<(Pid, Address), Search>,
}

#[derive(Debug)]
struct Search {
    /// Where on the line the first of them was.
    address: Address,
    tries: u32,
    next: Time,
}

impl LentLines {
    /// A thread was trapped.
    pub(super) fn trapped(&mut self, pid: Pid, address: Address, line_size: u64) {
        if self.lines.len() < MOST_LINES {
            let search = Search {
                address,
                tries: 0,
                next: Time(0),
            };
            self.lines
                .entry((pid, address.line(line_size)))
                .or_insert(search);
        }
    }

    /// The lines that are to be looked for now, each with the address.
    pub(super) fn due(&mut self, now: Time) -> Vec<((Pid, Address), Address)> {
        let mut due = Vec::new();
        for (&line, search) in &mut self.lines {
            if search.tries < TRIES && search.next <= now {
                search.next = Time(now.0 + (FIRST_PAUSE_NS << search.tries));
                search.tries += 1;
                due.push((line, search.address));
            }
        }
        due
    }

    /// A line is not looked for again.
    pub(super) fn end(&mut self, line: (Pid, Address)) {
        if let Some(search) = self.lines.get_mut(&line) {
            search.tries = TRIES;
        }
    }
}
