//! Batches: what they promise beside the calls that they stand for.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use domains::domains;
use linewise_delegate::{Client, Domain, Error, Sharded, Values};

mod domains;

fn add(value: &mut u64, operand: u64) -> u64 {
    *value = value.wrapping_add(operand);
    *value
}

/// Batches of lengths up to a few lines: each answer comes with its tag, in the order of the
/// requests for its value, also where other requests lie between.
fn answers_come_in_order(domain: &Domain, values: &impl Values<u64>, count: usize) {
    let held = RefCell::new(vec![0u64; count]);
    let answered = Cell::new(0);
    let client = domain.client().unwrap();
    let then = |(index, operand): (usize, u64), answer| {
        let mut held = held.borrow_mut();
        held[index] = held[index].wrapping_add(operand);
        assert_eq!(answer, Ok(held[index]));
        answered.set(answered.get() + 1);
    };
    let wide = client.prepare(add, then);
    let narrow = client.prepare(|value: &mut u64, ()| add(value, 1), then);
    let mut asked = 0;
    for length in (0..200usize).step_by(3) {
        let wides: Vec<_> = (0..length)
            .map(|place| {
                let (index, operand) = ((place * 7 + length) % count, (place as u64) << 30);
                (index, operand, (index, operand))
            })
            .collect();
        wide.call_batch(values, &wides).unwrap();
        let narrows: Vec<_> = (0..length)
            .map(|place| (place % count, (), (place % count, 1)))
            .collect();
        narrow.call_batch(values, &narrows).unwrap();
        asked += 2 * length;
    }
    client.barrier().unwrap();
    assert_eq!(answered.get(), asked);
    let indexes: Vec<_> = (0..count).rev().collect();
    let mut now = client.call_batch(values, add, 0, &indexes).unwrap();
    now.reverse();
    assert_eq!(now, *held.borrow());
}

#[test]
fn batches_are_answered_in_order() {
    for domain in domains() {
        for shard in 0..domain.shards() {
            let values = domain.own_slice(shard, 5, |_| 0u64).unwrap();
            answers_come_in_order(&domain, &values, 5);
        }
        let values = domain.own_sharded(11, |_| 0u64).unwrap();
        answers_come_in_order(&domain, &values, 11);
    }
}

#[test]
fn a_batch_fills_lines() {
    let domain = Domain::dedicated(1).build().unwrap();
    let values = domain.own_slice(0, 5, |_| 0u64).unwrap();
    let client = domain.client().unwrap();
    client.call_batch(&values, add, 1, &[3; 63 * 6]).unwrap();
    let stats = client.stats();
    assert_eq!((stats.requests, stats.lines), (63 * 6, 6));
}

#[test]
fn an_index_beyond_the_values_panics_before_anything_is_called() {
    for domain in domains() {
        let values = domain.own_sharded(3, |_| 0u64).unwrap();
        let client = domain.client().unwrap();
        let batch = AssertUnwindSafe(|| client.call_batch(&values, add, 1, &[0, 3, 1]));
        let thrown = catch_unwind(batch).unwrap_err();
        assert_eq!(
            thrown.downcast_ref::<String>(),
            Some(&"index 3 of 3".to_owned())
        );
        assert_eq!(
            client.call_batch(&values, add, 0, &[0, 1, 2]),
            Ok(vec![0; 3])
        );
    }
}

#[test]
fn the_first_panic_is_the_error_of_a_waiting_batch() {
    for domain in domains() {
        let values = domain.own_sharded(3, |index| index as u64).unwrap();
        let client = domain.client().unwrap();
        let odd = |value: &mut u64, _| {
            assert!(value.is_multiple_of(2), "the value is {value}");
            *value += 1;
            *value
        };
        assert_eq!(
            client.call_batch(&values, odd, 0, &[0, 2, 1, 0]),
            Err(Error::Panicked("the value is 1".into()))
        );
        let held = client.call_batch(&values, add, 0, &[0, 1, 2]);
        assert_eq!(held, Ok(vec![1, 1, 3]));
    }
}

#[test]
fn callbacks_may_call_further_while_a_batch_is_made() {
    for domain in domains() {
        // Leaked, so that its callbacks may name them.
        let values: &'static Sharded<u64> = leak(domain.own_sharded(4, |_| 0u64).unwrap());
        let client: &'static Client<'_> = leak(domain.client().unwrap());
        let further: &'static Cell<u64> = leak(Cell::new(0));
        let count = client.prepare(
            |value: &mut u64, ()| add(value, 1),
            |index: usize, answer: Result<u64, Error>| {
                answer.unwrap();
                // With `Ordered::Client` another shard is refused here.
                if client.call_post(values.at(index), add, 10_000).is_ok() {
                    further.set(further.get() + 1);
                }
            },
        );
        for batch in 0..200 {
            let batch: Vec<_> = (0..20)
                .map(|place| (batch % 4, (), (batch + place) % 4))
                .collect();
            count.call_batch(values, &batch).unwrap();
        }
        client.barrier().unwrap();
        let held = client.call_batch(values, |value, _| *value, 0, &[0, 1, 2, 3]);
        let held: u64 = held.unwrap().iter().sum();
        assert_eq!(held, 4000 + 10_000 * further.get());
        assert!(further.get() > 0);
    }
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

#[test]
fn values_of_another_domain_are_refused() {
    let (domain, other) = (
        Domain::dedicated(1).build().unwrap(),
        Domain::dedicated(1).build().unwrap(),
    );
    let values = other.own_sharded(3, |_| 0u64).unwrap();
    let client = domain.client().unwrap();
    assert_eq!(
        client.call_batch(&values, add, 1, &[0]),
        Err(Error::Foreign)
    );
    let mine = domain.own_sharded(3, |_| 0u64).unwrap();
    let add = client.prepare(add, |(), _| ());
    domain.shutdown().unwrap();
    assert_eq!(add.call_batch(&mine, &[(0, 1, ())]), Err(Error::Shutdown));
}
