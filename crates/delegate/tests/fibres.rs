//! Fibres: many waiting callers on one thread, alone and beside what else the thread does.

#![expect(unsafe_code, reason = "fibres are not safe, whatever runs them")]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use counted::Counted;
use linewise_delegate::{Client, Domain, Error, Fibres, Policy};
use within::within;

mod counted;
mod within;

/// Runs fibres of this file, none of which leaves anything in its thread over a waiting call.
fn run<'f>(client: &Client<'_>, first: impl FnOnce(&Fibres<'_, 'f>) + 'f) -> Result<(), Error> {
    // SAFETY: what is said above.
    unsafe { client.fibres(first) }
}

fn add(value: &mut u64, operand: u64) -> u64 {
    *value += operand;
    *value
}

#[test]
fn fibres_wait_together_and_all_end() {
    for domain in [
        Domain::dedicated(2).build().unwrap(),
        Domain::flat(2).build().unwrap(),
        Domain::flat(1)
            .policy(Policy::ServeWhenBlocked)
            .build()
            .unwrap(),
    ] {
        let values = domain.own_sharded(2, |_| 0u64).unwrap();
        let ended = Cell::new(0);
        let client = domain.client().unwrap();
        run(&client, |fibres| {
            for _ in 0..40 {
                fibres.spawn(|fibres| {
                    for round in 0..50 {
                        client.call(values.at(round % 2), add, 1).unwrap();
                    }
                    fibres.spawn(|_| {
                        client.apply(values.at(0), |value| *value += 1).unwrap();
                        ended.set(ended.get() + 1);
                    });
                });
            }
        })
        .unwrap();
        assert_eq!(ended.get(), 40);
        assert_eq!(client.call(values.at(0), add, 0), Ok(40 * 25 + 40));
        let thrown = catch_unwind(AssertUnwindSafe(|| {
            run(&client, |fibres| {
                fibres.spawn(|_| drop(client.call(values.at(1), add, 1)));
                panic!("a fibre");
            })
        }));
        assert!(thrown.is_err());
        assert_eq!(client.call(values.at(1), add, 0), Ok(40 * 25 + 1));
    }
}

#[test]
fn requests_of_fibres_share_lines() {
    let domain = Domain::dedicated(1).build().unwrap();
    let value = domain.own(0, || 0u64).unwrap();
    let client = domain.client().unwrap();
    run(&client, |fibres| {
        for _ in 0..3 * 63 {
            fibres.spawn(|_| drop(client.apply(&value, |value| *value += 1)));
        }
    })
    .unwrap();
    // A request has one word: 63 fit a line.
    let stats = client.stats();
    assert_eq!((stats.requests, stats.lines), (3 * 63, 3));
}

#[test]
fn fibres_are_not_resumed_while_their_thread_spins() {
    let domain = Domain::dedicated(1).build().unwrap();
    let value = domain.own(0, || 0u64).unwrap();
    let client = domain.client().unwrap();
    let go = Arc::new(Barrier::new(2));
    let waits = go.clone();
    run(&client, |fibres| {
        // The server is busy until all others have waited for long.
        fibres.spawn(|_| {
            let wait = move |_: &mut u64| waits.wait().is_leader();
            client.apply(&value, wait).unwrap();
        });
        for _ in 0..60 {
            fibres.spawn(|_| drop(client.apply(&value, |value| *value += 1)));
        }
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            go.wait();
        });
    })
    .unwrap();
    // A look for each step of spinning, and one for each fibre for a step beyond: at most 2000 and
    // 100 with 61, then some naps. One for each fibre and step were 120,000.
    let polls = client.stats().polls;
    assert!(polls < 20_000, "{polls} looks for an answer");
}

#[test]
fn fibres_of_two_clients_and_two_servers_on_one_cpu_come_to_an_end() {
    let cpu = linewise_delegate::place::here()[0];
    let domain = Domain::dedicated(2)
        .server_cpus([cpu])
        .client_cpus([cpu])
        .build()
        .unwrap();
    let values = Arc::new(domain.own_sharded(2, |_| 0u64).unwrap());
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let values = values.clone();
            let run = move |client: &Client<'_>| {
                run(client, |fibres| {
                    for fibre in 0..64 {
                        let values = &values;
                        fibres.spawn(move |_| {
                            for round in 0..100 {
                                client.call(values.at((fibre + round) % 2), add, 1).unwrap();
                            }
                        });
                    }
                })
            };
            domain.spawn_client(run).unwrap()
        })
        .collect();
    for client in clients {
        client.join().unwrap().unwrap().unwrap();
    }
    let client = domain.client().unwrap();
    assert_eq!(
        client.call_batch(values.as_ref(), add, 0, &[0, 1]),
        Ok(vec![6400; 2])
    );
}

#[test]
fn a_callback_in_a_fibre_does_not_wait_with_another_client() {
    within(20, || {
        let (domain, other) = (
            Domain::dedicated(1).build().unwrap(),
            Domain::dedicated(1).build().unwrap(),
        );
        let (value, elsewhere) = (
            domain.own(0, || 0u64).unwrap(),
            other.own(0, || 0u64).unwrap(),
        );
        let alive = Arc::new(AtomicUsize::new(0));
        let (called, refused) = (Cell::new(0), RefCell::new(Vec::new()));
        let second = other.client().unwrap();
        let client = domain.client().unwrap();
        run(&client, |fibres| {
            for _ in 0..5 {
                fibres.spawn(|_| {
                    let held = Counted::new(&alive);
                    let (called, refused) = (&called, &refused);
                    let (second, elsewhere) = (&second, &elsewhere);
                    let then = move |_: Result<(), Error>| {
                        called.set(called.get() + 1);
                        refused.borrow_mut().push(second.call(elsewhere, add, 1));
                        drop(held);
                    };
                    client.apply_async(&value, |_| (), then).unwrap();
                    client.call(&value, add, 1).unwrap();
                });
            }
        })
        .unwrap();
        assert_eq!(called.get(), 5);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
        assert_eq!(*refused.borrow(), vec![Err(Error::Nested); 5]);
    });
}

#[test]
fn a_fibre_waits_with_another_client() {
    within(20, || {
        let (domain, other) = (
            Domain::dedicated(1).build().unwrap(),
            Domain::flat(2).build().unwrap(),
        );
        let value = domain.own(0, || 0u64).unwrap();
        let elsewhere = other.own_sharded(2, |_| 0u64).unwrap();
        let (client, second) = (domain.client().unwrap(), other.client().unwrap());
        run(&client, |fibres| {
            for _ in 0..5 {
                fibres.spawn(|_| {
                    client.call(&value, add, 1).unwrap();
                    second.call_post(elsewhere.at(1), add, 1).unwrap();
                    second.call(elsewhere.at(1), add, 1).unwrap();
                    second.barrier().unwrap();
                    client.call(&value, add, 1).unwrap();
                });
            }
        })
        .unwrap();
        assert_eq!(client.call(&value, add, 0), Ok(10));
        assert_eq!(second.call(elsewhere.at(1), add, 0), Ok(10));
    });
}

/// Uses more stack than a fibre has.
#[inline(never)]
fn deep(value: &mut u64) -> u64 {
    let room = std::hint::black_box([1u8; 1 << 20]);
    *value += u64::from(room[*value as usize % room.len()]);
    *value
}

#[test]
fn what_others_ask_while_a_fibre_waits_has_the_stack_of_the_thread() {
    within(20, || {
        let domain = Domain::flat(2).build().unwrap();
        let values = domain.own_sharded(2, |_| 0u64).unwrap();
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            for shard in 0..2 {
                let (domain, values, both) = (&domain, &values, &both);
                scope.spawn(move || {
                    let client = domain.client_at(shard).unwrap();
                    both.wait();
                    run(&client, |fibres| {
                        for _ in 0..4 {
                            fibres.spawn(|_| {
                                for _ in 0..100 {
                                    client.apply(values.at(1 - shard), deep).unwrap();
                                }
                                let handle = domain.handle();
                                handle.apply_waiting(values.at(1 - shard), deep).unwrap();
                            });
                        }
                    })
                    .unwrap();
                });
            }
        });
        let client = domain.client().unwrap();
        for shard in 0..2 {
            assert_eq!(client.call(values.at(shard), add, 0), Ok(404));
        }
    });
}

#[test]
fn a_fibre_that_waits_by_a_handle_does_not_hold_its_worker_up() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    let domain = Domain::dedicated(1).build().unwrap();
    let value = Arc::new(domain.own(0, || 5_u64).unwrap());
    let handle = domain.handle();
    // SAFETY: these fibres leave nothing in their thread over a waiting call.
    let runtime = unsafe { linewise_fibres::Runtime::builder().pool("one", 1).start() }.unwrap();
    let (turns, answered) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let waits = {
        let (turns, answered) = (turns.clone(), answered.clone());
        runtime.spawn(move || {
            let slow = |value: &mut u64| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                *value += 1;
                *value
            };
            let before = turns.load(Ordering::Relaxed);
            let answer = handle.apply_waiting(&*value, slow).unwrap();
            answered.store(true, Ordering::Relaxed);
            (answer, turns.load(Ordering::Relaxed) - before)
        })
    };
    let others = runtime.spawn(move || {
        while !answered.load(Ordering::Relaxed) {
            turns.fetch_add(1, Ordering::Relaxed);
            linewise_fibres::yield_now();
        }
    });
    let (answer, turns) = waits.unwrap().join().unwrap();
    others.unwrap().join().unwrap();
    assert_eq!(answer, 6);
    assert!(turns > 10, "{turns}");
}

#[test]
fn a_fibre_that_another_thread_wakes_has_its_turn_while_the_others_are_busy() {
    let domain = Domain::dedicated(1).build().unwrap();
    let value = domain.own(0, || 0_u64).unwrap();
    let client = domain.client().unwrap();
    let woken = std::cell::Cell::new(false);
    run(&client, |fibres| {
        fibres.spawn(|_| {
            let me = linewise_fibres::current();
            let waker = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(5));
                me.unpark();
            });
            linewise_fibres::park();
            woken.set(true);
            waker.join().unwrap();
        });
        fibres.spawn(|_| {
            while !woken.get() {
                client.apply(&value, |value| *value += 1).unwrap();
            }
        });
    })
    .unwrap();
    assert!(woken.get());
}
