//! The same command again: between what its counts lie.

use std::collections::HashMap;

use linewise_recording::{Address, Pid, Repeat, RepeatedLine};

use super::super::ExactOutcome;
use super::super::access::GUEST_BITS;
use super::measures::Measured;

/// Lines of which it is told.
const LINES: usize = 256;

/// What a run came to, beside `first`, which is told of in full. `one_line_in`: the share of lines.
pub(super) fn repeat(
    first: (&ExactOutcome, &Measured),
    again: &Measured,
    one_line_in: u32,
) -> Repeat {
    let (outcome, told) = first;
    let scale = f64::from(one_line_in);
    let pid = |space: u64| -> Option<Pid> {
        let mut threads = outcome.threads.iter();
        Some(threads.find(|it| u64::from(it.space) == space)?.pid)
    };
    let moved = by_line(again);
    let mut lines: Vec<(u64, u64)> = by_line(told).into_iter().collect();
    lines.sort_unstable_by_key(|&(line, count)| (std::cmp::Reverse(count), line));
    let lines = lines.into_iter().take(LINES).filter_map(|(line, _)| {
        Some(RepeatedLine {
            pid: pid(line >> GUEST_BITS)?,
            line: Address(line & ((1 << GUEST_BITS) - 1)),
            transfers: moved.get(&line).copied().unwrap_or(0) as f64,
        })
    });
    Repeat {
        accesses: again.followed as f64 * scale,
        transfers: again.report.core_transfers.total().total() as f64 * scale,
        lines: lines.collect(),
    }
}

/// The transfers of each line that has rows, as the rows have them.
fn by_line(measured: &Measured) -> HashMap<u64, u64> {
    let mut lines = HashMap::new();
    for (key, moved) in &measured.moves {
        *lines.entry(key.line).or_default() += moved.count;
    }
    lines
}
