//! Whose type is it? A layout is advice for who can change the declaration, and nobody pastes one
//! into glibc's `malloc_state` or into `std::vector`.
//!
//! What is not the program's is known by three signs, each enough:
//!
//! - the declaration stands where systems keep headers and the sources of toolchains. `/usr/src` is
//!   not such a place as a whole: images of containers are built there;
//! - it is of a crate that comes with Rust's compiler, or nothing that a source declares (`&[T]`, a
//!   closure). Rust's debug info says in which module a type is, not in which file;
//! - only code of the system's libraries touches it. Their debug packages name sources relative to a
//!   place that is gone (`./malloc/arena.c`), as a program may that was built without absolute paths.
//!
//! What cannot be told is taken for the program's: it has the advice.

use std::collections::BTreeMap;

use linewise_recording::{Address, Map, MapKind, Pid};

use crate::own_code::{
    CPP_SOURCES, Packages, RUST_SOURCES, SYSTEM_LIBRARIES, SYSTEM_SOURCES, is_library,
    is_named_in_go, is_of_package, without_dots,
};

/// Crates that come with the compiler.
const RUST_CRATES: [&str; 8] = [
    "alloc",
    "core",
    "hashbrown",
    "panic_unwind",
    "proc_macro",
    "std",
    "std_detect",
    "test",
];
/// The code of the processes, to be asked whose it is.
#[derive(Debug, Default)]
pub(super) struct Code<'a> {
    /// Executable mappings of files, by process and first byte.
    maps: BTreeMap<(Pid, u64), &'a Map>,
    /// Directories of the programs themselves.
    homes: Vec<&'a str>,
}

impl<'a> Code<'a> {
    /// The code in `maps`.
    pub(super) fn new(maps: &'a [Map]) -> Self {
        let code = || {
            maps.iter()
                .filter(|map| map.executable && map.kind == MapKind::File)
        };
        let mut homes: Vec<&str> = code()
            .filter(|map| !is_library(&map.path))
            .filter_map(|map| Some(map.path.rsplit_once('/')?.0))
            // What lies in /usr/bin has its own libraries below /usr/lib, among all others.
            .filter(|home| {
                !SYSTEM_LIBRARIES
                    .iter()
                    .any(|place| place.trim_end_matches('/') == *home)
            })
            .collect();
        homes.sort_unstable();
        homes.dedup();
        Self {
            maps: code().map(|map| ((map.pid, map.start.0), map)).collect(),
            homes,
        }
    }

    /// The system's library that holds `address` of process `pid`; `None` for code of the program
    /// and of libraries of its own, and where that is not known.
    pub(super) fn library(&self, pid: Pid, address: Address) -> Option<&'a str> {
        let (_, map) = self
            .maps
            .range((pid, 0)..=(pid, address.0))
            .next_back()
            .filter(|(_, map)| address < map.end)?;
        let path = map.path.as_str();
        let (directory, name) = path.rsplit_once('/')?;
        let own = self.homes.iter().any(|home| {
            directory
                .strip_prefix(home)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let system = SYSTEM_LIBRARIES.iter().any(|place| path.starts_with(place));
        (is_library(path) && system && !own).then_some(name)
    }
}

/// Who declares the type `name` if it is not the program: a word or two; empty if it is the program's.
///
/// `language` is that of its members, `declared_at` is `file:line` (of Rust the module) or empty, and `library` is the
/// system's library whose code alone touches it, if there is one.
pub(crate) fn owner(
    name: &str,
    language: &str,
    declared_at: &str,
    library: Option<&str>,
    packages: &Packages,
) -> String {
    if language == "go" && is_named_in_go(name) {
        return "Go's library".to_owned();
    }
    if language == "rust" {
        if packages.hold(declared_at) {
            return "a package".to_owned();
        }
        let first = declared_at.split("::").next().unwrap_or_default();
        if RUST_CRATES.contains(&first) {
            return "Rust's library".to_owned();
        }
        // Up to its parameters.
        let plain = name.split('<').next().unwrap_or_default();
        if !plain
            .chars()
            .all(|letter| letter.is_alphanumeric() || letter == '_')
            || plain == "str"
        {
            return "the compiler".to_owned();
        }
    }
    let path = without_dots(declared_at);
    if RUST_SOURCES.iter().any(|place| path.contains(place)) {
        return "Rust's library".to_owned();
    }
    if is_of_package(&path) {
        return "a package".to_owned();
    }
    if path.contains(CPP_SOURCES) {
        return "the C++ library".to_owned();
    }
    if SYSTEM_SOURCES.iter().any(|place| path.starts_with(place)) {
        return "a header of the system".to_owned();
    }
    library.map_or_else(String::new, str::to_owned)
}

#[cfg(test)]
mod tests {
    use linewise_recording::Time;

    use super::*;

    fn owner(name: &str, language: &str, declared_at: &str, library: Option<&str>) -> String {
        super::owner(name, language, declared_at, library, &Packages::default())
    }

    #[test]
    fn what_comes_with_a_package_is_not_the_programs() {
        let queue = "/home/dev/.cargo/registry/src/index/queue-1.0/c/queue.h:3";
        assert_eq!(owner("struct q", "c", queue, None), "a package");
        assert_eq!(owner("sync.Mutex", "go", "", None), "Go's library");
        assert_eq!(owner("main.Queue", "go", "", None), "");
    }

    fn map(start: u64, path: &str) -> Map {
        Map {
            pid: Pid(1),
            time: Time(0),
            start: Address(start),
            end: Address(start + 0x1000),
            offset: 0,
            executable: true,
            writable: false,
            kind: MapKind::File,
            path: path.to_owned(),
            build_id: String::new(),
            device: None,
            inode: None,
        }
    }

    #[test]
    fn headers_and_sources_of_the_system_are_not_the_programs() {
        for place in [
            "/usr/include/link.h:95",
            "/usr/lib/gcc/x86_64-linux-gnu/12/../../../../include/elf.h:80",
            "/usr/lib/gcc/x86_64-linux-gnu/12/include/stddef.h:145",
            "/usr/src/debug/glibc-2.38/malloc/malloc.c:1831",
            "/nix/store/abc-glibc-2.38-dev/include/bits/pthreadtypes.h:10",
        ] {
            assert_eq!(
                owner("struct x", "c", place, None),
                "a header of the system"
            );
        }
        for place in [
            "/home/dev/app/src/node.h:3",
            // Where a container's image was built.
            "/usr/src/app/node.c:3",
            "./src/node.c:3",
            "/home/dev/usr/include/node.h:3",
            "/usr/include/../src/app/node.c:3",
            "",
        ] {
            assert_eq!(owner("struct node", "c", place, None), "", "{place}");
        }
    }

    #[test]
    fn what_comes_with_the_compiler_is_not_the_programs() {
        let rust = |name, module| owner(name, "rust", module, None);
        assert_eq!(rust("Vec<app::Node>", "alloc::vec"), "Rust's library");
        assert_eq!(rust("Option<u8>", "core::option"), "Rust's library");
        assert_eq!(rust("Node", "app::core"), "");
        assert_eq!(rust("Table<alloc::string::String, (u8, u8)>", "app"), "");
        for name in ["&[u8]", "*const app::Node", "(u32, u64)", "&str", "str"] {
            assert_eq!(rust(name, ""), "the compiler", "{name}");
        }
        assert_eq!(rust("{closure_env#0}", "app::run"), "the compiler");
        let cpp = |place| owner("vector<int>", "c++", place, None);
        assert_eq!(
            cpp("/usr/include/c++/12/bits/stl_vector.h:423"),
            "the C++ library"
        );
        assert_eq!(
            cpp("/opt/llvm/bin/../include/c++/v1/vector:300"),
            "the C++ library"
        );
        assert_eq!(cpp("/home/dev/app/vector.h:3"), "");
        // A file may be called as a crate is.
        assert_eq!(owner("struct node", "c", "core:3", None), "");
    }

    #[test]
    fn what_only_libraries_of_the_system_touch_is_theirs() {
        let maps = [
            map(0x1000, "/home/dev/app/run"),
            map(0x3000, "/usr/lib/x86_64-linux-gnu/libc.so.6"),
            map(0x5000, "/home/dev/app/lib/libnode.so.1"),
            map(0x7000, "/opt/node/libown.so"),
        ];
        let code = Code::new(&maps);
        let library = |address| code.library(Pid(1), Address(address));
        assert_eq!(library(0x3010), Some("libc.so.6"));
        for address in [0x1010, 0x5010, 0x7010, 0x2fff, 0x9000] {
            assert_eq!(library(address), None, "{address:#x}");
        }
        assert_eq!(code.library(Pid(2), Address(0x3010)), None);
        let debug_package = "./malloc/arena.c:45";
        let malloc = owner("struct malloc_state", "c", debug_package, library(0x3010));
        assert_eq!(malloc, "libc.so.6");
        assert_eq!(
            owner("struct node", "c", debug_package, library(0x1010)),
            ""
        );
    }

    #[test]
    fn an_installed_program_has_libraries_beside_it() {
        let maps = [
            map(0x1000, "/usr/lib/browser/browser"),
            map(0x3000, "/usr/lib/browser/parts/libparts.so"),
            map(0x5000, "/usr/lib/libz.so.1"),
        ];
        let code = Code::new(&maps);
        assert_eq!(code.library(Pid(1), Address(0x3010)), None);
        assert_eq!(code.library(Pid(1), Address(0x5010)), Some("libz.so.1"));
        // A program among the libraries does not make them its own.
        let maps = [
            map(0x1000, "/usr/lib/tool"),
            map(0x5000, "/usr/lib/libz.so.1"),
        ];
        let code = Code::new(&maps);
        assert_eq!(code.library(Pid(1), Address(0x5010)), Some("libz.so.1"));
    }
}
