use std::os::fd::FromRawFd;

use super::*;

#[test]
fn both_ends_see_the_same_memory_and_the_configuration_comes_through() {
    let region = Region::create().unwrap();
    region.set_configuration(b"qemu=/usr/bin/qemu\0").unwrap();
    let other = Region::open(Path::new(&region.path().unwrap())).unwrap();
    assert_eq!(other.configuration(), b"qemu=/usr/bin/qemu\0");
    let index = other.claim(RingKind::Thread, 3, 2).unwrap();
    let ring = region.ring(index);
    assert_eq!(ring.state(), RingState::Open);
    assert_eq!(ring.images(), (3, 2));
    assert_eq!(ring.ids().0, std::process::id());
    other.close(index);
    assert_eq!(ring.state(), RingState::Closed);
}

#[test]
fn something_else_is_refused() {
    let file = tempfile();
    assert!(Region::open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).is_err());
    assert!(Region::open(Path::new("/nowhere")).is_err());
}

fn tempfile() -> File {
    // SAFETY: a name that ends in NUL; the descriptor is new and ours.
    unsafe { File::from_raw_fd(libc::memfd_create(c"other".as_ptr(), libc::MFD_CLOEXEC)) }
}

#[test]
fn words_are_found_around_the_end() {
    let region = Region::create().unwrap();
    let index = region.claim(RingKind::Thread, 0, 0).unwrap();
    let (first, count) = region.ring_words(index);
    // SAFETY: the first word of a ring of `count` words.
    unsafe { first.as_ref() }.store(7, Ordering::Relaxed);
    let ring = region.ring(index);
    assert_eq!(ring.capacity(), count);
    assert_eq!(ring.word(0), 7);
    assert_eq!(ring.word(count * 3), 7);
    assert_eq!(ring.word(u64::MAX), 0);
    ring.wipe(count..count + 1);
    assert_eq!(ring.word(0), 0);
}

#[test]
fn the_slots_of_a_block_lie_in_one_bank_and_are_nobody_elses() {
    let region = Region::create().unwrap();
    let mut end = 0;
    for count in [1, 512, 0, 511, 300].repeat(20) {
        let first = region.take_slots(count).unwrap();
        assert!(first >= end && first < end + 512);
        assert!(count == 0 || first / words::BANK_SLOTS == (first + count - 1) / words::BANK_SLOTS);
        end = first + count;
    }
    region
        .header()
        .next_slot
        .store(words::NO_SLOT - 10, Ordering::Relaxed);
    assert_eq!(region.take_slots(12), None);
    assert_eq!(region.take_slots(10), Some(words::NO_SLOT - 10));
    assert_eq!(region.take_slots(1), None);
}

#[test]
fn a_process_that_lives_has_a_start_and_none_else() {
    let own = started(std::process::id()).unwrap();
    assert_eq!(started(std::process::id()), Some(own));
    assert_eq!(started(u32::MAX), None);
}

#[test]
fn nobody_takes_bytes_from_under_the_collector() {
    let region = Region::create().unwrap();
    let file = File::options()
        .write(true)
        .open(region.path().unwrap())
        .unwrap();
    for length in [0, LENGTH as u64 * 2] {
        assert!(file.set_len(length).is_err());
    }
    region.clear_table(0).unwrap();
}

#[test]
fn a_thread_that_ends_while_it_holds_the_memory_is_missed_and_one_that_lets_go_is_not() {
    let region = Region::create().unwrap();
    let held = region.hold().unwrap();
    assert!(!region.collector_is_gone());
    drop(held);
    assert!(!region.collector_is_gone());
    assert!(region.is_detached());
    let its = region.clone();
    std::thread::spawn(move || std::mem::forget(its.hold().unwrap()))
        .join()
        .unwrap();
    assert!(region.collector_is_gone());
}

#[test]
fn a_ring_that_cannot_be_written_so_far_has_nothing_to_be_read() {
    let region = Region::create().unwrap();
    let index = region.claim(RingKind::Process, 0, 0).unwrap();
    let ring = region.ring(index);
    let written = |head: u64, freed: u64| {
        let header = region.ring_header(index);
        header.head.store(head, Ordering::Relaxed);
        ring.written(freed)
    };
    let count = ring.capacity();
    assert_eq!(written(count + 5, 5), Ok(count + 5));
    assert_eq!(written(count + 6, 5), Err(count + 6));
    assert_eq!(written(4, 5), Err(4));
    // Positions behind it can be added to.
    let farthest = written(u64::MAX, u64::MAX - 1).unwrap_err();
    assert_eq!(written(u64::MAX, farthest), Err(farthest));
    assert!(farthest.checked_add(count).is_some());
}
