//! Threads that run side by side for a time, each on a CPU of its own.

use super::error::CalibrateError;
use crate::placement::{PlacementError, pin};
use crate::worker::Stop;
use linewise_machine::process::{current_tid, monotonic_ns, thread_cpu_time_ns};
use linewise_machine::procfs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// How long one that waits for threads sleeps at a time.
const NAP: Duration = Duration::from_micros(100);

/// What became of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran<T> {
    pub(super) made: T,
    /// CPU time that it used, ns.
    pub(super) cpu_ns: u64,
    /// Time that it was ready and others had its CPU, ns.
    pub(super) waited_ns: u64,
    /// From its begin to its end, ns.
    pub(super) wall_ns: u64,
}

/// Lets `body` run for `seconds` with each of `tasks` on its CPU. All begin at once; `body` ends soon after the flag is
/// set.
pub(super) fn together<S: Send, T: Send>(
    tasks: Vec<(u32, S)>,
    seconds: f64,
    body: impl Fn(S, &Stop) -> T + Sync,
) -> Result<Vec<Ran<T>>, CalibrateError> {
    let (stop, ready, gate) = (
        Stop(AtomicBool::new(false)),
        AtomicUsize::new(0),
        RwLock::new(()),
    );
    let (body, stop, ready, gate) = (&body, &stop, &ready, &gate);
    let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(tasks.len());
        let mut failure = None;
        for (index, (cpu, task)) in tasks.into_iter().enumerate() {
            let run = move || {
                let placed = pin(index, Some(cpu));
                ready.fetch_add(1, Ordering::AcqRel);
                drop(gate.read());
                placed.map(|()| account(|| body(task, stop)))
            };
            let builder = std::thread::Builder::new().name(format!("calibrate-{index}"));
            match builder.spawn_scoped(scope, run) {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    failure = Some(PlacementError::Spawn { index, source });
                    stop.0.store(true, Ordering::Release);
                    break;
                }
            }
        }
        while ready.load(Ordering::Acquire) < handles.len() {
            std::thread::sleep(NAP);
        }
        drop(closed);
        if failure.is_none() {
            std::thread::sleep(Duration::from_secs_f64(seconds));
        }
        stop.0.store(true, Ordering::Release);
        let mut ran = Vec::with_capacity(handles.len());
        for (index, handle) in handles.into_iter().enumerate() {
            let joined = handle.join();
            ran.push(joined.map_err(|_| CalibrateError::Thread { index })??);
        }
        failure.map_or(Ok(ran), |failure| Err(failure.into()))
    })
}

fn account<T>(body: impl FnOnce() -> T) -> Ran<T> {
    let (pid, tid) = (std::process::id(), current_tid());
    let waited_ns = || procfs::thread_waited_ns(pid, tid).unwrap_or(0);
    let waited_before_ns = waited_ns();
    let (cpu_before_ns, begin_ns) = (thread_cpu_time_ns(), monotonic_ns());
    let made = body();
    let (cpu_ns, end_ns) = (thread_cpu_time_ns(), monotonic_ns());
    Ran {
        made,
        cpu_ns: cpu_ns.saturating_sub(cpu_before_ns).max(1),
        waited_ns: waited_ns().saturating_sub(waited_before_ns),
        wall_ns: end_ns.saturating_sub(begin_ns).max(1),
    }
}

/// The share of their time that these threads waited for CPUs, in percent.
pub(super) fn waited_percent<T>(ran: &[Ran<T>]) -> f64 {
    let sum = |what: fn(&Ran<T>) -> u64| ran.iter().map(what).sum::<u64>() as f64;
    sum(|it| it.waited_ns) / sum(|it| it.wall_ns).max(1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use linewise_machine::affinity::allowed_cpus;

    #[test]
    fn tasks_run_until_they_are_stopped_and_come_back_in_order() {
        let Some(&cpu) = allowed_cpus().first() else {
            return;
        };
        let body = |name: u64, stop: &Stop| {
            while !stop.0.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            name
        };
        let ran = together(vec![(cpu, 5), (cpu, 7)], 0.01, body).unwrap();
        let made: Vec<u64> = ran.iter().map(|it| it.made).collect();
        assert_eq!(made, [5, 7]);
        assert!(waited_percent(&ran) >= 0.0);
    }

    #[test]
    fn a_cpu_that_does_not_exist_stops_all_of_them() {
        let error = together(vec![(100_000, ())], 0.01, |(), _| ()).unwrap_err();
        assert!(error.to_string().contains("100000"), "{error}");
    }
}
