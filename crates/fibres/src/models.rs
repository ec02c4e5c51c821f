//! Every order of execution, by loom, of what workers agree on without a lock: how a fibre waits and is
//! woken, moves, is stolen, ends, and how a worker sleeps.

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicU32 as Flag, Ordering};
use loom::thread;

use crate::atomic::AtomicU32;
use crate::bell::{Bell, Park};
use crate::lane::Lane;
use crate::sync::Mutex;
use crate::task::Ending;
use crate::token::Token;
use crate::wait::wait_for;

/// What one thread writes and another reads: loom tells where neither is ordered before the other.
struct Data(UnsafeCell<u32>);

// SAFETY: loom watches the accesses.
unsafe impl Sync for Data {}
// SAFETY: as above.
unsafe impl Send for Data {}

impl Data {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn add(&self) {
        // SAFETY: loom watches it.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: loom watches it.
        self.0.with(|value| unsafe { *value })
    }
}

/// Two wake a fibre that waits; its stack is run on by one at a time, and no wake-up is lost.
#[test]
fn a_waiting_fibre_is_run_by_one() {
    loom::model(|| {
        let token = Arc::new(Token::new());
        let stack = Arc::new(Data::new());
        let woken = Arc::new(Flag::new(0));
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let (token, stack, woken) = (token.clone(), stack.clone(), woken.clone());
                thread::spawn(move || {
                    woken.fetch_add(1, Ordering::Relaxed);
                    if token.notify() {
                        stack.add();
                    }
                })
            })
            .collect();
        // The fibre ran here; it leaves its stack to wait.
        stack.add();
        if !token.settle() {
            // Woken before: it goes on here.
            assert!(woken.load(Ordering::Relaxed) > 0);
            stack.add();
        }
        for waker in wakers {
            waker.join().unwrap();
        }
        // One continued it. The second wake-up may be kept for the next time.
        let runs = stack.get();
        assert_eq!(runs, 2, "the fibre is lost, or was run twice");
    });
}

/// A fibre that moves: what it left on its stack is seen where it goes on, in its order.
#[test]
fn fibres_move_in_order_with_what_they_wrote() {
    loom::model(|| {
        let lane = Arc::new(Lane::new());
        let stacks: Arc<Vec<Data>> = Arc::new((0..3).map(|_| Data::new()).collect());
        let sender = {
            let (lane, stacks) = (lane.clone(), stacks.clone());
            thread::spawn(move || {
                let mut refused = 0;
                for (index, stack) in stacks.iter().enumerate() {
                    stack.add();
                    // SAFETY: this thread alone writes; the values are even and not 0.
                    if !unsafe { lane.push((index + 1) * 2, index) } {
                        refused += 1;
                        break;
                    }
                }
                refused
            })
        };
        let mut taken = 0;
        for _ in 0..3 {
            // SAFETY: this thread alone reads.
            let Some((value, hint)) = (unsafe { lane.pop() }) else {
                thread::yield_now();
                continue;
            };
            assert_eq!((value / 2 - 1, hint), (taken, taken));
            assert_eq!(stacks[taken].get(), 1);
            taken += 1;
        }
        let refused = sender.join().unwrap();
        // SAFETY: as above.
        while let Some((value, _)) = unsafe { lane.pop() } {
            assert_eq!(value / 2 - 1, taken);
            assert_eq!(stacks[taken].get(), 1);
            taken += 1;
        }
        assert_eq!(taken + refused, if refused == 0 { 3 } else { taken + 1 });
        assert!(taken >= 2, "a ring of two takes two");
    });
}

/// Sleeps until woken: loom finds a sleep that nobody ends.
struct Sleep(Arc<Notify>);

impl Park for Sleep {
    fn sleep(&self, _: &AtomicU32, _: Option<Duration>) {
        self.0.wait();
    }

    fn wake(&self, _: &AtomicU32) {
        self.0.notify();
    }
}

/// A worker falls asleep while another sends it a fibre: first without the fence, then for certain.
#[test]
fn a_worker_does_not_oversleep_what_is_sent() {
    loom::model(|| {
        let bell = Arc::new(Bell::new(Box::new(Sleep(Arc::new(Notify::new())))));
        let lane = Arc::new(Lane::new());
        let sender = {
            let (bell, lane) = (bell.clone(), lane.clone());
            thread::spawn(move || {
                // SAFETY: this thread alone writes.
                assert!(unsafe { lane.push(2, 0) });
                bell.ring_soon();
                bell.ring();
            })
        };
        // SAFETY: this thread alone reads.
        unsafe {
            while lane.pop().is_none() {
                bell.sleep(None, || lane.is_filled());
            }
        }
        sender.join().unwrap();
    });
}

/// Who waits for the end of a fibre sees what it left.
#[test]
fn the_end_is_seen_by_the_one_who_waits() {
    loom::model(|| {
        let shared = Arc::new((Ending::new(), Data::new()));
        let ends = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.add();
                if let Some(waiter) = shared.0.end() {
                    waiter.wake();
                }
            })
        };
        wait_for(&shared.0).unwrap();
        assert_eq!(shared.1.get(), 1);
        ends.join().unwrap();
    });
}

/// The mutex: one at a time, and nobody waits for ever.
#[test]
fn a_mutex_is_handed_on() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((Mutex::new(()), Data::new()));
        let add = |shared: &(Mutex<()>, Data)| {
            let guard = shared.0.lock();
            shared.1.add();
            drop(guard);
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || add(&shared))
            })
            .collect();
        add(&shared);
        for thread in threads {
            thread.join().unwrap();
        }
        let guard = shared.0.lock();
        assert_eq!(shared.1.get(), 3);
        drop(guard);
    });
}
