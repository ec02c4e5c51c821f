//! Each policy of flat delegation with a greedy client: one that calls its own shard and nothing
//! else. Both clients are of one thread, which takes turns for them, so the outcome does not depend
//! on any scheduler.

use std::cell::Cell;

use linewise_delegate::{Client, Domain, Policy, Target};

fn add(value: &mut u64, operand: u64) -> u64 {
    *value += operand;
    *value
}

/// How many calls on its own shard the greedy client makes until the victim's request is served, at
/// most `most`.
fn calls_until_served(policy: Policy, most: u32) -> Option<u32> {
    let domain = Domain::flat(2).policy(policy).build().unwrap();
    let greedy = domain.client_at(0).unwrap();
    let victim = domain.client_at(1).unwrap();
    let values = domain.own_sharded(2, |_| 0u64).unwrap();
    let served = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mark = served.clone();
    victim
        .post(values.at(0), move |_| {
            mark.store(true, std::sync::atomic::Ordering::Relaxed)
        })
        .unwrap();
    victim.flush();
    let needed = greed(&greedy, values.at(0), most, || {
        served.load(std::sync::atomic::Ordering::Relaxed)
    });
    assert!(needed.is_some() || !served.load(std::sync::atomic::Ordering::Relaxed));
    greedy.poll().unwrap();
    assert!(
        served.load(std::sync::atomic::Ordering::Relaxed),
        "a poll serves"
    );
    needed
}

fn greed(
    client: &Client<'_>,
    own: Target<'_, u64>,
    most: u32,
    done: impl Fn() -> bool,
) -> Option<u32> {
    (1..=most).find(|_| {
        client.call_post(own, add, 1).unwrap();
        done()
    })
}

#[test]
fn queue_serves_after_a_bounded_number_of_own_calls() {
    assert_eq!(calls_until_served(Policy::Queue, 10_000), Some(256));
}

#[test]
fn serve_when_blocked_serves_when_its_own_lines_are_full() {
    // 16 request lines of 63 requests; the call after them serves.
    assert_eq!(
        calls_until_served(Policy::ServeWhenBlocked, 10_000),
        Some(16 * 63 + 1)
    );
}

#[test]
fn fast_path_starves_others_until_it_polls() {
    assert_eq!(calls_until_served(Policy::FastPath, 100_000), None);
}

#[test]
fn upper_bound_serves_after_its_bound() {
    assert_eq!(calls_until_served(Policy::UpperBound(10), 10_000), Some(10));
    assert_eq!(
        calls_until_served(Policy::UpperBound(1000), 10_000),
        Some(1000)
    );
}

#[test]
fn doorbell_serves_when_a_blocked_client_has_rung() {
    let domain = Domain::flat(2).policy(Policy::Doorbell).build().unwrap();
    let greedy = domain.client_at(0).unwrap();
    let value = domain.own(0, || 0u64).unwrap();
    greedy.poll().unwrap();
    // Not rung: the greedy client does as with the fast path.
    let before = domain.shard_stats()[0].passes;
    for _ in 0..10_000 {
        greedy.call_post(&value, add, 1).unwrap();
    }
    assert_eq!(domain.shard_stats()[0].passes, before);
    // A victim that blocks rings, and is served though the greedy client never stops calling.
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let victim = domain.client_at(1).unwrap();
            for _ in 0..200 {
                victim.call(&value, add, 0).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            greedy.call_post(&value, add, 1).unwrap();
        }
        // The victim leaves; nothing it asked is open.
        greedy.poll().unwrap();
    });
}

#[test]
fn clients_that_leave_are_served_by_who_waits() {
    for policy in [
        Policy::Queue,
        Policy::ServeWhenBlocked,
        Policy::FastPath,
        Policy::UpperBound(7),
        Policy::Doorbell,
    ] {
        let domain = Domain::flat(3).policy(policy).build().unwrap();
        let values = domain.own_sharded(3, |_| 0u64).unwrap();
        let answered = Cell::new(0);
        let stays = domain.client_at(0).unwrap();
        {
            let leaves = domain.client_at(1).unwrap();
            for round in 0..3000 {
                leaves.call_post(values.at(round % 3), add, 1).unwrap();
                stays
                    .call_async(values.at(round % 3), add, 1, |_| {
                        answered.set(answered.get() + 1)
                    })
                    .unwrap();
            }
        }
        // Seats 1 and 2 are free now.
        stays.barrier().unwrap();
        assert_eq!(answered.get(), 3000);
        let total = stays.apply_batch((0..3).map(|shard| values.at(shard)), |value| *value);
        assert_eq!(total.unwrap().iter().sum::<u64>(), 6000);
        assert_eq!(
            domain.client_at(0).err(),
            Some(linewise_delegate::Error::NoSeat)
        );
        drop(domain.client_at(1).unwrap());
    }
}
