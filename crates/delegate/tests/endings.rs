//! Threads, domains and processes that end in the middle of something, and work that never ends.

mod within;

use std::cell::{Cell, RefCell};
use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use linewise_delegate::{Client, Domain, Error, Handle, Owned};
use within::within;

const LONG: u64 = 20;

/// A function that ends the process has its thread's variables destroyed while it runs.
#[test]
fn a_function_that_ends_the_process_runs_once() {
    const CHILD: &str = "LINEWISE_DELEGATE_EXITS";
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    if std::env::var_os(CHILD).is_none() {
        let name = "a_function_that_ends_the_process_runs_once";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(7), "{said}");
        assert_eq!(said.matches("a run with 7").count(), 1, "{said}");
        return;
    }
    let domain = Domain::flat(2).build().unwrap();
    let server = domain.client_at(0).unwrap();
    let value = domain.own(0, || 0_u64).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = domain.client_at(1).unwrap();
            let captured = Box::new([7_u64; 100]);
            let exits = move |_: &mut u64| {
                eprintln!("a run with {}", captured[0]);
                drop(captured);
                if RUNS.fetch_add(1, Ordering::SeqCst) == 0 {
                    std::process::exit(7);
                }
            };
            other.apply(&value, exits).unwrap();
        });
        loop {
            server.poll().unwrap();
        }
    });
}

/// A waker whose last drop waits for the server that is about to answer.
struct Asks(Handle, Arc<Owned<u64>>);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Asks {
    fn drop(&mut self) {
        self.0.apply_waiting(&*self.1, |value| *value).unwrap();
    }
}

#[test]
fn a_waker_that_waits_when_it_is_dropped_holds_nobody_up() {
    within(LONG, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let value = Arc::new(domain.own(0, || 1_u64).unwrap());
        let handle = domain.handle();
        let mut reply = handle.apply(&*value, |value| {
            std::thread::sleep(Duration::from_millis(100));
            *value
        });
        let waker = Waker::from(Arc::new(Asks(handle.clone(), value.clone())));
        let mut poll = |waker: &Waker| Pin::new(&mut reply).poll(&mut Context::from_waker(waker));
        assert!(poll(&waker).is_pending());
        drop(waker);
        let _ = poll(Waker::noop());
    });
}

#[test]
fn a_client_that_is_given_up_with_much_to_send_keeps_no_values() {
    within(LONG, || {
        let domain = Domain::dedicated(1).shard_bytes(1 << 20).build().unwrap();
        let value = Rc::new(domain.own(0, || 0_u64).unwrap());
        let client = domain.client().unwrap();
        let (gone, target) = (domain.client().unwrap(), value.clone());
        let give_up = move |_| {
            for i in 0..20_000_u64 {
                gone.post(&*target, move |value| *value += i).unwrap();
            }
            drop(gone);
        };
        client.apply_async(&*value, |_| (), give_up).unwrap();
        client.barrier().unwrap();
        for i in 0..100_000_u64 {
            drop(domain.own(0, move || [i; 8]).unwrap());
        }
    });
}

struct ShutsDown(Arc<Domain>);

impl Drop for ShutsDown {
    fn drop(&mut self) {
        self.0.shutdown().unwrap();
    }
}

#[test]
fn a_server_that_ends_may_shut_its_domain_down() {
    thread_local! {
        static OF_SERVER: RefCell<Option<ShutsDown>> = const { RefCell::new(None) };
    }
    within(LONG, || {
        let domain = Arc::new(Domain::dedicated(1).build().unwrap());
        let value = domain.own(0, || 0_u64).unwrap();
        let client = domain.client().unwrap();
        let shuts_down = ShutsDown(domain.clone());
        client
            .apply(&value, |_| OF_SERVER.set(Some(shuts_down)))
            .unwrap();
        domain.shutdown().unwrap();
    });
}

fn ask_on<'c>(client: &Client<'c>, value: &'c Owned<u64>, stop: &'c Cell<bool>) {
    let further = move |client: &Client<'c>, _| {
        if !stop.get() {
            ask_on(client, value, stop);
        }
    };
    let add = |value: &mut u64| *value += 1;
    client.apply_async_with(value, add, further).unwrap();
}

#[test]
fn a_callback_that_always_asks_further_lets_other_requests_through() {
    within(LONG, || {
        let domain = Domain::flat(1).build().unwrap();
        let value = domain.own(0, || 0_u64).unwrap();
        let stop = Cell::new(false);
        let client = domain.client().unwrap();
        ask_on(&client, &value, &stop);
        let answer = client.apply_timeout(&value, Duration::from_secs(1), |value| *value);
        assert!(matches!(answer, Ok(_) | Err(Error::TimedOut)), "{answer:?}");
        client.apply(&value, |value| *value).unwrap();
        stop.set(true);
        client.barrier().unwrap();
    });
}

fn send_on(handle: Handle, value: Arc<Owned<u64>>, ended: Arc<AtomicUsize>) {
    let next = (handle.clone(), value.clone(), ended.clone());
    drop(handle.apply(&*value, move |value| {
        *value += 1;
        if next.2.load(Ordering::Relaxed) == 0 {
            send_on(next.0, next.1, next.2);
        }
    }));
}

#[test]
fn a_function_that_always_sends_the_next_lets_clients_through() {
    within(LONG, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let value = Arc::new(domain.own(0, || 0_u64).unwrap());
        let client = domain.client().unwrap();
        let ended = Arc::new(AtomicUsize::new(0));
        send_on(domain.handle(), value.clone(), ended.clone());
        client.apply(&*value, |value| *value).unwrap();
        ended.store(1, Ordering::Relaxed);
    });
}

/// Takes a seat when its thread ends, and forgets it.
struct TakesASeat(Option<Arc<Domain>>);

impl Drop for TakesASeat {
    fn drop(&mut self) {
        let joined = self
            .0
            .as_ref()
            .map(|domain| domain.client_at(0).map(std::mem::forget));
        assert!(!matches!(joined, Some(Err(Error::NoSeat))));
    }
}

#[test]
fn a_seat_that_is_taken_while_its_thread_ends_is_not_lost() {
    thread_local! {
        static LAST: RefCell<TakesASeat> = const { RefCell::new(TakesASeat(None)) };
    }
    within(LONG, || {
        let domain = Arc::new(Domain::flat(1).build().unwrap());
        let value = domain.own(0, || 3_u64).unwrap();
        let inner = domain.clone();
        let thread = std::thread::spawn(move || {
            LAST.with_borrow_mut(|last| last.0 = Some(inner.clone()));
            drop(inner.client_at(0).unwrap());
        });
        thread.join().unwrap();
        assert_eq!(domain.handle().apply_waiting(&value, |value| *value), Ok(3));
    });
}

/// A list whose nodes own the next.
struct Node {
    _next: Option<Owned<Node>>,
    ended: Arc<AtomicUsize>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn values_that_own_values_end_also_after_their_domain() {
    within(LONG, || {
        for domain_first in [false, true] {
            for flat in [false, true] {
                let domain = match flat {
                    true => Domain::flat(1).build().unwrap(),
                    false => Domain::dedicated(1).build().unwrap(),
                };
                let ended = Arc::new(AtomicUsize::new(0));
                let own = |next: Option<Owned<Node>>| {
                    let ended = ended.clone();
                    let node = move || Node { _next: next, ended };
                    domain.own(0, node).unwrap()
                };
                let list = own(Some(own(Some(own(None)))));
                match domain_first {
                    true => {
                        drop(domain);
                        drop(list);
                    }
                    false => {
                        drop(list);
                        drop(domain);
                    }
                }
                assert_eq!(ended.load(Ordering::Relaxed), 3, "{domain_first} {flat}");
            }
        }
    });
}

#[test]
fn a_value_that_a_callback_drops_after_the_shutdown_ends() {
    within(LONG, || {
        for flat in [false, true] {
            let ended = Arc::new(AtomicUsize::new(0));
            let domain = match flat {
                true => Domain::flat(1).build().unwrap(),
                false => Domain::dedicated(1).build().unwrap(),
            };
            let keep = domain.own(0, || 0_u64).unwrap();
            let count = ended.clone();
            let node = move || Node {
                _next: None,
                ended: count,
            };
            let value = domain.own(0, node).unwrap();
            let client = domain.client().unwrap();
            let drops = move |_| drop(value);
            client.apply_async(&keep, |_| (), drops).unwrap();
            domain.shutdown().unwrap();
            client.barrier().unwrap();
            drop(client);
            assert_eq!(ended.load(Ordering::Relaxed), 1, "flat: {flat}");
        }
    });
}

/// Throws a value's handle, which ends with what was thrown.
#[test]
fn what_a_given_up_request_throws_may_own_values() {
    within(LONG, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let keep = domain.own(0, || 0_u64).unwrap();
        let ended = Arc::new(AtomicUsize::new(0));
        let count = ended.clone();
        let node = move || Node {
            _next: None,
            ended: count,
        };
        let value = domain.own(0, node).unwrap();
        let (client, gone) = (domain.client().unwrap(), domain.client().unwrap());
        gone.post(&keep, |_| std::panic::panic_any(value)).unwrap();
        client
            .apply_async(&keep, |_| (), move |_| drop(gone))
            .unwrap();
        client.barrier().unwrap();
        while ended.load(Ordering::Relaxed) == 0 {
            client.apply(&keep, |value| *value += 1).unwrap();
        }
    });
}
