//! Why something does not work here, and what the user can do about it.

use std::path::PathBuf;

use linewise_collect::exact::ExactError;
use linewise_machine::facts::{Facts, Hypervisor, Limit, PerfPermission};

use super::measure::{SamplerProbe, WatchpointProbe};
use super::report::{Measured, Remedy, Source, SourceState};

/// The architecture whose instructions this version decodes.
const DECODED_ARCHITECTURE: &str = "x86_64";

/// Below so many descriptors a target of some hundred threads cannot be followed.
const FEW_OPEN_FILES: u64 = 4096;

/// Every source, the one in use first.
pub(super) fn sources(
    facts: &Facts,
    watchpoints: &Measured<WatchpointProbe>,
    sampler: &Measured<SamplerProbe>,
) -> Vec<Source> {
    vec![
        timer(watchpoints, sampler),
        pebs(facts),
        ibs(facts),
        spe(facts),
        exact(facts, linewise_collect::exact::plugin()),
        Source {
            name: "import",
            state: SourceState::NotBuilt,
            reason: "reading a perf.data from elsewhere is not in this version".to_owned(),
            remedy: "record here with the timer source".to_owned(),
        },
    ]
}

fn timer(watchpoints: &Measured<WatchpointProbe>, sampler: &Measured<SamplerProbe>) -> Source {
    let not_ready = |reason: String, remedy: String| Source {
        name: "timer",
        state: SourceState::Missing,
        reason,
        remedy,
    };
    if std::env::consts::ARCH != DECODED_ARCHITECTURE {
        return not_ready(
            format!(
                "this version decodes {DECODED_ARCHITECTURE} instructions only, and this machine \
                 is {}",
                std::env::consts::ARCH
            ),
            format!("record on a {DECODED_ARCHITECTURE} machine"),
        );
    }
    match (sampler, watchpoints) {
        (Measured::Failed(failed), _) => not_ready(failed.reason.clone(), failed.remedy.clone()),
        (_, Measured::Failed(failed)) => not_ready(
            format!("without watchpoints no sharing is seen: {}", failed.reason),
            failed.remedy.clone(),
        ),
        (Measured::Value(_), Measured::Value(_)) => Source {
            name: "timer",
            state: SourceState::Ready,
            reason: "samples thread time, needs no PMU; `linewise run` uses it".to_owned(),
            remedy: String::new(),
        },
    }
}

/// A hardware sampler that belongs to another maker's processors.
fn other_cpu(name: &'static str, makers: &str) -> Source {
    Source {
        name,
        state: SourceState::OtherCpu,
        reason: format!("only {makers} processors have it"),
        remedy: String::new(),
    }
}

/// A hardware sampler that the machine has and this version does not read.
fn not_built(name: &'static str) -> Source {
    Source {
        name,
        state: SourceState::NotBuilt,
        reason: "this machine has it; this version of linewise does not read it".to_owned(),
        remedy: "the timer source is used".to_owned(),
    }
}

/// A hardware sampler of this maker that the kernel does not show.
fn not_shown(name: &'static str, what: &str, facts: &Facts) -> Source {
    let (reason, remedy) = if facts.hypervisor == Hypervisor::None {
        (
            format!("the kernel shows no {what}"),
            "look for it in the firmware's settings and in the kernel's log; the timer source \
             works without it",
        )
    } else {
        (
            format!("the hypervisor passes no {what} to this machine"),
            "ask for a machine with a virtual PMU (KVM: `-cpu host,pmu=on`) or for bare metal; \
             the timer source works without it",
        )
    };
    Source {
        name,
        state: SourceState::Missing,
        reason,
        remedy: remedy.to_owned(),
    }
}

fn is_vendor(facts: &Facts, vendor: &str) -> bool {
    facts
        .cpu_vendor
        .known()
        .is_some_and(|known| known == vendor)
}

fn pebs(facts: &Facts) -> Source {
    if !is_vendor(facts, "GenuineIntel") {
        return other_cpu("pebs", "Intel");
    }
    match (&facts.pmus.core, facts.pmus.max_precise) {
        (Some(_), Some(1..)) => not_built("pebs"),
        (Some(_), _) => not_shown("pebs", "precise events (caps/max_precise is 0)", facts),
        (None, _) => not_shown("pebs", "PMU", facts),
    }
}

fn ibs(facts: &Facts) -> Source {
    let amd = is_vendor(facts, "AuthenticAMD") || is_vendor(facts, "HygonGenuine");
    match (amd, facts.pmus.ibs) {
        (_, true) => not_built("ibs"),
        (true, false) => not_shown("ibs", "instruction-based sampling (ibs_op)", facts),
        (false, false) => other_cpu("ibs", "AMD"),
    }
}

fn spe(facts: &Facts) -> Source {
    match (std::env::consts::ARCH == "aarch64", facts.pmus.spe) {
        (_, true) => not_built("spe"),
        (true, false) => not_shown("spe", "statistical profiling extension (arm_spe_0)", facts),
        (false, false) => other_cpu("spe", "Arm"),
    }
}

fn exact(facts: &Facts, plugin: Result<PathBuf, ExactError>) -> Source {
    let missing = |reason: String, remedy: &str| Source {
        name: "exact",
        state: SourceState::Missing,
        reason,
        remedy: remedy.to_owned(),
    };
    match (facts.qemu_user.known(), plugin) {
        (None, _) => missing(
            facts
                .qemu_user
                .reason()
                .unwrap_or("qemu-user not found")
                .to_owned(),
            "Debian and Ubuntu: `sudo apt-get install qemu-user`; the timer source works without it",
        ),
        (Some(_), Err(error)) => missing(
            error.to_string(),
            "`make build`, then `sudo make install`, puts it where linewise looks",
        ),
        (Some(qemu), Ok(_)) => Source {
            name: "exact",
            state: SourceState::Ready,
            reason: format!(
                "every access of a program under {}, many times slower: `--source exact`",
                qemu.display()
            ),
            remedy: String::new(),
        },
    }
}

/// Whether the settings and the capabilities grant perf events.
pub(super) fn perf_is_allowed(facts: &Facts) -> bool {
    facts.perf_permission() != PerfPermission::Nothing
}

/// What to do when perf events are refused; `None` when the settings do not explain it.
fn perf_remedy(facts: &Facts) -> Option<Remedy> {
    if perf_is_allowed(facts) {
        return None;
    }
    Some(match facts.perf_event_paranoid.known() {
        Some(level) => Remedy {
            reason: format!("kernel.perf_event_paranoid is {level}, which forbids ordinary users"),
            remedy: "`sudo sysctl kernel.perf_event_paranoid=2`, or run linewise as root or with \
                     CAP_PERFMON"
                .to_owned(),
        },
        None => Remedy {
            reason: "the kernel has no perf events (no /proc/sys/kernel/perf_event_paranoid)"
                .to_owned(),
            remedy: "use a kernel with CONFIG_PERF_EVENTS; in a sandbox that hides /proc, leave \
                     the sandbox"
                .to_owned(),
        },
    })
}

/// Why the timer could not be probed. `reason` is the measurement's own words.
pub(super) fn no_sampler(facts: &Facts, reason: String) -> Remedy {
    match perf_remedy(facts) {
        Some(known) => Remedy {
            reason: format!("{} ({reason})", known.reason),
            remedy: known.remedy,
        },
        None => Remedy {
            reason,
            remedy: "in a container, allow perf_event_open: `--cap-add PERFMON` or \
                     `--security-opt seccomp=unconfined`; on a busy machine, try again"
                .to_owned(),
        },
    }
}

/// Why watchpoints could not be probed. `reason` is the measurement's own words.
pub(super) fn no_watchpoints(facts: &Facts, reason: String) -> Remedy {
    match perf_remedy(facts) {
        Some(known) => Remedy {
            reason: format!("{} ({reason})", known.reason),
            remedy: known.remedy,
        },
        None if !facts.pmus.breakpoint => Remedy {
            reason: format!("the kernel offers no hardware breakpoints ({reason})"),
            remedy: "use a kernel with CONFIG_HAVE_HW_BREAKPOINT, on a hypervisor that passes \
                     the debug registers"
                .to_owned(),
        },
        None => Remedy {
            reason,
            remedy: "end other debuggers and tracers that hold watchpoints; in a container, \
                     allow perf_event_open: `--cap-add PERFMON` or \
                     `--security-opt seccomp=unconfined`"
                .to_owned(),
        },
    }
}

/// What restricts linewise here though it may still work.
pub(super) fn restrictions(facts: &Facts) -> Vec<Remedy> {
    let mut found: Vec<Remedy> = perf_remedy(facts).into_iter().collect();
    if let Some(&scope) = facts.ptrace_scope.known()
        && scope > 0
        && !facts.capabilities.ptrace
    {
        found.push(Remedy {
            reason: format!(
                "kernel.yama.ptrace_scope is {scope}: `--pid` may be refused the code and memory \
                 of a process that linewise did not start"
            ),
            remedy: "start the program with `linewise run -- CMD`, or \
                     `sudo sysctl kernel.yama.ptrace_scope=0`, or run linewise as root"
                .to_owned(),
        });
    }
    if let Some(Limit::Of(number)) = facts.open_files.known()
        && *number < FEW_OPEN_FILES
    {
        found.push(Remedy {
            reason: format!(
                "{number} open files are few: every followed thread takes several, so some \
                 threads of a large program would not be followed"
            ),
            remedy: "`ulimit -n 65536` before linewise".to_owned(),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::examine::tests::{examine, fixture, healthy};
    use super::*;
    use linewise_machine::facts::Fact;

    fn facts(name: &str) -> Facts {
        Facts::read(&fixture(name), &[])
    }

    #[test]
    fn a_level_that_forbids_everything_is_named_with_the_command_that_lifts_it() {
        let mut facts = facts("epyc-vm-2cpu");
        facts.perf_event_paranoid = Fact::Known(3);
        let failed = no_sampler(&facts, "EACCES".to_owned());
        assert!(failed.reason.contains("paranoid is 3"), "{failed:?}");
        assert!(failed.remedy.contains("paranoid=2"), "{failed:?}");
        assert_eq!(restrictions(&facts).len(), 1);
    }

    #[test]
    fn an_unexplained_refusal_points_at_the_container() {
        let facts = facts("epyc-vm-2cpu");
        let failed = no_sampler(&facts, "EPERM".to_owned());
        assert_eq!(failed.reason, "EPERM");
        assert!(failed.remedy.contains("PERFMON"));
    }

    #[test]
    fn yama_and_a_low_file_limit_are_restrictions_for_ordinary_users_only() {
        let mut facts = facts("epyc-vm-2cpu");
        facts.ptrace_scope = Fact::Known(1);
        facts.open_files = Fact::Known(Limit::Of(1024));
        let found = restrictions(&facts);
        assert_eq!(found.len(), 2);
        assert!(found[0].remedy.contains("ptrace_scope=0"));
        assert!(found[1].remedy.contains("ulimit -n"));
        facts.capabilities.ptrace = true;
        assert_eq!(restrictions(&facts).len(), 1);
    }

    #[test]
    fn a_pmu_hidden_by_the_hypervisor_and_one_hidden_by_the_firmware_differ() {
        let mut facts = facts("two-sockets-8cpu");
        facts.pmus.core = None;
        assert!(pebs(&facts).reason.contains("kernel shows no PMU"));
        facts.hypervisor = Hypervisor::Unnamed;
        assert!(pebs(&facts).remedy.contains("virtual PMU"));
    }

    #[test]
    fn the_exact_source_wants_qemu_and_the_plugin() {
        let mut facts = facts("epyc-vm-2cpu");
        let there = || Ok(PathBuf::from("/usr/local/lib/linewise/plugin.so"));
        facts.qemu_user = Fact::Known("/usr/bin/qemu-x86_64".into());
        let source = exact(&facts, there());
        assert_eq!(source.state, SourceState::Ready);
        assert!(source.reason.contains("/usr/bin/qemu-x86_64"));

        let gone = Err(ExactError::NoPlugin {
            looked: "/usr/local/lib/linewise".to_owned(),
        });
        let source = exact(&facts, gone);
        assert_eq!(source.state, SourceState::Missing);
        assert!(source.reason.contains("/usr/local/lib/linewise"));
        assert!(source.remedy.contains("make install"));

        facts.qemu_user = Fact::Unknown("qemu-x86_64 is not on PATH".to_owned());
        let source = exact(&facts, there());
        assert_eq!(source.state, SourceState::Missing);
        assert!(source.remedy.contains("qemu-user"));
    }

    #[test]
    fn no_two_sources_have_one_name() {
        let report = examine("epyc-vm-2cpu", healthy());
        let mut names: Vec<_> = report.sources.iter().map(|source| source.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 6);
    }
}
