//! Tells whoever records which fibre's stack is where, through the functions that `linewise.h` declares: a
//! recorder that is loaded into the process defines them.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

type Begins = unsafe extern "C" fn(u64, *const c_char, *const c_void, *const c_void);
type Ends = unsafe extern "C" fn(u64);

struct Recorder {
    begins: Begins,
    ends: Ends,
}

fn recorder() -> Option<&'static Recorder> {
    static RECORDER: OnceLock<Option<Recorder>> = OnceLock::new();
    RECORDER.get_or_init(find).as_ref()
}

fn find() -> Option<Recorder> {
    // SAFETY: looks names up; those who define these give them the types that `linewise.h` declares.
    unsafe {
        let symbol = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let begins = symbol(c"linewise_session_begins");
        let ends = symbol(c"linewise_session_ends");
        (!begins.is_null() && !ends.is_null()).then(|| Recorder {
            begins: std::mem::transmute::<*mut c_void, Begins>(begins),
            ends: std::mem::transmute::<*mut c_void, Ends>(ends),
        })
    }
}

/// Whether somebody records. Then no stack's addresses are handed out twice.
#[inline]
pub(crate) fn is_heard() -> bool {
    recorder().is_some()
}

/// The session `id` begins on the stack from `low` to `high`.
#[cold]
pub(crate) fn begun(id: u64, name: Option<&str>, low: usize, high: usize) {
    let Some(recorder) = recorder() else { return };
    let name = CString::new(name.unwrap_or("fibre").replace('\0', "")).unwrap_or_default();
    let address = std::ptr::without_provenance::<c_void>;
    // SAFETY: the name lives over the call, which keeps none of its arguments.
    unsafe { (recorder.begins)(id, name.as_ptr(), address(low), address(high)) };
}

/// The session `id` ends.
#[cold]
pub(crate) fn ended(id: u64) {
    if let Some(recorder) = recorder() {
        // SAFETY: as above.
        unsafe { (recorder.ends)(id) };
    }
}
