//! Waiting on futexes, in the made order.
//!
//! Whom the kernel wakes, and when he runs again, is the machine's. So a thread that waits on a futex notes that with its
//! [turn](Turn), at its turn, and sleeps there; who wakes him, at its own turn, sets his clock. Then the call goes to
//! the kernel, which finds that the word has changed. A word that has not changed is waited for again, as the kernel would if the
//! wait had come later than the wake. Who waits with a time limit waits in the kernel.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::exec::peek;
use super::{order, process, shared};
use crate::region::{RESTS, Turn, futex_wait, futex_wake};

/// How often a sleeper looks whether anybody is there to wake it.
const LOOK: Duration = Duration::from_millis(20);
/// After so many looks it sleeps in the kernel: there a signal that came in the meantime is seen. Where the word has changed it looks
/// as often again, since somebody is about to wake it.
const LOOKS: u32 = 50;
/// Where that may be a process that is not traced, and wakes nobody here.
const LOOKS_AT_OTHERS: u32 = 5;
/// How long who wakes another that the kernel has to wake waits for it to be there.
const PATIENCE: u32 = 20_000;

/// In [`Turn::sleep`]: it does not wait on a futex, or has been woken.
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
/// It sleeps in the kernel.
const IN_KERNEL: u32 = 2;
/// It is just being woken.
const WAKING: u32 = 3;
/// It is to sleep in the kernel, whence its waker wakes it at once.
const TO_KERNEL: u32 = 4;

/// What names a futex: its process's image and address, or device, inode and place of what is behind it.
type Name = [u64; 3];
/// In the place of a device.
const OF_A_PROCESS: u64 = u64::MAX;

/// A futex, for threads of this process alone or for all that have its memory.
#[derive(Clone, Copy)]
pub(super) struct Futex {
    address: u64,
    name: Name,
    for_others: bool,
}

impl Futex {
    /// That at an address, for this process alone if that is said to be so.
    pub(super) fn at(address: u64, private: bool) -> Self {
        let home = (!private).then(|| shared::home(address)).flatten();
        let image = process::current().map_or(0, |it| it.image.load(Ordering::Relaxed));
        Self {
            address,
            name: home.unwrap_or([OF_A_PROCESS, image.into(), address]),
            for_others: home.is_some(),
        }
    }

    fn value(&self) -> Option<u32> {
        let mut bytes = [0; 4];
        (peek(self.address, &mut bytes) == 4).then(|| u32::from_le_bytes(bytes))
    }
}

/// A thread, at its turn, waits while a word has a value; it is back at its turn, or may have to wait in the kernel, which is
/// `true`.
pub(super) fn waits(me: &Turn, futex: &Futex, expected: u32, bits: u32) -> bool {
    let most_changed = match futex.for_others {
        true => LOOKS_AT_OTHERS,
        false => LOOKS,
    };
    while futex.value() == Some(expected) {
        for (place, part) in me.futex.iter().zip(futex.name) {
            place.store(part, Ordering::Relaxed);
        }
        me.address.store(futex.address, Ordering::Relaxed);
        me.since
            .store(me.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        me.expected.store(expected, Ordering::Relaxed);
        me.bits.store(bits, Ordering::Relaxed);
        me.sleep.store(ASLEEP, Ordering::SeqCst);
        me.rests();
        let (mut looks, mut changed) = (0, 0);
        loop {
            let sleep = me.sleep.load(Ordering::SeqCst);
            if !matches!(sleep, ASLEEP | WAKING) {
                break;
            }
            let interrupted = futex_wait(&me.sleep, sleep, LOOK);
            looks += 1;
            changed += u32::from(futex.value() != Some(expected));
            let is_alone = changed >= most_changed || changed == 0 && looks >= LOOKS;
            let detached = process::current().is_none_or(process::Process::detached);
            let goes = interrupted || detached || is_alone;
            // Who was waking it may be dead.
            let is_left = looks > 2 * LOOKS && changes(me, WAKING, IN_KERNEL);
            if is_left || goes && changes(me, ASLEEP, IN_KERNEL) {
                return true;
            }
        }
        if me.sleep.load(Ordering::SeqCst) == TO_KERNEL {
            return false;
        }
        me.takes_turn(false);
    }
    false
}

fn changes(turn: &Turn, from: u32, to: u32) -> bool {
    turn.sleep
        .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
}

/// Waits for a word to lose a value, for some milliseconds.
pub(super) fn changes_soon(futex: &Futex, expected: u32) -> bool {
    const LOOKS: u32 = 100;
    (0..LOOKS).any(|look| {
        if look > 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
        futex.value() != Some(expected)
    })
}

/// The call of a thread is over: it waits no longer.
pub(super) fn waited(me: &Turn) {
    for _ in 0..PATIENCE {
        if me.sleep.load(Ordering::SeqCst) != WAKING {
            break;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    me.sleep.store(AWAKE, Ordering::SeqCst);
}

/// A thread, at its turn, wakes those that wait on a word, `most` of them: who waits longest comes first.
pub(super) fn wakes(clock: u64, futex: &Futex, most: u32, bits: u32) {
    let waits = |turn: &&Turn| {
        matches!(turn.sleep.load(Ordering::SeqCst), ASLEEP | IN_KERNEL)
            && turn.state.load(Ordering::SeqCst) == RESTS
            && turn.bits.load(Ordering::Relaxed) & bits != 0
            && (turn.futex.iter().zip(futex.name))
                .all(|(place, part)| place.load(Ordering::Relaxed) == part)
    };
    let mut waiting: Vec<_> = order::turns().iter().filter(waits).collect();
    waiting.sort_by_key(|turn| [&turn.since, &turn.serial].map(|it| it.load(Ordering::Relaxed)));
    let mut woken = 0;
    for turn in waiting {
        if woken == most {
            return;
        }
        // It may go to the kernel in between, and come back from there by itself.
        let in_kernel = !changes(turn, ASLEEP, WAKING);
        if in_kernel && !changes(turn, IN_KERNEL, WAKING) {
            continue;
        }
        woken += 1;
        turn.is_woken_at(clock);
        // The kernel wakes who is there, and who would not see that anything changed.
        let expected = turn.expected.load(Ordering::Relaxed);
        let by_kernel = in_kernel || futex.value() == Some(expected);
        let to = if by_kernel { TO_KERNEL } else { AWAKE };
        turn.sleep.store(to, Ordering::SeqCst);
        futex_wake(&turn.sleep);
        if by_kernel {
            is_awaited(turn);
        }
    }
}

/// Waits until a thread waits in the kernel, if that tells.
fn is_awaited(turn: &Turn) {
    let path = turn.file_in_kernel("syscall");
    let address = turn.address.load(Ordering::Relaxed);
    let call = format!("{} {address:#x} ", libc::SYS_futex);
    for _ in 0..PATIENCE {
        match std::fs::read_to_string(&path) {
            Ok(text) if !text.starts_with(&call) => {}
            Ok(_) => return,
            // Another process's, where that is not for all to see.
            Err(_) => return std::thread::sleep(Duration::from_millis(5)),
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}
