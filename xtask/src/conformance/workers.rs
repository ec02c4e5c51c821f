//! Work that several threads share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic of another worker leaves a list that can be used.
pub(super) fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something for each of a list, so many at a time.
pub(super) fn each<T: Sync>(list: &[T], jobs: usize, work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(item) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_once_for_each() {
        let list: Vec<usize> = (0..10).collect();
        let seen = Mutex::new(Vec::new());
        each(&list, 3, |&item| lock(&seen).push(item));
        let mut seen = seen.into_inner().unwrap_or_default();
        seen.sort_unstable();
        assert_eq!(seen, list);
    }
}
