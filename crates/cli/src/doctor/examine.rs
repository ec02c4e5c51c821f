//! Puts together what doctor finds.

use std::time::Duration;

use linewise_machine::facts::{Fact, Facts, Limit};
use linewise_topology::Topology;

use super::matrix::RoundTrips;
use super::measure::Measure;
use super::remedies;
use super::report::{
    CacheRow, CpuSection, DoctorReport, HoleRow, LimitValue, Measured, NodeRow, Permissions,
    SCHEMA, TopologySection,
};

impl DoctorReport {
    /// Puts together what the kernel tells and what `measure` finds, spending about
    /// `round_trip_budget` on the core-to-core matrix.
    pub(crate) fn examine(
        facts: &Facts,
        topology: &Topology,
        measure: &mut dyn Measure,
        round_trip_budget: Duration,
    ) -> Self {
        let round_trips = RoundTrips::measure(facts, topology, measure, round_trip_budget);
        let watchpoints = match measure.watchpoints() {
            Ok(probe) => Measured::Value(probe),
            Err(reason) => Measured::Failed(remedies::no_watchpoints(facts, reason)),
        };
        let sampler = match measure.sampler() {
            Ok(probe) => Measured::Value(probe),
            Err(reason) => Measured::Failed(remedies::no_sampler(facts, reason)),
        };
        let mut permissions = permissions(facts);
        if matches!(sampler, Measured::Failed(_)) && remedies::perf_is_allowed(facts) {
            permissions.perf_events += ", by the settings; yet none could be opened, see above";
        }
        Self {
            schema: SCHEMA,
            cpu: cpu_section(facts, topology),
            topology: topology_section(topology),
            round_trips,
            sources: remedies::sources(facts, &watchpoints, &sampler),
            permissions,
            watchpoints,
            sampler,
        }
    }
}

fn cpu_section(facts: &Facts, topology: &Topology) -> CpuSection {
    CpuSection {
        model: facts.cpu_model.known().cloned(),
        vendor: facts.cpu_vendor.known().cloned(),
        architecture: std::env::consts::ARCH.to_owned(),
        hypervisor: facts.hypervisor.name().to_owned(),
        kernel: facts.kernel_release.known().cloned(),
        online: topology.cpu_set().to_string(),
        allowed: facts.allowed_cpus.known().map(ToString::to_string),
    }
}

fn topology_section(topology: &Topology) -> TopologySection {
    let lists = |sets: Vec<linewise_topology::CpuSet>| -> Vec<String> {
        sets.iter().map(ToString::to_string).collect()
    };
    let mut caches: Vec<CacheRow> = Vec::new();
    for cache in &topology.caches {
        let row = CacheRow {
            level: cache.level,
            kind: cache.kind.word(),
            size_bytes: cache.size_bytes,
            line_bytes: cache.line_bytes,
            ways: cache.ways,
            shared_by: Vec::new(),
        };
        let alike = caches.iter().position(|known| {
            let shape = CacheRow {
                shared_by: Vec::new(),
                ..known.clone()
            };
            shape == row
        });
        let at = alike.unwrap_or_else(|| {
            caches.push(row);
            caches.len() - 1
        });
        caches[at].shared_by.push(cache.cpus.to_string());
    }
    TopologySection {
        line_bytes: topology.line_size(),
        sockets: lists(topology.sockets()),
        cores: lists(topology.cores()),
        llc_groups: lists(topology.llc_groups()),
        nodes: topology
            .nodes
            .iter()
            .map(|node| NodeRow {
                id: node.id,
                cpus: node.cpus.to_string(),
                distances: node.distances.clone(),
            })
            .collect(),
        caches,
        holes: topology
            .holes
            .iter()
            .map(|hole| HoleRow {
                what: hole.what.clone(),
                reason: hole.reason.clone(),
            })
            .collect(),
    }
}

fn permissions(facts: &Facts) -> Permissions {
    let path =
        |fact: &Fact<std::path::PathBuf>| fact.known().map(|path| path.display().to_string());
    let limit = |fact: &Fact<Limit>| {
        fact.known().map(|limit| match limit {
            Limit::Of(number) => LimitValue::Number(*number),
            Limit::Unlimited => LimitValue::Word("unlimited"),
        })
    };
    let held = [
        (facts.capabilities.perfmon, "perfmon"),
        (facts.capabilities.ptrace, "ptrace"),
        (facts.capabilities.ipc_lock, "ipc_lock"),
    ];
    Permissions {
        perf_event_paranoid: facts.perf_event_paranoid.known().copied(),
        perf_events: facts.perf_permission().meaning().to_owned(),
        perf_event_mlock_kb: facts.perf_event_mlock_kb.known().copied(),
        ptrace_scope: facts.ptrace_scope.known().copied(),
        capabilities: held
            .into_iter()
            .filter_map(|(held, name)| held.then_some(name))
            .collect(),
        memlock_bytes: limit(&facts.memlock_bytes),
        open_files: limit(&facts.open_files),
        tracefs: path(&facts.tracefs),
        debugfs: path(&facts.debugfs),
        remedies: remedies::restrictions(facts),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::measure::{RoundTripNs, SamplerProbe, SkidRule, WatchpointProbe};
    use super::super::report::{Measured, Source, SourceState};
    use super::*;
    use linewise_machine::sysfs::read_topology;
    use std::path::{Path, PathBuf};

    /// An invented machine: what each measurement answers.
    pub(crate) struct Invented {
        pub(crate) round_trip: Result<RoundTripNs, String>,
        pub(crate) watchpoints: Result<WatchpointProbe, String>,
        pub(crate) sampler: Result<SamplerProbe, String>,
    }

    impl Measure for Invented {
        fn round_trip(&mut self, a: u32, b: u32, _: Duration) -> Result<RoundTripNs, String> {
            assert!(a < b, "each pair is measured once, lower CPU first");
            self.round_trip.clone()
        }
        fn watchpoints(&mut self) -> Result<WatchpointProbe, String> {
            self.watchpoints.clone()
        }
        fn sampler(&mut self) -> Result<SamplerProbe, String> {
            self.sampler.clone()
        }
    }

    pub(crate) fn healthy() -> Invented {
        Invented {
            round_trip: Ok(RoundTripNs {
                median: 88.4,
                low: 80.0,
                high: 120.0,
            }),
            watchpoints: Ok(WatchpointProbe {
                count: 4,
                arm_ns: 21_000.0,
                trap_ns: 14_000.0,
                guarded: true,
            }),
            sampler: Ok(SamplerProbe {
                skid_rule: SkidRule::Next,
                agreement: 0.97,
                samples: 812,
                sample_ns: 2_100.0,
            }),
        }
    }

    pub(crate) fn broken(reason: &str) -> Invented {
        Invented {
            round_trip: Err(reason.to_owned()),
            watchpoints: Err(reason.to_owned()),
            sampler: Err(reason.to_owned()),
        }
    }

    pub(crate) fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/sysfs")
            .join(name)
    }

    pub(crate) fn examine(name: &str, mut machine: Invented) -> DoctorReport {
        let root = fixture(name);
        let facts = Facts::read(&root, &[root.join("usr/bin")]);
        let topology = read_topology(&root).expect("a fixture lists its CPUs");
        DoctorReport::examine(&facts, &topology, &mut machine, Duration::from_secs(1))
    }

    fn source<'a>(report: &'a DoctorReport, name: &str) -> &'a Source {
        let found = report.sources.iter().find(|source| source.name == name);
        found.expect("every source is listed")
    }

    #[test]
    fn a_vm_without_a_pmu_is_ready_for_the_timer_and_says_why_not_for_the_rest() {
        let report = examine("epyc-vm-2cpu", healthy());
        assert!(report.anything_works());
        assert_eq!(source(&report, "timer").state, SourceState::Ready);
        assert_eq!(source(&report, "ibs").state, SourceState::Missing);
        assert_eq!(source(&report, "pebs").state, SourceState::OtherCpu);
        for source in &report.sources {
            assert!(!source.reason.is_empty(), "{}", source.name);
            if source.state == SourceState::Missing {
                assert!(!source.remedy.is_empty(), "{}", source.name);
            }
        }
    }

    #[test]
    fn a_machine_with_pebs_is_told_that_this_version_does_not_read_it() {
        let report = examine("two-sockets-8cpu", healthy());
        assert_eq!(source(&report, "pebs").state, SourceState::NotBuilt);
    }

    #[test]
    fn without_watchpoints_no_sharing_is_seen_so_the_timer_is_not_ready() {
        let mut machine = healthy();
        machine.watchpoints = Err("all four are taken".to_owned());
        let report = examine("epyc-vm-2cpu", machine);
        let timer = source(&report, "timer");
        assert_eq!(timer.state, SourceState::Missing);
        assert!(timer.reason.contains("all four are taken"), "{timer:?}");
        assert!(!report.anything_works());
    }

    #[test]
    fn every_failed_measurement_carries_its_reason_and_a_remedy() {
        let report = examine("vm-with-holes", broken("EACCES from the test"));
        let Measured::Failed(watchpoints) = &report.watchpoints else {
            panic!("{:?}", report.watchpoints)
        };
        let Measured::Failed(sampler) = &report.sampler else {
            panic!("{:?}", report.sampler)
        };
        for failed in [watchpoints, sampler] {
            assert!(failed.reason.contains("EACCES from the test"));
            assert!(!failed.remedy.is_empty());
        }
        assert_eq!(report.round_trips.unmeasured.len(), 6);
    }

    #[test]
    fn alike_caches_are_one_row() {
        let report = examine("epyc-vm-2cpu", healthy());
        let rows: Vec<_> = report
            .topology
            .caches
            .iter()
            .map(|cache| (cache.level, cache.kind, cache.shared_by.len()))
            .collect();
        assert_eq!(
            rows,
            [
                (1, "data", 2),
                (1, "instruction", 2),
                (2, "unified", 2),
                (3, "unified", 1)
            ]
        );
    }

    #[test]
    fn the_json_has_the_fields_that_are_promised() {
        let report = examine("epyc-vm-2cpu", healthy());
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["schema"], 1);
        assert_eq!(json["cpu"]["hypervisor"], "KVM");
        assert_eq!(json["topology"]["line_bytes"], 64);
        assert_eq!(json["round_trips"]["median_ns"][0][1], 88.4);
        assert!(json["round_trips"]["median_ns"][0][0].is_null());
        assert_eq!(json["sampler"]["skid_rule"], "next");
        assert_eq!(json["watchpoints"]["count"], 4);
        assert_eq!(json["permissions"]["perf_event_paranoid"], 2);
        assert_eq!(json["sources"][0]["name"], "timer");
        assert_eq!(json["sources"][0]["state"], "ready");

        let failed = serde_json::to_value(examine("epyc-vm-2cpu", broken("no"))).unwrap();
        assert!(failed["sampler"]["skid_rule"].is_null());
        assert!(failed["sampler"]["remedy"].is_string());
    }
}
