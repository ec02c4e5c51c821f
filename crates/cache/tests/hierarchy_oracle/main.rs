//! The simulator agrees with a model that is written straight from the definitions, on random
//! small machines and streams.

mod model;
mod moves;
mod tally;

use linewise_cache::hierarchy::{
    CacheShape, Class, Config, Counts, Hierarchy, Inclusion, Level, Protocol, Report, Served,
    SharedSupply, Transfers,
};
use linewise_cache::{Access, Kind};
use model::Model;
use proptest::prelude::*;
use tally::Tally;

/// The three kinds, in the order of their numbers.
const KINDS: [Kind; 3] = [Kind::Load, Kind::Store, Kind::Update];

fn inclusion() -> impl Strategy<Value = Inclusion> {
    prop_oneof![
        Just(Inclusion::Inclusive),
        Just(Inclusion::Exclusive),
        Just(Inclusion::NonInclusive)
    ]
}

/// A cache of up to `lines` lines: sets that need not be a power of two times ways, or all ways.
fn shape(sets: u64, ways: u32) -> impl Strategy<Value = CacheShape> {
    (1..=sets, 1..=ways, any::<bool>(), inclusion()).prop_map(|(sets, ways, full, inclusion)| {
        let size = sets * u64::from(ways) * 64;
        let shape = if full {
            CacheShape::fully_associative(size)
        } else {
            CacheShape::new(size, ways)
        };
        shape.with_inclusion(inclusion)
    })
}

fn machine() -> impl Strategy<Value = Config> {
    (
        (1u32..=3, 1u32..=3, shape(3, 3)),
        prop::option::of(shape(3, 4)),
        prop::option::of(shape(4, 4)),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        prop::collection::vec(0u32..9, 1..7),
    )
        .prop_map(|((groups, cores, l1), l2, llc, flags, threads)| {
            let mut config = Config::uniform(groups, cores, l1);
            if let Some(l2) = l2 {
                config = config.with_l2(l2);
            }
            if let Some(llc) = llc {
                config = config.with_llc(llc);
            }
            let (moesi, forward, one_socket, allocate) = flags;
            if moesi {
                config.protocol = Protocol::Moesi;
            }
            if forward {
                config.shared_supply = SharedSupply::Cache;
            }
            for group in &mut config.groups {
                group.socket = if one_socket { 0 } else { group.socket / 2 };
            }
            config.victims_allocate = allocate;
            config.threads = threads
                .into_iter()
                .map(|core| core % (groups * cores))
                .collect();
            config
        })
}

/// Accesses to a few dozen lines, some of which reach into the next.
fn stream() -> impl Strategy<Value = Vec<Access>> {
    let one = (0u64..30, 0u64..8, 0u16..7, 0u32..5, 0usize..3, 0u8..12).prop_map(
        |(line, word, thread, site, kind, odd)| Access {
            // Half of the lines are neighbours, half lie in other pages.
            address: line * 64
                + u64::from(line % 2 == 1) * 4096
                + word * 8
                + u64::from(odd == 0) * 5,
            size: if odd == 1 { 100 } else { 8 },
            kind: KINDS[kind],
            thread,
            site,
        },
    );
    prop::collection::vec(one, 1..400)
}

fn tally(counts: &Counts) -> Tally {
    let mut tally = Tally::default();
    for kind in KINDS {
        for by in Served::ALL {
            let count = counts.served_of_kind(kind, by);
            if count > 0 {
                tally.served.insert((kind as usize, by), count);
            }
        }
    }
    for level in Level::ALL {
        for class in Class::ALL {
            tally.classes[level as usize][class as usize] = counts.class(level, class);
        }
        tally.overlapping[level as usize] = counts.overlapping(level);
    }
    tally.llc_hits = counts.hits(Level::Llc);
    tally.upgrades = counts.upgrades();
    tally
}

fn transfers(counts: impl IntoIterator<Item = (bool, u64)>) -> Transfers {
    let mut sum = Transfers::default();
    for (overlap, count) in counts {
        if overlap {
            sum.true_sharing += count;
        } else {
            sum.false_sharing += count;
        }
    }
    sum
}

fn compare(config: &Config, report: &Report, model: &Model) -> Result<(), TestCaseError> {
    for (thread, counts) in report.threads.iter().enumerate() {
        let expected = model
            .threads
            .get(&(thread as u16))
            .cloned()
            .unwrap_or_default();
        prop_assert_eq!(tally(counts), expected, "thread {}", thread);
    }
    prop_assert_eq!(
        report.total.accesses(),
        model
            .threads
            .values()
            .flat_map(|tally| tally.served.values())
            .sum::<u64>()
    );
    for (site, counts) in report.sites.iter().enumerate() {
        let expected = model.sites.get(&(site as u32)).cloned().unwrap_or_default();
        prop_assert_eq!(tally(counts), expected, "site {}", site);
    }
    for (level, sets) in report.sets.iter().enumerate() {
        for (set, counts) in sets.iter().enumerate() {
            let mut expected = [0; 4];
            let caches: Vec<_> = match level {
                0 => model.cores.iter().map(|core| &core.l1).collect(),
                1 => model
                    .cores
                    .iter()
                    .filter_map(|core| core.l2.as_ref())
                    .collect(),
                _ => model
                    .groups
                    .iter()
                    .filter_map(|group| group.llc.as_ref())
                    .collect(),
            };
            for cache in caches {
                for (sum, count) in expected.iter_mut().zip(cache.counts[set]) {
                    *sum += count;
                }
            }
            let counts = [counts.hits, counts.misses, counts.evictions, counts.lines];
            prop_assert_eq!(counts, expected, "level {} set {}", level, set);
        }
    }
    let both = |of: &dyn Fn(bool) -> u64| transfers([(true, of(true)), (false, of(false))]);
    let cores = config.cores.len();
    for from in 0..cores {
        for to in 0..cores {
            let expected = both(&|overlap| {
                model
                    .moves
                    .core_transfers
                    .get(&(from, to, overlap))
                    .copied()
                    .unwrap_or(0)
            });
            prop_assert_eq!(report.core_transfers.get(from as u16, to as u16), expected);
        }
    }
    for from in 0..7 {
        for to in 0..7 {
            let expected = both(&|overlap| {
                model
                    .moves
                    .thread_transfers
                    .get(&(from, to, overlap))
                    .copied()
                    .unwrap_or(0)
            });
            prop_assert_eq!(report.thread_transfers.get(from, to), expected);
        }
    }
    let mut pairs = 0;
    for line in &report.lines {
        for pair in &line.pairs {
            let expected = both(&|overlap| {
                let key = (line.address / 64, pair.from, pair.to, overlap);
                model.moves.line_transfers.get(&key).copied().unwrap_or(0)
            });
            prop_assert_eq!(pair.transfers, expected);
            pairs += pair.transfers.total();
        }
    }
    prop_assert_eq!(pairs, model.moves.line_transfers.values().sum::<u64>());
    for (coherence, expected) in [report.intra_socket, report.inter_socket]
        .iter()
        .zip(model.coherence)
    {
        let found = [
            coherence.supplied,
            coherence.upgrades,
            coherence.invalidations,
        ];
        prop_assert_eq!(found, expected);
    }
    prop_assert_eq!(report.back_invalidations, model.back_invalidations);
    let found = report.write_backs;
    prop_assert_eq!(
        [found.l1_to_l2, found.private_to_llc, found.to_memory],
        model.write_backs
    );
    Ok(())
}

fn sorted(mut lines: Vec<u64>) -> Vec<u64> {
    lines.sort_unstable();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_count_is_that_of_the_definitions(config in machine(), accesses in stream()) {
        let mut model = Model::new(&config);
        let mut hierarchy = Hierarchy::new(&config).unwrap();
        for access in &accesses {
            model.run(access);
        }
        // Batches of any length are one stream.
        let (front, back) = accesses.split_at(accesses.len() / 3);
        hierarchy.run(front);
        hierarchy.run(back);
        for (core, known) in model.cores.iter().enumerate() {
            let lines = |cache: &model::Cache| sorted(cache.sets.iter().flatten().map(|line| line * 64).collect());
            prop_assert_eq!(sorted(hierarchy.resident(core, Level::L1)), lines(&known.l1));
            if let Some(l2) = &known.l2 {
                prop_assert_eq!(sorted(hierarchy.resident(core, Level::L2)), lines(l2));
            }
            if let Some(llc) = &model.groups[known.group].llc {
                prop_assert_eq!(sorted(hierarchy.resident(core, Level::Llc)), lines(llc));
            }
        }
        model.finish();
        compare(&config, &hierarchy.finish(), &model)?;
    }

    #[test]
    fn the_masks_of_a_line_hold_what_its_threads_touched(accesses in stream()) {
        let config = Config::uniform(2, 4, CacheShape::new(512, 2));
        let mut hierarchy = Hierarchy::new(&config).unwrap();
        hierarchy.run(&accesses);
        for line in &hierarchy.finish().lines {
            for masks in &line.threads {
                let (mut read, mut written) = (0u128, 0u128);
                for access in accesses.iter().filter(|access| access.thread == masks.thread) {
                    for byte in access.address..access.address + u64::from(access.size) {
                        if byte / 64 * 64 == line.address {
                            let bit = 1 << (byte % 64);
                            read |= if access.kind == Kind::Store { 0 } else { bit };
                            written |= if access.kind.writes() { bit } else { 0 };
                        }
                    }
                }
                prop_assert_eq!(masks.read & !read, 0);
                prop_assert_eq!(masks.written & !written, 0);
                prop_assert!(masks.read | masks.written != 0);
            }
            prop_assert!(line.threads.len() > 1);
        }
    }
}
