//! The figures for programs.

use super::result::Calibration;

/// The calibration as JSON, with every run.
#[must_use]
pub fn calibration_json(calibration: &Calibration) -> serde_json::Value {
    let mut json = serde_json::json!({ "schema": 1 });
    if let (Some(all), Ok(serde_json::Value::Object(fields))) =
        (json.as_object_mut(), serde_json::to_value(calibration))
    {
        all.extend(fields);
    }
    json
}

#[cfg(test)]
mod tests {
    use super::super::pairs::Distance;
    use super::super::result::tests::calibration;
    use super::*;

    #[test]
    fn the_json_has_thresholds_curves_and_every_run() {
        let of = [(Distance::Unshared, 5.0), (Distance::SameLlc, 60.0)];
        let json = calibration_json(&calibration(&of));
        assert_eq!(json["schema"], 1);
        assert_eq!(json["coherence"]["origin"]["kind"], "computed");
        assert_eq!(json["misses"]["origin"]["kind"], "assumed");
        assert_eq!(json["lines"]["measured"][1]["distance"], "same-llc");
        assert_eq!(json["lines"]["lacking"][0]["distance"], "same-socket");
        let comparison = &json["lines"]["comparisons"][0];
        assert_eq!(comparison["near"], "unshared");
        assert!(
            comparison["crossing"]["at"].as_f64().is_some(),
            "{comparison}"
        );
        assert_eq!(json["lines"]["samples"].as_array().map(Vec::len), Some(36));
        assert_eq!(json["notes"][0], "a note");
    }
}
