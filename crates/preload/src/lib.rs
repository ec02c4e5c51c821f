//! The heap recorder: loaded into the target with LD_PRELOAD, it stands in front of the allocator and
//! tells the collector of blocks.
//!
//! ```text
//! program ─ malloc ─► hooks ─ the real malloc ─► block
//!                       │ one block in so many bytes, or all
//!                       ▼
//!                    recorder: walk the stack, write a record into this thread's ring
//! ```
//!
//! This runs in a stranger's process, wherever that allocates: in signal handlers, on any stack, after fork, before
//! main, while it ends, behind filters of system calls. So nothing in here allocates, has nothing allocated for it, takes a
//! lock, or reads memory that may not be there. What cannot be told is counted.
//!
//! - *The program's memory* stays as it would be without us: no thread-local storage, keys of threads, handlers at
//!   exit; no library beside this one; the real functions are found in the loader's tables ([`lookup`]), and the
//!   variables that brought us here are taken out of the environment ([`linewise_heap::hide`]) and given to what the
//!   program executes ([`executing`]). What each thread keeps lies in a table of our own ([`thread`]).
//! - *System calls* are made when it is loaded and when the program executes another. Inside an allocator's call there
//!   are those that read a stack beyond its page and map more rings, and they end for good when somebody is about to
//!   install a filter; so does all recording when the time stamp counter is forbidden ([`gates`]).
//! - A signal handler that allocates while its thread is in the recorder is served and counted as lost.
//! - A fork is noticed by a page that the kernel wipes in the child: no handler runs at fork.
//! - Freed blocks are told only if they were told when allocated, as a small table of counters knows.

#![cfg_attr(feature = "bare", no_std)]
#![expect(unsafe_code, reason = "stands in for C functions")]
#![expect(unreachable_pub, reason = "what is exported is found by its name")]
#![deny(unsafe_op_in_unsafe_fn)]

mod executing;
mod gates;
mod hooks;
mod lookup;
mod mappings;
mod marks;
mod naming;
mod operators;
mod readable;
mod real;
mod recorder;
mod shared;
mod stack;
mod thread;

/// Nothing in here panics: where the compiler cannot tell, the function that this calls is missing when it is linked.
#[cfg(feature = "bare")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn linewise_recorder_does_not_panic() -> !;
    }
    // SAFETY: there is no such function.
    unsafe { linewise_recorder_does_not_panic() }
}
