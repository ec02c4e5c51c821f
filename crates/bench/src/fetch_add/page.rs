//! The figures as one self-contained HTML file: the curves, and below each the numbers.
//! All names are our own, so that none needs escaping.

use super::result::{Experiment, Row};
use super::spec::Contender;
use super::table::{groups, spread_percent, state_name, title};
use crate::drawing::{Along, Axes, Curve, Point, draw, head, list, short};
use std::fmt::Write as _;

/// The experiment as an HTML document, with those with other numbers of threads and that on one CPU, if they
/// were made.
#[must_use]
pub fn fetch_add_page<'a>(
    experiment: &'a Experiment,
    others: impl IntoIterator<Item = &'a Experiment>,
) -> String {
    let mut out = String::with_capacity(64 * 1024);
    head(&mut out, "linewise: fetch-and-add");
    header(&mut out, experiment);
    out.push_str("<main>\n");
    for experiment in std::iter::once(experiment).chain(others) {
        sections(&mut out, experiment);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// A section for each operation and state.
fn sections(out: &mut String, experiment: &Experiment) {
    for (operation, state) in groups(experiment) {
        let rows: Vec<&Row> = experiment
            .rows
            .iter()
            .filter(|row| row.operation == operation && row.state == state)
            .collect();
        let _ = writeln!(
            out,
            "<section>\n<h2>{}</h2>\n<p class=\"quiet\">{} threads on CPUs {}.{}</p>\n\
             <div class=\"card\">",
            title(experiment, operation, state),
            experiment.threads,
            list(&experiment.cpus),
            left_out(experiment),
        );
        draw(
            out,
            &curves(experiment, &rows),
            &Axes {
                along: "variables of 64 bytes",
                numbers: Along::Counts,
                unit: "Mops",
                described: "Throughput by number of variables; the figures are in the table below",
                marks: &[],
            },
        );
        table(out, experiment, &rows);
        out.push_str("</div>\n");
        for knob in [Knob::RequestLines, Knob::QueueLength] {
            by_knob(out, knob, &rows, knob.title());
        }
        counted(out, &rows);
        out.push_str("</section>\n");
    }
    by_servers(out, experiment);
}

/// Fast and slow operations in one drawing for each state: where each number of servers pays.
fn by_servers(out: &mut String, experiment: &Experiment) {
    let mut states: Vec<_> = experiment.rows.iter().map(|row| row.state).collect();
    states.sort_unstable();
    states.dedup();
    for state in states {
        let of_state = experiment.rows.iter().filter(|row| row.state == state);
        let heading = format!(
            "{}, {}",
            Knob::Servers.title(),
            state_name(experiment, state)
        );
        by_knob(out, Knob::Servers, &of_state.collect::<Vec<_>>(), &heading);
    }
}

fn left_out(experiment: &Experiment) -> String {
    if experiment.left_out == 0 {
        return String::new();
    }
    format!(
        " {} of {} samples are left out: the round trip between the CPUs changed while they were \
         made, or could not be measured.",
        experiment.left_out,
        experiment.samples.len(),
    )
}

/// What a delegating contender can be varied by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Knob {
    Servers,
    RequestLines,
    QueueLength,
}

impl Knob {
    fn title(self) -> &'static str {
        match self {
            Self::Servers => "By number of dedicated servers, the other threads being clients",
            Self::RequestLines => "By request lines between a client and a server",
            Self::QueueLength => "By length of the queue of pending requests; 0 writes directly",
        }
    }

    fn along(self) -> &'static str {
        match self {
            Self::Servers => "servers",
            Self::RequestLines => "request lines",
            Self::QueueLength => "lines in the queue",
        }
    }

    /// Where a row stands by this knob.
    fn of(self, row: &Row) -> Option<usize> {
        match self {
            Self::Servers => Some(row.servers).filter(|_| row.family == "async"),
            Self::RequestLines => row.request_lines,
            Self::QueueLength => row.queue_length,
        }
    }

    /// What else tells rows apart, as a name.
    fn others(self, row: &Row) -> String {
        let mut name = match self {
            Self::Servers => format!("{} {}", row.operation.name(), row.family),
            _ => row.family.to_owned(),
        };
        if self != Self::Servers && row.servers > 0 {
            let _ = write!(name, "-{}s", row.servers);
        }
        let (lines, queue) = (row.request_lines, row.queue_length);
        if let Some(lines) = lines.filter(|_| self != Self::RequestLines) {
            let _ = write!(name, " {lines}");
        }
        // Twice the request lines goes with them, and is what most do.
        let usual = queue == lines.map(|lines| 2 * lines);
        if let Some(queue) = queue.filter(|_| self != Self::QueueLength && !usual) {
            let _ = write!(name, "+{queue}");
        }
        let _ = write!(name, ", {}", row.variables);
        name
    }
}

/// A drawing for each knob that was turned.
fn by_knob(out: &mut String, knob: Knob, rows: &[&Row], heading: &str) {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows {
        let Some(place) = knob.of(row) else { continue };
        let name = knob.others(row);
        let known = curves.iter().position(|curve| curve.name == name);
        let known = known.unwrap_or_else(|| {
            curves.push(Curve {
                number: curves.len(),
                name,
                points: Vec::new(),
            });
            curves.len() - 1
        });
        curves[known].points.push(point(place, row));
    }
    curves.retain_mut(|curve| {
        curve.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        curve.points.len() > 1
    });
    if curves.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h3>{heading}</h3>\n<div class=\"card\">");
    draw(
        out,
        &curves,
        &Axes {
            along: knob.along(),
            numbers: Along::Counts,
            unit: "Mops",
            described: heading,
            marks: &[],
        },
    );
    out.push_str("<p class=\"quiet\">A name ends with the number of variables.</p>\n</div>\n");
}

/// What the domains counted: the things that the thesis plots.
fn counted(out: &mut String, rows: &[&Row]) {
    let counted: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row, row.statistics?)))
        .collect();
    if counted.is_empty() {
        return;
    }
    out.push_str(
        "<h3>What the domains counted</h3>\n<div class=\"card scroll\"><table>\n<caption>Servers busy: \
         looks of servers that found requests. Responses ready: looks of clients that found an answer. \
         Failed pops: free request lines for which nothing was pending. Latency: from the first \
         request of a line to its callbacks. The last two in ticks of the processor\u{2019}s reference \
         clock, with --timed.</caption>\n<thead><tr><th></th><th>variables</th><th>Mops</th>\
         <th>servers busy</th><th>responses ready</th><th>failed pops</th><th>requests a line</th>\
         <th>latency</th><th>server, a request</th></tr></thead>\n<tbody>\n",
    );
    let ticks = |ticks: Option<f64>, digits: usize| {
        ticks.map_or_else(|| "–".to_owned(), |ticks| format!("{ticks:.digits$}"))
    };
    for (row, statistics) in counted {
        let _ = writeln!(
            out,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{:.0} %</td><td>{:.0} %</td><td>{:.0} %</td>\
             <td>{:.1}</td><td>{}</td><td>{}</td></tr>",
            row.contender,
            row.variables,
            short(row.mops),
            statistics.server_saturation * 100.0,
            statistics.responses_ready * 100.0,
            statistics.failed_pops * 100.0,
            statistics.requests_a_line,
            ticks(statistics.latency_ticks, 0),
            ticks(statistics.server_ticks_a_request, 1),
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn point(place: usize, row: &Row) -> Point {
    Point {
        x: place as f64,
        y: row.mops,
        low: row.mops_low,
        high: row.mops_high,
        samples: row.samples,
    }
}

fn header(out: &mut String, experiment: &Experiment) {
    let _ = writeln!(
        out,
        "<header>\n<p class=\"brand\">linewise bench fetch-add</p>\n\
         <h1>Increments of shared variables, by how they are synchronised</h1>\n\
         <p>Each thread, pinned to its CPU, picks one of the variables at random and increments it. \
         Every increment is returned and checked. A figure is the harmonic mean of up to {} samples \
         of {} s, all made in one state of the machine: the round trip of a line between the CPUs is \
         measured before and after each. Thin lines reach from the slowest to the fastest.</p>\n\
         </header>",
        experiment.samples_asked, experiment.seconds,
    );
}

fn curves(experiment: &Experiment, rows: &[&Row]) -> Vec<Curve> {
    let contenders = experiment.contenders.iter().enumerate();
    contenders
        .map(|(number, contender)| Curve {
            number,
            name: contender.to_string(),
            points: rows
                .iter()
                .filter(|row| row.contender == *contender)
                .map(|row| point(row.variables, row))
                .collect(),
        })
        .filter(|curve| !curve.points.is_empty())
        .collect()
}

fn table(out: &mut String, experiment: &Experiment, rows: &[&Row]) {
    let mut variables: Vec<usize> = rows.iter().map(|row| row.variables).collect();
    variables.sort_unstable();
    variables.dedup();
    out.push_str(
        "<div class=\"scroll\"><table><caption>Mops by number of variables; below, half of what the \
         samples spread. The fastest contender is bold.</caption>\n<thead><tr><th></th>",
    );
    for count in &variables {
        let _ = write!(out, "<th>{count}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    let best = |count: usize| {
        let those = rows.iter().filter(|row| row.variables == count);
        those.map(|row| row.mops).fold(0.0, f64::max)
    };
    let bests: Vec<f64> = variables.iter().map(|&count| best(count)).collect();
    let measured = |contender: &&Contender| rows.iter().any(|row| row.contender == **contender);
    for contender in experiment.contenders.iter().filter(measured) {
        let _ = write!(out, "<tr><th>{contender}</th>");
        for (count, best) in variables.iter().zip(&bests) {
            let row = rows
                .iter()
                .find(|row| row.contender == *contender && row.variables == *count);
            match row {
                Some(row) => {
                    let class = if row.mops >= *best {
                        " class=\"best\""
                    } else {
                        ""
                    };
                    let _ = write!(
                        out,
                        "<td{class}>{}<small>±{:.0} %</small></td>",
                        short(row.mops),
                        spread_percent(row)
                    );
                }
                None => out.push_str("<td>–</td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::{experiment, sample};
    use super::super::spec::{Knobs, Method};
    use super::super::statistics::Statistics;
    use super::*;

    #[test]
    fn the_page_loads_nothing_runs_nothing_and_shows_losers_too() {
        let near = Some((60.0, 60.0));
        let experiment = experiment(
            vec![
                sample(Method::Atomic, 1, 200.0, near),
                sample(Method::Atomic, 4, 210.0, near),
                sample(Method::PthreadMutex, 1, 2.5, near),
            ],
            vec![0, 1],
        );
        let page = fetch_add_page(&experiment, []);
        for word in ["http:", "https:", "<script", "style=", "url(", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("default-src 'none'"));
        assert!(
            page.contains("<tr><th>pthread-mutex</th><td>2.50<small>"),
            "{page}"
        );
        assert!(page.contains("<td class=\"best\">200<small>"));
        assert_eq!(page.matches("<g class=\"curve").count(), 2);
    }

    #[test]
    fn each_state_has_a_section_of_its_own() {
        let two = experiment(
            vec![
                sample(Method::Atomic, 1, 200.0, Some((60.0, 60.0))),
                sample(Method::Atomic, 1, 70.0, Some((330.0, 340.0))),
            ],
            vec![0, 1],
        );
        let crowded = experiment(vec![sample(Method::Atomic, 1, 90.0, None)], vec![0, 0]);
        let page = fetch_add_page(&two, [&crowded]);
        assert_eq!(page.matches("<section>").count(), 3);
        assert!(page.contains("round trip 335 ns"));
        assert!(page.contains("all threads on one CPU"));
    }

    #[test]
    fn a_knob_that_was_turned_has_a_drawing_and_what_was_counted_a_table() {
        let near = Some((60.0, 60.0));
        let mut samples = Vec::new();
        for (servers, queue_length) in [(1, 32), (2, 32), (3, 32), (1, 0), (1, 8)] {
            let mut one = sample(Method::Async(servers), 64, 10.0, near);
            one.servers = servers;
            one.contender.knobs = Some(Knobs {
                queue_length,
                ..Knobs::default()
            });
            one.statistics = Some(Statistics {
                server_saturation: 0.75,
                responses_ready: 0.5,
                failed_pops: 0.25,
                requests_a_line: 14.5,
                latency_ticks: None,
                server_ticks_a_request: Some(12.25),
            });
            samples.push(one);
        }
        let page = fetch_add_page(&experiment(samples, vec![0, 1, 2, 3]), []);
        assert_eq!(page.matches("<svg").count(), 3, "{page}");
        assert!(
            page.contains(">add async 16, 64</text>"),
            "by servers: {page}"
        );
        assert!(page.contains(">async-1s 16, 64</text>"), "by queue: {page}");
        assert!(!page.contains("By request lines"));
        assert!(page.contains("<td>75 %</td><td>50 %</td><td>25 %</td><td>14.5</td><td>–</td>"));
    }
}
