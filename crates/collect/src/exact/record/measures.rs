//! Everything that is measured: the simulated hierarchy, reuse
//! distances in private and in shared caches, and which lines move between whom.

use linewise_cache::hierarchy::{
    Answer, Class, Hierarchy, Level, Party, Report, Transfer, Transfers, Unbounded,
};
use linewise_cache::reuse::{
    Attribution, Chooser, Chosen, Grouping, ReuseOptions, ReuseProfile, ReuseTracker,
};
use linewise_cache::{Access, Kind};

use super::super::access::Handover;
use super::super::calls::CallKind;
use super::super::error::MeasureError;
use super::machine::Model;
use super::moves::{Move, Moved, Moves};
use super::objects::{Noted, Objects};
use super::options::ExactRecordOptions;
use super::paths::CallPaths;
use super::step::Step;
use linewise_machine::procfs;

/// Pairs of instructions, by the calls that led to them, that have rows of their own.
const PAIRS: usize = 1024;
/// Records of lines take at most this part of the machine's memory, and may take so many bytes in any case.
const CACHES_PART: u64 = 10;
const LEAST_FOR_CACHES: u64 = 1 << 28;
/// Transfers that have rows of their own.
const MOVES: usize = 4096;

/// Who has which line.
enum Caches {
    /// Caches as the machine has them.
    Machine(Box<Hierarchy>),
    /// None that could lose a line to another.
    Unbounded(Box<Unbounded>),
}

/// The measurement, under way.
pub(super) struct Measures {
    caches: Caches,
    private: Option<ReuseTracker>,
    shared: Option<ReuseTracker>,
    /// Private, by pairs of lines: what a prefetcher of adjacent lines would make of it.
    pairs: Option<ReuseTracker>,
    /// Private and shared, by elements.
    elements: [Option<ReuseTracker>; 2],
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
pub(super) struct Counted {
    /// By thread: loads, stores and updates in all, and lines that it alone has touched.
    threads: Vec<([u64; 3], u64)>,
    /// By thread: lines that it handed over.
    handed_over: Vec<u64>,
    /// By site: samples of loads, stores and updates.
    samples: Vec<[u64; 3]>,
}

impl Counted {
    pub(super) fn hand_over(&mut self, handover: &Handover) {
        let thread = usize::from(handover.thread);
        if self.handed_over.len() <= thread {
            self.handed_over.resize(thread + 1, 0);
        }
        self.handed_over[thread] += 1;
    }

    pub(super) fn sample(&mut self, site: u32, kind: Kind) {
        if self.samples.len() <= site as usize {
            self.samples.resize(site as usize + 1, [0; 3]);
        }
        self.samples[site as usize][kind as usize] += 1;
    }

    /// Takes [`ExactOutcome::counted`](super::super::ExactOutcome::counted), when all else was taken.
    pub(super) fn add_threads(&mut self, counted: &[([u64; 3], u64)]) {
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
    pub(super) fn new(model: &Model, options: &ExactRecordOptions) -> Result<Self, MeasureError> {
        let line_bytes = model.config.line_bytes;
        let (reuse, one_line_in) = (options.reuse, options.trace.one_line_in.max(1));
        if let Some(element_bytes) = options.element_bytes
            && element_bytes >= line_bytes
        {
            return Err(MeasureError::Element {
                element_bytes,
                line_bytes,
            });
        }
        let tracker = |grouping: Grouping, granularity_bytes: u32, pairs: usize| {
            reuse
                .sampling(one_line_in)
                .map(|sampling| {
                    ReuseTracker::new(&ReuseOptions {
                        granularity_bytes,
                        grouping,
                        sampling,
                        attribution: Attribution {
                            sites: false,
                            pairs,
                        },
                    })
                })
                .transpose()
                .map_err(MeasureError::Reuse)
        };
        let groups: Vec<u16> = (0..u16::MAX)
            .map(|thread| model.group(thread) as u16)
            .collect();
        let elements = |grouping| match options.element_bytes {
            Some(bytes) => tracker(grouping, bytes, 0),
            None => Ok(None),
        };
        let caches = if options.simulates() {
            Hierarchy::new(&model.config).map(|caches| Caches::Machine(Box::new(caches)))
        } else {
            Unbounded::new(&model.config).map(|mut caches| {
                caches.set_limit((procfs::memory_bytes() / CACHES_PART).max(LEAST_FOR_CACHES));
                Caches::Unbounded(Box::new(caches))
            })
        };
        let mut measures = Self {
            caches: caches.map_err(MeasureError::Machine)?,
            private: tracker(Grouping::Private, line_bytes, PAIRS)?,
            elements: [
                elements(Grouping::Private)?,
                elements(Grouping::Shared(groups.clone()))?,
            ],
            shared: tracker(Grouping::Shared(groups), line_bytes, PAIRS)?,
            // A share of the lines holds no pairs, and what prefetching brings is told only beside
            // simulated caches.
            pairs: if one_line_in > 1 || !options.simulates() {
                None
            } else {
                tracker(Grouping::Private, 2 * line_bytes, 0)?
            },
            paths: options.follows_calls().then(CallPaths::new),
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
    pub(super) fn chooser(&self) -> Option<Chooser> {
        // Calls are followed through all accesses.
        if self.paths.is_some() {
            return None;
        }
        let [private, shared] = &self.elements;
        let trackers = [&self.private, &self.shared, &self.pairs, private, shared];
        let trackers: Vec<&ReuseTracker> = trackers.into_iter().flatten().collect();
        Chooser::new(&trackers)
    }

    /// Takes what further instructions do to the stack of calls.
    pub(super) fn learn(&mut self, kinds: &[CallKind]) {
        if let Some(paths) = &mut self.paths {
            paths.learn(kinds);
        }
    }

    /// Takes the next accesses, and tells `objects` of them.
    pub(super) fn take(&mut self, batch: &[Step], mut objects: Option<&mut Objects>) {
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
    pub(super) fn look_at_the_end(&self, objects: &mut Objects) {
        if let Caches::Machine(caches) = &self.caches {
            objects.look_at_the_end(caches);
        }
    }

    /// Takes what a thread did to a line that it had for itself: its last load and store stand for all that is counted of it.
    pub(super) fn hand_over(&mut self, handover: &Handover, objects: Option<&mut Objects>) {
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
    pub(super) fn pass(&mut self, thread: u16, count: u64) {
        self.followed += count;
        let thread = usize::from(thread);
        if self.passed.len() <= thread {
            self.passed.resize(thread + 1, 0);
        }
        self.passed[thread] += count;
    }

    /// Shows accesses to the trackers of reuse distances.
    fn track(&mut self, batch: &[Step]) {
        let [private, shared] = &mut self.elements;
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
            let trackers = [
                &mut self.private,
                &mut self.shared,
                &mut self.pairs,
                private,
                shared,
            ];
            for tracker in trackers.into_iter().flatten() {
                tracker.record_chosen(batch, &self.chosen);
            }
            return;
        }
        if self.private.is_none() {
            return;
        }
        self.accesses.clear();
        self.accesses
            .extend(batch.iter().map(|&step| Access::from(step)));
        let accesses = &self.accesses;
        if let Some(paths) = &mut self.paths {
            paths.follow(accesses);
        }
        for tracker in [&mut self.private, &mut self.shared].into_iter().flatten() {
            match &mut self.paths {
                Some(paths) => {
                    tracker.record_at(accesses, |index| paths.place(index, accesses[index].site));
                }
                None => tracker.record(accesses),
            }
        }
        for tracker in [&mut self.pairs, private, shared].into_iter().flatten() {
            tracker.record(accesses);
        }
    }

    /// Ends the measurement.
    pub(super) fn finish(mut self, counted: &Counted) -> Measured {
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
            private: self.private.map(|tracker| tracker.profile()),
            shared: self.shared.map(|tracker| tracker.profile()),
            pairs: self.pairs.map(|tracker| tracker.profile()),
            elements: self
                .elements
                .map(|tracker| tracker.map(|tracker| tracker.profile())),
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
pub(super) struct Measured {
    pub(super) report: Report,
    pub(super) private: Option<ReuseProfile>,
    pub(super) shared: Option<ReuseProfile>,
    /// Private, by pairs of lines.
    pub(super) pairs: Option<ReuseProfile>,
    /// Private and shared, by elements.
    pub(super) elements: [Option<ReuseProfile>; 2],
    /// What the sites of `private` and `shared` are: places of these.
    pub(super) paths: Option<CallPaths>,
    /// The heaviest first.
    pub(super) moves: Vec<(Move, Moved)>,
    pub(super) other_moves: Transfers,
    /// Accesses.
    pub(super) followed: u64,
    /// Lines that were given up for want of memory.
    pub(super) forgotten: u64,
}
