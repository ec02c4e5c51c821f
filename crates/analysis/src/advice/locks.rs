//! Which code and which words are a lock's.

use crate::lock_names::names_a_lock;
use crate::model::AccessRow;

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
}
