//! How many accesses a second of CPU time does the reuse tracker take, and how much memory?
//!
//! Method: streams of accesses of several patterns and footprints, made in slices outside of the
//! measured time, go through one tracker on one thread. The time is the thread's CPU time as the
//! kernel counts it. Every thread first touches all of its lines once, so that the footprint is in
//! place, and one slice of the pattern follows, before the time is taken; `first touches` is what
//! a footprint costs that only grows.
//!
//! `cargo run --release -p linewise-cache --example reuse_speed [-- PATTERN [MODE]]`

use std::error::Error;

use linewise_cache::reuse::{Attribution, Choice, Grouping, ReuseOptions, ReuseTracker, Sampling};
use linewise_cache::{Access, Kind};

const SLICE: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let only = std::env::args().nth(1);
    let only_mode = std::env::args().nth(2);
    println!(
        "{:<16}{:>8}{:>12}  {:<22}{:>14}{:>16}",
        "pattern", "threads", "lines", "mode", "M accesses/s", "bytes a line"
    );
    let share = |choice| Sampling::FixedRate {
        rate: 1.0 / 64.0,
        choice,
    };
    let sites = Attribution {
        sites: true,
        pairs: 256,
    };
    let modes: [(&str, Sampling, Attribution); 5] = [
        ("exact", Sampling::Exact, Attribution::default()),
        ("sites and pairs", Sampling::Exact, sites),
        ("SHARDS 1/64", share(Choice::Hashed), Attribution::default()),
        (
            "stratified 1/64",
            share(Choice::Stratified),
            Attribution::default(),
        ),
        ("fixed size", Sampling::bounded(), Attribution::default()),
    ];
    for (pattern, make) in PATTERNS {
        if only
            .as_ref()
            .is_some_and(|only| !pattern.contains(only.as_str()))
        {
            continue;
        }
        for lines in [1_000u64, 100_000, 10_000_000] {
            for threads in [1u16, 8] {
                for (mode, sampling, attribution) in &modes {
                    if only_mode
                        .as_ref()
                        .is_some_and(|only| !mode.contains(only.as_str()))
                    {
                        continue;
                    }
                    let large = lines > 1_000_000;
                    if large && threads == 8 && *mode != "exact" && *mode != "SHARDS 1/64" {
                        continue;
                    }
                    let options = ReuseOptions {
                        grouping: Grouping::Private,
                        sampling: *sampling,
                        attribution: *attribution,
                        ..ReuseOptions::default()
                    };
                    let (rate, bytes) = measure(&options, *make, lines, threads)?;
                    println!(
                        "{pattern:<16}{threads:>8}{lines:>12}  {mode:<22}{rate:>14.1}{bytes:>16.1}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// Million accesses for each second of CPU time, and bytes for each entry.
fn measure(
    options: &ReuseOptions,
    make: Make,
    lines: u64,
    threads: u16,
) -> Result<(f64, f64), Box<dyn Error>> {
    let mut tracker = ReuseTracker::new(options)?;
    let mut stream = Stream {
        lines,
        threads,
        random: 0x1234_5678,
        step: 0,
    };
    let mut slice = Vec::with_capacity(SLICE);
    let exact = options.sampling == Sampling::Exact;
    let measured = if exact { 6 } else { 24 };
    let growing = std::ptr::fn_addr_eq(make, grow as Make);
    for thread in 0..if growing { 0 } else { threads } {
        let shared = std::ptr::fn_addr_eq(make, shared as Make);
        for first in (0..stream.part()).step_by(SLICE) {
            let part = if shared { 0 } else { u64::from(thread) << 36 };
            slice.clear();
            slice.extend(
                (first..stream.part().min(first + SLICE as u64)).map(|line| Access {
                    address: part | line << 6,
                    size: 8,
                    kind: Kind::Load,
                    thread,
                    site: 0,
                }),
            );
            tracker.record(&slice);
        }
    }
    let warm = usize::from(!growing);
    let mut seconds = 0.0;
    for number in 0..warm + measured {
        slice.clear();
        for _ in 0..SLICE {
            let access = make(&mut stream);
            slice.push(access);
        }
        let before = cpu_seconds()?;
        tracker.record(&slice);
        if number >= warm {
            seconds += cpu_seconds()? - before;
        }
    }
    let rate = (measured * SLICE) as f64 / seconds / 1e6;
    let bytes = tracker.footprint_bytes() as f64 / tracker.entries() as f64;
    Ok((rate, bytes))
}

/// CPU time of this thread so far.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    // Reading the file that belongs to the thread brings the kernel's count up to date.
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().ok_or("schedstat is empty")?;
    Ok(nanoseconds.parse::<f64>()? / 1e9)
}

struct Stream {
    lines: u64,
    threads: u16,
    random: u64,
    step: u64,
}

impl Stream {
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        linewise_cache::line_hash(self.random)
    }

    /// The access of this step, by threads in turn, each in a part of its own.
    fn access(&mut self, line: u64, offset: u64, kind: Kind, site: u32) -> Access {
        let thread = (self.step % u64::from(self.threads)) as u16;
        self.step += 1;
        Access {
            address: u64::from(thread) << 36 | line << 6 | offset,
            size: 8,
            kind,
            thread,
            site,
        }
    }

    /// Lines of each thread.
    fn part(&self) -> u64 {
        self.lines / u64::from(self.threads)
    }

    /// Steps that each thread has done.
    fn round(&self) -> u64 {
        self.step / u64::from(self.threads)
    }
}

/// Every line once.
fn grow(stream: &mut Stream) -> Access {
    let line = stream.round();
    stream.access(line, 0, Kind::Load, 1)
}

type Make = fn(&mut Stream) -> Access;

const PATTERNS: &[(&str, Make)] = &[
    ("zipf", zipf),
    ("cyclic", cyclic),
    ("random", random),
    ("stencil", stencil),
    ("pointer chase", chase),
    ("shared random", shared),
    ("first touches", grow),
];

/// Few lines are hot: P(line) falls as 1/rank.
fn zipf(stream: &mut Stream) -> Access {
    let share = (stream.next_random() >> 11) as f64 / (1u64 << 53) as f64;
    let rank = ((stream.part() as f64).powf(share) as u64).min(stream.part() - 1);
    stream.access(rank, 0, Kind::Load, (rank & 63) as u32)
}

/// A scan of words, again and again.
fn cyclic(stream: &mut Stream) -> Access {
    let round = stream.round();
    let line = round / 8 % stream.part();
    stream.access(line, round % 8 * 8, Kind::Load, 1)
}

/// Any line as likely as any other.
fn random(stream: &mut Stream) -> Access {
    let line = stream.next_random() % stream.part();
    stream.access(line, 0, Kind::Update, 1)
}

/// Five neighbours read, one written, over a square grid of words.
fn stencil(stream: &mut Stream) -> Access {
    let words = stream.part() * 4;
    let width = words.isqrt().max(4);
    let (point, leg) = (stream.round() / 6, stream.round() % 6);
    let centre = width + point % words.saturating_sub(2 * width).max(1);
    let word = match leg {
        0 => centre - width,
        1 => centre - 1,
        2 => centre,
        3 => centre + 1,
        4 => centre + width,
        _ => centre + words,
    };
    let kind = if leg == 5 { Kind::Store } else { Kind::Load };
    stream.access(word / 8, word % 8 * 8, kind, leg as u32)
}

/// A long cycle through all lines in no visible order.
fn chase(stream: &mut Stream) -> Access {
    let part = stream.part();
    let line = stream.round().wrapping_mul(0x9e37_79b9) % part;
    stream.access(line, 0, Kind::Load, 2)
}

/// All threads at random on the same lines, one store in eight.
fn shared(stream: &mut Stream) -> Access {
    let random = stream.next_random();
    let line = (random >> 8) % stream.part();
    let kind = if random & 7 == 0 {
        Kind::Store
    } else {
        Kind::Load
    };
    let mut access = stream.access(line, 0, kind, (random & 31) as u32);
    access.address &= (1 << 36) - 1;
    access
}
