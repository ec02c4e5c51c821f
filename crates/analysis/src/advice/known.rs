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

#[cfg(test)]
pub(super) mod tests {
    use linewise_recording::SharedMemory;

    use super::*;

    /// Calls `then` with what tables tell.
    pub(in super::super) fn known_of<R>(tables: &Tables, then: impl FnOnce(Known<'_>) -> R) -> R {
        let names = Names::new(tables);
        then(Known {
            tables,
            names: &names,
            votes: &Votes::new(tables, &names),
            chains: &CallChains::new(tables, &SharedMemory::default(), 64),
            languages: &Languages::new(&tables.maps),
            goroutines: &Goroutines::default(),
        })
    }
}
