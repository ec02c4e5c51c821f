//! Attaching to processes that run already, and to those that descend from them: samplers on as many of their threads as
//! can be opened.

use std::collections::HashSet;
use std::time::Duration;

use linewise_machine::perf::SamplerOptions;

use crate::error::{Error, sampler};
use crate::kernel::{Denial, Kernel, PerfEvents, Processes};
use crate::options::{Event, RecordOptions, Target};
use crate::sources::timer::budget::SAMPLE_PART;
use crate::sources::timer::duty::DEAR_SWITCHES;
use crate::sources::timer::samplers::threads::{KEPT_FREE, ThreadSamplers};

/// Processes that are sampled.
pub(crate) struct Attached<K: PerfEvents> {
    pub(crate) samplers: ThreadSamplers<K>,
    /// How many of their threads are not, and why.
    pub(crate) left_out: Vec<(u64, String)>,
}

/// The same options for processes, each once, where a thread or one of them twice was named.
///
/// # Errors
/// Those of [`process_of`].
pub(crate) fn of_processes(
    kernel: &impl Processes,
    options: &RecordOptions,
    tell: &mut impl FnMut(Event<'_>),
) -> Result<Option<RecordOptions>, Error> {
    let Target::Attach(ids) = &options.target else {
        return Ok(None);
    };
    let mut pids = Vec::new();
    for &id in ids {
        let pid = process_of(kernel, id)?;
        if pid != id {
            tell(Event::Warning(&format!(
                "{id} is a thread of process {pid}, which is recorded with all its threads"
            )));
        }
        if !pids.contains(&pid) {
            pids.push(pid);
        }
    }
    Ok((pids != *ids).then(|| RecordOptions {
        target: Target::Attach(pids),
        ..options.clone()
    }))
}

/// The processes that were named, and all that descend from them but this one and its own.
pub(crate) fn family(kernel: &impl Processes, named: &[u32]) -> Vec<u32> {
    let own = kernel.own_pid();
    // Without /proc those that were named are known.
    let ours = kernel.descendants(&[own]).unwrap_or_default();
    let mut family = named.to_vec();
    let others = kernel.descendants(named).unwrap_or_default().into_iter();
    family.extend(others.filter(|pid| *pid != own && !ours.contains(pid) && !named.contains(pid)));
    family
}

/// The process that `id` names: itself, or the one whose thread it is.
///
/// # Errors
/// [`Error::NoSuchProcess`], [`Error::ProcessEnded`], [`Error::KernelThread`].
fn process_of(kernel: &impl Processes, id: u32) -> Result<u32, Error> {
    let standing = kernel
        .standing(id)
        .ok_or(Error::NoSuchProcess { pid: id })?;
    let pid = standing.process;
    if standing.of_kernel {
        return Err(Error::KernelThread {
            pid: id,
            name: kernel.thread_name(pid, id).unwrap_or_default(),
        });
    }
    // A thread that has ended is not asked for, its process may go on.
    match kernel.standing(pid) {
        Some(process) if process.ended => Err(Error::ProcessEnded { pid }),
        Some(_) => Ok(pid),
        None => Err(Error::NoSuchProcess { pid: id }),
    }
}

/// How long a process is looked at to see how often it switches threads.
const LOOK: Duration = Duration::from_millis(100);
/// Fewer switches meanwhile say nothing.
const FEW_SWITCHES: u64 = 100;

/// Whether running processes switch threads so often that with samplers on them they would lose
/// [`DEAR_SWITCHES`] times what their samples may cost at a budget of `overhead`. A switch is made
/// dearer by `switch_ns`.
pub(crate) fn switches_are_dear(
    kernel: &impl Kernel,
    pids: &[u32],
    switch_ns: f64,
    overhead: f64,
) -> bool {
    let so_far = || {
        let threads = |&pid: &u32| {
            let threads = kernel.threads(pid).unwrap_or_default().into_iter();
            threads.filter_map(move |tid| kernel.thread_stays(pid, tid))
        };
        let stays = pids.iter().flat_map(threads);
        stays.fold((0, 0), |sum, stay| (sum.0 + stay.0, sum.1 + stay.1))
    };
    let before = so_far();
    kernel.sleep(LOOK);
    let after = so_far();
    let cpu_time_ns = after.0.saturating_sub(before.0);
    let switches = after.1.saturating_sub(before.1);
    switches as f64 * switch_ns > DEAR_SWITCHES * SAMPLE_PART * overhead * cpu_time_ns as f64
        && switches >= FEW_SWITCHES
}

/// Opens samplers on the threads of the processes that were `named` and of all that descend from them. Threads that begin
/// meanwhile are found by looking again until there are no new ones; they may have inherited a sampler, which
/// [`ThreadSamplers`] sorts out. `open_files` is the limit of open files: where it is too low, the
/// busiest threads are sampled.
///
/// # Errors
/// [`Error::NoSuchProcess`], [`Error::NotPermitted`], or [`Error::Sampler`] if not even the first
/// thread can be sampled.
pub(crate) fn attach<K: Kernel>(
    kernel: &K,
    named: &[u32],
    cpus: &[u32],
    options: SamplerOptions,
    open_files: u64,
) -> Result<Attached<K>, Error> {
    let first = named.first().copied().unwrap_or(0);
    let failed = |pid: u32| {
        move |error: Error| match error {
            Error::Sampler { source, .. } if Denial::of(&source) == Denial::NoSuchThread => {
                Error::NoSuchProcess { pid }
            }
            Error::Sampler { source, .. } if Denial::of(&source) == Denial::NotPermitted => {
                Error::NotPermitted { pid }
            }
            error => error,
        }
    };
    let mut samplers =
        ThreadSamplers::open(kernel.clone(), first, cpus, options).map_err(failed(first))?;
    samplers
        .enable()
        .map_err(sampler("cannot start a sampler"))?;
    let taken = kernel.own_open_files() + KEPT_FREE;
    let files_a_thread = samplers.files_a_thread().max(1) as u64;
    let mut room = open_files.saturating_sub(taken) / files_a_thread;
    let mut known = HashSet::from([first]);
    let (mut left_out, mut forbidden) = (0, 0);
    kernel
        .threads(first)
        .map_err(|_| Error::NoSuchProcess { pid: first })?;
    loop {
        let mut new = fresh_threads(kernel, named, &mut known);
        if new.is_empty() {
            break;
        }
        if new.len() as u64 > room {
            new.sort_by_cached_key(|&(pid, tid)| {
                std::cmp::Reverse(kernel.thread_cpu_time_ns(pid, tid).unwrap_or(0))
            });
        }
        for (pid, tid) in new {
            if room == 0 {
                left_out += 1;
                continue;
            }
            match samplers.add(tid) {
                Ok(()) => room -= 1,
                Err(error) => match Denial::of(&error) {
                    // It needs no sampler.
                    Denial::NoSuchThread => {}
                    // Others took what was counted on.
                    Denial::NoFiles | Denial::NoMemory => {
                        room = 0;
                        left_out += 1;
                    }
                    // Another user's, which nobody named.
                    Denial::NotPermitted if !named.contains(&pid) => forbidden += 1,
                    _ => {
                        let error = sampler("cannot sample a thread of the process")(error);
                        return Err(failed(pid)(error));
                    }
                },
            }
        }
    }
    let mut reasons = Vec::new();
    if left_out > 0 {
        let all = known.len() as u64;
        let wanted = taken + all * files_a_thread;
        let reason = format!(
            "{left_out} of the {all} threads of {} are not sampled, the least busy ones: each takes {files_a_thread} open files, and the limit is {open_files}; raise it with `ulimit -n {wanted}` and attach again",
            named_as(named)
        );
        reasons.push((left_out, reason));
    }
    if forbidden > 0 {
        let reason = format!(
            "{forbidden} threads of processes that descend from {} are not sampled: they are another user's; attach as root",
            named_as(named)
        );
        reasons.push((forbidden, reason));
    }
    Ok(Attached {
        samplers,
        left_out: reasons,
    })
}

/// The threads that were not known before, with their processes.
fn fresh_threads(
    kernel: &impl Processes,
    named: &[u32],
    known: &mut HashSet<u32>,
) -> Vec<(u32, u32)> {
    let mut fresh = Vec::new();
    for pid in family(kernel, named) {
        // One that has ended needs no sampler.
        let threads = kernel.threads(pid).unwrap_or_default().into_iter();
        fresh.extend(
            threads
                .filter(|&tid| known.insert(tid))
                .map(|tid| (pid, tid)),
        );
    }
    fresh
}

/// `process 7`, or `processes 7 and 9`.
fn named_as(pids: &[u32]) -> String {
    let numbers: Vec<String> = pids.iter().map(u32::to_string).collect();
    match numbers.split_last() {
        Some((last, [])) => format!("process {last}"),
        Some((last, others)) => format!("processes {} and {last}", others.join(", ")),
        None => "no process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Machine;

    #[test]
    fn a_thread_is_one_of_its_process_and_what_is_none_is_refused() {
        let own = std::process::id();
        assert_eq!(process_of(&Machine, own).unwrap(), own);
        let thread = std::thread::spawn(linewise_machine::process::current_tid);
        // Ended, or about to.
        let _ = thread.join().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(linewise_machine::process::current_tid()).unwrap();
            let _ = wait.recv();
        });
        assert_eq!(process_of(&Machine, told.recv().unwrap()).unwrap(), own);
        drop(end);
        thread.join().unwrap();
        let nobody = process_of(&Machine, u32::MAX).unwrap_err();
        assert!(matches!(nobody, Error::NoSuchProcess { .. }), "{nobody}");
    }

    #[test]
    fn a_process_that_has_ended_is_named_as_such() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while Machine.standing(pid).is_some_and(|it| !it.ended) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let error = process_of(&Machine, pid).unwrap_err();
        assert!(matches!(error, Error::ProcessEnded { .. }), "{error}");
        child.wait().unwrap();
    }
}
