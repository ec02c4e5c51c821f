//! Many threads, all kinds of calls at once: every call must be counted once, every answer be right,
//! and each client's calls to a shard come in their order.
//!
//! LINEWISE_STRESS_CALLS says how many calls to make in all. As many as a program that makes a million a
//! second does in an hour:
//!
//! `LINEWISE_STRESS_CALLS=3600000000 cargo test -p linewise-delegate --release --test stress -- --nocapture`

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use linewise_delegate::{Builder, Client, Domain, OwnedSlice, Policy};

const CLIENTS: usize = 3;
/// Values of a shard; the first keeps the account.
const VALUES: usize = 50;

/// What a shard knows about its callers.
#[derive(Default)]
struct Ledger {
    /// The number of the last call of each client.
    last: [u64; CLIENTS],
    calls: u64,
    disorder: u64,
}

impl Ledger {
    /// Enters a call: the client in the upper bits, its number in the lower ones.
    fn enter(&mut self, call: u64) -> u64 {
        let (client, number) = ((call >> 40) as usize, call & ((1 << 40) - 1));
        self.disorder += u64::from(number != self.last[client] + 1);
        self.last[client] = number;
        self.calls += 1;
        number
    }
}

/// A value of a shard.
#[derive(Default)]
struct Value {
    ledger: Ledger,
    count: u64,
}

fn count(value: &mut Value, more: u64) -> u64 {
    let before = value.count;
    value.count += more;
    before
}

/// Numbers that look random (Marsaglia's xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }
}

/// One client's calls. Adds to how many it `entered` in each shard's ledger, and returns what it added
/// to the counts of values.
fn call(
    number: usize,
    calls: u64,
    client: &Client<'_>,
    shards: &[OwnedSlice<Value>],
    entered: &mut [u64],
) -> u64 {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + number as u64);
    let ledger = client.prepare(
        |value: &mut Value, entry: u64| value.ledger.enter(entry),
        |entry: u64, answer| assert_eq!(answer, Ok(entry & ((1 << 40) - 1))),
    );
    let mut counted = 0;
    let mut done = 0;
    while done < calls {
        let shard = random.below(shards.len());
        let values = &shards[shard];
        let value = values.at(random.below(VALUES));
        // Some hundred calls of one kind, then another: lines are full, and change.
        let kind = random.below(1000);
        for _ in 0..1 + random.below(300) {
            done += 1;
            let mut enter = || {
                entered[shard] += 1;
                (number as u64) << 40 | entered[shard]
            };
            match kind {
                0..300 => {
                    client.call_async(value, count, 1, |_| ()).unwrap();
                    counted += 1;
                }
                300..450 => {
                    let entry = enter();
                    let enter = |value: &mut Value, entry| value.ledger.enter(entry);
                    client
                        .call_async(values.at(0), enter, entry, move |answer| {
                            assert_eq!(answer, Ok(entry & ((1 << 40) - 1)));
                        })
                        .unwrap();
                }
                450..600 => {
                    let (entry, padding) = (enter(), [done; 4]);
                    client
                        .apply_async(
                            values.at(0),
                            move |value| (value.ledger.enter(entry), padding),
                            move |answer| {
                                assert_eq!(answer, Ok((entry & ((1 << 40) - 1), padding)));
                            },
                        )
                        .unwrap();
                }
                600..700 => {
                    client.call_post(value, count, done % 3).unwrap();
                    counted += done % 3;
                }
                700..850 => {
                    let batch: Vec<_> = (0..1 + random.below(300))
                        .map(|_| enter())
                        .map(|entry| (0, entry, entry))
                        .collect();
                    ledger.call_batch(values, &batch).unwrap();
                    done += batch.len() as u64;
                    break;
                }
                850..980 => {
                    let batch: Vec<_> = (0..1 + random.below(300)).map(|_| enter()).collect();
                    done += batch.len() as u64;
                    let enter = |entry| move |value: &mut Value| (value.ledger.enter(entry), entry);
                    client
                        .apply_each(
                            batch.into_iter().map(|entry| (values.at(0), enter(entry))),
                            |_, answer| {
                                let (number, entry) = answer.unwrap();
                                assert_eq!(number, entry & ((1 << 40) - 1));
                            },
                        )
                        .unwrap();
                    break;
                }
                980..983 => {
                    let entry = enter();
                    let answer = client.apply(values.at(0), |value| value.ledger.enter(entry));
                    assert_eq!(answer, Ok(entry & ((1 << 40) - 1)));
                    // A waiting call is as long as many others.
                    done += 20;
                    break;
                }
                983..985 => {
                    let indexes: Vec<_> = (0..VALUES).collect();
                    client.call_batch(values, count, 1, &indexes).unwrap();
                    counted += VALUES as u64;
                    done += VALUES as u64;
                    break;
                }
                985..987 => {
                    let all = (0..VALUES).map(|index| values.at(index));
                    client.apply_batch(all, |value| count(value, 1)).unwrap();
                    counted += VALUES as u64;
                    done += VALUES as u64;
                    break;
                }
                987..993 => {
                    client.flush();
                    break;
                }
                _ => {
                    client.poll().unwrap();
                    break;
                }
            }
        }
    }
    client.barrier().unwrap();
    counted
}

fn stress(name: &str, builder: Builder, calls: u64) {
    let domain = builder.build().unwrap();
    let shards: Vec<_> = (0..domain.shards())
        .map(|shard| {
            domain
                .own_slice(shard, VALUES, |_| Value::default())
                .unwrap()
        })
        .collect();
    let counted = AtomicU64::new(0);
    let mut entered = vec![vec![0; shards.len()]; CLIENTS];
    std::thread::scope(|scope| {
        for (number, entered) in entered.iter_mut().enumerate() {
            let (domain, shards, counted) = (&domain, &shards, &counted);
            scope.spawn(move || {
                // Clients come and go.
                for _ in 0..4 {
                    let client = domain.client().unwrap();
                    let made = call(number, calls / 4, &client, shards, entered);
                    counted.fetch_add(made, Ordering::Relaxed);
                }
            });
        }
    });
    let client = domain.client().unwrap();
    let sum = Cell::new(0);
    for (shard, values) in shards.iter().enumerate() {
        for index in 0..VALUES {
            sum.set(sum.get() + client.apply(values.at(index), |value| value.count).unwrap());
        }
        let (last, calls, disorder) = client
            .apply(values.at(0), |value| {
                let ledger = &value.ledger;
                (ledger.last, ledger.calls, ledger.disorder)
            })
            .unwrap();
        let expected: Vec<u64> = entered.iter().map(|of_client| of_client[shard]).collect();
        assert_eq!(last.to_vec(), expected, "{name}: the last of each client");
        assert_eq!(
            calls,
            expected.iter().sum(),
            "{name}: calls of shard {shard}"
        );
        assert_eq!(disorder, 0, "{name}: calls of shard {shard} out of order");
    }
    assert_eq!(sum.get(), counted.into_inner(), "{name}: counted once each");
}

/// Makes `calls` in all, divided among every way to set up a domain that changes how requests travel.
fn stress_all(calls: u64) {
    let dedicated = Domain::dedicated;
    let flat = |policy| Domain::flat(CLIENTS + 1).policy(policy);
    let domains = [
        ("dedicated", dedicated(1)),
        ("dedicated, one line", dedicated(2).request_lines(1)),
        ("dedicated, direct", dedicated(2).direct_write()),
        (
            "dedicated, long queue",
            dedicated(3).request_lines(32).pending_queue(500),
        ),
        ("flat queue", flat(Policy::Queue)),
        ("flat blocked", flat(Policy::ServeWhenBlocked)),
        ("flat fast path", flat(Policy::FastPath)),
        ("flat bound", flat(Policy::UpperBound(10))),
        ("flat doorbell", flat(Policy::Doorbell)),
    ];
    let each = calls / (domains.len() * CLIENTS) as u64;
    for (name, builder) in domains {
        let begin = std::time::Instant::now();
        stress(name, builder, each);
        println!(
            "{name}: {} calls in {:.1?}",
            each * CLIENTS as u64,
            begin.elapsed()
        );
    }
}

#[test]
fn no_call_is_lost_doubled_or_out_of_order() {
    let calls = std::env::var("LINEWISE_STRESS_CALLS").map_or(2_000_000, |calls| {
        calls.parse().expect("LINEWISE_STRESS_CALLS is a number")
    });
    stress_all(calls);
}
