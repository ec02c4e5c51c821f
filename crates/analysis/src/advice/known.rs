//! What a finding is made from.

use linewise_recording::Tables;

use super::called_from::CallChains;
use super::language::Languages;
use super::names::Names;
use super::votes::Votes;
use crate::users::Goroutines;

/// Lines of one finding that are described.
pub(super) const LINES: usize = 16;

/// What the recording tells about addresses.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) tables: &'a Tables,
    pub(super) names: &'a Names<'a>,
    pub(super) votes: &'a Votes<'a>,
    pub(super) chains: &'a CallChains<'a>,
    pub(super) languages: &'a Languages,
    pub(super) goroutines: &'a Goroutines,
}
