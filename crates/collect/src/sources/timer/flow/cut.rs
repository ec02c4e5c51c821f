//! From a watched address to lives of objects.

use linewise_recording::{HistoryOutcome, Tid, Time};

use super::sites::{HeapEvent, HeapEventKind, SiteKey};

/// A life at a watched address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Life {
    pub(crate) allocated: Time,
    pub(crate) allocated_by: Tid,
    /// When and by whom it was freed, as far as that is known.
    pub(crate) freed: Option<Time>,
    pub(crate) freed_by: Option<Tid>,
    pub(crate) outcome: HistoryOutcome,
}

impl Life {
    /// Whether an access at `time` belongs to it.
    pub(crate) fn holds(&self, time: Time) -> bool {
        self.allocated <= time && self.freed.is_none_or(|freed| time < freed)
    }
}

/// Until when a watch saw everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// From when on it was armed in all threads.
    pub(crate) armed: Time,
    /// When it was taken down.
    pub(crate) closed: Time,
    /// When a thread had trapped so often that it trapped no more.
    pub(crate) spent: Option<Time>,
    /// When a thread began in which it was not armed.
    pub(crate) thread_began: Option<Time>,
}

impl Limits {
    /// The last moment of which everything is known.
    pub(crate) fn end(&self) -> Time {
        let limits = [Some(self.closed), self.spent, self.thread_began];
        limits.into_iter().flatten().min().unwrap_or(self.closed)
    }
}

/// The lives of objects of `site` that began at the watched address while it was watched. `events` are
/// those of the address, in the order of time.
pub(crate) fn lives(events: &[HeapEvent], site: &SiteKey, limits: Limits) -> Vec<Life> {
    let mut lives = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let HeapEventKind::Allocated(of) = &event.kind else {
            continue;
        };
        if of != site || event.time < limits.armed || event.time >= limits.end() {
            continue;
        }
        let end = events.get(index + 1);
        let freed = end.filter(|end| end.kind == HeapEventKind::Freed);
        // Without a free another block that lay there says when it must have ended.
        let until = end.map_or(limits.closed, |end| end.time);
        let before_its_end = |limit: Option<Time>| limit.is_some_and(|limit| limit < until);
        lives.push(Life {
            allocated: event.time,
            allocated_by: event.tid,
            freed: end.map(|end| end.time),
            freed_by: freed.map(|end| end.tid),
            outcome: if before_its_end(limits.spent) {
                HistoryOutcome::Hot
            } else if before_its_end(limits.thread_began) {
                HistoryOutcome::ThreadBegan
            } else if freed.is_none() || until > limits.closed {
                HistoryOutcome::Unfinished
            } else {
                HistoryOutcome::Whole
            },
        });
    }
    lives
}

#[cfg(test)]
mod tests {
    use linewise_recording::{Pid, StackId};

    use super::*;

    fn site(stack: u32) -> SiteKey {
        SiteKey {
            pid: Pid(1),
            stack: StackId(stack),
            size: 48,
            label: 0,
        }
    }

    fn event(time: u64, tid: u32, kind: HeapEventKind) -> HeapEvent {
        HeapEvent {
            pid: Pid(1),
            address: 0x1000,
            time: Time(time),
            tid: Tid(tid),
            kind,
        }
    }

    fn limits() -> Limits {
        Limits {
            armed: Time(100),
            closed: Time(1000),
            spent: None,
            thread_began: None,
        }
    }

    #[test]
    fn lives_are_whole_if_they_lie_within_the_watch_and_are_of_the_site() {
        let of = |stack| HeapEventKind::Allocated(site(stack));
        let events = [
            event(50, 1, of(1)),
            event(150, 2, HeapEventKind::Freed),
            event(200, 1, of(1)),
            event(300, 2, HeapEventKind::Freed),
            event(350, 1, of(9)),
            event(360, 1, HeapEventKind::Freed),
            event(400, 1, of(1)),
            // Its end was not seen.
            event(500, 1, of(1)),
            event(600, 1, HeapEventKind::Freed),
            event(900, 1, of(1)),
            event(1100, 1, HeapEventKind::Freed),
        ];
        let found = lives(&events, &site(1), limits());
        let seen: Vec<_> = found
            .iter()
            .map(|life| (life.allocated.0, life.freed.map(|it| it.0), life.outcome))
            .collect();
        use HistoryOutcome::{Unfinished, Whole};
        let expected = [
            (200, Some(300), Whole),
            (400, Some(500), Unfinished),
            (500, Some(600), Whole),
            (900, Some(1100), Unfinished),
        ];
        assert_eq!(seen, expected);
        assert_eq!(found[0].freed_by, Some(Tid(2)));
        assert_eq!(found[1].freed_by, None);
        assert!(found[0].holds(Time(200)) && !found[0].holds(Time(300)));
    }

    #[test]
    fn a_life_that_a_thread_could_touch_unseen_is_not_whole() {
        let events = [
            event(200, 1, HeapEventKind::Allocated(site(1))),
            event(300, 1, HeapEventKind::Freed),
            event(400, 1, HeapEventKind::Allocated(site(1))),
            event(500, 1, HeapEventKind::Freed),
        ];
        let outcomes = |limits| -> Vec<HistoryOutcome> {
            let found = lives(&events, &site(1), limits);
            found.iter().map(|life| life.outcome).collect()
        };
        let spent = Limits {
            spent: Some(Time(450)),
            ..limits()
        };
        use HistoryOutcome::{Hot, ThreadBegan, Whole};
        assert_eq!(outcomes(spent), [Whole, Hot]);
        let began = Limits {
            thread_began: Some(Time(250)),
            ..limits()
        };
        assert_eq!(outcomes(began), [ThreadBegan]);
    }
}
