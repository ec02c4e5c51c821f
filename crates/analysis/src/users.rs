//! Who uses memory: a thread, or in a Go program the goroutine that it runs, which moves between threads.

use std::collections::HashMap;

use linewise_recording::{Address, GoroutineSeen, Tid, Time};

/// A thread, or what it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum User {
    /// A thread.
    Thread(Tid),
    /// A goroutine, by its descriptor, whatever thread it runs on.
    Goroutine(Address),
}

impl User {
    /// A thread, or the goroutine that it runs if it is known to run one.
    #[must_use]
    pub(crate) fn of(tid: Tid, goroutine: Option<Address>) -> Self {
        goroutine.map_or(Self::Thread(tid), Self::Goroutine)
    }

    /// The thread, if it is one.
    pub(crate) fn thread(&self) -> Option<&Tid> {
        match self {
            Self::Thread(tid) => Some(tid),
            Self::Goroutine(_) => None,
        }
    }
}

/// Which goroutine each thread ran when.
#[derive(Debug, Default)]
pub(crate) struct Goroutines {
    seen: HashMap<Tid, Vec<(Time, Address)>>,
}

impl Goroutines {
    /// Of the rows of a recording.
    pub(crate) fn new(rows: &[GoroutineSeen]) -> Self {
        let mut seen: HashMap<Tid, Vec<(Time, Address)>> = HashMap::new();
        for row in rows {
            let of_thread = seen.entry(row.tid).or_default();
            of_thread.push((row.time, row.goroutine));
        }
        for of_thread in seen.values_mut() {
            of_thread.sort_unstable_by_key(|&(time, _)| time);
        }
        Self { seen }
    }

    /// What a thread ran at one of its samples or traps.
    pub(crate) fn at(&self, tid: Tid, time: Time) -> Option<Address> {
        let (at, goroutine) = self.until(tid, time)?;
        (at == time).then_some(goroutine)
    }

    /// Who used memory at a sample or trap of a thread.
    pub(crate) fn user(&self, tid: Tid, time: Time) -> User {
        User::of(tid, self.at(tid, time))
    }

    /// Who used it at the last sample or trap of a thread until then.
    pub(crate) fn last_user(&self, tid: Tid, time: Time) -> User {
        let last = self.until(tid, time);
        User::of(tid, last.map(|(_, goroutine)| goroutine))
    }

    /// What was seen of a thread last until then.
    fn until(&self, tid: Tid, time: Time) -> Option<(Time, Address)> {
        let seen = self.seen.get(&tid)?;
        let next = seen.partition_point(|&(at, _)| at <= time);
        seen.get(next.checked_sub(1)?).copied()
    }
}
