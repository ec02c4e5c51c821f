//! What a check of the house finds.

/// Something that breaks a rule of the house.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    /// Where: `path`, `path:line`, or a crate.
    pub place: String,
    /// What is wrong and what to do.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
        }
    }
}
