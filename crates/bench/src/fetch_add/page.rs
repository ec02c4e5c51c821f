//! The figures as one self-contained HTML file: the curves, and below each the numbers.
//!
//! Nothing is loaded and nothing runs: the content policy forbids all but the one style sheet,
//! which it names by its hash. All names are our own, so that none needs escaping.

use super::curves::{Curve, Point, draw};
use super::result::{Experiment, Row};
use super::spec::Contender;
use super::table::{groups, list, short, spread_percent, title};
use base64::Engine as _;
use sha2::Digest as _;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");

/// The experiment as an HTML document.
#[must_use]
pub fn fetch_add_page(experiment: &Experiment) -> String {
    let mut out = String::with_capacity(64 * 1024);
    head(&mut out);
    header(&mut out, experiment);
    out.push_str("<main>\n");
    for (operation, state) in groups(experiment) {
        let rows: Vec<&Row> = experiment
            .rows
            .iter()
            .filter(|row| row.operation == operation && row.state == state)
            .collect();
        let title = title(experiment, operation, state);
        let _ = writeln!(out, "<section>\n<h2>{title}</h2>\n<div class=\"card\">");
        draw(
            &mut out,
            &curves(experiment, &rows),
            "variables of 64 bytes",
            "Throughput by number of variables; the figures are in the table below",
        );
        table(&mut out, experiment, &rows);
        out.push_str("</div>\n</section>\n");
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn head(out: &mut String) {
    let hash = sha2::Sha256::digest(STYLE.as_bytes());
    let hash = base64::engine::general_purpose::STANDARD.encode(hash);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>linewise: fetch-and-add</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
    );
}

fn header(out: &mut String, experiment: &Experiment) {
    let _ = writeln!(
        out,
        "<header>\n<p class=\"brand\">linewise bench fetch-add</p>\n\
         <h1>Increments of shared variables, by how they are synchronised</h1>\n\
         <p>{} threads, pinned to CPUs {}, each pick one of the variables at random and increment \
         it. Every increment is returned and checked. A figure is the harmonic mean of up to {} \
         samples of {} s; thin lines reach from the slowest to the fastest.</p>",
        experiment.threads,
        list(&experiment.cpus),
        experiment.samples_asked,
        experiment.seconds,
    );
    if experiment.left_out > 0 {
        let _ = writeln!(
            out,
            "<p class=\"quiet\">{} of {} samples are left out: the round trip between the CPUs \
             changed while they were made, or could not be measured.</p>",
            experiment.left_out,
            experiment.samples.len(),
        );
    }
    out.push_str("</header>\n");
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
                .map(|row| Point {
                    x: row.variables as f64,
                    mops: row.mops,
                    low: row.mops_low,
                    high: row.mops_high,
                    samples: row.samples,
                })
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
    use super::super::spec::Method;
    use super::*;

    #[test]
    fn the_page_loads_nothing_runs_nothing_and_shows_losers_too() {
        let near = Some((60.0, 60.0));
        let page = fetch_add_page(&experiment(
            vec![
                sample(Method::Atomic, 1, 200.0, near),
                sample(Method::Atomic, 4, 210.0, near),
                sample(Method::PthreadMutex, 1, 2.5, near),
            ],
            vec![0, 1],
        ));
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
        let page = fetch_add_page(&experiment(
            vec![
                sample(Method::Atomic, 1, 200.0, Some((60.0, 60.0))),
                sample(Method::Atomic, 1, 70.0, Some((330.0, 340.0))),
            ],
            vec![0, 1],
        ));
        assert_eq!(page.matches("<section>").count(), 2);
        assert!(page.contains("round trip 335 ns"));
    }
}
