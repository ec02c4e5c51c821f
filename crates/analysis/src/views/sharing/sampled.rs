//! From samples and watches to the transfers of each line and what they cost.
//!
//! For each line and each thread A at it, from the samples: the time W that A spent there. From the
//! watches: the presence p of the others, and how often they come while they are elsewhere. From
//! the latencies: the time V at the line for each transfer, given how much the others want it.
//!
//! ```text
//! transfers to A  =  W p / V(others)                      while others work on the line
//!                 +  min( W (1-p) / V(0), their rate )    while they only pass by
//! cost to A       =  transfers to A × (V - hit), at most W p
//! ```
//!
//! The time bounds the transfers from above where the rate of the others does not, and the rate
//! bounds them where the time is spent on hits: a hot read beside a field that is written a
//! thousand times a second moves a thousand times a second, however hot it is. What the formula
//! cannot know is how much of V a core hides behind other work: nothing for locked accesses,
//! which therefore get a narrow interval, and much for plain loads and stores.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use linewise_recording::{
    Address, CpuId, Latency, Operation, Pid, RunInfo, Sample, SampleClass, SharedMemory, Switch,
    Tid, Trap, Watch,
};

use super::super::curve::{Curves, TransferCurve};
use super::super::encounter::{AtOnce, Encounter, Stays, Touch, at_most, encounters};
use super::cpus::spread_over_cpus;
use super::kinds::{Visitor, true_share};
use super::moments::Moments;
use super::{Basis, Estimate, Flow, LineSharing, Place, SharingView};

/// Slice of the run in which a line counts as in use when it was sampled at all, ns.
const SLICE_NS: u64 = 250_000_000;
/// The z of a 90 % interval.
const Z90: f64 = 1.645;
/// Relative error of the model itself where every access is locked, both ways.
const LOCKED_ERROR: f64 = 0.25;
/// Factors of the interval where accesses may hide part of their latency, or wait for other
/// things as well.
const HIDDEN_LOW: f64 = 0.25;
const HIDDEN_HIGH: f64 = 4.0;

/// What a core does ahead while it waits for a locked access, ns of work: it would have to be done without the wait,
/// too. (Of `fixtures/programs/repairs` those whose locked accesses stand among work in registers gained a fifth to
/// four fifths of what they waited where a transfer took 35 ns, nearly all where it took 250.)
const AHEAD_NS: f64 = 40.0;
/// What a store waits behind a contended line is seen at later instructions, too: a repair gained up to so many times
/// what its samples said.
const SPILLED: f64 = 1.3;

/// How many times longer than its samples say a thread may be at a line that it only reads: part of
/// a load's latency passes in the shadow of other work. A reader that lost 20 to 25 % of its time to
/// a writer showed 4 points of it at its load.
const HIDDEN_LOADS: f64 = 10.0;

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
    /// Table `latencies`.
    pub latencies: &'a [Latency],
    /// Which memory processes share.
    pub shared: &'a SharedMemory,
}

/// What the samples say of one thread at one line.
#[derive(Default)]
struct Stay {
    weight_ns: f64,
    samples: u64,
    by_cpu: HashMap<CpuId, f64>,
    /// Time under each curve: the latency may change while the program runs.
    by_curve: BTreeMap<usize, f64>,
    /// Time and samples of each place.
    places: HashMap<Touch, (f64, u64)>,
    moments: Moments,
    /// The thread while the line was in use, wherever it was.
    running: Running,
}

impl Stay {
    /// Its locked instructions that take a good part of its time at the line.
    fn locked_instructions(&self) -> usize {
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
    fn share_beside(&self, tid: Tid, other: Tid, on_cpus: &Stays<'_>) -> f64 {
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
struct Running {
    weight_ns: f64,
    samples: u64,
    /// Those whose address is not known.
    unknown: u64,
    moments: Moments,
}

/// By slice and thread.
type RunningSlices = HashMap<(u64, Tid), Running>;

/// What the samples say of one line.
#[derive(Default)]
struct LineStays {
    threads: BTreeMap<Tid, Stay>,
    by_cpu: HashMap<CpuId, f64>,
    slices: HashSet<u64>,
    first_ns: u64,
    last_ns: u64,
}

impl LineStays {
    /// What was sampled of a thread while the line was in use.
    fn running(&self, tid: Tid, running: &RunningSlices) -> Running {
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

    /// Whether several threads were sampled at it often, one of which writes: where hardly any watch was armed, that is
    /// all that is known.
    fn is_fought_over(&self) -> bool {
        const OFTEN: u64 = 5;
        let often = || self.threads.values().filter(|stay| stay.samples >= OFTEN);
        let writes = |stay: &Stay| stay.places.keys().any(|it| it.operation != Operation::Load);
        often().count() > 1 && often().any(writes)
    }

    /// For how long the line was in use, ns: the slices in which it was sampled, less what lies
    /// before its first and after its last sample.
    fn span_ns(&self) -> f64 {
        let outside = self.first_ns % SLICE_NS + (SLICE_NS - self.last_ns % SLICE_NS);
        (self.slices.len() as u64 * SLICE_NS)
            .saturating_sub(outside)
            .max(1_000_000) as f64
    }
}

/// Computes the view.
#[must_use]
pub fn sharing(input: &Input<'_>) -> SharingView {
    let line_size = input.info.line_size;
    let curves = Curves::new(input.latencies);
    let on_cpus = Stays::new(input.switches);
    let at_once = AtOnce {
        exposure_ns: input.info.exposure_offset_ns,
        delay_ns: input.info.trap_delay_ns,
    };
    let met = encounters(
        input.watches,
        input.traps,
        line_size,
        at_once,
        &on_cpus,
        input.shared,
    );
    let mut view = SharingView::default();
    let (stays, running) = stays(input, &curves);
    for (&(pid, line), stays) in &stays {
        let unmet = HashMap::new();
        let met = met.get(&(pid, line)).unwrap_or(&unmet);
        let looked_in_vain = met.values().all(|encounter| encounter.traps == 0);
        if looked_in_vain && (is_watched(met) || !stays.is_fought_over()) {
            continue;
        }
        if curves.is_empty() {
            view.no_latency = true;
            continue;
        }
        match line_sharing(pid, line, stays, met, &curves, &on_cpus, &running) {
            Some(line) => view.lines.push(line),
            None => view.taking_turns += 1,
        }
    }
    view.lines.sort_by(|a, b| {
        b.cost_ns
            .value
            .total_cmp(&a.cost_ns.value)
            .then(a.line.cmp(&b.line))
    });
    view
}

fn stays(
    input: &Input<'_>,
    curves: &Curves,
) -> (BTreeMap<(Pid, Address), LineStays>, RunningSlices) {
    let mut lines: BTreeMap<(Pid, Address), LineStays> = BTreeMap::new();
    let mut running = RunningSlices::new();
    for sample in input.samples {
        let slice = sample.time.0 / SLICE_NS;
        let seen = running.entry((slice, sample.tid)).or_default();
        seen.weight_ns += sample.weight_ns as f64;
        seen.samples += 1;
        seen.moments.note(sample.cpu, sample.time);
        seen.unknown += u64::from(sample.class == SampleClass::Unknown);
        let Some(operation) = sample
            .operation
            .filter(|_| sample.class == SampleClass::Access)
        else {
            continue;
        };
        let (pid, address) = input.shared.home(sample.pid, sample.address);
        let line = lines
            .entry((pid, address.line(input.info.line_size)))
            .or_default();
        let weight = sample.weight_ns as f64;
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
        let key = Touch {
            pid: sample.pid,
            ip: sample.access_ip,
            address,
            size: sample.size,
            operation,
            locked: sample.locked,
        };
        let place = stay.places.entry(key).or_default();
        place.0 += weight;
        place.1 += 1;
    }
    for line in lines.values_mut() {
        let tids: Vec<Tid> = line.threads.keys().copied().collect();
        for tid in tids {
            let seen = line.running(tid, &running);
            line.threads.entry(tid).or_default().running = seen;
        }
    }
    (lines, running)
}

/// Watches of a line from which on what no trap told of is not there.
pub(crate) const WATCHED: u64 = 10;

fn is_watched(met: &HashMap<Tid, Encounter>) -> bool {
    met.values().map(|encounter| encounter.watches).sum::<u64>() >= WATCHED
}

/// What is estimated for one thread that waits for the line.
struct Wait {
    tid: Tid,
    transfers: Estimate,
    cost_ns: Estimate,
    /// Whether all that it does there is locked.
    locked: bool,
    /// The threads that the line comes from, with how much each counts.
    from: Vec<(Tid, f64)>,
}

fn line_sharing(
    pid: Pid,
    line: Address,
    stays: &LineStays,
    met: &HashMap<Tid, Encounter>,
    curves: &Curves,
    on_cpus: &Stays<'_>,
    running: &RunningSlices,
) -> Option<LineSharing> {
    let present = presences(stays, met, running);
    let mut waits: Vec<Wait> = stays
        .threads
        .iter()
        .map(|(&tid, stay)| wait_of(tid, stay, stays, met, &present, curves, on_cpus))
        .collect();
    balance(&mut waits, stays, met);
    for wait in &mut waits {
        wait.leave_out_upgrades(|tid| {
            touches(tid, stays, met)
                .iter()
                .any(|(touch, _)| touch.operation != Operation::Load)
        });
    }
    let mut transfers = Estimate::default();
    let mut cost_ns = Estimate::default();
    let mut flows = Vec::new();
    let mut cpu_flows = BTreeMap::new();
    let mut false_transfers = Estimate::default();
    let visitors = visitors(stays, met);
    for wait in &waits {
        transfers.add(wait.transfers);
        cost_ns.add(wait.cost_ns);
        let (shares, falsely) = flows_to(wait, &visitors, stays.span_ns());
        false_transfers.add(falsely);
        let time_by_cpu = |tid: Tid| {
            let stay = stays.threads.get(&tid);
            stay.map_or(&stays.by_cpu, |stay| &stay.by_cpu)
        };
        spread_over_cpus(&shares, time_by_cpu, &mut cpu_flows);
        flows.extend(shares);
    }
    if transfers.value <= 0.0 {
        return None;
    }
    Some(LineSharing {
        pid,
        line,
        transfers,
        cost_ns,
        flows,
        false_share: false_transfers.times(Estimate::exactly(1.0 / transfers.value)),
        cpu_flows,
        places: places(stays, met),
        basis: Basis::Sampled {
            samples: stays.threads.values().map(|stay| stay.samples).sum(),
            watches: met.values().map(|encounter| encounter.watches).sum(),
            traps: met.values().map(|encounter| encounter.traps).sum(),
        },
    })
}

/// The presence of each thread at a line: of those that watches met there, and of those that samples found
/// there and no watch told of, as many as there may be where threads are many or live shortly. These
/// count like the others, within what so few watches leave open.
fn presences(
    stays: &LineStays,
    met: &HashMap<Tid, Encounter>,
    running: &RunningSlices,
) -> HashMap<Tid, Estimate> {
    let told = |tid: &Tid| met.get(tid).is_some_and(|it| it.telling() > 0);
    let (mut watches, mut present) = (0.0, 0.0);
    for (tid, encounter) in met {
        if encounter.traps > 0 || stays.threads.contains_key(tid) {
            let telling = f64::from(encounter.telling());
            watches += telling;
            present += telling * encounter.presence();
        }
    }
    let mean = present / f64::max(watches, 1.0);
    let spread = Z90 * (mean * (1.0 - mean) / f64::max(watches, 1.0)).sqrt();
    let like_others = match watches > 0.0 {
        true => Estimate {
            value: mean,
            low: (mean - spread - 1.0 / watches).max(0.0),
            high: (mean + spread).min(1.0),
        },
        // Nobody looked.
        false => Estimate {
            value: 0.5,
            low: 0.0,
            high: 1.0,
        },
    };
    let seen = met
        .iter()
        .filter(|(_, encounter)| encounter.traps > 0)
        .map(|(&tid, encounter)| (tid, Estimate::exactly(encounter.presence())));
    let unseen = stays.threads.keys().filter(|tid| !told(tid));
    seen.chain(unseen.map(|&tid| (tid, like_others)))
        .map(|(tid, seen)| (tid, presence(tid, seen, stays, met, running)))
        .collect()
}

/// The presence of a thread at a line, of which the watches tell `seen`: their waits cannot tell a thread that
/// comes every 50 µs from one that comes all the time. Of one that only reads the line the samples can: each
/// time that it comes it waits, and not all of that can pass in the shadow of other work. The interval is that of so
/// few samples.
fn presence(
    tid: Tid,
    seen: Estimate,
    stays: &LineStays,
    met: &HashMap<Tid, Encounter>,
    running: &RunningSlices,
) -> Estimate {
    let only_reads =
        (touches(tid, stays, met).iter()).all(|(touch, _)| touch.operation == Operation::Load);
    let running = stays.running(tid, running);
    if !only_reads || 4 * running.unknown > running.samples {
        return seen;
    }
    // As many as there may have been where so many came into the sample: the median, and 95 % each way.
    let at_line = stays.threads.get(&tid).map_or(0, |stay| stay.samples) as f64;
    let at_least = (at_line - 2.0 * at_line.sqrt()).max(0.0);
    let within =
        |seen: f64, samples: f64| seen.min(HIDDEN_LOADS * samples / running.samples.max(1) as f64);
    Estimate {
        value: within(seen.value, at_line + 0.7),
        low: within(seen.low, at_least),
        high: within(seen.high, at_most(at_line)),
    }
}

/// Another thread at the line, as this one meets it on another CPU.
struct Other {
    tid: Tid,
    /// Share of this one's time at the line at which the other is at work there.
    present: Estimate,
    /// Accesses a second of the other while it is not.
    absent_rate: f64,
}

/// Transfers to one thread and what they cost it.
fn wait_of(
    tid: Tid,
    stay: &Stay,
    stays: &LineStays,
    met: &HashMap<Tid, Encounter>,
    present: &HashMap<Tid, Estimate>,
    curves: &Curves,
    on_cpus: &Stays<'_>,
) -> Wait {
    let span_ns = stays.span_ns();
    let beside = stay.moments.beside_each(tid, on_cpus);
    let beside = |other: Tid| match on_cpus.knows(other) {
        true => beside.get(&other).copied().unwrap_or(0.0),
        false => 1.0,
    };
    let mut others: Vec<Other> = present
        .iter()
        .filter(|&(&other, _)| other != tid && beside(other) > 0.0)
        .filter(|&(&other, _)| !on_cpus.take_turns(tid, other))
        .map(|(&other, &present)| Other {
            tid: other,
            present: Estimate::exactly(beside(other)).times(present),
            absent_rate: beside(other) * met.get(&other).map_or(0.0, Encounter::absent_rate),
        })
        .collect();
    others.sort_by_key(|other| other.tid);
    // How much of its time a thread on another CPU is at the line when this one meets it there.
    let mut met_share = Estimate::default();
    for other in &others {
        met_share.add(other.present);
    }
    let absent_rate: f64 = others.iter().map(|other| other.absent_rate).sum();
    let crowd = others
        .iter()
        .map(|other| {
            let at_line = (stays.threads.get(&other.tid))
                .map_or(0.0, |stay| stay.share_beside(other.tid, tid, on_cpus));
            other.present.value / met_share.value.max(f64::MIN_POSITIVE) * at_line
        })
        .sum::<f64>()
        * met_share.value.max(1.0);
    let locked = stay.places.keys().all(|place| place.locked);
    let price = Price::of(stay, curves, crowd);
    // Each locked instruction of a visit takes its time also where the line stays.
    let hits_ns = price.hit_ns * stay.locked_instructions().max(1) as f64;
    let lost = |transfer_ns: f64| (transfer_ns - hits_ns).max(0.5 * transfer_ns);
    // Transfers and their cost, if the others are there for so much of this one's time.
    let if_met = |share: f64| {
        let share = share.min(1.0);
        let fought = stay.weight_ns * share / price.transfer_ns;
        let passed =
            (stay.weight_ns * (1.0 - share) / price.idle_ns).min(absent_rate * span_ns * 1e-9);
        let cost = fought * lost(price.transfer_ns) + passed * lost(price.idle_ns);
        (fought + passed, cost.min(stay.weight_ns))
    };
    let (value, cost) = if_met(met_share.value);
    let (least, least_cost) = if_met(met_share.low);
    let (most, most_cost) = if_met(met_share.high);
    let noise = Z90 / (stay.samples.max(1) as f64).sqrt();
    let (fewer, more) = match locked {
        true => (1.0 - LOCKED_ERROR, 1.0 + LOCKED_ERROR),
        false => (HIDDEN_LOW, HIDDEN_HIGH),
    };
    let ahead = (AHEAD_NS / price.transfer_ns).min(1.0);
    let cost = if locked {
        cost * (1.0 - 0.25 * ahead)
    } else {
        cost
    };
    let cost_low = match locked {
        true => (1.0 - ahead).clamp(0.25, 0.6),
        false => 0.4,
    } * (1.0 - noise).max(0.1);
    // How much the others are there is known roughly only: where they are at all, all of the time here may be lost.
    let all = SPILLED * stay.weight_ns * (3.0 * met_share.high).min(1.0);
    let cost_most = 1.6 * most_cost.max(cost);
    let cost_most = match locked {
        true => cost_most.min(stay.weight_ns),
        false => cost_most.max(all).min(SPILLED * stay.weight_ns),
    };
    Wait {
        tid,
        transfers: Estimate {
            value,
            low: least.min(value) * fewer * (1.0 - noise).max(0.1),
            high: most.max(value) * more * (1.0 + noise),
        },
        cost_ns: Estimate {
            value: cost,
            low: least_cost.min(cost) * cost_low,
            high: cost_most * (1.0 + noise),
        },
        locked,
        // A thread at work counts by its presence; one that passes by, by the part of a second for
        // which it is in the way.
        from: others
            .iter()
            .map(|other| {
                let passing = other.absent_rate * 1e-9 * price.transfer_ns;
                (other.tid, other.present.value + passing)
            })
            .filter(|&(_, share)| share > 0.0)
            .collect(),
    }
}

/// What a transfer takes a thread at a line, over all curves that were in force while it was there.
struct Price {
    transfer_ns: f64,
    idle_ns: f64,
    hit_ns: f64,
}

impl Price {
    fn of(stay: &Stay, curves: &Curves, crowd: f64) -> Self {
        let total: f64 = stay.by_curve.values().sum::<f64>().max(1.0);
        // Times add up to transfers by division, so their mean is the harmonic one.
        let mean = |of: &dyn Fn(&TransferCurve) -> f64| {
            let transfers: f64 = stay
                .by_curve
                .iter()
                .filter_map(|(&number, weight)| Some(weight / of(curves.get(number)?).max(1.0)))
                .sum();
            total / transfers.max(f64::MIN_POSITIVE)
        };
        Self {
            transfer_ns: mean(&|curve| curve.transfer_ns(crowd)),
            idle_ns: mean(&TransferCurve::idle_ns),
            hit_ns: mean(&|curve| curve.hit_ns),
        }
    }
}

/// A line comes to a thread at most as often as it goes to the others: it must leave to come
/// back. So where the accesses are locked, whose time bounds the transfers from above, a thread
/// with many hits is bound by the others. Where one of two hides its waiting (a plain store retires
/// before it is done), the other speaks for both.
fn balance(waits: &mut Vec<Wait>, stays: &LineStays, met: &HashMap<Tid, Encounter>) {
    let all: f64 = waits.iter().map(|wait| wait.transfers.value).sum();
    let all_locked = waits.iter().all(|wait| wait.locked);
    if all_locked && waits.len() >= 2 {
        let two = waits.len() == 2;
        for wait in waits.iter_mut() {
            let others = all - wait.transfers.value;
            if wait.transfers.value > others {
                // Not below what the noise of the others explains: a mean of both.
                let ratio = wait.transfers.value / others.max(1.0);
                let target = if ratio < SAME {
                    (wait.transfers.value + others) / 2.0
                } else {
                    others
                };
                wait.scale(target / wait.transfers.value);
            } else if two && waits_two_alike(wait.transfers.value, others) {
                wait.scale((wait.transfers.value + others) / 2.0 / wait.transfers.value);
            }
        }
        return;
    }
    let mut tids: Vec<Tid> = stays.threads.keys().copied().collect();
    tids.extend(
        met.iter()
            .filter(|(_, met)| met.traps > 0)
            .map(|(&tid, _)| tid),
    );
    tids.sort_unstable();
    tids.dedup();
    if tids.len() != 2 {
        return;
    }
    let speaker = waits.iter().max_by(|a, b| {
        (a.locked, a.transfers.value)
            .partial_cmp(&(b.locked, b.transfers.value))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let Some(mut spoken) = speaker.map(|wait| wait.transfers) else {
        return;
    };
    // How much of its time the speaker spends on hits is not known, nor what the other one hides.
    spoken.low = spoken.low.min(spoken.value * HIDDEN_LOW);
    spoken.high = waits
        .iter()
        .fold(spoken.high, |high, wait| high.max(wait.transfers.high));
    for tid in tids {
        match waits.iter_mut().find(|wait| wait.tid == tid) {
            Some(wait) => wait.transfers = spoken,
            None => waits.push(Wait {
                tid,
                transfers: spoken,
                // Never sampled at the line: it loses no time that we saw.
                cost_ns: Estimate::default(),
                locked: false,
                from: Vec::new(),
            }),
        }
    }
}

/// Two estimates of one number that differ by less than this are told apart by noise alone.
const SAME: f64 = 1.4;

fn waits_two_alike(a: f64, b: f64) -> bool {
    a > 0.0 && b / a < SAME
}

impl Wait {
    /// What comes from threads that only read is no transfer: they have a copy, and the waiting
    /// thread, which has another, takes the right to write back. That costs it time all the same.
    fn leave_out_upgrades(&mut self, writes: impl Fn(Tid) -> bool) {
        let all: f64 = self.from.iter().map(|&(_, share)| share).sum();
        let written: f64 = self
            .from
            .iter()
            .filter(|&&(tid, _)| writes(tid))
            .map(|&(_, share)| share)
            .sum();
        if all > 0.0 {
            self.transfers.value *= written / all;
            self.transfers.low *= written / all;
            // Whether it reads before it writes, and so takes a copy first, is not known.
        }
    }

    fn scale(&mut self, factor: f64) {
        for estimate in [&mut self.transfers, &mut self.cost_ns] {
            estimate.value *= factor;
            estimate.low *= factor;
            estimate.high *= factor.max(1.0);
        }
    }
}

/// Splits the transfers to a thread by the thread they come from and by kind. With it, how many of them are false.
fn flows_to(
    wait: &Wait,
    visitors: &BTreeMap<Tid, Visitor<'_>>,
    span_ns: f64,
) -> (Vec<Flow>, Estimate) {
    let mut from = wait.from.clone();
    if from.is_empty() {
        // The other side was never seen by a watch of this thread's lines: it is whoever waits.
        let others = visitors.iter().filter(|(_, it)| it.samples > 0);
        let others = others.map(|(&tid, _)| (tid, 1.0));
        from = others.filter(|&(tid, _)| tid != wait.tid).collect();
    }
    let total: f64 = from.iter().map(|&(_, share)| share).sum();
    let mut falsely = Estimate::default();
    let mut flows = Vec::new();
    for (other, share) in from {
        let transfers = wait.transfers.value * share / total;
        let truly = match (visitors.get(&wait.tid), visitors.get(&other)) {
            (Some(to), Some(from)) => true_share(to, from, transfers, span_ns),
            _ => Estimate::default(),
        };
        falsely.add(Estimate {
            value: transfers * (1.0 - truly.value),
            low: transfers * (1.0 - truly.high),
            high: transfers * (1.0 - truly.low),
        });
        flows.push(Flow {
            to: wait.tid,
            from: other,
            true_sharing: transfers * truly.value,
            false_sharing: transfers * (1.0 - truly.value),
        });
    }
    flows.sort_by_key(|flow| flow.from);
    (flows, falsely)
}

/// All that were seen at a line.
fn visitors<'a>(stays: &LineStays, met: &'a HashMap<Tid, Encounter>) -> BTreeMap<Tid, Visitor<'a>> {
    let tids: BTreeSet<Tid> = stays.threads.keys().chain(met.keys()).copied().collect();
    let visitor = |tid: Tid| {
        let stay = stays.threads.get(&tid);
        Visitor {
            touches: touches(tid, stays, met),
            samples: stay.map_or(0, |stay| stay.samples),
            at_line_ns: stay.map_or(0.0, |stay| stay.weight_ns),
            met: met.get(&tid),
        }
    };
    tids.into_iter().map(|tid| (tid, visitor(tid))).collect()
}

/// Where a thread touches the line, by the time that its samples lost there. Traps count a little:
/// they show the places where a thread loses no time, such as plain stores, but not how often it
/// comes there, since a watch traps once at a chunk whether that is touched often or seldom.
fn touches(tid: Tid, stays: &LineStays, met: &HashMap<Tid, Encounter>) -> Vec<(Touch, f64)> {
    const TRAP: f64 = 0.02;
    let sampled = stays
        .threads
        .get(&tid)
        .into_iter()
        .flat_map(|stay| &stay.places);
    let trapped = met.get(&tid).into_iter().flat_map(|met| &met.accesses);
    sampled
        .map(|(&touch, &(_, count))| (touch, count as f64))
        .chain(trapped.map(|(&touch, &count)| (touch, f64::from(count) * TRAP)))
        .collect()
}

type Places = BTreeMap<(Tid, Touch), Place>;

fn place_at(places: &mut Places, tid: Tid, touch: Touch) -> &mut Place {
    places.entry((tid, touch)).or_insert(Place {
        tid,
        touch,
        weight: 0.0,
        samples: 0,
        traps: 0,
    })
}

/// All access places of a line: sampled time, and traps of those that were only trapped.
fn places(stays: &LineStays, met: &HashMap<Tid, Encounter>) -> Vec<Place> {
    let mut places = Places::new();
    for (&tid, stay) in &stays.threads {
        for (&key, &(weight_ns, samples)) in &stay.places {
            let place = place_at(&mut places, tid, key);
            place.weight += weight_ns;
            place.samples += samples;
        }
    }
    for (&tid, encounter) in met {
        for (&key, &count) in &encounter.accesses {
            place_at(&mut places, tid, key).traps += u64::from(count);
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

#[cfg(test)]
#[path = "../sharing_tests.rs"]
mod tests;
