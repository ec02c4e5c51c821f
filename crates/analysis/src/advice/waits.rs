//! What threads wait at, where that is more than bytes that all of them write: a barrier, the runtime of OpenMP, a lock
//! that counts its readers, an index of a ring.

use std::collections::{BTreeMap, BTreeSet};

use linewise_recording::Operation;

use super::locks::is_lock;
use crate::model::{AccessRow, ObjectRow};
use crate::users::User;

/// What is said of some accesses holds if those of so much of the time say it.
const MOST: f64 = 0.5;
/// Callers of a function that wrap it, at most.
const WRAPPERS: usize = 2;

/// The names of the code of an access: its function, what that was inlined into, and those wrappers that called it.
fn names(access: &AccessRow) -> impl Iterator<Item = &str> {
    let chain = access.called_from.iter().take(1);
    let callers = chain.flat_map(|chain| chain.callers.iter().take(WRAPPERS));
    std::iter::once(&access.function)
        .chain(&access.inlined_into)
        .chain(callers)
        .map(String::as_str)
}

/// Whether most of the time of `accesses` passes at such that are so; where nothing was sampled, whether most are.
fn mostly(accesses: &[AccessRow], is_so: impl Fn(&AccessRow) -> bool) -> bool {
    let all: f64 = accesses.iter().map(|it| it.share).sum();
    let weight = |it: &AccessRow| if all > 0.0 { it.share } else { 1.0 };
    let whole: f64 = accesses.iter().map(weight).sum();
    let so: f64 = (accesses.iter().filter(|it| is_so(it))).map(weight).sum();
    whole > 0.0 && so >= MOST * whole
}

/// Whether a name is that of a barrier for threads; one for memory makes nobody wait.
fn names_a_barrier(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace("thread", "");
    let of_memory = ["write", "read", "memory", "gc"];
    let before = name.split("barrier").next().unwrap_or_default();
    let kind = before.trim_end_matches('_');
    before.len() < name.len() && !of_memory.iter().any(|it| kind.ends_with(it))
}

/// Whether threads wait for each other at a barrier, by the names of code, field or type.
pub(super) fn is_barrier(object: &ObjectRow, accesses: &[AccessRow]) -> bool {
    let of_type = [&object.accessed_type, &object.type_name];
    of_type.iter().any(|it| names_a_barrier(it))
        || mostly(accesses, |it| {
            names_a_barrier(&it.field) || names(it).any(names_a_barrier)
        })
}

/// Whether it is the code of a runtime of OpenMP that touches it.
pub(super) fn is_openmp(accesses: &[AccessRow]) -> bool {
    let runtimes = [
        "libgomp.so",
        "libomp.so",
        "libiomp5.so",
        "GOMP_",
        "gomp_",
        "__kmp",
    ];
    mostly(accesses, |it| {
        runtimes
            .iter()
            .any(|runtime| it.function.starts_with(runtime))
    })
}

/// Whether the time passes where something is updated, and not where it is looked at.
pub(super) fn mostly_updates(accesses: &[AccessRow]) -> bool {
    mostly(accesses, |it| it.op == Operation::Update)
}

/// The word that threads look at until one of them writes it, as the field or an empty name: most of the time passes at
/// loads of it, several threads load it, and several update another word, by which they come and go.
pub(super) fn awaited(accesses: &[AccessRow]) -> Option<&str> {
    let mut words: BTreeMap<(u64, u32), Vec<&AccessRow>> = BTreeMap::new();
    for access in accesses {
        let word = (access.line_address, access.offset);
        words.entry(word).or_default().push(access);
    }
    let threads = |rows: &[&AccessRow], op: Operation| -> usize {
        let users: BTreeSet<User> = (rows.iter().filter(|it| it.op == op))
            .map(|it| it.user())
            .collect();
        users.len()
    };
    let several_update = |(word, rows): (&(u64, u32), &Vec<&AccessRow>)| {
        (threads(rows, Operation::Update) > 1).then_some(*word)
    };
    let updated: BTreeSet<(u64, u32)> = words.iter().filter_map(several_update).collect();
    let all: f64 = accesses.iter().map(|it| it.share).sum();
    let is_awaited = |(word, rows): &(&(u64, u32), &Vec<&AccessRow>)| {
        let loads: f64 = (rows.iter().filter(|it| it.op == Operation::Load))
            .map(|it| it.share)
            .sum();
        // Which element an index picks is not what all wait for.
        loads > 0.0
            && loads >= MOST * all
            && threads(rows, Operation::Load) > 1
            && rows.iter().any(|it| it.op != Operation::Load)
            && !rows[0].field.contains('[')
            && updated.iter().any(|it| it != *word)
    };
    let (_, rows) = words.iter().find(is_awaited)?;
    Some(&rows[0].field)
}

/// A thread with a smaller share of the time takes no part: it sets up what others use.
const PART: f64 = 0.01;

/// The threads that take part in what `accesses` are of.
pub(super) fn taking_part(accesses: &[AccessRow]) -> BTreeSet<User> {
    let mut shares: BTreeMap<User, f64> = BTreeMap::new();
    for access in accesses {
        *shares.entry(access.user()).or_default() += access.share;
    }
    let all: f64 = shares.values().sum();
    let part = shares.into_iter().filter(|(_, share)| *share >= PART * all);
    part.map(|(user, _)| user).collect()
}

/// The accesses of these threads by word.
fn words<'a>(
    accesses: &'a [AccessRow],
    users: &BTreeSet<User>,
) -> BTreeMap<(u64, u32), Vec<&'a AccessRow>> {
    let mut words: BTreeMap<(u64, u32), Vec<&AccessRow>> = BTreeMap::new();
    for access in accesses.iter().filter(|it| users.contains(&it.user())) {
        let word = (access.line_address, access.offset);
        words.entry(word).or_default().push(access);
    }
    words
}

fn users<'a>(rows: impl IntoIterator<Item = &'a &'a AccessRow>) -> BTreeSet<User> {
    rows.into_iter().map(|it| it.user()).collect()
}

/// Whether pairs of threads hand something over: one fills slots and the other takes what is in them, so that the two write in
/// different code. What both add to, and a word of three, is something else.
pub(super) fn is_handover(accesses: &[AccessRow]) -> bool {
    let mut words = words(accesses, &taking_part(accesses));
    words.retain(|_, rows| users(rows.iter()).len() > 1);
    // Each does its own part: what both do alike, as neighbours in a grid do, hands nothing over.
    let mut parts: BTreeMap<User, BTreeSet<(&str, &str, u32)>> = BTreeMap::new();
    for row in words.values().flatten().filter(|it| writes(it)) {
        let code = (row.function.as_str(), row.file.as_str(), row.line);
        parts.entry(row.user()).or_default().insert(code);
    }
    let hands_over = |rows: &Vec<&AccessRow>| {
        let users: Vec<User> = users(rows.iter()).into_iter().collect();
        let writers: Vec<_> = users.iter().filter_map(|it| parts.get(it)).collect();
        let apart = match writers.as_slice() {
            [one, other] => one.is_disjoint(other),
            _ => true,
        };
        let of_several = self::users(rows.iter().filter(|it| writes(it))).len() > 1;
        let is_added_to = of_several && rows.iter().any(|it| it.op == Operation::Update);
        users.len() == 2 && apart && !is_added_to
    };
    !words.is_empty() && words.values().all(hands_over) && !accesses.iter().any(is_lock)
}

/// The bit fields of one word, if several threads write that and most of the time passes there.
pub(super) fn bit_fields(accesses: &[AccessRow]) -> Option<&str> {
    let mut fields = accesses.iter().map(|it| it.field.as_str());
    let field = fields.find(|it| it.ends_with('}'))?;
    let written: Vec<&AccessRow> = (accesses.iter())
        .filter(|it| it.field == field && writes(it))
        .collect();
    let writers = users(written.iter());
    (writers.len() > 1 && mostly(accesses, |it| it.field == field)).then_some(field)
}

/// Whether most of the time passes where owners of an object are counted, by the names of the code: of `std::shared_ptr`, `Arc`.
pub(super) fn is_counted_pointer(accesses: &[AccessRow]) -> bool {
    let counts = |name: &str| {
        [
            "shared_ptr",
            "_Sp_counted",
            "__shared_count",
            "__shared_weak_count",
            "intrusive_ptr",
            "sync::Arc<",
        ]
        .iter()
        .any(|it| name.contains(it))
    };
    let inlined = |it: &AccessRow| {
        let within = std::iter::once(&it.function).chain(&it.inlined_into);
        // Beyond the first function of the program's own a name may have such a pointer as a parameter only.
        let own = it.own.as_ref().map(|own| own.function.as_str());
        within
            .take_while(|name| Some(name.as_str()) != own)
            .any(|it| counts(it))
    };
    mostly(accesses, |it| it.op == Operation::Update && inlined(it))
}

/// Whether it is a lock that counts its readers, and these are who wait.
pub(super) fn is_readers_lock(accesses: &[AccessRow]) -> bool {
    let locks: Vec<AccessRow> = (accesses.iter().filter(|it| is_lock(it)))
        .cloned()
        .collect();
    let side = |access: &AccessRow| names(access).find_map(reads);
    let told: Vec<AccessRow> = locks.into_iter().filter(|it| side(it).is_some()).collect();
    mostly(&told, |it| side(it) == Some(true))
}

/// Whether code takes or leaves a lock to read (`true`) or to write, if its name says so.
fn reads(name: &str) -> Option<bool> {
    let reading = [
        "rdlock",
        "rdunlock",
        "lock_shared",
        "shared_lock",
        "unlock_shared",
        "read_lock",
        "read_unlock",
        "ReadGuard",
        "RwLock<T>::read",
        "RWMutex).RLock",
        "RWMutex).RUnlock",
    ];
    let writing = [
        "wrlock",
        "wrunlock",
        "lock_exclusive",
        "write_lock",
        "write_unlock",
        "WriteGuard",
        "RwLock<T>::write",
        "RWMutex).Lock",
        "RWMutex).Unlock",
    ];
    let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let generic = name.to_ascii_lowercase().contains("rwlock");
    match (says(&reading), says(&writing)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ if generic && ends_with_word(name, "read") => Some(true),
        _ if generic && ends_with_word(name, "write") => Some(false),
        _ => None,
    }
}

fn ends_with_word(name: &str, word: &str) -> bool {
    let rest = name.strip_suffix(word);
    rest.is_some_and(|rest| rest.ends_with(['_', ':', '.']))
}

/// The words that several threads touch, each with one that writes.
type SingleWriter<'a> = BTreeMap<(u64, u32), Vec<&'a AccessRow>>;

/// The words that several threads touch, if of each only one thread writes; `None` if another does, or if one of them is
/// a lock's.
pub(super) fn written_by_one(accesses: &[AccessRow]) -> Option<SingleWriter<'_>> {
    let mut words: SingleWriter<'_> = BTreeMap::new();
    for access in accesses {
        let word = (access.line_address, access.offset);
        words.entry(word).or_default().push(access);
    }
    words.retain(|_, rows| rows.iter().any(|row| row.user() != rows[0].user()));
    let part = taking_part(accesses);
    let has_one_writer = |rows: &Vec<&AccessRow>| {
        let writers = rows.iter().filter(|it| writes(it)).map(|row| row.user());
        let mut writers = writers.filter(|user| part.contains(user));
        let first = writers.next();
        first.is_some() && writers.all(|user| Some(user) == first)
    };
    // Of an array that is named as a whole the elements have one writer, too.
    let mut writers: BTreeMap<&str, BTreeSet<User>> = BTreeMap::new();
    let written = accesses.iter().filter(|row| writes(row));
    for row in written.filter(|row| part.contains(&row.user())) {
        let name = row.field.split('[').next().unwrap_or_default();
        writers.entry(name).or_default().insert(row.user());
    }
    let has_one_writer_each = words.values().flatten().all(|row| {
        let array = row.field.split_once('[').map(|(array, _)| array);
        array
            .and_then(|array| writers.get(array))
            .is_none_or(|it| it.len() < 2)
    });
    let is_so =
        words.values().all(has_one_writer) && has_one_writer_each && !accesses.iter().any(is_lock);
    (is_so && !words.is_empty()).then_some(words)
}

fn writes(access: &AccessRow) -> bool {
    access.op != Operation::Load
}

/// Whether two threads read each other's word, as the two sides of a ring do; slots that an index picks say nothing of it.
pub(super) fn read_each_other(words: &SingleWriter<'_>) -> bool {
    let indices = words.values().filter(|rows| !rows[0].field.contains('['));
    let ways: BTreeSet<(User, User)> = indices
        .flat_map(|rows| {
            let writer = rows.iter().find(|it| writes(it)).map(|it| it.user());
            let readers = rows.iter().filter(move |it| Some(it.user()) != writer);
            readers.filter_map(move |it| Some((writer?, it.user())))
        })
        .collect();
    ways.iter().any(|(a, b)| ways.contains(&(*b, *a)))
}

/// The fields in which threads keep what they read of another's word: words of one thread alone that it writes where it
/// reads the other's, or that are named so. `beside` are accesses to the same object on lines that nobody waits for.
pub(super) fn copies<'a>(accesses: &'a [AccessRow], beside: &'a [AccessRow]) -> Vec<&'a str> {
    let mut words: BTreeMap<(u64, u32), Vec<&AccessRow>> = BTreeMap::new();
    for access in accesses.iter().chain(beside) {
        let word = (access.line_address, access.offset);
        words.entry(word).or_default().push(access);
    }
    let code = |it: &AccessRow| (it.user(), it.file.clone(), it.line);
    let foreign = |rows: &&Vec<&AccessRow>| rows.iter().any(|it| it.user() != rows[0].user());
    let looks: BTreeSet<_> = (words.values().filter(foreign).flatten())
        .filter(|it| !writes(it) && it.line > 0)
        .map(|it| code(it))
        .collect();
    let mut found: Vec<&str> = Vec::new();
    for rows in words.values().filter(|rows| !foreign(rows)) {
        let field = rows[0].field.as_str();
        // What is read where it is written is a count, and no copy.
        let counts = |at: &AccessRow| {
            (rows.iter()).any(|it| it.op != Operation::Store && code(it) == code(at))
        };
        let is_kept =
            |it: &AccessRow| it.op == Operation::Store && looks.contains(&code(it)) && !counts(it);
        let is_copy = rows.iter().any(|it| is_kept(it)) || names_a_copy(field);
        if is_copy && !field.is_empty() && !field.contains('[') && !found.contains(&field) {
            found.push(field);
        }
    }
    found
}

fn names_a_copy(field: &str) -> bool {
    let name = field
        .rsplit('.')
        .next()
        .unwrap_or(field)
        .to_ascii_lowercase();
    ["cache", "copy", "shadow"]
        .iter()
        .any(|it| name.contains(it))
}

#[cfg(test)]
mod tests {
    use super::super::parts::tests::at;
    use super::*;
    use crate::model::CallChain;

    fn by(function: &str) -> AccessRow {
        AccessRow {
            function: function.to_owned(),
            ..at(1, 0, "", 1)
        }
    }

    #[test]
    fn barriers_are_those_for_threads() {
        for it in [
            "barrier_wait",
            "std::barrier<F>::wait",
            "gomp_team_barrier_wait_end",
            "pthread_barrier_t",
        ] {
            assert!(names_a_barrier(it), "{it}");
        }
        for it in [
            "runtime.gcWriteBarrier1",
            "rcu_read_barrier",
            "memory_barrier",
            "wait",
        ] {
            assert!(!names_a_barrier(it), "{it}");
        }
        // What wraps a lock.
        let chain = CallChain {
            share: 1.0,
            callers: vec!["std::sync::barrier::Barrier::wait (barrier.rs:120)".to_owned()],
        };
        let wrapped = AccessRow {
            called_from: vec![chain],
            ..by("futex::Mutex::lock")
        };
        assert!(names(&wrapped).any(names_a_barrier));
    }

    #[test]
    fn readers_of_a_lock_are_told_from_its_writers() {
        let reading = [
            "__pthread_rwlock_rdunlock",
            "std::sync::poison::rwlock::RwLock<T>::read",
            "parking_lot::raw_rwlock::RawRwLock::try_lock_shared_fast",
            "sync.(*RWMutex).RLock",
            "my_rwlock_read",
        ];
        for name in reading {
            assert_eq!(reads(name), Some(true), "{name}");
        }
        for name in [
            "pthread_rwlock_wrlock",
            "sync.(*RWMutex).Lock",
            "RwLock<T>::write",
        ] {
            assert_eq!(reads(name), Some(false), "{name}");
        }
        for name in ["pthread_rwlock_unlock", "pthread_mutex_lock", "read"] {
            assert_eq!(reads(name), None, "{name}");
        }
        let rows = |names: [&str; 3]| names.map(by);
        let unlock = "pthread_rwlock_unlock";
        assert!(is_readers_lock(&rows([
            unlock,
            unlock,
            "pthread_rwlock_rdlock"
        ])));
        let write = "pthread_rwlock_wrlock";
        assert!(!is_readers_lock(&rows([
            write,
            write,
            "pthread_rwlock_rdlock"
        ])));
        assert!(!is_readers_lock(&rows([unlock, unlock, unlock])));
    }

    #[test]
    fn bit_fields_of_one_word_are_known_where_several_threads_write_it() {
        let row = |tid, field: &str, op| AccessRow {
            op,
            share: 0.2,
            ..at(tid, 0, field, 1)
        };
        let both = [
            row(1, "f.{rx,tx}", Operation::Load),
            row(1, "f.{rx,tx}", Operation::Store),
            row(2, "f.{rx,tx}", Operation::Store),
            row(2, "f.lock", Operation::Update),
        ];
        assert_eq!(bit_fields(&both), Some("f.{rx,tx}"));
        assert_eq!(bit_fields(&both[..2]), None);
    }

    #[test]
    fn what_threads_look_at_until_one_writes_it_is_awaited() {
        let row = |tid, offset, field: &str, op, share| AccessRow {
            op,
            share,
            ..at(tid, offset, field, 1)
        };
        let both = |tid| {
            [
                row(tid, 0, "count", Operation::Update, 0.1),
                row(tid, 4, "turn", Operation::Load, 0.39),
                row(tid, 4, "turn", Operation::Store, 0.01),
            ]
        };
        let mut rows = [both(1), both(2)].concat();
        rows.iter_mut().for_each(|it| it.size = 4);
        assert_eq!(awaited(&rows), Some("turn"));
        assert!(!mostly_updates(&rows));
        // One thread waits.
        let one: Vec<AccessRow> = (rows.iter())
            .filter(|it| it.tid == 1 || it.op != Operation::Load)
            .cloned()
            .collect();
        assert_eq!(awaited(&one), None);
        // A word that is read and exchanged, as the head of a stack.
        rows.iter_mut().for_each(|it| it.offset = 0);
        assert_eq!(awaited(&rows), None);
    }

    #[test]
    fn copies_of_the_others_index_are_known_by_where_they_are_written() {
        let row = |tid, line_address, field: &str, line, op| AccessRow {
            op,
            line_address,
            ..at(tid, 0, field, line)
        };
        let head = [
            row(1, 0, "head", 1, Operation::Store),
            row(2, 0, "head", 2, Operation::Load),
        ];
        assert!(!read_each_other(&written_by_one(&head).unwrap()));
        let own = |line| [row(2, 64, "seen", line, Operation::Store)];
        assert_eq!(copies(&head, &own(2)), ["seen"]);
        assert_eq!(copies(&head, &own(3)), [""; 0]);
        // A count of how often it was looked at.
        let counted = [row(2, 64, "looks", 2, Operation::Update)];
        assert_eq!(copies(&head, &counted), [""; 0]);
        let in_two = [own(2), [row(2, 64, "looks", 2, Operation::Load)]].concat();
        assert_eq!(copies(&head, &in_two), [""; 0]);
        let named = [row(2, 64, "head_cached", 9, Operation::Load)];
        assert_eq!(copies(&head, &named), ["head_cached"]);
        let tail = [
            row(2, 128, "tail", 5, Operation::Store),
            row(1, 128, "tail", 4, Operation::Load),
        ];
        let both = [head, tail].concat();
        assert!(read_each_other(&written_by_one(&both).unwrap()));
    }
}
