//! How long a benchmark's threads waited for their CPUs, because others ran there.

use linewise_machine::process::monotonic_ns;
use linewise_machine::procfs;

/// A time in which threads may wait for CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    begin_ns: u64,
    before_ns: u64,
}

impl Waiting {
    /// It begins now, when the threads are there.
    pub(crate) fn begin() -> Self {
        Self {
            before_ns: waited_ns(),
            begin_ns: monotonic_ns(),
        }
    }

    /// The share of the time of so many CPUs that the threads waited for them. To be asked while the threads are there.
    pub(crate) fn share(self, cpus: usize) -> f64 {
        let waited = waited_ns().saturating_sub(self.before_ns) as f64;
        waited / monotonic_ns().saturating_sub(self.begin_ns).max(1) as f64 / cpus as f64
    }
}

/// How long the threads of this process have been ready to run without a CPU, in ns; 0 where the kernel does not tell.
fn waited_ns() -> u64 {
    let pid = std::process::id();
    let threads = procfs::threads(pid).unwrap_or_default();
    let waited = threads
        .iter()
        .filter_map(|&tid| procfs::thread_waited_ns(pid, tid));
    waited.sum()
}
