//! Which words of contended lines may lie apart: those that no thread needs together. Two words that one thread
//! touches, and others too, cost it one transfer on one line and two on two; a word that is a thread's own, or that is
//! only read, may lie anywhere but beside what others write.

use std::collections::{BTreeMap, BTreeSet};

use linewise_recording::Operation;

use super::locks::{is_lock, without_libc};
use crate::model::AccessRow;
use crate::users::User;
use crate::views::Clusters;

/// Code that touches several words, none of them for this share of its time, picks one of them at a time.
const IN_A_ROW: f64 = 0.8;

/// Words that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Part<'a> {
    /// What of it lies on each contended line.
    lines: BTreeMap<u64, OnLine<'a>>,
    /// Share of the finding's time.
    share: f64,
}

/// What of a part lies on one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OnLine<'a> {
    /// The fields that are touched, dearest first.
    pub(super) fields: Vec<&'a str>,
    /// Who touches them, and whether that writes.
    users: BTreeMap<User, bool>,
    /// The line, and where on it the dearest of them begins, bytes.
    pub(super) line: u64,
    pub(super) at: u32,
    /// Where on the line each field begins.
    starts: Vec<(u32, &'a str)>,
    /// Share of the finding's time.
    share: f64,
    is_lock: bool,
    /// Whether all of it is.
    is_all_lock: bool,
}

/// Bytes that are touched as one, on a line.
#[derive(Clone, Debug, Default)]
struct Word<'a> {
    line: u64,
    start: u32,
    end: u32,
    accesses: Vec<&'a AccessRow>,
}

/// A place in the source, in one thread.
type Code<'a> = (User, &'a str, &'a str, u32);

fn code(access: &AccessRow) -> Code<'_> {
    (access.user(), &access.function, &access.file, access.line)
}

impl Word<'_> {
    /// Whether another thread is in the way of this one at the word.
    fn is_shared(&self, user: User) -> bool {
        let writes = |it: &&AccessRow| it.op != Operation::Load;
        let (own, others): (Vec<&AccessRow>, Vec<&AccessRow>) =
            self.accesses.iter().partition(|it| it.user() == user);
        let any = |rows: &[&AccessRow]| rows.iter().any(writes);
        !own.is_empty() && !others.is_empty() && (any(&own) || any(&others))
    }

    /// The element of an array that its fields are in: `pool[3]`, or `[3]`.
    fn element(&self) -> Option<&str> {
        let mut fields = self.accesses.iter().map(|it| it.field.as_str());
        fields.find_map(|field| Some(&field[..=field.find(']')?]))
    }
}

/// The parts, dearest first.
pub(super) fn parts(accesses: &[AccessRow]) -> Vec<Part<'_>> {
    let words = words(accesses);
    let picks = picking(&words);
    let mut clusters = Clusters::apart(words.len());
    for b in 0..words.len() {
        for a in 0..b {
            if needed_together(&words[a], &words[b], &picks) {
                clusters.join(b, a);
            }
        }
    }
    let mut found: BTreeMap<usize, Vec<&AccessRow>> = BTreeMap::new();
    for (number, word) in words.iter().enumerate() {
        let part = found.entry(clusters.of(number)).or_default();
        part.extend(&word.accesses);
    }
    let mut parts: Vec<Part<'_>> = found.into_values().map(Part::of).collect();
    parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    parts
}

/// A pair of parts that would save less than this of the finding's time by lines of their own is not what it is about.
const WORTH_PARTING: f64 = 0.05;

/// What of two parts is in each other's way on one line: a thread at the one and another at the other, of which one
/// writes. Of many pairs the one that lines of its own would save most; what lies before the other comes first.
pub(super) fn dearest_in_the_way<'b, 'a>(parts: &'b [Part<'a>]) -> Option<[&'b OnLine<'a>; 2]> {
    let all: f64 = parts.iter().map(|it| it.share).sum();
    let pairs = parts.iter().enumerate().flat_map(|(i, second)| {
        let common = |(line, on_line)| Some([on_line, second.lines.get(line)?]);
        (parts[..i].iter()).flat_map(move |first| first.lines.iter().filter_map(common))
    });
    let worth = pairs
        .filter(|[a, b]| a.disturbs(b))
        .map(|[a, b]| (a.saved_without(b) + b.saved_without(a), [a, b]))
        .filter(|(saved, _)| *saved >= WORTH_PARTING * all);
    // Of equal ones the first: parts are sorted.
    let (_, [a, b]) = worth.reduce(|most, it| if it.0 > most.0 { it } else { most })?;
    Some(if b.at < a.at { [b, a] } else { [a, b] })
}

/// What else lies on the line of such a pair and is in the way of one of the two: to part these alone would leave it there.
pub(super) fn also_in_the_way<'b, 'a>(
    parts: &'b [Part<'a>],
    pair: [&OnLine<'a>; 2],
) -> Vec<&'b OnLine<'a>> {
    let all: f64 = parts.iter().map(|it| it.share).sum();
    let on_line = parts.iter().filter_map(|it| it.lines.get(&pair[0].line));
    let others = on_line.filter(|it| pair.iter().all(|end| !std::ptr::eq(*end, *it)));
    let matters = |it: &&OnLine<'_>| it.is_written() || it.share >= WORTH_PARTING * all;
    others
        .filter(matters)
        .filter(|it| pair.iter().any(|end| end.disturbs(it)))
        .collect()
}

impl<'a> Part<'a> {
    /// Whether it is a lock and nothing else.
    pub(super) fn is_lock(&self) -> bool {
        self.lines.values().all(|it| it.is_all_lock)
    }

    /// Whether one of the two is a lock and whoever touches the other takes it, too: then that lies beside it for good.
    pub(super) fn guards(pair: [&OnLine<'a>; 2]) -> bool {
        let [a, b] = pair;
        let takes = |lock: &OnLine<'a>, data: &OnLine<'a>| {
            let mut users = data.users.keys();
            lock.is_lock && !data.is_lock && users.all(|it| lock.users.contains_key(it))
        };
        takes(a, b) || takes(b, a)
    }

    fn of(mut accesses: Vec<&'a AccessRow>) -> Self {
        accesses.sort_by(|a, b| b.share.total_cmp(&a.share));
        let mut part = Self::default();
        for access in accesses {
            part.share += access.share;
            let on_line = (part.lines.entry(access.line_address)).or_insert_with(|| OnLine {
                line: access.line_address,
                at: access.offset,
                is_all_lock: true,
                ..OnLine::default()
            });
            on_line.share += access.share;
            on_line.is_lock |= is_lock(access);
            on_line.is_all_lock &= is_lock(access);
            *on_line.users.entry(access.user()).or_default() |= access.op != Operation::Load;
            if !access.field.is_empty() && !on_line.fields.contains(&access.field.as_str()) {
                on_line.fields.push(&access.field);
                on_line.starts.push((access.offset, &access.field));
            }
        }
        part
    }
}

impl<'a> OnLine<'a> {
    /// What of it lies behind `other`: the first such field alone.
    pub(super) fn behind(&self, other: &Self) -> Option<Self> {
        let behind = self.starts.iter().filter(|(at, _)| *at > other.at);
        let (at, field) = behind.min()?;
        Some(Self {
            fields: vec![field],
            at: *at,
            line: self.line,
            ..Self::default()
        })
    }

    fn disturbs(&self, other: &Self) -> bool {
        let mut pairs = (self.users.iter())
            .flat_map(|mine| other.users.iter().map(move |theirs| (mine, theirs)));
        pairs.any(|((a, writes), (b, also))| a != b && (*writes || *also))
    }

    fn is_written(&self) -> bool {
        self.users.values().any(|writes| *writes)
    }

    /// Share of the finding's time that this would save on another line than `other`: what threads really share moves
    /// without it, too, and is moved by it about as often as it is touched.
    fn saved_without(&self, other: &Self) -> f64 {
        match self.disturbs(self) {
            true => self.share.min(other.share),
            false => self.share,
        }
    }
}

/// The words: touches that overlap are of one.
fn words(accesses: &[AccessRow]) -> Vec<Word<'_>> {
    let mut sorted: Vec<&AccessRow> = accesses.iter().collect();
    sorted.sort_by_key(|it| (it.line_address, it.offset));
    let mut words: Vec<Word<'_>> = Vec::new();
    for access in sorted {
        let end = access.offset + access.size.max(1);
        match words.last_mut() {
            Some(word) if word.line == access.line_address && access.offset < word.end => {
                word.end = word.end.max(end);
                word.accesses.push(access);
            }
            _ => words.push(Word {
                line: access.line_address,
                start: access.offset,
                end,
                accesses: vec![access],
            }),
        }
    }
    words
}

/// The code that picks one of several words at a time.
fn picking<'a>(words: &[Word<'a>]) -> BTreeSet<Code<'a>> {
    let mut uses: BTreeMap<Code<'a>, BTreeMap<(u64, u32), f64>> = BTreeMap::new();
    for word in words {
        for &access in &word.accesses {
            let uses = uses.entry(code(access)).or_default();
            *uses.entry((word.line, word.start)).or_default() += access.share;
        }
    }
    let picks = |words: &BTreeMap<(u64, u32), f64>| {
        let all: f64 = words.values().sum();
        let most = words.values().copied().fold(0.0, f64::max);
        words.len() > 1 && (most < IN_A_ROW * all || all == 0.0)
    };
    let picking = uses.into_iter().filter(|(_, words)| picks(words));
    picking.map(|(code, _)| code).collect()
}

/// Whether a thread takes both words while it has the line, and others are in its way at each.
fn needed_together(a: &Word<'_>, b: &Word<'_>, picks: &BTreeSet<Code<'_>>) -> bool {
    let users: BTreeSet<User> = a.accesses.iter().map(|it| it.user()).collect();
    let picked = |word: &Word<'_>, user: User| {
        let mut own = word.accesses.iter().filter(|it| it.user() == user);
        own.all(|it| picks.contains(&code(it)))
    };
    let same_element = a.element().is_some() && a.element() == b.element();
    users.into_iter().any(|user| {
        let one_of_both = picked(a, user) && picked(b, user) && !same_element;
        a.is_shared(user) && b.is_shared(user) && !one_of_both
    }) || of_one_thread(a, b)
        || of_one_lock(a, b)
}

/// Whether both are one thread's own.
fn of_one_thread(a: &Word<'_>, b: &Word<'_>) -> bool {
    let mut all = a.accesses.iter().chain(&b.accesses).map(|it| it.user());
    let first = all.next();
    all.all(|user| Some(user) == first)
}

/// Whether both are words of one lock of a library, by name, or because each has code of its own, where the same code touches the words of
/// several locks, and they are no fields of the program.
fn of_one_lock(a: &Word<'_>, b: &Word<'_>) -> bool {
    let all = || a.accesses.iter().chain(&b.accesses);
    let codes = |word: &Word<'_>| -> BTreeSet<(String, u32)> {
        let code = |it: &&AccessRow| (it.function.clone(), it.line);
        word.accesses.iter().map(code).collect()
    };
    let name = all().next().map_or("", |it| without_libc(&it.field));
    let of_one_name = all().all(|it| without_libc(&it.field) == name);
    // Of an array whose index is not known several are called so.
    let is_named = !name.is_empty() && !name.contains("[]");
    let members = |word: &Word<'_>| -> BTreeSet<String> {
        word.accesses.iter().map(|it| it.field.clone()).collect()
    };
    let by_name = || is_named && members(a).is_disjoint(&members(b));
    all().all(|it| is_lock(it)) && of_one_name && (by_name() || codes(a).is_disjoint(&codes(b)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Thread, offset, field and source line of an access that writes.
    pub(in super::super) fn at(tid: u32, offset: u32, field: &str, line: u32) -> AccessRow {
        AccessRow {
            tid,
            thread_name: String::new(),
            goroutine: None,
            function: "work".to_owned(),
            file: "work.cpp".to_owned(),
            line,
            own: None,
            ends_scope: false,
            language: String::new(),
            inlined_into: Vec::new(),
            called_from: Vec::new(),
            op: Operation::Update,
            offset,
            size: 8,
            field: field.to_owned(),
            share: 0.1,
            line_address: 0x40,
            missing: String::new(),
        }
    }

    fn fields(accesses: &[AccessRow]) -> Vec<Vec<&str>> {
        fn of_part(part: Part<'_>) -> Vec<&str> {
            let fields = part.lines.into_values().flat_map(|it| it.fields);
            fields.collect::<BTreeSet<&str>>().into_iter().collect()
        }
        let mut parts: Vec<Vec<&str>> = parts(accesses).into_iter().map(of_part).collect();
        parts.sort_unstable();
        parts
    }

    #[test]
    fn what_all_threads_update_stays_together() {
        let both = |offset, field, line| [at(1, offset, field, line), at(2, offset, field, line)];
        let three = [both(0, "a", 1), both(8, "b", 2), both(16, "c", 3)].concat();
        assert_eq!(fields(&three), [["a", "b", "c"]]);
        // What only one of them uses, or both only read, need not.
        let own = [three, vec![at(1, 24, "own", 4)]].concat();
        assert_eq!(fields(&own), [vec!["a", "b", "c"], vec!["own"]]);
        let mut read = own;
        for mut row in both(32, "read", 5) {
            row.op = Operation::Load;
            read.push(row);
        }
        assert_eq!(
            fields(&read),
            [vec!["a", "b", "c"], vec!["own"], vec!["read"]]
        );
    }

    #[test]
    fn elements_that_an_index_picks_may_lie_apart() {
        let pool = |tid| {
            [
                at(tid, 0, "pool[0].lock", 1),
                at(tid, 8, "pool[0].data", 2),
                at(tid, 16, "pool[1].lock", 1),
                at(tid, 24, "pool[1].data", 2),
            ]
        };
        let both = [pool(1), pool(2)].concat();
        assert_eq!(
            fields(&both),
            [
                ["pool[0].data", "pool[0].lock"],
                ["pool[1].data", "pool[1].lock"]
            ]
        );
        // Code that waits at the first of them goes through all in a row.
        let mut row = [at(1, 0, "d[0]", 1), at(1, 8, "d[1]", 1)].to_vec();
        row.extend([at(2, 0, "d[0]", 1), at(2, 8, "d[1]", 1)]);
        for access in row.iter_mut().filter(|it| it.offset > 0) {
            access.share = 0.01;
        }
        assert_eq!(fields(&row), [["d[0]", "d[1]"]]);
    }
}
