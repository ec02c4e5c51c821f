//! What is used of QEMU beside its interface for plugins: how a thread leaves the state of running, and how full the translated code is.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// QEMU's functions with which a thread leaves the state of running and comes back to it.
#[derive(Clone, Copy)]
pub(super) struct Executing {
    pub(super) end: unsafe extern "C" fn(*mut c_void),
    pub(super) start: unsafe extern "C" fn(*mut c_void),
    pub(super) alone: unsafe extern "C" fn(),
    pub(super) together: unsafe extern "C" fn(),
    pub(super) code_bytes: unsafe extern "C" fn() -> usize,
    pub(super) code_capacity: unsafe extern "C" fn() -> usize,
}

static EXECUTING: OnceLock<Option<Executing>> = OnceLock::new();
/// Where QEMU notes that a virtual CPU has the others stand still, in bytes from where that begins, and one.
static ALONE_AT: AtomicU32 = AtomicU32::new(0);

/// Those of this QEMU; `None` if it has not all of them.
pub(super) fn executing() -> Option<Executing> {
    *EXECUTING.get_or_init(|| {
        // SAFETY: names that end in NUL, looked up in what the process has loaded; functions of these names have
        // these types since QEMU 2.8.
        unsafe {
            let find = |name: &[u8]| {
                let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr().cast::<c_char>());
                (!found.is_null()).then_some(found)
            };
            Some(Executing {
                end: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(find(
                    b"cpu_exec_end\0",
                )?),
                start: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(find(
                    b"cpu_exec_start\0",
                )?),
                alone: std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(find(
                    b"start_exclusive\0",
                )?),
                together: std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(find(
                    b"end_exclusive\0",
                )?),
                code_bytes: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(
                    find(b"tcg_code_size\0")?,
                ),
                code_capacity: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(
                    find(b"tcg_code_capacity\0")?,
                ),
            })
        }
    })
}

/// QEMU's name for this thread; null if it cannot be told.
pub(super) fn current_cpu() -> *mut c_void {
    // SAFETY: the variable of this name is a pointer of each thread.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"current_cpu".as_ptr());
        if found.is_null() {
            return ptr::null_mut();
        }
        *found.cast::<*mut c_void>()
    }
}

/// Finds out where QEMU notes that a virtual CPU is alone, by being so for a moment.
pub(super) fn finds_alone() -> bool {
    const LOOKED_AT: usize = 1 << 10;
    let (cpu, Some(executing)) = (current_cpu(), executing()) else {
        return false;
    };
    if cpu.is_null() {
        return false;
    }
    let read = || -> [u8; LOOKED_AT] {
        // SAFETY: the structure of a virtual CPU is larger; bytes.
        unsafe { ptr::read_volatile(cpu.cast()) }
    };
    let before = read();
    // SAFETY: called in a system call, so this thread is not taken for running.
    unsafe { (executing.alone)() };
    let during = read();
    // SAFETY: as above.
    unsafe { (executing.together)() };
    let after = read();
    let mut found = (0..LOOKED_AT).filter(|&at| (before[at], during[at], after[at]) == (0, 1, 0));
    let (Some(at), None) = (found.next(), found.next()) else {
        return false;
    };
    ALONE_AT.store(at as u32 + 1, Ordering::Relaxed);
    true
}

/// Whether the thread of a virtual CPU, which is this one, has all others stand still.
pub(super) fn is_alone(cpu: *mut c_void) -> bool {
    let at = ALONE_AT.load(Ordering::Relaxed);
    let byte = cpu.cast::<u8>();
    // SAFETY: a byte of the structure of this thread's virtual CPU, see `finds_alone`.
    !cpu.is_null() && at != 0 && unsafe { ptr::read_volatile(byte.add(at as usize - 1)) } != 0
}
