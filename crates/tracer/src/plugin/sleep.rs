//! Waiting on futexes, in the made order.
//!
//! Whom the kernel wakes, and when he runs again, is the machine's. So a thread that waits on a futex of its process enters
//! a queue here, at its turn, and sleeps; who wakes him, at its own turn, sets his clock. Then the call goes to
//! the kernel, which finds that the word has changed. A word that has not changed is waited for again, as the kernel would if the
//! wait had come later than the wake. Who waits with a time limit, or for another process, waits in the kernel.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::exec::peek;
use super::lock::Lock;
use super::{order, process};
use crate::region::{futex_wait, futex_wake};

/// How often a sleeper looks whether anybody is there to wake it.
const LOOK: Duration = Duration::from_millis(20);

/// After so many looks it sleeps in the kernel: there a signal that came in the meantime is seen.
const LOOKS: u32 = 50;
/// How long who wakes another that the kernel has to wake waits for it to be there.
const PATIENCE: u32 = 20_000;

struct Waiter {
    address: u64,
    expected: u32,
    bits: u32,
    vcpu: u32,
    in_kernel: bool,
}

static QUEUE: Lock<Vec<Waiter>> = Lock::new(Vec::new());
/// By virtual CPU: what a sleeper sleeps on.
static SLEEPS: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
/// It is to sleep in the kernel.
const TO_KERNEL: u32 = 2;

fn word_of(vcpu: u32) -> &'static AtomicU32 {
    &SLEEPS[vcpu as usize & 0xffff]
}

fn value(address: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    (peek(address, &mut bytes) == 4).then(|| u32::from_le_bytes(bytes))
}

/// A thread, at its turn, waits while the word at `address` has a value; it is back at its turn, or may have to wait in the
/// kernel, which is `true`.
pub(super) fn waits(vcpu: u32, address: u64, expected: u32, bits: u32) -> bool {
    let me = order::of(vcpu);
    let word = word_of(vcpu);
    while value(address) == Some(expected) {
        word.store(ASLEEP, Ordering::SeqCst);
        QUEUE.lock().push(Waiter {
            address,
            expected,
            bits,
            vcpu,
            in_kernel: false,
        });
        me.rests();
        let mut looks = 0;
        while word.load(Ordering::SeqCst) == ASLEEP {
            let interrupted = futex_wait(word, ASLEEP, LOOK);
            looks += 1;
            let detached = process::current().is_none_or(process::Process::detached);
            if (interrupted || detached || looks >= LOOKS) && goes_to_kernel(vcpu) {
                return true;
            }
        }
        if word.load(Ordering::SeqCst) == TO_KERNEL {
            // Its waker wakes it there at once.
            return false;
        }
        me.takes_turn(false);
    }
    false
}

/// Waits for the word at `address` to lose a value, for some milliseconds.
pub(super) fn changes_soon(address: u64, expected: u32) -> bool {
    const LOOKS: u32 = 100;
    (0..LOOKS).any(|look| {
        if look > 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
        value(address) != Some(expected)
    })
}

/// A sleeper goes to the kernel by itself, and stays in the queue; `false` if it was woken just now.
fn goes_to_kernel(vcpu: u32) -> bool {
    let mut queue = QUEUE.lock();
    let entry = queue.iter_mut().find(|waiter| waiter.vcpu == vcpu);
    entry.is_some_and(|waiter| {
        waiter.in_kernel = true;
        true
    })
}

/// The call of a thread is over: it waits no longer.
pub(super) fn waited(vcpu: u32) {
    QUEUE.lock().retain(|waiter| waiter.vcpu != vcpu);
}

/// A thread, at its turn, wakes those that wait on a word, `most` of them.
pub(super) fn wakes(clock: u64, address: u64, most: u32, bits: u32) {
    let mut woken = Vec::new();
    QUEUE.lock().retain(|waiter| {
        let wakes =
            woken.len() < most as usize && waiter.address == address && waiter.bits & bits != 0;
        if wakes {
            woken.push((waiter.vcpu, waiter.expected, waiter.in_kernel));
        }
        !wakes
    });
    for (vcpu, expected, in_kernel) in woken {
        order::of(vcpu).is_woken_at(clock);
        // The kernel wakes who is there, and who would not see that anything changed.
        let by_kernel = in_kernel || value(address) == Some(expected);
        let word = word_of(vcpu);
        word.store(if by_kernel { TO_KERNEL } else { AWAKE }, Ordering::SeqCst);
        futex_wake(word);
        if by_kernel {
            is_awaited(vcpu, address);
        }
    }
}

/// Waits until a thread waits in the kernel.
fn is_awaited(vcpu: u32, address: u64) {
    let path = order::of(vcpu).called_in_kernel();
    let call = format!("{} {address:#x} ", libc::SYS_futex);
    for _ in 0..PATIENCE {
        if std::fs::read_to_string(&path).is_ok_and(|text| text.starts_with(&call)) {
            return;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// In a child of fork, which has one thread.
pub(super) fn forget() {
    QUEUE.release();
    QUEUE.lock().clear();
}
