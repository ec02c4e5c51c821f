//! Groups of tasks that share with each other.

use crate::snapshot::Sharing;

/// The groups among `weights.len()` tasks: the pairs that share most are joined first, as long as a group weighs no more
/// than `capacity`, and as a pair is no weaker than `cut` times the strongest of either side (0 joins all that share
/// anything, 1 only what shares alike). Tasks that share with nobody are in no group. The group that shares most comes
/// first, and in each its tasks by index. Kruskal's order over the pairs: n log n.
#[must_use]
pub fn groups(weights: &[f32], pairs: &[Sharing], capacity: f32, cut: f32) -> Vec<Vec<u32>> {
    let mut order: Vec<&Sharing> = pairs.iter().filter(|pair| pair.one != pair.other).collect();
    order.sort_unstable_by(|a, b| {
        let key = |pair: &Sharing| (pair.one, pair.other);
        b.transfers
            .total_cmp(&a.transfers)
            .then(key(a).cmp(&key(b)))
    });
    let mut parent: Vec<u32> = (0..weights.len() as u32).collect();
    let mut weight = weights.to_vec();
    let mut strongest = vec![0.0_f32; weights.len()];
    let mut inner = vec![0.0_f32; weights.len()];
    for pair in order {
        let (one, other) = (root(&mut parent, pair.one), root(&mut parent, pair.other));
        let (a, b) = (one as usize, other as usize);
        if one == other {
            inner[a] += pair.transfers;
            continue;
        }
        let is_strong = pair.transfers >= cut * strongest[a].max(strongest[b]);
        // A hair of room: weights are sums of shares of a second.
        if !is_strong || weight[a] + weight[b] > capacity + 0.05 {
            continue;
        }
        parent[b] = one;
        weight[a] += weight[b];
        strongest[a] = strongest[a].max(strongest[b]).max(pair.transfers);
        inner[a] += inner[b] + pair.transfers;
    }
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); weights.len()];
    for task in 0..weights.len() as u32 {
        let root = root(&mut parent, task);
        members[root as usize].push(task);
    }
    let mut groups: Vec<(f32, Vec<u32>)> = inner.into_iter().zip(members).collect();
    groups.retain(|(_, members)| members.len() > 1);
    groups.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    groups.into_iter().map(|(_, members)| members).collect()
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
