//! The figures for programs.

use super::{Results, bars};

/// The same as JSON: `workloads`, each with its `policies`, `sensitivity`, and `bars`.
#[must_use]
pub fn json(results: &Results) -> serde_json::Value {
    serde_json::json!({
        "schema": 1,
        "seeds": results.seeds,
        "seconds": results.seconds,
        "workloads": results.rows,
        "sensitivity": results.sensitivity,
        "bars": bars(results),
    })
}
