//! Counters of the processor, read of one thread: which events there are for where lines come from, and their values.

use std::io;
use std::path::Path;

use crate::facts::field;
use crate::perf::{Event, Whom};
use crate::sysfs::read_text;

/// What the kernel is to count: the kind and number of a perf event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// `PERF_TYPE_…`.
    pub kind: u32,
    /// The event, as its kind numbers them.
    pub number: u64,
}

impl Code {
    /// An event of the processor by its own number, as its maker's documents have it.
    const fn raw(event: u8, umask: u8) -> Self {
        Self {
            kind: 4,
            number: (umask as u64) << 8 | event as u64,
        }
    }

    /// Instructions, by the kernel's name.
    pub const INSTRUCTIONS: Self = Self { kind: 0, number: 1 };
}

/// Processors whose events for where lines come from are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheEvents {
    /// Intel's servers from Skylake on: `MEM_LOAD_RETIRED`, `MEM_LOAD_L3_MISS_RETIRED`, `LONGEST_LAT_CACHE`.
    Intel,
    /// AMD Zen 3 to 5: `ls_any_fills_from_sys`.
    Zen,
}

/// Models of Intel's servers with several sockets: Skylake and Cascade Lake, Ice Lake, Sapphire, Emerald and Granite Rapids.
const INTEL_SERVERS: [u32; 7] = [0x55, 0x6a, 0x6c, 0x8f, 0xad, 0xae, 0xcf];

impl CacheEvents {
    /// Those of the machine whose file system starts at `root`; `None` of a processor whose events are not known.
    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        Self::of(&read_text(&root.join("proc/cpuinfo"))?)
    }

    fn of(cpuinfo: &str) -> Option<Self> {
        let number = |name| field(cpuinfo, name)?.parse::<u32>().ok();
        match (field(cpuinfo, "vendor_id")?, number("cpu family")?) {
            ("GenuineIntel", 6) if INTEL_SERVERS.contains(&number("model")?) => Some(Self::Intel),
            ("AuthenticAMD", 0x19 | 0x1a) => Some(Self::Zen),
            _ => None,
        }
    }

    /// The events. Of Intel: loads that missed L2, that L3 had, that L3 missed; that came changed, and unchanged, from another
    /// socket, and from its memory; all that missed L3. Of Zen fills from the own L3 or a core below it, from a near cache, from a
    /// far one, from near memory, from far.
    #[must_use]
    pub fn codes(self) -> &'static [Code] {
        const INTEL: [Code; 7] = [
            Code::raw(0xd1, 0x10),
            Code::raw(0xd1, 0x04),
            Code::raw(0xd1, 0x20),
            Code::raw(0xd3, 0x04),
            Code::raw(0xd3, 0x08),
            Code::raw(0xd3, 0x02),
            Code::raw(0x2e, 0x41),
        ];
        const ZEN: [Code; 5] = [
            Code::raw(0x44, 0x02),
            Code::raw(0x44, 0x04),
            Code::raw(0x44, 0x10),
            Code::raw(0x44, 0x08),
            Code::raw(0x44, 0x40),
        ];
        match self {
            Self::Intel => &INTEL,
            Self::Zen => &ZEN,
        }
    }
}

/// Counters of one thread. Where there are more events than the processor has counters the kernel has them take turns.
#[derive(Debug)]
pub struct Counters {
    events: Vec<(Event, Reading)>,
}

/// What a counter said before.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    count: u64,
    enabled_ns: u64,
    running_ns: u64,
    /// Occurrences a second of the thread's time.
    rate: f64,
}

impl Counters {
    /// Begins to count what a thread does outside the kernel.
    ///
    /// # Errors
    /// ENOENT, EOPNOTSUPP: the processor, or the hypervisor, has no such counter. EACCES, EPERM: not of this thread. ESRCH:
    /// it has ended. EMFILE.
    pub fn open(tid: u32, codes: &[Code]) -> io::Result<Self> {
        let open = |code: &Code| {
            let event = Event::counter(Whom::Thread(tid), code.kind, code.number)?;
            event.enable()?;
            Ok((event, Reading::default()))
        };
        let events = codes.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Self { events })
    }

    /// How often each event occurred since the last reading, per second of the thread's time on a CPU, scaled up from when it had
    /// its turn; of one that had none, as before (SAM, section 2.3).
    ///
    /// # Errors
    /// The kernel's.
    pub fn rates(&mut self) -> io::Result<Vec<f64>> {
        let mut rates = Vec::with_capacity(self.events.len());
        for (event, before) in &mut self.events {
            let now = event.read()?;
            let running = now.running_ns.saturating_sub(before.running_ns);
            let count = now.count.saturating_sub(before.count);
            let rate = match (running, now.enabled_ns.saturating_sub(before.enabled_ns)) {
                // It did not run: it did nothing.
                (0, 0) => 0.0,
                (0, _) => before.rate,
                (running, _) => count as f64 / running as f64 * 1e9,
            };
            *before = Reading {
                count: now.count,
                enabled_ns: now.enabled_ns,
                running_ns: now.running_ns,
                rate,
            };
            rates.push(rate);
        }
        Ok(rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vendor: &str, family: u32, model: u32) -> Option<CacheEvents> {
        CacheEvents::of(&format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: X\n"
        ))
    }

    #[test]
    fn events_are_those_of_the_makers_documents() {
        assert_eq!(of("GenuineIntel", 6, 0x6a), Some(CacheEvents::Intel));
        assert_eq!(of("AuthenticAMD", 0x19, 0x11), Some(CacheEvents::Zen));
        for none in [
            of("GenuineIntel", 6, 0x97),
            of("AuthenticAMD", 0x17, 0x31),
            of("", 0, 0),
            CacheEvents::of(""),
        ] {
            assert_eq!(none, None);
        }
        // MEM_LOAD_L3_MISS_RETIRED.REMOTE_HITM, and ls_any_fills_from_sys.far_cache.
        assert_eq!(CacheEvents::Intel.codes()[3].number, 0x04d3);
        assert_eq!(CacheEvents::Zen.codes()[2].number, 0x1044);
    }

    #[test]
    fn a_thread_is_counted_from_outside() {
        /// Pages that the thread touches first, between two readings.
        const PAGES: usize = 2_000;
        let faults = Code { kind: 1, number: 2 };
        let clock = Code { kind: 1, number: 1 };
        let (tell, told) = std::sync::mpsc::channel();
        let (go, goes) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            // SAFETY: no condition.
            tell.send(unsafe { libc::gettid() } as u32).unwrap();
            goes.recv().unwrap();
            let mut memory: Vec<u8> = Vec::with_capacity(PAGES * 4096);
            for page in 0..PAGES {
                memory.spare_capacity_mut()[page * 4096].write(1);
            }
            std::hint::black_box(&memory);
            tell.send(0).unwrap();
            goes.recv().unwrap();
        });
        let tid = told.recv().unwrap();
        let mut counters = match Counters::open(tid, &[faults, clock]) {
            Ok(counters) => counters,
            Err(error) => {
                eprintln!("skipped: no perf events here: {error}");
                drop(go);
                assert!(worker.join().is_err());
                return;
            }
        };
        counters.rates().unwrap();
        go.send(()).unwrap();
        told.recv().unwrap();
        let rates = counters.rates().unwrap();
        // The clock runs at a second a second; faults over its time are the pages.
        assert!((0.9e9..1.1e9).contains(&rates[1]), "{rates:?}");
        let ns = counters.events[1].1.running_ns as f64;
        let pages = rates[0] * ns / 1e9;
        assert!(
            pages > 0.5 * PAGES as f64 && pages < 3.0 * PAGES as f64,
            "{pages}"
        );
        go.send(()).unwrap();
        worker.join().unwrap();
        assert!(Counters::open(u32::MAX - 1, &[faults]).is_err());
    }
}
