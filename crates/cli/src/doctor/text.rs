//! The report as text of at most 80 columns.

use std::fmt::Write;

use super::matrix::RoundTrips;
use super::measure::{SamplerProbe, SkidRule, WatchpointProbe};
use super::report::{
    CacheRow, CpuSection, DoctorReport, LimitValue, Measured, Permissions, Remedy, Source,
    SourceState, TopologySection,
};

const WIDTH: usize = 80;
/// Column where the values of a section begin.
const VALUE: usize = 20;
/// More CPUs than this do not fit beside each other; the proximity table stands for the matrix.
const MATRIX_CPUS: usize = 12;

/// Draws `report`.
pub(super) fn render(report: &DoctorReport) -> String {
    let mut page = Page::default();
    cpu(&mut page, &report.cpu);
    topology(&mut page, &report.topology);
    round_trips(&mut page, &report.round_trips);
    sources(&mut page, &report.sources);
    permissions(&mut page, &report.permissions);
    watchpoints(&mut page, &report.watchpoints);
    sampler(&mut page, &report.sampler);
    page.text
}

/// Text that keeps to the width.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn heading(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.line(title);
    }

    fn line(&mut self, line: &str) {
        // Some of it is what the machine calls itself.
        self.text
            .push_str(&linewise_foreign::sanitise(line.trim_end()));
        self.text.push('\n');
    }

    /// `  label      value`, the value wrapped below itself.
    fn row(&mut self, label: &str, value: &str) {
        let mut lead = format!("  {label}");
        while lead.chars().count() < VALUE {
            lead.push(' ');
        }
        if !lead.ends_with(' ') {
            lead.push(' ');
        }
        self.wrapped(&lead, VALUE, value);
    }

    /// `lead` and then `text`, whose further lines begin at column `indent`.
    fn wrapped(&mut self, lead: &str, indent: usize, text: &str) {
        let mut line = lead.to_owned();
        let mut fresh = true;
        for word in text.split_whitespace() {
            let wide = line.chars().count() + usize::from(!fresh) + word.chars().count();
            if wide > WIDTH && !fresh {
                self.line(&line);
                line = " ".repeat(indent);
                fresh = true;
            }
            if !fresh {
                line.push(' ');
            }
            line.push_str(word);
            fresh = false;
        }
        self.line(&line);
    }

    fn remedy(&mut self, remedy: &str) {
        if !remedy.is_empty() {
            self.wrapped(&format!("{}→ ", " ".repeat(VALUE)), VALUE + 2, remedy);
        }
    }

    fn failed(&mut self, label: &str, failed: &Remedy) {
        self.row(label, &format!("not measured: {}", failed.reason));
        self.remedy(&failed.remedy);
    }
}

fn or_unknown(value: Option<&str>) -> &str {
    value.unwrap_or("unknown")
}

fn cpu(page: &mut Page, cpu: &CpuSection) {
    page.heading("CPU");
    let vendor = or_unknown(cpu.vendor.as_deref());
    let model = or_unknown(cpu.model.as_deref());
    page.row(
        "model",
        &format!("{model} ({vendor}, {})", cpu.architecture),
    );
    let hypervisor = match cpu.hypervisor.as_str() {
        "" => "none: bare metal",
        "unknown" => "present, hides its name",
        name => name,
    };
    page.row("hypervisor", hypervisor);
    page.row("kernel", or_unknown(cpu.kernel.as_deref()));
    let mut cpus = format!("{} online", cpu.online);
    if let Some(allowed) = cpu
        .allowed
        .as_ref()
        .filter(|&allowed| *allowed != cpu.online)
    {
        let _ = write!(cpus, "; this process may use {allowed} only");
    }
    page.row("CPUs", &cpus);
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn topology(page: &mut Page, topology: &TopologySection) {
    page.heading("Caches and topology");
    let parts = [
        (topology.sockets.len(), "socket"),
        (topology.nodes.len(), "NUMA node"),
        (topology.llc_groups.len(), "last-level cache"),
        (topology.cores.len(), "core"),
    ];
    let shape: Vec<String> = parts
        .into_iter()
        .filter(|&(count, _)| count > 0)
        .map(|(count, noun)| counted(count, noun))
        .collect();
    page.row("shape", &shape.join(", "));
    match topology.line_bytes {
        Some(bytes) => page.row("line", &format!("{bytes} bytes")),
        None => page.row("line", "unknown; linewise assumes 64 bytes"),
    }
    for cache in &topology.caches {
        page.row(
            &format!("L{} {}", cache.level, cache.kind),
            &cache_text(cache),
        );
    }
    if topology.nodes.len() > 1 {
        for node in &topology.nodes {
            let distances: Vec<String> = node.distances.iter().map(u32::to_string).collect();
            let text = format!("CPU {}; distances {}", node.cpus, distances.join(" "));
            page.row(&format!("node {}", node.id), &text);
        }
    }
    for hole in &topology.holes {
        page.row("not told", &format!("{}: {}", hole.what, hole.reason));
    }
}

fn cache_text(cache: &CacheRow) -> String {
    let mut text = cache
        .size_bytes
        .map_or_else(|| "size unknown".to_owned(), bytes);
    if let Some(ways) = cache.ways {
        let _ = write!(text, ", {ways}-way");
    }
    let count = cache.shared_by.len();
    // A list of many caches says less than their number.
    let shown = cache.shared_by.iter().take(4).cloned().collect::<Vec<_>>();
    let more = if count > shown.len() { " | …" } else { "" };
    let _ = write!(text, ", {count} of them: CPU {}{more}", shown.join(" | "));
    text
}

fn bytes(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    if bytes >= MIB && bytes.is_multiple_of(MIB) {
        format!("{} MiB", bytes / MIB)
    } else if bytes >= KIB && bytes.is_multiple_of(KIB) {
        format!("{} KiB", bytes / KIB)
    } else {
        format!("{bytes} bytes")
    }
}

fn round_trips(page: &mut Page, trips: &RoundTrips) {
    page.heading("Core-to-core round trip (median in ns, as of now)");
    if !trips.note.is_empty() {
        page.wrapped("  ", 2, &trips.note);
        return;
    }
    if trips.cpus.len() <= MATRIX_CPUS {
        let mut header = format!("{:>7}", "CPU");
        for cpu in &trips.cpus {
            let _ = write!(header, "{cpu:>6}");
        }
        page.line(&header);
        for (row, cpu) in trips.cpus.iter().enumerate() {
            let mut line = format!("{cpu:>7}");
            for (column, cell) in trips.median_ns[row].iter().enumerate() {
                let cell = match cell {
                    Some(ns) => format!("{ns:.0}"),
                    None if row == column => "·".to_owned(),
                    None => "?".to_owned(),
                };
                let _ = write!(line, "{cell:>6}");
            }
            page.line(&line);
        }
    }
    for row in &trips.by_proximity {
        let text = match (row.median_ns, row.lowest_ns, row.highest_ns) {
            (Some(median), Some(lowest), Some(highest)) => format!(
                "{median:.0} ({lowest:.0} to {highest:.0}; {} of {} measured)",
                row.measured,
                counted(row.pairs, "pair"),
            ),
            _ => format!("none of {} measured", counted(row.pairs, "pair")),
        };
        page.row(row.proximity, &text);
    }
    if let Some(first) = trips.unmeasured.first() {
        let count = trips.unmeasured.len();
        let text = format!("{}; the first: {}", counted(count, "pair"), first.reason);
        page.row("not measured", &text);
        page.remedy("run doctor again while the machine is idle");
    }
}

fn sources(page: &mut Page, sources: &[Source]) {
    page.heading("Sources");
    for source in sources {
        let state = match source.state {
            SourceState::Ready => "ready",
            SourceState::NotBuilt => "not built",
            SourceState::Missing => "missing",
            SourceState::OtherCpu => "other CPU",
        };
        page.row(&format!("{:<8}{state}", source.name), &source.reason);
        page.remedy(&source.remedy);
    }
}

fn limit(value: Option<&LimitValue>) -> String {
    match value {
        Some(LimitValue::Number(number)) => number.to_string(),
        Some(LimitValue::Word(word)) => (*word).to_owned(),
        None => "unknown".to_owned(),
    }
}

fn permissions(page: &mut Page, permissions: &Permissions) {
    page.heading("Permissions");
    let level = permissions
        .perf_event_paranoid
        .map_or_else(|| "unknown".to_owned(), |level| level.to_string());
    page.row(
        "perf events",
        &format!("{} (perf_event_paranoid {level})", permissions.perf_events),
    );
    let capabilities = if permissions.capabilities.is_empty() {
        "none: an ordinary user".to_owned()
    } else {
        permissions.capabilities.join(", ")
    };
    page.row("capabilities", &capabilities);
    let buffers = permissions.perf_event_mlock_kb.map_or_else(
        || "unknown".to_owned(),
        |kib| format!("{kib} KiB for each CPU (perf_event_mlock_kb)"),
    );
    page.row("ring buffers", &buffers);
    let scope = permissions.ptrace_scope.map_or_else(
        || "no Yama: not restricted".to_owned(),
        |scope| scope.to_string(),
    );
    page.row("ptrace_scope", &scope);
    page.row(
        "limits",
        &format!(
            "{} open files, {} bytes of locked memory",
            limit(permissions.open_files.as_ref()),
            limit(permissions.memlock_bytes.as_ref())
        ),
    );
    let readable = |path: Option<&String>| {
        if path.is_some() {
            "readable"
        } else {
            "not readable"
        }
    };
    page.row(
        "tracefs, debugfs",
        &format!(
            "{}, {}; the timer source needs neither",
            readable(permissions.tracefs.as_ref()),
            readable(permissions.debugfs.as_ref())
        ),
    );
    for found in &permissions.remedies {
        page.row("restricted", &found.reason);
        page.remedy(&found.remedy);
    }
}

fn microseconds(ns: f64) -> String {
    format!("{:.1} µs", ns / 1000.0)
}

fn watchpoints(page: &mut Page, measured: &Measured<WatchpointProbe>) {
    page.heading("Watchpoints (as measured)");
    match measured {
        Measured::Value(probe) => {
            page.row("number", &format!("{} for each thread", probe.count));
            page.row("arming one", &microseconds(probe.arm_ns));
            page.row("a trap", &microseconds(probe.trap_ns));
            let guard = if probe.guarded {
                "on: traps may lose their reason on this hypervisor, so watched threads are traced (record --guard)"
            } else {
                "off: not needed here"
            };
            page.row("guard", guard);
        }
        Measured::Failed(failed) => page.failed("number, costs", failed),
    }
}

fn sampler(page: &mut Page, measured: &Measured<SamplerProbe>) {
    page.heading("Timer sampler (as measured)");
    match measured {
        Measured::Value(probe) => {
            let rule = match probe.skid_rule {
                SkidRule::Next => "next: a sample names the instruction after the one that waited",
                SkidRule::Same => "same: a sample names the instruction that waited",
            };
            page.row("skid rule", rule);
            page.row(
                "agreement",
                &format!(
                    "{:.0} % of {} samples",
                    probe.agreement * 100.0,
                    probe.samples
                ),
            );
            page.row("a sample", &microseconds(probe.sample_ns));
        }
        Measured::Failed(failed) => page.failed("skid rule", failed),
    }
}

#[cfg(test)]
mod tests {
    use super::super::examine::tests::{broken, examine, healthy};
    use super::*;

    fn columns(text: &str) -> usize {
        text.lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn no_line_is_wider_than_the_page_on_any_machine() {
        for name in ["epyc-vm-2cpu", "two-sockets-8cpu", "vm-with-holes"] {
            for machine in [healthy(), broken("perf_event_open was refused with EACCES")] {
                let text = render(&examine(name, machine));
                assert!(columns(&text) <= WIDTH, "{name}\n{text}");
            }
        }
    }

    #[test]
    fn the_matrix_the_probes_and_the_sources_are_on_the_page() {
        let text = render(&examine("epyc-vm-2cpu", healthy()));
        assert!(
            text.contains("      0     ·    88\n      1    88     ·\n"),
            "{text}"
        );
        for piece in [
            "AMD EPYC (AuthenticAMD",
            "KVM",
            "4 for each thread",
            "21.0 µs",
            "skid rule         next:",
            "97 % of 812 samples",
            "timer   ready",
        ] {
            assert!(text.contains(piece), "{piece} is missing in\n{text}");
        }
    }

    #[test]
    fn what_failed_is_followed_by_an_arrow_with_the_remedy() {
        let text = render(&examine("vm-with-holes", broken("refused")));
        let lines: Vec<&str> = text.lines().collect();
        let failed = lines.iter().position(|line| line.contains("not measured:"));
        let rest = &lines[failed.expect("something failed")..];
        assert!(rest.iter().take(4).any(|line| line.contains('→')), "{text}");
    }

    #[test]
    fn a_large_machine_shows_classes_instead_of_a_matrix() {
        let mut report = examine("two-sockets-8cpu", healthy());
        report.round_trips.cpus = (0..64).collect();
        report.round_trips.median_ns = vec![vec![None; 64]; 64];
        let text = render(&report);
        assert!(!text.contains("    63"), "{text}");
        assert!(text.contains("other-socket"), "{text}");
        assert!(columns(&text) <= WIDTH);
    }

    #[test]
    fn capacities_are_printed_in_the_largest_even_unit() {
        assert_eq!(bytes(48 << 10), "48 KiB");
        assert_eq!(bytes(1 << 20), "1 MiB");
        assert_eq!(bytes(1000), "1000 bytes");
    }
}
