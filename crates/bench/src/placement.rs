//! Where the threads of a benchmark run.

use linewise_machine::affinity::{allowed_cpus, pin_current_thread};

/// Why threads could not be placed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// A CPU was asked for where this process may not run.
    #[error(
        "CPU {cpu} is not among the CPUs where this process may run ({allowed:?}); choose among those, or change the CPU set (taskset, cpuset)"
    )]
    Cpu {
        /// What was asked for.
        cpu: u32,
        /// What there is.
        allowed: Vec<u32>,
    },
    /// A CPU was asked for twice.
    #[error("CPU {cpu} is named twice; name each CPU once")]
    Twice {
        /// Which one.
        cpu: u32,
    },
    /// A thread could not be created.
    #[error(
        "thread {index} could not be created; free memory or raise the limit on threads (ulimit -u), or use fewer threads"
    )]
    Spawn {
        /// Which one.
        index: usize,
        /// Why.
        source: std::io::Error,
    },
    /// A thread could not be pinned.
    #[error(
        "thread {index} could not be pinned to CPU {cpu}; choose a CPU where this process may run"
    )]
    Pin {
        /// Which one.
        index: usize,
        /// Where.
        cpu: u32,
        /// Why.
        source: std::io::Error,
    },
}

/// The CPUs to choose from: those asked for, or all where this process may run (none if the kernel
/// does not tell).
///
/// # Errors
/// [`PlacementError::Cpu`], [`PlacementError::Twice`].
pub fn usable(asked: &[u32]) -> Result<Vec<u32>, PlacementError> {
    let allowed = allowed_cpus();
    let named = |(index, cpu)| asked[..index].contains(cpu);
    if let Some((_, &cpu)) = asked.iter().enumerate().find(|&it| named(it)) {
        return Err(PlacementError::Twice { cpu });
    }
    match asked.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(&cpu) => Err(PlacementError::Cpu { cpu, allowed }),
        None if asked.is_empty() => Ok(allowed),
        None => Ok(asked.to_vec()),
    }
}

/// Pins the calling thread, the one of this index, if it has a CPU.
///
/// # Errors
/// [`PlacementError::Pin`].
pub(crate) fn pin(index: usize, cpu: Option<u32>) -> Result<(), PlacementError> {
    let Some(cpu) = cpu else { return Ok(()) };
    pin_current_thread(cpu).map_err(|source| PlacementError::Pin { index, cpu, source })
}
