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
    /// Those behind the first two.
    more_threads: Vec<Touched<M>>,
}

/// The bytes that a thread read and wrote; none where nobody is noted.
#[derive(Clone, Copy, Debug, Default)]
struct Touched<M> {
    thread: u16,
    read: M,
    written: M,
}

impl<M: Mask> Touched<M> {
    fn is_empty(&self) -> bool {
        (self.read | self.written).is_empty()
    }

    /// Adds the bytes, if these are of the same thread or of nobody.
    #[inline]
    fn add(&mut self, thread: u16, read: M, written: M) -> bool {
        let fits = self.thread == thread || self.is_empty();
        if fits {
            self.thread = thread;
            self.read |= read;
            self.written |= written;
        }
        fits
    }
}

/// The first two threads that touched a line, most often all there are. One line of the host.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct FirstTwo<M>([Touched<M>; 2]);

/// The lines that move.
#[derive(Clone, Debug)]
pub(super) struct Follow<M> {
    details: Vec<Detail<M>>,
    /// Beside each detail.
    first_two: Vec<FirstTwo<M>>,
    most: usize,
    summed_lines: u64,
    summed: Transfers,
}

impl<M: Mask> Follow<M> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            details: Vec::new(),
            first_two: Vec::new(),
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
            more_threads: Vec::new(),
        });
        self.first_two.push(FirstTwo::default());
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
        let Some(FirstTwo([first, second])) = self.first_two.get_mut(handle as usize) else {
            return;
        };
        if first.add(thread, read, written) || second.add(thread, read, written) {
            return;
        }
        let more = &mut self.details[handle as usize].more_threads;
        if !more
            .iter_mut()
            .any(|known| known.add(thread, read, written))
        {
            more.push(Touched {
                thread,
                read,
                written,
            });
        }
    }

    /// Loads the host's memory of what [`touched`](Self::touched) needs; the value means nothing.
    #[inline]
    pub(super) fn warm(&self, handle: u32) -> u64 {
        let first_two = self.first_two.get(handle as usize);
        first_two.map_or(0, |FirstTwo([first, _])| first.thread.into())
    }

    /// The followed lines, those with most transfers first; how many more there are, and their
    /// transfers.
    pub(super) fn finish(self, line_shift: u32) -> (Vec<FollowedLine>, u64, Transfers) {
        let mut lines: Vec<FollowedLine> = self
            .details
            .into_iter()
            .zip(self.first_two)
            .map(|(mut detail, FirstTwo(first_two))| {
                let mut threads = first_two.to_vec();
                threads.retain(|touched| !touched.is_empty());
                threads.append(&mut detail.more_threads);
                threads.sort_by_key(|touched| touched.thread);
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
                    threads: threads
                        .into_iter()
                        .map(|touched| ByteMasks {
                            thread: touched.thread,
                            read: touched.read.into(),
                            written: touched.written.into(),
                        })
                        .collect(),
                }
            })
            .collect();
        lines.sort_by_key(|line| (std::cmp::Reverse(line.transfers.total()), line.address));
        (lines, self.summed_lines, self.summed)
    }
}
