//! What an exact run says of caches: hits and misses by level, reuse distances, miss ratios, and
//! whether fetching neighbouring lines would help. A few lines each; the rest is in the other forms.

use super::super::distances::{self, share};
use super::super::model::{CacheRow, Histogram, PairReuse, PlaceCaches, Report, SourcePlace};
use super::page::{Page, Tone};
use super::text;
use crate::section;

/// Where the text beside the labels begins.
const INDENT: usize = 13;
/// Rows of a list.
const ROWS: usize = 5;
/// Calls of a path.
const CALLS: usize = 3;
/// Of the first row, the share below which a row is not worth the line it takes.
const SLIGHT: f64 = 0.005;
/// Columns of a number.
const NUMBER: usize = 9;
/// Columns of the names in front of them.
const NAME: usize = 17;

/// Prints it; nothing for a recording that has none.
pub(super) fn print(page: &mut Page, report: &Report) {
    caches(page, report);
    reuse(page, report);
    sampled(page, report);
    prefetch(page, report);
}

fn row(page: &mut Page, tone: Tone, name: &str, cells: &[String]) {
    let safe = text::sanitise(name);
    let name = text::shorten(&safe, NAME);
    let gap = " ".repeat(NAME.saturating_sub(text::width(&name)));
    let mut spans = vec![(tone, format!("{name}{gap}"))];
    spans.extend(cells.iter().map(|cell| (tone, format!("{cell:>NUMBER$}"))));
    page.line(&spans);
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn caches(page: &mut Page, report: &Report) {
    if report.caches.is_empty() {
        return;
    }
    let heads = words([
        "asked", "hits", "compuls.", "capacity", "conflict", "true s.", "false s.",
    ]);
    row(page, Tone::Dim, "simulated caches", &heads);
    for level in &report.caches {
        let mut cells = vec![text::count(level.accesses)];
        let shares = std::iter::once(level.hits).chain(level.classes().map(|(_, count)| count));
        cells.extend(shares.map(|count| text::percent(share(count, level.accesses))));
        let size = match level.size_bytes {
            0 => String::new(),
            bytes => format!(" {}", text::binary_bytes(bytes)),
        };
        let name = format!("  {}{size}", level.level.word());
        row(page, Tone::Plain, &name, &cells);
    }
    if !report.cache_sizes.is_empty() {
        let sizes = report.cache_sizes.iter().map(|cache| {
            let simulated = cache
                .simulated
                .map_or_else(String::new, |ratio| format!(" ({})", text::percent(ratio)));
            format!(
                "{} {}{simulated}",
                cache.level.word(),
                text::percent(cache.miss_ratio)
            )
        });
        let sizes: Vec<String> = sizes.collect();
        let line = format!(
            "{} of all touches by their distances (as simulated)",
            sizes.join(", ")
        );
        page.labelled("miss ratio", INDENT, Tone::Dim, &line);
    }
    if let Some(misses) = report
        .cache_misses
        .as_ref()
        .filter(|m| !m.by_place.is_empty())
    {
        page.line(&[(Tone::Dim, "most misses at")]);
        let all = |place: &PlaceCaches| place.levels.iter().map(CacheRow::misses).sum::<f64>();
        let first = all(&misses.by_place[0]);
        let rows = misses.by_place.iter().take(ROWS);
        let shown: Vec<_> = rows.filter(|place| all(place) > SLIGHT * first).collect();
        for &place in &shown {
            let counts: Vec<String> = place
                .levels
                .iter()
                .map(|row| {
                    format!(
                        "{} {}",
                        row.level.word(),
                        text::count(CacheRow::misses(row))
                    )
                })
                .collect();
            let counts = counts.join(", ");
            entry(page, &counts, 32, &place_words(&place.place));
        }
        let sum = |places: &[&PlaceCaches]| places.iter().map(|place| all(place)).sum::<f64>();
        let places: Vec<&PlaceCaches> = misses.by_place.iter().collect();
        let hidden = places.len() - shown.len();
        rest(page, hidden, sum(&places) - sum(&shown));
    }
    page.blank();
}

fn reuse(page: &mut Page, report: &Report) {
    let Some(reuse) = &report.reuse else { return };
    let caches = &report.cache_sizes[..report.cache_sizes.len().min(3)];
    let mut heads = words(["touches"]);
    heads.extend(
        caches
            .iter()
            .map(|cache| format!("in {}", cache.level.word())),
    );
    heads.extend(words(["farther", "first", "inval."]));
    row(page, Tone::Dim, "reuse distances", &heads);
    let line = |name: &str, histogram: &Histogram, page: &mut Page| {
        let all = histogram.accesses;
        let mut cells = vec![text::count(all)];
        let mut before = histogram.reuses();
        for cache in caches {
            let beyond = histogram.reuses_from(cache.bytes);
            cells.push(text::percent(share((before - beyond).max(0.0), all)));
            before = beyond;
        }
        let rest = [before, histogram.cold, histogram.invalidated];
        cells.extend(rest.map(|count| text::percent(share(count, all))));
        row(page, Tone::Plain, name, &cells);
    };
    line("  each thread", &reuse.private, page);
    if let Some(shared) = &reuse.shared {
        line("  per last level", shared, page);
    }
    if let Some(elements) = &reuse.private_bytes {
        let name = format!("  of {}", distances::bytes_words(elements.unit_bytes));
        line(&name, elements, page);
    }
    if let Some(elements) = &reuse.shared_bytes {
        line("  per last level", elements, page);
    }
    let beyond = |pair: &PairReuse| pair.touches.beyond.first().map_or(0.0, |b| b.count);
    let first = reuse.pairs.iter().map(beyond).fold(0.0, f64::max);
    let farther = |pair: &&PairReuse| beyond(pair) > 0.0;
    let pairs: Vec<&PairReuse> = reuse.pairs.iter().filter(farther).collect();
    let rows = pairs.iter().take(ROWS);
    let shown: Vec<_> = rows.filter(|pair| beyond(pair) > SLIGHT * first).collect();
    if let (Some(cache), false) = (caches.first(), pairs.is_empty()) {
        let head = format!("used again from beyond {}", cache.level.word());
        page.line(&[(Tone::Dim, &head)]);
        for &pair in &shown {
            let words = match pair.use_place == pair.reuse_place {
                true => format!("{}, by itself", place_words(&pair.reuse_place)),
                false => format!(
                    "{}, used at {}",
                    place_words(&pair.reuse_place),
                    place_words(&pair.use_place)
                ),
            };
            entry(page, &text::count(beyond(pair)), 9, &words);
            if let Some(paths) = pair.paths.first().filter(|p| !p.reuse_calls.is_empty()) {
                let words = format!("called {}", calls_words(&paths.reuse_calls));
                entry(page, "", 9, &words);
            }
        }
        let all: f64 = pairs.iter().map(|pair| beyond(pair)).sum();
        let told: f64 = shown.iter().map(|pair| beyond(pair)).sum();
        rest(page, pairs.len() - shown.len(), all - told);
    }
    page.blank();
}

/// What sampled reuse rests on.
fn sampled(page: &mut Page, report: &Report) {
    let Some(sampled) = &report.sampled_reuse else {
        return;
    };
    let words = distances::sampled_words(sampled);
    page.labelled("sampled", INDENT, Tone::Plain, &words);
    page.labelled("", INDENT, Tone::Dim, &sampled.doubt);
    page.blank();
}

/// Who called, the innermost first.
fn calls_words(calls: &[SourcePlace]) -> String {
    let mut words: Vec<String> = calls
        .iter()
        .take(CALLS)
        .map(|call| format!("by {}", place_words(call)))
        .collect();
    if calls.len() > CALLS {
        words.push(format!("and {} more", calls.len() - CALLS));
    }
    words.join(", ")
}

fn place_words(place: &SourcePlace) -> String {
    match place.file.as_str() {
        "" => place.function.clone(),
        file => format!(
            "{} {}:{}",
            place.function,
            text::file_name(file),
            place.line
        ),
    }
}

/// A line of a list: a number, then what it is of, shortened in the middle.
fn entry(page: &mut Page, number: &str, columns: usize, what: &str) {
    let number = format!("  {number:>columns$}  ");
    let room = page.width().saturating_sub(text::width(&number));
    let safe = text::sanitise(what);
    let what = text::shorten(&safe, room);
    page.line(&[(Tone::Plain, number.as_str()), (Tone::Plain, &what)]);
}

fn rest(page: &mut Page, rows: usize, sum: f64) {
    if rows > 0 {
        let (more, sum) = (section::more(rows), text::count(sum));
        let more = format!("  {more}, {sum} in all: see --html or --json");
        page.line(&[(Tone::Dim, &more)]);
    }
}

fn prefetch(page: &mut Page, report: &Report) {
    let Some(prefetch) = &report.prefetch else {
        return;
    };
    let gain = &prefetch.gain_band;
    let mut words = format!(
        "{} {}",
        distances::prefetch_words(prefetch.verdict),
        prefetch.doubt
    );
    if gain.low < gain.high {
        words += &format!(
            " The waits for memory that it can save, less those by false sharing that it can add: {} ({} to {}).",
            text::nanoseconds(prefetch.gain_ns),
            text::nanoseconds(gain.low),
            text::nanoseconds(gain.high),
        );
    }
    page.labelled("prefetch", INDENT, Tone::Dim, &words);
    page.blank();
}
