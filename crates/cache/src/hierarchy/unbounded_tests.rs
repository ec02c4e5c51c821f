//! The caches without bounds beside streams that are known, and beside the whole hierarchy.

use proptest::prelude::*;

use super::super::Hierarchy;
use super::super::config::CacheShape;
use super::super::outcome::Outcome;
use super::*;
use crate::line_hash;

fn access(thread: u16, address: u64, kind: Kind) -> Access {
    Access {
        address,
        size: 8,
        kind,
        thread,
        site: u32::from(thread),
    }
}

fn config(cores: u32) -> Config {
    // More room than the streams of the tests want.
    let mut config = Config::uniform(1, cores, CacheShape::new(1 << 20, 16));
    config.groups[0].llc = Some(CacheShape::new(1 << 22, 16));
    config
}

#[test]
fn records_beyond_the_limit_are_given_up_and_counted() {
    let mut caches = Unbounded::new(&config(2)).unwrap();
    caches.set_limit(1 << 16);
    let pages = caches.most_pages as u64;
    assert!((4..64).contains(&pages));
    let apart: Vec<Access> = (0..pages * 10 + 1)
        .map(|page| access(page as u16 % 2, page << 12, Kind::Store))
        .collect();
    caches.run_with(&apart, |_, _, _| panic!("no line moves"), |_| {});
    assert_eq!(caches.lines.len(), 1);
    assert_eq!(caches.forgotten_lines(), pages * 10 * 64);
    // What is recent still works.
    let last = (pages * 10) << 12;
    let mut moved = 0;
    let turns = [0, 1, 0].map(|thread| access(thread, last, Kind::Update));
    caches.run_with(&turns, |_, _, _| moved += 1, |_| {});
    assert_eq!(moved, 2);
}

#[test]
fn counters_in_one_line_move_it_at_each_turn_and_loads_of_one_owner_do_not() {
    let mut caches = Unbounded::new(&config(2)).unwrap();
    let turns: Vec<Access> = (0..1000u64)
        .map(|turn| access((turn % 2) as u16, 0x1000 + turn % 2 * 8, Kind::Update))
        .collect();
    let mut lines = Vec::new();
    let from_other = |index: usize, line, from: &Party| {
        assert_ne!(from.thread, turns[index].thread);
        lines.push(line);
    };
    let mut moves = 0;
    caches.run_with(&turns, from_other, |transfer| {
        assert!(!transfer.is_true);
        assert_ne!(transfer.from.thread, transfer.to.thread);
        moves += 1;
    });
    assert_eq!(lines, [0x1000; 999]);
    assert_eq!(moves, 998, "the last one has the line");
    let report = caches.finish_with(|_| moves += 1);
    assert_eq!(moves, 999);
    assert_eq!(report.core_transfers.total().false_sharing, 999);
    assert_eq!(report.total.class(Level::L1, Class::FalseSharing), 998);
    assert_eq!(report.total.class(Level::L1, Class::Compulsory), 2);
    assert_eq!(report.total.accesses(), 1000);
    assert_eq!(report.sites[1].of_kind(Kind::Update), 500);
}

#[test]
fn a_message_that_is_handed_over_is_true_sharing_wherever_its_reader_begins() {
    let mut caches = Unbounded::new(&config(2)).unwrap();
    let words = || (0..8u64).map(|word| 0x1000 + 8 * word);
    let mut accesses = Vec::new();
    for _ in 0..100 {
        accesses.extend(words().map(|at| access(0, at, Kind::Store)));
        accesses.extend(words().map(|at| access(1, at, Kind::Load)));
        // One word alone is written, and another read: that is none of the message's.
        accesses.push(access(0, 0x1008, Kind::Store));
        accesses.push(access(1, 0x1010, Kind::Load));
    }
    let mut found = Vec::new();
    let mut moved = |transfer: &Transfer| found.push((transfer.to.bytes, transfer.is_true));
    caches.run_with(&accesses, |_, _, _| {}, &mut moved);
    let report = caches.finish_with(&mut moved);
    let expected = [((0, 7), true), ((16, 23), false)];
    assert_eq!(found, expected.repeat(100));
    assert_eq!(report.total.class(Level::L1, Class::TrueSharing), 99);
    assert_eq!(report.total.class(Level::L1, Class::FalseSharing), 100);
}

#[test]
fn what_a_core_uses_while_it_has_the_line_decides_and_not_what_it_uses_first() {
    let mut caches = Unbounded::new(&config(2)).unwrap();
    // A lock with its owner's name beside it: each comes by its own word first.
    let turn = |thread: u16| {
        let own = 0x1000 + 8 * u64::from(thread);
        [
            access(thread, own, Kind::Update),
            access(thread, 0x1020, Kind::Update),
        ]
    };
    let accesses: Vec<Access> = (0..1000u16).flat_map(|step| turn(step % 2)).collect();
    caches.run_with(&accesses, |_, _, _| {}, |_| {});
    let report = caches.finish();
    let all = report.core_transfers.total();
    assert_eq!((all.true_sharing, all.false_sharing), (999, 0));
    assert_eq!(report.total.class(Level::L1, Class::TrueSharing), 998);
}

proptest! {
    /// Where nothing is evicted the two models are one.
    #[test]
    fn transfers_and_upgrades_are_those_of_a_hierarchy_with_room(
        seed in 0u64..1 << 32, cores in 2u32..6, lines in 1u64..2000,
    ) {
        let accesses: Vec<Access> = (0..6000u64)
            .map(|step| {
                let random = line_hash(seed << 20 | step);
                let kind = match random % 4 {
                    0 | 1 => Kind::Load,
                    2 => Kind::Store,
                    _ => Kind::Update,
                };
                let thread = (random >> 8) % u64::from(cores);
                let mut access = access(thread as u16, (random >> 20) % (lines * 64), kind);
                access.site = (random >> 16) as u32 % 7;
                access
            })
            .collect();
        let config = config(cores);
        let mut hierarchy = Hierarchy::new(&config).unwrap();
        let (mut expected, mut expected_moves) = (Vec::new(), Vec::new());
        let fetched = |index, outcome: &Outcome| {
            expected.extend(outcome.supplier.map(|from| (index, outcome.line, from)));
        };
        hierarchy.run_with(&accesses, fetched, |&transfer| expected_moves.push(transfer));
        let mut caches = Unbounded::new(&config).unwrap();
        let (mut found, mut moves) = (Vec::new(), Vec::new());
        for (batch, part) in accesses.chunks(100).enumerate() {
            let fetched = |index, line, &from: &Party| found.push((batch * 100 + index, line, from));
            caches.run_with(part, fetched, |&transfer| moves.push(transfer));
        }
        prop_assert_eq!(found, expected);
        let ours = caches.finish_with(|&transfer| moves.push(transfer));
        let theirs = hierarchy.finish_with(|&transfer| expected_moves.push(transfer));
        let key = |it: &Transfer| (it.line, it.from.core, it.to.core, it.to.site, it.is_true, it.from.site, it.to.bytes, it.from.bytes);
        moves.sort_unstable_by_key(key);
        expected_moves.sort_unstable_by_key(key);
        prop_assert_eq!(moves, expected_moves);
        prop_assert_eq!(ours.core_transfers.cells(), theirs.core_transfers.cells());
        prop_assert_eq!(ours.total.upgrades(), theirs.total.upgrades());
        prop_assert_eq!(ours.intra_socket, theirs.intra_socket);
        prop_assert_eq!(ours.total.misses(Level::L1), theirs.total.misses(Level::L1));
        for (ours, theirs) in ours.sites.iter().zip(&theirs.sites) {
            prop_assert_eq!(ours.accesses(), theirs.accesses());
            prop_assert_eq!(ours.hits(Level::L1), theirs.hits(Level::L1));
        }
    }
}
