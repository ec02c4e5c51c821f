//! Following objects as part of a recording: when it is paid for, and its rows.

use linewise_recording::{Address, CpuId, History, HistoryAccess, HistoryOutcome, Tid, Time};

use super::Collector;
use super::flow_recorder::FlowRecorder;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::options::Wanted;
use crate::sources::timer::flow::{Closed, HeapEventKind, LIVES, ObjectWatch, Observed, SiteKey};
use crate::sources::timer::watch::Refused;

/// Rounds of the heap recorder after which nothing more is told of the time before.
const LATE: u32 = 2;
/// Blocks at a watched address that the heap recorder tells of, whatever part of the others it tells of: those that
/// lived before it was armed in all threads, and one more, which ends the last.
const TOLD: u32 = 2 * LIVES as u32;
/// Places that a row of table `histories` tells of.
const PLACES_OF_ROW: usize = 2;

impl<K: Kernel> Collector<K> {
    /// Follows objects, too.
    pub(crate) fn follow_objects(&mut self, flow: FlowRecorder<K>) {
        if let Some(heap) = &mut self.heap {
            heap.observe();
            self.flow = Some(flow);
            self.stacks.keep_chains();
        }
    }

    /// Takes in what the heap recorder told in this round, and writes the histories that are complete.
    pub(super) fn read_flow(&mut self) -> Result<(), Error> {
        let (Some(mut flow), Some(heap)) = (self.flow.take(), &mut self.heap) else {
            return Ok(());
        };
        let observed = heap.observed();
        for observed in observed {
            match observed {
                Observed::Touched(site, offset) => {
                    if self.is_wanted(&mut flow, &site) {
                        flow.sites.touched(site, offset);
                    }
                }
                Observed::Event(event) => {
                    let named = flow.wanted != Wanted::Most;
                    let wanted = match &event.kind {
                        HeapEventKind::Allocated(site) => named && self.is_wanted(&mut flow, site),
                        HeapEventKind::Freed => false,
                    };
                    flow.sites.told(&event, wanted, &mut self.chance);
                    flow.told(&event);
                }
            }
        }
        for (_, rounds) in &mut flow.closed {
            *rounds += 1;
        }
        while flow
            .closed
            .first()
            .is_some_and(|(_, rounds)| *rounds >= LATE)
        {
            let (closed, _) = flow.closed.remove(0);
            self.cut(&mut flow, closed)?;
        }
        self.flow = Some(flow);
        Ok(())
    }

    /// Whether objects of a site are to be followed.
    fn is_wanted(&self, flow: &mut FlowRecorder<K>, site: &SiteKey) -> bool {
        let Wanted::Named(name) = &flow.wanted else {
            return true;
        };
        let label = self.heap.as_ref().and_then(|heap| heap.label(site.label));
        if label.is_some_and(|label| label == name) {
            return true;
        }
        let Some(function) = &mut flow.function else {
            return false;
        };
        function.is_on(&self.kernel, site.pid, site.stack, || {
            self.stacks.frames(site.stack)
        })
    }

    /// Takes down the watch if it has seen what it can see.
    pub(super) fn take_down_flow(&mut self, now: Time, all: bool) {
        let watch = match &mut self.flow {
            Some(flow) => flow.watch.take_if(|watch| watch.look(now) || all),
            None => None,
        };
        let Some(watch) = watch else { return };
        let closed = watch.close();
        if let Some(heap) = &self.heap {
            heap.follow(0, 0);
        }
        // More than there are CPUs do not run at a time.
        let running = closed.threads.len().min(self.cpus.len());
        let armed_ns = closed.armed_ns() as f64 * running as f64 * self.in_the_way.min(1.0);
        let stays: f64 = closed
            .threads
            .iter()
            .map(|&tid| self.stays_within(tid, closed.armed_ns(), now))
            .sum();
        let before = self.budget.watched_ns();
        self.budget
            .spend(closed.traps() as f64 * self.budget.trap_ns());
        let places = closed.choice.offsets.len() as u32;
        self.budget.was_armed(armed_ns as u64, stays, places);
        if let Some(flow) = &mut self.flow {
            flow.spent_ns += self.budget.watched_ns() - before;
            flow.closed.push((closed, 0));
        }
    }

    /// Watches the next object, if that can be paid for.
    pub(super) fn arm_flow(&mut self, now: Time) -> Result<(), Error> {
        let Some(flow) = &mut self.flow else {
            return Ok(());
        };
        if flow.watch.is_some() || flow.registers == 0 || !self.budget.affords(4) {
            return Ok(());
        }
        let Some(choice) = flow.sites.next(flow.registers, &mut self.chance) else {
            return Ok(());
        };
        let pid = choice.site.pid;
        let Ok(threads) = self.kernel.threads(pid.0) else {
            flow.sites.gone(pid);
            return Ok(());
        };
        let mut chosen: Vec<Tid> = threads.iter().copied().map(Tid).collect();
        if chosen.len() > crate::sources::timer::flow::THREADS {
            let active = self.threads.active(pid, now);
            chosen.sort_by_key(|tid| !active.contains(tid));
            flow.unwatched = flow
                .unwatched
                .max(chosen.len() - crate::sources::timer::flow::THREADS);
            chosen.truncate(crate::sources::timer::flow::THREADS);
        }
        if let Some(heap) = &self.heap {
            heap.follow(choice.address, TOLD);
        }
        let watcher = &mut self.watcher;
        let armed = ObjectWatch::arm(self.kernel.clone(), choice, &chosen, |tid| {
            watcher.protect(tid)
        });
        // A thread that began meanwhile is not watched, and its records come too late to tell.
        let grown = self.kernel.threads(pid.0).unwrap_or_default();
        match armed {
            Ok(watch) if grown.iter().all(|tid| threads.contains(tid)) => {
                let cost = watch.breakpoints() as f64 * self.budget.arming_ns();
                self.budget.spend(cost);
                flow.spent_ns += cost;
                flow.watch = Some(watch);
                return Ok(());
            }
            Ok(_) => {}
            Err(refused) if refused.is_gone() => {}
            Err(Refused::Unguarded(reason)) => self.unguarded(reason)?,
            Err(Refused::Kernel(error)) => self.lose(
                "flow-watch-refused",
                1,
                format!("the kernel refused a watchpoint for an object: {error}"),
            )?,
        }
        if let Some(heap) = &self.heap {
            heap.follow(0, 0);
        }
        Ok(())
    }

    /// The rows of a watch.
    fn cut(&mut self, flow: &mut FlowRecorder<K>, closed: Closed) -> Result<(), Error> {
        let choice = closed.choice.clone();
        let (mut whole, mut touched) = (0, Vec::new());
        for (life, traps) in closed.cut() {
            flow.histories += 1;
            match life.outcome {
                HistoryOutcome::Whole => whole += 1,
                HistoryOutcome::Hot => flow.others[0] += 1,
                HistoryOutcome::ThreadBegan => flow.others[1] += 1,
                HistoryOutcome::Unfinished => flow.others[2] += 1,
            }
            let label = (self.heap.as_ref())
                .and_then(|heap| heap.label(choice.site.label))
                .cloned()
                .unwrap_or_default();
            let first = flow.rows + 1;
            for places in choice.offsets.chunks(PLACES_OF_ROW) {
                flow.rows += 1;
                self.writer.push([History {
                    id: flow.rows,
                    pid: choice.site.pid,
                    address: Address(choice.address),
                    size: choice.site.size,
                    label: label.clone(),
                    stack: choice.site.stack,
                    allocated: life.allocated,
                    allocated_by: life.allocated_by,
                    freed: life.freed,
                    freed_by: life.freed_by,
                    offset: places[0],
                    other_offset: places.get(1).copied(),
                    outcome: life.outcome,
                }])?;
            }
            let mut accesses = Vec::new();
            for trap in traps {
                let record = &trap.record;
                let (access, likely) = self.access_before(record, choice.address + trap.offset);
                touched.push(trap.offset);
                let place = choice.offsets.iter().position(|it| *it == trap.offset);
                accesses.push(HistoryAccess {
                    history: first + (place.unwrap_or(0) / PLACES_OF_ROW) as u64,
                    time: Time(record.time),
                    tid: Tid(record.tid),
                    cpu: CpuId(record.cpu),
                    offset: trap.offset,
                    access_ip: Address(access.map_or(likely, |access| access.ip)),
                    operation: access.map(|access| access.operation),
                });
            }
            self.writer.push(accesses)?;
        }
        flow.whole += u64::from(whole);
        touched.sort_unstable();
        touched.dedup();
        flow.sites.watched(&choice, whole, &touched);
        Ok(())
    }

    /// Ends it: the last histories, and what was lost. The heap recorder is read once more before.
    pub(super) fn finish_flow(&mut self) -> Result<(), Error> {
        self.take_down_flow(self.kernel.now(), true);
        for _ in 0..LATE {
            self.read_heap(0)?;
        }
        let Some(flow) = self.flow.take() else {
            return Ok(());
        };
        if let Wanted::Named(name) = &flow.wanted
            && !flow.sites.found().0
        {
            let detail = format!(
                "no object was followed: nothing was allocated in a function `{name}`, and nothing was named so with linewise.h; functions that were inlined have no name here, and types are not known while the program runs: `linewise report` shows who allocates what"
            );
            return self.lose("flow-not-found", 1, detail);
        }
        if flow.whole == 0 {
            let detail = if flow.histories > 0 {
                "objects were watched, but none from its allocation to its end".to_owned()
            } else if flow.sites.found().1 {
                "no object was allocated where one was watched: the program hands out other addresses each time, or it ran too short".to_owned()
            } else {
                "no object was followed: of those that the program was seen to touch, none was freed".to_owned()
            };
            self.lose("flow-nothing-seen", 1, detail)?;
        }
        let reasons = [
            "objects that were touched more often than a watch can tell: their histories are not whole",
            "objects that lived when a thread began, which was not watched: their histories are not whole",
            "objects that outlived the watch: their histories are not whole",
        ];
        let whats = ["flow-hot", "flow-thread-began", "flow-unfinished"];
        for ((what, detail), count) in whats.into_iter().zip(reasons).zip(flow.others) {
            if count > 0 {
                self.lose(what, count, detail.to_owned())?;
            }
        }
        if flow.unwatched > 0 {
            let detail = "threads in which objects were not watched: a process has more than 16, and what the others do to objects is missing in their paths";
            self.lose(
                "flow-threads-unwatched",
                flow.unwatched as u64,
                detail.to_owned(),
            )?;
        }
        Ok(())
    }
}
