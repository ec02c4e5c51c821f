//! Reuse benchmarks: programs whose reuse distances are known, and how well they are measured.
//!
//! RIBench (Sasongko, Chabbi, Marzijarani, Unat: ReuseTracker; listing 6.1 and tables 6.4 to 6.7 of
//! the thesis version) and five simpler kinds, as real programs with real threads. Each thread only
//! walks over whole arrays, so it knows every distance from where each array's last walk began; a
//! store to the shared array is a swap with the thread's name, so whether somebody else stored
//! there since is seen by value, whatever the threads' order was.
//!
//! What becomes of a *line* that several threads store to at once cannot be counted this way. For
//! that the programs run once more with the threads *taking turns*: one walk at a time. Then one
//! account of all threads together is also the truth for a cache that they share.

mod account;
mod program;
mod score;

pub use account::Counted;
pub use program::{ACCESS_BYTES, WALK, run_reuse};
pub use score::{Estimate, Mode, ReuseRow, Scope, Score, reuse_json, reuse_table};

use linewise_cache::reuse::ribench::{CASES, Parameters};

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RIBench with these parameters.
    RiBench(Parameters),
    /// One thread, two arrays.
    Single {
        /// Elements of the array that is only read.
        elements: u64,
        /// Walks over each.
        passes: u64,
    },
    /// Each thread an array of another size, and one that all of them read.
    MultiThread {
        /// Elements of the array that is only read.
        elements: u64,
        /// Walks over each.
        passes: u64,
    },
    /// All threads swap all elements of one array.
    Invalidation {
        /// Its elements.
        elements: u64,
        /// Walks of each thread.
        passes: u64,
    },
    /// One thread fills the slots, then another one reads them, and so on.
    Ring {
        /// Slots.
        elements: u64,
        /// How often each is filled.
        passes: u64,
    },
    /// Each thread walks once over an array of its own.
    Scan {
        /// Its elements.
        elements: u64,
    },
}

impl Kind {
    /// Whether threads store to the same elements.
    fn shares(&self) -> bool {
        match self {
            Self::RiBench(parameters) => parameters.shared > 0,
            Self::Invalidation { .. } | Self::Ring { .. } => true,
            Self::Single { .. } | Self::MultiThread { .. } | Self::Scan { .. } => false,
        }
    }
}

/// How large the programs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Short cases with the arrays of the tables, long ones with a fiftieth, all with an eighth of
    /// the passes and a fifth of the repetitions.
    Small,
    /// As in the tables.
    Full,
}

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReuseSpec {
    /// Its name, one of [`ReuseSpec::names`].
    pub name: &'static str,
    /// What it does.
    pub kind: Kind,
    /// How many threads do so.
    pub threads: usize,
    /// Whether they take turns.
    pub turns: bool,
}

/// What a program counted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReuseTruth {
    /// Accesses in all.
    pub accesses: u64,
    /// Each thread by itself, by element of 8 bytes.
    pub temporal: Counted,
    /// Each thread by itself, by line of 64 bytes; where it is known.
    pub spatial: Option<Counted>,
    /// All threads behind one cache, by element, if they took turns.
    pub behind_one_cache: Option<Counted>,
}

impl ReuseTruth {
    /// The truth as one line of JSON.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Reads what a program printed.
    ///
    /// # Errors
    /// When the last line is not a truth.
    pub fn from_output(output: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(output.lines().next_back().unwrap_or_default())
    }
}

const KINDS: [&str; 5] = ["single", "multi-thread", "invalidation", "ring", "scan"];

impl ReuseSpec {
    /// The names of all programs: the cases of tables 6.5, 6.6 and 6.7, then the simple kinds.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CASES.iter().map(|case| case.name).chain(KINDS)
    }

    /// The program of this name; `None` if there is none.
    #[must_use]
    pub fn new(name: &str, size: Size, threads: usize, turns: bool) -> Option<Self> {
        let name = Self::names().find(|known| *known == name)?;
        let (elements, passes) = match size {
            Size::Small => (8_000, 8),
            Size::Full => (64_000, 40),
        };
        let kind = match name {
            "single" => Kind::Single { elements, passes },
            "multi-thread" => Kind::MultiThread { elements, passes },
            "invalidation" => Kind::Invalidation { elements, passes },
            "ring" => Kind::Ring { elements, passes },
            "scan" => Kind::Scan {
                elements: elements * passes,
            },
            _ => {
                let case = CASES.iter().find(|case| case.name == name)?;
                let mut parameters = case.parameters;
                if size == Size::Small {
                    if name.starts_with("Long") {
                        parameters = parameters.smaller(50);
                    }
                    parameters.outer /= 5;
                    for each in &mut parameters.loops {
                        each.passes = each.passes.div_ceil(8);
                    }
                }
                Kind::RiBench(parameters)
            }
        };
        let threads = match kind {
            Kind::Single { .. } => 1,
            Kind::Ring { .. } => 2,
            _ => threads.max(1),
        };
        Some(Self {
            name,
            kind,
            threads,
            turns,
        })
    }

    /// Whether a run with turns tells something that one without does not.
    #[must_use]
    pub fn wants_turns(&self) -> bool {
        self.threads > 1 && !matches!(self.kind, Kind::Ring { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_runs_and_counts_all_of_its_touches() {
        for name in ReuseSpec::names() {
            // Debug builds are slow: one of the long cases is enough.
            if name.starts_with("Long") && name != "Long-RD Bell-Shaped Case 2" {
                continue;
            }
            for turns in [false, true] {
                let spec = ReuseSpec::new(name, Size::Small, 2, turns).expect("has this name");
                let truth = run_reuse(&spec);
                let line = truth.to_json_line();
                assert_eq!(ReuseTruth::from_output(&line).expect("is a truth"), truth);
                assert_eq!(truth.temporal.touches(), truth.accesses, "{name}");
                if let Some(spatial) = &truth.spatial {
                    assert_eq!(spatial.touches(), truth.accesses, "{name}");
                }
                if let Some(all) = &truth.behind_one_cache {
                    assert_eq!(all.touches(), truth.accesses, "{name}");
                    assert_eq!(all.invalidated, 0);
                }
                let in_turns = turns || name == "ring";
                assert_eq!(
                    truth.spatial.is_some(),
                    in_turns || !spec.kind.shares(),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn a_ring_is_invalidated_for_its_reader_only_and_reused_behind_one_cache() {
        let spec = ReuseSpec::new("ring", Size::Small, 2, false).expect("has this name");
        let Kind::Ring { elements, passes } = spec.kind else {
            panic!("is no ring");
        };
        let truth = run_reuse(&spec);
        assert_eq!(truth.temporal.invalidated, elements * (passes - 1));
        assert_eq!(truth.temporal.cold, 2 * elements);
        let all = truth.behind_one_cache.expect("its threads take turns");
        assert_eq!(all.cold, elements);
        assert_eq!(
            all.reuses,
            [(elements - 1, elements - 1, elements * (2 * passes - 1))]
        );
    }

    #[test]
    fn ribench_alone_counts_what_the_listing_says() {
        let spec =
            ReuseSpec::new("Short-RD Decreasing Case 2", Size::Small, 1, false).expect("is a case");
        let Kind::RiBench(parameters) = spec.kind else {
            panic!("is no case");
        };
        let truth = run_reuse(&spec);
        assert_eq!(truth.temporal.distances(), parameters.expected(1));
        assert_eq!(truth.accesses, parameters.accesses(1));
    }
}
