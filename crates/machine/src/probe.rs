//! What sampling and watching cost on this machine, and where its timer interrupts point.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::perf::{BreakOn, Event, SamplerOptions};
use crate::process::current_tid;
use crate::ring::Record;

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

fn kernel(what: &'static str) -> impl FnOnce(io::Error) -> ProbeError {
    move |source| {
        let hint = match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                "; set kernel.perf_event_paranoid to 2 or lower, or run as root"
            }
            Some(libc::ENOSPC) => "; another debugger or profiler holds the debug registers",
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV) => {
                "; this kernel or hypervisor does not offer it"
            }
            _ => "",
        };
        ProbeError::Kernel { what, source, hint }
    }
}

fn median(values: &mut [f64]) -> Option<f64> {
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
    let event = Event::sampler(current_tid(), u32::MAX, options)
        .map_err(kernel("cannot open a timer sampler"))?;
    let mut ring = event
        .map_ring(8)
        .map_err(kernel("cannot map a ring buffer"))?;
    let (mut same, mut next, mut samples) = (0u32, 0u32, 0u32);
    let (mut quiet_ns, mut sampled_ns) = (Vec::new(), Vec::new());
    let mut counts = Vec::new();
    chase(&chain, STEPS);
    for _ in 0..20 {
        let start = Instant::now();
        chase(&chain, STEPS);
        quiet_ns.push(start.elapsed().as_nanos() as f64);
        event
            .enable()
            .map_err(kernel("cannot start a timer sampler"))?;
        let start = Instant::now();
        let load = chase(&chain, STEPS);
        sampled_ns.push(start.elapsed().as_nanos() as f64);
        event
            .disable()
            .map_err(kernel("cannot stop a timer sampler"))?;
        let before = samples;
        ring.drain(false, |record| {
            if let Record::Sample(sample) = record {
                samples += 1;
                same += u32::from(sample.ip == load);
                next += u32::from(LOAD_BYTES.contains(&sample.ip.wrapping_sub(load)));
            }
        });
        counts.push(f64::from(samples - before));
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
    let per_round = median(&mut counts).unwrap_or(1.0).max(1.0);
    let extra = median(&mut sampled_ns).unwrap_or(0.0) - median(&mut quiet_ns).unwrap_or(0.0);
    Ok(SkidProbe {
        rule,
        agreement: f64::from(same.max(next)) / f64::from(samples),
        samples,
        // Noise can make the difference negative; a sample costs no less than an interrupt.
        sample_ns: (extra / per_round).clamp(500.0, 50_000.0),
    })
}

#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// Measures how many watchpoints a thread can have and what arming and trapping cost.
///
/// # Errors
/// The kernel refuses breakpoints (EACCES, ENOSPC, not offered here).
pub fn watchpoint_costs() -> Result<WatchpointCosts, ProbeError> {
    const SHOTS: usize = 40;
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

    let stop = AtomicBool::new(false);
    let partner = AtomicU32::new(0);
    let (arms, exposures) = std::thread::scope(|scope| {
        scope.spawn(|| {
            partner.store(current_tid(), Ordering::Release);
            while !stop.load(Ordering::Relaxed) {
                line.0[1].fetch_add(1, Ordering::Relaxed);
            }
        });
        let result = watch_partner(&partner, address + 8, SHOTS);
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    let (mut arms, mut exposures) = (arms, exposures);
    Ok(WatchpointCosts {
        count,
        arm_ns: median(&mut arms).ok_or(ProbeError::Nothing("no watchpoint could be armed"))?,
        trap_ns: median(&mut traps).unwrap_or(0.0),
        exposure_offset_ns: median(&mut exposures)
            .ok_or(ProbeError::Nothing("an armed watchpoint never trapped"))?,
    })
}

/// Arms one-shot watchpoints in a thread that touches the chunk all the time: ns to arm, and what
/// the kernel counted up to the trap.
fn watch_partner(
    partner: &AtomicU32,
    address: u64,
    shots: usize,
) -> Result<(Vec<f64>, Vec<f64>), ProbeError> {
    while partner.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    let tid = partner.load(Ordering::Acquire);
    let (mut arms, mut exposures) = (Vec::new(), Vec::new());
    for _ in 0..shots {
        let event = Event::breakpoint(tid, address, 8, BreakOn::ReadWrite, None)
            .map_err(kernel("cannot open a watchpoint"))?;
        let mut ring = event
            .map_ring(1)
            .map_err(kernel("cannot map a ring buffer"))?;
        let start = Instant::now();
        event
            .arm_once()
            .map_err(kernel("cannot arm a watchpoint"))?;
        arms.push(start.elapsed().as_nanos() as f64);
        let deadline = start + Duration::from_millis(5);
        while ring.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(50));
        }
        ring.drain(true, |record| {
            if let Record::Sample(sample) = record {
                exposures.push(sample.read.running_ns as f64);
            }
        });
    }
    Ok((arms, exposures))
}
