//! Who else was on a CPU at the moments at which a thread was sampled.

use std::collections::HashMap;

use linewise_recording::{CpuId, Tid, Time};

use super::super::encounter::Stays;

/// Moments of a thread that are looked up.
const MOMENTS: usize = 256;

/// Where and when a thread was sampled: at most [`MOMENTS`], evenly over all of its samples.
#[derive(Clone, Default)]
pub(super) struct Moments {
    pub(super) at: Vec<(CpuId, Time)>,
    /// One of so many is kept; 0 before the first.
    stride: u64,
    seen: u64,
}

impl Moments {
    /// Notes one more.
    pub(super) fn note(&mut self, cpu: CpuId, time: Time) {
        let number = self.seen;
        self.seen += 1;
        // Of a long run every so many samples will do, spread over all of it.
        if !number.is_multiple_of(self.stride.max(1)) {
            return;
        }
        if self.at.len() == MOMENTS {
            self.stride = self.stride.max(1) * 2;
            let mut keep = false;
            self.at.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.at.push((cpu, time));
    }

    /// The moments of thread `tid` at which switches were recorded, or all if there are none.
    fn told(&self, tid: Tid, on_cpus: &Stays<'_>) -> impl Iterator<Item = (CpuId, Time)> {
        let told = move |time: Time| on_cpus.tells_of(tid, time);
        let none_told = !self.at.iter().any(|&(_, time)| told(time));
        (self.at.iter().copied()).filter(move |&(_, time)| none_told || told(time))
    }

    /// Of the moments of thread `tid`, the share at which `other` runs on another CPU.
    pub(super) fn beside(&self, tid: Tid, other: Tid, on_cpus: &Stays<'_>) -> f64 {
        let (mut beside, mut all) = (0, 0);
        for (cpu, time) in self.told(tid, on_cpus) {
            all += 1;
            beside += u32::from(on_cpus.elsewhere(other, cpu, time));
        }
        f64::from(beside) / f64::from(all.max(1))
    }

    /// The same for all threads that run on other CPUs at these moments, of those whose stays are recorded.
    pub(super) fn beside_each(&self, tid: Tid, on_cpus: &Stays<'_>) -> HashMap<Tid, f64> {
        let mut beside: HashMap<Tid, f64> = HashMap::new();
        let all = self.told(tid, on_cpus).count() as f64;
        for (cpu, time) in self.told(tid, on_cpus) {
            for other in on_cpus.on_others(cpu, time) {
                *beside.entry(other).or_default() += 1.0 / all;
            }
        }
        beside
    }
}
