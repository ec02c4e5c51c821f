//! What is known of this process: its collector, its image.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use linewise_cache::reuse::StratifiedUnits;

use super::api::Api;
use crate::region::Region;
use crate::words;

/// Everything that callbacks need and that is not in a ring's end.
pub(super) struct Process {
    pub(super) region: Region,
    pub(super) api: Api,
    /// The plugin, as QEMU names it.
    id: u64,
    /// QEMU was asked to forget it.
    let_go: AtomicBool,
    /// The address space, see `RingHeader::image`.
    pub(super) image: AtomicU32,
    pub(super) parent: AtomicU32,
    /// Units all accesses to which are told; `None` where no lines are left out.
    whole: Option<StratifiedUnits>,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

/// This process, once the plugin is installed.
#[inline]
pub(super) fn current() -> Option<&'static Process> {
    // SAFETY: null or leaked by `set`, never freed.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// Makes it known for good.
pub(super) fn set(id: u64, region: Region, api: Api, whole: Option<StratifiedUnits>) {
    let image = region.header().next_image.fetch_add(1, Ordering::Relaxed);
    let process = Box::new(Process {
        region,
        api,
        id,
        let_go: AtomicBool::new(false),
        image: AtomicU32::new(image),
        parent: AtomicU32::new(image),
        whole,
    });
    PROCESS.store(Box::into_raw(process), Ordering::Release);
}

impl Process {
    /// Whether lines that one thread alone touches are left out.
    pub(super) fn leaves_own(&self) -> bool {
        self.whole.is_some()
    }

    /// Whether all accesses to the line at `address` are told, whoever touches it.
    pub(super) fn tells_whole(&self, address: u64) -> bool {
        let space = u64::from(self.image.load(Ordering::Relaxed).min(u16::MAX.into()));
        let address = (space << words::ADDRESS_BITS) | (address & words::UNTOLD);
        self.whole
            .as_ref()
            .is_some_and(|units| units.any(address, 64))
    }

    /// Whether nobody reads any more.
    #[inline]
    pub(super) fn detached(&self) -> bool {
        self.region.is_detached()
    }

    /// The same after a look whether the collector is gone, of which all processes are told then.
    pub(super) fn looks_detached(&self) -> bool {
        if !self.detached() && self.region.collector_is_gone() {
            self.region.detach();
        }
        self.detached()
    }

    /// Lets the guest go on without being traced: has QEMU translate all code anew without the tracer, as soon as
    /// all of its threads stand still for a moment. Only in a thread that runs a virtual CPU, since QEMU queues that
    /// there.
    #[cold]
    pub(super) fn let_go(&self) {
        if let Some(reset) = self.api.reset
            // Blocks must not be thrown away in whose middle somebody goes on.
            && !somebody_sleeps()
            && !self.let_go.swap(true, Ordering::Relaxed)
        {
            // SAFETY: QEMU's function with the id that it gave, and a callback that does nothing.
            unsafe { reset(self.id, on_reset) };
        }
    }

    /// A forked child is an image of its own.
    pub(super) fn become_child(&self) {
        let parent = self.image.load(Ordering::Relaxed);
        let image = self
            .region
            .header()
            .next_image
            .fetch_add(1, Ordering::Relaxed);
        self.parent.store(parent, Ordering::Relaxed);
        self.image.store(image, Ordering::Relaxed);
    }
}

extern "C" fn on_reset(_id: u64) {}

/// Writes to standard error, unbuffered.
pub(super) fn say(text: &str) {
    // SAFETY: the bytes live through the call; if nobody hears it there is nobody to tell.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// Process and thread id.
pub(super) fn ids() -> (u64, u64) {
    // SAFETY: no arguments; both cannot fail.
    unsafe { (libc::getpid() as u64, libc::gettid() as u64) }
}

/// CLOCK_MONOTONIC in ns.
pub(super) fn monotonic_ns() -> u64 {
    time_ns(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// A clock in ns; `None` if there is none of that number.
pub(super) fn time_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    let failed = unsafe { libc::clock_gettime(clock, &mut now) } != 0;
    (!failed).then_some(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Threads that QEMU does not take for running though they will go on in the middle of a block.
pub(super) static ASLEEP: AtomicU32 = AtomicU32::new(0);

/// Whether some thread will go on in the middle of a block that QEMU does not take for running.
pub(super) fn somebody_sleeps() -> bool {
    ASLEEP.load(Ordering::SeqCst) != 0
}
