//! How figures are written.

/// Three digits.
pub(crate) fn short(value: f64) -> String {
    match value {
        large if large >= 99.95 => format!("{large:.0}"),
        medium if medium >= 9.995 => format!("{medium:.1}"),
        small => format!("{small:.2}"),
    }
}

/// Numbers of CPUs, each once.
pub(crate) fn list(cpus: &[u32]) -> String {
    let mut distinct = cpus.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let names: Vec<String> = distinct.iter().map(u32::to_string).collect();
    names.join(",")
}
