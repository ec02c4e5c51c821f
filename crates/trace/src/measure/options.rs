//! What is to be measured of a trace.

use linewise_cache::hierarchy::ConfigError;
use linewise_cache::reuse::{Choice, ReuseError, Sampling};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasureOptions {
    /// The trace holds one line in so many; 1 for all.
    pub one_line_in: u32,
    /// Caches are simulated with their sizes; otherwise no core loses a line for want of room.
    pub simulates: bool,
    /// How reuse distances are measured.
    pub reuse: ReuseShare,
    /// Bytes of an element whose reuse is measured beside that of lines, below those of a line.
    pub element_bytes: Option<u32>,
    /// Reuse is told by the calls that led to it.
    pub follows_calls: bool,
    /// Objects are followed from their allocation to their end.
    pub follows_objects: bool,
    /// Bytes that records of lines may take, without simulated caches.
    pub most_bytes: u64,
}

/// How reuse distances are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ReuseShare {
    /// Not at all.
    None,
    /// Of one line in so many, chosen by hash; 1 for all.
    OneLineIn(u32),
    /// Of one line in 64: cheap beside the simulation, and good to a percent where there are some
    /// thousand lines.
    #[default]
    Usual,
}

impl ReuseShare {
    const USUAL: u32 = 64;

    /// One line in how many; `None` if none.
    #[must_use]
    pub fn one_in(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::OneLineIn(one_in) => Some(one_in.max(1)),
            Self::Usual => Some(Self::USUAL),
        }
    }

    pub(crate) fn sampling(self, one_line_in: u32) -> Option<Sampling> {
        let one_in = self.one_in()?;
        Some(if one_line_in > 1 {
            // What comes in is a sample already, and the tracer chose it.
            Sampling::Thinned {
                rate: 1.0 / f64::from(one_line_in),
            }
        } else if one_in > 1 {
            Sampling::FixedRate {
                rate: 1.0 / f64::from(one_in),
                choice: Choice::Stratified,
            }
        } else {
            Sampling::Exact
        })
    }
}

/// Why nothing can be measured.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The machine cannot be simulated.
    #[error("this machine's caches cannot be simulated: {0}; name another with --machine")]
    Machine(ConfigError),
    /// Reuse cannot be measured like that.
    #[error("reuse distances cannot be measured: {0}")]
    Reuse(ReuseError),
    /// Elements are to be parts of a line.
    #[error(
        "elements of {element_bytes} bytes are no parts of lines of {line_bytes}; take a power of two \
         below that"
    )]
    Element {
        /// Their bytes.
        element_bytes: u32,
        /// Those of a line.
        line_bytes: u32,
    },
}
