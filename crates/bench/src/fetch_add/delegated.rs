//! The contenders that bring the work to the data with `linewise-delegate`: asynchronous requests to
//! dedicated servers, waiting calls, and flat delegation. Fibres have a module of their own.

use super::harness::{CHUNK, Held, Next, Outcome, Seat, Shards, Stage, Tally, play};
use super::messages::Variable;
use super::spec::{FetchAddError, Knobs, Policy};
use super::statistics::Statistics;
use linewise_delegate::{Builder, Client, Domain, Error, Ordered, Sharded};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What the contenders of this module have in common.
pub(super) struct Setting<'a> {
    pub(super) stage: &'a Stage<'a>,
    pub(super) variables: usize,
    pub(super) knobs: Knobs,
    pub(super) timed: bool,
    pub(super) ordered: bool,
    pub(super) bound: u32,
}

impl Setting<'_> {
    fn tune(&self, builder: Builder) -> Builder {
        let builder = if self.ordered {
            builder.ordered(Ordered::Client)
        } else {
            builder
        };
        let lines = builder.request_lines(self.knobs.request_lines);
        let builder = match self.knobs.queue_length {
            0 => lines.direct_write(),
            length => lines.pending_queue(length),
        };
        if self.timed { builder.timed() } else { builder }
    }

    /// A domain whose servers run where the stage says, and the variables in it.
    pub(super) fn dedicated(&self) -> Result<(Domain, Shards, Variables), FetchAddError> {
        let shards = Shards::new(self.variables, self.stage.servers);
        let cpus = self.stage.placement.get(..shards.servers).unwrap_or(&[]);
        let builder = Domain::dedicated(shards.servers).server_cpus(cpus);
        let domain = self.tune(builder).build()?;
        let variables = make(&domain, shards)?;
        Ok((domain, shards, variables))
    }

    /// The stage without the servers, which the domain has.
    pub(super) fn clients(&self) -> Stage<'_> {
        let servers = self.stage.servers;
        Stage {
            placement: self.stage.placement.get(servers..).unwrap_or(&[]),
            threads: self.stage.threads - servers,
            servers: 0,
            ..*self.stage
        }
    }
}

type Variables = Sharded<Variable>;

fn make(domain: &Domain, shards: Shards) -> Result<Variables, Error> {
    domain.own_sharded(shards.all(), |_| Variable(0))
}

/// Asks at random, in batches, until the sample ends, and waits for all answers.
fn ask<'c, N: Next>(
    seat: &Seat<'_>,
    client: &Client<'c>,
    returned: &'c Cell<u64>,
    shards: Shards,
    variables: &Variables,
) -> Result<Tally, Error> {
    let fetch = client.prepare(
        |variable: &mut Variable, ()| variable.fetch::<N>(),
        move |(), answer| note(returned, answer),
    );
    let mut requests = [(0, (), ()); CHUNK];
    let mut tally = seat.hammer_in_batches(|randoms| {
        for (request, random) in requests.iter_mut().zip(randoms) {
            request.0 = shards.any(*random);
        }
        // What is refused is missed in the account.
        let _ = fetch.call_batch(variables, &requests);
    });
    client.barrier()?;
    tally.returned = returned.get();
    Ok(tally)
}

/// Adds an answer up. An error is missed in the account.
#[inline(always)]
fn note(returned: &Cell<u64>, answer: Result<u64, Error>) {
    returned.set(returned.get().wrapping_add(answer.unwrap_or(u64::MAX)));
}

/// Adds up what the threads did, what the variables hold and what the domain counted.
pub(super) fn settle(
    domain: &Domain,
    variables: &Variables,
    (tallies, elapsed): (Vec<Result<Tally, Error>>, Duration),
) -> Result<Outcome, FetchAddError> {
    let statistics = statistics(domain);
    let mut tally = Tally::default();
    for one in tallies {
        tally = tally.plus(one?);
    }
    let held = Cell::new(Held::default());
    {
        let client = domain.client()?;
        for variable in 0..variables.len() {
            client.call_async(
                variables.at(variable),
                |variable: &mut Variable, _| variable.0,
                0,
                |value| held.set(held.get().plus(Held::of(value.into_iter()))),
            )?;
        }
        client.barrier()?;
    }
    Ok(Outcome {
        tally,
        held: held.get(),
        elapsed,
        statistics: Some(statistics),
    })
}

fn statistics(domain: &Domain) -> Statistics {
    let (shards, clients) = (domain.shard_stats(), domain.client_stats());
    let ratio = |part: u64, whole: u64| {
        if whole == 0 {
            0.0
        } else {
            part as f64 / whole as f64
        }
    };
    let served = |what: fn(&linewise_delegate::ShardStats) -> u64| shards.iter().map(what).sum();
    let asked = |what: fn(&linewise_delegate::ClientStats) -> u64| clients.iter().map(what).sum();
    let timed = asked(|client| client.latency_lines) > 0;
    Statistics {
        server_saturation: ratio(
            served(|shard| shard.busy_passes),
            served(|shard| shard.passes),
        ),
        responses_ready: ratio(asked(|client| client.ready), asked(|client| client.polls)),
        failed_pops: ratio(
            asked(|client| client.failed_pops),
            asked(|client| client.pops),
        ),
        requests_a_line: ratio(
            asked(|client| client.requests),
            asked(|client| client.lines),
        ),
        latency_ticks: timed.then(|| {
            let ticks = asked(|client| client.latency_ticks);
            ratio(ticks, asked(|client| client.latency_lines))
        }),
        server_ticks_a_request: timed.then(|| {
            let ticks = served(|shard| shard.busy_ticks);
            ratio(ticks, served(|shard| shard.requests))
        }),
    }
}

/// Clients that go on asking while servers of their own threads answer.
pub(super) fn dedicated<N: Next>(setting: &Setting<'_>) -> Result<Outcome, FetchAddError> {
    let (domain, shards, variables) = setting.dedicated()?;
    let played = play(&setting.clients(), |seat| {
        let returned = Cell::new(0);
        let client = domain.client()?;
        ask::<N>(seat, &client, &returned, shards, &variables)
    })?;
    settle(&domain, &variables, played)
}

/// The same with closures that capture something, not a prepared operation.
pub(super) fn closures<N: Next>(setting: &Setting<'_>) -> Result<Outcome, FetchAddError> {
    let (domain, shards, variables) = setting.dedicated()?;
    let played = play(&setting.clients(), |seat| {
        let returned = Cell::new(0);
        let client = domain.client()?;
        let mut tally = seat.hammer(|random| {
            // What it captures travels, though an increment needs nothing.
            let fetch = move |variable: &mut Variable| {
                black_box(random);
                variable.fetch::<N>()
            };
            let target = variables.at(shards.any(random));
            // What is refused is missed in the account.
            let _ = client.apply_async(target, fetch, |answer| note(&returned, answer));
            0
        });
        client.barrier()?;
        tally.returned = returned.get();
        Ok(tally)
    })?;
    settle(&domain, &variables, played)
}

/// Clients that wait for every answer.
pub(super) fn waiting<N: Next>(setting: &Setting<'_>) -> Result<Outcome, FetchAddError> {
    let (domain, shards, variables) = setting.dedicated()?;
    let played = play(&setting.clients(), |seat| {
        let client = domain.client()?;
        Ok(seat.hammer(|random| {
            let target = variables.at(shards.any(random));
            let answer = client.apply(target, |variable: &mut Variable| variable.fetch::<N>());
            answer.unwrap_or(u64::MAX)
        }))
    })?;
    settle(&domain, &variables, played)
}

/// Threads that all serve and ask. Their variables are made by who serves them.
pub(super) fn flat<N: Next>(
    setting: &Setting<'_>,
    policy: Policy,
) -> Result<Outcome, FetchAddError> {
    let threads = setting.stage.threads;
    let shards = Shards::flat(setting.variables, threads);
    let policy = match policy {
        Policy::Queue => linewise_delegate::Policy::Queue,
        Policy::Blocked => linewise_delegate::Policy::ServeWhenBlocked,
        Policy::FastPath => linewise_delegate::Policy::FastPath,
        Policy::Bound => linewise_delegate::Policy::UpperBound(setting.bound),
        Policy::Doorbell => linewise_delegate::Policy::Doorbell,
    };
    let domain = setting.tune(Domain::flat(threads).policy(policy)).build()?;
    let (joined, made) = (AtomicUsize::new(0), OnceLock::new());
    let played = play(setting.stage, |seat| {
        let returned = Cell::new(0);
        let client = domain.client_at(seat.index);
        joined.fetch_add(1, Ordering::AcqRel);
        let variables = together(&domain, seat, client.as_ref().ok(), shards, &joined, &made);
        let client = client?;
        match variables {
            Some(variables) if seat.begin() => {
                ask::<N>(seat, &client, &returned, shards, variables)
            }
            _ => Ok(Tally::default()),
        }
    })?;
    match made.into_inner() {
        Some(Ok(variables)) => settle(&domain, &variables, played),
        Some(Err(error)) => Err(error.into()),
        None => Err(Error::Shutdown.into()),
    }
}

/// Lets the first thread make the variables when all sit, so that each builds those of its own shard.
fn together<'v>(
    domain: &Domain,
    seat: &Seat<'_>,
    client: Option<&Client<'_>>,
    shards: Shards,
    joined: &AtomicUsize,
    made: &'v OnceLock<Result<Variables, Error>>,
) -> Option<&'v Variables> {
    let wait_until = |there: &dyn Fn() -> bool| {
        while !there() {
            // Who waits serves. An error here comes again where it is looked at.
            let _ = client.map(Client::poll);
            seat.pause();
        }
    };
    if seat.index == 0 {
        wait_until(&|| joined.load(Ordering::Acquire) == shards.servers);
        let _ = made.set(make(domain, shards));
    }
    wait_until(&|| made.get().is_some());
    made.get().and_then(|made| made.as_ref().ok())
}
