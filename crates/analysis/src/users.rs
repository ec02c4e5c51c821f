//! Who uses memory: a thread, or in a Go program the goroutine that it runs, which moves between threads.

use std::collections::HashMap;

use linewise_recording::{Address, GoroutineChange, Tid, Time};

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
    changes: HashMap<Tid, Vec<(Time, Address)>>,
}

impl Goroutines {
    /// Of the rows of a recording.
    #[must_use]
    pub(crate) fn new(rows: &[GoroutineChange]) -> Self {
        let mut changes: HashMap<Tid, Vec<(Time, Address)>> = HashMap::new();
        for row in rows {
            let of_thread = changes.entry(row.tid).or_default();
            of_thread.push((row.time, row.goroutine));
        }
        for of_thread in changes.values_mut() {
            of_thread.sort_by_key(|&(time, _)| time);
        }
        Self { changes }
    }

    /// What a thread ran at the time of one of its samples or traps.
    #[must_use]
    pub(crate) fn at(&self, tid: Tid, time: Time) -> Option<Address> {
        let changes = self.changes.get(&tid)?;
        let next = changes.partition_point(|&(at, _)| at <= time);
        let (_, goroutine) = changes.get(next.checked_sub(1)?)?;
        (goroutine.0 != 0).then_some(*goroutine)
    }

    /// Who used memory at the time of a sample or trap of a thread.
    #[must_use]
    pub(crate) fn user(&self, tid: Tid, time: Time) -> User {
        User::of(tid, self.at(tid, time))
    }
}
