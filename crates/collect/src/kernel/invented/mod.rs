//! A kernel that tests script: processes, records, refusals and a clock that are invented.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use linewise_machine::facts::Facts;
use linewise_machine::guard::{News, Unguarded};
use linewise_machine::latency::{LatencyError, LineCosts, RoundTrip};
use linewise_machine::perf::{BreakOn, SamplerOptions, Whom};
use linewise_machine::probe::{AtSwitch, ProbeError, SkidProbe, SkidRule, WatchpointCosts};
use linewise_machine::process::{Change, Ended, Manner};
use linewise_machine::procfs::{Mapping, Standing};
use linewise_machine::records::{ReadFormat, Record};
use linewise_machine::retrap::RetrapTime;
use linewise_machine::signals::Heard;
use linewise_recording::Time;
use linewise_topology::Topology;

use super::denial::Denial;
use super::seam::{
    Clocks, HeldTarget, Launching, Machinery, PerfEvent, PerfEvents, PerfRing, Processes, Signals,
    TargetChild, Warden,
};

mod probes;
mod world;

pub(crate) use probes::{Called, STACK_TOP};
pub(crate) use world::{Asked, At, OWN, TARGET, World, mapping};
use world::{EventState, Kind, RingState};

/// Descriptors of what can be waited for.
const SIGNALS: RawFd = -10;
const CHANGES: RawFd = -11;
const GUARD: RawFd = -12;

/// A handle of an invented kernel.
#[derive(Clone)]
pub(crate) struct Invented(Rc<RefCell<World>>);

impl Invented {
    pub(crate) fn new() -> Self {
        Self(Rc::new(RefCell::new(World::new())))
    }

    /// Changes or asks it.
    pub(crate) fn with<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        what(&mut self.0.borrow_mut())
    }

    /// Lets something happen so many microseconds after the beginning.
    pub(crate) fn at(&self, us: u64, deed: impl FnOnce(&mut World) + 'static) {
        self.with(|world| {
            world.deeds += 1;
            let when = (1_000_000_000 + 1000 * us, world.deeds);
            world.script.insert(when, Box::new(deed));
        });
    }

    /// Lets something happen again and again, with the number of times that it did.
    pub(crate) fn every(
        &self,
        us: impl Iterator<Item = u64>,
        deed: impl Fn(&mut World, u64) + Clone + 'static,
    ) {
        for (number, us) in us.enumerate() {
            let deed = deed.clone();
            self.at(us, move |world| deed(world, number as u64));
        }
    }

    /// Time passes.
    fn pass(&self, duration: Duration) {
        let end = self.with(|world| world.time_ns) + duration.as_nanos() as u64;
        loop {
            let due = self.with(|world| {
                let next = world.script.first_entry()?;
                (next.key().0 <= end).then(|| next.remove_entry())
            });
            let Some(((when, _), deed)) = due else { break };
            self.with(|world| {
                world.time_ns = world.time_ns.max(when);
                deed(world);
            });
        }
        self.with(|world| {
            world.own_ns += (duration.as_nanos() as f64 * world.own_share) as u64;
            world.time_ns = world.time_ns.max(end);
            assert!(
                world.time_ns < 3_600_000_000_000,
                "it never ends: an hour has passed"
            );
        });
    }

    fn open(&self, asked: Asked, event: EventState) -> io::Result<InventedEvent> {
        self.with(|world| {
            world.refused(asked)?;
            if world.offline.contains(&event.cpu) {
                return Err(Denial::OfflineCpu.error());
            }
            if world.events.len() as u64 >= world.open_files {
                return Err(Denial::NoFiles.error());
            }
            let id = world.next_event;
            world.next_event += 1;
            let output = id;
            world.events.insert(id, EventState { output, ..event });
            Ok(InventedEvent {
                world: self.clone(),
                id,
            })
        })
    }

    /// Whether events may be opened in a thread.
    fn is_open_to(&self, whom: Whom) -> io::Result<()> {
        let Whom::Thread(tid) = whom else {
            return Ok(());
        };
        self.with(|world| {
            let mut processes = world.processes.values();
            match processes.find(|process| process.threads.contains_key(&tid)) {
                None => Err(Denial::NoSuchThread.error()),
                Some(process) if process.foreign => Err(Denial::NotPermitted.error()),
                Some(_) => Ok(()),
            }
        })
    }
}

fn event(kind: Kind, cpu: u32, on_exec: bool) -> EventState {
    EventState {
        kind,
        cpu,
        on: false,
        on_exec,
        output: 0,
        leader: None,
        shots: 0,
    }
}

impl Clocks for Invented {
    fn now(&self) -> Time {
        Time(self.with(|world| world.shown_ns()))
    }

    fn own_cpu_time_ns(&self) -> u64 {
        self.with(|world| world.own_ns)
    }

    fn own_thread_time_ns(&self) -> u64 {
        self.own_cpu_time_ns()
    }

    fn sleep(&self, duration: Duration) {
        self.pass(duration);
    }
}

fn probed(world: &mut World) -> Result<(), ProbeError> {
    let refused = world.refused(Asked::Probe);
    refused.map_err(|_| ProbeError::Nothing("an invented probe that fails"))
}

impl Machinery for Invented {
    fn facts(&self) -> Facts {
        Facts::read(Path::new("/no/such/folder"), &[])
    }

    fn run_id(&self) -> String {
        "invented".to_owned()
    }

    fn topology(&self) -> Option<Topology> {
        self.with(|world| world.topology.clone())
    }

    fn allowed_cpus(&self) -> Vec<u32> {
        vec![0, 1]
    }

    fn prefer_short_slices(&self) {}

    fn watchpoint_costs(&self) -> Result<WatchpointCosts, ProbeError> {
        self.with(|world| {
            probed(world)?;
            Ok(WatchpointCosts {
                count: world.registers,
                arm_ns: 5_000.0,
                trap_ns: 3_000.0,
                exposure_offset_ns: 100.0,
                trap_delay_ns: 2_000.0,
                shot_ns: 10_000.0,
                watch_ns: 20_000.0,
            })
        })
    }

    fn skid_rule(&self) -> Result<SkidProbe, ProbeError> {
        Ok(SkidProbe {
            rule: SkidRule::Next,
            agreement: 1.0,
            samples: 1000,
            sample_ns: 10_000.0,
        })
    }

    fn switch_cost_ns(&self, what: AtSwitch) -> Result<f64, ProbeError> {
        Ok(match what {
            AtSwitch::Watchpoints { .. } => self.with(|world| world.armed_switch_ns),
            AtSwitch::Timers { .. } | AtSwitch::Records => self.with(|world| world.switch_ns),
        })
    }

    fn retrap_time(&self, _: u32) -> Result<RetrapTime, ProbeError> {
        self.with(|world| {
            probed(world)?;
            Ok(RetrapTime {
                offset_ns: 2_000.0,
                deviation_ns: 100.0,
            })
        })
    }

    fn line_costs(
        &self,
        (cpu_a, cpu_b): (u32, u32),
        _: u32,
        limit: Duration,
    ) -> Result<LineCosts, LatencyError> {
        if self.with(|world| world.refused(Asked::Latency)).is_err() {
            return Err(LatencyError::Busy {
                cpu_a,
                cpu_b,
                waited_ms: limit.as_millis() as u64,
            });
        }
        Ok(LineCosts {
            round_trip: self.round_trip((cpu_a, cpu_b), 1, limit)?,
            transfer_idle_ns: 100.0,
            transfer_busy_ns: 120.0,
            busy_share: 0.5,
            transfer_crowded_ns: 150.0,
            crowded_share: 0.9,
            transfer_saturated_ns: 200.0,
            hit_ns: 5.0,
        })
    }

    fn round_trip(&self, _: (u32, u32), _: usize, _: Duration) -> Result<RoundTrip, LatencyError> {
        Ok(RoundTrip {
            median_ns: 250.0,
            low_ns: 240.0,
            high_ns: 260.0,
        })
    }
}

impl PerfEvents for Invented {
    type Event = InventedEvent;

    fn sampler(&self, whom: Whom, cpu: u32, options: SamplerOptions) -> io::Result<InventedEvent> {
        self.is_open_to(whom)?;
        let asked = match whom {
            Whom::Thread(_) => Asked::SamplerOfThread,
            Whom::Everyone => Asked::SamplerOfCpu,
        };
        let kind = Kind::Sampler(whom, options.period_ns);
        self.open(asked, event(kind, cpu, options.enable_on_exec))
    }

    fn tracker(&self, whom: Whom, cpu: u32, options: SamplerOptions) -> io::Result<InventedEvent> {
        self.is_open_to(whom)?;
        let asked = Asked::SamplerOfThread;
        match whom {
            Whom::Thread(_) => self.open(asked, event(Kind::Tracker, cpu, options.enable_on_exec)),
            Whom::Everyone => self.open(Asked::SamplerOfCpu, event(Kind::Tracker, cpu, false)),
        }
    }

    fn switches(&self, cpu: u32) -> io::Result<InventedEvent> {
        self.open(Asked::Switches, event(Kind::Switches, cpu, false))
    }

    fn breakpoint(
        &self,
        tid: u32,
        (address, length): (u64, u32),
        on: BreakOn,
        group: Option<&InventedEvent>,
    ) -> io::Result<InventedEvent> {
        self.is_open_to(Whom::Thread(tid))?;
        let (armed, registers) = self.with(|world| {
            let of_thread =
                |it: &&EventState| matches!(it.kind, Kind::Breakpoint { tid: of, .. } if of == tid);
            let armed = world.events.values().filter(of_thread).count();
            (armed, world.registers)
        });
        if armed >= registers as usize {
            return Err(Denial::NoRegister.error());
        }
        let kind = Kind::Breakpoint {
            tid,
            address,
            length: u64::from(length),
            on,
        };
        let state = EventState {
            leader: group.map(|first| first.id),
            ..event(kind, u32::MAX, false)
        };
        self.open(Asked::Breakpoint, state)
    }

    fn raise_open_files(&self) -> u64 {
        self.with(|world| world.open_files)
    }

    fn own_open_files(&self) -> u64 {
        self.with(|world| world.open() as u64)
    }
}

/// An open event.
pub(crate) struct InventedEvent {
    world: Invented,
    id: u64,
}

impl InventedEvent {
    fn with<T>(&self, what: impl FnOnce(&mut EventState) -> T) -> io::Result<T> {
        self.world.with(|world| {
            let event = world.events.get_mut(&self.id);
            event.map(what).ok_or_else(|| Denial::Other.error())
        })
    }
}

impl Drop for InventedEvent {
    fn drop(&mut self) {
        self.world.with(|world| world.events.remove(&self.id));
    }
}

impl PerfEvent for InventedEvent {
    type Ring = InventedRing;

    fn enable(&self) -> io::Result<()> {
        self.with(|event| event.on = true)
    }

    fn disable(&self) -> io::Result<()> {
        self.world.with(|world| world.switch_off(self.id));
        Ok(())
    }

    fn arm_shots(&self, shots: u32) -> io::Result<()> {
        self.with(|event| {
            assert_eq!(event.shots, 0, "armed twice: a real one would fall silent");
            event.shots = shots;
            event.on = true;
        })
    }

    fn redirect_to(&self, other: &Self) -> io::Result<()> {
        self.with(|event| event.output = other.id)
    }

    fn id(&self) -> io::Result<u64> {
        Ok(self.id)
    }

    fn read(&self) -> io::Result<ReadFormat> {
        Ok(ReadFormat {
            count: 0,
            enabled_ns: 7_000,
            running_ns: 7_000,
        })
    }

    fn map_ring(&self, pages: usize) -> io::Result<InventedRing> {
        self.world.with(|world| {
            // A refusal is of what is larger than the smallest.
            if pages > 4 {
                world.refused(Asked::Ring)?;
            }
            world.rings.insert(self.id, RingState::default());
            Ok(InventedRing {
                world: self.world.clone(),
                id: self.id,
            })
        })
    }
}

/// The ring of an event.
pub(crate) struct InventedRing {
    world: Invented,
    id: u64,
}

impl Drop for InventedRing {
    fn drop(&mut self) {
        self.world.with(|world| world.rings.remove(&self.id));
    }
}

impl PerfRing for InventedRing {
    fn is_empty(&self) -> bool {
        self.world
            .with(|world| world.rings[&self.id].records.is_empty())
    }

    fn drain(&mut self, each: impl FnMut(Record)) {
        let records = self.world.with(|world| {
            let ring = world.rings.get_mut(&self.id);
            ring.map(|ring| std::mem::take(&mut ring.records))
        });
        records.into_iter().flatten().for_each(each);
    }
}

impl Processes for Invented {
    fn own_pid(&self) -> u32 {
        OWN
    }

    fn threads(&self, pid: u32) -> io::Result<Vec<u32>> {
        self.with(|world| {
            let process = world.processes.get(&pid).filter(|it| !it.ended);
            let threads = process.map(|it| it.threads.keys().copied().collect());
            threads.ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    fn thread_name(&self, pid: u32, tid: u32) -> Option<String> {
        self.with(|world| Some(world.processes.get(&pid)?.threads.get(&tid)?.name.clone()))
    }

    fn thread_cpu_time_ns(&self, pid: u32, tid: u32) -> Option<u64> {
        self.with(|world| Some(world.processes.get(&pid)?.threads.get(&tid)?.cpu_ns))
    }

    fn sleeps_at(&self, pid: u32, tid: u32) -> Option<(u64, u64)> {
        self.with(|world| world.processes.get(&pid)?.threads.get(&tid)?.asleep)
    }

    fn thread_stays(&self, pid: u32, tid: u32) -> Option<(u64, u64)> {
        self.with(|world| {
            let thread = world.processes.get(&pid)?.threads.get(&tid)?;
            Some((thread.cpu_ns, thread.stays))
        })
    }

    fn cpu_time_ns(&self, pid: u32) -> Option<u64> {
        self.with(|world| {
            let threads = world.processes.get(&pid)?.threads.values();
            Some(threads.map(|thread| thread.cpu_ns).sum())
        })
    }

    fn maps(&self, pid: u32) -> io::Result<Vec<Mapping>> {
        self.with(|world| {
            let process = world.processes.get(&pid).filter(|it| !it.ended);
            let maps = process.map(|it| it.maps.clone());
            maps.ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    fn standing(&self, id: u32) -> Option<Standing> {
        self.with(|world| {
            let mut processes = world.processes.iter();
            let (&process, facts) =
                processes.find(|(pid, it)| **pid == id || it.threads.contains_key(&id))?;
            Some(Standing {
                process,
                of_kernel: facts.of_kernel,
                ended: facts.ended,
            })
        })
    }

    fn descendants(&self, ancestors: &[u32]) -> io::Result<Vec<u32>> {
        self.with(|world| {
            let mut found = Vec::new();
            loop {
                let more = world.processes.iter().find(|(pid, process)| {
                    let parent = process.parent;
                    !process.ended
                        && !found.contains(*pid)
                        && (ancestors.contains(&parent) || found.contains(&parent))
                });
                let Some((&pid, _)) = more else { break };
                found.push(pid);
            }
            Ok(found)
        })
    }

    fn command_line(&self, pid: u32) -> io::Result<Vec<String>> {
        let name = self.thread_name(pid, pid);
        name.map_or_else(|| Err(io::ErrorKind::NotFound.into()), |it| Ok(vec![it]))
    }

    fn read_memory(&self, pid: u32, address: u64, into: &mut [u8]) -> io::Result<usize> {
        self.with(|world| {
            let process = world.processes.get(&pid);
            let mut places = process.into_iter().flat_map(|process| &process.memory);
            let found = places.find_map(|(start, bytes)| {
                let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
                bytes.get(offset..).filter(|rest| !rest.is_empty())
            });
            let rest = found.ok_or_else(|| io::Error::from_raw_os_error(14))?;
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        })
    }

    fn read_file(&self, _: u32, path: &str, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        linewise_foreign::open(Path::new(path))?.read_at(into, offset)
    }

    fn path_in(&self, _: u32, path: &str) -> PathBuf {
        PathBuf::from(path)
    }

    fn program_of(&self, pid: u32) -> PathBuf {
        let program = self.with(|world| {
            let mut maps = world.processes.get(&pid)?.maps.iter();
            let program = maps.find(|map| map.executable)?;
            Some(PathBuf::from(&program.path))
        });
        program.unwrap_or_default()
    }

    fn thread_base(&self, _: u32, tid: u32) -> io::Result<u64> {
        Ok(u64::from(tid) << 12)
    }

    fn signal(&self, pid: u32, signal: i32) -> io::Result<()> {
        self.with(|world| world.signal(pid, signal))
    }

    fn pidfd(&self, _: u32) -> io::Result<OwnedFd> {
        // As before Linux 5.3.
        Err(io::Error::from_raw_os_error(38))
    }
}

impl Launching for Invented {
    type Guard = InventedGuard;
    type Held = InventedHeld;
    type Child = InventedChild;
    type Changes = ();

    fn start_guard(&self) -> io::Result<InventedGuard> {
        Ok(InventedGuard(self.clone()))
    }

    fn fork(
        &self,
        command: &[OsString],
        _: &[(OsString, OsString)],
        _: Manner,
    ) -> io::Result<InventedHeld> {
        self.with(|world| {
            world.refused(Asked::Fork)?;
            let pid = world.next_pid;
            world.next_pid += 1;
            world.make(pid, OWN, "linewise");
            let program = command[0].to_string_lossy().into_owned();
            Ok(InventedHeld {
                world: self.clone(),
                pid,
                program,
            })
        })
    }

    fn allowed_calls(&self) -> u32 {
        1
    }

    fn adopt_orphans(&self) -> io::Result<()> {
        Ok(())
    }

    fn reap_orphans(&self, not_these: impl Fn(u32) -> bool) {
        self.with(|world| {
            world
                .processes
                .retain(|&pid, process| !process.ended || not_these(pid));
        });
    }

    fn block_changes(&self) -> io::Result<()> {
        Ok(())
    }

    fn changes_fd(&self, (): &()) -> RawFd {
        CHANGES
    }

    fn clear_changes(&self, (): &()) {}

    fn next_change(&self) -> io::Result<Option<(u32, Change)>> {
        Ok(self.with(|world| world.changes.pop_front()))
    }

    fn wait_readable(&self, fds: &[RawFd], timeout: Duration) -> bool {
        let is_readable = || {
            self.with(|world| {
                fds.iter().any(|&fd| match fd {
                    SIGNALS => !world.signals.is_empty(),
                    CHANGES => !world.changes.is_empty(),
                    GUARD => !world.news.is_empty(),
                    _ => false,
                })
            })
        };
        if !is_readable() {
            self.pass(timeout);
        }
        is_readable()
    }

    fn pass_on(&self, heard: Heard, target: u32) -> bool {
        if heard.signal == 15 {
            return true;
        }
        if !heard.by_terminal {
            let _ = self.signal(target, heard.signal);
        }
        false
    }
}

/// A guard whose words the script puts into its mouth.
pub(crate) struct InventedGuard(Invented);

impl Warden for InventedGuard {
    fn pid(&self) -> u32 {
        OWN - 1
    }

    fn protect(&mut self, tid: u32) -> Result<(), Unguarded> {
        self.0.with(|world| {
            if world.guard_gone {
                return Err(Unguarded::NoGuard);
            }
            if let Some(&reason) = world.left.get(&tid) {
                return Err(reason);
            }
            world.guarded.insert(tid);
            Ok(())
        })
    }

    fn has_left(&self, tid: u32) -> bool {
        self.0
            .with(|world| world.guard_gone || world.left.contains_key(&tid))
    }

    fn news(&mut self) -> Vec<News> {
        self.0.with(|world| std::mem::take(&mut world.news))
    }

    fn let_go(&mut self, tid: u32) {
        self.0.with(|world| {
            assert!(
                world.armed().iter().all(|(of, _)| *of != tid),
                "something is armed in a thread that is let go"
            );
            world.guarded.remove(&tid);
            world.left.insert(tid, Unguarded::Signals);
        });
    }

    fn held_back(&self) -> u64 {
        self.0.with(|world| world.held_back)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        Some(GUARD)
    }

    fn release(&mut self) {
        self.0.with(|world| {
            assert!(world.armed().is_empty(), "something is armed at the end");
            world.guarded.clear();
        });
    }
}

/// A child that waits.
pub(crate) struct InventedHeld {
    world: Invented,
    pid: u32,
    program: String,
}

impl HeldTarget for InventedHeld {
    type Child = InventedChild;

    fn pid(&self) -> u32 {
        self.pid
    }

    fn release(self) -> io::Result<InventedChild> {
        self.world.with(|world| {
            if let Err(error) = world.refused(Asked::Exec) {
                world.processes.remove(&self.pid);
                return Err(error);
            }
            world.exec(self.pid, &self.program);
            Ok(())
        })?;
        Ok(InventedChild {
            world: self.world,
            pid: self.pid,
            ended: None,
        })
    }
}

/// A child that runs.
pub(crate) struct InventedChild {
    world: Invented,
    pid: u32,
    ended: Option<Ended>,
}

impl TargetChild for InventedChild {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn note(&mut self, pid: u32, change: Change) {
        if let (true, Change::Ended(ended)) = (pid == self.pid, change) {
            self.ended = Some(ended);
        }
    }

    fn ended(&self) -> Option<Ended> {
        self.ended
    }

    fn try_wait(&mut self) -> io::Result<Option<Ended>> {
        self.ended = self
            .world
            .with(|world| world.endings.get(&self.pid).copied());
        Ok(self.ended)
    }

    fn wait(&mut self) -> io::Result<Ended> {
        loop {
            if let Some(ended) = self.try_wait()? {
                return Ok(ended);
            }
            self.world.pass(Duration::from_millis(1));
        }
    }
}

impl Signals for Invented {
    fn next(&self) -> Option<Heard> {
        self.with(|world| world.signals.pop_front())
    }

    fn raw_fd(&self) -> RawFd {
        SIGNALS
    }
}
