//! Whose code is it? Of the frames of a place those are the program's own that were compiled from its own sources: neither
//! the system's, nor its language's, nor of a package that it was built with. Of code without debug info its name and the file that it
//! is in must do.

use std::collections::BTreeSet;

use linewise_recording::Frame;

/// Where headers and sources of the system lie.
pub(crate) const SYSTEM_SOURCES: [&str; 9] = [
    "/usr/include/",
    "/usr/local/include/",
    "/usr/lib/",
    "/usr/lib32/",
    "/usr/lib64/",
    "/usr/src/debug/",
    "/usr/src/linux",
    "/nix/store/",
    "/gnu/store/",
];
/// Where Rust's own sources lie, in what was built with its toolchain.
pub(crate) const RUST_SOURCES: [&str; 2] = ["/rustc/", "/lib/rustlib/src/"];
/// Where the system's libraries lie.
pub(crate) const SYSTEM_LIBRARIES: [&str; 8] = [
    "/lib/",
    "/lib32/",
    "/lib64/",
    "/usr/lib/",
    "/usr/lib32/",
    "/usr/lib64/",
    "/nix/store/",
    "/gnu/store/",
];
/// How the files are called that linewise loads into a program.
const RECORDERS: &str = "/liblinewise_";
/// Where the headers of the C++ library lie, wherever the compiler was installed.
pub(crate) const CPP_SOURCES: &str = "/include/c++/";

/// Where package managers put the sources of what a program is built with.
const PACKAGE_SOURCES: [&str; 3] = ["/registry/src/", "/git/checkouts/", "/pkg/mod/"];
/// Where Go's own sources lie, beside those of a program that is built without modules.
const GO_SOURCES: &str = "/go/src/";
/// Packages that come with Go, where paths are trimmed; the runtime's assembly is of them, too.
const GO_PACKAGES: [&str; 22] = [
    "bufio", "bytes", "context", "crypto", "encoding", "fmt", "hash", "internal", "io", "maps",
    "math", "net", "os", "reflect", "runtime", "slices", "sort", "strconv", "strings", "sync",
    "syscall", "time",
];
/// How the names of functions of the languages' libraries begin, where nothing but the name is known.
const LIBRARY_NAMES: [&str; 13] = [
    "std::",
    "core::",
    "alloc::",
    "__gnu_cxx::",
    "__rust_",
    "__rustc",
    "rust_begin_unwind",
    "operator new",
    "operator delete",
    // What a lock of these crates holds besides its value.
    "parking_lot::",
    "lock_api::",
    // What runs JavaScript, in one file with the symbols of node.
    "Builtins_",
    "v8::",
];

/// The crates of packages that programs were built with: Rust's debug info says of a type in which module it is, and in no file.
#[derive(Debug, Default)]
pub(crate) struct Packages(BTreeSet<String>);

impl Packages {
    /// Those whose code is in `frames`.
    pub(crate) fn of(frames: &[Frame]) -> Self {
        let of_package = frames.iter().filter(|frame| is_of_package(&frame.file));
        // `rayon_core::job::execute`; whose `<T as Trait>::f` is, its file does not say.
        let name = |frame: &Frame| {
            let (name, _) = frame.function.split_once("::")?;
            let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
            is_name.then(|| name.to_owned())
        };
        Self(of_package.filter_map(name).collect())
    }

    /// Whether something lies in a crate of one: `rayon_core::job`.
    pub(crate) fn hold(&self, path: &str) -> bool {
        self.0.contains(path.split("::").next().unwrap_or_default())
    }
}

/// Whether a source file is one of a package that a package manager fetched.
pub(crate) fn is_of_package(file: &str) -> bool {
    PACKAGE_SOURCES.iter().any(|place| file.contains(place))
}

/// Whether something is of Go's own packages, by its name: `sync.Mutex`, `internal/sync.Mutex`.
pub(crate) fn is_named_in_go(name: &str) -> bool {
    GO_PACKAGES.iter().any(|package| {
        let rest = name.strip_prefix(package);
        // `runtime.mallocgc`, and no file of the name `net.so`.
        rest.is_some_and(|rest| rest.starts_with(['.', '/']) && !rest.contains('+'))
    })
}

/// Whether code of `module`, from the source `file`, comes with the system, with its language or from a package.
pub(crate) fn is_library_code(module: &str, file: &str) -> bool {
    let path = without_dots(file);
    let in_system = |places: &[&str], path: &str| places.iter().any(|it| path.starts_with(it));
    let holds = |places: &[&str]| places.iter().any(|place| path.contains(place));
    holds(&RUST_SOURCES)
        || path.contains(CPP_SOURCES)
        || in_system(&SYSTEM_SOURCES, &path)
        || is_of_package(&path)
        || is_recorder(module)
        || is_of_go(&path)
        || (is_library(module) && in_system(&SYSTEM_LIBRARIES, module))
}

/// Whether it is a file that linewise loads into a program.
pub(crate) fn is_recorder(module: &str) -> bool {
    module.contains(RECORDERS)
}

/// `/usr/local/go/src/sync/mutex.go`, or `sync/mutex.go`, as a program has it whose paths were trimmed.
fn is_of_go(path: &str) -> bool {
    let path = path.split_once(GO_SOURCES).map_or(path, |(_, rest)| rest);
    let first = path.split_once('/').map(|(first, _)| first);
    let is_source = path.ends_with(".go") || path.ends_with(".s");
    is_source && first.is_some_and(|first| GO_PACKAGES.contains(&first))
}

/// Whether a frame is of the program's own code.
pub(crate) fn is_own(frame: &Frame) -> bool {
    // What has no name is nobody's own: a name further out says more.
    let named = !frame.function.is_empty();
    let of_library = is_library_code(&frame.module, &frame.file)
        || (frame.file.is_empty() && has_library_name(&frame.function));
    named && !of_library
}

/// `<alloc::vec::Vec<T> as core::ops::Drop>::drop` and `std::mutex::lock()`.
fn has_library_name(function: &str) -> bool {
    let name = function.trim_start_matches(['<', '&']);
    is_named_in_library(name) || is_named_in_go(name)
}

/// Whether a name is one in a language's library: `std::_Rb_tree_node<int>`.
pub(crate) fn is_named_in_library(name: &str) -> bool {
    LIBRARY_NAMES.iter().any(|start| name.starts_with(start))
}

/// Whether a file is a library by its name.
pub(crate) fn is_library(path: &str) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    name.ends_with(".so") || name.contains(".so.")
}

/// `path` with `.` and `..` taken out, so far as what they leave is known.
pub(crate) fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| !matches!(*last, "" | "..")) => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use linewise_recording::{Address, Pid};

    use super::*;

    #[test]
    fn code_of_libraries_is_known_by_its_source_or_its_module() {
        let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        for (module, file) in [
            (libc, "./nptl/pthread_mutex_lock.c"),
            ("/home/dev/app", "/usr/include/c++/12/bits/std_mutex.h"),
            ("/home/dev/app", "/rustc/0b1c/library/std/src/sync/mutex.rs"),
            (
                "/home/dev/app",
                "/home/dev/.cargo/registry/src/index/rayon-1.1/src/lib.rs",
            ),
            (
                "/home/dev/app",
                "/home/dev/go/pkg/mod/example.org/x@v1/y.go",
            ),
            ("/home/dev/app", "/usr/local/go/src/runtime/proc.go"),
            ("/home/dev/app", "/usr/local/go/src/internal/sync/mutex.go"),
            ("/home/dev/app", "runtime/internal/atomic/atomic_amd64.s"),
        ] {
            assert!(is_library_code(module, file), "{module} {file}");
        }
        for (module, file) in [
            ("/usr/bin/memcached", "./items.c"),
            ("/home/dev/libown.so", "/home/dev/own.c"),
            ("/home/dev/app", "main.go"),
            ("/home/dev/app", "net/server.c"),
            ("/home/dev/app", "/home/dev/go/src/shop/sync.go"),
            ("", ""),
        ] {
            assert!(!is_library_code(module, file), "{module} {file}");
        }
    }

    #[test]
    fn crates_of_packages_are_known_by_their_code() {
        let frame = |function: &str, file: &str| Frame {
            pid: Pid(1),
            address: Address(1),
            depth: 0,
            function: function.to_owned(),
            file: file.to_owned(),
            line: 1,
            module: "/home/dev/app".to_owned(),
            reason: String::new(),
        };
        let registry = "/home/dev/.cargo/registry/src/index/rayon-core-1.1/src/job.rs";
        let packages = Packages::of(&[
            frame("rayon_core::job::execute", registry),
            frame("<app::Job as rayon_core::Run>::run", registry),
            frame("app::run", "src/main.rs"),
        ]);
        assert!(packages.hold("rayon_core::job") && packages.hold("rayon_core"));
        assert!(!packages.hold("app") && !packages.hold("rayon") && !packages.hold(""));
    }

    #[test]
    fn without_debug_info_the_name_says_whose_code_it_is() {
        let frame = |function: &str, module: &str| Frame {
            pid: Pid(1),
            address: Address(1),
            depth: 0,
            function: function.to_owned(),
            file: String::new(),
            line: 0,
            module: module.to_owned(),
            reason: String::new(),
        };
        for name in [
            "assoc_find",
            "zstd+0x1234",
            "store::std_dev",
            "io_loop",
            "<app::X as core::Drop>::drop",
        ] {
            assert!(is_own(&frame(name, "/usr/bin/app")), "{name}");
        }
        for name in [
            "std::thread::park",
            "<core::iter::Map<F> as X>::next",
            "runtime.mallocgc",
            "",
            "sync/atomic.AddInt64",
        ] {
            assert!(!is_own(&frame(name, "/usr/bin/app")), "{name}");
        }
        assert!(!is_own(&frame(
            "memcpy",
            "/usr/lib/x86_64-linux-gnu/libc.so.6"
        )));
    }
}
