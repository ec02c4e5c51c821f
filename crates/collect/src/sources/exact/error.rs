//! Why nothing was traced.

use std::io;

use linewise_machine::process::Ended;
use linewise_trace::measure::MeasureError;
use linewise_tracer::words::ExecTrouble;

use super::code::Untraced;

/// Why nothing was traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExactError {
    /// No command was given.
    #[error("no command to trace was given")]
    NoCommand,
    /// A process that runs was given.
    #[error(
        "the exact source runs a command under emulation from its beginning and cannot attach: give the command, or leave \
         out --source exact"
    )]
    Attach,
    /// The command's program is not there.
    #[error("cannot run {program}: no such program; check the spelling, or give its path")]
    NoSuchProgram {
        /// Its name.
        program: String,
    },
    /// It cannot be executed.
    #[error("cannot run {program}: it is not executable, or no program")]
    NotExecutable {
        /// Its name.
        program: String,
    },
    /// It would run with other rights.
    #[error(
        "cannot trace {program}: it runs with other rights than yours (set-user-id, capabilities) \
         or cannot be read, and QEMU would run it without them; trace a copy without those rights"
    )]
    Rights {
        /// Its name.
        program: String,
    },
    /// It is for a processor that the tracer does not know.
    #[error(
        "cannot trace {program}: it is built for another architecture (ELF machine {machine}); the \
         exact source knows x86-64 and aarch64, 64 bits"
    )]
    Architecture {
        /// Its name.
        program: String,
        /// See `e_machine` in elf.h.
        machine: u16,
    },
    /// What shall be traced is not there.
    #[error(
        "cannot trace only {only:?}: the program has no function of that name and it names no module; \
         give a function of the program as `nm` shows it, a library like libc, a path, or PATH:FUNCTION"
    )]
    Only {
        /// What was asked for.
        only: String,
    },
    /// The trace cannot be kept there.
    #[error("cannot keep the trace in {path}: {source}", path = path.display())]
    Keep {
        /// Where.
        path: std::path::PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What was traced cannot be measured as was asked for.
    #[error(transparent)]
    Measure(MeasureError),
    /// QEMU is missing.
    #[error(
        "the exact source needs {name}, which is not on PATH; install it: apt-get install qemu-user"
    )]
    NoQemu {
        /// Of this name.
        name: &'static str,
    },
    /// The plugin is missing.
    #[error(
        "the exact source needs liblinewise_tracer.so, which is not there (looked for {looked}); \
         build it with `cargo build --release -p linewise-tracer`, or say where it is in \
         LINEWISE_TRACER"
    )]
    NoPlugin {
        /// Where it was looked for.
        looked: String,
    },
    /// QEMU ran without the plugin, or could not load the program.
    #[error(
        "QEMU ended ({ended:?}) before the program began; its messages are above. The tracer \
         works in QEMU 6.0 and newer, built with plugins (Debian: qemu-user, not qemu-user-static)"
    )]
    NotInstalled {
        /// How it ended.
        ended: Ended,
    },
    /// Not enough descriptors.
    #[error(
        "too few open files are allowed: the exact source opens {0} at a time beside those that are open; \
         allow more: ulimit -n 1024"
    )]
    Descriptors(usize),
    /// No shared memory.
    #[error("no memory to share with the target: {0}; see `ulimit -v` and `ulimit -n`")]
    Memory(#[source] io::Error),
    /// No threads to measure with.
    #[error("cannot start a thread beside the target: {0}; see `ulimit -u` and `ulimit -v`")]
    Threads(#[source] io::Error),
    /// No process.
    #[error("cannot start QEMU: {0}")]
    Start(#[source] io::Error),
    /// Signals or waiting failed.
    #[error("cannot wait for the target: {0}")]
    Wait(#[source] io::Error),
}

/// A sentence about a program that ran untraced.
pub(super) fn untraced_text(untraced: &Untraced) -> String {
    let path = &untraced.path;
    match untraced.trouble {
        Some(ExecTrouble::Architecture) => {
            format!("{path} ran untraced: it is built for another architecture than the command")
        }
        Some(ExecTrouble::Rights) => format!(
            "{path} ran untraced: it runs with other rights than its caller, or cannot be read"
        ),
        Some(ExecTrouble::Exec) => {
            format!("{path} ran untraced: QEMU could not be run in its place")
        }
        Some(ExecTrouble::Unnamed) => {
            "a program that was named by an open file or directory ran untraced".to_owned()
        }
        Some(ExecTrouble::Unreachable) => format!(
            "{path} ran untraced: who executed it had changed its user, its root directory or a namespace, and cannot \
             open QEMU, the tracer or the memory shared with linewise from there"
        ),
        Some(ExecTrouble::Limits) => format!(
            "{path} ran untraced: the limits of who executed it (ulimit -n, ulimit -v) leave no room for QEMU"
        ),
        None => format!("{path} ran untraced"),
    }
}
