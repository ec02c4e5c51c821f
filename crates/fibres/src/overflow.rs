//! A fibre that uses more stack than it has is told so, instead of a fault that nobody understands.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Once;

use crate::stack::{GUARD, slabs};
use crate::task::Task;

/// What handled faults before.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before the handler that reads it is in place.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));
static INSTALLED: Once = Once::new();

/// Bytes of a name that are told.
const NAME: usize = 120;

/// Bytes of the stack on which faults are handled.
const HANDLER_STACK: usize = 64 * 1024;

/// Puts the handler in front of the one that the process has.
pub(crate) fn install() {
    INSTALLED.call_once(|| {
        // SAFETY: `handle` is a handler of this form; the old one is kept before any fault can read it.
        unsafe {
            libc::sigaction(libc::SIGSEGV, std::ptr::null(), BEFORE.0.get().cast());
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigaction(libc::SIGSEGV, &raw const action, null_mut());
        }
    });
}

/// The stack on which this thread handles faults: that of the fibre is what is used up.
#[derive(Debug)]
pub(crate) struct HandlerStack(Option<Box<[u8]>>);

impl HandlerStack {
    /// For the calling thread, unless it has one already.
    pub(crate) fn install() -> Self {
        // SAFETY: the calls fill and read only the plain values given to them; the stack lives until
        // `drop`, which takes it out of use.
        unsafe {
            let mut now: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &raw mut now);
            if now.ss_flags & libc::SS_DISABLE == 0 {
                return Self(None);
            }
            let mut memory = vec![0; HANDLER_STACK].into_boxed_slice();
            let stack = libc::stack_t {
                ss_sp: memory.as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: memory.len(),
            };
            libc::sigaltstack(&raw const stack, null_mut());
            Self(Some(memory))
        }
    }
}

impl Drop for HandlerStack {
    fn drop(&mut self) {
        if self.0.is_some() {
            let none = libc::stack_t {
                ss_sp: null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: HANDLER_STACK,
            };
            // SAFETY: takes the stack of this thread out of use before its memory goes.
            unsafe { libc::sigaltstack(&raw const none, null_mut()) };
        }
    }
}

/// A text that is written without memory being asked for.
struct Text {
    bytes: [u8; 320],
    length: usize,
}

impl Text {
    fn add(&mut self, text: &[u8]) {
        for &byte in text {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
        }
    }

    /// Adds a name: its first [`NAME`] bytes, and nothing of it that a terminal would obey.
    fn add_name(&mut self, name: &str) {
        let end = self.length + NAME;
        for char in name.chars().flat_map(char::escape_debug) {
            if self.length + char.len_utf8() > end {
                self.add(b"...");
                break;
            }
            self.add(char.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn add_number(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.add(&digits[at..]);
    }
}

unsafe extern "C" fn handle(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel gives a valid one.
    let address = unsafe { (*info).si_addr() }.addr();
    for slab in slabs() {
        let bytes = slab.stride * slab.owners.len();
        if address < slab.low || address >= slab.low + bytes {
            continue;
        }
        let inside = address - slab.low;
        if inside % slab.stride < GUARD {
            say_overflow(slab, inside / slab.stride);
            // SAFETY: a zeroed action is the default one; the fault comes again and ends the process.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const default, null_mut());
            }
            return;
        }
    }
    // SAFETY: filled before this handler was in place. What is called takes these arguments, as its
    // flags tell.
    unsafe {
        let before = (*BEFORE.0.get()).assume_init_ref();
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, before, null_mut());
            }
            action if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let call: unsafe extern "C" fn(
                    libc::c_int,
                    *mut libc::siginfo_t,
                    *mut libc::c_void,
                ) = std::mem::transmute(action);
                call(signal, info, context);
            }
            action => {
                let call: unsafe extern "C" fn(libc::c_int) = std::mem::transmute(action);
                call(signal);
            }
        }
    }
}

/// Says whose stack was too small, and what to do.
fn say_overflow(slab: &crate::stack::Slab, index: usize) {
    let mut text = Text {
        bytes: [0; 320],
        length: 0,
    };
    text.add(b"\nfibres: fibre ");
    let task = slab.owners[index]
        .task
        .load(std::sync::atomic::Ordering::Acquire);
    // SAFETY: a fibre that has a stack lives until it has given it back, and this one faults on it.
    if let Some(task) = unsafe { task.cast::<Task>().as_ref() } {
        text.add_number(task.id);
        if let Some(name) = &task.name {
            text.add(b" (");
            text.add_name(name);
            text.add(b")");
        }
    }
    text.add(b" has used up its stack of ");
    text.add_number((slab.stride - GUARD) as u64 / 1024);
    text.add(b" KiB; give it more with Spawn::stack_size, or recurse less\n");
    // SAFETY: the bytes are the text's own.
    unsafe { libc::write(2, text.bytes.as_ptr().cast(), text.length) };
}
