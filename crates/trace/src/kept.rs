//! A trace that is kept: blocks of compressed columns.
//!
//! ```text
//! "LWTRACE2"
//! block: kind 1, items 4, bytes unpacked 4, bytes packed 4, CRC-32 of the packed 4, packed (zstd)
//! ...
//! block: tables (threads, instructions, mappings)
//! block: end, which says whether anything is missing
//! ```
//!
//! All numbers are least byte first. A block of accesses holds five columns, each with its length in
//! 4 bytes in front, of variable-length numbers (7 bits a byte, the last without the top bit):
//! threads as runs (thread, how many), sites as zigzag differences, addresses as zigzag differences
//! to the last access of the same site (so that a walk over an array is a row of equal numbers),
//! what they do, and times as differences. Blocks do not depend on each other. A file without an end
//! was cut off; what stands before is good.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use linewise_cache::Kind;
use linewise_recording::Outlet;
use linewise_tracer::words::EventKind;

use crate::access::{Consumer, TracedAccess, TracedEvent};
use crate::numbers::{get, put};
use crate::tables::{self, TraceTables};

const MAGIC: &[u8; 8] = b"LWTRACE2";
/// Accesses in a block.
const BLOCK: usize = 1 << 16;
/// No block is longer than this when unpacked.
const MAX_UNPACKED: usize = 64 << 20;
/// Room for the last blocks, which are written also when the size is reached.
const RESERVE: u64 = 64;
const HEADER: usize = 17;
/// Sites that have an entry of their own in the table of last addresses.
const LASTS: usize = 4096;

/// Instructions that a trace tells apart: numbers of accesses go up to this.
pub const MOST_INSTRUCTIONS: usize = 1 << 22;

const ACCESSES: u8 = 1;
const EVENT: u8 = 2;
const TABLES: u8 = 3;
const END: u8 = 4;

/// Where to keep a trace, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepTrace {
    /// The file; an older one is replaced.
    pub path: PathBuf,
    /// Its size at most, in bytes. What does not fit is not kept, and that is a loss.
    pub max_bytes: u64,
}

/// Why a kept trace cannot be read on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be read.
    #[error("cannot read the trace: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("this is no trace that linewise kept, or one of another version")]
    NotATrace,
    /// It ends in the middle.
    #[error("the trace is cut off: the collector was killed while it was written")]
    CutOff,
    /// Its bytes make no sense.
    #[error("the trace is damaged at byte {at}: {what}")]
    Damaged {
        /// Where the damaged block begins.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}

fn zigzag(difference: u64) -> u64 {
    let difference = difference as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

/// Columns of accesses.
#[derive(Debug)]
struct Columns {
    count: usize,
    threads: Vec<u8>,
    run: (u16, u64),
    sites: Vec<u8>,
    site: u32,
    addresses: Vec<u8>,
    lasts: Vec<u64>,
    acts: Vec<u8>,
    times: Vec<u8>,
    time: u64,
}

impl Columns {
    fn new() -> Self {
        Self {
            count: 0,
            threads: Vec::new(),
            run: (0, 0),
            sites: Vec::new(),
            site: 0,
            addresses: Vec::new(),
            lasts: vec![0; LASTS],
            acts: Vec::new(),
            times: Vec::new(),
            time: 0,
        }
    }

    fn push(&mut self, access: &TracedAccess) {
        if self.run.0 != access.thread {
            self.end_run();
            self.run.0 = access.thread;
        }
        self.run.1 += 1;
        put(
            &mut self.sites,
            zigzag(u64::from(access.site).wrapping_sub(u64::from(self.site))),
        );
        self.site = access.site;
        let last = &mut self.lasts[access.site as usize % LASTS];
        put(
            &mut self.addresses,
            zigzag(access.address.wrapping_sub(*last)),
        );
        *last = access.address;
        let kind = match access.kind {
            Kind::Load => 0,
            Kind::Store => 1,
            Kind::Update => 2,
        };
        put(
            &mut self.acts,
            u64::from(access.size) << 3 | u64::from(access.orders) << 2 | kind,
        );
        put(&mut self.times, access.time_ns.wrapping_sub(self.time));
        self.time = access.time_ns;
        self.count += 1;
    }

    fn end_run(&mut self) {
        if self.run.1 > 0 {
            put(&mut self.threads, u64::from(self.run.0));
            put(&mut self.threads, self.run.1);
            self.run.1 = 0;
        }
    }

    /// The block's bytes; the columns are empty afterwards.
    fn take(&mut self) -> (usize, Vec<u8>) {
        self.end_run();
        let mut bytes = Vec::new();
        for column in [
            &self.threads,
            &self.sites,
            &self.addresses,
            &self.acts,
            &self.times,
        ] {
            bytes.extend((column.len() as u32).to_le_bytes());
            bytes.extend(column);
        }
        let count = self.count;
        *self = Self::new();
        (count, bytes)
    }
}

fn read_columns(count: usize, bytes: &[u8]) -> Option<Vec<TracedAccess>> {
    let mut rest = bytes;
    let mut columns = [&[][..]; 5];
    for column in &mut columns {
        let (length, after) = rest.split_first_chunk::<4>()?;
        (*column, rest) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    }
    let [mut threads, mut sites, mut addresses, mut acts, mut times] = columns;
    let mut lasts = vec![0u64; LASTS];
    let (mut thread, mut run, mut site, mut time) = (0, 0, 0u64, 0u64);
    let mut accesses = Vec::with_capacity(count);
    for _ in 0..count {
        while run == 0 {
            thread = u16::try_from(get(&mut threads)?).ok()?;
            run = get(&mut threads)?;
        }
        run -= 1;
        site = site.wrapping_add(unzigzag(get(&mut sites)?));
        let number = u32::try_from(site).ok()?;
        let last = &mut lasts[number as usize % LASTS];
        *last = last.wrapping_add(unzigzag(get(&mut addresses)?));
        let act = get(&mut acts)?;
        time = time.wrapping_add(get(&mut times)?);
        accesses.push(TracedAccess {
            address: *last,
            time_ns: time,
            site: number,
            size: u16::try_from(act >> 3).ok().filter(|&size| size > 0)?,
            thread,
            kind: match act & 3 {
                0 => Kind::Load,
                1 => Kind::Store,
                2 => Kind::Update,
                _ => return None,
            },
            before: 0,
            orders: act & 4 != 0,
        });
    }
    Some(accesses)
}

/// Writes a trace.
#[derive(Debug)]
pub struct TraceWriter {
    outlet: Outlet,
    file: BufWriter<File>,
    written: u64,
    max_bytes: u64,
    columns: Columns,
    /// Accesses that are not kept.
    pub missing: u64,
    /// Nothing more is written: the size is reached or writing failed.
    full: bool,
    /// Why it could not be written on.
    pub error: Option<io::Error>,
}

impl TraceWriter {
    /// Begins a file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(keep: &KeepTrace) -> io::Result<Self> {
        let plain = |error| match error {
            linewise_recording::Error::Write { source, .. } => source,
            other => io::Error::other(other),
        };
        let outlet = Outlet::find(&keep.path).map_err(plain)?;
        let mut file = BufWriter::new(outlet.make().map_err(plain)?);
        file.write_all(MAGIC)?;
        Ok(Self {
            outlet,
            file,
            written: MAGIC.len() as u64,
            max_bytes: keep.max_bytes,
            columns: Columns::new(),
            missing: 0,
            full: false,
            error: None,
        })
    }

    /// Writes a block if it fits, with room left behind it for the end; whether it was written.
    fn block(&mut self, kind: u8, count: usize, bytes: &[u8], reserve: u64) -> bool {
        if self.error.is_some() {
            return false;
        }
        let result = zstd::bulk::compress(bytes, 1).and_then(|packed| {
            let length = (HEADER + packed.len()) as u64;
            if self.written + length + reserve > self.max_bytes {
                return Ok(false);
            }
            self.file.write_all(&[kind])?;
            for number in [
                count as u32,
                bytes.len() as u32,
                packed.len() as u32,
                crc32fast::hash(&packed),
            ] {
                self.file.write_all(&number.to_le_bytes())?;
            }
            self.file.write_all(&packed)?;
            self.written += length;
            Ok(true)
        });
        match result {
            Ok(written) => written,
            Err(error) => {
                self.error = Some(error);
                false
            }
        }
    }

    fn flush_columns(&mut self) {
        if self.columns.count == 0 {
            return;
        }
        let (count, bytes) = self.columns.take();
        if self.full || !self.block(ACCESSES, count, &bytes, RESERVE) {
            self.full = true;
            self.missing += count as u64;
        }
    }

    /// Writes the tables and the end.
    pub fn close(&mut self, tables: &TraceTables) {
        self.flush_columns();
        let bytes = tables::encode(tables);
        let fits = bytes.len() <= MAX_UNPACKED && self.block(TABLES, 1, &bytes, RESERVE);
        let complete = fits && self.missing == 0;
        self.block(END, 1, &[u8::from(complete)], 0);
        if let (None, Err(error)) = (&self.error, self.file.flush()) {
            self.error = Some(error);
        }
        let kept = self.file.get_ref().metadata();
        if self.error.is_some() && kept.is_ok_and(|it| it.len() <= MAGIC.len() as u64) {
            self.discard();
        }
    }

    /// Nothing was traced: leaves no empty file.
    pub fn discard(&self) {
        let _ = self.outlet.unmake();
    }
}

impl Consumer for TraceWriter {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        if self.full {
            self.missing += batch.len() as u64;
            return;
        }
        for access in batch {
            self.columns.push(access);
            if self.columns.count == BLOCK {
                self.flush_columns();
            }
        }
    }

    fn event(&mut self, event: &TracedEvent) {
        self.flush_columns();
        if self.full {
            return;
        }
        let mut bytes = Vec::new();
        for value in [
            u64::from(event.thread),
            event.kind as u64,
            event.time_ns,
            event.a,
            event.b,
        ] {
            put(&mut bytes, value);
        }
        self.full = !self.block(EVENT, 1, &bytes, RESERVE);
    }
}

/// What stands in a trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Accesses, in their order.
    Accesses(Vec<TracedAccess>),
    /// An event between the accesses before and behind.
    Event(TracedEvent),
    /// Threads, instructions, mappings: what the accesses' numbers mean.
    Tables(TraceTables),
    /// The end.
    End {
        /// Nothing is missing.
        complete: bool,
    },
}

/// Reads a kept trace, whatever is in the file.
#[derive(Debug)]
pub struct TraceReader<R> {
    input: R,
    at: u64,
    ended: bool,
}

impl TraceReader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::new(BufReader::new(linewise_foreign::open(path)?))
    }
}

impl<R: Read> TraceReader<R> {
    /// Reads from anything.
    ///
    /// # Errors
    /// It does not begin like a trace, or cannot be read.
    pub fn new(mut input: R) -> Result<Self, TraceError> {
        let mut magic = [0; MAGIC.len()];
        match input.read_exact(&mut magic) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(TraceError::NotATrace);
            }
            other => other?,
        }
        if &magic != MAGIC {
            return Err(TraceError::NotATrace);
        }
        Ok(Self {
            input,
            at: MAGIC.len() as u64,
            ended: false,
        })
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>, TraceError> {
        let mut bytes = Vec::new();
        // Not allocated in advance: the length may be a lie.
        (&mut self.input)
            .take(length as u64)
            .read_to_end(&mut bytes)?;
        if bytes.len() == length {
            Ok(bytes)
        } else {
            Err(TraceError::CutOff)
        }
    }

    /// The next piece; `None` after the end.
    ///
    /// # Errors
    /// See [`TraceError`]. What was read before is good.
    pub fn piece(&mut self) -> Result<Option<Piece>, TraceError> {
        if self.ended {
            return Ok(None);
        }
        let at = self.at;
        let damaged = |what| TraceError::Damaged { at, what };
        let header = self.exactly(HEADER)?;
        let number = |index: usize| {
            let start = 1 + index * 4;
            u32::from_le_bytes([
                header[start],
                header[start + 1],
                header[start + 2],
                header[start + 3],
            ])
        };
        let (count, unpacked) = (number(0) as usize, number(1) as usize);
        if unpacked > MAX_UNPACKED || count > BLOCK {
            return Err(damaged("a block is too long"));
        }
        let packed = self.exactly(number(2) as usize)?;
        if crc32fast::hash(&packed) != number(3) {
            return Err(damaged("a block's checksum is wrong"));
        }
        let bytes = zstd::bulk::decompress(&packed, unpacked)
            .map_err(|_| damaged("a block cannot be unpacked"))?;
        self.at += (HEADER + packed.len()) as u64;
        let piece = match header[0] {
            ACCESSES => read_columns(count, &bytes).map(Piece::Accesses),
            EVENT => read_event(&bytes).map(Piece::Event),
            TABLES => tables::decode(&bytes).map(Piece::Tables),
            END => {
                self.ended = true;
                bytes.first().map(|&byte| Piece::End {
                    complete: byte == 1,
                })
            }
            _ => return Err(damaged("a block of unknown kind")),
        };
        piece
            .map(Some)
            .ok_or_else(|| damaged("a block makes no sense"))
    }

    /// Hands all pieces to `consumer`, as they came in: the threads, instructions and mappings.
    ///
    /// # Errors
    /// See [`TraceError`]: also where an access is by an instruction that no trace has.
    pub fn replay(&mut self, consumer: &mut impl Consumer) -> Result<TraceTables, TraceError> {
        let mut tables = TraceTables::default();
        while let Some(piece) = self.piece()? {
            match piece {
                Piece::Accesses(accesses) => {
                    if accesses
                        .iter()
                        .any(|it| it.site as usize > MOST_INSTRUCTIONS)
                    {
                        return Err(TraceError::Damaged {
                            at: self.at,
                            what: "an access by an instruction that no trace has",
                        });
                    }
                    consumer.accesses(&accesses);
                }
                Piece::Event(event) => consumer.event(&event),
                Piece::Tables(end) => tables = end,
                Piece::End { .. } => {}
            }
        }
        Ok(tables)
    }
}

fn read_event(mut bytes: &[u8]) -> Option<TracedEvent> {
    let mut next = || get(&mut bytes);
    let thread = u16::try_from(next()?).ok()?;
    let kind = EventKind::from_number(next()?)?;
    Some(TracedEvent {
        thread,
        kind,
        time_ns: next()?,
        a: next()?,
        b: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_access() -> impl Strategy<Value = TracedAccess> {
        (
            any::<u64>(),
            any::<u64>(),
            any::<u32>(),
            1u16..4096,
            any::<u16>(),
            0..3,
            any::<bool>(),
        )
            .prop_map(|(address, time_ns, site, size, thread, kind, orders)| {
                TracedAccess {
                    address,
                    time_ns,
                    site,
                    size,
                    thread,
                    kind: [Kind::Load, Kind::Store, Kind::Update][kind as usize],
                    before: 0,
                    orders,
                }
            })
    }

    fn event() -> TracedEvent {
        TracedEvent {
            thread: 3,
            time_ns: 99,
            kind: EventKind::FutexWakes,
            a: u64::MAX,
            b: 1,
        }
    }

    /// A trace of these in a file, with an event in the middle.
    fn written(accesses: &[TracedAccess], max_bytes: u64) -> (Vec<u8>, u64) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let mut writer = TraceWriter::create(&KeepTrace {
            path: path.clone(),
            max_bytes,
        })
        .unwrap();
        let (front, back) = accesses.split_at(accesses.len() / 2);
        writer.accesses(front);
        writer.event(&event());
        writer.accesses(back);
        writer.close(&tables::example());
        assert!(writer.error.is_none());
        (std::fs::read(&path).unwrap(), writer.missing)
    }

    fn pieces(bytes: &[u8]) -> (Vec<Piece>, Option<TraceError>) {
        let mut pieces = Vec::new();
        let mut reader = match TraceReader::new(bytes) {
            Ok(reader) => reader,
            Err(error) => return (pieces, Some(error)),
        };
        loop {
            match reader.piece() {
                Ok(Some(piece)) => pieces.push(piece),
                Ok(None) => return (pieces, None),
                Err(error) => return (pieces, Some(error)),
            }
        }
    }

    fn accesses(pieces: &[Piece]) -> Vec<TracedAccess> {
        pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Accesses(accesses) => Some(accesses.clone()),
                _ => None,
            })
            .flatten()
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_was_written_is_read(input in proptest::collection::vec(any_access(), 0..300)) {
            let (bytes, missing) = written(&input, u64::MAX);
            let (pieces, error) = pieces(&bytes);
            prop_assert!(error.is_none(), "{:?}", error);
            prop_assert_eq!(missing, 0);
            prop_assert_eq!(accesses(&pieces), input);
            prop_assert!(pieces.contains(&Piece::Event(event())));
            prop_assert!(pieces.contains(&Piece::Tables(tables::example())));
            prop_assert_eq!(pieces.last(), Some(&Piece::End { complete: true }));
        }

        #[test]
        fn changed_and_cut_traces_are_errors_and_never_a_panic(
            input in proptest::collection::vec(any_access(), 1..100),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
            cut in any::<prop::sample::Index>(),
        ) {
            let (good, _) = written(&input, u64::MAX);
            let mut bytes = good.clone();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let (_, error) = pieces(&bytes);
            prop_assert!(error.is_some() || bytes == good || bytes.len() == good.len());
            let (_, error) = pieces(&good[..cut.index(good.len())]);
            prop_assert!(error.is_some());
        }

        #[test]
        fn columns_of_any_bytes_never_panic(
            count in 0usize..200, bytes in proptest::collection::vec(any::<u8>(), 0..400)
        ) {
            if let Some(accesses) = read_columns(count, &bytes) {
                prop_assert_eq!(accesses.len(), count);
            }
            let _ = read_event(&bytes);
            let _ = tables::decode(&bytes);
        }

        #[test]
        fn what_does_not_fit_is_counted_and_the_size_is_kept(
            input in proptest::collection::vec(any_access(), 200..300), max_bytes in 100u64..6000
        ) {
            let (bytes, missing) = written(&input, max_bytes);
            prop_assert!(bytes.len() as u64 <= max_bytes);
            let (pieces, error) = pieces(&bytes);
            prop_assert!(error.is_none(), "{:?}", error);
            let kept = accesses(&pieces);
            prop_assert_eq!(kept.len() as u64 + missing, input.len() as u64);
            prop_assert_eq!(&kept[..], &input[..kept.len()]);
            if missing > 0 {
                prop_assert_eq!(pieces.last(), Some(&Piece::End { complete: false }));
            }
        }
    }
}
