//! The recorder that is loaded into programs: every round its records become events.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use linewise_heap::{Note, Record, Region, Ring, RingState, stamp};
use linewise_machine::process;
use linewise_recording::{HeapRun, Pid, StackId, Tid, Time, Writer};

use super::cost::{HeapCost, HeapLoss};
use super::ledger::{Event, LINGER, Ledger, What};
use super::marks::{Marker, Marks};
use super::numbered::Numbered;
use super::rate::{LOADED_PART, Rate};
use super::unwind::Unwinder;
use crate::error::Error;
use crate::target::clock::Clock;
use crate::target::follow::Stacks;

/// Rounds are close to each other for so long after the beginning, ns: stacks are told by slices until
/// there are rules.
const YOUNG_NS: u64 = 100_000_000;
/// Time between two looks for processes and threads that are gone, ns.
const SLOW_NS: u64 = 1_000_000_000;
/// Stacks that wait for the block that they belong to.
const ORPHANS: usize = 10_000;

/// Stacks that were told, in all processes: twice as many as there are call chains in a recording.
const STACKS: usize = 200_000;

/// Records of one ring in one round, of some thousand that it has room for, after which the next round comes soon.
const MANY: usize = 500;

/// What processes say of themselves that is a loss: how it is called, and a sentence.
const NOTES: [(Note, &str, &str); 5] = [
    (
        Note::Filtered,
        "heap-filtered",
        "processes that installed a filter of system calls: from then on the recorder made none, so stacks of blocks end with the page that they begin in, and threads that began later may not be told",
    ),
    (
        Note::Clockless,
        "heap-silenced",
        "processes that forbade the time stamp counter or all system calls: from then on their blocks were not recorded",
    ),
    (
        Note::NoSpace,
        "heap-no-address-space",
        "programs whose limit of address space or data (ulimit -v, -d) is too small for the heap recorder to be in it, below 400 MB: their blocks were not recorded",
    ),
    (
        Note::StartedWithout,
        "heap-started-without",
        "programs that were started without the heap recorder: static ones, those of another user, root directory or with other rights, those of a sanitizer, and those of system() and popen()",
    ),
    (
        Note::Visible,
        "heap-visible",
        "programs whose environment could not be put right: they see the recorder's variables there, and their heap may lie elsewhere than without it",
    ),
];

/// What is known of a ring.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The ring's image, 0 if it is free.
    image: u32,
    /// Process and thread, as they are numbered here.
    ids: (u32, u32),
    spent: u64,
    lost: u64,
    lost_marks: u64,
}

/// The collector's side of it.
pub(crate) struct Loaded {
    pub(super) ledger: Ledger,
    region: Rc<Region>,
    unwinder: Unwinder,
    rate: Rate,
    marks: Marks,
    rings: Vec<Seen>,
    family: Numbered,
    stacks: HashMap<u64, StackId>,
    slices: HashMap<u64, StackId>,
    began_ns: u64,
    slow_ns: u64,
    /// The most that one ring held in the last round.
    most: usize,
    /// Everything is told, whatever it costs.
    tells_all: bool,
    malformed: u64,
    /// Records that there was no room for.
    lost: u64,
    /// Why the blocks of an allocator that is linked into the program are not seen, if it has one.
    pub(super) unseen: Option<String>,
}

impl Loaded {
    /// Reads from `region`; tells of as much as a part of `overhead` pays for, or of everything.
    pub(super) fn new(region: Region, overhead: Option<f64>) -> Self {
        // Of no file, where it cannot be had: then nobody's stacks are walked by slices.
        let number = fs::metadata(region.path()).map_or(0, |file| file.ino());
        let recorder = Self {
            ledger: Ledger::new(Some(Clock::new())),
            family: Numbered::new(region.inode()),
            region: Rc::new(region),
            unwinder: Unwinder::of_recorded(number),
            rate: Rate::new(overhead, LOADED_PART),
            marks: Marks::default(),
            rings: Vec::new(),
            stacks: HashMap::new(),
            slices: HashMap::new(),
            began_ns: process::monotonic_ns(),
            slow_ns: 0,
            most: 0,
            tells_all: overhead.is_none(),
            malformed: 0,
            lost: 0,
            unseen: None,
        };
        recorder.region.set_patient(recorder.tells_all);
        recorder.allow();
        recorder
    }

    /// Has marks told and no blocks.
    pub(super) fn tell_only_marks(&self) {
        self.region.tell_only_marks();
    }

    /// Whether rounds should follow each other closely.
    pub(super) fn is_young(&self) -> bool {
        process::monotonic_ns().saturating_sub(self.began_ns) < YOUNG_NS
    }

    /// Whether rings fill: each round takes time from the target, as short ones as long ones.
    pub(super) fn is_busy(&self) -> bool {
        self.tells_all || self.most > MANY
    }

    /// Tells the recorder in the target to record no more.
    pub(super) fn detach(&self) {
        self.region.detach();
    }

    /// Objects are followed: most of the budget is for that.
    pub(super) fn make_way(&mut self) {
        self.rate.make_way();
        self.allow();
    }

    /// Has the next so many blocks at `address` told of in any case.
    pub(super) fn follow(&self, address: u64, blocks: u32) {
        self.region.follow(address, blocks);
    }

    /// The time of so many ticks, ns.
    fn span_ns(&self, ticks: u64) -> f64 {
        let clock = self.ledger.clock.as_ref();
        clock.map_or(0.0, |clock| clock.span_ns(ticks))
    }

    /// Reads what was told until now. `thread_ns` of the target's time have passed since the last round,
    /// and `in_the_way` of ours is taken from the target (0 to 1).
    ///
    /// # Errors
    /// The recording cannot be written.
    pub(super) fn round(
        &mut self,
        writer: &mut Writer,
        stacks: &mut Stacks,
        thread_ns: u64,
        in_the_way: f64,
    ) -> Result<HeapCost, Error> {
        let began = process::thread_cpu_time_ns();
        // Everybody who is told of by now was there before: what is later waits for the next round.
        let until = stamp();
        let target_ns = self.drain(stacks);
        self.ledger.apply(until);
        self.ledger.look_up_touches();
        self.ledger.settle(writer, LINGER)?;
        writer.push(self.marks.settle(|key| self.ledger.labels.named(key)))?;
        let now = process::monotonic_ns();
        if now.saturating_sub(self.slow_ns) >= SLOW_NS {
            self.slow_ns = now;
            if let Some(clock) = &mut self.ledger.clock {
                clock.correct(until);
            }
            self.bury(writer)?;
        }
        let own_ns = process::thread_cpu_time_ns().saturating_sub(began);
        // What goes with the number of records: a round costs something by itself, whatever is told.
        let own_ns = (own_ns as f64 * in_the_way).min(target_ns);
        let due_ns = self.rate.passed(thread_ns, target_ns + own_ns);
        self.region.set_interval(self.rate.interval());
        self.allow();
        self.region.hurry(false);
        self.ledger.run.spent_ns += target_ns as u64;
        Ok(HeapCost {
            target_ns,
            own_ns,
            due_ns,
        })
    }

    /// Gives the recorder what it may take until the next round.
    fn allow(&self) {
        let ticks_a_ns = 1e6 / self.span_ns(1_000_000).max(1.0);
        self.region
            .allow((self.rate.allowance_ns() * ticks_a_ns) as i64);
    }

    /// Takes all records out of the rings; the time that they took from the target, ns.
    fn drain(&mut self, stacks: &mut Stacks) -> f64 {
        let mut spent = 0;
        self.most = 0;
        let region = Rc::clone(&self.region);
        for ring in region.rings() {
            spent += self.drain_ring(&region, ring, stacks);
        }
        self.span_ns(spent)
    }

    fn drain_ring(&mut self, region: &Region, ring: Ring<'_>, stacks: &mut Stacks) -> u64 {
        let state = ring.state();
        if state == RingState::Free {
            return 0;
        }
        let ids = ring.ids();
        if self.rings.len() <= ring.index() {
            self.rings.resize(ring.index() + 1, Seen::default());
        }
        if self.rings[ring.index()].image != ids.image {
            let known = self.ledger.process_of(ids.image);
            let here = self.family.ids(known, (ids.pid, ids.tid));
            self.rings[ring.index()] = Seen {
                image: ids.image,
                ids: here,
                ..Seen::default()
            };
            self.ledger
                .found_image(ids.image, ids.parent, here.0, ring.opened());
            if self.ledger.processes.get(&here.0) == Some(&ids.image) {
                let opened = self.ledger.ns(ring.opened());
                self.marks.replaced(here.0, ids.image, opened);
            }
        }
        let (pid, tid) = self.rings[ring.index()].ids;
        let thread = self.ledger.threads.number(u64::from(tid), || tid);
        let layout = ring.layout();
        let marker = Marker {
            image: ids.image,
            pid,
            tid,
        };
        let mut refused = 0;
        let drained = ring.drain(|words| match Record::parse(words) {
            Some(Record::Mark {
                stamp,
                code,
                id,
                label,
            }) => {
                if stamp > linewise_heap::stamp_after() {
                    refused += 1;
                    return;
                }
                let time = self.ledger.ns(stamp);
                self.marks.told(marker, code, time, (id, label));
            }
            Some(record) => {
                let what = self.understand(region, (pid, layout), record, stacks);
                let Some((stamp, what)) = what else { return };
                // Nothing is told before it happened: it would wait here for ever.
                if stamp > linewise_heap::stamp_after() {
                    refused += 1;
                    return;
                }
                self.ledger.events.push(Event {
                    stamp,
                    image: ids.image,
                    thread,
                    what,
                });
            }
            None => refused += 1,
        });
        self.malformed += refused;
        self.malformed += u64::from(drained.is_err());
        self.most = self.most.max(drained.unwrap_or(0));
        let seen = &mut self.rings[ring.index()];
        let spent = ring.spent();
        let more = spent.wrapping_sub(seen.spent);
        seen.spent = spent;
        let lost = ring.lost();
        self.lost = self.lost.saturating_add(lost.saturating_sub(seen.lost));
        seen.lost = lost;
        let lost_marks = ring.lost_marks();
        self.marks.lost += lost_marks.saturating_sub(seen.lost_marks);
        seen.lost_marks = lost_marks;
        // Its state was read first: a writer that had closed it writes no more.
        if state == RingState::Closed {
            self.end_marks(ring, marker);
            self.rings[ring.index()] = Seen::default();
            ring.recycle();
        }
        // The target may write over the count.
        if more < 1 << 40 { more } else { 0 }
    }

    /// A thread tells no more marks.
    fn end_marks(&mut self, ring: Ring<'_>, marker: Marker) {
        let since = ring.lost_marks_since().map(|stamp| self.ledger.ns(stamp));
        self.marks.forget(marker, since);
    }

    fn keep_label(&mut self, key: u64, words: &[u64], bytes: usize) {
        let text: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let text = String::from_utf8_lossy(&text[..bytes.min(text.len())]);
        self.ledger.labels.number(key, || text.into_owned());
    }

    /// What a record tells, if it is an event.
    fn understand(
        &mut self,
        region: &Region,
        (pid, layout): (u32, u32),
        record: Record<'_>,
        stacks: &mut Stacks,
    ) -> Option<(u64, What)> {
        match record {
            Record::Alloc {
                stamp,
                address,
                size,
                stack,
                allocator,
                interval,
                label,
            } => {
                let stack = match self.slices.remove(&stack) {
                    Some(id) => id,
                    None => self.stacks.get(&stack).copied().unwrap_or(StackId(0)),
                };
                let number = |label| self.ledger.labels.numbers.get(&label).copied();
                let what = What::Alloc {
                    address,
                    size,
                    stack: stack.0,
                    allocator: allocator as u8,
                    interval: interval.max(1.0).log2().round().min(63.0) as u8,
                    label: label.and_then(number).unwrap_or(0),
                };
                return Some((stamp, what));
            }
            Record::Free {
                stamp,
                address,
                named,
            } => return Some((stamp, What::Free { address, named })),
            Record::Unmap {
                stamp,
                address,
                length,
            } => {
                let length = length.checked_next_multiple_of(4096).unwrap_or(u64::MAX);
                let what = What::Unmap {
                    start: address,
                    end: address.saturating_add(length),
                };
                return Some((stamp, what));
            }
            Record::Stack { key, frames } => {
                if let Some(&last) = frames.last()
                    && region.rule(layout, last).is_none()
                    && let Some(rule) = self.unwinder.rule((pid, layout), last, None)
                {
                    region.set_rule(layout, last, rule);
                }
                let id = stacks.id(frames);
                // Of a chain that is not kept nothing has to be known.
                if id != StackId(0) && self.stacks.len() < STACKS {
                    self.stacks.insert(key, id);
                } else {
                    stacks.dropped += u64::from(id != StackId(0));
                }
            }
            Record::Slice {
                key,
                layout: told,
                prefix,
                at,
                words,
            } => {
                let mut frames = prefix.to_vec();
                // The slice says what was loaded when it was made, in as many bits.
                let layout = if told == layout & 0xffff {
                    layout
                } else {
                    told
                };
                let tell = |ip, rule| {
                    // A table that is full is walked by slices.
                    region.set_rule(layout, ip, rule);
                };
                frames.extend(self.unwinder.unwind(tell, (pid, layout), at, words, None));
                frames.truncate(linewise_heap::MOST_FRAMES);
                // Those that never came are few.
                if self.slices.len() > ORPHANS {
                    self.slices.clear();
                }
                self.slices.insert(key, stacks.id(&frames));
            }
            // Told apart before.
            Record::Mark { .. } => {}
            Record::Label { key, words, bytes } => self.keep_label(key, words, bytes),
        }
        None
    }

    /// The end of the marks: what is left of them, each until `ended` says that its thread was there. Call it before
    /// [`Loaded::finish`].
    pub(super) fn finish_marks(
        &mut self,
        writer: &mut Writer,
        stacks: &mut Stacks,
        ended: impl Fn(Pid, Tid, Time) -> Time,
    ) -> Result<(), Error> {
        self.region.detach();
        let spent = self.drain(stacks);
        self.ledger.run.spent_ns += spent as u64;
        let region = Rc::clone(&self.region);
        for ring in region.rings() {
            let seen = self.rings.get(ring.index()).copied().unwrap_or_default();
            if ring.state() == RingState::Open && seen.image != 0 {
                let (image, (pid, tid)) = (seen.image, seen.ids);
                self.end_marks(ring, Marker { image, pid, tid });
            }
        }
        self.marks.lost += self.region.ringless_marks();
        let rows = (self.marks).finish(|key| self.ledger.labels.named(key), ended);
        Ok(writer.push(rows)?)
    }

    /// Gives back what belongs to processes and threads that are gone.
    pub(super) fn bury(&mut self, writer: &mut Writer) -> Result<(), Error> {
        for ring in self.region.rings() {
            if ring.state() != RingState::Open {
                continue;
            }
            let image = ring.ids().image;
            // Of one that was opened since the rings were read nothing is known yet.
            let seen = self.rings.get(ring.index()).filter(|it| it.image == image);
            let Some(&Seen {
                ids: (pid, tid), ..
            }) = seen
            else {
                continue;
            };
            let task = format!("/proc/{pid}/task/{tid}");
            let another = self.ledger.processes.get(&pid) != Some(&image);
            // What it told last was read in this round, or is read in the next.
            if another || !Path::new(&task).exists() {
                ring.close();
            }
        }
        let rings = self.region.rings();
        let used = rings.filter(|ring| ring.state() != RingState::Free);
        self.unwinder
            .keep(&used.map(|ring| ring.layout()).collect());
        let lives = |pid| Path::new(&format!("/proc/{pid}")).exists();
        self.ledger.bury(writer, lives)
    }

    /// The end: the last records, and rows of all that is still allocated. What the recorder did, if it told of blocks, with
    /// what was lost: name, number, sentence.
    ///
    /// # Errors
    /// The recording cannot be written.
    pub(super) fn finish(
        mut self,
        writer: &mut Writer,
        stacks: &mut Stacks,
    ) -> Result<(Option<HeapRun>, Vec<HeapLoss>), Error> {
        self.region.detach();
        let spent = self.drain(stacks);
        self.ledger.run.spent_ns += spent as u64;
        self.ledger.close(writer)?;
        let losses = self.losses();
        let tells_blocks = !self.region.tells_only_marks();
        Ok((tells_blocks.then_some(self.ledger.run), losses))
    }

    /// What was lost: name, number, sentence.
    fn losses(&self) -> Vec<HeapLoss> {
        let mut losses = Vec::new();
        losses.extend(self.ledger.losses());
        losses.extend(self.marks.losses());
        let lost = self.lost.saturating_add(self.region.ringless());
        if lost > 0 {
            losses.push((
                "heap-events-lost",
                lost,
                "allocations and frees that could not be told: the collector did not get a CPU in time, more than a thousand threads allocated, or a signal handler did".to_owned(),
            ));
        }
        for (note, what, sentence) in NOTES {
            let times = self.region.noted(note);
            if times > 0 {
                losses.push((what, u64::from(times), sentence.to_owned()));
            }
        }
        if self.family.strangers > 0 {
            losses.push((
                "heap-other-namespace",
                self.family.strangers,
                "processes in other namespaces of process ids that had ended before they were looked for: accesses to their blocks have no name".to_owned(),
            ));
        }
        if self.ledger.strays > 0 {
            losses.push((
                "heap-events-late",
                self.ledger.strays,
                "allocations and frees that were told after their process had ended".to_owned(),
            ));
        }
        if self.malformed > 0 {
            losses.push((
                "heap-events-malformed",
                self.malformed,
                "records of the heap that made no sense: the target wrote over the shared memory"
                    .to_owned(),
            ));
        }
        // Said with what to do about it below, if it is that of the program itself.
        let tells_blocks = !self.region.tells_only_marks();
        if tells_blocks && self.region.noted(Note::OwnMalloc) > 0 && self.unseen.is_none() {
            losses.push((
                "own-malloc",
                u64::from(self.region.noted(Note::OwnMalloc)),
                "programs with a malloc of their own, whose blocks are not recorded; name its objects with `linewise.h`".to_owned(),
            ));
        }
        if let Some(why) = self.unseen.as_ref().filter(|_| tells_blocks) {
            losses.push((
                "own-allocator",
                1,
                format!("programs whose blocks are not recorded: {why}"),
            ));
        }
        if self.region.images() == 0 {
            losses.push((
                "heap-not-recorded",
                1,
                "the heap recorder was not loaded into any process".to_owned(),
            ));
        }
        losses
    }
}
