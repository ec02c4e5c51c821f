//! A guest that replaces its program.
//!
//! QEMU hands `execve` to the kernel, which would run the new program natively and untraced. So
//! where the new program can be traced, the plugin calls `execve` itself, with QEMU and the tracer
//! in front of the guest's arguments, before QEMU does. If that call fails, or the program cannot be
//! traced, or QEMU not be run from there (see [`surroundings`]), QEMU goes on with the guest's own call; what then runs
//! untraced is reported.

use std::ffi::{CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::{code, guest, process, surroundings, writer};
use crate::program::{self, Qemu, Refusal};
use crate::words::{self, ExecTrouble};

static AGAIN: OnceLock<Qemu> = OnceLock::new();
/// The guest's own program, which `/proc/self/exe` means to it; to the kernel that is QEMU.
static OWN: OnceLock<PathBuf> = OnceLock::new();

/// Notes how QEMU was run, to run it again. Call it before the guest can change its folder.
pub(super) fn remember(qemu: Qemu) {
    let _ = AGAIN.set(qemu);
    let words = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words: Vec<Vec<u8>> = words.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    let path = program::among(&words).map(|path| PathBuf::from(OsStr::from_bytes(path)));
    if let Some(path) = path.and_then(|path| path.canonicalize().ok()) {
        let _ = OWN.set(path);
    }
}

/// The file that a path of the guest means to it.
fn meant(path: &[u8]) -> PathBuf {
    let own = path
        .strip_prefix(b"/proc/")
        .and_then(|path| path.strip_suffix(b"/exe"))
        .filter(|name| {
            let pid = std::process::id().to_string();
            *name == b"self" || *name == b"thread-self" || *name == pid.as_bytes()
        });
    match (own, OWN.get()) {
        (Some(_), Some(own)) => own.clone(),
        _ => PathBuf::from(OsStr::from_bytes(path)),
    }
}

/// The guest's call, with addresses in the guest.
pub(super) enum Call {
    /// `execve`.
    Path {
        path: u64,
        arguments: u64,
        environment: u64,
    },
    /// `execveat`.
    At {
        directory: u64,
        path: u64,
        arguments: u64,
        environment: u64,
        flags: u64,
    },
}

/// Longest string and longest list of strings that are read from the guest.
const STRING: usize = 128 << 10;
const STRINGS: usize = 1 << 16;

/// Reads guest memory, which may not be there: the kernel says so instead of a signal.
pub(super) fn peek(address: u64, into: &mut [u8]) -> usize {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut _,
        iov_len: into.len(),
    };
    // SAFETY: the kernel writes at most the length of `into`, and checks the other side.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(got).unwrap_or(0)
}

fn string(address: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut page = [0u8; 4096];
    while bytes.len() < STRING {
        let at = address.checked_add(bytes.len() as u64)?;
        // Up to the end of a page: the next may not be there.
        let length = 4096 - (at as usize & 4095);
        let got = peek(at, &mut page[..length]);
        if let Some(end) = page[..got].iter().position(|&byte| byte == 0) {
            bytes.extend(&page[..end]);
            return Some(bytes);
        }
        if got == 0 {
            return None;
        }
        bytes.extend(&page[..got]);
    }
    None
}

fn strings(mut address: u64) -> Option<Vec<Vec<u8>>> {
    let mut list = Vec::new();
    // Linux takes a missing list for an empty one.
    if address == 0 {
        return Some(list);
    }
    while list.len() < STRINGS {
        let mut pointer = [0u8; 8];
        if peek(address, &mut pointer) != 8 {
            return None;
        }
        match u64::from_le_bytes(pointer) {
            0 => return Some(list),
            pointer => list.push(string(pointer)?),
        }
        address += 8;
    }
    None
}

/// Runs the guest's new program under QEMU; returns if the guest's own call is to be made.
/// `announce` is told before, with whether the new program will be traced.
pub(super) fn replace(call: Call, announce: impl Fn(bool)) {
    let (Some(again), Some(process)) = (AGAIN.get(), process::current()) else {
        return;
    };
    // Who traces a program must be there.
    if process.looks_detached() {
        return;
    }
    let (path, arguments, environment) = match call {
        Call::Path {
            path,
            arguments,
            environment,
        } => (string(path), arguments, environment),
        Call::At {
            directory,
            path,
            arguments,
            environment,
            flags,
        } => {
            let path = string(path)
                .filter(|path| flags == 0 && !path.is_empty())
                .filter(|path| directory as i32 == libc::AT_FDCWD || path.starts_with(b"/"));
            if path.is_none() {
                announce(false);
                tell(ExecTrouble::Unnamed, b"");
                return;
            }
            (path, arguments, environment)
        }
    };
    let (Some(path), Some(arguments), Some(environment)) =
        (path, strings(arguments), strings(environment))
    else {
        // The kernel will find the same fault, unless guest addresses are no host addresses.
        announce(false);
        tell(ExecTrouble::Unnamed, b"");
        return;
    };
    let name = path;
    let path = meant(&name);
    let untraced = |trouble| {
        announce(false);
        tell(trouble, &name);
    };
    let program = match program::resolve(path, arguments) {
        Ok(program) if program.machine == code::architecture().machine() => program,
        Ok(_) => return untraced(ExecTrouble::Architecture),
        // Let the kernel say what is wrong.
        Err(Refusal::Impossible) => return,
        Err(Refusal::Rights) => return untraced(ExecTrouble::Rights),
    };
    if let Some(trouble) = surroundings::trouble(&again.path, &again.region, &process.region) {
        return untraced(trouble);
    }
    announce(true);
    let before = personality(ASK);
    let fixed = before >= 0 && before & libc::ADDR_NO_RANDOMIZE == 0;
    let again = Qemu {
        fixed,
        ..again.clone()
    };
    let (words, environment) = again.command(program, environment);
    if fixed {
        personality(before | libc::ADDR_NO_RANDOMIZE);
    }
    execute(&words, &environment);
    if fixed {
        personality(before);
    }
    untraced(ExecTrouble::Exec);
}

/// personality(2): leaves it as it is and returns it.
const ASK: i32 = -1;

fn personality(new: i32) -> i32 {
    // SAFETY: it takes a number. All bits set are 32, since that is what the kernel looks at.
    unsafe { libc::personality(libc::c_ulong::from(new as u32)) }
}

/// Takes back what had this process begin with the same addresses in every run: they stay, and the program and those that it
/// executes outside of the trace see the system's own setting.
pub(super) fn hide_fixed_addresses() {
    let now = personality(ASK);
    if now >= 0 {
        personality(now & !libc::ADDR_NO_RANDOMIZE);
    }
}

/// `execve`; returns if it failed.
fn execute(words: &[Vec<u8>], environment: &[Vec<u8>]) {
    let terminated = |list: &[Vec<u8>]| -> Vec<CString> {
        list.iter()
            .filter_map(|bytes| CString::new(bytes.clone()).ok())
            .collect()
    };
    let pointers = |list: &[CString]| -> Vec<*const c_char> {
        list.iter()
            .map(|string| string.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (words, environment) = (terminated(words), terminated(environment));
    let (words, environment) = (pointers(&words), pointers(&environment));
    // SAFETY: lists of strings that live through the call and end in null.
    unsafe { libc::execve(words[0], words.as_ptr(), environment.as_ptr()) };
}

/// Tells the collector of a program that will run untraced.
fn tell(trouble: ExecTrouble, path: &[u8]) {
    let Some(guest) = guest::current() else {
        return;
    };
    let mut record = vec![0, trouble as u64];
    words::push_text(&mut record, &path[..path.len().min(4096)]);
    record[0] = words::definition(words::DEFINES_UNTRACED, record.len() as u16 - 1);
    let _guest = guest.lock();
    // SAFETY: the guest's lock is held.
    unsafe { writer::define(&record) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<Vec<u8>> {
        list.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn memory_of_the_guest_is_read_and_its_absence_is_noticed() {
        let text = CString::new("hello").unwrap();
        let list = [text.as_ptr(), std::ptr::null()];
        assert_eq!(string(text.as_ptr() as u64), Some(b"hello".to_vec()));
        assert_eq!(strings(list.as_ptr() as u64), Some(words(&["hello"])));
        assert_eq!(string(8), None);
        assert_eq!(strings(8), None);
        assert_eq!(strings(0), Some(Vec::new()));
    }
}
