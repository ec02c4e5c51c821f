//! The seats of flat domains: whoever leaves one, and however, nobody waits for it in vain.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use futures_executor::block_on;
use linewise_delegate::{Client, Domain, Error, Policy};
use within::within;

mod within;

fn add(value: &mut u64, operand: u64) -> u64 {
    *value += operand;
    *value
}

#[test]
fn a_future_ends_where_nobody_sits() {
    within(20, || {
        let domain = Domain::flat(2).build().unwrap();
        let values = domain.own_sharded(2, |_| 0u64).unwrap();
        let handle = domain.handle();
        for round in 0..100 {
            let answer = handle.apply(values.at(round % 2), |value| add(value, 1));
            assert_eq!(block_on(answer), Ok(round as u64 / 2 + 1));
        }
    });
}

#[test]
fn a_future_ends_whenever_its_server_leaves() {
    within(60, || {
        let domain = Domain::flat(1).build().unwrap();
        let value = domain.own(0, || 0u64).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // Does not serve but when it leaves. The future sits there itself where nobody does.
                    match domain.client() {
                        Ok(client) => drop(client),
                        Err(error) => assert_eq!(error, Error::NoSeat),
                    }
                }
            });
            let handle = domain.handle();
            for round in 1..=5000 {
                let answer = handle.apply(&value, |value| add(value, 1));
                assert_eq!(block_on(answer), Ok(round));
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_forgotten_client_leaves_its_seat_with_its_thread() {
    within(20, || {
        for policy in [Policy::Queue, Policy::FastPath, Policy::Doorbell] {
            let domain = Domain::flat(2).policy(policy).build().unwrap();
            let values = domain.own_sharded(2, |_| 0u64).unwrap();
            let (sits, asked) = (Barrier::new(2), Barrier::new(2));
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let client = domain.client_at(0).unwrap();
                    client.call_post(values.at(1), add, 1).unwrap();
                    client.flush();
                    std::mem::forget(client);
                    sits.wait();
                    asked.wait();
                });
                sits.wait();
                assert_eq!(domain.client_at(0).err(), Some(Error::NoSeat));
                // Answered when the thread ends, or after.
                let answer = domain.handle().apply(values.at(0), |value| add(value, 1));
                asked.wait();
                assert_eq!(block_on(answer), Ok(1));
                thread.join().unwrap();
            });
            let other = domain.client_at(1).unwrap();
            assert_eq!(other.call(values.at(0), add, 1), Ok(2));
            assert_eq!(other.call(values.at(1), add, 0), Ok(1));
            let again = domain.client_at(0).unwrap();
            assert_eq!(again.call(values.at(0), add, 1), Ok(3));
        }
    });
}

#[test]
fn a_client_that_outlives_what_its_thread_knows_goes_on_without_a_seat() {
    thread_local! {
        static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
    }
    /// Asks when its thread ends.
    struct Last(Client<'static>, Arc<linewise_delegate::OwnedSlice<u64>>);
    impl Drop for Last {
        fn drop(&mut self) {
            for _ in 0..1000 {
                self.0.call_post(self.1.at(0), add, 1).unwrap();
            }
            self.0.call(self.1.at(0), add, 1).unwrap();
        }
    }
    within(20, || {
        for policy in [
            Policy::Queue,
            Policy::FastPath,
            Policy::UpperBound(3),
            Policy::Doorbell,
        ] {
            let domain = Arc::new(Domain::flat(2).policy(policy).build().unwrap());
            let values = Arc::new(domain.own_slice(0, 1, |_| 0u64).unwrap());
            let ends = (domain.clone(), values.clone());
            std::thread::spawn(move || {
                let (domain, values) = ends;
                // Seen before the runtime's own variables of the thread, so destroyed after them.
                LAST.with_borrow(|last| assert!(last.is_none()));
                LAST.set(Some(Last(domain.client_at(0).unwrap(), values)));
            })
            .join()
            .unwrap();
            let client = domain.client_at(0).unwrap();
            assert_eq!(client.call(values.at(0), add, 0), Ok(1001));
        }
    });
}
