//! Where the threads of this process may run.

use std::io;

fn empty_set() -> libc::cpu_set_t {
    // SAFETY: a cpu_set_t is an array of integers; all zeros is the empty set.
    unsafe { std::mem::zeroed() }
}

/// Lets the calling thread run on `cpu` alone.
///
/// # Errors
/// EINVAL: the CPU does not exist, is offline, or is not in this process's CPU set.
pub fn pin_current_thread(cpu: u32) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as u32 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = empty_set();
    // SAFETY: `cpu` is below CPU_SETSIZE, so the bit lies inside `set`; 0 names this thread.
    let result = unsafe {
        libc::CPU_SET(cpu as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The CPU that the caller runs on at this moment.
#[must_use]
pub fn current_cpu() -> Option<u32> {
    // SAFETY: no arguments.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The CPUs that the calling thread may run on, in ascending order; empty when the kernel does
/// not tell.
#[must_use]
pub fn allowed_cpus() -> Vec<u32> {
    let mut set = empty_set();
    // SAFETY: the kernel writes at most the given size into `set`; 0 names this thread.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
    if result != 0 {
        return Vec::new();
    }
    (0..libc::CPU_SETSIZE as u32)
        // SAFETY: every tested bit lies inside `set`.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu as usize, &set) })
        .collect()
}

/// Asks the scheduler to run the calling thread, and threads that it makes, soon and briefly: a
/// thread that works for microseconds now and then gets its CPU at once instead of after the
/// running thread's slice. Needs no privilege; kernels before 6.12 ignore it.
pub fn prefer_short_slices() {
    const SLICE_NS: u64 = 100_000;
    // SAFETY: no pointers; 0 names this thread. An error reads as -1, a nice value like others.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = SchedulerAttributes {
        size: size_of::<SchedulerAttributes>() as u32,
        // The call sets it too: keep what the user chose.
        nice,
        runtime_ns: SLICE_NS,
        ..SchedulerAttributes::default()
    };
    // SAFETY: the structure is as long as its size field says and lives through the call; 0 names
    // this thread. A refusal changes nothing, and there is nothing to do about it.
    unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            0,
            std::ptr::from_ref(&attributes),
            0,
        );
    }
}

/// The kernel's `struct sched_attr`, first version.
#[derive(Default)]
#[repr(C)]
struct SchedulerAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}
