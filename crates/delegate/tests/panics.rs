//! Panics where nobody expects them: in destructors, of payloads among others.

#![expect(unsafe_code, reason = "fibres are not safe, whatever runs them")]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linewise_delegate::{Domain, Error, Policy};
use within::within;

mod within;

fn domains() -> Vec<Domain> {
    vec![
        Domain::dedicated(1).build().unwrap(),
        Domain::dedicated(1).request_lines(1).build().unwrap(),
        Domain::flat(1).build().unwrap(),
        Domain::flat(1)
            .policy(Policy::ServeWhenBlocked)
            .build()
            .unwrap(),
    ]
}

/// Counts that it is dropped, and throws what throws when it is dropped.
struct Throws(Arc<AtomicUsize>);

impl Drop for Throws {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic_any(Nasty);
    }
}

/// A panic's payload that throws another when it is dropped.
struct Nasty;

impl Drop for Nasty {
    fn drop(&mut self) {
        panic_any(7);
    }
}

/// Runs `call`, and drops what it throws.
fn caught<R>(call: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(returned) => Some(returned),
        Err(payload) => {
            std::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(payload))));
            None
        }
    }
}

#[test]
fn a_shared_callback_that_throws_when_dropped_is_dropped_once() {
    within(20, || {
        for domain in domains() {
            for requests in [1, 40, 63, 200] {
                let dropped = Arc::new(AtomicUsize::new(0));
                let called = Cell::new(0);
                let value = domain.own(0, || 0u64).unwrap();
                let client = domain.client().unwrap();
                let (held, also) = (Throws(dropped.clone()), Throws(dropped.clone()));
                let called = &called;
                let many = move |_: usize, _: Result<(), Error>| {
                    let _ = &held;
                    called.set(called.get() + 1);
                };
                let one = |value: &mut u64| *value += 1;
                caught(|| {
                    let all = (0..requests).map(|_| (value.target(), one));
                    client.apply_each(all, many).unwrap();
                });
                let prepared = caught(|| {
                    client.prepare(
                        |value: &mut u64, ()| *value,
                        move |(), _| {
                            let _ = &also;
                            called.set(called.get() + 1);
                        },
                    )
                });
                if let Some(prepared) = prepared {
                    for _ in 0..requests {
                        caught(|| prepared.call(&value, (), ()).unwrap());
                    }
                    caught(|| drop(prepared));
                }
                caught(|| client.barrier().unwrap());
                caught(|| client.flush());
                caught(|| client.barrier().unwrap());
                assert!(called.get() >= requests);
                caught(|| drop(client));
                assert_eq!(dropped.load(Ordering::SeqCst), 2);
            }
        }
    });
}

#[test]
fn a_waiting_call_does_not_unwind_while_its_function_runs() {
    within(20, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let value = domain.own(0, || 0u64).unwrap();
        let client = domain.client().unwrap();
        for _ in 0..3 {
            client
                .apply_async(&value, |_| (), |_| panic_any(Nasty))
                .unwrap();
        }
        let ended = Arc::new(AtomicUsize::new(0));
        let mut lent = [0u64; 64];
        let answer = caught(|| {
            client.apply(&value, |_| {
                std::thread::sleep(Duration::from_millis(50));
                lent.fill(7);
                ended.store(1, Ordering::SeqCst);
            })
        });
        assert_eq!((answer, ended.load(Ordering::SeqCst)), (None, 1));
        assert_eq!(lent, [7; 64]);
        assert_eq!(client.apply(&value, |value| *value), Ok(0));
    });
}

#[test]
fn destructors_that_throw_end_no_server() {
    within(20, || {
        for domain in domains() {
            let dropped = Arc::new(AtomicUsize::new(0));
            let anchor = domain.own(0, || 0u64).unwrap();
            let counted = dropped.clone();
            let value = domain.own(0, move || Throws(counted.clone())).unwrap();
            drop(value);
            // Nobody wants the answer.
            let counted = dropped.clone();
            drop(domain.handle().apply(&anchor, move |_| Throws(counted)));
            let counted = dropped.clone();
            let captured = Throws(counted);
            drop(domain.handle().apply(&anchor, move |_| drop(captured)));
            assert_eq!(
                domain.handle().apply_waiting(&anchor, |value| *value),
                Ok(0)
            );
            let client = domain.client().unwrap();
            assert_eq!(client.apply(&anchor, |value| *value), Ok(0));
            client.poll().unwrap();
            assert_eq!(dropped.load(Ordering::SeqCst), 3);
        }
    });
}

#[test]
fn payloads_of_several_fibres_and_callbacks_are_dropped_in_peace() {
    within(20, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let value = domain.own(0, || 0u64).unwrap();
        let lengths = RefCell::new(Vec::new());
        let client = domain.client().unwrap();
        let run = || {
            // SAFETY: the bodies leave nothing in their thread over a waiting call.
            unsafe {
                client.fibres(|fibres| {
                    for _ in 0..3 {
                        fibres.spawn(|_| {
                            let mut lent = [0u64; 8];
                            let slow = |_: &mut u64| {
                                std::thread::sleep(Duration::from_millis(5));
                                lent.fill(7);
                            };
                            client.apply(&value, slow).unwrap();
                            lengths.borrow_mut().push(lent);
                        });
                        fibres.spawn(|_| panic_any(Nasty));
                    }
                })
            }
        };
        assert!(caught(run).is_none());
        assert_eq!(*lengths.borrow(), vec![[7; 8]; 3]);
    });
}
