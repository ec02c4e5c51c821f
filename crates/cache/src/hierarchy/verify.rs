//! The directory and the caches tell the same story after every access.

use proptest::prelude::*;

use super::array::EMPTY;
use super::config::{CacheShape, Config, Inclusion, Protocol, Replacement, SharedSupply};
use super::engine::Engine;
use super::l1;
use super::lines::{NOBODY, flag, state};
use crate::{Access, Kind};

fn verify(engine: &mut Engine<u64>) -> Result<(), TestCaseError> {
    let ids = engine.lines.lines.len() as u32;
    for id in 0..ids {
        let line = engine.lines.lines[id as usize];
        let number = engine.lines.number(id);
        for core in 0..engine.l1.len() {
            let at = engine.lines.core_line(id, core);
            let mine = engine.lines.core_lines[at];
            let tags = engine.l1[core].tags.iter();
            let copies = tags.filter(|&&tag| tag == number).count();
            let in_l1 = mine.flags & flag::IN_L1 != 0;
            prop_assert_eq!(copies, usize::from(in_l1));
            let l2 = engine.l2[core].iter().flat_map(|l2| l2.array.ids());
            let copies = l2.filter(|&other| other == id).count();
            let in_l2 = mine.flags & flag::IN_L2 != 0;
            prop_assert_eq!(copies, usize::from(in_l2));
            let holds = line.holders >> core & 1 == 1;
            prop_assert_eq!(holds, in_l1 || in_l2);
            prop_assert!(!holds || line.lost >> core & 1 == 0);
            if in_l1 {
                let way = mine.way as usize;
                prop_assert_eq!(engine.l1[core].tags[way], number);
                let held = engine.l1[core].held[way];
                let owns = usize::from(line.owner) == core;
                prop_assert_eq!(held.state, if owns { line.state } else { state::SHARED });
                prop_assert!(!held.ready || held.state == state::MODIFIED && held.dirty);
                prop_assert!(held.written == 0 || held.state == state::MODIFIED);
            }
        }
        for group in 0..engine.llc.len() {
            let llc = engine.llc[group].iter().flat_map(|llc| llc.array.ids());
            let copies = llc.filter(|&other| other == id).count();
            prop_assert_eq!(copies, usize::from(line.llcs >> group & 1 == 1));
        }
        prop_assert!(line.dirty_llc == NOBODY || line.llcs >> line.dirty_llc & 1 == 1);
        if line.owner != NOBODY {
            prop_assert!(line.holders >> line.owner & 1 == 1);
            // A single writer, and nobody else reads meanwhile, not even another group's cache.
            if line.state != state::OWNED {
                prop_assert_eq!(line.holders, 1 << line.owner);
                let group = engine.group_of[usize::from(line.owner)];
                prop_assert_eq!(line.llcs & !(1 << group), 0);
            } else {
                prop_assert!(engine.protocol == Protocol::Moesi);
            }
        }
    }
    for l1 in &engine.l1 {
        for (way, &tag) in l1.tags.iter().enumerate() {
            prop_assert_eq!(tag == l1::EMPTY, l1.slots[way] == 0);
        }
    }
    let outer = engine.l2.iter().chain(&engine.llc).flatten();
    prop_assert!(
        outer
            .flat_map(|outer| outer.array.ids())
            .all(|id| id != EMPTY)
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_directory_knows_every_copy_and_a_writer_is_alone(
        stream in prop::collection::vec((0u64..24, 0u64..8, 0u16..4, 0u8..3), 1..120),
        policies in prop::collection::vec(
            prop::sample::select(vec![Replacement::Lru, Replacement::TreePlru, Replacement::Random]),
            3,
        ),
        inclusions in prop::collection::vec(
            prop::sample::select(vec![Inclusion::Inclusive, Inclusion::Exclusive, Inclusion::NonInclusive]),
            2,
        ),
        (moesi, forward, l2, llc) in any::<(bool, bool, bool, bool)>(),
    ) {
        let shape = |lines: u64, level: usize| {
            CacheShape::new(lines * 64, 2).with_replacement(policies[level])
        };
        let mut config = Config::uniform(2, 2, shape(2, 0));
        if l2 {
            config = config.with_l2(shape(4, 1).with_inclusion(inclusions[0]));
        }
        if llc {
            config = config.with_llc(shape(8, 2).with_inclusion(inclusions[1]));
        }
        if moesi {
            config.protocol = Protocol::Moesi;
        }
        if forward {
            config.shared_supply = SharedSupply::Cache;
        }
        let mut engine = Engine::<u64>::new(&config);
        for (line, word, thread, kind) in stream {
            let access = Access {
                address: line * 64 + word * 8,
                size: 8,
                kind: [Kind::Load, Kind::Store, Kind::Update][usize::from(kind)],
                thread,
                site: 0,
            };
            engine.run(&[access], |_, _| {}, |_| {});
            verify(&mut engine)?;
        }
    }
}
