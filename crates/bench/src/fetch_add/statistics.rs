//! What a domain counts.

use serde::Serialize;

/// What a domain counted in a sample: the four things that the thesis plots, and the server's work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// The share of the servers' looks that found requests.
    pub server_saturation: f64,
    /// The share of the clients' looks that found an answer.
    pub responses_ready: f64,
    /// The share of free request lines for which no request was pending.
    pub failed_pops: f64,
    /// Requests a request line.
    pub requests_a_line: f64,
    /// From the first request of a line to its callbacks, in ticks of the processor's reference
    /// clock; `None` unless timed.
    pub latency_ticks: Option<f64>,
    /// Ticks of the server's time for a request; `None` unless timed.
    pub server_ticks_a_request: Option<f64>,
}

impl Statistics {
    /// The mean of those of some samples; `None` of none.
    pub(super) fn mean(all: &[Self]) -> Option<Self> {
        let mean = |what: fn(&Self) -> f64| all.iter().map(what).sum::<f64>() / all.len() as f64;
        // Timed are all samples of an experiment, or none.
        let of_some = |what: fn(&Self) -> Option<f64>| {
            let sum: Option<f64> = all.iter().map(what).sum();
            sum.map(|sum| sum / all.len() as f64)
        };
        (!all.is_empty()).then(|| Self {
            server_saturation: mean(|one| one.server_saturation),
            responses_ready: mean(|one| one.responses_ready),
            failed_pops: mean(|one| one.failed_pops),
            requests_a_line: mean(|one| one.requests_a_line),
            latency_ticks: of_some(|one| one.latency_ticks),
            server_ticks_a_request: of_some(|one| one.server_ticks_a_request),
        })
    }
}
