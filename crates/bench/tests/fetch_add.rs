//! The fetch-and-add experiment in samples of a moment: every contender's account must balance, or
//! the run is an error.

use linewise_bench::PlacementError;
use linewise_bench::fetch_add::{
    Experiment, FetchAddError, FetchAddSpec, Operation, run_fetch_add,
};

fn run(change: impl FnOnce(&mut FetchAddSpec)) -> Result<Experiment, FetchAddError> {
    let mut spec = FetchAddSpec {
        variables: vec![1, 64],
        seconds: 0.01,
        samples: 2,
        threads: 2,
        ..FetchAddSpec::default()
    };
    change(&mut spec);
    run_fetch_add(&spec, |_| {})
}

#[test]
fn no_contender_loses_an_increment_or_gives_a_wrong_answer() {
    let experiment = run(|spec| spec.operations = Operation::ALL.to_vec()).unwrap();
    let contenders = experiment.contenders.len();
    assert_eq!(experiment.samples.len(), contenders * 2 * 2 * 2);
    for sample in &experiment.samples {
        assert!(sample.operations > 0 && sample.mops > 0.0, "{sample:?}");
    }
}

#[test]
fn more_threads_than_cpus_and_than_variables_balance_too() {
    let experiment = run(|spec| {
        spec.threads = 5;
        spec.variables = vec![1, 3];
        spec.samples = 1;
    })
    .unwrap();
    for sample in &experiment.samples {
        assert_eq!(sample.servers + sample.clients, 5, "{sample:?}");
        assert!(sample.servers <= sample.variables, "{sample:?}");
    }
}

#[test]
fn threads_that_share_one_cpu_get_on() {
    let cpu = linewise_machine::affinity::allowed_cpus()[0];
    let experiment = run(|spec| {
        spec.threads = 4;
        spec.cpus = vec![cpu];
        spec.variables = vec![2];
        spec.samples = 1;
    })
    .unwrap();
    // No two CPUs, no round trip, no state: nothing is left out.
    assert_eq!(experiment.left_out, 0);
    assert_eq!(experiment.rows.len(), experiment.contenders.len());
}

#[test]
fn a_row_is_the_harmonic_mean_of_its_samples() {
    let experiment = run(|spec| {
        spec.only = vec!["atomic".to_owned()];
        spec.samples = 3;
    })
    .unwrap();
    for row in &experiment.rows {
        assert!(
            row.mops_low <= row.mops && row.mops <= row.mops_high,
            "{row:?}"
        );
        assert!(row.samples <= 3);
    }
    let placed: usize = experiment.rows.iter().map(|row| row.samples).sum();
    assert_eq!(placed + experiment.left_out, experiment.samples.len());
}

#[test]
fn what_cannot_be_run_is_said() {
    let nobody = run(|spec| spec.only = vec!["futex".to_owned()]).unwrap_err();
    assert!(nobody.to_string().contains("pthread-mutex"), "{nobody}");
    let range = run(|spec| spec.variables = vec![0]).unwrap_err();
    assert!(matches!(range, FetchAddError::Range { .. }), "{range}");
    let cpu = run(|spec| spec.cpus = vec![1_000_000]).unwrap_err();
    assert!(
        matches!(cpu, FetchAddError::Placement(PlacementError::Cpu { .. })),
        "{cpu}"
    );
}
