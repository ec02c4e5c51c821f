//! What one writes by hand: a thread that has the shards, a ring of requests to it and one of answers back.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linewise_delegate::Error as Refused;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::{DRAWN, Outcome, Request, SHARDS, Seen, Shard, Watch, World, run};

/// Requests that change hands at a time.
const CHUNK: usize = 64;
/// Looks in vain before the CPU is given away.
const SPINS: u32 = 2_000;

/// The ends of a thread.
enum Ends {
    Server(Consumer<Request>, Producer<u64>),
    Client(Producer<Request>, Consumer<u64>),
}

/// Waits a little; longer where it was in vain often.
fn rest(looks: &mut u32) {
    *looks += 1;
    if *looks < SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// With at most so many requests on their way.
pub(crate) fn rings(world: &World<'_>, flying: usize) -> Result<Outcome, Refused> {
    let (requests, asked) = RingBuffer::new(flying);
    let (answers, answered) = RingBuffer::new(flying);
    let ends = Mutex::new(vec![
        Ends::Client(requests, answered),
        Ends::Server(asked, answers),
    ]);
    let (over, held) = (AtomicBool::new(false), AtomicU64::new(0));
    let seen = run(&world.cpus[..2], world.time, |_, stop, ready| {
        let end = ends.lock().expect("nobody panics").pop();
        ready.wait();
        match end.expect("one for each thread") {
            Ends::Server(asked, answers) => {
                held.store(serve(asked, answers, &over), Ordering::Relaxed);
                Seen::default()
            }
            Ends::Client(requests, answered) => {
                let seen = ask(&world.requests[1], flying, (requests, answered), stop);
                over.store(true, Ordering::Release);
                seen
            }
        }
    });
    Ok((seen, held.into_inner()))
}

/// Serves until it is over, and counts the writes.
fn serve(mut asked: Consumer<Request>, mut answers: Producer<u64>, over: &AtomicBool) -> u64 {
    let mut shards: Vec<Shard> = (0..SHARDS).map(Shard::new).collect();
    let mut looks = 0;
    while !over.load(Ordering::Acquire) {
        let count = asked.slots().min(CHUNK);
        let (Ok(requests), Ok(room)) = (asked.read_chunk(count), answers.write_chunk_uninit(count))
        else {
            continue;
        };
        if count == 0 {
            rest(&mut looks);
            continue;
        }
        looks = 0;
        let serve = |request: Request| shards[request.shard()].serve(request);
        room.fill_from_iter(requests.into_iter().map(serve));
    }
    shards.iter().map(Shard::writes).sum()
}

/// Asks until the time is over, and takes all answers.
fn ask(
    drawn: &[Request],
    flying: usize,
    (mut requests, mut answered): (Producer<Request>, Consumer<u64>),
    stop: &AtomicBool,
) -> Seen {
    let watch = Watch::new();
    let mut times = VecDeque::with_capacity(flying);
    let (mut done, mut writes, mut sum, mut looks) = (0, 0, 0_u64, 0);
    loop {
        let stops = stop.load(Ordering::Relaxed);
        let mut worked = false;
        // Answers come before the server has given the room of their requests back.
        if !stops
            && times.len() + CHUNK <= flying
            && let Ok(room) = requests.write_chunk_uninit(CHUNK)
        {
            room.fill_from_iter((0..CHUNK).map(|_| {
                let request = drawn[done % DRAWN];
                writes += u64::from(request.writes());
                times.push_back(watch.start(done));
                done += 1;
                request
            }));
            worked = true;
        }
        let count = answered.slots();
        if count > 0 {
            let answers = answered.read_chunk(count).expect("they are there");
            for answer in answers {
                sum = sum.wrapping_add(answer);
                watch.stop(times.pop_front().expect("asked before"));
            }
            worked = true;
        }
        if worked {
            looks = 0;
        } else if stops && times.is_empty() {
            break;
        } else {
            rest(&mut looks);
        }
    }
    std::hint::black_box(sum);
    Seen {
        requests: done as u64,
        writes,
        latencies_ns: watch.latencies_ns.into_inner(),
    }
}
