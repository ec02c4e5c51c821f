//! What lies where in the target: threads with their names and stacks, modules segment by segment,
//! heap and anonymous memory.
//!
//! The tracer tells of files that are mapped. QEMU maps a program as it sees fit (code need not be
//! executable), so its rows are cut along the segments of the file. The rest is read from `/proc`
//! while the target lives, a few times a second and whenever a thread begins: a 64-bit guest on a
//! 64-bit machine has the addresses of its emulator. What a short program maps between its last
//! thread's beginning and its end is not seen there.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use linewise_machine::procfs;
use linewise_recording::{Address, Map, MapKind, Pid, Thread, Tid, Time};
use linewise_trace::{EventKind, ExactThread, GUEST_BITS, TracedAccess, TracedEvent};
use object::{Object, ObjectSegment, SegmentFlags};

use crate::target::binary::Binary;

/// How often `/proc` is read again, by the accesses' own time.
const EVERY_NS: u64 = 200_000_000;
/// A reading for a new thread that took no longer is made for each.
const BRIEF: Duration = Duration::from_millis(1);
/// After a longer one so many times as long nothing is read for new threads.
const REST: u32 = 10;
/// QEMU itself lies above, and so do the mappings of its own.
const GUEST_END: u64 = 0x5000_0000_0000;
const PAGE: u64 = 4096;
/// Above the first access of a thread its stack holds what the thread library keeps for it, thread-local variables
/// included: most have less of them.
const ABOVE_FIRST: u64 = 16 << 10;

/// Where the pages end that hold what ends here. Files and targets may name any number.
fn pages_end(end: u64) -> u64 {
    end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
}

/// What was seen in `/proc`, by process and thread.
#[derive(Debug, Default)]
pub(super) struct Places {
    live: HashMap<u16, (u32, u32)>,
    names: HashMap<(u32, u32), (String, u64)>,
    /// Anonymous memory: its end, and when it was first seen, by process and first byte.
    anonymous: BTreeMap<(u32, u64), (u64, u64)>,
    /// Where the first access of a thread went: a call, to its stack.
    first: HashMap<u16, u64>,
    waiting: Vec<u16>,
    last_ns: u64,
    /// When the memory of a process may be read again because of a new thread.
    rested: HashMap<u32, Instant>,
}

impl Places {
    pub(super) fn event(&mut self, event: &TracedEvent) {
        match event.kind {
            EventKind::ThreadStarted => {
                let ids = (event.a as u32, (event.a >> 32) as u32);
                self.live.insert(event.thread, ids);
                self.waiting.push(event.thread);
                self.look_at_thread(ids);
                self.look_for_stack(ids.0, event.time_ns);
            }
            EventKind::ThreadEnded => {
                // It may still be there.
                if let Some(ids) = self.live.remove(&event.thread) {
                    self.look_at_thread(ids);
                }
            }
            _ => {}
        }
    }

    /// Accesses have passed; now and then everything is read again.
    pub(super) fn passed(&mut self, batch: &[TracedAccess]) {
        if !self.waiting.is_empty() {
            for access in batch {
                if let Some(at) = self.waiting.iter().position(|&t| t == access.thread) {
                    self.waiting.swap_remove(at);
                    self.first.insert(access.thread, access.guest_address());
                }
            }
        }
        let now = batch.last().map_or(0, |access| access.time_ns);
        if now < self.last_ns + EVERY_NS {
            return;
        }
        self.last_ns = now;
        let live: Vec<(u32, u32)> = self.live.values().copied().collect();
        let mut processes: Vec<u32> = live.iter().map(|ids| ids.0).collect();
        processes.sort_unstable();
        processes.dedup();
        for ids in live {
            self.look_at_thread(ids);
        }
        for pid in processes {
            self.look_at_memory(pid, now);
        }
    }

    fn look_at_thread(&mut self, (pid, tid): (u32, u32)) {
        let Some(name) = procfs::thread_name(pid, tid) else {
            return;
        };
        let cpu_ns = procfs::thread_cpu_time_ns(pid, tid).unwrap_or(0);
        self.names.insert((pid, tid), (name, cpu_ns));
    }

    /// Reads the memory of a process that has a new thread; not so often that a process of thousands of threads, each of
    /// which makes the reading longer, is held up by it.
    fn look_for_stack(&mut self, pid: u32, now: u64) {
        let begin = Instant::now();
        if self.rested.get(&pid).is_some_and(|&until| begin < until) {
            return;
        }
        self.look_at_memory(pid, now);
        let took = begin.elapsed();
        if took > BRIEF {
            self.rested.insert(pid, begin + took * REST);
        }
    }

    fn look_at_memory(&mut self, pid: u32, now: u64) {
        let anonymous = procfs::maps(pid).unwrap_or_default();
        for map in anonymous {
            let anonymous = map.path.is_empty() || map.path.starts_with("[anon");
            if anonymous && map.writable && map.end <= GUEST_END {
                let known = self
                    .anonymous
                    .entry((pid, map.start))
                    .or_insert((map.end, now));
                known.0 = known.0.max(map.end);
            }
        }
    }

    /// Name and CPU time under emulation, in ns, of a thread. One that never named itself has the
    /// emulator's name; it gets that of the command.
    fn name(&self, thread: &ExactThread, command: &[OsString]) -> (String, u64) {
        let ids = (thread.pid.0, thread.tid);
        let (name, cpu_ns) = self.names.get(&ids).cloned().unwrap_or_default();
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

    /// The rows of the table `threads`.
    pub(super) fn threads(&self, threads: &[ExactThread], command: &[OsString]) -> Vec<Thread> {
        (0u16..)
            .zip(threads)
            .map(|(number, thread)| {
                let (name, cpu_time_ns) = self.name(thread, command);
                let (stack_low, stack_high) =
                    self.stack(number, thread.pid, thread.tid).unwrap_or((0, 0));
                Thread {
                    pid: thread.pid,
                    tid: Tid(thread.tid),
                    name,
                    start: Time(thread.start_ns),
                    end: Time(thread.end_ns),
                    cpu_time_ns,
                    stack_low: Address(stack_low),
                    stack_high: Address(stack_high),
                }
            })
            .collect()
    }

    /// The memory that the first access of thread `tid` went to. What is mapped right above the stack that a thread
    /// began on is one piece of memory with it in `/proc`, and not its stack.
    fn stack(&self, thread: u16, pid: Pid, tid: u32) -> Option<(u64, u64)> {
        let address = *self.first.get(&thread)?;
        let (&(process, start), &(end, _)) =
            self.anonymous.range(..=(pid.0, address)).next_back()?;
        // A process goes on in the middle of a stack, and has its environment above.
        let top = match tid == pid.0 {
            true => end,
            false => pages_end(address.saturating_add(ABOVE_FIRST)),
        };
        (process == pid.0 && address < end).then_some((start, end.min(top)))
    }

    /// The rows of the table `maps`, given what the tracer told.
    pub(super) fn maps(&self, told: &[Map]) -> Vec<Map> {
        let mut segments = Segments::default();
        let mut maps = Vec::new();
        // Where the break of each process begins: behind the .bss of its program.
        let mut breaks: HashMap<Pid, (&str, u64)> = HashMap::new();
        for map in told {
            let (cut, bss_end) = segments.cut(map);
            if let Some(end) = bss_end {
                // The program is the first that is mapped.
                let (program, last) = breaks.entry(map.pid).or_insert((&map.path, end));
                if *program == map.path {
                    *last = end.max(*last);
                }
            }
            maps.extend(cut);
        }
        for (&(pid, start), &(end, time)) in &self.anonymous {
            let pid = Pid(pid);
            let row = |start: u64, end: u64, kind: MapKind, path: &str| Map {
                pid,
                time: Time(time),
                start: Address(start),
                end: Address(end),
                offset: 0,
                executable: false,
                writable: true,
                kind,
                path: path.to_owned(),
                build_id: String::new(),
                device: None,
                inode: None,
            };
            let main = self
                .live_first_of(pid)
                .is_some_and(|first| (start..end).contains(&first));
            match breaks.get(&pid).map(|&(_, at)| at) {
                _ if main => maps.push(row(start, end, MapKind::Stack, "[stack]")),
                Some(at) if start <= at && at < end => {
                    if start < at {
                        maps.push(row(start, at, MapKind::Anonymous, ""));
                    }
                    maps.push(row(at, end, MapKind::Heap, "[heap]"));
                }
                _ => maps.push(row(start, end, MapKind::Anonymous, "")),
            }
        }
        maps
    }

    /// Where the first thread of a process first went.
    fn live_first_of(&self, pid: Pid) -> Option<u64> {
        // The command's first thread has the number 0; stacks of others are told by `threads`.
        let named = self.names.contains_key(&(pid.0, pid.0));
        self.first.get(&0).copied().filter(|_| named)
    }
}

/// A loaded segment of a file.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    size: u64,
    offset: u64,
    file_size: u64,
    executable: bool,
    writable: bool,
}

/// The segments of files, read once each.
#[derive(Default)]
struct Segments {
    of: HashMap<String, Vec<Segment>>,
    /// How far from the addresses of its file a program was loaded: its first mapping tells.
    distances: HashMap<(Pid, String), u64>,
}

impl Segments {
    fn of(&mut self, path: &str) -> &[Segment] {
        self.of
            .entry(path.to_owned())
            .or_insert_with(|| read_segments(Path::new(path)).unwrap_or_default())
    }

    /// A mapping of a file in pieces with the rights of its segments, and where the memory of its
    /// last segment ends if that goes beyond the file's bytes. What is no program stays as it is.
    fn cut(&mut self, map: &Map) -> (Vec<Map>, Option<u64>) {
        let whole = || (vec![map.clone()], None);
        if map.kind != MapKind::File || map.executable {
            return whole();
        }
        // What a target tells of its mappings may end before it begins.
        let length = map.end.0.saturating_sub(map.start.0);
        let (from, to) = (map.offset, map.offset.saturating_add(length));
        let mut pieces = Vec::new();
        let mut bss_end = None;
        let distance = |segment: &Segment| {
            let start = map.start.0.wrapping_add(segment.offset.wrapping_sub(from));
            start.wrapping_sub(segment.address)
        };
        let place = (map.pid, map.path.clone());
        let first = self.of(&map.path).first().copied();
        if let Some(first) = first.filter(|first| first.offset & !(PAGE - 1) == from) {
            self.distances
                .entry(place.clone())
                .or_insert(distance(&first));
        }
        let known = self.distances.get(&place).copied();
        let pages = |segment: &Segment| {
            let first = segment.offset & !(PAGE - 1);
            let last = pages_end(segment.offset.saturating_add(segment.file_size));
            (first.max(from), last.min(to))
        };
        let segments = self.of(&map.path);
        for segment in segments {
            let (first, last) = pages(segment);
            if first >= last {
                continue;
            }
            // Segments share pages of the file, each mapped for itself: these are pages of the one
            // that lies at the known distance.
            let others = |other: &Segment| {
                let (start, end) = pages(other);
                Some(distance(other)) == known && start <= first && last <= end
            };
            if Some(distance(segment)) != known && segments.iter().any(others) {
                continue;
            }
            let at = |offset: u64| map.start.0.wrapping_add(offset.wrapping_sub(from));
            pieces.push(Map {
                start: Address(at(first)),
                end: Address(at(last)),
                offset: first,
                executable: segment.executable,
                writable: segment.writable,
                ..map.clone()
            });
            if segment.size > segment.file_size {
                let end = at(segment.offset).wrapping_add(segment.size);
                let end = pages_end(end);
                bss_end = Some(end);
                let file_end = at(last);
                if end > file_end {
                    pieces.push(Map {
                        start: Address(file_end),
                        end: Address(end),
                        offset: 0,
                        executable: false,
                        writable: true,
                        kind: MapKind::Anonymous,
                        path: String::new(),
                        build_id: String::new(),
                        ..map.clone()
                    });
                }
            } else if segment.writable {
                bss_end = Some(at(last));
            }
        }
        if pieces.is_empty() {
            whole()
        } else {
            (pieces, bss_end)
        }
    }
}

fn read_segments(path: &Path) -> Option<Vec<Segment>> {
    let binary = Binary::open(path).ok()?;
    let file = object::File::parse(&binary).ok()?;
    let segments = file.segments().map(|segment| {
        let (offset, file_size) = segment.file_range();
        let flags = match segment.flags() {
            SegmentFlags::Elf { p_flags, .. } => p_flags.0,
            _ => 0,
        };
        Segment {
            address: segment.address(),
            size: segment.size(),
            offset,
            file_size,
            executable: flags & object::elf::PF_X.0 != 0,
            writable: flags & object::elf::PF_W.0 != 0,
        }
    });
    let plausible = |segment: &Segment| {
        segment.offset.checked_add(segment.file_size).is_some()
            && segment.address.checked_add(segment.size).is_some()
            && segment.offset < 1 << GUEST_BITS
            && segment.size < 1 << GUEST_BITS
            && segment.file_size < 1 << GUEST_BITS
    };
    Some(segments.filter(plausible).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, end: u64, offset: u64, path: &str) -> Map {
        Map {
            pid: Pid(7),
            time: Time(1),
            start: Address(start),
            end: Address(end),
            offset,
            executable: false,
            writable: false,
            kind: MapKind::File,
            path: path.to_owned(),
            build_id: String::new(),
            device: None,
            inode: None,
        }
    }

    #[test]
    fn a_mapping_of_a_whole_program_is_cut_along_its_segments() {
        let own = std::env::current_exe().unwrap();
        let own = own.to_str().unwrap();
        let size = std::fs::metadata(own).unwrap().len().next_multiple_of(PAGE);
        let mut segments = Segments::default();
        let (pieces, bss_end) = segments.cut(&map(0x10_0000, 0x10_0000 + size, 0, own));
        assert!(pieces.iter().any(|piece| piece.executable));
        assert!(pieces.iter().any(|piece| piece.writable));
        let end = pieces.iter().map(|piece| piece.end.0).max();
        assert_eq!(bss_end.max(end), end);
        for piece in pieces.iter().filter(|piece| piece.kind == MapKind::File) {
            assert_eq!(piece.start.0 - 0x10_0000, piece.offset, "{piece:?}");
        }
    }

    #[test]
    fn a_thread_s_stack_ends_where_it_began_and_a_process_s_with_its_memory() {
        let mut places = Places::default();
        places.anonymous.insert((7, 0x10_0000), (0x90_0000, 1));
        places.first.insert(1, 0x20_0ff8);
        assert_eq!(places.stack(1, Pid(7), 8), Some((0x10_0000, 0x20_5000)));
        assert_eq!(places.stack(1, Pid(7), 7), Some((0x10_0000, 0x90_0000)));
        places.first.insert(1, 0x8f_fff8);
        assert_eq!(places.stack(1, Pid(7), 8), Some((0x10_0000, 0x90_0000)));
        assert_eq!(places.stack(1, Pid(6), 8), None);
    }

    #[test]
    fn what_is_no_program_stays_as_it_is() {
        let plain = map(0x1000, 0x2000, 0, "/etc/passwd");
        assert_eq!(Segments::default().cut(&plain), (vec![plain.clone()], None));
        let gone = map(0x1000, 0x2000, 0, "/nowhere/at/all");
        assert_eq!(Segments::default().cut(&gone), (vec![gone.clone()], None));
    }
}
