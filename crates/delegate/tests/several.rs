//! Several values in one call, and taking values back.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domains::domains;
use linewise_delegate::{Client, Domain, Error, Reply};
use within::within;

mod domains;
mod within;

#[test]
fn each_request_of_a_waiting_batch_has_its_own_arguments() {
    within(20, || {
        for domain in domains() {
            let lists = domain.own_sharded(7, |_| Vec::<usize>::new()).unwrap();
            let client = domain.client().unwrap();
            // Borrowed from here, and written to from there.
            let names: Vec<String> = (0..500).map(|name| format!("{name}")).collect();
            let mut lengths = vec![0; names.len()];
            let requests = names.iter().zip(&mut lengths).enumerate();
            let answers = client.apply_all(requests.map(|(number, (name, length))| {
                let push = move |list: &mut Vec<usize>| {
                    list.push(number);
                    *length = name.len();
                    name.as_str()
                };
                (lists.at(number % 7), push)
            }));
            assert_eq!(answers.unwrap(), names);
            assert!(
                lengths
                    .iter()
                    .zip(&names)
                    .all(|(length, name)| *length == name.len())
            );
            // In the order they were made.
            let sorted = |list: &mut Vec<usize>| list.is_sorted() && list.len() >= 500 / 7;
            let sorted = client.apply_batch((0..7).map(|index| lists.at(index)), sorted);
            assert_eq!(sorted, Ok(vec![true; 7]));
        }
    });
}

#[test]
fn the_first_panic_of_a_waiting_batch_is_its_error_and_the_others_are_made() {
    within(20, || {
        for domain in domains() {
            let values = domain.own_sharded(3, |_| 0u64).unwrap();
            let client = domain.client().unwrap();
            let made = AtomicUsize::new(0);
            let answers = client.apply_all((0..100).map(|number| {
                let made = &made;
                let count = move |value: &mut u64| {
                    assert!(number != 70 && number != 31, "number {number}");
                    made.fetch_add(1, Ordering::Relaxed);
                    *value += 1;
                };
                (values.at(number % 3), count)
            }));
            assert_eq!(answers, Err(Error::Panicked("number 31".into())));
            assert_eq!(made.load(Ordering::Relaxed), 98);
        }
    });
}

#[test]
fn a_callback_that_throws_ends_a_waiting_batch_after_its_answers() {
    within(20, || {
        for domain in domains() {
            let values = domain.own_sharded(3, |_| 0u64).unwrap();
            let client = domain.client().unwrap();
            for _ in 0..3 {
                let slow = |_: &mut u64| std::thread::sleep(Duration::from_millis(1));
                // On the own shard it is thrown at once.
                let call =
                    || client.apply_async(values.at(0), slow, |_| panic_any("of a callback"));
                let _ = catch_unwind(AssertUnwindSafe(call));
            }
            let mut lent = vec![0; 300];
            let made = AtomicUsize::new(0);
            let batch = || {
                client.apply_all(lent.iter_mut().enumerate().map(|(number, place)| {
                    let made = &made;
                    let fill = move |_: &mut u64| {
                        made.fetch_add(1, Ordering::Relaxed);
                        *place = number;
                    };
                    (values.at(number % 3), fill)
                }))
            };
            let thrown = catch_unwind(AssertUnwindSafe(batch));
            let made = made.into_inner();
            if let Err(thrown) = thrown {
                assert_eq!(thrown.downcast_ref(), Some(&"of a callback"));
            } else {
                assert_eq!(made, 300);
            }
            let filled = (0..300).filter(|number| lent[*number] == *number).count();
            assert_eq!(filled, made.max(1));
        }
    });
}

#[test]
fn values_of_one_shard_are_used_together_and_none_twice() {
    within(20, || {
        for domain in domains() {
            let last = domain.shards() - 1;
            let text = domain.own(last, || "a".to_owned()).unwrap();
            let numbers = domain.own_slice(last, 20, |index| index as u64).unwrap();
            let client = domain.client().unwrap();
            let lent = "borrowed".to_owned();
            let length = client.apply_together(
                (&text, numbers.at(3), numbers.at(4)),
                |(text, three, four)| {
                    std::mem::swap(three, four);
                    text.push_str(&lent);
                    text.len()
                },
            );
            assert_eq!(length, Ok(9));
            let all: Vec<_> = (0..20).map(|index| numbers.at(index)).collect();
            let sum = |all: Vec<&mut u64>| {
                let before = all.iter().map(|one| **one).sum::<u64>();
                all.into_iter().for_each(|one| *one += 1);
                before
            };
            assert_eq!(client.apply_together(all.clone(), sum), Ok(190));
            let summed = Cell::new(0);
            let then = |answer: Result<u64, Error>| summed.set(answer.unwrap());
            // The callback may not outlive what it borrows; the client is waited for here.
            let inner: Client<'_> = if domain.shards() > 1 || last == 0 && client.shard().is_none()
            {
                domain.client().unwrap()
            } else {
                continue;
            };
            inner.apply_together_async(all.clone(), sum, then).unwrap();
            inner.barrier().unwrap();
            drop(inner);
            assert_eq!(summed.get(), 210);

            let mut twice = all;
            twice.push(numbers.at(7));
            assert_eq!(client.apply_together(twice, sum), Err(Error::Twice));
            let twice = client.apply_together((&text, numbers.at(3), numbers.at(3)), |_| ());
            assert_eq!(twice, Err(Error::Twice));
            assert_eq!(
                client.apply_together((&text, &text), |_| ()),
                Err(Error::Twice)
            );
            let none = client.apply_together(Vec::<linewise_delegate::Target<'_, u64>>::new(), sum);
            assert!(matches!(none, Err(Error::Setting(_))));
            if last > 0 {
                let other = domain.own(0, || 0u64).unwrap();
                let apart = client.apply_together((&other, numbers.at(1)), |_| ());
                assert_eq!(apart, Err(Error::Apart));
            }
            let strange = Domain::dedicated(1).build().unwrap();
            let strange = strange.own(0, || 0u64).unwrap();
            let foreign = client.apply_together((&text, &strange), |_| ());
            assert_eq!(foreign, Err(Error::Foreign));
        }
    });
}

#[test]
fn a_panic_among_values_that_are_used_together_leaves_them_in_place() {
    within(20, || {
        for domain in domains() {
            let (one, other) = (
                domain.own(0, || 1u64).unwrap(),
                domain.own(0, || 2u64).unwrap(),
            );
            let client = domain.client().unwrap();
            let thrown = client.apply_together([&one, &other], |[one, other]| {
                *one = 10;
                assert_eq!(*other, 3, "no");
            });
            assert!(matches!(thrown, Err(Error::Panicked(_))));
            let both = client.apply_together([&one, &other], |both| both.map(|value| *value));
            assert_eq!(both, Ok([10, 2]));
        }
        let domain = Domain::dedicated(1).build().unwrap();
        let (one, other) = (
            domain.own(0, || 1u64).unwrap(),
            domain.own(0, || 2u64).unwrap(),
        );
        let sum = domain
            .handle()
            .apply_together((&one, &other), |(one, other)| *one + *other);
        assert_eq!(futures_executor::block_on(sum), Ok(3));
        let twice = domain.handle().apply_together((&one, &one), |_| ());
        assert_eq!(twice.wait(), Err(Error::Twice));
    });
}

#[test]
fn a_broadcast_reaches_every_value_once() {
    within(20, || {
        for domain in domains() {
            for count in [0, 1, 2, 3, 50] {
                // Odd sizes lie apart.
                let values = domain
                    .own_sharded(count, |index| (index as u8, 7u8, 7u8))
                    .unwrap();
                let client = domain.client().unwrap();
                let add = 5u8;
                let parts = client.broadcast(&values, |mut part| {
                    part.iter_mut().for_each(|(index, value)| {
                        assert_eq!(index, usize::from(value.0));
                        value.1 += add;
                    });
                    part.len()
                });
                assert_eq!(parts.as_ref().map(Vec::len), Ok(domain.shards()));
                assert_eq!(parts.unwrap().iter().sum::<usize>(), count);
                let all =
                    client.apply_batch((0..count).map(|index| values.at(index)), |value| value.1);
                assert_eq!(all, Ok(vec![12; count]));
                if count > 0 {
                    let thrown = client.broadcast(&values, |part| assert!(part.is_empty(), "here"));
                    assert_eq!(thrown, Err(Error::Panicked("here".into())));
                }
            }
        }
    });
}

/// Counts its end.
struct Counted(Arc<AtomicUsize>, u32);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn values_are_taken_back_after_what_was_asked_before() {
    within(20, || {
        for domain in domains() {
            let ended = Arc::new(AtomicUsize::new(0));
            let counted = |ended: &Arc<AtomicUsize>| {
                let ended = ended.clone();
                move |index: usize| Counted(ended.clone(), index as u32)
            };
            let make = counted(&ended);
            let one = domain.own(0, move || make(0)).unwrap();
            let some = domain.own_slice(0, 9, counted(&ended)).unwrap();
            let all = domain.own_sharded(10, counted(&ended)).unwrap();
            let empty = domain.own_slice(0, 0, counted(&ended)).unwrap();
            let client = domain.client().unwrap();
            for index in 0..200 {
                client.post(&one, |value| value.1 += 1).unwrap();
                client
                    .post(some.at(index % 9), |value| value.1 += 100)
                    .unwrap();
            }
            assert_eq!(client.wait(one.into_inner()).map(|one| one.1), Ok(200));
            let some = client.wait(some.into_inner()).unwrap();
            assert_eq!(some.iter().map(|one| one.1).sum::<u32>(), 200 * 100 + 36);
            assert_eq!(
                client.wait(empty.into_inner()).map(|none| none.len()),
                Ok(0)
            );
            let mut found = Vec::new();
            for slice in all.into_slices() {
                found.extend(client.wait(slice.into_inner()).unwrap());
            }
            assert_eq!(found.iter().map(|one| one.1).sum::<u32>(), 45);
            assert_eq!(ended.load(Ordering::SeqCst), 1);
            drop((some, found));
            assert_eq!(ended.load(Ordering::SeqCst), 20);
            // The room is used again.
            let again = domain.own(0, || 5u64).unwrap();
            assert_eq!(client.apply(&again, |value| *value), Ok(5));
        }
    });
}

#[test]
fn values_come_back_after_the_end_and_are_dropped_where_nobody_waits() {
    within(20, || {
        for domain in domains() {
            let ended = Arc::new(AtomicUsize::new(0));
            let make = |number| {
                let ended = ended.clone();
                let value = domain.own(0, move || Counted(ended.clone(), number));
                value.unwrap()
            };
            let (first, second, third) = (make(1), make(2), make(3));
            drop(first.into_inner());
            let mut reply = second.into_inner();
            domain.shutdown().unwrap();
            let value = reply.wait_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!(value.map(|value| value.1), Ok(2));
            drop(domain);
            assert_eq!(third.into_inner().wait().map(|value| value.1), Ok(3));
            assert_eq!(ended.load(Ordering::SeqCst), 3);
        }
    });
}

/// Throws when it is dropped.
struct Throws;

impl Drop for Throws {
    fn drop(&mut self) {
        panic_any(7);
    }
}

#[test]
fn a_value_that_throws_when_nobody_takes_it_ends_no_server() {
    within(20, || {
        for domain in domains() {
            let value = domain.own(0, || Throws).unwrap();
            drop(value.into_inner());
            let value = domain.own(0, || 5u64).unwrap();
            let client = domain.client().unwrap();
            assert_eq!(client.apply(&value, |value| *value), Ok(5));
            let reply: Reply<u64> = value.into_inner();
            assert_eq!(client.wait(reply), Ok(5));
        }
    });
}

#[test]
fn answers_of_prepared_operations_are_of_many_types() {
    fn same<R>(client: &Client<'_>, value: &linewise_delegate::Owned<R>, answers: Vec<R>)
    where
        R: linewise_delegate::Answer + Copy + PartialEq + std::fmt::Debug + Send + 'static,
    {
        for expected in answers {
            client.apply(value, move |value| *value = expected).unwrap();
            let found = RefCell::new(Vec::new());
            let found = &*Box::leak(Box::new(found));
            let get = client.prepare(
                |value: &mut R, ()| *value,
                |(), answer| found.borrow_mut().push(answer),
            );
            (0..70).for_each(|_| get.call(value, (), ()).unwrap());
            client.barrier().unwrap();
            assert_eq!(*found.borrow(), vec![Ok(expected); 70]);
        }
    }
    macro_rules! all {
        ($domain:expr, $client:expr; $($first:expr $(, $more:expr)*;)*) => {$(
            same($client, &$domain.own(0, || $first).unwrap(), vec![$first $(, $more)*]);
        )*};
    }
    within(20, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let client = &domain.client().unwrap();
        all!(domain, client;
            (); true, false; 'a', '\u{10ffff}'; 0u8, u8::MAX; i8::MIN, -1, 5; i16::MIN, -1; u16::MAX;
            i32::MIN, -1, 7; u32::MAX; i64::MIN, -1, 5; u64::MAX, 1 << 32; usize::MAX; isize::MIN;
            -0.5f32, f32::INFINITY; 1e300f64, -0.0; Duration::from_millis(70), Duration::ZERO;
            None, Some(0u32), Some(u32::MAX); None, Some(-1i32), Some(0); None, Some(-1i8), Some(0);
            None, Some(0u8), Some(255); None, Some(i16::MIN); None, Some(0u16);
        );
    });
}
