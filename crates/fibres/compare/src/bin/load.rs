//! A closed loop of clients: each sends its next request, or batch of them, when all answers have come.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

#[derive(Clone)]
struct Plan {
    target: SocketAddr,
    is_kv: bool,
    path: String,
    connections: usize,
    threads: usize,
    batch: usize,
    keys: u64,
    value: usize,
    /// Of a hundred commands, so many store.
    stores: u64,
    seconds: f64,
    warm: f64,
    cpu: Option<usize>,
}

struct Client {
    stream: TcpStream,
    expected: usize,
    random: u64,
    sent_at: Instant,
}

fn plan() -> Result<Plan, Box<dyn std::error::Error>> {
    let mut plan = Plan {
        target: ([127, 0, 0, 1], 0).into(),
        is_kv: false,
        path: "/".to_owned(),
        connections: 50,
        threads: 1,
        batch: 1,
        keys: 10_000,
        value: 100,
        stores: 10,
        seconds: 3.0,
        warm: 0.5,
        cpu: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or("an option needs a value")?;
        match &*name {
            "--target" => plan.target = value.parse()?,
            "--kind" => plan.is_kv = value == "kv",
            "--path" => plan.path = value,
            "--connections" => plan.connections = value.parse()?,
            "--threads" => plan.threads = value.parse()?,
            "--batch" => plan.batch = value.parse()?,
            "--keys" => plan.keys = value.parse()?,
            "--value" => plan.value = value.parse()?,
            "--stores" => plan.stores = value.parse()?,
            "--seconds" => plan.seconds = value.parse()?,
            "--warm" => plan.warm = value.parse()?,
            "--cpu" => plan.cpu = Some(value.parse()?),
            _ => return Err(format!("there is no option {name}").into()),
        }
    }
    Ok(plan)
}

fn key(number: u64) -> String {
    format!("key-{number:012}")
}

/// Stores every key; how long the answer to a look-up is.
fn fill(plan: &Plan) -> io::Result<usize> {
    let mut stream = TcpStream::connect(plan.target)?;
    let value = "v".repeat(plan.value);
    for number in 0..plan.keys {
        write!(
            stream,
            "set {} 0 0 {} noreply\r\n{value}\r\n",
            key(number),
            plan.value
        )?;
    }
    let asked = key(0);
    write!(stream, "get {asked}\r\n")?;
    let wanted = format!("VALUE {asked} 0 {}\r\n{value}\r\nEND\r\n", plan.value);
    let mut answer = vec![0; wanted.len()];
    stream.read_exact(&mut answer)?;
    assert_eq!(answer, wanted.as_bytes(), "a wrong answer");
    Ok(wanted.len())
}

/// How long the answer to a request of HTTP is.
fn ask(plan: &Plan, request: &str) -> io::Result<usize> {
    let mut stream = TcpStream::connect(plan.target)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let count = stream.read(&mut buffer)?;
        answer.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&answer);
        let Some(end) = text.find("\r\n\r\n") else {
            continue;
        };
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        let length = text[..end]
            .lines()
            .find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")
                    .map(str::to_owned)
            })
            .and_then(|it| it.parse::<usize>().ok())
            .ok_or_else(|| io::Error::other("no length"))?;
        return Ok(end + 4 + length);
    }
}

impl Client {
    fn next(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    /// Sends the next batch.
    fn send(&mut self, plan: &Plan, texts: &Texts, out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        for _ in 0..plan.batch {
            if !plan.is_kv {
                out.extend_from_slice(texts.request.as_bytes());
                self.expected += texts.answer;
                continue;
            }
            let number = self.next(plan.keys);
            if self.next(100) < plan.stores {
                let key = key(number);
                write!(out, "set {key} 0 0 {}\r\n{}\r\n", plan.value, texts.request)?;
                self.expected += "STORED\r\n".len();
            } else {
                write!(out, "get {}\r\n", key(number))?;
                self.expected += texts.answer;
            }
        }
        self.sent_at = Instant::now();
        self.stream.write_all(out)
    }
}

/// The request of HTTP or the value, and the length of an answer.
struct Texts {
    request: String,
    answer: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = plan()?;
    if let Some(cpu) = plan.cpu {
        // SAFETY: the set is plain numbers that the calls fill and read.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        }
    }
    let texts = if plan.is_kv {
        Texts {
            answer: fill(&plan)?,
            request: "w".repeat(plan.value),
        }
    } else {
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: load\r\nAccept: */*\r\n\r\n",
            plan.path, plan.target
        );
        Texts {
            answer: ask(&plan, &request)?,
            request,
        }
    };
    let results: Vec<io::Result<(f64, Vec<u32>)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .map(|_| scope.spawn(|| run(&plan, &texts)))
            .collect();
        let join = |it: std::thread::ScopedJoinHandle<'_, _>| it.join().expect("it does not panic");
        threads.into_iter().map(join).collect()
    });
    let (mut rate, mut times) = (0.0, Vec::new());
    for result in results {
        let (of_thread, its_times) = result?;
        rate += of_thread;
        times.extend(its_times);
    }
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share) as usize;
        times.get(index).copied().unwrap_or(0)
    };
    let (half, most) = (at(0.5), at(0.99));
    println!("{rate:.0} requests/s, half within {half} us, 99 % within {most} us");
    Ok(())
}

/// Requests in a second, and how long batches took, in microseconds.
fn run(plan: &Plan, texts: &Texts) -> io::Result<(f64, Vec<u32>)> {
    // SAFETY: a call that makes a descriptor.
    let epoll = unsafe { libc::epoll_create1(0) };
    let mut out = Vec::new();
    let mut clients = Vec::new();
    for index in 0..plan.connections / plan.threads {
        let stream = TcpStream::connect(plan.target)?;
        stream.set_nodelay(true)?;
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: index as u64,
        };
        // SAFETY: the event lives over the call.
        unsafe {
            libc::epoll_ctl(
                epoll,
                libc::EPOLL_CTL_ADD,
                stream.as_raw_fd(),
                &raw mut event,
            )
        };
        clients.push(Client {
            stream,
            expected: 0,
            random: index as u64 * 7919 + 88_172_645,
            sent_at: Instant::now(),
        });
    }
    for client in &mut clients {
        client.send(plan, texts, &mut out)?;
    }
    let warm = Instant::now() + Duration::from_secs_f64(plan.warm);
    let mut begun = None;
    let end = warm + Duration::from_secs_f64(plan.seconds);
    let mut buffer = vec![0; 256 * 1024];
    let mut times: Vec<u32> = Vec::with_capacity(1 << 20);
    let mut events = [const { libc::epoll_event { events: 0, u64: 0 } }; 256];
    let mut answered = 0_u64;
    loop {
        // SAFETY: the kernel fills as many as there is room for.
        let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 256, 1000) };
        let now = Instant::now();
        if now >= end {
            let took = now.duration_since(begun.unwrap_or(warm)).as_secs_f64();
            return Ok((answered as f64 / took, times));
        }
        for event in &events[..usize::try_from(count).unwrap_or(0)] {
            let client = &mut clients[event.u64 as usize];
            let count = client.stream.read(&mut buffer)?;
            if count == 0 {
                return Err(io::Error::other("the server closed a connection"));
            }
            client.expected = client.expected.checked_sub(count).ok_or_else(|| {
                io::Error::other(format!(
                    "more than was asked for: {:?}",
                    &buffer[..count.min(100)]
                ))
            })?;
            if client.expected > 0 {
                continue;
            }
            if now >= warm {
                begun.get_or_insert(now);
                answered += plan.batch as u64;
                times.push(client.sent_at.elapsed().as_micros() as u32);
            }
            client.send(plan, texts, &mut out)?;
        }
    }
}
