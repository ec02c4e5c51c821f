//! The ways by which a program forbids system calls or the time stamp counter, to itself or its threads. Each passes
//! by here, and from then on the recorder does without. What goes past the C library's functions is not seen.

use core::sync::atomic::{AtomicU32, Ordering};

use linewise_heap::Note;

use crate::real;
use crate::shared::{say, silence};
use crate::thread::{Thread, is_somebody_calling};

/// Not 0: no system call may be made any more.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Makes system calls while nobody forbids them; `None` if somebody did.
pub(crate) fn calling<T>(thread: &Thread, calls: impl FnOnce() -> T) -> Option<T> {
    if is_closed() {
        return None;
    }
    thread.calling.store(1, Ordering::SeqCst);
    // Whoever closes the gate afterwards waits for us.
    let made = (!is_closed()).then(calls);
    thread.calling.store(0, Ordering::SeqCst);
    made
}

/// Whether the recorder makes no more system calls.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::SeqCst) != 0
}

/// Has the recorder make no more system calls.
pub(crate) fn close() {
    CLOSED.store(1, Ordering::SeqCst);
}

/// Looks that long at most for others that are making a call, which a filter for all threads would meet.
const PATIENCE: u32 = 1 << 14;

/// A filter is about to be installed.
#[cold]
fn filter() {
    if !is_closed() {
        close();
        say(Note::Filtered);
    }
    let mut looks = 0;
    while is_somebody_calling() && looks < PATIENCE {
        core::hint::spin_loop();
        looks += 1;
    }
}

/// The time stamp counter is about to be forbidden.
#[cold]
fn forbid_clock() {
    filter();
    silence(Note::Clockless);
}

const STRICT: usize = 1;

/// `prctl(option, second, ..)` is about to be called. What it returns is the function to go on with.
unsafe extern "C" fn on_prctl(option: u32, second: usize) -> usize {
    const SECCOMP: u32 = libc::PR_SET_SECCOMP as u32;
    const CLOCK: u32 = libc::PR_SET_TSC as u32;
    const FORBIDDEN: usize = libc::PR_TSC_SIGSEGV as usize;
    match (option, second) {
        (SECCOMP, STRICT) | (CLOCK, FORBIDDEN) => forbid_clock(),
        (SECCOMP, _) => filter(),
        _ => {}
    }
    real::prctl().map_or(0, |real| real as usize)
}

/// `syscall(number, ..)` is about to be called.
unsafe extern "C" fn on_syscall(number: i64, first: usize, second: usize, third: usize) -> usize {
    const SECCOMP_STRICT: usize = 0;
    const SECCOMP_FILTER: usize = 1;
    match (number, first) {
        (libc::SYS_seccomp, SECCOMP_STRICT) => forbid_clock(),
        // Without a filter it is only asked what the kernel knows.
        (libc::SYS_seccomp, SECCOMP_FILTER) if third != 0 => filter(),
        (libc::SYS_prctl, _) => {
            // SAFETY: as that call.
            unsafe { on_prctl(first as u32, second) };
        }
        _ => {}
    }
    real::syscall().map_or(0, |real| real as usize)
}

/// Exports `name`, which calls `function` with its first arguments and goes on at the address that it returns, with all
/// arguments as they were.
macro_rules! gate {
    ($name:ident, $function:path) => {
        /// Stands in front of the function of the same name.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                ".cfi_def_cfa_offset 64",
                "call {function}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_def_cfa_offset 8",
                "jmp r11",
                ".cfi_endproc",
                function = sym $function,
            )
        }
    };
}
gate!(prctl, on_prctl);
gate!(syscall, on_syscall);
