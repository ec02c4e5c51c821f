//! What the threads of the target are called: read from `/proc` while they live.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use linewise_machine::procfs;
use linewise_tracer::words::EventKind;

use super::super::access::{TracedAccess, TracedEvent};
use super::super::stream::ExactThread;

/// How often the names are read again, by the accesses' own time.
const EVERY_NS: u64 = 200_000_000;

/// Names and CPU times as they were last seen, by process and thread.
#[derive(Debug, Default)]
pub(super) struct ThreadNames {
    live: HashMap<u16, (u32, u32)>,
    seen: HashMap<(u32, u32), (String, u64)>,
    last_ns: u64,
}

impl ThreadNames {
    pub(super) fn event(&mut self, event: &TracedEvent) {
        match event.kind {
            EventKind::ThreadStarted => {
                let ids = (event.a as u32, event.b as u32);
                self.live.insert(event.thread, ids);
                self.look(ids);
            }
            EventKind::ThreadEnded => {
                // It may still be there.
                if let Some(ids) = self.live.remove(&event.thread) {
                    self.look(ids);
                }
            }
            _ => {}
        }
    }

    /// Accesses have passed; now and then all names are read.
    pub(super) fn passed(&mut self, batch: &[TracedAccess]) {
        let now = batch.last().map_or(0, |access| access.time_ns);
        if now < self.last_ns + EVERY_NS {
            return;
        }
        self.last_ns = now;
        for ids in self.live.values().copied().collect::<Vec<_>>() {
            self.look(ids);
        }
    }

    fn look(&mut self, (pid, tid): (u32, u32)) {
        let Some(name) = procfs::thread_name(pid, tid) else {
            return;
        };
        let cpu_ns = procfs::thread_cpu_time_ns(pid, tid).unwrap_or(0);
        self.seen.insert((pid, tid), (name, cpu_ns));
    }

    /// The name of a thread and its CPU time under emulation, in ns. One that never named itself has
    /// the emulator's name; it gets that of the command.
    pub(super) fn of(&self, thread: &ExactThread, command: &[OsString]) -> (String, u64) {
        let (name, cpu_ns) = self
            .seen
            .get(&(thread.pid.0, thread.tid))
            .cloned()
            .unwrap_or_default();
        if !name.is_empty() && !name.starts_with("qemu-") {
            return (name, cpu_ns);
        }
        let program = command.first().map(Path::new);
        let name = program
            .and_then(Path::file_name)
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        (name, cpu_ns)
    }
}
