//! From the transfers of an exact run to what they would cost.
//!
//! The table `transfers` counts how often a coherent hierarchy moved each line from an access of one
//! thread to one of another. So transfers are not estimated, but what one takes is.
//!
//! ```text
//! cost   =  transfers × (time of a transfer - time of a hit), both measured beside the run
//! share  =  cost / (accesses × time of an access + all costs)
//! ```
//!
//! The hierarchy has no time: a line moves at every access that wants it, while a real core that
//! has a line keeps it for several accesses. The value of a fought-over line is therefore a bound
//! from above, and the cost is a model's, not a measured one.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{
    Address, CacheCounts, CacheSubject, Latency, Operation, Pid, RunInfo, Sharing, Tid,
    TransferCount,
};

use super::super::encounter::Touch;
use crate::quantity::{Interval, median};
use crate::resolve::byte_runs;

use super::{Basis, Estimate, Flow, LineSharing, Place, SharingView, ThreadTime};

/// Thread time for an access that waits for no other core, and all that lies between it and the
/// next, ns. The repaired twins and controls of `fixtures/programs` took 0.24 to 4.3 natively, half of
/// them less than 1.4.
const ACCESS_NS: Estimate = Estimate {
    value: 1.0,
    low: 0.2,
    high: 5.0,
};
/// What a transfer costs where no latency could be measured: from neighbours under one last-level
/// cache to cores of two sockets, ns.
const ASSUMED_NS: Estimate = Estimate {
    value: 70.0,
    low: 25.0,
    high: 250.0,
};

/// The tables that the view needs from an exact run.
#[derive(Clone, Copy, Debug)]
pub struct ExactInput<'a> {
    /// `run.json`.
    pub info: &'a RunInfo,
    /// Table `transfers`.
    pub transfers: &'a [TransferCount],
    /// Table `caches`: what an instruction does to memory.
    pub caches: &'a [CacheCounts],
    /// Table `latencies`.
    pub latencies: &'a [Latency],
}

/// Computes the view, and the thread time of which its costs are a share.
#[must_use]
pub fn exact(input: &ExactInput<'_>) -> (SharingView, ThreadTime) {
    let price = price(input.latencies);
    let mut view = SharingView {
        no_latency: input.latencies.is_empty(),
        ..SharingView::default()
    };
    let mut lines: BTreeMap<(Pid, Address), Rows<'_>> = BTreeMap::new();
    for row in input.transfers {
        match (row.pid, row.line, row.to_tid, row.from_tid) {
            (Some(pid), Some(line), Some(to), Some(from)) => {
                lines
                    .entry((pid, line))
                    .or_default()
                    .rows
                    .push((row, from, to));
            }
            _ => match row.sharing {
                Sharing::True => view.others.true_sharing += row.count,
                Sharing::False => view.others.false_sharing += row.count,
            },
        }
    }
    let operations = operations(input.caches);
    let repeats = input.info.exact.iter().flat_map(|exact| &exact.repeats);
    let mut repeated: HashMap<(Pid, Address), Vec<f64>> = HashMap::new();
    for row in repeats.flat_map(|repeat| &repeat.lines) {
        let counts = repeated.entry((row.pid, row.line)).or_default();
        counts.push(row.transfers);
    }
    for ((pid, line), rows) in lines {
        let repeated = repeated.get(&(pid, line)).map_or(&[][..], Vec::as_slice);
        let line_size = input.info.line_size;
        view.lines
            .push(rows.line(pid, line, line_size, price, &operations, repeated));
    }
    view.lines.sort_by(|a, b| {
        b.cost_ns
            .value
            .total_cmp(&a.cost_ns.value)
            .then(a.line.cmp(&b.line))
    });
    let time = thread_time(input.info, &view, price);
    (view, time)
}

/// What one transfer costs, ns: the value where nobody wants the line back at once, since that is
/// what the model's transfers are; the interval over all states of the machine during the run,
/// up to two cores that want it all the time.
fn price(latencies: &[Latency]) -> Estimate {
    let lost = |transfer_ns: f64, hit_ns: f64| (transfer_ns - hit_ns).max(0.5 * transfer_ns);
    let idle: Vec<f64> = latencies
        .iter()
        .map(|latency| lost(latency.transfer_idle_ns, latency.hit_ns))
        .filter(|ns| ns.is_finite() && *ns > 0.0)
        .collect();
    let Some(Interval { low, high }) = Interval::of(&idle) else {
        return ASSUMED_NS;
    };
    let high = latencies
        .iter()
        .map(|latency| lost(latency.transfer_saturated_ns, latency.hit_ns))
        .filter(|ns| ns.is_finite())
        .fold(high, f64::max);
    Estimate {
        value: median(idle).unwrap_or(low),
        low,
        high,
    }
}

fn thread_time(info: &RunInfo, view: &SharingView, price: Estimate) -> ThreadTime {
    let accesses = info.exact.as_ref().map_or(0.0, |exact| exact.accesses);
    let mut lost = Estimate::exactly(view.others.all()).times(price);
    for line in &view.lines {
        lost.add(line.cost_ns);
    }
    ThreadTime::Modelled {
        work: Estimate::exactly(accesses).times(ACCESS_NS),
        lost,
    }
}

/// What instructions do to memory, by what they did at the first level.
fn operations(caches: &[CacheCounts]) -> HashMap<(Pid, Address), Operation> {
    let mut operations = HashMap::new();
    let of_instructions = caches
        .iter()
        .filter(|row| row.subject == CacheSubject::Instruction && row.level.is_first());
    for row in of_instructions {
        let (Some(pid), Some(ip)) = (row.pid, row.ip) else {
            continue;
        };
        let operation = if row.updates > 0.0 || row.loads > 0.0 && row.stores > 0.0 {
            Operation::Update
        } else if row.stores > 0.0 {
            Operation::Store
        } else {
            Operation::Load
        };
        operations.insert((pid, ip), operation);
    }
    operations
}

/// A count, and between what it lay in further runs of the command.
pub(crate) fn spread(value: f64, repeated: &[f64]) -> Estimate {
    Estimate {
        value,
        low: repeated.iter().copied().fold(value, f64::min),
        high: repeated.iter().copied().fold(value, f64::max),
    }
}

/// The transfers of one line: row, thread that had it, thread that fetched it.
#[derive(Default)]
struct Rows<'a> {
    rows: Vec<(&'a TransferCount, Tid, Tid)>,
}

/// What one instruction of one thread did at a line.
#[derive(Clone, Copy, Default)]
struct Use {
    /// Accesses that waited for the line.
    waited: f64,
    bytes: u64,
    operation: Option<Operation>,
}

impl Rows<'_> {
    fn line(
        &self,
        pid: Pid,
        line: Address,
        line_size: u64,
        price: Estimate,
        operations: &HashMap<(Pid, Address), Operation>,
        repeated: &[f64],
    ) -> LineSharing {
        let mut flows: BTreeMap<(Tid, Tid), Flow> = BTreeMap::new();
        for &(row, from, to) in &self.rows {
            let flow = flows.entry((to, from)).or_insert(Flow {
                to,
                from,
                true_sharing: 0.0,
                false_sharing: 0.0,
            });
            match row.sharing {
                Sharing::True => flow.true_sharing += row.count,
                Sharing::False => flow.false_sharing += row.count,
            }
        }
        let truly: f64 = flows.values().map(|flow| flow.true_sharing).sum();
        let falsely: f64 = flows.values().map(|flow| flow.false_sharing).sum();
        let transfers = spread(truly + falsely, repeated);
        LineSharing {
            pid,
            line,
            transfers,
            cost_ns: transfers.times(price),
            flows: flows.into_values().collect(),
            false_share: Estimate::exactly(falsely / transfers.value.max(1.0)),
            // The cores of the model are no CPUs of the machine.
            cpu_flows: BTreeMap::new(),
            places: self.places(pid, line, line_size, operations),
            basis: Basis::Traced,
        }
    }

    fn places(
        &self,
        pid: Pid,
        line: Address,
        line_size: u64,
        operations: &HashMap<(Pid, Address), Operation>,
    ) -> Vec<Place> {
        let mut uses: BTreeMap<(Tid, Address), Use> = BTreeMap::new();
        for &(row, from, to) in &self.rows {
            let sides = [
                (from, row.from_ip, row.from_bytes, row.from_operation, 0.0),
                (to, row.to_ip, row.to_bytes, row.to_operation, row.count),
            ];
            for (tid, ip, bytes, operation, waited) in sides {
                let used = uses.entry((tid, ip.unwrap_or_default())).or_default();
                used.bytes |= bytes;
                used.operation = used.operation.or(operation);
                used.waited += waited;
            }
        }
        let mut uses: Vec<_> = uses.into_iter().collect();
        uses.sort_by(|(a_key, a), (b_key, b)| b.waited.total_cmp(&a.waited).then(a_key.cmp(b_key)));
        let mut places = Vec::new();
        for ((tid, ip), used) in uses {
            let mut runs = byte_runs(used.bytes, line_size);
            if runs.is_empty() {
                // Which bytes is not known; that it was there is.
                runs.push((0, 0));
            }
            let all: u64 = runs.iter().map(|&(_, bytes)| bytes).sum();
            for (offset, bytes) in runs {
                places.push(Place {
                    tid,
                    touch: Touch {
                        pid,
                        ip,
                        address: Address(line.0 + offset),
                        size: bytes as u32,
                        // Older recordings tell it only of those that miss most.
                        operation: used
                            .operation
                            .or_else(|| operations.get(&(pid, ip)).copied())
                            .unwrap_or(Operation::Load),
                        // Whether it is does not change what the model counts.
                        locked: true,
                        goroutine: None,
                    },
                    weight: used.waited * bytes as f64 / all.max(1) as f64,
                    samples: 0,
                    traps: 0,
                });
            }
        }
        places
    }
}

#[cfg(test)]
#[path = "exact_tests.rs"]
mod tests;
