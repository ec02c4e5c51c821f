//! Before a recording begins: the target waits or is found, and what this machine costs is measured.

use std::ffi::OsString;

use linewise_machine::facts::Facts;
use linewise_machine::guard;
use linewise_machine::perf::SamplerOptions;
use linewise_machine::probe::{AtSwitch, ProbeError, WatchpointCosts};
use linewise_machine::process::Manner;

use crate::error::Error;
use crate::kernel::{HeldTarget, Kernel, Machinery, Warden};
use crate::options::{HeapWhen, RecordOptions, SampleBy, Target, TimerOptions};
use crate::sources::timer::attach::{family as family_of, switches_are_dear};
use crate::sources::timer::budget::{Budget, Costs, Limits};
use crate::sources::timer::collector::ReuseSampling;
use crate::sources::timer::samplers::cpus::CpuSamplers;
use crate::sources::timer::samplers::threads::finer_period_ns;
use crate::target::family::Family;
use crate::target::heap::{self, HeapRecorder, Source};

/// Places of 8 bytes that an object is watched at, at most.
const MOST_PLACES: u32 = 3;

/// The target before its recording begins.
pub(super) enum Beginning<'a, K: Kernel> {
    Held(K::Held, &'a [OsString], Family<K>),
    Processes(&'a [u32]),
}

impl<K: Kernel> Beginning<'_, K> {
    pub(super) fn pid(&self) -> u32 {
        match self {
            Self::Held(held, ..) => held.pid(),
            Self::Processes(pids) => pids.first().copied().unwrap_or(0),
        }
    }
}

/// The target, and what stands by it.
pub(super) struct TargetAtHand<'a, K: Kernel> {
    pub(super) beginning: Beginning<'a, K>,
    pub(super) facts: Facts,
    pub(super) guard: Option<K::Guard>,
}

/// Starts the guard and forks a target that is to be launched.
///
/// # Errors
/// [`Error::Fork`].
pub(super) fn prepare<'a, K: Kernel>(
    kernel: &K,
    options: &'a RecordOptions,
    source: &TimerOptions,
    heap: Option<&Result<Source, String>>,
) -> Result<TargetAtHand<'a, K>, Error> {
    let facts = kernel.facts();
    let guarded = source.guard.unwrap_or_else(|| guard::needed(&facts));
    // First, so that it holds nothing of what is opened below.
    let guard = guarded
        .then(|| kernel.start_guard())
        .transpose()
        .map_err(Error::Fork)?;
    // A child is forked before anything else changes what it would inherit: the limit of open
    // files, the time slice.
    let beginning = match &options.target {
        Target::Launch(command) => {
            let family = Family::before(kernel.clone());
            let variables = match heap {
                Some(Ok(Source::Load(loading))) => loading.environment(&loading.region.path()),
                _ => Vec::new(),
            };
            let manner = Manner {
                tracer: guard.as_ref().map(Warden::pid),
                output_to_errors: options.output_to_errors,
                ..Manner::default()
            };
            let held = kernel.fork(command, &variables, manner);
            Beginning::Held(held.map_err(Error::Fork)?, &command[..], family)
        }
        Target::Attach(pids) => Beginning::Processes(pids),
    };
    Ok(TargetAtHand {
        beginning,
        facts,
        guard,
    })
}

/// What this machine has and costs, and what is chosen by that.
pub(super) struct MachineCosts<K: Kernel> {
    pub(super) cpus: Vec<u32>,
    pub(super) watchpoints: Result<WatchpointCosts, ProbeError>,
    /// Watchpoints of each thread that are not for lines.
    pub(super) taken: u32,
    pub(super) reuse: Option<Result<ReuseSampling<K>, String>>,
    pub(super) sampler_options: SamplerOptions,
    /// Where CPUs are sampled.
    pub(super) of_cpus: Option<CpuSamplers<K>>,
    pub(super) costs: Costs,
    pub(super) budget: Budget,
}

/// Measures it.
///
/// # Errors
/// [`Error::Probe`], [`Error::Sampler`].
pub(super) fn measure<K: Kernel>(
    kernel: &K,
    (options, source): (&RecordOptions, &TimerOptions),
    beginning: &Beginning<'_, K>,
) -> Result<MachineCosts<K>, Error> {
    let watchpoints = kernel.watchpoint_costs();
    let registers = watchpoints.as_ref().map_or(0, |watch| watch.count);
    // Who has watchpoints of its own leaves some: reuses half of them, objects one, since three places at a time show
    // three pairs for little more than two show one.
    let taken = match (source.reuse, options.flow.is_some()) {
        (true, _) => registers / 2,
        (false, true) => registers.saturating_sub(1).min(MOST_PLACES),
        (false, false) => 0,
    };
    let reuse = source.reuse.then(|| reuse_sampling(kernel, taken));
    let start = kernel.now();
    let limits = Limits {
        overhead: source.overhead,
        rate: source.rate,
    };
    let skid = kernel.skid_rule()?;
    let cpus = online_cpus(kernel);
    let mut sampler_options = SamplerOptions {
        period_ns: limits.period_ns(skid.sample_ns),
        enable_on_exec: matches!(options.target, Target::Launch(_)),
        inherit: true,
    };
    let of_cpus = || CpuSamplers::open(kernel.clone(), beginning.pid(), &cpus, sampler_options);
    let of_cpus = match source.sample_by {
        SampleBy::Auto => of_cpus().ok(),
        SampleBy::Cpu => Some(of_cpus()?),
        SampleBy::Thread => None,
    };
    let switch_ns = |period_ns| {
        kernel.switch_cost_ns(match of_cpus {
            Some(_) => AtSwitch::Records,
            None => AtSwitch::Timers { period_ns },
        })
    };
    let mut costs = Costs {
        skid,
        watchpoints: watchpoints.as_ref().ok().copied(),
        switch_ns: switch_ns(sampler_options.period_ns)?,
        // Where they cannot be armed nothing is.
        armed_switch_ns: (kernel.switch_cost_ns(AtSwitch::Watchpoints { count: registers }))
            .unwrap_or(0.0),
    };
    if let Beginning::Processes(pids) = beginning
        && of_cpus.is_none()
        && source.rate.is_none()
        && switches_are_dear(
            kernel,
            &family_of(kernel, pids),
            costs.switch_ns,
            source.overhead,
        )
    {
        sampler_options.period_ns = finer_period_ns(sampler_options.period_ns);
        costs.switch_ns = switch_ns(sampler_options.period_ns)?;
    }
    let budget = Budget::new(limits, &costs, sampler_options.period_ns, start);
    Ok(MachineCosts {
        watchpoints,
        taken,
        reuse,
        sampler_options,
        of_cpus,
        costs,
        budget,
        cpus,
    })
}

fn online_cpus(kernel: &impl Machinery) -> Vec<u32> {
    let cpus: Vec<u32> = kernel
        .topology()
        .map(|topology| topology.cpus.iter().map(|cpu| cpu.id).collect())
        .unwrap_or_default();
    if cpus.is_empty() {
        kernel.allowed_cpus()
    } else {
        cpus
    }
}

/// What sampled reuse needs to know of this machine, or why there can be none.
fn reuse_sampling<K: Kernel>(kernel: &K, slots: u32) -> Result<ReuseSampling<K>, String> {
    if slots == 0 {
        return Err(
            "reuse was not sampled: threads have fewer than two watchpoints here".to_owned(),
        );
    }
    /// Breakpoints that the first measurement takes.
    const FIRST: u32 = 16;
    let time = kernel.retrap_time(FIRST);
    let time = time.map_err(|error| format!("reuse was not sampled: {error}"))?;
    // Without a topology all CPUs are taken as near.
    let topology = kernel.topology();
    let groups = topology.map_or_else(Vec::new, |topology| topology.llc_groups());
    Ok(ReuseSampling::new(kernel.clone(), slots, time, groups))
}

/// Who tells of the target's heap blocks, or why nobody can; `None` where nobody asked for it.
pub(super) fn heap_source(
    kernel: &impl Kernel,
    options: &RecordOptions,
) -> Option<Result<Source, String>> {
    match (&options.target, options.heap) {
        (_, HeapWhen::Never) | (Target::Attach(_), HeapWhen::Loaded) => None,
        (Target::Attach(_), HeapWhen::Marks) => Some(Err(
            "no library can be loaded into a running process, and without it no marks are told"
                .to_owned(),
        )),
        (Target::Attach(pids), _) => pids.first().map(|&pid| heap::attaching(kernel, pid)),
        (Target::Launch(command), when) => {
            let may_probe = !matches!(when, HeapWhen::Loaded | HeapWhen::Marks);
            Some(heap::loading(kernel, command, may_probe))
        }
    }
}

/// The heap recorder of a target that waits for its first instruction, or runs, for a share of its time.
pub(super) fn heap_recorder<K: Kernel>(
    kernel: &K,
    (source, overhead): (Source, Option<f64>),
    pid: u32,
    cpus: &[u32],
    options: &RecordOptions,
) -> Result<HeapRecorder<K>, String> {
    match source {
        Source::Load(loading) => {
            let recorder = HeapRecorder::loaded(loading.region, overhead).unseen(loading.unseen);
            Ok(match options.heap {
                HeapWhen::Marks => recorder.only_marks(),
                _ => recorder,
            })
        }
        Source::Probe { allocators, reason } => {
            let attached = matches!(options.target, Target::Attach(_));
            heap::probing(kernel, (pid, attached), allocators, &reason, cpus, overhead)
        }
    }
}
