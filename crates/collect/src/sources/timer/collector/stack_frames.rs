//! Whose frame holds a line on a stack at which other threads trap. Who lends what lies on its stack mostly sleeps until they are
//! done, so that no sample tells where its stack pointer is.

use std::collections::BTreeMap;

use linewise_heap::Cursor;
use linewise_machine::procfs::Mapping;
use linewise_recording::{Address, Pid, StackFrame, Tid, Time};

use super::Collector;
use crate::error::Error;
use crate::kernel::Kernel;

/// Lines that are looked for, at most; those that trapped first.
const MOST_LINES: usize = 64;
/// How often a line is looked for, each time after twice as long: its owner may run.
const TRIES: u32 = 8;
const FIRST_PAUSE_NS: u64 = 20_000_000;
/// Threads of a process that are asked, at most: each takes some 10 µs.
const MOST_THREADS: usize = 64;
/// Bytes between a stack pointer and the address, and from there on, at most.
const MOST_BYTES: u64 = 256 << 10;

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

    fn due(&mut self, now: Time) -> Vec<((Pid, Address), Address)> {
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
    fn end(&mut self, line: (Pid, Address)) {
        if let Some(search) = self.lines.get_mut(&line) {
            search.tries = TRIES;
        }
    }
}

impl<K: Kernel> Collector<K> {
    /// Looks for the frames that hold lines which are due.
    pub(super) fn look_for_frames(&mut self, now: Time) -> Result<(), Error> {
        for (line, address) in self.lent.due(now) {
            let pid = line.0;
            let maps = self.kernel.maps(pid.0).unwrap_or_default();
            let Some(map) = maps.iter().find(|map| may_be_stack(map, address.0)) else {
                self.lent.end(line);
                continue;
            };
            if let Some(row) = self.frame_of((pid, address), map, now) {
                self.lent.end(line);
                self.writer.push([row])?;
            }
        }
        Ok(())
    }

    /// The frame that holds an address of a mapping, if the thread sleeps whose stack it is.
    fn frame_of(
        &mut self,
        (pid, address): (Pid, Address),
        map: &Mapping,
        time: Time,
    ) -> Option<StackFrame> {
        let threads = self.kernel.threads(pid.0).ok()?.into_iter();
        let asleep = threads.take(MOST_THREADS).filter_map(|tid| {
            let (sp, ip) = self.kernel.sleeps_at(pid.0, tid)?;
            Some((sp, ip, tid))
        });
        let reaches = |sp: u64| map.start <= sp && sp <= address.0 && address.0 - sp < MOST_BYTES;
        // Stacks can lie side by side in one mapping.
        let (sp, ip, tid) = asleep.filter(|(sp, ..)| reaches(*sp)).max()?;
        let end = map.end.min(address.0.saturating_add(MOST_BYTES));
        let mut bytes = vec![0; usize::try_from(end - sp).ok()?];
        let length = self.kernel.read_memory(pid.0, sp, &mut bytes).ok()?;
        let words: Vec<u64> = bytes[..length]
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        let at = Cursor { ip, sp, bp: 0 };
        let (ip, low, high) = self.callers.frame_of(pid.0, at, &words, address.0)?;
        Some(StackFrame {
            pid,
            tid: Tid(tid),
            time,
            ip: Address(ip),
            low: Address(low),
            high: Address(high),
        })
    }
}

/// Whether threads may have their stacks in a mapping that holds this address.
fn may_be_stack(map: &Mapping, address: u64) -> bool {
    let is_named = map.path.starts_with('/') || map.path == "[heap]";
    (map.start..map.end).contains(&address) && map.writable && !map.shared && !is_named
}
