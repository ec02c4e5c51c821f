//! What control groups leave to this process.

use std::fs;
use std::path::Path;

/// Memory that may still be taken before a limit of this process's groups is reached, in bytes; `None` where there is no
/// limit. Beyond it the kernel ends the process and gives no error.
pub(crate) fn memory_left_bytes(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let left = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        // Version 2 has one hierarchy without a name, version 1 one for memory.
        let (mounted, limit, used) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
            named if named.split(',').any(|one| one == "memory") => (
                "sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            ),
            _ => return None,
        };
        let mounted = root.join(mounted);
        let group = Path::new(group.trim_start_matches('/'));
        let number =
            |path: &Path| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
        // A limit of an outer group counts too, and a container's own group lies at the root.
        let left_in = |folder: &Path| {
            let folder = mounted.join(folder);
            let limit = number(&folder.join(limit))?;
            Some(limit.saturating_sub(number(&folder.join(used)).unwrap_or(0)))
        };
        group.ancestors().filter_map(left_in).min()
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_narrowest_limit_of_all_groups_counts() {
        let root = tree(&[
            ("proc/self/cgroup", "0::/outer/inner\n"),
            ("sys/fs/cgroup/outer/memory.max", "5000\n"),
            ("sys/fs/cgroup/outer/memory.current", "1000\n"),
            ("sys/fs/cgroup/outer/inner/memory.max", "max\n"),
        ]);
        assert_eq!(memory_left_bytes(root.path()), Some(4000));
    }

    #[test]
    fn both_versions_are_read_and_no_limit_is_none() {
        let root = tree(&[
            ("proc/self/cgroup", "7:cpu,memory:/a\n3:cpuset:/\n0::/\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "900\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000\n"),
        ]);
        assert_eq!(memory_left_bytes(root.path()), Some(0));
        let root = tree(&[("proc/self/cgroup", "0::/\n")]);
        assert_eq!(memory_left_bytes(root.path()), None);
        assert_eq!(memory_left_bytes(Path::new("/nowhere")), None);
    }
}
