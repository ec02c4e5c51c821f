//! Streams whose counts anyone can work out by hand.

use linewise_cache::hierarchy::{
    Answer, CacheShape, Class, Config, ConfigError, Hierarchy, Homes, Inclusion, Level, Protocol,
    Report, Served, Transfers, Ways,
};
use linewise_cache::{Access, Kind};
use linewise_topology::{Topology, synthetic};

fn access(thread: u16, kind: Kind, address: u64) -> Access {
    Access {
        address,
        size: 8,
        kind,
        thread,
        site: u32::from(thread),
    }
}

fn load(thread: u16, address: u64) -> Access {
    access(thread, Kind::Load, address)
}

fn store(thread: u16, address: u64) -> Access {
    access(thread, Kind::Store, address)
}

/// One socket whose cores share a last level.
fn socket(cores: u32) -> Config {
    Config::uniform(1, cores, CacheShape::new(4 << 10, 4)).with_llc(CacheShape::new(64 << 10, 16))
}

fn simulate(config: &Config, accesses: &[Access]) -> Report {
    let mut hierarchy = Hierarchy::new(config).unwrap();
    hierarchy.run(accesses);
    hierarchy.finish()
}

/// Two threads store in turn, each to its own address.
fn turns(number: u64, addresses: [u64; 2]) -> Vec<Access> {
    (0..number)
        .map(|i| store((i % 2) as u16, addresses[(i % 2) as usize]))
        .collect()
}

fn moved(true_sharing: u64, false_sharing: u64) -> Transfers {
    Transfers {
        true_sharing,
        false_sharing,
    }
}

#[test]
fn a_word_stored_in_turns_moves_every_time_but_the_first() {
    let report = simulate(&socket(2), &turns(1000, [0x1000, 0x1000]));
    assert_eq!(report.core_transfers.total(), moved(999, 0));
    assert_eq!(report.core_transfers.get(0, 1), moved(500, 0));
    assert_eq!(report.core_transfers.get(1, 0), moved(499, 0));
    assert_eq!(
        report.core_transfers.between(0, 1),
        report.core_transfers.between(1, 0)
    );
    assert_eq!(report.total.class(Level::L1, Class::Compulsory), 2);
    assert_eq!(report.total.class(Level::L1, Class::TrueSharing), 998);
    assert_eq!(report.total.overlapping(Level::L1), 998);
    assert_eq!(report.total.served(Served::Peer), 999);
    assert_eq!(report.intra_socket.supplied, 999);
    assert_eq!(report.intra_socket.invalidations, 999);
    assert_eq!(report.inter_socket.events(), 0);
    assert_eq!(report.lines[0].address, 0x1000);
    assert_eq!(report.lines[0].pairs.len(), 2);
    assert_eq!(report.lines[0].threads[0].written, 0xff);
    assert_eq!(report.lines[0].threads[0].read, 0);
}

#[test]
fn two_words_of_a_line_stored_in_turns_share_falsely() {
    let report = simulate(&socket(2), &turns(1000, [0x1000, 0x1038]));
    assert_eq!(report.core_transfers.total(), moved(0, 999));
    assert_eq!(report.thread_transfers.total(), moved(0, 999));
    assert_eq!(report.total.class(Level::L1, Class::FalseSharing), 998);
    assert_eq!(report.total.class(Level::L1, Class::TrueSharing), 0);
    assert_eq!(report.lines[0].threads[1].written, 0xff << 56);
}

#[test]
fn two_words_on_lines_of_their_own_never_move() {
    let report = simulate(&socket(2), &turns(1000, [0x1000, 0x1040]));
    assert_eq!(report.core_transfers.total(), moved(0, 0));
    assert_eq!(report.total.hits(Level::L1), 998);
    assert!(report.lines.is_empty());
}

#[test]
fn readers_get_a_line_once_and_then_have_it() {
    let accesses: Vec<_> = (0..400).map(|i| load(i % 4, 0x1000)).collect();
    let report = simulate(&socket(4), &accesses);
    // The first reader has it exclusive and is asked; for the others the last level has it.
    assert_eq!(report.core_transfers.total().total(), 1);
    assert_eq!(report.total.served(Served::Llc), 2);
    assert_eq!(report.total.misses(Level::L1), 4);
    assert_eq!(report.total.class(Level::L1, Class::Compulsory), 4);
}

#[test]
fn a_consumer_that_reads_the_header_before_the_news_misses_truly() {
    // The producer writes the body; the consumer's miss is at the header, which nobody wrote.
    let mut accesses = vec![load(1, 0x1000), load(1, 0x1008)];
    for _ in 0..10 {
        accesses.extend([store(0, 0x1008), load(1, 0x1000), load(1, 0x1008)]);
    }
    let report = simulate(&socket(2), &accesses);
    assert_eq!(report.total.class(Level::L1, Class::TrueSharing), 10);
    assert_eq!(report.total.overlapping(Level::L1), 0);
    assert_eq!(report.core_transfers.get(0, 1), moved(10, 0));
}

#[test]
fn a_store_to_a_line_that_others_read_is_an_upgrade_not_a_transfer() {
    let report = simulate(
        &socket(3),
        &[load(0, 64), load(1, 64), load(2, 64), store(0, 64)],
    );
    assert_eq!(report.total.upgrades(), 1);
    assert_eq!(report.intra_socket.upgrades, 1);
    assert_eq!(report.intra_socket.invalidations, 2);
    assert_eq!(report.core_transfers.total().total(), 1);
    // Exclusive to modified needs no one.
    let report = simulate(&socket(3), &[load(0, 64), store(0, 64)]);
    assert_eq!(report.total.upgrades(), 0);
}

#[test]
fn a_load_finds_the_last_store_and_a_store_the_last_access() {
    for (last, bytes) in [(load(1, 8), (0, 7)), (store(1, 8), (8, 15))] {
        let mut hierarchy = Hierarchy::new(&socket(2)).unwrap();
        hierarchy.run(&[store(0, 0), load(0, 8), last]);
        let mut moves = Vec::new();
        let report = hierarchy.finish_with(|transfer| moves.push(transfer.from.bytes));
        assert_eq!(moves, [bytes]);
        // What was only read is no news to who stores there: on a line of its own it would be an upgrade.
        assert_eq!(report.core_transfers.total(), moved(0, 1));
    }
}

#[test]
fn two_lines_in_one_direct_mapped_set_conflict_and_too_many_lines_exceed_capacity() {
    let direct = Config::uniform(1, 1, CacheShape::new(256, 1));
    let accesses: Vec<_> = (0..100).map(|i| load(0, i % 2 * 256)).collect();
    let report = simulate(&direct, &accesses);
    assert_eq!(report.total.class(Level::L1, Class::Compulsory), 2);
    assert_eq!(report.total.class(Level::L1, Class::Conflict), 98);
    assert_eq!(report.sets[0][0].lines, 2);
    assert_eq!(report.sets[0][0].evictions, 99);
    assert_eq!(report.sets[0][1].accesses(), 0);

    let full = Config::uniform(1, 1, CacheShape::fully_associative(256));
    let accesses: Vec<_> = (0..100).map(|i| load(0, i % 5 * 64)).collect();
    let report = simulate(&full, &accesses);
    assert_eq!(report.total.class(Level::L1, Class::Compulsory), 5);
    assert_eq!(report.total.class(Level::L1, Class::Capacity), 95);
}

#[test]
fn a_page_is_at_home_where_it_was_touched_first() {
    let config = Config::uniform(2, 1, CacheShape::new(1 << 10, 2));
    let accesses = [load(0, 0), load(1, 64), load(1, 4096), load(0, 4096 + 64)];
    let report = simulate(&config, &accesses);
    assert_eq!(report.threads[0].served(Served::LocalDram), 1);
    assert_eq!(report.threads[0].served(Served::RemoteDram), 1);
    assert_eq!(report.threads[1].served(Served::RemoteDram), 1);
    let report = simulate(
        &Config {
            homes: Homes::Node(1),
            ..config
        },
        &accesses,
    );
    assert_eq!(report.threads[0].served(Served::RemoteDram), 2);
    assert_eq!(report.threads[1].served(Served::LocalDram), 2);
}

#[test]
fn who_serves_depends_on_how_near_the_owner_is() {
    let cases = [
        (synthetic::two_sockets_of_ten(), 1, Served::Peer),
        (synthetic::two_sockets_of_ten(), 10, Served::OtherSocket),
        (synthetic::epyc_of_eight_ccxs(), 7, Served::Peer),
        (synthetic::epyc_of_eight_ccxs(), 8, Served::OtherGroup),
    ];
    for (machine, cpu, served) in cases {
        let mut config = Config::from_topology(&machine).unwrap();
        config.place(&[0, cpu]).unwrap();
        let report = simulate(&config, &[store(0, 64), store(1, 64)]);
        assert_eq!(report.threads[1].served(served), 1);
        let between = u64::from(served == Served::OtherSocket);
        assert_eq!(report.inter_socket.supplied, between);
        assert_eq!(report.intra_socket.supplied, 1 - between);
    }
}

#[test]
fn hyperthreads_share_their_core_and_nothing_moves() {
    let machine = synthetic::two_sockets_of_ten_with_hyperthreads();
    let mut config = Config::from_topology(&machine).unwrap();
    config.place(&[3, 23]).unwrap();
    let report = simulate(&config, &turns(100, [0x1000, 0x1000]));
    assert_eq!(report.core_transfers.total().total(), 0);
    assert_eq!(report.total.hits(Level::L1), 99);
    assert_eq!(config.place(&[40]), Err(ConfigError::Cpu(40)));
}

#[test]
fn a_thread_that_moves_takes_its_lines_along_one_by_one() {
    let config = socket(2);
    let mut hierarchy = Hierarchy::new(&config).unwrap();
    hierarchy.run(&[store(0, 0), store(0, 64)]);
    hierarchy.place(0, 1).unwrap();
    hierarchy.run(&[load(0, 0), load(0, 64), load(0, 0)]);
    assert!(hierarchy.place(0, 2).is_err());
    let report = hierarchy.finish();
    assert_eq!(report.core_transfers.get(0, 1), moved(2, 0));
    assert_eq!(report.thread_transfers.get(0, 0), moved(2, 0));
}

#[test]
fn a_dirty_line_is_written_back_when_read_by_mesi_and_kept_by_moesi() {
    let accesses = [store(0, 0), load(1, 0), load(2, 0)];
    let config = socket(3);
    let mesi = simulate(&config, &accesses);
    assert_eq!(mesi.write_backs.private_to_llc, 1);
    assert_eq!(mesi.threads[2].served(Served::Llc), 1);
    let moesi = simulate(
        &Config {
            protocol: Protocol::Moesi,
            ..config
        },
        &accesses,
    );
    assert_eq!(moesi.write_backs.private_to_llc, 0);
    assert_eq!(moesi.threads[2].served(Served::Peer), 1);
    assert_eq!(moesi.core_transfers.get(0, 2), moved(1, 0));
}

#[test]
fn an_access_that_reaches_into_the_next_line_is_one_access_of_each() {
    let mut wide = load(0, 60);
    let report = simulate(&socket(1), &[wide]);
    assert_eq!(report.total.accesses(), 2);
    assert_eq!(report.total.misses(Level::L1), 2);
    wide.size = 200;
    let report = simulate(&socket(1), &[wide]);
    assert_eq!(report.total.accesses(), 5);
    // Memory ends at the highest address; what reaches further begins again at the lowest.
    let mut last = load(0, u64::MAX);
    last.size = 2;
    assert_eq!(simulate(&socket(1), &[last]).total.accesses(), 2);
}

#[test]
fn what_has_no_room_is_summed() {
    let config = Config {
        followed_lines: 1,
        counted_sites: 1,
        ..socket(2)
    };
    let mut accesses = turns(10, [0, 0]);
    accesses.extend(turns(20, [64, 72]));
    let report = simulate(&config, &accesses);
    assert_eq!(report.lines.len(), 1);
    assert_eq!(report.lines[0].transfers, moved(9, 0));
    assert_eq!(report.other_lines, 1);
    assert_eq!(report.other_line_transfers, moved(0, 19));
    assert_eq!(report.sites.len(), 1);
    assert_eq!(report.sites[0].accesses(), 15);
    assert_eq!(report.other_sites.accesses(), 15);
}

#[test]
fn threads_beyond_the_placement_begin_again_at_the_second() {
    let report = simulate(
        &socket(3),
        &[store(1, 0), store(3, 0), store(4, 0), store(700, 64)],
    );
    assert_eq!(report.core_transfers.total(), moved(1, 0));
    assert_eq!(report.thread_transfers.get(3, 4), moved(1, 0));
    assert_eq!(report.threads.len(), 701);
}

#[test]
fn lines_of_128_bytes_share_over_128_bytes() {
    let config = Config {
        line_bytes: 128,
        ..socket(2)
    };
    let report = simulate(&config, &turns(10, [0x1000, 0x1040]));
    assert_eq!(report.core_transfers.total(), moved(0, 9));
    assert_eq!(report.lines[0].threads[1].written, 0xff << 64);
    let config = Config {
        line_bytes: 256,
        ..socket(2)
    };
    let report = simulate(&config, &turns(10, [0x1000, 0x10f8]));
    assert_eq!(report.core_transfers.total(), moved(0, 9));
    assert_eq!(report.lines[0].threads[1].written, 0xf << 124);
}

#[test]
fn the_observer_sees_every_line_of_every_access() {
    let mut hierarchy = Hierarchy::new(&socket(2)).unwrap();
    let mut wide = store(0, 60);
    wide.size = 8;
    let mut seen = Vec::new();
    let mut moves = Vec::new();
    let accesses = [wide, load(1, 64), load(1, 64)];
    hierarchy.run_with(
        &accesses,
        |index, outcome| seen.push((index, *outcome)),
        |transfer| moves.push(*transfer),
    );
    let lines: Vec<_> = seen
        .iter()
        .map(|(index, outcome)| (*index, outcome.line))
        .collect();
    assert_eq!(lines, [(0, 0), (0, 64), (1, 64), (2, 64)]);
    let supplier = seen[2].1.supplier.unwrap();
    assert_eq!((supplier.core, supplier.thread), (0, 0));
    assert_eq!(seen[2].1.answer(Level::L1), Answer::Miss(Class::Compulsory));
    assert_eq!(seen[2].1.answer(Level::L2), Answer::NotAsked);
    assert_eq!(seen[2].1.answer(Level::Llc), Answer::Hit);
    assert_eq!(seen[3].1.served, Served::L1);
    let _ = hierarchy.finish_with(|transfer| moves.push(*transfer));
    assert_eq!(moves.len(), 1);
    assert_eq!((moves[0].line, moves[0].is_true), (64, true));
    assert_eq!((moves[0].from, moves[0].to.site), (supplier, 1));
}

#[test]
fn the_machine_of_a_topology_has_its_caches() {
    let config = Config::from_topology(&synthetic::two_sockets_of_ten_with_hyperthreads()).unwrap();
    assert_eq!((config.cores.len(), config.groups.len()), (20, 2));
    assert_eq!(config.cores[13].group, 1);
    assert_eq!(config.cores[0].l1, CacheShape::new(32 << 10, 8));
    assert_eq!(config.cores[0].l2, Some(CacheShape::new(256 << 10, 8)));
    assert_eq!(config.groups[1].llc, Some(CacheShape::new(25 << 20, 16)));
    assert_eq!((config.groups[1].socket, config.groups[1].node), (1, 1));
    assert_eq!(config.threads.len(), 40);
    assert_eq!(config.threads[20], 0);
    assert_eq!(config.core_of(33), Some(13));
    // The kernel never tells these two.
    let what: Vec<_> = config.assumptions.iter().map(|known| known.what).collect();
    assert_eq!(what, ["inclusion", "replacement"]);

    let config = Config::from_topology(&synthetic::epyc_of_eight_ccxs()).unwrap();
    assert_eq!((config.cores.len(), config.groups.len()), (64, 8));
    assert_eq!(config.groups[7].llc, Some(CacheShape::new(32 << 20, 16)));
}

#[test]
fn clusters_that_share_a_second_level_have_it_as_their_last() {
    let config = Config::from_topology(&synthetic::apple_of_three_clusters()).unwrap();
    assert_eq!(config.line_bytes, 128);
    assert_eq!((config.cores.len(), config.groups.len()), (10, 3));
    assert_eq!(config.cores[0].l2, None);
    assert_eq!(config.groups[0].llc.unwrap().size_bytes, 4 << 20);
    assert_eq!(config.groups[2].llc.unwrap().size_bytes, 12 << 20);
    assert_eq!(config.cores[0].l1.size_bytes, 64 << 10);
    assert_eq!(config.cores[9].l1.size_bytes, 128 << 10);
    let report = simulate(&config, &turns(10, [0, 64]));
    assert_eq!(report.core_transfers.total(), moved(0, 9));
}

#[test]
fn what_a_machine_hides_is_assumed_and_said() {
    let mut machine = synthetic::two_sockets_of_ten();
    machine.caches.clear();
    let config = Config::from_topology(&machine).unwrap();
    assert_eq!(config.line_bytes, 64);
    assert_eq!(config.cores[0].l1, CacheShape::new(32 << 10, 8));
    assert_eq!(config.cores[0].l2, Some(CacheShape::new(512 << 10, 8)));
    assert_eq!(config.groups.len(), 2);
    assert_eq!(config.groups[0].llc, Some(CacheShape::new(20 << 20, 16)));
    for what in ["line", "l1", "l2", "llc"] {
        assert!(
            config.assumptions.iter().any(|known| known.what == what),
            "{what}"
        );
    }

    // Only the last level is hidden: the private second level is not taken for it.
    let mut machine = synthetic::two_sockets_of_ten();
    machine.caches.retain(|cache| cache.level < 3);
    let config = Config::from_topology(&machine).unwrap();
    assert_eq!(config.cores[0].l2, Some(CacheShape::new(256 << 10, 8)));
    assert_eq!(config.groups.len(), 2);
    assert!(config.assumptions.iter().any(|known| known.what == "llc"));

    // Four cores below each second level, beside a shared third.
    let mut machine = synthetic::epyc_of_eight_ccxs();
    machine.caches.retain(|cache| cache.level != 2);
    let mut shared = machine
        .caches
        .iter()
        .find(|cache| cache.level == 3)
        .unwrap()
        .clone();
    shared.level = 2;
    shared.size_bytes = Some(8 << 20);
    machine.caches.push(shared);
    let config = Config::from_topology(&machine).unwrap();
    assert_eq!(config.cores[0].l2.unwrap().size_bytes, 1 << 20);
    assert!(config.assumptions.iter().any(|known| known.what == "l2"));

    assert_eq!(
        Config::from_topology(&Topology::default()),
        Err(ConfigError::Cores(0))
    );
}

#[test]
fn machines_that_cannot_be_are_refused() {
    let good = socket(2);
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = good.clone();
        change(&mut config);
        let error = Hierarchy::new(&config).unwrap_err();
        assert!(!error.to_string().is_empty());
        error
    };
    assert_eq!(
        refused(&|config| config.line_bytes = 48),
        ConfigError::Line(48)
    );
    assert_eq!(
        refused(&|config| config.line_bytes = 512),
        ConfigError::Line(512)
    );
    assert_eq!(
        refused(&|config| config.cores.clear()),
        ConfigError::Cores(0)
    );
    assert_eq!(
        refused(&|config| config.groups.clear()),
        ConfigError::Groups(0)
    );
    assert_eq!(
        refused(&|config| config.threads.clear()),
        ConfigError::Threads
    );
    let missing = ConfigError::Missing {
        what: "core",
        index: 9,
    };
    assert_eq!(refused(&|config| config.threads = vec![9]), missing);
    for (size, ways) in [
        (0, Ways::Full),
        (100, Ways::Full),
        (256, Ways::Number(0)),
        (256, Ways::Number(3)),
    ] {
        let error = refused(&|config| {
            config.cores[0].l1.size_bytes = size;
            config.cores[0].l1.ways = ways;
        });
        assert!(matches!(error, ConfigError::Shape { name: "L1", .. }));
    }
    assert_eq!(
        refused(&|config| config.spanning = linewise_cache::hierarchy::Spanning::OneReference),
        ConfigError::OneReference
    );
}

#[test]
fn an_inclusive_last_level_takes_lines_out_of_private_caches() {
    let llc = CacheShape::new(256, 4).with_inclusion(Inclusion::Inclusive);
    let config = Config::uniform(1, 1, CacheShape::new(1 << 10, 4)).with_llc(llc);
    let accesses: Vec<_> = (0..5).chain(0..1).map(|line| store(0, line * 64)).collect();
    let report = simulate(&config, &accesses);
    // Line 0 leaves both when line 4 comes, and line 1 when line 0 comes back.
    assert_eq!(report.back_invalidations, 2);
    assert_eq!(report.write_backs.to_memory, 2);
    // The first level by itself had room.
    assert_eq!(report.total.class(Level::L1, Class::Conflict), 1);
    assert_eq!(report.total.class(Level::Llc, Class::Capacity), 1);
}
