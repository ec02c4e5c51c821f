//! Futures of a domain under executors: the waker is all that they agree on, so those of the futures
//! crate (a pool, and one task on the calling thread) stand for any.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};

use linewise_delegate::{Domain, Error, Sharded};

const TASKS: usize = 50;
const CALLS: u64 = 200;

fn values() -> (Arc<Domain>, Arc<Sharded<u64>>) {
    let domain = Domain::dedicated(2).build().unwrap();
    let values = domain.own_sharded(8, |_| 0u64).unwrap();
    (Arc::new(domain), Arc::new(values))
}

/// A task that adds to all values in turn, each time after the answer of the last.
fn task(
    domain: &Domain,
    values: &Arc<Sharded<u64>>,
) -> impl Future<Output = Result<u64, Error>> + Send + use<> {
    let (handle, values) = (domain.handle(), values.clone());
    async move {
        let mut seen = 0;
        for call in 0..CALLS {
            let value = values.at(call as usize % values.len());
            seen = handle
                .apply(value, |value| {
                    *value += 1;
                    *value
                })
                .await?;
        }
        Ok(seen)
    }
}

fn check(domain: &Domain, values: &Sharded<u64>) {
    let client = domain.client().unwrap();
    let all = client.apply_batch((0..8).map(|index| values.at(index)), |value| *value);
    assert_eq!(all, Ok(vec![TASKS as u64 * CALLS / 8; 8]));
}

#[test]
fn a_task_after_the_shutdown_is_refused() {
    let (domain, values) = values();
    domain.shutdown().unwrap();
    let refused = futures_executor::block_on(task(&domain, &values));
    assert_eq!(refused, Err(Error::Shutdown));
}

#[test]
fn dropping_a_future_takes_nothing_back() {
    let (domain, values) = values();
    let handle = domain.handle();
    drop(handle.apply(values.at(0), |value| *value += 1));
    let mut polled = std::pin::pin!(handle.apply(values.at(0), |value| *value += 1));
    let mut context = Context::from_waker(Waker::noop());
    let _ = polled.as_mut().poll(&mut context);
    let seen = futures_executor::block_on(handle.apply(values.at(0), |value| *value));
    assert_eq!(seen, Ok(2));
}

#[test]
fn tasks_of_the_futures_crate_wait_for_answers() {
    let (domain, values) = values();
    let pool = futures_executor::ThreadPool::builder()
        .pool_size(2)
        .create()
        .unwrap();
    let (send, done) = std::sync::mpsc::channel();
    for _ in 0..TASKS - 1 {
        let (task, send) = (task(&domain, &values), send.clone());
        pool.spawn_ok(async move { send.send(task.await).unwrap() });
    }
    let here = futures_executor::block_on(task(&domain, &values));
    assert!(here.unwrap() >= CALLS / 8);
    for _ in 0..TASKS - 1 {
        assert!(done.recv().unwrap().is_ok());
    }
    check(&domain, &values);
}

#[test]
fn a_task_of_a_flat_domain_is_answered_by_its_clients() {
    let domain = Domain::flat(2).build().unwrap();
    let values = Arc::new(domain.own_sharded(8, |_| 0u64).unwrap());
    let pool = futures_executor::ThreadPool::builder()
        .pool_size(1)
        .create()
        .unwrap();
    let (send, done) = std::sync::mpsc::channel();
    let client = domain.client().unwrap();
    let task = task(&domain, &values);
    pool.spawn_ok(async move { send.send(task.await).unwrap() });
    // Shard 1 has no client: a call there finds the seat free.
    while done.try_recv().is_err() {
        client.poll().unwrap();
        client.apply(values.at(1), |_| ()).unwrap();
    }
}
