//! Fibres: many callers that wait for their answers, in one thread.

use std::ffi::c_void;

use linewise_delegate::Fibres;
use linewise_edge::Passed;

use crate::client::linewise_client;
use crate::error::{Failure, edge};
use crate::this_thread;

/// What a fibre runs. Its handle, for linewise_fibres_spawn, is valid while it runs.
pub type linewise_fibre =
    Option<unsafe extern "C-unwind" fn(fibres: *mut linewise_fibres, argument: *mut c_void)>;

/// A fibre that is there.
type Body = unsafe extern "C-unwind" fn(*mut linewise_fibres, *mut c_void);

/// A running fibre's way to spawn more.
pub struct linewise_fibres {
    fibres: *const Fibres<'static, 'static>,
    thread: u64,
}

/// Runs a fibre of C's.
fn enter(fibres: &Fibres<'_, 'static>, body: Body, argument: Passed) {
    let mut handle = linewise_fibres {
        fibres: std::ptr::from_ref(fibres).cast(),
        thread: this_thread(),
    };
    // SAFETY: who passed the function vouches for it; the handle lives through the call.
    unsafe { body(&raw mut handle, argument.get()) };
}

/// Runs `first` as a fibre, and those that it and they spawn, and returns when all have ended. In a
/// fibre, linewise_call, linewise_apply and linewise_call_batch let other fibres run until their
/// answers are there. A fibre has 256 KiB of stack, and must not close the client.
///
/// # Safety
/// `client` is a valid handle; the functions may be called in this thread with their arguments until
/// this returns. Fibres run between each other's waiting calls and end in any order, so none holds over
/// such a call what must nest in a thread: it is not in a catch block of C++, nor between setting a
/// thread's variable for a while and setting it back.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_run(
    client: *mut linewise_client,
    first: linewise_fibre,
    argument: *mut c_void,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let client = unsafe { linewise_client::of(client)? };
        let first = first.ok_or_else(|| Failure::null("first"))?;
        let argument = Passed(argument);
        let _use = client.fibres.enter()?;
        // SAFETY: the contract asks of all bodies what is asked here; `enter` leaves nothing in the thread.
        unsafe {
            let fibres = client.get();
            fibres.fibres(move |fibres| enter(fibres, first, argument))?;
        }
        Ok(())
    })
}

/// Adds a fibre that runs `body`. It begins when the running fibre waits or ends.
///
/// # Safety
/// `fibres` is the handle of the running fibre; `body` may be called in this thread with `argument`
/// until linewise_fibres_run returns, and holds over its waiting calls what is said there.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_spawn(
    fibres: *mut linewise_fibres,
    body: linewise_fibre,
    argument: *mut c_void,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let fibres = unsafe { fibres.as_ref() }.ok_or_else(|| Failure::null("fibres"))?;
        let body = body.ok_or_else(|| Failure::null("body"))?;
        if fibres.thread != this_thread() {
            return Err(Failure::thread());
        }
        let argument = Passed(argument);
        // SAFETY: the fibre that got the handle runs, so the fibres are there.
        unsafe { &*fibres.fibres }.spawn(move |fibres| enter(fibres, body, argument));
        Ok(())
    })
}
