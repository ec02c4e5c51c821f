//! The fetch-and-add experiment of Dill, "Asynchronous Delegation and its Applications" (2019,
//! section 4.1): threads pick one of many variables of 64 bytes at random and increment it, each
//! contender by its own means.
//!
//! Every sample's account is balanced: each increment must be in the variables, and each must have
//! returned what its variable held. A contender that loses one is an error, not a row.
//!
//! The round trip between two CPUs is measured before and after every sample. Machines change it
//! in mid-run; a figure is made only of samples of one state, and a sample during which the state
//! changed belongs to none. Contenders take turns, so that what changes slowly meets them all.

mod delegated;
mod fibres;
mod harness;
mod json;
mod locks;
mod messages;
mod page;
mod rates;
mod result;
mod spec;
mod statistics;
mod table;

pub use crate::states::Span;
pub use json::fetch_add_json;
pub use page::fetch_add_page;
pub use rates::{Balance, balances, fetch_add_by_threads, fetch_add_counts};
pub use result::{Experiment, Row, Sample, harmonic_mean};
pub use spec::{Contender, FetchAddError, FetchAddSpec, Knobs, MAX_VARIABLES, Method, Operation};
pub use statistics::Statistics;
pub use table::fetch_add_table;

use crate::states::round_trip_ns;
use delegated::Setting;
use harness::{Add, Next, Sqrt, Stage};

/// How far an experiment is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Samples made.
    pub done: usize,
    /// Samples to make.
    pub of: usize,
    /// The sample that begins now: who, what, on how many variables.
    pub now: (Contender, Operation, usize),
}

/// Makes an experiment in this process, and tells `progress` before each sample.
///
/// # Errors
/// The specification is out of range, a thread could not be created or pinned, or a contender lost
/// an increment.
pub fn run_fetch_add(
    spec: &FetchAddSpec,
    mut progress: impl FnMut(&Progress),
) -> Result<Experiment, FetchAddError> {
    spec.validate()?;
    let placement = spec.placement()?;
    let contenders = spec.contenders()?;
    let of = contenders.len() * spec.samples * spec.variables.len() * spec.operations.len();
    let mut samples = Vec::with_capacity(of);
    let mut before_ns = round_trip_ns(&placement);
    for &operation in &spec.operations {
        for &variables in &spec.variables {
            for round in 0..spec.samples {
                for turn in 0..contenders.len() {
                    // Nobody always comes after the same one.
                    let contender = contenders[(turn + round) % contenders.len()];
                    progress(&Progress {
                        done: samples.len(),
                        of,
                        now: (contender, operation, variables),
                    });
                    let seed = spec.seed.wrapping_add(round as u64);
                    let stage = stage(spec, &placement, contender, variables, seed);
                    let measured = match operation {
                        Operation::Add => measure::<Add>(spec, &stage, contender, variables),
                        Operation::Sqrt => measure::<Sqrt>(spec, &stage, contender, variables),
                    }?;
                    let after_ns = round_trip_ns(&placement);
                    samples.push(Sample {
                        contender,
                        operation,
                        variables,
                        servers: stage.servers,
                        clients: stage.threads - stage.servers,
                        operations: measured.operations,
                        seconds: measured.seconds,
                        mops: measured.operations as f64
                            / measured.seconds.max(f64::MIN_POSITIVE)
                            / 1e6,
                        statistics: measured.statistics,
                        round_trips_ns: before_ns.zip(after_ns),
                    });
                    before_ns = after_ns;
                }
            }
        }
    }
    Ok(Experiment::new(spec, placement, contenders, samples))
}

/// As few servers as there are variables, the other threads being clients, as in the thesis.
fn stage<'a>(
    spec: &FetchAddSpec,
    placement: &'a [u32],
    contender: Contender,
    variables: usize,
    seed: u64,
) -> Stage<'a> {
    Stage {
        placement,
        threads: spec.threads,
        servers: contender.method.servers().min(variables),
        seconds: spec.seconds,
        seed,
    }
}

/// What a sample gave.
struct Measured {
    operations: u64,
    seconds: f64,
    statistics: Option<Statistics>,
}

fn measure<N: Next>(
    spec: &FetchAddSpec,
    stage: &Stage<'_>,
    contender: Contender,
    variables: usize,
) -> Result<Measured, FetchAddError> {
    let setting = Setting {
        stage,
        variables,
        knobs: contender.knobs.unwrap_or_default(),
        timed: spec.timed,
        ordered: spec.ordered,
        bound: spec.bound,
    };
    let outcome = match contender.method {
        Method::PthreadMutex => locks::pthread_mutex::<N>(stage, variables),
        Method::PthreadSpin => locks::pthread_spin::<N>(stage, variables),
        Method::StdMutex => locks::std_mutex::<N>(stage, variables),
        Method::ParkingLot => locks::parking_lot::<N>(stage, variables),
        Method::Ticket => locks::ticket::<N>(stage, variables),
        Method::Mcs => locks::mcs::<N>(stage, variables),
        Method::Atomic => locks::atomic::<N>(stage, variables),
        Method::Channel(_) => messages::channel::<N>(stage, variables),
        Method::Ffwd(_) => messages::ffwd::<N>(stage, variables),
        Method::Gepard(_) => messages::gepard::<N>(stage, variables),
        Method::Fibres(_) => fibres::waiting::<N>(&setting),
        Method::Waiting(_) => delegated::waiting::<N>(&setting),
        Method::Closures(_) => delegated::closures::<N>(&setting),
        Method::Async(_) => delegated::dedicated::<N>(&setting),
        Method::Flat(policy) => delegated::flat::<N>(&setting, policy),
    }?;
    outcome.held.settle(outcome.tally, &contender.to_string())?;
    Ok(Measured {
        operations: outcome.tally.operations,
        seconds: outcome.elapsed.as_secs_f64(),
        statistics: outcome.statistics,
    })
}
