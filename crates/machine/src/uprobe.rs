//! Probes on functions of another process: uprobes, which a breakpoint instruction of the kernel's and a BPF
//! program of ten instructions turn into samples.
//!
//! ```text
//! thread ─ int3 at a function ─ kernel ─ program ─► ring of the CPU: registers, top of the stack
//! ```
//!
//! Why a program, where `perf_event_open` alone can place a uprobe: such an event is one thread's, threads that
//! begin later would have to inherit it (and the kernel then reads the path of the file out of *their* memory), and
//! each function takes two events for each thread. One link of `BPF_TRACE_UPROBE_MULTI` (Linux 6.6) covers any number of
//! functions and all threads of one process, the new ones from their first instruction. Other processes that run the same
//! file are left alone. It takes CAP_BPF and CAP_PERFMON, or root.
//!
//! Everything here ends with its descriptors: nothing stays in the target when linewise is killed.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::perf::Event;
use crate::procfs;
use crate::records::{Record, SampleRecord};
use crate::registers::Registers;
use crate::ring::Ring;

/// Bytes of the stack, from the stack pointer up, that a hit at a function's beginning brings.
pub const STACK_BYTES: u32 = 1024;
/// Data pages of all rings for hits with stacks, and of all others; and of one, at least and at most. A CPU makes some 600
/// hits a millisecond, 1.3 kB each with its stack.
const WITH_STACKS_PAGES: usize = 1 << 13;
const OTHER_PAGES: usize = 1 << 11;
const RING_PAGES: std::ops::RangeInclusive<usize> = 64..=4096;
/// Set in a cookie when the function returned.
const RETURNED: u64 = 1 << 32;

/// A function to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Where, in bytes from the file's beginning: an instruction boundary.
    pub offset: u64,
    /// Comes back with each hit.
    pub cookie: u32,
    /// Whether the top of the stack is wanted there.
    pub stack: bool,
    /// Whether its return is told, too; then `offset` has to be where the return address is still on top of the stack.
    pub returns: Returns,
}

/// What is told of returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// Nothing.
    Not,
    /// That they happen.
    Bare,
    /// The same with the top of the stack.
    WithStack,
}

/// A thread came by a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Monotonic ns.
    pub time: u64,
    /// The point's.
    pub cookie: u32,
    /// Whether the function returned, rather than began.
    pub returned: bool,
    /// The thread's registers.
    pub registers: Registers,
    /// The stack from its pointer up; empty where it was not wanted.
    pub stack: Vec<u64>,
}

/// What probes cost the thread that comes by, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeCosts {
    /// At an instruction that the kernel carries out itself (see [`is_emulated`]).
    pub emulated_ns: f64,
    /// At another, which the kernel has the processor carry out elsewhere, alone: two exceptions, of which a
    /// hypervisor takes one.
    pub stepped_ns: f64,
    /// Of a return, on top of the entry.
    pub return_ns: f64,
}

/// The commands of bpf(2), as `linux/bpf.h` numbers them.
mod command {
    pub(super) const MAP_CREATE: libc::c_long = 0;
    pub(super) const MAP_UPDATE: libc::c_long = 2;
    pub(super) const PROG_LOAD: libc::c_long = 5;
    pub(super) const LINK_CREATE: libc::c_long = 28;
}
const MAP_TYPE_PERF_EVENT_ARRAY: u32 = 4;
const PROG_TYPE_KPROBE: u32 = 2;
const TRACE_UPROBE_MULTI: u32 = 48;
const UPROBE_MULTI_RETURN: u32 = 1;
const SW_BPF_OUTPUT: u64 = 10;

/// The beginning of `union bpf_attr` for each command; what is left out is zero.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    reference_counters: u64,
    cookies: u64,
    count: u32,
    multi_flags: u32,
    pid: u32,
    padding: u32,
}

/// bpf(2). `attributes` is one of the structures above, and what its fields point to is alive.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads as many bytes of `attributes` as it is long, and takes the rest of its union for
    // zeros; what the structure points to is alive, as each caller below sees to, and only read.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn bpf_fd<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel just returned this descriptor to us and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// An instruction of a BPF program: `opcode`, destination and source registers, offset, number.
const fn instruction(opcode: u8, destination: u8, source: u8, offset: i16, number: i32) -> u64 {
    let registers = destination | source << 4;
    opcode as u64
        | (registers as u64) << 8
        | (offset as u16 as u64) << 16
        | (number as u32 as u64) << 32
}

/// Sends the cookie of the probe with a sample of the interrupted thread to the ring of the CPU in `map`.
fn program(map: RawFd) -> [u64; 12] {
    const CALL: u8 = 0x85;
    const GET_ATTACH_COOKIE: i32 = 174;
    const PERF_EVENT_OUTPUT: i32 = 25;
    const CURRENT_CPU: i32 = -1;
    [
        instruction(0xbf, 6, 1, 0, 0), // r6 = r1
        instruction(CALL, 0, 0, 0, GET_ATTACH_COOKIE),
        instruction(0x7b, 10, 0, -8, 0), // *(r10 - 8) = r0
        instruction(0xbf, 1, 6, 0, 0),   // r1 = r6
        instruction(0x18, 2, 1, 0, map), // r2 = map, in two words
        0,
        instruction(0xb4, 3, 0, 0, CURRENT_CPU), // w3 = this CPU
        instruction(0xbf, 4, 10, 0, 0),          // r4 = r10
        instruction(0x07, 4, 0, 0, -8),          // r4 += -8
        instruction(0xb7, 5, 0, 0, 8),           // r5 = 8
        instruction(CALL, 0, 0, 0, PERF_EVENT_OUTPUT),
        instruction(0x95, 0, 0, 0, 0), // exit, with what the call returned: nobody asks
    ]
}

/// A program and where it writes: one ring for each CPU.
struct Channel {
    /// Forgets the events when it is closed.
    _map: OwnedFd,
    _events: Vec<Event>,
    rings: Vec<Ring>,
    program: OwnedFd,
}

impl Channel {
    fn open(cpus: &[u32], stack_bytes: u32, pages: usize) -> io::Result<Self> {
        let map = bpf_fd(
            command::MAP_CREATE,
            &MapCreate {
                map_type: MAP_TYPE_PERF_EVENT_ARRAY,
                key_size: 4,
                value_size: 4,
                max_entries: cpus.iter().max().map_or(1, |last| last + 1),
            },
        )?;
        let mut events = Vec::new();
        let mut rings = Vec::new();
        for cpu in cpus {
            let event = Event::program_output(*cpu, SW_BPF_OUTPUT, stack_bytes)?;
            // Fewer where a user may not lock that much.
            let mut pages = pages;
            let ring = loop {
                match event.map_ring(pages) {
                    Err(_) if pages > 16 => pages /= 2,
                    ring => break ring?,
                }
            };
            let fd = event.raw_fd();
            bpf(
                command::MAP_UPDATE,
                &MapUpdate {
                    map: map.as_raw_fd() as u32,
                    key: std::ptr::from_ref(cpu) as u64,
                    value: std::ptr::from_ref(&fd) as u64,
                    flags: 0,
                },
            )?;
            rings.push(ring);
            events.push(event);
        }
        let instructions = program(map.as_raw_fd());
        // The kernel lets only programs of such a licence send samples.
        let license = c"Dual MIT/GPL";
        let program = bpf_fd(
            command::PROG_LOAD,
            &ProgLoad {
                prog_type: PROG_TYPE_KPROBE,
                count: instructions.len() as u32,
                instructions: instructions.as_ptr() as u64,
                license: license.as_ptr() as u64,
                name: *b"linewise_probe\0\0",
                expected_attach_type: TRACE_UPROBE_MULTI,
                ..ProgLoad::default()
            },
        )?;
        Ok(Self {
            _map: map,
            _events: events,
            rings,
            program,
        })
    }

    fn link(
        &self,
        pid: u32,
        file: &CString,
        points: &[(u64, u64)],
        returns: bool,
    ) -> io::Result<Option<OwnedFd>> {
        if points.is_empty() {
            return Ok(None);
        }
        let offsets: Vec<u64> = points.iter().map(|point| point.0).collect();
        let cookies: Vec<u64> = points.iter().map(|point| point.1).collect();
        bpf_fd(
            command::LINK_CREATE,
            &LinkCreate {
                program: self.program.as_raw_fd() as u32,
                attach_type: TRACE_UPROBE_MULTI,
                path: file.as_ptr() as u64,
                offsets: offsets.as_ptr() as u64,
                cookies: cookies.as_ptr() as u64,
                count: points.len() as u32,
                multi_flags: if returns { UPROBE_MULTI_RETURN } else { 0 },
                pid,
                ..LinkCreate::default()
            },
        )
        .map(Some)
    }
}

/// Where probes write to, and what places them.
pub struct Prober {
    with_stacks: Channel,
    without: Channel,
}

/// Probes in place. They go when this is dropped, the breakpoint instructions at once; that nobody is in a
/// handler any more is waited for (some 100 ms) by a thread of its own.
#[derive(Debug)]
pub struct Placed(Vec<OwnedFd>);

impl Drop for Placed {
    fn drop(&mut self) {
        let links = std::mem::take(&mut self.0);
        // Without a thread they are closed here, as what could not be moved is dropped.
        let _ = std::thread::Builder::new().spawn(move || drop(links));
    }
}

impl Prober {
    /// Rings on `cpus`.
    ///
    /// # Errors
    /// The kernel's: EPERM, EACCES without CAP_BPF and CAP_PERFMON, EINVAL before Linux 6.6, ENOSYS without BPF.
    pub fn open(cpus: &[u32]) -> io::Result<Self> {
        let each = |all: usize| {
            let share = (all / cpus.len().max(1)).next_power_of_two();
            share.clamp(*RING_PAGES.start(), *RING_PAGES.end())
        };
        Ok(Self {
            with_stacks: Channel::open(cpus, STACK_BYTES, each(WITH_STACKS_PAGES))?,
            without: Channel::open(cpus, 0, each(OTHER_PAGES))?,
        })
    }

    /// Places probes on `points` of `file` in all threads of process `pid`, of today and later. They come in the order
    /// of what has no stack first.
    ///
    /// # Errors
    /// The kernel's: ENOENT, ESRCH; EINVAL, an offset beyond the file; EOPNOTSUPP, an instruction that takes no probe.
    pub fn place(&self, pid: u32, file: &Path, points: &[Point]) -> io::Result<Placed> {
        let file = CString::new(file.as_os_str().as_bytes())?;
        let chosen = |wanted: &dyn Fn(&Point) -> bool, mark: u64| -> Vec<(u64, u64)> {
            let points = points.iter().filter(|point| wanted(point));
            points
                .map(|point| (point.offset, u64::from(point.cookie) | mark))
                .collect()
        };
        let mut links = Vec::new();
        for (channel, points, returns) in [
            (&self.without, chosen(&|it| !it.stack, 0), false),
            (
                &self.without,
                chosen(&|it| it.returns == Returns::Bare, RETURNED),
                true,
            ),
            (
                &self.with_stacks,
                chosen(&|it| it.returns == Returns::WithStack, RETURNED),
                true,
            ),
            (&self.with_stacks, chosen(&|it| it.stack, 0), false),
        ] {
            links.extend(channel.link(pid, &file, &points, returns)?);
        }
        Ok(Placed(links))
    }

    /// Takes out all hits, in the order of time; how many found no room.
    pub fn drain(&mut self, into: &mut Vec<Hit>) -> u64 {
        let first = into.len();
        let mut lost = 0;
        let channels = [&mut self.with_stacks, &mut self.without];
        for ring in channels.into_iter().flat_map(|it| &mut it.rings) {
            ring.drain(|record| match record {
                Record::Sample(sample) => into.extend(hit(*sample)),
                Record::Lost(count) => lost += count,
                _ => {}
            });
        }
        into[first..].sort_by_key(|hit| hit.time);
        lost
    }
}

/// What a program sent: the cookie, filled up to a multiple of eight; and the registers, without which it is no hit.
fn hit(sample: SampleRecord) -> Option<Hit> {
    let cookie = u64::from_ne_bytes(*sample.raw.first_chunk()?);
    Some(Hit {
        pid: sample.pid,
        tid: sample.tid,
        time: sample.time,
        cookie: cookie as u32,
        returned: cookie & RETURNED != 0,
        registers: sample.registers?,
        stack: sample.stack,
    })
}

/// Whether the kernel carries out the instruction that begins with these bytes itself: pushes, and jumps, calls and the
/// nop of one byte (`arch/x86/kernel/uprobes.c`).
#[must_use]
pub fn is_emulated(code: &[u8]) -> bool {
    matches!(
        code,
        [0x41, 0x50..=0x57, ..]
            | [0x50..=0x57 | 0x70..=0x7f | 0xe8 | 0xe9 | 0xeb | 0x90, ..]
            | [0x0f, 0x80..=0x8f, ..]
    )
}

/// Functions whose first instruction the kernel carries out, carries out and waits for the return of, and does not.
#[unsafe(naked)]
extern "C" fn emulated() {
    core::arch::naked_asm!("push rbp", "pop rbp", "ret")
}
#[unsafe(naked)]
extern "C" fn returning() {
    core::arch::naked_asm!("push rbp", "pop rbp", "ret")
}
#[unsafe(naked)]
extern "C" fn stepped() {
    core::arch::naked_asm!("lea rax, [rdi + 1]", "ret")
}

/// Measures what probes cost here, on functions of our own. Takes some 50 ms.
///
/// # Errors
/// As for [`Prober::open`] and [`Prober::place`]; NotFound, if nothing is known of this program's memory.
pub fn costs(cpus: &[u32]) -> io::Result<ProbeCosts> {
    const ROUNDS: u32 = 5;
    const CALLS: u32 = 40;
    let functions: [extern "C" fn(); 3] = [emulated, returning, stepped];
    let pid = std::process::id();
    let maps = procfs::maps(pid)?;
    let mut points = Vec::new();
    for (cookie, function) in (0..).zip(functions) {
        let address = function as usize as u64;
        let map = maps
            .iter()
            .find(|map| (map.start..map.end).contains(&address))
            .ok_or(io::ErrorKind::NotFound)?;
        points.push(Point {
            offset: address - map.start + map.offset,
            cookie,
            stack: cookie != 0,
            returns: if cookie == 1 {
                Returns::Bare
            } else {
                Returns::Not
            },
        });
    }
    let prober = Prober::open(cpus)?;
    let _placed = prober.place(pid, Path::new("/proc/self/exe"), &points)?;
    let time = |function: extern "C" fn()| {
        // The quickest of some: what else happens only takes longer.
        let round = || {
            let began = Instant::now();
            (0..CALLS).for_each(|_| function());
            began.elapsed()
        };
        let least = (0..ROUNDS).map(|_| round()).min();
        least.unwrap_or(Duration::ZERO).as_nanos() as f64 / f64::from(CALLS)
    };
    let [emulated_ns, with_return, stepped_ns] = functions.map(time);
    Ok(ProbeCosts {
        emulated_ns,
        stepped_ns,
        return_ns: (with_return - emulated_ns).max(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_and_jumps_are_carried_out_by_the_kernel_and_moves_are_not() {
        for code in [
            &[0x55_u8][..],
            &[0x41, 0x54],
            &[0x0f, 0x84, 1, 2],
            &[0x74, 3],
        ] {
            assert!(is_emulated(code), "{code:x?}");
        }
        for code in [&[0x48_u8, 0x85, 0xff][..], &[0xc3], &[], &[0x41, 0x89]] {
            assert!(!is_emulated(code), "{code:x?}");
        }
    }

    #[test]
    fn a_hit_has_a_cookie_and_registers() {
        let sample = SampleRecord {
            pid: 7,
            tid: 8,
            time: 99,
            registers: Some(Registers::from_pairs(&[(1, 5)])),
            stack: vec![11],
            raw: [5_u32, 1, 0]
                .iter()
                .flat_map(|it| it.to_ne_bytes())
                .collect(),
            ..SampleRecord::default()
        };
        let found = hit(sample.clone()).expect("a hit");
        assert_eq!((found.pid, found.tid, found.time), (7, 8, 99));
        assert_eq!((found.cookie, found.returned), (5, true));
        assert_eq!(found.stack, [11]);
        for short in 0..8 {
            let mut cut = sample.clone();
            cut.raw.truncate(short);
            assert!(hit(cut).is_none(), "{short}");
        }
        let without = SampleRecord {
            registers: None,
            ..sample
        };
        assert!(hit(without).is_none());
    }

    #[test]
    fn calls_of_a_probed_function_are_told_with_registers_and_stack_and_so_are_their_returns() {
        let cpus = crate::affinity::allowed_cpus();
        let mut prober = match Prober::open(&cpus) {
            Ok(prober) => prober,
            Err(error) => {
                println!("SKIP: no probes here: {error}");
                return;
            }
        };
        let pid = std::process::id();
        let address = tests_function as extern "C" fn(u64) as usize as u64;
        let maps = procfs::maps(pid).unwrap();
        let map = maps
            .iter()
            .find(|map| (map.start..map.end).contains(&address));
        let map = map.unwrap();
        let point = Point {
            offset: address - map.start + map.offset,
            cookie: 3,
            stack: true,
            returns: Returns::Bare,
        };
        let placed = prober
            .place(pid, Path::new("/proc/self/exe"), &[point])
            .unwrap();
        // A thread that begins later.
        let thread = std::thread::spawn(|| tests_function(std::hint::black_box(77)));
        thread.join().unwrap();
        drop(placed);
        let mut hits = Vec::new();
        assert_eq!(prober.drain(&mut hits), 0);
        let [began, returned] = &hits[..] else {
            panic!("{hits:?}")
        };
        assert!(!began.returned && returned.returned);
        assert_eq!((began.cookie, began.pid, began.tid), (3, pid, returned.tid));
        assert_ne!(began.tid, pid);
        // rdi, rax; the return address is on top of the stack.
        assert_eq!(began.registers.get(5), Some(77));
        assert_eq!(returned.registers.get(0), Some(78));
        let sp = |hit: &Hit| hit.registers.stack_pointer();
        assert_eq!(sp(returned), sp(began) + 8);
        assert!(began.stack.len() > 8 && returned.stack.is_empty());
        assert!(
            maps.iter()
                .any(|map| map.executable && (map.start..map.end).contains(&began.stack[0]))
        );
        let costs = costs(&cpus).unwrap();
        println!("{costs:?}");
        assert!(costs.emulated_ns > 0.0 && costs.stepped_ns > 0.0);
    }

    #[unsafe(naked)]
    extern "C" fn tests_function(number: u64) {
        core::arch::naked_asm!("push rbp", "lea rax, [rdi + 1]", "pop rbp", "ret")
    }
}
