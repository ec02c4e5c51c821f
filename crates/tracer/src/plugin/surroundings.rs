//! Whether QEMU can be run once more from where the guest is now.
//!
//! A program may have changed its user, its root directory or its namespaces, or have hardly any descriptors or memory
//! left. A QEMU that cannot load its libraries, the tracer or the memory of the rings ends before the guest's program
//! begins. So all that it takes is looked for before, as what will run will look for it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::guest;
use crate::program::may;
use crate::region::Region;
use crate::words::ExecTrouble;

/// Files that QEMU and the dynamic linker have open at a time, and some more.
const DESCRIPTORS: usize = 4;
/// Address space that QEMU takes for itself, about: its code, what it translates, and stacks.
const QEMU_BYTES: u64 = 3 << 30;

/// What QEMU was made of when it began: QEMU itself, the tracer, and their libraries, with device and inode.
static FILES: OnceLock<Vec<(PathBuf, (u64, u64))>> = OnceLock::new();

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|it| (it.dev(), it.ino()))
}

/// Notes what this process was made of. Call it before the guest's program is loaded.
pub(super) fn remember() {
    let mut paths: Vec<PathBuf> = guest::own_maps()
        .into_iter()
        .filter(|map| map.path.starts_with(b"/") && !map.path.starts_with(b"/memfd:"))
        .map(|map| PathBuf::from(OsStr::from_bytes(&map.path)))
        .collect();
    paths.sort();
    paths.dedup();
    let known = |path: PathBuf| identity(&path).map(|its| (path, its));
    let _ = FILES.set(paths.into_iter().filter_map(known).collect());
}

/// Why QEMU cannot be run from here as it was before; `region` is found at `path`.
pub(super) fn trouble(qemu: &[u8], path: &[u8], region: &Region) -> Option<ExecTrouble> {
    if !has_room() {
        return Some(ExecTrouble::Limits);
    }
    let path = Path::new(OsStr::from_bytes(path));
    let is_there = |(path, its): &(PathBuf, (u64, u64))| {
        identity(path).as_ref() == Some(its) && may(path, libc::R_OK)
    };
    let there = may(Path::new(OsStr::from_bytes(qemu)), libc::X_OK)
        && FILES.get().is_none_or(|files| files.iter().all(is_there))
        && region.opens_at(path);
    (!there).then_some(ExecTrouble::Unreachable)
}

/// Whether there are descriptors and address space for QEMU.
fn has_room() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes one rlimit.
    let limited = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    if limited && limit.rlim_cur < QEMU_BYTES + Region::least_bytes() {
        return false;
    }
    let files: Vec<File> = (0..DESCRIPTORS)
        .map_while(|_| File::open("/").ok())
        .collect();
    files.len() == DESCRIPTORS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_same_file_any_more_is_not_run() {
        let region = Region::create().unwrap();
        let path = region.path().unwrap();
        let own = std::env::current_exe().unwrap();
        let qemu = own.as_os_str().as_bytes();
        remember();
        assert_eq!(trouble(qemu, path.as_bytes(), &region), None);
        let other = Region::create().unwrap();
        for (qemu, path) in [
            (&b"/nowhere"[..], path.as_bytes()),
            (qemu, b"/nowhere"),
            (qemu, other.path().unwrap().as_bytes()),
        ] {
            let found = trouble(qemu, path, &region);
            assert_eq!(found, Some(ExecTrouble::Unreachable));
        }
    }
}
