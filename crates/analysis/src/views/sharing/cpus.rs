//! Between which CPUs lines moved.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{CpuId, Tid};

use super::Flow;

/// Spreads flows over the CPUs where the two threads were seen.
pub(super) fn spread_over_cpus<'a>(
    flows: &[Flow],
    time_by_cpu: impl Fn(Tid) -> &'a HashMap<CpuId, f64>,
    into: &mut BTreeMap<(CpuId, CpuId), (f64, f64)>,
) {
    for flow in flows {
        let shares = |tid: Tid| -> Vec<(CpuId, f64)> {
            let by_cpu = time_by_cpu(tid);
            let total: f64 = by_cpu.values().sum();
            by_cpu
                .iter()
                .map(|(&cpu, weight)| (cpu, weight / total))
                .collect()
        };
        let (to, from) = (shares(flow.to), shares(flow.from));
        let apart: f64 = to
            .iter()
            .flat_map(|a| from.iter().map(move |b| (a, b)))
            .filter(|(a, b)| a.0 != b.0)
            .map(|(a, b)| a.1 * b.1)
            .sum();
        if apart <= 0.0 {
            continue;
        }
        for a in &to {
            for b in from.iter().filter(|b| b.0 != a.0) {
                let share = a.1 * b.1 / apart;
                let cell = into.entry((a.0.min(b.0), a.0.max(b.0))).or_default();
                cell.0 += flow.true_sharing * share;
                cell.1 += flow.false_sharing * share;
            }
        }
    }
}
