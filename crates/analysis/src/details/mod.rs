//! What only a page has room for, and no JSON: calls, and the code of the hottest functions.

mod machine;
mod rows;
mod source;
#[cfg(test)]
mod tests;

use linewise_recording::{Address, Frame, Pid, Tables};

pub use self::rows::{Excerpt, ExcerptRow};
use crate::own_code::is_library_code;
use crate::resolve::{Files, Resolver, Store};
use crate::views::calls::CallTree;
use crate::views::chains::UNKNOWN;
use crate::views::hot::HotFunction;

/// Functions whose code is shown.
const MOST_FUNCTIONS: usize = 10;
/// Functions with a smaller share of the time are not.
const LEAST_SHARE: f64 = 0.01;

/// What only a page shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// Thread time by call chain and thread; not there of an exact run.
    pub calls: Option<CallTree>,
    /// The code of the hottest functions, as far as it is there.
    pub code: Vec<Excerpt>,
}

/// The code of the program's own `functions` with the most time, as `files` have it.
pub(crate) fn code(functions: &[HotFunction], tables: &Tables, files: &dyn Files) -> Vec<Excerpt> {
    let store = Store::default();
    let mut resolver = Resolver::new(&tables.maps, &tables.threads, files, &store);
    let is_shown = |it: &&HotFunction| {
        let is_own = it.function != UNKNOWN && !is_library_code(&it.module, &it.file);
        is_own && it.share >= LEAST_SHARE
    };
    let shown = functions.iter().filter(is_shown).take(MOST_FUNCTIONS);
    let excerpts = shown.map(|it| Excerpt {
        function: it.function.clone(),
        file: it.file.clone(),
        share: it.share,
        lines: match names_its_source(it, &mut resolver) {
            true => source::lines(it, process(it), files),
            false => Vec::new(),
        },
        instructions: machine::instructions(&it.instructions, &mut resolver),
    });
    excerpts
        .filter(|it| !it.lines.is_empty() || !it.instructions.is_empty())
        .collect()
}

/// Whether the program, as its file is here, names the source itself: a recording may come from anywhere.
fn names_its_source(function: &HotFunction, resolver: &mut Resolver<'_>) -> bool {
    let names = |frame: &Frame| frame.file == function.file && frame.module == function.module;
    function.instructions.iter().any(|it| {
        let (pid, address) = (Pid(it.pid), Address(it.address));
        resolver.frames(pid, address).iter().any(names)
            || resolver.caller_frames(pid, address).iter().any(names)
    })
}

/// A process that ran a function.
fn process(function: &HotFunction) -> Pid {
    let first = function.instructions.first();
    Pid(first.map_or(0, |it| it.pid))
}
