//! The places that a finding's accesses come from: the program's own, the instructions beneath each, and who is there.

use std::collections::HashMap;
use std::hash::Hash;

use super::model::{AccessRow, CallChain, Finding, SourcePlace};
use super::text;

/// A place of the program's own code, or the innermost one where no such is known.
pub(super) struct OwnPlace<'a> {
    /// What it is.
    pub(super) place: SourcePlace,
    /// Whether it is the end of a scope, where what that held is given back.
    pub(super) ends_scope: bool,
    /// Share of the finding's time.
    pub(super) share: f64,
    /// What touches the line there, dearest first; never empty.
    pub(super) instructions: Vec<Accesses<'a>>,
}

/// The accesses of one instruction in the source, by whichever threads.
pub(super) struct Accesses<'a> {
    /// Never empty.
    pub(super) rows: Vec<&'a AccessRow>,
    /// Share of the finding's time.
    pub(super) share: f64,
}

/// What of a finding's places is listed, and what is not.
pub(super) struct Listed<'a> {
    /// Dearest first.
    pub(super) places: Vec<OwnPlace<'a>>,
    /// How many are not listed, and their share of the finding's time.
    pub(super) hidden: u64,
    pub(super) hidden_share: f64,
}

/// The `most` dearest places of a finding, without those below `slight` of its time.
pub(super) fn listed(finding: &Finding, most: usize, slight: f64) -> Listed<'_> {
    let mut places = of_accesses(&finding.accesses);
    let shares_are_known = places.first().is_some_and(|it| it.share > 0.0);
    let weighty = |it: &&OwnPlace<'_>| !shares_are_known || it.share >= slight;
    let told = places.iter().take_while(weighty).count();
    let rest = places.split_off(told.min(most));
    let count = |it: &OwnPlace<'_>| it.instructions.len() as u64;
    Listed {
        places,
        hidden: rest.iter().map(count).sum::<u64>() + finding.unlisted.places,
        hidden_share: rest.iter().map(|it| it.share).sum::<f64>() + finding.unlisted.share,
    }
}

/// Where is waited most: what is said of a finding before what to change.
pub(super) fn dearest(finding: &Finding) -> Vec<OwnPlace<'_>> {
    const MOST: usize = 2;
    const WORTH: f64 = 0.05;
    listed(finding, MOST, WORTH).places
}

/// All of them, dearest first.
pub(super) fn of_accesses(accesses: &[AccessRow]) -> Vec<OwnPlace<'_>> {
    let instructions = grouped(accesses, |row| {
        let code = (&row.function, &row.file, row.line);
        (code, row.op, &row.own, &row.inlined_into)
    });
    let mut known = HashMap::new();
    let mut places: Vec<OwnPlace<'_>> = Vec::new();
    for it in instructions {
        let first = it.rows[0];
        let place = first.own.clone().unwrap_or_else(|| first.innermost());
        let at = *known.entry(place.clone()).or_insert(places.len());
        if at == places.len() {
            places.push(OwnPlace {
                place,
                ends_scope: first.own.is_some() && first.ends_scope,
                share: 0.0,
                instructions: Vec::new(),
            });
        }
        places[at].share += it.share;
        places[at].instructions.push(it);
    }
    places.sort_by(|a, b| b.share.total_cmp(&a.share));
    places
}

/// Rows of one `key` together, dearest first.
fn grouped<'a, K: Hash + Eq>(
    rows: impl IntoIterator<Item = &'a AccessRow>,
    key: impl Fn(&'a AccessRow) -> K,
) -> Vec<Accesses<'a>> {
    let mut found: Vec<Accesses<'a>> = Vec::new();
    let mut known = HashMap::new();
    for row in rows {
        let at = *known.entry(key(row)).or_insert(found.len());
        if at == found.len() {
            found.push(Accesses {
                rows: Vec::new(),
                share: 0.0,
            });
        }
        found[at].rows.push(row);
        found[at].share += row.share;
    }
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found
}

impl<'a> OwnPlace<'a> {
    /// What is said behind it: its line alone would be that of a closing brace.
    pub(super) fn remark(&self) -> &'static str {
        match self.ends_scope {
            true => " (end of the scope)",
            false => "",
        }
    }

    /// `55 % in `; nothing where shares are not known.
    pub(super) fn share_in(&self) -> String {
        match self.share > 0.0 {
            true => format!("{} in ", text::percent(self.share)),
            false => String::new(),
        }
    }

    /// Calls without those of libraries and the place itself, which is told beside them.
    pub(super) fn beyond(&self, chain: &CallChain) -> CallChain {
        let SourcePlace {
            function,
            file,
            line,
        } = &self.place;
        let own = match file.as_str() {
            "" => function.clone(),
            file => format!("{function} ({}:{line})", text::file_name(file)),
        };
        let at = chain.callers.iter().position(|it| *text::caller(it) == own);
        CallChain {
            share: chain.share,
            callers: chain.callers[at.map_or(0, |at| at + 1)..].to_vec(),
        }
    }

    /// All accesses there.
    pub(super) fn accesses(&self) -> Accesses<'a> {
        let rows = self.instructions.iter().flat_map(|it| &it.rows).copied();
        Accesses {
            rows: rows.collect(),
            share: self.share,
        }
    }
}

/// Threads that are named at a place.
const THREADS: usize = 4;

impl Accesses<'_> {
    /// `update +0, 8 bytes`, or without the offset if the threads differ in it.
    pub(super) fn touch(&self) -> String {
        let first = self.rows[0];
        let op = first.op.word();
        let size = text::bytes(first.size.into());
        let same_size = self.rows.iter().all(|row| row.size == first.size);
        let same_offset = self.rows.iter().all(|row| row.offset == first.offset);
        match (same_offset, same_size) {
            (true, true) => format!("{op} +{}, {size}", first.offset),
            (false, true) => format!("{op} {size}"),
            (true, false) => format!("{op} +{}", first.offset),
            (false, false) => op.to_owned(),
        }
    }

    /// `worker-0 41312 and worker-1 41313`, or `8 threads`.
    pub(super) fn threads(&self) -> String {
        const NAMED: usize = 2;
        let found = grouped(self.rows.iter().copied(), |row| row.tid);
        if found.len() > NAMED {
            return text::plural(found.len() as u64, "thread");
        }
        let name = |it: &Accesses<'_>| {
            let name = text::sanitise(&it.rows[0].thread_name);
            format!("{} {}", text::shorten(&name, 20), it.rows[0].tid)
        };
        text::listing(&found.iter().map(name).collect::<Vec<_>>())
    }

    /// `thread worker-0 41312 at +0 (31 %)`, `worker-1 41313 at +16 (27 %)`, `2 more`.
    pub(super) fn who(&self) -> Vec<String> {
        let rows = || self.rows.iter().copied();
        let first = self.rows[0];
        let mut one_offset = rows().all(|row| row.offset == first.offset);
        let mut found = grouped(rows(), |row| (row.tid, row.offset));
        let by_thread = grouped(rows(), |row| row.tid);
        if found.len() > THREADS && by_thread.len() < found.len() {
            // Elements of an array lie anywhere in their lines: who is there says more.
            one_offset = true;
            found = by_thread;
        }
        let of_one = |it: &Accesses<'_>| {
            let row = it.rows[0];
            let name = text::sanitise(&row.thread_name);
            let mut text = format!("{} {}", text::shorten(&name, 20), row.tid);
            if !one_offset {
                text += &format!(" at +{}", row.offset);
            }
            if found.len() > 1 {
                text += &format!(" ({})", text::percent(it.share));
            }
            text
        };
        let mut names: Vec<String> = found.iter().take(THREADS).map(of_one).collect();
        let more = found.len().saturating_sub(THREADS);
        if more > 0 {
            names.push(format!("{more} more"));
        }
        if let Some(only) = names.first_mut().filter(|_| found.len() == 1) {
            only.insert_str(0, "thread ");
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn pattern() -> AccessRow {
        sample::everyday().findings[0].accesses[0].clone()
    }

    /// One place at these threads, offsets and lines, each with a tenth of the time.
    fn at(rows: &[(u32, u32, u64)]) -> Vec<AccessRow> {
        let row = |&(tid, offset, line_address)| AccessRow {
            tid,
            thread_name: "w".to_owned(),
            offset,
            line_address,
            share: 0.1,
            ..pattern()
        };
        rows.iter().map(row).collect()
    }

    fn who_is_at(rows: &[(u32, u32, u64)]) -> Vec<String> {
        let rows = at(rows);
        let places = of_accesses(&rows);
        assert_eq!(places.len(), 1);
        places[0].accesses().who()
    }

    #[test]
    fn a_thread_at_one_offset_of_several_lines_is_named_once() {
        assert_eq!(
            who_is_at(&[(1, 8, 0), (1, 8, 64), (2, 0, 0)]),
            ["w 1 at +8 (20 %)", "w 2 at +0 (10 %)"]
        );
    }

    #[test]
    fn threads_at_many_offsets_are_named_without_them() {
        let many: Vec<_> = (0..8).map(|i| (1 + i % 2, 8 * i, 64)).collect();
        assert_eq!(who_is_at(&many), ["w 1 (40 %)", "w 2 (40 %)"]);
    }

    #[test]
    fn many_threads_at_an_offset_each_keep_it() {
        let each: Vec<_> = (0..6).map(|i| (1 + i, 8 * i, 64)).collect();
        let named = who_is_at(&each);
        assert_eq!(named.len(), 5);
        assert_eq!(
            (named[0].as_str(), named[4].as_str()),
            ("w 1 at +0 (10 %)", "2 more")
        );
    }

    #[test]
    fn what_one_line_of_the_program_calls_is_one_place() {
        let own = SourcePlace {
            function: "work".to_owned(),
            file: "main.c".to_owned(),
            line: 8,
        };
        let call = |function: &str, share| AccessRow {
            function: function.to_owned(),
            own: Some(own.clone()),
            share,
            ..pattern()
        };
        let other = AccessRow {
            share: 0.3,
            ..pattern()
        };
        let slight = AccessRow {
            line: 99,
            share: 0.005,
            ..pattern()
        };
        let mut finding = sample::everyday().findings[0].clone();
        finding.accesses = vec![slight, other, call("lock", 0.25), call("unlock", 0.4)];
        finding.unlisted.places = 2;
        let listed = listed(&finding, 6, 0.01);
        let shares: Vec<f64> = listed.places.iter().map(|it| it.share).collect();
        assert_eq!(shares, [0.65, 0.3]);
        assert_eq!(listed.places[0].place, own);
        assert_eq!(listed.places[0].instructions[0].share, 0.4);
        assert_eq!(listed.hidden, 3);
    }
}
