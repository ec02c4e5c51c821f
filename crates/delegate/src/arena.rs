//! The memory of a shard: one reserved range whose values are named by 32-bit offsets.
//!
//! An offset is four bytes of a request where a pointer is eight, and needs no table to be resolved.
//! Pages are touched first by the thread that serves the shard, so the kernel puts them on its NUMA
//! node.

use std::alloc::Layout;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::error::Error;
use crate::panics::quietly;
use crate::room::Room;

/// Bytes that one step of an offset stands for.
pub(crate) const UNIT: usize = 16;
/// The most bytes that offsets can name.
pub(crate) const MOST_BYTES: usize = UNIT << 32;
/// What is still useful where the system refuses more.
const LEAST_BYTES: usize = 1 << 20;

/// What goes back to the system when so many bytes are freed at once: it would cost the next value a
/// page fault otherwise.
const GIVEN_BACK_BYTES: usize = 128 << 10;
/// The kernel's pages are at least as large, and what is no multiple of them is refused.
const PAGE: usize = 64 << 10;

/// Units that a layout takes; an offset is needed also for nothing.
fn units(layout: Layout) -> usize {
    layout.size().max(1).div_ceil(UNIT)
}

/// How to end the life of what begins at an offset.
#[derive(Clone, Copy, Debug)]
struct Ending {
    drop: unsafe fn(*mut u8, usize),
    count: usize,
}

/// A reserved range of memory and what lives in it.
#[derive(Debug)]
pub(crate) struct Arena {
    base: *mut u8,
    bytes: usize,
    room: Room,
    endings: HashMap<u32, Ending>,
}

// SAFETY: the arena owns its memory, and the values in it are `Send` (the constructors of `Owned`
// demand it).
unsafe impl Send for Arena {}

impl Arena {
    /// Reserves `bytes`, or less where the system refuses (halved down to a mebibyte). Nothing is
    /// touched.
    pub(crate) fn reserve(bytes: usize) -> Result<Self, Error> {
        let mut bytes = bytes.clamp(LEAST_BYTES, MOST_BYTES);
        loop {
            if let Some(base) = memory::map(bytes) {
                return Ok(Self {
                    base,
                    bytes,
                    room: Room::new(bytes / UNIT),
                    endings: HashMap::new(),
                });
            }
            if bytes <= LEAST_BYTES {
                return Err(Error::System {
                    what: "reserving memory for a shard",
                    why: std::io::Error::last_os_error().to_string(),
                });
            }
            bytes = (bytes / 2).max(LEAST_BYTES);
        }
    }

    /// Where offsets count from.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// The value at `offset`.
    pub(crate) fn at<T>(&self, offset: u32) -> *mut T {
        self.base.wrapping_add(offset as usize * UNIT).cast()
    }

    /// Bytes up to the last that is handed out, free ones between included.
    pub(crate) fn used(&self) -> usize {
        self.room.used() * UNIT
    }

    /// Room for `layout`, as an offset in [`UNIT`]s.
    fn allocate(&mut self, layout: Layout) -> Result<u32, Error> {
        // The base is aligned to pages, and so is what is aligned to more than a unit, up to that.
        let room = (layout.align() <= 4096)
            .then(|| self.room.take(units(layout), layout.align().div_ceil(UNIT)));
        let start = room.flatten().ok_or(Error::Full { bytes: self.bytes })?;
        Ok(start as u32)
    }

    /// Takes the room at `offset` back. What is beyond a few pages goes back to the system.
    fn release(&mut self, offset: u32, layout: Layout) {
        let (start, count) = (offset as usize, units(layout));
        let free = self.room.give(start, count);
        if count * UNIT >= GIVEN_BACK_BYTES {
            // With the pages that it shares with what was free before.
            let start = (free.start * UNIT).max((start * UNIT).saturating_sub(PAGE));
            let end = (free.end * UNIT).min((offset as usize + count) * UNIT + PAGE);
            let (start, end) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
            if start < end {
                // SAFETY: whole pages of our mapping, which nothing alive lies in.
                unsafe { memory::forget(self.base.add(start), end - start) };
            }
        }
    }

    /// Builds `count` values side by side and returns the offset of the first. Each goes to its place as
    /// soon as `build` has returned it; there `begin` gets it. Both run here, on the thread that serves the
    /// shard. If one panics, what was built is dropped.
    pub(crate) fn build<T>(
        &mut self,
        count: usize,
        mut build: impl FnMut(usize) -> T,
        mut begin: impl FnMut(usize, &mut T),
    ) -> Result<u32, Error> {
        let layout = layout::<T>(count).ok_or(Error::Full { bytes: self.bytes })?;
        let offset = self.allocate(layout)?;
        let start = self.at::<T>(offset);
        let built = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = Building { start, built: 0 };
            for index in 0..count {
                let value = build(index);
                // SAFETY: the offset was given out for `count` values, of which this one is not there yet; nobody
                // else knows of it.
                let placed = unsafe {
                    let place = start.add(index);
                    place.write(value);
                    &mut *place
                };
                guard.built += 1;
                begin(index, placed);
            }
            std::mem::forget(guard);
        }));
        if let Err(payload) = built {
            self.release(offset, layout);
            resume_unwind(payload);
        }
        if std::mem::needs_drop::<T>() && count > 0 {
            let drop = drop_values::<T>;
            self.endings.insert(offset, Ending { drop, count });
        }
        Ok(offset)
    }

    /// Drops what begins at `offset` and gives its room back. The caller made it with [`build`] and
    /// the same layout, and lets nobody use it again.
    ///
    /// [`build`]: Arena::build
    pub(crate) fn end(&mut self, offset: u32, layout: Layout) {
        if let Some(ending) = self.endings.remove(&offset) {
            self.run(offset, ending);
        }
        self.release(offset, layout);
    }

    /// Takes the values at `offset` out and gives their room back.
    ///
    /// # Safety
    /// [`build`](Arena::build) made `count` values of this type there, and nobody uses them in their place
    /// again.
    pub(crate) unsafe fn take<T>(&mut self, offset: u32, count: usize) -> Vec<T> {
        let mut values = Vec::with_capacity(count);
        // They end where they go.
        self.endings.remove(&offset);
        // SAFETY: the contract; there is room for so many, and those in the arena are not used again.
        unsafe {
            self.at::<T>(offset)
                .copy_to_nonoverlapping(values.as_mut_ptr(), count);
            values.set_len(count);
        }
        self.release(offset, layout::<T>(count).expect("as when they were built"));
        values
    }

    fn run(&self, offset: u32, ending: Ending) {
        // A panicking destructor must not take the server down; it has no caller to tell.
        quietly(|| {
            // SAFETY: `build` wrote `count` values there, and each ending is taken out before it runs.
            unsafe { (ending.drop)(self.base.add(offset as usize * UNIT), ending.count) }
        });
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for (offset, ending) in std::mem::take(&mut self.endings) {
            self.run(offset, ending);
        }
        // SAFETY: mapped in `reserve`, and nothing of it is named after this.
        unsafe { memory::unmap(self.base, self.bytes) };
    }
}

/// Memory from the kernel, of which nothing is taken before it is touched.
#[cfg(not(miri))]
mod memory {
    const HUGE_PAGE: usize = 2 << 20;

    /// A fresh range of so many bytes, or `None` if the system refuses.
    pub(super) fn map(bytes: usize) -> Option<*mut u8> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing of ours; it
        // is asked about itself only where it is there.
        let base = unsafe {
            let base = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            // A value's neighbours are used by the same thread, so large pages cost nothing and save table
            // walks. A refusal is no error.
            if base != libc::MAP_FAILED && bytes >= HUGE_PAGE {
                libc::madvise(base, bytes, libc::MADV_HUGEPAGE);
            }
            base
        };
        (base != libc::MAP_FAILED).then_some(base.cast())
    }

    /// Gives the memory of whole pages back; they stay mapped.
    ///
    /// # Safety
    /// Pages of what [`map`] gave, with nothing in them.
    pub(super) unsafe fn forget(start: *mut u8, bytes: usize) {
        // SAFETY: the contract. A refusal only keeps the memory.
        let _ = unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) };
    }

    /// # Safety
    /// What [`map`] gave, with its size, used no more.
    pub(super) unsafe fn unmap(base: *mut u8, bytes: usize) {
        // SAFETY: the contract.
        unsafe { libc::munmap(base.cast(), bytes) };
    }
}

/// Memory from the allocator: Miri knows no mapping without reservation.
#[cfg(miri)]
mod memory {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 4096).expect("a size that exists")
    }

    pub(super) fn map(bytes: usize) -> Option<*mut u8> {
        // SAFETY: not of size zero.
        let base = unsafe { alloc_zeroed(layout(bytes)) };
        (!base.is_null()).then_some(base)
    }

    pub(super) unsafe fn forget(_: *mut u8, _: usize) {}

    pub(super) unsafe fn unmap(base: *mut u8, bytes: usize) {
        // SAFETY: the caller's: what `map` gave, with its size.
        unsafe { dealloc(base, layout(bytes)) };
    }
}

/// The layout of `count` values, or `None` if it exceeds the address space.
pub(crate) fn layout<T>(count: usize) -> Option<Layout> {
    Layout::array::<T>(count).ok()
}

/// # Safety
/// `pointer` begins `count` initialised values of `T` that nobody uses afterwards.
unsafe fn drop_values<T>(pointer: *mut u8, count: usize) {
    // SAFETY: the contract.
    unsafe { std::ptr::slice_from_raw_parts_mut(pointer.cast::<T>(), count).drop_in_place() }
}

/// Drops the first values if a later one panics while it is built.
struct Building<T> {
    start: *mut T,
    built: usize,
}

impl<T> Drop for Building<T> {
    fn drop(&mut self) {
        // SAFETY: exactly these were written.
        unsafe { std::ptr::slice_from_raw_parts_mut(self.start, self.built).drop_in_place() }
    }
}
