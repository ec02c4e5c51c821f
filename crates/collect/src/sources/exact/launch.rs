//! Finding QEMU and the plugin, and the command line that runs a program under them.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use linewise_machine::process;
use linewise_tracer::program::{self, Program, Qemu, Refusal};

use super::ExactError;
use crate::target::library::{self, on_path};

/// The plugin's file.
const PLUGIN: &str = "liblinewise_tracer.so";

/// The instruction sets that the tracer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guest {
    X86_64,
    Aarch64,
}

impl Guest {
    fn of_machine(machine: u16) -> Option<Self> {
        match machine {
            62 => Some(Self::X86_64),
            183 => Some(Self::Aarch64),
            _ => None,
        }
    }

    fn qemu(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-x86_64",
            Self::Aarch64 => "qemu-aarch64",
        }
    }

    /// A CPU that has all that this QEMU can emulate, unless the user names one.
    fn options(self) -> Vec<Vec<u8>> {
        let cpu: &[u8] = match self {
            Self::X86_64 => b"max",
            // The architected algorithm of pointer authentication takes most of the time.
            Self::Aarch64 => b"max,pauth-impdef=on",
        };
        let mut words = Vec::new();
        // QEMU's own variable is for who wants another.
        if env::var_os("QEMU_CPU").is_none() {
            words.extend([b"-cpu".to_vec(), cpu.to_vec()]);
        }
        if self == Self::Aarch64 && cfg!(not(target_arch = "aarch64")) {
            // Where Debian's cross compilers have the interpreter and the libraries.
            let root = Path::new("/usr/aarch64-linux-gnu");
            if env::var_os("QEMU_LD_PREFIX").is_none() && root.is_dir() {
                words.extend([b"-L".to_vec(), root.as_os_str().as_bytes().to_vec()]);
            }
        }
        words
    }
}

/// How the command is run.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) program: Program,
    pub(super) qemu: Qemu,
}

/// See [`crate::target::library::find`]; the variable is `LINEWISE_TRACER`.
pub(super) fn find_plugin() -> Result<PathBuf, ExactError> {
    library::find(PLUGIN, "LINEWISE_TRACER").map_err(|looked| ExactError::NoPlugin { looked })
}

impl Launch {
    /// Finds all that `command` needs. `region` is [`linewise_tracer::Region::path`].
    pub(super) fn find(command: &[OsString], region: String) -> Result<Self, ExactError> {
        let name = command.first().ok_or(ExactError::NoCommand)?;
        let shown = || name.to_string_lossy().into_owned();
        let path = on_path(name).ok_or_else(|| ExactError::NoSuchProgram { program: shown() })?;
        if !path.exists() {
            return Err(ExactError::NoSuchProgram { program: shown() });
        }
        let words = command.iter().map(|word| word.clone().into_vec()).collect();
        let program = program::resolve(path, words).map_err(|refusal| match refusal {
            Refusal::Impossible => ExactError::NotExecutable { program: shown() },
            Refusal::Rights => ExactError::Rights { program: shown() },
        })?;
        let guest = Guest::of_machine(program.machine).ok_or_else(|| ExactError::Architecture {
            program: shown(),
            machine: program.machine,
        })?;
        let qemu =
            on_path(guest.qemu().as_ref()).ok_or(ExactError::NoQemu { name: guest.qemu() })?;
        let plugin = find_plugin()?.into_os_string().into_vec();
        let mut doubled = Vec::with_capacity(plugin.len());
        for byte in plugin {
            doubled.push(byte);
            if byte == b',' {
                doubled.push(byte);
            }
        }
        Ok(Self {
            program,
            qemu: Qemu {
                path: qemu.into_os_string().into_vec(),
                options: guest.options(),
                plugin: doubled,
                region: region.into_bytes(),
                again: false,
                fixed: process::may_fix_addresses(),
            },
        })
    }

    /// What the plugin reads when it is loaded; `only` comes from `super::only`.
    pub(super) fn configuration(&self, only: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        let mut entry = |key: &[u8], value: &[u8]| {
            text.extend(key);
            text.push(b'=');
            text.extend(value);
            text.push(0);
        };
        entry(b"qemu", &self.qemu.path);
        for option in &self.qemu.options {
            entry(b"option", option);
        }
        entry(b"plugin", &self.qemu.plugin);
        text.extend(only);
        text
    }

    /// The words to execute, and the environment for QEMU that gives the program this one.
    pub(super) fn command(&self, environment: Vec<OsString>) -> (Vec<OsString>, Vec<OsString>) {
        let environment = environment.into_iter().map(OsString::into_vec).collect();
        let (words, kept) = self.qemu.command(self.program.clone(), environment);
        let strings = |list: Vec<Vec<u8>>| list.into_iter().map(OsString::from_vec).collect();
        (strings(words), strings(kept))
    }
}
