//! Groups of tasks that share with each other.

use crate::plan::HAIR;
use crate::snapshot::Sharing;

/// The groups among `weights.len()` tasks: the pairs that share most are joined first, as long as a group weighs no more
/// than `capacity`, and as a pair is no weaker than `cut` times the strongest of either side (0 joins all that share
/// anything, 1 only what shares alike). Tasks that share with nobody are in no group. The group that shares most comes
/// first, and in each its tasks by index. Kruskal's order over the pairs, in linear time.
#[must_use]
pub fn groups(weights: &[f32], pairs: &[Sharing], capacity: f32, cut: f32) -> Vec<Vec<u32>> {
    let mut parent: Vec<u32> = (0..weights.len() as u32).collect();
    let mut weight = weights.to_vec();
    let mut strongest = vec![0.0_f32; weights.len()];
    let mut inner = vec![0.0_f32; weights.len()];
    for at in strongest_first(pairs) {
        let pair = pairs[at as usize];
        if pair.one == pair.other {
            continue;
        }
        let (one, other) = (root(&mut parent, pair.one), root(&mut parent, pair.other));
        let (a, b) = (one as usize, other as usize);
        if one == other {
            inner[a] += pair.transfers;
            continue;
        }
        let is_strong = pair.transfers >= cut * strongest[a].max(strongest[b]);
        if !is_strong || weight[a] + weight[b] > capacity + HAIR {
            continue;
        }
        parent[b] = one;
        weight[a] += weight[b];
        strongest[a] = strongest[a].max(strongest[b]).max(pair.transfers);
        inner[a] += inner[b] + pair.transfers;
    }
    let mut size = vec![0_u32; weights.len()];
    for task in 0..weights.len() as u32 {
        size[root(&mut parent, task) as usize] += 1;
    }
    let mut found: Vec<u32> = (0..weights.len() as u32)
        .filter(|&root| size[root as usize] > 1)
        .collect();
    found.sort_by(|&a, &b| inner[b as usize].total_cmp(&inner[a as usize]));
    let members = |&root: &u32| Vec::with_capacity(size[root as usize] as usize);
    let mut groups: Vec<Vec<u32>> = found.iter().map(members).collect();
    // From here on `size` of a group's root is its place.
    for (place, &root) in found.iter().enumerate() {
        size[root as usize] = place as u32 + 2;
    }
    for task in 0..weights.len() as u32 {
        let place = size[root(&mut parent, task) as usize];
        if place > 1 {
            groups[place as usize - 2].push(task);
        }
    }
    groups
}

/// The indices of the pairs, the strongest first. Those within a quarter of each other are alike, and in their own order:
/// what is known of pairs is less exact than that, and so the order takes one count and no sort.
fn strongest_first(pairs: &[Sharing]) -> Vec<u32> {
    // The exponent and two bits of the mantissa.
    let class = |pair: &Sharing| (pair.transfers.max(0.0).to_bits() >> 21) as usize;
    let mut before = vec![0_u32; (f32::NAN.to_bits() >> 21) as usize + 2];
    let highest = before.len() - 2;
    for pair in pairs {
        before[highest - class(pair).min(highest) + 1] += 1;
    }
    for at in 1..before.len() {
        before[at] += before[at - 1];
    }
    let mut order = vec![0; pairs.len()];
    for (at, pair) in pairs.iter().enumerate() {
        let place = &mut before[highest - class(pair).min(highest)];
        order[*place as usize] = at as u32;
        *place += 1;
    }
    order
}

fn root(parent: &mut [u32], mut task: u32) -> u32 {
    while parent[task as usize] != task {
        let up = parent[parent[task as usize] as usize];
        parent[task as usize] = up;
        task = up;
    }
    task
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(one: u32, other: u32, transfers: f32) -> Sharing {
        Sharing {
            one,
            other,
            transfers,
        }
    }

    #[test]
    fn two_pairs_among_four_are_two_groups_whatever_all_share() {
        let mut pairs = vec![pair(0, 2, 100.0), pair(1, 3, 80.0)];
        for (one, other) in [(0, 1), (0, 3), (1, 2), (2, 3)] {
            pairs.push(pair(one, other, 5.0));
        }
        assert_eq!(
            groups(&[1.0; 4], &pairs, 9.0, 0.1),
            [vec![0, 2], vec![1, 3]]
        );
        assert_eq!(groups(&[1.0; 4], &pairs, 9.0, 0.0), [vec![0, 1, 2, 3]]);
    }

    #[test]
    fn a_group_is_no_larger_than_there_is_room() {
        let pairs = [pair(0, 1, 9.0), pair(1, 2, 8.0), pair(2, 3, 7.0)];
        assert_eq!(
            groups(&[1.0; 4], &pairs, 2.0, 0.0),
            [vec![0, 1], vec![2, 3]]
        );
    }

    #[test]
    fn who_shares_with_nobody_is_in_no_group() {
        assert_eq!(
            groups(&[1.0; 3], &[pair(1, 1, 9.0)], 9.0, 0.0),
            Vec::<Vec<u32>>::new()
        );
        assert_eq!(groups(&[], &[], 9.0, 0.0), Vec::<Vec<u32>>::new());
    }
}
