//! The figures as a page: figures 5 and 7 of SAM's paper as bars, and the table.

use std::fmt::Write as _;

use linewise_placement_model::{ASSUMPTIONS, PolicyKind, Row, WorkloadKind};

use super::{Results, bars};
use crate::drawing::{Bars, Group, draw_bars, head};

/// The policies that are drawn.
const DRAWN: [PolicyKind; 4] = [
    PolicyKind::Balancer,
    PolicyKind::Cas,
    PolicyKind::Sam,
    PolicyKind::Matrix,
];

/// A page that needs nothing else.
#[must_use]
pub fn page(results: &Results) -> String {
    let mut out = String::new();
    head(&mut out, "Placement, simulated");
    let _ = write!(
        out,
        "<header><p class=\"brand\">linewise bench placement</p><h1>Placement, simulated</h1>\
         <p>Progress over that of the best static placement with the program alone. {} seeds, {} s each. \
         Whiskers: the slowest and the fastest program.</p></header>\n<main>\n",
        results.seeds, results.seconds
    );
    let figures = [
        ("Programs alone", WorkloadKind::Standalone, false),
        ("Mixes", WorkloadKind::Mix, false),
        ("Groups and processes differ", WorkloadKind::Mix, true),
        ("Nothing to gain", WorkloadKind::Losing, false),
    ];
    for (title, kind, spans) in figures {
        let wanted = |row: &&Row| row.kind == kind && row.spans == spans;
        let rows: Vec<&Row> = results.rows.iter().filter(wanted).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = write!(out, "<h2>{title}</h2>\n<div class=\"card\">\n");
        figure(&mut out, title, &rows);
        numbers(&mut out, &rows);
        out.push_str("</div>\n");
    }
    write_bars(&mut out, results);
    assumptions(&mut out);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn figure(out: &mut String, title: &str, rows: &[&Row]) {
    let group = |row: &&Row| Group {
        name: row.name.clone(),
        bars: DRAWN
            .iter()
            .filter_map(|policy| row.policies.get(policy))
            .map(|one| (one.speedup, one.min, one.max))
            .collect(),
    };
    let groups: Vec<Group> = rows.iter().map(group).collect();
    draw_bars(
        out,
        &groups,
        &Bars {
            names: &DRAWN.map(PolicyKind::name),
            described: title,
        },
    );
}

fn numbers(out: &mut String, rows: &[&Row]) {
    out.push_str("<div class=\"scroll\"><table><thead><tr><th>workload</th>");
    for policy in PolicyKind::ALL {
        let _ = write!(out, "<th>{}</th>", policy.name());
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        let _ = write!(out, "<tr><th>{}</th>", row.name);
        for policy in PolicyKind::ALL {
            let one = row.policies.get(&policy);
            let _ = write!(
                out,
                "<td>{:.3}</td>",
                one.map_or(f64::NAN, |one| one.speedup)
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn write_bars(out: &mut String, results: &Results) {
    out.push_str(
        "<h2>Bars</h2>\n<div class=\"card scroll\"><table><thead><tr><th>what</th><th>policy</th><th>is</th>\
         <th>bar</th><th></th></tr></thead><tbody>\n",
    );
    for bar in bars(results) {
        let met = if bar.is_met { "met" } else { "missed" };
        let _ = writeln!(
            out,
            "<tr><th>{}</th><td>{}</td><td>{:.3}</td><td>{}</td><td>{met}</td></tr>",
            bar.what,
            bar.policy.name(),
            bar.value,
            bar.bar
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn assumptions(out: &mut String) {
    out.push_str("<h2>Assumptions</h2>\n<div class=\"card\">\n");
    for one in ASSUMPTIONS {
        let _ = writeln!(
            out,
            "<p>{}: {}. <span class=\"quiet\">{}</span></p>",
            one.what, one.value, one.source
        );
    }
    out.push_str("</div>\n");
}
