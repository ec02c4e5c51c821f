//! Every workload, run for a moment: does what it counts agree with itself and with what cannot be
//! otherwise?

use std::sync::{Mutex, PoisonError};

use linewise_bench::{PlacementError, Truth, Workload, WorkloadError, WorkloadSpec, run_workload};

/// One run at a time: beside another the threads of a workload hardly meet.
static ALONE: Mutex<()> = Mutex::new(());

fn run(workload: Workload, change: impl FnOnce(&mut WorkloadSpec)) -> Truth {
    let mut spec = WorkloadSpec {
        seconds: 0.12,
        ..WorkloadSpec::new(workload)
    };
    change(&mut spec);
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let truth = run_workload(&spec).expect("the specification is valid");
    drop(alone);
    assert_eq!(truth.contradictions(), Vec::<String>::new(), "{truth:?}");
    assert!(truth.accesses > 0, "{truth:?}");
    truth
}

/// Transfers need two CPUs; says so where there is only one.
fn two_cpus() -> bool {
    let two = linewise_machine::affinity::allowed_cpus().len() >= 2;
    if !two {
        eprintln!("skipped: this process may run on one CPU only, so no line can move");
    }
    two
}

#[test]
fn every_workload_agrees_with_itself() {
    for &workload in Workload::ALL {
        for threads in [2, 4] {
            let truth = run(workload, |spec| {
                spec.threads = threads;
                spec.fraction = 0.5;
            });
            assert_eq!(truth.tids.len(), threads);
            assert!(!truth.line_addresses.is_empty());
            assert!(truth.line_addresses.iter().all(|address| address % 64 == 0));
        }
    }
}

#[test]
fn one_thread_transfers_nothing() {
    for &workload in Workload::ALL {
        let truth = run(workload, |spec| spec.threads = 1);
        assert_eq!(
            (truth.transfers, truth.handovers_on_one_cpu),
            (0, 0),
            "{workload}"
        );
    }
}

#[test]
fn without_shared_accesses_nothing_is_transferred() {
    use Workload::*;
    for workload in [
        WriteVolume,
        WriteVolumePlain,
        PointToPoint,
        Migratory,
        ProducerConsumer,
        NoSharing,
        Alternating,
        OneCpu,
    ] {
        let truth = run(workload, |spec| spec.fraction = 0.0);
        assert_eq!(
            (truth.shared_accesses, truth.transfers),
            (0, 0),
            "{workload}"
        );
    }
}

#[test]
fn threads_on_one_cpu_transfer_nothing() {
    let cpu = linewise_machine::affinity::allowed_cpus()[0];
    for &workload in Workload::ALL {
        let truth = run(workload, |spec| spec.cpus = vec![cpu]);
        assert_eq!(truth.transfers, 0, "{workload}");
    }
}

#[test]
fn busy_sharing_transfers_a_lot() {
    if !two_cpus() {
        return;
    }
    use Workload::*;
    for workload in [
        WriteVolume,
        WriteVolumePlain,
        FalseSharing,
        ReadWrite,
        PointToPoint,
        Migratory,
        ProducerConsumer,
    ] {
        let truth = run(workload, |spec| spec.fraction = 0.5);
        assert!(truth.transfers > 100, "{workload}: {truth:?}");
        assert_eq!(truth.matrix[0][1], truth.transfers, "{workload}");
    }
}

#[test]
fn threads_that_alternate_transfer_at_most_once_a_phase() {
    let truth = run(Workload::Alternating, |spec| spec.seconds = 0.2);
    let phases = (truth.seconds / 0.05).ceil() as u64 + 1;
    assert!(
        truth.transfers <= phases,
        "{} in {phases} phases",
        truth.transfers
    );
    assert!(truth.shared_accesses > 10_000);
}

#[test]
fn false_sharing_is_what_its_fraction_says_at_both_ends() {
    if !two_cpus() {
        return;
    }
    let all_true = run(Workload::FalseSharing, |spec| spec.fraction = 0.0);
    assert!(
        all_true.transfers_true > 100 && all_true.transfers_false == 0,
        "{all_true:?}"
    );
    let all_false = run(Workload::FalseSharing, |spec| spec.fraction = 1.0);
    assert!(
        all_false.transfers_false > 100 && all_false.transfers_true == 0,
        "{all_false:?}"
    );
}

#[test]
fn the_two_lines_of_false_sharing_are_counted_alike() {
    if !two_cpus() {
        return;
    }
    // The false line at one fraction is the true line at the other, so the shares add up to one,
    // though the first is counted by looking at words and the second by swaps.
    let share = |fraction| {
        let truth = run(Workload::FalseSharing, |spec| spec.fraction = fraction);
        truth.false_share().expect("there are transfers")
    };
    for fraction in [0.2, 0.35, 0.5] {
        // How the threads meet differs from run to run, and with the time of a round trip: pairs, and the middle of five.
        let mut sums = [(); 5].map(|()| share(fraction) + share(1.0 - fraction));
        sums.sort_by(f64::total_cmp);
        let sum = sums[2];
        // A thread that looks at words sees a little more than one that swaps: by 10 % on some machines.
        assert!((sum - 1.0).abs() < 0.2, "{sum} at fraction {fraction}");
    }
}

#[test]
fn only_the_threads_of_a_pair_share() {
    for workload in [Workload::PointToPoint, Workload::ProducerConsumer] {
        let truth = run(workload, |spec| spec.threads = 4);
        for (a, row) in truth.matrix.iter().enumerate() {
            for (b, &cell) in row.iter().enumerate() {
                assert!(cell == 0 || a ^ 1 == b, "{workload}: {a} and {b}");
            }
        }
    }
}

#[test]
fn a_truth_survives_the_way_through_a_line_of_output() {
    let truth = run(Workload::WriteVolume, |_| {});
    let output = format!("some words first\n{}\n", truth.to_json_line());
    assert_eq!(Truth::from_output(&output).expect("just written"), truth);
    assert!(Truth::from_output("nothing here").is_err());
    assert!(Truth::from_output("{\"workload\":\"write-volume\"}").is_err());
}

#[test]
fn names_of_workloads_are_read_as_they_are_written() {
    for &workload in Workload::ALL {
        assert_eq!(
            workload.name().parse::<Workload>().expect("its own name"),
            workload
        );
        let json = serde_json::to_value(workload).expect("a word");
        assert_eq!(json, workload.name());
    }
    let error = "nonsense"
        .parse::<Workload>()
        .expect_err("there is none of that name");
    assert!(error.to_string().contains("write-volume"), "{error}");
}

#[test]
fn what_cannot_be_run_is_refused() {
    let refused = |change: fn(&mut WorkloadSpec)| {
        let mut spec = WorkloadSpec {
            seconds: 0.01,
            ..WorkloadSpec::new(Workload::FalseSharing)
        };
        change(&mut spec);
        run_workload(&spec).expect_err("out of range")
    };
    assert!(matches!(
        refused(|spec| spec.threads = 0),
        WorkloadError::Threads { .. }
    ));
    assert!(matches!(
        refused(|spec| spec.threads = 9),
        WorkloadError::Threads { most: 8, .. }
    ));
    assert!(matches!(
        refused(|spec| spec.fraction = 1.5),
        WorkloadError::Fraction(_)
    ));
    assert!(matches!(
        refused(|spec| spec.fraction = f64::NAN),
        WorkloadError::Fraction(_)
    ));
    assert!(matches!(
        refused(|spec| spec.seconds = 0.0),
        WorkloadError::Seconds(_)
    ));
    assert!(matches!(
        refused(|spec| spec.cpus = vec![100_000]),
        WorkloadError::Placement(PlacementError::Cpu { .. })
    ));
}
