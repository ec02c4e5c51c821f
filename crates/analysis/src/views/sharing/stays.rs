//! What samples say of each line and thread: the time there, and where the thread was meanwhile.

use std::collections::{BTreeMap, HashMap, HashSet};

use linewise_recording::{
    Address, BlockedLoad, CpuId, Latency, Operation, Pid, RunInfo, Sample, SampleClass,
    SharedMemory, Switch, Tid, Time, Trap, Watch,
};

use super::super::curve::Curves;
use super::super::encounter::{Encounter, Stays, Touch};
use super::blocked::BlockedLoads;
use super::moments::Moments;
use super::phases::{Tracks, together};
use super::{Estimate, Place};
use crate::users::Goroutines;

/// Slice of the run in which a line counts as in use when it was sampled at all, ns.
const SLICE_NS: u64 = 250_000_000;

/// The tables that the view needs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// `run.json`.
    pub info: &'a RunInfo,
    /// Table `samples`.
    pub samples: &'a [Sample],
    /// Table `watches`.
    pub watches: &'a [Watch],
    /// Table `traps`.
    pub traps: &'a [Trap],
    /// Table `switches`.
    pub switches: &'a [Switch],
    /// Table `blocked_loads`.
    pub blocked_loads: &'a [BlockedLoad],
    /// Table `latencies`.
    pub latencies: &'a [Latency],
    /// Which memory processes share.
    pub shared: &'a SharedMemory,
    /// Which goroutines threads ran.
    pub(crate) goroutines: &'a Goroutines,
}

/// What the samples say of one thread at one line.
#[derive(Default)]
pub(super) struct Stay {
    pub(super) weight_ns: f64,
    pub(super) samples: u64,
    pub(super) by_cpu: HashMap<CpuId, f64>,
    /// Time under each curve: the latency may change while the program runs.
    pub(super) by_curve: BTreeMap<usize, f64>,
    /// Time and samples of each place.
    pub(super) places: HashMap<Touch, (f64, u64)>,
    /// Each sample, in their order.
    pub(super) seen: Vec<(Time, Touch)>,
    pub(super) moments: Moments,
    /// The thread while the line was in use, wherever it was.
    pub(super) running: Running,
}

impl Stay {
    fn add(&mut self, other: &Self) {
        self.weight_ns += other.weight_ns;
        self.samples += other.samples;
        add_each(&mut self.by_cpu, &other.by_cpu);
        for (&curve, weight) in &other.by_curve {
            *self.by_curve.entry(curve).or_default() += weight;
        }
        for (&touch, &(weight, samples)) in &other.places {
            let place = self.places.entry(touch).or_default();
            place.0 += weight;
            place.1 += samples;
        }
        for &(cpu, time) in &other.moments.at {
            self.moments.note(cpu, time);
        }
    }

    /// The share of its time at the line at instructions that only load.
    pub(super) fn share_of_loads(&self) -> f64 {
        let loads = (self.places.iter()).filter(|(touch, _)| touch.operation == Operation::Load);
        let loads: f64 = loads.map(|(_, &(weight, _))| weight).sum();
        loads / self.weight_ns.max(f64::MIN_POSITIVE)
    }

    /// Whether it reads and writes a word of the line without locking it: then each time waits for the one before, which
    /// takes as long where nobody else is at the line.
    pub(super) fn updates_plainly(&self) -> bool {
        let plain = || self.places.keys().filter(|it| !it.locked);
        let of = |what| plain().filter(move |it| it.operation == what);
        of(Operation::Update).next().is_some()
            || of(Operation::Store).any(|it| of(Operation::Load).any(|load| load.overlaps(it)))
    }

    /// Its locked instructions that take a good part of its time at the line.
    pub(super) fn locked_instructions(&self) -> usize {
        const PART: f64 = 0.1;
        let mut by_ip: BTreeMap<Address, f64> = BTreeMap::new();
        for (touch, (weight, _)) in self.places.iter().filter(|(touch, _)| touch.locked) {
            *by_ip.entry(touch.ip).or_default() += weight;
        }
        let much = |weight: &&f64| **weight >= PART * self.weight_ns;
        by_ip.values().filter(much).count()
    }

    /// Share of its running time that this thread, `tid`, is at the line, while that is in use and `other`
    /// runs on another CPU: while nobody is in its way there, it is through with its accesses sooner.
    pub(super) fn share_beside(&self, tid: Tid, other: Tid, on_cpus: &Stays<'_>) -> f64 {
        let share = self.weight_ns / self.running.weight_ns.max(1.0);
        let at_line = self.moments.beside(tid, other, on_cpus);
        let anywhere = self.running.moments.beside(tid, other, on_cpus);
        let more = if anywhere > 0.0 {
            at_line / anywhere
        } else {
            1.0
        };
        (share * more).min(1.0)
    }
}

/// What was sampled of a thread in one slice, wherever it was.
#[derive(Clone, Default)]
pub(super) struct Running {
    pub(super) weight_ns: f64,
    pub(super) samples: u64,
    /// Those whose address is not known.
    pub(super) unknown: u64,
    pub(super) moments: Moments,
}

/// By slice and thread.
pub(super) type RunningSlices = HashMap<(u64, Tid), Running>;

/// What the samples say of one line.
#[derive(Default)]
pub(super) struct LineStays {
    pub(super) threads: BTreeMap<Tid, Stay>,
    pub(super) by_cpu: HashMap<CpuId, f64>,
    pub(super) slices: HashSet<u64>,
    /// Time of all threads in the kernel, in futex calls on a word of the line, ns: only of a line with samples.
    pub(super) in_calls_ns: f64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    /// Lines that it stands for beyond itself.
    pub(super) more_lines: f64,
}

/// What the lines of a run have in common.
pub(super) struct Around<'a> {
    pub(super) curves: &'a Curves,
    pub(super) on_cpus: &'a Stays<'a>,
    pub(super) running: &'a RunningSlices,
    pub(super) tracks: &'a Tracks,
}

impl Around<'_> {
    /// How much of the time that the samples of `tid` at a line stand for `other` may be there, of all that it is there:
    /// less than 1 where they take turns.
    pub(super) fn together(
        &self,
        tid: Tid,
        other: Tid,
        line: Address,
        stays: &LineStays,
    ) -> Estimate {
        let stay = |tid| stays.threads.get(&tid);
        match (stay(tid), stay(other), self.tracks.get(&other)) {
            (Some(stay), Some(other), Some(track)) => {
                let share = other.samples as f64 / other.running.samples.max(1) as f64;
                together(&stay.seen, track, line, share)
            }
            _ => Estimate::exactly(1.0),
        }
    }
}

/// By process and line.
pub(super) type Lines = BTreeMap<(Pid, Address), LineStays>;

impl LineStays {
    /// Takes what was seen of another line as if it had been this one. [`Self::settle`] comes after the last.
    pub(super) fn add(&mut self, other: &Self) {
        self.first_ns = match self.slices.is_empty() {
            true => other.first_ns,
            false => self.first_ns.min(other.first_ns),
        };
        self.last_ns = self.last_ns.max(other.last_ns);
        self.slices.extend(&other.slices);
        self.in_calls_ns += other.in_calls_ns;
        add_each(&mut self.by_cpu, &other.by_cpu);
        for (&tid, stay) in &other.threads {
            self.threads.entry(tid).or_default().add(stay);
        }
    }

    /// Looks up what its threads did while the line was in use.
    pub(super) fn settle(&mut self, running: &RunningSlices) {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            let seen = self.running(tid, running);
            self.threads.entry(tid).or_default().running = seen;
        }
    }

    /// What was sampled of a thread while the line was in use.
    pub(super) fn running(&self, tid: Tid, running: &RunningSlices) -> Running {
        let mut sum = Running::default();
        for seen in self
            .slices
            .iter()
            .filter_map(|&slice| running.get(&(slice, tid)))
        {
            sum.weight_ns += seen.weight_ns;
            sum.samples += seen.samples;
            sum.unknown += seen.unknown;
            for &(cpu, time) in &seen.moments.at {
                sum.moments.note(cpu, time);
            }
        }
        sum
    }

    /// All access places of a line: sampled time, and traps of those that were only trapped. Most weight first.
    pub(super) fn places(&self, met: &HashMap<Tid, Encounter>) -> Vec<Place> {
        let mut places: BTreeMap<(Tid, Touch), Place> = BTreeMap::new();
        let mut at = |tid: Tid, touch: Touch, weight: f64, samples: u64, traps: u64| {
            let place = places.entry((tid, touch)).or_insert(Place {
                tid,
                touch,
                weight: 0.0,
                samples: 0,
                traps: 0,
            });
            place.weight += weight;
            place.samples += samples;
            place.traps += traps;
        };
        for (&tid, stay) in &self.threads {
            for (&touch, &(weight_ns, samples)) in &stay.places {
                at(tid, touch, weight_ns, samples, 0);
            }
        }
        for (&tid, encounter) in met {
            for (&touch, &count) in &encounter.accesses {
                at(tid, touch, 0.0, 0, count.into());
            }
        }
        let mut places: Vec<Place> = places.into_values().collect();
        places.sort_by(|a, b| {
            b.weight
                .total_cmp(&a.weight)
                .then(b.traps.cmp(&a.traps))
                .then(a.tid.cmp(&b.tid))
        });
        places
    }

    /// Whether several threads were sampled at it often, one of which writes: where hardly any watch was armed, that is
    /// all that is known.
    pub(super) fn is_fought_over(&self) -> bool {
        const OFTEN: u64 = 5;
        let often = || self.threads.values().filter(|stay| stay.samples >= OFTEN);
        let writes = |stay: &Stay| stay.places.keys().any(|it| it.operation != Operation::Load);
        often().count() > 1 && often().any(writes)
    }

    /// For how long the line was in use, ns: the slices in which it was sampled, less what lies
    /// before its first and after its last sample.
    pub(super) fn span_ns(&self) -> f64 {
        let outside = self.first_ns % SLICE_NS + (SLICE_NS - self.last_ns % SLICE_NS);
        (self.slices.len() as u64 * SLICE_NS)
            .saturating_sub(outside)
            .max(1_000_000) as f64
    }
}

fn add_each<K: Copy + Eq + std::hash::Hash>(sums: &mut HashMap<K, f64>, more: &HashMap<K, f64>) {
    for (&key, value) in more {
        *sums.entry(key).or_default() += value;
    }
}

pub(super) fn stays(input: &Input<'_>, curves: &Curves) -> (Lines, RunningSlices, Tracks) {
    let mut lines = Lines::new();
    let mut tracks = Tracks::new();
    let mut running = RunningSlices::new();
    let mut in_calls: BTreeMap<(Pid, Address), f64> = BTreeMap::new();
    let home = |sample: &Sample| {
        let (pid, address) = input.shared.home(sample.pid, sample.address);
        (pid, address.line(input.info.line_size))
    };
    let blocked = BlockedLoads::new(input.blocked_loads, input.samples);
    for sample in input.samples {
        let slice = sample.time.0 / SLICE_NS;
        let seen = running.entry((slice, sample.tid)).or_default();
        seen.weight_ns += sample.weight as f64;
        seen.samples += 1;
        seen.moments.note(sample.cpu, sample.time);
        seen.unknown += u64::from(sample.class == SampleClass::Unknown);
        if sample.class == SampleClass::Kernel && sample.address != Address(0) {
            *in_calls.entry(home(sample)).or_default() += sample.weight as f64;
        }
        let at = blocked.store_of(sample).unwrap_or(sample);
        let touch = Touch::sampled(at, input.shared, input.goroutines);
        let key = home(at);
        let track = tracks.entry(sample.tid).or_default();
        track.push((sample.time, touch.map_or(Address(0), |_| key.1)));
        let Some(touch) = touch else {
            continue;
        };
        let line = lines.entry(key).or_default();
        let weight = sample.weight as f64;
        if line.slices.is_empty() {
            line.first_ns = sample.time.0;
        }
        line.first_ns = line.first_ns.min(sample.time.0);
        line.slices.insert(slice);
        line.last_ns = line.last_ns.max(sample.time.0);
        *line.by_cpu.entry(sample.cpu).or_default() += weight;
        let stay = line.threads.entry(sample.tid).or_default();
        stay.weight_ns += weight;
        stay.moments.note(sample.cpu, sample.time);
        stay.samples += 1;
        *stay.by_cpu.entry(sample.cpu).or_default() += weight;
        if let Some(curve) = curves.nearest(sample.time.0) {
            *stay.by_curve.entry(curve).or_default() += weight;
        }
        stay.seen.push((sample.time, touch));
        let place = stay.places.entry(touch).or_default();
        place.0 += weight;
        place.1 += 1;
    }
    // A thread that changed its CPU has samples from two rings.
    for track in tracks.values_mut() {
        track.sort_unstable_by_key(|(time, _)| *time);
    }
    for (key, line) in &mut lines {
        for stay in line.threads.values_mut() {
            stay.seen.sort_unstable_by_key(|(time, _)| *time);
        }
        line.in_calls_ns = in_calls.get(key).copied().unwrap_or(0.0);
        line.settle(&running);
    }
    (lines, running, tracks)
}
