//! Every order of execution of the protocols, by loom; both ends of a channel as they are have their models
//! beside them, in `src/models.rs`:
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p linewise-delegate --release --test loom`
//!
//! Without `--cfg loom` this file is empty.
#![cfg(loom)]
#![expect(unsafe_code, reason = "models write a line as its two sides do")]

use linewise_delegate::line::{Line, Order};
use linewise_delegate::shard::{Doorbell, Seat};
use linewise_delegate::wait::Parker;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

fn order(count: u32) -> Order {
    Order {
        count,
        operation: 3,
        alone: false,
    }
}

/// Writes as the side whose turn it is; loom fails if the other side can be in the line.
fn write(line: &Line, value: u32) {
    // SAFETY: the caller's turn, which is what the model checks.
    line.with_words(|words| unsafe { (*words)[0].write(value) });
}

fn read(line: &Line) -> u32 {
    // SAFETY: the caller's turn, after the other side has written, which is what the model checks.
    line.with_words(|words| unsafe { (*words)[0].assume_init() })
}

/// Sleeping and waking, both ways: a server that sleeps for a request, a client that sleeps for the
/// answer. A lost wake-up is a deadlock, which loom reports.
#[test]
fn no_wake_up_is_lost_in_either_direction() {
    loom::model(|| {
        let shared = Arc::new((Line::new(), Parker::new(), Parker::new()));
        let server = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (line, servers, clients) = &*shared;
                while line.asked().is_none() {
                    servers.sleep(|| line.asked().is_some());
                }
                write(line, 7);
                line.answer(0);
                clients.wake_if_asleep();
            })
        };
        let (line, servers, clients) = &*shared;
        write(line, 1);
        line.publish(order(1));
        servers.wake_if_asleep();
        while line.answered().is_none() {
            clients.sleep(|| line.answered().is_some());
        }
        assert_eq!(read(line), 7);
        server.join().unwrap();
    });
}

/// Two passers-by at a free seat: one serves at a time.
#[test]
fn a_seat_has_one_holder() {
    loom::model(|| {
        let shared = Arc::new((Seat::new(), UnsafeCell::new(0u32)));
        let serve = |shared: &(Seat, UnsafeCell<u32>), token: u64| {
            while !shared.0.try_take(token) {
                thread::yield_now();
            }
            // SAFETY: the seat is taken; loom checks that nobody else is in here.
            shared.1.with_mut(|state| unsafe { *state += 1 });
            shared.0.leave();
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || serve(&shared, 2))
        };
        serve(&shared, 1);
        other.join().unwrap();
        assert!(shared.0.is_free());
        // SAFETY: the other thread has ended.
        assert_eq!(shared.1.with(|state| unsafe { *state }), 2);
    });
}

/// A server that leaves (a shutdown, a flat client's end) while a client asks and goes to sleep: the
/// line is answered by the one or the other.
#[test]
fn a_line_sent_to_a_leaving_server_is_answered() {
    loom::model(|| {
        let shared = Arc::new((Line::new(), Seat::new(), Parker::new()));
        assert!(shared.1.try_take(1));
        let answer = |line: &Line| {
            if line.asked().is_some() {
                write(line, read(line) + 1);
                line.answer(0);
                return true;
            }
            false
        };
        let server = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (line, seat, clients) = &*shared;
                // Its last pass.
                if answer(line) {
                    clients.wake_if_asleep();
                }
                seat.leave();
                clients.wake_if_asleep();
            })
        };
        let (line, seat, clients) = &*shared;
        write(line, 1);
        line.publish(order(1));
        while line.answered().is_none() {
            if seat.try_take(2) {
                answer(line);
                seat.leave();
            } else {
                clients.sleep(|| line.answered().is_some() || seat.is_free());
            }
        }
        assert_eq!(read(line), 2);
        server.join().unwrap();
    });
}

/// Errands: queued under a lock, then the bell. Who answers the bell looks into the queue afterwards,
/// so nothing stays behind; a server that sleeps is woken.
#[test]
fn no_errand_is_left_behind_a_bell_that_was_answered() {
    // Three threads have too many orders of execution to try them all: those with at most three
    // preemptions.
    let mut few_preemptions = loom::model::Builder::new();
    few_preemptions.preemption_bound = Some(3);
    few_preemptions.check(|| {
        let shared = Arc::new((Mutex::new(0u32), Doorbell::new(), Parker::new()));
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (errands, bell, servers) = &*shared;
                    *errands.lock().unwrap() += 1;
                    bell.ring();
                    servers.wake_if_asleep();
                })
            })
            .collect();
        let (errands, bell, servers) = &*shared;
        let mut done = 0;
        while done < 2 {
            if bell.answer() {
                done += std::mem::take(&mut *errands.lock().unwrap());
            } else {
                servers.sleep(|| bell.is_rung());
            }
        }
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// The end of a value: its owner is dropped while a request that names it is still in a line being
/// filled. The server ends it when so many lines are answered as were begun by then.
#[test]
fn a_value_outlives_the_requests_made_before_its_owner_was_dropped() {
    loom::model(|| {
        struct Shared {
            line: Line,
            opened: AtomicU64,
            after: Mutex<Option<u64>>,
            bell: Doorbell,
            alive: AtomicBool,
        }
        let shared = Arc::new(Shared {
            line: Line::new(),
            opened: AtomicU64::new(0),
            after: Mutex::new(None),
            bell: Doorbell::new(),
            alive: AtomicBool::new(true),
        });
        let server = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (mut answered, mut after) = (0, None);
                loop {
                    if shared.bell.answer() {
                        after = after.or(*shared.after.lock().unwrap());
                    }
                    if shared.line.asked().is_some() {
                        assert!(shared.alive.load(Ordering::Relaxed), "used after its end");
                        shared.line.answer(0);
                        answered += 1;
                    }
                    if after.is_some_and(|opened| answered >= opened) {
                        shared.alive.store(false, Ordering::Relaxed);
                        return;
                    }
                    thread::yield_now();
                }
            })
        };
        // The client begins a line and names the value in it.
        shared.opened.store(1, Ordering::Release);
        write(&shared.line, 1);
        // Another thread drops the owner: it got it from the client, here by being spawned.
        let dropper = {
            let shared = shared.clone();
            thread::spawn(move || {
                let opened = shared.opened.load(Ordering::Acquire);
                *shared.after.lock().unwrap() = Some(opened);
                shared.bell.ring();
            })
        };
        shared.line.publish(order(1));
        dropper.join().unwrap();
        server.join().unwrap();
    });
}

/// Flat: two threads that ask each other and sleep, each until it is answered or asked. Neither waits
/// for a thread that sleeps.
#[test]
fn two_that_serve_each_other_do_not_both_sleep() {
    let mut few_preemptions = loom::model::Builder::new();
    few_preemptions.preemption_bound = Some(3);
    few_preemptions.check(|| {
        struct Side {
            /// What this side is asked.
            line: Line,
            parker: Parker,
        }
        let side = || Side {
            line: Line::new(),
            parker: Parker::new(),
        };
        let shared = Arc::new([side(), side()]);
        let run = |shared: &[Side; 2], own: usize| {
            let (own, other) = (&shared[own], &shared[1 - own]);
            write(&other.line, 1);
            other.line.publish(order(1));
            other.parker.wake_if_asleep();
            let mut served = false;
            while !served || other.line.answered().is_none() {
                if own.line.asked().is_some() {
                    write(&own.line, read(&own.line) + 1);
                    own.line.answer(0);
                    other.parker.wake_if_asleep();
                    served = true;
                } else {
                    let answered = || served && other.line.answered().is_some();
                    own.parker
                        .sleep(|| own.line.asked().is_some() || answered());
                }
            }
            assert_eq!(read(&other.line), 2);
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || run(&shared, 1))
        };
        run(&shared, 0);
        other.join().unwrap();
    });
}

/// A shutdown: the flag, then the bell. A server that sleeps is woken by it; an errand that another
/// thread sends meanwhile is run or refused, never kept.
#[test]
fn a_shutdown_wakes_the_server_and_keeps_no_errand() {
    #[derive(Default)]
    struct Errands {
        queued: bool,
        sealed: bool,
    }
    struct Shared {
        open: AtomicBool,
        errands: Mutex<Errands>,
        bell: Doorbell,
        parker: Parker,
    }
    impl Shared {
        fn ring(&self) {
            self.bell.ring();
            self.parker.wake_if_asleep();
        }

        /// True if the errand was run.
        fn pass(&self) -> bool {
            self.bell.answer() && std::mem::take(&mut self.errands.lock().unwrap().queued)
        }
    }
    let mut few_preemptions = loom::model::Builder::new();
    few_preemptions.preemption_bound = Some(3);
    few_preemptions.check(|| {
        let shared = Arc::new(Shared {
            open: AtomicBool::new(true),
            errands: Mutex::new(Errands::default()),
            bell: Doorbell::new(),
            parker: Parker::new(),
        });
        let server = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut ran = false;
                while shared.open.load(Ordering::Acquire) {
                    ran |= shared.pass();
                    let over = || !shared.open.load(Ordering::Acquire);
                    shared.parker.sleep(|| shared.bell.is_rung() || over());
                }
                loop {
                    ran |= shared.pass();
                    let mut errands = shared.errands.lock().unwrap();
                    if !errands.queued {
                        errands.sealed = true;
                        return ran;
                    }
                    drop(errands);
                    thread::yield_now();
                }
            })
        };
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut errands = shared.errands.lock().unwrap();
                if errands.sealed {
                    return false;
                }
                errands.queued = true;
                drop(errands);
                shared.ring();
                true
            })
        };
        shared.open.store(false, Ordering::SeqCst);
        shared.ring();
        let sent = sender.join().unwrap();
        assert_eq!(server.join().unwrap(), sent);
    });
}

/// Work for a seat that is being left, from somebody who does not wait in a call: who leaves or who sent
/// it does it.
#[test]
fn what_is_sent_while_a_seat_is_left_is_done() {
    loom::model(|| {
        let shared = Arc::new((Seat::new(), Doorbell::new(), AtomicBool::new(false)));
        /// As a shard's pass and its leaving.
        fn pass((_, bell, done): &(Seat, Doorbell, AtomicBool)) {
            if bell.answer() {
                done.store(true, Ordering::Relaxed);
            }
        }
        fn leave(shared: &(Seat, Doorbell, AtomicBool), token: u64) {
            loop {
                shared.0.leave();
                fence(Ordering::SeqCst);
                if !shared.1.is_rung() || !shared.0.try_take(token) {
                    return;
                }
                pass(shared);
            }
        }
        assert!(shared.0.try_take(1));
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.ring();
                fence(Ordering::SeqCst);
                if shared.0.try_take(2) {
                    pass(&shared);
                    leave(&shared, 2);
                }
            })
        };
        pass(&shared);
        leave(&shared, 1);
        sender.join().unwrap();
        assert!(shared.2.load(Ordering::Relaxed));
    });
}
