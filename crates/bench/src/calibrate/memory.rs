//! MemBench (SAM, sections 2.2 and 4.1): tasks that copy memory, a line or a whole row of DRAM at a time.
//!
//! ```text
//! memory:  low | high             a half for each pattern
//! half:    part | part | ...      one for each CPU
//! part:    rows copied from | rows copied to
//! ```
//!
//! A pattern copies one line (low hit ratio of the row buffer) or all 64 (high) of a row of 4 KiB, and goes on in a row far
//! away. It comes back to a line only after all of its half, and goes on where its last run ended: what it copies has
//! left every cache that is smaller than the memory. Each copied line is two misses: it is read, and the line that
//! it is copied to is read to be owned.

use super::error::CalibrateError;
use super::together::{Ran, together, waited_percent};
use crate::worker::Stop;
use linewise_machine::buffer::Buffer;
use serde::Serialize;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Words of a line of 64 bytes.
const WORDS: usize = 16;
/// Lines of a row of DRAM, "on the order of 4 KB" (SAM, section 2.2).
const ROW: usize = 64;
/// Misses of a copied line.
pub(super) const MISSES_A_LINE: f64 = 2.0;
/// Bytes of a line.
pub(super) const LINE_BYTES: f64 = 64.0;

/// How much of a row is copied at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One line: a low row-buffer hit ratio.
    Low,
    /// All lines: a high row-buffer hit ratio.
    High,
}

impl Pattern {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Low, Self::High];

    /// The words that stand for it in every output.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Low => "low RBHR",
            Self::High => "high RBHR",
        }
    }

    fn contiguous(self) -> usize {
        match self {
            Self::Low => 1,
            Self::High => ROW,
        }
    }
}

/// Where a pattern is in a part.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    row: usize,
    line: usize,
}

/// Memory to copy.
#[derive(Debug)]
pub(super) struct Memory {
    buffer: Buffer,
    parts: usize,
    rows: usize,
    /// Of each pattern, of each part.
    cursors: [Vec<Cursor>; 2],
}

type Lines = [[u32; WORDS]];

/// What a task copies from and to.
struct Part<'m> {
    from: &'m Lines,
    to: &'m mut Lines,
    cursor: &'m mut Cursor,
}

impl Part<'_> {
    /// Copies a row's worth of lines.
    fn copy_some(&mut self, pattern: Pattern) {
        let contiguous = pattern.contiguous();
        let rows = self.from.len() / ROW;
        let stride = stride(rows);
        for _ in 0..ROW / contiguous {
            let first = self.cursor.row * ROW + self.cursor.line;
            for at in first..first + contiguous {
                copy_line(&self.from[at], &mut self.to[at]);
            }
            self.cursor.row = (self.cursor.row + stride) % rows;
            if self.cursor.row == 0 {
                self.cursor.line = (self.cursor.line + contiguous) % ROW;
            }
        }
    }
}

/// Copies a line. It is a call, so that the compiler cannot make one copy of a row, which the processor does in another
/// way than lines.
#[inline(never)]
fn copy_line(from: &[u32; WORDS], to: &mut [u32; WORDS]) {
    *to = *from;
}

/// A step that leads through all rows, far from one to the next.
fn stride(rows: usize) -> usize {
    let golden = (rows as f64 * 0.618) as usize;
    let divisor = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut strides = golden.max(1)..;
    strides.find(|&it| divisor(it, rows) == 1).unwrap_or(1)
}

impl Memory {
    /// For so many tasks at most, of about `bytes`, on the node of `cpu`: pages lie where they are first touched. Half as
    /// much, and half of that, if the kernel does not give it.
    pub(super) fn new(cpu: u32, parts: usize, bytes: u64) -> Result<Option<Self>, CalibrateError> {
        let row_bytes = ROW * WORDS * size_of::<u32>();
        let mut rows = (bytes as usize / (row_bytes * parts * 4)).max(FEWEST_ROWS);
        let allocate = |rows: usize| {
            let bytes = rows * row_bytes * parts * 4;
            let made = together(vec![(cpu, ())], 0.0, |(), _| Buffer::allocate(bytes).ok())?;
            Ok::<_, CalibrateError>(made.into_iter().next().and_then(|it| it.made))
        };
        loop {
            if let Some(buffer) = allocate(rows)? {
                return Ok(Some(Self {
                    buffer,
                    parts,
                    rows,
                    cursors: [
                        vec![Cursor::default(); parts],
                        vec![Cursor::default(); parts],
                    ],
                }));
            }
            if rows / 2 < FEWEST_ROWS {
                return Ok(None);
            }
            rows /= 2;
        }
    }

    /// Bytes of it in use.
    pub(super) fn bytes(&self) -> u64 {
        (self.rows * ROW * WORDS * size_of::<u32>() * self.parts * 4) as u64
    }

    /// What it consists of.
    pub(super) fn pages(&self) -> linewise_machine::buffer::Pages {
        self.buffer.pages()
    }

    /// The parts of a pattern.
    fn parts(&mut self, pattern: Pattern) -> Vec<Part<'_>> {
        let half = self.rows * ROW * self.parts * 2;
        let begin = half * pattern as usize;
        let (lines, _) = self.buffer.words_mut().as_chunks_mut::<WORDS>();
        let parts = lines[begin..begin + half].chunks_exact_mut(self.rows * ROW * 2);
        let parts = parts.zip(&mut self.cursors[pattern as usize]);
        parts
            .map(|(lines, cursor)| {
                let (from, to) = lines.split_at_mut(lines.len() / 2);
                Part { from, to, cursor }
            })
            .collect()
    }

    /// Lets a task on each of `cpus` copy for `seconds`; lines a second, of all of them, and the share of the time that
    /// they waited for CPUs, in percent.
    pub(super) fn copy(
        &mut self,
        cpus: &[u32],
        pattern: Pattern,
        seconds: f64,
    ) -> Result<(f64, f64), CalibrateError> {
        let mut tasks: Vec<(u32, Vec<Part<'_>>)> =
            cpus.iter().map(|&cpu| (cpu, Vec::new())).collect();
        // With fewer tasks each has several parts, so that all of the memory is copied whatever their number is.
        for (index, part) in self.parts(pattern).into_iter().enumerate() {
            tasks[index % cpus.len()].1.push(part);
        }
        let ran = together(tasks, seconds, |mut parts, stop: &Stop| {
            let mut lines = 0_u64;
            while !stop.0.load(Ordering::Relaxed) {
                for part in &mut parts {
                    part.copy_some(pattern);
                    lines += ROW as u64;
                }
            }
            lines
        })?;
        let per_s = |it: &Ran<u64>| it.made as f64 / it.wall_ns as f64 * 1e9;
        Ok((ran.iter().map(per_s).sum(), waited_percent(&ran)))
    }

    /// What a load from this memory takes on `cpu`, ns: each needs the one before for its address. Also the share of the
    /// time that it waited for the CPU, in percent.
    pub(super) fn load_ns(&mut self, cpu: u32, seconds: f64) -> Result<(f64, f64), CalibrateError> {
        let part = self.parts(Pattern::Low).into_iter().next();
        let Some(part) = part else {
            return Ok((0.0, 0.0));
        };
        let ran = together(vec![(cpu, part)], seconds, |part, stop| {
            let (begin, mut loads) = (Instant::now(), 0_u64);
            let rows = part.from.len() / ROW;
            let stride = stride(rows);
            while !stop.0.load(Ordering::Relaxed) {
                for _ in 0..ROW {
                    // All words are 0, which the compiler does not know.
                    let loaded = part.from[part.cursor.row * ROW + part.cursor.line][0] as usize;
                    part.cursor.row = (part.cursor.row + stride + loaded) % rows;
                    if part.cursor.row == 0 {
                        part.cursor.line = (part.cursor.line + 1) % ROW;
                    }
                }
                loads += ROW as u64;
            }
            begin.elapsed().as_nanos() as f64 / loads.max(1) as f64
        })?;
        let ns = ran.first().map_or(0.0, |it| it.made);
        Ok((ns, waited_percent(&ran)))
    }
}

/// Rows of a part at least: 1 MiB.
const FEWEST_ROWS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_leads_through_all_rows() {
        for rows in [1, 2, 3, 256, 1000, 4099, 61_440] {
            let stride = stride(rows);
            let mut at = 0;
            for step in 1..=rows {
                at = (at + stride) % rows;
                assert_eq!(at == 0, step == rows, "{rows} {stride} {step}");
            }
        }
    }

    #[test]
    fn each_pattern_copies_each_line_once_in_a_pass() {
        for pattern in Pattern::ALL {
            let rows = 6;
            let from: Vec<[u32; WORDS]> =
                (0..rows * ROW).map(|at| [at as u32 + 1; WORDS]).collect();
            let mut to = vec![[0; WORDS]; rows * ROW];
            let mut cursor = Cursor::default();
            for pass in 0..rows {
                let filled = to.iter().filter(|line| line[0] > 0).count();
                assert_eq!(filled, pass * ROW);
                let mut part = Part {
                    from: &from,
                    to: &mut to,
                    cursor: &mut cursor,
                };
                part.copy_some(pattern);
            }
            assert_eq!(from, to);
        }
    }

    #[test]
    fn tasks_copy_and_all_parts_go_on_where_they_were() {
        let cpus = linewise_machine::affinity::allowed_cpus();
        let Some(&cpu) = cpus.first() else { return };
        let mut memory = Memory::new(cpu, 3, 1).unwrap().unwrap();
        assert_eq!(memory.bytes(), 12 << 20);
        for pattern in Pattern::ALL {
            let (lines_per_s, waited) = memory.copy(&[cpu], pattern, 0.01).unwrap();
            assert!(lines_per_s > 0.0 && waited >= 0.0);
        }
        let moved = memory.cursors[0].iter().filter(|it| it.row + it.line > 0);
        assert!(moved.count() >= 1);
        let (ns, _) = memory.load_ns(cpu, 0.01).unwrap();
        assert!(ns > 0.0 && ns.is_finite());
    }
}
