//! Tells whoever records which fibre's stack is where: as an object with a name, by the functions that
//! `linewise.h` declares and a recorder that is loaded into the process defines.
//!
//! While it does, no stack's addresses are handed out twice, so that an address tells its session for the whole
//! run.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

type Begins = unsafe extern "C" fn(*const c_void, usize, *const c_char);
type Ends = unsafe extern "C" fn(*const c_void);

struct Recorder {
    begins: Begins,
    ends: Ends,
}

fn recorder() -> Option<&'static Recorder> {
    static RECORDER: OnceLock<Option<Recorder>> = OnceLock::new();
    RECORDER.get_or_init(find).as_ref()
}

fn find() -> Option<Recorder> {
    // SAFETY: looks names up; who defines these gives them the types that `linewise.h` declares.
    unsafe {
        let symbol = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let begins = symbol(c"linewise_object_begins");
        let ends = symbol(c"linewise_object_ends");
        (!begins.is_null() && !ends.is_null()).then(|| Recorder {
            begins: std::mem::transmute::<*mut c_void, Begins>(begins),
            ends: std::mem::transmute::<*mut c_void, Ends>(ends),
        })
    }
}

/// Whether somebody records.
pub(crate) fn is_heard() -> bool {
    recorder().is_some()
}

/// The session `id` begins on the stack of `bytes` from `low` on.
#[cold]
pub(crate) fn begun(id: u64, name: Option<&str>, low: usize, bytes: usize) {
    let Some(recorder) = recorder() else { return };
    let name = format!("session {id} {}", name.unwrap_or_default());
    let name = CString::new(name.trim_end().replace('\0', "")).unwrap_or_default();
    let low = std::ptr::without_provenance(low);
    // SAFETY: the name lives over the call, which keeps none of its arguments.
    unsafe { (recorder.begins)(low, bytes, name.as_ptr()) };
}

/// The session on the stack from `low` on ends.
#[cold]
pub(crate) fn ended(low: usize) {
    if let Some(recorder) = recorder() {
        // SAFETY: as above.
        unsafe { (recorder.ends)(std::ptr::without_provenance(low)) };
    }
}
