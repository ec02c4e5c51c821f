//! What is told of which blocks.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, compiler_fence};

use linewise_heap::{
    AllocatorCode, MAGIC, Note, RING_WORDS, RecordKind, Region, RingIds, Told, Traced, TracedKind,
    Writer, block_key, kernel, key_of_bytes, name_key, stamp, stamp_after, tell,
};

use crate::gates;
use crate::lookup::has_own_malloc;
use crate::shared::{ATTACHED, LAST_IMAGE, SHARED, TOLD, region, shared, silence, told};
use crate::stack::{Frame, slice, walk};
use crate::thread::{self, Thread, control_block, this};

/// Every access of the program is traced, and blocks are told to the tracer.
static TRACED: AtomicBool = AtomicBool::new(false);

/// The process's number, in a page that the kernel wipes in children that are forked.
static IMAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// The number of the process that this was forked from, or its own.
static PARENT_IMAGE: AtomicU32 = AtomicU32::new(0);
/// The process.
static PID: AtomicU32 = AtomicU32::new(0);
/// The set of loaded code.
static LAYOUT: AtomicU32 = AtomicU32::new(0);

/// Ticks that telling of a block takes at most, some ten microseconds.
pub(crate) const LONGEST: u64 = 1 << 15;

/// Naps of 100 µs that a thread waits for room at most: the collector may be writing a part of the recording.
const NAPS: u32 = 20_000;

/// Words that there is room for before anything is looked at: the record of a block whose stack is known, and of that.
const LEAST: usize = 48;

/// Whether what the program executes is to have the recorder, too.
pub(crate) fn is_wanted() -> bool {
    is_traced() || shared().is_some_and(|region| !region.detached())
}

/// Begins to record, if there is a collector. Called once, before anybody else's code runs.
pub(crate) fn attach(path: &CStr) -> Option<()> {
    if path.to_bytes() == linewise_heap::TRACED.as_bytes() {
        TRACED.store(true, Ordering::Release);
        let own = usize::from(has_own_malloc());
        tell_traced(TracedKind::Loaded, 0, own);
        return Some(());
    }
    let region = Region::open(path, address_space())?;
    if region.detached() {
        return None;
    }
    let page = kernel::map(4096, None);
    if page.is_null() || !kernel::advise(page, 4096, libc::MADV_WIPEONFORK) {
        return None;
    }
    let told = kernel::map(size_of::<Told>(), None);
    if told.is_null() {
        return None;
    }
    let image = region.next_image();
    let page: *mut AtomicU32 = page.cast();
    // SAFETY: in our page, aligned, zeros so far.
    unsafe { &*page }.store(image, Ordering::Relaxed);
    IMAGE.store(page, Ordering::Relaxed);
    LAST_IMAGE.store(image, Ordering::Relaxed);
    PARENT_IMAGE.store(image, Ordering::Relaxed);
    LAYOUT.store(region.next_layout(), Ordering::Relaxed);
    PID.store(simple(libc::SYS_getpid), Ordering::Relaxed);
    thread::learn_numbers(simple(libc::SYS_gettid));
    if has_own_malloc() {
        region.note(Note::OwnMalloc);
    }
    let state = control(libc::PR_GET_SECCOMP, 0);
    if region.calls() <= u32::from(state != 0) {
        gates::close();
    }
    let mut clock = 0;
    let is_asked = control(libc::PR_GET_TSC, &raw mut clock as usize) == 0;
    let is_forbidden = is_asked && clock != libc::PR_TSC_ENABLE;
    // SAFETY: nobody reads before `ATTACHED` is set, and this runs once.
    unsafe { (*SHARED.0.get()).write(region) };
    ATTACHED.store(true, Ordering::Release);
    TOLD.store(told.cast(), Ordering::Release);
    if is_forbidden {
        silence(Note::Clockless);
    }
    Some(())
}

/// A system call without arguments that cannot fail.
pub(crate) fn simple(number: i64) -> u32 {
    // SAFETY: asks for a number.
    unsafe { kernel::call(number, [0; 6]) as u32 }
}

/// Asks prctl.
fn control(option: i32, place: usize) -> isize {
    // SAFETY: options that only tell, into a number of the caller's.
    unsafe { kernel::call(libc::SYS_prctl, [option as usize, place, 0, 0, 0, 0]) }
}

/// The limit of the address space, if there is one.
fn address_space() -> Option<u64> {
    // What is written to and not shared is data as well.
    let limits = [limit(libc::RLIMIT_AS), limit(libc::RLIMIT_DATA)];
    limits.into_iter().flatten().min()
}

fn limit(of: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit64 {
        rlim_cur: libc::RLIM64_INFINITY,
        rlim_max: libc::RLIM64_INFINITY,
    };
    // SAFETY: the kernel writes one structure.
    unsafe {
        kernel::call(
            libc::SYS_prlimit64,
            [0, of as usize, 0, &raw mut limit as usize, 0, 0],
        )
    };
    Some(limit.rlim_cur).filter(|&it| it != libc::RLIM64_INFINITY)
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

/// The process's number; another one when it is a child that was forked.
fn image(region: &Region, thread: &Thread) -> u32 {
    // SAFETY: set before `TOLD` was, never unmapped.
    let image = unsafe { &*IMAGE.load(Ordering::Relaxed) };
    let known = image.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // A forked child: its only thread is this one.
    let own = region.next_image();
    PARENT_IMAGE.store(LAST_IMAGE.swap(own, Ordering::Relaxed), Ordering::Relaxed);
    image.store(own, Ordering::Relaxed);
    let ids = || (simple(libc::SYS_getpid), simple(libc::SYS_gettid));
    let pid = match gates::calling(thread, ids) {
        Some((pid, tid)) => {
            if thread::number().is_some_and(|it| it != tid) {
                thread::forget_numbers();
            }
            pid
        }
        // The C library has put that right where it forked.
        None => thread::number().unwrap_or(0),
    };
    PID.store(pid, Ordering::Relaxed);
    own
}

/// This thread's ring, claimed now if it has none in this process.
fn ring(region: &Region, thread: &mut Thread) -> Option<Writer> {
    let own = image(region, thread);
    let tid = match thread::number() {
        Some(tid) => tid,
        None if thread.writer.is_some() && thread.image == own => thread.tid,
        None => gates::calling(thread, || simple(libc::SYS_gettid))?,
    };
    let layout = LAYOUT.load(Ordering::Relaxed);
    if let Some(writer) = thread.writer
        && (thread.image, thread.tid) == (own, tid)
        && writer.is_of(region, (tid, own))
    {
        if thread.layout != layout {
            thread.layout = layout;
            writer.set_layout(region, layout);
        }
        return Some(writer);
    }
    if let Some(writer) = thread.writer.take()
        && thread.image == own
        && writer.is_of(region, (thread.tid, own))
    {
        // Of a thread that ended; this one has got its memory.
        writer.close(region);
    }
    let ids = RingIds {
        pid: PID.load(Ordering::Relaxed),
        tid,
        image: own,
        parent: PARENT_IMAGE.load(Ordering::Relaxed),
    };
    let claim = |may_map| Writer::claim(region, ids, layout, stamp(), may_map);
    let writer = gates::calling(thread, || claim(true)).unwrap_or_else(|| claim(false))?;
    thread.writer = Some(writer);
    thread.image = own;
    thread.layout = layout;
    thread.tid = tid;
    Some(writer)
}

/// Whether there is room for a record; where everything is to be told it is waited for, for a moment.
fn room(region: &Region, thread: &mut Thread, writer: Writer, words: usize) -> bool {
    if writer.room(region) >= words {
        return true;
    }
    for _ in 0..NAPS {
        if !region.waits() || gates::calling(thread, nap).is_none() {
            return false;
        }
        thread.waited = true;
        if writer.room(region) >= words {
            return true;
        }
    }
    // Nobody makes room: who comes next does not wait.
    region.hurry(true);
    false
}

/// Sleeps 100 µs.
fn nap() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 100_000,
    };
    // SAFETY: reads one structure, which lives through the call; the rest is not asked for.
    unsafe {
        kernel::call(
            libc::SYS_nanosleep,
            [&raw const time as usize, 0, 0, 0, 0, 0],
        )
    };
}

/// Runs `tell` with this thread's ring, unless the thread is in here already.
fn within(tell: impl FnOnce(&Region, &mut Thread, Writer) -> bool) {
    let began = stamp();
    let told = with_ring(|region, thread, writer| {
        // Where nobody reads nothing is looked at.
        if !room(region, thread, writer, LEAST) || !tell(region, thread, writer) {
            writer.lose(region);
        }
        let ticks = stamp().wrapping_sub(began);
        // A thread that was put off its CPU meanwhile did not spend that time here.
        let longest = if thread.waited { u64::MAX } else { LONGEST };
        thread.waited = false;
        writer.spend(region, ticks.min(longest));
    });
    if !told {
        region().lose(control_block() >> 12);
    }
}

/// Runs `act` with this thread's ring; false if it has none, or is in here already. Where nothing is recorded any more
/// nothing is to be done.
pub(crate) fn with_ring(act: impl FnOnce(&Region, &mut Thread, Writer)) -> bool {
    let region = region();
    if region.detached() {
        TOLD.store(null_mut(), Ordering::Release);
        return true;
    }
    let thread = this();
    // SAFETY: null, or this thread's own state. A signal handler that comes now sees `busy` and leaves the rest alone.
    unsafe {
        if thread.is_null() || (*thread).busy != 0 {
            return false;
        }
        (*thread).busy = 1;
    }
    compiler_fence(Ordering::SeqCst);
    let has_ring = {
        // SAFETY: nobody else uses it while `busy` is set.
        let thread = unsafe { &mut *thread };
        let writer = ring(region, thread);
        writer.map(|writer| act(region, thread, writer)).is_some()
    };
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { (*thread).busy = 0 };
    has_ring
}

/// A block was allocated by the caller of the hook whose frame this is.
///
/// # Safety
/// `frame` is the calling hook's.
#[inline(always)]
pub(crate) unsafe fn allocated(
    thread: *mut Thread,
    block: *mut c_void,
    size: usize,
    from: AllocatorCode,
    frame: Frame,
) {
    if block.is_null() {
        return;
    }
    if thread.is_null() {
        if told().is_some() {
            region().lose(control_block() >> 12);
        }
        return;
    }
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
    if region().tells_only_marks() {
        let thread = this();
        if !thread.is_null() {
            // SAFETY: this thread's own state. No block is asked about again.
            unsafe { (*thread).countdown = i64::MAX };
        }
        return;
    }
    let when = stamp_after();
    within(|region, thread, writer| {
        let interval = if thread.countdown <= 0 {
            // The distance to this block was drawn with the mean of the last draw.
            let interval =
                core::mem::replace(&mut thread.interval, region.interval(writer.room(region)));
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
    let ring = writer.index();
    let tid = thread::number();
    // SAFETY: the caller's promise.
    let mut walked = unsafe { walk(region, thread, (ring, layout), tid, frame) };
    if writer.room(region) < RING_WORDS / 2 && !region.waits() {
        // The collector is behind: rather a short stack now than a wait for room. It finds the rule that was missing,
        // so that the next stack is longer.
        walked.end();
    }
    let frames = walked.frames();
    let words = 8 + frames.len();
    let Some(at) = walked.missing else {
        let key = walked.key;
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
    // SAFETY: the caller's promise; the walk ended there.
    let (first, more) = unsafe { slice(thread, ring, tid, (frame, at.sp)) };
    thread.serial = thread.serial.wrapping_add(1);
    let key = 1 << 63 | u64::from(thread.tid) << 32 | u64::from(thread.serial);
    let upper = frames.len() as u32 | layout << 16;
    let header = (RecordKind::Slice, AllocatorCode::Malloc, upper);
    let registers = [key, at.ip, at.sp, at.bp];
    (room(region, thread, writer, words + first.len() + more.len())
        && writer.write(region, header, &[&registers, frames, first, more]))
    .then_some(key)
}

/// Tells what the key of a label stands for, if it is not known.
fn tell_label(region: &Region, thread: &mut Thread, writer: Writer, label: &[u8]) -> bool {
    region.is_known(key_of_bytes(label))
        || room(region, thread, writer, 2 + LABEL_WORDS) && write_label(region, writer, label)
}

/// Writes what the key of a label stands for, if there is room for it.
pub(crate) fn write_label(region: &Region, writer: Writer, label: &[u8]) -> bool {
    let key = key_of_bytes(label);
    let mut words = [0_u64; LABEL_WORDS];
    for (word, bytes) in words.iter_mut().zip(label.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
    let header = (RecordKind::Label, AllocatorCode::Pool, label.len() as u32);
    let words = words.get(..label.len().div_ceil(8)).unwrap_or(&words);
    let told = writer.write(region, header, &[&[key], words]);
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
pub(crate) fn about_to_free(thread: *mut Thread, block: *mut c_void) -> Option<u64> {
    let key = block_key(block as u64);
    forget_last(thread);
    let Some(told) = told() else {
        // SAFETY: this thread's own state.
        if thread.is_null() || unsafe { (*thread).ending } != block as u64 {
            tell_traced(TracedKind::Free, block as u64, 0);
        }
        return None;
    };
    (told.may_know(key) && forget(told, key)).then(stamp)
}

/// The block that the calling thread allocated last; null: none, or it has freed since.
#[inline(always)]
pub(crate) fn last(thread: *mut Thread) -> *mut c_void {
    if thread.is_null() {
        return null_mut();
    }
    // SAFETY: this thread's own state.
    unsafe { (*thread).last as *mut c_void }
}

/// From now on [`last`] is none.
#[inline(always)]
pub(crate) fn forget_last(thread: *mut Thread) {
    if !thread.is_null() {
        // SAFETY: this thread's own state.
        unsafe { (*thread).last = 0 };
    }
}

/// From now on the calling thread ends this block, whose end was told; which one it was before.
#[inline(always)]
pub(crate) fn ending(thread: *mut Thread, block: *mut c_void) -> *mut c_void {
    if thread.is_null() {
        return null_mut();
    }
    // SAFETY: this thread's own state.
    unsafe { core::mem::replace(&mut (*thread).ending, block as u64) as *mut c_void }
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
        tell_end(
            block as u64,
            block_key(block as u64),
            when,
            RecordKind::Free,
        );
    }
}

/// A block that was about to be freed was not.
#[cold]
pub(crate) fn kept(block: *mut c_void, when: Option<u64>) {
    if let (Some(told), Some(_)) = (told(), when) {
        told.note(block_key(block as u64));
    }
}

/// Tells of an end. Where there is no room the key is noted again, so that the next end at that address is told.
#[cold]
#[inline(never)]
fn tell_end(address: u64, key: u64, when: u64, kind: RecordKind) {
    let mut is_told = false;
    within(|region, thread, writer| {
        let header = (kind, AllocatorCode::Malloc, 0);
        is_told =
            room(region, thread, writer, 3) && writer.write(region, header, &[&[when, address]]);
        is_told
    });
    if let (false, Some(set)) = (is_told, told()) {
        set.note(key);
    }
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
    if region().tells_only_marks() {
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
    if thread.is_null() {
        return region().lose(control_block() >> 12);
    }
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
        tell_end(object as u64, key, when, RecordKind::Unname);
    }
}
