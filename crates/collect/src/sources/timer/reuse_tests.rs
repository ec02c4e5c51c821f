use super::*;

#[test]
fn of_all_that_was_offered_each_is_equally_likely_to_be_in_a_slot() {
    const OFFERS: usize = 12;
    const TRIALS: usize = 40_000;
    let mut chance = Chance::seeded(5);
    let mut kept = [[0usize; OFFERS]; 2];
    for _ in 0..TRIALS {
        let mut slots = Reservoir::new(2);
        for offer in 0..OFFERS {
            slots.offer(offer, &mut chance);
        }
        for (slot, &mut offer) in slots.iter_mut() {
            kept[slot][offer] += 1;
        }
    }
    // Each slot was given one of the first two, while the other one was free or taken.
    let expected = TRIALS as f64 / (OFFERS - 1) as f64;
    for (slot, others) in [(0, 1), (1, 0)] {
        assert_eq!(kept[slot][others], 0);
        for (offer, &count) in kept[slot].iter().enumerate() {
            let deviations = (count as f64 - expected) / expected.sqrt();
            assert!(
                offer == others || deviations.abs() < 4.5,
                "{:?}, expected {expected}",
                kept[slot]
            );
        }
    }
}

#[test]
fn a_slot_that_was_freed_takes_the_next_sample_for_certain_and_starts_over() {
    let mut chance = Chance::seeded(9);
    let mut slots = Reservoir::new(1);
    for offer in 0..1000 {
        slots.offer(offer, &mut chance);
    }
    assert!(slots.free(0).is_some());
    assert_eq!(slots.offer(7, &mut chance), Offered::Placed(0, None));
    let replaced = (0..2000)
        .filter(|_| {
            let mut slots = Reservoir::new(1);
            slots.offer(1, &mut chance);
            slots.offer(2, &mut chance) == Offered::Placed(0, Some(1))
        })
        .count();
    assert!((900..1100).contains(&replaced), "{replaced} of 2000");
}

#[test]
fn the_longer_a_sample_is_in_its_slot_the_safer_it_is() {
    let mut chance = Chance::seeded(3);
    let mut replaced = [0usize; 64];
    for _ in 0..2000 {
        let mut slots = Reservoir::new(1);
        for (offer, count) in replaced.iter_mut().enumerate() {
            let outcome = slots.offer(offer, &mut chance);
            *count += usize::from(matches!(outcome, Offered::Placed(_, Some(_))));
        }
    }
    // The nth offer replaces once in n times.
    assert_eq!(replaced[0], 0);
    assert!((900..1100).contains(&replaced[1]), "{replaced:?}");
    let late: usize = replaced[32..].iter().sum();
    assert!((1100..1700).contains(&late), "2000 ln 2 = 1386: {late}");
}
