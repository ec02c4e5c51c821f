//! The access test in runs of a moment: every session of every sort and mode walks, ends, and is accounted for.

use linewise_bench::accesstest::{
    Accesstest, AccesstestError, AccesstestSpec, Case, Characteristics, Mode, SessionType, Start,
    run_accesstest,
};
use linewise_machine::affinity::allowed_cpus;

fn case(phases: &[&str], shared: &[&str]) -> Case {
    Case {
        characteristics: Characteristics {
            phases: phases.iter().map(|text| text.parse().unwrap()).collect(),
            shared: shared.iter().map(|text| text.parse().unwrap()).collect(),
        },
        update_percent: None,
    }
}

fn run(change: impl FnOnce(&mut AccesstestSpec)) -> Result<Accesstest, AccesstestError> {
    let mut spec = AccesstestSpec {
        cases: vec![case(&["0/64,0.5", "0/64,0.5"], &[])],
        sessions: 10,
        seconds: 0.02,
        repeats: 1,
        wipes: false,
        ..AccesstestSpec::default()
    };
    change(&mut spec);
    run_accesstest(&spec, |_| {})
}

/// The modes that this machine's CPUs allow.
fn modes() -> usize {
    if allowed_cpus().len() < 2 { 1 } else { 4 }
}

#[test]
fn accesses_are_the_sum_of_the_sessions_steps_in_every_mode() {
    for session_type in [SessionType::Fibre, SessionType::Thread] {
        let only = |mode: Mode| {
            run(|spec| {
                spec.session_type = session_type;
                spec.modes = vec![mode];
                spec.logs_sessions = true;
                spec.start = Start::Spread;
            })
        };
        for mode in &Mode::ALL[..modes()] {
            let test = only(*mode).unwrap();
            let sum: u64 = test.log.iter().map(|session| session.accesses).sum();
            assert_eq!(test.samples[0].accesses, sum, "{mode:?}");
            assert_eq!(test.log.len(), 10);
            for (id, session) in test.log.iter().enumerate() {
                assert_eq!((session.id, session.phase), (id, id % 2));
                assert!(session.accesses > 0 && session.stack.start < session.stack.end);
                assert!(session.begin_ns <= session.end_ns);
            }
        }
    }
}

#[test]
fn phases_that_share_lines_and_sessions_with_lines_of_their_own_walk_in_every_mode() {
    for fresh in [false, true] {
        for session_type in [SessionType::Fibre, SessionType::Thread] {
            let test = run(|spec| {
                spec.session_type = session_type;
                spec.fresh = fresh;
                spec.cases = vec![
                    case(&["2/8,0.1", "1/4,1", "0/2"], &["3/5:0,0.5,0.5/2"]),
                    case(&["0/1,0,900", "1/0,0.5,1"], &[]),
                ];
            });
            let test = test.unwrap();
            assert_eq!(test.samples.len(), 2 * modes());
            assert!(test.samples.iter().all(|sample| sample.accesses > 0));
        }
    }
}

#[test]
fn one_phase_and_one_cpu_are_synchronous() {
    let one = run(|spec| spec.cases = vec![case(&["0/10"], &[])]).unwrap();
    assert_eq!(one.modes, [Mode::Synchronous]);
    let cpu = allowed_cpus()[0];
    let one = run(|spec| {
        spec.cpus = vec![cpu];
        spec.wipes = true;
    })
    .unwrap();
    assert!(one.wiped_bytes > 0);
    assert_eq!((one.modes.len(), one.left_out, one.points.len()), (1, 0, 1));
    assert!(one.notes[0].contains("needs two CPUs"), "{:?}", one.notes);
    let error = run(|spec| {
        spec.cpus = vec![cpu];
        spec.modes = vec![Mode::Visit];
    });
    assert!(matches!(
        error,
        Err(AccesstestError::OneCpu { mode: "visit", .. })
    ));
}

#[test]
fn nothing_is_measured_of_what_cannot_be() {
    let refused = |change: fn(&mut AccesstestSpec)| run(change).unwrap_err().to_string();
    assert!(refused(|spec| spec.sessions = 0).contains("sessions"));
    assert!(refused(|spec| spec.seconds = f64::NAN).contains("seconds"));
    assert!(refused(|spec| spec.start = Start::Phase(2)).contains("no phase 2"));
    assert!(refused(|spec| spec.cpus = vec![100_000]).contains("100000"));
    let large = refused(|spec| {
        spec.sessions = 10_000;
        spec.cases.push(case(&["30000000/0"], &[]));
    });
    assert!(large.contains("are available"), "{large}");
}
