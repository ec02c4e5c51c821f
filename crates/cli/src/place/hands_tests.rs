//! Against an invented kernel, which can also kill the placer at each step.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

use linewise_placer::TaskKey;
use linewise_topology::CpuSet;

use super::hands::{Done, Hands};
use super::journal::{Entry, Journal};
use super::kernel::Kernel;

#[derive(Clone, Debug)]
struct Thread {
    start: u64,
    process: u32,
    cpus: CpuSet,
}

#[derive(Default)]
struct Invented {
    threads: RefCell<BTreeMap<u32, Thread>>,
    group: RefCell<Option<CpuSet>>,
    /// CPUs that are offline.
    offline: RefCell<CpuSet>,
    /// Calls left before the placer is killed.
    life: Cell<Option<u32>>,
    refuses: Cell<bool>,
}

impl Invented {
    fn lives(&self) {
        if let Some(left) = self.life.get() {
            assert!(left > 0, "killed");
            self.life.set(Some(left - 1));
        }
    }

    fn cpus_of(&self, tid: u32) -> String {
        self.threads.borrow()[&tid].cpus.to_string()
    }

    fn all(&self) -> Vec<String> {
        let threads = self.threads.borrow();
        threads
            .values()
            .map(|thread| thread.cpus.to_string())
            .collect()
    }

    fn put(&self, tid: u32, cpus: &str) {
        let cpus = set(cpus);
        self.threads.borrow_mut().get_mut(&tid).unwrap().cpus = cpus;
    }
}

impl Kernel for Rc<Invented> {
    fn start(&self, tid: u32) -> Option<u64> {
        self.lives();
        self.threads.borrow().get(&tid).map(|thread| thread.start)
    }

    fn now(&self) -> u64 {
        20
    }

    fn cpus(&self, tid: u32) -> io::Result<CpuSet> {
        self.lives();
        let threads = self.threads.borrow();
        let thread = threads
            .get(&tid)
            .ok_or_else(|| io::Error::from_raw_os_error(3))?;
        if !self.offline.borrow().is_empty() {
            let left = thread.cpus.intersection(&self.online());
            return Ok(if left.is_empty() { self.online() } else { left });
        }
        Ok(match &*self.group.borrow() {
            Some(group) if thread.cpus.intersection(group).is_empty() => group.clone(),
            Some(group) => thread.cpus.intersection(group),
            None => thread.cpus.clone(),
        })
    }

    fn set_cpus(&mut self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        self.lives();
        if self.refuses.get() {
            return Err(io::Error::from_raw_os_error(1));
        }
        if cpus.intersection(&self.online()).is_empty() {
            return Err(io::Error::from_raw_os_error(22));
        }
        let mut threads = self.threads.borrow_mut();
        let thread = threads
            .get_mut(&tid)
            .ok_or_else(|| io::Error::from_raw_os_error(3))?;
        thread.cpus = if cpus.len() > 100 {
            set("0-7")
        } else {
            cpus.clone()
        };
        Ok(())
    }

    fn group_cpus(&self, _: u32) -> Option<CpuSet> {
        self.group.borrow().clone()
    }

    fn online(&self) -> CpuSet {
        let offline = self.offline.borrow();
        (0..8).filter(|&cpu| !offline.contains(cpu)).collect()
    }

    fn threads(&self, processes: &[u32]) -> Vec<u32> {
        let threads = self.threads.borrow();
        let of = threads
            .iter()
            .filter(|(_, thread)| processes.contains(&thread.process));
        of.map(|(&tid, _)| tid).collect()
    }
}

fn set(cpus: &str) -> CpuSet {
    cpus.parse().unwrap()
}

fn key(tid: u32) -> TaskKey {
    TaskKey {
        tid,
        start: u64::from(tid),
    }
}

/// Four threads of process 10 that may run on different CPUs.
fn kernel() -> Rc<Invented> {
    let kernel = Invented::default();
    for (tid, cpus) in [(10, "0-7"), (11, "0-7"), (12, "0-3"), (13, "4-7")] {
        let thread = Thread {
            start: u64::from(tid),
            process: 10,
            cpus: set(cpus),
        };
        kernel.threads.borrow_mut().insert(tid, thread);
    }
    Rc::new(kernel)
}

/// The journal. A program that another test is just starting holds its lock for a moment, between fork and exec.
fn opened(file: &Path) -> (Journal, Vec<Entry>) {
    let mut tries = 0;
    loop {
        match Journal::open(Some(file)) {
            Ok(opened) => return opened,
            Err(error) if tries == 200 => panic!("{error:#}"),
            Err(_) => tries += 1,
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn hands(kernel: &Rc<Invented>, file: &Path) -> Hands<Rc<Invented>> {
    let (journal, left) = opened(file);
    Hands::new(Rc::clone(kernel), journal, left)
}

fn moved(done: &Done) -> bool {
    matches!(done, Done::Moved)
}

#[test]
fn what_was_moved_is_as_before_afterwards_and_the_journal_empty() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal");
    let kernel = kernel();
    let before = kernel.all();
    let mut hands = hands(&kernel, &file);
    assert!(moved(&hands.give(key(10), 10, &set("0-3")).unwrap()));
    assert!(moved(&hands.give(key(13), 10, &set("5")).unwrap()));
    assert!(moved(&hands.give(key(13), 10, &set("6")).unwrap()));
    assert_eq!(kernel.all(), ["0-3", "0-7", "0-3", "6"]);
    let undone = hands.undo().unwrap();
    assert_eq!((undone.restored, undone.theirs, undone.refused), (2, 0, 0));
    assert_eq!(kernel.all(), before);
    assert_eq!(std::fs::read(&file).unwrap(), b"");
}

#[test]
fn killed_at_whatever_step_the_next_one_undoes_it() {
    let mut killed_in = Vec::new();
    for life in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let kernel = kernel();
        let before = kernel.all();
        let killed = {
            let mut hands = hands(&kernel, &file);
            kernel.life.set(Some(life));
            let work = std::panic::AssertUnwindSafe(|| {
                for (tid, cpus) in [(10, "0-3"), (11, "4-7"), (10, "4-7"), (12, "1"), (11, "0")] {
                    let _ = hands.give(key(tid), 10, &set(cpus)).unwrap();
                }
                hands.undo().unwrap();
            });
            std::panic::catch_unwind(work).is_err()
        };
        kernel.life.set(None);
        let undone = hands(&kernel, &file).undo().unwrap();
        assert_eq!(kernel.all(), before, "after {life} calls: {undone:?}");
        killed_in.push(killed);
    }
    // All the steps were tried: the last runs came to their end.
    assert_eq!(
        (killed_in[0], killed_in[25], killed_in[59]),
        (true, true, false)
    );
}

#[test]
fn a_thread_that_somebody_else_moved_is_left_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = kernel();
    let mut hands = hands(&kernel, &folder.path().join("journal"));
    assert!(moved(&hands.give(key(10), 10, &set("0-3")).unwrap()));
    kernel.put(10, "2,5");
    assert!(matches!(
        hands.give(key(10), 10, &set("4-7")).unwrap(),
        Done::Theirs
    ));
    assert!(hands.is_theirs(key(10)));
    hands.undo().unwrap();
    assert_eq!(kernel.cpus_of(10), "2,5");
}

#[test]
fn a_group_that_shrinks_is_nobody_else_s_change() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = kernel();
    *kernel.group.borrow_mut() = Some(set("0-7"));
    let mut hands = hands(&kernel, &folder.path().join("journal"));
    assert!(moved(&hands.give(key(10), 10, &set("0-3")).unwrap()));
    for group in ["2-7", "4-7"] {
        *kernel.group.borrow_mut() = Some(set(group));
        assert!(
            moved(&hands.give(key(10), 10, &set("4-7")).unwrap()),
            "{group}"
        );
    }
    hands.undo().unwrap();
    *kernel.group.borrow_mut() = None;
    assert_eq!(kernel.cpus_of(10), "0-7");
}

#[test]
fn cpus_that_went_offline_are_nobody_else_s_change_and_who_has_none_left_gets_all() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = kernel();
    let mut hands = hands(&kernel, &folder.path().join("journal"));
    assert!(moved(&hands.give(key(10), 10, &set("0-3")).unwrap()));
    assert!(moved(&hands.give(key(12), 10, &set("0")).unwrap()));
    assert!(moved(&hands.give(key(13), 10, &set("4")).unwrap()));
    *kernel.offline.borrow_mut() = set("0,4-7");
    let undone = hands.undo().unwrap();
    assert_eq!((undone.restored, undone.theirs, undone.refused), (3, 0, 0));
    assert_eq!(undone.displaced, 1);
    assert_eq!(kernel.all(), ["0-7", "0-7", "0-3", "0-7"]);
}

#[test]
fn a_process_number_that_is_another_s_now_has_no_heirs_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal");
    let kernel = kernel();
    let mut first = hands(&kernel, &file);
    assert!(moved(&first.give(key(11), 10, &set("4,5")).unwrap()));
    drop(first);
    // Process 10 is another one since, whose threads have by chance what was given then.
    let mut threads = kernel.threads.borrow_mut();
    threads.clear();
    for tid in [10, 50] {
        let (start, process, cpus) = (60, 10, set("4,5"));
        threads.insert(
            tid,
            Thread {
                start,
                process,
                cpus,
            },
        );
    }
    drop(threads);
    let mut second = hands(&kernel, &file);
    assert_eq!(second.free_heirs(), 0);
    let undone = second.undo().unwrap();
    assert_eq!((undone.restored, undone.ended), (0, 1));
    assert_eq!(kernel.all(), ["4-5", "4-5"]);
}

#[test]
fn a_number_that_is_another_thread_s_now_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = kernel();
    let mut hands = hands(&kernel, &folder.path().join("journal"));
    assert!(moved(&hands.give(key(10), 10, &set("0-3")).unwrap()));
    let mut another = kernel.threads.borrow()[&10].clone();
    another.start = 99;
    kernel.threads.borrow_mut().insert(10, another);
    assert!(matches!(
        hands.give(key(10), 10, &set("4-7")).unwrap(),
        Done::Ended
    ));
    assert!(matches!(
        hands.give(key(77), 10, &set("4-7")).unwrap(),
        Done::Ended
    ));
    assert_eq!(kernel.cpus_of(10), "0-3");
}

#[test]
fn threads_born_with_what_their_parent_was_given_get_what_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = kernel();
    let mut hands = hands(&kernel, &folder.path().join("journal"));
    assert!(moved(&hands.give(key(10), 10, &set("4,5")).unwrap()));
    let mut child = kernel.threads.borrow()[&10].clone();
    child.start = 50;
    kernel.threads.borrow_mut().insert(50, child.clone());
    assert_eq!(hands.free_heirs(), 1);
    assert_eq!(kernel.cpus_of(50), "0-7");
    kernel.threads.borrow_mut().insert(51, child);
    hands.undo().unwrap();
    assert_eq!(kernel.cpus_of(51), "0-7");
    assert_eq!(kernel.cpus_of(13), "4-7", "was born before");
}

#[test]
fn what_is_refused_changes_nothing_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = kernel();
    let before = kernel.all();
    let mut hands = hands(&kernel, &folder.path().join("journal"));
    kernel.refuses.set(true);
    assert!(matches!(
        hands.give(key(10), 10, &set("0")).unwrap(),
        Done::Refused(_)
    ));
    assert!(hands.is_empty());
    kernel.refuses.set(false);
    assert!(moved(&hands.give(key(10), 10, &set("0")).unwrap()));
    kernel.refuses.set(true);
    assert_eq!(hands.undo().unwrap().refused, 1);
    kernel.refuses.set(false);
    assert_eq!(hands.undo().unwrap().restored, 1);
    assert_eq!(kernel.all(), before);
}

#[test]
fn two_placers_do_not_share_a_journal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal");
    let first = Journal::open(Some(&file)).unwrap();
    let error = Journal::open(Some(&file)).err().unwrap().to_string();
    assert!(error.contains("another `linewise place`"), "{error}");
    drop(first);
    opened(&file);
}

#[test]
fn rubbish_and_half_a_line_in_a_journal_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal");
    let kernel = kernel();
    {
        let mut hands = hands(&kernel, &file);
        hands.give(key(10), 10, &set("0-3")).unwrap();
    }
    let mut text = std::fs::read(&file).unwrap();
    text.extend(b"\xff\x00 rubbish\n{\"boot\":\"x\",\"tid\":11}\n{\"boot\":\"");
    std::fs::write(&file, text).unwrap();
    let mut hands = hands(&kernel, &file);
    hands.give(key(11), 10, &set("1")).unwrap();
    drop(hands);
    self::hands(&kernel, &file).undo().unwrap();
    assert_eq!(kernel.all(), ["0-7", "0-7", "0-3", "4-7"]);
}

#[test]
fn a_link_or_a_folder_is_no_journal() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
    assert!(Journal::open(Some(&link)).is_err());
    assert!(Journal::open(Some(folder.path())).is_err());
}
