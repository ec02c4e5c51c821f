//! What the host takes from a virtual machine: while it lets a virtual CPU wait, nothing that is measured
//! on it says anything about the program.

use std::fs;
use std::time::Instant;

use anyhow::Context;

/// Ticks of the kernel's clock a second, in `/proc/stat`.
const TICKS_PER_SECOND: f64 = 100.0;

/// The time that was stolen until a moment.
pub(crate) struct Stolen {
    ticks: u64,
    cpus: usize,
    at: Instant,
}

impl Stolen {
    /// Until now.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read.
    pub(crate) fn until_now() -> anyhow::Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let (ticks, cpus) = of_stat(&text).context("/proc/stat has no line of all CPUs")?;
        let at = Instant::now();
        Ok(Self { ticks, cpus, at })
    }

    /// The share of all CPUs' time since then that was stolen, 0 to 1.
    ///
    /// # Errors
    /// See [`Self::until_now`].
    pub(crate) fn share_since(&self) -> anyhow::Result<f64> {
        let now = Self::until_now()?;
        // Some kernels let it go back.
        let seconds = now.ticks.saturating_sub(self.ticks) as f64 / TICKS_PER_SECOND;
        Ok(seconds / (now.at - self.at).as_secs_f64() / self.cpus as f64)
    }
}

/// The ticks stolen from all CPUs, and how many CPUs there are.
fn of_stat(text: &str) -> Option<(u64, usize)> {
    let mut lines = text.lines();
    let mut all = lines.next()?.split_whitespace();
    (all.next()? == "cpu").then_some(())?;
    let cpus = lines.take_while(|line| line.starts_with("cpu")).count();
    // After user, nice, system, idle, iowait, irq and softirq.
    Some((all.nth(7)?.parse().ok()?, cpus.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_ticks_are_the_eighth_column_of_the_line_of_all_cpus() {
        let text = "cpu  10 0 20 3000 4 0 5 77 0 0\ncpu0 5 0 10 1500 2 0 3 40 0 0\n\
                    cpu1 5 0 10 1500 2 0 2 37 0 0\nintr 1\n";
        assert_eq!(of_stat(text), Some((77, 2)));
        assert_eq!(of_stat("intr 1\n"), None);
    }
}
