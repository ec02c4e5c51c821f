//! Reuse by the definitions, at the cost of looking at every pair of accesses.
use linewise_cache::reuse::Outcome;
use linewise_cache::{Access, Kind};
use std::collections::HashSet;

/// What every touch of the stream is, in order: for each access, each unit that it overlaps.
pub(crate) fn outcomes(
    accesses: &[Access],
    granularity: u64,
    group_of: &dyn Fn(u16) -> u32,
) -> Vec<Outcome> {
    struct Touch {
        unit: u64,
        access: usize,
    }
    let mut touches = Vec::new();
    for (access, value) in accesses.iter().enumerate() {
        let last = value.address + u64::from(value.size) - 1;
        for unit in value.address / granularity..=last / granularity {
            touches.push(Touch { unit, access });
        }
    }

    let of = |touch: &Touch| &accesses[touch.access];
    let mut outcomes = Vec::new();
    for (now, touch) in touches.iter().enumerate() {
        let group = group_of(of(touch).thread);
        let ours = |other: &Touch| group_of(of(other).thread) == group;
        let before = touches[..now]
            .iter()
            .rposition(|other| other.unit == touch.unit && ours(other));
        let Some(before) = before else {
            outcomes.push(Outcome::Cold);
            continue;
        };
        let use_site = of(&touches[before]).site;
        let between = &touches[before + 1..now];
        let foreign_store = |other: &Touch| {
            other.unit == touch.unit && !ours(other) && of(other).kind != Kind::Load
        };
        if between.iter().any(foreign_store) {
            outcomes.push(Outcome::Invalidated { use_site });
            continue;
        }
        let units: HashSet<u64> = between
            .iter()
            .filter(|other| ours(other))
            .map(|other| other.unit)
            .collect();
        let time = accesses[touches[before].access..touch.access]
            .iter()
            .skip(1)
            .filter(|access| group_of(access.thread) == group)
            .count() as u64;
        outcomes.push(Outcome::Reuse {
            use_site,
            time,
            stack: units.len() as u64,
            same_thread: of(&touches[before]).thread == of(touch).thread,
        });
    }
    outcomes
}

/// The access with these values.
pub(crate) fn access(thread: u16, address: u64, size: u16, kind: Kind, site: u32) -> Access {
    Access {
        address,
        size,
        kind,
        thread,
        site,
    }
}
