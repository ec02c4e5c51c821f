//! Every order of execution of both ends of a channel as they are, by loom: [`Lane`] asks, [`ServerEnd`]
//! answers. What they hand to each other is in cells that loom watches. The other protocols are modelled in
//! `tests/loom.rs`.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::channel::{Channel, ServerEnd};
use crate::closure::{Closure, Single};
use crate::error::Error;
use crate::job::{Kind, put_callback};
use crate::lane::{Lane, Sort};
use crate::shard::Seat;
use crate::stats::ClientCounters;
use crate::wait::Parker;

type Function = fn(&mut u32) -> u32;
type Answers = RefCell<Vec<Result<u32, Error>>>;

/// A place for one value, at which requests are aimed with the offset 0.
#[repr(align(64))]
struct Memory(u32);

/// Both ends of a ring of two lines.
fn channel() -> (Lane, ServerEnd, Arc<Parker>) {
    let parker = Arc::new(Parker::new());
    let channel = Arc::new(Channel::new(2, parker.clone()));
    let lane = Lane::new(channel.clone(), false);
    (lane, ServerEnd::new(channel), parker)
}

/// Adds one and returns what was there.
fn next(value: &mut u32) -> u32 {
    assert!(*value < 100, "asked to fail");
    *value += 1;
    *value - 1
}

/// The kind of requests whose callback keeps the answer.
fn kind<C: FnOnce(Result<u32, Error>)>(_: &C) -> &'static Kind {
    Single::<u32, Function, u32, C>::KIND
}

/// Fills a line with one request and sends it, or puts it into the queue where no request line is free.
fn ask(lane: &mut Lane, answers: &Answers) {
    let then = |answer| answers.borrow_mut().push(answer);
    let kind = kind(&then);
    let in_place = lane.pending() == 0 && lane.has_free_line();
    lane.open(&Sort::of(kind), in_place);
    // SAFETY: the line was begun for this kind, and has room for its first request.
    unsafe {
        lane.put(
            1,
            kind.words,
            kind.callback_bytes,
            kind.capacity,
            |words, callbacks| {
                Closure::<u32, Function, u32>::write(words, 0, next);
                put_callback(callbacks, then);
            },
        );
    }
    lane.close();
}

/// Waits until a line has come back, and gives its answers to its callbacks.
fn collect(lane: &mut Lane, counters: &ClientCounters) {
    loop {
        if let Some(done) = lane.collect(counters) {
            // SAFETY: this is the line's only time.
            unsafe { done.give(&Cell::new(0)) };
            lane.settle(&done);
            lane.send_pending(counters);
            return;
        }
        thread::yield_now();
    }
}

/// Serves until so many lines are answered.
fn serve(mut end: ServerEnd, lines: u64) -> u32 {
    let mut memory = Memory(0);
    let mut answered = 0;
    while answered < lines {
        if !end.is_asked() {
            thread::yield_now();
            continue;
        }
        // SAFETY: the requests name the value there, and this thread alone serves.
        answered += unsafe { end.serve((&raw mut memory).cast(), false) }.lines;
    }
    assert_eq!(end.done(), lines);
    memory.0
}

/// Three lines in a ring of two: the third waits in the queue.
#[test]
fn lines_are_answered_in_order_and_once() {
    loom::model(|| {
        let (mut lane, end, _) = channel();
        let server = thread::spawn(move || serve(end, 3));
        let (answers, counters) = (Answers::default(), ClientCounters::default());
        for _ in 0..3 {
            ask(&mut lane, &answers);
        }
        for _ in 0..3 {
            collect(&mut lane, &counters);
        }
        assert!(lane.is_idle());
        let answers: Vec<_> = answers
            .into_inner()
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(answers, [0, 1, 2]);
        assert_eq!(server.join().unwrap(), 3);
    });
}

/// The one request of a waiting call, twice, and a line of the usual sort after it.
#[test]
fn a_request_that_is_sent_alone_is_answered() {
    loom::model(|| {
        let (mut lane, end, _) = channel();
        let server = thread::spawn(move || serve(end, 3));
        let (answers, counters) = (Answers::default(), ClientCounters::default());
        let then = |_| ();
        for round in 0..2 {
            lane.send_alone(kind(&then), |words| {
                // SAFETY: the line has room for one request.
                unsafe { Closure::<u32, Function, u32>::write(words, 0, next) };
            });
            while !lane.is_answered() {
                thread::yield_now();
            }
            let answer = lane.collect_alone(&counters, |answers| {
                // SAFETY: the line holds it, and it is taken once.
                unsafe { Closure::<u32, Function, u32>::answer(answers, 0) }
            });
            assert_eq!(answer.unwrap(), round);
        }
        ask(&mut lane, &answers);
        collect(&mut lane, &counters);
        assert_eq!(answers.into_inner().remove(0).unwrap(), 2);
        assert_eq!(server.join().unwrap(), 3);
    });
}

/// A request that throws: its line comes back with the failure.
#[test]
fn a_failure_comes_back_with_its_line() {
    loom::model(|| {
        let (mut lane, mut end, _) = channel();
        let server = thread::spawn(move || {
            let mut memory = Memory(100);
            while !end.is_asked() {
                thread::yield_now();
            }
            // SAFETY: the requests name the value there, and this thread alone serves.
            unsafe { end.serve((&raw mut memory).cast(), false) };
        });
        let (answers, counters) = (Answers::default(), ClientCounters::default());
        ask(&mut lane, &answers);
        collect(&mut lane, &counters);
        assert!(matches!(
            answers.into_inner()[..],
            [Err(Error::Panicked(_))]
        ));
        server.join().unwrap();
    });
}

/// A client that sleeps for its answer, which the server's visit wakes.
#[test]
fn a_client_that_sleeps_is_woken_by_the_visit() {
    loom::model(|| {
        let (mut lane, end, parker) = channel();
        let server = thread::spawn(move || serve(end, 1));
        let (answers, counters) = (Answers::default(), ClientCounters::default());
        ask(&mut lane, &answers);
        while !lane.is_answered() {
            parker.sleep(|| lane.is_answered());
        }
        collect(&mut lane, &counters);
        assert_eq!(answers.into_inner().remove(0).unwrap(), 0);
        server.join().unwrap();
    });
}

/// Whoever has the seat serves: a thread that passes by, and the client itself where it waits.
#[test]
fn the_ends_of_a_channel_go_from_one_holder_of_the_seat_to_the_next() {
    struct Served(UnsafeCell<(ServerEnd, Memory)>);
    // SAFETY: the holder of the seat alone is in the cell, which loom checks.
    unsafe impl Sync for Served {}
    // SAFETY: it is touched where the seat is held.
    unsafe impl Send for Served {}
    fn pass(shared: &(Seat, Served), holder: u64) {
        if !shared.0.try_take(holder) {
            return thread::yield_now();
        }
        shared.1.0.with_mut(|state| {
            // SAFETY: the seat is taken.
            let (end, memory) = unsafe { &mut *state };
            // SAFETY: the requests name the value there, and the holder of the seat alone serves.
            unsafe { end.serve((&raw mut *memory).cast(), false) };
        });
        shared.0.leave();
    }
    loom::model(|| {
        let (mut lane, end, _) = channel();
        let shared = Arc::new((Seat::new(), Served(UnsafeCell::new((end, Memory(0))))));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || pass(&shared, 2))
        };
        let (answers, counters) = (Answers::default(), ClientCounters::default());
        for _ in 0..2 {
            ask(&mut lane, &answers);
        }
        while answers.borrow().len() < 2 {
            pass(&shared, 1);
            while lane.is_answered() {
                collect(&mut lane, &counters);
            }
        }
        let answers: Vec<_> = answers
            .into_inner()
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(answers, [0, 1]);
        other.join().unwrap();
    });
}
