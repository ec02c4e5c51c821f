//! The order that is made, and the one that is left as it is.

use linewise_recording::Order;

use super::*;

/// Traces in the emulator's own order.
fn as_run(words: Vec<OsString>) -> ExactOptions {
    ExactOptions {
        order: Order::AsRun,
        ..ExactOptions::new(words)
    }
}

/// Marks in the order of their numbers, by the atomic in front of each.
#[derive(Default)]
struct Sequence {
    /// By thread, the position of its last atomic access.
    atomics: HashMap<u16, u64>,
    position: u64,
    /// Position of the atomic, address of the mark, and the instruction that left it.
    marks: Vec<(u64, u64, u32)>,
}

impl Consumer for Sequence {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        for access in batch {
            self.position += 1;
            if access.orders && access.kind == Kind::Update {
                self.atomics.insert(access.thread, self.position);
            } else if access.kind == Kind::Store
                && access.size == 1
                && let Some(position) = self.atomics.remove(&access.thread)
            {
                self.marks.push((position, access.address, access.site));
            }
        }
    }
}

impl Sequence {
    /// How many numbers there are, how many stand before a lower one, and by how many positions the
    /// worst is off.
    fn inversions(&mut self, times: usize) -> (usize, usize, u64) {
        // Other code leaves single bytes behind atomics as well, but not so often.
        let mut often: HashMap<u32, usize> = HashMap::new();
        for &(_, _, site) in &self.marks {
            *often.entry(site).or_default() += 1;
        }
        let &site = often.iter().max_by_key(|&(_, times)| times).unwrap().0;
        self.marks.retain(|mark| mark.2 == site);
        self.marks.sort_unstable();
        let addresses: Vec<u64> = self.marks.iter().map(|&(_, address, _)| address).collect();
        let base = *addresses.iter().min().unwrap();
        let distinct: std::collections::HashSet<u64> = addresses.iter().copied().collect();
        assert_eq!(addresses.len(), 2 * times);
        assert_eq!(distinct.len(), 2 * times, "every number is there once");
        assert_eq!(addresses.iter().max(), Some(&(base + 2 * times as u64 - 1)));
        let mut inversions = 0;
        let mut worst = 0;
        let mut highest = 0;
        for &address in &addresses {
            let number = address - base;
            if number < highest {
                inversions += 1;
                worst = worst.max(highest - number);
            }
            highest = highest.max(number);
        }
        (addresses.len(), inversions, worst)
    }
}

#[test]
fn atomics_stand_nearly_always_in_the_order_in_which_they_happened() {
    let programs = Programs::new();
    let program = programs.compile("sequence");
    for (times, how) in [(200_000, "free"), (40_000, "turns")] {
        let options = as_run(command(&program, &[&times.to_string(), how]));
        let mut observed = Sequence::default();
        let Some(outcome) = try_trace(&options, &mut observed) else {
            return;
        };
        let (numbers, inversions, worst) = observed.inversions(times);
        println!(
            "{how}: {inversions} of {numbers} numbers stand behind a higher one, the worst by {worst}; \
             {} of {} accesses late",
            outcome.totals.late, outcome.totals.accesses
        );
        // Stamps are taken beside the access, so neighbours may change places; half would be chance.
        assert!(inversions * 5 < numbers, "{inversions} of {numbers}");
    }
}

/// Times that a line was stored to by another thread than the last that stored to it, on the line
/// where that happened most.
#[derive(Default)]
struct Transfers {
    owners: HashMap<u64, (u16, u64)>,
    accesses: u64,
}

impl Consumer for Transfers {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        self.accesses += batch.len() as u64;
        for access in batch.iter().filter(|access| access.kind.writes()) {
            let entry = self
                .owners
                .entry(access.address >> 6)
                .or_insert((access.thread, 0));
            if entry.0 != access.thread {
                *entry = (access.thread, entry.1 + 1);
            }
        }
    }
}

impl Transfers {
    fn most(&self) -> u64 {
        self.owners.values().map(|owner| owner.1).max().unwrap_or(0)
    }
}

#[test]
fn the_equal_rate_order_does_not_depend_on_how_many_cpus_the_target_had() {
    const TIMES: u64 = 1_000_000;
    if Command::new("taskset").arg("-V").output().is_err() {
        println!("skipped: no taskset (util-linux)");
        return;
    }
    let programs = Programs::new();
    let program = programs.compile("counters");
    let run = |cpus: Option<&str>, distance: &str| {
        let mut words = Vec::new();
        if let Some(cpus) = cpus {
            words = command(Path::new("taskset"), &["-c", cpus]);
        }
        words.extend(command(&program, &[distance, &TIMES.to_string()]));
        let mut transfers = Transfers::default();
        let outcome = try_trace(&ExactOptions::new(words), &mut transfers)?;
        assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
        println!(
            "cpus {cpus:?}, distance {distance}: {} transfers",
            transfers.most()
        );
        Some(transfers.most())
    };
    let Some(free) = run(None, "8") else {
        return;
    };
    let confined = run(Some("0"), "8").unwrap();
    let padded = run(None, "256")
        .unwrap()
        .max(run(Some("0"), "256").unwrap());
    // Each increment is a load and a store, in turns: nearly every store finds the other's.
    assert!(free > TIMES, "{free} transfers of {TIMES} increments each");
    assert!(
        free.abs_diff(confined) * 1000 <= free,
        "{free} with all CPUs, {confined} with one"
    );
    assert!(padded * 1000 <= free, "{padded} padded, {free} shared");
}

#[test]
fn threads_that_meet_have_the_transfers_of_equal_rate_the_same_in_every_run() {
    const TIMES: u64 = 8_000;
    let programs = Programs::new();
    let program = programs.compile("meeting");
    for how in ["add", "lock", "post", "turns", "beside"] {
        let words = command(&program, &[how, &TIMES.to_string()]);
        let run = |leave_own: Option<Vec<(u32, u32)>>| {
            let options = ExactOptions {
                leave_own,
                ..ExactOptions::new(words.clone())
            };
            let mut transfers = Transfers::default();
            let outcome = try_trace(&options, &mut transfers)?;
            assert!(outcome.losses.is_empty(), "{how}: {:?}", outcome.losses);
            Some(transfers.most())
        };
        for leave_own in [None, Some(Vec::new())] {
            let Some(first) = run(leave_own.clone()) else {
                return;
            };
            let again = run(leave_own).unwrap();
            println!("{how}: {first} {again}");
            // Each meeting moves the line there and back. One of the threads begins up to 2,000 accesses earlier.
            let alone = if how == "beside" { 4_000 } else { 1_600 };
            assert!(first + alone >= 2 * TIMES, "{how}: {first} transfers");
            assert!(
                first.abs_diff(again) * 1000 <= first,
                "{how}: {first} and {again}"
            );
        }
    }
}
