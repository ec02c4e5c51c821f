//! How much of a program's time passes in the kernel.

use crate::util::{Place, skip};

/// A quarter of a call may pass on the way back, with interrupts off: it must not be the program's.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_share_of_the_kernel_is_what_the_program_counts() {
    let place = Place::new();
    let Some(program) = place.compile("gcc", "crates/cli/tests/calls.c", "calls", &["-O2"]) else {
        return;
    };
    // Thirteen hundred samples, of which half are off by some 3 %.
    let mut record = place.linewise(["record", "--rate", "1300", "-o", "made", "--"]);
    let output = place.finish(record.arg(&program));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let counted = output.stdout.trim().parse::<f64>().unwrap() / 1000.0;
    let report = place.finish(&mut place.linewise(["report", "--json", "made.linewise"]));
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    let Some(seen) = report["coverage"]["kernel"].as_f64() else {
        return skip("the kernel may not be sampled here");
    };
    assert!(
        (seen - counted).abs() < 0.12,
        "{seen:.2} sampled, {counted:.2} counted: {:#}",
        report["samples"]
    );
}
