//! The figures for programs.

use super::result::{Accesstest, Range};

/// The test as JSON, with every run and the largest gains of delegation by cache and update ratio.
#[must_use]
pub fn accesstest_json(test: &Accesstest) -> serde_json::Value {
    let mut json = serde_json::json!({ "schema": 1 });
    if let (Some(all), Ok(serde_json::Value::Object(fields))) =
        (json.as_object_mut(), serde_json::to_value(test))
    {
        all.extend(fields);
        let peaks = Range::of(test).into_iter().flat_map(|range| {
            let peaks = test.peaks(range).into_iter();
            peaks.map(move |peak| serde_json::json!({ "around": range.level, "gain": peak }))
        });
        all.insert("peaks".to_owned(), peaks.collect());
    }
    json
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::test;
    use super::super::spec::Mode;
    use super::*;

    #[test]
    fn the_json_has_the_points_with_their_rates_and_round_trips() {
        let near = Some((60.0, 60.0));
        let json = accesstest_json(&test(
            &[(98_304, 0.1)],
            &[
                (0, Mode::Synchronous, 10.0, near),
                (0, Mode::Requests, 20.0, near),
            ],
        ));
        assert_eq!(json["schema"], 1);
        let point = &json["points"][1];
        assert_eq!(point["bytes"], 98_304);
        assert_eq!(point["update_percent"], 0.1);
        assert_eq!(point["mode"], "requests");
        assert_eq!(point["sessions"], 100);
        assert_eq!(point["accesses_per_s"]["median"], 20.0);
        assert_eq!(point["accesses_per_s"]["low"], 20.0);
        assert_eq!(point["accesses_per_s"]["high"], 20.0);
        assert!((point["round_trip_ns"].as_f64().unwrap() - 60.0).abs() < 1e-9);
        assert_eq!(json["gains"][0]["percent"], 100.0);
        assert_eq!(json["samples"].as_array().map(Vec::len), Some(2));
    }
}
