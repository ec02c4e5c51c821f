//! Closures: many of one type in a line, one by one and in one go.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use counted::Counted;
use linewise_delegate::{Client, Domain, Error, Ordered, OwnedSlice, Policy, Sharded};

mod counted;

/// One request line lets every full line wait for the last.
fn domains() -> Vec<Domain> {
    let flat = |policy| Domain::flat(2).policy(policy).build().unwrap();
    vec![
        Domain::dedicated(1).build().unwrap(),
        Domain::dedicated(2).request_lines(1).build().unwrap(),
        Domain::dedicated(1)
            .request_lines(2)
            .direct_write()
            .build()
            .unwrap(),
        Domain::dedicated(2)
            .ordered(Ordered::Client)
            .build()
            .unwrap(),
        flat(Policy::Queue),
        flat(Policy::ServeWhenBlocked),
        flat(Policy::Doorbell),
    ]
}

const VALUES: usize = 5;
const REQUESTS: usize = 1000;

/// What callbacks know.
struct Account {
    /// What each value must hold.
    held: RefCell<Vec<u64>>,
    answers: Cell<usize>,
}

/// Requests and answers are as long as `shape` makes them.
fn every_answer_has_its_number<'c, S>(
    client: &Client<'c>,
    values: &Sharded<u64>,
    account: &'c Account,
    shape: S,
) where
    S: Copy + PartialEq + std::fmt::Debug + Send + 'static,
{
    let ask = |number: usize| {
        move |value: &mut u64| {
            *value += number as u64;
            (*value, shape)
        }
    };
    let then = move |number: usize, answer| {
        let mut held = account.held.borrow_mut();
        held[number % VALUES] += number as u64;
        assert_eq!(answer, Ok((held[number % VALUES], shape)));
        account.answers.set(account.answers.get() + 1);
    };
    let before = account.answers.get();
    let requests = (0..REQUESTS).map(|number| (values.at(number % VALUES), ask(number)));
    client.apply_each(requests, then).unwrap();
    for number in 0..REQUESTS {
        client
            .apply_async(values.at(number % VALUES), ask(number), move |answer| {
                then(number, answer);
            })
            .unwrap();
    }
    client.barrier().unwrap();
    assert_eq!(account.answers.get(), before + 2 * REQUESTS);
}

#[test]
fn every_answer_comes_once_with_its_number_and_in_order() {
    for domain in domains() {
        let values = domain.own_sharded(VALUES, |_| 0u64).unwrap();
        let account = Account {
            held: RefCell::new(vec![0; VALUES]),
            answers: Cell::new(0),
        };
        let client = domain.client().unwrap();
        every_answer_has_its_number(&client, &values, &account, ());
        every_answer_has_its_number(&client, &values, &account, 7u8);
        every_answer_has_its_number(&client, &values, &account, [7u64; 5]);
        // Boxed.
        every_answer_has_its_number(&client, &values, &account, [7u64; 20]);
    }
}

/// Closures, answers and callbacks that own something, some of which panic.
fn everything_is_dropped_once<S: Copy + Send + 'static>(
    client: &Client<'_>,
    values: &OwnedSlice<Counted>,
    shape: S,
) {
    let alive = Arc::new(AtomicUsize::new(0));
    let (good, bad) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let ask = |number: usize| {
        let captured = Counted::new(&alive);
        move |_: &mut Counted| {
            assert!(number % 7 != 3, "number {number}");
            (captured, shape)
        }
    };
    let then = |held: Counted| {
        let (good, bad) = (good.clone(), bad.clone());
        move |number: usize, answer: Result<(Counted, S), Error>| {
            assert!(held.0.load(Ordering::SeqCst) > 0);
            match answer {
                Ok(_) => good.fetch_add(1, Ordering::SeqCst),
                Err(error) => {
                    assert_eq!(error, Error::Panicked(format!("number {number}").into()));
                    bad.fetch_add(1, Ordering::SeqCst)
                }
            };
        }
    };
    let requests = (0..REQUESTS).map(|number| (values.at(number % VALUES), ask(number)));
    client
        .apply_each(requests, then(Counted::new(&alive)))
        .unwrap();
    for number in 0..REQUESTS {
        let then = then(Counted::new(&alive));
        client
            .apply_async(values.at(0), ask(number), move |answer| {
                then(number, answer)
            })
            .unwrap();
    }
    client.barrier().unwrap();
    let panics = 2 * (0..REQUESTS).filter(|number| number % 7 == 3).count();
    assert_eq!(bad.load(Ordering::SeqCst), panics);
    assert_eq!(good.load(Ordering::SeqCst), 2 * REQUESTS - panics);
    // A line that was begun in vain keeps its share in the callback until it is sent.
    client.flush();
    client.barrier().unwrap();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn closures_answers_and_callbacks_are_dropped_once() {
    for domain in domains() {
        let alive = Arc::new(AtomicUsize::new(0));
        let values = domain
            .own_slice(0, VALUES, {
                let alive = alive.clone();
                move |_| Counted::new(&alive)
            })
            .unwrap();
        let client = domain.client().unwrap();
        everything_is_dropped_once(&client, &values, ());
        everything_is_dropped_once(&client, &values, [1u64; 20]);
        drop(values);
        client.poll().unwrap();
        drop(client);
        drop(domain);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn a_callback_that_throws_costs_no_answer() {
    for domain in domains() {
        let value = domain.own(0, || 0u64).unwrap();
        let answers = Cell::new(0);
        let client = domain.client().unwrap();
        let mut thrown = 0;
        for number in 0..2000 {
            let ask = || {
                let answers = &answers;
                client.apply_async(
                    &value,
                    |value| {
                        *value += 1;
                        *value
                    },
                    move |answer| {
                        answers.set(answers.get() + 1);
                        assert!(answer.unwrap() % 97 != 5, "answer");
                    },
                )
            };
            thrown += usize::from(catch_unwind(AssertUnwindSafe(ask)).is_err());
            // Borrows from here, and must not be left while the server runs it.
            if number % 100 == 0 {
                let mut here = 0;
                let borrows = AssertUnwindSafe(|| client.apply(&value, |value| here = *value));
                match catch_unwind(borrows) {
                    Ok(answer) => assert!(answer.is_ok() && here > 0),
                    Err(_) => thrown += 1,
                }
            }
        }
        let barrier = AssertUnwindSafe(|| client.barrier());
        thrown += usize::from(catch_unwind(barrier).is_err());
        client.barrier().unwrap();
        // What a call threw before its request was made never was.
        let now = client.apply(&value, |value| *value).unwrap();
        assert!(thrown > 0 && now > 1900);
        assert_eq!(answers.get(), now);
    }
}

#[test]
fn callbacks_may_ask_further_while_closures_are_sent() {
    for domain in domains() {
        // Leaked, so that its callbacks may name them.
        let values: &'static Sharded<u64> = leak(domain.own_sharded(VALUES, |_| 0).unwrap());
        let client: &'static Client<'_> = leak(domain.client().unwrap());
        let further: &'static Cell<u64> = leak(Cell::new(0));
        let one = |value: &mut u64| *value += 1;
        let requests = (0..4000).map(|number| (values.at(number % VALUES), one));
        client
            .apply_each(requests, move |number, answer| {
                answer.unwrap();
                // With `Ordered::Client` another shard is refused here.
                if client.post(values.at(number % VALUES), one).is_ok() {
                    further.set(further.get() + 1);
                }
            })
            .unwrap();
        client.barrier().unwrap();
        let held = client.apply_batch((0..VALUES).map(|index| values.at(index)), |value| *value);
        assert_eq!(held.unwrap().iter().sum::<u64>(), 4000 + further.get());
        assert!(further.get() > 0);
    }
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
