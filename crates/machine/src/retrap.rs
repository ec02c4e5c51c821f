//! How long it takes from one trap of a watchpoint to the next one of the same chunk, when the
//! thread touches it all the time: the shortest reuse that two traps can show.
//!
//! ```text
//! touch ─► exception, sample ─► the thread goes on ─► touch ─► exception, sample
//!                   │◄──────────── offset ─────────────────────────►│
//! ```
//!
//! Most of it is the way out of the first exception and into the second, in a virtual machine through
//! the hypervisor. It is the same for every pair of traps but for a scatter, and so can be subtracted.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::affinity::{allowed_cpus, current_cpu, pin_current_thread};
use crate::perf::{BreakOn, Event};
use crate::probe::{NO_THREAD, ProbeError, kernel};
use crate::process::current_tid;
use crate::records::Record;

/// The time from trap to trap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RetrapTime {
    /// Median, ns of the trapping thread.
    pub offset_ns: f64,
    /// Half of the way from the 16th to the 84th of 100, ns: the standard deviation, were it a normal
    /// distribution.
    pub deviation_ns: f64,
}

/// Shots of a breakpoint. The last one does not count: the kernel takes the breakpoint down before it
/// takes the time.
const SHOTS: u32 = 8;
/// Wall time to wait for the shots of one.
const LIMIT: Duration = Duration::from_millis(20);

/// Measures it on a thread of our own, with that many breakpoints: 0.3 ms of CPU time each.
///
/// # Errors
/// The kernel gives us no watchpoint on ourselves, or nothing trapped.
pub fn retrap_time(rounds: u32) -> Result<RetrapTime, ProbeError> {
    let word = AtomicU64::new(0);
    let (tid, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let here = current_cpu();
    let mut times = std::thread::scope(|scope| {
        let begin = std::thread::Builder::new();
        let begun = begin.spawn_scoped(scope, || {
            let elsewhere = allowed_cpus().into_iter().find(|&cpu| Some(cpu) != here);
            let _ = elsewhere.map(pin_current_thread);
            tid.store(current_tid(), Ordering::Release);
            while !stop.load(Ordering::Relaxed) {
                word.fetch_add(1, Ordering::Relaxed);
            }
        });
        begun.map_err(kernel(NO_THREAD))?;
        let tid = loop {
            match tid.load(Ordering::Acquire) {
                0 => std::thread::yield_now(),
                tid => break tid,
            }
        };
        let mut times = Vec::new();
        let result =
            (0..rounds).try_for_each(|_| shoot(tid, std::ptr::from_ref(&word) as u64, &mut times));
        stop.store(true, Ordering::Relaxed);
        result.map(|()| times)
    })?;
    times.sort_unstable();
    let at = |percent: usize| {
        let time = times.get((times.len().max(1) - 1) * percent / 100);
        time.map(|&time| time as f64)
    };
    let (Some(low), Some(middle), Some(high)) = (at(16), at(50), at(84)) else {
        return Err(ProbeError::Nothing("a watchpoint did not trap twice"));
    };
    Ok(RetrapTime {
        offset_ns: middle,
        deviation_ns: (high - low) / 2.0,
    })
}

/// Appends the times between the shots of one breakpoint.
fn shoot(tid: u32, address: u64, times: &mut Vec<u64>) -> Result<(), ProbeError> {
    let failed = |source| ProbeError::Kernel {
        what: "cannot arm a watchpoint for several shots",
        source,
        hint: "",
    };
    let event = Event::breakpoint(tid, address, 8, BreakOn::ReadWrite, None).map_err(failed)?;
    let mut ring = event.map_ring(1).map_err(failed)?;
    event.arm_shots(SHOTS).map_err(failed)?;
    let start = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < SHOTS as usize && start.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_micros(100));
        ring.drain(|record| {
            if let Record::Sample(sample) = record {
                seen.push(sample.read.running_ns);
            }
        });
    }
    seen.truncate(SHOTS as usize - 1);
    times.extend(seen.windows(2).map(|pair| pair[1].saturating_sub(pair[0])));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traps_of_a_word_touched_all_the_time_come_at_a_steady_distance() {
        match retrap_time(8) {
            Ok(time) => {
                assert!(time.offset_ns > 0.0 && time.deviation_ns >= 0.0, "{time:?}");
                assert!(time.deviation_ns < time.offset_ns, "{time:?}");
            }
            Err(error) => eprintln!("skipped: {error}"),
        }
    }
}
