//! Caches whose shards are delegated.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use linewise_delegate::{Client, Domain, Error as Refused, Owned};

use crate::{Outcome, Request, SHARDS, Seen, Shard, Watch, World, go_round, run};

/// When a client waits for its answers.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// After each request.
    Call,
    /// For all after so many.
    Every(usize),
    /// So that none waits longer than so many microseconds.
    Pace(u64),
    /// In the end.
    Ahead,
}

pub(crate) const WAYS: [Way; 10] = [
    Way::Call,
    Way::Every(16),
    Way::Every(32),
    Way::Every(64),
    Way::Every(256),
    Way::Every(1024),
    Way::Pace(1),
    Way::Pace(10),
    Way::Pace(100),
    Way::Ahead,
];

impl std::fmt::Display for Way {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call => write!(formatter, "call"),
            Self::Every(count) => write!(formatter, "{count}"),
            Self::Pace(time) => write!(formatter, "{time} us"),
            Self::Ahead => write!(formatter, "ahead"),
        }
    }
}

/// Asks until the time is over, and waits for the answers.
fn ask<'c>(
    client: &Client<'c>,
    shards: &[Owned<Shard>],
    (watch, sum): (&'c Watch, &'c AtomicU64),
    (requests, way): (&[Request], Way),
    stop: &AtomicBool,
) -> Result<(u64, u64), Refused> {
    let serve = client.prepare(
        |shard: &mut Shard, request: Request| shard.serve(request),
        |started, answer: Result<u64, Refused>| {
            sum.store(answer.unwrap_or(0), Ordering::Relaxed);
            watch.stop(started);
        },
    );
    let mut refused = Ok(());
    let note = |refused: &mut Result<(), Refused>, asked: Result<(), Refused>| {
        *refused = std::mem::replace(refused, Ok(())).and(asked);
    };
    let time = match way {
        Way::Pace(time) => Duration::from_micros(time),
        _ => Duration::MAX,
    };
    let pace = client.pace(time);
    let done = match way {
        Way::Call => go_round(requests, stop, |number, request| {
            let started = watch.start(number);
            let shard = &shards[request.shard()];
            let answer = client.apply(shard, move |shard| shard.serve(request));
            watch.stop(started);
            note(
                &mut refused,
                answer.map(|answer| sum.store(answer, Ordering::Relaxed)),
            );
        }),
        Way::Every(count) => go_round(requests, stop, |number, request| {
            let shard = &shards[request.shard()];
            note(
                &mut refused,
                serve.call(shard, request, watch.start(number)),
            );
            if (number + 1).is_multiple_of(count) {
                note(&mut refused, client.barrier());
            }
        }),
        Way::Pace(_) => go_round(requests, stop, |number, request| {
            let shard = &shards[request.shard()];
            note(
                &mut refused,
                serve.call(shard, request, watch.start(number)),
            );
            note(&mut refused, pace.step());
        }),
        Way::Ahead => go_round(requests, stop, |number, request| {
            let shard = &shards[request.shard()];
            note(
                &mut refused,
                serve.call(shard, request, watch.start(number)),
            );
        }),
    };
    refused?;
    client.barrier()?;
    Ok(done)
}

/// What the shards count in the end.
fn count(domain: &Domain, shards: &[Owned<Shard>]) -> Result<u64, Refused> {
    let client = domain.client()?;
    let shards = shards.iter().map(Owned::target);
    let writes = client.apply_batch(shards, |shard| shard.writes())?;
    Ok(writes.iter().sum())
}

pub(crate) fn delegated(world: &World<'_>, flat: bool, way: Way) -> Result<Outcome, Refused> {
    let threads = world.cpus.len();
    let servers = (threads / 4).max(1);
    let (domain, clients) = if flat {
        (Domain::flat(threads).build()?, world.cpus)
    } else {
        let domain = Domain::dedicated(servers).server_cpus(&world.cpus[..servers]);
        (domain.build()?, &world.cpus[servers..])
    };
    let shards = (0..SHARDS)
        .map(|shard| domain.own(shard % domain.shards(), move || Shard::new(shard)))
        .collect::<Result<Vec<_>, _>>()?;
    let failed = OnceLock::new();
    let seen = run(clients, world.time, |index, stop, ready| {
        let (watch, sum) = (Watch::new(), AtomicU64::new(0));
        let client = if flat {
            domain.client_at(index)
        } else {
            domain.client()
        };
        ready.wait();
        let done = client.and_then(|client| {
            let requests = (&world.requests[index][..], way);
            ask(&client, &shards, (&watch, &sum), requests, stop)
        });
        let (requests, writes) = done.unwrap_or_else(|error| {
            failed.get_or_init(|| error);
            (0, 0)
        });
        Seen {
            requests,
            writes,
            latencies_ns: watch.latencies_ns.into_inner(),
        }
    });
    match failed.into_inner() {
        Some(error) => Err(error),
        None => Ok((seen, count(&domain, &shards)?)),
    }
}
