//! Carrying moves out, and taking them back.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use linewise_placer::TaskKey;
use linewise_topology::CpuSet;

use super::journal::{Entry, Journal};
use super::kernel::Kernel;

/// What became of a move.
#[derive(Debug)]
pub(super) enum Done {
    /// It runs there.
    Moved,
    /// It has ended.
    Ended,
    /// Somebody else changed where it may run since we did: it is theirs.
    Theirs,
    /// Another placer has its process: that one's number, where it is known.
    Claimed(Option<u32>),
    /// The kernel refuses.
    Refused(io::Error),
}

/// What became of an undoing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Undone {
    /// Threads that may run again where they could before.
    pub(super) restored: usize,
    /// Threads that were somebody else's by then.
    pub(super) theirs: usize,
    /// Threads that had ended.
    pub(super) ended: usize,
    /// Of those that are restored, threads whose CPUs of before are all offline.
    pub(super) displaced: usize,
    /// Threads that the kernel did not let change.
    pub(super) refused: usize,
}

/// What was done to one thread.
#[derive(Clone, Debug)]
struct Given {
    process: u32,
    process_start: u64,
    since: u64,
    before: CpuSet,
    /// What it was given, the newest last: after a crash it may have any of them.
    asked: Vec<CpuSet>,
}

/// Moves threads, and remembers how it was.
pub(super) struct Hands<K> {
    kernel: K,
    journal: Journal,
    given: BTreeMap<TaskKey, Given>,
    theirs: BTreeSet<TaskKey>,
}

impl<K: Kernel> Hands<K> {
    /// Takes over what a placer that was killed left.
    pub(super) fn new(kernel: K, journal: Journal, left: Vec<Entry>) -> Self {
        let mut hands = Self {
            kernel,
            journal,
            given: BTreeMap::new(),
            theirs: BTreeSet::new(),
        };
        for entry in left {
            hands.note(entry);
        }
        hands
    }

    /// Whether there is anything to undo.
    pub(super) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Whether a thread was changed by somebody else since, and is left alone.
    pub(super) fn is_theirs(&self, key: TaskKey) -> bool {
        self.theirs.contains(&key)
    }

    /// Where a thread might run before it was given anything.
    pub(super) fn before(&self, key: TaskKey) -> Option<&CpuSet> {
        self.given.get(&key).map(|known| &known.before)
    }

    /// Lets a thread run on `cpus` alone. On disk before it is done.
    ///
    /// # Errors
    /// The journal cannot be written: nothing was changed.
    pub(super) fn give(
        &mut self,
        key: TaskKey,
        process: u32,
        cpus: &CpuSet,
    ) -> anyhow::Result<Done> {
        if self.kernel.start(key.tid) != Some(key.start) {
            self.given.remove(&key);
            return Ok(Done::Ended);
        }
        let now = match self.kernel.cpus(key.tid) {
            Ok(now) => now,
            Err(error) => return Ok(self.failed(key, error)),
        };
        let known = self.given.get(&key);
        if known.is_some_and(|known| !self.is_ours(key.tid, &now, known)) {
            self.given.remove(&key);
            self.theirs.insert(key);
        }
        if self.theirs.contains(&key) {
            return Ok(Done::Theirs);
        }
        let before = self
            .given
            .get(&key)
            .map_or(now, |known| known.before.clone());
        let entry = Entry {
            key,
            process,
            process_start: self.kernel.start(process).unwrap_or(key.start),
            since: self.kernel.now(),
            before,
            asked: cpus.clone(),
        };
        self.journal.write(std::slice::from_ref(&entry))?;
        let is_new = !self.given.contains_key(&key);
        self.note(entry);
        if let Err(error) = self.kernel.set_cpus(key.tid, cpus) {
            if is_new {
                self.given.remove(&key);
            } else if let Some(known) = self.given.get_mut(&key) {
                known.asked.pop();
            }
            return Ok(self.failed(key, error));
        }
        // Its number may have become another's in between: then that one gets back what it had.
        if self.kernel.start(key.tid) != Some(key.start) {
            if let Some(known) = self.given.remove(&key) {
                let _ = self.kernel.set_cpus(key.tid, &known.before);
            }
            return Ok(Done::Ended);
        }
        Ok(Done::Moved)
    }

    /// Gives a thread back what it had, if it is still ours.
    pub(super) fn take_back(&mut self, key: TaskKey) -> Undone {
        let mut undone = Undone::default();
        let Some(known) = self.given.remove(&key) else {
            return undone;
        };
        self.restore(key, &known, &mut undone);
        undone
    }

    /// Undoes everything, also for threads that were born with what their parents had been given.
    ///
    /// # Errors
    /// The journal cannot be cleared.
    pub(super) fn undo(&mut self) -> anyhow::Result<Undone> {
        let given = std::mem::take(&mut self.given);
        let mut undone = Undone::default();
        for (key, known) in &given {
            self.restore(*key, known, &mut undone);
        }
        self.restore_heirs(&given, &mut undone);
        if undone.refused == 0 {
            self.journal.clear()?;
        } else {
            self.given = given;
        }
        Ok(undone)
    }

    /// Threads that were born with what their parents had been given get what those had before; how many did.
    pub(super) fn free_heirs(&mut self) -> usize {
        let mut undone = Undone::default();
        let given = std::mem::take(&mut self.given);
        self.restore_heirs(&given, &mut undone);
        self.given = given;
        undone.restored
    }

    fn restore_heirs(&mut self, given: &BTreeMap<TaskKey, Given>, undone: &mut Undone) {
        let lives = |known: &&Given| self.kernel.start(known.process) == Some(known.process_start);
        let processes: BTreeSet<u32> = given
            .values()
            .filter(lives)
            .map(|known| known.process)
            .collect();
        let processes: Vec<u32> = processes.into_iter().collect();
        for tid in self.kernel.threads(&processes) {
            let Some(start) = self.kernel.start(tid) else {
                continue;
            };
            let key = TaskKey { tid, start };
            if given.contains_key(&key) || self.theirs.contains(&key) {
                continue;
            }
            let Ok(now) = self.kernel.cpus(tid) else {
                continue;
            };
            // Who was alive before its parent was given anything inherited nothing.
            let parent = given.iter().find(|(_, known)| {
                known.since <= start && known.asked.contains(&now) && now != known.before
            });
            if let Some((_, known)) = parent {
                self.restore(key, known, undone);
            }
        }
    }

    fn restore(&mut self, key: TaskKey, known: &Given, undone: &mut Undone) {
        if self.kernel.start(key.tid) != Some(key.start) {
            undone.ended += 1;
            return;
        }
        let Ok(now) = self.kernel.cpus(key.tid) else {
            undone.ended += 1;
            return;
        };
        if now == known.before {
            return;
        }
        if !self.is_ours(key.tid, &now, known) {
            undone.theirs += 1;
            return;
        }
        // Whoever had all that its control group has gets all of what that will have.
        let group = self.kernel.group_cpus(key.tid);
        let had_all = group.is_some_and(|group| group.intersection(&known.before) == group);
        let all = || (0..8192).collect();
        let wanted = if had_all { all() } else { known.before.clone() };
        let mut done = self.kernel.set_cpus(key.tid, &wanted);
        // With none of its CPUs online it gets what the kernel gives such a thread.
        if matches!(&done, Err(error) if error.raw_os_error() == Some(EINVAL)) {
            done = self.kernel.set_cpus(key.tid, &all());
            undone.displaced += usize::from(done.is_ok());
        }
        match done {
            Ok(()) => undone.restored += 1,
            Err(error) if error.raw_os_error() == Some(ESRCH) => undone.ended += 1,
            Err(_) => undone.refused += 1,
        }
    }

    /// Whether a thread may run where we let it, as far as those CPUs are online and its control group has them now.
    fn is_ours(&self, tid: u32, now: &CpuSet, known: &Given) -> bool {
        if known.asked.contains(now) || *now == known.before {
            return true;
        }
        let online = self.kernel.online();
        let left = |asked: &CpuSet| asked.intersection(&online);
        // A thread that has none left gets all that there are.
        let is_left =
            |asked: &CpuSet| left(asked) == *now || left(asked).is_empty() && online == *now;
        if !online.is_empty() && known.asked.iter().any(is_left) {
            return true;
        }
        let Some(group) = self.kernel.group_cpus(tid) else {
            return false;
        };
        // A group that has none of a thread's CPUs left gives it all of its own.
        *now == group
            || known
                .asked
                .iter()
                .any(|asked| asked.intersection(&group) == *now)
    }

    fn note(&mut self, entry: Entry) {
        let known = self.given.entry(entry.key).or_insert(Given {
            process: entry.process,
            process_start: entry.process_start,
            since: entry.since,
            before: entry.before,
            asked: Vec::new(),
        });
        known.asked.push(entry.asked);
    }

    fn failed(&mut self, key: TaskKey, error: io::Error) -> Done {
        if error.raw_os_error() == Some(ESRCH) {
            self.given.remove(&key);
            return Done::Ended;
        }
        Done::Refused(error)
    }
}

/// There is no such thread.
const ESRCH: i32 = 3;
/// None of the CPUs is online.
const EINVAL: i32 = 22;
