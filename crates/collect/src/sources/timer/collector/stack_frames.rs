//! Whose frame holds a line on a stack at which other threads trap. Who lends what lies on its stack mostly sleeps until they are
//! done, so that no sample tells where its stack pointer is.

use linewise_heap::Cursor;
use linewise_machine::procfs::Mapping;
use linewise_recording::{Address, Pid, StackFrame, Tid, Time};

use super::Collector;
use crate::error::Error;
use crate::kernel::Kernel;

/// Threads of a process that are asked, at most: each takes some 10 µs.
const MOST_THREADS: usize = 64;
/// Bytes between a stack pointer and the address, and from there on, at most.
const MOST_BYTES: u64 = 256 << 10;

/// Where a thread sleeps: its stack pointer, instruction and number.
type Sleeper = (u64, u64, u32);

impl<K: Kernel> Collector<K> {
    /// Looks for the frames that hold lines which are due.
    pub(super) fn look_for_frames(&mut self, now: Time) -> Result<(), Error> {
        let due = self.lent.due(now);
        for lines in due.chunk_by(|(one, _), (other, _)| one.0 == other.0) {
            let Some(&((pid, _), _)) = lines.first() else {
                continue;
            };
            let maps = self.kernel.maps(pid.0).unwrap_or_default();
            let mut asleep = None;
            for &(line, address) in lines {
                let Some(map) = maps.iter().find(|map| may_be_stack(map, address.0)) else {
                    self.lent.end(line);
                    continue;
                };
                let asleep = asleep.get_or_insert_with(|| self.asleep(pid));
                if let Some(row) = self.frame_of((pid, address), map, asleep, now) {
                    self.lent.end(line);
                    self.writer.push([row])?;
                }
            }
        }
        Ok(())
    }

    /// The threads of a process that sleep.
    fn asleep(&self, pid: Pid) -> Vec<Sleeper> {
        let threads = self.kernel.threads(pid.0).unwrap_or_default();
        let asleep = threads.into_iter().take(MOST_THREADS).filter_map(|tid| {
            let (sp, ip) = self.kernel.sleeps_at(pid.0, tid)?;
            Some((sp, ip, tid))
        });
        asleep.collect()
    }

    /// The frame that holds an address of a mapping, if the thread sleeps whose stack it is.
    fn frame_of(
        &mut self,
        (pid, address): (Pid, Address),
        map: &Mapping,
        asleep: &[Sleeper],
        time: Time,
    ) -> Option<StackFrame> {
        let reaches = |sp: u64| map.start <= sp && sp <= address.0 && address.0 - sp < MOST_BYTES;
        // Stacks can lie side by side in one mapping.
        let &(sp, ip, tid) = asleep.iter().filter(|(sp, ..)| reaches(*sp)).max()?;
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
