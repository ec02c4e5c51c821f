//! `Ordered::Client`: what a client asks of all shards runs in the order in which it asked, whatever its
//! callbacks ask meanwhile.

mod within;

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use linewise_delegate::{Client, Domain, Error, Ordered, Owned, OwnedSlice};
use within::within;

type Log = Arc<Mutex<Vec<u32>>>;

#[test]
fn a_callback_that_asks_while_an_order_is_kept_changes_none() {
    within(20, || {
        let dedicated = || Domain::dedicated(2).ordered(Ordered::Client);
        for domain in [
            dedicated().build().unwrap(),
            dedicated().request_lines(1).direct_write().build().unwrap(),
        ] {
            let values = domain.own_sharded(2, |_| 0u64).unwrap();
            let log = Log::default();
            let note = |number| {
                let log = log.clone();
                move |_: &mut u64| {
                    std::thread::sleep(Duration::from_millis(20));
                    log.lock().unwrap().push(number);
                }
            };
            let refused = Cell::new(false);
            let client = domain.client().unwrap();
            let asks = |client: &Client<'_>, _| {
                client.post(values.at(0), |_| ()).unwrap();
                refused.set(client.post(values.at(1), |_| ()) == Err(Error::Nested));
            };
            client.apply_async_with(values.at(0), |_| (), asks).unwrap();
            for number in 1..5 {
                client
                    .post(values.at(number as usize % 2), note(number))
                    .unwrap();
            }
            client.barrier().unwrap();
            assert_eq!(*log.lock().unwrap(), [1, 2, 3, 4]);
            assert!(refused.get());
        }
    });
}

/// What the callbacks of a client of a flat domain need for as long as the client lives.
struct Asker {
    client: Client<'static>,
    far: Owned<u64>,
    own: OwnedSlice<u64>,
    /// What ran, and what was asked.
    ran: Log,
    asked: RefCell<Vec<u32>>,
    answer: Cell<Option<Result<(), Error>>>,
}

/// The number of the request to the other shard.
const FAR: u32 = 1000;

/// The first callback of `ask`'s requests asks another shard, which comes late.
fn asks_far(ask: fn(&'static Asker)) {
    let domain = Arc::new(Domain::flat(2).ordered(Ordered::Client).build().unwrap());
    // Before anybody sits, as who waits for them sits for that long.
    let far = domain.own(1, || 0u64).unwrap();
    let own = domain.own_slice(0, 1, |_| 0u64).unwrap();
    let sits = Arc::new(Barrier::new(2));
    let (others, other_sits) = (domain.clone(), sits.clone());
    let other = std::thread::spawn(move || {
        let other = others.client_at(1).unwrap();
        other_sits.wait();
        std::thread::sleep(Duration::from_millis(50));
        drop(other);
    });
    sits.wait();
    let asker: &'static Asker = Box::leak(Box::new(Asker {
        client: domain.client_at(0).unwrap(),
        far,
        own,
        ran: Log::default(),
        asked: RefCell::default(),
        answer: Cell::new(None),
    }));
    ask(asker);
    asker.client.barrier().unwrap();
    other.join().unwrap();
    let asked = asker.asked.borrow().clone();
    assert_eq!(*asker.ran.lock().unwrap(), asked);
    let answer = asker.answer.take().expect("the callback ran");
    assert_eq!(answer.is_ok(), asked.contains(&FAR));
    assert!(matches!(answer, Ok(()) | Err(Error::Nested)));
}

impl Asker {
    fn ask_far(&'static self) {
        let ran = &self.ran;
        let asks = self
            .client
            .post(&self.far, |_| ran.lock().unwrap().push(FAR));
        if asks.is_ok() {
            self.asked.borrow_mut().push(FAR);
        }
        self.answer.set(Some(asks));
    }
}

/// Runs a number of a prepared operation.
fn run(ran: &'static Log) -> impl Fn(&mut u64, u32) + Copy + Send {
    move |_, number| ran.lock().unwrap().push(number)
}

#[test]
fn prepared_calls_on_the_own_shard_keep_the_order_over_their_lines() {
    within(20, || {
        asks_far(|asker| {
            let then = |number: u32, _| {
                if number == 0 {
                    asker.ask_far();
                }
            };
            let note = asker.client.prepare(run(&asker.ran), then);
            // Two lines of 31.
            for number in 0..62 {
                asker.asked.borrow_mut().push(number);
                note.call(asker.own.at(0), number, number).unwrap();
            }
        });
    });
}

#[test]
fn a_batch_on_the_own_shard_keeps_the_order_over_its_lines() {
    within(20, || {
        asks_far(|asker| {
            let then = |number: u32, _| {
                if number == 0 {
                    asker.ask_far();
                }
            };
            let note = asker.client.prepare(run(&asker.ran), then);
            for first in [0, 31] {
                let requests: Vec<_> = (first..first + 31)
                    .map(|number| (0, number, number))
                    .collect();
                asker.asked.borrow_mut().extend(first..first + 31);
                note.call_batch(&asker.own, &requests).unwrap();
            }
        });
    });
}

#[test]
fn a_callback_of_a_call_that_ran_at_once_may_ask_another_shard() {
    within(20, || {
        asks_far(|asker| {
            for number in 0..3 {
                asker.asked.borrow_mut().push(number);
                let ran = asker.ran.clone();
                let note = move |_: &mut u64| ran.lock().unwrap().push(number);
                let then = move |_| {
                    if number == 0 {
                        asker.ask_far();
                    }
                };
                asker
                    .client
                    .apply_async(asker.own.at(0), note, then)
                    .unwrap();
            }
        });
    });
}
