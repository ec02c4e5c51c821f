//! What each level of the simulated hierarchy served, and why it missed: two bars for each level.

use maud::{Markup, html};

use super::super::distances::share;
use super::super::model::{CacheRow, PlaceCaches, Report, ThreadCaches};
use super::super::text;
use super::chart::{self, WIDTH};
use super::written::{self, Listing, Name};

/// Height of one bar.
const BAR: f64 = 22.0;
/// Height of a level.
const LEVEL: f64 = 74.0;
/// Where the bars begin.
const LEFT: f64 = 150.0;
/// The classes of the five kinds of misses, as in [`CacheRow::classes`].
const CLASSES: [&str; 5] = ["cold", "capacity", "conflict", "true-sharing", "lost"];
const BY_PLACE: Listing = Listing {
    title: "Misses by place in the source",
    open: true,
    noun: "place",
    most: 10,
};
const BY_THREAD: Listing = Listing {
    title: "Misses by thread",
    open: false,
    noun: "thread",
    most: 1_000,
};

/// The section, unless the recording has no simulated caches.
pub(super) fn section(report: &Report) -> Markup {
    let Some(first) = report.caches.first() else {
        return html! {};
    };
    let levels = html! {
        @for (i, row) in report.caches.iter().enumerate() { (level(row, LEVEL * i as f64)) }
    };
    let card = html! {
        p {
            "All accesses, sent through a simulated hierarchy: of the accesses that ask a level, the share that it \
             serves, and below it why it misses the others."
        }
        p.keys {
            (chart::bar_key("hit", "hit"))
            @for (class, (name, _)) in CLASSES.iter().zip(first.classes()) { (chart::bar_key(class, name)) }
        }
        (chart::chart(
            LEVEL * report.caches.len() as f64,
            "Hits and misses by class for each cache level; the figures are in the table below",
            levels,
        ))
        (figures(first, &report.caches))
        (misses(report))
    };
    written::section("caches", "Caches", card)
}

fn size(row: &CacheRow) -> String {
    match row.size_bytes {
        0 => row.level.word().to_owned(),
        bytes => format!("{} {}", row.level.word(), text::binary_bytes(bytes)),
    }
}

fn level(row: &CacheRow, top: f64) -> Markup {
    let misses = row.misses();
    let hits = share(row.hits, row.accesses);
    let asked = [("hit", "hits", hits), ("miss", "misses", 1.0 - hits)];
    let missed: Vec<_> = CLASSES
        .into_iter()
        .zip(row.classes())
        .map(|(class, (name, count))| (class, name, count / misses))
        .collect();
    // What the two bars have to do with each other: the second is the end of the first, enlarged.
    let begin = LEFT + (WIDTH - LEFT) * hits;
    let (bottom, below) = (top + 2.0 + BAR, top + 10.0 + BAR);
    let zoom = format!("M{begin:.1} {bottom:.1}L{LEFT} {below:.1}H{WIDTH}V{bottom:.1}Z");
    let accesses = format!("{} accesses", text::count(row.accesses));
    html! {
        (chart::label("label strong", (0.0, top + 17.0), &size(row)))
        (chart::label("label quiet", (0.0, top + 37.0), &accesses))
        @if row.accesses > 0.0 { (bar(top + 2.0, &asked)) }
        @if misses > 0.0 {
            (chart::path("zoom", &zoom))
            (bar(below, &missed))
        }
    }
}

fn bar(y: f64, parts: &[(&str, &str, f64)]) -> Markup {
    let mut right = LEFT;
    let mut part = |class: &str, name: &str, part: f64| {
        let (x, wide) = (right, part * (WIDTH - LEFT));
        right += wide;
        let words = format!("{name} {}", text::percent(part));
        let room = wide > words.chars().count() as f64 * 7.4 + 12.0;
        html! {
            g.bin {
                title { (words) }
                (chart::rect(class, (x, y), (wide.max(0.5), BAR)))
                @if room {
                    (chart::label(&format!("label on-{class}"), (x + 7.0, y + BAR - 6.5), &words))
                }
            }
        }
    };
    html! {
        @for &(class, name, share) in parts.iter().filter(|it| it.2 > 0.0) { (part(class, name, share)) }
    }
}

fn figures(first: &CacheRow, caches: &[CacheRow]) -> Markup {
    let heads = html! {
        th { "Level" } th.number { "Accesses" } th.number { "Hits" }
        @for (name, _) in first.classes() { th.number { (name) } }
    };
    let rows = html! {
        @for row in caches {
            tr {
                td { (size(row)) }
                td.number { (text::count(row.accesses)) }
                td.number { (text::count(row.hits)) }
                @for (_, count) in row.classes() { td.number { (text::count(count)) } }
            }
        }
    };
    written::table("wide", heads, rows)
}

fn misses(report: &Report) -> Markup {
    let Some(misses) = &report.cache_misses else {
        return html! {};
    };
    let heads = |subject: &str| {
        html! {
            th { (subject) } th.number { "Accesses" }
            @for row in &report.caches { th.number { (row.level.word()) " misses" } }
            th { "mostly" }
        }
    };
    let of_place = |row: &PlaceCaches| {
        let place = &row.place;
        html! {
            (written::place(&place.function, &place.file, &format!(":{}", place.line)))
            (levels(&row.levels, &report.caches))
        }
    };
    let name = |tid: u32| {
        let thread = report.run.threads.iter().find(|thread| thread.tid == tid);
        thread.map_or("thread", |thread| thread.name.as_str())
    };
    let of_thread = |row: &ThreadCaches| {
        html! {
            td.name { (Name(name(row.tid))) " " (row.tid) }
            (levels(&row.levels, &report.caches))
        }
    };
    let all = |levels: &[CacheRow]| levels.iter().map(CacheRow::misses).sum();
    html! {
        (BY_PLACE.of(heads("Place"), &misses.by_place, |row| all(&row.levels), of_place))
        @if misses.by_thread.len() > 1 {
            (BY_THREAD.of(heads("Thread"), &misses.by_thread, |row| all(&row.levels), of_thread))
        }
    }
}

/// The cells of one subject: its accesses, its misses at each level, and their commonest class.
fn levels(levels: &[CacheRow], caches: &[CacheRow]) -> Markup {
    let of = |cache: &CacheRow| levels.iter().find(|row| row.level == cache.level);
    let accesses = caches.first().and_then(of).map_or(0.0, |row| row.accesses);
    html! {
        td.number { (text::count(accesses)) }
        @for cache in caches { td.number { (text::count(of(cache).map_or(0.0, CacheRow::misses))) } }
        td.nowrap { (commonest(levels)) }
    }
}

/// The commonest class of misses over the levels; nothing if there are none.
fn commonest(levels: &[CacheRow]) -> &'static str {
    let mut sums = [("", 0.0); 5];
    for row in levels {
        for (sum, (name, count)) in sums.iter_mut().zip(row.classes()) {
            *sum = (name, sum.1 + count);
        }
    }
    sums.into_iter()
        .filter(|(_, count)| *count > 0.0)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or("", |(name, _)| name)
}
