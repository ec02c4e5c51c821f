//! The ring buffer that the kernel shares with us, and the records in it.
//!
//! ```text
//! page 0: control (data_head written by the kernel, data_tail by us)
//! page 1..: records, each a header { type u32, misc u16, size u16 } and a body, wrapping around
//! ```

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings as sys;

use crate::registers::{REGISTER_COUNT, Registers};

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

/// One sample of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// What the event had counted, for breakpoints.
    pub read: ReadFormat,
    /// The call chain by frame pointers, innermost first.
    pub chain: Vec<u64>,
    /// The user registers, unless the task has none.
    pub registers: Option<Registers>,
    /// Of samplers: the stack from the stack pointer on, in words.
    pub stack: Vec<u64>,
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

/// A mapped ring. Unmapped on drop.
#[derive(Debug)]
pub struct Ring {
    base: *mut u8,
    length: usize,
    data_length: u64,
    scratch: Vec<u8>,
}

// SAFETY: the mapping is not tied to the thread that made it, and `Ring` has no other alias to it
// on our side; the kernel's side is synchronised through data_head and data_tail.
unsafe impl Send for Ring {}

impl Ring {
    pub(crate) fn map(fd: RawFd, pages: usize) -> io::Result<Self> {
        let page = page_size();
        let length = (pages + 1) * page;
        // SAFETY: a fresh mapping at an address of the kernel's choice; checked for failure below.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base: base.cast(),
            length,
            data_length: (pages * page) as u64,
            scratch: Vec::new(),
        })
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: the control page is mapped for as long as `self` lives, data_head is an aligned
        // u64 in it, and the kernel writes it with a plain store that pairs with our acquire load.
        unsafe {
            let control = self.base.cast::<sys::perf_event_mmap_page>();
            AtomicU64::from_ptr(std::ptr::addr_of_mut!((*control).data_head).cast())
        }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as in `head`; data_tail is ours to write.
        unsafe {
            let control = self.base.cast::<sys::perf_event_mmap_page>();
            AtomicU64::from_ptr(std::ptr::addr_of_mut!((*control).data_tail).cast())
        }
    }

    /// Whether there is anything to read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head().load(Ordering::Relaxed) == self.tail().load(Ordering::Relaxed)
    }

    /// Bytes waiting to be read.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.head()
            .load(Ordering::Acquire)
            .saturating_sub(self.tail().load(Ordering::Relaxed))
    }

    /// Reads all records that are there, in order. `with_read` says whether the ring's samples
    /// carry counts (breakpoints do, samplers do not).
    pub fn drain(&mut self, with_read: bool, mut each: impl FnMut(Record)) {
        self.drain_bytes(|bytes| match bytes {
            Some(bytes) => parse(bytes, with_read).into_iter().for_each(&mut each),
            None => each(Record::Lost(1)),
        });
    }

    /// Reads all records that are there, in order, as they are; `None` where the ring was torn.
    pub(crate) fn drain_bytes(&mut self, mut each: impl FnMut(Option<&[u8]>)) {
        let head = self.head().load(Ordering::Acquire);
        let mut tail = self.tail().load(Ordering::Relaxed);
        let mut scratch = std::mem::take(&mut self.scratch);
        while tail < head {
            self.copy_out(tail, 8, &mut scratch);
            let size = u64::from(u16::from_ne_bytes([scratch[6], scratch[7]]));
            if size < 8 || size > head - tail {
                // Not a record: the ring was torn. Everything up to head is lost.
                tail = head;
                each(None);
                break;
            }
            self.copy_out(tail, size as usize, &mut scratch);
            each(Some(&scratch));
            tail += size;
        }
        self.tail().store(tail, Ordering::Release);
        self.scratch = scratch;
    }

    fn copy_out(&self, position: u64, length: usize, into: &mut Vec<u8>) {
        into.clear();
        into.reserve(length);
        let start = (position % self.data_length) as usize;
        let first = length.min(self.data_length as usize - start);
        let data_offset = self.length - self.data_length as usize;
        // SAFETY: start + first <= data_length and length - first <= start, so both ranges lie in
        // the mapped data pages; the bytes lie between tail and head, where the kernel does not
        // write until we move the tail.
        unsafe {
            let data = self.base.add(data_offset);
            into.extend_from_slice(std::slice::from_raw_parts(data.add(start), first));
            into.extend_from_slice(std::slice::from_raw_parts(data, length - first));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` got, and nobody keeps a pointer into it.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

/// Bytes of a page.
#[must_use]
pub fn page_size() -> usize {
    // SAFETY: no pointers involved.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Reads little pieces of a record, never past its end.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_ne_bytes(*head))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.bytes.split_first_chunk::<4>()?;
        self.bytes = rest;
        Some(u32::from_ne_bytes(*head))
    }
}

/// What ends every record that is no sample.
struct Trailer {
    pid: u32,
    tid: u32,
    time: u64,
    cpu: u32,
}

/// The trailer: pid, tid, time, id, cpu.
fn trailer(bytes: &[u8]) -> Option<Trailer> {
    let start = bytes.len().checked_sub(32)?;
    let mut cursor = Cursor {
        bytes: &bytes[start..],
    };
    let pid = cursor.u32()?;
    let tid = cursor.u32()?;
    let time = cursor.u64()?;
    let _id = cursor.u64()?;
    let cpu = cursor.u32()?;
    Some(Trailer {
        pid,
        tid,
        time,
        cpu,
    })
}

/// Parses one whole record, header included. `with_read` as for [`Ring::drain`]. `None`: a kind that
/// we do not use, or too short for its kind.
#[must_use]
pub fn parse(bytes: &[u8], with_read: bool) -> Option<Record> {
    let mut cursor = Cursor { bytes };
    let kind = cursor.u32()?;
    let misc = (cursor.u32()? & 0xffff) as u16;
    match kind {
        sys::PERF_RECORD_SAMPLE => {
            let mut sample = parse_sample(&mut cursor, with_read)?;
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
            let time = trailer(bytes)?.time;
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
            let time = trailer(bytes)?.time;
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
            } = trailer(bytes)?;
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

fn parse_sample(cursor: &mut Cursor<'_>, with_read: bool) -> Option<SampleRecord> {
    let ip = cursor.u64()?;
    let pid = cursor.u32()?;
    let tid = cursor.u32()?;
    let time = cursor.u64()?;
    let address = cursor.u64()?;
    let id = cursor.u64()?;
    let cpu = cursor.u32()?;
    let _reserved = cursor.u32()?;
    let period = cursor.u64()?;
    let read = if with_read {
        ReadFormat {
            count: cursor.u64()?,
            enabled_ns: cursor.u64()?,
            running_ns: cursor.u64()?,
        }
    } else {
        ReadFormat::default()
    };
    let chain_length = cursor.u64()?;
    // The kernel marks the context (user, kernel) with huge values between the addresses.
    const FIRST_CONTEXT_MARK: u64 = u64::MAX - 4095;
    let mut chain = Vec::new();
    for _ in 0..chain_length {
        let address = cursor.u64()?;
        if address < FIRST_CONTEXT_MARK {
            chain.push(address);
        }
    }
    let registers = if cursor.u64()? == u64::from(sys::PERF_SAMPLE_REGS_ABI_64) {
        let mut values = [0; REGISTER_COUNT];
        for value in &mut values {
            *value = cursor.u64()?;
        }
        Some(Registers::from_values(values))
    } else {
        None
    };
    // Samplers copy the stack, breakpoints say what they had counted.
    let stack = match with_read {
        true => Vec::new(),
        false => parse_stack(cursor)?,
    };
    Some(SampleRecord {
        ip,
        in_kernel: false,
        pid,
        tid,
        time,
        address,
        id,
        cpu,
        period,
        read,
        chain,
        registers,
        stack,
    })
}

/// Room for so many bytes, and then how many of them the kernel could copy.
fn parse_stack(cursor: &mut Cursor<'_>) -> Option<Vec<u64>> {
    let room = usize::try_from(cursor.u64()?).ok()?;
    if room == 0 {
        return Some(Vec::new());
    }
    let (copied, rest) = cursor.bytes.split_at_checked(room)?;
    cursor.bytes = rest;
    let words = copied.as_chunks::<8>().0;
    let valid = usize::try_from(cursor.u64()? / 8).ok()?;
    let words = words.iter().take(valid);
    Some(words.map(|word| u64::from_ne_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let Some(Record::Sample(sample)) = parse(&bytes, false) else {
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
            assert_eq!(parse(&bytes[..length], false), None, "length {length}");
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
