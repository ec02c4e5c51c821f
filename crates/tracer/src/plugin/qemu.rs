//! What is used of QEMU beside its interface for plugins: how a thread leaves the state of running, and how full the translated code is.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// QEMU's functions with which a thread leaves the state of running and comes back to it.
#[derive(Clone, Copy)]
pub(super) struct Executing {
    pub(super) end: unsafe extern "C" fn(*mut c_void),
    pub(super) start: unsafe extern "C" fn(*mut c_void),
    pub(super) alone: unsafe extern "C" fn(),
    pub(super) together: unsafe extern "C" fn(),
    pub(super) code_bytes: unsafe extern "C" fn() -> usize,
    pub(super) code_capacity: unsafe extern "C" fn() -> usize,
    /// Has all code translated anew, before this thread executes more of it.
    pub(super) flush: unsafe extern "C" fn(*mut c_void),
}

static EXECUTING: OnceLock<Option<Executing>> = OnceLock::new();
/// Where QEMU notes that a virtual CPU has the others stand still, in bytes from where that begins, and one.
static ALONE_AT: AtomicU32 = AtomicU32::new(0);

/// Those of this QEMU; `None` if it has not all of them.
pub(super) fn executing() -> Option<Executing> {
    *EXECUTING.get_or_init(|| {
        // SAFETY: functions of these names have these types since QEMU 2.8.
        unsafe {
            Some(Executing {
                end: of_a_cpu(c"cpu_exec_end")?,
                start: of_a_cpu(c"cpu_exec_start")?,
                alone: of_nothing(c"start_exclusive")?,
                together: of_nothing(c"end_exclusive")?,
                code_bytes: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(
                    find(c"tcg_code_size")?,
                ),
                code_capacity: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(
                    find(c"tcg_code_capacity")?,
                ),
                flush: of_a_cpu(c"tb_flush")?,
            })
        }
    })
}

/// What QEMU has under this name.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends in NUL, looked up in what the process has loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// QEMU's function of this name, which is given a virtual CPU or an event.
///
/// # Safety
/// It is such a function.
unsafe fn of_a_cpu(name: &CStr) -> Option<unsafe extern "C" fn(*mut c_void)> {
    // SAFETY: the caller's promise.
    find(name).map(|found| unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(found)
    })
}

/// QEMU's function of this name, which is given nothing and gives nothing.
///
/// # Safety
/// It is such a function.
unsafe fn of_nothing(name: &CStr) -> Option<unsafe extern "C" fn()> {
    // SAFETY: the caller's promise.
    find(name)
        .map(|found| unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(found) })
}

/// What a thread holds while it executes a block, so that QEMU frees nothing that it may be reading (RCU): what `rcu_read_lock` and
/// `rcu_read_unlock` touch, which QEMU has no functions for.
struct Reading {
    /// Of this thread: the time since which it reads, 0 if it does not, whether somebody waits for its end, and how deep it is nested.
    reader: unsafe extern "C" fn() -> *mut Reader,
    time: *const AtomicU64,
    /// What to set for who waits, and how.
    event: *mut c_void,
    set: unsafe extern "C" fn(*mut c_void),
}

/// QEMU's `struct rcu_reader_data`, which has begun so since 2.3.
#[repr(C)]
struct Reader {
    since: AtomicU64,
    waited_for: AtomicBool,
    depth: AtomicU32,
}

// SAFETY: functions and variables of QEMU's, which stay.
unsafe impl Send for Reading {}
// SAFETY: as above; the variables are atomic, or used by QEMU's function alone.
unsafe impl Sync for Reading {}

static READING: OnceLock<Option<Reading>> = OnceLock::new();

impl Reading {
    fn find() -> Option<Self> {
        // SAFETY: functions and variables of these names have these types since QEMU 7.0.
        unsafe {
            Some(Self {
                reader: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *mut Reader>(
                    find(c"get_ptr_rcu_reader")?,
                ),
                time: find(c"rcu_gp_ctr")?.cast(),
                event: find(c"rcu_gp_event")?,
                set: of_a_cpu(c"qemu_event_set")?,
            })
        }
    }
}

/// Does something for which a thread that executes a block, `cpu` by QEMU's name, does not count as running: others may be alone
/// meanwhile, and free what nobody reads. Without the latter a program that forks could stand still for ever: who forks waits for who
/// frees, who waits for all that read.
pub(super) fn stands_still(executing: &Executing, cpu: *mut c_void, what: impl FnOnce()) {
    let reading = READING.get_or_init(Reading::find).as_ref();
    // SAFETY: QEMU's functions and variables, as they say; the reader is this thread's.
    let reader = reading.map(|it| (it, unsafe { &*(it.reader)() }));
    let reader = reader.filter(|(_, reader)| {
        reader.depth.load(Ordering::Relaxed) == 1 && reader.since.load(Ordering::Relaxed) != 0
    });
    if let Some((reading, reader)) = &reader {
        reader.since.store(0, Ordering::SeqCst);
        if reader.waited_for.swap(false, Ordering::SeqCst) {
            // SAFETY: QEMU's own event, which lives for good.
            unsafe { (reading.set)(reading.event) };
        }
    }
    // SAFETY: QEMU's functions with what it calls this thread, in a callback of a block that it executes.
    unsafe { (executing.end)(cpu) };
    what();
    // SAFETY: as above.
    unsafe { (executing.start)(cpu) };
    if let Some((reading, reader)) = &reader {
        // SAFETY: a variable of QEMU's.
        let now = unsafe { (*reading.time).load(Ordering::Relaxed) };
        reader.since.store(now, Ordering::SeqCst);
    }
}

/// QEMU's name for this thread; null if it cannot be told.
pub(super) fn current_cpu() -> *mut c_void {
    find(c"current_cpu").map_or(ptr::null_mut(), |found| {
        // SAFETY: the variable of this name is a pointer of each thread.
        unsafe { *found.cast::<*mut c_void>() }
    })
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
    // A child of fork is so from its beginning, see `is_not_alone`; where QEMU counts, twice then.
    let shows = |at: usize| {
        let bytes = (before[at], during[at], after[at]);
        matches!(bytes, (0, 1, 0) | (1, 1, 0) | (1, 2, 1))
    };
    let mut found = (0..LOOKED_AT).filter(|&at| shows(at));
    let (Some(at), None) = (found.next(), found.next()) else {
        return false;
    };
    ALONE_AT.store(at as u32 + 1, Ordering::Relaxed);
    is_not_alone();
    true
}

/// In a child of fork, in the call: its maker had all others stand still for that, and QEMU 7.2 has it do so for ever.
pub(super) fn is_not_alone() {
    if is_alone(current_cpu())
        && let Some(executing) = executing()
    {
        // SAFETY: QEMU's function; this thread is alone, as it says.
        unsafe { (executing.together)() };
    }
}

/// Whether the thread of a virtual CPU, which is this one, has all others stand still.
pub(super) fn is_alone(cpu: *mut c_void) -> bool {
    let at = ALONE_AT.load(Ordering::Relaxed);
    let byte = cpu.cast::<u8>();
    // SAFETY: a byte of the structure of this thread's virtual CPU, see `finds_alone`.
    !cpu.is_null() && at != 0 && unsafe { ptr::read_volatile(byte.add(at as usize - 1)) } != 0
}

/// QEMU's list of virtual CPUs, and what forgets the callbacks of the instruction that one executed last: QEMU before 8.0 leaves them
/// noted where a block ends within such an instruction, and calls them at the next access of a helper that has none.
struct Noted {
    list: *const List,
    lock: unsafe extern "C" fn(),
    unlock: unsafe extern "C" fn(),
    forget: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: functions and a variable of QEMU's, which stay; the variable is read under its lock.
unsafe impl Send for Noted {}
// SAFETY: as above.
unsafe impl Sync for Noted {}

/// The head of QEMU's list of virtual CPUs, and the like links in each of them.
#[repr(C)]
struct List {
    next: *mut u8,
    /// The links of the one before, of the head those of the last.
    before: *mut u8,
}

static NOTED: OnceLock<Option<Noted>> = OnceLock::new();
/// Where the links are in a virtual CPU, in bytes from where that begins; 0 if that is not known.
static LINKS_AT: AtomicUsize = AtomicUsize::new(0);

impl Noted {
    fn find() -> Option<Self> {
        // SAFETY: functions of these names have these types since QEMU 4.2.
        unsafe {
            Some(Self {
                list: find(c"cpus")?.cast(),
                lock: of_nothing(c"cpu_list_lock")?,
                unlock: of_nothing(c"cpu_list_unlock")?,
                forget: of_a_cpu(c"qemu_plugin_disable_mem_helpers")?,
            })
        }
    }
}

/// When the first virtual CPU was made and no other: finds out where it has its links.
pub(super) fn finds_links() {
    /// A virtual CPU is smaller.
    const LARGEST: usize = 1 << 17;
    if let Some(noted) = NOTED.get_or_init(Noted::find)
        && LINKS_AT.load(Ordering::Relaxed) == 0
    {
        // SAFETY: QEMU's variable, which no thread changes before there is a second one.
        let list = unsafe { noted.list.read() };
        let at = (list.before as usize).wrapping_sub(list.next as usize);
        if (1..LARGEST).contains(&at) {
            LINKS_AT.store(at, Ordering::Relaxed);
        }
    }
}

/// All code was thrown away, and with it the callbacks: none may be noted, or QEMU would call what it has freed.
pub(super) extern "C" fn on_flush(_id: u64) {
    let at = LINKS_AT.load(Ordering::Relaxed);
    let Some(noted) = NOTED.get_or_init(Noted::find).as_ref().filter(|_| at != 0) else {
        return;
    };
    // SAFETY: QEMU's functions and list; who is in the list is not freed while its lock is held, and has links there.
    unsafe {
        (noted.lock)();
        let mut cpu = (*noted.list).next;
        while !cpu.is_null() {
            (noted.forget)(cpu.cast());
            cpu = (*cpu.add(at).cast::<List>()).next;
        }
        (noted.unlock)();
    }
}
