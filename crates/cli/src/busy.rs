//! Which processes of the system are at work.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use linewise_machine::process;

/// For how long it is looked.
const LOOK: Duration = Duration::from_millis(500);
/// The share of a CPU from which on a process is worth a look.
const WORTH: f64 = 0.2;

/// The processes that use a fifth of a CPU or more, ourselves, the kernel's and those of which we may know nothing left out.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn busy_processes() -> anyhow::Result<Vec<u32>> {
    let all = || -> anyhow::Result<Vec<(u32, u64)>> {
        let folder = std::fs::read_dir("/proc").context("cannot read /proc")?;
        let pids = folder
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let own = std::process::id();
        let times = pids.filter(|&pid| pid != own);
        Ok(times
            .filter_map(|pid| Some((pid, process::cpu_time_ns(pid)?)))
            .collect())
    };
    let before = all()?;
    std::thread::sleep(LOOK);
    let before: BTreeMap<u32, u64> = before.into_iter().collect();
    let limit = (LOOK.as_nanos() as f64 * WORTH) as u64;
    // The kernel's have no program.
    let has_program = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok();
    let busy = all()?.into_iter().filter(|(pid, now)| {
        let used = before
            .get(pid)
            .map_or(0, |before| now.saturating_sub(*before));
        used >= limit && has_program(pid)
    });
    Ok(busy.map(|(pid, _)| pid).collect())
}
