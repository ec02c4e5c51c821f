//! How often each line is accessed: Zipf's law with shape 1, by which the line of rank k is accessed c / k
//! times, rounded, and at least once.

/// Accesses of the line of this rank, from 1.
pub(super) fn count(rank: u64, top: f64, most: u64) -> u64 {
    ((top / rank as f64).round() as u64).clamp(1, most)
}

/// Accesses of so many lines.
pub(super) fn total(lines: u64, top: f64, most: u64) -> u64 {
    // From here on every line is accessed once.
    let once = ((2.0 * top) as u64).saturating_add(1).min(lines);
    let more: u64 = (1..=once).map(|rank| count(rank, top, most)).sum();
    more + (lines - once)
}

/// The c by which so many lines are accessed about `wanted` times, at most `most` times each.
pub(super) fn top_for(lines: u64, wanted: f64, most: u64) -> f64 {
    let (mut low, mut high) = (0.0, most as f64 * lines as f64);
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if (total(lines, middle, most) as f64) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_law_accesses_most_lines_once() {
        let counts: Vec<u64> = (1..=20).map(|rank| count(rank, 16.0, 16)).collect();
        assert_eq!(counts[..8], [16, 8, 5, 4, 3, 3, 2, 2]);
        assert_eq!(counts[19], 1);
        assert_eq!(total(20, 16.0, 16), counts.iter().sum::<u64>());
        assert_eq!(total(1_000_000, 16.0, 16), total(33, 16.0, 16) + 999_967);
    }

    #[test]
    fn a_total_is_met_as_nearly_as_whole_accesses_allow() {
        for (lines, wanted) in [
            (1, 1.0),
            (1, 1700.0),
            (100, 100.0),
            (100, 5000.0),
            (1000, 1234.0),
        ] {
            let got = total(lines, top_for(lines, wanted, 4096), 4096) as f64;
            assert!(
                (got - wanted).abs() <= 0.02 * wanted + 1.0,
                "{lines} {wanted} {got}"
            );
        }
    }
}
