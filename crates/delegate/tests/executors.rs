//! Futures of a domain under executors that people use: tokio's pool, and those of the futures crate.

use std::future::Future;
use std::sync::Arc;

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
fn tasks_of_tokio_wait_for_answers() {
    let (domain, values) = values();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| tokio::spawn(task(&domain, &values)))
            .collect();
        for task in tasks {
            assert!(task.await.unwrap().unwrap() >= CALLS / 8);
        }
        // Whichever comes first: dropping the other future takes nothing back.
        let handle = domain.handle();
        tokio::select! {
            first = handle.apply(values.at(0), |value| *value) => assert!(first.is_ok()),
            second = handle.apply(values.at(1), |value| *value) => assert!(second.is_ok()),
        }
    });
    check(&domain, &values);
    domain.shutdown().unwrap();
    let refused = runtime.block_on(task(&domain, &values));
    assert_eq!(refused, Err(Error::Shutdown));
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
