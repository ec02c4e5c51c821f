//! Everything that is measured: the simulated hierarchy, reuse
//! distances in private and in shared caches, and which lines move between whom.

use linewise_cache::hierarchy::{
    Answer, Class, Hierarchy, Level, Party, Report, Transfer, Transfers, Unbounded,
};
use linewise_cache::reuse::{
    Attribution, Chooser, Chosen, Grouping, ReuseOptions, ReuseProfile, ReuseTracker,
};
use linewise_cache::{Access, Kind};
use linewise_recording::{ReuseScope, Unit};

use super::machine::Model;
use super::moves::{Move, Moved, Moves};
use super::objects::{Noted, Objects};
use super::options::{MeasureError, MeasureOptions};
use super::paths::CallPaths;
use super::step::Step;
use crate::access::Handover;
use crate::calls::CallKind;

/// Pairs of instructions, by the calls that led to them, that have rows of their own.
const PAIRS: usize = 1024;
/// Transfers that have rows of their own.
const MOVES: usize = 4096;

/// Who has which line.
enum Caches {
    /// Caches as the machine has them.
    Machine(Box<Hierarchy>),
    /// None that could lose a line to another.
    Unbounded(Box<Unbounded>),
}

/// Reuse of one unit in one scope, under way.
struct Tracker {
    scope: ReuseScope,
    unit: Unit,
    /// By pairs of instructions, with the calls that led to them where these are followed.
    by_pairs: bool,
    tracker: ReuseTracker,
}

/// Reuse of one unit in one scope.
#[derive(Clone, Debug)]
pub(crate) struct Tracked {
    pub(crate) scope: ReuseScope,
    pub(crate) unit: Unit,
    pub(crate) by_pairs: bool,
    pub(crate) profile: ReuseProfile,
}

impl Tracker {
    fn finish(self) -> Tracked {
        Tracked {
            scope: self.scope,
            unit: self.unit,
            by_pairs: self.by_pairs,
            profile: self.tracker.profile(),
        }
    }
}

/// Those that are wanted, in the order of their rows.
fn trackers(model: &Model, options: &MeasureOptions) -> Result<Vec<Tracker>, MeasureError> {
    let Some(sampling) = options.reuse.sampling(options.one_line_in) else {
        return Ok(Vec::new());
    };
    let line_bytes = model.config.line_bytes;
    let groups: Vec<u16> = (0..u16::MAX)
        .map(|thread| model.group(thread) as u16)
        .collect();
    let mut wanted = Vec::new();
    let scopes = [ReuseScope::Private, ReuseScope::Shared];
    wanted.extend(scopes.map(|scope| (scope, Unit::Line, line_bytes)));
    if let Some(bytes) = options.element_bytes {
        let unit = match bytes {
            1 => Unit::Byte,
            _ => Unit::Element,
        };
        wanted.extend(scopes.map(|scope| (scope, unit, bytes)));
    }
    // What a prefetcher of adjacent lines would make of it. A share of the lines holds no pairs, and what
    // prefetching brings is told only beside simulated caches.
    if options.one_line_in <= 1 && options.simulates {
        wanted.push((ReuseScope::Private, Unit::LinePair, 2 * line_bytes));
    }
    let tracker = |(scope, unit, granularity_bytes)| {
        let by_pairs = unit == Unit::Line;
        let tracker = ReuseTracker::new(&ReuseOptions {
            granularity_bytes,
            grouping: match scope {
                ReuseScope::Private => Grouping::Private,
                ReuseScope::Shared => Grouping::Shared(groups.clone()),
            },
            sampling,
            attribution: Attribution {
                sites: false,
                pairs: if by_pairs { PAIRS } else { 0 },
            },
        });
        Ok(Tracker {
            scope,
            unit,
            by_pairs,
            tracker: tracker.map_err(MeasureError::Reuse)?,
        })
    };
    wanted.into_iter().map(tracker).collect()
}

/// The measurement, under way.
pub(crate) struct Measures {
    caches: Caches,
    trackers: Vec<Tracker>,
    /// The calls that led to the accesses, for the trackers that attribute.
    paths: Option<CallPaths>,
    moves: Moves,
    /// Logarithm of the bytes that a bit of a byte mask stands for.
    bit_shift: u32,
    accesses: Vec<Access>,
    /// The trackers look at the chosen accesses alone.
    some_are_chosen: bool,
    chosen: Chosen,
    followed: u64,
    /// By thread: accesses that are not told, since the last that is.
    passed: Vec<u64>,
    /// What objects want to know of a batch.
    noted: Vec<Noted>,
}

/// What is known of accesses that are not told one by one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// By thread: loads, stores and updates in all, and lines that it alone has touched.
    threads: Vec<([u64; 3], u64)>,
    /// By thread: lines that it handed over.
    handed_over: Vec<u64>,
    /// By site: samples of loads, stores and updates.
    samples: Vec<[u64; 3]>,
}

impl Counted {
    pub(crate) fn hand_over(&mut self, handover: &Handover) {
        let thread = usize::from(handover.thread);
        if self.handed_over.len() <= thread {
            self.handed_over.resize(thread + 1, 0);
        }
        self.handed_over[thread] += 1;
    }

    pub(crate) fn sample(&mut self, site: u32, kind: Kind) {
        if self.samples.len() <= site as usize {
            self.samples.resize(site as usize + 1, [0; 3]);
        }
        self.samples[site as usize][kind as usize] += 1;
    }

    /// Takes what each thread did in all, when all else was taken.
    pub(crate) fn add_threads(&mut self, counted: &[([u64; 3], u64)]) {
        let handed_over = self.handed_over.iter().copied().chain(std::iter::repeat(0));
        self.threads = counted
            .iter()
            .zip(handed_over)
            .map(|(&(kinds, touched), handed_over)| (kinds, touched.saturating_sub(handed_over)))
            .collect();
    }

    /// All accesses; 0 where they are told one by one.
    fn accesses(&self) -> u64 {
        self.threads.iter().flat_map(|(kinds, _)| kinds).sum()
    }

    /// Adds to the caches what they were not told.
    fn complete(&self, caches: &mut Unbounded) {
        let mut missing = 0;
        for (thread, &(kinds, alone)) in (0u16..).zip(&self.threads) {
            missing += caches.complete_thread(thread, kinds, alone);
        }
        let samples: u64 = self.samples.iter().flatten().sum();
        let weight = missing as f64 / samples.max(1) as f64;
        for (site, counts) in (0u32..).zip(&self.samples) {
            let counts = counts.map(|count| (count as f64 * weight).round() as u64);
            caches.add_site_hits(site, counts);
        }
    }
}

impl Measures {
    /// Nothing measured yet.
    pub(crate) fn new(model: &Model, options: &MeasureOptions) -> Result<Self, MeasureError> {
        let line_bytes = model.config.line_bytes;
        if let Some(element_bytes) = options.element_bytes
            && element_bytes >= line_bytes
        {
            return Err(MeasureError::Element {
                element_bytes,
                line_bytes,
            });
        }
        let caches = if options.simulates {
            Hierarchy::new(&model.config).map(|caches| Caches::Machine(Box::new(caches)))
        } else {
            Unbounded::new(&model.config).map(|mut caches| {
                caches.set_limit(options.most_bytes);
                Caches::Unbounded(Box::new(caches))
            })
        };
        let mut measures = Self {
            caches: caches.map_err(MeasureError::Machine)?,
            trackers: trackers(model, options)?,
            paths: options.follows_calls.then(CallPaths::new),
            moves: Moves::new(MOVES),
            bit_shift: line_bytes.trailing_zeros().saturating_sub(6),
            accesses: Vec::new(),
            some_are_chosen: false,
            chosen: Chosen::default(),
            followed: 0,
            passed: Vec::new(),
            noted: Vec::new(),
        };
        measures.some_are_chosen = measures.chooser().is_some();
        Ok(measures)
    }

    /// What tells the accesses that the trackers have to look at; `None` if they are to get all.
    pub(crate) fn chooser(&self) -> Option<Chooser> {
        // Calls are followed through all accesses.
        if self.paths.is_some() {
            return None;
        }
        let trackers: Vec<&ReuseTracker> = self.trackers.iter().map(|it| &it.tracker).collect();
        Chooser::new(&trackers)
    }

    /// Takes what further instructions do to the stack of calls.
    pub(crate) fn learn(&mut self, kinds: &[CallKind]) {
        if let Some(paths) = &mut self.paths {
            paths.learn(kinds);
        }
    }

    /// Takes the next accesses, and tells `objects` of them.
    pub(crate) fn take(&mut self, batch: &[Step], mut objects: Option<&mut Objects>) {
        let told = batch.iter().map(|step| u64::from(step.stands_for()));
        self.followed += told.sum::<u64>();
        let wants_served = objects.as_ref().is_some_and(|it| it.wants_served());
        let has_objects = objects.is_some();
        let (moves, bit_shift) = (&mut self.moves, self.bit_shift);
        let mut fetched = |index: usize, line: u64, from: &Party| {
            if let Some(objects) = objects.as_deref_mut() {
                let access: Access = batch[index].into();
                // Its part in this line: it may begin in the line before.
                let to = access.address.max(line);
                objects.moved(line, line + u64::from(from.bytes.0), to);
            }
        };
        let moved = |transfer: &Transfer| moves.count(transfer, bit_shift);
        match &mut self.caches {
            Caches::Machine(caches) if has_objects => {
                // The closure for transfers has the objects until the batch is done.
                let mut noted = std::mem::take(&mut self.noted);
                caches.run_with(
                    batch,
                    |index, outcome| {
                        let conflict = outcome.answer(Level::L1) == Answer::Miss(Class::Conflict);
                        if conflict || wants_served {
                            noted.push(Noted {
                                index,
                                core: outcome.core,
                                line: outcome.line,
                                served: outcome.served.into(),
                                conflict,
                            });
                        }
                        if let Some(from) = &outcome.supplier {
                            fetched(index, outcome.line, from);
                        }
                    },
                    moved,
                );
                if let Some(objects) = objects.as_deref_mut() {
                    for noted in noted.drain(..) {
                        let access: Access = batch[noted.index].into();
                        objects.noted(&noted, access.site);
                    }
                    objects.look(caches, batch.len());
                }
                self.noted = noted;
            }
            Caches::Machine(caches) => caches.run_with(batch, |_, _| {}, moved),
            Caches::Unbounded(caches) => caches.run_with(batch, fetched, moved),
        }
        if let Some(objects) = objects {
            objects.accesses(batch);
        }
        self.track(batch);
    }

    /// What the caches hold at the end, for a run that was too short for a look in between.
    pub(crate) fn look_at_the_end(&self, objects: &mut Objects) {
        if let Caches::Machine(caches) = &self.caches {
            objects.look_at_the_end(caches);
        }
    }

    /// Takes what a thread did to a line that it had for itself: its last load and store stand for all that is counted of it.
    pub(crate) fn hand_over(&mut self, handover: &Handover, objects: Option<&mut Objects>) {
        let mut both = [handover.load, handover.store];
        if handover.load_is_last {
            both.reverse();
        }
        let steps: Vec<Step> = both.iter().flatten().map(Step::own).collect();
        self.take(&steps, objects);
        if let Caches::Unbounded(caches) = &mut self.caches {
            let [loaded, stored] = handover.more;
            caches.did(handover.thread, handover.line, loaded | stored, stored);
        }
    }

    /// Takes that so many accesses of a thread have passed that are not told.
    pub(crate) fn pass(&mut self, thread: u16, count: u64) {
        self.followed += count;
        let thread = usize::from(thread);
        if self.passed.len() <= thread {
            self.passed.resize(thread + 1, 0);
        }
        self.passed[thread] += count;
    }

    /// Shows accesses to the trackers of reuse distances.
    fn track(&mut self, batch: &[Step]) {
        if self.some_are_chosen {
            let passed = &mut self.passed;
            self.chosen.note(batch.iter().map(|step| {
                let told = step.stands_for();
                let more = match passed.get_mut(usize::from(step.thread())) {
                    Some(passed) if told > 0 => std::mem::take(passed),
                    _ => 0,
                };
                let stands_for = u32::try_from(u64::from(told) + more).unwrap_or(u32::MAX);
                (step.thread(), stands_for, step.looked_at())
            }));
            for it in &mut self.trackers {
                it.tracker.record_chosen(batch, &self.chosen);
            }
            return;
        }
        if self.trackers.is_empty() {
            return;
        }
        self.accesses.clear();
        self.accesses
            .extend(batch.iter().map(|&step| Access::from(step)));
        let accesses = &self.accesses;
        if let Some(paths) = &mut self.paths {
            paths.follow(accesses);
        }
        for it in &mut self.trackers {
            match &mut self.paths {
                Some(paths) if it.by_pairs => {
                    let place = |index: usize| paths.place(index, accesses[index].site);
                    it.tracker.record_at(accesses, place);
                }
                _ => it.tracker.record(accesses),
            }
        }
    }

    /// Ends the measurement.
    pub(crate) fn finish(mut self, counted: &Counted) -> Measured {
        if let Caches::Unbounded(caches) = &mut self.caches {
            counted.complete(caches);
        }
        let forgotten = match &self.caches {
            Caches::Unbounded(caches) => caches.forgotten_lines(),
            Caches::Machine(_) => 0,
        };
        let moved = |transfer: &Transfer| self.moves.count(transfer, self.bit_shift);
        let report = match self.caches {
            Caches::Machine(caches) => caches.finish_with(moved),
            Caches::Unbounded(caches) => caches.finish_with(moved),
        };
        let (moves, other_moves) = self.moves.finish();
        Measured {
            forgotten,
            report,
            reuse: self.trackers.into_iter().map(Tracker::finish).collect(),
            paths: self.paths,
            moves,
            other_moves,
            // The last of a thread that are not told are in no word of its ring.
            followed: self.followed.max(counted.accesses()),
        }
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) report: Report,
    pub(crate) reuse: Vec<Tracked>,
    /// What the sites of profiles by pairs are: places of these.
    pub(crate) paths: Option<CallPaths>,
    /// The heaviest first.
    pub(crate) moves: Vec<(Move, Moved)>,
    pub(crate) other_moves: Transfers,
    /// Accesses.
    pub(crate) followed: u64,
    /// Lines that were given up for want of memory.
    pub(crate) forgotten: u64,
}
