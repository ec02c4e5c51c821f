//! What sampling and watching cost on this machine, and where its timer interrupts point.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::affinity::{allowed_cpus, current_cpu, pin_current_thread};
use crate::facts::{Facts, PerfPermission};
use crate::perf::{BreakOn, Event, SamplerOptions, Whom};
use crate::process::{current_tid, monotonic_ns, thread_cpu_time_ns};
use crate::records::Record;
use crate::ring::Ring;

/// Which instruction a timer interrupt reports when a load made the core wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkidRule {
    /// The instruction after the one that waited (measured on AMD).
    Next,
    /// The one that waited.
    Same,
}

impl SkidRule {
    /// The word for it in recordings and reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Same => "same",
        }
    }

    /// The rule that `word` stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Next, Self::Same]
            .into_iter()
            .find(|rule| rule.word() == word)
    }
}

/// What the skid probe saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SkidProbe {
    /// The rule of this machine.
    pub rule: SkidRule,
    /// Share of the samples that follow it, 0 to 1.
    pub agreement: f64,
    /// Samples that it rests on.
    pub samples: u32,
    /// What one sample costs the sampled thread, in ns.
    pub sample_ns: f64,
}

/// What a watchpoint costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchpointCosts {
    /// Watchpoints that one thread can have.
    pub count: u32,
    /// Arming one in a running thread, in ns of the arming thread; the running one loses less.
    pub arm_ns: f64,
    /// One trap, in ns of the trapping thread.
    pub trap_ns: f64,
    /// What the kernel counts between arming and a trap that comes at once, in ns: to be
    /// subtracted from every exposure.
    pub exposure_offset_ns: f64,
    /// From the moment at which a watch is armed to the record of a trap that comes at once, ns.
    pub trap_delay_ns: f64,
    /// What one breakpoint takes from the thread that it is armed in, in ns: the interrupts that
    /// arm it and take it away, and its trap.
    pub shot_ns: f64,
    /// The same for a group of `count` watchpoints of which one traps.
    pub watch_ns: f64,
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel refused.
    #[error("{what}: {source}{hint}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// What to try, with a leading `; `.
        hint: &'static str,
    },
    /// Nothing was measured.
    #[error("{0}")]
    Nothing(&'static str),
}

/// What [`kernel`] is told where a thread of our own could not be started.
pub(crate) const NO_THREAD: &str = "cannot start a thread to measure with";

/// What to try where perf events are refused to a process of which these facts hold, with a leading `; `.
fn if_forbidden(facts: &Facts) -> &'static str {
    match facts.perf_permission() {
        PerfPermission::Nothing => "; set kernel.perf_event_paranoid to 2 or lower, or run as root",
        // Then it is not the settings.
        _ => {
            "; the kernel's settings allow it, so a filter of system calls (seccomp) forbids it, as containers have one: start the container with `--cap-add PERFMON` or `--security-opt seccomp=unconfined`; `--source exact` needs no permission"
        }
    }
}

pub(crate) fn kernel(what: &'static str) -> impl FnOnce(io::Error) -> ProbeError {
    move |source| {
        let hint = match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => if_forbidden(&Facts::read(Path::new("/"), &[])),
            Some(libc::ENOSPC) => "; another debugger or profiler holds the debug registers",
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV) => {
                "; this kernel or hypervisor does not offer it"
            }
            _ => "",
        };
        ProbeError::Kernel { what, source, hint }
    }
}

pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A cycle through `nodes` lines in an order that no prefetcher guesses: each holds the address
/// of the next.
struct Chain {
    lines: Vec<[u64; 8]>,
}

impl Chain {
    fn new(nodes: usize) -> Self {
        let mut order: Vec<usize> = (0..nodes).collect();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for i in (1..nodes).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            order.swap(i, (state % (i as u64 + 1)) as usize);
        }
        let mut lines = vec![[0u64; 8]; nodes];
        for pair in 0..nodes {
            let next = order[(pair + 1) % nodes];
            lines[order[pair]][0] = std::ptr::from_ref(&lines[next]) as u64;
        }
        Self { lines }
    }
}

/// Follows the chain for `steps` loads; returns the address of the load instruction.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn chase(chain: &Chain, steps: u64) -> u64 {
    let load: u64;
    // SAFETY: every node of the chain holds the address of another node of the same live vector,
    // so each load reads valid memory; nothing is written and the stack is not used.
    unsafe {
        std::arch::asm!(
            "lea {load}, [rip + 2f]",
            "2:",
            "mov {node}, [{node}]",
            "dec {steps}",
            "jnz 2b",
            load = out(reg) load,
            node = inout(reg) chain.lines.as_ptr() => _,
            steps = inout(reg) steps.max(1) => _,
            options(nostack, readonly),
        );
    }
    load
}

/// Follows the chain for `steps` loads; returns the address of the load instruction.
#[cfg(target_arch = "aarch64")]
#[inline(never)]
fn chase(chain: &Chain, steps: u64) -> u64 {
    let load: u64;
    // SAFETY: as on x86-64.
    unsafe {
        std::arch::asm!(
            "adr {load}, 2f",
            "2:",
            "ldr {node}, [{node}]",
            "subs {steps}, {steps}, #1",
            "b.ne 2b",
            load = out(reg) load,
            node = inout(reg) chain.lines.as_ptr() => _,
            steps = inout(reg) steps.max(1) => _,
            options(nostack, readonly),
        );
    }
    load
}

#[cfg(target_arch = "x86_64")]
const LOAD_BYTES: std::ops::RangeInclusive<u64> = 3..=4;
#[cfg(target_arch = "aarch64")]
const LOAD_BYTES: std::ops::RangeInclusive<u64> = 4..=4;

/// Finds the skid rule and the cost of a sample, in about 150 ms.
///
/// The probe follows a chain of loads that miss the inner caches, so that nearly all time passes
/// in one instruction, and looks where the interrupts say that it passed.
///
/// # Errors
/// The kernel does not give us a timer sampler on ourselves, or no sample came.
pub fn skid_rule() -> Result<SkidProbe, ProbeError> {
    const STEPS: u64 = 20_000;
    let chain = Chain::new(1 << 16);
    let options = SamplerOptions {
        period_ns: 50_000,
        enable_on_exec: false,
        inherit: false,
    };
    let event = Event::sampler(Whom::Thread(current_tid()), u32::MAX, options)
        .map_err(kernel("cannot open a timer sampler"))?;
    // Samples of a slow round fill 64 pages, which not every user may lock.
    let mut ring = event
        .map_ring(64)
        .or_else(|_| event.map_ring(8))
        .map_err(kernel("cannot map a ring buffer"))?;
    let (mut same, mut next, mut samples) = (0u32, 0u32, 0u32);
    let mut extra_ns = Vec::new();
    // Time that other programs took from this thread says nothing about samples.
    let timed_chase = || {
        let start = thread_cpu_time_ns();
        let load = chase(&chain, STEPS);
        (load, (thread_cpu_time_ns() - start) as f64)
    };
    timed_chase();
    for _ in 0..20 {
        let (_, quiet_ns) = timed_chase();
        event
            .enable()
            .map_err(kernel("cannot start a timer sampler"))?;
        let (load, sampled_ns) = timed_chase();
        event
            .disable()
            .map_err(kernel("cannot stop a timer sampler"))?;
        // What did not fit into the ring took its time all the same.
        let mut taken = 0;
        ring.drain(|record| match record {
            Record::Sample(sample) => {
                taken += 1;
                samples += 1;
                same += u32::from(sample.ip == load);
                next += u32::from(LOAD_BYTES.contains(&sample.ip.wrapping_sub(load)));
            }
            Record::Lost(lost) => taken += lost,
            _ => {}
        });
        extra_ns.push((sampled_ns - quiet_ns) / taken.max(1) as f64);
    }
    if same + next == 0 {
        return Err(ProbeError::Nothing(
            "the timer sampler delivered no sample of a busy loop",
        ));
    }
    let rule = if next > same {
        SkidRule::Next
    } else {
        SkidRule::Same
    };
    Ok(SkidProbe {
        rule,
        agreement: f64::from(same.max(next)) / f64::from(samples),
        samples,
        // Noise can make the difference negative; a sample costs no less than an interrupt.
        sample_ns: median(&mut extra_ns).unwrap_or(0.0).clamp(500.0, 50_000.0),
    })
}

/// What is done at each switch from one thread to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtSwitch {
    /// The kernel stops and starts the timers of threads that are sampled with this period.
    Timers {
        /// Thread time between two samples, ns.
        period_ns: u64,
    },
    /// The switches of a CPU are recorded.
    Records,
    /// The kernel writes the debug registers of a thread in which so many watchpoints are armed.
    Watchpoints {
        /// How many.
        count: u32,
    },
}

/// What each switch from one thread to another costs more with what is done then, ns. Takes some 50 ms.
///
/// A byte goes to and fro between two threads of one CPU, with that and without. In a virtual machine
/// setting a timer means leaving it. What it costs depends on the period: only a timer that is due
/// before the kernel's own has to be set anew (5 µs a turn at a period of 2.5 ms, 12 µs at 0.3 ms, less
/// than 1 µs at 1 s).
///
/// # Errors
/// The kernel gives us no such event on ourselves, or no socket.
pub fn switch_cost_ns(what: AtSwitch) -> Result<f64, ProbeError> {
    let (here, there) = UnixStream::pair().map_err(kernel("cannot open a pair of sockets"))?;
    let cpu = current_cpu();
    std::thread::scope(|scope| {
        let (say, tids) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let (tell, times) = mpsc::channel();
        let say_too = say.clone();
        let begin = std::thread::Builder::new();
        let begun = begin.spawn_scoped(scope, move || {
            // Threads on two CPUs would wake each other up, which takes longer and varies.
            let _ = cpu.map(pin_current_thread);
            let _ = say_too.send(current_tid());
            send_back(there);
        });
        begun.map_err(kernel(NO_THREAD))?;
        let begin = std::thread::Builder::new();
        let begun = begin.spawn_scoped(scope, move || {
            let _ = cpu.map(pin_current_thread);
            let _ = say.send(current_tid());
            time_round_trips(here, &wait, &tell);
        });
        begun.map_err(kernel(NO_THREAD))?;
        let untouched = Line([const { AtomicU64::new(0) }; 8]);
        let (events, members) = at_switch(what, tids.iter().take(2), &untouched)?;
        let measured = sums_of_turns(what, &events, cpu.unwrap_or(0), &go, &times);
        // Without their first they would be armed each for itself.
        drop(members);
        let (mut bare, mut sampled) = measured?;
        let extra = median(&mut sampled).unwrap_or(0.0) - median(&mut bare).unwrap_or(0.0);
        let switches = f64::from(2 * ROUND_TRIPS);
        // Noise can make the difference negative; starting a timer is never free.
        Ok((extra / switches).clamp(200.0, 100_000.0))
    })
}

/// Round trips of a byte that are timed together.
const ROUND_TRIPS: u32 = 100;

/// Sends each byte back, until the other end is closed.
fn send_back(mut socket: UnixStream) {
    let mut byte = [0];
    while socket.read_exact(&mut byte).is_ok() && socket.write_all(&byte).is_ok() {}
}

/// Tells how long [`ROUND_TRIPS`] take, ns, whenever `wait` says so.
fn time_round_trips(mut socket: UnixStream, wait: &mpsc::Receiver<()>, tell: &mpsc::Sender<f64>) {
    let mut byte = [0];
    while wait.recv().is_ok() {
        let start = Instant::now();
        for _ in 0..ROUND_TRIPS {
            if socket.write_all(&byte).is_err() || socket.read_exact(&mut byte).is_err() {
                return;
            }
        }
        if tell.send(start.elapsed().as_nanos() as f64).is_err() {
            return;
        }
    }
}

/// The events of two threads that are set anew at their switches, and those that belong to them.
fn at_switch(
    what: AtSwitch,
    tids: impl Iterator<Item = u32>,
    untouched: &Line,
) -> Result<(Vec<Event>, Vec<Event>), ProbeError> {
    match what {
        AtSwitch::Timers { period_ns } => {
            let options = SamplerOptions {
                period_ns,
                enable_on_exec: false,
                inherit: true,
            };
            let samplers = tids
                .map(|tid| Event::sampler(Whom::Thread(tid), u32::MAX, options))
                .collect::<io::Result<_>>();
            let samplers = samplers.map_err(kernel("cannot open a timer sampler"))?;
            Ok((samplers, Vec::new()))
        }
        AtSwitch::Watchpoints { count } => {
            let address = std::ptr::from_ref(untouched) as u64;
            let open = |tid, chunk: u32, first: Option<&Event>| {
                let address = address + 8 * u64::from(chunk);
                Event::breakpoint(tid, address, 8, BreakOn::ReadWrite, first)
                    .map_err(kernel("cannot open a watchpoint"))
            };
            let (mut firsts, mut members) = (Vec::new(), Vec::new());
            for tid in tids {
                let first = open(tid, 0, None)?;
                for chunk in 1..count.min(8) {
                    members.push(open(tid, chunk, Some(&first))?);
                }
                firsts.push(first);
            }
            Ok((firsts, members))
        }
        AtSwitch::Records => {
            // They are on the CPU before it is asked for their switches.
            tids.for_each(drop);
            Ok((Vec::new(), Vec::new()))
        }
    }
}

/// The times of the round trips without the events and with them, ns.
fn sums_of_turns(
    what: AtSwitch,
    events: &[Event],
    cpu: u32,
    go: &mpsc::Sender<()>,
    times: &mpsc::Receiver<f64>,
) -> Result<(Vec<f64>, Vec<f64>), ProbeError> {
    const TURNS: usize = 6;
    let (mut bare, mut sampled) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        for (times_ns, sampling) in [(&mut bare, false), (&mut sampled, true)] {
            let switch = if sampling {
                Event::enable
            } else {
                Event::disable
            };
            events
                .iter()
                .try_for_each(switch)
                .map_err(kernel("cannot switch an event on or off"))?;
            // An event that is open and off is part of the price.
            let _records = match what {
                AtSwitch::Records if sampling => Some(recorded_switches(cpu)?),
                _ => None,
            };
            let _ = go.send(());
            let took = times
                .recv()
                .map_err(|_| ProbeError::Nothing("no byte came back through a socket"))?;
            // The first turn warms up.
            if turn > 0 {
                times_ns.push(took);
            }
        }
    }
    Ok((bare, sampled))
}

/// Records the switches of a CPU, until it is dropped; writing them is part of the price.
fn recorded_switches(cpu: u32) -> Result<(Ring, Event), ProbeError> {
    const RING_PAGES: usize = 64;
    let event = Event::switches(cpu).map_err(kernel("cannot record the switches of a CPU"))?;
    let ring = event
        .map_ring(RING_PAGES)
        .map_err(kernel("cannot map a ring buffer"))?;
    event
        .enable()
        .map_err(kernel("cannot record the switches of a CPU"))?;
    Ok((ring, event))
}

#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// Measures how many watchpoints a thread can have and what arming and trapping cost.
///
/// # Errors
/// The kernel refuses breakpoints (EACCES, ENOSPC, not offered here).
pub fn watchpoint_costs() -> Result<WatchpointCosts, ProbeError> {
    const SHOTS: usize = 40;
    crate::guard::survive_lost_traps();
    let line = Line([const { AtomicU64::new(0) }; 8]);
    let address = std::ptr::from_ref(&line) as u64;
    let me = current_tid();
    let mut held = Vec::new();
    let count = loop {
        let chunk = held.len() as u64;
        if chunk == 8 {
            break 8;
        }
        match Event::breakpoint(me, address + 8 * chunk, 8, BreakOn::ReadWrite, None) {
            Ok(event) => held.push(event),
            Err(error) if held.is_empty() => return Err(kernel("cannot open a watchpoint")(error)),
            Err(_) => break chunk as u32,
        }
    };
    drop(held);

    let mut traps = Vec::new();
    for _ in 0..SHOTS {
        let event = Event::breakpoint(me, address, 8, BreakOn::ReadWrite, None)
            .map_err(kernel("cannot open a watchpoint"))?;
        event
            .arm_once()
            .map_err(kernel("cannot arm a watchpoint"))?;
        let start = Instant::now();
        line.0[0].fetch_add(1, Ordering::Relaxed);
        traps.push(start.elapsed().as_nanos() as f64);
    }

    let partner = Partner::default();
    let here = current_cpu();
    let (mut single, mut group) = std::thread::scope(|scope| {
        std::thread::Builder::new()
            .spawn_scoped(scope, || partner.work(&line.0[1], here))
            .map_err(kernel(NO_THREAD))?;
        let result = watch_partner(&partner, address, 1, SHOTS)
            .and_then(|single| Ok((single, watch_partner(&partner, address, count, SHOTS)?)));
        partner.stop.store(true, Ordering::Relaxed);
        result
    })?;
    let lost = |seen: &mut Seen| median(&mut seen.lost_ns).map(|ns| ns.clamp(1_000.0, 500_000.0));
    Ok(WatchpointCosts {
        count,
        arm_ns: median(&mut single.arm_ns)
            .ok_or(ProbeError::Nothing("no watchpoint could be armed"))?,
        trap_ns: median(&mut traps).unwrap_or(0.0),
        exposure_offset_ns: median(&mut group.exposure_ns)
            .ok_or(ProbeError::Nothing("an armed watchpoint never trapped"))?,
        trap_delay_ns: median(&mut group.delay_ns).unwrap_or(0.0),
        shot_ns: lost(&mut single).unwrap_or(0.0),
        watch_ns: lost(&mut group).unwrap_or(0.0),
    })
}

/// A thread that works all the time on one word and adds up the time that it was kept from that.
#[derive(Default)]
struct Partner {
    tid: AtomicU32,
    stop: AtomicBool,
    lost_ns: AtomicU64,
}

impl Partner {
    /// Works on another CPU than `here`, if there is one: a thread that does not run is armed
    /// without an interrupt.
    fn work(&self, word: &AtomicU64, here: Option<u32>) {
        /// No interruption is shorter.
        const SHORTEST_NS: u64 = 1_000;
        let elsewhere = allowed_cpus().into_iter().find(|&cpu| Some(cpu) != here);
        // Unpinned, the scheduler finds it a CPU in a while.
        let _ = elsewhere.map(pin_current_thread);
        self.tid.store(current_tid(), Ordering::Release);
        // What others take from this CPU is not lost to a watch.
        let mut last = thread_cpu_time_ns();
        while !self.stop.load(Ordering::Relaxed) {
            word.fetch_add(1, Ordering::Relaxed);
            let now = thread_cpu_time_ns();
            let gap = now - last;
            if gap > SHORTEST_NS {
                self.lost_ns.fetch_add(gap, Ordering::Relaxed);
            }
            last = now;
        }
    }

    fn tid(&self) -> u32 {
        loop {
            match self.tid.load(Ordering::Acquire) {
                0 => std::thread::yield_now(),
                tid => return tid,
            }
        }
    }

    /// What it lost since the last call.
    fn lost_ns(&self) -> f64 {
        self.lost_ns.swap(0, Ordering::Relaxed) as f64
    }
}

/// What the watches of a partner took and told.
#[derive(Default)]
struct Seen {
    arm_ns: Vec<f64>,
    exposure_ns: Vec<f64>,
    delay_ns: Vec<f64>,
    lost_ns: Vec<f64>,
}

/// Arms `shots` groups of `count` one-shot watchpoints around the word that the partner works on,
/// which is the second of its line.
fn watch_partner(
    partner: &Partner,
    line: u64,
    count: u32,
    shots: usize,
) -> Result<Seen, ProbeError> {
    let tid = partner.tid();
    let mut seen = Seen::default();
    for _ in 0..shots {
        partner.lost_ns();
        let first = Event::breakpoint(tid, line + 8, 8, BreakOn::ReadWrite, None)
            .map_err(kernel("cannot open a watchpoint"))?;
        let mut others = Vec::new();
        for chunk in 2..=u64::from(count) {
            let address = line + 8 * (chunk % 8);
            others.push(
                Event::breakpoint(tid, address, 8, BreakOn::ReadWrite, Some(&first))
                    .map_err(kernel("cannot open a watchpoint"))?,
            );
        }
        let mut ring = first
            .map_ring(1)
            .map_err(kernel("cannot map a ring buffer"))?;
        let start = Instant::now();
        others
            .iter()
            .chain([&first])
            .try_for_each(Event::arm_once)
            .map_err(kernel("cannot arm a watchpoint"))?;
        let armed = monotonic_ns();
        seen.arm_ns.push(start.elapsed().as_nanos() as f64);
        let deadline = start + Duration::from_millis(5);
        while ring.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(50));
        }
        ring.drain(|record| {
            if let Record::Sample(sample) = record {
                seen.exposure_ns.push(sample.read.running_ns as f64);
                seen.delay_ns.push(sample.time.saturating_sub(armed) as f64);
            }
        });
        // The first closes last.
        drop(others);
        drop(first);
        std::thread::sleep(Duration::from_micros(20));
        seen.lost_ns.push(partner.lost_ns());
    }
    Ok(seen)
}
