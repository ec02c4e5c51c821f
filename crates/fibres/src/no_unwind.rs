//! Where a panic may not pass.

/// Ends the process where it is dropped, that is, where a panic passes. All that users wrote is caught further
/// inside, so what passes is a defect of ours.
#[must_use]
pub(crate) struct NoUnwind;

impl NoUnwind {
    /// No panic passed.
    pub(crate) fn passed(self) {
        std::mem::forget(self);
    }
}

impl Drop for NoUnwind {
    #[cold]
    fn drop(&mut self) {
        std::process::abort();
    }
}
