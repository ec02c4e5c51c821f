//! Runtimes that make code or interpret it, and keep a heap of their own: which one a process runs, by the files that it has mapped.

use std::collections::{BTreeSet, HashMap};

use linewise_recording::{Frame, Map, Pid};

/// What memory of Go's heap is called.
pub(crate) const GO_NAME: &str = "heap (Go)";

/// A runtime, as far as advice needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Runtime {
    /// The language of the programs that it runs; empty where those have several.
    pub(crate) language: &'static str,
    /// What its memory for the program's objects is called.
    pub(crate) heap: &'static str,
}

/// How the files are called that runtimes lie in, up to a version.
const FILES: [(&str, Runtime); 9] = {
    const JAVA: Runtime = runtime("java", "Java heap");
    const V8: Runtime = runtime("javascript", "V8 heap");
    const PYTHON: Runtime = runtime("python", "Python heap");
    [
        ("libjvm", JAVA),
        ("node", V8),
        ("nodejs", V8),
        ("libnode", V8),
        ("libv8", V8),
        ("deno", V8),
        ("libcoreclr", runtime("", ".NET heap")),
        ("python", PYTHON),
        ("libpython", PYTHON),
    ]
};

const fn runtime(language: &'static str, heap: &'static str) -> Runtime {
    Runtime { language, heap }
}

impl Runtime {
    /// The runtime that a file is.
    pub(crate) fn of_file(path: &str) -> Option<Self> {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        // `libpython3.12.so.1.0`, `node-22`.
        let bare = name.split(".so").next().unwrap_or(name);
        let bare = bare.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
        let mut all = FILES.iter();
        all.find(|(file, _)| *file == bare).map(|(_, it)| *it)
    }

    /// How it is made to tell the names of the code that it makes: of process `pid` while that runs, else when it is
    /// started.
    fn naming(self, pid: Option<Pid>) -> Option<String> {
        Some(match (self.heap, pid) {
            ("Java heap", Some(pid)) => {
                format!("run `jcmd {pid} Compiler.perfmap` while it runs (JDK 17 and later)")
            }
            ("Java heap", None) => "start Java with `-XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit` (JDK 17 and later)".to_owned(),
            ("V8 heap", _) => "start node with `--perf-basic-prof`".to_owned(),
            ("Python heap", _) => "start Python with `-X perf` (3.12 and later)".to_owned(),
            (".NET heap", _) => "start it with `DOTNET_PerfMapEnabled=1`".to_owned(),
            _ => return None,
        })
    }

    /// The runtime whose heap memory is that was mapped by `site`.
    pub(crate) fn that_maps(site: &Frame) -> Option<Self> {
        // Go's is compiled into its programs.
        let of_go = site.function.starts_with("runtime.sys") && site.file.ends_with(".go")
            || site.function == "x_cgo_mmap" && site.file.ends_with("gcc_mmap.c");
        match of_go {
            true => Some(runtime("go", GO_NAME)),
            false => Self::of_file(&site.module),
        }
    }
}

/// How it begins what is said of code that was made at run time and has no name.
const NAMELESS: &str = "code made at run time, of which /tmp/perf-PID.map tells nothing";

/// The runtimes of the processes.
#[derive(Debug, Default)]
pub(crate) struct Runtimes(HashMap<Pid, Runtime>);

impl Runtimes {
    /// By what is mapped. Of several the first that is found makes code or has none made.
    pub(crate) fn of(maps: &[Map]) -> Self {
        let mut found = HashMap::new();
        for map in maps.iter().filter(|map| map.executable) {
            if let Some(runtime) = Runtime::of_file(&map.path) {
                found.entry(map.pid).or_insert(runtime);
            }
        }
        Self(found)
    }

    /// What is missing of code: of what was made at run time what the runtimes that are there do about it, or that of `language` if one
    /// is given; `runs` if the processes go on.
    pub(crate) fn remedy(&self, missing: &str, language: &str, runs: bool) -> Option<String> {
        let nameless = missing.starts_with(NAMELESS);
        let those = |it: &(&Pid, &Runtime)| language.is_empty() || it.1.language == language;
        let named = (self.0.iter()).filter(|it| nameless && those(it));
        let remedies: BTreeSet<String> = named
            .filter_map(|(pid, runtime)| runtime.naming(runs.then_some(*pid)))
            .collect();
        let remedies: Vec<String> = remedies.into_iter().collect();
        (!remedies.is_empty())
            .then(|| format!("{NAMELESS}, nor a jitdump: {}", remedies.join("; ")))
    }

    /// The runtime that made the code of a frame, or whose own that is.
    pub(crate) fn behind(&self, frame: &Frame) -> Option<Runtime> {
        match is_made(frame) {
            true => self.0.get(&frame.pid).copied(),
            false => Runtime::of_file(&frame.module),
        }
    }
}

/// Whether code lies in no file: it was made at run time.
fn is_made(frame: &Frame) -> bool {
    let is_file = frame.module.starts_with('/')
        && !["//anon", "/memfd:", "/dev/"]
            .iter()
            .any(|it| frame.module.starts_with(it));
    !is_file
}

#[cfg(test)]
mod tests {
    use linewise_recording::{Address, MapKind, Time};

    use super::*;

    fn frame(module: &str, function: &str, file: &str) -> Frame {
        Frame {
            pid: Pid(1),
            address: Address(0x1000),
            depth: 0,
            function: function.to_owned(),
            file: file.to_owned(),
            line: 1,
            module: module.to_owned(),
            reason: String::new(),
        }
    }

    #[test]
    fn runtimes_are_known_by_their_files() {
        let language = |path| Runtime::of_file(path).map(|it| it.language);
        for (path, named) in [
            ("/usr/lib/jvm/java-17/lib/server/libjvm.so", "java"),
            ("/usr/bin/node", "javascript"),
            ("/usr/lib/x86_64-linux-gnu/libnode.so.115", "javascript"),
            ("/usr/bin/python3.12", "python"),
            ("/usr/lib/libpython3.12.so.1.0", "python"),
            ("/usr/share/dotnet/libcoreclr.so", ""),
        ] {
            assert_eq!(language(path), Some(named), "{path}");
        }
        for path in [
            "/usr/bin/node_exporter",
            "/home/dev/nodes",
            "",
            "/usr/lib/libc.so.6",
        ] {
            assert_eq!(language(path), None, "{path}");
        }
    }

    #[test]
    fn made_code_is_its_processs_runtimes() {
        let map = Map {
            pid: Pid(1),
            time: Time(0),
            start: Address(0x1000),
            end: Address(0x2000),
            offset: 0,
            executable: true,
            writable: false,
            kind: MapKind::File,
            path: "/opt/jdk/lib/server/libjvm.so".to_owned(),
            build_id: String::new(),
            device: None,
            inode: None,
        };
        let runtimes = Runtimes::of(&[map]);
        let of = |module| {
            runtimes
                .behind(&frame(module, "work", ""))
                .map(|it| it.heap)
        };
        assert_eq!(["", "//anon", "[anon:x]"].map(of), [Some("Java heap"); 3]);
        assert_eq!(of("/opt/jdk/lib/server/libjvm.so"), Some("Java heap"));
        assert_eq!(of("/opt/own.so"), None);
        assert_eq!(Runtimes::default().behind(&frame("", "work", "")), None);
    }

    #[test]
    fn a_program_is_told_what_its_own_runtime_does_for_names() {
        let known = |name: &str| Runtime::of_file(name).unwrap();
        let both = Runtimes(HashMap::from([
            (Pid(7), known("libjvm.so")),
            (Pid(9), known("node")),
        ]));
        let nameless = format!("{NAMELESS}: all the others, too");
        let of = |language, runs| both.remedy(&nameless, language, runs).unwrap();
        assert!(of("java", true).contains("run `jcmd 7 Compiler.perfmap`"));
        assert!(of("java", false).contains("+DumpPerfMapAtExit"));
        assert!(!of("java", true).contains("node") && !of("javascript", true).contains("jcmd"));
        let all = of("", true);
        assert!(
            all.contains("jcmd 7") && all.contains("--perf-basic-prof"),
            "{all}"
        );
        assert!(!all.contains("DOTNET"), "{all}");
        assert_eq!(both.remedy("no debug info in /srv/a", "", true), None);
        assert_eq!(Runtimes::default().remedy(&nameless, "", true), None);
    }

    #[test]
    fn what_a_runtime_maps_is_its_heap() {
        let heap = |site: Frame| Runtime::that_maps(&site).map(|it| it.heap);
        let jvm = "/opt/jdk/lib/server/libjvm.so";
        assert_eq!(
            heap(frame(jvm, "os::pd_commit_memory", "")),
            Some("Java heap")
        );
        let go = frame("/srv/app", "runtime.sysMapOS", "runtime/mem_linux.go");
        assert_eq!(heap(go), Some(GO_NAME));
        let by_c = frame("/srv/app", "x_cgo_mmap", "/go/src/runtime/cgo/gcc_mmap.c");
        assert_eq!(heap(by_c), Some(GO_NAME));
        assert_eq!(heap(frame("/srv/app", "grow", "grow.c")), None);
    }
}
