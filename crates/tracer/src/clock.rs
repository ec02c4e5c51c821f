//! The processor's time stamp: one instruction, the same on every CPU of the machine.

/// The time stamp counter now, in ticks of an unknown but constant rate.
///
/// On x86-64 this is `rdtsc`, on aarch64 the virtual counter. The kernel synchronises neither: that
/// they agree between CPUs is the hardware's promise (`constant_tsc`, `nonstop_tsc`), and is
/// measured in a test.
#[inline(always)]
#[must_use]
pub fn stamp() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a counter; no memory, no requirement.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: reads a counter that Linux lets user space read.
        unsafe {
            std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
        }
        ticks
    }
}

/// Like [`stamp`], but not before the instructions in front have been executed: for the accesses
/// that order threads.
#[inline(always)]
pub(crate) fn stamp_after() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a fence and a counter; no requirement.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier; no requirement.
    unsafe {
        std::arch::asm!("isb", options(nostack, preserves_flags));
    }
    stamp()
}
