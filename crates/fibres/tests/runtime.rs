//! The runtime as users see it.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linewise_fibres::{
    Error, JoinError, Runtime, blocking, current, is_fibre, migrate, park, sleep, spawn, visit,
    yield_now,
};

/// A runtime with pools of so many workers.
fn runtime(pools: &[(&str, usize)]) -> Runtime {
    let builder = Runtime::builder();
    let builder = pools.iter().fold(builder, |builder, (name, workers)| {
        builder.pool(name, *workers)
    });
    // SAFETY: the tests' fibres hold nothing over a waiting call that belongs to their thread.
    unsafe { builder.start() }.unwrap()
}

fn thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

#[test]
fn values_and_panics_come_back() {
    let runtime = runtime(&[("one", 1)]);
    let handle = runtime.spawn(|| {
        let inner = spawn(|| vec![1, 2, 3]).unwrap();
        inner.join().unwrap().len()
    });
    assert_eq!(handle.unwrap().join().unwrap(), 3);
    let thrown = runtime.spawn(|| -> u32 { std::panic::resume_unwind(Box::new("no luck")) });
    let error = thrown.unwrap().join().unwrap_err();
    assert!(matches!(&error, JoinError::Panicked(payload) if payload.is::<&str>()));
    assert_eq!(error.to_string(), "the fibre panicked: no luck");
}

#[test]
fn a_fibre_moves_to_a_pool_and_a_visit_comes_back_to_its_thread() {
    let runtime = runtime(&[("front", 1), ("data", 1)]);
    let data = runtime.pool("data").unwrap();
    let seen = runtime
        .spawn(move || {
            let before = thread();
            let borrowed = String::from("seen");
            let there = visit(&data, || format!("{} {borrowed}", thread()));
            let after = thread();
            // SAFETY: nothing of this frame belongs to the thread.
            unsafe { migrate(&data) };
            (before, there, after, thread())
        })
        .unwrap();
    let seen = seen.join().unwrap();
    let expected = ["front 0", "data 1 seen", "front 0", "data 1"];
    assert_eq!([&*seen.0, &*seen.1, &*seen.2, &*seen.3], expected);
}

#[test]
fn a_thread_visits_too_and_gets_the_panic() {
    let runtime = runtime(&[("data", 1)]);
    let data = runtime.pool("data").unwrap();
    let mut count = 0;
    assert_eq!(
        visit(&data, || {
            count += 1;
            thread()
        }),
        "data 0"
    );
    assert_eq!(count, 1);
    let thrown = std::panic::catch_unwind(|| {
        visit(&data, || std::panic::resume_unwind(Box::new(7_u8)));
    });
    assert_eq!(*thrown.unwrap_err().downcast::<u8>().unwrap(), 7);
}

#[test]
fn whoever_gives_way_is_not_starved() {
    let runtime = runtime(&[("one", 1)]);
    let turns: Arc<Vec<AtomicUsize>> = Arc::new((0..100).map(|_| AtomicUsize::new(0)).collect());
    let done = Arc::new(AtomicU32::new(0));
    for index in 0..99 {
        let (turns, done) = (turns.clone(), done.clone());
        runtime
            .spawn(move || {
                while done.load(Ordering::Relaxed) == 0 {
                    turns[index].fetch_add(1, Ordering::Relaxed);
                    yield_now();
                }
            })
            .unwrap();
    }
    let greedy = {
        let (turns, done) = (turns.clone(), done.clone());
        runtime
            .spawn(move || {
                for _ in 0..50 {
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_micros(500) {}
                    turns[99].fetch_add(1, Ordering::Relaxed);
                    yield_now();
                }
                done.store(1, Ordering::Relaxed);
            })
            .unwrap()
    };
    greedy.join().unwrap();
    runtime.wait();
    let counts: Vec<_> = turns.iter().map(|it| it.load(Ordering::Relaxed)).collect();
    let least = counts[..99].iter().min().unwrap();
    assert!(*least >= 49, "{counts:?}");
}

#[test]
fn sleeping_fibres_let_others_run() {
    let runtime = runtime(&[("one", 1)]);
    let begun = Instant::now();
    let handles: Vec<_> = (0..50)
        .map(|_| runtime.spawn(|| sleep(Duration::from_millis(20))).unwrap())
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(20), "{took:?}");
    assert!(
        took < Duration::from_millis(900),
        "{took:?}: one after the other"
    );
}

#[test]
fn an_unpark_before_the_park_counts() {
    let runtime = runtime(&[("one", 1), ("two", 1)]);
    for _ in 0..200 {
        let (tell, told) = std::sync::mpsc::channel();
        let waits = runtime.spawn(move || {
            assert!(is_fibre());
            tell.send(current()).unwrap();
            park();
        });
        told.recv().unwrap().unpark();
        waits.unwrap().join().unwrap();
    }
}

#[test]
fn work_is_stolen_within_a_pool_and_not_across() {
    let runtime = runtime(&[("three", 3), ("other", 1)]);
    let threads = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let first = {
        let threads = threads.clone();
        runtime.spawn(move || {
            for _ in 0..60 {
                let threads = threads.clone();
                spawn(move || {
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_millis(1) {}
                    threads.lock().unwrap().insert(thread());
                })
                .unwrap();
            }
        })
    };
    first.unwrap().join().unwrap();
    runtime.wait();
    let threads = threads.lock().unwrap();
    assert!(threads.len() > 1, "{threads:?}");
    assert!(
        threads.iter().all(|it| it.starts_with("three")),
        "{threads:?}"
    );
}

#[test]
fn shutdown_cancels_who_waits_and_runs_its_destructors() {
    struct Told(Arc<AtomicU32>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicU32::new(0));
    let runtime = runtime(&[("one", 1), ("two", 2)]);
    let mut handles = Vec::new();
    for pool in runtime.pools() {
        for _ in 0..100 {
            let told = Told(dropped.clone());
            handles.push(pool.spawn(move || {
                let _told = told;
                loop {
                    park();
                }
            }));
        }
    }
    let sleeper = runtime.spawn(|| sleep(Duration::from_secs(1000))).unwrap();
    sleep(Duration::from_millis(20));
    let pool = runtime.pool("one").unwrap();
    runtime.shut_down();
    assert_eq!(dropped.load(Ordering::Relaxed), 200);
    for handle in handles {
        assert!(matches!(handle.unwrap().join(), Err(JoinError::Cancelled)));
    }
    assert!(matches!(sleeper.join(), Err(JoinError::Cancelled)));
    assert!(matches!(pool.spawn(|| ()), Err(Error::ShuttingDown)));
}

#[test]
fn threads_that_spawn_while_the_runtime_ends_are_refused_and_cost_no_stacks() {
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().count()
    };
    let mut before = 0;
    for round in 0..40 {
        let runtime = runtime(&[("two", 2)]);
        let pool = runtime.pool("two").unwrap();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let pool = pool.clone();
                std::thread::spawn(move || {
                    while pool.spawn(|| ()).is_ok() {}
                    (0..2000).filter(|_| pool.spawn(|| ()).is_ok()).count()
                })
            })
            .collect();
        sleep(Duration::from_micros(500));
        runtime.shut_down();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), 0);
        }
        if round == 20 {
            before = mapped();
        }
    }
    // A slab of stacks has hundreds of mappings where guards split it, and 2000 refusals would take ten.
    assert!(mapped() < before + 4000, "{before} {}", mapped());
}

#[test]
fn a_blocking_call_of_a_fibre_does_not_wait_for_its_own_runtime() {
    let one = Arc::new(runtime(&[("one", 1)]));
    let other = runtime(&[("other", 1)]);
    let own = one.clone();
    let refused = one.spawn(move || {
        blocking(|| {
            // Another runtime does not wait for this fibre.
            other.wait();
            let wait = std::panic::AssertUnwindSafe(|| own.wait());
            std::panic::catch_unwind(wait).is_err()
        })
    });
    assert!(refused.unwrap().join().unwrap());
    one.wait();
    // Nor does the end of it, where the call has it.
    let one = runtime(&[("one", 1)]);
    let pool = one.pool("one").unwrap();
    let ends = pool.spawn(move || blocking(move || drop(one)));
    let _ = ends.unwrap().join();
}

#[test]
fn who_gives_way_for_ever_is_cancelled_too() {
    let runtime = runtime(&[("one", 1), ("two", 2)]);
    let handles: Vec<_> = runtime
        .pools()
        .iter()
        .flat_map(|pool| (0..3).map(move |_| pool.spawn(loop_on_yield)))
        .collect();
    sleep(Duration::from_millis(10));
    runtime.shut_down();
    for handle in handles {
        assert!(matches!(handle.unwrap().join(), Err(JoinError::Cancelled)));
    }
}

fn loop_on_yield() {
    loop {
        yield_now();
    }
}

#[test]
fn plans_that_cannot_be_are_refused() {
    // SAFETY: none of these starts.
    unsafe {
        assert!(matches!(Runtime::builder().start(), Err(Error::Plan(_))));
        let empty = Runtime::builder().pool("none", 0).start();
        assert!(matches!(empty, Err(Error::Plan(_))));
        let twice = Runtime::builder().pool("a", 1).pool("a", 1).start();
        assert!(matches!(twice, Err(Error::Plan(_))));
        let shared = Runtime::builder()
            .pinned_pool("a", &[0])
            .pinned_pool("b", &[0])
            .start();
        assert!(matches!(shared, Err(Error::Plan(_))));
        let nowhere = Runtime::builder().pinned_pool("a", &[0, 100_000]).start();
        assert!(matches!(nowhere, Err(Error::System { .. })));
    }
    assert!(matches!(spawn(|| ()), Err(Error::NoFibre)));
}

#[test]
fn a_million_moves_between_four_pools_lose_nobody() {
    let runtime = runtime(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    let pools = Arc::new(runtime.pools());
    let (fibres, moves) = (
        64,
        if cfg!(debug_assertions) {
            4_000
        } else {
            15_625
        },
    );
    let handles: Vec<_> = (0..fibres)
        .map(|first| {
            let pools = pools.clone();
            runtime
                .spawn(move || {
                    let mut at = first;
                    for step in 0..moves {
                        at = (at * 31 + step * 7 + 1) % 4;
                        // SAFETY: nothing of this frame belongs to the thread.
                        unsafe { migrate(&pools[at]) };
                        if step % 100 == 0 {
                            yield_now();
                        }
                    }
                    moves
                })
                .unwrap()
        })
        .collect();
    let sum: usize = handles.into_iter().map(|it| it.join().unwrap()).sum();
    assert_eq!(sum, fibres * moves);
}

#[test]
fn bodies_and_values_of_any_size_and_alignment_go_along() {
    #[derive(Clone, Copy)]
    #[repr(align(256))]
    struct Aligned([u8; 3000]);

    let runtime = runtime(&[("one", 1), ("two", 1)]);
    for pool in runtime.pools() {
        let large = Aligned([7; 3000]);
        let handle = pool.spawn(move || {
            assert_eq!((&raw const large).addr() % 256, 0);
            large
        });
        let value = handle.unwrap().join().unwrap();
        assert!(value.0.iter().all(|byte| *byte == 7));
        assert!(pool.spawn(|| ()).unwrap().join().is_ok());
    }
}

#[test]
fn times_beyond_all_clocks_can_be_waited_for() {
    let runtime = runtime(&[("one", 1)]);
    let waits = runtime.spawn(|| {
        let me = current();
        spawn(move || me.unpark()).unwrap();
        linewise_fibres::park_timeout(Duration::MAX);
    });
    waits.unwrap().join().unwrap();
    let sleeps = runtime.spawn(|| sleep(Duration::MAX)).unwrap();
    runtime.shut_down();
    assert!(matches!(sleeps.join(), Err(JoinError::Cancelled)));
}

/// Visits a pool as it is dropped, and counts the visits.
struct Visits(linewise_fibres::Pool, Arc<AtomicU32>);

impl Drop for Visits {
    fn drop(&mut self) {
        visit(&self.0, || self.1.fetch_add(1, Ordering::Relaxed));
    }
}

#[test]
fn destructors_visit_while_their_fibre_unwinds_or_is_cancelled() {
    let count = Arc::new(AtomicU32::new(0));
    let runtime = runtime(&[("front", 1), ("data", 1)]);
    let pools = runtime.pools();
    for pool in &pools {
        let visits = Visits(pool.clone(), count.clone());
        let thrown = runtime.spawn(move || {
            let _visits = visits;
            std::panic::resume_unwind(Box::new("thrown"))
        });
        let thrown: Result<(), _> = thrown.unwrap().join();
        assert!(matches!(thrown, Err(JoinError::Panicked(_))));
        let visits = Visits(pool.clone(), count.clone());
        let waits = runtime.spawn(move || {
            let _visits = visits;
            loop {
                park();
            }
        });
        drop(waits.unwrap());
    }
    sleep(Duration::from_millis(5));
    runtime.shut_down();
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

#[test]
fn a_shutdown_waits_for_visits_of_who_unwinds() {
    let count = Arc::new(AtomicU32::new(0));
    let runtime = runtime(&[("front", 1), ("data", 1)]);
    let visits = Visits(runtime.pool("data").unwrap(), count.clone());
    let slow = runtime.spawn(move || {
        let _visits = visits;
        struct Slow;
        impl Drop for Slow {
            fn drop(&mut self) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let _first = Slow;
        std::panic::resume_unwind(Box::new("thrown"))
    });
    let _handle: linewise_fibres::JoinHandle<()> = slow.unwrap();
    sleep(Duration::from_millis(10));
    runtime.shut_down();
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_new_fibre_behind_one_that_computes_is_taken_by_an_idle_worker() {
    let runtime = runtime(&[("two", 2)]);
    for _ in 0..20 {
        let (tell, told) = std::sync::mpsc::channel();
        let holds = runtime.spawn(move || (told.recv().unwrap(), told.recv().unwrap()));
        sleep(Duration::from_millis(1));
        for index in 0..2 {
            let tell = tell.clone();
            runtime.spawn(move || tell.send(index).unwrap()).unwrap();
        }
        holds.unwrap().join().unwrap();
    }
}

#[test]
fn fibres_have_numbers_of_their_own_in_all_runtimes() {
    let mut seen = std::collections::BTreeSet::new();
    for runtime in [runtime(&[("a", 1)]), runtime(&[("b", 1)])] {
        seen.insert(runtime.spawn(|| ()).unwrap().id());
        let inner = runtime.spawn(|| {
            (0..10)
                .map(|_| spawn(|| ()).unwrap().id())
                .collect::<Vec<_>>()
        });
        seen.extend(inner.unwrap().join().unwrap());
    }
    assert_eq!(seen.len(), 22);
}
