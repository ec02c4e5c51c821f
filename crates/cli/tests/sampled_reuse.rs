//! Reuse sampled at full speed, of programs that know their distances.

use serde_json::Value;

use crate::util::{Place, skip};

/// Records a case of RIBench on one thread with reuse sampled; `None`, with the reason said, where
/// nothing can be watched.
fn sampled(place: &Place, case: &str, outer: &str) -> Option<Value> {
    let name = case.replace(' ', "-");
    let output = place.finish(
        place
            .linewise(["record", "--reuse", "sampled", "--overhead", "20%", "-o"])
            .args([name.as_str(), "--", env!("CARGO_BIN_EXE_linewise")])
            .args(["bench", "reuse-program", case, "--threads", "1"])
            .args(["--full", "--outer", outer]),
    );
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let recording = format!("{name}.linewise");
    let output = place.finish(&mut place.linewise(["report", recording.as_str(), "--json"]));
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let reuse = report["sampled_reuse"].clone();
    if reuse.is_null() {
        skip(&format!("no watchpoints: {}", report["losses"]));
        return None;
    }
    Some(reuse)
}

fn bins(times: &Value) -> Vec<(f64, f64)> {
    let bins = times["bins"].as_array().expect("bins");
    let number = |value: &Value| value.as_f64().expect("a number");
    bins.iter()
        .map(|bin| (number(&bin["to"]), number(&bin["count"])))
        .collect()
}

/// The time within which half of the reuses come, ns.
fn median(times: &Value) -> f64 {
    let bins = bins(times);
    let all: f64 = bins.iter().map(|bin| bin.1).sum();
    let mut before = 0.0;
    let half = bins.iter().find(|bin| {
        before += bin.1;
        before >= all / 2.0
    });
    half.expect("some reuses").0
}

#[test]
fn elements_of_large_arrays_come_back_later_than_those_of_small_ones() {
    let place = Place::new();
    let Some(short) = sampled(&place, "Short-RD Increasing", "1500") else {
        return;
    };
    let Some(long) = sampled(&place, "Long-RD Increasing", "40") else {
        return;
    };
    for reuse in [&short, &long] {
        let private = &reuse["private"];
        assert!(private["uses"].as_u64() > Some(20), "{reuse}");
        let seen: f64 = bins(private).iter().map(|bin| bin.1).sum();
        let rest = ["invalidated", "unfinished"].map(|name| private[name].as_f64().unwrap());
        assert!((seen + rest[0] + rest[1] - 1.0).abs() < 1e-6, "{reuse}");
        assert_eq!(rest[0], 0.0, "one thread cannot invalidate: {reuse}");
        let doubt = reuse["doubt"].as_str().unwrap();
        assert!(doubt.contains("--rate-from"), "{doubt}");
    }
    // The arrays differ by a factor of 100.
    let (short, long) = (median(&short["private"]), median(&long["private"]));
    assert!(long > 10.0 * short, "{short} ns, {long} ns");
}

#[test]
fn a_way_to_measure_reuse_that_the_source_does_not_have_is_refused_with_one_that_it_has() {
    let place = Place::new();
    for (options, advice) in [
        (&["--reuse", "all"][..], "--reuse sampled"),
        (
            &["--source", "exact", "--reuse", "sampled"],
            "--reuse all or --reuse 1/64",
        ),
    ] {
        let output = place.finish(
            place
                .linewise(["record"])
                .args(options)
                .args(["--", "true"]),
        );
        assert_eq!(output.code, Some(125), "{}", output.stderr);
        assert!(output.stderr.contains(advice), "{}", output.stderr);
    }
}
