//! Which code is to be instrumented: a module, or a function of one.

use std::path::Path;

use super::ExactError;
use crate::target::function::ranges;

/// Writes what `--only` asks for as the plugin reads it.
///
/// `NAME` is a function of the program, or a module by its file's name (`libc` also for
/// `libc.so.6`); `PATH` with a slash is a module; `PATH:FUNCTION` a function of it. Functions are named
/// as the linker names them; those of Rust also by their path (`crate::module::function`).
pub(super) fn configuration(only: &str, program: &Path) -> Result<Vec<u8>, ExactError> {
    let program = std::fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
    if let Some((module, function)) = split(only)
        && !module.is_empty()
    {
        let module = std::fs::canonicalize(module).map_err(|_| unknown(only))?;
        return ranges(&module, function)
            .map(|ranges| entries(&module, &ranges))
            .ok_or_else(|| unknown(only));
    }
    if only.is_empty() {
        return Err(unknown(only));
    }
    if only.contains('/') {
        let module = std::fs::canonicalize(only).map_err(|_| unknown(only))?;
        return Ok(entries(&module, &[]));
    }
    if let Some(ranges) = ranges(&program, only) {
        return Ok(entries(&program, &ranges));
    }
    let own_name = program.file_name().is_some_and(|name| name == only);
    if own_name || only.starts_with("lib") || only.contains(".so") {
        return Ok(entries(Path::new(only), &[]));
    }
    Err(unknown(only))
}

/// Module and function, at the last colon that is not one of two.
fn split(only: &str) -> Option<(&str, &str)> {
    let alone = |&at: &usize| {
        let colon = |at: usize| only.as_bytes().get(at) == Some(&b':');
        colon(at) && !colon(at + 1) && !(at > 0 && colon(at - 1))
    };
    let at = (0..only.len()).rev().find(alone)?;
    Some((&only[..at], &only[at + 1..]))
}

fn unknown(only: &str) -> ExactError {
    ExactError::Only {
        only: only.to_owned(),
    }
}

fn entries(module: &Path, ranges: &[(u64, u64)]) -> Vec<u8> {
    let mut text = b"only-module=".to_vec();
    text.extend(std::os::unix::ffi::OsStrExt::as_bytes(module.as_os_str()));
    text.push(0);
    for (low, high) in ranges {
        text.extend(format!("only-range={low}-{high}\0").into_bytes());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_modules_and_nonsense_are_told_apart() {
        let own = std::env::current_exe().unwrap();
        let text = String::from_utf8(configuration("main", &own).unwrap()).unwrap();
        assert!(
            text.starts_with("only-module=/") && text.contains("only-range="),
            "{text}"
        );
        let text = configuration("libc", &own).unwrap();
        assert_eq!(text, b"only-module=libc\0");
        let path = own.to_str().unwrap();
        let text = String::from_utf8(configuration(path, &own).unwrap()).unwrap();
        assert!(!text.contains("only-range="), "{text}");
        for only in ["", "no_such_function", "/nowhere", "/nowhere:main"] {
            let error = configuration(only, &own).unwrap_err().to_string();
            assert!(error.contains("function"), "{error}");
        }
        assert!(configuration(&format!("{path}:main"), &own).is_ok());
        // Of Rust by its path, in the program and with a module in front.
        let function = "linewise_collect::sources::exact::only::configuration";
        for only in [function.to_owned(), format!("{path}:{function}")] {
            let text = String::from_utf8(configuration(&only, &own).unwrap()).unwrap();
            assert!(text.contains("only-range="), "{text}");
        }
        assert_eq!(split("/a:b::c"), Some(("/a", "b::c")));
        assert_eq!(split("a::b"), None);
    }
}
