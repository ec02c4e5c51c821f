//! Where threads run.

use linewise_topology::Topology;

use crate::error::Error;

/// The CPUs of `topology`, one of each socket in turn, as the papers place servers and clients: with
/// sockets 0-13 and 14-27 the order is 0, 14, 1, 15, and so on.
///
/// The first of these go to [`Builder::server_cpus`](crate::Builder::server_cpus), the others to
/// [`Builder::client_cpus`](crate::Builder::client_cpus).
pub fn round_robin(topology: &Topology) -> Vec<u32> {
    let sockets: Vec<Vec<u32>> = topology
        .sockets()
        .iter()
        .map(|socket| socket.iter().collect())
        .collect();
    let longest = sockets.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .flat_map(|index| sockets.iter().filter_map(move |socket| socket.get(index)))
        .copied()
        .collect()
}

/// The CPU for the thread of this number, if there is a plan.
pub(crate) fn nth(cpus: &[u32], number: usize) -> Option<u32> {
    (!cpus.is_empty()).then(|| cpus[number % cpus.len()])
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// [`Error::System`] if the process may not run there.
pub fn pin(cpu: u32) -> Result<(), Error> {
    let system = |why: String| Error::System {
        what: "pinning a thread to a CPU",
        why: format!("CPU {cpu}: {why}"),
    };
    if cpu as usize >= libc::CPU_SETSIZE as usize {
        return Err(system("no such CPU".to_owned()));
    }
    // SAFETY: a CPU set is plain bits, and zero is an empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number is below the size of the set, checked above.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: the set is valid for its size; 0 is the calling thread.
    let result =
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if result == 0 {
        Ok(())
    } else {
        Err(system(std::io::Error::last_os_error().to_string()))
    }
}
