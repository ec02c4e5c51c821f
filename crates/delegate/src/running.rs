//! The fibre that runs on this thread: how it gives way, and how others use its thread's stack.

use std::cell::Cell;

use corosensei::Yielder;

use crate::inside::is_nested;

/// The fibre that runs.
#[derive(Clone, Copy)]
struct Running {
    /// How it gives way.
    yielder: *const Yielder<(), ()>,
    /// The client whose fibres these are: its core.
    owner: *const (),
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
}

/// The fibre that gives way where this client waits. Who waits with another client holds all fibres up,
/// as nobody would look for its answer meanwhile; and so does a destructor that waits while its
/// thread panics, since panics are counted by threads.
#[inline(always)]
fn running(owner: *const ()) -> Option<Running> {
    let of_owner = |running: &Running| running.owner == owner && !std::thread::panicking();
    RUNNING.get().filter(of_owner)
}

/// Whether other fibres of this client run while the caller waits.
#[inline(always)]
pub(crate) fn gives_way(owner: *const ()) -> bool {
    running(owner).is_some()
}

/// Lets other fibres of this client run. False if the caller is not one that gives way. It is inside no
/// callback, of which another fibre could not know.
#[inline(always)]
pub(crate) fn give_way(owner: *const ()) -> bool {
    let Some(running) = running(owner) else {
        return false;
    };
    debug_assert!(!is_nested());
    // SAFETY: set by the fibre that runs now, whose yielder lives as long as it runs; a fibre stays
    // on its thread.
    unsafe { (*running.yielder).suspend(()) };
    // Other fibres ran since and left their own mark.
    RUNNING.set(Some(running));
    true
}

/// Runs `pass` on the thread's own stack: what others ask knows nothing of the small ones of fibres.
#[inline(always)]
pub(crate) fn on_thread_stack(pass: impl FnOnce() -> bool + Send) -> bool {
    let Some(running) = RUNNING.take() else {
        return pass();
    };
    // SAFETY: the mark was set by the fibre that runs now, whose yielder lives as long as it runs. While
    // the mark is taken nobody reaches the yielder, which is not the thread's while it runs there.
    let worked = unsafe { (*running.yielder).on_parent_stack(pass) };
    RUNNING.set(Some(running));
    worked
}

/// Says how the fibre of `owner` that runs now gives way, until it does or ends.
pub(crate) fn enter(owner: *const (), yielder: &Yielder<(), ()>) {
    RUNNING.set(Some(Running { yielder, owner }));
}

/// The fibre that ran gave way or ended.
pub(crate) fn exit() {
    RUNNING.set(None);
}

/// Whether a fibre runs, of whichever client.
pub(crate) fn is_inside() -> bool {
    RUNNING.get().is_some()
}
