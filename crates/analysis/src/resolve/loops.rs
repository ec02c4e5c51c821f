//! The loops of a function, by its machine code: natural loops, each by the block that all its rounds begin with.

use std::collections::BTreeSet;

use super::typer::code::Code;

/// Blocks of a function whose loops are looked for, at most.
const MOST_BLOCKS: usize = 20_000;

/// A loop: what runs from one jump back to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loop {
    /// The block that a round begins with, by number. A loop in another one may begin with the same.
    pub(super) header: usize,
    /// Its blocks.
    pub(super) body: BTreeSet<usize>,
}

/// The natural loops of a function, one for each jump back, the smallest first. Where code jumps into the middle of a loop nobody says
/// what a round of it is, so that it is none.
pub(super) fn natural_loops(code: &Code) -> Vec<Loop> {
    let blocks = &code.blocks;
    if blocks.len() > MOST_BLOCKS {
        return Vec::new();
    }
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); blocks.len()];
    for (number, block) in blocks.iter().enumerate() {
        for &next in &block.next {
            before[next].push(number);
        }
    }
    let dominators = Dominators::of(code, &before);
    let mut loops: Vec<Loop> = Vec::new();
    for (tail, block) in blocks.iter().enumerate() {
        for &header in block
            .next
            .iter()
            .filter(|it| dominators.dominates(**it, tail))
        {
            let mut body = BTreeSet::from([header]);
            let mut queue = vec![tail];
            while let Some(block) = queue.pop() {
                if body.insert(block) {
                    queue.extend(&before[block]);
                }
            }
            loops.push(Loop { header, body });
        }
    }
    loops.sort_by_key(|it| it.body.len());
    loops
}

/// Which blocks every way to a block leads through (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm). What only computed
/// jumps lead to has a way of its own.
struct Dominators {
    /// The nearest of each; of a beginning, which has none, itself.
    nearest: Vec<usize>,
    /// When each was left for good in a walk from the beginnings: those that dominate were so later.
    left: Vec<usize>,
}

impl Dominators {
    fn of(code: &Code, before: &[Vec<usize>]) -> Self {
        let count = before.len();
        // All ways begin at one block more.
        let root = count;
        let mut order: Vec<usize> = Vec::with_capacity(count + 1);
        let mut seen = vec![false; count];
        let mut beginnings: BTreeSet<usize> = BTreeSet::new();
        let lead_nowhere = (0..count).filter(|it| before[*it].is_empty());
        for start in [code.entry].into_iter().chain(lead_nowhere).chain(0..count) {
            if seen.get(start) != Some(&false) {
                continue;
            }
            beginnings.insert(start);
            seen[start] = true;
            let mut path = vec![(start, 0)];
            while let Some((block, next)) = path.last_mut() {
                let following = code.blocks[*block].next.get(*next).copied();
                *next += 1;
                match following {
                    Some(following) if seen[following] => {}
                    Some(following) => {
                        seen[following] = true;
                        path.push((following, 0));
                    }
                    None => {
                        order.push(*block);
                        path.pop();
                    }
                }
            }
        }
        order.push(root);
        let mut left = vec![0; count + 1];
        for (when, &block) in order.iter().enumerate() {
            left[block] = when;
        }
        let mut nearest: Vec<Option<usize>> = vec![None; count + 1];
        nearest[root] = Some(root);
        let mut changed = true;
        while changed {
            changed = false;
            for &block in order.iter().rev().skip(1) {
                let mut ways = before[block]
                    .iter()
                    .copied()
                    .filter(|it| nearest[*it].is_some());
                let first = match beginnings.contains(&block) {
                    true => Some(root),
                    false => ways.next(),
                };
                let found = ways.fold(first, |found, way| {
                    Some(common(&nearest, &left, found?, way))
                });
                changed |= found != nearest[block];
                nearest[block] = found;
            }
        }
        let own = |(block, it): (usize, Option<usize>)| it.unwrap_or(block);
        Self {
            nearest: nearest.into_iter().enumerate().map(own).collect(),
            left,
        }
    }

    /// Whether every way to `block` leads through `other`.
    fn dominates(&self, other: usize, block: usize) -> bool {
        let mut block = block;
        while self.left[block] < self.left[other] {
            let nearest = self.nearest[block];
            if nearest == block {
                return false;
            }
            block = nearest;
        }
        block == other
    }
}

/// The nearest block that dominates both.
fn common(nearest: &[Option<usize>], left: &[usize], one: usize, other: usize) -> usize {
    let (mut one, mut other) = (one, other);
    while one != other {
        let lower = match left[one] < left[other] {
            true => &mut one,
            false => &mut other,
        };
        match nearest[*lower] {
            Some(above) => *lower = above,
            // What is not known yet dominates nothing.
            None => return left.len() - 1,
        }
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loops(bytes: &[u8]) -> Vec<Vec<usize>> {
        let code = Code::decode(&[(0x100, bytes.to_vec())]).expect("short enough");
        let loops = natural_loops(&code).into_iter();
        loops.map(|it| it.body.into_iter().collect()).collect()
    }

    #[test]
    fn a_loop_in_a_loop_comes_first() {
        // xor eax,eax; inner: inc eax; cmp eax,edi; jl inner; dec edi; jne outer (xor); ret
        let nested = [
            0x31, 0xc0, 0xff, 0xc0, 0x39, 0xf8, 0x7c, 0xfa, 0xff, 0xcf, 0x75, 0xf4, 0xc3,
        ];
        assert_eq!(loops(&nested), [vec![1], vec![0, 1, 2]]);
    }

    #[test]
    fn code_that_is_jumped_into_is_no_loop() {
        // je middle; top: inc eax; middle: dec edi; jne top; ret
        let entered = [0x74, 0x02, 0xff, 0xc0, 0xff, 0xcf, 0x75, 0xfa, 0xc3];
        assert_eq!(loops(&entered), Vec::<Vec<usize>>::new());
        // Without the jump it is one.
        assert_eq!(loops(&entered[2..]), [vec![0]]);
        assert_eq!(loops(&[0xc3]), Vec::<Vec<usize>>::new());
    }
}
