//! The same command again: between what its counts lie.

use std::collections::HashMap;

use linewise_recording::{Address, Pid, RepeatedLine};

use super::measures::Measured;
use crate::access::GUEST_BITS;
use crate::thread::ExactThread;

/// Lines of which it is told.
const LINES: usize = 256;

/// Accesses, transfers and the transfers by line of a run beside `first`, which is told of in full. `threads` are
/// the first run's.
pub(crate) fn beside(
    first: &Measured,
    again: &Measured,
    threads: &[ExactThread],
) -> (u64, u64, Vec<RepeatedLine>) {
    let pid = |space: u64| -> Option<Pid> {
        let mut threads = threads.iter();
        Some(threads.find(|it| u64::from(it.space) == space)?.pid)
    };
    let moved = by_line(again);
    let mut lines: Vec<(u64, u64)> = by_line(first).into_iter().collect();
    lines.sort_unstable_by_key(|&(line, count)| (std::cmp::Reverse(count), line));
    let lines = lines.into_iter().take(LINES).filter_map(|(line, _)| {
        Some(RepeatedLine {
            pid: pid(line >> GUEST_BITS)?,
            line: Address(line & ((1 << GUEST_BITS) - 1)),
            transfers: moved.get(&line).copied().unwrap_or(0) as f64,
        })
    });
    let transfers = again.report.core_transfers.total().total();
    (again.followed, transfers, lines.collect())
}

/// The transfers of each line that has rows, as the rows have them.
fn by_line(measured: &Measured) -> HashMap<u64, u64> {
    let mut lines = HashMap::new();
    for (key, moved) in &measured.moves {
        *lines.entry(key.line).or_default() += moved.count;
    }
    lines
}
