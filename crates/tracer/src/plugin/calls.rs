//! System calls of the guest: those that order threads, map files, or replace the program.

use std::cell::Cell;
use std::ffi::c_uint;
use std::sync::atomic::Ordering;

use super::code::{Architecture, architecture};
use super::guest::Map;
use super::sleep::{self, Futex};
use super::{exec, group, guest, joint, order, process, qemu, shared, writer};
use crate::region::Turn;
use crate::words::{self, EventKind};

/// Numbers of the calls that are looked at, by architecture.
struct Numbers {
    mmap: i64,
    munmap: i64,
    mremap: i64,
    shmat: i64,
    clone: i64,
    fork: i64,
    vfork: i64,
    execve: i64,
    execveat: i64,
    exit: i64,
    exit_group: i64,
    futex: i64,
    fcntl: i64,
    /// Calls that wait for others if their file, which comes first, is none of a file system.
    of_files: &'static [i64],
    /// Calls that may wait for others. All else comes back by itself.
    waiting: &'static [i64],
}

/// asm/unistd_64.h of Linux.
const X86_64: Numbers = Numbers {
    mmap: 9,
    munmap: 11,
    mremap: 25,
    shmat: 30,
    clone: 56,
    fork: 57,
    vfork: 58,
    execve: 59,
    execveat: 322,
    exit: 60,
    exit_group: 231,
    futex: 202,
    fcntl: 72,
    // read, write, pread64, pwrite64, readv, writev, fsync, fdatasync, preadv, pwritev, preadv2, pwritev2
    of_files: &[0, 1, 17, 18, 19, 20, 74, 75, 295, 296, 327, 328],
    // poll, select, pause, nanosleep, sendfile, connect, accept, sendto, recvfrom, sendmsg, recvmsg,
    // execve, exit, wait4, semop, msgsnd, msgrcv, flock, ptrace, rt_sigtimedwait, rt_sigsuspend, sync, futex,
    // io_getevents, restart_syscall, semtimedop, clock_nanosleep, exit_group, epoll_wait, mq_timedsend,
    // mq_timedreceive, waitid, pselect6, ppoll, splice, tee, sync_file_range, vmsplice, epoll_pwait, accept4,
    // recvmmsg, syncfs, sendmmsg, execveat, copy_file_range, io_pgetevents, io_uring_enter, epoll_pwait2, futex_waitv,
    // futex_wait
    waiting: &[
        7, 23, 34, 35, 40, 42, 43, 44, 45, 46, 47, 59, 60, 61, 65, 69, 70, 73, 101, 128, 130, 162,
        202, 208, 219, 220, 230, 231, 232, 242, 243, 247, 270, 271, 275, 276, 277, 278, 281, 288,
        299, 306, 307, 322, 326, 333, 426, 441, 449, 455,
    ],
};

/// asm-generic/unistd.h of Linux; it has no fork and no vfork.
const AARCH64: Numbers = Numbers {
    mmap: 222,
    munmap: 215,
    mremap: 216,
    shmat: 196,
    clone: 220,
    fork: -1,
    vfork: -1,
    execve: 221,
    execveat: 281,
    exit: 93,
    exit_group: 94,
    futex: 98,
    fcntl: 25,
    // The same calls in the same order.
    of_files: &[63, 64, 67, 68, 65, 66, 82, 83, 69, 70, 286, 287],
    // Without poll, select, pause and epoll_wait, which there are none of.
    waiting: &[
        101, 71, 203, 202, 206, 207, 211, 212, 221, 93, 260, 193, 189, 188, 32, 117, 137, 133, 81,
        98, 4, 128, 192, 115, 94, 182, 183, 95, 72, 73, 76, 77, 84, 75, 22, 242, 243, 267, 269,
        281, 285, 292, 426, 441, 449, 455,
    ],
};

impl Numbers {
    /// Whether a call with these first arguments may wait for others.
    fn may_wait(&self, number: i64, a1: u64, a2: u64) -> bool {
        if number == self.fcntl {
            // F_SETLKW, F_OFD_SETLKW
            return matches!(a2, 7 | 38);
        }
        match self.of_files.contains(&number) {
            true => !is_of_a_file_system(a1),
            false => self.waiting.contains(&number),
        }
    }
}

/// Whether a descriptor is of a file, a disk or memory, and not of a pipe, a socket or a terminal.
fn is_of_a_file_system(descriptor: u64) -> bool {
    /// Of `/dev/null` and its like.
    const MEMORY: u32 = 1;
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the emulator and its guest have the same descriptors; the kernel fills in the status.
    let status = unsafe {
        if libc::fstat(descriptor as i32, status.as_mut_ptr()) != 0 {
            return true;
        }
        status.assume_init()
    };
    match status.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR => true,
        libc::S_IFCHR => libc::major(status.st_rdev) == MEMORY,
        _ => false,
    }
}

fn numbers() -> &'static Numbers {
    match architecture() {
        Architecture::X86_64 => &X86_64,
        Architecture::Aarch64 => &AARCH64,
    }
}

thread_local! {
    /// The clock of the thread, and what is cleared when the new one ends, while it makes another.
    static MAKING: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
    /// The virtual CPU of the thread that is being made.
    static MADE: Cell<Option<c_uint>> = const { Cell::new(None) };
    /// Length, rights, flags, descriptor and offset of the mmap that runs in this thread.
    static MMAP: Cell<[u64; 5]> = const { Cell::new([0; 5]) };
    /// First byte and length of the munmap that runs in this thread.
    static MUNMAP: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

const CLONE_VM: u64 = libc::CLONE_VM as u64;
const CLONE_VFORK: u64 = libc::CLONE_VFORK as u64;
const CLONE_CHILD_CLEARTID: u64 = libc::CLONE_CHILD_CLEARTID as u64;

/// A virtual CPU is made: by its maker, in the call that makes the thread.
pub(super) extern "C" fn on_vcpu_init(_id: u64, vcpu: c_uint) {
    qemu::finds_links();
    if let Some((clock, cleared)) = MAKING.take()
        && order::is_on()
    {
        order::enter(vcpu, group::group(), clock + order::ACCESS);
        order::clears(vcpu, cleared);
        MADE.set(Some(vcpu));
    }
}

/// It is no more, and the word that tells that is cleared.
pub(super) fn on_vcpu_gone(vcpu: c_uint) {
    let cleared = order::cleared_by(vcpu);
    if let Some(turn) = order::of(vcpu)
        && cleared != 0
    {
        let clock = turn.clock.load(Ordering::Relaxed);
        sleep::wakes(clock, &Futex::at(cleared, false), u32::MAX, u32::MAX);
    }
    order::ends(vcpu);
}

/// A call of futex begins, at its thread's turn: address, operation, value, timeout, bits. Whether it may wait in the kernel.
fn on_futex(turn: &Turn, [address, operation, value, timeout, bits]: [u64; 5]) -> bool {
    let clock = turn.clock.load(Ordering::Relaxed);
    let futex = Futex::at(address, operation & libc::FUTEX_PRIVATE_FLAG as u64 != 0);
    let command = operation & 127;
    let bits = match command {
        9 | 10 => bits as u32,
        _ => u32::MAX,
    };
    match command {
        0 | 9 => {
            // It is about to be cleared: QEMU does so after the last that is heard of the thread.
            let changes = order::is_cleared_by_an_end(address) == Some(false)
                && sleep::changes_soon(&futex, value as u32);
            timeout != 0 || !changes && sleep::waits(turn, &futex, value as u32, bits)
        }
        1 | 10 => {
            sleep::wakes(clock, &futex, value as u32, bits);
            false
        }
        // Those that are handed on look for themselves.
        3..=5 => {
            sleep::wakes(clock, &futex, u32::MAX, u32::MAX);
            false
        }
        7 => false,
        _ => true,
    }
}

/// A thread makes another, which `shares` its memory or is a process of its own; at its end the word at `cleared` is cleared, if that
/// is not 0.
fn makes(vcpu: c_uint, shares: bool, cleared: u64) {
    // SAFETY: called in the thread that runs this virtual CPU; the reference ends here.
    let Some(end) = (unsafe { writer::end(vcpu) }) else {
        return;
    };
    if cleared != 0 && process::current().is_some_and(process::Process::leaves_own) {
        // Whoever joins the new thread may do so by loading that.
        end.share(vcpu, cleared);
    }
    if shares {
        end.begins_order(vcpu);
        MAKING.set(Some((end.clock(), cleared)));
        return;
    }
    if shared::is_used() {
        end.joins_processes(vcpu);
    }
    joint::forks(vcpu, end.clock());
}

/// What a call executes, if that is what it does.
fn executes(number: i64, [a1, a2, a3, a4, a5]: [u64; 5]) -> Option<exec::Call> {
    let numbers = numbers();
    if number == numbers.execve {
        Some(exec::Call::Path {
            path: a1,
            arguments: a2,
            environment: a3,
        })
    } else if number == numbers.execveat {
        Some(exec::Call::At {
            directory: a1,
            path: a2,
            arguments: a3,
            environment: a4,
            flags: a5,
        })
    } else {
        None
    }
}

/// A system call begins.
pub(super) extern "C" fn on_call(
    _id: u64,
    vcpu: c_uint,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    a6: u64,
    _a7: u64,
    _a8: u64,
) {
    if process::current().is_none_or(process::Process::detached) {
        // What it executes is the kernel's from here on.
        process::current().inspect(|process| process.let_go());
        return;
    }
    let event = |kind, a, b| {
        // SAFETY: QEMU calls it in the thread that runs this virtual CPU; the reference ends here.
        if let Some(end) = unsafe { writer::end(vcpu) } {
            end.event(vcpu, kind, a, b);
        }
    };
    // SAFETY: QEMU calls us in the thread that runs this virtual CPU; the reference ends here.
    if let Some(end) = unsafe { writer::end(vcpu) } {
        end.opens(vcpu);
    }
    let numbers = numbers();
    let mut waits = numbers.may_wait(number, a1, a2);
    let ordered = order::is_on();
    if ordered {
        // SAFETY: QEMU calls us in the thread that runs this virtual CPU; the reference ends here.
        if let Some(end) = unsafe { writer::end(vcpu) } {
            end.takes_turn(false);
        }
    }
    if number == numbers.clone || number == numbers.fork || number == numbers.vfork {
        let flags = if number == numbers.clone { a1 } else { 0 };
        let cleared = match architecture() {
            _ if flags & CLONE_CHILD_CLEARTID == 0 => 0,
            Architecture::X86_64 => a4,
            Architecture::Aarch64 => a5,
        };
        // QEMU makes a process of its own of what vfork would let share the memory.
        let shares = flags & CLONE_VM != 0 && flags & CLONE_VFORK == 0;
        makes(vcpu, shares, cleared);
        let shares = if shares { words::SHARES } else { 0 };
        event(EventKind::Creates, cleared, shares);
    } else if number == numbers.futex {
        // linux/futex.h; FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME lie above the command.
        match a2 & 127 {
            0 | 6 | 9 | 11 | 13 => event(EventKind::FutexWaits, a1, 0),
            1 | 3 | 4 | 5 | 10 | 12 => {
                waits = false;
                event(EventKind::FutexWakes, a1, a3 & 0xffff_ffff);
            }
            // FUTEX_UNLOCK_PI
            7 => {
                waits = false;
                event(EventKind::FutexWakes, a1, 1);
            }
            _ => {}
        }
    }
    event(EventKind::CallBegan, number as u64, u64::from(waits));
    if ordered {
        let words = [a1, a2, a3, a4, a6];
        match order::of(vcpu) {
            None => {}
            Some(turn) if number == numbers.exit_group => turn.ends_process(),
            Some(turn) if number == numbers.futex => turn.calls(on_futex(turn, words)),
            // Who ends stays in order until that is done.
            Some(turn) => turn.calls(waits && number != numbers.exit),
        }
    }
    if number == numbers.exit {
        event(EventKind::ThreadEnded, 0, 0);
        // SAFETY: QEMU calls us in the thread that runs this virtual CPU, and no reference to its end is left.
        unsafe { writer::close(vcpu) };
    } else if number == numbers.mmap {
        MMAP.set([a2, a3, a4, a5, a6]);
    } else if number == numbers.munmap {
        shared::remove(a1, a1.saturating_add(a2));
        MUNMAP.set((a1, a2));
    } else if let Some(call) = executes(number, [a1, a2, a3, a4, a5]) {
        exec::replace(call, |traced| {
            let kind = if traced {
                EventKind::ExecTraced
            } else {
                EventKind::ExecUntraced
            };
            event(kind, 0, 0);
        });
    }
}

/// A system call is over.
pub(super) extern "C" fn on_call_end(_id: u64, vcpu: c_uint, number: i64, result: i64) {
    // SAFETY: QEMU calls it in the thread that runs this virtual CPU.
    if let Some(end) = unsafe { writer::end(vcpu) } {
        if order::is_on() {
            if number == numbers().futex
                && let Some(turn) = order::of(vcpu)
            {
                sleep::waited(turn);
            }
            if let Some(made) = MADE.take()
                && result < 0
            {
                order::ends(made);
            }
            if [numbers().clone, numbers().fork, numbers().vfork].contains(&number) {
                joint::forked(result);
            }
            end.ends_call();
        }
        end.event(vcpu, EventKind::CallEnded, number as u64, result as u64);
    }
    let numbers = numbers();
    if (-4095..0).contains(&result) {
        return;
    }
    if number == numbers.mmap {
        mapped(vcpu, result as u64);
    } else if number == numbers.munmap && shared::is_used() {
        let (start, length) = MUNMAP.get();
        if let Some(guest) = guest::current() {
            guest.lock().unmap(start, start.saturating_add(length));
        }
    } else if number == numbers.shmat || number == numbers.mremap && shared::is_used() {
        map_shared(vcpu, result as u64, None);
    }
}

/// The thread of a virtual CPU has mapped what others may have as well, `length` bytes or all that lies there; `false` if it has not.
fn map_shared(vcpu: c_uint, start: u64, length: Option<u64>) -> bool {
    let mut maps = guest::own_maps().into_iter();
    let found = maps.find(|map| map.start <= start && start < map.end);
    let Some((mut map, backing)) = found
        .filter(Map::may_change)
        .and_then(|map| map.backing.map(|backing| (map, backing)))
    else {
        return false;
    };
    map.offset += start - map.start;
    map.start = start;
    if let Some(length) = length {
        map.end = start.saturating_add(length.next_multiple_of(4096));
    }
    shared::add(map.start, map.end, backing, map.offset);
    // SAFETY: called in the thread that runs this virtual CPU; the reference ends here.
    if let Some(end) = unsafe { writer::end(vcpu) } {
        end.share_all(vcpu, map.start, map.end);
        // What has no name is nobody else's before this process forks.
        if !map.path.starts_with(b"/dev/zero") {
            end.joins_processes(vcpu);
        }
    }
    if let Some(guest) = guest::current() {
        guest.lock().map(map);
    }
    true
}

fn mapped(vcpu: c_uint, start: u64) {
    /// The bits of the flags that say for whom it is.
    const FOR_WHOM: u64 = 3;
    let [length, rights, flags, descriptor, offset] = MMAP.get();
    shared::remove(start, start.saturating_add(length));
    if flags & FOR_WHOM != libc::MAP_PRIVATE as u64 && map_shared(vcpu, start, Some(length)) {
        return;
    }
    let path = if flags & libc::MAP_ANONYMOUS as u64 == 0 {
        std::fs::read_link(format!("/proc/self/fd/{}", descriptor as i32))
            .map(|path| std::os::unix::ffi::OsStringExt::into_vec(path.into_os_string()))
            .unwrap_or_default()
    } else {
        Vec::new()
    };
    // Reserved room without rights: what is mapped into it comes by itself. But it may cover what is shared.
    if path.is_empty() && rights == 0 && !shared::is_used() {
        return;
    }
    let Some(guest) = guest::current() else {
        return;
    };
    guest.lock().map(Map {
        start,
        end: start.wrapping_add(length.next_multiple_of(4096)),
        offset,
        executable: rights & libc::PROT_EXEC as u64 != 0,
        writable: rights & libc::PROT_WRITE as u64 != 0,
        backing: None,
        path,
    });
}
