//! Text that is safe to print: names made harmless, shortened, wrapped, and numbers with units.
//!
//! Names come from the measured program: thread names, symbols and paths may hold anything,
//! escape sequences included. Everything here counts display columns, not bytes.

use std::borrow::Cow;
use std::fmt::Write as _;

pub(crate) use crate::views::place::file_name;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) use linewise_foreign::sanitise;
use linewise_recording::PathEvent;

use super::model::{CallChain, FlowNode, FlowRow, Interval};
use crate::quantity::ABSURD;
pub(crate) use crate::quantity::{percent, percent_range};

/// What to call a type, or that which the member `through` leads to: `matcher.hash: unsigned int`.
pub(crate) fn kind<'a>(type_name: &'a str, through: &str) -> Cow<'a, str> {
    match (type_name, through) {
        ("", _) => Cow::Borrowed("(no type)"),
        (name, "") => Cow::Borrowed(name),
        (name, through) => Cow::Owned(format!("{through}: {name}")),
    }
}

/// Display columns of `text`.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// `text` in at most `columns`, with an ellipsis in the middle if it does not fit: the start says
/// whose it is and the end says which, so both stay.
pub(crate) fn shorten(text: &str, columns: usize) -> Cow<'_, str> {
    if columns_of(text) <= columns {
        return Cow::Borrowed(text);
    }
    if columns == 0 {
        return Cow::Borrowed("");
    }
    let tail_columns = (columns - 1) / 2;
    let head_columns = columns - 1 - tail_columns;
    let head = prefix(text, head_columns);
    Cow::Owned(format!("{head}…{}", suffix(text, tail_columns)))
}

/// `text` in at most `columns`, with an ellipsis at the start if it does not fit: of the path of a
/// field, the end tells it from its neighbours.
pub(crate) fn shorten_start(text: &str, columns: usize) -> Cow<'_, str> {
    if columns_of(text) <= columns {
        return Cow::Borrowed(text);
    }
    match columns {
        0 => Cow::Borrowed(""),
        _ => Cow::Owned(format!("…{}", suffix(text, columns - 1))),
    }
}

/// The longest end of `text` that takes at most `columns`.
fn suffix(text: &str, columns: usize) -> &str {
    let mut taken = 0;
    for (i, c) in text.char_indices().rev() {
        taken += c.width().unwrap_or(0);
        if taken > columns {
            return &text[i + c.len_utf8()..];
        }
    }
    text
}

/// The longest start of `text` that takes at most `columns`.
pub(crate) fn prefix(text: &str, columns: usize) -> &str {
    let mut taken = 0;
    for (i, c) in text.char_indices() {
        taken += c.width().unwrap_or(0);
        if taken > columns {
            return &text[..i];
        }
    }
    text
}

/// The sum of the columns of the single characters: never less than [`width`], which knows about
/// sequences that merge, and what the cuts here are made by.
fn columns_of(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Breaks `text` into lines of at most `columns`, at spaces where there are any. It is one sentence or several:
/// a line break in it is part of a name, and shown as such.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for mut word in sanitise(text).split_whitespace() {
        if !line.is_empty() {
            if columns_of(&line) + 1 + columns_of(word) <= columns {
                line.push(' ');
                line.push_str(word);
                continue;
            }
            lines.push(std::mem::take(&mut line));
        }
        while columns_of(word) > columns {
            let head = prefix(word, columns);
            // A single character wider than the line would never be consumed.
            if head.is_empty() {
                break;
            }
            lines.push(head.to_owned());
            word = &word[head.len()..];
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Breaks `items` into lines of at most `columns`, as `a, b and c`, never inside an item unless
/// it is wider than a line.
pub(crate) fn wrap_list(items: &[String], columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for (i, item) in items.iter().enumerate() {
        let joint = match items.len() - i {
            1 => "",
            2 => " and",
            _ => ",",
        };
        let item = sanitise(item);
        let item = shorten(&item, columns.saturating_sub(joint.len()).max(1));
        let taken = columns_of(&line);
        if taken > 0 && taken + 1 + columns_of(&item) + joint.len() > columns {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&item);
        line.push_str(joint);
    }
    lines.push(line);
    lines
}

/// Breaks source text into lines of at most `columns`, keeping its indentation: a broken line goes
/// on four columns deeper, so that it stays good to paste.
pub(crate) fn wrap_source(source: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in source.lines() {
        let line = line.replace('\t', "    ");
        let line = sanitise(line.trim_end());
        if columns_of(&line) <= columns {
            lines.push(line.into_owned());
            continue;
        }
        let indent = line.chars().take_while(|&c| c == ' ').count();
        let indent = indent.min(columns / 2);
        for (i, part) in wrap(&line, columns.saturating_sub(indent + 4))
            .into_iter()
            .enumerate()
        {
            let deeper = if i == 0 { indent } else { indent + 4 };
            lines.push(format!("{:deeper$}{part}", ""));
        }
    }
    lines
}

/// A caller, `make (/src/list.c:5)`, with its file by name: `make (list.c:5)`.
pub(crate) fn caller(caller: &str) -> Cow<'_, str> {
    match caller.rsplit_once(" (") {
        Some((function, place)) => format!("{function} ({}", file_name(place)).into(),
        None => caller.into(),
    }
}

/// Callers from an allocation outwards as far as they are the program's: what calls `main` says nothing.
pub(crate) fn callers(callers: &[String], limit: usize) -> String {
    let is_main = |it: &String| {
        let function = it.split(" (").next().unwrap_or(it);
        matches!(function, "main" | "main.main") || function.ends_with("::main")
    };
    let within = callers.iter().position(is_main).map_or(limit, |at| at + 1);
    let callers: Vec<_> = callers
        .iter()
        .take(within.min(limit))
        .map(|it| caller(it))
        .collect();
    callers.join(" ← ")
}

/// `inlined into push and worker` in at most `columns`. Where that is too long the functions of a language's library are left
/// out, and then the innermost others: whose code it is says more than how it is wrapped.
pub(crate) fn inlined_into(functions: &[String], columns: usize) -> String {
    let words = |shown: &[String]| {
        let more = match functions.len() - shown.len() {
            0 => String::new(),
            more => format!(", {more} more"),
        };
        let words = format!("inlined into {}{more}", listing(shown));
        sanitise(&words).into_owned()
    };
    let fits = |shown: &[String]| columns_of(&words(shown)) <= columns;
    let is_own = |it: &&String| !is_of_a_language(it);
    let own: Vec<String> = functions.iter().filter(is_own).cloned().collect();
    let shown = match own.as_slice() {
        _ if fits(functions) => functions,
        [] => functions,
        own => {
            let ends = (0..own.len()).map(|from| &own[from..]);
            let mut ends = ends.filter(|it| fits(it) || it.len() == 1);
            ends.next().unwrap_or(own)
        }
    };
    shorten(&words(shown), columns).into_owned()
}

/// Whether a function is of the library of Rust or C++, by its name.
fn is_of_a_language(function: &str) -> bool {
    let path = function.trim_start_matches(['<', '&', '*']);
    let crates = ["core::", "std::", "alloc::", "__gnu_cxx::", "__rust"];
    crates.iter().any(|it| path.starts_with(it))
}

/// `called from push (queue.c:41) ← worker (main.c:12)`, with its share where there are others.
pub(crate) fn called_from(chain: &CallChain, limit: usize) -> String {
    let share = match chain.share {
        0.95.. => String::new(),
        share => format!(" ({})", percent(share)),
    };
    format!("called from{share} {}", callers(&chain.callers, limit))
}

/// An expected gain: a range, or how much it is at most when nothing is certain.
pub(crate) fn gain(gain: Interval) -> String {
    if gain.low >= 0.0005 {
        percent_range(gain)
    } else {
        format!("up to {}", percent(gain.high))
    }
}

const SCALES: [(f64, &str); 4] = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];

fn scale_of(value: f64) -> (f64, &'static str) {
    // A little below the step, so that 999 960 becomes `1.0 M` and not `1000 k`.
    SCALES
        .into_iter()
        .find(|(scale, _)| value.abs() >= scale * 0.9995)
        .unwrap_or((1.0, ""))
}

fn scaled(value: f64, scale: f64) -> String {
    let v = value / scale;
    if v.abs() >= ABSURD {
        return format!("{v:.0e}");
    }
    if v.abs() >= 9.95 || (scale == 1.0 && v.fract() == 0.0) {
        format!("{v:.0}")
    } else {
        format!("{v:.1}")
    }
}

/// An estimated number with two or three digits and a scale: `4.1 M`, `410 k`, `12`.
pub(crate) fn count(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    let (scale, unit) = scale_of(value);
    format!("{}{unit}", scaled(value, scale))
}

/// An interval of estimated numbers on one scale: `3.2..5.0 M`.
pub(crate) fn count_range(interval: Interval) -> String {
    if !interval.low.is_finite() || !interval.high.is_finite() {
        return "?..?".to_owned();
    }
    let (scale, unit) = scale_of(interval.high);
    let high = scaled(interval.high, scale);
    // Little is not nothing.
    let low = match interval.low {
        low if low > 0.0 && low / scale < 0.05 => match scale > 1.0 {
            true => count(low),
            false => "<0.1".to_owned(),
        },
        low => scaled(low, scale),
    };
    format!("{low}..{high}{unit}")
}

/// A count with its band, if that says more: `4.1 M (3.2..5.0 M)`.
pub(crate) fn count_band(value: f64, band: Interval) -> String {
    let Interval { low, high } = band;
    let range = count_range(band);
    match count(low) == count(high) {
        true => count(value),
        false => format!("{} ({range})", count(value)),
    }
}

/// A band of times: `82 ns to 91 ns`, or `82 ns` if that is all.
pub(crate) fn nanoseconds_band(Interval { low, high }: Interval) -> String {
    match nanoseconds(low) == nanoseconds(high) {
        true => nanoseconds(low),
        false => format!("{} to {}", nanoseconds(low), nanoseconds(high)),
    }
}

/// A counted number with thousands separated: `12,034`.
pub(crate) fn integer(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Counted numbers: `12,034..12,036`, or `12,034` if all are the same.
pub(crate) fn integers(Interval { low, high }: Interval) -> String {
    let ends = [low, high].map(|end| integer(end.round() as u64));
    match ends[0] == ends[1] {
        true => ends[0].clone(),
        false => ends.join(".."),
    }
}

/// A counted number with its noun: `1 thread`, `2 threads`.
pub(crate) fn plural(value: u64, noun: &str) -> String {
    let ending = match (value, noun) {
        (1, _) => "",
        (_, n) if n.ends_with("ch") || n.ends_with("ss") => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", integer(value))
}

/// The functions of a path of `row`, in order: `make (allocates) → fill length ⇒ consume kind → free`; with what
/// they touch if `touches` says so. Of more than `most` the most telling: `make (allocates) → 17 more ⇒ consume`.
pub(crate) fn path_of_functions(
    row: &FlowRow,
    nodes: &[u64],
    touches: bool,
    most: usize,
) -> String {
    let stops: Vec<&FlowNode> = nodes
        .iter()
        .filter_map(|&id| row.nodes.get(id as usize))
        .collect();
    let mut out = String::new();
    let mut shown = 0;
    for at in most_telling(&stops, most) {
        let node = stops[at];
        if at > shown {
            let _ = write!(out, " → {} more", at - shown);
        }
        shown = at + 1;
        match at.checked_sub(1).map(|before| stops[before].thread) {
            None => {}
            Some(thread) if thread == node.thread => out.push_str(" → "),
            Some(_) => out.push_str(" ⇒ "),
        }
        out.push_str(&shorten(&sanitise(&node.function), 40));
        if node.event == PathEvent::Allocated {
            out.push_str(" (allocates)");
        }
        if touches && !node.touches.is_empty() {
            let _ = write!(out, " {}", shorten(&sanitise(&node.touches.join(", ")), 40));
        }
        if let Some(missed) = not_in_l1(node).filter(|_| touches) {
            let _ = write!(out, " ({missed})");
        }
    }
    out
}

/// Which stops of a path to show, in its order, at most `most`: where it begins and ends, where another thread goes on,
/// and where most accesses miss the first level; then the earliest.
fn most_telling(stops: &[&FlowNode], most: usize) -> Vec<usize> {
    let missed = |at: usize| stops[at].hits.map_or(0.0, |hits| 1.0 - hits.l1);
    let goes_on = |at: usize| at > 0 && stops[at].thread != stops[at - 1].thread;
    let is_end = |at: usize| at == 0 || at + 1 == stops.len();
    let mut order: Vec<usize> = (0..stops.len()).collect();
    order.sort_by(|&a, &b| {
        let key = |at| (is_end(at), goes_on(at));
        (key(b).cmp(&key(a))).then(missed(b).total_cmp(&missed(a)))
    });
    order.truncate(most);
    order.sort_unstable();
    order
}

/// `25 % not in L1, 14 ns each`: the share of a node's accesses that the first level did not serve, where that is known and
/// not next to nothing, and what an access takes on average, where that is known too.
pub(crate) fn not_in_l1(node: &FlowNode) -> Option<String> {
    let missed = 1.0 - node.hits?.l1;
    let took = node
        .latency_ns
        .map_or_else(String::new, |ns| format!(", {} each", nanoseconds(ns)));
    (missed >= 0.005).then(|| format!("{} not in L1{took}", percent(missed)))
}

/// A time given in nanoseconds: `82 ns`, `24 µs`, `3.2 ms`, `3.2 s`, `2 min 14 s`.
pub(crate) fn nanoseconds(ns: f64) -> String {
    if !ns.is_finite() {
        return "?".to_owned();
    }
    let (scale, unit) = match ns.abs() {
        v if v < 999.5 => (1.0, "ns"),
        v if v < 999.5e3 => (1e3, "µs"),
        v if v < 999.5e6 => (1e6, "ms"),
        v if v < 119.5e9 => (1e9, "s"),
        _ => {
            let seconds = (ns / 1e9).round();
            let (minutes, rest) = ((seconds / 60.0).trunc(), seconds % 60.0);
            return format!("{minutes:.0} min {rest:.0} s");
        }
    };
    format!("{} {unit}", scaled(ns, scale))
}

/// A size: `1 byte`, `64 bytes`, `12 MB`.
pub(crate) fn bytes(value: u64) -> String {
    match value {
        1 => "1 byte".to_owned(),
        0..10_000 => format!("{} bytes", integer(value)),
        _ => {
            let (scale, unit) = scale_of(value as f64);
            format!("{}{unit}B", scaled(value as f64, scale))
        }
    }
}

/// The size of a cache: `64 B`, `48 KiB`, `1.5 MiB`.
pub(crate) fn binary_bytes(value: u64) -> String {
    let mut size = value as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = larger;
    }
    let decimals = usize::from(size < 9.95 && size.fract() != 0.0);
    format!("{size:.decimals$} {unit}")
}

/// An address: `0x5581c0`.
pub(crate) fn address(value: u64) -> String {
    format!("{value:#x}")
}

/// `items` as `a, b and c`.
pub(crate) fn listing(items: &[String]) -> String {
    let mut out = String::new();
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(if i + 1 == items.len() { " and " } else { ", " });
        }
        let _ = write!(out, "{item}");
    }
    out
}

/// `text` with a capital at its start.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::model::LevelHits;
    use super::*;

    #[test]
    fn numbers_carry_as_many_digits_as_an_estimate_deserves() {
        let shares = [0.0, 0.00001, 0.0042, 0.038, 0.0999, 0.38, 1.0, f64::NAN];
        assert_eq!(
            shares.map(percent),
            [
                "0 %", "<0.01 %", "0.42 %", "3.8 %", "10 %", "38 %", "100 %", "? %"
            ]
        );
        let counts = [0.0, 0.4, 12.0, 999.9, 1234.0, 4.1e6, 999_960.0, 3e13];
        assert_eq!(
            counts.map(count),
            ["0", "0.4", "12", "1.0 k", "1.2 k", "4.1 M", "1.0 M", "30 T"]
        );
        assert_eq!(integer(1_234_567), "1,234,567");
        assert_eq!(integer(999), "999");
        assert_eq!(
            [64, 49_152, 1 << 20, 3 << 19, u64::MAX].map(binary_bytes),
            ["64 B", "48 KiB", "1 MiB", "1.5 MiB", "16 EiB"]
        );
        let times = [82.0, 24_000.0, 3.2e6, 3.2e9, 134e9];
        assert_eq!(
            times.map(nanoseconds),
            ["82 ns", "24 µs", "3.2 ms", "3.2 s", "2 min 14 s"]
        );
    }

    #[test]
    fn callers_end_with_main() {
        let chain = [
            "make (/a b/st.c:5)",
            "main (st.c:9)",
            "__libc_start_main (x/y.h:3)",
            "_start",
        ];
        let chain = chain.map(str::to_owned);
        assert_eq!(callers(&chain, 9), "make (st.c:5) ← main (st.c:9)");
        assert_eq!(callers(&chain, 1), "make (st.c:5)");
        assert_eq!(
            callers(&chain[2..], 9),
            "__libc_start_main (y.h:3) ← _start"
        );
        for main in ["app::main (m.rs:2)", "main.main (m.go:2)"] {
            let chain = [main, "core::ops::function::FnOnce::call_once"].map(str::to_owned);
            assert_eq!(callers(&chain, 9), main);
        }
        assert_eq!(callers(&[], 9), "");
    }

    #[test]
    fn of_a_chain_of_inlined_functions_the_programs_own_stay() {
        let chain = [
            "<core::sync::atomic::Atomic<u64>>::fetch_add",
            "chan::main::{{closure}}",
            "std::sys::backtrace::__rust_begin_short_backtrace",
        ]
        .map(str::to_owned);
        assert_eq!(
            inlined_into(&chain, 70),
            "inlined into chan::main::{{closure}}, 2 more"
        );
        assert!(inlined_into(&chain, 200).contains("fetch_add"));
        let own = ["push", "a_longer_worker"].map(str::to_owned);
        assert_eq!(
            inlined_into(&own, 36),
            "inlined into a_longer_worker, 1 more"
        );
        assert_eq!(
            inlined_into(&own, 37),
            "inlined into push and a_longer_worker"
        );
        let short = inlined_into(&chain[..1], 40);
        assert!(short.starts_with("inlined into <core") && short.ends_with("fetch_add"));
    }

    #[test]
    fn both_ends_of_an_interval_share_one_scale() {
        let interval = |low, high| Interval { low, high };
        assert_eq!(percent_range(interval(0.31, 0.44)), "31..44 %");
        assert_eq!(percent_range(interval(0.004, 0.02)), "0.4..2.0 %");
        assert_eq!(count_range(interval(900e3, 4.6e6)), "0.9..4.6 M");
        assert_eq!(count_range(interval(12e3, 4.6e6)), "12 k..4.6 M");
        assert_eq!(count_range(interval(0.01, 4.5)), "<0.1..4.5");
        assert_eq!(count_range(interval(0.0, 4.6e6)), "0.0..4.6 M");
    }

    #[test]
    fn a_shortened_name_keeps_its_start_and_its_end() {
        assert_eq!(shorten("namespace::class::method", 11), "names…ethod");
        assert_eq!(shorten("short", 5), "short");
        assert_eq!(shorten_start("counters[3].hits", 9), "…[3].hits");
    }

    #[test]
    fn of_a_long_path_its_ends_and_what_is_dear_are_shown() {
        let node = |id: u64| FlowNode {
            id,
            event: PathEvent::Accessed,
            function: format!("f{id}"),
            place: String::new(),
            thread: u64::from(id > 6),
            frequency: 1.0,
            touches: Vec::new(),
            time_ns: 0.0,
            hits: Some(LevelHits {
                l1: if id == 4 { 0.5 } else { 1.0 },
                ..LevelHits::default()
            }),
            latency_ns: (id == 4).then_some(20.0),
            sampled_share: 0.0,
            cpu_change: 0.0,
        };
        let row = FlowRow {
            nodes: (0..10).map(node).collect(),
            ..FlowRow::default()
        };
        let nodes: Vec<u64> = (0..10).collect();
        let shown = |most| path_of_functions(&row, &nodes, true, most);
        assert_eq!(
            shown(5),
            "f0 → f1 → 2 more → f4 (50 % not in L1, 20 ns each) → 2 more ⇒ f7 → 1 more → f9"
        );
        assert_eq!(shown(10).matches(" → ").count(), 8);
        assert_eq!(path_of_functions(&row, &[], true, 5), "");
    }

    #[test]
    fn a_list_breaks_between_its_items() {
        let items = ["worker-0 12", "worker-1 13", "2 more"].map(str::to_owned);
        assert_eq!(
            wrap_list(&items, 20),
            ["worker-0 12,", "worker-1 13 and", "2 more"]
        );
    }

    #[test]
    fn a_broken_source_line_goes_on_indented() {
        assert_eq!(
            wrap_source("    int first, second, third;", 20),
            ["    int first,", "        second,", "        third;"]
        );
    }

    proptest! {
        #[test]
        fn nothing_is_wider_than_asked_for(text in any::<String>(), columns in 2usize..60) {
            let safe = sanitise(&text);
            prop_assert!(safe.chars().all(linewise_foreign::is_safe));
            prop_assert!(width(&shorten(&safe, columns)) <= columns);
            prop_assert!(width(&shorten_start(&safe, columns)) <= columns);
            for line in wrap(&text, columns).iter().chain(&wrap_source(&text, columns.max(8))) {
                prop_assert!(width(line) <= columns.max(8), "{line:?}");
            }
        }
    }
}
