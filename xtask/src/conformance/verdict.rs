//! What becomes of a program in one mode.

use super::compared::difference;
use super::manifest::Program;
use super::mode::Mode;
use super::modes::Place;
use super::process::Outcome;

/// What became of a program in one mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    Skipped(String),
    /// What differs.
    Different(String),
}

/// What becomes of the program in this mode. What it says counts if it is `steady`.
pub(super) fn compare(
    program: &Program,
    place: &Place,
    mode: Mode,
    alone: &Outcome,
    steady: bool,
) -> anyhow::Result<Verdict> {
    let alone = &alone.clone().counting(steady);
    if let Some(reason) = program.except.get(mode.name()) {
        return Ok(Verdict::Skipped(reason.clone()));
    }
    if let Some(reason) = mode.missing() {
        return Ok(Verdict::Skipped(reason));
    }
    let plain;
    let expected = if mode == Mode::Exact {
        plain = match place.plain(program, alone, steady)? {
            Ok(plain) => plain,
            Err(reason) => return Ok(Verdict::Skipped(reason)),
        };
        &plain
    } else {
        alone
    };
    let mut found = place.under(program, mode)?;
    found.target = found.target.counting(steady);
    // An exact run keeps some of what plain QEMU changes.
    let is_as_alone = difference(alone, &found.target).is_none();
    Ok(
        match difference(expected, &found.target).filter(|_| !is_as_alone) {
            Some(difference) => Verdict::Different(found.with_words(difference)),
            None => match found.fault {
                Some(fault) => Verdict::Different(fault),
                None => Verdict::Same,
            },
        },
    )
}
