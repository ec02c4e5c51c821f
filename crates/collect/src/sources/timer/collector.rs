//! What happens at every tick: records become rows, samples become accesses, accesses are
//! published and watched, and what the watches saw is written down.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::RawFd;
use std::time::Duration;

use linewise_machine::futex;
use linewise_machine::guard::{News, Unguarded};
use linewise_machine::latency::LatencyError;
use linewise_machine::records::{Record, SampleRecord};
use linewise_machine::registers::Registers;
use linewise_machine::syscall;
use linewise_recording::{
    Address, AddressOrigin, CpuId, Latency, Operation, Pid, RunInfo, Sample, SampleClass, StackId,
    Tid, Time, Trap, UnknownReason, Writer,
};

use iced_x86::{Instruction, Register};

use crate::error::Error;
use crate::kernel::{Kernel, Warden};
use crate::latencies::Latencies;
use crate::sources::timer::bases::ThreadBases;
use crate::sources::timer::board::{Board, Published};
use crate::sources::timer::budget::{Budget, Costs};
use crate::sources::timer::callers::Callers;
use crate::sources::timer::code::CodeCache;
use crate::sources::timer::cpu_times::CpuTimes;
use crate::sources::timer::decode::{Access, AccessReader, Waiting, Which};
use crate::sources::timer::duty::{Duty, Turn};
use crate::sources::timer::goroutines::Goroutines;
use crate::sources::timer::runs::Runs;
use crate::sources::timer::samplers::Samplers;
use crate::sources::timer::silence::Silence;
use crate::sources::timer::watch::{CHUNK, Closed, Watcher, watched_bytes};
use crate::target::follow::{Maps, Stacks, Threads};
use crate::target::heap::HeapRecorder;
use linewise_cache::Chance;

mod awaited;
mod closing;
mod flow;
mod flow_recorder;
mod heap;
mod lent_lines;
mod pending;
mod records;
mod reuse;
mod reuse_sampling;
mod stack_frames;
mod watches;

pub(crate) use flow_recorder::FlowRecorder;
use lent_lines::LentLines;
use pending::{Pending, Postponed};
pub(crate) use reuse_sampling::ReuseSampling;

/// From one tick to the next: while something is armed; while it is to be taken down soon, or the heap
/// recorder is new; and while nothing is. Where every CPU is busy a tick takes 50 to 100 µs from the target.
const TICK: Duration = Duration::from_millis(8);
const HURRIED_TICK: Duration = Duration::from_millis(1);
const IDLE_TICK: Duration = Duration::from_millis(16);
/// Time between two looks at the slow things: mappings, threads.
const SLOW_NS: u64 = 1_000_000_000;
/// So many threads without a sample, with that share of the target's CPU time, make the period
/// shorter.
const SHORT_LIVES: u64 = 20;
const SHORT_SHARE: f64 = 0.1;

pub(crate) struct Collector<K: Kernel> {
    kernel: K,
    samplers: Samplers<K>,
    writer: Writer,
    info: RunInfo,
    budget: Budget,
    cpus: Vec<u32>,
    code: CodeCache,
    reader: AccessReader,
    bases: ThreadBases,
    goroutines: Goroutines,
    threads: Threads,
    stacks: Stacks,
    callers: Callers,
    maps: Maps,
    board: Board,
    watcher: Watcher<K, Pending>,
    postponed: Postponed,
    runs: Runs,
    chance: Chance,
    /// What was told of a time after all rings had been looked at.
    later_records: Vec<Record>,
    mapped_lately: HashSet<Pid>,
    /// The processes that were alive when slow things were looked at last.
    lately_alive: HashSet<Pid>,
    samples: u64,
    cpu_times: CpuTimes,
    /// What the samples stand for, pauses included.
    stood_for_ns: f64,
    /// CPU time of the target that the budget knows of.
    thread_ns: u64,
    collector_ns: u64,
    slow_at: Time,
    latencies: Latencies,
    first_ns: u64,
    losses: BTreeMap<&'static str, (u64, String)>,
    duty: Duty,
    phase_ns: u64,
    silence: Silence,
    stopped: bool,
    in_the_way: f64,
    busy_at: Time,
    reuse: Option<ReuseSampling<K>>,
    heap: Option<HeapRecorder<K>>,
    flow: Option<FlowRecorder<K>>,
    lent: LentLines,
}

impl<K: Kernel> Collector<K> {
    pub(crate) fn new(
        kernel: K,
        samplers: Samplers<K>,
        writer: Writer,
        info: RunInfo,
        (budget, costs): (Budget, &Costs),
        cpus: Vec<u32>,
        guard: Option<K::Guard>,
    ) -> Self {
        let registers = info.watchpoint_bytes / CHUNK as u32;
        let weighs = samplers.stop_in_pauses();
        let duty = Duty::new(
            budget.overhead(),
            cpus.len(),
            costs.switch_ns,
            weighs,
            info.start,
        );
        Self {
            samplers,
            writer,
            budget,
            cpus,
            code: CodeCache::new(costs.skid.rule),
            reader: AccessReader::new(),
            bases: ThreadBases::default(),
            goroutines: Goroutines::default(),
            // The kernel can lose samplers of threads, and their switches with them.
            threads: Threads::new(!weighs),
            stacks: Stacks::default(),
            callers: Callers::default(),
            maps: Maps::default(),
            board: Board::new(watched_bytes(info.line_size)),
            watcher: Watcher::new(kernel.clone(), info.line_size, registers, guard),
            postponed: Postponed::default(),
            runs: Runs::default(),
            chance: Chance::seeded(info.start.0),
            later_records: Vec::new(),
            mapped_lately: HashSet::new(),
            lately_alive: HashSet::new(),
            samples: 0,
            cpu_times: CpuTimes::default(),
            stood_for_ns: 0.0,
            thread_ns: 0,
            collector_ns: kernel.own_cpu_time_ns(),
            first_ns: kernel.own_cpu_time_ns(),
            slow_at: Time(0),
            latencies: Latencies::default(),
            losses: BTreeMap::new(),
            duty,
            phase_ns: 0,
            silence: Silence::default(),
            stopped: false,
            in_the_way: 0.0,
            busy_at: info.start,
            reuse: None,
            heap: None,
            flow: None,
            lent: LentLines::default(),
            info,
            kernel,
        }
    }

    /// Watches chunks for their reuses, too.
    pub(crate) fn sample_reuse(&mut self, reuse: ReuseSampling<K>) {
        self.reuse = Some(reuse);
    }

    /// Goes on from latencies that were measured before the target ran.
    pub(crate) fn know_latencies(
        &mut self,
        latencies: Latencies,
        rows: Vec<Latency>,
    ) -> Result<(), Error> {
        self.latencies = latencies;
        Ok(self.writer.push(rows)?)
    }

    /// Samples so far.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Threads alive now.
    pub(crate) fn threads_alive(&self) -> usize {
        self.threads.alive()
    }

    /// Takes note of a process and its threads.
    pub(crate) fn found_process(&mut self, pid: u32) {
        let time = self.info.start;
        self.cpu_times.follow(&self.kernel, Pid(pid));
        for tid in self.kernel.threads(pid).unwrap_or_default() {
            let name = self.kernel.thread_name(pid, tid);
            self.threads.found(Pid(pid), Tid(tid), time, name);
        }
        self.mapped_lately.insert(Pid(pid));
    }

    /// All that is there when it begins has been found.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn found_all(&mut self) -> Result<(), Error> {
        let told = self.read_records()?;
        self.threads.open_accounts(&self.kernel, told);
        Ok(())
    }

    /// Counts something that is not recorded.
    pub(crate) fn lose(
        &mut self,
        what: &'static str,
        count: u64,
        detail: String,
    ) -> Result<(), Error> {
        let entry = self.losses.entry(what).or_insert((0, detail));
        entry.0 += count;
        Ok(())
    }

    /// Stops sampling, before the target is asked to end.
    pub(crate) fn stop(&mut self) {
        self.samplers.stop();
        if let Some(heap) = &mut self.heap {
            heap.detach();
        }
        self.stopped = true;
    }

    /// How long to wait for the next tick, at most.
    pub(crate) fn until_next_tick(&self) -> Duration {
        if self.watcher.is_hurried() || self.heap.as_ref().is_some_and(HeapRecorder::is_hurried) {
            return HURRIED_TICK;
        }
        let heap = self.heap.as_ref().is_some_and(HeapRecorder::is_busy);
        if heap || self.reuse.is_some() || self.flow.is_some() || self.watcher.is_open() {
            TICK
        } else {
            IDLE_TICK
        }
    }

    /// One turn.
    pub(crate) fn tick(&mut self) -> Result<(), Error> {
        let told = self.read_records()?;
        let now = self.kernel.now();
        self.take_down(now, false)?;
        let thread_ns = self.account(now);
        self.take_down_flow(now, false);
        self.read_heap(thread_ns)?;
        if !self.stopped {
            self.listen(thread_ns)?;
            self.take_turns(now)?;
            self.shorten_period();
            self.lengthen_period();
            self.await_postponed(now)?;
            self.arm_all(now)?;
        }
        self.read_maps(now)?;
        let latency = self.latencies.look(&self.kernel, now, self.in_the_way);
        self.latency(latency)?;
        if self.duty.share(now) < 1.0 && self.threads.accounts_are_due(now) {
            // What has been told until now is compared with it.
            let told = self.read_records()?;
            self.threads.read_due_accounts(&self.kernel, told);
        }
        if now.since(self.slow_at) >= SLOW_NS {
            self.slow_at = now;
            let stays = self.threads.cut(told);
            self.writer.push(stays)?;
            let alive = self.threads.processes();
            self.mapped_lately.extend(alive.iter().take(16));
            // Of one that has just ended a sample may still be on its way.
            let lives = |pid| alive.contains(&pid) || self.lately_alive.contains(&pid);
            self.maps.keep(lives);
            self.code.keep(|pid| lives(Pid(pid)));
            self.lately_alive = alive;
        }
        let fresh = self.stacks.fresh();
        self.writer.push(fresh)?;
        if self.writer.flush_is_due() {
            self.tell_so_far(told)?;
        }
        Ok(())
    }

    fn sampled(&mut self, record: SampleRecord) -> Result<(), Error> {
        self.samples += 1;
        self.silence.heard();
        self.stood_for_ns += record.period as f64 * self.duty.weight();
        let extra_ns = self.budget.sampled(record.period);
        self.duty.sampled(extra_ns);
        let sp = record
            .registers
            .map_or(0, |registers| registers.stack_pointer());
        let (pid, tid, time) = (Pid(record.pid), Tid(record.tid), Time(record.time));
        self.threads
            .sampled(&self.kernel, (pid, tid), time, Address(sp));
        if self.duty.is_on() {
            self.threads.seen_on(tid, CpuId(record.cpu), time);
        }
        let goroutine = self.goroutines.seen(&self.kernel, &record);
        self.writer.push(goroutine)?;
        let mut sample = Sample {
            time,
            pid,
            tid,
            cpu: CpuId(record.cpu),
            ip: Address(record.ip),
            sp: Address(sp),
            stack: self.stacks.id(&self.callers.chain(&record)),
            weight: (record.period as f64 * self.duty.weight()) as u64,
            class: SampleClass::Unknown,
            access_ip: Address(0),
            address: Address(0),
            size: 0,
            operation: None,
            locked: false,
            origin: None,
            reason: None,
        };
        if record.in_kernel || self.comes_from_the_kernel(&record) {
            sample.class = SampleClass::Kernel;
            if let Some(word) = self.futex_word(&record) {
                sample.access_ip = sample.ip;
                sample.address = Address(word);
                sample.size = futex::WORD;
            }
            return Ok(self.writer.push([sample])?);
        }
        self.runs.seen(tid, record.ip);
        let waiting = self.code.waiting(&self.kernel, record.pid, record.ip);
        let candidates = match &*waiting {
            Waiting::Unknown(reason) => {
                return self.unknown(sample, *reason);
            }
            Waiting::Instructions(found) => found.waiting(&mut self.reader),
        };
        let candidate = match self.runs.which(tid, &candidates) {
            Which::Known(candidate) => candidate,
            Which::Asked(candidate) => {
                sample.access_ip = Address(candidate.instruction.ip());
                return self.await_again(sample, candidate);
            }
            Which::Unknown => return self.unknown(sample, UnknownReason::BlockStart),
        };
        let instruction = candidate.instruction;
        sample.access_ip = Address(instruction.ip());
        if candidate.is_blind {
            return self.unknown(sample, UnknownReason::BlockStart);
        }
        if !self.reader.accesses_memory(&instruction) {
            sample.class = SampleClass::Compute;
            return Ok(self.writer.push([sample])?);
        }
        let Some(registers) = self.registers(&record, &instruction) else {
            return self.unknown(sample, UnknownReason::NoRegisters);
        };
        let from = candidate.registers_at(record.ip);
        match self.reader.access(&instruction, &registers, from) {
            Ok(access) => {
                fill(&mut sample, &access, AddressOrigin::Registers);
                self.publish(&sample);
                Ok(self.writer.push([sample])?)
            }
            Err(UnknownReason::AddressOverwritten) => self.await_again(sample, candidate),
            Err(reason) => self.unknown(sample, reason),
        }
    }

    /// Whether the time of a sample in user code passed in the kernel. (Where that is not sampled no sample is called so.)
    fn comes_from_the_kernel(&self, record: &SampleRecord) -> bool {
        self.samplers.see_the_kernel()
            && syscall::has_just_returned(record, |ip, code| {
                let got = self.kernel.read_memory(record.pid, ip, code);
                got.is_ok_and(|got| got == code.len())
            })
    }

    /// The word of the futex call that the thread of a sample is in.
    fn futex_word(&self, record: &SampleRecord) -> Option<u64> {
        futex::word(record, |ip, code| {
            let got = self.kernel.read_memory(record.pid, ip, code);
            got.is_ok_and(|got| got == code.len())
        })
    }

    /// The registers of a sample, with the thread's base where the instruction asks for it.
    fn registers(&mut self, record: &SampleRecord, instruction: &Instruction) -> Option<Registers> {
        let registers = record.registers?;
        if instruction.memory_segment() != Register::FS {
            return Some(registers);
        }
        let base = self.bases.of(&self.kernel, record.pid, record.tid);
        Some(registers.with_thread_base(base))
    }

    fn publish(&mut self, sample: &Sample) {
        let Some(operation) = sample.operation else {
            return;
        };
        self.offer_for_reuse(sample);
        self.touched(sample.pid, sample.address, sample.time);
        let (pid, address) = self.maps.shared().home(sample.pid, sample.address);
        self.board.publish(Published {
            time: sample.time,
            pid,
            tid: sample.tid,
            cpu: sample.cpu,
            address,
            at: sample.address,
            size: sample.size,
            operation,
        });
    }

    /// Takes down watches and breakpoints that are done, and writes what they saw.
    fn take_down(&mut self, now: Time, all: bool) -> Result<(), Error> {
        self.take_down_reuse(now, all)?;
        let (closed, answers) = self.watcher.collect(now, all);
        for Closed { row, traps } in closed {
            self.was_watched(&row, traps.last().map(|(_, trap)| Time(trap.time)));
            for (chunk, record) in traps {
                let goroutine = self.goroutines.seen(&self.kernel, &record);
                self.writer.push(goroutine)?;
                let trap = self.trap(
                    row.id,
                    row.address.line(watched_bytes(self.info.line_size)),
                    chunk,
                    &record,
                    row.operation,
                );
                let home = self.maps.shared().home(trap.pid, trap.address);
                self.board
                    .visit(trap.tid, home, trap.address, trap.size, trap.time);
                self.touched(trap.pid, trap.address, trap.time);
                self.lent
                    .trapped(trap.pid, trap.address, self.info.line_size);
                self.writer.push([trap])?;
            }
            self.writer.push([row])?;
        }
        self.look_for_frames(now)?;
        (answers.into_iter()).try_for_each(|answer| self.answered(answer))?;
        if all { self.drop_postponed() } else { Ok(()) }
    }

    /// The access behind a trap: the instruction before the reported one, if its address fits the
    /// chunk; otherwise the chunk itself.
    fn trap(
        &mut self,
        watch: u64,
        line: Address,
        chunk: u8,
        record: &SampleRecord,
        published: Operation,
    ) -> Trap {
        let first = line.0 + u64::from(chunk) * CHUNK;
        let (access, likely) = self.access_before(record, first);
        // What a load's own watch can see are stores; otherwise nothing better is known.
        let guess = match published {
            Operation::Load => Operation::Store,
            Operation::Store | Operation::Update => Operation::Load,
        };
        let access = access.unwrap_or(Access {
            ip: likely,
            address: first,
            size: CHUNK as u32,
            operation: guess,
            locked: false,
        });
        let stack = if record.chain.is_empty() {
            StackId(0)
        } else {
            self.stacks.id(&record.chain)
        };
        Trap {
            watch,
            chunk,
            exposure_ns: record.read.running_ns,
            time: Time(record.time),
            pid: Pid(record.pid),
            tid: Tid(record.tid),
            cpu: CpuId(record.cpu),
            access_ip: Address(access.ip),
            address: Address(access.address),
            size: access.size,
            operation: access.operation,
            locked: access.locked,
            stack,
        }
    }

    /// Pays the budget for the time since the last tick; the CPU time of the target meanwhile, ns.
    fn account(&mut self, now: Time) -> u64 {
        // The kernel does not tell of processes that come and go between two ticks; their samples do.
        let so_far = self
            .cpu_times
            .read(&self.kernel)
            .max(self.stood_for_ns as u64);
        let thread_ns = so_far.saturating_sub(self.thread_ns);
        self.thread_ns += thread_ns;
        let wall = now.since(self.busy_at).max(1);
        self.phase_ns += thread_ns;
        self.busy_at = now;
        let busy = thread_ns as f64 / wall as f64 / self.cpus.len().max(1) as f64;
        // Smoothed: one tick holds only a few samples.
        self.in_the_way = 0.95 * self.in_the_way + 0.05 * busy.min(1.0);
        let total = self.kernel.own_cpu_time_ns();
        let own = total - self.collector_ns;
        self.collector_ns = total;
        self.budget.passed(now, thread_ns, own, self.in_the_way);
        let due_ns = self.duty.pays(thread_ns);
        self.budget.spend_apart(0.0, 0.0, due_ns);
        (self.latencies).earn(self.budget.overhead() * thread_ns as f64);
        thread_ns
    }

    /// Pauses what costs the target time at each switch, for targets that switch threads very often.
    fn take_turns(&mut self, now: Time) -> Result<(), Error> {
        match self.duty.turn(now, self.phase_ns) {
            Turn::Stay => return Ok(()),
            Turn::Again => self.threads.end_phase(),
            Turn::Off => {
                let told = self.read_records()?;
                self.threads.compare_accounts(&self.kernel, told);
                let until = self.kernel.now();
                self.samplers.pause();
                // A stay that begins here would last until the next phase.
                self.read_records()?;
                let stays = self.threads.lose_sight(until);
                self.writer.push(stays)?;
                self.threads.end_phase();
            }
            Turn::On => match self.samplers.resume() {
                Ok(()) => self.threads.regain_sight(now),
                Err(error) => {
                    let detail =
                        format!("switches could not be recorded again after a pause: {error}");
                    self.lose("switches-not-recorded", 1, detail)?;
                }
            },
        }
        self.phase_ns = 0;
        Ok(())
    }

    /// Opens the samplers of threads anew where nothing was heard of a target that used `thread_ns` of
    /// CPU time since the last tick: see [`Silence`].
    fn listen(&mut self, thread_ns: u64) -> Result<(), Error> {
        if !self.samplers.stop_in_pauses() || !self.duty.is_on() {
            return Ok(());
        }
        let Some(silent_ns) = self.silence.passed(thread_ns, self.budget.period_ns()) else {
            return Ok(());
        };
        let threads = self.threads.processes().into_iter();
        let threads = threads.flat_map(|pid| self.kernel.threads(pid.0).unwrap_or_default());
        if self.samplers.reopen(threads) > 0 {
            let detail = format!(
                "no sample came for {} ms of the target's CPU time: it was in the kernel, or the kernel had lost its samplers, which were opened anew",
                silent_ns / 1_000_000
            );
            self.lose("samplers-reopened", 1, detail)?;
        }
        Ok(())
    }

    /// Shortens the period where many threads live for less than it: their samplers begin with a whole
    /// period each, so that none of them would ever be sampled. And where switches are so dear that the
    /// samplers are seldom on: then each moment of that should give more. What it costs more is made up
    /// for by pauses.
    fn shorten_period(&mut self) {
        let unsampled = self.threads.unsampled();
        let short_lives = unsampled.threads >= SHORT_LIVES && unsampled.share() >= SHORT_SHARE;
        if self.budget.chooses_period()
            && self.duty.is_on()
            && (short_lives || self.duty.switches_are_dear())
            && let Some(period_ns) = self.samplers.refine()
        {
            self.budget.shorten_period(period_ns);
            self.duty.refined();
        }
    }

    /// Lengthens the period where the target works in turns with others: see `budget::IN_TURNS`.
    fn lengthen_period(&mut self) {
        if self.budget.chooses_period()
            && !self.budget.samples_in_turns()
            && self.duty.works_in_turns()
            && self.samplers.coarsen(self.budget.period_in_turns_ns())
        {
            self.budget.sample_in_turns();
        }
    }

    fn unguarded(&mut self, reason: Unguarded) -> Result<(), Error> {
        let detail = match reason {
            Unguarded::Gone => return Ok(()),
            Unguarded::TooMany => {
                "more threads are guarded than the guard keeps; the others are not watched"
            }
            Unguarded::NoGuard => {
                "nothing is watched any more: the guard, a process of linewise's own, was stopped or ended by somebody, and a thread that no guard answers for would stand still"
            }
            Unguarded::Forbidden => {
                "threads that may not be traced are not watched, because a trap could end them on this hypervisor: run as root, set kernel.yama.ptrace_scope to 0, or end the debugger that has them; `--guard off` watches them all the same"
            }
            Unguarded::Signals => {
                "threads that get many signals are not watched, because guarding them costs a switch for each signal; `--guard off` watches them all the same, at the risk that a trap ends them on this hypervisor"
            }
        };
        self.lose("threads-not-guarded", 1, detail.to_owned())
    }

    /// What the guard tells; see [`Guard::raw_fd`].
    pub(crate) fn guard_fd(&mut self) -> Option<RawFd> {
        self.watcher.guard()?.raw_fd()
    }

    /// Listens to the guard.
    pub(crate) fn hear_guard(&mut self) -> Result<(), Error> {
        let Some(guard) = self.watcher.guard() else {
            return Ok(());
        };
        for news in guard.news() {
            let now = self.kernel.now();
            match news {
                News::Busy(tid) => {
                    self.watcher.disarm(Tid(tid));
                    if let Some(reuse) = &mut self.reuse {
                        reuse.forget(Tid(tid), now);
                    }
                    if let Some(flow) = &mut self.flow {
                        flow.forget(Tid(tid), now);
                    }
                    if let Some(guard) = self.watcher.guard() {
                        guard.let_go(tid);
                    }
                    self.unguarded(Unguarded::Signals)?;
                }
                News::Ended => {
                    self.take_down(now, true)?;
                    self.take_down_flow(now, true);
                    self.unguarded(Unguarded::NoGuard)?;
                }
            }
        }
        Ok(())
    }

    /// Takes down what is armed and lets the target go its own way.
    pub(crate) fn release(&mut self) -> Result<(), Error> {
        self.stop();
        let now = self.kernel.now();
        self.take_down(now, true)?;
        self.take_down_flow(now, true);
        self.watcher.release();
        match self.watcher.held_back() {
            0 => Ok(()),
            held_back => self.lose(
                "traps-without-reason",
                held_back,
                "the hypervisor delivered traps without their reason; the signals that would have ended the target were held back".to_owned(),
            ),
        }
    }

    fn read_maps(&mut self, now: Time) -> Result<(), Error> {
        for pid in std::mem::take(&mut self.mapped_lately) {
            let rows = self.maps.read(&self.kernel, pid, now);
            self.writer.push(rows)?;
        }
        Ok(())
    }

    fn latency(&mut self, row: Result<Option<Latency>, LatencyError>) -> Result<(), Error> {
        match row {
            Ok(row) => Ok(self.writer.push(row)?),
            Err(error) => self.lose("latency-not-measured", 1, error.to_string()),
        }
    }
}

fn fill(sample: &mut Sample, access: &Access, origin: AddressOrigin) {
    sample.class = SampleClass::Access;
    sample.access_ip = Address(access.ip);
    sample.address = Address(access.address);
    sample.size = access.size;
    sample.operation = Some(access.operation);
    sample.locked = access.locked;
    sample.origin = Some(origin);
}

#[cfg(test)]
mod flow_tests;
