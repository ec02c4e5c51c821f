//! Waiting for not longer than a time, and what panics threw.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use linewise_delegate::{Domain, Error, Ordered};
use within::within;

mod within;

const SHORT: Duration = Duration::from_millis(2);
const LONG: Duration = Duration::from_secs(15);

/// Counts its end.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_call_calls_no_longer_than_it_may_and_its_late_answer_is_dropped() {
    within(60, || {
        let domains = [
            Domain::dedicated(1).build().unwrap(),
            Domain::dedicated(1)
                .request_lines(1)
                .direct_write()
                .build()
                .unwrap(),
            Domain::dedicated(2)
                .ordered(Ordered::Client)
                .build()
                .unwrap(),
        ];
        for domain in domains {
            let value = domain.own(0, || 0u64).unwrap();
            let other = domain.own(domain.shards() - 1, || 0u64).unwrap();
            let client = domain.client().unwrap();
            assert_eq!(
                client.apply_timeout(&value, LONG, |value| *value + 1),
                Ok(1)
            );
            let dropped = Arc::new(AtomicUsize::new(0));
            let (go, wait) = channel::<()>();
            let counted = Counted(dropped.clone());
            let late = client.apply_timeout(&value, SHORT, move |value| {
                let _ = wait.recv();
                *value = 7;
                counted
            });
            assert_eq!(late.err(), Some(Error::TimedOut));
            // The server is busy: where there is no room, or an order to keep, nothing is asked at all.
            for _ in 0..5 {
                let begun = Instant::now();
                let late = client.apply_timeout(&value, SHORT, |value| *value);
                assert_eq!(late, Err(Error::TimedOut));
                if domain.shards() > 1 {
                    let late = client.apply_timeout(&other, SHORT, |value| *value);
                    assert_eq!(late, Err(Error::TimedOut));
                }
                assert!(begun.elapsed() < LONG);
            }
            assert_eq!(dropped.load(Ordering::SeqCst), 0);
            go.send(()).unwrap();
            assert_eq!(client.apply_timeout(&value, LONG, |value| *value), Ok(7));
            assert_eq!(dropped.load(Ordering::SeqCst), 1);
            let mut reply = domain.handle().apply(&value, |value| *value);
            assert_eq!(reply.wait_timeout(LONG), Some(Ok(7)));
        }
    });
}

#[test]
fn a_reply_is_waited_for_no_longer_than_it_may_be() {
    within(20, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let value = domain.own(0, || 0u64).unwrap();
        let dropped = Arc::new(AtomicUsize::new(0));
        let (go, wait) = channel::<()>();
        let counted = Counted(dropped.clone());
        let mut reply = domain.handle().apply(&value, move |_| {
            let _ = wait.recv();
            counted
        });
        assert!(reply.wait_timeout(SHORT).is_none());
        assert!(reply.wait_timeout(SHORT).is_none());
        drop(reply);
        go.send(()).unwrap();
        assert_eq!(domain.handle().apply_waiting(&value, |value| *value), Ok(0));
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn calls_with_a_time_do_not_hold_fibres_up() {
    within(20, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let value = domain.own(0, || 0u64).unwrap();
        let client = domain.client().unwrap();
        let (late, answered) = (Cell::new(0), Cell::new(0));
        // SAFETY: the bodies leave nothing in their thread over a waiting call.
        #[expect(unsafe_code, reason = "fibres are not safe, whatever runs them")]
        unsafe {
            client.fibres(|fibres| {
                for _ in 0..5 {
                    fibres.spawn(|_| {
                        let slow = |_: &mut u64| std::thread::sleep(Duration::from_millis(20));
                        if client.apply_timeout(&value, SHORT, slow) == Err(Error::TimedOut) {
                            late.set(late.get() + 1);
                        }
                    });
                    fibres.spawn(|_| {
                        client
                            .apply_timeout(&value, LONG, |value| *value += 1)
                            .unwrap();
                        let all = (0..3).map(|_| (value.target(), |value: &mut u64| *value += 1));
                        client.apply_all(all).unwrap();
                        answered.set(answered.get() + 1);
                    });
                }
            })
        }
        .unwrap();
        assert_eq!((late.get(), answered.get()), (5, 5));
        assert_eq!(client.apply(&value, |value| *value), Ok(20));
    });
}

#[test]
fn a_callback_that_throws_passes_a_call_with_a_time() {
    within(20, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let value = domain.own(0, || 0u64).unwrap();
        let client = domain.client().unwrap();
        client
            .apply_async(&value, |_| (), |_| panic_any("of a callback"))
            .unwrap();
        let call = || client.apply_timeout(&value, LONG, |value| *value += 1);
        let thrown = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
        assert_eq!(thrown.downcast_ref(), Some(&"of a callback"));
        assert_eq!(
            client.apply_timeout(&value, LONG, |value| *value < 2),
            Ok(true)
        );
    });
}

/// What is thrown, and throws when it is dropped.
struct Nasty(Arc<AtomicUsize>);

impl Drop for Nasty {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic_any(7);
    }
}

#[test]
fn what_a_function_throws_comes_back_to_the_caller() {
    within(20, || {
        let domains = [
            Domain::dedicated(1).build().unwrap(),
            Domain::flat(1).build().unwrap(),
        ];
        for domain in domains {
            let value = domain.own(0, || 0u64).unwrap();
            let client = domain.client().unwrap();
            let dropped = Arc::new(AtomicUsize::new(0));
            let throw = || {
                let nasty = Nasty(dropped.clone());
                move |_: &mut u64| panic_any(nasty)
            };
            let panic = |answer: Result<(), Error>| match answer {
                Err(Error::Panicked(panic)) => panic,
                other => panic!("{other:?}"),
            };
            // Taken: it is the very payload, once.
            let thrown = panic(client.apply(&value, throw()));
            let (also, payload) = (thrown.clone(), thrown.into_payload());
            assert!(payload.is::<Nasty>());
            assert_eq!(
                *also.into_payload().downcast::<String>().unwrap(),
                "a payload that is no text"
            );
            std::mem::forget(payload);
            // Thrown on.
            let thrown = panic(domain.handle().apply_waiting(&value, throw()));
            let again = catch_unwind(AssertUnwindSafe(|| thrown.resume())).unwrap_err();
            assert!(again.is::<Nasty>());
            std::mem::forget(again);
            // Not taken: it is dropped once, and what that throws disturbs nobody.
            assert_eq!(dropped.load(Ordering::SeqCst), 0);
            drop(panic(client.apply(&value, throw())));
            client.post(&value, throw()).unwrap();
            client
                .apply_async(&value, throw(), |answer| assert!(answer.is_err()))
                .unwrap();
            client.barrier().unwrap();
            assert_eq!(dropped.load(Ordering::SeqCst), 3);
            let said = panic(client.apply(&value, |_| panic!("number {}", 5)));
            assert_eq!(
                (said.text(), said.to_string()),
                ("number 5", "number 5".to_owned())
            );
            let payload = said.into_payload();
            assert!(payload.is::<String>() || payload.is::<&str>());
        }
    });
}

#[test]
fn a_payload_may_call_when_it_is_dropped() {
    struct Calls(
        linewise_delegate::Handle,
        Arc<linewise_delegate::Owned<u64>>,
    );
    impl Drop for Calls {
        fn drop(&mut self) {
            let reply = self.0.apply(&*self.1, |value| *value += 1);
            drop(reply);
        }
    }
    within(20, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let value = Arc::new(domain.own(0, || 0u64).unwrap());
        let client = domain.client().unwrap();
        let calls = Calls(domain.handle(), value.clone());
        assert!(client.apply(&*value, move |_| panic_any(calls)).is_err());
        assert_eq!(
            domain.handle().apply_waiting(&*value, |value| *value),
            Ok(1)
        );
    });
}

#[test]
fn a_callback_asks_further_through_the_client_it_gets() {
    within(20, || {
        let domains = [
            Domain::dedicated(1).build().unwrap(),
            Domain::flat(1).build().unwrap(),
        ];
        for domain in domains {
            let value = domain.own(0, || 0u64).unwrap();
            let asked = Cell::new(0);
            let client = domain.client().unwrap();
            for _ in 0..100 {
                client
                    .apply_async_with(
                        &value,
                        |value| *value += 1,
                        |client, answer| {
                            answer.unwrap();
                            assert_eq!(client.barrier(), Err(Error::Nested));
                            let count = |answer: Result<(), Error>| {
                                answer.unwrap();
                                asked.set(asked.get() + 1);
                            };
                            client
                                .apply_async(&value, |value| *value += 1, count)
                                .unwrap();
                        },
                    )
                    .unwrap();
            }
            // Moved meanwhile, and what callbacks ask is answered before it leaves.
            drop(Box::new(client));
            assert_eq!(asked.get(), 100);
            assert_eq!(
                domain.handle().apply_waiting(&value, |value| *value),
                Ok(200)
            );
        }
    });
}

#[test]
fn a_pace_asks_as_much_at_a_time_as_its_time_allows() {
    within(60, || {
        let domains = [
            Domain::dedicated(1).build().unwrap(),
            Domain::flat(1).build().unwrap(),
        ];
        for domain in domains {
            let value = domain.own(0, || 0u64).unwrap();
            let answered = Cell::new(0);
            let client = domain.client().unwrap();
            let add = client.prepare(
                |value: &mut u64, nap: Duration| {
                    std::thread::sleep(nap);
                    *value += 1;
                },
                |(), answer: Result<(), Error>| {
                    answered.set(answered.get() + usize::from(answer.is_ok()))
                },
            );
            let pace = client.pace(LONG);
            for _ in 0..1000 {
                add.call(&value, Duration::ZERO, ()).unwrap();
                pace.step().unwrap();
            }
            assert!(pace.window() > 100, "{pace:?}");
            client.barrier().unwrap();
            assert_eq!(answered.get(), 1000);
            // No time is short enough: each waits.
            let pace = client.pace(Duration::from_micros(1));
            for _ in 0..20 {
                add.call(&value, Duration::from_millis(1), ()).unwrap();
                pace.step().unwrap();
            }
            assert_eq!(pace.window(), 1);
            assert_eq!(answered.get(), 1020);
            client
                .apply_async_with(
                    &value,
                    |_| (),
                    move |client, _| {
                        assert_eq!(client.pace(SHORT).step(), Err(Error::Nested));
                    },
                )
                .unwrap();
            client.barrier().unwrap();
        }
    });
}
