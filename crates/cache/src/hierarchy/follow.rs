//! Statistics of the lines that move between cores.

use super::counts::{ByteMasks, FollowedLine, SitePair, Transfers};
use super::lines::NONE;
use super::mask::Mask;

/// The line moves, but there is no room for statistics of its own.
pub(super) const SUMMED: u32 = NONE - 1;

/// Pairs of sites that a line keeps; those beyond are summed.
const MOST_PAIRS: usize = 256;

#[derive(Clone, Debug)]
struct Detail<M> {
    line: u64,
    pairs: Vec<SitePair>,
    other_pairs: Transfers,
    threads: Vec<(u16, M, M)>,
}

/// The lines that move.
#[derive(Clone, Debug)]
pub(super) struct Follow<M> {
    details: Vec<Detail<M>>,
    most: usize,
    summed_lines: u64,
    summed: Transfers,
}

impl<M: Mask> Follow<M> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            details: Vec::new(),
            most: most.min(SUMMED as usize),
            summed_lines: 0,
            summed: Transfers::default(),
        }
    }

    /// Begins to follow line number `line`; its handle.
    #[cold]
    pub(super) fn begin(&mut self, line: u64) -> u32 {
        if self.details.len() == self.most {
            self.summed_lines += 1;
            return SUMMED;
        }
        self.details.push(Detail {
            line,
            pairs: Vec::new(),
            other_pairs: Transfers::default(),
            threads: Vec::new(),
        });
        (self.details.len() - 1) as u32
    }

    /// Counts a transfer between two sites.
    pub(super) fn transfer(&mut self, handle: u32, from: u32, to: u32, overlap: bool) {
        let Some(detail) = self.details.get_mut(handle as usize) else {
            self.summed.add(overlap);
            return;
        };
        let known = |pair: &SitePair| pair.from == from && pair.to == to;
        match detail.pairs.iter().position(known) {
            Some(at) => detail.pairs[at].transfers.add(overlap),
            None if detail.pairs.len() < MOST_PAIRS => {
                let mut transfers = Transfers::default();
                transfers.add(overlap);
                detail.pairs.push(SitePair {
                    from,
                    to,
                    transfers,
                });
            }
            None => detail.other_pairs.add(overlap),
        }
    }

    /// Notes the bytes that a thread touched.
    pub(super) fn touched(&mut self, handle: u32, thread: u16, read: M, written: M) {
        let Some(detail) = self.details.get_mut(handle as usize) else {
            return;
        };
        match detail
            .threads
            .binary_search_by_key(&thread, |known| known.0)
        {
            Ok(at) => {
                detail.threads[at].1 |= read;
                detail.threads[at].2 |= written;
            }
            Err(at) => detail.threads.insert(at, (thread, read, written)),
        }
    }

    /// The followed lines, those with most transfers first; how many more there are, and their
    /// transfers.
    pub(super) fn finish(self, line_shift: u32) -> (Vec<FollowedLine>, u64, Transfers) {
        let mut lines: Vec<FollowedLine> = self
            .details
            .into_iter()
            .map(|mut detail| {
                let total = |pair: &SitePair| pair.transfers.total();
                detail
                    .pairs
                    .sort_by_key(|pair| (std::cmp::Reverse(total(pair)), pair.from, pair.to));
                let mut transfers = detail.other_pairs;
                for pair in &detail.pairs {
                    transfers += pair.transfers;
                }
                FollowedLine {
                    address: detail.line << line_shift,
                    transfers,
                    pairs: detail.pairs,
                    other_pairs: detail.other_pairs,
                    threads: detail
                        .threads
                        .into_iter()
                        .map(|(thread, read, written)| ByteMasks {
                            thread,
                            read: read.into(),
                            written: written.into(),
                        })
                        .collect(),
                }
            })
            .collect();
        lines.sort_by_key(|line| (std::cmp::Reverse(line.transfers.total()), line.address));
        (lines, self.summed_lines, self.summed)
    }
}
