//! The records that the kernel writes, as the format of their event says (`perf_event_open(2)`).

use perf_event_open_sys::bindings as sys;

use crate::registers::{REGISTER_COUNT, REGISTER_MASK, Registers};

/// What stands in the samples of an event, and at the end of its other records (`sample_id_all`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleFormat {
    /// `sample_type` of its attributes.
    pub fields: u64,
    /// `read_format`.
    pub counts: u64,
    /// `sample_regs_user`.
    pub registers: u64,
}

impl SampleFormat {
    fn has(&self, field: sys::perf_event_sample_format) -> bool {
        self.fields & u64::from(field) != 0
    }
}

/// What the kernel counted for an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadFormat {
    /// Occurrences.
    pub count: u64,
    /// Time since it was enabled, in ns of the thread's time.
    pub enabled_ns: u64,
    /// Time that it was on the hardware, in ns.
    pub running_ns: u64,
}

/// One sample of an event: what its [format](SampleFormat) does not have is zero or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleRecord {
    /// Interrupted instruction; where the thread was in the kernel, that of its own that runs next.
    pub ip: u64,
    /// Whether the thread was in the kernel.
    pub in_kernel: bool,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// The address of a breakpoint.
    pub address: u64,
    /// Which event.
    pub id: u64,
    /// Where it ran.
    pub cpu: u32,
    /// The period of the event: ns for samplers.
    pub period: u64,
    /// What the event had counted.
    pub read: ReadFormat,
    /// The call chain by frame pointers, innermost first.
    pub chain: Vec<u64>,
    /// The user registers, unless the task has none.
    pub registers: Option<Registers>,
    /// The stack from the stack pointer on, in words.
    pub stack: Vec<u64>,
    /// What a program of the kernel sent.
    pub raw: Vec<u8>,
}

/// A record of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A sample.
    Sample(Box<SampleRecord>),
    /// The kernel had no room for this many records.
    Lost(u64),
    /// A thread got a new name; `exec`: because it ran a new program.
    Name {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// New name.
        name: String,
        /// Whether exec set it.
        exec: bool,
        /// When.
        time: u64,
    },
    /// A new thread or process began.
    Fork {
        /// Process.
        pid: u32,
        /// The process that made it.
        parent_pid: u32,
        /// Thread.
        tid: u32,
        /// When.
        time: u64,
    },
    /// A thread ended.
    Exit {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// When.
        time: u64,
    },
    /// A process mapped executable memory.
    Map {
        /// Process.
        pid: u32,
        /// First byte.
        start: u64,
        /// Bytes.
        length: u64,
        /// Offset of `start` in the file.
        offset: u64,
        /// The file, or the kernel's name in brackets.
        path: String,
        /// When.
        time: u64,
    },
    /// A thread came to or left a CPU.
    Switch {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// CPU.
        cpu: u32,
        /// When.
        time: u64,
        /// Whether it left.
        out: bool,
    },
    /// The kernel slowed an event down because its samples took too much time.
    Throttled,
}

impl Record {
    /// When it happened, if the record says so.
    #[must_use]
    pub fn time(&self) -> Option<u64> {
        match self {
            Self::Sample(sample) => Some(sample.time),
            Self::Name { time, .. }
            | Self::Fork { time, .. }
            | Self::Exit { time, .. }
            | Self::Map { time, .. }
            | Self::Switch { time, .. } => Some(*time),
            Self::Lost(_) | Self::Throttled => None,
        }
    }
}

/// Reads little pieces of a record, never past its end.
struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_ne_bytes(*head))
    }

    fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.bytes.split_first_chunk::<4>()?;
        self.bytes = rest;
        Some(u32::from_ne_bytes(*head))
    }

    fn bytes(&mut self, count: u64) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(usize::try_from(count).ok()?)?;
        self.bytes = rest;
        Some(head)
    }
}

/// What ends every record that is no sample.
#[derive(Default)]
struct Trailer {
    pid: u32,
    tid: u32,
    time: u64,
    cpu: u32,
}

fn trailer(bytes: &[u8], format: &SampleFormat) -> Option<Trailer> {
    const FIELDS: u64 = (sys::PERF_SAMPLE_TID
        | sys::PERF_SAMPLE_TIME
        | sys::PERF_SAMPLE_ID
        | sys::PERF_SAMPLE_STREAM_ID
        | sys::PERF_SAMPLE_CPU
        | sys::PERF_SAMPLE_IDENTIFIER) as u64;
    let length = 8 * (format.fields & FIELDS).count_ones() as usize;
    const HEADER: usize = 8;
    let start = bytes.len().checked_sub(length)?;
    if start < HEADER {
        return None;
    }
    let mut cursor = Cursor {
        bytes: &bytes[start..],
    };
    let mut trailer = Trailer::default();
    if format.has(sys::PERF_SAMPLE_TID) {
        trailer.pid = cursor.u32()?;
        trailer.tid = cursor.u32()?;
    }
    if format.has(sys::PERF_SAMPLE_TIME) {
        trailer.time = cursor.u64()?;
    }
    for id in [sys::PERF_SAMPLE_ID, sys::PERF_SAMPLE_STREAM_ID] {
        if format.has(id) {
            cursor.u64()?;
        }
    }
    if format.has(sys::PERF_SAMPLE_CPU) {
        trailer.cpu = cursor.u32()?;
    }
    Some(trailer)
}

/// Parses one whole record, header included. `None`: a kind that we do not use, or too short for its kind.
#[must_use]
pub fn parse(bytes: &[u8], format: &SampleFormat) -> Option<Record> {
    let mut cursor = Cursor { bytes };
    let kind = cursor.u32()?;
    let misc = (cursor.u32()? & 0xffff) as u16;
    match kind {
        sys::PERF_RECORD_SAMPLE => {
            let mut sample = parse_sample(&mut cursor, format)?;
            let mode = u32::from(misc) & sys::PERF_RECORD_MISC_CPUMODE_MASK;
            sample.in_kernel = mode == sys::PERF_RECORD_MISC_KERNEL;
            if sample.in_kernel {
                let registers = sample.registers.as_ref();
                sample.ip = registers.map_or(0, Registers::instruction_pointer);
            }
            Some(Record::Sample(Box::new(sample)))
        }
        sys::PERF_RECORD_LOST => {
            let _id = cursor.u64()?;
            Some(Record::Lost(cursor.u64()?))
        }
        sys::PERF_RECORD_COMM => {
            let time = trailer(bytes, format)?.time;
            let pid = cursor.u32()?;
            let tid = cursor.u32()?;
            let name = cursor.bytes.split(|&b| b == 0).next().unwrap_or_default();
            Some(Record::Name {
                pid,
                tid,
                name: String::from_utf8_lossy(name).into_owned(),
                exec: u32::from(misc) & sys::PERF_RECORD_MISC_COMM_EXEC != 0,
                time,
            })
        }
        sys::PERF_RECORD_FORK | sys::PERF_RECORD_EXIT => {
            let pid = cursor.u32()?;
            let parent_pid = cursor.u32()?;
            let tid = cursor.u32()?;
            let _parent_tid = cursor.u32()?;
            let time = cursor.u64()?;
            Some(if kind == sys::PERF_RECORD_FORK {
                Record::Fork {
                    pid,
                    parent_pid,
                    tid,
                    time,
                }
            } else {
                Record::Exit { pid, tid, time }
            })
        }
        sys::PERF_RECORD_MMAP => {
            let time = trailer(bytes, format)?.time;
            let pid = cursor.u32()?;
            let _tid = cursor.u32()?;
            let (start, length, offset) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
            let path = cursor.bytes.split(|&b| b == 0).next().unwrap_or_default();
            let path = String::from_utf8_lossy(path).into_owned();
            Some(Record::Map {
                pid,
                start,
                length,
                offset,
                path,
                time,
            })
        }
        sys::PERF_RECORD_SWITCH | sys::PERF_RECORD_SWITCH_CPU_WIDE => {
            let Trailer {
                pid,
                tid,
                time,
                cpu,
            } = trailer(bytes, format)?;
            Some(Record::Switch {
                pid,
                tid,
                cpu,
                time,
                out: u32::from(misc) & sys::PERF_RECORD_MISC_SWITCH_OUT != 0,
            })
        }
        sys::PERF_RECORD_THROTTLE => Some(Record::Throttled),
        _ => None,
    }
}

/// The fields of a sample, in the kernel's order, up to the stack.
fn parse_sample(cursor: &mut Cursor<'_>, format: &SampleFormat) -> Option<SampleRecord> {
    let mut sample = SampleRecord::default();
    if format.has(sys::PERF_SAMPLE_IDENTIFIER) {
        sample.id = cursor.u64()?;
    }
    if format.has(sys::PERF_SAMPLE_IP) {
        sample.ip = cursor.u64()?;
    }
    if format.has(sys::PERF_SAMPLE_TID) {
        sample.pid = cursor.u32()?;
        sample.tid = cursor.u32()?;
    }
    if format.has(sys::PERF_SAMPLE_TIME) {
        sample.time = cursor.u64()?;
    }
    if format.has(sys::PERF_SAMPLE_ADDR) {
        sample.address = cursor.u64()?;
    }
    if format.has(sys::PERF_SAMPLE_ID) {
        sample.id = cursor.u64()?;
    }
    if format.has(sys::PERF_SAMPLE_STREAM_ID) {
        cursor.u64()?;
    }
    if format.has(sys::PERF_SAMPLE_CPU) {
        sample.cpu = cursor.u32()?;
        let _reserved = cursor.u32()?;
    }
    if format.has(sys::PERF_SAMPLE_PERIOD) {
        sample.period = cursor.u64()?;
    }
    if format.has(sys::PERF_SAMPLE_READ) {
        sample.read = parse_counts(cursor, format.counts)?;
    }
    if format.has(sys::PERF_SAMPLE_CALLCHAIN) {
        sample.chain = parse_chain(cursor)?;
    }
    if format.has(sys::PERF_SAMPLE_RAW) {
        let length = cursor.u32()?;
        sample.raw = cursor.bytes(length.into())?.to_vec();
    }
    // It has a length of its own that more than its bit decides.
    if format.has(sys::PERF_SAMPLE_BRANCH_STACK) {
        return None;
    }
    if format.has(sys::PERF_SAMPLE_REGS_USER) {
        sample.registers = parse_registers(cursor, format.registers)?;
    }
    if format.has(sys::PERF_SAMPLE_STACK_USER) {
        sample.stack = parse_stack(cursor)?;
    }
    Some(sample)
}

/// Counts of one event, not of a group.
fn parse_counts(cursor: &mut Cursor<'_>, counts: u64) -> Option<ReadFormat> {
    let has = |count: sys::perf_event_read_format| counts & u64::from(count) != 0;
    if has(sys::PERF_FORMAT_GROUP) {
        return None;
    }
    let mut read = ReadFormat {
        count: cursor.u64()?,
        ..ReadFormat::default()
    };
    if has(sys::PERF_FORMAT_TOTAL_TIME_ENABLED) {
        read.enabled_ns = cursor.u64()?;
    }
    if has(sys::PERF_FORMAT_TOTAL_TIME_RUNNING) {
        read.running_ns = cursor.u64()?;
    }
    for more in [sys::PERF_FORMAT_ID, sys::PERF_FORMAT_LOST] {
        if has(more) {
            cursor.u64()?;
        }
    }
    Some(read)
}

fn parse_chain(cursor: &mut Cursor<'_>) -> Option<Vec<u64>> {
    // The kernel marks the context (user, kernel) with huge values between the addresses.
    const FIRST_CONTEXT_MARK: u64 = u64::MAX - 4095;
    let length = cursor.u64()?;
    let mut chain = Vec::new();
    for _ in 0..length {
        let address = cursor.u64()?;
        if address < FIRST_CONTEXT_MARK {
            chain.push(address);
        }
    }
    Some(chain)
}

/// `Some(None)`: the task has none.
fn parse_registers(cursor: &mut Cursor<'_>, mask: u64) -> Option<Option<Registers>> {
    // Without registers nothing stands behind the word that says so.
    let abi = cursor.u64()?;
    if abi == u64::from(sys::PERF_SAMPLE_REGS_ABI_NONE) {
        return Some(None);
    }
    if mask != REGISTER_MASK {
        cursor.bytes(8 * u64::from(mask.count_ones()))?;
        return Some(None);
    }
    let mut values = [0; REGISTER_COUNT];
    for value in &mut values {
        *value = cursor.u64()?;
    }
    let is_64 = abi == u64::from(sys::PERF_SAMPLE_REGS_ABI_64);
    Some(is_64.then(|| Registers::from_values(values)))
}

/// Room for so many bytes, and then how many of them the kernel could copy.
fn parse_stack(cursor: &mut Cursor<'_>) -> Option<Vec<u64>> {
    let room = cursor.u64()?;
    if room == 0 {
        return Some(Vec::new());
    }
    let words = cursor.bytes(room)?.as_chunks::<8>().0;
    let valid = usize::try_from(cursor.u64()? / 8).ok()?;
    let words = words.iter().take(valid);
    Some(words.map(|word| u64::from_ne_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That of samplers.
    const FORMAT: SampleFormat = SampleFormat {
        fields: (sys::PERF_SAMPLE_IP
            | sys::PERF_SAMPLE_TID
            | sys::PERF_SAMPLE_TIME
            | sys::PERF_SAMPLE_ADDR
            | sys::PERF_SAMPLE_ID
            | sys::PERF_SAMPLE_CPU
            | sys::PERF_SAMPLE_PERIOD
            | sys::PERF_SAMPLE_CALLCHAIN
            | sys::PERF_SAMPLE_REGS_USER
            | sys::PERF_SAMPLE_STACK_USER) as u64,
        counts: 0,
        registers: REGISTER_MASK,
    };

    /// A record of words behind its header.
    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&0u16.to_ne_bytes());
        bytes.extend_from_slice(&((words.len() * 8 + 8) as u16).to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn where_a_field_stands_follows_from_those_before_it() {
        let format = |fields: u32, counts: u32| SampleFormat {
            fields: fields.into(),
            counts: counts.into(),
            registers: 0b11,
        };
        let counts = sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_ID;
        let fields = sys::PERF_SAMPLE_IDENTIFIER
            | sys::PERF_SAMPLE_READ
            | sys::PERF_SAMPLE_RAW
            | sys::PERF_SAMPLE_REGS_USER
            | sys::PERF_SAMPLE_STACK_USER;
        // Id; count, time, id; 12 bytes of the program's; other registers than ours; a stack of one word.
        let raw = 0xdead_beef_0000_000c;
        let words = [5, 6, 7, 8, raw, 0xcafe, 2, 1, 2, 8, 0x77, 8];
        let bytes = record(sys::PERF_RECORD_SAMPLE, &words);
        let Some(Record::Sample(sample)) = parse(&bytes, &format(fields, counts)) else {
            panic!("not a sample")
        };
        assert_eq!((sample.id, sample.ip, sample.time), (5, 0, 0));
        let read = ReadFormat {
            count: 6,
            enabled_ns: 7,
            running_ns: 0,
        };
        assert_eq!(sample.read, read);
        let sent = [0xef, 0xbe, 0xad, 0xde, 0xfe, 0xca, 0, 0, 0, 0, 0, 0];
        assert_eq!(sample.raw, sent);
        assert_eq!((sample.registers, sample.stack), (None, vec![0x77]));
        // What cannot be read is no sample, and not a wrong one.
        for (fields, counts) in [
            (fields | sys::PERF_SAMPLE_BRANCH_STACK, counts),
            (fields, counts | sys::PERF_FORMAT_GROUP),
        ] {
            assert_eq!(parse(&bytes, &format(fields, counts)), None);
        }
    }

    #[test]
    fn the_end_of_a_record_has_the_fields_of_its_event() {
        let format = SampleFormat {
            fields: (sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_CPU).into(),
            counts: 0,
            registers: 0,
        };
        let bytes = record(sys::PERF_RECORD_SWITCH, &[8 << 32 | 7, 99, 3]);
        let switch = Record::Switch {
            pid: 7,
            tid: 8,
            cpu: 3,
            time: 99,
            out: false,
        };
        assert_eq!(parse(&bytes, &format), Some(switch));
        assert_eq!(parse(&bytes[..24], &format), None);
    }

    fn sample_bytes(chain: &[u64], registers: bool) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&0x40_1000u64.to_ne_bytes());
        body.extend_from_slice(&7u32.to_ne_bytes());
        body.extend_from_slice(&8u32.to_ne_bytes());
        for word in [99u64, 0x1234, 5] {
            body.extend_from_slice(&word.to_ne_bytes());
        }
        body.extend_from_slice(&1u32.to_ne_bytes());
        body.extend_from_slice(&0u32.to_ne_bytes());
        body.extend_from_slice(&250_000u64.to_ne_bytes());
        body.extend_from_slice(&(chain.len() as u64).to_ne_bytes());
        for address in chain {
            body.extend_from_slice(&address.to_ne_bytes());
        }
        body.extend_from_slice(&(if registers { 2u64 } else { 0 }).to_ne_bytes());
        if registers {
            for value in 0..REGISTER_COUNT as u64 {
                body.extend_from_slice(&value.to_ne_bytes());
            }
        }
        // Room for three words, of which two are there.
        for word in [24u64, 0x77, 0x88, 0x99, 16] {
            body.extend_from_slice(&word.to_ne_bytes());
        }
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&sys::PERF_RECORD_SAMPLE.to_ne_bytes());
        bytes.extend_from_slice(&0u16.to_ne_bytes());
        bytes.extend_from_slice(&((body.len() + 8) as u16).to_ne_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    #[test]
    fn a_sample_is_read_field_by_field_and_context_marks_are_dropped() {
        let bytes = sample_bytes(&[u64::MAX - 511, 0x40_1000, 0x40_2000], true);
        let Some(Record::Sample(sample)) = parse(&bytes, &FORMAT) else {
            panic!("not a sample")
        };
        assert_eq!(
            (sample.ip, sample.pid, sample.tid, sample.time),
            (0x40_1000, 7, 8, 99)
        );
        assert_eq!(
            (sample.address, sample.id, sample.cpu, sample.period),
            (0x1234, 5, 1, 250_000)
        );
        assert_eq!(sample.chain, vec![0x40_1000, 0x40_2000]);
        assert_eq!(sample.registers.unwrap().get(0), Some(0));
        assert_eq!(sample.stack, [0x77, 0x88]);
    }

    #[test]
    fn every_truncation_of_a_record_is_refused_without_a_panic() {
        let bytes = sample_bytes(&[1, 2, 3], true);
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length], &FORMAT), None, "length {length}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn registers_are_found_by_the_kernels_numbers() {
        let registers = Registers::from_pairs(&[(0, 11), (7, 22), (16, 33), (23, 44)]);
        assert_eq!(registers.get(0), Some(11));
        assert_eq!(registers.stack_pointer(), 22);
        assert_eq!(registers.get(16), Some(33));
        assert_eq!(registers.get(23), Some(44));
        assert_eq!(registers.get(12), None, "segments are not sampled");
    }
}
