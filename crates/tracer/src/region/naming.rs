//! What names a process for good, though ids are used again and differ between namespaces.

use std::os::unix::fs::MetadataExt;

/// When a process started, in the kernel's ticks since boot; `None` if it is gone or a zombie. With
/// the process id this names a process for good, though ids are used again.
#[must_use]
pub fn started(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything, brackets too.
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The inode of this process's namespace of process ids; 0 if it cannot be told.
#[must_use]
pub fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |it| it.ino())
}
