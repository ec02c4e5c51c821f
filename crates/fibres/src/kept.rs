//! Finds addresses of a thread's variables that a fibre takes along to another thread: the mistake that
//! the compiler makes where a fibre's code is inlined around a move (llvm/llvm-project 98479), and that
//! people make with references to thread-local variables.
//!
//! When a fibre has left its stack, all that it keeps is there, registers too. Each word of it that lies
//! in one of the thread's blocks of variables is reported. It may be a leftover that nobody reads again:
//! so it is told, not punished.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::stack::holding;
use crate::task::Task;

thread_local! {
    static OWN: OnceCell<Vec<Range<usize>>> = const { OnceCell::new() };
}

static FOUND: AtomicUsize = AtomicUsize::new(0);
/// More are counted and not told.
const TOLD: usize = 16;

/// How many were found in this process.
pub(crate) fn found() -> usize {
    FOUND.load(Ordering::Relaxed)
}

unsafe extern "C" fn block(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    into: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the linker calls it with a valid entry, and with what `own_blocks` gave it.
    unsafe {
        let blocks = &mut *into.cast::<Vec<Range<usize>>>();
        let begin = (*info).dlpi_tls_data.addr();
        let headers = (*info).dlpi_phdr;
        for index in 0..usize::from((*info).dlpi_phnum) {
            let header = &*headers.add(index);
            if header.p_type == libc::PT_TLS && begin != 0 {
                blocks.push(begin..begin + header.p_memsz as usize);
            }
        }
    }
    0
}

/// Where the calling thread's variables are, module by module.
fn own_blocks() -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    // SAFETY: `block` is called within, with this vector.
    unsafe { libc::dl_iterate_phdr(Some(block), (&raw mut blocks).cast()) };
    blocks
}

/// Looks through what `task` left on its stack. By the worker that it leaves.
pub(crate) fn report(task: &Task, from: usize, to: usize) {
    let depth = task.depth.get();
    let Some(stack) = holding(depth) else {
        return;
    };
    // Registers were saved a little below.
    let begin = depth
        .saturating_sub(256)
        .max(stack.start)
        .next_multiple_of(8);
    OWN.with(|own| {
        let own = own.get_or_init(own_blocks);
        for at in (begin..stack.end).step_by(8) {
            // SAFETY: the used part of a stack that nobody runs on.
            let word = unsafe { std::ptr::with_exposed_provenance::<usize>(at).read_volatile() };
            if own.iter().any(|block| block.contains(&word)) {
                tell(task, word, stack.end - at, from, to);
            }
        }
    });
}

#[cold]
fn tell(task: &Task, word: usize, below: usize, from: usize, to: usize) {
    let before = FOUND.fetch_add(1, Ordering::Relaxed);
    if before < TOLD {
        let name = task.name.as_deref().unwrap_or("no name");
        let name = name.escape_debug();
        eprintln!(
            "fibres: fibre {} ({name}) moves from worker {from} to worker {to} and keeps {word:#x}, an \
             address of the variables of its old thread, {below} bytes below its stack's base",
            task.id
        );
    }
}
