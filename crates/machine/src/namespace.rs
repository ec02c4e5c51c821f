//! Processes in other namespaces of process ids, which have other numbers there than here.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::procfs;

/// In the place of the number of a process or thread that is not known here: no process has such a number.
pub const UNKNOWN: u32 = 1 << 30;

fn numbers(directory: &Path) -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

/// The numbers of a process or thread in the namespaces that it is in, from this one inwards.
fn numbers_of(path: &Path) -> Vec<u32> {
    let status = fs::read(path.join("status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let words = line.unwrap_or_default().split_ascii_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The process that has this number in a namespace below this one, and is it; `None` if there is none any more.
#[must_use]
pub fn process(number: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
    numbers(Path::new("/proc"))
        .filter(|(_, path)| {
            let numbers = numbers_of(path);
            numbers.len() > 1 && numbers.last() == Some(&number)
        })
        .map(|(pid, _)| pid)
        .find(|&pid| is_it(pid))
}

/// The thread of process `pid` that has this number in its own namespace.
#[must_use]
pub fn thread(pid: u32, number: u32) -> Option<u32> {
    numbers(&PathBuf::from(format!("/proc/{pid}/task")))
        .find(|(_, path)| numbers_of(path).last() == Some(&number))
        .map(|(tid, _)| tid)
}

/// The inode of a process's namespace of process ids; `None` if it is gone, or not ours to ask.
#[must_use]
pub fn of(pid: u32) -> Option<u64> {
    let path = format!("/proc/{pid}/ns/pid");
    fs::metadata(path).ok().map(|it| it.ino())
}

/// Whether a process has mapped the heap recorder's memory of this inode; `None` if it cannot be asked, or has
/// nothing mapped any more: it has ended and waits for its parent.
#[must_use]
pub fn has_mapped(pid: u32, inode: u64) -> Option<bool> {
    let maps = procfs::maps(pid).ok().filter(|maps| !maps.is_empty())?;
    Some(maps.iter().any(|map| map.is_memory(inode)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_this_namespace_has_one_number() {
        let own = std::process::id();
        assert_eq!(
            numbers_of(Path::new(&format!("/proc/{own}"))).last(),
            Some(&own)
        );
        assert_eq!(thread(own, own), Some(own));
        assert_eq!(process(own, |pid| pid == own), None);
        assert!(of(own).is_some());
        assert_eq!(has_mapped(own, u64::MAX), Some(false));
        assert_eq!(has_mapped(u32::MAX, 1), None);
    }
}
