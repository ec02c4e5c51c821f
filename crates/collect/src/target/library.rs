//! Where programs are, and libraries of ours that are loaded into others.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A library named `name`: beside the binary, in `../lib/linewise`, beside the directory of tests and
/// examples, or where the environment variable `variable` says.
///
/// # Errors
/// Where it was looked for in vain.
pub(crate) fn find(name: &str, variable: &str) -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(variable) {
        let path = PathBuf::from(path);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(path.display().to_string())
        };
    }
    let mut places = Vec::new();
    if let Ok(own) = env::current_exe()
        && let Some(directory) = own.parent()
    {
        places.push(directory.join(name));
        if let Some(above) = directory.parent() {
            places.push(above.join("lib/linewise").join(name));
            // Cargo puts tests and examples one below the libraries, and those of dependencies
            // into `deps`.
            places.push(above.join(name));
            places.push(above.join("deps").join(name));
        }
        places.push(directory.join("deps").join(name));
    }
    places
        .iter()
        .find(|place| place.is_file())
        .cloned()
        .ok_or_else(|| {
            let looked: Vec<_> = places.iter().map(|it| it.display().to_string()).collect();
            looked.join(", ")
        })
}

/// Looks along PATH, as execvp does.
pub(crate) fn on_path(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| std::fs::metadata(file).is_ok_and(|it| it.is_file() && it.mode() & 0o111 != 0))
}
