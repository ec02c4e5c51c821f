//! Following the target: its threads, where they run, their stacks and mappings.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use linewise_machine::procfs::Mapping;
use linewise_recording::{
    Address, CpuId, Map, MapKind, Pid, SharedMemory, Stack, StackId, Switch, Thread, Tid, Time,
};

use crate::kernel::{Clocks, Processes};
use crate::target::account::{Account, scaled};
use crate::target::build_id::build_id;

/// Stays recorded a second, at most; CPU times are summed up whether or not they are recorded.
const STAYS_PER_SECOND: u64 = 5_000;
/// Distinct call chains kept; later ones are recorded as unknown.
const STACKS: usize = 100_000;
/// Threads that are known at once; beyond, those that ended without a sample are forgotten.
const MOST_THREADS: usize = 20_000;
/// A thread counts as active this long after it was last seen on a CPU.
const ACTIVE_NS: u64 = 300_000_000;
/// A program that a thread executes sooner than this was what began it: a shell's child, the launcher.
const WORTH_A_NAME_NS: u64 = 10_000_000;
/// Programs of one thread that are named beside its last.
const EARLIER: usize = 3;
/// Of more threads the kernel is not asked what it counted until the end.
const MOST_ASKED: usize = 100;
/// What it takes to ask of one.
const ASKING_NS: u64 = 10_000;
/// A count that is read so much later than what was told is not compared with it.
const LATE_NS: u64 = 1_000_000;

#[derive(Debug)]
struct ThreadState {
    row: Thread,
    on_cpu: Option<(CpuId, Time)>,
    /// How often it left a CPU in this phase of the recording and in the one before, as far as that was told.
    stays: [u64; 2],
    last_seen: Time,
    /// The kernel no longer knows it, though its end may not have been told yet.
    gone: bool,
    ended: bool,
    sampled: bool,
    /// The programs that it ran before it executed the one that it has its name of.
    earlier: Vec<String>,
    account: Option<Account>,
    /// Whether it was told where it is since switches are: then all that it does is.
    in_sight: bool,
}

impl ThreadState {
    /// Whether what the kernel counts of the thread may be compared with what was told `delay_ns` before: of a stay under way the
    /// count lacks up to a tick, and what ran meanwhile is counted, but was not told yet.
    fn is_comparable(&self, delay_ns: u64) -> bool {
        self.in_sight && self.on_cpu.is_none() && delay_ns <= LATE_NS
    }

    /// The CPU time that switches told until `told`.
    fn told_ns(&self, told: Time) -> u64 {
        let under_way = self.on_cpu.map_or(0, |(_, since)| told.since(since));
        self.row.cpu_time_ns + under_way
    }

    /// The CPU time of the thread, of which switches told `share`: by the kernel's count as far as it was asked for.
    fn cpu_time_ns(&self, share: f64, now: Time) -> u64 {
        let told_ns = self.row.cpu_time_ns;
        let end = if self.ended { self.row.end } else { now };
        match &self.account {
            Some(account) if share < 1.0 => account.cpu_time_ns(told_ns, share, end),
            _ => scaled(told_ns, share),
        }
    }
}

/// Threads that ended without a sample, because they used less CPU time than a sampler's period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unsampled {
    /// How many they are.
    pub threads: u64,
    /// CPU time of all of them, ns.
    pub cpu_ns: u64,
    /// CPU time of all threads of the target meanwhile, ns.
    pub of_ns: u64,
}

impl Unsampled {
    /// Their part of the target's CPU time, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        self.cpu_ns as f64 / self.of_ns.max(1) as f64
    }

    /// The CPU time of one of them on average, ns.
    pub(crate) fn life_ns(&self) -> u64 {
        self.cpu_ns / self.threads.max(1)
    }
}

/// The threads of the target.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    threads: HashMap<Tid, ThreadState>,
    stays_this_second: (u64, u64),
    /// Stays that were not recorded.
    pub(crate) stays_thinned: u64,
    cpu_ns: u64,
    unsampled: Unsampled,
    /// Threads without a row: they ended without a sample, and there were too many.
    pub(crate) forgotten: u64,
    /// Whose account was asked for last, where they are many.
    asked_last: Option<Tid>,
    /// When accounts are asked for again.
    accounts_due: Time,
    /// Whether accounts are compared with what is told.
    compares: bool,
    /// When that was done last.
    compared: Time,
    /// Whether switches are not told now.
    blind: bool,
}

impl Threads {
    /// None yet. `compares`: switches are told of all threads without a gap, so that what the kernel counts may be compared
    /// with them.
    pub(crate) fn new(compares: bool) -> Self {
        Self {
            compares,
            ..Self::default()
        }
    }

    /// A thread began or was found.
    pub(crate) fn found(&mut self, pid: Pid, tid: Tid, time: Time, name: Option<String>) {
        let state = self.threads.entry(tid).or_insert_with(|| ThreadState {
            row: Thread {
                pid,
                tid,
                name: String::new(),
                start: time,
                end: time,
                cpu_time_ns: 0,
                stack_low: Address(0),
                stack_high: Address(0),
            },
            on_cpu: None,
            stays: [0; 2],
            last_seen: time,
            gone: false,
            ended: false,
            sampled: false,
            earlier: Vec::new(),
            account: None,
            in_sight: false,
        });
        state.row.pid = pid;
        if let Some(name) = name {
            state.row.name = name;
        }
    }

    /// A thread executed another program: what it did before keeps its name, if that was seen to be more than to begin it.
    pub(crate) fn executed(&mut self, pid: Pid, tid: Tid, time: Time, name: String) {
        if let Some(state) = self.threads.get_mut(&tid)
            && state.sampled
            && time.since(state.row.start) >= WORTH_A_NAME_NS
            && state.row.name != name
            && state.earlier.len() < EARLIER
        {
            state.earlier.push(state.row.name.clone());
        }
        self.found(pid, tid, time, Some(name));
    }

    /// A new thread begins with the name of the thread that made it.
    pub(crate) fn forked(&mut self, pid: Pid, tid: Tid, parent: Pid, time: Time) {
        let name = self
            .threads
            .get(&Tid(pid.0))
            .or_else(|| self.threads.get(&Tid(parent.0)))
            .map(|state| state.row.name.clone());
        self.threads.remove(&tid);
        self.found(pid, tid, time, name);
        if let Some(state) = self.threads.get_mut(&tid) {
            state.in_sight = !self.blind;
        }
        self.open_account(tid, 0, time);
    }

    /// The kernel had counted so much of a thread when what it did before `told` had been told.
    fn open_account(&mut self, tid: Tid, first_ns: u64, told: Time) {
        if let Some(state) = self.threads.get_mut(&tid) {
            let in_sight = self.compares && state.in_sight;
            state.account = Some(Account::new(first_ns, state.told_ns(told), told, in_sight));
        }
    }

    /// Asks the kernel what it counted of the threads that were found. What they did before `told` was told.
    pub(crate) fn open_accounts(&mut self, kernel: &impl Processes, told: Time) {
        let found = self.threads.iter();
        let found = found.filter(|(_, state)| state.account.is_none());
        let found: Vec<(Pid, Tid)> = found.map(|(&tid, state)| (state.row.pid, tid)).collect();
        for (pid, tid) in found {
            let first_ns = kernel.thread_cpu_time_ns(pid.0, tid.0);
            self.open_account(tid, first_ns.unwrap_or(0), told);
        }
    }

    /// Whether the kernel is to be asked what it counted, so often that it takes a thousandth of a CPU: of a thread that ends the
    /// rest is not known.
    pub(crate) fn accounts_are_due(&self, now: Time) -> bool {
        now >= self.accounts_due && self.alive() <= MOST_ASKED
    }

    /// Asks all threads that are alive, as [`Threads::accounts_are_due`].
    pub(crate) fn read_due_accounts(&mut self, kernel: &(impl Processes + Clocks), now: Time) {
        const LEAST_NS: u64 = 20_000_000;
        let alive = self.alive() as u64;
        self.read_accounts(kernel, now, MOST_ASKED);
        self.accounts_due = Time(now.0 + LEAST_NS.max(1000 * ASKING_NS * alive));
    }

    /// Whether what was counted may be compared with what was told in this phase, at its beginning and its end: that takes a hundredth of
    /// a CPU at most.
    fn may_compare(&self, now: Time) -> bool {
        let alive = self.alive();
        self.compares
            && alive <= MOST_ASKED
            && now.since(self.compared) >= 200 * ASKING_NS * alive as u64
    }

    /// Asks the kernel what it counted at the end of a phase in which switches were told.
    pub(crate) fn compare_accounts(&mut self, kernel: &(impl Processes + Clocks), now: Time) {
        if self.may_compare(now) {
            self.read_accounts(kernel, now, MOST_ASKED);
            self.compared = now;
        }
    }

    /// Asks the kernel what it counted of the threads that are alive, of `most` of them, in turns. What they did before `now` was told.
    pub(crate) fn read_accounts(
        &mut self,
        kernel: &(impl Processes + Clocks),
        now: Time,
        most: usize,
    ) {
        let alive = self.threads.iter();
        let alive = alive.filter(|(_, state)| !state.ended && state.account.is_some());
        let mut tids: Vec<Tid> = alive.map(|(&tid, _)| tid).collect();
        if tids.len() > most {
            tids.sort_unstable();
            let next = tids.partition_point(|&tid| Some(tid) <= self.asked_last);
            tids.rotate_left(next);
            tids.truncate(most);
            self.asked_last = tids.last().copied();
        }
        for tid in tids {
            let Some(state) = self.threads.get_mut(&tid) else {
                continue;
            };
            let counted = kernel.thread_cpu_time_ns(state.row.pid.0, tid.0);
            let told_ns = state.told_ns(now);
            let comparable = self.compares && state.is_comparable(kernel.now().since(now));
            if let (Some(account), Some(counted)) = (&mut state.account, counted) {
                account.read(counted, told_ns, now, comparable);
            }
        }
    }

    /// A thread was interrupted on a CPU with this stack pointer.
    pub(crate) fn sampled(
        &mut self,
        kernel: &impl Processes,
        (pid, tid): (Pid, Tid),
        time: Time,
        sp: Address,
    ) {
        if !self.threads.contains_key(&tid) {
            self.found(pid, tid, time, kernel.thread_name(pid.0, tid.0));
        }
        if let Some(state) = self.threads.get_mut(&tid) {
            state.last_seen = state.last_seen.max(time);
            state.sampled = true;
            if sp.0 != 0 {
                let row = &mut state.row;
                row.stack_low = if row.stack_low.0 == 0 {
                    sp
                } else {
                    row.stack_low.min(sp)
                };
                row.stack_high = row.stack_high.max(Address(sp.0.saturating_add(1)));
            }
        }
    }

    /// A thread came to or left a CPU; the stay to record, if one ended.
    pub(crate) fn switched(
        &mut self,
        tid: Tid,
        cpu: CpuId,
        time: Time,
        out: bool,
    ) -> Option<Switch> {
        // Of one that has told its end the kernel tells no more when it leaves its CPU for good.
        let state = self.threads.get_mut(&tid).filter(|state| !state.ended)?;
        state.last_seen = state.last_seen.max(time);
        state.in_sight = true;
        if !out {
            state.on_cpu = Some((cpu, time));
            return None;
        }
        let (cpu, start) = state.on_cpu.take()?;
        let time = time.max(start);
        let stay = time.since(start);
        state.stays[0] += 1;
        state.row.cpu_time_ns += stay;
        self.cpu_ns += stay;
        let second = time.0 / 1_000_000_000;
        if self.stays_this_second.0 != second {
            self.stays_this_second = (second, 0);
        }
        self.stays_this_second.1 += 1;
        if self.stays_this_second.1 > STAYS_PER_SECOND {
            self.stays_thinned += 1;
            return None;
        }
        Some(Switch {
            tid,
            cpu,
            start,
            end: time,
        })
    }

    /// Cuts every stay under way at `now`, so that CPU times are current.
    pub(crate) fn cut(&mut self, now: Time) -> Vec<Switch> {
        let running: Vec<(Tid, CpuId)> = self
            .threads
            .iter()
            .filter_map(|(&tid, state)| state.on_cpu.map(|(cpu, _)| (tid, cpu)))
            .collect();
        let mut stays = Vec::new();
        for (tid, cpu) in running {
            stays.extend(self.switched(tid, cpu, now, true));
            if let Some(state) = self.threads.get_mut(&tid) {
                state.on_cpu = Some((cpu, now));
            }
        }
        stays
    }

    /// Switches are not told from `now` on: ends every stay under way, since nobody knows for how much
    /// longer it lasts.
    pub(crate) fn lose_sight(&mut self, now: Time) -> Vec<Switch> {
        let stays = self.cut(now);
        for state in self.threads.values_mut() {
            state.on_cpu = None;
        }
        self.lose_track();
        self.blind = true;
        stays
    }

    /// Not all that threads did was told: what was is not compared with accounts.
    pub(crate) fn lose_track(&mut self) {
        for state in self.threads.values_mut() {
            state.in_sight = false;
            if let Some(account) = &mut state.account {
                account.lose_sight();
            }
        }
    }

    /// Switches are told again from `now` on. Accounts are asked for as soon as most threads have shown where they are.
    pub(crate) fn regain_sight(&mut self, now: Time) {
        const SHOWING_NS: u64 = 5_000_000;
        self.blind = false;
        if self.may_compare(now) {
            self.accounts_due = Time(now.0 + SHOWING_NS);
        }
    }

    /// A thread was seen on a CPU while switches are told. It is there since a moment ago if its coming
    /// was not told: it came before.
    pub(crate) fn seen_on(&mut self, tid: Tid, cpu: CpuId, time: Time) {
        if let Some(state) = self.threads.get_mut(&tid).filter(|it| !it.ended) {
            state.on_cpu.get_or_insert((cpu, time));
            state.in_sight = true;
        }
    }

    /// A thread ended.
    pub(crate) fn ended(&mut self, tid: Tid, time: Time) -> Option<Switch> {
        let cpu = self.threads.get(&tid)?.on_cpu.map(|(cpu, _)| cpu);
        let stay = cpu.and_then(|cpu| self.switched(tid, cpu, time, true));
        if let Some(state) = self.threads.get_mut(&tid) {
            state.ended = true;
            state.row.end = time;
            if !state.sampled {
                // What one used that lived in a pause was not told: it would make the others look shorter.
                self.unsampled.threads += u64::from(state.row.cpu_time_ns > 0);
                self.unsampled.cpu_ns += state.row.cpu_time_ns;
                if self.threads.len() > MOST_THREADS {
                    self.threads.remove(&tid);
                    self.forgotten += 1;
                }
            }
        }
        stay
    }

    /// The kernel said that a thread is gone: it is not active from now on. Its end is told later,
    /// by the record that is on its way.
    pub(crate) fn gone(&mut self, tid: Tid) {
        if let Some(state) = self.threads.get_mut(&tid) {
            state.gone = true;
        }
    }

    /// When a thread ended that was there at `since`; `now` if that was not seen.
    pub(crate) fn end_of(&self, tid: Tid, since: Time, now: Time) -> Time {
        let state = self.threads.get(&tid);
        let ended = state.filter(|it| it.ended && it.row.end >= since);
        ended.map_or(now, |state| state.row.end)
    }

    /// The threads that ended without a sample.
    pub(crate) fn unsampled(&self) -> Unsampled {
        Unsampled {
            of_ns: self.cpu_ns,
            ..self.unsampled
        }
    }

    /// Where a thread runs, while it does.
    pub(crate) fn cpu_of(&self, tid: Tid) -> Option<CpuId> {
        let state = self.threads.get(&tid)?;
        state.on_cpu.map(|(cpu, _)| cpu)
    }

    /// How often a thread left a CPU in this phase and the one before.
    pub(crate) fn lately_stays(&self, tid: Tid) -> u64 {
        let state = self.threads.get(&tid);
        state.map_or(0, |state| state.stays.iter().sum())
    }

    /// A phase in which switches were told is over.
    pub(crate) fn end_phase(&mut self) {
        for state in self.threads.values_mut() {
            state.stays = [0, state.stays[0]];
        }
    }

    /// The threads of a process that ran lately.
    pub(crate) fn active(&self, pid: Pid, now: Time) -> Vec<Tid> {
        let mut active: Vec<Tid> = self
            .threads
            .iter()
            .filter(|(_, state)| {
                !state.ended
                    && !state.gone
                    && state.row.pid == pid
                    && (state.on_cpu.is_some() || now.since(state.last_seen) < ACTIVE_NS)
            })
            .map(|(&tid, _)| tid)
            .collect();
        active.sort_unstable();
        active
    }

    /// How many threads are known, alive or not.
    pub(crate) fn known(&self) -> usize {
        self.threads.len()
    }

    /// How many threads are known and alive.
    pub(crate) fn alive(&self) -> usize {
        self.threads.values().filter(|state| !state.ended).count()
    }

    /// The process of a thread.
    pub(crate) fn process_of(&self, tid: Tid) -> Option<Pid> {
        self.threads.get(&tid).map(|state| state.row.pid)
    }

    /// The processes that are alive.
    pub(crate) fn processes(&self) -> HashSet<Pid> {
        self.threads
            .values()
            .filter(|state| !state.ended)
            .map(|state| state.row.pid)
            .collect()
    }

    /// The rows; threads still alive end at `now`. Switches were told for `share` of the time: what the kernel was not
    /// asked for is scaled up from that.
    pub(crate) fn rows(&self, now: Time, share: f64) -> Vec<Thread> {
        let mut rows: Vec<Thread> = self
            .threads
            .values()
            .map(|state| {
                let mut row = state.row.clone();
                if !state.ended {
                    row.end = now;
                }
                row.cpu_time_ns = state.cpu_time_ns(share, now);
                let earlier = state.earlier.iter().chain([&row.name]);
                row.name = (earlier.map(String::as_str).collect::<Vec<_>>()).join(", then ");
                row
            })
            .collect();
        rows.sort_by_key(|row| (row.start, row.tid));
        rows
    }
}

/// Call chains, each once.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    /// By a hash of the chain, seeded anew in each run: of so few chains hardly ever two have the same, and
    /// the chains themselves would take tens of megabytes.
    ids: HashMap<u64, StackId>,
    seed: RandomState,
    /// The chains in the order of their ids, if somebody asks for them.
    chains: Option<Vec<Box<[u64]>>>,
    fresh: Vec<Stack>,
    /// Chains that were not kept.
    pub(crate) dropped: u64,
}

impl Stacks {
    /// The id of a chain; 0 is the chain that is not known.
    pub(crate) fn id(&mut self, chain: &[u64]) -> StackId {
        let key = self.seed.hash_one(chain);
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        if self.ids.len() >= STACKS {
            self.dropped += 1;
            return StackId(0);
        }
        let id = StackId(self.ids.len() as u32 + 1);
        self.ids.insert(key, id);
        if let Some(chains) = &mut self.chains {
            chains.push(chain.into());
        }
        self.fresh.push(Stack {
            id,
            frames: chain.iter().map(|&a| Address(a)).collect(),
        });
        id
    }

    /// Remembers the chains from now on, for [`Stacks::frames`]. Call it before there are any.
    pub(crate) fn keep_chains(&mut self) {
        debug_assert!(self.ids.is_empty());
        self.chains = Some(Vec::new());
    }

    /// The chain of an id; empty if it is not known, or chains are not remembered.
    pub(crate) fn frames(&self, id: StackId) -> Vec<u64> {
        let place = (id.0 as usize).checked_sub(1);
        let chain = place.and_then(|place| self.chains.as_ref()?.get(place));
        chain.map_or_else(Vec::new, |chain| chain.to_vec())
    }

    /// Words that are held for chains: all memory that grows with them.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let fresh = self.fresh.iter().map(|stack| stack.frames.len());
        let chains = self.chains.iter().flatten().map(|chain| chain.len());
        2 * self.ids.len() + fresh.chain(chains).sum::<usize>()
    }

    /// The chains that are new since the last call.
    pub(crate) fn fresh(&mut self) -> Vec<Stack> {
        std::mem::take(&mut self.fresh)
    }
}

/// The mappings of the target, each recorded once.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    /// Start, end, inode of shared memory and path.
    seen: HashMap<Pid, HashSet<(u64, u64, u64, String)>>,
    /// Those that processes may share.
    shared: SharedMemory,
    /// Their rows that may be written to, for who is forked.
    to_inherit: HashMap<Pid, Vec<Map>>,
    /// The build ids of the files with code, by path.
    build_ids: HashMap<Pid, HashMap<String, String>>,
}

impl Maps {
    /// Forgets what was seen of processes for which `lives` says no.
    pub(crate) fn keep(&mut self, lives: impl Fn(Pid) -> bool) {
        self.seen.retain(|&pid, _| lives(pid));
        self.to_inherit.retain(|&pid, _| lives(pid));
        self.build_ids.retain(|&pid, _| lives(pid));
        self.shared.keep(lives);
    }

    /// The memory that processes share.
    pub(crate) fn shared(&self) -> &SharedMemory {
        &self.shared
    }

    /// A process was forked: the shared mappings that it has from its parent.
    pub(crate) fn forked(&mut self, parent: Pid, child: Pid, time: Time) -> Vec<Map> {
        self.shared.forked(parent, child);
        match self.build_ids.get(&parent).cloned() {
            Some(ids) => self.build_ids.insert(child, ids),
            None => self.build_ids.remove(&child),
        };
        let Some(rows) = self.to_inherit.get(&parent) else {
            self.to_inherit.remove(&child);
            return Vec::new();
        };
        let rows: Vec<Map> = rows
            .iter()
            .map(|row| Map {
                pid: child,
                time,
                ..row.clone()
            })
            .collect();
        self.to_inherit.insert(child, rows.clone());
        rows
    }

    /// The mappings of a process that are new. Empty when the process is gone.
    pub(crate) fn read(&mut self, kernel: &impl Processes, pid: Pid, time: Time) -> Vec<Map> {
        let Ok(mappings) = kernel.maps(pid.0) else {
            return Vec::new();
        };
        let seen = self.seen.entry(pid).or_default();
        let inode = |mapping: &Mapping| match mapping.shared {
            true => mapping.inode,
            false => 0,
        };
        let has_code = |it: &&Mapping| it.executable && it.path.starts_with('/');
        let programs: HashSet<String> = (mappings.iter().filter(has_code))
            .map(|mapping| mapping.path.clone())
            .collect();
        let ids = self.build_ids.entry(pid).or_default();
        let rows: Vec<Map> = mappings
            .into_iter()
            .filter(|mapping| mapping.readable || mapping.writable || mapping.executable)
            .filter(|it| seen.insert((it.start, it.end, inode(it), it.path.clone())))
            .map(|mapping| Map {
                pid,
                time,
                start: Address(mapping.start),
                end: Address(mapping.end),
                offset: mapping.offset,
                executable: mapping.executable,
                writable: mapping.writable,
                kind: match mapping.path.as_str() {
                    "[heap]" => MapKind::Heap,
                    path if path.starts_with("[stack") => MapKind::Stack,
                    path if path.starts_with('/') || path == "[vdso]" => MapKind::File,
                    _ => MapKind::Anonymous,
                },
                build_id: match programs.contains(&mapping.path) {
                    true => (ids.entry(mapping.path.clone()))
                        .or_insert_with(|| build_id(kernel, pid, &mapping.path))
                        .clone(),
                    false => String::new(),
                },
                path: mapping.path,
                device: mapping.shared.then_some(mapping.device),
                inode: mapping.shared.then_some(mapping.inode),
            })
            .collect();
        for row in &rows {
            self.shared.add(row);
            if row.inode.is_some() && row.writable {
                self.to_inherit.entry(pid).or_default().push(row.clone());
            }
        }
        rows
    }

    /// A mapping told by the kernel, for a process that may be gone before it can be read.
    pub(crate) fn told(
        &mut self,
        kernel: &impl Processes,
        (pid, time): (Pid, Time),
        (start, length): (u64, u64),
        offset: u64,
        path: &str,
    ) -> Option<Map> {
        let end = start.saturating_add(length);
        let seen = self.seen.entry(pid).or_default();
        // What the kernel tells of as `//anon` is no file, and has no name in `/proc`, where it is found.
        let is_file = path.starts_with('/') && !path.starts_with("//");
        if !is_file || !seen.insert((start, end, 0, path.to_owned())) {
            return None;
        }
        // A file that is mapped again may have been rebuilt since.
        let build_id = build_id(kernel, pid, path);
        let ids = self.build_ids.entry(pid).or_default();
        ids.insert(path.to_owned(), build_id.clone());
        Some(Map {
            pid,
            time,
            start: Address(start),
            end: Address(end),
            offset,
            executable: true,
            writable: false,
            kind: MapKind::File,
            path: path.to_owned(),
            build_id,
            device: None,
            inode: None,
        })
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
