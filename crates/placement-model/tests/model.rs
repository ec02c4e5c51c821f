//! What any model of placement must obey, whatever its figures.

use linewise_placement_model::{
    Case, MachineKind, Pattern, Phase, PolicyKind, Processes, Program, Setup, hubench, program,
};

const SECONDS: f64 = 3.0;

fn work(program: &Program, policy: PolicyKind) -> f64 {
    let case = Case::new(MachineKind::TwoSockets, std::slice::from_ref(program), 60);
    case.run(policy, Setup::default(), 1, SECONDS).work[0]
}

/// Useful cycles that so many threads have at most.
fn all_cycles(threads: usize) -> f64 {
    threads as f64 * SECONDS * MachineKind::TwoSockets.build().costs.frequency_hz
}

#[test]
fn no_work_comes_out_of_nothing() {
    for (name, threads) in [
        ("CPU", 20),
        ("CPU", 50),
        ("Hubench", 8),
        ("MemBench", 12),
        ("SGD", 10),
    ] {
        let program = program(name, threads);
        for policy in PolicyKind::ALL {
            let work = work(&program, policy);
            // Bursts have threads of their own.
            let threads = (threads + threads.div_ceil(4)).min(40);
            assert!(
                work > 0.0 && work <= all_cycles(threads) * 1.000_001,
                "{name}, {policy:?}"
            );
        }
    }
}

#[test]
fn a_thread_alone_on_its_core_that_waits_for_nothing_gets_all_cycles() {
    assert!((work(&program("CPU", 20), PolicyKind::Balancer) / all_cycles(20) - 1.0).abs() < 1e-6);
}

#[test]
fn two_threads_on_each_core_do_a_fifth_more_than_one() {
    let twice = work(&program("CPU", 40), PolicyKind::Balancer) / all_cycles(20);
    assert!((twice - 1.2).abs() < 1e-6, "{twice}");
}

#[test]
fn more_threads_than_cpus_do_no_more() {
    let (full, over) = (program("CPU", 40), program("CPU", 80));
    let ratio = work(&over, PolicyKind::Balancer) / work(&full, PolicyKind::Balancer);
    assert!((0.97..1.000_001).contains(&ratio), "{ratio}");
}

#[test]
fn sharing_costs_less_below_one_cache_than_between_sockets_and_nothing_without_transfers() {
    let pair = |transfers| {
        Program::new(
            "pair",
            2,
            Pattern::All,
            &[Phase::COMPUTES.sharing(transfers)],
        )
    };
    let shares = pair(2e-3);
    let (near, far) = (
        work(&shares, PolicyKind::Llc),
        work(&shares, PolicyKind::Balancer),
    );
    assert!(near > 1.1 * far, "{near} {far}");
    let alone = pair(0.0);
    assert_eq!(
        work(&alone, PolicyKind::Llc),
        work(&alone, PolicyKind::Balancer)
    );
}

#[test]
fn the_threshold_of_the_paper_costs_about_five_percent() {
    // Section 2.1: 2.5e-4 events a cycle; 5 % is where it begins to matter.
    let lubench = program("Lubench", 2);
    let ratio = work(&lubench, PolicyKind::Llc) / work(&lubench, PolicyKind::Balancer);
    assert!((1.035..1.065).contains(&ratio), "{ratio}");
}

#[test]
fn more_demand_for_memory_never_makes_anybody_faster() {
    let mut last = f64::INFINITY;
    for step in 0..12 {
        let misses = f64::from(step) * 3e-3;
        let program = Program::new(
            "m",
            12,
            Pattern::Nobody,
            &[Phase::COMPUTES.missing(misses, 10.0, 1e6)],
        );
        let work = work(&program, PolicyKind::Balancer);
        assert!(work <= last * 1.000_01, "{misses}: {work} after {last}");
        last = work;
    }
}

#[test]
fn memory_gives_no_more_lines_than_it_can() {
    let machine = MachineKind::TwoSockets.build();
    let misses = 0.05;
    let phase = Phase::COMPUTES.missing(misses, 10.0, 1e6);
    let program = Program::new("m", 20, Pattern::Nobody, &[phase]);
    let lines = work(&program, PolicyKind::Balancer) * misses / SECONDS;
    let most = 2.0 * machine.costs.lines_per_second;
    assert!(
        lines <= most * 1.001 && lines > 0.9 * most,
        "{lines} of {most}"
    );
}

#[test]
fn a_working_set_beyond_the_cache_slows_and_two_caches_hold_more_than_one() {
    let of = |bytes: f64| {
        let mut phase = Phase::COMPUTES.missing(0.0, 4.0, bytes);
        phase.accesses = 1e-2;
        Program::new("w", 8, Pattern::Nobody, &[phase])
    };
    let (fits, overflows) = (of(2e6), of(6e6));
    assert!(work(&fits, PolicyKind::Llc) > 1.05 * work(&overflows, PolicyKind::Llc));
    assert!(work(&overflows, PolicyKind::Balancer) > 1.05 * work(&overflows, PolicyKind::Llc));
}

#[test]
fn the_same_seed_gives_the_same_result_and_another_another() {
    let case = Case::new(
        MachineKind::TwoSockets,
        &[program("SGD", 10), program("CPU", 4)],
        60,
    );
    for policy in PolicyKind::ALL {
        let run = |seed| case.run(policy, Setup::default(), seed, SECONDS);
        assert_eq!(run(3), run(3), "{policy:?}");
        assert_ne!(run(3).work, run(4).work, "{policy:?}");
    }
}

#[test]
fn nobody_is_better_alone_than_the_oracle_beyond_noise() {
    for program in [hubench(8), program("MemBench", 8), program("Canneal", 4)] {
        let case = Case::new(MachineKind::TwoSockets, std::slice::from_ref(&program), 200);
        for policy in PolicyKind::ALL {
            let run = |policy| case.run(policy, Setup::default(), 1, SECONDS).work[0];
            assert!(
                run(policy) <= 1.01 * run(PolicyKind::Oracle),
                "{} {policy:?}",
                program.name
            );
        }
    }
}

#[test]
fn groups_that_span_processes_are_seen_by_the_matrix_alone() {
    let phase = Phase::COMPUTES.sharing(4e-3);
    let program = Program::new("span", 16, Pattern::Groups(4), &[phase]);
    let program = program.in_processes(Processes::Blocks(4));
    let case = Case::new(MachineKind::EightLlcs, &[program], 60);
    let run = |policy| case.run(policy, Setup::default(), 2, SECONDS).work[0];
    assert!(run(PolicyKind::Matrix) > 1.1 * run(PolicyKind::Cas));
    assert!(run(PolicyKind::Matrix) > 1.1 * run(PolicyKind::Balancer));
}
