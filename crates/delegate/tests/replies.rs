//! Replies that are asked for twice, in a child of fork, in a seat, and beside others who ask without end.

#![expect(unsafe_code, reason = "forks, and waits for the child")]

mod within;

use std::cell::Cell;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_executor::block_on;
use linewise_delegate::{Domain, Error, Reply};
use within::within;

const LONG: u64 = 20;

/// Whether `body` is true in a child of fork, which ends at once. One that hangs is ended.
fn in_a_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls what looks where it is, and ends without what the parent registered.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_true = body();
        // SAFETY: ends the child, and takes a number only.
        unsafe { libc::_exit(i32::from(!is_true)) };
    }
    let begun = Instant::now();
    let mut status = 0;
    // SAFETY: the child is ours, and the status is a valid place.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if begun.elapsed() > Duration::from_secs(2) {
            // SAFETY: a child that was not waited for yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    status == 0
}

#[test]
fn a_reply_of_a_call_before_fork_is_refused_in_the_child() {
    let is_refused = |reply: fn(Reply<u64>) -> Result<u64, Error>| {
        let domain = Domain::dedicated(1).build().unwrap();
        let value = domain.own(0, || 1u64).unwrap();
        let (go, wait) = channel::<()>();
        let sent = domain.handle().apply(&value, move |value| {
            let _ = wait.recv();
            *value
        });
        let mut sent = Some(sent);
        let refused = in_a_child(|| reply(sent.take().unwrap()) == Err(Error::Forked));
        go.send(()).unwrap();
        assert_eq!(sent.take().unwrap().wait(), Ok(1));
        refused
    };
    assert!(is_refused(Reply::wait));
    assert!(is_refused(block_on));
    assert!(is_refused(|mut reply| reply
        .wait_timeout(Duration::from_millis(1))
        .unwrap_or(Ok(0))));
}

#[test]
fn a_child_of_fork_runs_nothing_that_was_asked_in_its_parent() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let domain = Domain::flat(2).build().unwrap();
    let values = domain.own_sharded(2, |_| 0u64).unwrap();
    let other = Domain::flat(1).build().unwrap();
    let value = other.own(0, || 0u64).unwrap();
    let _client = domain.client_at(0).unwrap();
    // Of a seat that this thread holds, and of one that nobody does.
    for shard in [0, 1] {
        let runs = |_: &mut u64| RUNS.fetch_add(1, Ordering::SeqCst);
        let reply = domain.handle().apply(values.at(shard), runs);
        let mut reply = Some(reply);
        let before = RUNS.load(Ordering::SeqCst);
        assert!(in_a_child(|| {
            let refused = reply.take().unwrap().wait() == Err(Error::Forked);
            // The child's own domain has its thread look at all that it holds.
            let own = Domain::flat(1).build().unwrap();
            let here = own.own(0, || 1u64).unwrap();
            let answer = own.handle().apply(&here, |here| *here).wait();
            refused && answer == Ok(1) && RUNS.load(Ordering::SeqCst) == before
        }));
        assert_eq!(reply.take().unwrap().wait(), Ok(before));
    }
    assert_eq!(other.handle().apply_waiting(&value, |value| *value), Ok(0));
}

#[test]
fn a_reply_whose_answer_was_taken_says_so() {
    within(LONG, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let value = domain.own(0, || 5u64).unwrap();
        let time = Duration::from_secs(LONG);
        let taken = || {
            let mut reply = domain.handle().apply(&value, |value| *value);
            assert_eq!(reply.wait_timeout(time), Some(Ok(5)));
            reply
        };
        assert_eq!(taken().wait(), Err(Error::Taken));
        assert_eq!(taken().wait_timeout(time), Some(Err(Error::Taken)));
        assert_eq!(block_on(taken()), Err(Error::Taken));
        assert_eq!(domain.client().unwrap().wait(taken()), Err(Error::Taken));
        let elsewhere = Domain::dedicated(1).build().unwrap();
        let mut refused = elsewhere.handle().apply(&value, |value| *value);
        assert_eq!(refused.wait_timeout(time), Some(Err(Error::Foreign)));
        assert_eq!(refused.wait(), Err(Error::Taken));
    });
}

#[test]
fn a_wait_with_a_time_ends_while_others_ask_without_end() {
    within(LONG, || {
        let domain = Domain::flat(2).build().unwrap();
        let value = domain.own(0, || 0u64).unwrap();
        let slow = Domain::dedicated(1).build().unwrap();
        let of_slow = slow.own(0, || 0u64).unwrap();
        let (go, wait) = channel::<()>();
        let mut reply = slow.handle().apply(&of_slow, move |_| wait.recv().is_ok());
        let (stop, sits) = (AtomicBool::new(false), Barrier::new(2));
        let took = std::thread::scope(|scope| {
            scope.spawn(|| {
                let client = domain.client_at(1).unwrap();
                sits.wait();
                let begun = Instant::now();
                while !stop.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(5) {
                    let add = |value: &mut u64, more| {
                        std::thread::sleep(Duration::from_micros(10));
                        *value += more;
                        *value
                    };
                    client.call_post(&value, add, 1).unwrap();
                }
            });
            let client = domain.client_at(0).unwrap();
            sits.wait();
            std::thread::sleep(Duration::from_millis(20));
            let begun = Instant::now();
            for time in [Duration::from_millis(5), Duration::ZERO] {
                assert!(reply.wait_timeout(time).is_none());
            }
            let took = begun.elapsed();
            stop.store(true, Ordering::Relaxed);
            drop(client);
            took
        });
        go.send(()).unwrap();
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}

#[test]
fn a_future_of_the_own_seat_is_answered_where_it_is_polled() {
    within(LONG, || {
        let domain = Domain::flat(1).build().unwrap();
        let value = domain.own(0, || 0u64).unwrap();
        let (handle, answered) = (domain.handle(), Cell::new(None));
        let client = domain.client().unwrap();
        for round in 1..100 {
            let add = |value: &mut u64| {
                *value += 1;
                *value
            };
            assert_eq!(block_on(handle.apply(&value, add)), Ok(round));
        }
        // In a callback it is answered, too; in a delegated function it waits.
        let then = |_| answered.set(Some(block_on(handle.apply(&value, |value| *value))));
        client.apply_async(&value, |_| (), then).unwrap();
        client.barrier().unwrap();
        assert_eq!(answered.take(), Some(Ok(99)));
        let mut reply = handle.apply(&value, |value| *value);
        let polled = client.apply(&value, move |_| {
            let mut context = Context::from_waker(Waker::noop());
            (Pin::new(&mut reply).poll(&mut context), reply)
        });
        let (polled, reply) = polled.unwrap();
        assert_eq!(polled, Poll::Pending);
        assert_eq!(block_on(reply), Ok(99));
        let value = block_on(domain.own(0, || 7u64).unwrap().into_inner());
        assert_eq!(value, Ok(7));
    });
}
