//! What to measure, and how exactly.

use std::fmt;

/// Whose accesses count as one stream of uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// Each thread by itself, as in a private cache.
    #[default]
    Private,
    /// Threads behind one cache together: for each thread, by number, which cache. A thread that
    /// the list does not name is alone.
    Shared(Vec<u16>),
}

/// Which units are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Sampling {
    /// All of them.
    #[default]
    Exact,
    /// A share of them, chosen by hash (SHARDS: Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC
    /// construction with SHARDS, FAST 2015, section 3).
    FixedRate {
        /// The share, above 0 and at most 1.
        rate: f64,
        /// How they are chosen.
        choice: Choice,
    },
    /// The stream is a sample already: it holds the units of a share that was chosen by hash, and
    /// no others. All of them are followed; touches and distances are scaled back.
    Thinned {
        /// The share, above 0 and at most 1.
        rate: f64,
    },
    /// At most so many: the share is lowered whenever more would have to be followed (FAST 2015,
    /// section 4), by a sixteenth at a time.
    FixedSize {
        /// Entries to keep at most, at least 1024. A unit that several groups use counts once for
        /// each. An entry takes up to 48 bytes; see [`Sampling::bounded`].
        entries: usize,
        /// The share to begin with, above 0 and at most 1.
        rate: f64,
        /// How they are chosen.
        choice: Choice,
    },
}

impl Sampling {
    /// Fixed-size sampling whose entries stay within 64 MB whatever the footprint.
    #[must_use]
    pub fn bounded() -> Self {
        Self::FixedSize {
            entries: 1 << 20,
            rate: 1.0,
            choice: Choice::Hashed,
        }
    }
}

/// How a share of all units is chosen. Either way the chosen units of a smaller share are among
/// those of a larger one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Each unit by its own hash ([`line_hash`](crate::line_hash) at most `u64::MAX` times the
    /// share): the same units that every other part of linewise chooses.
    #[default]
    Hashed,
    /// Evenly among neighbours: 1 in 64 is exactly one of every 64 aligned units, at a place that
    /// the hash of the 64 decides. Each unit is as likely as before and units of different blocks
    /// are independent, but the number chosen from an array hardly varies, so footprints of some
    /// thousand units can be sampled. The price: where a program uses whole blocks, neighbours of
    /// a chosen unit are never chosen with it, and distances are known to half a block only (31
    /// units at 1/64).
    Stratified,
}

/// What distances are counted by, besides thread and cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// A histogram for each instruction that reuses.
    pub sites: bool,
    /// A histogram for each pair of the instruction that used and the one that reuses: this many,
    /// those with the most touches; the rest in one sum. Zero for none. Up to four times as many
    /// are followed; what is given up beyond that goes to the sum at once, so with more pairs than
    /// that the counts of the shown ones are lower bounds.
    pub pairs: usize,
}

/// What a [`ReuseTracker`](super::ReuseTracker) measures.
#[derive(Clone, Debug, PartialEq)]
pub struct ReuseOptions {
    /// Bytes of a unit of reuse, a power of two from 1 (temporal: the same bytes) to 4096; 64 is
    /// spatial: the same line.
    pub granularity_bytes: u32,
    /// Private or shared.
    pub grouping: Grouping,
    /// Exact or sampled.
    pub sampling: Sampling,
    /// What is attributed.
    pub attribution: Attribution,
}

impl Default for ReuseOptions {
    /// Private reuse of lines of 64 bytes, exact, attributed to threads only.
    fn default() -> Self {
        Self {
            granularity_bytes: 64,
            grouping: Grouping::Private,
            sampling: Sampling::Exact,
            attribution: Attribution::default(),
        }
    }
}

impl ReuseOptions {
    /// The options, if they can be followed.
    pub(super) fn check(&self) -> Result<(), ReuseError> {
        let granularity = self.granularity_bytes;
        if !granularity.is_power_of_two() || granularity > 4096 {
            return Err(ReuseError::Granularity(granularity));
        }
        let rate = match self.sampling {
            Sampling::Exact => 1.0,
            Sampling::FixedRate { rate, .. }
            | Sampling::Thinned { rate }
            | Sampling::FixedSize { rate, .. } => rate,
        };
        if !(SMALLEST_RATE..=1.0).contains(&rate) {
            return Err(ReuseError::Rate(rate));
        }
        match self.sampling {
            Sampling::FixedSize { entries, .. } if entries < FEWEST_ENTRIES => {
                Err(ReuseError::Entries(entries))
            }
            _ => Ok(()),
        }
    }
}

const SMALLEST_RATE: f64 = 1.0 / (1u64 << 32) as f64;
const FEWEST_ENTRIES: usize = 1024;

/// Why options cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ReuseError {
    /// The granularity.
    Granularity(u32),
    /// The share of units to follow.
    Rate(f64),
    /// The number of entries.
    Entries(usize),
}

impl fmt::Display for ReuseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granularity(bytes) => write!(
                formatter,
                "a granularity of {bytes} bytes is not a power of two from 1 to 4096; use 64 for lines"
            ),
            Self::Rate(rate) => write!(
                formatter,
                "a sampling rate of {rate} is not a share from 2^-32 to 1; use 0.015625 for 1 in 64"
            ),
            Self::Entries(entries) => write!(
                formatter,
                "{entries} entries are too few for an estimate; use at least {FEWEST_ENTRIES}"
            ),
        }
    }
}

impl std::error::Error for ReuseError {}
