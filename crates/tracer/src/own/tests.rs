use super::*;
use crate::region::Region;
use crate::words;

#[derive(Default)]
struct Halves(FirstHalf, SecondHalf);

impl Halves {
    fn line(&self) -> Line<'_> {
        Line {
            first: &self.0,
            second: &self.1,
        }
    }
}

/// Every thread has made so many accesses.
struct Made(u64);

impl Others for Made {
    fn made(&self, _: u16) -> u64 {
        self.0
    }
}

const NEVER: Made = Made(0);

/// All is wanted to be told.
struct Wanted;

impl Others for Wanted {
    fn want_all(&self) -> bool {
        true
    }

    fn made(&self, _: u16) -> u64 {
        0
    }
}

#[test]
fn a_line_is_its_first_threads_own_until_another_comes_and_is_told_what_was_done() {
    let halves = Halves::default();
    let line = halves.line();
    assert!(matches!(line.touch(64, 3, 7, true, &NEVER), Touch::First));
    assert!(matches!(line.touch(64, 3, 8, true, &NEVER), Touch::Own));
    let deed = words::deed(0, 8, words::meta(3, true));
    line.notes_of(3).unwrap().note(1, deed, 4, 0b1100);
    let Touch::Taken(taken) = line.touch(64, 5, 1, true, &NEVER) else {
        panic!("not taken");
    };
    let expected = Taken {
        owner: 3,
        again: false,
        line: 64,
        first: 7,
        quarters: [0, 4],
        granules: [0, 0b1100],
        last: [0, deed],
    };
    assert_eq!(taken, expected);
    assert!(matches!(line.touch(64, 3, 9, true, &NEVER), Touch::Shared));
}

#[test]
fn a_shared_line_is_own_again_after_touches_in_a_row_and_not_where_threads_take_turns() {
    let halves = Halves::default();
    let line = halves.line();
    assert!(matches!(line.touch(64, 3, 1, true, &NEVER), Touch::First));
    assert!(matches!(
        line.touch(64, 5, 1, true, &NEVER),
        Touch::Taken(_)
    ));
    for turn in 0..100 {
        let me = [3, 5][turn % 2];
        assert!(matches!(line.touch(64, me, 2, true, &NEVER), Touch::Shared));
    }
    let shared = (0..100)
        .take_while(|_| matches!(line.touch(64, 3, 9, true, &NEVER), Touch::Shared))
        .count();
    assert_eq!(shared, TOUCHES_IN_A_ROW as usize);
    let deed = words::deed(0, 8, words::meta(3, false));
    line.notes_of(3).unwrap().note(0, deed, 4, 0b1100);
    let Touch::Taken(taken) = line.touch(64, 5, 9, true, &NEVER) else {
        panic!("it was 3's");
    };
    assert_eq!((taken.owner, taken.first, taken.again), (3, 10, true));
    assert_eq!((taken.quarters, taken.last), ([4, 0], [deed, 0]));
}

#[test]
fn the_late_note_of_an_interrupted_owner_does_not_reach_the_next_ones() {
    let halves = Halves::default();
    let line = halves.line();
    assert!(matches!(line.touch(64, 3, 1, true, &NEVER), Touch::First));
    let late = line.notes_of(3).unwrap();
    assert!(matches!(
        line.touch(64, 5, 1, true, &NEVER),
        Touch::Taken(_)
    ));
    while !matches!(line.touch(64, 5, 9, true, &NEVER), Touch::Again) {}
    let deed = words::deed(0, 8, words::meta(3, true));
    line.notes_of(5).unwrap().note(1, deed, 4, 0b1100);
    late.note(1, words::deed(7, 16, words::meta(3, true)), 400, 0b1100);
    let Touch::Taken(taken) = line.touch(64, 3, 2, true, &NEVER) else {
        panic!("not taken");
    };
    assert_eq!((taken.quarters, taken.last), ([0, 4], [0, deed]));
}

#[test]
fn what_is_remembered_of_a_shared_line_does_not_reach_the_notes_of_who_has_it_again_meanwhile() {
    let halves = Halves::default();
    let line = halves.line();
    line.touch(64, 3, 1, true, &NEVER);
    line.touch(64, 5, 1, true, &NEVER);
    let shared = halves.0.state.load(Ordering::Relaxed);
    while !matches!(line.touch(64, 5, 9, true, &NEVER), Touch::Again) {}
    let deed = words::deed(0, 8, words::meta(5, true));
    line.notes_of(5).unwrap().note(1, deed, 4, 0b1100);
    // A thread that saw it shared, and was interrupted.
    line.remember(shared, 0, mark(3, 2));
    let Touch::Taken(taken) = line.touch(64, 3, 3, true, &NEVER) else {
        panic!("not taken");
    };
    assert_eq!((taken.quarters, taken.last), ([0, 4], [0, deed]));
}

#[test]
fn a_line_that_nobody_stores_to_is_constant_and_each_threads_first_load_is_told() {
    let halves = Halves::default();
    let line = halves.line();
    assert!(matches!(line.touch(64, 3, 1, false, &NEVER), Touch::First));
    line.notes_of(3)
        .unwrap()
        .note(0, words::deed(0, 8, words::meta(3, false)), 4, 0b1100);
    assert!(matches!(
        line.touch(64, 5, 1, false, &NEVER),
        Touch::Taken(_)
    ));
    for me in [3, 5] {
        assert!(matches!(
            line.touch(64, me, 2, false, &NEVER),
            Touch::Constant
        ));
    }
    assert!(matches!(line.touch(64, 9, 1, false, &NEVER), Touch::Shared));
    assert!(matches!(
        line.touch(64, 9, 2, false, &NEVER),
        Touch::Constant
    ));
    assert!(matches!(line.touch(64, 9, 3, true, &NEVER), Touch::Shared));
    assert!(matches!(line.touch(64, 5, 4, false, &NEVER), Touch::Shared));
}

#[test]
fn a_line_that_is_taken_by_who_died_is_told_for_good() {
    let halves = Halves::default();
    halves.0.state.store(BEING_TAKEN, Ordering::Relaxed);
    for _ in 0..100 {
        assert!(matches!(
            halves.line().touch(64, 3, 1, true, &NEVER),
            Touch::Shared
        ));
    }
}

#[test]
fn who_touches_a_line_oftener_has_to_do_so_for_longer_the_more_often_others_come() {
    let halves = Halves::default();
    let line = halves.line();
    assert!(matches!(line.touch(64, 3, 1, true, &NEVER), Touch::First));
    let mut touches = Vec::new();
    for _ in 0..4 {
        assert!(matches!(
            line.touch(64, 5, 1, true, &NEVER),
            Touch::Taken(_)
        ));
        let again = |_: &u64| matches!(line.touch(64, 3, 9, true, &NEVER), Touch::Again);
        touches.extend((1..1000).find(again));
    }
    assert_eq!(touches, [9, 17, 33, 65]);
}

#[test]
fn a_line_that_its_owner_only_prepared_is_constant_as_well() {
    for (made, constant) in [(100 + LONG, true), (99, false)] {
        let halves = Halves::default();
        let line = halves.line();
        assert!(matches!(line.touch(64, 3, 64, true, &NEVER), Touch::First));
        line.notes_of(3)
            .unwrap()
            .note(1, words::deed(1, 8, words::meta(3, true)), 4, 0b1100);
        let touch = line.touch(64, 5, 1, false, &Made(made));
        assert!(matches!(touch, Touch::Taken(_)));
        let next = line.touch(64, 5, 2, false, &NEVER);
        assert_eq!(matches!(next, Touch::Constant), constant);
    }
}

#[test]
fn a_shared_line_that_is_loaded_for_long_is_constant_until_the_next_store() {
    let halves = Halves::default();
    let line = halves.line();
    let load = |me, number| line.touch(64, me, number, false, &NEVER);
    let store = |me, number| line.touch(64, me, number, true, &NEVER);
    assert!(matches!(store(3, 1), Touch::First));
    assert!(matches!(store(5, 1), Touch::Taken(_)));
    for begin in [0, 1 << 40] {
        assert!(matches!(store(3, begin + 9), Touch::Shared));
        // In turns, so that neither has it for itself.
        for me in [5, 3, 5] {
            assert!(matches!(load(me, begin + 20), Touch::Shared));
        }
        for (me, number) in [(3, LONG + 8), (5, LONG + 20), (3, LONG + 21)] {
            assert!(matches!(load(me, begin + number), Touch::Shared), "{me}");
        }
        for me in [3, 5] {
            assert!(matches!(load(me, begin + LONG + 30), Touch::Constant));
        }
        assert!(matches!(load(9, 1), Touch::Shared));
    }
    assert!(matches!(store(9, 2), Touch::Shared));
    assert!(matches!(load(3, 1 << 41), Touch::Shared));
}

#[test]
fn a_line_that_its_owner_had_again_and_only_loaded_for_long_is_constant() {
    for (made, constant) in [(LONG + 10, true), (LONG + 9, false)] {
        let halves = Halves::default();
        let line = halves.line();
        line.touch(64, 3, 1, true, &NEVER);
        line.touch(64, 5, 1, true, &NEVER);
        while !matches!(line.touch(64, 3, 9, false, &NEVER), Touch::Again) {}
        let touch = line.touch(64, 5, 2, false, &Made(made));
        assert!(matches!(touch, Touch::Taken(_)));
        let next = line.touch(64, 5, 3, false, &NEVER);
        assert_eq!(matches!(next, Touch::Constant), constant);
    }
}

#[test]
fn a_line_that_its_storer_left_long_ago_is_constant_for_who_comes_later() {
    let halves = Halves::default();
    let line = halves.line();
    assert!(matches!(line.touch(64, 3, 64, true, &NEVER), Touch::First));
    line.notes_of(3)
        .unwrap()
        .note(1, words::deed(1, 8, words::meta(3, true)), 4, 0b1100);
    assert!(matches!(
        line.touch(64, 5, 1, false, &NEVER),
        Touch::Taken(_)
    ));
    let load = |made| line.touch(64, 7, 1, false, &Made(made));
    assert!(matches!(load(LONG), Touch::Shared));
    assert!(matches!(load(LONG + 128), Touch::Shared));
    assert!(matches!(load(LONG), Touch::Constant));
}

#[test]
fn what_is_to_be_told_whole_is_nobodys_own() {
    let (chosen, given_up) = (Halves::default(), Halves::default());
    let (chosen, given_up) = (chosen.line(), given_up.line());
    for _ in 0..100 {
        assert!(matches!(
            chosen.touch(0, 1, 0, true, &Wanted),
            Touch::Shared
        ));
    }
    assert!(matches!(
        given_up.touch(0, 2, 0, true, &NEVER),
        Touch::First
    ));
    assert!(matches!(
        given_up.touch(0, 0, 0, true, &Wanted),
        Touch::Taken(_)
    ));
    for _ in 0..100 {
        assert!(matches!(
            given_up.touch(0, 2, 1, true, &NEVER),
            Touch::Shared
        ));
    }
}

#[test]
fn the_collector_frees_the_tables_of_a_space() {
    let region = Region::create().unwrap();
    let target = Region::open(std::path::Path::new(&region.path().unwrap())).unwrap();
    let (number, at) = place(0x7000_1234_5678);
    let mut lines = [4, 9].map(|image| target.claim_table(image, number).unwrap().line(at));
    for line in lines {
        line.touch(0, 1, 0, true, &NEVER);
    }
    region.free_tables(4);
    lines[0] = target.claim_table(4, number).unwrap().line(at);
    let touches = lines.map(|line| line.touch(0, 3, 0, true, &NEVER));
    assert!(matches!(touches, [Touch::First, Touch::Taken(_)]));
}
