//! The places of threads in the order that is made.

use std::sync::atomic::Ordering;

use super::Region;
use super::layout::{TURNS, TURNS_OFFSET};
use super::naming::pid_namespace;
use super::turn::{CLAIMED, NONE, Turn};

impl Region {
    /// All places.
    fn all_turns(&self) -> &[Turn] {
        // SAFETY: inside the mapping by its layout, which is aligned for it; atomics, for which any bytes are valid.
        unsafe { std::slice::from_raw_parts(self.0.at(TURNS_OFFSET), TURNS) }
    }

    /// Those that were ever in use.
    pub(crate) fn turns(&self) -> &[Turn] {
        let used = self.header().turns_used.load(Ordering::SeqCst) as usize;
        &self.all_turns()[..used.min(TURNS)]
    }

    /// A place that nobody has, for a thread of this process, which has this image; `None` if there is none.
    pub(crate) fn claim_turn(&self, image: u32) -> Option<&Turn> {
        let all = self.all_turns();
        let claims = |turn: &Turn| {
            turn.state.load(Ordering::Relaxed) == NONE
                && turn
                    .state
                    .compare_exchange(NONE, CLAIMED, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
        };
        let at = all.iter().position(claims)?;
        let turn = &all[at];
        turn.pid.store(std::process::id(), Ordering::Relaxed);
        turn.namespace.store(pid_namespace(), Ordering::Relaxed);
        turn.image.store(image, Ordering::Relaxed);
        for word in [
            &turn.requests,
            &turn.on,
            &turn.dozes,
            &turn.owner,
            &turn.tid,
            &turn.sleep,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            &turn.limit,
            &turn.asked_at,
            &turn.asked_until,
            &turn.asked_before,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        turn.cpu.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.header()
            .turns_used
            .fetch_max(at as u32 + 1, Ordering::SeqCst);
        Some(turn)
    }

    /// The threads of an address space that is not used any more hold nobody back.
    pub fn free_turns(&self, image: u32) {
        let of_it = |turn: &&Turn| turn.image.load(Ordering::Relaxed) == image;
        self.turns().iter().filter(of_it).for_each(Turn::leaves);
    }

    /// Likewise of what this process was before it executed another program.
    pub(crate) fn free_own_turns(&self) {
        let (pid, namespace) = (std::process::id(), pid_namespace());
        let mine = |turn: &&Turn| {
            turn.pid.load(Ordering::Relaxed) == pid
                && turn.namespace.load(Ordering::Relaxed) == namespace
        };
        self.turns().iter().filter(mine).for_each(Turn::leaves);
    }
}
