//! Fibres that others may put in or take out: under a lock, with a count that is read without it.

use std::collections::VecDeque;

use crate::atomic::{AtomicUsize, Mutex, Ordering};

#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Queue<F> {
    fibres: Mutex<VecDeque<F>>,
    length: AtomicUsize,
}

impl<F> Queue<F> {
    pub(crate) fn new() -> Self {
        Self {
            fibres: Mutex::new(VecDeque::new()),
            length: AtomicUsize::new(0),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut VecDeque<F>) -> T) -> T {
        let mut fibres = self.fibres.lock().expect("nothing panics under it");
        let result = change(&mut fibres);
        self.length.store(fibres.len(), Ordering::Release);
        result
    }

    /// How many are in it, roughly.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    pub(crate) fn push(&self, fibre: F) {
        self.with(|fibres| fibres.push_back(fibre));
    }

    /// The one that is longest in it.
    pub(crate) fn pop(&self) -> Option<F> {
        if self.length() == 0 {
            return None;
        }
        self.with(VecDeque::pop_front)
    }

    /// All of them.
    pub(crate) fn take_all(&self) -> VecDeque<F> {
        if self.length() == 0 {
            return VecDeque::new();
        }
        self.with(std::mem::take)
    }

    /// The half that is longest in it, at least one.
    pub(crate) fn take_half(&self) -> VecDeque<F> {
        if self.length() == 0 {
            return VecDeque::new();
        }
        self.with(|fibres| {
            let half = fibres.len().div_ceil(2);
            fibres.drain(..half).collect()
        })
    }

    pub(crate) fn extend(&self, more: VecDeque<F>) {
        if !more.is_empty() {
            self.with(|fibres| fibres.extend(more));
        }
    }
}
