//! Histograms of reuse distances: private above shared, on one axis, coloured by the cache that is
//! large enough; and who comes back to what.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::super::distances::{self, MOST_CACHES, Octave, share};
use super::super::model::{
    CacheSize, FunctionReuse, Histogram, PairReuse, PathReuse, Report, Reuse, ReuseTimes,
    SampledReuse, SourcePlace, Touches,
};
use super::super::text;
use super::chart::{self, LEFT, Shares, TOP, WIDTH};
use super::written::{self, Listing, Name};

/// Height of the bars.
const HEIGHT: f64 = 150.0;
/// Octaves that are always drawn.
const FEWEST_OCTAVES: usize = 16;
/// Calls of a path that are shown.
const CALLS: usize = 6;
/// Whose distances they are.
const EACH: &str = "each thread by itself";
const TOGETHER: &str = "the threads behind each last-level cache";

/// The section, unless the recording has no reuse distances.
pub(super) fn section(report: &Report) -> Markup {
    match (&report.reuse, &report.sampled_reuse) {
        (Some(reuse), sampled) => distances_of(report, reuse, sampled.as_ref()),
        // Without an exact run that would make distances of its times.
        (None, Some(sampled)) => times(sampled),
        (None, None) => html! {},
    }
}

fn distances_of(report: &Report, reuse: &Reuse, sampled: Option<&SampledReuse>) -> Markup {
    let panel = |title: &str, histogram| Panel {
        title: text::capital(title),
        histogram,
        octaves: distances::octaves(histogram, &report.cache_sizes),
        caches: &report.cache_sizes,
    };
    let of_elements = |histogram: &Histogram, who: &str| {
        let bytes = distances::bytes_words(histogram.unit_bytes);
        format!("{bytes} instead of lines, {who}")
    };
    let elements = [
        (&reuse.private_bytes, EACH),
        (&reuse.shared_bytes, TOGETHER),
    ];
    let elements = elements.into_iter().filter_map(|(histogram, who)| {
        let histogram = histogram.as_ref()?;
        Some(panel(&of_elements(histogram, who), histogram))
    });
    let elements: Vec<Panel> = elements.collect();
    let lines: Vec<Panel> = [
        (EACH, Some(&reuse.private)),
        (TOGETHER, reuse.shared.as_ref()),
    ]
    .into_iter()
    .filter_map(|(title, histogram)| Some(panel(title, histogram?)))
    .collect();
    let octaves = lines.iter().chain(&elements).map(|it| it.octaves.len());
    let slots = octaves.fold(FEWEST_OCTAVES, usize::max);
    let card = html! {
        p {
            "How many other bytes are touched between a use of a " (reuse.private.unit.word())
            " and the next one. The cache whose colour a bar has is large enough for it."
            @if reuse.rate < 1.0 {
                " Measured on " (text::percent(reuse.rate)) " of the lines and scaled back."
            }
        }
        @if let Some(sampled) = sampled { (basis(sampled)) }
        (legend(&report.cache_sizes))
        @for panel in lines.iter().chain(&elements) { (panel.markup(slots)) }
        @for panels in [&lines, &elements] { (figures(panels)) }
        (tables(report, reuse))
    };
    written::section("reuse", "Reuse distance", card)
}

/// What sampled reuse rests on.
fn basis(sampled: &SampledReuse) -> Markup {
    html! {
        p { "Source: sampled. " (distances::sampled_words(sampled)) }
        p.quiet { (sampled.doubt) }
    }
}

fn times(sampled: &SampledReuse) -> Markup {
    let card = html! {
        (basis(sampled))
        (times_of(EACH, &sampled.private))
        @if let Some(shared) = &sampled.shared { (times_of(TOGETHER, shared)) }
    };
    written::section("reuse", "Reuse time", card)
}

fn times_of(title: &str, times: &ReuseTimes) -> Markup {
    let mut octaves: BTreeMap<usize, f64> = BTreeMap::new();
    for bin in &times.bins {
        *octaves.entry(distances::octave_of(bin.from)).or_default() += bin.count;
    }
    let ns = |octave| text::nanoseconds(distances::octave_start(octave) as f64);
    let row = |name: &str, share: f64| html! { tr { td { (name) } td.number { (text::percent(share)) } } };
    let heads = html! { th { "Time until the next use" } th.number { "Share of uses" } };
    let rows = html! {
        @for (octave, share) in octaves {
            (row(&format!("{} to {}", ns(octave), ns(octave + 1)), share))
        }
        (row("ended by a store from elsewhere", times.invalidated))
        (row("not seen to its end", times.unfinished))
    };
    let table = written::table("", heads, rows);
    written::details(&text::capital(title), true, table)
}

fn legend(caches: &[CacheSize]) -> Markup {
    let caches = &caches[..caches.len().min(MOST_CACHES)];
    html! {
        p.keys {
            @for (i, cache) in caches.iter().enumerate() {
                (chart::bar_key(colour(i, caches.len()), &distances::cache_name(cache)))
            }
            @if !caches.is_empty() { (chart::bar_key(colour(caches.len(), caches.len()), "memory")) }
            (chart::bar_key("cold", "first touch"))
            (chart::bar_key("lost", "invalidated"))
        }
    }
}

/// The class of the cache with this index among `caches`; the last colour is for memory.
fn colour(cache: usize, caches: usize) -> &'static str {
    const CACHES: [&str; MOST_CACHES] = ["c0", "c1", "c2", "c3"];
    match cache < caches {
        true => CACHES[cache.min(MOST_CACHES - 1)],
        false => "far",
    }
}

/// One histogram.
struct Panel<'a> {
    title: String,
    histogram: &'a Histogram,
    octaves: Vec<Octave>,
    caches: &'a [CacheSize],
}

impl Panel<'_> {
    /// The histogram on an axis of so many octaves.
    fn markup(&self, slots: usize) -> Markup {
        let histogram = self.histogram;
        let described = format!(
            "{}: share of touches by reuse distance; the figures are in the table below",
            self.title
        );
        let elsewhere = self.share(histogram.other_thread);
        html! {
            p.plot-title {
                (self.title)
                span {
                    (text::count(histogram.accesses)) " touches"
                    @if elsewhere > 0.0 {
                        ", " (text::percent(elsewhere)) " of them reuses of what another thread had used"
                    }
                }
            }
            (chart::chart(TOP + HEIGHT + chart::BOTTOM, &described, self.drawing(slots)))
        }
    }

    fn drawing(&self, slots: usize) -> Markup {
        let cold = self.share(self.histogram.cold);
        let lost = self.share(self.histogram.invalidated);
        let shares = self.octaves.iter().map(|octave| self.share(octave.count));
        let scale = Shares::new(shares.chain([lost, cold]), HEIGHT);
        // Two more for what has no distance, and a gap before them.
        let slot = (WIDTH - LEFT) / (slots as f64 + 2.6);
        let x = |at: f64| LEFT + slot * at;
        let end = slots as f64;
        let without = |at, class, name, short, share| {
            html! {
                (bar(scale, (x(at), slot), class, name, share))
                (chart::label("label middle", (x(at + 0.5), TOP + HEIGHT + 17.0), short))
            }
        };
        let unit_bytes = self.histogram.unit_bytes;
        let every = (66.0 / slot).ceil().max(1.0) as usize;
        let size = |octave| distances::octave_start(octave).saturating_mul(unit_bytes);
        let marks: Vec<(f64, String)> = self
            .caches
            .iter()
            .map(|cache| (x(self.slot_of(cache.bytes)), distances::cache_name(cache)))
            .filter(|it| it.0 <= x(end))
            .collect();
        html! {
            (scale.axis(TOP, WIDTH))
            @for (i, octave) in self.octaves.iter().enumerate() {
                @let class = colour(octave.cache(), self.caches.len().min(MOST_CACHES));
                (bar(scale, (x(i as f64), slot), class, &range(i, unit_bytes), self.share(octave.count)))
            }
            (without(end + 0.6, "cold", "first touch", "first", cold))
            (without(end + 1.6, "lost", "invalidated", "inval.", lost))
            @for octave in (1..=slots).step_by(every) {
                (chart::tick(x(octave as f64), HEIGHT, &text::binary_bytes(size(octave))))
            }
            (chart::marks(&marks, HEIGHT, WIDTH))
        }
    }

    /// Where a cache of `bytes` stands: distances to the left of it fit.
    fn slot_of(&self, bytes: u64) -> f64 {
        let units = bytes as f64 / self.histogram.unit_bytes.max(1) as f64;
        1.0 + units.max(1.0).log2()
    }

    /// A count as a share of all touches.
    fn share(&self, count: f64) -> f64 {
        share(count, self.histogram.accesses)
    }
}

/// A bar in a slot, which is a place and a width.
fn bar(scale: Shares, (x, slot): (f64, f64), class: &str, name: &str, share: f64) -> Markup {
    let y = scale.y(share);
    // The invisible full-height rectangle makes a short bar easy to point at.
    html! {
        g.bin {
            title { (name) ": " (text::percent(share)) }
            (chart::rect("catch", (x, TOP), (slot, HEIGHT)))
            (chart::rect(class, (x + slot * 0.08, TOP + y), (slot * 0.84, HEIGHT - y)))
        }
    }
}

/// The distances of an octave, in bytes.
fn range(octave: usize, unit_bytes: u64) -> String {
    let bytes =
        |octave| text::binary_bytes(distances::octave_start(octave).saturating_mul(unit_bytes));
    match octave {
        0 => "nothing in between".to_owned(),
        octave => format!("{} to {}", bytes(octave), bytes(octave + 1)),
    }
}

fn figures(panels: &[Panel<'_>]) -> Markup {
    let Some(first) = panels.first() else {
        return html! {};
    };
    let row = |name: &str, count: &dyn Fn(&Panel<'_>) -> f64| {
        html! {
            tr {
                td { (name) }
                @for panel in panels { td.number { (text::percent(panel.share(count(panel)))) } }
            }
        }
    };
    let longest = panels.iter().map(|it| it.octaves.len()).max().unwrap_or(0);
    let in_octave = |panel: &Panel<'_>, i: usize| panel.octaves.get(i).map_or(0.0, |it| it.count);
    let unfinished = |panel: &Panel<'_>| panel.histogram.unfinished;
    let heads = html! {
        th { "Distance" }
        @for panel in panels { th.number { (panel.title) } }
    };
    let rows = html! {
        @for i in 0..longest {
            (row(&range(i, first.histogram.unit_bytes), &|panel| in_octave(panel, i)))
        }
        (row("first touch", &|panel| panel.histogram.cold))
        (row("invalidated", &|panel| panel.histogram.invalidated))
        @if panels.iter().any(|it| it.share(unfinished(it)) > 0.0) {
            (row("not seen to its end", &unfinished))
        }
    };
    let table = written::table("", heads, rows);
    written::details("Figures, share of touches", false, table)
}

fn listing(title: &'static str, open: bool) -> Listing {
    Listing {
        title,
        open,
        noun: "row",
        most: 10,
    }
}

fn tables(report: &Report, reuse: &Reuse) -> Markup {
    let caches = report.cache_sizes.len();
    let heads = |names: &[&str]| {
        html! {
            @for name in names { th { (name) } }
            th.number { "Touches" } th.number { "invalidated" }
            @for head in distances::beyond_heads(report) { th.number { (head) } }
        }
    };
    let function = |row: &FunctionReuse| {
        html! { (written::place(&row.function, &row.file, "")) (touches(&row.touches, caches)) }
    };
    let path = |row: &PathReuse| {
        html! { td.name { (Name(&row.function)) } (calls(&row.calls)) (touches(&row.touches, caches)) }
    };
    let pair = |row: &PairReuse| {
        html! { (place(&row.use_place)) (place(&row.reuse_place)) (touches(&row.touches, caches)) }
    };
    let pairs = |title, rows: &[PairReuse]| {
        let heads = heads(&["Used at", "Used again at"]);
        listing(title, false).of(heads, rows, |row| row.touches.count, pair)
    };
    let by_function = listing("By function", true);
    let by_path = listing("By the calls that led there", false);
    let again = "The same, where another thread may have used it";
    html! {
        (by_function.of(heads(&["Function"]), &reuse.by_function, |row| row.touches.count, function))
        (by_path.of(heads(&["Function", "Called from"]), &reuse.by_path, |row| row.touches.count, path))
        (pairs("By place of use and of reuse", &reuse.pairs))
        (pairs(again, &reuse.shared_pairs))
        @if reuse.by_thread.len() > 1 { (threads(report, reuse, heads(&["Thread", "Id"]))) }
    }
}

/// A cell with calls, the innermost first.
fn calls(calls: &[SourcePlace]) -> Markup {
    html! {
        td.name {
            @for (depth, call) in calls.iter().take(CALLS).enumerate() {
                @if depth > 0 { " ← " }
                (Name(&call.function))
                @if call.line > 0 { span.file { " :" (call.line) } }
            }
            @if calls.len() > CALLS { " and " (calls.len() - CALLS) " more" }
        }
    }
}

fn place(place: &SourcePlace) -> Markup {
    written::place(&place.function, &place.file, &format!(":{}", place.line))
}

fn touches(touches: &Touches, caches: usize) -> Markup {
    let beyond = |i: usize| touches.beyond.get(i).map_or(0.0, |beyond| beyond.count);
    html! {
        td.number { (text::count(touches.count)) }
        td.number { (text::count(touches.invalidated)) }
        @for i in 0..caches { td.number { (text::count(beyond(i))) } }
    }
}

fn threads(report: &Report, reuse: &Reuse, heads: Markup) -> Markup {
    let mut rows: Vec<(&String, &Histogram)> = reuse.by_thread.iter().collect();
    rows.sort_by(|a, b| b.1.accesses.total_cmp(&a.1.accesses));
    let name = |tid: &str| {
        let mut threads = report.run.threads.iter();
        let thread = threads.find(|thread| thread.tid.to_string() == tid);
        thread.map_or("", |thread| thread.name.as_str())
    };
    let row = |(tid, histogram): &(&String, &Histogram)| {
        html! {
            td.name { (Name(name(tid))) }
            td { (tid) }
            td.number { (text::count(histogram.accesses)) }
            td.number { (text::count(histogram.invalidated)) }
            @for cache in &report.cache_sizes { td.number { (text::count(histogram.reuses_from(cache.bytes))) } }
        }
    };
    listing("By thread", false).of(heads, &rows, |row| row.1.accesses, row)
}
