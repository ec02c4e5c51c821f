//! Where threads run.

use std::collections::BTreeMap;
use std::path::Path;

use linewise_topology::Topology;

use crate::error::Error;

/// The CPUs of `topology`, one of each socket in turn, as the papers place servers and clients: with
/// sockets 0-13 and 14-27 the order is 0, 14, 1, 15, and so on.
///
/// The first of these go to [`Builder::server_cpus`](crate::Builder::server_cpus), the others to
/// [`Builder::client_cpus`](crate::Builder::client_cpus).
pub fn round_robin(topology: &Topology) -> Vec<u32> {
    let sockets = topology.sockets();
    interleave(sockets.iter().map(|socket| socket.iter().collect()))
}

/// The CPUs where this process may run, one of each socket in turn. A machine that does not tell its
/// sockets counts as one.
pub fn here() -> Vec<u32> {
    over_sockets(Path::new("/"), &allowed())
}

/// `cpus`, one of each socket in turn, by the sysfs of the file system at `root`.
fn over_sockets(root: &Path, cpus: &[u32]) -> Vec<u32> {
    let mut sockets = BTreeMap::<Option<u32>, Vec<u32>>::new();
    for &cpu in cpus {
        let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        sockets
            .entry(text.trim().parse().ok())
            .or_default()
            .push(cpu);
    }
    interleave(sockets.into_values())
}

fn interleave(sockets: impl Iterator<Item = Vec<u32>>) -> Vec<u32> {
    let sockets: Vec<_> = sockets.collect();
    let longest = sockets.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .flat_map(|index| sockets.iter().filter_map(move |socket| socket.get(index)))
        .copied()
        .collect()
}

/// The CPUs where this process may run; none if the kernel does not tell.
fn allowed() -> Vec<u32> {
    let mut cpus: Vec<_> = (0..libc::CPU_SETSIZE as u32).collect();
    // SAFETY: a CPU set is plain bits, and zero is an empty one. It is valid for its size, which the call fills,
    // and the numbers are below that.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let known = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) == 0;
        cpus.retain(|cpu| known && libc::CPU_ISSET(*cpu as usize, &set));
    }
    cpus
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
    linewise_fibres::pin(cpu).map_err(|error| Error::of_fibres(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_alternate_between_sockets_and_unknown_ones_are_one() {
        let root = tempfile::tempdir().unwrap();
        for (cpu, socket) in [(0, "0\n"), (1, "0\n"), (2, "1\n"), (3, "1\n"), (4, "0\n")] {
            let folder = root
                .path()
                .join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("physical_package_id"), socket).unwrap();
        }
        assert_eq!(over_sockets(root.path(), &[0, 1, 2, 3, 4]), [0, 2, 1, 3, 4]);
        assert_eq!(over_sockets(root.path(), &[0, 1]), [0, 1]);
        assert_eq!(over_sockets(Path::new("/nowhere"), &[3, 5]), [3, 5]);
        assert_eq!(over_sockets(root.path(), &[]), [0; 0]);
    }

    #[test]
    fn a_topology_is_a_plan() {
        let machine = linewise_topology::synthetic::two_sockets_of_ten();
        assert_eq!(round_robin(&machine)[..4], [0, 10, 1, 11]);
    }

    #[test]
    fn this_process_may_run_where_it_is_placed() {
        let cpus = here();
        assert!(!cpus.is_empty());
        std::thread::spawn(move || cpus.iter().try_for_each(|cpu| pin(*cpu)))
            .join()
            .unwrap()
            .unwrap();
    }
}
