//! A placement on its way to others.

use crate::views::groups::{GroupPlace, GroupedThread, ThreadGroup};

/// A placement to hand over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The whole of it, with a line break at its end.
    pub text: String,
    /// What it cannot say, whole sentences.
    pub notes: Vec<String>,
}

/// A group and where it is to run.
pub(super) struct Placed<'a> {
    pub(super) group: &'a ThreadGroup,
    pub(super) place: &'a GroupPlace,
    pub(super) threads: Vec<&'a GroupedThread>,
}
