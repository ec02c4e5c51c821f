//! Threads, stays, stacks and mappings as records tell of them.

use super::*;
use crate::kernel::Machine;
use linewise_machine::procfs;

#[test]
fn stays_add_up_to_cpu_time_and_a_cut_loses_nothing() {
    let mut threads = Threads::default();
    threads.found(Pid(1), Tid(1), Time(0), Some("main".into()));
    assert_eq!(threads.switched(Tid(1), CpuId(0), Time(100), false), None);
    let stay = threads.switched(Tid(1), CpuId(0), Time(400), true).unwrap();
    assert_eq!((stay.start, stay.end), (Time(100), Time(400)));
    threads.switched(Tid(1), CpuId(1), Time(500), false);
    assert_eq!(threads.cut(Time(600)).len(), 1);
    threads.ended(Tid(1), Time(650)).unwrap();
    assert_eq!(threads.cpu_ns, 450);
    assert_eq!(threads.rows(Time(900), 1.0)[0].cpu_time_ns, 450);
    assert_eq!(threads.rows(Time(900), 1.0)[0].end, Time(650));
}

#[test]
fn cpu_time_is_what_the_kernel_counted_where_switches_were_told_for_a_part_of_the_time() {
    let mut threads = Threads::default();
    let (own, tid) = (std::process::id(), linewise_machine::process::current_tid());
    let counted = || procfs::thread_cpu_time_ns(own, tid).unwrap_or(0);
    // A thread that was never off its CPU may not have been counted yet.
    let start = std::time::Instant::now();
    while counted() == 0 && start.elapsed().as_millis() < 200 {
        std::hint::spin_loop();
    }
    if counted() == 0 {
        return println!("skipped: the kernel does not count CPU times of threads");
    }
    threads.found(Pid(own), Tid(tid), Time(0), None);
    threads.open_accounts(&Machine, Time(0));
    let first = counted();
    threads.switched(Tid(tid), CpuId(0), Time(0), false);
    threads.switched(Tid(tid), CpuId(0), Time(1000), true);
    while counted() < first + 5_000_000 {
        std::hint::spin_loop();
    }
    threads.read_accounts(&Machine, Time(2000), 1);
    let row = &threads.rows(Time(2000), 0.5)[0];
    assert!((5_000_000..=counted() - first + 5_000_000).contains(&row.cpu_time_ns));
    // What was told since is scaled.
    threads.switched(Tid(tid), CpuId(0), Time(3000), false);
    threads.switched(Tid(tid), CpuId(0), Time(4000), true);
    let later = &threads.rows(Time(4000), 0.5)[0];
    assert_eq!(later.cpu_time_ns, row.cpu_time_ns + 2000);
    // Where all was told that is exact.
    assert_eq!(threads.rows(Time(4000), 1.0)[0].cpu_time_ns, 2000);
}

#[test]
fn of_many_threads_some_are_asked_for_in_turns() {
    let mut threads = Threads::default();
    for tid in 1..=5 {
        threads.found(Pid(1), Tid(tid), Time(0), None);
        threads.open_account(Tid(tid), 0, Time(0));
    }
    let mut asked = Vec::new();
    for _ in 0..3 {
        threads.read_accounts(&Machine, Time(1), 2);
        asked.push(threads.asked_last.unwrap().0);
    }
    assert_eq!(asked, [2, 4, 1]);
}

#[test]
fn a_stay_ends_when_switches_are_not_told_and_begins_when_the_thread_is_seen() {
    let mut threads = Threads::default();
    threads.found(Pid(1), Tid(1), Time(0), None);
    threads.switched(Tid(1), CpuId(0), Time(100), false);
    assert_eq!(threads.lose_sight(Time(300)).len(), 1);
    // It was on the CPU all the time, so its coming is not told.
    threads.seen_on(Tid(1), CpuId(0), Time(5_000));
    threads.seen_on(Tid(1), CpuId(0), Time(5_100));
    let stay = threads.switched(Tid(1), CpuId(0), Time(5_200), true);
    assert_eq!(stay.map(|stay| stay.start), Some(Time(5_000)));
    assert_eq!(threads.cpu_ns, 400);
}

#[test]
fn stays_beyond_the_limit_are_counted_not_recorded() {
    let mut threads = Threads::default();
    threads.found(Pid(1), Tid(1), Time(0), None);
    let recorded = (0..STAYS_PER_SECOND + 10)
        .filter_map(|i| {
            threads.switched(Tid(1), CpuId(0), Time(i * 2), false);
            threads.switched(Tid(1), CpuId(0), Time(i * 2 + 1), true)
        })
        .count();
    assert_eq!(recorded as u64, STAYS_PER_SECOND);
    assert_eq!(threads.stays_thinned, 10);
    assert_eq!(threads.cpu_ns, STAYS_PER_SECOND + 10);
}

#[test]
fn a_thread_that_the_kernel_no_longer_knows_is_not_active_though_its_end_was_not_told() {
    let mut threads = Threads::default();
    threads.found(Pid(1), Tid(1), Time(0), None);
    threads.found(Pid(1), Tid(2), Time(0), None);
    threads.switched(Tid(2), CpuId(0), Time(1), false);
    threads.gone(Tid(2));
    assert_eq!(threads.active(Pid(1), Time(2)), [Tid(1)]);
    assert!(threads.ended(Tid(2), Time(5)).is_some());
}

#[test]
fn a_chain_gets_one_id() {
    let mut stacks = Stacks::default();
    stacks.keep_chains();
    let first = stacks.id(&[1, 2]);
    assert_ne!(first, stacks.id(&[1, 3]));
    assert_eq!(first, stacks.id(&[1, 2]));
    assert_eq!(stacks.fresh().len(), 2);
    assert!(stacks.fresh().is_empty());
    assert_eq!(stacks.frames(first), [1, 2]);
    assert!(stacks.frames(StackId(0)).is_empty() && stacks.frames(StackId(9)).is_empty());
}

#[test]
fn a_million_call_chains_take_no_more_than_a_few_words_each_of_the_first() {
    let mut stacks = Stacks::default();
    let mut rows = 0;
    for number in 0..1_000_000_u64 {
        let chain: Vec<u64> = (0..24).map(|frame| number * 31 + frame).collect();
        stacks.id(&chain);
        if number % 1000 == 0 {
            rows += stacks.fresh().len();
        }
    }
    rows += stacks.fresh().len();
    assert_eq!((rows, stacks.dropped), (STACKS, 900_000));
    assert!(stacks.held() <= 2 * STACKS, "{}", stacks.held());
}

#[test]
fn what_a_thread_did_before_it_executed_another_program_keeps_its_name() {
    let name = |sampled: bool, at: u64| {
        let mut threads = Threads::default();
        threads.found(Pid(1), Tid(1), Time(0), Some("sh".to_owned()));
        if sampled {
            threads.sampled(&Machine, (Pid(1), Tid(1)), Time(1), Address(0));
        }
        threads.executed(Pid(1), Tid(1), Time(at), "prog".to_owned());
        // Its threads are the new program's.
        threads.forked(Pid(1), Tid(2), Pid(1), Time(at + 1));
        let rows = threads.rows(Time(at + 2), 1.0);
        assert_eq!(rows[1].name, "prog");
        rows[0].name.clone()
    };
    let late = WORTH_A_NAME_NS + 1;
    assert_eq!(name(true, late), "sh, then prog");
    assert_eq!(name(false, late), "prog");
    assert_eq!(name(true, 2), "prog");
}

#[test]
fn of_a_storm_of_threads_those_without_a_sample_are_forgotten_and_counted() {
    let mut threads = Threads::default();
    for tid in 1..=100_000 {
        threads.found(Pid(1), Tid(tid), Time(0), None);
        if tid % 100 == 0 {
            threads.sampled(&Machine, (Pid(1), Tid(tid)), Time(1), Address(0));
        }
        threads.ended(Tid(tid), Time(2));
    }
    assert!(
        threads.known() <= MOST_THREADS + 1000,
        "{}",
        threads.known()
    );
    assert_eq!(threads.known() as u64 + threads.forgotten, 100_000);
    let sampled = threads.rows(Time(3), 1.0);
    let sampled = sampled.iter().filter(|row| row.tid.0 % 100 == 0);
    assert_eq!(sampled.count(), 1000);
}

#[test]
fn mappings_of_processes_that_are_gone_are_forgotten() {
    let mut maps = Maps::default();
    for pid in 1..=10_000 {
        let told = |maps: &mut Maps| {
            maps.told(&Machine, (Pid(pid), Time(1)), (0, 4096), 0, "/a (deleted)")
        };
        assert!(told(&mut maps).is_some());
        assert!(told(&mut maps).is_none());
        maps.keep(|it| it.0 + 10 > pid);
    }
    assert_eq!(maps.seen.len(), 10);
}

#[test]
fn what_the_kernel_calls_anon_is_no_file() {
    let mut maps = Maps::default();
    let mut told = |path| maps.told(&Machine, (Pid(1), Time(1)), (0, 4096), 0, path);
    assert_eq!(told("//anon"), None);
    assert!(told("/anon").is_some());
}

#[test]
fn mappings_of_a_file_with_code_have_the_build_id_that_it_had_when_it_was_mapped() {
    let own = Pid(std::process::id());
    let program = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("program");
    std::fs::copy(&program, &copy).unwrap();
    let (program, copy) = (program.to_str().unwrap(), copy.to_str().unwrap());
    let mut maps = Maps::default();
    let rows = maps.read(&Machine, own, Time(1));
    let of = |rows: &[Map], path: &str| -> HashSet<String> {
        let rows = rows.iter().filter(|row| row.path == path);
        rows.map(|row| row.build_id.clone()).collect()
    };
    let ids = of(&rows, program);
    assert_eq!(ids.len(), 1, "{ids:?}");
    let id = ids.into_iter().next().unwrap();
    assert_eq!(of(&rows, "[vdso]"), HashSet::from([String::new()]));
    let mut told = |pid: Pid, start: u64| {
        let row = maps.told(&Machine, (pid, Time(2)), (start, 4096), 0, copy);
        row.unwrap().build_id
    };
    assert_eq!(told(own, 1 << 20), id);
    std::fs::remove_file(copy).unwrap();
    assert_eq!(told(own, 2 << 20), "");
    std::fs::write(copy, "no program any more").unwrap();
    assert_eq!(told(own, 3 << 20), "");
}

#[test]
fn who_is_forked_has_the_build_ids_of_its_parent() {
    let mut maps = Maps::default();
    let own = Pid(std::process::id());
    maps.read(&Machine, own, Time(1));
    let ids = maps.build_ids[&own].clone();
    assert!(!ids.is_empty());
    maps.forked(own, Pid(1_000_001), Time(2));
    assert_eq!(maps.build_ids[&Pid(1_000_001)], ids);
    maps.forked(Pid(1_000_002), Pid(1_000_001), Time(3));
    assert!(!maps.build_ids.contains_key(&Pid(1_000_001)));
    maps.keep(|_| false);
    assert!(maps.build_ids.is_empty());
}

#[test]
fn what_is_counted_is_compared_with_what_is_told_while_all_of_it_is() {
    let used = |compares: bool, lost: bool| {
        let mut threads = Threads::new(compares);
        threads.forked(Pid(1), Tid(1), Pid(1), Time(0));
        // Half of what is counted is told, until switches are no longer told.
        let ms = 1_000_000;
        threads.switched(Tid(1), CpuId(0), Time(0), false);
        threads.switched(Tid(1), CpuId(0), Time(10 * ms), true);
        if lost {
            threads.lose_track();
        }
        let state = threads.threads.get_mut(&Tid(1)).unwrap();
        let in_sight = threads.compares && state.in_sight;
        let account = state.account.as_mut().unwrap();
        account.read(20 * ms, 10 * ms, Time(40 * ms), in_sight);
        threads.lose_sight(Time(40 * ms));
        let state = threads.threads.get_mut(&Tid(1)).unwrap();
        assert!(!state.in_sight);
        let account = state.account.as_mut().unwrap();
        account.read(60 * ms, 10 * ms, Time(90 * ms), false);
        threads.rows(Time(90 * ms), 0.5)[0].cpu_time_ns / ms
    };
    assert_eq!(used(true, false), 30);
    assert_eq!(used(false, false), 60);
    assert_eq!(used(true, true), 60);
}

#[test]
fn of_a_stay_under_way_and_after_a_delay_nothing_is_compared() {
    let mut threads = Threads::new(true);
    threads.forked(Pid(1), Tid(1), Pid(1), Time(0));
    let comparable = |threads: &Threads, delay_ns| threads.threads[&Tid(1)].is_comparable(delay_ns);
    assert!(comparable(&threads, 0));
    assert!(!comparable(&threads, 20_000_000));
    threads.switched(Tid(1), CpuId(0), Time(10), false);
    assert!(!comparable(&threads, 0));
    threads.switched(Tid(1), CpuId(0), Time(20), true);
    assert!(comparable(&threads, 0));
    threads.lose_track();
    assert!(!comparable(&threads, 0));
}

#[test]
fn what_a_thread_does_after_it_told_its_end_is_no_stay_without_end() {
    let mut threads = Threads::new(true);
    threads.forked(Pid(1), Tid(1), Pid(1), Time(0));
    threads.switched(Tid(1), CpuId(0), Time(10), false);
    assert!(threads.ended(Tid(1), Time(30)).is_some());
    // On its way out it is sampled, or waits for its CPU once more.
    threads.seen_on(Tid(1), CpuId(0), Time(31));
    assert!(
        threads
            .switched(Tid(1), CpuId(0), Time(35), false)
            .is_none()
    );
    assert!(threads.cut(Time(1000)).is_empty());
    assert_eq!(threads.rows(Time(1000), 1.0)[0].cpu_time_ns, 20);
    // Another thread with its number is another one.
    threads.forked(Pid(1), Tid(1), Pid(1), Time(2000));
    threads.seen_on(Tid(1), CpuId(0), Time(2010));
    assert_eq!(threads.cut(Time(2030)).len(), 1);
}
