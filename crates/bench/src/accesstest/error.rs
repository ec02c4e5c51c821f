//! Why there is no figure.

use crate::placement::PlacementError;

/// Why an access test could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccesstestError {
    /// A number is out of range.
    #[error("{what} must be {}, not {given}", range(*low, *high))]
    Range {
        /// What it is the number of.
        what: &'static str,
        /// The least.
        low: f64,
        /// The most.
        high: f64,
        /// What was asked for, as it was written where that is known.
        given: String,
    },
    /// A text is not what it should be.
    #[error("{given:?} is no {what}: {why}; write {example}")]
    Syntax {
        /// What was read.
        given: String,
        /// What it should be.
        what: &'static str,
        /// What is wrong with it.
        why: String,
        /// What is right.
        example: &'static str,
    },
    /// A working set has fewer lines than it has phases.
    #[error(
        "{lines} lines cannot be cut into {phases} phases of at least one line; take fewer phases or a larger working set ({phases} phases need {} bytes)",
        phases * 64
    )]
    Phases {
        /// How many phases.
        phases: u64,
        /// How many lines.
        lines: u64,
    },
    /// A phase would access nothing.
    #[error(
        "phase {phase} accesses no line; give it at least one, of its own or shared with another phase"
    )]
    Empty {
        /// Which one.
        phase: usize,
    },
    /// A phase is named that there is not.
    #[error(
        "there is no phase {phase}: {phases} are described, counted from 0; describe more or name another"
    )]
    NoPhase {
        /// Which one.
        phase: usize,
        /// How many there are.
        phases: usize,
    },
    /// More phases share a line than it has elements.
    #[error(
        "{phases} phases cannot share a line: each access is an element of 4 bytes, and a line of 64 has 16; let at most 16 share"
    )]
    Sharers {
        /// How many.
        phases: usize,
    },
    /// No path of this size has these relative numbers of accesses.
    #[error(
        "no path has accesses in these proportions: {lines} lines would need {} accesses an iteration, and can have {} (16 elements a line, each accessed up to {repeats} times); bring the weights nearer to each other, or give the heavy group more lines",
        count(*accesses), count(*most)
    )]
    Ratio {
        /// Lines of the group that is accessed most.
        lines: u64,
        /// Accesses that it would need.
        accesses: f64,
        /// Accesses that it can have.
        most: f64,
        /// Accesses of an element at most.
        repeats: u64,
    },
    /// The index of an element is too large.
    #[error(
        "{bytes} bytes are more than an element's index of 29 bits reaches ({most}); take a smaller working set"
    )]
    TooLarge {
        /// What was asked for.
        bytes: u64,
        /// What there can be.
        most: u64,
    },
    /// There is not so much memory.
    #[error(
        "a working set of {bytes} bytes needs {needed} bytes with all that belongs to it, and {available} are available; take a smaller one, fewer sessions with lines of their own, or end other programs"
    )]
    Memory {
        /// The working set.
        bytes: u64,
        /// With what is needed to make it.
        needed: u64,
        /// What there is.
        available: u64,
    },
    /// The kernel gave none.
    #[error("the kernel gave no memory for {what}; take a smaller working set, or raise ulimit -v")]
    NoMemory {
        /// What for.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// Something needs a second CPU.
    #[error(
        "mode {mode} needs two CPUs, one for each side, and has {cpus:?}; give two with --cpus, widen the CPU set (taskset, cpuset), or take --mode synchronous, which works on one"
    )]
    OneCpu {
        /// Which mode.
        mode: &'static str,
        /// The CPUs it has.
        cpus: Vec<u32>,
    },
    /// There is nothing to delegate.
    #[error(
        "mode {mode} delegates phases, and there is one only; describe two, or take --mode synchronous"
    )]
    OnePhase {
        /// Which mode.
        mode: &'static str,
    },
    /// A cache is asked for that the machine does not tell of.
    #[error("the machine does not tell the size of its {cache} cache; give the sizes with --sizes")]
    NoCache {
        /// Which one.
        cache: &'static str,
    },
    /// The threads could not be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The fibres could not be started.
    #[error("the fibres could not be started; take fewer sessions, or raise ulimit -n and -v")]
    Fibres(#[from] linewise_fibres::Error),
    /// Delegation could not be set up, or failed.
    #[error("delegation could not be set up; take fewer sessions, or leave out --mode requests")]
    Delegation(#[from] linewise_delegate::Error),
    /// The start signal cannot be waited for.
    #[error("SIGUSR1 cannot be waited for; raise ulimit -n, or leave out --signal")]
    Signal {
        /// Why.
        source: std::io::Error,
    },
    /// A session ended before its time.
    #[error("session {session} ended by a panic; this is a bug, and the run has no figure")]
    Session {
        /// Which one.
        session: usize,
    },
}

/// Characters of a number that are told.
const LONGEST: usize = 24;

/// A number as it was written, or how it begins.
fn shortened(written: &str) -> String {
    let written = written.trim();
    match written.char_indices().nth(LONGEST) {
        Some((end, _)) => format!(
            "{}... ({} characters)",
            &written[..end],
            written.chars().count()
        ),
        None => written.to_owned(),
    }
}

/// A count, in digits as far as these say something.
fn count(number: f64) -> String {
    if number < 1e15 {
        format!("{number:.0}")
    } else {
        format!("{number:.3e}")
    }
}

fn range(low: f64, high: f64) -> String {
    if low == f64::MIN_POSITIVE {
        format!("more than 0 and at most {high:e}")
    } else {
        format!("from {low} to {high}")
    }
}

/// An error unless `low <= given <= high`, where `written` is how `given` was asked for.
pub(super) fn within(
    what: &'static str,
    (low, high): (f64, f64),
    given: f64,
    written: &str,
) -> Result<(), AccesstestError> {
    if (low..=high).contains(&given) {
        return Ok(());
    }
    Err(AccesstestError::Range {
        what,
        low,
        high,
        given: shortened(written),
    })
}

/// The same for a whole number.
pub(super) fn count_within(
    what: &'static str,
    low: usize,
    high: usize,
    given: usize,
) -> Result<(), AccesstestError> {
    let range = (low as f64, high as f64);
    within(what, range, given as f64, &given.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_as_they_were_written_and_not_by_their_zeros() {
        let told = |given: &str| {
            let number = given.parse().unwrap();
            let refused = within("a weight", (f64::MIN_POSITIVE, 1e15), number, given);
            refused.unwrap_err().to_string()
        };
        let range = "a weight must be more than 0 and at most 1e15, not";
        assert_eq!(
            told("9007199254740993"),
            format!("{range} 9007199254740993")
        );
        let zeros = format!("1{}", "0".repeat(200));
        let short = format!("{range} 1{}... (201 characters)", "0".repeat(LONGEST - 1));
        assert_eq!(told(&zeros), short);
        let most = usize::MAX;
        let error = count_within("sessions", 1, 10, most).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("sessions must be from 1 to 10, not {most}")
        );
        assert_eq!(
            (count(404.0), count(1e200)),
            ("404".to_owned(), "1.000e200".to_owned())
        );
    }
}
