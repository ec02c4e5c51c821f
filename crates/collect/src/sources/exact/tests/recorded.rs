//! The whole way into a recording: what the tables say of programs whose accesses are known.

use std::path::{Path, PathBuf};

use linewise_machine::process::Ended;
use linewise_machine::signals::StopSignals;
use linewise_recording::{
    CacheCounts, CacheLevel, CacheSubject, Measure, Recording, ReuseScope, Sharing, Source, Tables,
    Touch, Unit,
};

use linewise_trace::measure::{ReuseShare, SimulatedMachine};

use super::super::ExactError;
use super::super::record::{ExactRecordOptions, record as record_exact};
use super::{Programs, command};
use crate::options::{HeapWhen, RecordOptions, Target};
use crate::recorder::Outcome;

/// Increments of each of two threads: so many that the first has not ended when the second begins.
const TIMES: usize = 200_000;

struct Recorded {
    tables: Tables,
    recording: Recording,
    outcome: Outcome,
}

/// What is recorded where, and how.
struct Options {
    common: RecordOptions,
    exact: ExactRecordOptions,
}

fn options(directory: PathBuf, program: &Path, arguments: &[&str]) -> Options {
    Options {
        common: RecordOptions {
            target: Target::Launch(command(program, arguments)),
            directory,
            replace: true,
            duration: None,
            output_to_errors: false,
            heap: HeapWhen::Never,
            flow: None,
        },
        exact: ExactRecordOptions {
            caches: true,
            reuse: ReuseShare::OneLineIn(1),
            call_paths: true,
            adopt_orphans: false,
            reason: "asked for".to_owned(),
            ..ExactRecordOptions::new(SimulatedMachine::named("2x10").unwrap())
        },
    }
}

/// Records, or says why not.
fn record(options: &Options) -> Option<Recorded> {
    let signals = StopSignals::block().unwrap();
    let outcome = match record_exact(&options.common, &options.exact, &signals, |_| {}) {
        Ok(outcome) => outcome,
        Err(crate::Error::Exact(error @ ExactError::NoQemu { .. })) => {
            println!("skipped: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(outcome.failure.is_none());
    let recording = Recording::open(&options.common.directory).unwrap();
    Some(Recorded {
        tables: recording.tables().unwrap(),
        recording,
        outcome,
    })
}

fn counters(distance: &str, change: impl FnOnce(&mut Options)) -> Option<Recorded> {
    let programs = Programs::new();
    let program = programs.compile("counters");
    let directory = programs.path().join("made.linewise");
    let mut options = options(directory, &program, &[distance, &TIMES.to_string()]);
    change(&mut options);
    record(&options)
}

fn asked(row: &CacheCounts) -> f64 {
    row.loads + row.stores + row.updates
}

fn misses(row: &CacheCounts) -> f64 {
    row.compulsory + row.capacity + row.conflict + row.true_sharing + row.false_sharing
}

fn transfers(tables: &Tables) -> f64 {
    tables.transfers.iter().map(|count| count.count).sum()
}

/// True and false transfers of two threads that do the same beside each other, as `equal.c` has it, with what is recorded by default.
fn beside_each_other(how: &str) -> Option<(f64, f64)> {
    let programs = Programs::new();
    let program = programs.compile("equal");
    let mut options = options(programs.path().join("made.linewise"), &program, &[how]);
    options.exact.caches = false;
    options.exact.call_paths = false;
    options.exact.reuse = ReuseShare::None;
    let recorded = record(&options)?;
    let sum = |sharing| {
        let rows = recorded.tables.transfers.iter();
        rows.filter(|row| row.sharing == sharing)
            .map(|row| row.count)
            .sum()
    };
    Some((sum(Sharing::True), sum(Sharing::False)))
}

#[test]
fn nobody_starves_who_wants_a_line_and_waits_for_another() {
    // Each of 10,000 times that one adds, the other did so before.
    let Some((moved, _)) = beside_each_other("compare") else {
        return;
    };
    assert!(moved >= 18_000.0, "{moved}");
}

#[test]
fn two_threads_that_begin_to_share_after_a_long_time_are_soon_at_equal_rate() {
    let Some((moved, in_vain)) = beside_each_other("phases") else {
        return;
    };
    for of_a_phase in [moved, in_vain] {
        assert!(
            (19_000.0..20_500.0).contains(&of_a_phase),
            "{moved} {in_vain}"
        );
    }
}

#[test]
fn lines_that_threads_come_to_now_and_then_move_as_often_as_taking_turns_would_move_them() {
    let Some((moved, in_vain)) = beside_each_other("pick") else {
        return;
    };
    // What the program itself prints when it counts as if threads took turns.
    const IN_TURNS: f64 = 10_023.0;
    let moved = moved + in_vain;
    assert!((moved - IN_TURNS).abs() < 0.05 * IN_TURNS, "{moved}");
}

#[test]
fn who_reads_what_another_wrote_before_shares_truly() {
    let Some((moved, in_vain)) = beside_each_other("read") else {
        return;
    };
    // A thousand lines of eight words, of which the writer's last store tells one word.
    assert!(moved >= 1_000.0 && in_vain < 50.0, "{moved} {in_vain}");
}

#[test]
fn all_accesses_are_in_every_table() {
    let Some(recorded) = counters("8", |_| {}) else {
        return;
    };
    let Recorded {
        tables,
        recording,
        outcome,
    } = recorded;
    assert_eq!(outcome.ended, Some(Ended::Code(0)));
    let info = recording.info();
    assert!(info.complete);
    assert_eq!(info.source, Source::Exact);
    assert_eq!(info.exit_code, Some(0));
    let exact = info.exact.as_ref().unwrap();
    assert_eq!(exact.accesses, outcome.observed as f64);
    assert!(exact.emulator.starts_with("qemu-"), "{}", exact.emulator);
    assert_eq!(exact.reuse_rate, 1.0);
    assert_eq!(exact.machine, "2x10");
    assert_eq!(tables.threads.len(), 3);
    assert!(tables.samples.is_empty() && tables.watches.is_empty());

    let rows = || tables.caches.iter();
    for row in rows() {
        assert_eq!(asked(row), row.hits + misses(row), "{row:?}");
        let from = row.from_l2
            + row.from_llc
            + row.from_peer
            + row.from_other_group
            + row.from_other_socket
            + row.from_local_dram
            + row.from_remote_dram;
        assert_eq!(misses(row), from, "{row:?}");
    }
    let sum = |level, subject| -> f64 {
        rows()
            .filter(|row| row.level == level && row.subject == subject)
            .map(asked)
            .sum()
    };
    for level in [CacheLevel::L1d, CacheLevel::L2, CacheLevel::L3] {
        let total = sum(level, CacheSubject::Total);
        assert!(total > 0.0);
        assert_eq!(sum(level, CacheSubject::Thread), total);
        let instructions = sum(level, CacheSubject::Instruction);
        let others = sum(level, CacheSubject::OtherInstructions);
        assert_eq!(instructions + others, total);
    }
    // An access that spans two lines counts for each.
    let touches = sum(CacheLevel::L1d, CacheSubject::Total);
    assert!(touches >= exact.accesses && touches < exact.accesses * 1.1);
    for scope in ReuseScope::ALL {
        for measure in Measure::ALL {
            let counted: f64 = tables
                .reuse
                .iter()
                .filter(|row| (row.scope, row.measure) == (*scope, *measure))
                .filter(|row| row.unit == Unit::Line)
                .filter(|row| row.touch != Touch::OtherThread)
                .map(|row| row.count)
                .sum();
            assert_eq!(counted, touches, "{scope:?} {measure:?}");
            let cold: f64 = tables
                .reuse
                .iter()
                .filter(|row| (row.scope, row.measure) == (*scope, *measure))
                .filter(|row| row.unit == Unit::Line && row.touch == Touch::Cold)
                .map(|row| row.count)
                .sum();
            let paired: f64 = tables
                .reuse_pairs
                .iter()
                .filter(|row| (row.scope, row.measure) == (*scope, *measure))
                .map(|row| row.count)
                .sum();
            assert_eq!(paired + cold, touches, "{scope:?} {measure:?}");
        }
    }
}

#[test]
fn without_the_sizes_of_caches_the_same_lines_move_and_nothing_misses_for_want_of_room() {
    let Some(sized) = counters("8", |_| {}) else {
        return;
    };
    let Some(lean) = counters("8", |options| options.exact.caches = false) else {
        return;
    };
    let moved = |recorded: &Recorded| transfers(&recorded.tables);
    let (sized, moved) = (moved(&sized), moved(&lean));
    assert!((moved / sized - 1.0).abs() < 0.05, "{moved} beside {sized}");
    let exact = lean.recording.info().exact.as_ref().unwrap();
    let assumed = |text: &String| text.contains("--caches");
    assert!(exact.assumptions.iter().any(assumed));
    let rows = || lean.tables.caches.iter();
    for row in rows() {
        assert_eq!(row.level, CacheLevel::Unbounded);
        assert_eq!(asked(row), row.hits + misses(row), "{row:?}");
        assert_eq!((row.capacity, row.conflict), (0.0, 0.0));
    }
    let of = |subject| rows().filter(move |row| row.subject == subject).map(asked);
    let total: f64 = of(CacheSubject::Total).sum();
    assert_eq!(of(CacheSubject::Thread).sum::<f64>(), total);
    let instructions: f64 = of(CacheSubject::Instruction).sum();
    assert_eq!(
        instructions + of(CacheSubject::OtherInstructions).sum::<f64>(),
        total
    );
    assert!(total >= lean.outcome.observed as f64);
}

#[test]
fn what_only_one_thread_touches_is_counted_though_it_is_left_out() {
    let lean = |reuse: ReuseShare, distance: &str| {
        counters(distance, |options| {
            options.exact.caches = false;
            options.exact.call_paths = false;
            options.exact.reuse = reuse;
        })
    };
    // All lines are followed by the trackers, so that nothing is left out.
    let Some(whole) = lean(ReuseShare::OneLineIn(1), "8") else {
        return;
    };
    let (Some(near), Some(far)) = (lean(ReuseShare::Usual, "8"), lean(ReuseShare::Usual, "256"))
    else {
        return;
    };
    let moved = |recorded: &Recorded| transfers(&recorded.tables);
    let (all, left, apart) = (moved(&whole), moved(&near), moved(&far));
    assert!((left / all - 1.0).abs() < 0.05, "{left} beside {all}");
    assert!(apart < left / 1000.0, "{apart} beside {left}");
    for recorded in [&near, &far] {
        let made = recorded.outcome.observed as f64;
        let off = made / whole.outcome.observed as f64 - 1.0;
        assert!(off.abs() < 0.01, "{made} beside {}", whole.outcome.observed);
    }
    let told = |recorded: &Recorded, subject| -> [f64; 3] {
        let rows = recorded.tables.caches.iter();
        rows.filter(|row| row.subject == subject)
            .fold([0.0; 3], |[loads, stores, updates], row| {
                [
                    loads + row.loads,
                    stores + row.stores,
                    updates + row.updates,
                ]
            })
    };
    let sums = [&whole, &near].map(|recorded| told(recorded, CacheSubject::Total));
    for (whole, near) in sums[0].into_iter().zip(sums[1]) {
        assert!(
            (near - whole).abs() < 0.01 * sums[0].iter().sum::<f64>(),
            "{sums:?}"
        );
    }
    // Instructions are known from samples: those of the increments, which are most.
    let most = |recorded: &Recorded| {
        let rows = recorded.tables.caches.iter();
        rows.filter(|row| row.subject == CacheSubject::Instruction)
            .map(asked)
            .fold(0.0, f64::max)
    };
    let (whole, far) = (most(&whole), most(&far));
    assert!((far / whole - 1.0).abs() < 0.1, "{far} beside {whole}");
}

#[test]
fn false_sharing_has_its_line_its_bytes_and_its_instructions() {
    let Some(near) = counters("8", |_| {}) else {
        return;
    };
    let Some(far) = counters("256", |_| {}) else {
        return;
    };
    // At equal rate every increment but a few finds the line with the other thread.
    let (near_transfers, far_transfers) = (transfers(&near.tables), transfers(&far.tables));
    assert!(near_transfers > TIMES as f64, "{near_transfers}");
    assert!(near_transfers > 20.0 * far_transfers, "{far_transfers}");
    for recorded in [&near, &far] {
        let exact = recorded.recording.info().exact.as_ref().unwrap();
        let (sums, counted) = (&exact.sums, transfers(&recorded.tables));
        assert_eq!(counted, sums.true_sharing + sums.false_sharing);
        assert_eq!(sums.transfers_error, None);
    }
    let heaviest = near
        .tables
        .transfers
        .iter()
        .filter(|row| row.sharing == Sharing::False)
        .max_by(|a, b| a.count.total_cmp(&b.count))
        .unwrap();
    assert_eq!(heaviest.from_bytes & heaviest.to_bytes, 0);
    let bytes = [heaviest.from_bytes, heaviest.to_bytes];
    assert!(
        bytes.contains(&0xff) && bytes.contains(&0xff00),
        "{bytes:x?}"
    );
    assert_ne!(heaviest.from_tid, heaviest.to_tid);
    assert!(heaviest.from_ip.is_some() && heaviest.to_ip.is_some());
    let line = heaviest.line.unwrap();
    let program = near
        .tables
        .maps
        .iter()
        .find(|map| map.executable && map.path.ends_with("counters-cc"));
    assert!(program.is_some_and(|map| {
        let ip = heaviest.to_ip.unwrap();
        map.start <= ip && ip < map.end && line.0 % 64 == 0
    }));
}

#[test]
fn a_share_of_the_lines_is_scaled_back_and_has_an_error() {
    let Some(whole) = counters("8", |_| {}) else {
        return;
    };
    let Some(share) = counters("8", |options| options.exact.one_line_in = 4) else {
        return;
    };
    let info = share.recording.info().exact.clone().unwrap();
    assert_eq!(info.one_line_in, 4);
    assert_eq!(info.accesses, 4.0 * info.followed as f64);
    assert!(info.followed < whole.outcome.observed);
    assert!(info.sums.transfers_error.is_some());
    let counted = transfers(&share.tables);
    assert_eq!(counted, info.sums.true_sharing + info.sums.false_sharing);
    let touches = |measure| -> f64 {
        let chosen = |row: &&linewise_recording::ReuseBin| {
            row.scope == ReuseScope::Private && row.measure == measure
        };
        let rows = share.tables.reuse.iter().filter(chosen);
        rows.map(|row| row.count).sum()
    };
    assert_eq!(touches(Measure::Stack), touches(Measure::Time));
    assert!(touches(Measure::Stack) >= info.accesses);
    let with_error = |row: &linewise_recording::ReuseBin| row.miss_ratio_error.is_some();
    assert!(share.tables.reuse.iter().any(with_error));
}

#[test]
fn without_reuse_there_are_no_rows_of_it_and_one_thread_has_no_transfers() {
    let programs = Programs::new();
    let program = programs.compile("counts");
    let mut options = options(programs.path().join("one.linewise"), &program, &[]);
    options.exact.reuse = ReuseShare::None;
    let Some(recorded) = record(&options) else {
        return;
    };
    assert!(recorded.tables.reuse.is_empty() && recorded.tables.reuse_pairs.is_empty());
    assert!(recorded.tables.transfers.is_empty());
}

#[test]
fn a_program_that_cannot_be_run_leaves_an_older_recording_alone() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("made.linewise");
    let missing = Path::new("/nowhere/to/be/found");
    let signals = StopSignals::block().unwrap();
    let options = options(place.clone(), missing, &[]);
    let error = record_exact(&options.common, &options.exact, &signals, |_| {}).unwrap_err();
    assert!(matches!(
        error,
        crate::Error::Exact(ExactError::NoSuchProgram { .. })
    ));
    assert!(!place.exists());
}
