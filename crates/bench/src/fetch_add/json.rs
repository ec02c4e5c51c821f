//! The figures for programs.

use super::rates::balances;
use super::result::Experiment;

/// The same as JSON, with every sample, and the equation of rates; `one_cpu` is the experiment on one CPU,
/// `null` if it was not made, `others` are those with other numbers of threads.
#[must_use]
pub fn fetch_add_json(
    experiment: &Experiment,
    one_cpu: Option<&Experiment>,
    others: &[Experiment],
) -> serde_json::Value {
    serde_json::json!({
        "schema": 1,
        "experiment": experiment,
        "one_cpu": one_cpu,
        "others": others,
        "rates": balances(experiment),
    })
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::{experiment, sample};
    use super::super::spec::Method;
    use super::*;

    #[test]
    fn the_json_names_contenders_and_keeps_every_sample() {
        let near = Some((60.0, 60.0));
        let experiment = experiment(
            vec![
                sample(Method::Ffwd(1), 1, 1.0, near),
                sample(Method::Ffwd(1), 1, 3.0, near),
            ],
            vec![0, 1],
        );
        let json = fetch_add_json(&experiment, None, &[]);
        assert_eq!(json["one_cpu"], serde_json::Value::Null);
        let row = &json["experiment"]["rows"][0];
        assert_eq!(row["contender"], "ffwd-1s");
        assert_eq!(row["family"], "ffwd");
        assert_eq!(row["operation"], "add");
        assert_eq!(row["mops"], 1.5);
        assert_eq!(row["request_lines"], serde_json::Value::Null);
        let samples = json["experiment"]["samples"].as_array();
        assert_eq!(samples.map(Vec::len), Some(2));
        assert_eq!(json["experiment"]["samples"][0]["round_trips_ns"][0], 60.0);
    }
}
