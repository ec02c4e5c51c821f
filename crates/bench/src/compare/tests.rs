use super::*;

fn truth(workload: Workload, matrix: Vec<Vec<u64>>) -> Truth {
    let threads = matrix.len();
    let transfers = matrix
        .iter()
        .enumerate()
        .flat_map(|(a, row)| row.iter().take(a))
        .sum();
    Truth {
        workload,
        threads,
        fraction: 0.5,
        seconds: 2.0,
        seed: 1,
        accesses: 100_000_000,
        shared_accesses: 50_000_000,
        transfers,
        transfers_true: transfers,
        transfers_false: 0,
        handovers_on_one_cpu: 0,
        matrix_false: vec![vec![0; threads]; threads],
        matrix_true: matrix.clone(),
        matrix,
        tids: (0..threads as u32).map(|index| 100 + index).collect(),
        cpus: Vec::new(),
        false_fraction_configured: None,
        sampled_accesses: None,
        sampling_check: None,
        notes: Vec::new(),
        line_addresses: Vec::new(),
    }
}

fn repeat(workload: Workload, transfers: u64, estimate: f64, round_trip_ns: f64) -> Repeat {
    Repeat {
        truth: truth(workload, vec![vec![0, transfers], vec![transfers, 0]]),
        measured: Measured {
            transfers: estimate,
            low: 0.9 * estimate,
            high: 1.1 * estimate,
            false_share: Some(0.0),
            threads: vec![101, 100],
            matrix: vec![vec![0.0, estimate], vec![estimate, 0.0]],
            findings: 0,
        },
        round_trip_ns: Some(round_trip_ns),
    }
}

#[test]
fn no_repeats_are_no_comparison() {
    assert!(Comparison::new(Vec::new()).is_none());
}

#[test]
fn medians_and_variation_are_over_the_repeats() {
    let repeats = [0.95, 1.0, 1.4]
        .map(|ratio| repeat(Workload::WriteVolume, 1_000_000, 1e6 * ratio, 60.0))
        .to_vec();
    let comparison = Comparison::new(repeats).expect("there are repeats");
    assert_eq!(comparison.truth_per_second, 500_000.0);
    assert_eq!(comparison.ratio, Some(1.0));
    let variation = comparison.ratio_variation.expect("three repeats");
    assert!((variation - 0.2203).abs() < 0.001, "{variation}");
    assert_eq!(
        comparison.held, 2,
        "of 0.95, 1.0 and 1.4, each plus or minus 10 %"
    );
}

#[test]
fn an_estimate_far_from_a_busy_truth_misses_its_bar() {
    let near = Comparison::new(vec![repeat(Workload::WriteVolume, 1_000_000, 0.9e6, 60.0)]);
    let far = Comparison::new(vec![repeat(Workload::WriteVolume, 1_000_000, 0.7e6, 60.0)]);
    assert!(near.expect("a repeat").passed());
    let far = far.expect("a repeat");
    assert!(!far.passed());
    assert!(sharing_table(&[far]).contains("missed: write-volume, 2 threads"));
}

#[test]
fn a_quiet_truth_allows_neither_an_estimate_nor_a_finding() {
    let mut quiet = repeat(Workload::OneCpu, 0, 5_000.0, 60.0);
    assert!(
        Comparison::new(vec![quiet.clone()])
            .expect("a repeat")
            .passed()
    );
    quiet.measured.findings = 1;
    assert!(
        !Comparison::new(vec![quiet.clone()])
            .expect("a repeat")
            .passed()
    );
    quiet.measured = Measured {
        transfers: 2_000_000.0,
        ..Measured::default()
    };
    assert!(!Comparison::new(vec![quiet]).expect("a repeat").passed());
}

#[test]
fn repeats_in_two_latency_states_are_not_held_to_one_variation() {
    let mixed = vec![
        repeat(Workload::WriteVolume, 1_000_000, 1.2e6, 60.0),
        repeat(Workload::WriteVolume, 1_000_000, 0.8e6, 337.0),
    ];
    assert!(Comparison::new(mixed).expect("two repeats").passed());
    let alike = vec![
        repeat(Workload::WriteVolume, 1_000_000, 1.2e6, 60.0),
        repeat(Workload::WriteVolume, 1_000_000, 0.8e6, 62.0),
    ];
    assert!(!Comparison::new(alike).expect("two repeats").passed());
}

#[test]
fn matrices_are_compared_by_thread_id_not_by_position() {
    let mut repeat = Repeat {
        truth: truth(
            Workload::PointToPoint,
            vec![
                vec![0, 2_000_000, 0, 0],
                vec![2_000_000, 0, 0, 0],
                vec![0, 0, 0, 1_000_000],
                vec![0, 0, 1_000_000, 0],
            ],
        ),
        measured: Measured {
            transfers: 1.5e6,
            // The collector lists the second pair first, and a thread that took no part.
            threads: vec![102, 103, 99, 100, 101],
            matrix: vec![
                vec![0.0, 5e5, 0.0, 0.0, 0.0],
                vec![5e5, 0.0, 0.0, 0.0, 0.0],
                vec![0.0; 5],
                vec![0.0, 0.0, 0.0, 0.0, 1e6],
                vec![0.0, 0.0, 0.0, 1e6, 0.0],
            ],
            ..Measured::default()
        },
        round_trip_ns: None,
    };
    assert!(repeat.matrix_difference() < 1e-9);
    repeat.measured.threads.swap(0, 3);
    assert!(repeat.matrix_difference() > 0.9);
}

#[test]
fn the_json_holds_every_repeat() {
    let comparison = Comparison::new(vec![repeat(Workload::ReadWrite, 1_000_000, 1e6, 60.0)]);
    let json = sharing_json(&[comparison.expect("a repeat")]);
    let row = &json["comparisons"][0];
    assert_eq!(row["workload"], "read-write");
    assert_eq!(row["repeats"][0]["truth"]["transfers"], 1_000_000);
    assert_eq!(row["bars"][0]["passed"], true);
}

#[test]
fn round_trips_in_two_states_are_said_to_be() {
    let pair = |round_trips_ns| RoundTrips {
        cpu_a: 0,
        cpu_b: 1,
        round_trips_ns,
    };
    let table = rtt_table(&[
        pair(vec![60.0, 62.0, 61.0]),
        pair(vec![60.0, 337.0]),
        pair(vec![]),
    ]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[1].contains("61.0") && !lines[1].contains("state"),
        "{table}"
    );
    assert!(lines[2].ends_with("more than one latency state"), "{table}");
    assert!(lines[3].ends_with("not measured"), "{table}");
    assert_eq!(
        rtt_json(&[pair(vec![60.0, 62.0, 61.0])])["pairs"][0]["median_ns"],
        61.0
    );
}

#[test]
fn what_a_program_looks_at_to_count_is_shared_truly_and_allowed_for() {
    let error = |looks, measured| {
        let mut one = repeat(Workload::FalseSharing, 1_000_000, 2e6, 60.0);
        one.truth.transfers_false = one.truth.transfers;
        one.truth.sampled_accesses = Some(looks);
        one.measured.false_share = Some(measured);
        let comparison = Comparison::new(vec![one]).expect("there is one");
        comparison.bars[0].value
    };
    // Twice 100,000 looks, in two million transfers.
    assert!((error(100_000, 0.8) - 0.1).abs() < 1e-9);
    assert_eq!(error(100_000, 0.95), 0.0);
    assert!((error(0, 0.8) - 0.2).abs() < 1e-9);
}
