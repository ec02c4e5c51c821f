//! One core: agreement with cachegrind's rules, with stack distances, and with a tree of bits
//! written out; and what must hold for every machine and policy.

use linewise_cache::hierarchy::{
    CacheShape, Class, Config, Hierarchy, Inclusion, Level, Protocol, Replacement, Report, Served,
};
use linewise_cache::{Access, Kind};
use proptest::prelude::*;

const KINDS: [Kind; 3] = [Kind::Load, Kind::Store, Kind::Update];

fn simulate(config: &Config, accesses: &[Access]) -> Report {
    let mut hierarchy = Hierarchy::new(config).unwrap();
    hierarchy.run(accesses);
    hierarchy.finish()
}

fn stream(lines: u64, threads: u16) -> impl Strategy<Value = Vec<Access>> {
    let one = (
        0..lines,
        0u64..64,
        1u16..=16,
        0..threads,
        0u32..4,
        0usize..3,
    )
        .prop_map(|(line, byte, size, thread, site, kind)| Access {
            address: line * 64 + byte,
            size,
            kind: KINDS[kind],
            thread,
            site,
        });
    prop::collection::vec(one, 1..600)
}

/// A cache as valgrind's `cg_sim.c` has it: sets in the order of recency, one reference for an
/// access whatever it touches.
struct Simple {
    sets: Vec<Vec<u64>>,
    ways: usize,
}

impl Simple {
    fn new(size: u64, ways: usize) -> Self {
        Self {
            sets: vec![Vec::new(); size as usize / 64 / ways],
            ways,
        }
    }

    fn misses_line(&mut self, line: u64) -> bool {
        let set = (line % self.sets.len() as u64) as usize;
        let set = &mut self.sets[set];
        let before = set.len();
        set.retain(|&other| other != line);
        let missed = set.len() == before;
        set.insert(0, line);
        set.truncate(self.ways);
        missed
    }

    fn misses(&mut self, access: &Access) -> bool {
        let last = access.address + u64::from(access.size) - 1;
        let mut missed = false;
        for line in access.address / 64..=last / 64 {
            missed |= self.misses_line(line);
        }
        missed
    }
}

/// The tree of a set, as a recursive structure: which half was used less recently.
enum Tree {
    Leaf(Option<u64>),
    Node(bool, Box<Tree>, Box<Tree>),
}

impl Tree {
    fn new(ways: usize) -> Self {
        if ways == 1 {
            Self::Leaf(None)
        } else {
            Self::Node(
                false,
                Box::new(Self::new(ways / 2)),
                Box::new(Self::new(ways / 2)),
            )
        }
    }

    /// Touches the leaf of `line`; whether it is here.
    fn touch(&mut self, line: Option<u64>) -> bool {
        match self {
            Self::Leaf(held) => *held == line,
            Self::Node(upper, low, high) => {
                if low.touch(line) {
                    *upper = true;
                    true
                } else if high.touch(line) {
                    *upper = false;
                    true
                } else {
                    false
                }
            }
        }
    }

    fn replace(&mut self, line: u64) {
        match self {
            Self::Leaf(held) => *held = Some(line),
            Self::Node(upper, low, high) => {
                *upper = !*upper;
                if *upper {
                    low.replace(line)
                } else {
                    high.replace(line)
                }
            }
        }
    }

    /// Puts `line` into the first empty leaf; whether there was one.
    fn put(&mut self, line: u64) -> bool {
        match self {
            Self::Leaf(held) if held.is_none() => {
                *held = Some(line);
                true
            }
            Self::Leaf(_) => false,
            Self::Node(upper, low, high) => {
                if low.put(line) {
                    *upper = true;
                    true
                } else if high.put(line) {
                    *upper = false;
                    true
                } else {
                    false
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_preset_counts_as_cachegrind_does(
        accesses in stream(40, 3),
        (d1_ways, ll_ways) in (1usize..4, 1usize..5),
        (d1_sets, ll_sets) in (0u32..3, 0u32..4),
    ) {
        let d1_size = (64 * d1_ways as u64) << d1_sets;
        let ll_size = (64 * ll_ways as u64) << ll_sets;
        let config = Config::cachegrind(
            CacheShape::new(d1_size, d1_ways as u32),
            CacheShape::new(ll_size, ll_ways as u32),
        );
        let report = simulate(&config, &accesses);
        let (mut d1, mut ll) = (Simple::new(d1_size, d1_ways), Simple::new(ll_size, ll_ways));
        // References, first-level misses, last-level misses; of reads and of writes.
        let mut expected = [[0u64; 3]; 2];
        for access in &accesses {
            let counts = &mut expected[usize::from(access.kind == Kind::Store)];
            counts[0] += 1;
            if d1.misses(access) {
                counts[1] += 1;
                counts[2] += u64::from(ll.misses(access));
            }
        }
        let of = |kinds: &[Kind]| {
            let sum = |count: &dyn Fn(Kind) -> u64| kinds.iter().map(|&kind| count(kind)).sum::<u64>();
            let total = &report.total;
            let references = sum(&|kind| total.of_kind(kind));
            let hits = sum(&|kind| total.served_of_kind(kind, Served::L1));
            let misses = sum(&|kind| total.served_of_kind(kind, Served::LocalDram));
            [references, references - hits, misses]
        };
        // cachegrind counts an instruction that reads and writes among the reads.
        prop_assert_eq!(of(&[Kind::Load, Kind::Update]), expected[0]);
        prop_assert_eq!(of(&[Kind::Store]), expected[1]);
        prop_assert_eq!(report.total.misses(Level::L1), expected[0][1] + expected[1][1]);
        prop_assert_eq!(report.total.misses(Level::Llc), expected[0][2] + expected[1][2]);
        prop_assert_eq!(report.core_transfers.total().total(), 0);
    }

    #[test]
    fn a_fully_associative_cache_misses_where_the_stack_distance_is_its_size_or_more(
        accesses in stream(60, 1),
        lines in 1u64..50,
    ) {
        let config = Config::uniform(1, 1, CacheShape::fully_associative(lines * 64));
        let report = simulate(&config, &accesses);
        let mut stack: Vec<u64> = Vec::new();
        let (mut misses, mut compulsory) = (0u64, 0);
        for access in &accesses {
            for line in access.address / 64..=(access.address + u64::from(access.size) - 1) / 64 {
                match stack.iter().rev().position(|&other| other == line) {
                    Some(distance) => misses += u64::from(distance as u64 >= lines),
                    None => {
                        misses += 1;
                        compulsory += 1;
                    }
                }
                stack.retain(|&other| other != line);
                stack.push(line);
            }
        }
        prop_assert_eq!(report.total.misses(Level::L1), misses);
        prop_assert_eq!(report.total.class(Level::L1, Class::Compulsory), compulsory);
        prop_assert_eq!(report.total.class(Level::L1, Class::Capacity), misses - compulsory);
    }

    #[test]
    fn two_full_levels_that_exclude_each_other_are_one_of_their_sum(
        accesses in stream(60, 1),
        (l1, l2) in (1u64..20, 1u64..20),
    ) {
        let outer = CacheShape::fully_associative(l2 * 64).with_inclusion(Inclusion::Exclusive);
        let inner = CacheShape::fully_associative(l1 * 64);
        let split = simulate(&Config::uniform(1, 1, inner).with_l2(outer), &accesses);
        let shared = simulate(&Config::uniform(1, 1, inner).with_llc(outer), &accesses);
        let sum = CacheShape::fully_associative((l1 + l2) * 64);
        let one = simulate(&Config::uniform(1, 1, sum), &accesses);
        let misses = one.total.misses(Level::L1);
        prop_assert_eq!(split.total.misses(Level::L2), misses);
        prop_assert_eq!(shared.total.misses(Level::Llc), misses);
    }

    #[test]
    fn tree_plru_drops_what_its_tree_points_to(
        accesses in stream(80, 1),
        ways in prop::sample::select(vec![1usize, 2, 4, 8, 16]),
    ) {
        let shape = CacheShape::new(64 * ways as u64 * 2, ways as u32).with_replacement(Replacement::TreePlru);
        let first = simulate(&Config::uniform(1, 1, shape), &accesses);
        let mut sets = [Tree::new(ways), Tree::new(ways)];
        let mut misses = 0u64;
        for access in &accesses {
            for line in access.address / 64..=(access.address + u64::from(access.size) - 1) / 64 {
                let set = &mut sets[(line % 2) as usize];
                if set.touch(Some(line)) {
                    continue;
                }
                misses += 1;
                if !set.put(line) {
                    set.replace(line);
                }
            }
        }
        prop_assert_eq!(first.total.misses(Level::L1), misses);
        // The same cache behind a first level of one line.
        let one = CacheShape::new(64, 1);
        let mut config = Config::uniform(1, 1, one).with_llc(shape);
        config.victims_allocate = false;
        let behind = simulate(&config, &accesses);
        let repeats = behind.total.hits(Level::L1);
        prop_assert_eq!(behind.total.misses(Level::Llc) + behind.total.hits(Level::Llc) + repeats, behind.total.accesses());
        prop_assert_eq!(behind.total.misses(Level::Llc), misses);
    }

    #[test]
    fn the_books_balance_on_every_machine(
        accesses in stream(120, 6),
        policies in prop::collection::vec(
            prop::sample::select(vec![Replacement::Lru, Replacement::TreePlru, Replacement::Random]),
            3,
        ),
        inclusions in prop::collection::vec(
            prop::sample::select(vec![Inclusion::Inclusive, Inclusion::Exclusive, Inclusion::NonInclusive]),
            2,
        ),
        (line_bytes, moesi) in (prop::sample::select(vec![64u32, 128]), any::<bool>()),
        (ways, full) in (1u32..6, any::<bool>()),
    ) {
        let shape = |sets: u64, level: usize| {
            let shape = CacheShape::new(sets * u64::from(ways * line_bytes), ways).with_replacement(policies[level]);
            if full && policies[level] == Replacement::Lru {
                CacheShape::fully_associative(shape.size_bytes)
            } else {
                shape
            }
        };
        let mut config = Config::uniform(2, 3, shape(2, 0))
            .with_l2(shape(3, 1).with_inclusion(inclusions[0]))
            .with_llc(shape(8, 2).with_inclusion(inclusions[1]));
        config.line_bytes = line_bytes;
        if moesi {
            config.protocol = Protocol::Moesi;
        }
        let mut hierarchy = Hierarchy::new(&config).unwrap();
        for access in &accesses {
            hierarchy.run(std::slice::from_ref(access));
            for core in 0..6 {
                let [l1, l2, llc] = Level::ALL.map(|level| hierarchy.resident(core, level));
                for (level, lines) in Level::ALL.into_iter().zip([&l1, &l2, &llc]) {
                    let mut lines = lines.clone();
                    let contents = hierarchy.contents(core, level);
                    let mut told: Vec<u64> = contents.iter().map(|it| it.0).collect();
                    lines.sort_unstable();
                    told.sort_unstable();
                    prop_assert_eq!(told, lines);
                    // Who touched a line last is known while a first level has it.
                    let last = contents.iter().find(|it| it.0 == access.address / u64::from(line_bytes) * u64::from(line_bytes));
                    if level == Level::L1 && let Some((_, site)) = last {
                        prop_assert!(site.is_some());
                    }
                }
                for (inner, outer, inclusion) in [(&l1, &l2, inclusions[0]), (&l1, &llc, inclusions[1]), (&l2, &llc, inclusions[1])] {
                    match inclusion {
                        Inclusion::Inclusive => prop_assert!(inner.iter().all(|line| outer.contains(line))),
                        Inclusion::Exclusive => prop_assert!(!inner.iter().any(|line| outer.contains(line))),
                        Inclusion::NonInclusive => {}
                    }
                }
            }
        }
        let again = simulate(&config, &accesses);
        let report = hierarchy.finish();
        prop_assert_eq!(&again, &report, "the same seed gives the same result");
        let total = &report.total;
        prop_assert_eq!(total.hits(Level::L1) + total.misses(Level::L1), total.accesses());
        prop_assert_eq!(total.hits(Level::L2) + total.misses(Level::L2), total.misses(Level::L1));
        prop_assert_eq!(total.hits(Level::Llc) + total.misses(Level::Llc), total.misses(Level::L2));
        for (level, sets) in Level::ALL.into_iter().zip(&report.sets) {
            prop_assert_eq!(sets.iter().map(|set| set.hits).sum::<u64>(), total.hits(level));
            prop_assert_eq!(sets.iter().map(|set| set.misses).sum::<u64>(), total.misses(level));
            let compulsory = total.class(level, Class::Compulsory);
            prop_assert_eq!(sets.iter().map(|set| set.lines).sum::<u64>(), compulsory);
            // Who overlaps at once overlaps in the end.
            prop_assert!(total.overlapping(level) <= total.class(level, Class::TrueSharing));
        }
        if full && policies[0] == Replacement::Lru && inclusions == [Inclusion::NonInclusive; 2] {
            prop_assert_eq!(total.class(Level::L1, Class::Conflict), 0);
        }
        prop_assert_eq!(report.core_transfers.total(), report.thread_transfers.total());
        let coherence = [report.intra_socket, report.inter_socket];
        let supplied: u64 = coherence.iter().map(|coherence| coherence.supplied).sum();
        let by_caches = [Served::Peer, Served::OtherGroup, Served::OtherSocket].map(|by| total.served(by));
        prop_assert_eq!(supplied, by_caches.iter().sum::<u64>());
        prop_assert_eq!(coherence.iter().map(|coherence| coherence.upgrades).sum::<u64>(), total.upgrades());
        let lines: u64 = report.lines.iter().map(|line| line.transfers.total()).sum();
        prop_assert_eq!(lines, report.core_transfers.total().total());

        // One thread alone shares with nobody.
        let alone: Vec<Access> = accesses.iter().map(|access| Access { thread: 0, ..*access }).collect();
        let alone = simulate(&config, &alone);
        for level in Level::ALL {
            prop_assert_eq!(alone.total.class(level, Class::TrueSharing), 0);
            prop_assert_eq!(alone.total.class(level, Class::FalseSharing), 0);
        }
        prop_assert_eq!(alone.core_transfers.total().total() + alone.total.upgrades(), 0);
    }
}
