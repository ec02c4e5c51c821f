//! From samples and watches to the transfers of each line and what they cost.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{Address, Operation, Pid, Tid};

use super::super::curve::Curves;
use super::super::encounter::{AtOnce, Encounter, Stays, Touch, at_most, encounters};
use super::cpus::spread_over_cpus;
use super::kinds::{TRAP, UNKNOWN, Visitor, is_telling, true_share};
use super::scattered::scattered;
use super::stays::{Around, Input, LineStays, RunningSlices, stays};
use super::users::LineUsers;
use super::waits::{Presence, Wait, balance, wait_of};
use super::{Basis, Estimate, Flow, LineSharing, SharingView, TurnLine, Z90};

/// How many times longer than its samples say a thread may be at a line that it only reads: part of
/// a load's latency passes in the shadow of other work. A reader that lost 20 to 25 % of its time to
/// a writer showed 4 points of it at its load.
const HIDDEN_LOADS: f64 = 10.0;

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
        input.goroutines,
    );
    let mut view = SharingView::default();
    let (stays, running, tracks) = stays(input, &curves);
    let around = Around {
        curves: &curves,
        on_cpus: &on_cpus,
        running: &running,
        tracks: &tracks,
    };
    let together = match curves.is_empty() {
        true => Vec::new(),
        false => scattered(input, &stays, &met, &running),
    };
    for some in &together {
        if !some.is_contended() {
            view.spread += some.count.value.round() as u64;
            continue;
        }
        let known = Seen {
            stays: &some.stays,
            met: &some.met,
            truly: Some(some.truly),
        };
        match line_sharing(some.all[0], &known, &around) {
            Some(whole) => {
                view.together.push(some.lost(&whole));
                view.lines.extend(some.part(&whole, &stays, &met));
            }
            None => *view.uncounted(&some.stays, &some.met, &on_cpus) += some.trapped.len() as u64,
        }
    }
    let together: BTreeSet<(Pid, Address)> =
        (together.into_iter()).flat_map(|some| some.all).collect();
    for (&key, stays) in &stays {
        if together.contains(&key) {
            continue;
        }
        let unmet = HashMap::new();
        let met = met.get(&key).unwrap_or(&unmet);
        let looked_in_vain = met.values().all(|encounter| encounter.traps == 0);
        if looked_in_vain && (is_watched(met) || !stays.is_fought_over()) {
            if stays.is_fought_over() {
                view.keep_still(key, stays, met);
            }
            continue;
        }
        if curves.is_empty() {
            view.no_latency = true;
            view.keep_still(key, stays, met);
            continue;
        }
        let known = Seen {
            stays,
            met,
            truly: None,
        };
        match line_sharing(key, &known, &around) {
            Some(line) => view.lines.push(line),
            None => {
                *view.uncounted(stays, met, &on_cpus) += 1;
                view.keep_still(key, stays, met);
            }
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

impl SharingView {
    /// Keeps a line of which nothing moved as far as that was seen.
    fn keep_still(
        &mut self,
        (pid, line): (Pid, Address),
        stays: &LineStays,
        met: &HashMap<Tid, Encounter>,
    ) {
        let places = stays.places(met);
        self.turns.push(TurnLine { pid, line, places });
    }

    /// The count of lines of which nothing moved as far as that was seen, of those that are like this one.
    fn uncounted(
        &mut self,
        stays: &LineStays,
        met: &HashMap<Tid, Encounter>,
        on_cpus: &Stays<'_>,
    ) -> &mut u64 {
        if LineUsers::of(stays, met).is_some_and(|it| it.is_of_one()) {
            return &mut self.of_one_goroutine;
        }
        match take_turns(stays, met, on_cpus) {
            true => &mut self.taking_turns,
            false => &mut self.unmet,
        }
    }
}

/// Whether of all that were seen at a line no two were on different CPUs at once.
fn take_turns(stays: &LineStays, met: &HashMap<Tid, Encounter>, on_cpus: &Stays<'_>) -> bool {
    let tids: BTreeSet<Tid> = stays.threads.keys().chain(met.keys()).copied().collect();
    let mut pairs = (tids.iter()).flat_map(|a| tids.range(..a).map(move |b| (*a, *b)));
    pairs.all(|(a, b)| on_cpus.take_turns(a, b))
}

/// Watches of a line from which on what no trap told of is not there.
pub(crate) const WATCHED: u64 = 10;

fn is_watched(met: &HashMap<Tid, Encounter>) -> bool {
    met.values().map(|encounter| encounter.watches).sum::<u64>() >= WATCHED
}

/// What is known of a line, or of many together.
struct Seen<'a> {
    stays: &'a LineStays,
    met: &'a HashMap<Tid, Encounter>,
    /// The share of the transfers that is true, where that is not to be told from what each thread touches.
    truly: Option<Estimate>,
}

fn line_sharing(
    (pid, line): (Pid, Address),
    &Seen { stays, met, truly }: &Seen<'_>,
    around: &Around<'_>,
) -> Option<LineSharing> {
    let present = presences(stays, met, around.running);
    let mut waits: Vec<Wait> = stays
        .threads
        .iter()
        .map(|(&tid, stay)| wait_of(tid, stay, stays, met, &present, line, around))
        .collect();
    let visitors = visitors(stays, met);
    let lines_ns = stays.span_ns() * (1.0 + stays.more_lines);
    let all_writes: f64 = visitors.values().map(Visitor::most_writes).sum();
    for wait in &mut waits {
        wait.is_at_most(all_writes * lines_ns * 1e-9);
    }
    balance(&mut waits, stays, met);
    for wait in &mut waits {
        wait.leave_out_upgrades(|tid| visitors.get(&tid).is_some_and(Visitor::writes));
    }
    let users = LineUsers::of(stays, met).filter(|_| truly.is_none());
    if users.as_ref().is_some_and(LineUsers::is_of_one) {
        return None;
    }
    let all: f64 = waits.iter().map(|wait| wait.transfers.value).sum();
    let truly = truly.or_else(|| Some(users?.truly(all, stays.span_ns())));
    let mut transfers = Estimate::default();
    let mut cost_ns = Estimate::default();
    let mut flows = Vec::new();
    let mut cpu_flows = BTreeMap::new();
    // Who sleeps and wakes at a word of the line does so for the contention; or would anyway, as with nothing to do.
    cost_ns.add(Estimate {
        value: stays.in_calls_ns / 2.0,
        low: 0.0,
        high: stays.in_calls_ns,
    });
    let mut false_transfers = Estimate::default();
    for wait in &waits {
        transfers.add(wait.transfers);
        cost_ns.add(wait.cost_ns);
        let (shares, falsely) = flows_to(wait, &visitors, stays.span_ns(), truly);
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
        places: stays.places(met),
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
) -> HashMap<Tid, Presence> {
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
/// comes every 50 µs from one that comes all the time. Where it only reads, and of what it reads and writes at once,
/// the samples can: each time that it comes it waits, and not all of that can pass in the shadow of other work. So with
/// a plain store among what it does there they cannot. The interval is that of so few samples.
fn presence(
    tid: Tid,
    seen: Estimate,
    stays: &LineStays,
    met: &HashMap<Tid, Encounter>,
    running: &RunningSlices,
) -> Presence {
    let touches = touches(tid, stays, met);
    let does = |what: &[Operation]| touches.iter().any(|(it, _)| what.contains(&it.operation));
    let running = stays.running(tid, running);
    if 4 * running.unknown > running.samples {
        return Presence {
            at_all: seen,
            writing: seen,
        };
    }
    // As many as there may have been where so many came into the sample: the median, and 95 % each way.
    let by_samples = |samples: u64| {
        let samples = samples as f64;
        let at_least = (samples - 2.0 * samples.sqrt()).max(0.0);
        let within = |seen: f64, samples: f64| {
            seen.min(HIDDEN_LOADS * samples / running.samples.max(1) as f64)
        };
        Estimate {
            value: within(seen.value, samples + 0.7),
            low: within(seen.low, at_least),
            high: within(seen.high, at_most(samples)),
        }
    };
    let stay = stays.threads.get(&tid);
    let updates = stay.map_or(0, |stay| {
        let updates = (stay.places.iter()).filter(|(it, _)| it.operation == Operation::Update);
        updates.map(|(_, &(_, samples))| samples).sum()
    });
    Presence {
        at_all: match does(&[Operation::Store, Operation::Update]) {
            true => seen,
            false => by_samples(stay.map_or(0, |stay| stay.samples)),
        },
        writing: match does(&[Operation::Store]) {
            true => seen,
            false => by_samples(updates),
        },
    }
}

/// Splits the transfers to a thread by the thread they come from and by kind. With it, how many of them are false.
fn flows_to(
    wait: &Wait,
    visitors: &BTreeMap<Tid, Visitor<'_>>,
    span_ns: f64,
    known: Option<Estimate>,
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
        let truly = match (known, visitors.get(&wait.tid), visitors.get(&other)) {
            (Some(known), _, _) => known,
            (None, Some(to), Some(from)) => true_share(to, from, transfers, span_ns),
            _ => UNKNOWN,
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
fn visitors<'a>(
    stays: &'a LineStays,
    met: &'a HashMap<Tid, Encounter>,
) -> BTreeMap<Tid, Visitor<'a>> {
    let tids: BTreeSet<Tid> = stays.threads.keys().chain(met.keys()).copied().collect();
    let visitor = |tid: Tid| {
        let stay = stays.threads.get(&tid);
        Visitor {
            touches: touches(tid, stays, met),
            sampled: sampled(tid, stays).collect(),
            samples: stay.map_or(0, |stay| stay.samples),
            is_known: is_telling(
                stay.map_or(0, |stay| stay.samples),
                met.get(&tid).map_or(0, |met| met.traps),
            ),
            seen: stay.map_or(&[], |stay| &stay.seen),
            at_line_ns: stay.map_or(0.0, |stay| stay.weight_ns),
            met: met.get(&tid),
        }
    };
    tids.into_iter().map(|tid| (tid, visitor(tid))).collect()
}

/// Where a thread touches the line, by the time that its samples lost there. Traps count a little: see [`TRAP`].
fn touches(tid: Tid, stays: &LineStays, met: &HashMap<Tid, Encounter>) -> Vec<(Touch, f64)> {
    let trapped = met.get(&tid).into_iter().flat_map(|met| &met.accesses);
    sampled(tid, stays)
        .chain(trapped.map(|(&touch, &count)| (touch, f64::from(count) * TRAP)))
        .collect()
}

/// Where samples of a thread lost time at the line, and how many.
fn sampled(tid: Tid, stays: &LineStays) -> impl Iterator<Item = (Touch, f64)> {
    let places = (stays.threads.get(&tid).into_iter()).flat_map(|stay| &stay.places);
    places.map(|(&touch, &(_, count))| (touch, count as f64))
}

#[cfg(test)]
#[path = "../sharing_tests.rs"]
mod tests;
