//! What C passes in: older and newer versions of the structure, and functions of Rust's.

#![expect(unsafe_code, reason = "calls the functions as C does")]

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use linewise_fibres_c::error::{
    LINEWISE_FIBRES_ARGUMENT, LINEWISE_FIBRES_OK, LINEWISE_FIBRES_PANICKED,
    linewise_fibres_last_error,
};
use linewise_fibres_c::fibre::{
    linewise_fibres_join, linewise_fibres_pool_spawn, linewise_fibres_spawn_options,
    linewise_fibres_visit,
};
use linewise_fibres_c::runtime::{
    linewise_fibres_builder_open, linewise_fibres_builder_pool, linewise_fibres_close,
    linewise_fibres_pool, linewise_fibres_pool_close, linewise_fibres_runtime,
    linewise_fibres_runtime_pool, linewise_fibres_start,
};

fn last_error() -> String {
    // SAFETY: the text is valid until the next error.
    let text = unsafe { CStr::from_ptr(linewise_fibres_last_error()) };
    text.to_string_lossy().into_owned()
}

/// Calls `use_it` with a pool of one worker.
fn with_pool(use_it: impl FnOnce(*mut linewise_fibres_pool)) {
    let (mut builder, mut pool) = (null_mut(), null_mut());
    let mut runtime: *mut linewise_fibres_runtime = null_mut();
    // SAFETY: the handles are valid, and closed once.
    unsafe {
        let opened = linewise_fibres_builder_open(&raw mut builder);
        assert_eq!(opened, LINEWISE_FIBRES_OK);
        let added = linewise_fibres_builder_pool(builder, c"one".as_ptr(), 1);
        assert_eq!(added, LINEWISE_FIBRES_OK);
        let started = linewise_fibres_start(builder, &raw mut runtime);
        assert_eq!(started, LINEWISE_FIBRES_OK);
        let found = linewise_fibres_runtime_pool(runtime, c"one".as_ptr(), &raw mut pool);
        assert_eq!(found, LINEWISE_FIBRES_OK);
        use_it(pool);
        assert_eq!(linewise_fibres_pool_close(pool), LINEWISE_FIBRES_OK);
        assert_eq!(linewise_fibres_close(runtime), LINEWISE_FIBRES_OK);
    }
}

unsafe extern "C-unwind" fn same(argument: *mut c_void) -> *mut c_void {
    argument
}

unsafe extern "C-unwind" fn panics(_: *mut c_void) -> *mut c_void {
    std::panic::resume_unwind(Box::new("on purpose"))
}

/// A fibre that is joined: the code of the spawn, else that of the join.
fn spawn(
    pool: *mut linewise_fibres_pool,
    options: *const linewise_fibres_spawn_options,
    function: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
) -> i32 {
    let mut handle = null_mut();
    // SAFETY: the pool is valid, the options are as long as they say, the handle is joined once.
    unsafe {
        let to = &raw mut handle;
        match linewise_fibres_pool_spawn(pool, options, Some(function), null_mut(), to) {
            LINEWISE_FIBRES_OK => linewise_fibres_join(handle, null_mut()),
            code => code,
        }
    }
}

#[test]
fn the_options_have_no_hidden_padding() {
    assert_eq!(size_of::<linewise_fibres_spawn_options>(), 4 * 8);
}

#[test]
fn older_and_newer_options_are_taken_unless_they_ask_for_what_is_unknown() {
    #[repr(C)]
    struct Newer {
        known: linewise_fibres_spawn_options,
        unknown: u64,
    }
    let mut newer = Newer {
        known: linewise_fibres_spawn_options {
            size: size_of::<Newer>(),
            name: null(),
            stack_bytes: 0,
            roaming: 0,
        },
        unknown: 0,
    };
    with_pool(|pool| {
        let pointer = &raw const newer.known;
        assert_eq!(spawn(pool, pointer, same), LINEWISE_FIBRES_OK);
        // Beyond an older version's bytes, so that it is not seen.
        newer.known.size = 16;
        newer.known.stack_bytes = usize::MAX;
        assert_eq!(
            spawn(pool, &raw const newer.known, same),
            LINEWISE_FIBRES_OK
        );
        newer.known.size = size_of::<linewise_fibres_spawn_options>();
        let code = spawn(pool, &raw const newer.known, same);
        assert_eq!(code, LINEWISE_FIBRES_ARGUMENT);
        assert!(last_error().contains("1 GiB"), "{}", last_error());
        newer.known.stack_bytes = 0;
        newer.known.size = size_of::<Newer>();
        newer.unknown = 1;
        let code = spawn(pool, (&raw const newer).cast(), same);
        assert_eq!(code, LINEWISE_FIBRES_ARGUMENT);
        assert!(last_error().contains("does not know"), "{}", last_error());
    });
}

#[test]
fn a_panic_of_rust_is_a_code() {
    with_pool(|pool| {
        assert_eq!(spawn(pool, null(), panics), LINEWISE_FIBRES_PANICKED);
        assert_eq!(last_error(), "it panicked: on purpose");
        // SAFETY: the pool is valid.
        let code = unsafe { linewise_fibres_visit(pool, Some(panics), null_mut(), null_mut()) };
        assert_eq!(code, LINEWISE_FIBRES_PANICKED);
    });
}
