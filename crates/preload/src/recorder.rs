//! What is told of which blocks.

use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, compiler_fence};

use linewise_heap::{
    AllocatorCode, MAGIC, RING_WORDS, RecordKind, Region, RingIds, Told, Traced, TracedKind,
    VARIABLE_C, Writer, block_key, key_of_bytes, name_key, stamp, stamp_after, tell,
};

use crate::stack::{Frame, walk};
use crate::thread::{Thread, this};

/// Which blocks were told of, so that frees of others cost nothing: null while nothing is told.
static TOLD: AtomicPtr<Told> = AtomicPtr::new(null_mut());

/// Every access of the program is traced, and blocks are told to the tracer.
static TRACED: AtomicBool = AtomicBool::new(false);

/// The shared memory, once [`TOLD`] is set.
struct Shared(core::cell::UnsafeCell<MaybeUninit<Region>>);
// SAFETY: written once, before `TOLD` is, and only read after.
unsafe impl Sync for Shared {}
static SHARED: Shared = Shared(core::cell::UnsafeCell::new(MaybeUninit::uninit()));

/// The process's number, in a page that the kernel wipes in children that are forked.
static IMAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// The same, as children still see it.
static LAST_IMAGE: AtomicU32 = AtomicU32::new(0);
/// The number of the process that this was forked from, or its own.
static PARENT_IMAGE: AtomicU32 = AtomicU32::new(0);
/// The set of loaded code.
static LAYOUT: AtomicU32 = AtomicU32::new(0);
/// Ends threads' rings; 0 is none, others are one more than the key.
static KEY: AtomicU32 = AtomicU32::new(0);
/// How often the end of a thread is put off, for the destructors of others that free.
const LAST_ROUND: usize = 3;

/// Ticks that telling of a block takes at most, some ten microseconds.
const LONGEST: u64 = 1 << 15;

/// Naps of 100 µs that a thread waits for room at most.
const NAPS: u32 = 300;

#[inline(always)]
fn told() -> Option<&'static Told> {
    // SAFETY: null, or a set that is never unmapped.
    unsafe { TOLD.load(Ordering::Acquire).as_ref() }
}

/// The shared memory. Call only where [`TOLD`] is set.
fn region() -> &'static Region {
    // SAFETY: initialised before `TOLD` was set, which the caller saw.
    unsafe { (*SHARED.0.get()).assume_init_ref() }
}

fn anonymous(bytes: usize) -> Option<*mut c_void> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let found = unsafe {
        libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    (found != libc::MAP_FAILED).then_some(found)
}

/// Begins to record, if there is a collector. Called once, before the program's own code runs.
pub(crate) fn attach() -> Option<()> {
    // SAFETY: a name that ends in NUL; the value is not kept.
    let path = unsafe { libc::getenv(VARIABLE_C.as_ptr()) };
    if path.is_null() {
        return None;
    }
    // SAFETY: the environment's strings end in NUL.
    let path = unsafe { CStr::from_ptr(path) };
    if path.to_bytes() == linewise_heap::TRACED.as_bytes() {
        TRACED.store(true, Ordering::Relaxed);
        tell_traced(
            TracedKind::Loaded,
            0,
            usize::from(crate::hooks::has_own_malloc()),
        );
        return Some(());
    }
    let region = Region::open(path)?;
    if region.detached() {
        return None;
    }
    let page = anonymous(4096)?;
    // SAFETY: our page.
    if unsafe { libc::madvise(page, 4096, libc::MADV_WIPEONFORK) } != 0 {
        return None;
    }
    let told = anonymous(size_of::<Told>())?;
    let image = region.next_image();
    let page: *mut AtomicU32 = page.cast();
    // SAFETY: in our page, aligned, zeros so far.
    unsafe { &*page }.store(image, Ordering::Relaxed);
    IMAGE.store(page, Ordering::Relaxed);
    LAST_IMAGE.store(image, Ordering::Relaxed);
    PARENT_IMAGE.store(image, Ordering::Relaxed);
    LAYOUT.store(region.next_layout(), Ordering::Relaxed);
    let mut key = 0;
    // SAFETY: writes one key; the destructor has the type that is asked for.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0 {
        KEY.store(key + 1, Ordering::Relaxed);
    }
    if crate::hooks::has_own_malloc() {
        region.note_own_malloc();
    }
    // SAFETY: nobody reads before `TOLD` is set, and this runs once.
    unsafe { (*SHARED.0.get()).write(region) };
    TOLD.store(told.cast(), Ordering::Release);
    Some(())
}

fn is_traced() -> bool {
    TRACED.load(Ordering::Relaxed)
}

/// A record without a name, a stack and an allocator.
fn traced(kind: TracedKind, address: u64, size: usize) -> Traced {
    Traced {
        magic: MAGIC,
        kind: kind as u64,
        allocator: AllocatorCode::Malloc as u64,
        address,
        size: size as u64,
        frame: 0,
        label: [0; 2],
    }
}

/// Tells the tracer, if there is one.
#[inline(never)]
fn tell_traced(kind: TracedKind, address: u64, size: usize) {
    if is_traced() {
        tell(&mut traced(kind, address, size));
    }
}

/// Tells the tracer of a block, if there is one.
#[cold]
#[inline(never)]
fn tell_traced_block(
    block: u64,
    size: usize,
    from: AllocatorCode,
    frame: Frame,
    label: Option<&[u8]>,
) {
    if !is_traced() {
        return;
    }
    let kind = match label {
        Some(_) => TracedKind::Named,
        None => TracedKind::Alloc,
    };
    let label = label.unwrap_or_default();
    tell(&mut Traced {
        allocator: from as u64,
        frame: frame as u64,
        label: [label.as_ptr() as u64, label.len() as u64],
        ..traced(kind, block, size)
    });
}

/// The program has unloaded code: other code may come to lie there.
pub(crate) fn unloaded() {
    tell_traced(TracedKind::Unloaded, 0, 0);
    if told().is_some() {
        LAYOUT.store(region().next_layout(), Ordering::Relaxed);
    }
}

/// The end of a thread that has a ring.
unsafe extern "C" fn thread_ends(round: *mut c_void) {
    // SAFETY: this thread's own state.
    let thread = unsafe { &mut *this() };
    let key = KEY.load(Ordering::Relaxed);
    thread.busy += 1;
    if (round as usize) < LAST_ROUND {
        // SAFETY: the key exists; the value is a number.
        unsafe { libc::pthread_setspecific(key - 1, (round as usize + 1) as *const c_void) };
    } else {
        if thread.has_ring {
            // SAFETY: `has_ring` says that it is there.
            unsafe { thread.writer.assume_init() }.close(region());
        }
        thread.has_ring = false;
        thread.ended = true;
    }
    thread.busy -= 1;
}

/// This thread's ring, claimed now if it has none in this process.
fn ring(region: &Region, thread: &mut Thread) -> Option<Writer> {
    // SAFETY: set before `TOLD` was, never unmapped.
    let image = unsafe { &*IMAGE.load(Ordering::Relaxed) };
    if image.load(Ordering::Relaxed) == 0 {
        // A forked child: its only thread is this one.
        let own = region.next_image();
        PARENT_IMAGE.store(LAST_IMAGE.swap(own, Ordering::Relaxed), Ordering::Relaxed);
        image.store(own, Ordering::Relaxed);
    }
    let own = image.load(Ordering::Relaxed);
    let layout = LAYOUT.load(Ordering::Relaxed);
    if thread.has_ring && thread.image == own {
        // SAFETY: `has_ring` says that it is there.
        let writer = unsafe { thread.writer.assume_init() };
        if thread.layout != layout {
            thread.layout = layout;
            writer.set_layout(region, layout);
        }
        return Some(writer);
    }
    if thread.ended {
        return None;
    }
    // SAFETY: no arguments, cannot fail.
    let (pid, tid) = unsafe { (libc::getpid() as u32, libc::gettid() as u32) };
    let ids = RingIds {
        pid,
        tid,
        image: own,
        parent: PARENT_IMAGE.load(Ordering::Relaxed),
    };
    let writer = Writer::claim(region, ids, layout, stamp())?;
    thread.writer.write(writer);
    thread.has_ring = true;
    thread.image = own;
    thread.layout = layout;
    thread.tid = tid;
    let key = KEY.load(Ordering::Relaxed);
    if key != 0 {
        // SAFETY: the key exists; the value is a number.
        unsafe { libc::pthread_setspecific(key - 1, core::ptr::without_provenance(1)) };
    }
    Some(writer)
}

/// Waits for room for a record, for a moment and while there is somebody to make it.
fn room(region: &Region, thread: &mut Thread, writer: Writer, words: usize) -> bool {
    if writer.room(region) >= words {
        return true;
    }
    thread.waited = true;
    for _ in 0..NAPS {
        if region.hurried() || region.detached() {
            return false;
        }
        nap();
        if writer.room(region) >= words {
            return true;
        }
    }
    if !region.collector_gone() {
        region.hurry(true);
    }
    false
}

/// Sleeps 100 µs, without a cancellation point.
fn nap() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 100_000,
    };
    // SAFETY: reads one structure, which lives through the call; the rest is not asked for. The caller
    // keeps errno.
    unsafe {
        libc::syscall(libc::SYS_nanosleep, &raw const time, 0);
    }
}

/// Runs `tell` with this thread's ring, unless the thread is in here already, and keeps what the program
/// can see: errno.
fn within(tell: impl FnOnce(&Region, &mut Thread, Writer) -> bool) {
    let region = region();
    if region.detached() {
        TOLD.store(null_mut(), Ordering::Release);
        return;
    }
    let began = stamp();
    let thread = this();
    // SAFETY: this thread's own state. A signal handler that comes now sees `busy` and leaves the rest alone.
    unsafe {
        if (*thread).busy != 0 {
            region.lose(1);
            return;
        }
        (*thread).busy = 1;
    }
    compiler_fence(Ordering::SeqCst);
    // SAFETY: errno always exists.
    let errno = unsafe { *libc::__errno_location() };
    {
        // SAFETY: nobody else uses it while `busy` is set.
        let thread = unsafe { &mut *thread };
        match ring(region, thread) {
            Some(writer) => {
                if !tell(region, thread, writer) {
                    region.lose(1);
                }
                let ticks = stamp().wrapping_sub(began);
                // A thread that was put off its CPU meanwhile did not spend that time here.
                let longest = if thread.waited { u64::MAX } else { LONGEST };
                thread.waited = false;
                writer.spend(region, ticks.min(longest));
            }
            None => region.lose(1),
        }
    }
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe {
        *libc::__errno_location() = errno;
        (*thread).busy = 0;
    }
}

/// A block was allocated by the caller of the hook whose frame this is.
///
/// # Safety
/// `frame` is the calling hook's.
#[inline(always)]
pub(crate) unsafe fn allocated(block: *mut c_void, size: usize, from: AllocatorCode, frame: Frame) {
    if block.is_null() {
        return;
    }
    let thread = this();
    // SAFETY: this thread's own state.
    unsafe { (*thread).last = block as u64 };
    let Some(told) = told() else {
        tell_traced_block(block as u64, size, from, frame, None);
        return;
    };
    // SAFETY: this thread's own state; a signal handler between the two only takes from the same count.
    let left = unsafe { (*thread).countdown.wrapping_sub(size.max(1) as i64) };
    // SAFETY: likewise.
    unsafe { (*thread).countdown = left };
    if left <= 0 || region().follows(block as u64) {
        // SAFETY: the caller's promise.
        unsafe { tell_allocated(told, block as u64, size, from, frame, None) };
    }
}

/// # Safety
/// `frame` is the calling hook's.
#[cold]
#[inline(never)]
pub(crate) unsafe fn tell_allocated(
    set: &Told,
    block: u64,
    size: usize,
    from: AllocatorCode,
    frame: Frame,
    label: Option<&[u8]>,
) {
    let when = stamp_after();
    within(|region, thread, writer| {
        let interval = if thread.countdown <= 0 {
            // The distance to this block was drawn with the mean of the last draw.
            let interval = core::mem::replace(&mut thread.interval, region.interval());
            thread.countdown = match thread.interval {
                0 => 0,
                mean => thread.exponential(mean),
            };
            interval
        } else {
            // It is told of for its address and stands for itself.
            0
        };
        if region.follows(block) {
            region.told_of_followed();
        }
        // SAFETY: the caller's promise.
        let Some(stack) = (unsafe { tell_stack(region, thread, writer, frame) }) else {
            return false;
        };
        let upper = (interval as f32).to_bits();
        let record = [when, block, size as u64, stack];
        let told = match label {
            None => {
                room(region, thread, writer, 5)
                    && writer.write(region, (RecordKind::Alloc, from, upper), &[&record])
            }
            Some(label) => {
                tell_label(region, thread, writer, label)
                    && room(region, thread, writer, 6)
                    && writer.write(
                        region,
                        (RecordKind::Named, from, upper),
                        &[&record, &[key_of_bytes(label)]],
                    )
            }
        };
        // The end of a mapping is told in any case.
        match from {
            _ if !told => {}
            AllocatorCode::Mmap => {}
            AllocatorCode::Pool => set.note(name_key(block)),
            _ => set.note(block_key(block)),
        }
        told
    });
}

/// Tells of the stack, if it is not known; its key.
///
/// # Safety
/// `frame` is the calling hook's.
unsafe fn tell_stack(
    region: &Region,
    thread: &mut Thread,
    writer: Writer,
    frame: Frame,
) -> Option<u64> {
    let layout = thread.layout;
    // SAFETY: the caller's promise.
    let mut walked = unsafe { walk(region, thread, layout, frame) };
    if writer.room(region) < RING_WORDS / 2 {
        // The collector is behind: rather a short stack now than a wait for room.
        walked.stack.end();
    }
    let frames = walked.stack.frames();
    let words = 8 + frames.len();
    let Some(at) = walked.stack.missing else {
        let key = walked.stack.key;
        if !region.is_known(key) {
            let header = (RecordKind::Stack, AllocatorCode::Malloc, 0);
            if !room(region, thread, writer, words)
                || !writer.write(region, header, &[&[key], frames])
            {
                return None;
            }
            region.set_known(key);
        }
        return Some(key);
    };
    let slice = walked.slice(at);
    thread.serial = thread.serial.wrapping_add(1);
    let key = 1 << 63 | u64::from(thread.tid) << 32 | u64::from(thread.serial);
    let upper = frames.len() as u32 | layout << 16;
    let header = (RecordKind::Slice, AllocatorCode::Malloc, upper);
    let registers = [key, at.ip, at.sp, at.bp];
    (room(region, thread, writer, words + slice.len())
        && writer.write(region, header, &[&registers, frames, slice]))
    .then_some(key)
}

/// Tells what the key of a label stands for, if it is not known.
fn tell_label(region: &Region, thread: &mut Thread, writer: Writer, label: &[u8]) -> bool {
    let key = key_of_bytes(label);
    if region.is_known(key) {
        return true;
    }
    let mut words = [0_u64; LABEL_WORDS];
    for (word, bytes) in words.iter_mut().zip(label.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
    let header = (RecordKind::Label, AllocatorCode::Pool, label.len() as u32);
    let told = room(region, thread, writer, 2 + LABEL_WORDS)
        && writer.write(region, header, &[&[key], &words[..label.len().div_ceil(8)]]);
    if told {
        region.set_known(key);
    }
    told
}

const LABEL_WORDS: usize = 16;
/// Bytes of a label, at most; the rest is cut off.
pub(crate) const LABEL_BYTES: usize = LABEL_WORDS * 8;

/// The moment before a block is freed, if its end is to be told, for [`freed`] or [`kept`]. It is forgotten
/// here, not later: once the block is free another thread may be given its address and note that.
///
/// The tracer is told here of the end, also of a block that the program asks to change: what the allocator
/// does to it then is no access of the program, and nobody else can have its address before.
#[inline(always)]
pub(crate) fn about_to_free(block: *mut c_void) -> Option<u64> {
    let key = block_key(block as u64);
    forget_last();
    let Some(told) = told() else {
        // SAFETY: this thread's own state.
        if unsafe { (*this()).ending } != block as u64 {
            tell_traced(TracedKind::Free, block as u64, 0);
        }
        return None;
    };
    (told.may_know(key) && forget(told, key)).then(stamp)
}

/// The block that the calling thread allocated last; null: none, or it has freed since.
#[inline(always)]
pub(crate) fn last() -> *mut c_void {
    // SAFETY: this thread's own state.
    unsafe { (*this()).last as *mut c_void }
}

/// From now on [`last`] is none.
#[inline(always)]
pub(crate) fn forget_last() {
    // SAFETY: this thread's own state.
    unsafe { (*this()).last = 0 };
}

/// From now on the calling thread ends this block, whose end was told; which one it was before.
#[inline(always)]
pub(crate) fn ending(block: *mut c_void) -> *mut c_void {
    // SAFETY: this thread's own state.
    unsafe { core::mem::replace(&mut (*this()).ending, block as u64) as *mut c_void }
}

#[cold]
#[inline(never)]
fn forget(told: &Told, key: u64) -> bool {
    told.forget(key)
}

/// A block ended at the moment that [`about_to_free`] told.
#[inline(always)]
pub(crate) fn freed(block: *mut c_void, when: Option<u64>) {
    if let Some(when) = when {
        tell_end(block as u64, when, RecordKind::Free);
    }
}

/// A block that was about to be freed was not.
#[cold]
pub(crate) fn kept(block: *mut c_void, when: Option<u64>) {
    if let (Some(told), Some(_)) = (told(), when) {
        told.note(block_key(block as u64));
    }
}

#[cold]
#[inline(never)]
fn tell_end(address: u64, when: u64, kind: RecordKind) {
    within(|region, thread, writer| {
        room(region, thread, writer, 3)
            && writer.write(
                region,
                (kind, AllocatorCode::Malloc, 0),
                &[&[when, address]],
            )
    });
}

/// Memory is about to be unmapped.
pub(crate) fn unmapping(start: *mut c_void, length: usize) {
    if length == 0 {
        return;
    }
    if told().is_none() {
        tell_traced(TracedKind::Unmap, start as u64, length);
        return;
    }
    let when = stamp();
    within(|region, thread, writer| {
        let header = (RecordKind::Unmap, AllocatorCode::Mmap, 0);
        room(region, thread, writer, 4)
            && writer.write(region, header, &[&[when, start as u64, length as u64]])
    });
}

/// An object begins that the program names.
///
/// # Safety
/// `frame` is the calling hook's.
pub(crate) unsafe fn named(object: *mut c_void, size: usize, label: &[u8], frame: Frame) {
    let Some(told) = told() else {
        tell_traced_block(object as u64, size, AllocatorCode::Pool, frame, Some(label));
        return;
    };
    let thread = this();
    // SAFETY: this thread's own state.
    let left = unsafe { (*thread).countdown.wrapping_sub(size.max(1) as i64) };
    // SAFETY: likewise.
    unsafe { (*thread).countdown = left };
    if left <= 0 || region().follows(object as u64) {
        // SAFETY: the caller's promise.
        unsafe {
            tell_allocated(
                told,
                object as u64,
                size,
                AllocatorCode::Pool,
                frame,
                Some(label),
            );
        }
    }
}

/// A named object ends.
pub(crate) fn unnamed(object: *mut c_void) {
    let key = name_key(object as u64);
    tell_traced(TracedKind::Unname, object as u64, 0);
    let when = stamp();
    if told().is_some_and(|told| told.may_know(key) && told.forget(key)) {
        tell_end(object as u64, when, RecordKind::Unname);
    }
}
