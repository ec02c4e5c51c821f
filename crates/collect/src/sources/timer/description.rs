//! What a recording says of the machine, the source and itself.

use linewise_machine::facts::Facts;
use linewise_recording::{
    CacheLevel, FORMAT_VERSION, Overhead, Pid, RunInfo, SimulatedCache, Source, Time,
};
use linewise_topology::{Cache, CacheKind, CpuSet, Topology};

use crate::kernel::Machinery;
use crate::sources::timer::budget::Costs;

/// What a recording by the timer says of itself at its start, but whose it is. `taken` watchpoints of each thread are for
/// something else than lines; `sampled` is what has a sampler.
pub(crate) fn describe(
    kernel: &impl Machinery,
    sampled: &str,
    start: Time,
    facts: &Facts,
    costs: &Costs,
    taken: u32,
) -> RunInfo {
    let watchpoints = costs.watchpoints;
    let topology = kernel.topology();
    let no_counters = match (&facts.pmus.core, facts.hypervisor.name()) {
        (Some(pmu), _) => {
            format!(
                "the timer works everywhere; the counters of {pmu} are not used by this version"
            )
        }
        (None, "") => "this machine shows no PMU".to_owned(),
        (None, name) => format!("no PMU in this virtual machine ({name})"),
    };
    RunInfo {
        format_version: FORMAT_VERSION,
        id: kernel.run_id(),
        linewise_version: env!("CARGO_PKG_VERSION").to_owned(),
        complete: false,
        command: Vec::new(),
        pid: Pid(0),
        launched: false,
        source: Source::Timer,
        source_reason: format!("{no_counters}; {sampled} is sampled"),
        start,
        end: start,
        ended_by: String::new(),
        exit_code: None,
        exit_signal: None,
        line_size: line_size(topology.as_ref()),
        cpus: topology
            .as_ref()
            .map_or(1, |topology| topology.cpus.len() as u32),
        watchpoint_bytes: watchpoints.map_or(0, |watch| {
            (watch.count - taken.min(watch.count)) * crate::sources::timer::watch::CHUNK as u32
        }),
        host: facts.host.known().cloned().unwrap_or_default(),
        boot_id: facts.boot_id.known().cloned().unwrap_or_default(),
        cpu_model: facts.cpu_model.known().cloned().unwrap_or_default(),
        hypervisor: facts.hypervisor.name().to_owned(),
        kernel: facts.kernel_release.known().cloned().unwrap_or_default(),
        skid_rule: costs.skid.rule.word().to_owned(),
        exposure_offset_ns: watchpoints.map_or(0.0, |watch| watch.exposure_offset_ns),
        trap_delay_ns: watchpoints.map_or(0.0, |watch| watch.trap_delay_ns),
        overhead: Overhead::default(),
        exact: None,
        reuse: None,
        heap: None,
        caches: topology.as_ref().map_or_else(Vec::new, caches),
    }
}

/// What the machine says, and 64 where it says nothing that a line can be.
fn line_size(topology: Option<&Topology>) -> u64 {
    topology
        .and_then(|topology| topology.line_size().map(u64::from))
        .filter(|size| size.is_power_of_two() && (8..=65_536).contains(size))
        .unwrap_or(64)
}

/// The data caches of the first CPU, by level.
fn caches(topology: &Topology) -> Vec<SimulatedCache> {
    let Some(cpu) = topology.cpus.first().map(|cpu| cpu.id) else {
        return Vec::new();
    };
    let alike = |cache: &Cache| {
        let others = topology.caches.iter();
        others
            .filter(|it| (it.level, it.kind) == (cache.level, cache.kind))
            .count()
    };
    let all = topology.cores();
    let cores = |cache: &Cache| {
        let firsts = all.iter().filter_map(CpuSet::first);
        firsts.filter(|cpu| cache.cpus.contains(*cpu)).count()
    };
    let mut caches: Vec<SimulatedCache> = topology
        .caches
        .iter()
        .filter(|cache| cache.kind != CacheKind::Instruction && cache.cpus.contains(cpu))
        .filter_map(|cache| {
            Some(SimulatedCache {
                level: match cache.level {
                    1 => CacheLevel::L1d,
                    2 => CacheLevel::L2,
                    3 => CacheLevel::L3,
                    _ => CacheLevel::L4,
                },
                size_bytes: cache.size_bytes?,
                ways: cache.ways?,
                count: alike(cache) as u32,
                cores: cores(cache) as u32,
            })
        })
        .collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

#[cfg(test)]
mod tests {
    use linewise_topology::synthetic;

    use super::*;

    #[test]
    fn the_line_is_as_long_as_the_machine_says() {
        let mut machine = synthetic::apple_of_three_clusters();
        assert_eq!(line_size(Some(&machine)), 128);
        for nonsense in [48, 4, 1 << 20] {
            for cache in &mut machine.caches {
                cache.line_bytes = Some(nonsense);
            }
            assert_eq!(line_size(Some(&machine)), 64, "{nonsense}");
        }
        assert_eq!(line_size(None), 64);
    }
}
