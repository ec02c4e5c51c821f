//! A domain at rest leaves the CPU alone. By CPU time of this process, which has no other test: how
//! long things take here does not matter.

use std::time::Duration;

use linewise_delegate::Domain;

/// CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    #[expect(unsafe_code, reason = "the standard library does not tell")]
    // SAFETY: the clock is that of every process, and the place is valid.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time that passes while this thread sleeps: the least of some attempts, since a busy machine
/// lengthens what little is done.
fn used_in(pause: Duration, mut before: impl FnMut()) -> Duration {
    let attempt = || {
        before();
        let begin = cpu_time();
        std::thread::sleep(pause);
        cpu_time() - begin
    };
    std::iter::repeat_with(attempt)
        .take(20)
        .min()
        .expect("attempts")
}

#[test]
fn a_domain_rests_after_a_millisecond_and_so_does_who_waits() {
    const SERVERS: u32 = 4;
    let domain = Domain::dedicated(SERVERS as usize).build().unwrap();
    let values = domain.own_sharded(SERVERS as usize, |_| 0u64).unwrap();
    let client = domain.client().unwrap();
    let wake = || {
        let all = (0..values.len()).map(|index| values.at(index));
        client.apply_batch(all, |value| *value += 1).unwrap();
    };

    // Awake, until each server sleeps: a millisecond of its CPU time at most.
    let settling = used_in(Duration::from_millis(50), wake);
    assert!(
        settling < Duration::from_millis(1) * SERVERS,
        "{settling:?}"
    );

    // Asleep: 4 servers that did nothing but poll would use 400 ms or all there is.
    let resting = used_in(Duration::from_millis(100), || ());
    assert!(resting < Duration::from_millis(1), "{resting:?}");

    // A client that waits long for an answer sleeps too.
    let begin = cpu_time();
    client
        .apply(values.at(0), |_| {
            std::thread::sleep(Duration::from_millis(200));
        })
        .unwrap();
    let waiting = cpu_time() - begin;
    assert!(waiting < Duration::from_millis(20), "{waiting:?}");
}
