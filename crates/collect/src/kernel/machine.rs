//! The kernel of this machine.

use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linewise_machine::facts::{Facts, random_id};
use linewise_machine::guard::{Guard, News, Unguarded};
use linewise_machine::latency::{self, LatencyError, LineCosts, RoundTrip};
use linewise_machine::perf::{BreakOn, Event, SamplerOptions, Whom};
use linewise_machine::probe::{self, AtSwitch, ProbeError, SkidProbe, WatchpointCosts};
use linewise_machine::process::{self, Change, Child, Ended, HeldChild, Manner};
use linewise_machine::procfs::{self, Mapping, Standing};
use linewise_machine::records::{ReadFormat, Record};
use linewise_machine::retrap::{RetrapTime, retrap_time};
use linewise_machine::ring::Ring;
use linewise_machine::signals::{ChangeSignal, Heard, StopSignals};
use linewise_machine::uprobe::{self, Hit, Placed, Point, ProbeCosts, Prober};
use linewise_machine::{affinity, memory, sysfs};
use linewise_recording::Time;
use linewise_topology::Topology;

use super::seam::{
    Clocks, FunctionProber, FunctionProbes, HeldTarget, Launching, Machinery, PerfEvent,
    PerfEvents, PerfRing, Processes, Signals, TargetChild, Warden,
};

/// The kernel of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine;

impl Clocks for Machine {
    fn now(&self) -> Time {
        Time(process::monotonic_ns())
    }

    fn own_cpu_time_ns(&self) -> u64 {
        process::own_cpu_time_ns()
    }

    fn own_thread_time_ns(&self) -> u64 {
        process::thread_cpu_time_ns()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

impl Machinery for Machine {
    fn facts(&self) -> Facts {
        Facts::read(Path::new("/"), &[])
    }

    fn run_id(&self) -> String {
        random_id(Path::new("/"))
            .known()
            .cloned()
            .unwrap_or_default()
    }

    fn topology(&self) -> Option<Topology> {
        sysfs::read_topology(Path::new("/")).ok()
    }

    fn allowed_cpus(&self) -> Vec<u32> {
        affinity::allowed_cpus()
    }

    fn prefer_short_slices(&self) {
        affinity::prefer_short_slices();
    }

    fn watchpoint_costs(&self) -> Result<WatchpointCosts, ProbeError> {
        probe::watchpoint_costs()
    }

    fn skid_rule(&self) -> Result<SkidProbe, ProbeError> {
        probe::skid_rule()
    }

    fn switch_cost_ns(&self, what: AtSwitch) -> Result<f64, ProbeError> {
        probe::switch_cost_ns(what)
    }

    fn retrap_time(&self, rounds: u32) -> Result<RetrapTime, ProbeError> {
        retrap_time(rounds)
    }

    fn line_costs(
        &self,
        (a, b): (u32, u32),
        rounds: u32,
        limit: Duration,
    ) -> Result<LineCosts, LatencyError> {
        latency::measure_line_costs(a, b, rounds, limit)
    }

    fn round_trip(
        &self,
        (a, b): (u32, u32),
        rounds: usize,
        limit: Duration,
    ) -> Result<RoundTrip, LatencyError> {
        latency::glance_at_round_trip(a, b, rounds, limit)
    }
}

impl PerfEvents for Machine {
    type Event = Event;

    fn sampler(&self, whom: Whom, cpu: u32, options: SamplerOptions) -> io::Result<Event> {
        Event::sampler(whom, cpu, options)
    }

    fn tracker(&self, whom: Whom, cpu: u32, options: SamplerOptions) -> io::Result<Event> {
        Event::tracker(whom, cpu, options)
    }

    fn switches(&self, cpu: u32) -> io::Result<Event> {
        Event::switches(cpu)
    }

    fn breakpoint(
        &self,
        tid: u32,
        (address, length): (u64, u32),
        on: BreakOn,
        group: Option<&Event>,
    ) -> io::Result<Event> {
        Event::breakpoint(tid, address, length, on, group)
    }

    fn raise_open_files(&self) -> u64 {
        process::raise_open_files()
    }

    fn own_open_files(&self) -> u64 {
        procfs::own_open_files()
    }
}

impl PerfEvent for Event {
    type Ring = Ring;

    fn enable(&self) -> io::Result<()> {
        Self::enable(self)
    }

    fn disable(&self) -> io::Result<()> {
        Self::disable(self)
    }

    fn arm_shots(&self, shots: u32) -> io::Result<()> {
        Self::arm_shots(self, shots)
    }

    fn redirect_to(&self, other: &Self) -> io::Result<()> {
        Self::redirect_to(self, other)
    }

    fn id(&self) -> io::Result<u64> {
        Self::id(self)
    }

    fn read(&self) -> io::Result<ReadFormat> {
        Self::read(self)
    }

    fn map_ring(&self, pages: usize) -> io::Result<Ring> {
        Self::map_ring(self, pages)
    }
}

impl PerfRing for Ring {
    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }

    fn drain(&mut self, each: impl FnMut(Record)) {
        Self::drain(self, each);
    }
}

impl FunctionProbes for Machine {
    type Prober = Prober;

    fn probe_costs(&self, cpus: &[u32]) -> io::Result<ProbeCosts> {
        uprobe::costs(cpus)
    }

    fn prober(&self, cpus: &[u32]) -> io::Result<Prober> {
        Prober::open(cpus)
    }
}

impl FunctionProber for Prober {
    type Placed = Placed;

    fn place(&self, pid: u32, file: &Path, points: &[Point]) -> io::Result<Placed> {
        Self::place(self, pid, file, points)
    }

    fn drain(&mut self, into: &mut Vec<Hit>) -> u64 {
        Self::drain(self, into)
    }
}

impl Processes for Machine {
    fn own_pid(&self) -> u32 {
        std::process::id()
    }

    fn threads(&self, pid: u32) -> io::Result<Vec<u32>> {
        procfs::threads(pid)
    }

    fn thread_name(&self, pid: u32, tid: u32) -> Option<String> {
        procfs::thread_name(pid, tid)
    }

    fn thread_cpu_time_ns(&self, pid: u32, tid: u32) -> Option<u64> {
        procfs::thread_cpu_time_ns(pid, tid)
    }

    fn sleeps_at(&self, pid: u32, tid: u32) -> Option<(u64, u64)> {
        procfs::sleeps_at(pid, tid)
    }

    fn thread_stays(&self, pid: u32, tid: u32) -> Option<(u64, u64)> {
        procfs::thread_stays(pid, tid)
    }

    fn cpu_time_ns(&self, pid: u32) -> Option<u64> {
        process::cpu_time_ns(pid)
    }

    fn maps(&self, pid: u32) -> io::Result<Vec<Mapping>> {
        procfs::maps(pid)
    }

    fn standing(&self, id: u32) -> Option<Standing> {
        procfs::standing(id)
    }

    fn descendants(&self, ancestors: &[u32]) -> io::Result<Vec<u32>> {
        procfs::descendants(ancestors)
    }

    fn command_line(&self, pid: u32) -> io::Result<Vec<String>> {
        procfs::command_line(pid)
    }

    fn read_memory(&self, pid: u32, address: u64, into: &mut [u8]) -> io::Result<usize> {
        memory::read(pid, address, into)
    }

    fn read_file(&self, pid: u32, path: &str, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let path = Path::new(path);
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        linewise_foreign::open_in(&root, path)
            .or_else(|_| linewise_foreign::open(path))?
            .read_at(into, offset)
    }

    fn path_in(&self, pid: u32, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{pid}/root{path}"))
    }

    fn program_of(&self, pid: u32) -> PathBuf {
        PathBuf::from(format!("/proc/{pid}/exe"))
    }

    fn thread_base(&self, pid: u32, tid: u32) -> io::Result<u64> {
        memory::thread_base(pid, tid)
    }

    fn signal(&self, pid: u32, signal: i32) -> io::Result<()> {
        process::signal(pid, signal)
    }

    fn pidfd(&self, pid: u32) -> io::Result<OwnedFd> {
        process::pidfd(pid)
    }
}

impl Launching for Machine {
    type Guard = Guard;
    type Held = HeldChild;
    type Child = Child;
    type Changes = ChangeSignal;

    fn start_guard(&self) -> io::Result<Guard> {
        Guard::start()
    }

    fn fork(
        &self,
        command: &[OsString],
        variables: &[(OsString, OsString)],
        manner: Manner,
    ) -> io::Result<HeldChild> {
        HeldChild::fork(command, process::environment(variables), manner)
    }

    fn allowed_calls(&self) -> u32 {
        process::allowed_calls()
    }

    fn adopt_orphans(&self) -> io::Result<()> {
        process::adopt_orphans()
    }

    fn reap_orphans(&self, not_these: impl Fn(u32) -> bool) {
        process::reap_orphans(not_these);
    }

    fn block_changes(&self) -> io::Result<ChangeSignal> {
        ChangeSignal::block()
    }

    fn changes_fd(&self, changes: &ChangeSignal) -> RawFd {
        changes.raw_fd()
    }

    fn clear_changes(&self, changes: &ChangeSignal) {
        changes.clear();
    }

    fn next_change(&self) -> io::Result<Option<(u32, Change)>> {
        process::next_change()
    }

    fn wait_readable(&self, fds: &[RawFd], timeout: Duration) -> bool {
        process::wait_readable(fds, timeout)
    }

    fn pass_on(&self, heard: Heard, target: u32) -> bool {
        heard.pass_on(target)
    }
}

impl Warden for Guard {
    fn pid(&self) -> u32 {
        Self::pid(self)
    }

    fn protect(&mut self, tid: u32) -> Result<(), Unguarded> {
        Self::protect(self, tid)
    }

    fn has_left(&self, tid: u32) -> bool {
        Self::has_left(self, tid)
    }

    fn news(&mut self) -> Vec<News> {
        Self::news(self)
    }

    fn let_go(&mut self, tid: u32) {
        Self::let_go(self, tid);
    }

    fn held_back(&self) -> u64 {
        Self::held_back(self)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        Self::raw_fd(self)
    }

    fn release(&mut self) {
        Self::release(self);
    }
}

impl HeldTarget for HeldChild {
    type Child = Child;

    fn pid(&self) -> u32 {
        Self::pid(self)
    }

    fn release(self) -> io::Result<Child> {
        Self::release(self)
    }
}

impl TargetChild for Child {
    fn pid(&self) -> u32 {
        Self::pid(self)
    }

    fn note(&mut self, pid: u32, change: Change) {
        Self::note(self, pid, change);
    }

    fn ended(&self) -> Option<Ended> {
        Self::ended(self)
    }

    fn try_wait(&mut self) -> io::Result<Option<Ended>> {
        Self::try_wait(self)
    }

    fn wait(&mut self) -> io::Result<Ended> {
        Self::wait(self)
    }
}

impl Signals for StopSignals {
    fn next(&self) -> Option<Heard> {
        Self::next(self)
    }

    fn raw_fd(&self) -> RawFd {
        Self::raw_fd(self)
    }
}

#[cfg(test)]
mod tests {
    use linewise_machine::process::current_tid;

    use super::*;

    #[test]
    fn this_process_is_told_of_as_it_is() {
        let (own, tid) = (Machine.own_pid(), current_tid());
        assert_eq!(own, std::process::id());
        assert!(Machine.threads(own).unwrap().contains(&tid));
        assert!(Machine.thread_name(own, tid).is_some());
        assert!(Machine.cpu_time_ns(own).is_some());
        let standing = Machine.standing(tid).unwrap();
        assert_eq!((standing.process, standing.ended), (own, false));
        assert!(!Machine.descendants(&[own]).unwrap().contains(&own));
        assert!(!Machine.command_line(own).unwrap().is_empty());
        assert!(Machine.own_open_files() > 2);
        assert!(Machine.thread_stays(own, tid).is_some());
        Machine.signal(own, 0).unwrap();
    }

    #[test]
    fn memory_and_files_of_this_process_are_read() {
        let word = 0x1234_5678_9abc_def0_u64;
        let address = std::ptr::from_ref(&word) as u64;
        let own = Machine.own_pid();
        let mut read = [0; 8];
        if Machine.read_memory(own, address, &mut read).is_ok() {
            assert_eq!(u64::from_ne_bytes(read), word);
        }
        let maps = Machine.maps(own).unwrap();
        assert!(
            maps.iter()
                .any(|map| (map.start..map.end).contains(&address))
        );
        let program = std::env::current_exe().unwrap();
        let mut magic = [0; 4];
        let read = Machine.read_file(own, &program.display().to_string(), 0, &mut magic);
        assert_eq!((read.unwrap(), &magic), (4, b"\x7fELF"));
    }

    #[test]
    fn a_breakpoint_of_this_thread_is_armed_and_taken_down() {
        static WORD: u64 = 0;
        let address = std::ptr::from_ref(&WORD) as u64;
        let on = BreakOn::ReadWrite;
        let event = match Machine.breakpoint(current_tid(), (address, 8), on, None) {
            Ok(event) => event,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let mut ring = PerfEvent::map_ring(&event, 1).unwrap();
        assert!(PerfEvent::id(&event).unwrap() > 0);
        assert!(PerfRing::is_empty(&ring));
        PerfEvent::disable(&event).unwrap();
        assert_eq!(PerfEvent::read(&event).unwrap().count, 0);
        PerfRing::drain(&mut ring, |record| panic!("{record:?}"));
    }

    #[test]
    fn a_child_waits_and_then_runs() {
        let command = ["sh", "-c", "exit 3"].map(OsString::from);
        let held = Machine.fork(&command, &[], Manner::default()).unwrap();
        let pid = HeldTarget::pid(&held);
        assert!(Machine.pidfd(pid).is_ok());
        let mut child = HeldTarget::release(held).unwrap();
        assert_eq!(TargetChild::pid(&child), pid);
        assert_eq!(TargetChild::wait(&mut child).unwrap(), Ended::Code(3));
        assert_eq!(TargetChild::ended(&child), Some(Ended::Code(3)));
    }

    #[test]
    fn clocks_go_on_and_the_machine_has_a_shape() {
        let before = (Machine.now(), Machine.own_cpu_time_ns());
        Machine.sleep(Duration::from_millis(1));
        assert!(Machine.now().since(before.0) >= 1_000_000);
        assert!(Machine.own_cpu_time_ns() >= before.1);
        assert!(!Machine.allowed_cpus().is_empty());
        assert!(Machine.facts().kernel_release.known().is_some());
        assert_eq!(
            Machine.run_id().is_empty(),
            Machine.run_id() == Machine.run_id()
        );
        assert!(
            Machine
                .topology()
                .is_none_or(|topology| !topology.cpus.is_empty())
        );
        assert!(!Machine.wait_readable(&[], Duration::from_millis(1)));
    }
}
