//! Says for whom a thread works, and at which step of the work it is, so that linewise tells its samples apart by that: what
//! `linewise.h` is for C.
//!
//! ```
//! use linewise_mark::{phase, session};
//!
//! fn serve(connection: u64) {
//!     let _session = session(connection, c"connection");
//!     {
//!         let _phase = phase(c"parse");
//!         // ...
//!     }
//!     let _phase = phase(c"reply");
//!     // ...
//! }
//! # serve(7);
//! ```
//!
//! A guard that is dropped gives the thread back to the session or phase around it. Guards stay on their thread; what is polled
//! by several ([`in_session`]) works for its session while it is polled.
//!
//! The functions are found once, by name, in the recorder that linewise loads into the process. Where there is none each
//! call is a load and a branch.

#![warn(clippy::too_many_lines)]
#![expect(unsafe_code, reason = "calls functions that are found by their names")]
#![deny(unsafe_op_in_unsafe_fn)]

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

/// What a recorder defines.
struct Recorder {
    session_begins: unsafe extern "C" fn(u64, *const c_char),
    session_ends: unsafe extern "C" fn(),
    phase_begins: unsafe extern "C" fn(*const c_char),
    phase_ends: unsafe extern "C" fn(),
}

#[inline]
fn recorder() -> Option<&'static Recorder> {
    static RECORDER: OnceLock<Option<Recorder>> = OnceLock::new();
    RECORDER.get_or_init(find).as_ref()
}

#[cfg(not(test))]
fn find() -> Option<Recorder> {
    let symbol = |name: &CStr| {
        // SAFETY: looks a name up.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let session_begins = symbol(c"linewise_session_begins")?;
    let session_ends = symbol(c"linewise_session_ends")?;
    let phase_begins = symbol(c"linewise_phase_begins")?;
    let phase_ends = symbol(c"linewise_phase_ends")?;
    // SAFETY: who defines these gives them the types that `linewise.h` declares.
    unsafe {
        Some(Recorder {
            session_begins: std::mem::transmute::<
                *mut libc::c_void,
                unsafe extern "C" fn(u64, *const c_char),
            >(session_begins),
            session_ends: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn()>(
                session_ends,
            ),
            phase_begins: std::mem::transmute::<
                *mut libc::c_void,
                unsafe extern "C" fn(*const c_char),
            >(phase_begins),
            phase_ends: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn()>(
                phase_ends,
            ),
        })
    }
}

thread_local! {
    /// What this thread is in, as far as guards have told.
    static SESSION: Cell<Option<(u64, &'static CStr)>> = const { Cell::new(None) };
    static PHASE: Cell<Option<&'static CStr>> = const { Cell::new(None) };
}

fn tell_session(recorder: &Recorder, session: Option<(u64, &'static CStr)>) {
    // SAFETY: the name lives for ever.
    unsafe {
        match session {
            Some((id, name)) => (recorder.session_begins)(id, name.as_ptr()),
            None => (recorder.session_ends)(),
        }
    }
}

fn tell_phase(recorder: &Recorder, phase: Option<&'static CStr>) {
    // SAFETY: likewise.
    unsafe {
        match phase {
            Some(name) => (recorder.phase_begins)(name.as_ptr()),
            None => (recorder.phase_ends)(),
        }
    }
}

/// A session that the thread works for until this is dropped.
#[derive(Debug)]
#[must_use = "the session ends when this is dropped"]
pub struct Session {
    /// The session around it; the outer `None`: nobody records.
    before: Option<Option<(u64, &'static CStr)>>,
    of_this_thread: PhantomData<*const ()>,
}

/// A phase that the thread is in until this is dropped.
#[derive(Debug)]
#[must_use = "the phase ends when this is dropped"]
pub struct Phase {
    /// The phase around it; the outer `None`: nobody records.
    before: Option<Option<&'static CStr>>,
    of_this_thread: PhantomData<*const ()>,
}

/// From now on this thread works for session `id`: a connection, a request, a user. Sessions of a kind have one name.
#[inline]
pub fn session(id: u64, name: &'static CStr) -> Session {
    let before = recorder().map(|recorder| {
        tell_session(recorder, Some((id, name)));
        SESSION.replace(Some((id, name)))
    });
    Session {
        before,
        of_this_thread: PhantomData,
    }
}

/// From now on this thread is in the phase of this name.
#[inline]
pub fn phase(name: &'static CStr) -> Phase {
    let before = recorder().map(|recorder| {
        tell_phase(recorder, Some(name));
        PHASE.replace(Some(name))
    });
    Phase {
        before,
        of_this_thread: PhantomData,
    }
}

impl Drop for Session {
    #[inline]
    fn drop(&mut self) {
        if let (Some(before), Some(recorder)) = (self.before, recorder()) {
            tell_session(recorder, before);
            SESSION.set(before);
        }
    }
}

impl Drop for Phase {
    #[inline]
    fn drop(&mut self) {
        if let (Some(before), Some(recorder)) = (self.before, recorder()) {
            tell_phase(recorder, before);
            PHASE.set(before);
        }
    }
}

/// A future whose threads work for its session while they poll it.
#[derive(Debug)]
pub struct InSession<F> {
    id: u64,
    name: &'static CStr,
    future: F,
}

/// Has `future` work for session `id` wherever it is polled, as by the workers of an async runtime.
///
/// ```
/// async fn serve(connection: u64) { /* ... */ }
///
/// let task = linewise_mark::in_session(7, c"connection", serve(7));
/// // tokio::spawn(task);
/// # drop(task);
/// ```
pub fn in_session<F: Future>(id: u64, name: &'static CStr, future: F) -> InSession<F> {
    InSession { id, name, future }
}

impl<F: Future> Future for InSession<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _session = session(self.id, self.name);
        // SAFETY: the future is never moved out of what is pinned.
        let future = unsafe { self.map_unchecked_mut(|it| &mut it.future) };
        future.poll(context)
    }
}

#[cfg(test)]
use tests::find;

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static TOLD: Cell<Vec<String>> = const { Cell::new(Vec::new()) };
    }

    fn tell(what: String) {
        let mut told = TOLD.take();
        told.push(what);
        TOLD.set(told);
    }

    fn text(name: *const c_char) -> String {
        // SAFETY: of this crate's calls.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_string_lossy().into_owned()
    }

    unsafe extern "C" fn session_begins(id: u64, name: *const c_char) {
        tell(format!("{} {id}", text(name)));
    }

    unsafe extern "C" fn session_ends() {
        tell("no session".to_owned());
    }

    unsafe extern "C" fn phase_begins(name: *const c_char) {
        tell(text(name));
    }

    unsafe extern "C" fn phase_ends() {
        tell("no phase".to_owned());
    }

    #[expect(clippy::unnecessary_wraps, reason = "stands in for what looks")]
    pub(super) fn find() -> Option<Recorder> {
        Some(Recorder {
            session_begins,
            session_ends,
            phase_begins,
            phase_ends,
        })
    }

    #[test]
    fn what_ends_gives_the_thread_back_to_what_was_around_it() {
        {
            let _session = session(7, c"connection");
            let _outer = phase(c"serve");
            {
                let _inner = phase(c"parse");
            }
            let _other = session(8, c"connection");
        }
        assert_eq!(
            TOLD.take(),
            [
                "connection 7",
                "serve",
                "parse",
                "serve",
                "connection 8",
                "connection 7",
                "no phase",
                "no session",
            ]
        );
    }

    #[test]
    fn a_future_is_in_its_session_while_it_is_polled() {
        let mut polls = 0;
        let future = std::future::poll_fn(|_| {
            polls += 1;
            tell(format!("poll {polls}"));
            match polls {
                1 => Poll::Pending,
                _ => Poll::Ready(polls),
            }
        });
        let mut task = std::pin::pin!(in_session(7, c"request", future));
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(task.as_mut().poll(&mut context).is_pending());
        assert_eq!(task.as_mut().poll(&mut context), Poll::Ready(2));
        let expected = ["request 7", "poll 1", "no session"];
        let expected = expected
            .into_iter()
            .chain(["request 7", "poll 2", "no session"]);
        assert!(TOLD.take().iter().eq(expected));
    }
}
