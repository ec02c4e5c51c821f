//! Which objects to follow: of the sites whose objects are touched most, addresses that were allocated
//! lately and more than once.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{Pid, StackId, Tid, Time};

use super::plan::Plan;
use linewise_cache::Chance;

/// Sites that are known at a time.
const MOST_SITES: usize = 1000;
/// Sites that are followed, those that are touched most.
const FOLLOWED: usize = 4;
/// Addresses of a site that are known at a time.
const ADDRESSES: usize = 64;
/// How long an address is watched without a whole life before it is given up: at first, and at most.
const PATIENCE_NS: u64 = 20_000_000;
const MOST_PATIENCE_NS: u64 = 2_000_000_000;

/// Objects that are alike: one allocation site, one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SiteKey {
    pub(crate) pid: Pid,
    pub(crate) stack: StackId,
    pub(crate) size: u64,
    /// The number of the name that the program gave them; 0 is none.
    pub(crate) label: u16,
}

/// What the heap recorder told of an address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeapEvent {
    pub(crate) pid: Pid,
    pub(crate) address: u64,
    pub(crate) time: Time,
    pub(crate) tid: Tid,
    pub(crate) kind: HeapEventKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum HeapEventKind {
    Allocated(SiteKey),
    Freed,
}

/// What following objects needs to hear from the heap recorder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Observed {
    Event(HeapEvent),
    /// An access was seen to an object of the site, at that offset.
    Touched(SiteKey, u64),
}

#[derive(Debug)]
struct Site {
    touches: f64,
    /// Objects that ended.
    ended: u64,
    /// Addresses, and how often each was allocated while it was known.
    addresses: Vec<(u64, u32)>,
    plan: Plan,
    patience_ns: u64,
}

impl Site {
    fn new(size: u64) -> Self {
        Self {
            touches: 0.0,
            ended: 0,
            addresses: Vec::new(),
            plan: Plan::new(size),
            patience_ns: PATIENCE_NS,
        }
    }
}

/// What to watch next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) site: SiteKey,
    pub(crate) address: u64,
    /// The places of 8 bytes to watch, at least one.
    pub(crate) offsets: Vec<u64>,
    pub(crate) patience_ns: u64,
}

/// The sites that are known.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    sites: BTreeMap<SiteKey, Site>,
    /// The sites of objects that are alive, of sites that are known.
    alive: HashMap<(Pid, u64), SiteKey>,
}

impl Sites {
    /// Objects of this site are touched, at that offset.
    pub(crate) fn touched(&mut self, key: SiteKey, offset: u64) {
        if let Some(site) = self.known(key) {
            site.touches += 1.0;
            site.plan.touched(offset);
        }
    }

    fn known(&mut self, key: SiteKey) -> Option<&mut Site> {
        if self.sites.len() >= MOST_SITES && !self.sites.contains_key(&key) {
            return None;
        }
        Some(self.sites.entry(key).or_insert_with(|| Site::new(key.size)))
    }

    /// The heap recorder told of an allocation or a free. `wanted` makes a site known that nobody was
    /// seen to touch.
    pub(crate) fn told(&mut self, event: &HeapEvent, wanted: bool, chance: &mut Chance) {
        let place = (event.pid, event.address);
        match event.kind {
            HeapEventKind::Allocated(key) => {
                if wanted {
                    self.known(key);
                }
                let Some(site) = self.sites.get_mut(&key) else {
                    return;
                };
                self.alive.insert(place, key);
                let addresses = &mut site.addresses;
                if let Some(known) = addresses.iter_mut().find(|it| it.0 == event.address) {
                    known.1 += 1;
                } else if addresses.len() < ADDRESSES {
                    addresses.push((event.address, 1));
                } else {
                    addresses[chance.below(ADDRESSES)] = (event.address, 1);
                }
            }
            HeapEventKind::Freed => {
                if let Some(key) = self.alive.remove(&place)
                    && let Some(site) = self.sites.get_mut(&key)
                {
                    site.ended += 1;
                }
            }
        }
    }

    /// What to watch next with `registers` watchpoints: of a site, the more likely the more it is touched,
    /// an address, the more likely the more often it is allocated.
    pub(crate) fn next(&self, registers: u32, chance: &mut Chance) -> Option<Choice> {
        let mut sites: Vec<(&SiteKey, &Site)> = self
            .sites
            .iter()
            .filter(|(_, site)| site.ended > 0 && !site.addresses.is_empty())
            .collect();
        sites.sort_by(|a, b| b.1.touches.total_cmp(&a.1.touches));
        sites.truncate(FOLLOWED);
        let weights: Vec<f64> = sites.iter().map(|(_, site)| site.touches + 1.0).collect();
        let (key, site) = sites.get(drawn(&weights, chance)?)?;
        // Of addresses that were seen but once nobody knows whether they will be allocated again.
        let again = site.addresses.iter().any(|(_, seen)| *seen > 1);
        let weights: Vec<f64> = site
            .addresses
            .iter()
            .map(|(_, seen)| f64::from(if again { seen - 1 } else { 1 }))
            .collect();
        let (address, _) = site.addresses.get(drawn(&weights, chance)?)?;
        Some(Choice {
            site: **key,
            address: *address,
            offsets: site.plan.next(registers, chance),
            patience_ns: site.patience_ns,
        })
    }

    /// A watch has ended that saw so many whole lives; one without any makes the next last longer.
    pub(crate) fn watched(&mut self, choice: &Choice, whole: u32, touched: &[u64]) {
        let Some(site) = self.sites.get_mut(&choice.site) else {
            return;
        };
        for offset in touched {
            site.plan.touched(*offset);
        }
        for _ in 0..whole {
            site.plan.recorded(&choice.offsets);
        }
        if whole == 0 {
            site.patience_ns = (site.patience_ns * 2).min(MOST_PATIENCE_NS);
            // It may never be allocated again.
            site.addresses
                .retain(|(address, _)| *address != choice.address);
        }
    }

    /// A process is no more.
    pub(crate) fn gone(&mut self, pid: Pid) {
        for (_, site) in self.sites.iter_mut().filter(|(key, _)| key.pid == pid) {
            site.addresses.clear();
        }
        self.alive.retain(|(of, _), _| *of != pid);
    }

    /// Whether any site is known, and whether any object of one ended.
    pub(crate) fn found(&self) -> (bool, bool) {
        let any = !self.sites.is_empty();
        (any, self.sites.values().any(|site| site.ended > 0))
    }
}

/// An index, each as likely as its weight says; `None` if all are 0.
fn drawn(weights: &[f64], chance: &mut Chance) -> Option<usize> {
    let mut left = chance.share() * weights.iter().sum::<f64>();
    let last = weights.iter().rposition(|weight| *weight > 0.0)?;
    for (index, weight) in weights.iter().enumerate() {
        if left < *weight {
            return Some(index);
        }
        left -= weight;
    }
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(stack: u32) -> SiteKey {
        SiteKey {
            pid: Pid(1),
            stack: StackId(stack),
            size: 16,
            label: 0,
        }
    }

    fn life(sites: &mut Sites, key: SiteKey, address: u64, wanted: bool) {
        let mut chance = Chance::seeded(3);
        for kind in [HeapEventKind::Allocated(key), HeapEventKind::Freed] {
            let event = HeapEvent {
                pid: Pid(1),
                address,
                time: Time(1),
                tid: Tid(1),
                kind,
            };
            sites.told(&event, wanted, &mut chance);
        }
    }

    #[test]
    fn the_touched_sites_are_followed_at_addresses_that_come_again() {
        let mut sites = Sites::default();
        let mut chance = Chance::seeded(9);
        assert_eq!(sites.next(2, &mut chance), None);
        for _ in 0..30 {
            sites.touched(key(1), 8);
        }
        sites.touched(key(2), 0);
        // Nobody touches the third.
        for site in [key(1), key(2), key(3)] {
            for address in [0x100, 0x200, 0x200, 0x200] {
                life(&mut sites, site, address, false);
            }
        }
        let mut counts = [0; 4];
        for _ in 0..1000 {
            let choice = sites.next(2, &mut chance).unwrap();
            assert_eq!(choice.address, 0x200);
            counts[choice.site.stack.0 as usize] += 1;
        }
        assert!(
            counts[1] > 850 && counts[2] > 10 && counts[3] == 0,
            "{counts:?}"
        );
    }

    #[test]
    fn a_wanted_site_is_followed_without_a_touch_and_what_never_ends_is_not() {
        let mut sites = Sites::default();
        let mut chance = Chance::seeded(9);
        let event = HeapEvent {
            pid: Pid(1),
            address: 0x100,
            time: Time(1),
            tid: Tid(1),
            kind: HeapEventKind::Allocated(key(1)),
        };
        sites.told(&event, true, &mut chance);
        assert_eq!(sites.found(), (true, false));
        assert_eq!(sites.next(2, &mut chance), None);
        life(&mut sites, key(1), 0x100, true);
        let choice = sites.next(2, &mut chance).unwrap();
        assert_eq!(choice.patience_ns, PATIENCE_NS);
        sites.watched(&choice, 0, &[]);
        // The address was given up, and there is no other.
        assert_eq!(sites.next(2, &mut chance), None);
        life(&mut sites, key(1), 0x100, true);
        let choice = sites.next(2, &mut chance).unwrap();
        assert_eq!(choice.patience_ns, 2 * PATIENCE_NS);
    }
}
