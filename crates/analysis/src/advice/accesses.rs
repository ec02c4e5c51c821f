//! The accesses of a finding: who touches its lines where, and what of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{
    Address, Object, ObjectKind, Operation, Pid, SharedMemory, Tid, TypedAccess,
};

use super::called_from::{At, Way};
use super::known::{Known, LINES};
use super::votes::Verdict;
use crate::model::{AccessRow, ObjectRow, SourcePlace, Unlisted};
use crate::users::User;
use crate::views::Touch;
use crate::views::sharing::{LineSharing, Place};

/// Access places of one finding that are described.
const PLACES: usize = 40;
/// Goroutines that are told apart in one finding: of more each does little, and what they do is told by thread.
const GOROUTINES: usize = 16;
/// Accesses of one object on lines that nobody waits for that are looked at.
const BESIDE: usize = 1_000;

/// The accesses to the lines of a finding.
#[derive(Clone, Debug, Default)]
pub(super) struct Accesses {
    /// Those that are told, dearest first.
    pub(super) told: Vec<AccessRow>,
    /// The others.
    others: Vec<AccessRow>,
}

impl Accesses {
    pub(super) fn of(
        lines: &[&LineSharing],
        known: Known<'_>,
        verdict: &Verdict<'_>,
        line_size: u64,
    ) -> Self {
        let places = || lines.iter().flat_map(|line| &line.places);
        let total: f64 = places().map(|place| place.weight).sum();
        let goroutines: BTreeSet<Address> = places().filter_map(|it| it.touch.goroutine).collect();
        let mut rows: Vec<(f64, u64, AccessRow)> = Vec::new();
        for line in lines {
            let places = match goroutines.len() > GOROUTINES {
                true => Cow::Owned(by_thread(&line.places)),
                false => Cow::Borrowed(&line.places),
            };
            for place in places.iter() {
                let of_line = (line.pid, line.line);
                for row in access_rows(of_line, place, known, verdict, line_size, total) {
                    rows.push((row.share, place.traps, row));
                }
            }
        }
        rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        let shown = lines.iter().take(LINES).map(|line| line.line.0);
        Self::keep_both_sides(
            rows.into_iter().map(|(_, _, row)| row).collect(),
            &shown.collect(),
        )
    }

    /// Tells of the dearest places, but of every thread and of every line of `shown` at least the dearest one, and the
    /// dearest one that writes: a finding names both sides, and a line moves because someone writes.
    fn keep_both_sides(rows: Vec<AccessRow>, shown: &BTreeSet<u64>) -> Self {
        let (mut users, mut lines) = (BTreeSet::new(), BTreeSet::new());
        let mut kept = Self::default();
        for (i, row) in rows.into_iter().enumerate() {
            let writes = row.op != Operation::Load;
            let first_of_user = users.insert((row.user(), writes));
            let first_of_line =
                shown.contains(&row.line_address) && lines.insert((row.line_address, writes));
            match i < PLACES || first_of_user || first_of_line {
                true => kept.told.push(row),
                false => kept.others.push(row),
            }
        }
        kept
    }

    /// The accesses that are told, each with the share of what the same code of its thread does on other lines, and what
    /// is left of the others.
    pub(super) fn summed(self) -> (Vec<AccessRow>, Unlisted) {
        let mut told = self.told;
        let mut index: HashMap<(User, Code), usize> = HashMap::new();
        let mut at_offset: HashMap<(User, Code, u32), usize> = HashMap::new();
        for (i, row) in told.iter().enumerate() {
            index.entry((row.user(), code(row))).or_insert(i);
            at_offset
                .entry((row.user(), code(row), row.offset))
                .or_insert(i);
        }
        let mut unlisted = Unlisted::default();
        let mut places: BTreeSet<Code> = BTreeSet::new();
        for row in self.others {
            let exactly = at_offset.get(&(row.user(), code(&row), row.offset));
            match exactly.or_else(|| index.get(&(row.user(), code(&row)))) {
                Some(&i) => told[i].share += row.share,
                None => {
                    unlisted.share += row.share;
                    places.insert(code(&row));
                }
            }
        }
        unlisted.places = places.len() as u64;
        told.sort_by(|a, b| b.share.total_cmp(&a.share));
        (told, unlisted)
    }
}

/// Places by thread alone, whatever ran on it.
fn by_thread(places: &[Place]) -> Vec<Place> {
    let mut merged: BTreeMap<(Tid, Touch), Place> = BTreeMap::new();
    for place in places {
        let touch = Touch {
            goroutine: None,
            ..place.touch
        };
        let sum = merged.entry((place.tid, touch)).or_insert(Place {
            touch,
            weight: 0.0,
            samples: 0,
            traps: 0,
            ..place.clone()
        });
        sum.weight += place.weight;
        sum.samples += place.samples;
        sum.traps += place.traps;
    }
    merged.into_values().collect()
}

/// What makes a place in the source one: where it is, what it does, what it was inlined into, and for whom it is done.
type Code = (SourcePlace, Operation, Vec<String>, Option<SourcePlace>);

fn code(row: &AccessRow) -> Code {
    (
        row.innermost(),
        row.op,
        row.inlined_into.clone(),
        row.own.clone(),
    )
}

/// The rows of a place: one for each place of the program's own from which it came there.
fn access_rows(
    (pid, line): (Pid, Address),
    place: &Place,
    known: Known<'_>,
    verdict: &Verdict<'_>,
    line_size: u64,
    total: f64,
) -> Vec<AccessRow> {
    let Known { names, votes, .. } = known;
    let at = At {
        pid: place.touch.pid,
        tid: place.tid,
        ip: place.touch.ip,
        line,
    };
    // What lies on the line before it or behind it is none of this one.
    let touched = place.touch.address.0;
    let first = touched.clamp(line.0, line.0 + line_size - 1);
    let end = touched.saturating_add(place.touch.size.into());
    let end = end.clamp(first, line.0 + line_size);
    let frames = names.frames(place.touch.pid, place.touch.ip);
    let innermost = frames.first();
    // The first frame that has a source line names the place; library code without debug info
    // still has a function.
    let located = frames.iter().find(|frame| frame.line > 0).or(innermost);
    let object = names.object(pid, place.touch.address);
    let typed = votes.access(place.touch.pid, place.touch.ip).map(|row| {
        let path = votes.path(verdict, row, place.touch.address);
        (row, of_union(&path).to_owned())
    });
    let field = object
        .filter(|object| names.is_exact(object))
        .and_then(
            |object| match names.fields_in(object, place.touch.address, 1).first() {
                Some(field) => Some(match &typed {
                    Some((row, path)) => variant_of(object, row, path, &field.path),
                    None => field.path.clone(),
                }),
                // What a block holds is not known by the name of who allocated it.
                None => (object.kind == ObjectKind::Static).then(|| object.name.clone()),
            },
        )
        .or_else(|| typed.map(|(_, path)| path))
        .unwrap_or_default();
    let of_type = votes.access(place.touch.pid, place.touch.ip);
    let of_type = of_type.map_or("", |row| votes.language(row));
    let share = match total > 0.0 {
        true => place.weight / total,
        false => 0.0,
    };
    let whole = AccessRow {
        language: String::new(),
        tid: place.tid.0,
        thread_name: names.thread(place.tid).to_owned(),
        goroutine: place.touch.goroutine.map(|it| it.0),
        function: match innermost.filter(|frame| !frame.function.is_empty()) {
            Some(frame) => frame.function.clone(),
            None if place.touch.ip.0 == 0 => "unknown instruction".to_owned(),
            None => format!("{:#x}", place.touch.ip.0),
        },
        file: located.map(|frame| frame.file.clone()).unwrap_or_default(),
        line: located.map_or(0, |frame| frame.line),
        own: None,
        ends_scope: false,
        inlined_into: frames
            .iter()
            .skip(1)
            .map(|frame| frame.function.clone())
            .collect(),
        called_from: Vec::new(),
        op: place.touch.operation,
        offset: (first - line.0) as u32,
        size: (end - first) as u32,
        field,
        share,
        line_address: line.0,
        missing: innermost
            .map(|frame| frame.reason.clone())
            .unwrap_or_default(),
    };
    let row = |way: Way| {
        let (own, ends_scope) =
            (way.own).map_or((None, false), |own| (Some(own.place), own.ends_scope));
        AccessRow {
            language: known.languages.of(frames, own.as_ref(), of_type).to_owned(),
            own,
            ends_scope,
            called_from: way.chains,
            share: share * way.share,
            ..whole.clone()
        }
    };
    let ways = known.chains.ways(at, frames, names);
    ways.into_iter().map(row).collect()
}

/// The field in a static variable that an instruction touches which says `path`: where members of a union lie over each
/// other it knows which, and the variable alone says the first, `field`.
fn variant_of(object: &Object, row: &TypedAccess, path: &str, field: &str) -> String {
    let whole = row.type_size == object.size && !path.contains("[]") && !path.contains('|');
    match whole && !path.is_empty() && field.contains('.') {
        true => format!("{}.{path}", object.name),
        false => field.to_owned(),
    }
}

/// What the members have in common that a path names, `u.whole | u.half`: the union `u`; else the path itself.
fn of_union(path: &str) -> &str {
    let Some((first, _)) = path.split_once(" | ") else {
        return path;
    };
    let mut common = first;
    while let Some((outer, _)) = common.rsplit_once('.') {
        common = outer;
        let within = |it: &str| {
            it.strip_prefix(common)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        if path.split(" | ").all(within) {
            return common;
        }
    }
    path
}

/// What samples and traps saw of the object elsewhere than on `lines`.
pub(super) fn beside(
    lines: &[&LineSharing],
    object: &ObjectRow,
    known: Known<'_>,
    verdict: &Verdict<'_>,
    line_size: u64,
) -> Vec<AccessRow> {
    let (tables, goroutines) = (known.tables, known.goroutines);
    // Addresses as they are in the object's process.
    let unshared = SharedMemory::default();
    let contended: BTreeSet<Address> = lines.iter().map(|line| line.line).collect();
    let pid = lines[0].pid;
    let sampled = (tables.samples.iter())
        .filter_map(|it| Some((it.tid, Touch::sampled(it, &unshared, goroutines)?)));
    let trapped =
        (tables.traps.iter()).map(|it| (it.tid, Touch::trapped(it, &unshared, goroutines)));
    let mut seen = BTreeSet::new();
    let is_beside = |(tid, touch): &(Tid, Touch)| {
        touch.pid == pid
            && touch.address.0.wrapping_sub(object.address) < object.size
            && !contended.contains(&touch.address.line(line_size))
            && seen.insert((
                User::of(*tid, touch.goroutine),
                touch.ip,
                touch.address,
                touch.operation,
            ))
    };
    let touches = sampled.chain(trapped).filter(is_beside);
    let row = |(tid, touch): (Tid, Touch)| {
        let place = Place {
            tid,
            touch,
            weight: 0.0,
            samples: 0,
            traps: 0,
        };
        let line = (pid, touch.address.line(line_size));
        access_rows(line, &place, known, verdict, line_size, 0.0)
    };
    touches.take(BESIDE).flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tid: u32, line: u64, op: Operation) -> AccessRow {
        AccessRow {
            tid,
            thread_name: "w".to_owned(),
            goroutine: None,
            function: "f".to_owned(),
            file: "f.c".to_owned(),
            line: 1,
            own: None,
            ends_scope: false,
            language: String::new(),
            inlined_into: Vec::new(),
            called_from: Vec::new(),
            op,
            offset: 0,
            size: 8,
            field: String::new(),
            share: 0.01,
            line_address: line * 64,
            missing: String::new(),
        }
    }

    #[test]
    fn what_many_goroutines_do_is_told_by_thread() {
        let place = |tid, goroutine| Place {
            tid: Tid(tid),
            touch: Touch {
                pid: Pid(1),
                ip: Address(0x10),
                address: Address(0x1000),
                size: 8,
                operation: Operation::Update,
                locked: true,
                goroutine: Some(Address(goroutine)),
            },
            weight: 1.0,
            samples: 2,
            traps: 3,
        };
        let all: Vec<Place> = (0..100).map(|it| place(it as u32 % 2, it)).collect();
        let merged = by_thread(&all);
        let of = |it: &Place| {
            (
                it.tid.0,
                it.touch.goroutine,
                it.weight,
                it.samples,
                it.traps,
            )
        };
        let of: Vec<_> = merged.iter().map(of).collect();
        assert_eq!(of, [(0, None, 50.0, 100, 150), (1, None, 50.0, 100, 150)]);
    }

    #[test]
    fn members_that_lie_over_each_other_are_their_union() {
        assert_eq!(of_union("u.half.lo"), "u.half.lo");
        assert_eq!(of_union("v.whole | v.d | v.p"), "v");
        assert_eq!(of_union("a.v.whole | a.v.half.lo"), "a.v");
        assert_eq!(of_union("__data | __size"), "__data | __size");
    }

    #[test]
    fn of_many_places_those_that_write_a_line_stay() {
        // Two threads that read on three lines often, and seldom write.
        let reads = (0..60).map(|i| row(i % 2, u64::from(i % 3), Operation::Load));
        let writes = (0..60).map(|i| row(i % 2, u64::from(i % 3), Operation::Store));
        let rows: Vec<AccessRow> = reads.chain(writes).collect();
        let kept = Accesses::keep_both_sides(rows, &BTreeSet::from([0, 128]));
        // One that writes for each thread, and for each line that is shown.
        assert_eq!(kept.told.len(), PLACES + 3);
        for line in [0, 2] {
            let writes =
                |row: &&AccessRow| row.op == Operation::Store && row.line_address == line * 64;
            assert_eq!(kept.told.iter().filter(writes).count(), 1);
        }
    }

    #[test]
    fn shares_add_up_also_of_what_is_not_told() {
        let of = |tid, line, source| AccessRow {
            line: source,
            ..row(tid, line, Operation::Load)
        };
        // One place on a hundred lines, and ten rare ones.
        let often = (0..90).map(|i| of(i % 2, u64::from(i), 1));
        let rare = (0..10).map(|i| of(0, 0, 10 + i));
        let rows: Vec<AccessRow> = often.chain(rare).collect();
        let (told, unlisted) = Accesses::keep_both_sides(rows, &BTreeSet::new()).summed();
        assert_eq!(told.len(), PLACES);
        let sum: f64 = told.iter().map(|row| row.share).sum();
        assert!((sum - 0.9).abs() < 1e-9, "{sum}");
        assert_eq!(unlisted.places, 10);
        assert!((unlisted.share - 0.1).abs() < 1e-9);
    }
}
