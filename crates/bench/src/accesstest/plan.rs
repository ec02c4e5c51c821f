//! Which elements a path visits in which order, before it lies in memory.

use super::characters::{Accesses, Characteristics};
use super::element::{ELEMENTS, Layout};
use super::error::AccesstestError;
use super::law;
use crate::worker::Random;

/// A visit of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    /// The element's index in its buffer.
    pub(super) at: u32,
    /// How often it is accessed in a row.
    pub(super) repeats: u32,
    /// Whether it is in the session's own lines.
    pub(super) local: bool,
    /// Whether it is written.
    pub(super) write: bool,
}

/// The visits of each phase, in their order.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) layout: Layout,
    pub(super) phases: Vec<Vec<Visit>>,
    /// Accesses of an iteration.
    pub(super) accesses: u64,
    /// Accesses of an iteration that write.
    pub(super) writes: u64,
}

/// One phase's accesses to some lines.
struct Part {
    phase: usize,
    local: bool,
    first: u64,
    lines: u64,
    /// Elements of each line that are this phase's.
    elements: u64,
    /// The first of them.
    slot: u64,
    accesses: Accesses,
}

impl Part {
    /// As many accesses as the law gives whose first line has all its elements accessed once.
    fn usual(&self) -> f64 {
        law::total(self.lines, self.elements as f64, self.elements) as f64
    }
}

/// All accesses; each part's lines are beside those of the others.
fn parts(characteristics: &Characteristics) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut used = [0, 0];
    let mut take = |local: bool, lines: u64| {
        let first = used[usize::from(local)];
        used[usize::from(local)] += lines;
        first
    };
    for (phase, own) in characteristics.phases.iter().enumerate() {
        for (local, group) in [(true, own.session_local), (false, own.session_global)] {
            parts.push(Part {
                phase,
                local,
                first: take(local, group.lines),
                lines: group.lines,
                elements: ELEMENTS,
                slot: 0,
                accesses: group.accesses,
            });
        }
    }
    for shared in &characteristics.shared {
        let elements = ELEMENTS / shared.sharers.len() as u64;
        for local in [true, false] {
            let lines = if local {
                shared.session_local
            } else {
                shared.session_global
            };
            let first = take(local, lines);
            for (index, sharer) in shared.sharers.iter().enumerate() {
                parts.push(Part {
                    phase: sharer.phase,
                    local,
                    first,
                    lines,
                    elements,
                    slot: index as u64 * elements,
                    accesses: if local {
                        sharer.session_local
                    } else {
                        sharer.session_global
                    },
                });
            }
        }
    }
    parts.retain(|part| part.lines > 0);
    parts
}

/// How many accesses each part gets: in proportion to the weights, and as many as need no element to be
/// accessed twice in a row, if there are such.
fn shares(parts: &[Part], layout: Layout) -> Result<Vec<f64>, AccesstestError> {
    let weight = |part: &Part| part.accesses.weight.unwrap_or_else(|| part.usual());
    if parts.iter().all(|part| part.accesses.weight.is_none()) {
        return Ok(parts.iter().map(Part::usual).collect());
    }
    let most = |part: &Part| part.usual() / weight(part);
    let least = |part: &Part| part.lines as f64 / weight(part);
    let most = parts.iter().map(most).fold(f64::INFINITY, f64::min);
    let least = parts.iter().map(least).fold(0.0, f64::max);
    // Every line must be accessed: where the weights are too far apart for that, elements are repeated.
    let scale = most.max(least);
    let repeats = layout.most_repeats();
    let share = |part: &Part| {
        let wanted = scale * weight(part);
        let most = part.lines as f64 * (part.elements * repeats) as f64;
        if wanted > most {
            return Err(AccesstestError::Ratio {
                lines: part.lines,
                accesses: wanted,
                most,
                repeats,
            });
        }
        Ok(wanted)
    };
    parts.iter().map(share).collect()
}

fn shuffle<T>(values: &mut [T], random: &mut Random) {
    for last in (1..values.len()).rev() {
        // The high half of a product: unbiased enough for what is far shorter than 2^64.
        let other = (u128::from(random.next()) * (last as u128 + 1)) >> 64;
        values.swap(last, other as usize);
    }
}

impl Plan {
    /// Distributes the elements at random among the lines, and visits them in random order.
    pub(super) fn new(
        characteristics: &Characteristics,
        seed: u64,
    ) -> Result<Self, AccesstestError> {
        characteristics.check()?;
        let lines = characteristics
            .session_local_lines()
            .max(characteristics.session_global_lines());
        let layout = Layout::of(lines * ELEMENTS).ok_or(AccesstestError::TooLarge {
            bytes: lines * 64,
            most: (1 << super::element::BITS) * 4,
        })?;
        let parts = parts(characteristics);
        let shares = shares(&parts, layout)?;
        let wanted = parts.iter().zip(&shares);
        let updates: f64 = wanted
            .map(|(part, share)| part.accesses.update * share)
            .sum();
        let mut plan = Self {
            layout,
            phases: vec![Vec::new(); characteristics.phases.len()],
            accesses: 0,
            writes: 0,
        };
        let mut random = Random::new(seed, 0);
        // What one part has too few or too many by rounding the next makes good; and a ratio that is not 0 is at
        // least one write.
        let mut owed = if updates > 0.0 && updates < 0.5 {
            0.5
        } else {
            0.0
        };
        for (part, share) in parts.iter().zip(shares) {
            let mut visits = visits(part, share, layout, &mut random);
            let count: u64 = visits.iter().map(|visit| u64::from(visit.repeats)).sum();
            if part.accesses.update > 0.0 {
                owed += part.accesses.update * count as f64;
            }
            let written = write(&mut visits, owed, part.accesses.update);
            owed -= written as f64;
            plan.accesses += count;
            plan.writes += written;
            plan.phases[part.phase].append(&mut visits);
        }
        for visits in &mut plan.phases {
            shuffle(visits, &mut random);
        }
        Ok(plan)
    }
}

/// The visits of a part, in random order.
fn visits(part: &Part, share: f64, layout: Layout, random: &mut Random) -> Vec<Visit> {
    let most = part.elements * layout.most_repeats();
    let top = if part.accesses.weight.is_none() && share == part.usual() {
        part.elements as f64
    } else {
        law::top_for(part.lines, share, most)
    };
    let mut lines: Vec<u32> = (0..part.lines as u32).collect();
    shuffle(&mut lines, random);
    let mut visits = Vec::with_capacity(law::total(part.lines, top, part.elements) as usize);
    for (rank, line) in (1..).zip(lines) {
        let count = law::count(rank, top, most);
        let elements = count.min(part.elements);
        let turned = random.next() % part.elements;
        for nth in 0..elements {
            let slot = part.slot + (turned + nth) % part.elements;
            visits.push(Visit {
                at: ((part.first + u64::from(line)) * ELEMENTS + slot) as u32,
                repeats: (count / elements + u64::from(nth < count % elements)) as u32,
                local: part.local,
                write: false,
            });
        }
    }
    shuffle(&mut visits, random);
    visits
}

/// Marks about as many accesses as are owed as writes; returns how many.
fn write(visits: &mut [Visit], owed: f64, update: f64) -> u64 {
    let mut written = 0;
    for visit in visits {
        let repeats = u64::from(visit.repeats);
        let is_nearer = written as f64 + repeats as f64 / 2.0 <= owed;
        if update > 0.0 && (update >= 1.0 || is_nearer) {
            visit.write = true;
            written += repeats;
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    fn plan(phases: &[&str], shared: &[&str]) -> Result<Plan, AccesstestError> {
        let characteristics = Characteristics {
            phases: phases.iter().map(|text| text.parse().unwrap()).collect(),
            shared: shared.iter().map(|text| text.parse().unwrap()).collect(),
        };
        Plan::new(&characteristics, 5489)
    }

    /// Accesses by line.
    fn by_line(visits: &[Visit]) -> HashMap<(bool, u32), u64> {
        let mut lines = HashMap::new();
        for visit in visits {
            *lines.entry((visit.local, visit.at / 16)).or_default() += u64::from(visit.repeats);
        }
        lines
    }

    #[test]
    fn every_line_is_accessed_and_phases_are_disjoint_and_no_element_comes_twice() {
        for phases in 1..=4 {
            let even = Characteristics::even(1001, phases, 0.1).unwrap();
            let plan = Plan::new(&even, 1).unwrap();
            let lines: Vec<HashSet<_>> = plan
                .phases
                .iter()
                .map(|visits| by_line(visits).into_keys().collect())
                .collect();
            assert_eq!(lines.iter().map(HashSet::len).sum::<usize>(), 1001);
            let all: HashSet<_> = lines.iter().flatten().collect();
            assert_eq!(all.len(), 1001);
            let elements: Vec<u32> = plan.phases.iter().flatten().map(|visit| visit.at).collect();
            assert_eq!(
                elements.iter().collect::<HashSet<_>>().len(),
                elements.len()
            );
        }
    }

    #[test]
    fn counts_follow_zipfs_law_and_no_element_is_repeated() {
        let plan = plan(&["0/500", "0/500"], &[]).unwrap();
        for visits in &plan.phases {
            assert!(visits.iter().all(|visit| visit.repeats == 1));
            let mut counts: Vec<u64> = by_line(visits).into_values().collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            for (rank, count) in (1..).zip(counts) {
                let law = (16.0 / f64::from(rank)).max(1.0);
                assert!((count as f64 - law).abs() <= 0.5, "{rank}: {count} {law}");
            }
        }
    }

    #[test]
    fn the_share_of_writes_is_what_was_asked_for() {
        for (update, phases) in [
            ("0", 2),
            ("0.001", 2),
            ("0.01", 3),
            ("0.1", 2),
            ("0.5", 5),
            ("1", 2),
        ] {
            let one = format!("0/2000,{update}");
            let plan = plan(&vec![one.as_str(); phases], &[]).unwrap();
            let wanted = update.parse::<f64>().unwrap() * plan.accesses as f64;
            assert!(
                (plan.writes as f64 - wanted).abs() <= 1.0,
                "{update}: {plan:?}"
            );
            let marked = plan
                .phases
                .iter()
                .flatten()
                .filter(|visit| visit.write)
                .count();
            assert_eq!(marked as u64, plan.writes);
        }
        // A ratio that is not 0 is a write at least.
        assert_eq!(plan(&["0/4,0.001", "0/4,0.001"], &[]).unwrap().writes, 1);
    }

    #[test]
    fn weights_beyond_the_elements_of_a_line_repeat_them() {
        for ratio in [2, 17, 100, 10_000] {
            let heavy = format!("0/1,0,{ratio}");
            let plan = plan(&[&heavy, "0/1,0,1"], &[]).unwrap();
            let counts: Vec<u64> = plan
                .phases
                .iter()
                .map(|visits| visits.iter().map(|visit| u64::from(visit.repeats)).sum())
                .collect();
            assert_eq!(counts[0], ratio * counts[1], "{ratio}: {counts:?}");
            assert!(plan.phases[0].len() <= 16);
        }
        let error = plan(&["0/1,0,1e12", "0/1,0,1"], &[]).unwrap_err();
        assert!(
            matches!(error, AccesstestError::Ratio { lines: 1, .. }),
            "{error}"
        );
    }

    #[test]
    fn shared_lines_have_elements_of_each_phase_and_local_ones_are_apart() {
        let plan = plan(&["3/0", "0/5,1"], &["2/7:0,0,1/1,1,0"]).unwrap();
        let lines: Vec<_> = plan.phases.iter().map(|visits| by_line(visits)).collect();
        let shared: Vec<_> = lines[0]
            .keys()
            .filter(|line| lines[1].contains_key(line))
            .collect();
        assert_eq!(shared.len(), 9);
        let local = |line: &&&(bool, u32)| line.0;
        assert_eq!(shared.iter().filter(local).count(), 2);
        assert_eq!((lines[0].len(), lines[1].len()), (3 + 9, 5 + 9));
        let elements: Vec<_> = plan
            .phases
            .iter()
            .flatten()
            .map(|it| (it.local, it.at))
            .collect();
        assert_eq!(
            elements.iter().collect::<HashSet<_>>().len(),
            elements.len()
        );
        for visit in &plan.phases[0] {
            assert_eq!(visit.write, !visit.local);
        }
    }

    #[test]
    fn the_seed_decides() {
        let even = Characteristics::even(100, 2, 0.1).unwrap();
        let of = |seed| Plan::new(&even, seed).unwrap().phases;
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
