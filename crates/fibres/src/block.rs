//! Memory of fibres, kept by the worker that let go of it: the next fibre takes it without a call.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// What fits into a block: a fibre with a value of a line or two.
const BLOCK: Layout = match Layout::from_size_align(384, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("it is one"),
};
/// Blocks that a worker keeps.
const KEPT: usize = 256;

/// Blocks of a worker.
#[derive(Debug, Default)]
pub(crate) struct Blocks(Vec<NonNull<u8>>);

impl Drop for Blocks {
    fn drop(&mut self) {
        for block in self.0.drain(..) {
            // SAFETY: kept by `give_back`, so made with this layout.
            unsafe { dealloc(block.as_ptr(), BLOCK) };
        }
    }
}

/// The layout that memory for `wanted` is asked for with.
fn layout(wanted: Layout) -> Layout {
    if fits(wanted) { BLOCK } else { wanted }
}

/// Whether memory of this layout is kept.
pub(crate) const fn fits(wanted: Layout) -> bool {
    wanted.size() <= BLOCK.size() && wanted.align() <= BLOCK.align()
}

/// Memory for a value of this layout, which is not of size 0; of `kept` if there is some.
pub(crate) fn take(wanted: Layout, kept: Option<&mut Blocks>) -> NonNull<u8> {
    if fits(wanted)
        && let Some(block) = kept.and_then(|blocks| blocks.0.pop())
    {
        return block;
    }
    let layout = layout(wanted);
    // SAFETY: not of size 0.
    let memory = unsafe { alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Gives memory to `kept`, if there is room.
///
/// # Safety
/// `memory` came from [`take`] with this layout, and nobody uses it.
pub(crate) unsafe fn give_back(memory: NonNull<u8>, wanted: Layout, kept: Option<&mut Blocks>) {
    if fits(wanted)
        && let Some(blocks) = kept.filter(|blocks| blocks.0.len() < KEPT)
    {
        blocks.0.push(memory);
        return;
    }
    // SAFETY: the contract; `take` asked for this layout.
    unsafe { dealloc(memory.as_ptr(), layout(wanted)) };
}
