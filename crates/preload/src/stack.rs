//! Who allocates: a walk up the stack by the collector's rules.

use core::sync::atomic::{AtomicU32, Ordering};

use linewise_heap::{Cursor, Region, SLICE_WORDS};

use crate::thread::Thread;

/// Where a hook was called: its frame as `push rbp; mov rbp, rsp` makes it.
pub(crate) type Frame = *const u64;

/// A stack as far as it could be walked.
pub(crate) struct Walked {
    pub(crate) stack: linewise_heap::Walked,
    high: u64,
}

/// Walks up from the caller of a hook.
///
/// # Safety
/// `frame` is the calling hook's, on this thread's stack.
pub(crate) unsafe fn walk(
    region: &Region,
    thread: &mut Thread,
    layout: u32,
    frame: Frame,
) -> Walked {
    // SAFETY: the hook pushed the frame pointer there, below its return address.
    let (bp, ip) = unsafe { (*frame, *frame.add(1)) };
    let at = Cursor {
        ip,
        sp: frame as u64 + 16,
        bp,
    };
    let low = at.sp;
    let high = end_of_stack(thread, low);
    let read = |address: u64| {
        (address >= low && address <= high - 8 && address & 7 == 0)
            // SAFETY: between the stack pointer and the end of the mapping that holds the stack, aligned.
            .then(|| unsafe { *(address as *const u64) })
    };
    Walked {
        stack: linewise_heap::Walked::up(region, layout, at, read),
        high,
    }
}

impl Walked {
    /// The stack from where the walk ended.
    pub(crate) fn slice(&self, from: Cursor) -> &[u64] {
        if from.sp & 7 != 0 || from.sp >= self.high {
            return &[];
        }
        let words = ((self.high - from.sp) / 8).min(SLICE_WORDS as u64);
        // SAFETY: the walk came by here, so it lies between the stack pointer and the end of the mapping
        // that holds the stack; nobody writes to it while we are called from further down.
        unsafe { core::slice::from_raw_parts(from.sp as *const u64, words as usize) }
    }
}

/// How often memory was unmapped: what is known of stacks holds until the next time.
static UNMAPPED: AtomicU32 = AtomicU32::new(0);

/// Memory is unmapped, in which a stack (of a fibre) may have been.
pub(crate) fn forget_stacks() {
    UNMAPPED.fetch_add(1, Ordering::Relaxed);
}

/// One past the last readable byte of the stack that holds `sp`, at least of its page.
fn end_of_stack(thread: &mut Thread, sp: u64) -> u64 {
    let (low, high) = thread.stack;
    let unmapped = UNMAPPED.load(Ordering::Relaxed);
    if thread.stack_seen == unmapped && (low..high).contains(&sp) {
        return high;
    }
    match mapping_of(sp) {
        Some(found) => {
            thread.stack = found;
            thread.stack_seen = unmapped;
            found.1
        }
        None => (sp | 4095) + 1,
    }
}

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// PROCMAP_QUERY: since Linux 6.11.
const QUERY: libc::c_ulong = 0xc068_6611;

/// The mapping that holds an address. By system calls alone: the functions of the C library of these names are
/// where a thread that is to be cancelled ends, and malloc is not.
fn mapping_of(address: u64) -> Option<(u64, u64)> {
    // SAFETY: a path that ends in NUL; the result is a new descriptor, closed below.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            c"/proc/self/maps".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        ) as i32
    };
    if fd < 0 {
        return None;
    }
    let mut query = Query {
        size: size_of::<Query>() as u64,
        address,
        ..Query::default()
    };
    // SAFETY: the structure is the one that the kernel expects, and says its size.
    let told = unsafe { libc::ioctl(fd, QUERY, &raw mut query) } == 0;
    let found = if told {
        Some((query.start, query.end))
    } else {
        read_maps(fd, address)
    };
    // SAFETY: our descriptor.
    unsafe { libc::syscall(libc::SYS_close, fd) };
    found.filter(|(start, end)| (*start..*end).contains(&address))
}

/// The same from the text of `/proc/self/maps`: each line begins with `start-end `, in hexadecimal.
fn read_maps(fd: i32, address: u64) -> Option<(u64, u64)> {
    let mut bytes = [0_u8; 1024];
    // The numbers of the line so far, and which of them is being read; 2: the rest of the line.
    let mut numbers = [0_u64; 2];
    let mut place = 0;
    loop {
        // SAFETY: room for as many bytes.
        let got = unsafe { libc::syscall(libc::SYS_read, fd, bytes.as_mut_ptr(), bytes.len()) };
        let got = usize::try_from(got).ok().filter(|&got| got > 0)?;
        for &byte in bytes.get(..got)? {
            match (byte, numbers.get_mut(place)) {
                (b'\n', _) => (numbers, place) = ([0; 2], 0),
                (b'-', Some(_)) => place = 1,
                (b' ', Some(_)) => {
                    if (numbers[0]..numbers[1]).contains(&address) {
                        return Some((numbers[0], numbers[1]));
                    }
                    place = 2;
                }
                (_, Some(number)) => {
                    let digit = char::from(byte).to_digit(16).unwrap_or(0);
                    *number = number.wrapping_shl(4) | u64::from(digit);
                }
                (_, None) => {}
            }
        }
    }
}
