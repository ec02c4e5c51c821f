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

/// A rate, with three digits and a decimal unit: `550 k`, `1.20 M`.
pub(crate) fn rate(per_s: f64) -> String {
    match per_s {
        giga if giga >= 0.9995e9 => format!("{} G", short(giga / 1e9)),
        mega if mega >= 0.9995e6 => format!("{} M", short(mega / 1e6)),
        kilo if kilo >= 0.9995e3 => format!("{} k", short(kilo / 1e3)),
        few => short(few),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_decimal_units() {
        assert_eq!(rate(550_000.0), "550 k");
        assert_eq!(rate(999_990.0), "1.00 M");
        assert_eq!(rate(75e6), "75.0 M");
        assert_eq!(rate(2.5e9), "2.50 G");
        assert_eq!(rate(12.0), "12.0");
    }
}
