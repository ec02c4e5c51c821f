//! The C++ operators `new` and `delete` of the heap recorder, and what jemalloc and mimalloc have beside malloc, under their
//! own names.
//!
//! ```text
//! program ─ operator new ─► here ─ jump ─► liblinewise_preload.so ─► the allocator's operator new
//! ```
//!
//! jemalloc, tcmalloc and mimalloc define these operators beside malloc, and theirs do not call it. Elsewhere
//! they do, and who stands in front of malloc sees all. So this library is loaded, before the recorder, only
//! where such an allocator is loaded, too: there is a next definition then, and nothing changes for the others.
//!
//! Nothing happens here: each operator is a jump to the function of the recorder, which finds its caller's frame and
//! its caller's arguments as they were. The next definition after the *recorder* is none of these.

#![cfg_attr(feature = "bare", no_std)]
#![expect(unsafe_code, reason = "defines symbols of the C++ library")]

/// Exports `name`, a jump to `function` of the recorder.
macro_rules! operators {
    ($($name:ident => $function:literal;)+) => {$(
        /// The operator of this mangled name.
        ///
        /// # Safety
        /// As the operator.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(concat!("jmp ", $function, "@PLT"))
        }
    )+};
}

operators! {
    mallocx => "linewise_mallocx";
    rallocx => "linewise_rallocx";
    dallocx => "linewise_dallocx";
    sdallocx => "linewise_sdallocx";
    mi_malloc => "linewise_mi_malloc";
    mi_calloc => "linewise_mi_calloc";
    mi_realloc => "linewise_mi_realloc";
    mi_free => "linewise_mi_free";
    _Znwm => "linewise_Znwm";
    _Znam => "linewise_Znam";
    _ZnwmRKSt9nothrow_t => "linewise_ZnwmRKSt9nothrow_t";
    _ZnamRKSt9nothrow_t => "linewise_ZnamRKSt9nothrow_t";
    _ZnwmSt11align_val_t => "linewise_ZnwmSt11align_val_t";
    _ZnamSt11align_val_t => "linewise_ZnamSt11align_val_t";
    _ZnwmSt11align_val_tRKSt9nothrow_t => "linewise_ZnwmSt11align_val_tRKSt9nothrow_t";
    _ZnamSt11align_val_tRKSt9nothrow_t => "linewise_ZnamSt11align_val_tRKSt9nothrow_t";
    _ZdlPv => "linewise_ZdlPv";
    _ZdaPv => "linewise_ZdaPv";
    _ZdlPvm => "linewise_ZdlPvm";
    _ZdaPvm => "linewise_ZdaPvm";
    _ZdlPvRKSt9nothrow_t => "linewise_ZdlPvRKSt9nothrow_t";
    _ZdaPvRKSt9nothrow_t => "linewise_ZdaPvRKSt9nothrow_t";
    _ZdlPvSt11align_val_t => "linewise_ZdlPvSt11align_val_t";
    _ZdaPvSt11align_val_t => "linewise_ZdaPvSt11align_val_t";
    _ZdlPvmSt11align_val_t => "linewise_ZdlPvmSt11align_val_t";
    _ZdaPvmSt11align_val_t => "linewise_ZdaPvmSt11align_val_t";
    _ZdlPvSt11align_val_tRKSt9nothrow_t => "linewise_ZdlPvSt11align_val_tRKSt9nothrow_t";
    _ZdaPvSt11align_val_tRKSt9nothrow_t => "linewise_ZdaPvSt11align_val_tRKSt9nothrow_t";
}

/// Nothing here can panic.
#[cfg(feature = "bare")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
