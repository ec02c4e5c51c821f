//! Which code and which words are a lock's.

use crate::model::AccessRow;

/// Whether a name says that it locks: `pthread_mutex_lock`, `RawMutex::lock_slow`, `spin_lock`; but
/// not `clock` or `next_block`.
fn names_a_lock(name: &str) -> bool {
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

/// A path as far as the program names it, without members whose names C and C++ keep for their libraries: `m` of
/// `m.__data.__lock`, `hits` of `hits._M_i`, nothing of `__align`. The fields of Rust's tuples are called `__0`.
pub(super) fn without_libc(path: &str) -> &str {
    let is_reserved = |part: &&str| {
        let mut rest = part.trim_start_matches('_').chars();
        let first = rest.next();
        match part.len() - part.trim_start_matches('_').len() {
            0 => false,
            1 => first.is_some_and(|c| c.is_ascii_uppercase()),
            _ => !first.is_some_and(|c| c.is_ascii_digit()),
        }
    };
    let own: usize = (path.split('.'))
        .take_while(|part| !is_reserved(part))
        .map(|part| part.len() + 1)
        .sum();
    &path[..own.saturating_sub(1).min(path.len())]
}

/// Whether it is a lock that is touched, by the names of where and what.
pub(super) fn is_lock(access: &AccessRow) -> bool {
    let places = std::iter::once(&access.function).chain(&access.inlined_into);
    places.chain([&access.field]).any(|name| names_a_lock(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_the_librarys_lock_are_no_names() {
        let of = ["m.__data.__lock", "[5].m", "__align", "m", "", "it.__0.at"].map(without_libc);
        assert_eq!(of, ["m", "[5].m", "", "m", "", "it.__0.at"]);
        let of = ["hits._M_i", "_head.next", "_M_left", "a._b.__c"].map(without_libc);
        assert_eq!(of, ["hits", "_head.next", "", "a._b"]);
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
