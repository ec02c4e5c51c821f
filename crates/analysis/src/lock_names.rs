//! Which functions, types and members are a lock's, by their names.

/// Whether a name says that it locks: `pthread_mutex_lock`, `RawMutex::lock_slow`, `spin_lock`; but
/// not `clock` or `next_block`.
pub(crate) fn names_a_lock(name: &str) -> bool {
    let name = without_parameters(name).to_ascii_lowercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| {
        matches!(word, "lock" | "unlock" | "trylock" | "spin")
            || ["mutex", "futex", "spinlock", "rwlock"]
                .iter()
                .any(|part| word.contains(part))
    })
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
    fn locks_are_known_by_name_and_clocks_are_none() {
        for lock in [
            "pthread_mutex_lock",
            "__lll_lock_wait",
            "parking_lot::raw_mutex::RawMutex::lock_slow",
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "pthread_spin_lock",
            "shard.lock",
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
