//! The session loop's inner part: from element to element until a phase ends.
//!
//! A step touches one memory location: the element. All else is in registers, and the bounds that are checked
//! are, too.

use super::element::{Element, FINISHED, Layout};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where a walk stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    /// The element that was read last, which tells of the next.
    pub(super) last: Element,
    /// Accesses made.
    pub(super) steps: u64,
}

/// Why a walk stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// A phase ended.
    End,
    /// The element is overwritten: the run is over.
    Finished,
}

/// Walks to the end of a phase: through the lines of all sessions, the session's own, and with a number that is 0.
pub(super) type Walk = fn(&[AtomicU32], &[AtomicU32], Layout, &mut Cursor, u32) -> Reached;

/// The walk for paths with lines of a session's own, with repeated elements, or without.
pub(super) fn walk_for(local: bool, repeats: bool) -> Walk {
    match (local, repeats) {
        (false, false) => walk::<false, false>,
        (false, true) => walk::<false, true>,
        (true, false) => walk::<true, false>,
        (true, true) => walk::<true, true>,
    }
}

#[inline(never)]
fn walk<const LOCAL: bool, const REPEATS: bool>(
    global: &[AtomicU32],
    local: &[AtomicU32],
    layout: Layout,
    cursor: &mut Cursor,
    zero: u32,
) -> Reached {
    let mut last = cursor.last;
    let mut steps = cursor.steps;
    let reached = loop {
        let index = if REPEATS {
            last.index_in(layout)
        } else {
            last.index()
        };
        let lines = if LOCAL && last.is_next_local() {
            local
        } else {
            global
        };
        let is_written = last.is_next_written();
        let mut value = access(lines, index, is_written);
        steps += 1;
        if REPEATS && value != FINISHED {
            for _ in 0..Element(value).more(layout) {
                // As in a chase, the next address depends on what was read: by a number that is 0, but which the
                // compiler does not know.
                value = access(lines, index + (value & zero) as usize, is_written);
                steps += 1;
                if value == FINISHED {
                    break;
                }
            }
        }
        if value == FINISHED {
            break Reached::Finished;
        }
        last = Element(value);
        if last.ends_phase() {
            break Reached::End;
        }
    };
    *cursor = Cursor { last, steps };
    reached
}

/// Reads the element, and writes it back as it was if it is to be written.
#[inline(always)]
fn access(lines: &[AtomicU32], index: usize, is_written: bool) -> u32 {
    let element = &lines[index];
    let value = element.load(Ordering::Relaxed);
    if is_written {
        element.store(value, Ordering::Relaxed);
    }
    value
}
