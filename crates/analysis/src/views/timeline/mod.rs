//! When threads fought over lines: contended time and round trip over the run.

use std::collections::BTreeMap;

use linewise_recording::{Address, Pid, RunInfo, Sample, SampleClass, SharedMemory, Tables};
use serde::{Deserialize, Serialize};

use super::calls::{SLICES as THREAD_SLICES, SampledThread};
use super::sharing::{LineSharing, SharingView};
use crate::section::{Bar, Cell, Chart, Charts, Drawing, Lane, Legend, Section, Shown, Step};

/// Slices of a run.
const SLICES: u64 = 120;
/// Bars in the picture; finer bins are merged.
const BARS: usize = 160;

/// A slice of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimelineBin {
    /// Start, ns after the run's start.
    pub start_ns: u64,
    /// Length, ns.
    pub length_ns: u64,
    /// Thread time sampled, ns.
    pub thread_ns: f64,
    /// Of it at accesses to contended lines, ns.
    pub contended_ns: f64,
    /// Round trip in force, ns; 0 when unknown.
    pub round_trip_ns: f64,
}

/// What of the time at contended lines is lost.
#[derive(Debug)]
pub(crate) struct ContendedTime<'a> {
    shares: BTreeMap<(Pid, Address), f64>,
    shared: &'a SharedMemory,
    line_size: u64,
}

impl<'a> ContendedTime<'a> {
    /// As the estimates of the lines say.
    pub(crate) fn new(info: &RunInfo, view: &SharingView, shared: &'a SharedMemory) -> Self {
        let share = |line: &LineSharing| {
            let weight: f64 = line.places.iter().map(|place| place.weight).sum();
            match weight > 0.0 {
                true => (line.cost_ns.value / weight).min(1.0),
                false => 0.0,
            }
        };
        let lines = view.lines.iter();
        Self {
            shares: lines
                .map(|line| ((line.pid, line.line), share(line)))
                .collect(),
            shared,
            line_size: info.line_size,
        }
    }

    /// Of the time of a sample, ns.
    pub(crate) fn ns(&self, sample: &Sample) -> f64 {
        let (pid, address) = self.shared.home(sample.pid, sample.address);
        match sample.class {
            SampleClass::Access => {
                let share = self.shares.get(&(pid, address.line(self.line_size)));
                share.map_or(0.0, |share| sample.weight as f64 * share)
            }
            _ => 0.0,
        }
    }
}

/// A run in slices.
#[must_use]
pub(crate) fn timeline(
    info: &RunInfo,
    tables: &Tables,
    lost: &ContendedTime<'_>,
) -> Vec<TimelineBin> {
    let duration = info.end.since(info.start);
    let length = (duration / SLICES).max(1_000_000);
    let count = duration.div_ceil(length) as usize;
    let mut bins: Vec<TimelineBin> = (0..count as u64)
        .map(|i| TimelineBin {
            start_ns: i * length,
            length_ns: length,
            ..TimelineBin::default()
        })
        .collect();
    for sample in &tables.samples {
        let slice = (sample.time.since(info.start) / length) as usize;
        let Some(bin) = bins.get_mut(slice) else {
            continue;
        };
        bin.thread_ns += sample.weight as f64;
        bin.contended_ns += lost.ns(sample);
    }
    let mut latencies = tables.latencies.iter().peekable();
    let mut current = tables
        .latencies
        .first()
        .map_or(0.0, |latency| latency.round_trip_ns);
    for bin in &mut bins {
        while let Some(latency) =
            latencies.next_if(|latency| latency.time.since(info.start) <= bin.start_ns)
        {
            current = latency.round_trip_ns;
        }
        bin.round_trip_ns = current;
    }
    bins
}

/// A bin as it is drawn.
struct Slice {
    start_ns: f64,
    length_ns: f64,
    thread_ns: f64,
    contended_ns: f64,
    round_trip_ns: Option<f64>,
}

impl Slice {
    fn share(&self) -> f64 {
        match self.thread_ns > 0.0 {
            true => (self.contended_ns / self.thread_ns).clamp(0.0, 1.0),
            false => 0.0,
        }
    }
}

fn merged(bins: &[TimelineBin]) -> Vec<Slice> {
    let group = bins.len().div_ceil(BARS).max(1);
    bins.chunks(group)
        .map(|bins| {
            let trips: Vec<f64> = bins
                .iter()
                .map(|bin| bin.round_trip_ns)
                .filter(|ns| ns.is_finite() && *ns > 0.0)
                .collect();
            Slice {
                start_ns: bins[0].start_ns as f64,
                length_ns: bins.iter().map(|bin| bin.length_ns as f64).sum(),
                thread_ns: bins.iter().map(|bin| bin.thread_ns).sum(),
                contended_ns: bins.iter().map(|bin| bin.contended_ns).sum(),
                round_trip_ns: (!trips.is_empty())
                    .then(|| trips.iter().sum::<f64>() / trips.len() as f64),
            }
        })
        .collect()
}

/// The scale's end: the next of 1, 2, 5, 10, 20, 50 or 100 %.
fn top_of(highest: f64) -> f64 {
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
        .into_iter()
        .find(|top| highest <= *top)
        .unwrap_or(1.0)
}

/// All threads and what lines cost, one above the other, and below them each of `threads` if those are known; `None`
/// without a timeline.
#[must_use]
pub fn section(bins: &[TimelineBin], threads: &[SampledThread]) -> Option<Section> {
    let slices = merged(bins);
    let end = slices.last().map(|it| it.start_ns + it.length_ns)?;
    let charts = || {
        let mut charts = vec![contended(&slices, end), round_trip(&slices, end)];
        if !threads.is_empty() {
            charts.push(lanes(threads, end));
        }
        charts
    };
    (end > 0.0).then(|| Section {
        shown: Shown::OnPage,
        drawing: Some(Drawing::Charts(Charts {
            length_ns: end,
            charts: charts(),
        })),
        ..Section::new("time", "Over time")
    })
}

fn contended(slices: &[Slice], end: f64) -> Chart {
    let top = top_of(slices.iter().map(Slice::share).fold(0.0, f64::max));
    let legend = Legend {
        title: "Thread time at contended lines",
        scale: vec![Cell::text("top of the scale: "), Cell::Share(top)],
        described: vec![Cell::text(
            "Share of thread time at contended lines over the run",
        )],
    };
    let bar = |slice: &Slice| {
        let mut words = vec![
            Cell::Time(slice.start_ns),
            Cell::text(" to "),
            Cell::Time(slice.start_ns + slice.length_ns),
            Cell::text(": "),
            Cell::Share(slice.share()),
            Cell::text(" of thread time contended"),
        ];
        if let Some(ns) = slice.round_trip_ns {
            words.extend([Cell::text(", round trip "), Cell::Time(ns)]);
        }
        Bar {
            from: slice.start_ns / end,
            length: slice.length_ns / end,
            height: slice.share() / top,
            words,
        }
    };
    Chart::Bars(legend, slices.iter().map(bar).collect())
}

fn round_trip(slices: &[Slice], end: f64) -> Chart {
    let trips = slices.iter().filter_map(|slice| slice.round_trip_ns);
    let highest = trips.clone().fold(0.0, f64::max);
    if highest <= 0.0 {
        return Chart::Missing("The round trip between cores was not measured.");
    }
    let lowest = trips.fold(f64::INFINITY, f64::min);
    let range = [Cell::Time(lowest), Cell::text(" to "), Cell::Time(highest)];
    let mut scale = range.to_vec();
    scale.push(Cell::text("; the scale starts at 0"));
    let mut described = vec![Cell::text("Round trip over the run, ")];
    described.extend(range);
    let legend = Legend {
        title: "Round trip between cores",
        scale,
        described,
    };
    let step = |slice: &Slice| Step {
        from: slice.start_ns / end,
        to: (slice.start_ns + slice.length_ns) / end,
        height: slice.round_trip_ns.map(|ns| ns / highest),
    };
    Chart::Steps(legend, slices.iter().map(step).collect())
}

/// A lane for each thread.
fn lanes(threads: &[SampledThread], length_ns: f64) -> Chart {
    let slice_ns = (length_ns / THREAD_SLICES as f64).max(1.0);
    let sampled = threads.iter().flat_map(|it| &it.sampled_ns);
    let top = top_of(sampled.fold(0.0, |most: f64, ns| most.max(ns / slice_ns)));
    let heights = |amounts: &[f64]| {
        let share = |ns: &f64| (ns / slice_ns / top).clamp(0.0, 1.0);
        amounts.iter().map(share).collect()
    };
    let lane = |thread: &SampledThread| {
        let (sum, lost) = (thread.sum_ns(), thread.contended_ns.iter().sum::<f64>());
        let mut words = vec![Cell::Time(sum)];
        if lost > 0.0 {
            words.push(Cell::text(", "));
            words.push(Cell::Share((lost / sum.max(1.0)).min(1.0)));
            words.push(Cell::text(" contended"));
        }
        Lane {
            name: thread.name.clone(),
            id: thread.tid,
            words,
            heights: heights(&thread.sampled_ns),
            marked: heights(&thread.contended_ns),
        }
    };
    let legend = Legend {
        title: "Threads",
        scale: vec![
            Cell::text("top of each lane: "),
            Cell::Share(top),
            Cell::text(" of the time on a CPU"),
        ],
        described: vec![Cell::text("Thread time over the run")],
    };
    Chart::Lanes(legend, threads.iter().map(lane).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin(at: u64, round_trip_ns: f64) -> TimelineBin {
        TimelineBin {
            start_ns: at * 1_000,
            length_ns: 1_000,
            thread_ns: 1_000.0,
            contended_ns: 300.0,
            round_trip_ns,
        }
    }

    fn charts_of(bins: &[TimelineBin]) -> Charts {
        match section(bins, &[]).and_then(|it| it.drawing) {
            Some(Drawing::Charts(charts)) => charts,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_long_run_is_drawn_with_few_bars() {
        let bins: Vec<TimelineBin> = (0..1_000).map(|at| bin(at, 80.0)).collect();
        let drawn = charts_of(&bins);
        let [Chart::Bars(legend, bars), Chart::Steps(_, steps)] = drawn.charts.as_slice() else {
            panic!("{:?}", drawn.charts);
        };
        assert_eq!((bars.len(), steps.len()), (143, 143));
        assert_eq!(legend.scale[1], Cell::Share(0.5), "the next round share");
        assert!((bars[0].height - 0.6).abs() < 1e-9);
        assert_eq!(steps[9].height, Some(1.0));
    }

    #[test]
    fn without_a_round_trip_that_is_said_and_without_slices_nothing() {
        let charts = charts_of(&[bin(0, 0.0)]).charts;
        assert!(matches!(charts[1], Chart::Missing(_)));
        assert_eq!(section(&[], &[]), None);
    }

    #[test]
    fn a_thread_has_a_lane_as_high_as_it_was_on_a_cpu() {
        let mut thread = SampledThread {
            tid: Some(7),
            name: "pool".to_owned(),
            group: "pool".to_owned(),
            sampled_ns: vec![0.0; THREAD_SLICES],
            contended_ns: vec![0.0; THREAD_SLICES],
        };
        // 60 slices of 1,000 ns.
        (thread.sampled_ns[3], thread.contended_ns[3]) = (500.0, 250.0);
        thread.sampled_ns[4] = 2_000.0;
        let bins: Vec<TimelineBin> = (0..60).map(|at| bin(at, 80.0)).collect();
        let drawn = section(&bins, &[thread]).and_then(|it| it.drawing);
        let Some(Drawing::Charts(charts)) = drawn else {
            panic!()
        };
        let Chart::Lanes(_, lanes) = &charts.charts[2] else {
            panic!("{:?}", charts.charts);
        };
        assert_eq!((lanes.len(), lanes[0].id), (1, Some(7)));
        assert_eq!(lanes[0].heights[2..5], [0.0, 0.5, 1.0]);
        assert_eq!(lanes[0].marked[2..5], [0.0, 0.25, 0.0]);
        assert!(lanes[0].words.contains(&Cell::Share(0.1)));
    }
}
