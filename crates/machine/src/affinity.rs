//! Where threads may run.

use std::io;
use std::path::Path;

use linewise_topology::CpuSet;

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

/// Words of a mask that has room for every CPU that a kernel can have: 8,192.
const WORDS: usize = 8192 / 64;

/// The CPUs where a thread may run: what it was allowed by `sched_setaffinity`, as far as its control group has them.
///
/// # Errors
/// ESRCH: there is no such thread.
pub fn of_thread(tid: u32) -> io::Result<CpuSet> {
    let mut words = [0_u64; WORDS];
    let tid = libc::pid_t::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: the kernel writes at most the given number of bytes.
    let written =
        unsafe { libc::sched_getaffinity(tid, size_of_val(&words), words.as_mut_ptr().cast()) };
    if written < 0 {
        return Err(io::Error::last_os_error());
    }
    let bits = (0..WORDS * 64).filter(|bit| words[bit / 64] >> (bit % 64) & 1 == 1);
    Ok(bits.map(|bit| bit as u32).collect())
}

/// Lets a thread, of whatever process, run on these CPUs alone.
///
/// # Errors
/// ESRCH: there is no such thread. EPERM: it is somebody else's. EINVAL: none of the CPUs is online and in the thread's
/// control group.
pub fn set_thread(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    let mut words = [0_u64; WORDS];
    for cpu in cpus.iter().filter(|&cpu| (cpu as usize) < WORDS * 64) {
        words[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    let tid = libc::pid_t::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: the kernel reads at most the given number of bytes.
    let result =
        unsafe { libc::sched_setaffinity(tid, size_of_val(&words), words.as_ptr().cast()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The CPUs that the control group of a thread has, of cgroup v2 or v1; `None` where none is limited or the kernel does
/// not tell.
#[must_use]
pub fn of_control_group(tid: u32) -> Option<CpuSet> {
    let groups = std::fs::read_to_string(format!("/proc/{tid}/cgroup")).ok()?;
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "cpuset.cpus.effective"),
            v1 if v1.split(',').any(|one| one == "cpuset") => {
                ("/sys/fs/cgroup/cpuset", "cpuset.effective_cpus")
            }
            _ => return None,
        };
        // A group without a file of its own has what the one around it has.
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        let files = groups.map(|group| Path::new(root).join(group).join(file));
        let text = files
            .filter_map(|file| std::fs::read_to_string(file).ok())
            .next()?;
        text.trim()
            .parse()
            .ok()
            .filter(|cpus: &CpuSet| !cpus.is_empty())
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_moved_and_moved_back() {
        let worker = std::thread::spawn(|| {
            let tid = crate::process::current_tid();
            let before = of_thread(tid).unwrap();
            let one: CpuSet = before.first().into_iter().collect();
            set_thread(tid, &one).unwrap();
            assert_eq!(of_thread(tid).unwrap(), one);
            assert_eq!(current_cpu(), one.first());
            set_thread(tid, &before).unwrap();
            assert_eq!(of_thread(tid).unwrap(), before);
        });
        worker.join().unwrap();
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let tid = crate::process::current_tid();
        let before = of_thread(tid).unwrap();
        let code = |result: io::Result<()>| result.unwrap_err().raw_os_error();
        assert_eq!(code(set_thread(tid, &CpuSet::new())), Some(libc::EINVAL));
        let offline: CpuSet = [8_000].into_iter().collect();
        assert_eq!(code(set_thread(tid, &offline)), Some(libc::EINVAL));
        assert_eq!(code(set_thread(u32::MAX, &before)), Some(libc::ESRCH));
        assert_eq!(of_thread(tid).unwrap(), before);
    }

    #[test]
    fn a_control_group_has_what_its_threads_may_use() {
        let tid = crate::process::current_tid();
        let Some(group) = of_control_group(tid) else {
            println!("skipped: no control group tells its CPUs");
            return;
        };
        let mine = of_thread(tid).unwrap();
        assert_eq!(mine.intersection(&group), mine);
    }
}
