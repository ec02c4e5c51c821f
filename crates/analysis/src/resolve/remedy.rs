//! What to do about missing debug info.

use std::fs;
use std::path::Path;

use super::debuginfod::NoDebugInfo;
use crate::own_code::is_recorder;

/// Where Debian's package manager lists the files of each package.
const DPKG: &str = "/var/lib/dpkg/info";
/// Bytes of such a list, at most.
const LARGEST_LIST: u64 = 64 << 20;

/// What to do about a file without debug info, which debuginfod does not have for that reason.
pub(super) fn remedy(path: &str, build_id: &str, why: NoDebugInfo) -> String {
    if is_recorder(path) {
        return "it is linewise's own, which records the heap (`--heap off` leaves it out)"
            .to_owned();
    }
    let (mut remedy, is_packaged) = install(path, Path::new(DPKG));
    match why {
        NoDebugInfo::NotAsked if is_packaged && !build_id.is_empty() => {
            remedy.push_str(", or set DEBUGINFOD_URLS, and debuginfod-find fetches it");
        }
        NoDebugInfo::NoClient => remedy.push_str(
            "; DEBUGINFOD_URLS is set, and debuginfod-find is not there: install the package debuginfod (elfutils-debuginfod-client)",
        ),
        NoDebugInfo::Silent => {
            let more = format!("; the servers of DEBUGINFOD_URLS did not send it in time: `debuginfod-find debuginfo {build_id}` waits for it");
            remedy.push_str(&more);
        }
        NoDebugInfo::NotAsked | NoDebugInfo::NotThere => {}
    }
    remedy
}

/// What to install or build, and whether the file is of a package; `dpkg` has a list of files for each, if there is such a folder.
fn install(path: &str, dpkg: &Path) -> (String, bool) {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let stem = name.split_once(".so").map_or(name, |(stem, _)| stem);
    let libc = [
        "libc",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
        "libm",
        "libpthread",
        "librt",
        "libdl",
    ];
    if libc.contains(&stem) && name.contains(".so") {
        let words = "install its debug package (libc6-dbg on Debian and Ubuntu)";
        return (words.to_owned(), true);
    }
    let packaged = [
        "/usr/lib/",
        "/usr/bin/",
        "/usr/sbin/",
        "/lib/",
        "/lib64/",
        "/bin/",
        "/sbin/",
    ];
    if packaged.iter().any(|folder| path.starts_with(folder)) {
        let words = match package_of(path, dpkg) {
            Some(package) => format!("install {package}-dbgsym (or -dbg), or build it with -g"),
            None => format!(
                "install the -dbgsym (or -dbg) package of the package that `dpkg -S {name}` names, or build it with -g"
            ),
        };
        return (words, true);
    }
    ("build it with -g and do not strip it".to_owned(), false)
}

/// The Debian package that a file is from. Packages may call `/usr/lib` `/lib`, which is a link to it.
fn package_of(path: &str, dpkg: &Path) -> Option<String> {
    let bare = path.strip_prefix("/usr").unwrap_or(path);
    let line = format!("{bare}\n");
    let lists = fs::read_dir(dpkg).ok()?;
    for list in lists.flatten() {
        let name = list.file_name().into_string().unwrap_or_default();
        let Some(package) = name.strip_suffix(".list") else {
            continue;
        };
        let listed = linewise_foreign::read(&list.path(), LARGEST_LIST).unwrap_or_default();
        let listed = String::from_utf8_lossy(&listed);
        let is_it = |at: usize| {
            let before = &listed[..at];
            let before = before.strip_suffix("/usr").unwrap_or(before);
            before.is_empty() || before.ends_with('\n')
        };
        if listed.match_indices(&line).any(|(at, _)| is_it(at)) {
            // `zlib1g:amd64.list`
            let package = package.split(':').next().unwrap_or(package);
            return Some(package.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_names_the_package_where_it_is_known() {
        let dpkg = tempfile::tempdir().unwrap();
        let write = |name, files| fs::write(dpkg.path().join(name), files).unwrap();
        write("zstd.list", "/.\n/usr/bin/zstd\n/usr/bin/zstdmt\n");
        write("libz:amd64.list", "/lib/x86/libz.so.1\n/srv/usr/bin/gone\n");
        write("zstd.md5sums", "/usr/bin/gone\n");
        let remedy = |path| install(path, dpkg.path()).0;
        assert!(remedy("/usr/lib/x86_64-linux-gnu/libc.so.6").contains("libc6-dbg"));
        assert!(remedy("/usr/lib/libssl.so.3").contains("dpkg -S libssl.so.3"));
        assert!(remedy("/usr/bin/zstd").starts_with("install zstd-dbgsym"));
        assert!(remedy("/usr/lib/x86/libz.so.1").starts_with("install libz-dbgsym"));
        assert!(remedy("/usr/bin/gone").contains("dpkg -S gone"));
        assert!(remedy("/opt/app/server").contains("-g"));
        assert_eq!(package_of("/bin/sh", Path::new("/no/such/folder")), None);
    }

    #[test]
    fn debuginfod_is_named_where_it_helps() {
        let of = |path, why| remedy(path, "0123abcd", why);
        let (ssl, own) = ("/usr/lib/libssl.so.3", "/opt/app/server");
        assert!(
            of(ssl, NoDebugInfo::NotAsked)
                .ends_with("set DEBUGINFOD_URLS, and debuginfod-find fetches it")
        );
        assert!(!of(own, NoDebugInfo::NotAsked).contains("debuginfod"));
        assert!(!remedy(ssl, "", NoDebugInfo::NotAsked).contains("debuginfod"));
        assert!(!of(ssl, NoDebugInfo::NotThere).contains("debuginfod"));
        assert!(of(own, NoDebugInfo::NoClient).contains("install the package debuginfod"));
        assert!(
            of(own, NoDebugInfo::Silent).contains("`debuginfod-find debuginfo 0123abcd` waits")
        );
    }
}
