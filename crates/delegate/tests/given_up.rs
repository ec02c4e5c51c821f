//! Clients that are dropped in callbacks, where they may not wait, keep nothing. Alone in its process, whose
//! memory it looks at.

use linewise_delegate::{Client, Domain};

/// Bytes of this process: reserved, and in memory.
fn bytes() -> [usize; 2] {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    let mut pages = sizes
        .split(' ')
        .map(|pages| pages.parse::<usize>().unwrap());
    [(); 2].map(|()| pages.next().unwrap() * 4096)
}

/// Gives up clients of `domain` in callbacks of another, each after `ask`.
fn give_up(domain: &Domain, count: usize, ask: impl Fn(&Client<'static>)) {
    let other = Domain::dedicated(1).build().unwrap();
    let value = other.own(0, || 0u64).unwrap();
    let client = other.client().unwrap();
    for _ in 0..count {
        let gone = domain.client().unwrap();
        ask(&gone);
        client
            .apply_async(&value, |_| (), move |_| drop(gone))
            .unwrap();
        client.barrier().unwrap();
    }
}

fn round(clients: usize) {
    let domain = Domain::dedicated(2).build().unwrap();
    let values = domain.own_sharded(2, |_| 0usize).unwrap();
    give_up(&domain, clients, |gone| {
        for index in 0..100 {
            gone.post(values.at(index % 2), |value| *value += 1)
                .unwrap();
        }
    });
    let client = domain.client().unwrap();
    let sum = |mut part: linewise_delegate::Part<'_, usize>| {
        let values = part.iter_mut().map(|(_, value)| *value);
        values.sum::<usize>()
    };
    let sums = client.broadcast(&values, sum).unwrap();
    assert_eq!(sums.iter().sum::<usize>(), 100 * clients);
    assert_eq!(domain.client_stats().len(), clients + 1);
}

#[test]
fn clients_that_are_given_up_keep_no_memory() {
    round(50);
    // The allocator keeps what several threads freed as it likes, but what is lost is lost each time.
    let growths = [(); 5].map(|()| {
        let before = bytes();
        round(500);
        let now = bytes();
        [0, 1].map(|which| now[which].saturating_sub(before[which]))
    });
    let least = |which: usize| growths.map(|it| it[which]).into_iter().min().unwrap();
    let [reserved, resident] = [0, 1].map(least);
    // The address sanitizer keeps what was freed for a while.
    let keeps = std::env::var_os("ASAN_OPTIONS").is_some();
    assert!(
        keeps || resident < 4 << 20,
        "{growths:?} bytes for 500 clients each"
    );
    // The memory of the domain's shards is given back, too.
    assert!(reserved < 32 << 30, "{growths:?} bytes are reserved");
}
