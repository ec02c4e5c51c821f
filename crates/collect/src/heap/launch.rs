//! Whether the recorder can be loaded into a program, and how; and what else is possible.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use linewise_heap::{Region, VARIABLE};
use linewise_tracer::program::{self, Refusal};
use object::read::ReadCache;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, elf};

use super::allocator::{self, Allocator};
use super::operators;
use super::probed::Probed;
use super::recorder::HeapRecorder;
use crate::exact::on_path;
use crate::library;

/// The recorder's file.
const LIBRARY: &str = "liblinewise_preload.so";
/// What gives its C++ operators their names: the file beside it.
const OPERATORS: &str = "liblinewise_preload_cxx.so";
/// Where else to look for it.
const LIBRARY_VARIABLE: &str = "LINEWISE_PRELOAD";

/// What is said of an allocator that could be probed and nobody asked for that.
const UNPROBED: &str = "`--heap auto` has the kernel probe it (root, Linux 6.6)";

/// Options of AddressSanitizer's runtime.
const SANITIZER_VARIABLE: &str = "ASAN_OPTIONS";
/// Directories above a program at most: above the root is the root.
const DEEPEST: usize = 40;

/// Sanitizers have an allocator of their own and refuse to begin behind another library.
const SANITIZERS: [&str; 4] = ["libasan.", "libtsan.", "libmsan.", "libhwasan."];

/// The recorder ready to be loaded.
#[derive(Debug)]
pub(crate) struct Loading {
    /// The memory that it writes to.
    pub(crate) region: Region,
    /// Variables to add to the target's environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Why the blocks of an allocator that is linked into the program are not seen, if it has one.
    pub(crate) unseen: Option<String>,
}

/// Who is to tell of blocks.
#[derive(Debug)]
pub(crate) enum Source {
    /// The recorder, which is loaded with the program.
    Load(Loading),
    /// Probes on these allocators, since it cannot be loaded for that reason.
    Probe {
        allocators: Vec<Allocator>,
        reason: String,
    },
}

/// Why the recorder cannot be loaded.
#[derive(Debug, PartialEq, Eq)]
struct Unloadable {
    reason: String,
    /// The file that has the program's allocator, if that can be told before it runs.
    allocator: Option<PathBuf>,
}

impl From<String> for Unloadable {
    fn from(reason: String) -> Self {
        Self {
            reason,
            allocator: None,
        }
    }
}

/// Prepares the recorder for `command`, or, if that `may_probe`, probes where it cannot be loaded and they can be
/// placed; or says why neither is possible.
///
/// # Errors
/// A reason that follows `heap blocks are not recorded: `.
pub(crate) fn loading(command: &[OsString], may_probe: bool) -> Result<Source, String> {
    match prepare(command) {
        Ok(loading) => Ok(probe_or_load(command, loading, may_probe)),
        Err(Unloadable {
            reason,
            allocator: Some(_),
        }) if !may_probe => Err(format!("{reason}; {UNPROBED}")),
        Err(Unloadable {
            reason,
            allocator: Some(file),
        }) => match allocator::of_file(&file) {
            Ok(allocators) => Ok(Source::Probe { allocators, reason }),
            Err(why) => Err(format!(
                "{reason}, so its allocator would be probed, but {why}"
            )),
        },
        Err(Unloadable { reason, .. }) => Err(reason),
    }
}

/// Probes on an allocator that is linked into the program, where they are wanted and allowed; otherwise the recorder,
/// which sees nothing of such an allocator.
fn probe_or_load(command: &[OsString], loading: Loading, may_probe: bool) -> Source {
    let program = command.first().and_then(|name| on_path(name));
    let words = command.iter().map(|word| word.clone().into_vec()).collect();
    let program = program.and_then(|path| program::resolve(path, words).ok());
    let linked = program.and_then(|it| Some((allocator::linked_in(&it.path)?, it.path)));
    let Some((allocators, path)) = linked else {
        return Source::Load(loading);
    };
    let reason = format!(
        "{} has an allocator linked into it that no library can stand in front of",
        path.display()
    );
    let possible = match may_probe {
        true => Probed::possible(),
        false => Err(UNPROBED.to_owned()),
    };
    match possible {
        Ok(()) => Source::Probe { allocators, reason },
        Err(why) => Source::Load(Loading {
            unseen: Some(format!("{reason}; {why}")),
            ..loading
        }),
    }
}

/// Prepares the recorder for `command`, where probes cannot be placed instead.
///
/// # Errors
/// As for [`loading`].
pub(crate) fn load(command: &[OsString]) -> Result<Loading, String> {
    prepare(command).map_err(|it| it.reason)
}

/// Prepares probes for a running process.
///
/// # Errors
/// As for [`loading`].
pub(crate) fn attaching(pid: u32) -> Result<Source, String> {
    let reason = "the recorder is loaded into programs that linewise starts".to_owned();
    match allocator::of_process(pid) {
        Ok(allocators) => Ok(Source::Probe { allocators, reason }),
        Err(why) => Err(format!(
            "{reason}, so its allocator would be probed, but {why}"
        )),
    }
}

/// Places the probes of a [`Source::Probe`] in process `pid`, which runs already or is to begin; as many blocks are
/// told as a part of `overhead` pays for, or all.
///
/// # Errors
/// As for [`loading`].
pub(crate) fn probing(
    (pid, attached): (u32, bool),
    allocators: Vec<Allocator>,
    reason: &str,
    cpus: &[u32],
    overhead: Option<f64>,
) -> Result<HeapRecorder, String> {
    match Probed::new((pid, attached), allocators, cpus, overhead) {
        Ok(probed) => Ok(HeapRecorder::Probed(Box::new(probed))),
        Err(why) => Err(format!("{reason}; {why}")),
    }
}

fn prepare(command: &[OsString]) -> Result<Loading, Unloadable> {
    let name = command.first().ok_or("there is no command".to_owned())?;
    let operators = check(name, command)?;
    let library = library::find(LIBRARY, LIBRARY_VARIABLE).map_err(|looked| {
        format!("{LIBRARY} is in none of {looked}; build it with `make build`, or say where with {LIBRARY_VARIABLE}")
    })?;
    if library
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b": \t\n$".contains(byte))
    {
        return Err(Unloadable::from(format!(
            "the loader takes no library whose path has a blank, a colon or a dollar sign: {}",
            library.display()
        )));
    }
    // In the loader's words: only glibc's expands the token. The loader of a musl program, which may be started by the
    // command, finds nothing there and goes on; the recorder itself it would load and then refuse to begin.
    let mut root = OsString::from("$ORIGIN/");
    root.push("../".repeat(DEEPEST));
    let mut preload = root.clone();
    if let Some(allocator) = operators {
        let second = library.with_file_name(OPERATORS);
        if !second.is_file() {
            return Err(Unloadable::from(format!(
                "{} has C++ operators of its own, and {} is missing beside {LIBRARY}; build it with `make build`",
                allocator.display(),
                OPERATORS
            )));
        }
        // The recorder looks for the next operators behind itself.
        preload.push(second);
        preload.push(":");
        preload.push(&root);
    }
    let region = Region::create()
        .map_err(|error| format!("there is no memory to share with the program: {error}"))?;
    preload.push(library);
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    // A program with AddressSanitizer, which the command may start, refuses to begin behind another library.
    let mut sanitizer = env::var_os(SANITIZER_VARIABLE).unwrap_or_default();
    if !sanitizer.is_empty() {
        sanitizer.push(":");
    }
    sanitizer.push("verify_asan_link_order=0");
    let environment = vec![
        ("LD_PRELOAD".into(), preload),
        (VARIABLE.into(), region.path().into()),
        (SANITIZER_VARIABLE.into(), sanitizer),
    ];
    Ok(Loading {
        region,
        environment,
        unseen: None,
    })
}

/// Whether the dynamic linker would load the recorder into the program of `command`; the allocator with C++ operators of
/// its own that it would load as well, if there is one.
fn check(name: &OsStr, command: &[OsString]) -> Result<Option<PathBuf>, Unloadable> {
    // A program that cannot be run is told of by who runs it.
    let Some(path) = on_path(name) else {
        return Ok(None);
    };
    let words = command.iter().map(|word| word.clone().into_vec()).collect();
    let shown = |path: &Path| path.display().to_string();
    let program = match program::resolve(path.clone(), words) {
        Ok(program) => program,
        Err(Refusal::Impossible) => return Ok(None),
        Err(Refusal::Rights) => {
            return Err(Unloadable::from(format!(
                "{} runs with other rights than yours, and then the loader takes no library of another",
                shown(&path)
            )));
        }
    };
    const X86_64: u16 = 62;
    if program.machine != X86_64 {
        return Err(Unloadable::from(format!(
            "{} is not for x86-64",
            shown(&program.path)
        )));
    }
    let Some(linked) = Linked::read(&program.path) else {
        return Err(Unloadable::from(format!(
            "{} cannot be read as ELF",
            shown(&program.path)
        )));
    };
    let Some(interpreter) = linked.interpreter else {
        return Err(Unloadable {
            reason: format!("{} is linked statically", shown(&program.path)),
            allocator: Some(program.path),
        });
    };
    let end = interpreter.iter().position(|&byte| byte == 0);
    let file = OsStr::from_bytes(&interpreter[..end.unwrap_or(interpreter.len())]);
    if String::from_utf8_lossy(&interpreter).contains("musl") {
        // The loader is the C library, too.
        return Err(Unloadable {
            reason: format!(
                "{} is linked with musl, and the recorder with the GNU C library",
                shown(&program.path)
            ),
            allocator: Some(PathBuf::from(file)),
        });
    }
    let sanitized = |needed: &&String| SANITIZERS.iter().any(|it| needed.starts_with(it));
    if let Some(sanitizer) = linked.needed.iter().find(sanitized) {
        return Err(Unloadable::from(format!(
            "{} has the allocator of {sanitizer}",
            shown(&program.path)
        )));
    }
    Ok(operators::of_an_allocator(Path::new(file), &program.path))
}

/// How a program is linked.
struct Linked {
    interpreter: Option<Vec<u8>>,
    needed: Vec<String>,
}

impl Linked {
    fn read(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let data = &cache;
        let file = ElfFile64::<Endianness, _>::parse(data).ok()?;
        let endian = file.endian();
        let header = file.elf_header();
        let segments = header.program_headers(endian, data).ok()?;
        let interpreter = segments
            .iter()
            .find(|segment| segment.p_type(endian) == elf::PT_INTERP)
            .and_then(|segment| segment.data(endian, data).ok())
            .map(<[u8]>::to_vec);
        let sections = header.sections(endian, data).ok()?;
        let mut needed = Vec::new();
        if let Ok(Some((dynamic, link))) = sections.dynamic(endian, data) {
            let strings = sections.strings(endian, data, link).unwrap_or_default();
            for entry in dynamic {
                if entry.d_tag(endian) == elf::DT_NEEDED
                    && let Ok(name) = entry.string(endian, strings)
                {
                    needed.push(String::from_utf8_lossy(name).into_owned());
                }
            }
        }
        Some(Self {
            interpreter,
            needed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_takes_the_recorder_and_a_program_of_other_rights_does_not() {
        let checked = |name: &str| check(name.as_ref(), &[name.into()]);
        assert_eq!(checked("sh"), Ok(None));
        // What does not exist is not our business.
        assert_eq!(checked("no-such-program-anywhere"), Ok(None));
        let su = Path::new("/usr/bin/su");
        if su.exists() {
            let reason = checked("/usr/bin/su").unwrap_err().reason;
            assert!(reason.contains("other rights"), "{reason}");
        } else {
            println!("SKIP: there is no su here, a program of other rights");
        }
    }
}
