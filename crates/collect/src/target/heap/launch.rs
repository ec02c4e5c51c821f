//! Whether the recorder can be loaded into a program, and how; and what else is possible.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use linewise_heap::{Environment, Program, Region, Unloadable as Reason, Variables};
use linewise_tracer::program::{self, Refusal};

use super::allocator::{self, Allocator};
use super::operators;
use super::probed::{self, Probed};
use super::recorder::HeapRecorder;
use crate::kernel::{FunctionProbes, Kernel, Launching, Machine, Processes};
use crate::target::library;
use crate::target::library::on_path;

/// The recorder's file.
const LIBRARY: &str = "liblinewise_preload.so";
/// What gives its C++ operators their names: the file beside it.
const OPERATORS: &str = "liblinewise_preload_cxx.so";
/// Where else to look for it.
const LIBRARY_VARIABLE: &str = "LINEWISE_PRELOAD";

/// What is said of an allocator that could be probed and nobody asked for that.
const UNPROBED: &str = "`--heap auto` has the kernel probe it (root, Linux 6.6)";

/// Room for the variables beside the user's own libraries.
const VARIABLES_BYTES: usize = 3 * 4096;

/// The recorder ready to be loaded.
#[derive(Debug)]
pub(crate) struct Loading {
    /// The memory that it writes to.
    pub(crate) region: Region,
    /// The libraries, as the dynamic linker is told of them.
    libraries: OsString,
    /// Why the blocks of an allocator that is linked into the program are not seen, if it has one.
    pub(crate) unseen: Option<String>,
}

impl Loading {
    /// Variables to add to the target's environment, which the recorder hides there: they say that what it tells goes
    /// to `region`.
    pub(crate) fn environment(&self, region: &str) -> Vec<(OsString, OsString)> {
        let theirs = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty());
        let theirs = theirs.as_deref().map(OsStr::as_bytes);
        let variables = Variables {
            libraries: self.libraries.as_bytes(),
            region: region.as_bytes(),
        };
        let room = 2 * theirs.map_or(0, <[u8]>::len) + self.libraries.len() + VARIABLES_BYTES;
        let mut text = vec![0; room];
        let made = variables.compose(theirs, &mut text);
        let places = made.map(|it: Environment| [Some(it.preload), Some(it.region), it.theirs]);
        let places = places.into_iter().flatten().flatten();
        let texts = places.filter_map(|place| text.get(place)?.strip_suffix(b"\0"));
        texts
            .filter_map(|variable| {
                let (name, value) = variable.split_at(variable.iter().position(|&it| it == b'=')?);
                let owned = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
                Some((owned(name), owned(value.get(1..)?)))
            })
            .collect()
    }
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
pub(crate) fn loading(
    kernel: &impl Kernel,
    command: &[OsString],
    may_probe: bool,
) -> Result<Source, String> {
    match prepare(kernel, command) {
        Ok(loading) => Ok(probe_or_load(kernel, command, loading, may_probe)),
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
fn probe_or_load(
    kernel: &(impl FunctionProbes + Processes),
    command: &[OsString],
    loading: Loading,
    may_probe: bool,
) -> Source {
    let program = command.first().and_then(|name| on_path(name));
    let words = command.iter().map(|word| word.clone().into_vec()).collect();
    let program = program.and_then(|path| program::resolve(path, words).ok());
    let linked = program.and_then(|it| Some((allocator::linked_in(kernel, &it.path)?, it.path)));
    let Some((allocators, path)) = linked else {
        return Source::Load(loading);
    };
    let reason = format!(
        "{} has an allocator linked into it that no library can stand in front of",
        path.display()
    );
    let possible = match may_probe {
        true => probed::possible(kernel),
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
    prepare(&Machine, command).map_err(|it| it.reason)
}

/// Prepares probes for a running process.
///
/// # Errors
/// As for [`loading`].
pub(crate) fn attaching(kernel: &impl Processes, pid: u32) -> Result<Source, String> {
    let reason = "the recorder is loaded into programs that linewise starts".to_owned();
    match allocator::of_process(kernel, pid) {
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
pub(crate) fn probing<K: Kernel>(
    kernel: &K,
    (pid, attached): (u32, bool),
    allocators: Vec<Allocator>,
    reason: &str,
    cpus: &[u32],
    overhead: Option<f64>,
) -> Result<HeapRecorder<K>, String> {
    match Probed::new(kernel.clone(), (pid, attached), allocators, cpus, overhead) {
        Ok(probed) => Ok(HeapRecorder::Probed(Box::new(probed))),
        Err(why) => Err(format!("{reason}; {why}")),
    }
}

fn prepare(kernel: &impl Launching, command: &[OsString]) -> Result<Loading, Unloadable> {
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
    let mut libraries = OsString::new();
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
        libraries.push(second);
        libraries.push(":");
    }
    let region = Region::create()
        .map_err(|error| format!("there is no memory to share with the program: {error}"))?;
    region.allow_calls(kernel.allowed_calls());
    libraries.push(library);
    Ok(Loading {
        region,
        libraries,
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
    let interpreter = match examined(&program.path) {
        Ok(Program::Dynamic(interpreter)) => interpreter,
        other => return Err(unloadable(program.path, other)),
    };
    let interpreter = Path::new(OsStr::from_bytes(interpreter.as_bytes()));
    Ok(operators::of_an_allocator(interpreter, &program.path))
}

fn examined(path: &Path) -> Result<Program, Reason> {
    let file = linewise_foreign::open(path).map_err(|_| Reason::NotElf)?;
    Program::examine(|offset, to| file.read_at(to, offset).unwrap_or(0))
}

/// Why a program is none that the recorder can be loaded into.
fn unloadable(path: PathBuf, found: Result<Program, Reason>) -> Unloadable {
    let shown = path.display();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (reason, allocator) = match found {
        Err(Reason::Machine) => (format!("{shown} is not for x86-64"), None),
        Err(Reason::Static) => (format!("{shown} is linked statically"), Some(path)),
        // The loader is the C library, too.
        Err(Reason::Musl(linker)) => (
            format!("{shown} is linked with musl, and the recorder with the GNU C library"),
            Some(PathBuf::from(OsStr::from_bytes(linker.as_bytes()))),
        ),
        Err(Reason::Sanitized(library)) => (
            format!("{shown} has the allocator of {}", text(library.as_bytes())),
            None,
        ),
        Ok(_) | Err(Reason::NotElf) => (format!("{shown} cannot be read as ELF"), None),
    };
    Unloadable { reason, allocator }
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

    /// A program for x86-64 whose segment of that kind, if there is one, holds `text`.
    fn elf(segment: Option<(u32, &str)>) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(120, 0);
        (file[16], file[18], file[32], file[54]) = (2, 62, 64, 56);
        if let Some((kind, text)) = segment {
            file[56] = 1;
            file[64..68].copy_from_slice(&kind.to_le_bytes());
            file[72] = 120;
            file[96..104].copy_from_slice(&(text.len() as u64 + 1).to_le_bytes());
            file.extend(text.as_bytes());
            file.push(0);
        }
        file
    }

    #[test]
    fn programs_that_take_no_library_are_told_with_the_reason() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut narrow = elf(None);
        narrow[18] = 40;
        for (bytes, reason, allocator) in [
            (elf(None), "is linked statically", Some(path.clone())),
            (
                elf(Some((3, "/lib/ld-musl-x86_64.so.1"))),
                "is linked with musl",
                Some(PathBuf::from("/lib/ld-musl-x86_64.so.1")),
            ),
            (narrow, "is not for x86-64", None),
        ] {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let found = check(path.as_os_str(), &[path.clone().into()]).unwrap_err();
            assert!(found.reason.contains(reason), "{found:?}");
            assert_eq!(found.allocator, allocator);
            let command = [path.clone().into_os_string()];
            let why = loading(&Machine, &command, false).unwrap_err();
            assert!(why.contains(reason), "{why}");
            assert_eq!(why.ends_with(UNPROBED), allocator.is_some(), "{why}");
            // None of these has an allocator that can be found.
            let why = loading(&Machine, &command, true).unwrap_err();
            assert_eq!(why.contains("would be probed, but"), allocator.is_some());
            assert!(load(&command).is_err());
        }
        let sanitized = unloadable(path, Err(Reason::NotElf));
        assert!(sanitized.reason.ends_with("cannot be read as ELF"));
        let nothing: [OsString; 0] = [];
        assert_eq!(load(&nothing).unwrap_err(), "there is no command");
    }

    #[test]
    fn the_recorder_s_variables_stand_before_the_user_s_own() {
        let command = ["/bin/true".into()];
        match loading(&Machine, &command, false) {
            Ok(Source::Load(loading)) => {
                let variables = loading.environment("/proc/1/fd/3");
                let preload = &variables[0];
                assert_eq!(preload.0, "LD_PRELOAD");
                assert!(
                    preload.1.to_string_lossy().contains(LIBRARY),
                    "{variables:?}"
                );
                let told = |it: &(OsString, OsString)| it.1.to_string_lossy().contains("/fd/3");
                assert!(variables.iter().any(told), "{variables:?}");
            }
            Ok(other) => panic!("{other:?}"),
            Err(why) => println!("skipped: {why}"),
        }
    }
}
