//! What threads say that they work for: from marks to rows.
//!
//! A thread is in one session and one phase at a time. A row is written a round after it was made: the name of a mark may
//! be told by another thread, whose ring is read later.

use std::collections::HashMap;

use linewise_heap::MarkCode;
use linewise_recording::{Mark, MarkKind, Pid, Tid, Time};

use super::cost::HeapLoss;

/// Rows that are kept, and threads' marks without an end: two hundred megabytes where the recording is analysed.
const ROWS: usize = 1 << 21;

/// A mark whose name is a key yet.
#[derive(Clone, Copy, Debug)]
struct Raw {
    pid: u32,
    tid: u32,
    kind: MarkKind,
    id: u64,
    label: u64,
    start: u64,
    /// `None`: it was not ended.
    end: Option<u64>,
}

/// The marks of all threads.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// What threads are in, by image, thread and kind.
    open: HashMap<(u32, u32, MarkKind), Raw>,
    /// Made in this round, and in the one before.
    fresh: Vec<Raw>,
    waiting: Vec<Raw>,
    /// Of threads that are gone.
    unended: Vec<Raw>,
    /// Processes that went on as another program: which, as which image, and when.
    replaced: Vec<(u32, u32, u64)>,
    kept: usize,
    /// Rows that there was no room for.
    cut: u64,
    /// Marks that threads could not tell.
    pub(super) lost: u64,
}

/// Whose marks they are: the number of the process that runs one program, and its and the thread's as they are here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marker {
    pub(super) image: u32,
    pub(super) pid: u32,
    pub(super) tid: u32,
}

impl Marks {
    /// A thread said this at `time`.
    pub(super) fn told(&mut self, marker: Marker, code: MarkCode, time: u64, name: (u64, u64)) {
        let (kind, begins) = match code {
            MarkCode::Session => (MarkKind::Session, true),
            MarkCode::SessionEnd => (MarkKind::Session, false),
            MarkCode::Phase => (MarkKind::Phase, true),
            MarkCode::PhaseEnd => (MarkKind::Phase, false),
            MarkCode::Lost => return self.forget(marker, Some(time)),
        };
        self.end(marker, kind, Some(time));
        if begins {
            let Marker { image, pid, tid } = marker;
            let (id, label) = name;
            let mark = Raw {
                pid,
                tid,
                kind,
                id,
                label,
                start: time,
                end: None,
            };
            self.open.insert((image, tid, kind), mark);
        }
    }

    /// Nothing is known of a thread from `time` on; `None`: it is gone.
    pub(super) fn forget(&mut self, marker: Marker, time: Option<u64>) {
        self.end(marker, MarkKind::Session, time);
        self.end(marker, MarkKind::Phase, time);
    }

    fn end(&mut self, marker: Marker, kind: MarkKind, time: Option<u64>) {
        let Some(open) = self.open.remove(&(marker.image, marker.tid, kind)) else {
            return;
        };
        if self.kept >= ROWS {
            self.cut += 1;
            return;
        }
        self.kept += 1;
        match time {
            Some(time) => self.fresh.push(Raw {
                end: Some(time.max(open.start)),
                ..open
            }),
            None => self.unended.push(open),
        }
    }

    /// Process `pid` runs the program of `image` since `time`: what threads of another were in ended by then.
    pub(super) fn replaced(&mut self, pid: u32, image: u32, time: u64) {
        self.replaced.push((pid, image, time));
    }

    fn end_replaced(&mut self) {
        for (pid, image, time) in std::mem::take(&mut self.replaced) {
            let markers = self
                .open
                .iter()
                .filter(|(key, raw)| raw.pid == pid && key.0 != image);
            let markers: Vec<Marker> = markers
                .map(|(&(image, tid, _), _)| Marker { image, pid, tid })
                .collect();
            for marker in markers {
                self.forget(marker, Some(time));
            }
        }
    }

    /// The rows of the round before; names are known by their keys.
    pub(super) fn settle<'a>(&mut self, name: impl Fn(u64) -> Option<&'a String>) -> Vec<Mark> {
        self.end_replaced();
        let before = std::mem::replace(&mut self.waiting, std::mem::take(&mut self.fresh));
        before.iter().map(|raw| raw.row(&name, raw.start)).collect()
    }

    /// The end: all that is left. A mark without an end stops when `ended` says that its thread did, which it is asked with
    /// the moment of the mark.
    pub(super) fn finish<'a>(
        &mut self,
        name: impl Fn(u64) -> Option<&'a String>,
        ended: impl Fn(Pid, Tid, Time) -> Time,
    ) -> Vec<Mark> {
        self.end_replaced();
        let mut open: Vec<Raw> = self.open.drain().map(|(_, raw)| raw).collect();
        open.sort_by_key(|raw| (raw.start, raw.tid));
        let left = ROWS.saturating_sub(self.kept);
        self.cut += open.len().saturating_sub(left) as u64;
        open.truncate(left);
        let ends = self.waiting.drain(..).chain(self.fresh.drain(..));
        let all = ends.chain(self.unended.drain(..)).chain(open);
        all.map(|raw| {
            let end = ended(Pid(raw.pid), Tid(raw.tid), Time(raw.start));
            raw.row(&name, end.0.max(raw.start))
        })
        .collect()
    }

    /// What was lost.
    pub(super) fn losses(&self) -> impl Iterator<Item = HeapLoss> {
        let lost = (self.lost > 0).then(|| {
            (
                "marks-lost",
                self.lost,
                "marks of sessions and phases that there was no room for: the threads made more than the collector reads, and what they worked for is not known from there to their next mark".to_owned(),
            )
        });
        let cut = (self.cut > 0).then(|| {
            (
                "marks-cut",
                self.cut,
                format!("sessions and phases without a row: beyond {ROWS} none is kept"),
            )
        });
        lost.into_iter().chain(cut)
    }
}

impl Raw {
    /// Its row; it stops at `end` if it has none of its own.
    fn row<'a>(&self, name: impl Fn(u64) -> Option<&'a String>, end: u64) -> Mark {
        Mark {
            pid: Pid(self.pid),
            tid: Tid(self.tid),
            kind: self.kind,
            id: self.id,
            name: name(self.label).cloned().unwrap_or_default(),
            start: Time(self.start),
            end: Time(self.end.unwrap_or(end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: Marker = Marker {
        image: 1,
        pid: 10,
        tid: 11,
    };

    fn shown(rows: &[Mark]) -> Vec<(MarkKind, u64, &str, u64, u64)> {
        let row = |it: &Mark| (it.kind, it.id, it.start.0, it.end.0);
        let rows = rows.iter().map(|it| (row(it), it.name.as_str()));
        rows.map(|((kind, id, start, end), name)| (kind, id, name, start, end))
            .collect()
    }

    /// Name 1 is `one`, and so on.
    fn finish(marks: &mut Marks) -> Vec<Mark> {
        let names = ["one", "two", "three"].map(str::to_owned);
        let name = |key: u64| names.get((key as usize).wrapping_sub(1));
        let mut rows = marks.settle(name);
        rows.extend(marks.finish(name, |_, _, _| Time(100)));
        rows
    }

    #[test]
    fn the_next_of_a_kind_ends_the_last_and_the_other_kind_goes_on() {
        let mut marks = Marks::default();
        marks.told(MARKER, MarkCode::Session, 10, (7, 1));
        marks.told(MARKER, MarkCode::Phase, 20, (0, 2));
        marks.told(MARKER, MarkCode::Session, 30, (8, 1));
        marks.told(MARKER, MarkCode::Phase, 40, (0, 3));
        marks.told(MARKER, MarkCode::PhaseEnd, 50, (0, 0));
        // An end of nothing is nothing.
        marks.told(MARKER, MarkCode::PhaseEnd, 60, (0, 0));
        let rows = finish(&mut marks);
        assert_eq!(
            shown(&rows),
            [
                (MarkKind::Session, 7, "one", 10, 30),
                (MarkKind::Phase, 0, "two", 20, 40),
                (MarkKind::Phase, 0, "three", 40, 50),
                (MarkKind::Session, 8, "one", 30, 100),
            ]
        );
    }

    #[test]
    fn where_marks_were_lost_nothing_is_known_until_the_next() {
        let mut marks = Marks::default();
        marks.told(MARKER, MarkCode::Session, 10, (7, 1));
        marks.told(MARKER, MarkCode::Lost, 20, (0, 0));
        marks.told(MARKER, MarkCode::Session, 30, (8, 1));
        marks.forget(MARKER, None);
        let rows = finish(&mut marks);
        assert_eq!(
            shown(&rows),
            [
                (MarkKind::Session, 7, "one", 10, 20),
                (MarkKind::Session, 8, "one", 30, 100),
            ]
        );
        assert_eq!(marks.losses().count(), 0);
    }

    #[test]
    fn what_a_program_was_in_ends_where_its_process_runs_another() {
        let mut marks = Marks::default();
        marks.told(MARKER, MarkCode::Session, 10, (7, 1));
        let after = Marker { image: 2, ..MARKER };
        marks.replaced(MARKER.pid, after.image, 30);
        marks.told(after, MarkCode::Session, 40, (8, 2));
        let rows = finish(&mut marks);
        assert_eq!(
            shown(&rows),
            [
                (MarkKind::Session, 7, "one", 10, 30),
                (MarkKind::Session, 8, "two", 40, 100),
            ]
        );
    }

    #[test]
    fn rows_without_end_are_cut_and_counted() {
        let mut marks = Marks::default();
        let more = 1000;
        for number in 0..(ROWS + more) as u64 {
            marks.told(MARKER, MarkCode::Session, number, (number, 1));
        }
        assert_eq!(finish(&mut marks).len(), ROWS);
        let losses: Vec<_> = marks
            .losses()
            .map(|(what, count, _)| (what, count))
            .collect();
        assert_eq!(losses, [("marks-cut", more as u64)]);
    }
}
