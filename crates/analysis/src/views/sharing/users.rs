//! True or false sharing where goroutines move between threads: then each thread is seen at what any of them uses, and who
//! uses which words tell the goroutines.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{Tid, Time};

use super::super::encounter::{Encounter, Touch};
use super::Estimate;
use super::kinds::{TRAP, Visitor, is_telling, true_share};
use super::stays::LineStays;
use crate::users::User;

/// Users of a line that are looked at each: of more the others count as what these meet.
const MOST: usize = 64;
/// What one user does to this share of a line, it has to itself: somebody else has made it, or looked at it once.
const ALONE: f64 = 0.98;

/// What one user does at a line.
#[derive(Default)]
struct Use {
    sampled: HashMap<Touch, u64>,
    /// In the order of time.
    seen: Vec<(Time, Touch)>,
    at_line_ns: f64,
    met: Encounter,
}

impl Use {
    fn samples(&self) -> u64 {
        self.sampled.values().sum()
    }

    fn add(&mut self, other: &Self) {
        for (&touch, count) in &other.sampled {
            *self.sampled.entry(touch).or_default() += count;
        }
        self.seen.extend(&other.seen);
        self.at_line_ns += other.at_line_ns;
        self.met.add(&other.met);
    }

    fn visitor(&self, is_known: bool) -> Visitor<'_> {
        let sampled = || {
            self.sampled
                .iter()
                .map(|(&touch, &count)| (touch, count as f64))
        };
        let trapped = self.met.accesses.iter();
        let trapped = trapped.map(|(&touch, &count)| (touch, f64::from(count) * TRAP));
        Visitor {
            touches: sampled().chain(trapped).collect(),
            sampled: sampled().collect(),
            samples: self.samples(),
            is_known,
            seen: &self.seen,
            at_line_ns: self.at_line_ns,
            met: Some(&self.met),
        }
    }
}

/// The users of a line of which goroutines are some.
pub(super) struct LineUsers {
    users: BTreeMap<User, Use>,
    /// The watches of any thread that nobody came to.
    in_vain: Encounter,
}

impl LineUsers {
    /// `None` where they are the threads: no goroutine is known, or each stayed on a thread of its own.
    pub(super) fn of(stays: &LineStays, met: &HashMap<Tid, Encounter>) -> Option<Self> {
        let sampled = stays.threads.values().flat_map(|stay| stay.places.keys());
        let trapped = met.values().flat_map(|encounter| encounter.accesses.keys());
        if sampled.chain(trapped).all(|it| it.goroutine.is_none()) {
            return None;
        }
        let mut users: BTreeMap<User, Use> = BTreeMap::new();
        let mut places: BTreeSet<(Tid, User)> = BTreeSet::new();
        let mut user = |tid: Tid, touch: &Touch| {
            let user = User::of(tid, touch.goroutine);
            places.insert((tid, user));
            user
        };
        for (&tid, stay) in &stays.threads {
            for (&touch, &(weight, samples)) in &stay.places {
                let of_user = users.entry(user(tid, &touch)).or_default();
                *of_user.sampled.entry(touch).or_default() += samples;
                of_user.at_line_ns += weight;
            }
            for &(time, touch) in &stay.seen {
                let of_user = users.entry(user(tid, &touch)).or_default();
                of_user.seen.push((time, touch));
            }
        }
        let mut in_vain = Encounter::default();
        for (&tid, encounter) in met {
            in_vain.add(&encounter.in_vain());
            for (&touch, &count) in &encounter.accesses {
                let of_user = users.entry(user(tid, &touch)).or_default();
                of_user.met.traps += u64::from(count);
                *of_user.met.accesses.entry(touch).or_default() += count;
            }
        }
        for of_user in users.values_mut() {
            of_user.seen.sort_unstable_by_key(|(time, _)| *time);
        }
        let threads: BTreeSet<Tid> = places.iter().map(|(tid, _)| *tid).collect();
        let are_threads = places.len() == threads.len() && places.len() == users.len();
        (!are_threads).then_some(Self { users, in_vain })
    }

    /// Whether all that was seen of the line is one goroutine's: it moves with it, and nobody shares it.
    pub(super) fn is_of_one(&self) -> bool {
        let seen = |it: &Use| it.samples() + it.met.traps;
        let all: u64 = self.users.values().map(seen).sum();
        let most = self.users.values().map(seen).max().unwrap_or(0);
        most as f64 >= ALONE * all as f64
    }

    /// The share of so many transfers of the line, in its use of `span_ns`, that is true: of each user against all others.
    pub(super) fn truly(&self, transfers: f64, span_ns: f64) -> Estimate {
        let weight = |it: &Use| it.samples() as f64 + TRAP * it.met.traps as f64;
        let mut users: Vec<&Use> = self.users.values().collect();
        users.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        let all: f64 = users.iter().map(|it| weight(it)).sum();
        // What one of many was not seen to do, none of them does.
        let (samples, traps) = (users.iter()).fold((0, 0), |sum, it| {
            (sum.0 + it.samples(), sum.1 + it.met.traps)
        });
        let is_known = is_telling(samples, traps);
        let mut sum = Estimate::default();
        let mut counted = 0.0;
        for (i, user) in users.iter().enumerate().take(MOST) {
            let mut others = Use::default();
            for other in (users.iter().enumerate()).filter(|(j, _)| *j != i) {
                others.add(other.1);
            }
            others.met.add(&self.in_vain);
            others.seen.sort_unstable_by_key(|(time, _)| *time);
            let share = weight(user) / all.max(f64::MIN_POSITIVE);
            let to = user.visitor(is_known);
            let truly = true_share(&to, &others.visitor(is_known), transfers * share, span_ns);
            sum.add(truly.times(Estimate::exactly(share)));
            counted += share;
        }
        sum.times(Estimate::exactly(
            1.0 / f64::max(counted, f64::MIN_POSITIVE),
        ))
    }
}
