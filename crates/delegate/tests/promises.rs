//! What the runtime promises when things go wrong: panics, shutdown, nesting, fork, leaks, one CPU.

#![expect(unsafe_code, reason = "forks, and runs fibres")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use counted::Counted;
use futures_executor::block_on;
use linewise_delegate::{Domain, Error, Policy};

mod counted;

fn add(value: &mut u64, operand: u64) -> u64 {
    *value += operand;
    *value
}

/// A panic's payload that throws another when it is dropped.
struct Nasty;

impl Drop for Nasty {
    fn drop(&mut self) {
        std::panic::panic_any(7);
    }
}

#[test]
fn a_panic_is_the_answer_of_its_request_alone() {
    for domain in [
        Domain::dedicated(1).build().unwrap(),
        Domain::flat(1).build().unwrap(),
        Domain::flat(1)
            .policy(Policy::ServeWhenBlocked)
            .build()
            .unwrap(),
    ] {
        let value = domain.own(0, || 0u64).unwrap();
        let (answers, panics) = (Cell::new(0), Cell::new(0));
        let client = domain.client().unwrap();
        let odd = |value: &mut u64, operand: u64| {
            *value += 1;
            assert!(!value.is_multiple_of(3), "the value is {value}");
            operand << 33
        };
        for round in 0..90u64 {
            client
                .call_async(&value, odd, 2, |answer| match answer {
                    Ok(answer) => {
                        assert_eq!(answer, 2 << 33);
                        answers.set(answers.get() + 1);
                    }
                    Err(Error::Panicked(panic)) => {
                        assert!(panic.text().starts_with("the value is "), "{panic}");
                        panics.set(panics.get() + 1);
                    }
                    Err(other) => panic!("{other}"),
                })
                .unwrap();
            if round % 10 == 0 {
                client
                    .post(&value, |_| std::panic::panic_any(Nasty))
                    .unwrap();
            }
        }
        client.barrier().unwrap();
        assert_eq!((answers.get(), panics.get()), (60, 30));
        assert_eq!(client.apply(&value, |value| *value), Ok(90));
        let waiting: Result<(), _> = client.apply(&value, |_| panic!("in {}", "closure"));
        assert_eq!(waiting, Err(Error::Panicked("in closure".into())));
    }
}

#[test]
fn a_callback_that_panics_throws_on_and_the_others_run() {
    let domain = Domain::dedicated(1).build().unwrap();
    let value = domain.own(0, || 0u64).unwrap();
    let called = Cell::new(0);
    let client = domain.client().unwrap();
    for round in 0..20 {
        let called = &called;
        client
            .call_async(&value, add, 1, move |_| {
                called.set(called.get() + 1);
                assert!(round != 5, "the sixth");
            })
            .unwrap();
    }
    let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.barrier()));
    assert!(thrown.is_err());
    assert_eq!(called.get(), 20);
    assert_eq!(client.call(&value, add, 0), Ok(20));
}

#[test]
fn a_shutdown_answers_what_was_sent_and_refuses_the_rest() {
    for domain in [
        Domain::dedicated(2).build().unwrap(),
        Domain::flat(2).build().unwrap(),
        Domain::flat(2)
            .policy(Policy::ServeWhenBlocked)
            .build()
            .unwrap(),
    ] {
        let values = domain.own_sharded(2, |_| 0u64).unwrap();
        let answered = Cell::new(0);
        let client = domain.client().unwrap();
        // More than the request lines hold: some requests are pending, some in a line being filled.
        for round in 0..700 {
            client
                .call_async(values.at(round % 2), add, 1, |answer| {
                    answer.unwrap();
                    answered.set(answered.get() + 1);
                })
                .unwrap();
        }
        domain.shutdown().unwrap();
        domain.shutdown().unwrap();
        assert_eq!(client.post(values.at(0), |_| ()), Err(Error::Shutdown));
        assert_eq!(client.call(values.at(1), add, 1), Err(Error::Shutdown));
        assert_eq!(client.call_post(values.at(1), add, 1), Err(Error::Shutdown));
        assert_eq!(domain.own(0, || 1).map(|_| ()), Err(Error::Shutdown));
        assert_eq!(domain.client().map(|_| ()).err(), Some(Error::Shutdown));
        assert_eq!(
            domain.handle().apply_waiting(values.at(0), |_| ()),
            Err(Error::Shutdown)
        );
        client.barrier().unwrap();
        assert_eq!(answered.get(), 700);
    }
}

#[test]
fn a_shutdown_while_clients_are_busy_loses_no_answer() {
    for round in 0..20 {
        let domain = if round % 2 == 0 {
            Domain::dedicated(2).build().unwrap()
        } else {
            Domain::flat(3).build().unwrap()
        };
        let values = domain.own_sharded(2, |_| 0u64).unwrap();
        let (asked, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let Ok(client) = domain.client() else {
                        return;
                    };
                    for index in 0.. {
                        let sent = client.call_async(values.at(index % 2), add, 1, |answer| {
                            answer.unwrap();
                            answered.fetch_add(1, Ordering::Relaxed);
                        });
                        if sent.is_err() {
                            break;
                        }
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while asked.load(Ordering::Relaxed) < 10_000 {
                std::thread::yield_now();
            }
            domain.shutdown().unwrap();
        });
        assert_eq!(asked.into_inner(), answered.into_inner());
    }
}

#[test]
fn a_waiting_call_inside_a_delegated_function_is_an_error() {
    for domain in [
        Domain::dedicated(1).build().unwrap(),
        Domain::flat(1).build().unwrap(),
    ] {
        let domain = Arc::new(domain);
        let value = Arc::new(domain.own(0, || 0u64).unwrap());
        let client = domain.client().unwrap();
        let (inner, again) = (domain.clone(), value.clone());
        let errors = client
            .apply(&*value, move |_| {
                let handle = inner.handle();
                (
                    inner.client().map(|_| ()).err(),
                    inner.own(0, || 0u8).map(|_| ()).err(),
                    handle.apply_waiting(&*again, |_| ()).err(),
                    inner.shutdown().err(),
                )
            })
            .unwrap();
        let nested = Some(Error::Nested);
        assert_eq!(
            errors,
            (nested.clone(), nested.clone(), nested.clone(), nested)
        );
    }
}

#[test]
fn a_waiting_call_inside_a_callback_is_an_error() {
    let domain = Domain::dedicated(1).build().unwrap();
    let value = domain.own(0, || 0u64).unwrap();
    let seen = std::cell::RefCell::new(Vec::new());
    let client = std::rc::Rc::new(domain.client().unwrap());
    let inside = client.clone();
    let (seen_inside, target) = (&seen, &value);
    client
        .apply_async(
            &value,
            |_| (),
            move |_| {
                let mut seen = seen_inside.borrow_mut();
                seen.push(inside.apply(target, |_| ()).err());
                seen.push(inside.barrier().err());
                seen.push(inside.poll().err());
            },
        )
        .unwrap();
    client.barrier().unwrap();
    assert_eq!(*seen.borrow(), vec![Some(Error::Nested); 3]);
}

#[test]
fn a_delegated_function_may_use_a_client_of_its_thread_without_waiting() {
    thread_local! {
        static CLIENT: std::cell::RefCell<Option<linewise_delegate::Client<'static>>> =
            const { std::cell::RefCell::new(None) };
    }
    let domain = Domain::flat(1).build().unwrap();
    let value = Arc::new(domain.own(0, || 0u64).unwrap());
    CLIENT.set(Some(domain.client().unwrap()));
    CLIENT.with_borrow(|client| {
        let client = client.as_ref().unwrap();
        let again = value.clone();
        let nested = client.apply(&*value, move |value| {
            *value += 1;
            CLIENT.with_borrow(|client| {
                let client = client.as_ref().unwrap();
                // It must not run inside the borrow of the value that we hold.
                client.post(&*again, |value| *value *= 10).unwrap();
                client.apply(&*again, |_| ()).err()
            })
        });
        assert_eq!(nested, Ok(Some(Error::Nested)));
        client.barrier().unwrap();
        assert_eq!(client.apply(&*value, |value| *value), Ok(10));
    });
    CLIENT.set(None);
}

#[test]
fn nothing_leaks_and_nothing_is_dropped_twice() {
    let alive = Arc::new(AtomicUsize::new(0));
    for domain in [
        Domain::dedicated(2).build().unwrap(),
        Domain::flat(2).build().unwrap(),
        Domain::flat(2)
            .policy(Policy::ServeWhenBlocked)
            .build()
            .unwrap(),
    ] {
        let counted = alive.clone();
        let values = domain
            .own_sharded(10, move |_| Some(Counted::new(&counted)))
            .unwrap();
        let one = domain
            .own(0, {
                let alive = alive.clone();
                move || Counted::new(&alive)
            })
            .unwrap();
        {
            let client = domain.client().unwrap();
            for round in 0..1000 {
                let (capture, result, callback) = (
                    Counted::new(&alive),
                    Counted::new(&alive),
                    Counted::new(&alive),
                );
                let big = [round; 16];
                client
                    .apply_async(
                        values.at(round % 10),
                        move |value| {
                            drop(capture);
                            if big[3] % 50 == 0 {
                                *value = None;
                                panic!("on purpose");
                            }
                            result
                        },
                        move |answer| {
                            assert_eq!(answer.is_err(), round % 50 == 0);
                            drop((answer, callback));
                        },
                    )
                    .unwrap();
            }
            // Requests that name the value are on their way when it is dropped.
            client.post(&one, |_| ()).unwrap();
            drop(one);
            client.post(values.at(0), |_| ()).unwrap();
            drop(values);
        }
        drop(domain);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn a_value_dropped_with_requests_under_way_lives_until_they_are_answered() {
    let alive = Arc::new(AtomicUsize::new(0));
    let domain = Domain::dedicated(1).build().unwrap();
    let client = domain.client().unwrap();
    for _ in 0..200 {
        let counted = alive.clone();
        let value = domain
            .own(0, move || (Counted::new(&counted), 17u64))
            .unwrap();
        client
            .apply_async(
                &value,
                |value| (value.1, value.0.0.load(Ordering::SeqCst)),
                |answer| {
                    let (number, alive) = answer.unwrap();
                    assert_eq!(number, 17);
                    assert!(alive > 0);
                },
            )
            .unwrap();
        drop(value);
        // The server hears of the end before the request: the line is still being filled.
        domain.own(0, || 0u8).unwrap();
    }
    client.barrier().unwrap();
    domain.own(0, || 0u8).unwrap();
    domain.own(0, || 0u8).unwrap();
    assert_eq!(
        alive.load(Ordering::SeqCst),
        0,
        "room is given back while the domain lives"
    );
}

#[test]
fn a_constructor_that_panics_is_an_error_and_leaves_nothing() {
    let alive = Arc::new(AtomicUsize::new(0));
    let domain = Domain::dedicated(1).build().unwrap();
    let counted = alive.clone();
    let made = domain.own_slice(0, 5, move |index| {
        assert!(index < 3, "the fourth");
        Counted::new(&counted)
    });
    assert_eq!(made.err(), Some(Error::Panicked("the fourth".into())));
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn a_full_shard_is_an_error() {
    let domain = Domain::dedicated(1).shard_bytes(1 << 20).build().unwrap();
    let most = domain.own_slice(0, 1 << 12, |_| [0u8; 64]).unwrap();
    assert!(matches!(
        domain.own_slice(0, 1 << 14, |_| [0u8; 64]),
        Err(Error::Full { .. })
    ));
    assert_eq!(most.len(), 1 << 12);
}

/// What a child of fork finds: every call of every kind is refused, and nothing waits for threads that
/// are not there.
fn is_refused_everything(domain: Domain, value: linewise_delegate::Owned<u64>) -> bool {
    let forked = |error: Option<Error>| error == Some(Error::Forked);
    let refused = forked(domain.client().err())
        && forked(domain.own(0, || 1u8).map(|_| ()).err())
        && forked(domain.handle().apply_waiting(&value, |_| ()).err())
        && forked(block_on(domain.handle().apply(&value, |_| ())).err());
    drop(value);
    let shut_down = domain.shutdown().is_ok();
    drop(domain);
    refused && shut_down
}

#[test]
fn the_child_of_a_fork_is_told_and_the_parent_goes_on() {
    for domain in [
        Domain::dedicated(1).build().unwrap(),
        Domain::flat(1).build().unwrap(),
    ] {
        let value = domain.own(0, || 1u64).unwrap();
        let client = domain.client().unwrap();
        // In the child this is neither answered nor waited for.
        client.call_post(&value, add, 1).unwrap();
        // SAFETY: the child only calls functions that check where they are, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let forked = Some(Error::Forked);
            let refused = client.call_post(&value, add, 1).err() == forked
                && client.call(&value, add, 1).err() == forked
                && client.barrier().err() == forked
                && client.poll().err() == forked
                // SAFETY: the body does nothing.
                && unsafe { client.fibres(|_| ()) }.err() == forked;
            drop(client);
            let refused = refused && is_refused_everything(domain, value);
            // SAFETY: ends the child without running what the parent's test harness registered.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = 0;
        // SAFETY: the child is ours, and the status is a valid place.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(client.call(&value, add, 1), Ok(3));
    }
}

#[test]
fn a_client_may_die_with_its_thread() {
    thread_local! {
        static CLIENT: std::cell::RefCell<Option<linewise_delegate::Client<'static>>> =
            const { std::cell::RefCell::new(None) };
    }
    for domain in [
        Domain::dedicated(1).build().unwrap(),
        Domain::flat(2).build().unwrap(),
    ] {
        let value = domain.own(0, || 0u64).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // Seen before the runtime's own variables of the thread, so destroyed after them.
                CLIENT.with_borrow(|client| assert!(client.is_none()));
                CLIENT.set(Some(domain.client().unwrap()));
                CLIENT.with_borrow(|client| {
                    let client = client.as_ref().unwrap();
                    for _ in 0..10_000 {
                        client.call_post(&value, add, 1).unwrap();
                    }
                });
            });
            // Its variables too have ended then, which the scope by itself does not wait for.
            thread.join().unwrap();
        });
        assert_eq!(domain.client().unwrap().call(&value, add, 0), Ok(10_000));
    }
}

#[test]
fn a_client_dropped_in_a_delegated_function_leaves_its_seat_with_its_thread() {
    thread_local! {
        static CLIENT: std::cell::RefCell<Option<linewise_delegate::Client<'static>>> =
            const { std::cell::RefCell::new(None) };
    }
    let (outer, domain) = (
        Domain::flat(1).build().unwrap(),
        Domain::flat(2).build().unwrap(),
    );
    let anything = outer.own(0, || ()).unwrap();
    let values = domain.own_sharded(2, |_| 0u64).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let client = domain.client_at(0).unwrap();
            // Still held by the client when it is dropped.
            client.call_post(values.at(1), add, 1).unwrap();
            CLIENT.set(Some(client));
            let caller = outer.client().unwrap();
            caller.apply(&anything, |()| CLIENT.set(None)).unwrap();
            assert_eq!(domain.client_at(0).err(), Some(Error::NoSeat));
        });
        thread.join().unwrap();
    });
    let client = domain.client_at(0).unwrap();
    assert_eq!(client.call(values.at(1), add, 1), Ok(2));
}

#[test]
fn many_threads_that_serve_each_other_on_one_cpu_make_progress() {
    let cpu = first_cpu();
    for policy in [
        Policy::Queue,
        Policy::ServeWhenBlocked,
        Policy::FastPath,
        Policy::UpperBound(3),
        Policy::Doorbell,
    ] {
        let domain = Domain::flat(8).policy(policy).build().unwrap();
        let values = domain.own_sharded(8, |_| 0u64).unwrap();
        std::thread::scope(|scope| {
            for seat in 0..8 {
                let (domain, values) = (&domain, &values);
                scope.spawn(move || {
                    linewise_delegate::place::pin(cpu).unwrap();
                    let client = domain.client_at(seat).unwrap();
                    for round in 0..2000 {
                        client.call_post(values.at(round % 8), add, 1).unwrap();
                        if round % 100 == 0 {
                            client.call(values.at(round / 100 % 8), add, 0).unwrap();
                        }
                    }
                });
            }
        });
        let client = domain.client().unwrap();
        let sums = client.apply_batch((0..8).map(|shard| values.at(shard)), |value| *value);
        assert_eq!(sums.unwrap().iter().sum::<u64>(), 8 * 2000, "{policy:?}");
    }
}

#[test]
fn two_clients_and_two_servers_on_one_cpu_make_progress() {
    let cpu = first_cpu();
    let domain = Domain::dedicated(2)
        .server_cpus([cpu])
        .client_cpus([cpu])
        .build()
        .unwrap();
    let values = Arc::new(domain.own_sharded(2, |_| 0u64).unwrap());
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let values = values.clone();
            let run = move |client: &linewise_delegate::Client<'_>| {
                for round in 0..100_000 {
                    client.call_post(values.at(round % 2), add, 1).unwrap();
                    if round % 1000 == 0 {
                        client.call(values.at(0), add, 0).unwrap();
                    }
                }
            };
            domain.spawn_client(run).unwrap()
        })
        .collect();
    for client in clients {
        client.join().unwrap().unwrap();
    }
    let client = domain.client().unwrap();
    let total =
        client.call(values.at(0), add, 0).unwrap() + client.call(values.at(1), add, 0).unwrap();
    assert_eq!(total, 200_000);
}

fn first_cpu() -> u32 {
    // SAFETY: a CPU set is plain bits, and the call fills it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (0..libc::CPU_SETSIZE as usize)
            .find(|cpu| libc::CPU_ISSET(*cpu, &set))
            .unwrap() as u32
    }
}

#[test]
fn futures_work_without_a_client() {
    let domain = Domain::dedicated(2).build().unwrap();
    let values = domain.own_sharded(4, |index| index as u64).unwrap();
    let handle = domain.handle();
    let sum = block_on(async {
        let mut sum = 0;
        for round in 0..100 {
            sum += handle
                .apply(values.at(round % 4), |value| *value)
                .await
                .unwrap();
        }
        let failed: Result<(), _> = handle.apply(values.at(0), |_| panic!("no")).await;
        assert_eq!(failed, Err(Error::Panicked("no".into())));
        // Made at once, whether or not the answer is wanted.
        drop(handle.apply(values.at(1), |value| *value = 50));
        sum + handle.apply(values.at(1), |value| *value).await.unwrap()
    });
    assert_eq!(sum, 150 + 50);
}

#[test]
fn a_sleeping_domain_wakes_up() {
    let domain = Domain::dedicated(2).build().unwrap();
    let values = domain.own_sharded(2, |_| 0u64).unwrap();
    let client = domain.client().unwrap();
    for round in 1..=5 {
        // Long enough for every server to fall asleep.
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(client.call(values.at(0), add, 1), Ok(round));
        client.call_post(values.at(1), add, 1).unwrap();
        client.barrier().unwrap();
    }
    // The client sleeps too, while a server takes its time.
    let slow = client.apply(values.at(0), |value| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        *value
    });
    assert_eq!(slow, Ok(5));
}
