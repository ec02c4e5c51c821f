//! Stacks of fibres: many in one mapping, guarded, kept for the next fibre of the same size.
//!
//! ```text
//! slab   ┌───────┬──────────────────┬───────┬──────────────────┬ ─ ─
//!        │ guard │  stack 0   ◀──── │ guard │  stack 1   ◀──── │
//!        └───────┴──────────────────┴───────┴──────────────────┴ ─ ─
//!         low                   base: grows down
//! ```
//!
//! Where the kernel has guard regions (Linux 6.13, `MADV_GUARD_INSTALL`) a slab stays one mapping however
//! many stacks it has. Elsewhere each guard splits it, and a process may have 65,530 mappings: some
//! 32,000 stacks.

use std::io;
use std::num::NonZeroUsize;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use corosensei::stack::valgrind::ValgrindStackRegistration;
use corosensei::stack::{Stack as CoroutineStack, StackPointer};

use crate::error::Error;

/// Bytes below a stack that nobody may touch: more than one page, since C code that is compiled without
/// probes steps over one.
pub(crate) const GUARD: usize = 16 * 1024;
/// Bytes of a stack if nothing else is asked for.
pub(crate) const DEFAULT: usize = 64 * 1024;
/// The smallest and the largest that can be asked for.
pub(crate) const SMALLEST: usize = 16 * 1024;
pub(crate) const LARGEST: usize = 1 << 30;
/// Bytes that a slab has at least, if it has more than one stack.
const SLAB: usize = 16 << 20;
/// From `asm-generic/mman-common.h`; libc does not have it yet.
const MADV_GUARD_INSTALL: libc::c_int = 102;
/// Sizes are powers of two from [`SMALLEST`] to [`LARGEST`].
const CLASSES: usize = 17;

/// What a guard is made of.
static GUARDS_BY: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const REGION: u8 = 1;
const PROTECTION: u8 = 2;

/// Whose a stack is, as addresses of its fibre and its runtime; null where nobody's.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    /// Written before `task`: who finds its own runtime here, while none of its fibres ends, finds one of
    /// its own fibres there.
    pub(crate) shared: AtomicPtr<()>,
    pub(crate) task: AtomicPtr<()>,
}

/// Stacks of one size in one mapping. Never unmapped: its stacks are used again.
#[derive(Debug)]
pub(crate) struct Slab {
    pub(crate) low: usize,
    /// Bytes from one stack to the next, guard included.
    pub(crate) stride: usize,
    pub(crate) owners: Box<[Owner]>,
    pub(crate) next: *const Slab,
}

// SAFETY: all but `next` is immutable or atomic, and `next` is written before the slab is published.
unsafe impl Sync for Slab {}
// SAFETY: as above.
unsafe impl Send for Slab {}

/// All slabs of the process, for the handler of overflows, which may take no lock.
static SLABS: AtomicPtr<Slab> = AtomicPtr::new(null_mut());

/// All slabs, newest first.
pub(crate) fn slabs() -> impl Iterator<Item = &'static Slab> {
    // SAFETY: slabs are published whole and never freed.
    let first = unsafe { SLABS.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |slab| unsafe { slab.next.as_ref() })
}

/// The stack of a slab that holds this address, without its guard.
pub(crate) fn holding(address: usize) -> Option<std::ops::Range<usize>> {
    slabs().find_map(|slab| {
        let index = address.checked_sub(slab.low)? / slab.stride;
        let low = slab.low + index * slab.stride;
        (index < slab.owners.len()).then(|| low + GUARD..low + slab.stride)
    })
}

/// Stacks that nobody uses, by size.
static FREE: [Mutex<Vec<Stack>>; CLASSES] = [const { Mutex::new(Vec::new()) }; CLASSES];

/// A stack of a slab.
#[derive(Debug)]
pub(crate) struct Stack {
    slab: &'static Slab,
    index: usize,
    base: NonZeroUsize,
}

// SAFETY: a guard of `GUARD` bytes lies at the lower end, and at least `SMALLEST` bytes above it; the
// base is a multiple of the page size.
unsafe impl CoroutineStack for Stack {
    #[inline]
    fn base(&self) -> StackPointer {
        self.base
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        let low = self.slab.low + self.index * self.slab.stride;
        NonZeroUsize::new(low).expect("no mapping begins at 0")
    }
}

/// Of a worker that ended, or of a fibre that could not begin.
impl Drop for Stack {
    fn drop(&mut self) {
        self.belongs_to(null_mut(), null_mut());
        // One whose addresses are not to be used again is never dropped, but given back for good.
        let (slab, index, base) = (self.slab, self.index, self.base);
        Self { slab, index, base }.give_back(true);
    }
}

/// The power of two at or above `bytes`, as a number from 0.
fn class(bytes: usize) -> Result<usize, Error> {
    if bytes > LARGEST {
        return Err(Error::StackSize { bytes });
    }
    let rounded = bytes.max(SMALLEST).next_power_of_two();
    Ok((rounded / SMALLEST).trailing_zeros() as usize)
}

impl Stack {
    /// A stack of at least `bytes`.
    ///
    /// # Errors
    /// [`Error::StackSize`]; [`Error::System`] if there is no memory, or no mapping, for it.
    pub(crate) fn take(bytes: usize) -> Result<Self, Error> {
        let class = class(bytes)?;
        let mut free = FREE[class].lock().expect("nothing panics under it");
        if let Some(stack) = free.pop() {
            return Ok(stack);
        }
        let slab = new_slab(SMALLEST << class)?;
        for index in (0..slab.owners.len()).rev() {
            let base = slab.low + (index + 1) * slab.stride;
            free.push(Self {
                slab,
                index,
                base: NonZeroUsize::new(base).expect("above its slab's begin"),
            });
        }
        Ok(free.pop().expect("a slab has a stack"))
    }

    /// Gives it back for the next fibre. `again`: the same addresses may be handed out again; otherwise
    /// its memory is given back and it is never used again.
    pub(crate) fn give_back(self, again: bool) {
        let size = self.size();
        if !again {
            // SAFETY: nobody runs on it, and nobody ever will.
            unsafe { advise(self.low_usable(), size, libc::MADV_DONTNEED) };
            self.belongs_to(null_mut(), null_mut());
            std::mem::forget(self);
            return;
        }
        let class = class(size).expect("it has been made");
        FREE[class]
            .lock()
            .expect("nothing panics under it")
            .push(self);
    }

    /// Usable bytes.
    pub(crate) fn size(&self) -> usize {
        self.slab.stride - GUARD
    }

    /// The lowest address that may be used.
    pub(crate) fn low_usable(&self) -> usize {
        self.limit().get() + GUARD
    }

    /// Says whose it is.
    #[inline]
    pub(crate) fn belongs_to(&self, task: *mut (), shared: *mut ()) {
        let owner = &self.slab.owners[self.index];
        owner.shared.store(shared, Ordering::Relaxed);
        owner.task.store(task, Ordering::Release);
    }
}

/// # Safety
/// The range is one of a slab, and nobody needs what is in it.
unsafe fn advise(low: usize, bytes: usize, advice: libc::c_int) -> bool {
    let low = std::ptr::with_exposed_provenance_mut(low);
    // SAFETY: the contract.
    unsafe { libc::madvise(low, bytes, advice) == 0 }
}

fn failed(what: &'static str, error: &io::Error) -> Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOMEM) => format!(
            "{error}; the process may have reached `ulimit -v`, or its {} mappings \
             (/proc/sys/vm/max_map_count): ask for smaller stacks or fewer fibres at a time",
            std::fs::read_to_string("/proc/sys/vm/max_map_count")
                .map_or_else(|_| "65530".to_owned(), |count| count.trim().to_owned())
        ),
        _ => error.to_string(),
    };
    Error::System {
        what,
        why,
        errno: error.raw_os_error(),
    }
}

/// A mapping for stacks of `size` bytes each, with their guards.
fn new_slab(size: usize) -> Result<&'static Slab, Error> {
    let stride = size + GUARD;
    let count = (SLAB / stride).max(1);
    let bytes = stride * count;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let map = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(null_mut(), bytes, access, flags, -1, 0)
    };
    if map == libc::MAP_FAILED {
        return Err(failed("memory for stacks", &io::Error::last_os_error()));
    }
    let low = map.expose_provenance();
    // A touched page must not become a huge one. A kernel without them refuses, which is as good.
    // SAFETY: the mapping of above.
    unsafe { advise(low, bytes, libc::MADV_NOHUGEPAGE) };
    for index in 0..count {
        if let Err(error) = guard(low + index * stride) {
            // SAFETY: nobody has it yet.
            unsafe { libc::munmap(map, bytes) };
            return Err(failed("a guard below a stack", &error));
        }
    }
    if is_under_valgrind() {
        for index in 0..count {
            let usable = low + index * stride + GUARD;
            let stack = std::ptr::with_exposed_provenance_mut(usable);
            // Slabs stay for ever, so the registrations do.
            std::mem::forget(ValgrindStackRegistration::new(stack, size));
        }
    }
    let slab = Box::into_raw(Box::new(Slab {
        low,
        stride,
        owners: (0..count).map(|_| Owner::default()).collect(),
        next: std::ptr::null(),
    }));
    let mut first = SLABS.load(Ordering::Relaxed);
    loop {
        // SAFETY: it is not published yet.
        unsafe { (*slab).next = first };
        match SLABS.compare_exchange(first, slab, Ordering::Release, Ordering::Relaxed) {
            // SAFETY: it lives for ever, and nobody writes it any more.
            Ok(_) => return Ok(unsafe { &*slab }),
            Err(now) => first = now,
        }
    }
}

/// Whether a tool of Valgrind runs the process: it preloads a library of its own.
pub(crate) fn is_under_valgrind() -> bool {
    std::env::var_os("LD_PRELOAD")
        .is_some_and(|loaded| loaded.to_string_lossy().contains("vgpreload_"))
}

/// Makes the `GUARD` bytes at `low` fault.
fn guard(low: usize) -> io::Result<()> {
    if GUARDS_BY.load(Ordering::Relaxed) == UNKNOWN && is_under_valgrind() {
        // It looks for leaks in all that it believes to be readable, and falls over regions.
        GUARDS_BY.store(PROTECTION, Ordering::Relaxed);
    }
    if GUARDS_BY.load(Ordering::Relaxed) != PROTECTION {
        // SAFETY: a part of a new slab that nobody uses.
        if unsafe { advise(low, GUARD, MADV_GUARD_INSTALL) } {
            GUARDS_BY.store(REGION, Ordering::Relaxed);
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        GUARDS_BY.store(PROTECTION, Ordering::Relaxed);
    }
    let low = std::ptr::with_exposed_provenance_mut(low);
    // SAFETY: as above.
    if unsafe { libc::mprotect(low, GUARD, libc::PROT_NONE) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_apart_and_used_again() {
        let one = Stack::take(100_000).unwrap();
        let two = Stack::take(100_000).unwrap();
        assert_eq!(one.size(), 128 * 1024);
        let apart = one.base().get().abs_diff(two.base().get());
        assert!(apart >= one.size() + GUARD, "{apart}");
        let low = std::ptr::with_exposed_provenance_mut::<u8>(one.low_usable());
        // SAFETY: within the stack, which this test has.
        unsafe { low.write_volatile(7) };
        let base = one.base();
        one.give_back(true);
        assert_eq!(Stack::take(100_000).unwrap().base(), base);
    }

    #[test]
    fn a_stack_that_is_given_back_for_good_loses_its_memory() {
        let one = Stack::take(SMALLEST << 3).unwrap();
        let low = std::ptr::with_exposed_provenance_mut::<u8>(one.low_usable());
        // SAFETY: the memory of a slab stays mapped.
        unsafe {
            low.write_volatile(7);
            one.give_back(false);
            assert_eq!(low.read_volatile(), 0);
        }
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(class(0).unwrap(), 0);
        assert_eq!(class(SMALLEST + 1).unwrap(), 1);
        assert_eq!(class(LARGEST).unwrap(), CLASSES - 1);
        assert!(matches!(
            Stack::take(LARGEST + 1),
            Err(Error::StackSize { bytes }) if bytes == LARGEST + 1
        ));
    }

    #[test]
    #[ignore = "uses up the mappings of its process: run by the test below"]
    fn scenario_mappings() {
        GUARDS_BY.store(PROTECTION, Ordering::Relaxed);
        let mut stacks = Vec::new();
        let refused = loop {
            match Stack::take(SMALLEST) {
                Ok(stack) => stacks.push(stack),
                Err(error) => break error,
            }
        };
        // What was refused left nothing behind: a mapping is there again for whoever needs one.
        println!("{} stacks, then {refused}", stacks.len());
        stacks.pop().unwrap().give_back(true);
        assert!(Stack::take(SMALLEST).is_ok());
    }

    #[test]
    fn the_limit_of_mappings_is_told() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "stack::tests::scenario_mappings",
                "--nocapture",
            ])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(
            text.contains("stacks, then a guard below a stack"),
            "{text}"
        );
        assert!(text.contains("max_map_count"), "{text}");
        let count: usize = text
            .split(" stacks, then")
            .next()
            .and_then(|before| before.split_whitespace().next_back())
            .and_then(|count| count.parse().ok())
            .unwrap();
        assert!((10_000..).contains(&count), "{text}");
    }
}
