//! A path in memory.

use super::characters::Characteristics;
use super::element::{ELEMENTS, Element, FINISHED, LINE, Layout};
use super::error::AccesstestError;
use super::plan::{Plan, Visit};
use super::walk::{Cursor, Reached, Walk, walk_for};
use linewise_machine::buffer::{Buffer, available_bytes};
use std::sync::atomic::{AtomicU32, Ordering};

/// Elements of a phase that are overwritten to end the sessions: so many, evenly along the path, that none
/// walks on for longer than this part of a phase.
const STOPS: usize = 4096;

/// Lines in memory that a session allocates by itself.
#[derive(Debug)]
pub(super) struct Fresh {
    words: Vec<AtomicU32>,
    /// Words before the first line's begin.
    skipped: usize,
    length: usize,
}

impl Fresh {
    pub(super) fn words(&self) -> &[AtomicU32] {
        &self.words[self.skipped..self.skipped + self.length]
    }
}

/// An element that is overwritten at the end.
#[derive(Clone, Copy, Debug)]
struct Stop {
    local: bool,
    at: usize,
    /// What it held.
    value: u32,
}

/// A path in memory.
#[derive(Debug)]
pub(super) struct Path {
    layout: Layout,
    walk: Walk,
    /// Lines that all sessions access.
    global: Option<Buffer>,
    /// The sessions' own lines, one session's after the other's.
    local: Option<Buffer>,
    /// What every session's own lines hold at first.
    template: Vec<AtomicU32>,
    /// What leads to the first element of each phase.
    starts: Vec<Element>,
    stops: Vec<Stop>,
    pub(super) facts: Facts,
}

/// What a path turned out to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Facts {
    /// Bytes of all lines.
    pub(super) bytes: u64,
    /// Accesses of an iteration of one session.
    pub(super) accesses: u64,
    /// Those of them that write.
    pub(super) writes: u64,
}

/// Bytes of memory that a path takes while it is made.
fn needed(characteristics: &Characteristics, sessions: usize) -> u64 {
    let lines = characteristics.session_local_lines() + characteristics.session_global_lines();
    // A visit for nearly every line, and the lines in random order.
    let plan = lines.saturating_mul(2 * size_of::<Visit>() as u64 + 4);
    characteristics.bytes(sessions).saturating_add(plan)
}

/// An error if there is no memory for such a path.
pub(super) fn fits(
    characteristics: &Characteristics,
    sessions: usize,
) -> Result<(), AccesstestError> {
    let needed = needed(characteristics, sessions);
    match available_bytes() {
        Some(available) if needed > available => Err(AccesstestError::Memory {
            bytes: characteristics.bytes(sessions),
            needed,
            available,
        }),
        _ => Ok(()),
    }
}

fn allocate(bytes: u64, what: &'static str) -> Result<Option<Buffer>, AccesstestError> {
    if bytes == 0 {
        return Ok(None);
    }
    let no_memory = |source| AccesstestError::NoMemory { what, source };
    Buffer::allocate(bytes as usize)
        .map(Some)
        .map_err(no_memory)
}

fn words(buffer: Option<&Buffer>) -> &[AtomicU32] {
    buffer.map_or(&[], Buffer::words)
}

impl Path {
    /// Makes one for so many sessions.
    pub(super) fn new(
        characteristics: &Characteristics,
        sessions: usize,
        seed: u64,
    ) -> Result<Self, AccesstestError> {
        characteristics.check()?;
        let bytes = characteristics.bytes(sessions);
        fits(characteristics, sessions)?;
        let plan = Plan::new(characteristics, seed)?;
        let local_words = (characteristics.session_local_lines() * ELEMENTS) as usize;
        let visits = || plan.phases.iter().flatten();
        let mut path = Self {
            layout: plan.layout,
            walk: walk_for(local_words > 0, visits().any(|visit| visit.repeats > 1)),
            global: allocate(
                characteristics.session_global_lines() * LINE,
                "the shared lines",
            )?,
            local: allocate(
                (local_words * sessions * 4) as u64,
                "the sessions' own lines",
            )?,
            template: (0..local_words).map(|_| AtomicU32::new(0)).collect(),
            starts: Vec::new(),
            stops: Vec::new(),
            facts: Facts {
                bytes,
                accesses: plan.accesses,
                writes: plan.writes,
            },
        };
        path.lay(&plan);
        for (index, word) in words(path.local.as_ref()).iter().enumerate() {
            if index < local_words * sessions {
                word.store(
                    path.template[index % local_words].load(Ordering::Relaxed),
                    Ordering::Relaxed,
                );
            }
        }
        Ok(path)
    }

    /// Writes the elements of `plan`, each leading to the next, and the last to the first.
    fn lay(&mut self, plan: &Plan) {
        let first = |phase: usize| plan.phases[phase % plan.phases.len()][0];
        let leading_to = |next: Visit, repeats: u32| {
            let repeats = u64::from(repeats);
            Element::new(plan.layout, next.at, next.write, next.local, repeats)
        };
        for (phase, visits) in plan.phases.iter().enumerate() {
            self.starts.push(leading_to(visits[0], 1));
            let every = visits.len().div_ceil(STOPS);
            for (index, visit) in visits.iter().enumerate() {
                let element = match visits.get(index + 1) {
                    Some(next) => leading_to(*next, visit.repeats),
                    None => leading_to(first(phase + 1), visit.repeats).ending(),
                };
                let at = visit.at as usize;
                self.words(visit.local)[at].store(element.0, Ordering::Relaxed);
                if index % every == 0 {
                    self.stops.push(Stop {
                        local: visit.local,
                        at,
                        value: element.0,
                    });
                }
            }
        }
    }

    fn words(&self, local: bool) -> &[AtomicU32] {
        if local {
            &self.template
        } else {
            words(self.global.as_ref())
        }
    }

    pub(super) fn phases(&self) -> usize {
        self.starts.len()
    }

    /// Where a session that begins with this phase stands.
    pub(super) fn start(&self, phase: usize) -> Cursor {
        Cursor {
            last: self.starts[phase],
            steps: 0,
        }
    }

    /// The lines of a session's own.
    pub(super) fn local_of(&self, session: usize) -> &[AtomicU32] {
        let length = self.template.len();
        words(self.local.as_ref())
            .get(session * length..(session + 1) * length)
            .unwrap_or(&[])
    }

    /// New memory with what a session's own lines hold.
    pub(super) fn fresh(&self) -> Fresh {
        let (length, spare) = (self.template.len(), ELEMENTS as usize - 1);
        let mut words: Vec<AtomicU32> = Vec::with_capacity(length + spare);
        let skipped = words.as_ptr().align_offset(LINE as usize).min(spare);
        let value = |index: usize| {
            let word = index
                .checked_sub(skipped)
                .and_then(|at| self.template.get(at));
            AtomicU32::new(word.map_or(0, |word| word.load(Ordering::Relaxed)))
        };
        words.extend((0..length + spare).map(value));
        Fresh {
            words,
            skipped,
            length,
        }
    }

    /// Walks to the end of a phase.
    #[inline(always)]
    pub(super) fn walk(&self, local: &[AtomicU32], cursor: &mut Cursor) -> Reached {
        let zero = std::hint::black_box(0);
        (self.walk)(
            words(self.global.as_ref()),
            local,
            self.layout,
            cursor,
            zero,
        )
    }

    /// Overwrites elements so that every session that comes to one ends. A session that is writing one back just then
    /// undoes it, so this is called until all have ended.
    pub(super) fn stop(&self, sessions: usize) {
        self.overwrite(sessions, |_| FINISHED);
    }

    /// Makes the path whole again, when all sessions have ended.
    pub(super) fn restore(&self, sessions: usize) {
        self.overwrite(sessions, |stop| stop.value);
    }

    fn overwrite(&self, sessions: usize, value: impl Fn(&Stop) -> u32) {
        for stop in &self.stops {
            self.words(stop.local)[stop.at].store(value(stop), Ordering::Relaxed);
        }
        for session in 0..sessions {
            let own = self.local_of(session);
            for stop in self.stops.iter().filter(|stop| stop.local) {
                own[stop.at].store(value(stop), Ordering::Relaxed);
            }
        }
    }

    /// The memory that most accesses are to.
    pub(super) fn memory(&self) -> Option<(&Buffer, u64)> {
        let buffer = self.global.as_ref().or(self.local.as_ref())?;
        let most = buffer.words().len() as u64 * 4;
        Some((buffer, self.facts.bytes.min(most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(phases: &[&str], shared: &[&str], sessions: usize) -> Path {
        let characteristics = Characteristics {
            phases: phases.iter().map(|text| text.parse().unwrap()).collect(),
            shared: shared.iter().map(|text| text.parse().unwrap()).collect(),
        };
        Path::new(&characteristics, sessions, 5489).unwrap()
    }

    fn values(words: &[AtomicU32]) -> Vec<u32> {
        let loaded = words.iter().map(|word| word.load(Ordering::Relaxed));
        loaded.collect()
    }

    const KINDS: [(&[&str], &[&str]); 4] = [
        (&["0/100,0.3", "0/50"], &[]),
        (&["0/1,0.5,700", "0/9,0.5,1"], &[]),
        (&["3/5,1", "7/0,0.5", "1/1"], &["2/4:0,0.1,0.9/2"]),
        (&["3/1,1,5000", "2/6,0,1"], &["0/3:0/1"]),
    ];

    #[test]
    fn every_phase_ends_and_the_last_leads_to_the_first_again() {
        for (phases, shared) in KINDS {
            let path = path(phases, shared, 3);
            for session in 0..3 {
                for first in 0..path.phases() {
                    let mut cursor = path.start(first);
                    let mut ways = Vec::new();
                    for iteration in 1..=3 {
                        for _ in 0..path.phases() {
                            let reached = path.walk(path.local_of(session), &mut cursor);
                            assert_eq!(reached, Reached::End);
                        }
                        // What was walked is what was counted, and all of it.
                        assert_eq!(cursor.steps, iteration * path.facts.accesses);
                        ways.push(cursor.last);
                    }
                    assert!(ways.iter().all(|last| *last == ways[0]), "it is a circle");
                }
            }
        }
    }

    #[test]
    fn writing_leaves_a_path_as_it_is() {
        let path = path(&["2/20,1", "1/20,1"], &[], 2);
        let before = (
            values(words(path.global.as_ref())),
            values(path.local_of(1)),
        );
        let mut cursor = path.start(0);
        for _ in 0..10 {
            path.walk(path.local_of(1), &mut cursor);
        }
        let after = (
            values(words(path.global.as_ref())),
            values(path.local_of(1)),
        );
        assert_eq!(before, after);
    }

    #[test]
    fn a_stopped_path_ends_every_walk_and_is_whole_again_when_restored() {
        for (phases, shared) in KINDS {
            let path = path(phases, shared, 2);
            let all = |path: &Path| {
                let own = [path.local_of(0), path.local_of(1), path.template.as_slice()];
                let own = own.map(values);
                (values(words(path.global.as_ref())), own)
            };
            let before = all(&path);
            path.stop(2);
            for session in 0..2 {
                for first in 0..path.phases() {
                    let mut cursor = path.start(first);
                    let reached = path.walk(path.local_of(session), &mut cursor);
                    assert_eq!((reached, cursor.steps), (Reached::Finished, 1));
                    let fresh = path.fresh();
                    let mut cursor = path.start(first);
                    assert_eq!(path.walk(fresh.words(), &mut cursor), Reached::Finished);
                }
            }
            path.restore(2);
            assert_eq!(all(&path), before);
        }
    }

    #[test]
    fn fresh_lines_are_whole_lines_and_like_the_sessions_own() {
        let path = path(&["5/0,0.5", "0/3"], &[], 1);
        let fresh = path.fresh();
        assert_eq!(values(fresh.words()), values(path.local_of(0)));
        assert_eq!(fresh.words().as_ptr().addr() % LINE as usize, 0);
    }

    #[test]
    fn what_is_larger_than_memory_is_refused_with_both_numbers() {
        let characteristics = Characteristics {
            phases: vec!["30000000/1".parse().unwrap()],
            shared: Vec::new(),
        };
        let error = Path::new(&characteristics, 10_000, 1).unwrap_err();
        let AccesstestError::Memory {
            needed, available, ..
        } = error
        else {
            panic!("{error}");
        };
        assert!(needed > available && available > 0);
    }
}
