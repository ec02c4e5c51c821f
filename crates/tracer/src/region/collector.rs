//! Whether the collector is still there.
//!
//! A target must not wait for one that was killed. Its process id does not tell: ids are used again, a zombie has one,
//! and in another namespace of process ids, without `/proc` or as another user the target sees none of it. So the
//! collector's reading thread has the kernel mark a word of the shared memory when it ends, in whatever way: the
//! word is on the thread's list of robust futexes (get_robust_list(2)).

use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::Ordering;

use super::Region;
use super::naming::{pid_namespace, started};

/// linux/futex.h.
#[repr(C)]
#[derive(Debug)]
struct Node {
    next: *const Node,
}

/// linux/futex.h.
#[repr(C)]
#[derive(Debug)]
struct List {
    first: Node,
    /// From a node to its word.
    offset: libc::c_long,
    pending: *const Node,
}

/// What the kernel reads when the thread ends. It lies in memory of the collector's own: a list in the shared memory
/// could be written over.
#[derive(Debug)]
struct Robust {
    list: List,
    node: Node,
}

/// While this lives the target sees that somebody reads. It stays in the thread that made it.
#[derive(Debug)]
pub struct Hold {
    region: Region,
    _robust: Box<Robust>,
    /// The list of the C library's mutexes, which is the thread's otherwise.
    before: (*mut libc::c_void, usize),
    /// Neither `Send` nor `Sync`: the list is the thread's.
    _here: PhantomData<*const ()>,
}

impl Region {
    /// Lets the target notice when this thread ends without having let go. The thread must not use robust mutexes of
    /// the C library meanwhile.
    ///
    /// # Errors
    /// The kernel's, none of which is expected.
    pub fn hold(&self) -> io::Result<Hold> {
        let word = ptr::from_ref(&self.header().holder);
        let mut robust = Box::new(Robust {
            list: List {
                first: Node { next: ptr::null() },
                offset: 0,
                pending: ptr::null(),
            },
            node: Node { next: ptr::null() },
        });
        robust.list.first.next = &raw const robust.node;
        robust.node.next = &raw const robust.list.first;
        let distance = (word as usize).wrapping_sub((&raw const robust.node) as usize);
        robust.list.offset = distance as libc::c_long;
        let mut before = (ptr::null_mut(), 0usize);
        // SAFETY: 0 is this thread; two words that live through the call.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_get_robust_list,
                0,
                &raw mut before.0,
                &raw mut before.1,
            )
        } != 0;
        if failed {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a list as the kernel wants it, which lives in its box until `Hold::drop` takes it back.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_set_robust_list,
                &raw const robust.list,
                size_of::<List>(),
            )
        } != 0;
        if failed {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: no arguments; it cannot fail.
        let thread = unsafe { libc::gettid() };
        self.header().holder.store(thread as u32, Ordering::SeqCst);
        Ok(Hold {
            region: self.clone(),
            _robust: robust,
            before,
            _here: PhantomData,
        })
    }

    /// Whether the collector ended without having let go, as far as that can be seen from here.
    pub(crate) fn collector_is_gone(&self) -> bool {
        let header = self.header();
        if header.holder.load(Ordering::Relaxed) & libc::FUTEX_OWNER_DIED != 0 {
            return true;
        }
        // The kernel could not read the list of one that it killed for want of memory.
        let space = header.collector_space.load(Ordering::Relaxed);
        let collector = header.collector.load(Ordering::Relaxed);
        if space == 0 || space != pid_namespace() || !proc_is_ours() {
            return false;
        }
        match started(collector) {
            Some(its) => its != header.collector_started.load(Ordering::Relaxed),
            None => is_missing(collector),
        }
    }
}

/// Whether `/proc` numbers processes as this one does.
fn proc_is_ours() -> bool {
    std::fs::read_link("/proc/self")
        .is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

fn is_missing(pid: u32) -> bool {
    // SAFETY: no signal is sent.
    let found = unsafe { libc::kill(pid as libc::pid_t, 0) } == 0;
    !found && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.region.detach();
        self.region.header().holder.store(0, Ordering::SeqCst);
        // SAFETY: the list that this thread had before, which is the C library's and lives as long as the thread.
        unsafe { libc::syscall(libc::SYS_set_robust_list, self.before.0, self.before.1) };
    }
}
