use super::super::model::{CallChain, Interval};
use super::super::sample::{self, sample_calls};
use super::document::{SCRIPT, STYLE, policy_hash};
use super::*;

/// The content of every element `name`, which must not nest.
fn contents<'a>(document: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    document
        .split(&open)
        .skip(1)
        .map(|rest| rest.split(&close).next().unwrap_or_default())
        .collect()
}

#[test]
fn the_policy_allows_exactly_the_style_and_the_script_of_the_file() {
    let document = render(&sample::everyday());
    for name in ["style", "script"] {
        let found = contents(&document, name);
        assert_eq!(found.len(), 1, "one {name}");
        let allowed = format!("{name}-src {};", policy_hash(found[0]));
        assert!(document.contains(&allowed), "{allowed}");
    }
    assert!(!document.contains("unsafe-inline"));
}

#[test]
fn the_hash_is_the_one_that_browsers_compute() {
    // From the CSP specification's example for `alert('Hello, world.');`.
    assert_eq!(
        policy_hash("alert('Hello, world.');"),
        "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='"
    );
}

#[test]
fn hostile_names_stay_text() {
    let document = render(&sample::hostile());
    assert_eq!(document.matches("<script").count(), 1);
    assert_eq!(document.matches("</script").count(), 1);
    assert!(!document.contains("<img"));
    assert!(document.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    for c in document.chars() {
        assert!(c == '\n' || !c.is_control(), "{c:?} reached the document");
        assert!(!('\u{202a}'..='\u{202e}').contains(&c));
    }
}

#[test]
fn lines_of_a_source_are_lines_and_those_of_a_name_are_not() {
    let mut report = sample::everyday();
    report.run.command = "echo 'a\nb'".to_owned();
    report.findings[0].change_source = "struct {\n\tint a;".to_owned();
    let document = render(&report);
    assert!(document.contains("<code>struct {&#10;    int a;&#10;</code>"));
    assert!(document.contains("<dd>echo 'a\\nb'</dd>"));
}

#[test]
fn prose_sets_names_as_code() {
    use maud::Render as _;
    let prose = written::Prose("a `b<c>` & `d").render().into_string();
    assert_eq!(prose, "a <code>b&lt;c&gt;</code> &amp; `d");
}

#[test]
fn nothing_needs_the_network_or_an_inline_style() {
    for report in [sample::everyday(), sample::hostile(), sample::crowd(60)] {
        let document = render(&report).replace(STYLE.0, "").replace(SCRIPT.0, "");
        // What is elsewhere on the page needs nothing.
        let document = document.replace(" href=\"#", " \"#");
        for tag in document
            .split('<')
            .skip(1)
            .filter_map(|t| t.split('>').next())
        {
            // Values are in quotes and hold none, so that every other piece is outside of them.
            for attributes in tag.split('"').step_by(2) {
                for refused in [" style=", " src=", " href=", " on"] {
                    assert!(!attributes.contains(refused), "<{tag}>");
                }
            }
        }
    }
    assert!(!STYLE.0.contains("url(") && !STYLE.0.contains("@import"));
}

#[test]
fn the_table_of_types_has_no_empty_columns_and_breaks_names_where_they_have_parts() {
    let mut report = sample::profiled();
    report.types[0].name = "app::Table<app::Node>".to_owned();
    let heading = |report: &Report, name: &str| {
        let document = render(report);
        let types = document.split("id=\"types\"").nth(1).unwrap_or_default();
        let head = types.split("</thead>").next().unwrap_or_default();
        head.contains(name)
    };
    assert!(heading(&report, "Allocated by"));
    assert!(!heading(&report, "Misses"));
    let document = render(&report);
    assert!(document.contains("app::<wbr>Table&lt;<wbr>app::<wbr>Node&gt;"));
    for row in &mut report.types {
        row.allocated_at.clear();
    }
    assert!(!heading(&report, "Allocated by"));
}

#[test]
fn every_element_is_closed() {
    const VOID: [&str; 5] = ["meta", "!DOCTYPE", "br", "input", "wbr"];
    for report in [
        sample::everyday(),
        sample::profiled(),
        sample::hostile(),
        sample::quiet(),
        sample::too_short(),
        sample::crowd(40),
    ] {
        let document = render(&report);
        let document = document.replace(STYLE.0, "").replace(SCRIPT.0, "");
        let mut open = Vec::new();
        for tag in document
            .split('<')
            .skip(1)
            .filter_map(|t| t.split('>').next())
        {
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                let name = tag.split([' ', '\n']).next().unwrap_or_default();
                if !VOID.contains(&name) {
                    open.push(name);
                }
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }
}

#[test]
fn each_row_of_a_drawing_spans_the_whole_line() {
    let mut report = sample::everyday();
    let line = &mut report.findings[0].lines[0];
    line.fields[1].size = u32::MAX;
    line.fields[3].offset = 1_000;
    let document = render(&report);
    let table = document
        .split("<table class=\"line\"")
        .nth(1)
        .and_then(|rest| rest.split("</table>").next())
        .expect("a drawing");
    for row in table.split("<tr").skip(1) {
        let spans: usize = row
            .split("<td")
            .skip(1)
            .map(|cell| {
                cell.split_once("colspan=\"")
                    .and_then(|(_, rest)| rest.split('"').next())
                    .map_or(1, |span| span.parse().expect("a number"))
            })
            .sum();
        assert_eq!(spans, 64, "{row}");
    }
}

#[test]
fn a_crowd_of_threads_is_grouped() {
    let document = render(&sample::crowd(500));
    assert!(document.contains("The 32 busiest of 500; the other 468 are one row."));
    assert!(document.len() < 2_000_000, "{} bytes", document.len());
}

/// Whether these stand in the document one behind the other.
fn in_order(document: &str, parts: &[&str]) -> bool {
    let at = parts.iter().map(|part| document.find(part));
    let at: Option<Vec<usize>> = at.collect();
    at.is_some_and(|at| at.is_sorted())
}

#[test]
fn what_to_change_and_where_comes_first() {
    let document = render(&sample::everyday());
    let parts = [
        "class=\"change\"",
        "class=\"accesses\"",
        "class=\"line\"",
        "id=\"hot\"",
        "id=\"sharing\"",
    ];
    assert!(in_order(&document, &parts));
    let mut quiet = sample::quiet();
    quiet.views = sample::everyday().views;
    quiet.coverage.at_once = Some(0.01);
    let parts = ["Too little</b>", "id=\"hot\"", "Not excluded"];
    assert!(in_order(&render(&quiet), &parts));
}

#[test]
fn costs_that_are_doubted_are_said_so_before_the_findings() {
    let mut report = sample::everyday();
    assert!(!render(&report).contains("Costs may be too low"));
    report.coverage.at_once = Some(0.01);
    let parts = ["<h1>", "Costs may be too low", "<article"];
    assert!(in_order(&render(&report), &parts));
}

#[test]
fn a_place_without_a_sample_is_no_row() {
    let mut report = sample::everyday();
    let mut never = report.findings[0].accesses[0].clone();
    never.own = None;
    (never.function, never.line, never.share) = ("never_sampled".to_owned(), 9, 0.0);
    report.findings[0].accesses.push(never);
    let document = render(&report);
    let accesses = document.split("class=\"accesses\"").nth(1);
    let accesses = accesses
        .and_then(|it| it.split("</article>").next())
        .unwrap();
    let (table, below) = accesses.split_once("</table>").unwrap();
    assert!(!table.contains("never_sampled"));
    assert!(below.contains("1 more place"), "{below}");
}

#[test]
fn a_place_is_not_its_own_caller() {
    let mut report = sample::everyday();
    let access = &mut report.findings[0].accesses[0];
    let place = access.own.clone().unwrap_or_else(|| access.innermost());
    let own = format!("{} ({}:{})", place.function, place.file, place.line);
    let callers = [own, "caller (main.c:7)".to_owned()];
    access.called_from = vec![CallChain {
        share: 1.0,
        callers: callers.into(),
    }];
    assert!(render(&report).contains(">called from caller (main.c:7)<"));
}

#[test]
fn a_report_without_findings_or_samples_is_still_a_page() {
    let document = render(&sample::too_short());
    assert!(document.contains("No finding"));
    assert!(document.contains("Too short: 4 samples"));
    assert!(document.contains("No transfer between threads was seen"));
}

#[test]
fn an_exact_report_says_whose_order_it_is_and_nothing_that_only_a_timer_knows() {
    let document = render(&sample::traced());
    for words in [
        "Transfers: 13 M, 97 % by false sharing.",
        "all threads at equal rate<",
        "what a thread does while it has the line to itself is not",
        "reads and writes, in one instruction or in several",
        "13,400,000 accesses that waited for the line",
        "118,204,311",
        "band of a model",
    ] {
        assert!(document.contains(words), "{words}");
    }
    let body = document.split("</style>").nth(1).unwrap_or_default();
    let body = body.split("<script>").next().unwrap_or_default();
    for words in ["sample", "Overhead", "a second", "CPUs</button>", "90 %"] {
        assert!(!body.contains(words), "{words}");
    }
}

#[test]
fn sampled_reuse_without_an_exact_run_shows_times_and_what_to_do() {
    let document = render(&sample::with_reuse_times());
    for words in [
        "Reuse time",
        "Source: sampled. 480 sampled addresses",
        "half of the reuses within",
        "give an exact run with --rate-from",
        "not seen to its end",
    ] {
        assert!(document.contains(words), "{words}");
    }
    assert!(!render(&sample::everyday()).contains("Reuse time"));
}

/// Every `<` begins a tag that we write.
fn check_tags(document: &str) {
    const TAGS: &str = "a abbr article b body br button circle code dd details div dl dt figcaption figure footer g h1 h2 h3 h4 \
        head header html input label li main meta nav ol option p path pre rect script section select small span style sub summary sup svg table tbody td text \
        th thead title tr ul wbr";
    let tags: Vec<&str> = TAGS.split_whitespace().collect();
    let document = document.replace(STYLE.0, "").replace(SCRIPT.0, "");
    for rest in document.split('<').skip(1) {
        let name = rest.trim_start_matches('/');
        let name = name.split(|c: char| !c.is_ascii_alphanumeric()).next();
        let known = rest.starts_with("!DOCTYPE") || tags.contains(&name.unwrap_or_default());
        let shown: String = rest.chars().take(60).collect();
        assert!(known, "<{shown}");
    }
    assert!(!document.contains("&amp;lt;"), "escaped twice");
}

/// The data of the flame graph, as a script reads them.
fn flame_data(document: &str) -> serde_json::Value {
    let data = document.split("<div id=\"flame-data\" hidden>").nth(1);
    let data = data.and_then(|it| it.split("</div>").next()).unwrap();
    let text = data.replace("&quot;", "\"").replace("&lt;", "<");
    let text = text.replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_calls_are_drawn_without_a_script_and_their_data_is_whole() {
    let document = render_with(&sample::everyday(), &sample_calls::details());
    check_tags(&document);
    assert!(document.contains("<title>reply, 90 % /src/reply.c:118</title>"));
    for words in ["the program's own code", "libraries", "the kernel"] {
        assert!(
            document.contains(&format!("> {words}</span>").replace("> ", "</svg> ")),
            "{words}"
        );
    }
    let data = flame_data(&document);
    let column = |name: &str| data[name].as_array().unwrap().clone();
    assert_eq!(column("parent").len(), 8);
    let cells: Vec<u64> = column("cells")
        .iter()
        .filter_map(|it| it.as_u64())
        .collect();
    let units: u64 = cells.iter().skip(1).step_by(2).sum();
    assert_eq!(units as f64 * data["unit_ns"].as_f64().unwrap(), 10e9);
    // Node 7 is the last, in thread 2 of 3, in slice 9 of 60.
    let last: u64 = cells.iter().step_by(2).sum();
    assert_eq!(last, (7 * 3 + 2) * 60 + 9);
    assert!(document.contains("<option value=\"n0\">worker (2 threads)</option>"));
    assert!(document.contains("<td class=\"at\">118</td>"));
}

#[test]
fn hostile_names_are_text_in_calls_lanes_and_code() {
    let details = sample_calls::hostile_details(sample::HOSTILE);
    let document = render_with(&sample::hostile(), &details);
    check_tags(&document);
    assert_eq!(document.matches("<script").count(), 1);
    assert!(!document.contains("<img"));
    for c in document.chars() {
        assert!(c == '\n' || !c.is_control(), "{c:?} reached the document");
        assert!(!('\u{202a}'..='\u{202e}').contains(&c));
    }
    let names = flame_data(&document)["names"].clone();
    let is_there = |it: &serde_json::Value| {
        it.as_str()
            .is_some_and(|it| it.starts_with("</script><script>"))
    };
    assert!(names.as_array().unwrap().iter().any(is_there));
}

#[test]
fn an_hour_of_200_threads_is_a_page_of_less_than_5_mb() {
    let (info, tables) = sample_calls::hour(400_000);
    let files = crate::resolve::DiskFiles::default();
    let (report, details) = crate::analyse_for_page(&info, &tables, None, &files);
    let document = render_with(&report, &details);
    assert!(document.len() < 5_000_000, "{} bytes", document.len());
    check_tags(&document);
    assert!(document.contains(">and 168 more</summary>"), "lanes");
    let calls = details.calls.unwrap();
    let time: u64 = calls.cells.iter().map(|it| it.ns).sum();
    assert_eq!(time, 400_000 * 10_000_000, "nothing is lost");
}

/// All shares of a report next to nothing: they are written with a `<`.
fn next_to_nothing(report: &mut Report) {
    const TINY: f64 = 1e-6;
    report.samples.total = u64::MAX / 4;
    let timeline = report.timeline.iter_mut();
    timeline.for_each(|bin| bin.contended_ns = bin.thread_ns * TINY);
    for finding in &mut report.findings {
        finding.cost.share = TINY;
        finding.cost.interval = Interval {
            low: TINY,
            high: TINY,
        };
        finding.expected_gain = Interval {
            low: 0.0,
            high: TINY,
        };
        finding.false_share_interval = Interval {
            low: TINY,
            high: 0.5,
        };
        finding.unlisted.places = 3;
        finding.unlisted.share = TINY;
        finding.accesses.iter_mut().for_each(|it| it.share = TINY);
    }
    for row in &mut report.types {
        row.cost.share = TINY;
        row.fields.iter_mut().for_each(|it| it.share = TINY);
        row.reached.iter_mut().for_each(|it| it.share = TINY);
        if let Some(layout) = &mut row.layout {
            (layout.saves_at_least, layout.saves_at_most) = (0.0, TINY);
        }
    }
    for row in &mut report.misses {
        (row.share, row.compulsory) = (TINY, TINY);
    }
    let sets = report.working_set.iter_mut().flat_map(|it| &mut it.types);
    sets.for_each(|row| row.share = TINY);
    if let Some(coverage) = &mut report.type_coverage {
        coverage.typed = coverage.accesses * TINY;
    }
    for row in &mut report.flow {
        row.paths.iter_mut().for_each(|it| it.frequency = TINY);
        row.edges.iter_mut().for_each(|it| it.frequency = TINY);
        for node in &mut row.nodes {
            (node.frequency, node.sampled_share) = (TINY, TINY);
            if let Some(hits) = &mut node.hits {
                hits.l1 = TINY;
            }
        }
    }
    if let Some(reuse) = &mut report.reuse {
        reuse.rate = TINY;
        reuse.private.other_thread = reuse.private.accesses * TINY;
    }
    for cache in &mut report.cache_sizes {
        cache.miss_ratio = TINY;
        cache.simulated = cache.simulated.map(|_| TINY);
    }
    for level in &mut report.caches {
        level.hits = level.accesses * TINY;
    }
}

#[test]
fn what_is_next_to_nothing_is_no_markup() {
    for mut report in [
        sample::everyday(),
        sample::profiled(),
        sample::traced(),
        sample::hostile(),
        sample::quiet(),
    ] {
        check_tags(&render(&report));
        next_to_nothing(&mut report);
        let document = render(&report);
        check_tags(&document);
        assert!(document.contains("&lt;0.01 %"));
        report.findings.clear();
        check_tags(&render(&report));
    }
    check_tags(&render_diff(
        &crate::diff(&sample::profiled(), &sample::hostile()).unwrap(),
    ));
}

#[test]
fn long_lists_end_with_one_row_for_what_is_next_to_nothing() {
    let document = render(&sample::many_rows(300));
    assert!(
        document.contains("<td class=\"name\">and 300 more</td>"),
        "threads"
    );
    assert!(document.contains(">and 300 more, 0.03 %</td>"), "types");
    assert!(document.contains("and 300 more (300)"), "losses");
    assert!(document.contains("and 302 more 719"), "reasons");
    assert!(!document.contains("idle-") && !document.contains("kind-"));
}
