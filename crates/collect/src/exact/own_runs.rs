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

    /// Stores among the accesses below this index: at equal distances as well, and the last one known.
    fn stores_below(&self, index: u64) -> u64 {
        let share = |index: u64| {
            (u128::from(index) * u128::from(self.stores) / u128::from(self.count())) as u64
        };
        if self.loads == 0 || self.stores == 0 {
            return index.min(self.stores);
        }
        if self.load_is_last {
            // The last one, by rounding down, would be a store where they are counted to its end.
            return share(index.saturating_sub(1));
        }
        let from_the_end = |rest: u64| match rest {
            0 => 0,
            rest => 1 + share(rest - 1),
        };
        from_the_end(self.count()) - from_the_end(self.count() - index)
    }

    /// What the access of this index is.
    fn access(&self, index: u64) -> Option<T> {
        if self.stores_below(index + 1) > self.stores_below(index) {
            self.store.or(self.load)
        } else {
            self.load.or(self.store)
        }
    }

    /// The next one.
    pub(super) fn peek(&self) -> Option<T> {
        self.access(self.done)
    }

    /// Takes the next one; the rest of the run, if there is any, and that access.
    pub(super) fn step(mut self) -> (Option<Self>, Option<T>) {
        let access = self.peek();
        self.done += 1;
        self.next = self.number(self.done);
        ((self.done < self.count()).then_some(self), access)
    }

    /// Passes over what lies before the thread's access of this number; the last load and store of that, if
    /// there were any.
    pub(super) fn skip_to(&mut self, number: u64) -> [Option<T>; 2] {
        let (mut low, mut high) = (self.done, self.count());
        while low < high {
            let middle = low.midpoint(high);
            if self.number(middle) < number {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low == self.done {
            return [None; 2];
        }
        let last_is_store = self.stores_below(low) > self.stores_below(low - 1);
        let stores = self.stores_below(low) - self.stores_below(self.done);
        let load = self.load.filter(|_| low - self.done > stores);
        let store = self.store.filter(|_| stores > 0);
        self.done = low;
        self.next = self.number(low);
        match last_is_store {
            true => [load, store],
            false => [store, load],
        }
    }

    /// Whether some of it has passed, and not all.
    pub(super) fn is_amid(&self) -> bool {
        self.done > 0 && self.done < self.count()
    }

    /// Whether all of it has passed.
    pub(super) fn is_over(&self) -> bool {
        self.done >= self.count()
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
            line: 0,
            again: false,
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
        let mut run = Run::new(&handover, None, Some('s')).unwrap();
        assert_eq!(run.skip_to(10), [None; 2]);
        assert_eq!(run.skip_to(30), [None, Some('s')]);
        assert_eq!(run.skip_to(30), [None; 2], "once");
        assert_eq!(all(Some(run)), (vec![30, 40, 50], "sss".into()));
        assert!(!run.is_over());
        assert_eq!(run.skip_to(51), [None, Some('s')]);
        assert!(run.is_over());
    }

    proptest::proptest! {
        #[test]
        fn what_passes_in_pieces_has_the_kinds_of_the_accesses_one_by_one(
            loads in 0u64..30, stores in 0u64..30, span in 0u64..200, load_is_last: bool, step in 1u64..20,
        ) {
            proptest::prop_assume!(loads + stores > 0);
            let load_is_last = load_is_last && loads > 0 || stores == 0;
            let last = 10 + span.max(loads + stores - 1);
            let handover = handover(10, last, loads, stores, load_is_last);
            let (load, store) = ((loads > 0).then_some('l'), (stores > 0).then_some('s'));
            let mut run = Run::new(&handover, load, store).unwrap();
            let (numbers, kinds) = all(Some(run));
            for end in (10..last + step + 1).step_by(step as usize) {
                let piece: Vec<char> = numbers
                    .iter()
                    .zip(kinds.chars())
                    .filter(|&(&number, _)| number < end && number + step >= end)
                    .map(|(_, kind)| kind)
                    .collect();
                let passed: Vec<char> = run.skip_to(end).into_iter().flatten().collect();
                proptest::prop_assert_eq!(passed.contains(&'s'), piece.contains(&'s'));
                proptest::prop_assert_eq!(passed.contains(&'l'), piece.contains(&'l'));
                proptest::prop_assert_eq!(passed.last(), piece.last());
            }
            proptest::prop_assert!(run.is_over());
        }
    }
}
