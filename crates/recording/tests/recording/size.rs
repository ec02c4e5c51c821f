//! How large a recording gets.

use std::fs;

use linewise_recording::*;

use crate::fixture_rows;

/// A generator of numbers without pattern (xorshift), the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Samples of 8 threads, 1000 a second each, spread over 4,000 code addresses, 64 MB of data and
/// 5,000 call chains: wider than most programs.
#[test]
fn thirty_seconds_of_eight_threads_fit_in_20_mb() {
    const THREADS: u64 = 8;
    const PER_SECOND: u64 = 1000;
    const SECONDS: u64 = 30;
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("size.linewise");
    let mut writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let template = fixture_rows::tables();
    for second in 0..SECONDS {
        for i in 0..PER_SECOND * THREADS {
            let thread = i % THREADS;
            let time = Time(second * 1_000_000_000 + i * 125_000 + numbers.below(20_000));
            let ip = 0x40_0000 + numbers.below(4000) * 7;
            writer
                .push([Sample {
                    time,
                    tid: Tid(100 + thread as u32),
                    cpu: CpuId((thread % 2) as u32),
                    ip: Address(ip + 4),
                    access_ip: Address(ip),
                    sp: Address(0x7fff_0000_0000 + thread * 0x10_0000 - numbers.below(512) * 16),
                    stack: StackId(numbers.below(5000) as u32),
                    weight: 990_000 + numbers.below(20_000),
                    address: Address(0x7f00_0000_0000 + numbers.below(64 << 20)),
                    size: 1 << numbers.below(4),
                    operation: Some(Operation::ALL[numbers.below(3) as usize]),
                    locked: numbers.below(10) == 0,
                    ..template.samples[0].clone()
                }])
                .unwrap();
            if i % 4 == 0 {
                let start = time;
                let end = Time(time.0 + numbers.below(500_000));
                writer
                    .push([Switch {
                        tid: Tid(100 + thread as u32),
                        cpu: CpuId(0),
                        start,
                        end,
                    }])
                    .unwrap();
            }
            if i % 40 == 0 {
                let id = second * 10_000 + i;
                let address = Address(0x7f00_0000_0000 + numbers.below(64 << 20));
                let watch = Watch {
                    id,
                    armed: time,
                    address,
                    ..template.watches[0].clone()
                };
                writer.push([watch]).unwrap();
                writer
                    .push([Trap {
                        watch: id,
                        time,
                        address,
                        ..template.traps[0].clone()
                    }])
                    .unwrap();
            }
        }
        writer.flush().unwrap();
    }
    let stacks = (0..5000).map(|id| Stack {
        id: StackId(id),
        frames: (0..24)
            .map(|_| Address(0x40_0000 + numbers.below(1 << 20)))
            .collect(),
    });
    writer.push(stacks.collect::<Vec<_>>()).unwrap();
    writer.finish(&fixture_rows::info()).unwrap();

    let bytes: u64 = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    println!("{bytes} bytes");
    assert!(bytes <= 20_000_000, "{bytes} bytes");
    let tables = Recording::open(&dir).unwrap().tables().unwrap();
    assert_eq!(tables.samples.len() as u64, THREADS * PER_SECOND * SECONDS);
    assert_eq!(tables.stacks.len(), 5000);
}
