//! The state of an invented kernel, and what a script may let happen in it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use linewise_machine::guard::{News, Unguarded};
use linewise_machine::perf::{BreakOn, Whom};
use linewise_machine::process::{Change, Ended, monotonic_ns};
use linewise_machine::procfs::Mapping;
use linewise_machine::records::{ReadFormat, Record, SampleRecord};
use linewise_machine::registers::Registers;
use linewise_machine::signals::Heard;
use linewise_machine::uprobe::Hit;
use linewise_topology::{Topology, synthetic};

use super::super::denial::Denial;
use super::probes::ProbesOf;

/// Whoever records, as a process. No kernel hands out such numbers, so nothing real is ever meant.
pub(crate) const OWN: u32 = 5_000_000;
/// The first process that is forked.
pub(crate) const TARGET: u32 = 5_000_001;

/// What can be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asked {
    SamplerOfThread,
    SamplerOfCpu,
    Switches,
    Breakpoint,
    Ring,
    Fork,
    Exec,
    Probe,
    Latency,
    /// Hearing of probes on functions.
    Prober,
    /// Placing them.
    FunctionProbe,
}

/// What happens at some time.
pub(crate) type Deed = Box<dyn FnOnce(&mut World)>;

#[derive(Default)]
pub(crate) struct Thread {
    pub(crate) name: String,
    pub(crate) cpu_ns: u64,
    pub(crate) stays: u64,
    /// Stack pointer and instruction, while it sleeps.
    pub(crate) asleep: Option<(u64, u64)>,
}

#[derive(Default)]
pub(crate) struct Process {
    pub(crate) parent: u32,
    pub(crate) threads: BTreeMap<u32, Thread>,
    pub(crate) memory: Vec<(u64, Vec<u8>)>,
    pub(crate) maps: Vec<Mapping>,
    pub(crate) of_kernel: bool,
    /// Another user's.
    pub(crate) foreign: bool,
    /// It has ended, and its parent has not asked how.
    pub(crate) ended: bool,
    /// SIGTERM does nothing to it.
    pub(crate) stubborn: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Sampler(Whom, u64),
    Tracker,
    Switches,
    Breakpoint {
        tid: u32,
        address: u64,
        length: u64,
        on: BreakOn,
    },
}

pub(super) struct EventState {
    pub(super) kind: Kind,
    pub(super) cpu: u32,
    pub(super) on: bool,
    pub(super) on_exec: bool,
    /// The event whose ring it writes into.
    pub(super) output: u64,
    /// The first of its group.
    pub(super) leader: Option<u64>,
    pub(super) shots: u32,
}

#[derive(Default)]
pub(super) struct RingState {
    pub(super) records: VecDeque<Record>,
    lost: u64,
}

/// Everything that an invented kernel knows.
pub(crate) struct World {
    pub(crate) time_ns: u64,
    /// The clock is that of the machine.
    pub(super) is_real: bool,
    /// The clock stands still at this time.
    pub(crate) stands_at: Option<u64>,
    pub(crate) own_ns: u64,
    /// CPU time of ours in each nanosecond that passes.
    pub(crate) own_share: f64,
    pub(crate) topology: Option<Topology>,
    /// Debug registers of each thread.
    pub(crate) registers: u32,
    pub(crate) switch_ns: f64,
    pub(crate) armed_switch_ns: f64,
    pub(crate) open_files: u64,
    /// Records that a ring has room for.
    pub(crate) room: usize,
    pub(crate) refusals: BTreeMap<Asked, Denial>,
    pub(crate) offline: BTreeSet<u32>,
    pub(crate) processes: BTreeMap<u32, Process>,
    pub(crate) endings: BTreeMap<u32, Ended>,
    pub(crate) changes: VecDeque<(u32, Change)>,
    pub(crate) signals: VecDeque<Heard>,
    /// The signals that were sent, with whom they were sent to.
    pub(crate) sent: Vec<(u32, i32)>,
    pub(crate) left: BTreeMap<u32, Unguarded>,
    pub(crate) news: Vec<News>,
    pub(crate) guard_gone: bool,
    pub(crate) guarded: BTreeSet<u32>,
    pub(crate) held_back: u64,
    /// Probes on functions, as they were placed: in which process, on which file and where.
    pub(crate) probes: BTreeMap<u64, ProbesOf>,
    /// How often some were.
    pub(crate) placings: u64,
    pub(super) hits: Vec<Hit>,
    /// Hits that found no room.
    pub(crate) hits_lost: u64,
    pub(super) script: BTreeMap<(u64, u64), Deed>,
    pub(super) deeds: u64,
    pub(super) events: BTreeMap<u64, EventState>,
    pub(super) rings: BTreeMap<u64, RingState>,
    pub(super) next_event: u64,
    pub(super) next_pid: u32,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            time_ns: 1_000_000_000,
            is_real: false,
            stands_at: None,
            own_ns: 0,
            own_share: 0.001,
            topology: Some(synthetic::virtual_machine_of_two()),
            registers: 4,
            switch_ns: 100.0,
            armed_switch_ns: 1000.0,
            open_files: 1024,
            room: 10_000,
            refusals: BTreeMap::new(),
            offline: BTreeSet::new(),
            processes: BTreeMap::from([(OWN, Process::default())]),
            endings: BTreeMap::new(),
            changes: VecDeque::new(),
            signals: VecDeque::new(),
            sent: Vec::new(),
            left: BTreeMap::new(),
            news: Vec::new(),
            guard_gone: false,
            guarded: BTreeSet::new(),
            held_back: 0,
            probes: BTreeMap::new(),
            placings: 0,
            hits: Vec::new(),
            hits_lost: 0,
            script: BTreeMap::new(),
            deeds: 0,
            events: BTreeMap::new(),
            rings: BTreeMap::new(),
            next_event: 1,
            next_pid: TARGET,
        }
    }

    pub(super) fn refused(&self, asked: Asked) -> io::Result<()> {
        (self.refusals.get(&asked)).map_or(Ok(()), |denial| Err(denial.error()))
    }

    /// What the clock shows, ns.
    pub(crate) fn shown_ns(&self) -> u64 {
        if self.is_real {
            return monotonic_ns();
        }
        self.stands_at.unwrap_or(self.time_ns)
    }

    /// The clock shows the machine's time from now on, for what stamps its records by itself.
    pub(crate) fn follow_real_time(&mut self) {
        self.is_real = true;
    }

    /// Makes a process of one thread.
    pub(crate) fn make(&mut self, pid: u32, parent: u32, name: &str) -> &mut Process {
        let process = Process {
            parent,
            ..Process::default()
        };
        self.processes.insert(pid, process);
        self.thread(pid, pid).name = name.to_owned();
        self.process(pid)
    }

    pub(crate) fn process(&mut self, pid: u32) -> &mut Process {
        self.processes.entry(pid).or_default()
    }

    pub(crate) fn thread(&mut self, pid: u32, tid: u32) -> &mut Thread {
        self.process(pid).threads.entry(tid).or_default()
    }

    /// A process makes another one, or (of the same number) a thread begins.
    pub(crate) fn fork(&mut self, parent_pid: u32, pid: u32, tid: u32) {
        if pid == tid {
            self.make(pid, parent_pid, "");
        }
        self.thread(parent_pid, parent_pid);
        let name = self.thread(parent_pid, parent_pid).name.clone();
        self.thread(pid, tid).name = name;
        self.told(Record::Fork {
            pid,
            parent_pid,
            tid,
            time: self.shown_ns(),
        });
    }

    /// A process runs another program.
    pub(crate) fn exec(&mut self, pid: u32, name: &str) {
        self.thread(pid, pid).name = name.to_owned();
        for event in self.events.values_mut() {
            event.on |= std::mem::take(&mut event.on_exec);
        }
        self.told(Record::Name {
            pid,
            tid: pid,
            name: name.to_owned(),
            exec: true,
            time: self.shown_ns(),
        });
    }

    /// A thread ends.
    pub(crate) fn exit(&mut self, pid: u32, tid: u32) {
        self.process(pid).threads.remove(&tid);
        self.told(Record::Exit {
            pid,
            tid,
            time: self.shown_ns(),
        });
    }

    /// A process ends.
    pub(crate) fn end(&mut self, pid: u32, ended: Ended) {
        let Some(process) = self.processes.get(&pid).filter(|it| !it.ended) else {
            return;
        };
        let is_child = process.parent == OWN;
        let tids: Vec<u32> = process.threads.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.exit(pid, tid));
        if is_child {
            self.process(pid).ended = true;
            self.endings.insert(pid, ended);
            self.changes.push_back((pid, Change::Ended(ended)));
        } else {
            self.processes.remove(&pid);
        }
    }

    /// A thread runs for a while.
    pub(crate) fn works(&mut self, pid: u32, tid: u32, ns: u64) {
        let thread = self.thread(pid, tid);
        thread.cpu_ns += ns;
    }

    /// The timer interrupts a thread.
    pub(crate) fn sampled(&mut self, cpu: u32, (pid, tid): (u32, u32), at: &At) {
        let time = self.shown_ns();
        let samplers = self.events.iter().filter(|(_, event)| event.on);
        let found = samplers.filter_map(|(&id, event)| match event.kind {
            Kind::Sampler(whom, period) if event.cpu == cpu => {
                let own = whom == Whom::Thread(tid);
                Some((own, id, period, event.output))
            }
            _ => None,
        });
        // Its own sampler comes before one that it inherited.
        let Some((_, id, period, output)) = found.max_by_key(|found| found.0) else {
            return;
        };
        let mut sample = at.sample(cpu, (pid, tid), time);
        (sample.id, sample.period) = (id, period);
        self.push(output, Record::Sample(Box::new(sample)));
    }

    /// A thread comes to a CPU or leaves it.
    pub(crate) fn switched(&mut self, cpu: u32, (pid, tid): (u32, u32), out: bool) {
        if !out {
            self.thread(pid, tid).stays += 1;
        }
        let time = self.shown_ns();
        let tells = |event: &&EventState| {
            let kind = matches!(
                event.kind,
                Kind::Switches | Kind::Sampler(Whom::Thread(_), _)
            );
            event.on && event.cpu == cpu && kind
        };
        if let Some(output) = self.events.values().find(tells).map(|event| event.output) {
            let record = Record::Switch {
                pid,
                tid,
                cpu,
                time,
                out,
            };
            self.push(output, record);
        }
    }

    /// Something is told of threads or mappings.
    pub(crate) fn told(&mut self, record: Record) {
        let mut events = self.events.values();
        let tracker = events.find(|event| event.on && event.kind == Kind::Tracker);
        if let Some(output) = tracker.map(|event| event.output) {
            self.push(output, record);
        }
    }

    /// A thread touches memory: watchpoints of it may trap.
    pub(crate) fn touched(
        &mut self,
        cpu: u32,
        (pid, tid): (u32, u32),
        (address, stores): (u64, bool),
        at: &At,
    ) {
        let wanted = |on| match on {
            BreakOn::Execute => false,
            BreakOn::ReadWrite => true,
            BreakOn::Write => stores,
        };
        self.trap(cpu, (pid, tid), at, |of, first, length, on| {
            of == tid && wanted(on) && address < first + length && address + 8 > first
        });
    }

    /// A thread comes to an instruction: breakpoints of it may trap.
    pub(crate) fn ran(&mut self, cpu: u32, (pid, tid): (u32, u32), at: &At) {
        self.trap(cpu, (pid, tid), at, |of, first, _, on| {
            of == tid && on == BreakOn::Execute && first == at.ip
        });
    }

    fn trap(
        &mut self,
        cpu: u32,
        whose: (u32, u32),
        at: &At,
        hits: impl Fn(u32, u64, u64, BreakOn) -> bool,
    ) {
        let time = self.shown_ns();
        let hit = self.events.iter().filter(|(_, event)| match event.kind {
            Kind::Breakpoint {
                tid,
                address,
                length,
                on,
            } => event.on && event.shots > 0 && hits(tid, address, length, on),
            _ => false,
        });
        let hit: Vec<u64> = hit.map(|(&id, _)| id).collect();
        for id in hit {
            let mut sample = at.sample(cpu, whose, time);
            sample.id = id;
            sample.read = ReadFormat {
                count: 1,
                enabled_ns: 1000,
                running_ns: 1000,
            };
            let Some(event) = self.events.get_mut(&id) else {
                continue;
            };
            event.shots -= 1;
            let spent = event.shots == 0;
            let output = event.output;
            self.push(output, Record::Sample(Box::new(sample)));
            if spent {
                self.switch_off(id);
            }
        }
    }

    /// An event counts no more, nor does the group that it leads.
    pub(super) fn switch_off(&mut self, id: u64) {
        for (&other, event) in &mut self.events {
            if other == id || event.leader == Some(id) {
                event.on = false;
            }
        }
    }

    fn push(&mut self, output: u64, record: Record) {
        let room = self.room;
        let Some(ring) = self.rings.get_mut(&output) else {
            return;
        };
        if ring.records.len() >= room {
            ring.lost += 1;
            return;
        }
        if ring.lost > 0 {
            let lost = std::mem::take(&mut ring.lost);
            ring.records.push_back(Record::Lost(lost));
        }
        ring.records.push_back(record);
    }

    /// The kernel slows the samplers of a CPU down.
    pub(crate) fn throttle(&mut self, cpu: u32) {
        let mut events = self.events.values();
        if let Some(output) = events.find(|it| it.cpu == cpu).map(|it| it.output) {
            self.push(output, Record::Throttled);
        }
    }

    /// Watchpoints and breakpoints that are armed now, with the thread.
    pub(crate) fn armed(&self) -> Vec<(u32, u64)> {
        let armed = self.events.values().filter(|event| event.on);
        let armed = armed.filter_map(|event| match event.kind {
            Kind::Breakpoint { tid, address, .. } => Some((tid, address)),
            _ => None,
        });
        armed.collect()
    }

    /// Events that are open, whatever they are.
    pub(crate) fn open(&self) -> usize {
        self.events.len()
    }

    /// A signal is sent.
    pub(super) fn signal(&mut self, pid: u32, signal: i32) -> io::Result<()> {
        let Some(process) = self.processes.get(&pid) else {
            return Err(Denial::NoSuchThread.error());
        };
        if process.foreign {
            return Err(io::Error::from_raw_os_error(1));
        }
        let stubborn = process.stubborn;
        if signal == 0 {
            return Ok(());
        }
        self.sent.push((pid, signal));
        if signal == 9 || (signal == 15 && !stubborn) {
            self.end(pid, Ended::Signal(signal));
        }
        Ok(())
    }
}

/// Where a thread is.
#[derive(Clone, Debug, Default)]
pub(crate) struct At {
    pub(crate) ip: u64,
    pub(crate) in_kernel: bool,
    pub(crate) registers: Vec<(u32, u64)>,
    pub(crate) chain: Vec<u64>,
}

impl At {
    fn sample(&self, cpu: u32, (pid, tid): (u32, u32), time: u64) -> SampleRecord {
        SampleRecord {
            ip: self.ip,
            in_kernel: self.in_kernel,
            pid,
            tid,
            time,
            cpu,
            period: 1,
            chain: self.chain.clone(),
            registers: Some(Registers::from_pairs(&self.registers)),
            ..SampleRecord::default()
        }
    }
}

/// A mapping of code of the file `path`.
pub(crate) fn mapping(start: u64, path: &str) -> Mapping {
    Mapping {
        start,
        end: start + 0x1000,
        readable: true,
        writable: false,
        executable: true,
        offset: 0,
        shared: false,
        device: 0,
        inode: 0,
        path: path.to_owned(),
    }
}
