//! What is shared with the collector, and what a process says in it as a whole.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use linewise_heap::{Note, Region, Told};

/// Which blocks were told of, so that frees of others cost nothing: null while nothing is told.
pub(crate) static TOLD: AtomicPtr<Told> = AtomicPtr::new(null_mut());

/// The shared memory, once [`TOLD`] is set.
pub(crate) struct Shared(pub(crate) UnsafeCell<MaybeUninit<Region>>);
// SAFETY: written once, before `TOLD` is, and only read after.
unsafe impl Sync for Shared {}
pub(crate) static SHARED: Shared = Shared(UnsafeCell::new(MaybeUninit::uninit()));

/// Whether it is there.
pub(crate) static ATTACHED: AtomicBool = AtomicBool::new(false);

/// The number of the process that recorded last: a forked child finds its maker's here.
pub(crate) static LAST_IMAGE: AtomicU32 = AtomicU32::new(0);

#[inline(always)]
pub(crate) fn told() -> Option<&'static Told> {
    // SAFETY: null, or a set that is never unmapped.
    unsafe { TOLD.load(Ordering::Acquire).as_ref() }
}

/// The shared memory. Call only where [`TOLD`] is set, or was.
pub(crate) fn region() -> &'static Region {
    // SAFETY: initialised before `TOLD` was set, which the caller saw.
    unsafe { (*SHARED.0.get()).assume_init_ref() }
}

/// The shared memory, if there is any.
pub(crate) fn shared() -> Option<&'static Region> {
    ATTACHED.load(Ordering::Acquire).then(region)
}

/// Says something of this process.
pub(crate) fn say(note: Note) {
    if let Some(region) = shared() {
        region.note(note);
    }
}

/// Ends all recording in this process, for this reason.
pub(crate) fn silence(why: Note) {
    if !TOLD.swap(null_mut(), Ordering::AcqRel).is_null() {
        say(why);
    }
}
