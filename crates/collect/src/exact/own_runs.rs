//! What a thread did to a line that it had for itself, spread out again over the thread's accesses: how many
//! they were and which was the first and the last is known, so they are taken to lie at equal distances.

use std::cmp::Ordering;

use super::access::Handover;

/// Accesses of one thread to one line, between the first and the last of them at equal distances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<T> {
    /// What a load and a store look like.
    load: Option<T>,
    store: Option<T>,
    first: u64,
    last: u64,
    loads: u64,
    stores: u64,
    load_is_last: bool,
    /// How many are done.
    done: u64,
    /// Number of the next among all accesses of the thread.
    next: u64,
}

impl<T: Copy> Run<T> {
    /// All of it; `None` if the instructions are not known.
    pub(super) fn new(handover: &Handover, load: Option<T>, store: Option<T>) -> Option<Self> {
        load.or(store)?;
        Some(Self {
            load,
            store,
            first: handover.first,
            last: handover.last,
            loads: handover.loads,
            stores: handover.stores,
            load_is_last: handover.load_is_last,
            done: 0,
            next: handover.first,
        })
    }

    /// Number of the next access.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    fn count(&self) -> u64 {
        self.loads + self.stores
    }

    /// The number of an access of the run.
    fn number(&self, index: u64) -> u64 {
        let steps = self.count().saturating_sub(1).max(1);
        let span = (self.last - self.first) as f64;
        self.first + (span * index as f64 / steps as f64) as u64
    }

    /// What the access of this index is: stores at equal distances as well, and the last one known.
    fn access(&self, index: u64) -> Option<T> {
        let index = if self.load_is_last {
            index
        } else {
            self.count() - 1 - index
        };
        let stores_before =
            |index: u64| u128::from(index) * u128::from(self.stores) / u128::from(self.count());
        let is_store = if self.load_is_last {
            // The last one, by rounding down, would be a store where they are counted to its end.
            stores_before(index) != stores_before(index.saturating_sub(1)) || self.loads == 0
        } else {
            index == 0 && self.stores > 0
                || stores_before(index) != stores_before(index.saturating_sub(1))
        };
        if is_store {
            self.store.or(self.load)
        } else {
            self.load.or(self.store)
        }
    }

    /// Takes the next one; the rest of the run, if there is any, and that access.
    pub(super) fn step(mut self) -> (Option<Self>, Option<T>) {
        let access = self.access(self.done);
        self.done += 1;
        self.next = self.number(self.done);
        ((self.done < self.count()).then_some(self), access)
    }

    /// Leaves out what lies before the access of this number; the last load and store of that, in
    /// their order.
    pub(super) fn skip_to(mut self, number: u64) -> (Option<Self>, [Option<T>; 2]) {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            if self.number(middle) < number {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low == 0 {
            return (Some(self), [None; 2]);
        }
        let both = match self.load_is_last {
            true => [self.store, self.load],
            false => [self.load, self.store],
        };
        self.done = low;
        self.next = self.number(low);
        ((low < self.count()).then_some(self), both)
    }
}

/// By the next access, the earliest greatest.
impl<T> Ord for Run<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.next.cmp(&self.next)
    }
}

impl<T> PartialOrd for Run<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Run<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Run<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn handover(first: u64, last: u64, loads: u64, stores: u64, load_is_last: bool) -> Handover {
        Handover {
            thread: 0,
            first,
            last,
            loads,
            stores,
            load: None,
            store: None,
            load_is_last,
        }
    }

    fn all(run: Option<Run<char>>) -> (Vec<u64>, String) {
        let (mut numbers, mut kinds) = (Vec::new(), String::new());
        let mut rest = run;
        while let Some(run) = rest {
            numbers.push(run.next());
            let (next, access) = run.step();
            kinds.extend(access);
            rest = next;
        }
        (numbers, kinds)
    }

    #[test]
    fn accesses_lie_at_equal_distances_and_the_last_is_what_it_was() {
        let run = |loads, stores, load_is_last| {
            let handover = handover(10, 50, loads, stores, load_is_last);
            all(Run::new(&handover, Some('l'), Some('s')))
        };
        assert_eq!(run(0, 5, false), (vec![10, 20, 30, 40, 50], "sssss".into()));
        assert_eq!(run(1, 0, true), (vec![10], "l".into()));
        for load_is_last in [false, true] {
            let (numbers, kinds) = run(10, 5, load_is_last);
            assert_eq!((numbers[0], numbers[14], numbers.len()), (10, 50, 15));
            assert_eq!(kinds.ends_with('l'), load_is_last, "{kinds}");
            assert!(kinds.contains("sll"), "{kinds}");
        }
    }

    #[test]
    fn what_has_passed_leaves_its_last_load_and_store() {
        let handover = handover(10, 50, 0, 5, false);
        let run = Run::new(&handover, None, Some('s')).unwrap();
        let (rest, passed) = run.skip_to(30);
        assert_eq!(passed, [None, Some('s')]);
        assert_eq!(all(rest), (vec![30, 40, 50], "sss".into()));
        let (rest, passed) = run.skip_to(10);
        assert_eq!((rest.map(|run| run.next()), passed), (Some(10), [None; 2]));
        assert!(run.skip_to(51).0.is_none());
    }
}
