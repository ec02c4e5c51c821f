//! Which functions, types and members are a lock's, by their names.

/// Whether a name says that it locks: `pthread_mutex_lock`, `RawMutex::lock_slow`, `spin_lock`; but
/// not `clock` or `next_block`.
pub(crate) fn names_a_lock(name: &str) -> bool {
    let name = without_parameters(name).to_ascii_lowercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    name.contains("complete_monitor_")
        || words.any(|word| {
            matches!(word, "lock" | "unlock" | "trylock" | "spin")
                || [
                    "mutex",
                    "futex",
                    "spinlock",
                    "rwlock",
                    // The monitors of Java's virtual machine.
                    "objectmonitor",
                    "objectsynchronizer",
                    "monitorenter",
                    "monitorexit",
                ]
                .iter()
                .any(|part| word.contains(part))
        })
}

/// Whether a function only wraps a lock, by its name: `port::Mutex::Lock`, `MutexLock::~MutexLock`, `sqlite3_mutex_enter`; but not
/// `item_lock`, which says what is locked.
pub(crate) fn wraps_a_lock(function: &str) -> bool {
    const LOCKS: [&str; 12] = [
        "lock",
        "unlock",
        "trylock",
        "rwlock",
        "spinlock",
        "locker",
        "mutex",
        "mtx",
        "latch",
        "spin",
        "semaphore",
        "cond",
    ];
    const WORDS: [&str; 22] = [
        "try",
        "timed",
        "rw",
        "rd",
        "wr",
        "read",
        "write",
        "reader",
        "writer",
        "shared",
        "exclusive",
        "enter",
        "leave",
        "acquire",
        "release",
        "get",
        "guard",
        "scoped",
        "auto",
        "wait",
        "signal",
        "pthread",
    ];
    // Go's receivers: `main.(*Latch).acquire`.
    let function = without_parameters(function)
        .replace("(*", "")
        .replace(").", ".");
    let function = function.split('(').next().unwrap_or_default();
    let mut names = function.rsplit("::").flat_map(|it| it.rsplit('.'));
    let name = words(names.next().unwrap_or_default());
    let is_lock = |word: &String| LOCKS.contains(&word.as_str());
    let class = words(names.next().unwrap_or_default());
    let locks = name.iter().any(is_lock);
    let is_known = |word: &String| is_lock(word) || WORDS.contains(&word.as_str());
    // The first may be whose function it is, where they have a common beginning.
    let prefixed = name.len() >= 3 && locks && name[1..].iter().all(is_known);
    let plain = (locks || class.iter().any(is_lock)) && name.iter().all(is_known);
    !name.is_empty() && (plain || prefixed)
}

/// The words of a name, in small letters: `mutex`, `lock` of `MutexLock`, `sqlite3`, `mutex`, `enter` of `sqlite3_mutex_enter`.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() {
            was_small = false;
            words.push(String::new());
            continue;
        }
        if words.is_empty() || (c.is_uppercase() && was_small) {
            words.push(String::new());
        }
        was_small = !c.is_uppercase();
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|it| !it.is_empty());
    words
}

/// A name without what stands in angle brackets: a policy or an allocator among the parameters of a type does not lock.
fn without_parameters(name: &str) -> String {
    let mut depth = 0_u32;
    let mut outside = String::new();
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => outside.push(c),
            _ => {}
        }
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_wraps_a_lock_is_told_from_what_locks_something() {
        for wrapper in [
            "leveldb::port::Mutex::Lock",
            "leveldb::MutexLock::~MutexLock",
            "leveldb::MutexLock::MutexLock(leveldb::port::Mutex*)",
            "sqlite3_mutex_leave",
            "pthreadMutexEnter",
            "rocksdb::port::RWMutex::ReadLock",
            "util::Guard<Mutex>::lock",
            "main.(*Latch).acquire",
        ] {
            assert!(wraps_a_lock(wrapper), "{wrapper}");
        }
        for other in [
            "item_lock",
            "Lookup",
            "worker",
            "release",
            "Queue::push",
            "lock_and_count",
            "take_lock_of_queue",
            "Table::get",
            "",
            "unlock_item_table",
        ] {
            assert!(!wraps_a_lock(other), "{other}");
        }
    }

    #[test]
    fn locks_are_known_by_name_and_clocks_are_none() {
        for lock in [
            "pthread_mutex_lock",
            "__lll_lock_wait",
            "parking_lot::raw_mutex::RawMutex::lock_slow",
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "pthread_spin_lock",
            "shard.lock",
            "_complete_monitor_locking_Java",
            "ObjectSynchronizer::quick_enter",
        ] {
            assert!(names_a_lock(lock), "{lock}");
        }
        for other in [
            "std::_Sp_counted_base<(__gnu_cxx::_Lock_policy)2>::_M_release",
            "hash_map<int, spin_rw_mutex>::insert",
            "clock_gettime",
            "next_block",
            "unblock",
            "spindle",
            "add",
        ] {
            assert!(!names_a_lock(other), "{other}");
        }
    }
}
