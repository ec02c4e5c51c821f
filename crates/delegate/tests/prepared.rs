//! Prepared operations: what they promise beside the other calls, in dedicated and flat domains.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use counted::Counted;
use linewise_delegate::{Client, Domain, Error, Ordered, Policy};

mod counted;

fn add(value: &mut u64, operand: u64) -> u64 {
    let before = *value;
    *value = before.wrapping_add(operand);
    before
}

fn domains() -> Vec<Domain> {
    let flat = |policy| Domain::flat(2).policy(policy).build().unwrap();
    vec![
        Domain::dedicated(1).build().unwrap(),
        Domain::dedicated(2).request_lines(1).build().unwrap(),
        Domain::dedicated(2).direct_write().build().unwrap(),
        Domain::dedicated(2).timed().build().unwrap(),
        Domain::flat(1).build().unwrap(),
        flat(Policy::Queue),
        flat(Policy::ServeWhenBlocked),
        flat(Policy::FastPath),
        flat(Policy::UpperBound(7)),
        flat(Policy::Doorbell),
        Domain::flat(2).ordered(Ordered::Client).build().unwrap(),
    ]
}

/// Asks with operands of type `A`, each made from a number, whose sums the value keeps.
fn operands_arrive<A: Copy + Send + 'static>(
    domain: &Domain,
    make: impl Fn(u64) -> A,
    sum: impl Fn(A) -> u64 + Copy + Send + 'static,
) {
    let total = domain.own(0, || 0u64).unwrap();
    let seen = Cell::new(0u64);
    let client = domain.client().unwrap();
    let ask = client.prepare(
        move |value: &mut u64, operand: A| add(value, sum(operand)),
        |before: u64, answer| {
            assert_eq!(answer, Ok(before));
            seen.set(seen.get() + 1);
        },
    );
    let mut expected = 0u64;
    for round in 0..2000 {
        let operand = make(round);
        ask.call(&total, operand, expected).unwrap();
        expected = expected.wrapping_add(sum(operand));
    }
    client.barrier().unwrap();
    assert_eq!(seen.get(), 2000);
    assert_eq!(client.apply(&total, |value| *value), Ok(expected));
}

#[test]
fn operands_of_every_size_arrive_and_wide_answers_come_back() {
    for domain in domains() {
        operands_arrive(&domain, |_| (), |()| 1);
        operands_arrive(&domain, |round| round as u8, u64::from);
        operands_arrive(&domain, |round| round as u32, u64::from);
        operands_arrive(&domain, |round| round << 29, |operand| operand);
        operands_arrive(&domain, |round| [round as u8; 9], |o| u64::from(o[8]));
        operands_arrive(&domain, |round| [round; 7], |operand| operand[6]);
    }
}

#[test]
fn tags_of_any_size_come_back_with_their_answers() {
    for domain in domains() {
        let values = domain.own_sharded(10, |index| index as u64).unwrap();
        let seen = RefCell::new(Vec::new());
        let client = domain.client().unwrap();
        let read = client.prepare(
            |value: &mut u64, ()| *value,
            |(index, text, _): (usize, String, [u64; 5]), answer| {
                assert_eq!(answer, Ok(index as u64));
                seen.borrow_mut().push(text);
            },
        );
        for index in 0..10 {
            let tag = (index, index.to_string(), [7; 5]);
            read.call(values.at(index), (), tag).unwrap();
        }
        client.barrier().unwrap();
        let mut seen = seen.borrow().clone();
        seen.sort_unstable();
        assert_eq!(seen.concat(), "0123456789");
    }
}

#[test]
fn calls_of_all_kinds_keep_their_order_in_a_shard() {
    for domain in domains() {
        let shards = domain.shards();
        let values = domain.own_sharded(shards, |_| 0u64).unwrap();
        let client = domain.client().unwrap();
        let expects = |before: u64, answer| assert_eq!(answer, Ok(before));
        let one = client.prepare(|value: &mut u64, ()| add(value, 1), expects);
        let many = client.prepare(add, expects);
        for round in 0..3000 {
            for shard in 0..shards {
                let target = values.at(shard);
                let asked = match round % 41 {
                    40 => client.call(target, add, 1).map(|before| {
                        assert_eq!(before, round);
                    }),
                    36..40 => many.call(target, 1, round),
                    34 | 35 => client.call_async(target, add, 1, move |answer| {
                        assert_eq!(answer, Ok(round));
                    }),
                    33 => client.apply_async(
                        target,
                        |value| add(value, 1),
                        move |answer| assert_eq!(answer, Ok(round)),
                    ),
                    _ => one.call(target, (), round),
                };
                asked.unwrap();
            }
            if round % 59 == 0 {
                client.flush();
            }
        }
        client.barrier().unwrap();
        for shard in 0..shards {
            assert_eq!(client.apply(values.at(shard), |value| *value), Ok(3000));
        }
    }
}

#[test]
fn a_panic_is_the_answer_of_its_request_alone() {
    for domain in domains() {
        let value = domain.own(0, || 0u64).unwrap();
        let (answers, panics) = (Cell::new(0), Cell::new(0));
        let client = domain.client().unwrap();
        let odd = client.prepare(
            |value: &mut u64, operand: u32| {
                *value += 1;
                assert!(!value.is_multiple_of(3), "the value is {value}");
                u64::from(operand) << 33
            },
            |(), answer| match answer {
                Ok(answer) => {
                    assert_eq!(answer, 2 << 33);
                    answers.set(answers.get() + 1);
                }
                Err(Error::Panicked(panic)) => {
                    assert!(panic.text().starts_with("the value is "), "{panic}");
                    panics.set(panics.get() + 1);
                }
                Err(other) => panic!("{other}"),
            },
        );
        for _ in 0..90 {
            odd.call(&value, 2, ()).unwrap();
        }
        client.barrier().unwrap();
        assert_eq!((answers.get(), panics.get()), (60, 30));
    }
}

#[test]
fn a_callback_that_panics_throws_on_and_the_others_run() {
    for domain in domains() {
        let value = domain.own(0, || 0u64).unwrap();
        let called = Cell::new(0);
        let client = domain.client().unwrap();
        let ask = client.prepare(add, |round, _| {
            called.set(called.get() + 1);
            assert!(round != 5, "the sixth");
        });
        let mut thrown = 0;
        for round in 0..20 {
            let asked = catch_unwind(AssertUnwindSafe(|| ask.call(&value, 1, round)));
            thrown += u32::from(asked.is_err());
        }
        let waited = catch_unwind(AssertUnwindSafe(|| client.barrier()));
        assert_eq!(thrown + u32::from(waited.is_err()), 1);
        assert_eq!(called.get(), 20);
        assert_eq!(client.call(&value, add, 0), Ok(20));
    }
}

#[test]
fn the_callback_outlives_the_prepared_operation_and_is_dropped_once() {
    for domain in domains() {
        let alive = Arc::new(AtomicUsize::new(0));
        let value = domain.own(0, || 0u64).unwrap();
        let called = Cell::new(0);
        let client = domain.client().unwrap();
        for requests in [0, 1, 63, 100] {
            called.set(0);
            let captured = Counted::new(&alive);
            let called = &called;
            let ask = client.prepare(add, move |_tag: Counted, answer: Result<u64, Error>| {
                assert!(captured.0.load(Ordering::SeqCst) > 0 && answer.is_ok());
                called.set(called.get() + 1);
            });
            for _ in 0..requests {
                ask.call(&value, 1, Counted::new(&alive)).unwrap();
            }
            drop(ask);
            client.barrier().unwrap();
            assert_eq!(called.get(), requests);
            assert_eq!(alive.load(Ordering::SeqCst), 0);
        }
    }
}

#[test]
fn a_value_dropped_with_requests_under_way_lives_until_they_are_answered() {
    for domain in domains() {
        let alive = Arc::new(AtomicUsize::new(0));
        let client = domain.client().unwrap();
        let look = client.prepare(
            |value: &mut Counted, ()| value.0.load(Ordering::SeqCst) as u64,
            |(), answer| assert!(answer.unwrap() > 0),
        );
        for _ in 0..50 {
            let counted = alive.clone();
            let value = domain.own(0, move || Counted::new(&counted)).unwrap();
            for _ in 0..20 {
                look.call(&value, (), ()).unwrap();
            }
            drop(value);
            // The server hears of the end before the last requests: their line is being filled.
            domain.own(0, || 0u8).unwrap();
        }
        client.barrier().unwrap();
        client.poll().unwrap();
        domain.own(0, || 0u8).unwrap();
        domain.own(0, || 0u8).unwrap();
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn a_shutdown_answers_what_was_called_and_refuses_the_rest() {
    for domain in domains() {
        let values = domain.own_sharded(2, |_| 0u64).unwrap();
        let answered = Cell::new(0);
        let client = domain.client().unwrap();
        let ask = client.prepare(add, |(), answer| {
            answer.unwrap();
            answered.set(answered.get() + 1);
        });
        for round in 0..701 {
            ask.call(values.at(round % 2), 1, ()).unwrap();
        }
        domain.shutdown().unwrap();
        assert_eq!(ask.call(values.at(0), 1, ()), Err(Error::Shutdown));
        client.barrier().unwrap();
        assert_eq!(answered.get(), 701);
    }
}

#[test]
fn a_value_of_another_domain_is_refused() {
    let (domain, other) = (
        Domain::dedicated(1).build().unwrap(),
        Domain::dedicated(2).build().unwrap(),
    );
    let value = other.own(1, || 0u64).unwrap();
    let client = domain.client().unwrap();
    let ask = client.prepare(add, |(), _| {});
    assert_eq!(ask.call(&value, 1, ()), Err(Error::Foreign));
}

#[test]
fn callbacks_may_call_further_and_are_not_nested() {
    for domain in domains() {
        let values = Rc::new(domain.own_sharded(2, |_| 0u64).unwrap());
        let (depth, called) = (Cell::new(0), Cell::new(0));
        // Leaked, so that its callbacks may name it.
        let client: &'static Client<'_> = leak(domain.client().unwrap());
        let post = client.prepare(add, |(), _| {});
        let (depth, called) = (leak(depth), leak(called));
        let ask = client.prepare(add, move |left: u64, _| {
            depth.set(depth.get() + 1);
            assert_eq!(depth.get(), 1);
            called.set(called.get() + 1);
            if left > 0 {
                // Another shard would have to wait in the ordered mode.
                post.call(values.at(0), 1, ()).unwrap();
            }
            depth.set(depth.get() - 1);
        });
        let values = domain.own_sharded(2, |_| 0u64).unwrap();
        for left in 0..100 {
            ask.call(values.at(0), 1, left).unwrap();
        }
        client.barrier().unwrap();
        assert_eq!(called.get(), 100);
        assert_eq!(client.stats().requests + client.stats().local, 199);
    }
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
