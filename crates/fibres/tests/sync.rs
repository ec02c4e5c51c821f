//! Locks, conditions, barriers, channels.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use linewise_fibres::sync::{
    Barrier, Condvar, Mutex, RecvError, SendError, TryRecvError, TrySendError, bounded, unbounded,
};
use linewise_fibres::{JoinError, Runtime, sleep, yield_now};

fn runtime() -> Runtime {
    // SAFETY: the tests' fibres hold nothing over a waiting call that belongs to their thread.
    unsafe { Runtime::builder().pool("one", 1).pool("two", 2).start() }.unwrap()
}

#[test]
fn a_mutex_lets_one_in_whoever_it_is() {
    let runtime = runtime();
    let count = Arc::new(Mutex::new(0_u64));
    let add = |count: &Mutex<u64>| {
        for _ in 0..500 {
            let mut guard = count.lock();
            let before = *guard;
            yield_now();
            *guard = before + 1;
        }
    };
    let handles: Vec<_> = (0..10)
        .flat_map(|_| runtime.pools())
        .map(|pool| {
            let count = count.clone();
            pool.spawn(move || add(&count)).unwrap()
        })
        .collect();
    add(&count);
    for handle in handles {
        handle.join().unwrap();
    }
    assert_eq!(*count.lock(), 21 * 500);
    assert!(count.try_lock().is_some());
}

#[test]
fn a_condition_is_waited_for_by_many() {
    let runtime = runtime();
    let state = Arc::new((Mutex::new(0), Condvar::new()));
    let handles: Vec<_> = (0..30)
        .flat_map(|_| runtime.pools())
        .map(|pool| {
            let state = state.clone();
            pool.spawn(move || {
                let value = state.1.wait_while(state.0.lock(), |value| *value < 5);
                *value
            })
            .unwrap()
        })
        .collect();
    for _ in 0..5 {
        *state.0.lock() += 1;
        state.1.notify_all();
    }
    for handle in handles {
        assert_eq!(handle.join().unwrap(), 5);
    }
    let (guard, notified) = state
        .1
        .wait_timeout(state.0.lock(), Duration::from_millis(2));
    assert!(!notified);
    drop(guard);
}

#[test]
fn a_barrier_holds_all_until_the_last() {
    let runtime = runtime();
    let barrier = Arc::new(Barrier::new(10));
    let rounds = Arc::new(Mutex::new(Vec::new()));
    let handles: Vec<_> = (0..5)
        .flat_map(|_| runtime.pools())
        .map(|pool| {
            let (barrier, rounds) = (barrier.clone(), rounds.clone());
            pool.spawn(move || {
                (0..20)
                    .filter(|round| {
                        rounds.lock().push(*round);
                        barrier.wait()
                    })
                    .count()
            })
            .unwrap()
        })
        .collect();
    let leaders: usize = handles.into_iter().map(|it| it.join().unwrap()).sum();
    assert_eq!(leaders, 20);
    assert!(rounds.lock().is_sorted());
}

#[test]
fn a_channel_delivers_each_value_once() {
    let runtime = runtime();
    for capacity in [1, 3, 1000] {
        let (sender, receiver) = bounded(capacity);
        let receivers: Vec<_> = (0..3)
            .flat_map(|_| runtime.pools())
            .map(|pool| {
                let receiver = receiver.clone();
                pool.spawn(move || receiver.iter().collect::<Vec<_>>())
                    .unwrap()
            })
            .collect();
        drop(receiver);
        for pool in runtime.pools() {
            for half in 0..2 {
                let sender = sender.clone();
                let pool_name = pool.name().to_owned();
                pool.spawn(move || {
                    for index in 0..1000 {
                        sender.send((pool_name.clone(), half, index)).unwrap();
                    }
                })
                .unwrap();
            }
        }
        drop(sender);
        let all: Vec<_> = receivers
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect();
        assert_eq!(all.len(), 4000);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 4000);
    }
}

#[test]
fn a_channel_says_when_the_other_side_is_gone_or_nothing_is_there() {
    let (sender, receiver) = bounded(1);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    let late = receiver.recv_timeout(Duration::from_millis(1));
    assert_eq!(late, Err(TryRecvError::Empty));
    sender.send(1).unwrap();
    assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    drop(sender);
    assert_eq!(receiver.recv(), Ok(1));
    assert_eq!(receiver.recv(), Err(RecvError));
    let (sender, receiver) = unbounded();
    drop(receiver);
    assert_eq!(sender.send(3), Err(SendError(3)));
}

#[test]
fn who_is_cancelled_while_it_waits_passes_its_turn_on() {
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock();
    let runtime = runtime();
    let waits: Vec<_> = (0..20)
        .map(|_| {
            let lock = lock.clone();
            runtime.spawn(move || drop(lock.lock())).unwrap()
        })
        .collect();
    sleep(Duration::from_millis(5));
    let thread = {
        let lock = lock.clone();
        std::thread::spawn(move || drop(lock.lock()))
    };
    sleep(Duration::from_millis(5));
    runtime.shut_down();
    for waits in waits {
        assert!(matches!(waits.join(), Err(JoinError::Cancelled)));
    }
    drop(held);
    thread.join().unwrap();
}

#[test]
fn senders_are_told_that_nobody_receives_even_where_a_value_throws() {
    struct Throws;
    impl Drop for Throws {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("thrown"));
        }
    }
    let runtime = runtime();
    let (sender, receiver) = bounded(1);
    assert!(sender.send(Throws).is_ok());
    let waits = runtime.spawn(move || {
        let refused = sender.send(Throws);
        let is_refused = refused.is_err();
        std::mem::forget(refused);
        is_refused
    });
    sleep(Duration::from_millis(5));
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(receiver)));
    assert!(dropped.is_err());
    assert!(waits.unwrap().join().unwrap());
}
