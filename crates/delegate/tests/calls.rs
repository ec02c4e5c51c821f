//! Calls through a dedicated and a flat domain: what each kind of call promises.

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::rc::Rc;

use linewise_delegate::{Client, Domain, Error, Ordered, Policy};

fn add(value: &mut u64, operand: u64) -> u64 {
    let before = *value;
    *value = before.wrapping_add(operand);
    before
}

fn domains() -> Vec<Domain> {
    vec![
        Domain::dedicated(1).build().unwrap(),
        Domain::dedicated(2).request_lines(1).build().unwrap(),
        Domain::dedicated(2).direct_write().build().unwrap(),
        Domain::flat(1).build().unwrap(),
        Domain::flat(3).build().unwrap(),
        Domain::flat(2)
            .policy(Policy::ServeWhenBlocked)
            .build()
            .unwrap(),
        Domain::flat(2)
            .policy(Policy::Doorbell)
            .request_lines(32)
            .build()
            .unwrap(),
    ]
}

#[test]
fn a_waiting_call_returns_its_answer() {
    for domain in domains() {
        let text = domain.own(0, || String::from("a")).unwrap();
        let client = domain.client().unwrap();
        let suffix = String::from("b");
        let length = client.apply(&text, |text| {
            text.push_str(&suffix);
            text.len()
        });
        assert_eq!(length, Ok(2));
        assert_eq!(
            client.apply(&text, |text| text.clone()).as_deref(),
            Ok("ab")
        );
    }
}

#[test]
fn asynchronous_calls_call_back_in_order_per_shard() {
    for domain in domains() {
        let shards = domain.shards();
        let counters = domain.own_sharded(shards, |_| 0u64).unwrap();
        let seen = vec![RefCell::new(Vec::new()); shards];
        let client = domain.client().unwrap();
        for _ in 0..1000 {
            for (shard, seen) in seen.iter().enumerate() {
                client
                    .call_async(counters.at(shard), add, 1, |answer| {
                        seen.borrow_mut().push(answer.unwrap());
                    })
                    .unwrap();
            }
        }
        client.barrier().unwrap();
        for seen in &seen {
            assert_eq!(*seen.borrow(), (0..1000).collect::<Vec<_>>());
        }
    }
}

#[test]
fn operands_of_every_width_arrive_and_wide_answers_come_back() {
    for domain in domains() {
        let total = domain.own(0, || 0u64).unwrap();
        let client = domain.client().unwrap();
        let mut expected = 0u64;
        for round in 0..5000u64 {
            let operand = match round % 7 {
                0 | 1 => 1,
                2 => round,
                3 => u64::MAX - round,
                4 => 1 << 40,
                _ => round % 3,
            };
            let before = expected;
            client
                .call_async(&total, add, operand, move |answer| {
                    assert_eq!(answer, Ok(before))
                })
                .unwrap();
            expected = expected.wrapping_add(operand);
        }
        assert_eq!(client.call(&total, add, 0), Ok(expected));
    }
}

#[test]
fn function_pointers_and_small_captures_are_operations() {
    let domain = Domain::dedicated(1).build().unwrap();
    let value = domain.own(0, || 10u64).unwrap();
    let client = domain.client().unwrap();
    let pointer: fn(&mut u64, u64) -> u64 = add;
    client
        .call_async(&value, pointer, 5, |answer| assert_eq!(answer, Ok(10)))
        .unwrap();
    let factor = 3u32;
    let times = move |value: &mut u64, operand: u64| {
        *value = *value * u64::from(factor) + operand;
        *value
    };
    client
        .call_async(&value, times, 1, |answer| assert_eq!(answer, Ok(46)))
        .unwrap();
    client.barrier().unwrap();
}

/// What an operation captures may have bytes that were never written: nothing may look at them.
#[test]
fn captures_with_holes_are_operations() {
    for domain in domains() {
        let value = domain.own(0, || 0u64).unwrap();
        let answers = Cell::new(0);
        let client = domain.client().unwrap();
        for round in 0..200u64 {
            let captured = std::hint::black_box((MaybeUninit::<u32>::uninit(), round as u8));
            let plus = move |value: &mut u64, operand: u64| {
                // Captured as a whole.
                let whole = captured;
                let (_, more) = whole;
                *value += operand + u64::from(more);
                *value
            };
            let then =
                |answer: Result<u64, Error>| answers.set(answers.get() + answer.unwrap() % 2);
            client.call_async(&value, plus, 2, then).unwrap();
            let prepared = client.prepare(
                move |value: &mut u64, (_, more): (MaybeUninit<u8>, u32)| {
                    let whole = captured;
                    let (_, also) = whole;
                    *value += u64::from(more) + u64::from(also);
                    *value
                },
                |(), answer| answers.set(answers.get() + answer.unwrap() % 2),
            );
            let holes = std::hint::black_box((MaybeUninit::<u8>::uninit(), 2u32));
            prepared.call(&value, holes, ()).unwrap();
        }
        client.barrier().unwrap();
        assert_eq!(
            client.apply(&value, |value| *value),
            Ok(200 * 4 + 2 * 199 * 100)
        );
        assert_eq!(answers.get(), 100);
    }
}

/// Functions are told apart by their addresses, also those of one type.
#[test]
fn pointers_to_functions_share_lines_if_they_are_the_same() {
    let domain = Domain::dedicated(1).build().unwrap();
    let value = domain.own(0, || 0u64).unwrap();
    let client = domain.client().unwrap();
    let twice: fn(&mut u64, u64) -> u64 = |value, operand| {
        *value = *value * 2 + operand;
        *value
    };
    let add: fn(&mut u64, u64) -> u64 = add;
    for _ in 0..63 {
        client.call_post(&value, add, 1).unwrap();
    }
    for _ in 0..3 {
        client.call_post(&value, twice, 1).unwrap();
    }
    client.barrier().unwrap();
    assert_eq!(client.stats().lines, 2);
    assert_eq!(
        client.apply(&value, |value| *value),
        Ok(((63 * 2 + 1) * 2 + 1) * 2 + 1)
    );
}

#[test]
fn closures_and_answers_of_any_size_travel() {
    for domain in domains() {
        let value = domain.own(0, || vec![0u8; 4]).unwrap();
        let client = domain.client().unwrap();
        let big = [7u64; 40];
        let small = 3u16;
        let boxed = client.apply(&value, move |value| {
            value[0] = big[39] as u8;
            big
        });
        assert_eq!(boxed, Ok(big));
        let text = String::from("moved");
        let answers = Rc::new(RefCell::new(Vec::new()));
        for round in 0..100u8 {
            let (text, answers) = (text.clone(), answers.clone());
            let guard = (answers.clone(), [0u64; 5]);
            client
                .apply_async(
                    &value,
                    move |value| {
                        value[1] = round;
                        (text, value[0], small)
                    },
                    move |answer| {
                        let (text, first, small) = answer.unwrap();
                        assert_eq!((text.as_str(), first, small), ("moved", 7, 3));
                        guard.0.borrow_mut().push(round);
                    },
                )
                .unwrap();
        }
        client.barrier().unwrap();
        assert_eq!(*answers.borrow(), (0..100).collect::<Vec<_>>());
        assert_eq!(client.apply(&value, |value| value[1]), Ok(99));
    }
}

#[test]
fn a_batch_answers_in_the_order_of_its_targets() {
    for domain in domains() {
        let values = domain.own_sharded(100, |index| index as u64).unwrap();
        let client = domain.client().unwrap();
        let doubled =
            client.apply_batch((0..100).map(|index| values.at(index)), |value| *value * 2);
        assert_eq!(doubled, Ok((0..100).map(|index| index * 2).collect()));
    }
}

#[test]
fn posts_are_done_after_a_barrier() {
    for domain in domains() {
        let value = domain.own(0, || 0u64).unwrap();
        let client = domain.client().unwrap();
        for _ in 0..1000 {
            client.post(&value, |value| *value += 1).unwrap();
            client.call_post(&value, add, 1).unwrap();
        }
        client.barrier().unwrap();
        assert_eq!(client.apply(&value, |value| *value), Ok(2000));
    }
}

#[test]
fn callbacks_may_make_further_requests() {
    for domain in domains() {
        let values = domain.own_sharded(domain.shards() * 2, |_| 0u64).unwrap();
        let left = Cell::new(2000u32);
        let client = Rc::new(domain.client().unwrap());
        for _ in 0..20 {
            continue_with(&client, &values, &left);
        }
        client.barrier().unwrap();
        assert_eq!(left.get(), 0);
        let total: u64 = (0..values.len())
            .map(|index| client.apply(values.at(index), |value| *value).unwrap())
            .sum();
        assert_eq!(total, 2000);
    }
}

fn continue_with<'a>(
    client: &Rc<Client<'a>>,
    values: &'a linewise_delegate::Sharded<u64>,
    left: &'a Cell<u32>,
) {
    if left.get() == 0 {
        return;
    }
    left.set(left.get() - 1);
    let next = client.clone();
    let index = left.get() as usize % values.len();
    client
        .call_async(values.at(index), add, 1, move |answer| {
            answer.unwrap();
            continue_with(&next, values, left);
        })
        .unwrap();
}

#[test]
fn the_ordered_mode_keeps_order_over_all_shards() {
    for builder in [Domain::dedicated(3), Domain::flat(3)] {
        let domain = builder.ordered(Ordered::Client).build().unwrap();
        let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let values = domain.own_sharded(3, |_| ()).unwrap();
        let client = domain.client().unwrap();
        for round in 0..300usize {
            let log = log.clone();
            client
                .post(values.at(round * 7 % 3), move |()| {
                    log.lock().unwrap().push(round)
                })
                .unwrap();
        }
        client.barrier().unwrap();
        assert_eq!(*log.lock().unwrap(), (0..300).collect::<Vec<_>>());
    }
}

#[test]
fn a_value_of_another_domain_is_refused() {
    let (one, other) = (
        Domain::dedicated(1).build().unwrap(),
        Domain::dedicated(1).build().unwrap(),
    );
    let value = one.own(0, || 1u8).unwrap();
    let client = other.client().unwrap();
    assert_eq!(client.apply(&value, |value| *value), Err(Error::Foreign));
    assert_eq!(client.post(&value, |_| ()), Err(Error::Foreign));
}

#[test]
fn settings_out_of_range_are_refused() {
    assert!(matches!(
        Domain::dedicated(0).build(),
        Err(Error::Setting(_))
    ));
    assert!(matches!(
        Domain::dedicated(1).request_lines(33).build(),
        Err(Error::Setting(_))
    ));
    assert!(matches!(
        Domain::dedicated(1).server_cpus([100_000]).build(),
        Err(Error::System { .. })
    ));
}

#[test]
fn threads_are_placed_over_the_sockets_where_they_may_run() {
    let domain = Domain::dedicated(3).round_robin().build().unwrap();
    let value = domain.own(0, || 0u64).unwrap();
    let placed = domain
        .spawn_client(move |client| {
            // Pinned: one CPU is left to run on.
            let server = client.apply(&value, |_| linewise_delegate::place::here().len());
            (server, linewise_delegate::place::here().len())
        })
        .unwrap();
    assert_eq!(placed.join().unwrap(), Ok((Ok(1), 1)));
}
